"""Who comes in of several candidates, and who goes next."""

from __future__ import annotations

import numba
import numpy as np

from steinstream._engine.argmax import least_influential, precedes
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_row import WEIGHT
from steinstream._engine.objective import objective_without
from steinstream._engine.penalties import LAMBDA, key_of_candidate, make_waves, tilted
from steinstream._engine.state import DRAWS, NONE, SLOTS, TOTAL
from steinstream._engine.updates import influence_of, influences, repeats


@inlined
def best_candidate(store, kernel, guide, draws, scores, first, last, sums, workers):
    """Which of the draws first .. last - 1 would have the least influence, or key, if added; the first of equals.

    A guide is left with its waves.
    """
    if workers is not None:
        best = best_candidate_shared(store, kernel, guide, draws, scores, first, last)
    else:
        influences(store, kernel, draws, scores, first, last, sums)
        keys_of_candidates(store, guide, first, last, sums)
        best = first
        for candidate in range(first + 1, last):
            if sums[candidate - first, 0] < sums[best - first, 0]:
                best = candidate
    if guide is not None:
        make_waves(guide.turns, guide.given, best, guide.here)
    return best


@inlined
def keys_of_candidates(store, guide, first, last, sums):
    """Where there is a guide, turn influences into keys."""
    if guide is not None:
        for candidate in range(first, last):
            make_waves(guide.turns, guide.given, candidate, guide.here)
            influence = sums[candidate - first, 0]
            sums[candidate - first, 0] = key_of_candidate(store, guide, influence, candidate, guide.here)


@jit(parallel=True)
def best_candidate_shared(store, kernel, guide, draws, scores, first, last):
    """The same, with the candidates spread over the threads."""
    keys = np.zeros(last - first)
    for i in numba.prange(last - first):
        if guide is None:
            again = i > 0 and repeats(draws, scores, first + i)
            keys[i] = np.inf if again else influence_of(store, kernel, draws, scores, first + i)
        else:
            here = np.zeros(guide.here.shape[0])
            make_waves(guide.turns, guide.given, first + i, here)
            own = influence_of(store, kernel, draws, scores, first + i)
            keys[i] = key_of_candidate(store, guide, own, first + i, here)
    return first + np.argmin(keys)


@inlined
def next_to_go(store, guide, allowed, cap):
    """The slot that loses a draw next: the least influential one, if that may go; none if no draw may."""
    slot = least_influential(store, guide)
    if slot == NONE or store.counts[DRAWS] > cap or objective_without(store, guide, slot) <= allowed:
        return slot
    return dearest_allowed(store, guide, allowed)


@inlined
def dearest_allowed(store, guide, allowed):
    """Where costs point to a draw that may not go: of those that may, the one they point to; or none."""
    best = NONE
    if guide is not None and guide.numbers[LAMBDA] > 0.0:
        least = least_key(store, guide, allowed)
        for slot in range(store.counts[SLOTS]):
            if guide.keys[slot] >= least and guide.going[slot] != NONE:
                key, other = tilted(guide, slot), -np.inf if best == NONE else tilted(guide, best)
                before = key > other or (key == other and precedes(store, guide, slot, best))
                if before and objective_without(store, guide, slot) <= allowed:
                    best = slot
    return best


@inlined
def least_key(store, guide, allowed):
    """No draw with a lesser key may go: (n - 1)^2 times the objective without j is S + w (|L|^2 + M) - 2 key_j."""
    square, others = 0.5 * guide.lean.shape[0], float(store.counts[DRAWS] - 1)
    for m in range(guide.lean.shape[0]):
        square += np.float64(guide.lean[m]) * np.float64(guide.lean[m])
    most = store.sums[TOTAL] + guide.numbers[WEIGHT] * square
    return 0.5 * (most - allowed * others * others) - 1e-6 * most  # for |L|^2 and keys come from single precision
