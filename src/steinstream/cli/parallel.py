"""``steinstream thin --workers N`` and ``--client ADDRESS``: thin each chain in a process of its own, and merge."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from steinstream.cli._thin_request import ThinRequest, ThinResult
from steinstream.cli.checkpoints import Checkpoint
from steinstream.cli.help import MOST_USED, WORKERS, NumberRange, option
from steinstream.cli.options import CheckpointOptions, grouped, reject_unused
from steinstream.cli.progress import bar, count
from steinstream.cli.summary import kept_of, merged_measures_of
from steinstream.errors import InputError, ParametersWarning

if TYPE_CHECKING:
    from steinstream.cli.messages import Messages
    from steinstream.result import Kept

_WORKER_FILES = "leaf-"  # start of the names of files in the folder of the checkpoints
_LISTED = 5  # chains that could not be read and are listed


class WorkerOptions(NamedTuple):
    """Processes that thin the chains, and the merge of their results."""

    workers: int | None
    client: str | None
    fan_in: int
    spare: float
    on_corrupt: str

    @property
    def requested(self) -> bool:
        """Whether chains are thinned by workers."""
        return self.workers is not None or self.client is not None

    def check(self, request: ThinRequest) -> None:
        """Raise an `InputError` if options have no effect, or cannot be used with workers."""
        if not self.requested:
            reject_unused(["fan_in", "spare", "on_corrupt"], "without --workers or --client")
            return
        if request.config.size is None:
            reject_unused(["spare"], "without --size")
        given = {"--initial": request.initial, "--output-csv": request.files.output_csv}
        for name, value in given.items():
            if value:
                raise InputError(f"{name} cannot be used with workers.", "Leave out one of them.")


#: Adds the options of workers, as ``workers``.
worker_options = grouped(
    "workers",
    WorkerOptions,
    option(
        "--workers",
        type=click.IntRange(min=0),
        help="Thin each chain separately, in N processes, and merge the kept draws.",
        metavar="N",
        section=MOST_USED,
    ),
    option(
        "--client",
        metavar="ADDRESS",
        help="Thin each chain on the Dask cluster with this scheduler: tcp://HOST:PORT.",
        section=WORKERS,
    ),
    option(
        "--fan-in",
        type=click.IntRange(min=2),
        default=16,
        help="Number of sets that are merged at a time.",
        section=WORKERS,
    ),
    option(
        "--spare",
        type=NumberRange(min=1),
        default=2.0,
        help="Each chain keeps this many times --size draws until the sets are merged.",
        section=WORKERS,
    ),
    option(
        "--on-corrupt",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        help="What to do with a chain that cannot be read.",
        section=WORKERS,
    ),
)


def thin_with_workers(
    request: ThinRequest,
    workers: WorkerOptions,
    saving: CheckpointOptions,
    inputs: Sequence[Path],
    outputs: Mapping[str, Path | None],
) -> ThinResult:
    """Thin each chain with a worker, merge the results and write them."""
    _check_folder(saving, [*inputs, request.output])
    Checkpoint.prepare(CheckpointOptions(None, saving.resume and saving.checkpoint is None), outputs, inputs)
    started = time.perf_counter()
    try:
        kept = _run(request, workers, saving)
    except KeyboardInterrupt:
        how = "nothing was written" if saving.checkpoint is None else "add --resume to the same command to continue"
        request.messages.note(f"stopped; {how}")
        sys.exit(130)
    kept = request.write(replace(kept, groups=request.groups(kept)))
    _print_skipped(kept, request.messages)
    if saving.checkpoint is not None:
        from steinstream.parallel import clear

        clear(saving.checkpoint)
        if not any(saving.checkpoint.iterdir()):
            saving.checkpoint.rmdir()
    leaves = len(kept.settings["leaves"])
    chains = f"{count(leaves)} {'chain' if leaves == 1 else 'chains'}"
    seconds = time.perf_counter() - started
    headline = f"kept {kept_of(kept)} in {chains} in {seconds:.1f} s  ·  {merged_measures_of(kept)}"
    return ThinResult(kept, None, headline)


def _check_folder(saving: CheckpointOptions, files: Sequence[Path]) -> None:
    """Raise an `InputError` if the folder of the checkpoints is a file, is in use, or contains one of ``files``."""
    folder, resume = saving
    if folder is None:
        return
    for file in files:
        if file.name.startswith(_WORKER_FILES) and file.resolve().parent == folder.resolve():
            raise InputError(
                f"{file} has the name of a checkpoint in {folder} and would be deleted.",
                "Give --checkpoint another folder.",
            )
    if folder.is_file():
        raise InputError(f"{folder} is a file.", "With workers, --checkpoint is a folder with one file per chain.")
    if not resume and any(folder.glob(f"{_WORKER_FILES}*")):
        raise InputError(
            f"{folder} contains checkpoints of a run that was stopped.",
            "Add --resume to continue it, or delete the folder to start again.",
        )


def _run(request: ThinRequest, workers: WorkerOptions, saving: CheckpointOptions) -> Kept:
    """Thin all chains and merge the results, with a progress bar."""
    from steinstream import parallel
    from steinstream.io.multi_file import matching_files

    options = {**request.files.reader_options, "burn_in": request.burn_in or None}
    read = {name: value for name, value in options.items() if value is not None}
    with bar("starting", 1.0) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # skipped chains are listed at the end
        warnings.simplefilter("default", ParametersWarning)

        def show(what: str, done: int, total: int) -> None:
            progress.show(done / total, f"{what}: {count(done)} of {count(total)}")

        return parallel.thin(
            [file for path in request.chain for file in matching_files(path)],
            config=request.config,
            **workers._asdict(),
            folder=saving.checkpoint,
            resume=saving.resume,
            read=read,
            progress=show,
            tell=_print_dask_dashboard,
        )


def _print_skipped(kept: Kept, messages: Messages) -> None:
    """List the chains that could not be read."""
    skipped = kept.settings["corrupt"]
    for failure in skipped[:_LISTED]:
        messages.warn(f"skipped: {failure['problem']}")
    if len(skipped) > _LISTED:
        messages.warn(f"skipped: {count(len(skipped) - _LISTED)} more")


def _print_dask_dashboard(address: str) -> None:
    """Print the address of Dask's dashboard, which requires bokeh."""
    from importlib.util import find_spec

    if find_spec("bokeh") is not None:
        click.echo(f"dashboard: {address}", err=True)
