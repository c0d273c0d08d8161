"""What a step is judged by: KSD^2 of what is kept, and what the anchor adds if there is one."""

from __future__ import annotations

from steinstream._engine import double_double
from steinstream._engine.jit import inlined, jit
from steinstream._engine.penalties import gap_now, gap_with_latest, gap_without
from steinstream._engine.state import DRAWS, OWN, OWN_LOW, TOTAL, TOTAL_LOW


@jit
def square(store) -> float:
    """KSD^2 of what is kept."""
    return mean(store.sums[TOTAL], store.counts[DRAWS])


@inlined
def objective(store, guide):
    """The objective as things are."""
    return square(store) + gap_now(store, guide)


@inlined
def objective_with_latest(store, guide):
    """The objective if the draw that was weighed were added."""
    sums = store.sums
    total, _ = double_double.add_pair(sums[TOTAL], sums[TOTAL_LOW], 2.0 * sums[OWN], 2.0 * sums[OWN_LOW])
    return mean(total, store.counts[DRAWS] + 1) + gap_with_latest(store, guide)


@inlined
def objective_without(store, guide, slot):
    """The objective if one draw of this slot were gone."""
    sums = store.sums
    total, _ = double_double.add_pair(sums[TOTAL], sums[TOTAL_LOW], -2.0 * store.high[slot], -2.0 * store.low[slot])
    return mean(total, store.counts[DRAWS] - 1) + gap_without(store, guide, slot)


@inlined
def mean(total, draws) -> float:
    """S / n^2. Rounding onto the grid may leave an S of 0 slightly negative."""
    return float(max(total, 0.0) / (float(draws) * float(draws)))
