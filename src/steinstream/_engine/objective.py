"""KSD^2 and the objective of the kept draws: KSD^2 plus the stream term; without scores the latter alone."""

from __future__ import annotations

from steinstream._engine import double_double
from steinstream._engine.jit import inlined
from steinstream._engine.penalties import squared_mmd


@inlined
def mean_over_pairs(total, draws):
    """Return S / n^2. Rounding to the grid may leave an S of 0 slightly negative.

    Reference: `reference.mean_over_pairs`.
    """
    return max(total, 0.0) / (float(draws) * float(draws))


@inlined
def squared_ksd(state):
    """Return KSD^2 of the kept draws. Reference: `reference.Reference.squared_ksd`."""
    return mean_over_pairs(state.scalars.total, state.scalars.draws)


@inlined
def with_stream_term(penalties, squared_ksd, kept_total, stream_total, draws):
    """Return the objective from KSD^2, P and B. Reference: `reference.Reference.objective`."""
    scalars = penalties.scalars
    value = scalars.stein * squared_ksd
    if scalars.weight == 0.0:
        return value
    return value + scalars.weight * squared_mmd(penalties, kept_total, stream_total, draws)


@inlined
def objective(state, penalties):
    """Return the objective of the kept draws. Reference: `reference.Reference.objective`."""
    value = squared_ksd(state)
    if penalties is None:
        return value
    p = penalties.scalars
    return with_stream_term(penalties, value, p.kept_total, p.stream_total, state.scalars.draws)


@inlined
def objective_with_new(state, penalties):
    """Return the objective if the evaluated draw were inserted. Reference: `reference.Reference.objective`."""
    s = state.scalars
    total, _ = double_double.add_pair(s.total, s.total_low, 2.0 * s.new_influence, 2.0 * s.new_influence_low)
    value = mean_over_pairs(total, s.draws + 1)
    if penalties is None:
        return value
    p = penalties.scalars
    stream_total, _ = double_double.add(p.stream_total, p.stream_total_low, p.new_stream_sum)
    return with_stream_term(penalties, value, p.kept_total + 2.0 * p.new_kept_sum, stream_total, s.draws + 1)


@inlined
def objective_without(state, penalties, slot):
    """Return the objective if one draw of this slot were removed.

    Reference: `reference.Reference.objective_without`.
    """
    s = state.scalars
    total, _ = double_double.add_pair(
        s.total, s.total_low, -2.0 * state.influence[slot], -2.0 * state.influence_low[slot]
    )
    value = mean_over_pairs(total, s.draws - 1)
    if penalties is None:
        return value
    p = penalties.scalars
    stream_total, _ = double_double.add(p.stream_total, p.stream_total_low, -penalties.stream_sum[slot])
    return with_stream_term(penalties, value, p.kept_total - 2.0 * penalties.kept_sum[slot], stream_total, s.draws - 1)
