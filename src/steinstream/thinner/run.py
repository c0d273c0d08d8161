"""The block loop: the steps that the pending draws make, in compiled calls of many steps each.

The number of steps per call does not change the result. Ctrl-C takes effect between two calls: draws that were not
processed stay pending and are processed first when the thinner continues.
"""

from __future__ import annotations

import logging
import math
from importlib import import_module
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from steinstream import schedules
from steinstream._typing import Array, Ids, Integers
from steinstream.preconditioning import Warmup
from steinstream.validation import Block, id_tuples, overflow_limit

if TYPE_CHECKING:
    from steinstream._engine.step_rule import StepLimits
    from steinstream.thinner.config import ThinConfig
    from steinstream.thinner.dictionary import StepRecords
    from steinstream.thinner.state import ThinnerState

_log = logging.getLogger("steinstream")

_MAX_STEPS = 8192  # steps in one compiled call: limits memory and the delay of Ctrl-C

# The module that `signal` wraps. Without its enumerations, changing a handler takes 0.1 instead of 10 microseconds.
_signal: Any = import_module("_signal")
_SIGINT = int(_signal.SIGINT)


class StepInfo(NamedTuple):
    """Changes by a call of `Thinner.push`, `extend` or `select`.

    Attributes
    ----------
    added : tuple of (int, int)
        Ids of draws of this call that are kept after it.
    dropped : tuple of (int, int)
        Ids of draws that were kept before the call and are not kept any more.
    size : int
        Number of kept draws after the call.
    ksd : float
        KSD of the kept draws after the call.

    Examples
    --------
    >>> import steinstream as ss
    >>> thinner = ss.Thinner(dim=1, size=1)
    >>> thinner.push([2.0], [-2.0]).added
    ((0, 0),)
    >>> step = thinner.push([0.0], [0.0])
    >>> step.added, step.dropped, step.size
    (((0, 1),), ((0, 0),), 1)
    """

    added: Ids
    dropped: Ids
    size: int
    ksd: float


class Observer(Protocol):
    """An object that follows a thinner while it runs, such as the dashboard.

    Set it as `Thinner.observer`. All methods are called in the thread that adds the draws.
    """

    @property
    def max_steps(self) -> int:
        """Largest number of steps in the next compiled call."""

    def on_start(self, steps: int) -> None:
        """Called before the first of ``steps`` steps."""

    def on_steps(self, steps: int, draws: int) -> None:
        """Called after each compiled call, with its number of steps and the draws processed so far in this pass."""

    def on_end(self, draws: int) -> None:
        """Called after the last step, with the draws received so far in this pass; also if an error occurred.

        Ctrl-C may interrupt `on_start`, so this call does not imply that it has returned.
        """


class DeferredInterrupt:
    """Context manager that defers SIGINT until the block exits.

    Only the main thread is interrupted, and only if SIGINT is handled by Python. The cost is below a microsecond.
    """

    __slots__ = ("_handler", "_received")

    def __enter__(self) -> None:
        self._received: FrameType | bool | None = False
        self._handler: Any = _signal.getsignal(_SIGINT) if current_thread() is main_thread() else None
        if callable(self._handler):
            _signal.signal(_SIGINT, self._record)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._received = frame

    def __exit__(self, *error: object) -> None:
        if callable(self._handler):
            _signal.signal(_SIGINT, self._handler)
            if self._received is not False:
                self._handler(_SIGINT, self._received)


def advance(
    config: ThinConfig, state: ThinnerState, held: Block, new: Block, candidates: int, observer: Observer | None = None
) -> StepInfo:
    """Run the steps that the draws of this call, ``new``, make with those that were pending before, ``held``."""
    if isinstance(state.preconditioner, Warmup):
        if len(state.pending.draws) < state.preconditioner.draws:
            return StepInfo(id_tuples(new.ids), (), len(state), float("nan"))
        return end_warmup(config, state, held, observer)
    before = state.steps
    dropped = _run_pending(config, state, candidates, observer)
    kept = state.require_dictionary()
    return StepInfo(
        id_tuples(kept.arrived_after(before)), id_tuples(dropped[dropped[:, 2] <= before, :2]), kept.size, kept.ksd
    )


def end_warmup(config: ThinConfig, state: ThinnerState, held: Block, observer: Observer | None = None) -> StepInfo:
    """Estimate the preconditioner of a warm-up and run the steps that waited for it."""
    if isinstance(state.preconditioner, Warmup):
        estimate = state.preconditioner.fit(state.pending.draws)
        estimate.rows_in_range(state.pending, "raise", overflow_limit(config.kernel.linear > 0))
        state.open_dictionary(config, estimate)
    _run_pending(config, state, config.candidates, observer)
    kept = state.require_dictionary()
    was, now = set(id_tuples(held.ids)), set(id_tuples(kept.arrived_after(0)))
    return StepInfo(tuple(sorted(now - was)), tuple(sorted(was - now)), kept.size, kept.ksd)


def step_limits(config: ThinConfig, state: ThinnerState, steps: Integers) -> StepLimits:
    """Return the limits of each step: floor_t = max(1, ceil(min(f(t), t + |D_0|)))."""
    from steinstream._engine.step_rule import NO_CAP, StepLimits

    current = state.current_pass
    if current.held is not None:  # a later pass keeps the number of draws
        zeros = np.zeros(len(steps))
        return StepLimits(np.full(len(steps), current.held), zeros, zeros, cap=current.held)
    t = steps.astype(np.float64)
    floor, budget = _floor(config, state, t), config.budget_schedule
    share = budget.eta if isinstance(budget, schedules.Share) else 0.0
    cap = NO_CAP if config.size is None else config.size
    monotone = config.rule == "monotone"
    return StepLimits(floor, schedules.evaluate(budget, t), np.full(len(t), share), monotone, cap)


def _floor(config: ThinConfig, state: ThinnerState, t: Array) -> Integers:
    """Return the smallest number of draws to keep after each step."""
    schedule, size = config.growth_schedule, math.inf if config.size is None else config.size
    if isinstance(schedule, schedules.Constant) and min(schedule.value, size) <= t[0] + state.initial_size:
        return np.full(len(t), max(math.ceil(min(schedule.value, size)), 1), dtype=np.int64)
    growth = np.minimum(schedules.evaluate(schedule, t), t + state.initial_size)
    return np.maximum(np.ceil(np.minimum(growth, size)), 1.0).astype(np.int64)


def _run_pending(config: ThinConfig, state: ThinnerState, candidates: int, observer: Observer | None) -> Integers:
    """Run the steps of the pending draws, record them, and return (chain, draw, step of arrival) of dropped draws."""
    steps = len(state.pending.draws) // candidates
    dropped = [np.zeros((0, 3), dtype=np.int64)]
    current = state.current_pass
    features = None if state.layout is None else state.layout.features
    scheduled = [each for each in (state.estimator, features) if each is not None and current.number == 1]
    try:
        if observer is not None:
            observer.on_start(steps)
        while steps > 0:
            count = min(_MAX_STEPS, steps, *(each.steps_until_due(candidates) for each in scheduled))
            if state.worth is not None and current.number == 1:
                upcoming = state.pending.ids[: count * candidates, 0]
                count = min(count, state.worth.steps_until_due(candidates, upcoming))
            if observer is not None:
                count = min(count, observer.max_steps)
            with DeferredInterrupt():
                dropped.append(_run_block(config, state, candidates, count))
            steps -= count
            if observer is not None:
                observer.on_steps(count, current.received - steps * candidates)
    finally:
        rest = state.pending  # must not keep the user's arrays alive
        state.pending = rest.copy() if len(rest.draws) else rest.take(slice(0, 0)).copy()
        if observer is not None:
            observer.on_end(current.received)
    return np.concatenate(dropped)


def _run_block(config: ThinConfig, state: ThinnerState, candidates: int, count: int) -> Integers:
    """Run ``count`` steps in one compiled call, record them, and return the dropped draws."""
    current = state.current_pass
    now, later = slice(0, count * candidates), slice(count * candidates, None)
    block, marks = state.pending.take(now), state.pending_marks and state.pending_marks.take(now)
    steps = np.arange(state.steps + 1, state.steps + count + 1)
    kept, limits = state.require_dictionary(), step_limits(config, state, steps)
    records = kept.run(block, candidates, state.steps, limits, marks, current.extends_stream)
    state.steps += count
    state.pending = state.pending.take(later)
    rest = state.pending_marks
    state.pending_marks = rest.take(later) if rest is not None and len(state.pending.draws) else None
    if current.number == 1:
        records = _update_estimates(config, state, block, records)
    state.recorder.add(steps, records)
    return records.dropped


def _update_estimates(config: ThinConfig, state: ThinnerState, block: Block, records: StepRecords) -> StepRecords:
    """Add a block to the estimates from the stream, apply those that changed, and return the corrected records."""
    kept = state.require_dictionary()
    features = None if state.layout is None else state.layout.features
    changed = None if state.estimator is None else state.estimator.update(block.draws, state.steps)
    reduced = features is not None and block.features is not None and features.update(block.features)
    if changed is not None or reduced:
        kept.change_coordinates(kept.preconditioner if changed is None else changed)
        records = records.corrected(kept)
    if changed is not None:
        _log.debug("step %d: new preconditioner (%s)", state.steps, changed)
        state.preconditioner = changed
    if state.worth is not None and state.worth.update(block.draws, block.ids):
        if state.worth.burn_in_grew:
            removed = kept.forget_burn_in(state.worth.burn_in_ends)
            records = records.corrected(kept)
            records = records._replace(dropped=np.concatenate([records.dropped, removed]))
            _log.info("step %d: %d draws are burn-in", state.steps, state.worth.burn_in)
        if not state.current_pass.corrected_stream:
            kept.stream_weight = config.stream_weight * state.worth.stream_factor(kept.size)
        _log.debug(
            "step %d: worth %.0f draws, stream weight %.3g",
            state.steps,
            state.worth.effective_draws,
            kept.stream_weight,
        )
    return records
