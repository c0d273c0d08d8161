"""Penalties: terms besides KSD that affect which draw is removed, namely the stream anchor, costs and pins.

Let n draws be kept, F be the sum of their Fourier features f (:mod:`steinstream._engine.fourier_features`) and m the
mean of the features over the stream. The anchor adds w |F / n - m|^2 to the objective. After the removal of draw j,
(n - 1)^2 times the anchor term is w |L - f_j|^2 with L = F - (n - 1) m, and |f_j|^2 is the same for all j. Hence the
objective is smallest without the draw that has the largest

    key_j = u_j + w <L, f_j> ,

where u_j is its influence. L, the *direction*, changes with every draw of the stream, and all keys with it: every
search recomputes them. The products <L, f_j> are computed in single precision, always in the same order; budgets are
checked in double precision.

A draw of cost c is treated as if k0(x, x) were larger by lambda kappa c / (mean cost): the search is for the largest
*penalised key* key_j + cost_scale * removal_cost_j. ``removal_cost`` is the cost of the copy in the slot that is
removed first, or -inf if all copies are pinned.

``penalties`` may be None. Then the functions below do nothing, and their code is not compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from steinstream._engine.fourier_features import wave
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import diagonal
from steinstream._engine.kernel_row import RowPenalties
from steinstream._engine.simd import LANES, fma
from steinstream._engine.state import NONE, KeptState, aligned, new_record
from steinstream._typing import Array, Flags, Float32Array, Integers

_wave = inlined(wave)

#: Numbers of the penalties; ``new`` refers to the draw that was evaluated last.
SCALARS = np.dtype(
    [
        # As of the current step.
        ("weight", np.float64),  # w / M
        ("cost_scale", np.float64),  # factor of costs
        ("new_removal_cost", np.float64),
        ("new_key", np.float64),
        ("new_penalised_key", np.float64),
        ("first_pass", np.float64),  # 1 if draws are added to the sums over the stream, 0 in a later pass
        # Settings.
        ("gamma", np.float64),  # strength of the anchor
        ("cost_weight", np.float64),  # lambda
        # Sums over the stream.
        ("count", np.float64),  # draws
        ("cost_sum", np.float64),
        # Sums over the draws kept at the last change of the preconditioner and the stream since then.
        ("log_diagonal_sum", np.float64),  # of log k0(x, x)
        ("log_diagonal_count", np.float64),
    ]
)

_SMALLEST_SPREAD = 1e-6  # of the features over the stream, relative to M: below it the anchor has no effect


class Penalties(NamedTuple):
    """Slots and labels as in the state; 2 M features, none without an anchor."""

    features: Float32Array  # (slots / 16, 2 M, 16)
    removal_cost: Array  # (slots,): cost of the copy that is removed first; -inf if all are pinned
    keys: Array  # (slots,): keys of the last search
    next_removed: Integers  # (slots,): label of the copy that is removed first, or NONE
    cost: Array  # (labels,)
    pinned: Flags  # (labels,)
    frequencies: Array  # (d, M), for draws before preconditioning
    new_features: Array  # (2 M,): features of the draw that is evaluated
    kept_sum: Array  # (2 M,): sum of the features over the kept draws
    stream_sum: Array  # (2 M,): sum of the features over the stream
    stream_mean: Array  # (2 M,)
    direction: Float32Array  # (2 M,): L
    partial_sums: Float32Array  # (4, 16): scratch
    scalars: Any  # a record of SCALARS


def empty_penalties(frequencies: Array, slots: int, labels: int) -> Penalties:
    """Return the penalties of a state with this number of slots and labels and of a stream without draws."""
    count = 2 * frequencies.shape[1]
    return Penalties(
        features=aligned(slots // LANES, count, LANES, kind=np.float32),
        removal_cost=aligned(slots),
        keys=aligned(slots),
        next_removed=np.full(slots, NONE, dtype=np.int64),
        cost=np.zeros(labels),
        pinned=np.zeros(labels, dtype=np.bool_),
        frequencies=frequencies,
        new_features=aligned(count),
        kept_sum=aligned(count),
        stream_sum=aligned(count),
        stream_mean=aligned(count),
        direction=aligned(count, kind=np.float32),
        partial_sums=aligned(4, LANES, kind=np.float32),
        scalars=new_record(SCALARS),
    )


def enlarged_penalties(penalties: Penalties, state: KeptState) -> Penalties:
    """Copy the penalties into arrays that fit an enlarged state."""
    new = empty_penalties(penalties.frequencies, len(state.copies), len(state.following))
    sized = ("features", "removal_cost", "keys", "next_removed", "cost", "pinned")
    for name in sized:
        old = getattr(penalties, name)
        getattr(new, name)[: len(old)] = old
    return penalties._replace(**{name: getattr(new, name) for name in sized})


def row_penalties(penalties: Penalties | None) -> RowPenalties | None:
    """Return the terms that a kernel row needs, or None. For compiled code only. Storage bookkeeping."""
    raise TypeError("row_penalties is compiled")


@overload(row_penalties, jit_options={"forceinline": True, "_nrt": False})
def _row_penalties(penalties):
    """Choose by type: one function would return an optional tuple."""
    if isinstance(penalties, types.NoneType):
        return lambda penalties: None

    def terms(penalties):
        scalars = penalties.scalars
        return RowPenalties(
            penalties.direction,
            penalties.features,
            penalties.removal_cost,
            penalties.keys,
            scalars.weight,
            scalars.cost_scale,
        )

    return terms


# -- the stream ----------------------------------------------------------------------------------------------------


@inlined
def compute_features(frequencies, draws, i, out):
    """Write the Fourier features of draw i, given before preconditioning.

    Reference: `reference.fourier_features`.
    """
    pairs = frequencies.shape[1]
    for m in range(pairs):
        out[m] = 0.0
    for k in range(frequencies.shape[0]):
        value, line = draws[i, k], frequencies[k]
        for m in range(pairs):
            out[m] = fma(value, line[m], out[m])
    for m in range(pairs):
        out[m], out[pairs + m] = _wave(out[m])


@inlined
def observe_stream(state, kernel, penalties, batch, first):
    """Add the candidates of a step to the sums over the stream, in the first pass, and update the weights.

    The features of the last candidate remain in ``new_features``. Keys computed before are not valid any more.

    Reference: `reference.Reference.observe`.
    """
    if penalties is not None:
        scalars, new, stream = penalties.scalars, penalties.new_features, penalties.stream_sum
        for i in range(first, first + batch.candidates):
            compute_features(penalties.frequencies, batch.unscaled, i, new)
            if scalars.first_pass > 0.0:
                for m in range(new.shape[0]):
                    stream[m] += new[m]
                scalars.count += 1.0
                scalars.cost_sum += batch.costs[i]
                scalars.log_diagonal_sum += np.log(diagonal(kernel, batch.draws, batch.scores, i))
                scalars.log_diagonal_count += 1.0
        update_weights(penalties)
        state.scalars.largest = np.nan


@inlined
def update_weights(penalties):
    """Compute the mean of the features and the weights from the sums over the stream.

    Reference: `reference.Reference.anchor_weight`, `reference.Reference.cost_scale`.
    """
    scalars, mean = penalties.scalars, penalties.stream_mean
    count, pairs = scalars.count, 0.5 * mean.shape[0]
    kappa, square = np.exp(scalars.log_diagonal_sum / scalars.log_diagonal_count), 0.0
    for m in range(mean.shape[0]):
        mean[m] = penalties.stream_sum[m] / count
        square += mean[m] * mean[m]
    scalars.weight, scalars.cost_scale = 0.0, 1.0  # not 0: it multiplies -inf where a draw is pinned
    spread = pairs - square  # since cosine^2 + sine^2 = 1
    if spread > _SMALLEST_SPREAD * pairs:
        scalars.weight = scalars.gamma * kappa / spread
    if scalars.cost_weight * scalars.cost_sum > 0.0:
        scalars.cost_scale = 0.5 * scalars.cost_weight * kappa / (scalars.cost_sum / count)


# -- the anchor term of the objective ------------------------------------------------------------------------------


@inlined
def anchor_term(state, penalties):
    """Return the anchor term of the kept draws.

    Reference: `reference.Reference.anchor_term`.
    """
    if penalties is None:
        return 0.0
    total, draws = 0.0, float(state.scalars.draws)
    for m in range(penalties.kept_sum.shape[0]):
        difference = penalties.kept_sum[m] / draws - penalties.stream_mean[m]
        total += difference * difference
    return penalties.scalars.weight * total


@inlined
def anchor_term_with_new(state, penalties):
    """Return the anchor term if the evaluated draw were inserted.

    Reference: `reference.Reference.anchor_term`.
    """
    if penalties is None:
        return 0.0
    total, draws = 0.0, float(state.scalars.draws + 1)
    for m in range(penalties.kept_sum.shape[0]):
        difference = (penalties.kept_sum[m] + penalties.new_features[m]) / draws - penalties.stream_mean[m]
        total += difference * difference
    return penalties.scalars.weight * total


@inlined
def anchor_term_without(state, penalties, slot):
    """Return the anchor term if one draw of this slot were removed.

    Reference: `reference.Reference.anchor_term`.
    """
    if penalties is None:
        return 0.0
    total, draws, tile, lane = 0.0, float(state.scalars.draws - 1), slot // LANES, slot % LANES
    for m in range(penalties.kept_sum.shape[0]):
        feature = np.float64(penalties.features[tile, m, lane])
        difference = (penalties.kept_sum[m] - feature) / draws - penalties.stream_mean[m]
        total += difference * difference
    return penalties.scalars.weight * total


@jit
def current_anchor_term(state, penalties) -> float:
    """Return the anchor term of the kept draws with weights that are up to date.

    Reference: `reference.Reference.anchor_term`.
    """
    update_weights(penalties)
    return float(anchor_term(state, penalties))


# -- keys ----------------------------------------------------------------------------------------------------------


@inlined
def set_direction(state, penalties):
    """Compute L for a search among the kept draws.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        others = float(state.scalars.draws - 1)
        for m in range(penalties.direction.shape[0]):
            penalties.direction[m] = penalties.kept_sum[m] - others * penalties.stream_mean[m]


@inlined
def set_direction_with_new(state, penalties):
    """Compute L for a search among the kept draws and the evaluated one.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        others = float(state.scalars.draws)
        for m in range(penalties.direction.shape[0]):
            kept = penalties.kept_sum[m] + penalties.new_features[m]
            penalties.direction[m] = kept - others * penalties.stream_mean[m]


@inlined
def set_new_key(state, penalties, batch, new):
    """Compute key and removal cost of the evaluated draw; a repeated state has that of its most expensive copy.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        scalars, sums, slot = penalties.scalars, penalties.partial_sums, state.scalars.latest
        for part in range(4):
            sums[part, 0] = 0.0
        for m in range(0, penalties.direction.shape[0], 4):
            for part in range(4):
                feature = np.float32(penalties.new_features[m + part])
                sums[part, 0] = fma(penalties.direction[m + part], feature, sums[part, 0])
        projection = np.float64((sums[0, 0] + sums[1, 0]) + (sums[2, 0] + sums[3, 0]))
        cost = -np.inf if batch.pinned[new] else batch.costs[new]
        if slot < state.scalars.slots:
            cost = max(cost, penalties.removal_cost[slot])
        scalars.new_removal_cost = cost
        scalars.new_key = fma(scalars.weight, projection, state.scalars.new_influence)
        scalars.new_penalised_key = fma(scalars.cost_scale, cost, scalars.new_key)


@inlined
def candidate_key(state, penalties, batch, new, influence):
    """Return the increase of the objective by a candidate, up to a factor: the smallest is best. Pinned ones have -inf.

    Reference: `reference.Reference.candidate_key`.
    """
    scalars, size, projection = penalties.scalars, float(state.scalars.draws + 1), 0.0
    features = penalties.new_features
    compute_features(penalties.frequencies, batch.unscaled, new, features)
    for m in range(features.shape[0]):
        projection = fma(penalties.kept_sum[m] - size * penalties.stream_mean[m], features[m], projection)
    if batch.pinned[new]:
        return -np.inf
    return fma(scalars.cost_scale, batch.costs[new], fma(scalars.weight, projection, influence))


@inlined
def penalised_key(penalties, slot):
    """Return the key of a slot plus its cost term.

    Reference: `reference.Reference.next_removed`.
    """
    return fma(penalties.scalars.cost_scale, penalties.removal_cost[slot], penalties.keys[slot])


# -- slots and labels ----------------------------------------------------------------------------------------------


@inlined
def store_features(penalties, slot):
    """Write the features of the evaluated draw into its slot. Storage bookkeeping."""
    if penalties is not None:
        tile, lane = slot // LANES, slot % LANES
        for m in range(penalties.new_features.shape[0]):
            penalties.features[tile, m, lane] = penalties.new_features[m]
        penalties.removal_cost[slot], penalties.next_removed[slot] = -np.inf, NONE


@inlined
def add_features(penalties, slot, sign):
    """Add the features of a draw to the sum over the kept draws, or subtract them. Storage bookkeeping."""
    if penalties is not None:
        tile, lane = slot // LANES, slot % LANES
        for m in range(penalties.kept_sum.shape[0]):
            penalties.kept_sum[m] += sign * np.float64(penalties.features[tile, m, lane])


@inlined
def store_new_key(penalties, slot):
    """Write the key of the evaluated draw into its slot. Storage bookkeeping."""
    if penalties is not None:
        penalties.keys[slot] = penalties.scalars.new_key


@inlined
def move_penalties(penalties, slot, last):
    """Copy the last slot into this one. Storage bookkeeping."""
    if penalties is not None:
        to_tile, to_lane, tile, lane = slot // LANES, slot % LANES, last // LANES, last % LANES
        for m in range(penalties.new_features.shape[0]):
            penalties.features[to_tile, m, to_lane] = penalties.features[tile, m, lane]
        penalties.removal_cost[slot], penalties.keys[slot] = penalties.removal_cost[last], penalties.keys[last]
        penalties.next_removed[slot] = penalties.next_removed[last]


@inlined
def store_cost_and_pin(penalties, slot, label, batch, new):
    """Write cost and pin of a new copy of the state in a slot. Storage bookkeeping."""
    if penalties is not None:
        penalties.cost[label], penalties.pinned[label] = batch.costs[new], batch.pinned[new]
        compare_copy(penalties, slot, label)


@inlined
def compare_copy(penalties, slot, label):
    """Let a copy be removed first if it costs more than those compared so far; of equal costs the oldest is.

    Reference: `reference.Reference.next_removed`.
    """
    cost = penalties.cost[label]
    if not penalties.pinned[label] and (penalties.next_removed[slot] == NONE or cost > penalties.removal_cost[slot]):
        penalties.next_removed[slot], penalties.removal_cost[slot] = label, cost


@inlined
def compare_copies(state, penalties, slot):
    """Find the copy of the state in a slot that is removed first.

    Reference: `reference.Reference.next_removed`.
    """
    if penalties is not None:
        penalties.next_removed[slot], penalties.removal_cost[slot] = NONE, -np.inf
        label = state.oldest[slot]
        while label != NONE:
            compare_copy(penalties, slot, label)
            label = state.following[label]


@jit
def compare_all_copies(state, penalties) -> None:
    """Find the copy that is removed first in every slot.

    Reference: `reference.Reference.next_removed`.
    """
    for slot in range(state.scalars.slots):
        compare_copies(state, penalties, slot)


@jit
def fill_features(state, penalties, unscaled) -> None:
    """Compute the features of all kept draws, given slot by slot and before preconditioning.

    Reference: `reference.fourier_features`.
    """
    for slot in range(state.scalars.slots):
        compute_features(penalties.frequencies, unscaled, slot, penalties.new_features)
        store_features(penalties, slot)
        for m in range(penalties.new_features.shape[0]):
            penalties.kept_sum[m] += state.copies[slot] * penalties.new_features[m]
