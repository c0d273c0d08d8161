"""Online KSD thinning (Algorithms 1 and 2 of Hawkins, Koppel and Zhang), over a block of the stream.

At every step the best of the candidates is added; then, while more draws are kept than the growth function asks for,
the least influential one goes if KSD^2 without it stays within the budget above KSD^2 right after the addition, or if
more are kept than the cap allows. Under the monotone rule KSD^2 must not rise above what it was before the addition
either, so that above the floor it never rises at all (but for the budget). A new draw that would be the first to go is
never let in. Cost per step: (candidates + removed) sweeps over the kept draws; none for a repeated state.

With a guide (:mod:`steinstream._engine.penalties`) the objective takes the place of KSD^2: KSD^2 and what the anchor adds.
Costs have no part in it: of the draws that may go within the budget, the one goes that influence and cost together
point to. Pinned draws never go.
"""

from __future__ import annotations

from steinstream._engine.argmax import own_key
from steinstream._engine.candidates import best_candidate, next_to_go
from steinstream._engine.jit import bare
from steinstream._engine.objective import objective, objective_with_latest, square
from steinstream._engine.penalties import meet
from steinstream._engine.state import DRAWS, NONE, OTHERS
from steinstream._engine.updates import is_full, keep, remove, turn_away, weigh

# KSD^2 before and after a removal are equal in exact arithmetic more often than one would think (repeated states,
# symmetric sets). Rounding in the two divisions must not turn "equal" into "greater".
TIE = 1.0 + 2.0**-50


@bare
def thin_block(store, kernel, guide, draws, scores, raw, ids, candidates, start, floor, budget, share, monotone, cap, sizes, squares, dropped, sums, workers) -> tuple[int, int]:  # fmt: skip  # noqa: E501
    """Run ``len(floor)`` steps after step ``start``, or fewer when room runs out. Returns steps done, draws dropped.

    The budget of a step is ``budget + share / n^2``, n draws being kept after the addition; ``monotone`` counts it from
    the objective before the addition if that was less. Sizes and KSD^2 after each
    step go to ``sizes`` and ``squares``, the dropped draws' ids and steps of arrival, in order, to ``dropped``.
    ``sums`` (candidates, 2) is scratch. ``guide`` is None without anchor, costs and pins; ``workers`` is None, or a
    number of threads to share large sweeps among.
    """
    drops = 0
    for step in range(floor.shape[0]):
        if is_full(store):
            return step, drops
        new = step * candidates
        meet(store, kernel, guide, draws, scores, new, new + candidates)
        if candidates > 1:
            new = best_candidate(store, kernel, guide, draws, scores, new, new + candidates, sums, workers)
        size = store.counts[DRAWS] + 1
        weigh(store, kernel, guide, draws, scores, new, size <= floor[step], workers)

        most = objective_with_latest(store, guide)
        if monotone and size > 1:
            most = min(most, objective(store, guide))
        allowed = (most + budget[step] + share[step] / float(size * size)) * TIE
        least = own_key(store, guide) > store.sums[OTHERS]
        if least and size > floor[step] and (size > cap or objective(store, guide) <= allowed):
            turn_away(store, guide, ids, new, start + step + 1, dropped, drops)
            drops += 1
        else:
            keep(store, guide, ids, raw, new, start + step + 1)
        while store.counts[DRAWS] > floor[step]:
            slot = next_to_go(store, guide, allowed, cap)
            if slot == NONE:
                break
            remove(store, kernel, guide, slot, dropped, drops, workers)
            drops += 1
        sizes[step], squares[step] = store.counts[DRAWS], square(store)
    return floor.shape[0], drops
