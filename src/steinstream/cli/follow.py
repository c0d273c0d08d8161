"""``steinstream follow``: thin a file that a sampler is still writing."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.checkpoints import Checkpoint, known_by
from steinstream.cli.diagnosis import closing_lines
from steinstream.cli.help import Sectioned
from steinstream.cli.options import (
    OUTPUTS,
    as_anchor,
    as_kernel,
    as_live_coordinates,
    chains_options,
    checkpoint_options,
    kernel_options,
    refuse_idle,
    thinning_options,
)
from steinstream.cli.paths import check_apart, data_of, read_by
from steinstream.cli.progress import Bar, Stop, bar, count, number, stoppable
from steinstream.cli.serve import serve_options, serving

if TYPE_CHECKING:
    from steinstream.io.csv_follow import FollowedFiles
    from steinstream.live import Page
    from steinstream.result import Kept
    from steinstream.thinner import Thinner

_PAUSE = 0.1  # seconds between two looks at files without news
_LAG = 10.0  # seconds that the output file may lag behind the diagnostic file at the end


@click.command(cls=Sectioned, short_help="Thin a file while a sampler writes it.")
@chains_options
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help=OUTPUTS)
@click.option("--every", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="Seconds between two writings of the kept set.")  # fmt: skip
@click.option("--until-idle", type=click.FloatRange(min=0),
              help="Take a file without news for so many seconds for finished.")  # fmt: skip
@thinning_options
@kernel_options
@click.option("--on-bad", type=click.Choice(["raise", "skip"]), default="raise", show_default=True,
              help="What to do with a draw that is not finite.")  # fmt: skip
@checkpoint_options
@serve_options
def follow(
    chain: tuple[Path, ...], output: Path, checkpoint: Path | None, resume: bool, every: float,
    until_idle: float | None, **options: Any,
) -> None:  # fmt: skip
    """Keep the draws of CHAIN that matter while it is written: a CmdStan diagnostic file, or csv (NAME, score_NAME).

    Several files are chains of one run, of which a draw each is taken in turns. Ends when CmdStan has finished, with
    --until-idle, or with Ctrl-C; the kept set is written then and every now and then before.

    \b
    Example: steinstream follow out-diagnostic-*.csv -o kept.npz --size 200
    """
    from steinstream.io import check_output

    check_output(output)
    paths = tuple(data_of(chain, {}))
    _check_paths(paths, options)
    state = Checkpoint(checkpoint, resume, {"-o": output}, read_by(paths, options))
    with serving(options).page(paths) as page:
        with stoppable() as stop:
            run = _Run(paths, output, state, until_idle, page, options)
            run.load()
            with bar("following", 1.0) as progress:
                run.go(every, stop, progress)
        run.finish(stop)
    if stop.signal:
        sys.exit(stop.code)


def _check_paths(paths: tuple[Path, ...], options: dict[str, Any]) -> None:
    from steinstream.errors import InputError

    refuse_idle(["format", "transposed"], "here: only csv files with a line a draw can be followed")
    if options["scores_file"] is not None:
        raise InputError("--scores: a file that grows has draws and scores both.", "Use thin for a pair of files.")
    if options["output_csv"] and len(options["output_csv"]) != len(paths):
        raise InputError(
            f"{len(paths)} chains, but {len(options['output_csv'])} output files.", "Name one for each, in their order."
        )
    for path in paths:
        if path.suffix.lower() != ".csv":
            raise InputError(f"{path} cannot be followed: only csv files can.", "Thin it once it is whole.")
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"{path} is not, and cannot become, a file.", "Check the path.")
        if path.is_fifo():
            refuse_idle(["checkpoint"], f"to a pipe, {path}: what came through it is gone")


class _Run:
    """Files, the thinner they go through, and where that is written."""

    def __init__(
        self, paths: tuple[Path, ...], output: Path, state: Checkpoint, patience: float | None,
        page: Page | None, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.paths, self.output, self.state, self.options = paths, output, state, options
        self.page = page
        self.outputs: tuple[Path | None, ...] = options.pop("output_csv") or (None,) * len(paths)
        for name in ("scores_file", "format", "transposed"):  # which mean nothing here
            options.pop(name, None)
        self.patience = patience
        self.how = {name: options[name] for name in ("draws_name", "scores_name")}
        self.how["negate"] = options["negate_scores"]
        self.kernel = as_kernel(options["kernel"])
        self.preconditioner = as_live_coordinates(options["scale"], centred=self.kernel.linear > 0)
        self.began = self.written = time.monotonic()
        self.rest = 0.0  # seconds without writing, for the time that writing took
        self.anew()

    def anew(self) -> None:
        """Begin at the start of the files."""
        self.files = self._files(None)
        self.thinner: Thinner | None = None
        self.unwritten = False

    def _files(self, starts: list[int] | None) -> FollowedFiles:
        from steinstream.io.csv_follow import FollowedFiles

        patience = float("inf") if self.patience is None else self.patience
        return FollowedFiles(self.paths, starts=starts, patience=patience, **self.how)

    def load(self) -> None:
        """Go on from the checkpoint, if there is one."""
        from steinstream.errors import CheckpointError

        thinner = self.state.load()
        if thinner is None:
            return
        note, files = thinner.note, [path.name for path in self.paths]
        if note.get("files") != files:
            raise CheckpointError(
                f"{self.state.path} belongs to {note.get('files', 'another command')}, not to {files}.",
                "Name its own files, or delete the checkpoint to start anew.",
            )
        self.state.check_options(note.get("options"), self.options)
        self.state.check_heads(note.get("heads"), self.paths)
        self.thinner = thinner
        self.files = self._files(note["taken"])
        click.echo(f"going on after {count(thinner.seen)} draws", err=True)

    def go(self, every: float, stop: Stop, progress: Bar) -> None:
        """Look at the files until they have ended."""
        from steinstream.io.csv_follow import FileReplacedError

        while not stop.signal:
            try:
                grew = self.files.read()
            except FileReplacedError as news:
                seen = self.thinner.seen if self.thinner else 0
                click.echo(f"{news.args[0]} was begun anew: starting again, {count(seen)} draws forgotten", err=True)
                self.anew()
                continue
            self._take(last=False)
            self._show(progress)
            if not grew and all(self.files.ended):
                return
            if self.unwritten and time.monotonic() - self.written > max(every, self.rest):
                self._save(final=False)
            if not grew:
                time.sleep(_PAUSE)

    def _take(self, last: bool) -> None:
        from steinstream.thinner import Thinner

        for block in self.files.blocks(last):
            if self.thinner is None:
                self.thinner = Thinner(
                    block.draws.shape[1], kernel=self.kernel, preconditioner=self.preconditioner,
                    validate_scores=not self.options["trust_scores"], anchor=as_anchor(self.options["anchor"]),
                    **{name: self.options[name] for name in
                       ("size", "growth", "budget", "rule", "candidates", "on_bad")},
                )  # fmt: skip
            if self.page is not None and self.thinner._watch is None:
                self.page.show(self.thinner, self._names())
            self.thinner.extend(block.draws, block.scores, ids=block.ids)
            self.unwritten = True

    def _show(self, progress: Bar) -> None:
        if self.thinner is None:
            waiting = [chain.path.name for chain in self.files.chains if chain.names is None]
            progress.show(0.0, f"waiting for {', '.join(waiting)}" if waiting else "waiting for draws")
            return
        seen, size = self.thinner.seen, len(self.thinner)
        rate = seen / max(time.monotonic() - self.began, 1e-3)
        late = [chain.path.name for chain in self.files.chains if not chain.ready and not chain.finished]
        held = f"  ·  waiting for {', '.join(late)}" if any(c.ready for c in self.files.chains) and late else ""
        progress.show(
            self.files.fraction,
            f"{count(seen)} draws  ·  {count(round(rate))} draws/s  ·  kept {count(size)}  ·  "
            f"KSD {number(self.thinner.ksd)}{held}",
        )

    def finish(self, stop: Stop) -> None:
        """Take what is left, write it, and say what came of it."""
        from steinstream.api import too_short
        from steinstream.errors import InputError

        if stop.signal and self.unwritten:
            self._save_state()  # before chains that lag are no longer waited for
        self._take(last=True)
        thinner = self.thinner
        if thinner is None or thinner.seen == thinner.skipped:
            if stop.signal:
                click.echo("stopped before the first draw; nothing is written", err=True)
                return
            raise InputError(f"no draws came in {', '.join(map(str, self.paths))}.", "Check that the sampler runs.")
        if len(thinner) == 0:
            raise InputError(*too_short(thinner.seen - thinner.skipped, thinner.candidates))
        for chain in self.files.chains:
            if chain.config.samples is not None and chain.received < chain.config.samples:
                said = (
                    f"{chain.path} has {count(chain.received)} of the {count(chain.config.samples)} draws it announces"
                )
                click.echo(said, err=True)
        kept = self._save(final=True)
        skipped = f", {count(thinner.skipped)} bad ones skipped" if thinner.skipped else ""
        click.echo(
            f"{'stopped: ' if stop.signal else ''}kept {count(len(kept))} of {count(thinner.seen)} draws{skipped}  ·  "
            f"KSD {number(kept.ksd)}  ·  normalised {number(kept.normalised_ksd)}  ·  wrote {self.output}"
        )
        closing_lines(kept)
        if not stop.signal:
            self.state.remove()

    def _save(self, final: bool) -> Kept:
        """Write the kept set, with its variables as far as their file has them already."""
        from steinstream.errors import SteinstreamError

        began = time.monotonic()
        if self.thinner is None:
            raise RuntimeError("nothing is kept yet")
        outputs = {"-o": self.output, "--checkpoint": self.state.path}
        check_apart(outputs, read_by(self.paths, {}))  # again: CmdStan may have begun its output since
        kept = replace(self.thinner.kept, names=self.files.names or self._names())
        if not final:
            self._save_state()
        try:
            kept = replace(kept, variables=self._variables(kept, final))
        except SteinstreamError:
            if final:  # else the files may just be beginning anew, one after the other
                kept.save(self.output)
                raise
        kept.save(self.output)
        # Looking for the variables takes the longer the longer the files are.
        self.rest = 10.0 * (time.monotonic() - began)
        self.written, self.unwritten = time.monotonic(), False
        return kept

    def _names(self) -> tuple[str, ...] | None:
        return next((chain.names for chain in self.files.chains if chain.names is not None), None)

    def _save_state(self) -> None:
        if self.thinner is None or not self.state:
            return
        self.thinner.note = {
            "files": [path.name for path in self.paths],
            "options": self.options,
            "taken": [chain.taken for chain in self.files.chains],
            "heads": [known_by(head) for head in self.files.heads],
        }
        self.state.save(self.thinner)

    def _variables(self, kept: Kept, final: bool) -> dict[str, Any]:
        """The constrained draws. The files are written in pieces, and that of the output may lag behind."""
        from steinstream.io.cmdstan import MissingRowsError

        until = time.monotonic() + (_LAG if final and all(chain.finished for chain in self.files.chains) else 0.0)
        while True:
            try:
                return self._constrained(kept, partial=False)
            except MissingRowsError as lag:
                if time.monotonic() > until:
                    if final:
                        click.echo(f"variables of some draws are nan: {lag.problem}", err=True)
                    return self._constrained(kept, partial=True)
            time.sleep(_PAUSE)

    def _constrained(self, kept: Kept, partial: bool) -> dict[str, Any]:
        """The constrained draws in CmdStan's output files."""
        import numpy as np

        from steinstream.io.cmdstan import find_output, read_constrained
        from steinstream.io.multi_file import join_variables

        found = []
        for at, (chain, given) in enumerate(zip(self.files.chains, self.outputs, strict=True)):
            rows = np.flatnonzero(kept.ids[:, 0] == at)
            output = given or (find_output(chain.path, chain.config.output) if chain.is_stan else None)
            if rows.size and output is not None and not chain.path.is_fifo():
                draws = kept.ids[rows, 1]
                found.append((rows, read_constrained(chain.path, output, draws, chain.config.warmup, partial)))
        return join_variables(found, len(kept))
