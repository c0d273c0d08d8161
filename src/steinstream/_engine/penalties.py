"""Penalties: terms besides KSD that affect which draw is removed, namely the stream term, costs and pins.

Let n draws x_i be kept, and let the stream have t draws y so far. The stream term adds w times

    MMD^2 = P / n^2 - 2 B / (n t) + C / t^2

to the objective, with P the sum of the base kernel phi over all pairs of kept draws, B over all pairs of a kept draw
and a draw of the stream, and C over all pairs of draws of the stream. Let

    p_j = phi(x_j, x_j) / 2 + sum of phi(x_j, x_i) over the other kept draws   (the *kept sum*),
    b_j = sum of phi(x_j, y) over the stream                                   (the *stream sum*).

Removing draw j lowers P by 2 p_j and B by b_j. Hence the objective is smallest without the draw that has the largest

    key_j = u_j + w (p_j - (n - 1) b_j / t) ,

where u_j is its influence. The stream sum of a new draw is computed from a summary of the stream
(:mod:`steinstream._engine.stream_summary`). While the draw is kept, every draw of the stream is added to it exactly:
the value of phi is part of the kernel row of the new draw. Keys change with every draw of the stream, so every search
recomputes them.

The weight is w = gamma kappa / nu, with kappa the mean of k0(x, x) over the last half to three quarters of the stream
and nu = phi(0) - C / t^2. For n independent draws, KSD^2 is then kappa / n in the mean and the stream term
gamma kappa / n in any coordinates: gamma has no unit. With the geometric mean in place of the mean, KSD would decide
almost alone where a few draws have very large scores, in the neck of a funnel, and keep sets that are too narrow there.
Older draws are forgotten because scores are large in a burn-in. Without scores the influence is left out of the keys
and w = 1 / nu.

A draw of cost c is treated as if k0(x, x) were larger by lambda g c / (mean cost), with g the geometric mean of
k0(x, x): the search is for the largest
*penalised key* key_j + cost_scale * removal_cost_j. ``removal_cost`` is the cost of the copy in the slot that is
removed first, or -inf if all copies are pinned.

If the draws have scores and the stream term compares features, phi is that of the features, which have tiles of their
own. Otherwise phi is that of the coordinates of the kept draws.

``penalties`` may be None. Then the functions below do nothing, and their code is not compiled.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from steinstream._engine import double_double
from steinstream._engine.base_row import ADD_BASE, base_matrix, base_row, base_row_sums, base_tiles, padded, row_total
from steinstream._engine.by_reference import by_reference
from steinstream._engine.compiled_kernel import CompiledKernel
from steinstream._engine.jit import inlined, shared
from steinstream._engine.kernel_pair import diagonal, profile_at
from steinstream._engine.kernel_row import RowPenalties
from steinstream._engine.late_calls import called_late
from steinstream._engine.simd import LANES, fma
from steinstream._engine.state import NONE, KeptState, aligned, new_record
from steinstream._engine.stream_summary import (
    StreamSummary,
    add_to_summary,
    stream_sums,
    sum_over_pairs,
    sum_over_stream,
)
from steinstream._engine.translation import translated
from steinstream._typing import Array, Flags, Integers

#: Numbers of the penalties; ``new`` refers to the draw that was evaluated last.
PENALTY_SCALARS = np.dtype(
    [
        # As of the current step.
        ("weight", np.float64),  # w
        ("share", np.float64),  # w (n - 1) / t
        ("cost_scale", np.float64),  # factor of costs
        ("new_removal_cost", np.float64),
        ("new_key", np.float64),
        ("new_penalised_key", np.float64),
        ("first_pass", np.float64),  # 1 if draws are added to the sums over the stream, 0 in a later pass
        # Settings.
        ("stein", np.float64),  # 1, or 0 without scores
        ("gamma", np.float64),  # weight of the stream term
        ("cost_weight", np.float64),  # lambda
        ("features", np.float64),  # 1 if phi is that of features, 0 if it is that of the draws
        # Sums over the stream.
        ("count", np.float64),  # draws, t
        ("pair_sum", np.float64),  # C
        ("cost_sum", np.float64),
        # Sums over the kept draws.
        ("kept_total", np.float64),  # P
        ("stream_total", np.float64),  # B, a pair
        ("stream_total_low", np.float64),
        ("new_kept_sum", np.float64),
        ("new_stream_sum", np.float64),
        # Sums over the draws kept at the last change of the preconditioner and the stream since then.
        ("log_diagonal_sum", np.float64),  # of log k0(x, x)
        ("log_diagonal_count", np.float64),
        # Sums of k0(x, x) since the number of draws last doubled, and between the two doublings before.
        ("diagonal_sum", np.float64),
        ("diagonal_count", np.float64),
        ("previous_diagonal_sum", np.float64),
        ("previous_diagonal_count", np.float64),
        ("diagonal_doubling", np.float64),
    ]
)

_SMALLEST_SPREAD = 1e-6  # nu relative to phi(0): below it the stream term has no effect


@by_reference
class Penalties(NamedTuple):
    """Slots and labels as in the state."""

    kept_sum: Array  # (slots,): p
    stream_sum: Array  # (slots,): b
    base_row: Array  # (slots,): phi with the latest state
    removal_cost: Array  # (slots,): cost of the copy that is removed first; -inf if all are pinned
    keys: Array  # (slots,): penalised keys of the last search
    next_removed: Integers  # (slots,): label of the copy that is removed first, or NONE
    cost: Array  # (labels,)
    pinned: Flags  # (labels,)
    tiles: Array  # (slots / 16, q, 16): features of the kept draws; without features (0, q, 16)
    given_row: Array  # (slots,): phi of features for the next row
    summary: StreamSummary
    point: Array  # (q,): features of the draw whose row is computed
    lanes: Array  # (2, 16): scratch
    scalars: Any  # a record of PENALTY_SCALARS


def empty_penalties(summary: StreamSummary, slots: int, labels: int, features: bool = False) -> Penalties:
    """Return the penalties of a state with this number of slots and labels, with the summary of a stream."""
    penalties = Penalties(
        kept_sum=aligned(slots),
        stream_sum=aligned(slots),
        base_row=aligned(slots),
        removal_cost=aligned(slots),
        keys=aligned(slots),
        next_removed=np.full(slots, NONE, dtype=np.int64),
        cost=np.zeros(labels),
        pinned=np.zeros(labels, dtype=np.bool_),
        tiles=aligned(slots // LANES if features else 0, len(summary.point), LANES),
        given_row=aligned(slots),
        summary=summary,
        point=np.zeros_like(summary.point),
        lanes=aligned(2, LANES),
        scalars=new_record(PENALTY_SCALARS),
    )
    penalties.scalars["features"] = features
    return penalties


def enlarged_penalties(penalties: Penalties, state: KeptState) -> Penalties:
    """Copy the penalties into arrays that fit an enlarged state."""
    features = bool(penalties.scalars["features"])
    new = empty_penalties(penalties.summary, len(state.copies), len(state.following), features)
    sized = ["kept_sum", "stream_sum", "base_row", "removal_cost", "keys", "next_removed", "cost", "pinned"]
    sized += ["tiles", "given_row"]
    for name in sized:
        old = getattr(penalties, name)
        getattr(new, name)[: len(old)] = old
    return penalties._replace(**{name: getattr(new, name) for name in sized})


def _row_terms(penalties):
    """Return the terms that a kernel row needs."""
    scalars = penalties.scalars
    return RowPenalties(
        base_row=penalties.base_row,
        kept_sum=penalties.kept_sum,
        stream_sum=penalties.stream_sum,
        removal_cost=penalties.removal_cost,
        keys=penalties.keys,
        given_row=penalties.given_row,
        stein=scalars.stein,
        weight=scalars.weight,
        share=scalars.share,
        observed=scalars.first_pass,
        cost_scale=scalars.cost_scale,
        given=scalars.features,
    )


def row_penalties(penalties: Penalties | None) -> RowPenalties | None:
    """Return the terms that a kernel row needs, or None. For compiled code only. Storage bookkeeping."""
    return None if penalties is None else _row_terms(penalties)


@overload(row_penalties, jit_options={"forceinline": True, "_nrt": False})
def _row_penalties(penalties):
    """Choose by type: one function would return an optional tuple."""
    return (lambda penalties: None) if isinstance(penalties, types.NoneType) else _row_terms


# -- the stream ----------------------------------------------------------------------------------------------------


@called_late()
def store_features(penalties, batch, new, slot):
    """Write the features of a draw of the batch into a spare slot and ``penalties.point``. Storage bookkeeping."""
    for k in range(penalties.point.shape[0]):
        penalties.point[k] = penalties.tiles[slot // LANES, k, slot % LANES] = batch.base[new, k]


@called_late()
def load_kept_features(penalties, slot):
    """Copy the features of a kept draw to ``penalties.point``. Storage bookkeeping."""
    for k in range(penalties.point.shape[0]):
        penalties.point[k] = penalties.tiles[slot // LANES, k, slot % LANES]


@called_late()
def move_features(penalties, slot, last):
    """Copy the features of the last slot into this one. Storage bookkeeping."""
    for k in range(penalties.point.shape[0]):
        penalties.tiles[slot // LANES, k, slot % LANES] = penalties.tiles[last // LANES, k, last % LANES]


@called_late()
def fill_given_row(state, kernel, penalties, slots):
    """Compute phi of the features in ``penalties.point`` with the first slots, for the next kernel row.

    Reference: `kernels.Kernel.base_matrix`.
    """
    for other in range((slots + LANES - 1) // LANES * LANES):
        penalties.given_row[other] = 0.0
    add_kept_row(state, kernel, penalties, penalties.point, penalties.given_row, slots)


@inlined
def kept_total(state, kernel, penalties, point):
    """Return the sum of phi between a base vector and the kept draws. Reference: `kernels.Kernel.base_matrix`."""
    slots = state.scalars.slots
    if penalties.scalars.features > 0.0:
        return row_total(kernel, point, penalties.tiles, state.copies, penalties.lanes, slots)
    return row_total(kernel, point, state.tiles, state.copies, penalties.lanes, slots)


@inlined
def add_kept_row(state, kernel, penalties, point, row, slots):
    """Add phi between a base vector and the draws in the first slots to a row.

    Reference: `kernels.Kernel.base_matrix`.
    """
    tiles = (slots + LANES - 1) // LANES
    if penalties.scalars.features > 0.0:
        base_row(kernel, ADD_BASE, point, penalties.tiles, state.copies, row, penalties.lanes, 0, tiles)
    else:
        base_row(kernel, ADD_BASE, point, state.tiles, state.copies, row, penalties.lanes, 0, tiles)


@inlined
def base_value(kernel, draws, i, j):
    """Return phi of two draws, rounded to the grid. Reference: `kernels.Kernel.base_matrix`."""
    u, shift = 0.0, kernel.base_grid * (1.5 * 2.0**52)
    for k in range(draws.shape[1]):
        difference = draws[i, k] - draws[j, k]
        u = fma(difference, difference, u)
    phi, _, _ = profile_at(kernel, u)
    return (phi + shift) - shift


@shared
def base_at_zero(kernel: Any) -> Any:
    """Return phi(0), rounded to the grid. Reference: `kernels.Kernel.base_matrix`."""
    own, _, _ = profile_at(kernel, 0.0)
    shift = kernel.base_grid * (1.5 * 2.0**52)
    return (own + shift) - shift


@inlined
def observe_stream(state, kernel, penalties, batch, first):
    """Compute the stream sum of each candidate of a step; in the first pass, add the candidates to the stream.

    Keys computed before are not valid any more.

    Reference: `reference.Reference.observe`.
    """
    if penalties is not None:
        scalars, last = penalties.scalars, first + batch.candidates
        observed = scalars.first_pass > 0.0
        if scalars.gamma > 0.0:
            for i in range(first, last):
                batch.stream_sums[i] = sum_over_stream(kernel, penalties.summary, batch.base[i])
        if observed and scalars.gamma > 0.0:
            for i in range(first, last):
                scalars.pair_sum += 2.0 * batch.stream_sums[i]
            for i in range(first, last):
                for j in range(first, last):
                    value = base_value(kernel, batch.base, i, j)
                    batch.stream_sums[i] += value
                    scalars.pair_sum += value
                add_to_summary(kernel, penalties.summary, batch.base, batch.unscaled, batch.ids, i)
        if observed:
            for i in range(first, last):
                scalars.count += 1.0
                scalars.cost_sum += batch.costs[i]
                add_diagonal(scalars, diagonal(kernel, batch.draws, batch.scores, i))
        update_weights(kernel, penalties)
        state.scalars.largest = np.nan


@shared
def add_diagonal(scalars: Any, value: float) -> None:
    """Add k0(x, x) of a draw to the means. Reference: `reference.recent_mean`."""
    scalars.log_diagonal_sum += math.log(value)
    scalars.log_diagonal_count += 1.0
    if scalars.diagonal_count >= max(scalars.diagonal_doubling, 1.0):
        scalars.diagonal_doubling = max(scalars.diagonal_doubling, 1.0) + scalars.diagonal_count
        scalars.previous_diagonal_sum, scalars.previous_diagonal_count = scalars.diagonal_sum, scalars.diagonal_count
        scalars.diagonal_sum = scalars.diagonal_count = 0.0
    scalars.diagonal_sum += value
    scalars.diagonal_count += 1.0


@inlined
def observe_others(state, kernel, penalties, batch, first, new):
    """Add phi of the candidates that were not chosen to the stream sums of the kept draws, in the first pass.

    Reference: `reference.Reference.observe`.
    """
    if penalties is not None:
        scalars, slots = penalties.scalars, state.scalars.slots
        if batch.candidates > 1 and scalars.first_pass > 0.0 and scalars.gamma > 0.0 and slots > 0:
            for i in range(first, first + batch.candidates):
                if i != new:
                    add_to_stream_total(scalars, kept_total(state, kernel, penalties, batch.base[i]))
                    add_kept_row(state, kernel, penalties, batch.base[i], penalties.stream_sum, slots)


@shared
def add_to_stream_total(scalars: Any, value: Any) -> None:
    """Add to B. Storage bookkeeping."""
    scalars.stream_total, scalars.stream_total_low = double_double.add(
        scalars.stream_total, scalars.stream_total_low, value
    )


@shared
def update_weights(kernel: Any, penalties: Any) -> None:
    """Compute the weights from the sums over the stream.

    Reference: `reference.Reference.mmd_weight`, `reference.Reference.cost_scale`.
    """
    scalars = penalties.scalars
    count = scalars.count
    seen = scalars.diagonal_count + scalars.previous_diagonal_count
    kappa = (scalars.diagonal_sum + scalars.previous_diagonal_sum) / seen if seen > 0.0 else 0.0
    own = base_at_zero(kernel)
    spread = own - scalars.pair_sum / (count * count)
    scalars.weight, scalars.cost_scale = 0.0, 1.0  # not 0: it multiplies -inf where a draw is pinned
    if scalars.gamma > 0.0 and spread > _SMALLEST_SPREAD * own:
        scalars.weight = scalars.gamma * kappa / spread if scalars.stein > 0.0 else 1.0 / spread
    if scalars.cost_weight * scalars.cost_sum > 0.0:
        geometric = math.exp(scalars.log_diagonal_sum / scalars.log_diagonal_count)
        scale = geometric if scalars.stein > 0.0 else 1.0
        scalars.cost_scale = 0.5 * scalars.cost_weight * scale / (scalars.cost_sum / count)


@inlined
def set_share(state, penalties, others):
    """Compute w (n - 1) / t for a search in which ``others`` draws remain after a removal.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        scalars = penalties.scalars
        scalars.share = scalars.weight * float(others) / scalars.count if scalars.count > 0.0 else 0.0


# -- the stream term of the objective ------------------------------------------------------------------------------


@shared
def squared_mmd(penalties: Any, kept_total: Any, stream_total: Any, draws: Any) -> Any:
    """Return MMD^2 from its three sums. Reference: `reference.Reference.squared_mmd`."""
    count, size, pair_sum = penalties.scalars.count, float(draws), penalties.scalars.pair_sum
    return kept_total / (size * size) - 2.0 * (stream_total / (size * count)) + pair_sum / (count * count)


@shared
def logged_mmd(state: Any, penalties: Any) -> Any:
    """Return MMD^2 of the kept draws, at least 0; NaN without a stream term.

    Reference: `reference.Reference.squared_mmd`.
    """
    if penalties is None or penalties.scalars.gamma == 0.0 or penalties.scalars.count == 0.0:
        return np.nan
    scalars = penalties.scalars
    return max(squared_mmd(penalties, scalars.kept_total, scalars.stream_total, state.scalars.draws), 0.0)


# -- keys ----------------------------------------------------------------------------------------------------------


@inlined
def key_of(scalars, influence, kept_sum, stream_sum):
    """Return the key of a draw; rounded as in `kernel_row.compute_row`. Reference: `reference.Reference.keys`."""
    return fma(scalars.weight, kept_sum, fma(scalars.stein, influence, -(scalars.share * stream_sum)))


@inlined
def set_new_key(state, penalties, batch, new):
    """Compute key and removal cost of the evaluated draw; a repeated state has that of its most expensive copy.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        scalars, slot = penalties.scalars, state.scalars.latest
        cost = -np.inf if batch.pinned[new] else batch.costs[new]
        if slot < state.scalars.slots:
            cost = max(cost, penalties.removal_cost[slot])
        scalars.new_removal_cost = cost
        scalars.new_key = key_of(scalars, state.scalars.new_influence, scalars.new_kept_sum, scalars.new_stream_sum)
        scalars.new_penalised_key = fma(scalars.cost_scale, cost, scalars.new_key)


@inlined
def candidate_key(state, kernel, penalties, batch, new, influence):
    """Return the increase of the objective by a candidate, up to a factor: the smallest is best. Pinned ones have -inf.

    Reference: `reference.Reference.candidate_key`.
    """
    scalars = penalties.scalars
    if batch.pinned[new]:
        return -np.inf
    key = scalars.stein * influence
    if scalars.weight > 0.0:
        kept_sum = 0.5 * base_at_zero(kernel) + kept_total(state, kernel, penalties, batch.base[new])
        share = scalars.weight * float(state.scalars.draws + 1) / scalars.count
        key = fma(scalars.weight, kept_sum, key - share * batch.stream_sums[new])
    return fma(scalars.cost_scale, batch.costs[new], key)


# -- slots and labels ----------------------------------------------------------------------------------------------


@inlined
def prepare_slot(state, kernel, penalties, batch, new, slot):
    """Prepare a spare slot for the evaluation of a draw of the batch. Storage bookkeeping."""
    if penalties is not None:
        penalties.kept_sum[slot], penalties.stream_sum[slot] = 0.0, 0.0
        penalties.removal_cost[slot], penalties.next_removed[slot] = -np.inf, NONE
        if penalties.scalars.features > 0.0:
            store_features(penalties, batch, new, slot)
            fill_given_row(state, kernel, penalties, slot + 1)


@inlined
def prepare_row(state, kernel, penalties, slots):
    """Prepare the kernel row of the draw that is removed. Storage bookkeeping."""
    if penalties is not None:  # noqa: SIM102 (numba removes this branch, but only as a test of its own)
        if penalties.scalars.features > 0.0:
            fill_given_row(state, kernel, penalties, slots)


@inlined
def evaluate_new(state, kernel, penalties, batch, new):
    """Set the sums of the evaluated draw, a new state, whose row has been computed.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        scalars, total = penalties.scalars, 0.0
        for lane in range(LANES):
            total += state.lane_base_sums[lane]
        scalars.new_kept_sum = total + 0.5 * base_at_zero(kernel)
        scalars.new_stream_sum = batch.stream_sums[new]
        add_to_stream_total(scalars, scalars.first_pass * total)


@inlined
def evaluate_repeated(state, penalties, batch, new, slot):
    """Set the sums of the evaluated draw, which repeats the latest state. Reference: `reference.Reference.keys`."""
    if penalties is not None:
        scalars, row, total = penalties.scalars, penalties.base_row, 0.0
        for other in range(state.scalars.slots):
            total += row[other] * state.copies[other]
            penalties.stream_sum[other] += scalars.first_pass * row[other]
        add_to_stream_total(scalars, scalars.first_pass * total)
        own = row[slot]
        scalars.new_kept_sum = total + 0.5 * own
        scalars.new_stream_sum = batch.stream_sums[new]
        if slot < state.scalars.slots:
            scalars.new_kept_sum = penalties.kept_sum[slot] + own
            scalars.new_stream_sum = penalties.stream_sum[slot]


@inlined
def insert_sums(state, penalties, slot):
    """Add the evaluated draw to the sums over the kept draws. Storage bookkeeping."""
    if penalties is not None:
        scalars = penalties.scalars
        for other in range(state.scalars.slots):
            penalties.kept_sum[other] += penalties.base_row[other]
        penalties.kept_sum[slot], penalties.stream_sum[slot] = scalars.new_kept_sum, scalars.new_stream_sum
        penalties.keys[slot] = scalars.new_penalised_key
        scalars.kept_total += 2.0 * scalars.new_kept_sum
        add_to_stream_total(scalars, scalars.new_stream_sum)


@inlined
def subtract_totals(state, penalties, slot):
    """Subtract a draw of a slot from P and B. Its features are copied, for its kernel row. Storage bookkeeping."""
    if penalties is not None:
        penalties.scalars.kept_total -= 2.0 * penalties.kept_sum[slot]
        add_to_stream_total(penalties.scalars, -penalties.stream_sum[slot])
        if penalties.scalars.features > 0.0:
            load_kept_features(penalties, slot)


@inlined
def subtract_base_row(state, penalties):
    """Subtract phi with the latest state from the kept sums. Storage bookkeeping."""
    if penalties is not None:
        for other in range(state.scalars.slots):
            penalties.kept_sum[other] -= penalties.base_row[other]


@inlined
def move_penalties(penalties, slot, last):
    """Copy the last slot into this one. Storage bookkeeping."""
    if penalties is not None:
        penalties.kept_sum[slot], penalties.stream_sum[slot] = penalties.kept_sum[last], penalties.stream_sum[last]
        penalties.base_row[slot], penalties.keys[slot] = penalties.base_row[last], penalties.keys[last]
        penalties.removal_cost[slot] = penalties.removal_cost[last]
        penalties.next_removed[slot] = penalties.next_removed[last]
        if penalties.scalars.features > 0.0:
            move_features(penalties, slot, last)


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
    """Find the copy of the state in a slot that is removed first. Reference: `reference.Reference.next_removed`."""
    if penalties is not None:
        penalties.next_removed[slot], penalties.removal_cost[slot] = NONE, -np.inf
        label = state.oldest[slot]
        while label != NONE:
            compare_copy(penalties, slot, label)
            label = state.following[label]


@translated
def compare_all_copies(state, penalties) -> None:
    """Find the copy that is removed first in every slot. Reference: `reference.Reference.next_removed`."""
    for slot in range(state.scalars.slots):
        compare_copies(state, penalties, slot)


# -- between the blocks: functions in Python -----------------------------------------------------------------------


def add_diagonals(kernel: CompiledKernel, penalties: Penalties, draws: Array, scores: Array) -> None:
    """Add k0(x, x) of draws that are inserted without being part of the stream.

    Reference: `reference.Reference.kappa`.
    """
    for value in diagonal(kernel, draws, scores, slice(None)).tolist():
        add_diagonal(penalties.scalars, value)


def current_weight(kernel: CompiledKernel, penalties: Penalties) -> float:
    """Return the factor w of the squared MMD, up to date. Reference: `reference.Reference.mmd_weight`."""
    update_weights(kernel, penalties)
    return float(penalties.scalars.weight)


def stream_squares(state: KeptState, kernel: CompiledKernel, penalties: Penalties) -> tuple[Array, float]:
    """Return w |phi(x, .) - mean embedding of the stream|^2 for each slot, and its mean over the stream.

    Reference: `reference.Reference.squared_distances`.
    """
    weight, scalars, own = current_weight(kernel, penalties), penalties.scalars, float(base_at_zero(kernel))
    pairs, sums = float(scalars.pair_sum / (scalars.count * scalars.count)), penalties.stream_sum[: state.scalars.slots]
    return weight * (own - 2.0 * sums / scalars.count + pairs), weight * (own - pairs)


def kept_points(state: KeptState, penalties: Penalties) -> Array:
    """Return the base vector of each slot, (slots, q). Storage bookkeeping."""
    tiles = penalties.tiles if penalties.scalars.features else state.tiles[:, :, 0]
    return np.ascontiguousarray(tiles.transpose(0, 2, 1).reshape(-1, tiles.shape[1])[: state.scalars.slots])


def sums_over_summary(state: KeptState, kernel: CompiledKernel, penalties: Penalties) -> tuple[Array, Array, float]:
    """Return the sum of phi over the kept draws and over the summary for each slot, and over pairs of the summary.

    Reference: `reference.Reference.squared_mmd`.
    """
    points, copies = kept_points(state, penalties), padded(state.copies[: state.scalars.slots])
    kept_sums = base_row_sums(kernel, base_tiles(points), copies, points)
    return kept_sums, stream_sums(kernel, penalties.summary, points), sum_over_pairs(kernel, penalties.summary)


def restore_sums(state: KeptState, kernel: CompiledKernel, penalties: Penalties) -> tuple[float, float]:
    """Compute the sums over the kept draws that a checkpoint does not contain, and return P and B without rounding.

    P and B themselves are part of a checkpoint: over long streams and large sets they depend on all steps before, in
    their last bits.

    Reference: `reference.Reference.keys`.
    """
    slots, latest = int(state.scalars.slots), state.scalars.latest
    points, copies = kept_points(state, penalties), state.copies[:slots]
    tiles = base_tiles(points)
    sums = base_row_sums(kernel, tiles, padded(copies), points)
    penalties.kept_sum[:slots] = sums - 0.5 * base_at_zero(kernel)
    if latest != NONE and slots > 0:
        penalties.base_row[:slots] = base_matrix(kernel, tiles, points[latest : latest + 1])[0, :slots]
    return math.fsum(copies * sums), math.fsum(copies * penalties.stream_sum[:slots])
