"""Online KSD thinning (Algorithms 1 and 2 of Hawkins, Koppel and Zhang), over a block of the stream.

At every step the best of the candidates is added; then, while more draws are kept than the growth function asks for,
the least influential one goes if KSD^2 without it stays within the budget above KSD^2 right after the addition, or if
more are kept than the cap allows. Under the monotone rule KSD^2 must not rise above what it was before the addition
either, so that above the floor it never rises at all (but for the budget). A new draw that would be the first to go is
never let in. Cost per step: (candidates + removed) sweeps over the kept draws; none for a repeated state.
"""

from __future__ import annotations

import numba
import numpy as np

from steinstream._engine import exact
from steinstream._engine.jit import bare, inlined, jit
from steinstream._engine.moves import (
    influence_of,
    influences,
    is_full,
    keep,
    least_influential,
    remove,
    repeats,
    turn_away,
    weigh,
)
from steinstream._engine.store import DRAWS, OTHERS, OWN, OWN_LOW, TOTAL, TOTAL_LOW

# KSD^2 before and after a removal are equal in exact arithmetic more often than one would think (repeated states,
# symmetric sets). Rounding in the two divisions must not turn "equal" into "greater".
TIE = 1.0 + 2.0**-50


@jit
def square(store) -> float:
    """KSD^2 of what is kept."""
    return mean(store.sums[TOTAL], store.counts[DRAWS])


@inlined
def square_with_latest(store):
    """KSD^2 if the draw that was weighed were added."""
    sums = store.sums
    total, _ = exact.add_pair(sums[TOTAL], sums[TOTAL_LOW], 2.0 * sums[OWN], 2.0 * sums[OWN_LOW])
    return mean(total, store.counts[DRAWS] + 1)


@inlined
def square_without(store, slot):
    """KSD^2 if one draw of this slot were gone."""
    sums = store.sums
    total, _ = exact.add_pair(sums[TOTAL], sums[TOTAL_LOW], -2.0 * store.high[slot], -2.0 * store.low[slot])
    return mean(total, store.counts[DRAWS] - 1)


@inlined
def mean(total, draws) -> float:
    """S / n^2. Rounding onto the grid may leave an S of 0 slightly negative."""
    return float(max(total, 0.0) / (float(draws) * float(draws)))


@inlined
def best_candidate(store, kernel, draws, scores, first, last, sums, workers):
    """Which of the draws first .. last - 1 would have the least influence if added; the first of equals."""
    if workers is not None:
        return best_candidate_shared(store, kernel, draws, scores, first, last)
    influences(store, kernel, draws, scores, first, last, sums)
    best = first
    for candidate in range(first + 1, last):
        again = repeats(draws, scores, candidate)
        if not again and sums[candidate - first, 0] < sums[best - first, 0]:
            best = candidate
    return best


@jit(parallel=True)
def best_candidate_shared(store, kernel, draws, scores, first, last):
    """The same, with the candidates spread over the threads."""
    influences = np.zeros(last - first)
    for i in numba.prange(last - first):
        again = i > 0 and repeats(draws, scores, first + i)
        influences[i] = np.inf if again else influence_of(store, kernel, draws, scores, first + i)
    return first + np.argmin(influences)


@bare
def thin_block(store, kernel, draws, scores, raw, ids, candidates, start, floor, budget, share, monotone, cap, sizes, squares, dropped, sums, workers) -> tuple[int, int]:  # fmt: skip  # noqa: E501
    """Run ``len(floor)`` steps after step ``start``, or fewer when room runs out. Returns steps done, draws dropped.

    The budget of a step is ``budget + share / n^2``, n draws being kept after the addition; ``monotone`` counts it from
    KSD^2 before the addition if that was less. Sizes and KSD^2 after each
    step go to ``sizes`` and ``squares``, the dropped draws' ids and steps of arrival, in order, to ``dropped``.
    ``sums`` (candidates, 2) is scratch. ``workers`` is None, or a number of threads to share large sweeps among.
    """
    drops = 0
    for step in range(floor.shape[0]):
        if is_full(store):
            return step, drops
        new = step * candidates
        if candidates > 1:
            new = best_candidate(store, kernel, draws, scores, new, new + candidates, sums, workers)
        size = store.counts[DRAWS] + 1
        weigh(store, kernel, draws, scores, new, size <= floor[step], workers)

        most = square_with_latest(store)
        if monotone and size > 1:
            most = min(most, square(store))
        allowed = (most + budget[step] + share[step] / float(size * size)) * TIE
        least = store.sums[OWN] > store.sums[OTHERS]
        if least and size > floor[step] and (size > cap or square(store) <= allowed):
            turn_away(store, ids, new, start + step + 1, dropped, drops)
            drops += 1
        else:
            keep(store, ids, raw, new, start + step + 1)
        while store.counts[DRAWS] > floor[step]:
            slot = least_influential(store)
            if store.counts[DRAWS] <= cap and square_without(store, slot) > allowed:
                break
            remove(store, kernel, slot, dropped, drops, workers)
            drops += 1
        sizes[step], squares[step] = store.counts[DRAWS], square(store)
    return floor.shape[0], drops
