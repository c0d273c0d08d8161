"""The lines that a command prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream._formatting import count, number

if TYPE_CHECKING:
    from steinstream.result import Kept


def kept_of(kept: Kept) -> str:
    """Return how many draws of how many are kept: "20 of 300 draws, 2 invalid draws skipped"."""
    seen, skipped = kept.settings["seen"], kept.settings["skipped"]
    invalid = f", {count(skipped)} invalid {'draw' if skipped == 1 else 'draws'} skipped" if skipped else ""
    return f"{count(len(kept))} of {count(seen)} draws{invalid}"


def ksd_of(kept: Kept) -> str:
    """Return KSD, its bound if there is one, and normalised KSD."""
    bound = "" if kept.bound is None else f" (expected at most {number(kept.bound)} for independent draws)"
    return f"KSD {number(kept.ksd)}{bound}  ·  normalised {number(kept.normalised_ksd)}"


def merged_ksd_of(kept: Kept) -> str:
    """Return KSD of a merged set, and its bounds."""
    merged = kept.settings["merged"]
    by_budget = merged["bound_by_budget"]
    planned = "" if by_budget is None else f", {number(by_budget)} by the budgets"
    return f"KSD {number(kept.ksd)} (at most {number(merged['bound'])}{planned})"


def print_summary(what: str, kept: Kept, output: Path, *, checks: bool = True) -> None:
    """Print the summary of a run, and the diagnostic checks: the failed ones to standard error.

    Parameters
    ----------
    what : str
        First part of the summary.
    kept : Kept
        The result.
    output : Path
        File to which it was written.
    checks : bool, default True
        Whether to run the diagnostic checks.

    """
    click.echo(f"{what}  ·  wrote {output}")
    if checks:
        found = kept.diagnose()
        click.echo(str(found), err=bool(found.fired))
