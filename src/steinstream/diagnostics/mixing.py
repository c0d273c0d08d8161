"""Does the chain move, and how many independent draws is it worth?"""

from __future__ import annotations

import math

import numpy as np

from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import FALSE_ALARM, Finding
from steinstream.diagnostics.mcse import effective
from steinstream.validation import Array, Integers

_FEWEST = 50.0  # independent draws; a clean run has 100
_LONGEST = 0.1  # of a chain
_SHORT = 20  # draws of a chain, of which one or two are a tenth


def slow(evidence: Evidence) -> Finding:
    """The effective draws of the slowest parameter or region. With few, neither stream nor kept set can be trusted.

    A region with a share p of the stream, all of it in one visit, is worth about 1 / p: a mode seen only late, or once.
    The divisions in two and in four are looked at; in finer ones there is too much chance.
    """
    coarse = sum(map(len, evidence.divisions[:2]))
    each = effective(np.hstack([evidence.normal_scores, evidence.members[:, :coarse]]))
    worst, dim = int(each.argmin()), evidence.draws.shape[1]
    what = evidence.names[worst] if worst < dim else f"how often it is around {evidence.place(worst - dim)}"
    return Finding(
        "slow", float(each[worst]), _FEWEST, bool(each[worst] < _FEWEST),
        f"the stream is worth {each[worst]:.0f} independent draws of {what}",
        "run it longer or sample better; what is kept cannot be judged by it",
        allowed=f"{_FEWEST:.0f} are needed",
    )  # fmt: skip


def constant(names: list[str]) -> Finding:
    """Parameters that never move: there is nothing in them to thin by, nor to judge."""
    several = len(names) > 1
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return Finding(
        "constant", float(len(names)), 0.0, True, f"{listed} {'are' if several else 'is'} constant",
        f"leave {'them' if several else 'it'} out; the rest is judged without {'them' if several else 'it'}",
    )  # fmt: skip


def stuck(evidence: Evidence) -> Finding | None:
    """The longest stay in one state, as a part of its chain; None where all chains are short.

    Random-walk chains repeat states, and stays are about geometric: among M stays with a chance r of one more repeat,
    the longest exceeds log(M / 0.005) / -log r draws in one run of 200. Twice that, and a tenth of the chain, is long.
    """
    stays = {chain: _stays(evidence.stream.draws[rows]) for chain, rows in evidence.chains.items()}
    number = sum(map(len, stays.values()))
    repeat = 1.0 - number / len(evidence.stream.draws)
    usual = 2.0 * math.log(number / FALSE_ALARM) / -math.log(repeat) if repeat > 0 else 0.0
    found = []
    for chain, lengths in stays.items():
        total = int(lengths.sum())
        if total >= _SHORT:
            found.append((int(lengths.max()) / total, min(max(_LONGEST, usual / total), 0.999), chain))
    if not found:
        return None
    value, threshold, chain = max(found, key=lambda one: one[0] / one[1])
    return Finding(
        "stuck", value, threshold, value > threshold,
        f"chain {chain} stays in one state for {value:.0%} of its length",
        "its sampler cannot move there: try smaller steps or other coordinates",
        allowed=f"up to {threshold:.0%} is allowed",
    )  # fmt: skip


def _stays(draws: Array) -> Integers:
    """How many consecutive draws are in each state that is visited."""
    moves = np.flatnonzero((draws[1:] != draws[:-1]).any(axis=1)) + 1
    return np.diff(np.concatenate([[0], moves, [len(draws)]]))
