"""Validation of the draws that a thinner receives, with their ids, second scores, costs and pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import Array, Flags, Integers
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner, Warmup
from steinstream.thinner.layout import DrawLayout, as_layout
from steinstream.validation import IDENTITY_MAX_DRAWS, OVERFLOW_LIMIT, Block, Magnitudes

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig
    from steinstream.thinner.state import ThinnerState

_SMALLEST_COST = 1e-50  # smallest positive cost: the objective divides by the mean cost

# Remedies for a thinner with an initial set.
_OF_INITIAL = {
    "scores": "The initial set counts: initial=(draws, scores), or initial=(draws, None).",
    "second scores": "An initial set has none.",
    "features": "Those of an initial set are computed by a function: Thinner(features=function).",
}


class NewDraws(NamedTuple):
    """Draws as a user passes them to `Thinner.extend`."""

    draws: ArrayLike
    scores: ArrayLike | None = None
    ids: ArrayLike | None = None
    chain: int = 0
    second_scores: ArrayLike | None = None
    costs: ArrayLike | None = None
    pinned: ArrayLike | None = None
    features: ArrayLike | None = None


class NewMarks(NamedTuple):
    """Costs and pins of draws as a user passes them."""

    costs: ArrayLike | None = None
    pinned: ArrayLike | None = None


class CostsAndPins(NamedTuple):
    """Costs and pins of consecutive draws."""

    costs: Array
    pinned: Flags

    @classmethod
    def none(cls, count: int) -> CostsAndPins:
        return cls(np.zeros(count), np.zeros(count, dtype=np.bool_))

    def take(self, rows: slice | Flags | Integers) -> CostsAndPins:
        return CostsAndPins(self.costs[rows], self.pinned[rows])

    def append(self, more: CostsAndPins) -> CostsAndPins:
        """Return the rows of both."""
        return CostsAndPins(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))

    def require_room(self, pinned: int, cap: int | None, candidates: int) -> None:
        """Raise an `InputError` if more draws would be pinned than can be kept."""
        total = pinned + int(self.pinned.sum())
        if cap is not None and total > cap:
            raise InputError(f"{total} draws would be pinned, but size={cap}.", "Pin fewer draws, or increase size.")
        groups = np.flatnonzero(self.pinned) // candidates
        if len(np.unique(groups)) < len(groups):
            raise InputError(
                f"Two pinned draws are among the same {candidates} candidates, of which only one is added.",
                "Use candidates=1, or pin one of them.",
            )


def ingest(config: ThinConfig, state: ThinnerState, new: NewDraws, candidates: int | None) -> Block:
    """Validate new draws and update the counters of a thinner; if validation fails, the state is unchanged.

    ``candidates`` is the number of consecutive draws of which one is added; None: one of all of them.

    Returns
    -------
    Block
        The draws that take part in this pass, with second scores as further columns.
    """
    x, s = validation.as_draws_and_scores(new.draws, new.scores, state.dim)
    second = None if new.second_scores is None else validation.as_draws_and_scores(x, new.second_scores)[1]
    if new.ids is None:
        ids = validation.consecutive_ids(new.chain, state.next_index.get(new.chain, 0), len(x))
    else:
        ids = validation.as_ids(new.ids, len(x))
    features = None if new.features is None else validation.as_features(new.features, len(x))
    marks = NewMarks(new.costs, new.pinned)
    return ingest_block(config, state, Block(x, s, ids, features), candidates, marks, second_scores=second)


def ingest_block(
    config: ThinConfig,
    state: ThinnerState,
    block: Block,
    candidates: int | None,
    new: NewMarks,
    *,
    second_scores: Array | None = None,
    in_range: bool = False,
) -> Block:
    """Do the same as `ingest` with arrays that have the right shapes and types.

    If ``in_range``, all values are known to be finite and in range. Returns the same as `ingest`.
    """
    x, ids, second = block.draws, block.ids, second_scores
    if len(x) == 0:
        return state.pending.take(slice(0, 0))  # without scores and features: those of the draws are not known
    layout = _as_layout(config, state, block, second is not None)
    marks = _as_costs_and_pins(new.costs, new.pinned, len(x), config.cost_weight > 0)
    if config.storage == "float32" and (marks is not None or second is not None):
        raise InputError(
            'storage="float32" supports neither pins nor second scores.',
            'Leave out pinned and second_scores, or use storage="float64".',
        )
    validated = [block] if second is None else [block, Block(x, second, ids)]
    valid = np.ones(len(x), dtype=bool)
    for each in validated if not in_range else ():
        valid &= _valid_rows(config, state, each)
    received = block if valid.all() else block.take(valid)
    offered = state.current_pass.offered(ids, valid)
    if not offered.all():
        if marks is not None:
            _require_offered(state, ids[marks.pinned & valid & ~offered])
        block, marks = block.take(offered), marks and marks.take(offered)
    pending = _pending_marks(state, marks, len(block.draws))
    if pending is not None:
        pending.require_room(state.pinned_count, state.cap(config), candidates or max(1, len(block.draws)))
    if layout.has_scores and config.validate_scores and not (state.sign_validated or state.identity_is_complete):
        _validate_sign(state, block)
    if state.layout is None:
        state.set_layout(config, layout)
    _count_ids(state, ids)
    state.pending_marks = pending
    state.current_pass.received += len(x)
    first_pass = state.current_pass.number == 1
    if first_pass:
        state.seen += len(x)
        state.skipped += len(x) - len(received.draws)
        state.subsample.add(received)
    block = layout.with_sketches(block)
    if second is None or state.second_score_noise is None:
        return block
    if first_pass:
        state.second_score_noise.add(block.scores, second[offered])
    return block._replace(scores=np.hstack([block.scores, second[offered]]))


def _valid_rows(config: ThinConfig, state: ThinnerState, block: Block) -> Flags:
    """Return a mask of the rows that are finite, and in range in the coordinates of the kernel."""
    linear, fixed = config.kernel.linear > 0, state.preconditioner
    if all_in_range(config, fixed, Magnitudes.of(block)):
        return np.ones(len(block.draws), dtype=bool)
    valid = validation.finite_rows(block, config.on_bad, linear, config.storage)
    if not isinstance(fixed, Preconditioner):
        return valid
    return valid & fixed.rows_in_range(block, config.on_bad, validation.overflow_limit(linear))


def all_in_range(config: ThinConfig, preconditioner: Preconditioner | Warmup, largest: Magnitudes) -> bool:
    """Return whether all draws up to these magnitudes are valid under a preconditioner."""
    linear = config.kernel.linear > 0
    if not max(largest) < validation.overflow_limit(linear, config.storage):
        return False
    return not isinstance(preconditioner, Preconditioner) or preconditioner.keeps_in_range(
        largest.draw, largest.score, validation.overflow_limit(linear)
    )


def _as_layout(config: ThinConfig, state: ThinnerState, block: Block, has_second_scores: bool) -> DrawLayout:
    """Return the layout of the stream: every draw has scores, second scores, features and ratios, or none has."""
    known = state.layout
    if known is None:
        if has_second_scores and not block.has_scores:
            raise InputError("second_scores were given without scores.", "Pass scores too.")
        return as_layout(config, state.dim, block, has_second_scores)
    given = {
        "scores": (block.has_scores, known.has_scores),
        "second scores": (has_second_scores, known.has_second_scores),
        "features": (block.features is not None, known.features is not None and not known.sketches_draws),
        "density ratios": (block.ratios is not None, known.has_ratios),
    }
    for what, (now, before) in given.items():
        if now != before:
            initial = f" {_OF_INITIAL[what]}" if state.external_initial and what in _OF_INITIAL else ""
            raise InputError(
                f"Some draws were given with {what} and others without.",
                f"Pass {what} with every draw, or with none.{initial}",
            )
    if block.features is not None and known.features is not None and block.features.shape[1] != known.features.width:
        raise InputError(f"Expected {known.features.width} features per draw, got {block.features.shape[1]}.")
    return known


def _as_costs_and_pins(
    costs: ArrayLike | None, pinned: ArrayLike | None, count: int, needs_costs: bool
) -> CostsAndPins | None:
    """Validate costs and pins of ``count`` draws; None if there are neither."""
    if needs_costs and costs is None:
        raise InputError("costs is required because cost_weight > 0.", "Pass costs=, one number per draw.")
    if not needs_costs and costs is not None:
        raise InputError("costs has no effect because cost_weight is 0.", "Set cost_weight=, for example 1.0.")
    if costs is None and pinned is None:
        return None
    none = CostsAndPins.none(count)
    return CostsAndPins(
        none.costs if costs is None else _as_costs(costs, count),
        none.pinned if pinned is None else _as_flags(pinned, count),
    )


def _as_costs(costs: ArrayLike, count: int) -> Array:
    try:
        values = np.ascontiguousarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"costs must be {count} numbers, one per draw.") from None
    if values.shape != (count,):
        raise InputError(f"costs must be {count} numbers, one per draw, got shape {values.shape}.")
    bad = np.flatnonzero(~((values == 0) | ((values > _SMALLEST_COST) & (values < OVERFLOW_LIMIT))))
    if len(bad):
        raise InputError(
            f"The cost of draw {int(bad[0])} is {values[bad[0]]}.",
            f"Costs are 0, or between {_SMALLEST_COST:g} and {OVERFLOW_LIMIT:g}.",
        )
    return values


def _as_flags(pinned: ArrayLike, count: int) -> Flags:
    flags = np.ascontiguousarray(pinned)
    if flags.shape != (count,) or flags.dtype != np.bool_:
        raise InputError(
            f"pinned must be {count} booleans, one per draw, got {flags.dtype} with shape {flags.shape}.",
            "Pin draws that are kept already by their ids: thinner.pin.",
        )
    return flags


def _pending_marks(state: ThinnerState, new: CostsAndPins | None, count: int) -> CostsAndPins | None:
    """Return costs and pins of the pending draws followed by ``count`` new ones; None if nobody has any."""
    held = state.pending_marks
    if held is None and new is None:
        return None
    return (held or CostsAndPins.none(len(state.pending.draws))).append(new or CostsAndPins.none(count))


def _validate_sign(state: ThinnerState, block: Block) -> None:
    """Evaluate Stein's identity on the first draws."""
    few = block.take(slice(0, IDENTITY_MAX_DRAWS))
    identity = state.stein_identity.updated(few.draws, few.scores)
    identity.require_plausible()
    state.stein_identity = identity


def _count_ids(state: ThinnerState, ids: Integers) -> None:
    """Update the index that the next draw of each chain gets."""
    chains, indices = ids.T
    single = len(ids) > 0 and bool((chains == chains[0]).all())
    for chain in chains[:1].tolist() if single else np.unique(chains).tolist():
        last = int((indices if single else indices[chains == chain]).max())
        state.next_index[chain] = max(state.next_index.get(chain, 0), last + 1)


def _require_offered(state: ThinnerState, ids: Integers) -> None:
    """Raise an `InputError` if a draw that is not offered in this pass is to be pinned."""
    for chain, draw in sorted(set(validation.id_tuples(ids)) - set(state.pinned_ids)):
        raise InputError(
            f"Draw {draw} of chain {chain} was kept when this pass started, so it is not offered in it.",
            "If it is still kept, pin it by its id: thinner.pin.",
        )
