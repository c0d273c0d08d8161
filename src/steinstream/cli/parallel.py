"""``steinstream thin --workers N`` and ``--scheduler ADDRESS``: every chain a leaf, on processes or machines."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from steinstream.cli.merge import of_merged
from steinstream.cli.options import as_anchor, as_kernel, as_preconditioner, as_typed
from steinstream.cli.progress import bar, count
from steinstream.cli.refine import Refinement, refined

if TYPE_CHECKING:
    from steinstream.result import Kept

F = TypeVar("F", bound=Callable[..., Any])

_NOT_HERE = {"initial": "--initial", "proxy": "--proxy", "output_csv": "--output-csv"}  # what leaves do not take
_LEFT_OUT = 5  # that are named


class Workers(NamedTuple):
    """Where leaves are thinned, and how they are merged."""

    workers: int | None
    scheduler: str | None
    fan_in: int
    spare: float
    skip_corrupt: bool

    @property
    def wanted(self) -> bool:
        """Whether any are to be used."""
        return self.workers is not None or self.scheduler is not None


def worker_options(command: F) -> F:
    """Many chains at once."""
    for option in (
        click.option("--skip-corrupt", is_flag=True, help="With workers: go on without chains that cannot be read."),
        click.option("--spare", type=click.FloatRange(min=1), default=2.0, show_default=True,
                     help="With workers: chains keep so many times --size until they are merged."),
        click.option("--fan-in", type=click.IntRange(min=2), default=16, show_default=True,
                     help="With workers: merge so many chains at a time."),
        click.option("--scheduler", help="Thin each chain on the Dask cluster at this address: tcp://HOST:PORT."),
        click.option("--workers", type=click.IntRange(min=0),
                     help="Thin each chain apart, on so many processes, and merge what is kept."),
    ):  # fmt: skip
        command = option(command)
    return command


def workers_in(options: dict[str, Any]) -> Workers:
    """What these options ask for; they are taken out."""
    return Workers(**{name: options.pop(name) for name in Workers._fields})


def thin_on_workers(
    chain: tuple[Path, ...], output: Path, checkpoint: Path | None, resume: bool, asked: Workers,
    refinement: Refinement, options: dict[str, Any],
) -> Kept:  # fmt: skip
    """The same as ``thin``, with a leaf for each chain."""
    from steinstream.io.multi_file import matching_files
    from steinstream.parallel import clear

    _refuse(checkpoint, resume, refinement, options)
    files = [file for path in chain for file in matching_files(path)]
    began = time.perf_counter()
    try:
        kept = _thinned(files, asked, {**_settings(options), "folder": checkpoint, "resume": resume})
    except KeyboardInterrupt:
        go_on = "nothing is written" if checkpoint is None else "the same command with --resume goes on"
        click.echo(f"stopped; {go_on}", err=True)
        sys.exit(130)
    kept = replace(kept, settings={**kept.settings, "commands": [as_typed()]})
    kept = refined(kept, refinement, None)
    kept.save(output)
    _sum_up(kept, output, time.perf_counter() - began)
    if checkpoint is not None:
        clear(checkpoint)
        if not any(checkpoint.iterdir()):
            checkpoint.rmdir()
    return kept


def _refuse(checkpoint: Path | None, resume: bool, refinement: Refinement, options: dict[str, Any]) -> None:
    """Raise where something was asked for that leaves do not do, or where leaves would be lost."""
    from steinstream.errors import InputError

    for name, option in _NOT_HERE.items():
        if options.get(name):
            raise InputError(f"{option} does not go with workers.", "Leave one of them out.")
    if refinement.weights == "chain":
        raise InputError("--weights chain reads all chains in one place.", "Use steinstream refine afterwards.")
    if checkpoint is not None and checkpoint.is_file():
        raise InputError(f"{checkpoint} is a file.", "With workers a checkpoint is a folder, with a file a chain.")
    if checkpoint is not None and not resume and any(checkpoint.glob("leaf-*")):
        raise InputError(
            f"{checkpoint} holds leaves of a run that was stopped.",
            "Add --resume to go on with it, or delete it to start anew.",
        )


def _thinned(files: list[Path], asked: Workers, settings: dict[str, Any]) -> Kept:
    """What the leaves kept, merged, while a bar shows how far they are."""
    from steinstream import parallel

    with bar("starting", 1.0) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of chains left out: they are told in the end

        def show(what: str, done: int, total: int) -> None:
            progress.show(done / total, f"{what}: {count(done)} of {count(total)}")

        return parallel.thin(
            files,
            client=asked.scheduler,
            workers=asked.workers,
            spare=asked.spare,
            fan_in=asked.fan_in,
            on_corrupt="skip" if asked.skip_corrupt else "raise",
            progress=show,
            tell=_tell,
            **settings,
        )


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """How the files are read and every leaf is thinned."""
    same = ("size", "growth", "budget", "rule", "candidates", "passes", "start", "on_bad")
    return {
        **{name: options[name] for name in same},
        "read": _read(options),
        "preconditioner": "streaming" if options["scale"] == "streaming" else as_preconditioner(options["scale"]),
        "kernel": as_kernel(options["kernel"]),
        "anchor": as_anchor(options["anchor"]),
        "validate_scores": not options["trust_scores"],
    }


def _sum_up(kept: Kept, output: Path, seconds: float) -> None:
    """The lines that end the command."""
    left_out = kept.settings["corrupt"]
    for failure in left_out[:_LEFT_OUT]:
        click.echo(f"left out: {failure['problem']}", err=True)
    if len(left_out) > _LEFT_OUT:
        click.echo(f"left out: {count(len(left_out) - _LEFT_OUT)} more", err=True)
    leaves = len(kept.settings["leaves"])
    bad = f", {count(kept.settings['skipped'])} bad ones skipped" if kept.settings["skipped"] else ""
    click.echo(
        f"kept {count(len(kept))} of {count(kept.settings['seen'])} draws{bad} in {count(leaves)} chains in "
        f"{seconds:.1f} s  ·  {of_merged(kept)}  ·  wrote {output}"
    )


def _read(options: dict[str, Any]) -> dict[str, Any]:
    """Options of ``open_chain``, as far as they were given."""
    names = {"scores_file": "scores", "negate_scores": "negate"}
    known = ("scores_file", "draws_name", "scores_name", "negate_scores", "format", "transposed")
    return {names.get(name, name): options[name] for name in known if options.get(name) is not None}


def _tell(dashboard: str) -> None:
    """The dashboard's address, if there is one: it takes bokeh."""
    from importlib.util import find_spec

    if find_spec("bokeh") is not None:
        click.echo(f"dashboard: {dashboard}", err=True)
