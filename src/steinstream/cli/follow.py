"""``steinstream follow``: thin a file that a sampler is still writing."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from steinstream.cli._config import setting_options
from steinstream.cli.checkpoints import Checkpoint, head_fingerprint, reading_note
from steinstream.cli.help import CHECKPOINTS, Command, NumberRange, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import (
    STANDARD,
    CheckpointOptions,
    InputOptions,
    checkpoint_options,
    growing_chains_options,
    output_option,
    reject_unused,
)
from steinstream.cli.paths import check_distinct, check_kept_output, data_files, input_files, save_kept
from steinstream.cli.progress import Bar, Stop, bar, count, stoppable, working_time
from steinstream.cli.serve import ServeOptions, serve_options
from steinstream.cli.summary import kept_of, measure_of, measures_of, print_result
from steinstream.errors import CheckpointError, InputError, SteinstreamError

if TYPE_CHECKING:
    from steinstream.io.csv_follow import FollowedFiles
    from steinstream.live import Dashboard
    from steinstream.result import Kept
    from steinstream.thinner import ThinConfig, Thinner

_PAUSE = 0.1  # seconds between two reads of files without new data
_OUTPUT_DELAY = 10.0  # seconds to wait at the end for CmdStan's output file
_STDIN = Path("/dev/stdin")
_IDLE = 5.0  # seconds without new draws after which a note names the option that ends the command
_WRITE_SHARE = 10.0  # pause between two writes, as a multiple of the time that one takes


class FollowRequest(NamedTuple):
    """Files to follow, settings and output."""

    paths: tuple[Path, ...]
    output: Path
    files: InputOptions
    config: ThinConfig
    every: float
    until_idle: float | None
    messages: Messages


@click.command(cls=Command, short_help="Thin a file while a sampler writes it.")
@growing_chains_options
@output_option
@setting_options(without=("passes", "start"))
@option(
    "--until-idle",
    type=NumberRange(min=0),
    metavar="SECONDS",
    help="Treat a file as finished after SECONDS without new data.",
    section=CHECKPOINTS,
)
@option(
    "--every",
    type=NumberRange(min=0),
    default=30.0,
    metavar="SECONDS",
    help="Time between two writes of the kept set.",
    section=CHECKPOINTS,
)
@checkpoint_options
@serve_options
@message_options
def follow(
    *,
    chain: tuple[Path, ...],
    output: Path,
    until_idle: float | None,
    every: float,
    config: ThinConfig,
    files: InputOptions,
    saving: CheckpointOptions,
    live: ServeOptions,
    messages: Messages,
) -> None:
    """Thin CHAIN while it is written: a diagnostic file of CmdStan, or a csv file with columns NAME and, if there are
    scores, score_NAME. - is csv from standard input.

    Several files are chains of one run; their draws are taken in turn. The command ends when CmdStan has finished, with
    --until-idle, or with Ctrl-C. The kept set is written at the end, and every 30 seconds before (--every).

    \b
    Example: steinstream follow out-diagnostic-*.csv -o kept.npz --size 200
    """
    check_kept_output(output, messages)
    live.check()
    chain = tuple(_STDIN if path == STANDARD else path for path in chain)
    paths = tuple(data_files(chain, InputOptions()))
    request = FollowRequest(
        paths=paths, output=output, files=files, config=config, every=every, until_idle=until_idle, messages=messages
    )
    _check_paths(request)
    checkpoint = Checkpoint.prepare(saving, {"-o": output}, input_files(request.paths, files))
    with live.dashboard(request.paths) as dashboard:
        with stoppable() as stop:
            run = FollowRun(request, checkpoint, dashboard)
            run.resume()
            with bar("following", 1.0) as progress:
                run.run(stop, progress)
        run.finish(stop)
    if stop.signal:
        sys.exit(stop.code)


def _check_paths(request: FollowRequest) -> None:
    """Raise an `InputError` if these files cannot be followed."""
    paths, files = request.paths, request.files
    if files.output_csv and len(files.output_csv) != len(paths):
        raise InputError(
            f"{len(paths)} chains were given, but {len(files.output_csv)} output files.",
            "Give one --output-csv per chain, in the same order.",
        )
    for path in paths:
        if path == _STDIN:
            reject_unused(["checkpoint"], "with standard input, which cannot be read again")
            continue
        if path.suffix.lower() != ".csv":
            raise InputError(f"{path} cannot be followed: it is not a csv file.", "Thin it when it is complete.")
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"{path} is not a file and cannot become one.", "Check the path.")
        if path.is_fifo():
            reject_unused(["checkpoint"], f"with a pipe, {path}, which cannot be read again")


class FollowRun:
    """Files that grow, the thinner that receives their draws, and the kept set that is written."""

    def __init__(self, request: FollowRequest, checkpoint: Checkpoint, dashboard: Dashboard | None) -> None:
        self.request, self.checkpoint, self.dashboard = request, checkpoint, dashboard
        self.outputs: tuple[Path | None, ...] = request.files.output_csv or (None,) * len(request.paths)
        self.started, self.written = working_time(), time.monotonic()
        self.pause = 0.0  # least time between two writes
        self.restart()

    def restart(self) -> None:
        """Start at the beginning of the files."""
        self.files = self._open(None)
        self.thinner: Thinner | None = None
        self.unwritten = False  # whether draws were added since the kept set was written

    def _open(self, starts: list[int] | None) -> FollowedFiles:
        from steinstream.io.csv_follow import FollowedFiles

        files = self.request.files
        return FollowedFiles(
            self.request.paths,
            starts=starts,
            patience=float("inf") if self.request.until_idle is None else self.request.until_idle,
            draws_name=files.draws_name,
            scores_name=files.scores_name,
            negate=files.negate_scores,
            parameters=files.reader_options["parameters"],
        )

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        thinner = self.checkpoint.load()
        if thinner is None:
            return
        note, names = thinner.note, [path.name for path in self.request.paths]
        with reading_note(self.checkpoint.path):
            self.checkpoint.check_command(note, "follow")
            if note["files"] != names:
                raise CheckpointError(
                    f"{self.checkpoint.path} belongs to {', '.join(note['files'])}, not to {', '.join(names)}.",
                    "Give the same files as before, or delete the checkpoint to start again.",
                )
            self.checkpoint.check_settings(note, self.request.config, self.request.files.settings)
            self.checkpoint.check_heads(note["heads"], self.request.paths)
            taken = note["taken"]
            if len(taken) != len(names) or not all(type(one) is int and 0 <= one <= thinner.seen for one in taken):
                raise ValueError(f"the numbers of draws are {taken}")
            self.thinner = thinner
            self.files = self._open(taken)
        self.request.messages.note(f"continuing after {count(thinner.seen)} draws")

    def run(self, stop: Stop, progress: Bar) -> None:
        """Read the files until they have ended."""
        from steinstream.io.csv_follow import FileReplacedError

        ended, idle_since, told = False, time.monotonic(), False
        while not stop.signal:
            try:
                grew = self.files.read()
            except FileReplacedError as news:
                seen = self.thinner.seen if self.thinner else 0
                self.request.messages.warn(f"{news.args[0]} was restarted: {count(seen)} draws are discarded")
                self.restart()
                continue
            self.add_draws(last=False)
            self._show(progress)
            # Thinning takes time, in which a file seems idle: it has ended only if the next read finds nothing either.
            before, ended = ended, not grew and all(self.files.ended)
            if before and ended:
                return
            if self.unwritten and time.monotonic() - self.written > max(self.request.every, self.pause):
                self._write(final=False)
            idle_since = time.monotonic() if grew else idle_since
            if not told and self._waits_for_stop and time.monotonic() - idle_since > _IDLE:
                told = True
                self.request.messages.note("no new draws; end with Ctrl-C, or give --until-idle SECONDS")
            if not grew:
                time.sleep(_PAUSE)

    @property
    def _waits_for_stop(self) -> bool:
        """Whether the end of a file that has draws cannot be seen: that of a csv file which is not one of CmdStan."""
        chains = [chain for chain in self.files.chains if chain.path != _STDIN and not chain.path.is_fifo()]
        return self.request.until_idle is None and any(chain.names and not chain.is_stan for chain in chains)

    def add_draws(self, last: bool) -> None:
        """Add the draws that were read; the ``last`` time without waiting for chains that lag behind."""
        from steinstream.thinner import Thinner

        for block in self.files.blocks(last):
            if self.thinner is None:
                self.thinner = Thinner(block.draws.shape[1], self.request.config)
            if self.dashboard is not None and self.thinner.observer is None:
                self.dashboard.show(self.thinner, self._names())
            self.thinner.extend(block.draws, block.scores if block.has_scores else None, ids=block.ids)
            self.unwritten = True

    def _show(self, progress: Bar) -> None:
        if self.thinner is None:
            missing = [chain.path.name for chain in self.files.chains if chain.names is None]
            progress.show(0.0, f"waiting for {', '.join(missing)}" if missing else "waiting for draws")
            return
        rate = self.thinner.seen / max(working_time() - self.started, 1e-3)
        late = [chain.path.name for chain in self.files.chains if not chain.ready and not chain.finished]
        waits = late and any(chain.ready for chain in self.files.chains)
        status = [
            f"{count(self.thinner.seen)} draws",
            f"{count(round(rate))} draws/s",
            f"kept {count(len(self.thinner))}",
            measure_of(self.thinner.ksd, self.thinner.mmd),
            *([f"waiting for {', '.join(late)}"] if waits else []),
        ]
        progress.show(self.files.fraction, "  ·  ".join(status))

    def finish(self, stop: Stop) -> None:
        """Add the remaining draws, write the kept set and print a summary."""
        from steinstream.api import too_short

        if stop.signal and self.unwritten:
            self._save_checkpoint()  # before draws are added without waiting for chains that lag behind
        self.add_draws(last=True)
        thinner, titles = self.thinner, ", ".join(map(str, self.request.paths))
        if thinner is None or thinner.seen == thinner.skipped:
            if stop.signal:
                self.request.messages.note("stopped before the first draw; nothing was written")
                return
            raise InputError(f"{titles}: no draws were found.", "Check that the sampler runs.")
        if len(thinner) == 0:
            raise too_short(titles, thinner.seen - thinner.skipped, thinner.config.candidates)
        for chain in self.files.chains:
            announced = chain.config.samples
            if announced is not None and chain.received < announced:
                self.request.messages.warn(
                    f"{chain.path} has {count(chain.received)} of {count(announced)} announced draws"
                )
        kept = self._write(final=True)
        stopped = "stopped: " if stop.signal else ""
        headline = f"{stopped}kept {kept_of(kept)}  ·  {measures_of(kept)}"
        print_result(self.request.messages, headline, kept, {"kept": self.request.output})
        if not stop.signal:
            self.checkpoint.remove()

    def _write(self, final: bool) -> Kept:
        """Write the kept set, with the variables that CmdStan has written so far."""
        started, output = time.monotonic(), self.request.output
        if self.thinner is None:
            raise RuntimeError("no draws are kept yet")
        outputs = {"-o": output, "--checkpoint": self.checkpoint.path}
        check_distinct(outputs, input_files(self.request.paths, InputOptions()))  # CmdStan may have created its output
        kept = replace(self.thinner.kept, names=self.files.names or self._names())
        if not final:
            self._save_checkpoint()
        try:
            kept = replace(kept, variables=self._variables(kept, final))
        except SteinstreamError:
            if final:  # earlier, CmdStan may be restarting its files
                save_kept(kept, output)
                raise
        if final or output != STANDARD:
            save_kept(kept, output)
        # The time to find the variables grows with the files.
        self.pause = _WRITE_SHARE * (time.monotonic() - started)
        self.written, self.unwritten = time.monotonic(), False
        return kept

    def _names(self) -> tuple[str, ...] | None:
        return next((chain.names for chain in self.files.chains if chain.names is not None), None)

    def _save_checkpoint(self) -> None:
        if self.thinner is None or not self.checkpoint:
            return
        self.thinner.note = {
            "command": "follow",
            "files": [path.name for path in self.request.paths],
            "config": self.request.config.to_dict(),
            "options": self.request.files.settings,
            "taken": [chain.taken for chain in self.files.chains],
            "heads": [head_fingerprint(head) for head in self.files.heads],
        }
        self.checkpoint.save(self.thinner)

    def _variables(self, kept: Kept, final: bool) -> dict[str, Any]:
        """Read the constrained draws; at the end, wait for CmdStan's output file, which may lag behind."""
        from steinstream.io.cmdstan import MissingRowsError

        wait = _OUTPUT_DELAY if final and all(chain.finished for chain in self.files.chains) else 0.0
        until = time.monotonic() + wait
        while True:
            try:
                return self._constrained_draws(kept, partial=False)
            except MissingRowsError as missing:
                if time.monotonic() > until:
                    if final:
                        self.request.messages.warn(f"some variables are NaN: {missing.problem}")
                    return self._constrained_draws(kept, partial=True)
            time.sleep(_PAUSE)

    def _constrained_draws(self, kept: Kept, partial: bool) -> dict[str, Any]:
        """Read the constrained draws from CmdStan's output files."""
        import numpy as np

        from steinstream.io.cmdstan import find_output, read_constrained
        from steinstream.io.multi_file import join_variables

        found = []
        for index, (chain, given) in enumerate(zip(self.files.chains, self.outputs, strict=True)):
            rows = np.flatnonzero(kept.ids[:, 0] == index)
            output = given or (find_output(chain.path, chain.config.output) if chain.is_stan else None)
            if rows.size and output is not None and not chain.path.is_fifo():
                draws = kept.ids[rows, 1]
                found.append((rows, read_constrained(chain.path, output, draws, chain.config.warmup, partial)))
        return join_variables(found, len(kept))
