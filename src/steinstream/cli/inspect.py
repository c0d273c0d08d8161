"""``steinstream inspect``: describe a file of draws before it is thinned."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli._config import setting_options
from steinstream.cli.help import Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import InputOptions, as_typed, chains_options
from steinstream.cli.paths import data_files
from steinstream.cli.progress import bar, count

if TYPE_CHECKING:
    from steinstream.thinner import ThinConfig


@click.command(cls=Command, short_help="Describe a chain before thinning it.")
@chains_options
@setting_options("validate_scores")
@option("--size", type=click.IntRange(min=1), help="Number of draws to keep, for the memory estimate.")
@message_options
def inspect(
    *, chain: tuple[Path, ...], size: int | None, config: ThinConfig, files: InputOptions, messages: Messages
) -> None:
    """Describe CHAIN: its shape, where draws and scores are, the sign of the scores or the way to compute them,
    repeated draws, values that are not finite, and the memory that thinning requires. CHAIN may also be a set of kept
    draws, or a checkpoint.

    \b
    Example: steinstream inspect chain.npz
    """
    from steinstream.inspection import Inspection, checkpoint_lines, kept_lines

    found = data_files(chain, InputOptions())
    state = checkpoint_lines(found[0]) if len(found) == 1 else []
    for label, text in state:
        _line(messages, label, text)
    if state:
        messages.result({"checkpoint": dict(state), "paths": {}})
        return
    source = files.open(chain, check_axes=False)
    inspection = Inspection(source.dim)
    with bar("reading", source.length or 1.0) as progress:
        for block in source.blocks():
            inspection.add(block)
            progress.show_chain(source, inspection.draws)
    kept = size or inspection.expected_size()
    unchecked = "" if config.validate_scores else "  (not checked when thinning: --no-validate-scores)"
    for label, text in inspection.lines(source):
        if label == "parameters" and source.has_scores:  # the first line has their names
            continue
        text += unchecked if label == "scores" and source.has_scores else ""
        if label in inspection.problems:
            messages.warn(f"{label}: {text}")
        else:
            _line(messages, label, text)
    for label, text in kept_lines(found[0], files.format) if len(found) == 1 else []:
        _line(messages, label, text)
    _line(messages, "memory", f"{inspection.megabytes(kept)} MB for {count(kept)} kept draws")
    options = files._replace(negate_scores=files.negate_scores or inspection.negated).command_line()
    options += ["--on-bad", "skip"] if inspection.bad_draws else []
    options += [] if config.validate_scores else ["--no-validate-scores"]
    suffix = chain[0].suffix if chain[0].suffix in (".nc", ".zarr") else ".npz"
    output = "fewer" if Path(f"kept{suffix}") in chain else "kept"
    words = ["steinstream", "thin", *map(as_typed, chain), *options, "-o", f"{output}{suffix}"]
    _line(messages, "next", shlex.join(words))
    if not source.has_scores and suffix == ".npz":  # NetCDF and Zarr contain constrained draws
        scored = ["steinstream", "scores", *map(as_typed, chain), *files.command_line(), "--log-density"]
        _line(messages, "with scores", shlex.join([*scored, "model.py:log_density", "-o", "scored.npz"]))
    messages.result(
        {
            "draws": inspection.draws,
            "chains": [*inspection.lengths.values()],
            "parameters": source.names,
            "has_scores": source.has_scores,
            "negated": inspection.negated,
            "invalid": inspection.bad_draws,
            "repeated": inspection.repeated,
            "left_out": source.taken.left_out,
            "megabytes": inspection.megabytes(kept),
            "next": shlex.join(words),
            "paths": {},
        }
    )


def _line(messages: Messages, label: str, text: str) -> None:
    messages.say(f"{label:<12}{text}" if label else text)
