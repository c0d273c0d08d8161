"""KSD^2 and the objective of the kept draws: KSD^2 plus the stream term; without scores the latter alone."""

from __future__ import annotations

from steinstream._engine import double_double
from steinstream._engine.jit import inlined
from steinstream._engine.penalties import stream_term, stream_term_with_new, stream_term_without


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
def stein_part(penalties, value):
    """Return KSD^2, or 0 if it is not part of the objective.

    Reference: `reference.Reference.objective`.
    """
    if penalties is None:
        return value
    return penalties.scalars.stein * value


@inlined
def objective(state, penalties):
    """Return the objective of the kept draws.

    Reference: `reference.Reference.objective`.
    """
    return stein_part(penalties, squared_ksd(state)) + stream_term(state, penalties)


@inlined
def objective_with_new(state, penalties):
    """Return the objective if the evaluated draw were inserted.

    Reference: `reference.Reference.objective`.
    """
    s = state.scalars
    total, _ = double_double.add_pair(s.total, s.total_low, 2.0 * s.new_influence, 2.0 * s.new_influence_low)
    return stein_part(penalties, mean_over_pairs(total, s.draws + 1)) + stream_term_with_new(state, penalties)


@inlined
def objective_without(state, penalties, slot):
    """Return the objective if one draw of this slot were removed.

    Reference: `reference.Reference.objective_without`.
    """
    s = state.scalars
    total, _ = double_double.add_pair(
        s.total, s.total_low, -2.0 * state.influence[slot], -2.0 * state.influence_low[slot]
    )
    return stein_part(penalties, mean_over_pairs(total, s.draws - 1)) + stream_term_without(state, penalties, slot)
