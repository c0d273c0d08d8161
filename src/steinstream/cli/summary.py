"""The result of a command: the lines that are printed at its end, and the JSON object of ``--json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steinstream._formatting import count, number

if TYPE_CHECKING:
    from steinstream.cli.messages import Messages
    from steinstream.diagnostics import Diagnosis
    from steinstream.result import Kept

_TABLE_LINES = 40  # lines of the summary table that are printed
_WITHOUT_SCORES = (
    "Without scores: the kept draws represent the chain; scores would also correct burn-in and slow mixing."
)


def kept_of(kept: Kept) -> str:
    """Return how many draws of how many are kept: "20 of 300 draws, 2 invalid draws skipped"."""
    seen, skipped = kept.settings["seen"], kept.settings["skipped"]
    invalid = f", {count(skipped)} invalid {'draw' if skipped == 1 else 'draws'} skipped" if skipped else ""
    return f"{count(len(kept))} of {count(seen)} draws{invalid}"


def measures_of(kept: Kept) -> str:
    """Return KSD with its bound and normalised KSD, if there are scores, and MMD to the chain, if it is known."""
    parts = []
    if kept.scores is not None:
        bound = "" if kept.bound is None else f" (expected at most {number(kept.bound)} for independent draws)"
        parts = [f"KSD {number(kept.ksd)}{bound}", f"normalised {number(kept.normalised_ksd)}"]
    return "  ·  ".join(parts + ([] if math.isnan(kept.mmd) else [f"MMD to the chain {number(kept.mmd)}"]))


def merged_measures_of(kept: Kept) -> str:
    """Return KSD of a merged set and its bounds; without scores, MMD to the chains."""
    merged = kept.settings["merged"]
    if kept.scores is None:
        bound = merged.get("mmd", {}).get("bound")
        return measures_of(kept) + ("" if bound is None else f" (at most {number(bound)})")
    by_budget = merged["bound_by_budget"]
    planned = "" if by_budget is None else f", {number(by_budget)} by the budgets"
    return f"KSD {number(kept.ksd)} (at most {number(merged['bound'])}{planned})"


def measure_of(ksd: float, mmd: float) -> str:
    """Return the measure of a set in few words: its KSD, or without scores its MMD."""
    return f"MMD {number(mmd)}" if math.isnan(ksd) else f"KSD {number(ksd)}"


def print_result(
    messages: Messages, headline: str, kept: Kept, paths: Mapping[str, Path | None], *, table: bool = False
) -> None:
    """Print the result of a run: what was kept, what the chain is worth, and the diagnostic checks.

    ``paths`` are the written files by their content; the first is that of the kept draws. ``table`` adds the summary of
    each parameter. The checks require the subsample of the stream.
    """
    written = {name: str(path) for name, path in paths.items() if path is not None}
    first = next(iter(written.values()))
    messages.say(headline if first == "-" else f"{headline}  ·  wrote {first}")
    if kept.chain_worth is not None:
        messages.say(kept.chain_worth)
    if kept.scores is None:
        messages.say(_WITHOUT_SCORES)
    if table:
        messages.say(_table(kept))
    diagnosis = None if kept.stream is None else kept.diagnose()
    if diagnosis is not None:
        _print_checks(messages, diagnosis)
    messages.result(
        {**_values(kept), "chain_worth": kept.chain_worth, "findings": _findings(diagnosis), "paths": written}
    )


def _table(kept: Kept) -> str:
    """Return the summary of the parameters, shortened if there are many."""
    lines = str(kept.summary()).splitlines()
    more = len(lines) - _TABLE_LINES
    return "\n".join([*lines[:_TABLE_LINES], *([f"and {count(more)} more"] if more > 0 else [])])


def _print_checks(messages: Messages, diagnosis: Diagnosis) -> None:
    """Print what the checks found. Causes are warnings; the verdict names their consequences."""
    for finding in diagnosis.fired:
        if not finding.cause:
            messages.warn(str(finding))
    (messages.warn if diagnosis.fired else messages.say)(diagnosis.verdict)
    for note in diagnosis.notes:  # not a warning: --strict does not count it
        (messages.note if diagnosis.fired else messages.say)(f"Note: {note}.")


def _findings(diagnosis: Diagnosis | None) -> list[dict[str, Any]]:
    """Return the results of the checks for JSON."""
    names = ("name", "fired", "skipped", "value", "threshold", "says", "detects", "advice")
    return [{name: getattr(one, name) for name in names} for one in (diagnosis.findings if diagnosis else ())]


def _values(kept: Kept) -> dict[str, Any]:
    """Return what a kept set is, for JSON."""
    return {
        "kept": len(kept),
        "seen": kept.settings.get("seen"),
        "skipped": kept.settings.get("skipped"),
        "parameters": kept.names or kept.draws.shape[1],
        "has_scores": kept.scores is not None,
        "ksd": kept.ksd,
        "mmd": kept.mmd,
        "stream_error": kept.stream_error,
        "bound": kept.bound,
        "effective_size": kept.effective_size,
        "effective_draws": kept.settings.get("effective_draws"),
        "burn_in": kept.settings.get("burn_in"),
        "settings": kept.settings,
    }
