"""KSD^2 and the objective of the kept draws. The objective is KSD^2 plus the anchor term, if there is an anchor."""

from __future__ import annotations

from steinstream._engine import double_double
from steinstream._engine.jit import inlined
from steinstream._engine.penalties import anchor_term, anchor_term_with_new, anchor_term_without


@inlined
def mean_over_pairs(total, draws):
    """Return S / n^2. Rounding to the grid may leave an S of 0 slightly negative.

    Reference: `reference.mean_over_pairs`.
    """
    return max(total, 0.0) / (float(draws) * float(draws))


@inlined
def squared_ksd(state):
    """Return KSD^2 of the kept draws.

    Reference: `reference.Reference.squared_ksd`.
    """
    return mean_over_pairs(state.scalars.total, state.scalars.draws)


@inlined
def objective(state, penalties):
    """Return the objective of the kept draws.

    Reference: `reference.Reference.objective`.
    """
    return squared_ksd(state) + anchor_term(state, penalties)


@inlined
def objective_with_new(state, penalties):
    """Return the objective if the evaluated draw were inserted.

    Reference: `reference.Reference.objective`.
    """
    s = state.scalars
    total, _ = double_double.add_pair(s.total, s.total_low, 2.0 * s.new_influence, 2.0 * s.new_influence_low)
    return mean_over_pairs(total, s.draws + 1) + anchor_term_with_new(state, penalties)


@inlined
def objective_without(state, penalties, slot):
    """Return the objective if one draw of this slot were removed.

    Reference: `reference.Reference.objective_without`.
    """
    s = state.scalars
    total, _ = double_double.add_pair(
        s.total, s.total_low, -2.0 * state.influence[slot], -2.0 * state.influence_low[slot]
    )
    return mean_over_pairs(total, s.draws - 1) + anchor_term_without(state, penalties, slot)
