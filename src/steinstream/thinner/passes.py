"""Further passes over a chain that can be read again: every draw is offered once more, and the number kept stays.

A step of such a pass adds a draw and then removes the draw whose removal gives the smallest KSD, the new one
included. Removing the new one would restore the previous set, so KSD never increases, to the last bit, because the
sums are exact and the number kept is constant. With a stream term, whose sums over the stream do not change any more,
or with costs, the same holds for the objective (:attr:`steinstream.Thinner.objective`), up to
rounding. Pinned draws stay. A draw that is kept when a pass starts is not offered in it, and every draw is
offered once per pass, so no draw is kept twice.

Passes converge to a set that no single exchange improves, which depends on the initial set. ``start="sample"``, which
``passes="auto"`` implies, therefore starts with a set chosen by local search from an evenly spaced subsample of the
chain (:mod:`steinstream.thinner.local_search`), at a cost that does not depend on the length of the chain. Measured in
experiments/passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steinstream import schedules
from steinstream._typing import Flags, Integers
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.local_search import Selection
from steinstream.thinner.run import StepInfo, end_warmup
from steinstream.validation import Block, empty_block

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig
    from steinstream.thinner.state import ThinnerState

_MAX_PASSES = 10  # of passes="auto"
_MIN_GAIN = 0.01  # relative decrease below which passes="auto" stops
_SAMPLE_FACTOR = 2  # least number of draws in the subsample, as a multiple of the size


@dataclass
class Pass:
    """Position of a thinner within the passes over a chain."""

    number: int = 1
    received: int = 0
    """Number of draws received in this pass."""
    held: int | None = None
    """Number of draws to keep throughout; None while the growth decides."""
    not_offered: Integers = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    """Ids of the draws that were kept when the pass started."""
    initial_root: float | None = None
    """Square root of the objective when the pass started."""
    past_ksd: list[float] = field(default_factory=list)
    """KSD after each previous pass."""
    bound: float | None = None
    """Bound on KSD after the first pass."""
    has_bound: bool = True
    """Whether a bound exists in the first pass."""

    def next(self, ids: Integers, ksd: float, bound: float | None, objective: float) -> Pass:
        """Return the pass that follows, which starts with the draws ``ids``."""
        return Pass(self.number + 1, 0, len(ids), ids, math.sqrt(objective), [*self.past_ksd, ksd], bound)

    def offered(self, ids: Integers, valid: Flags) -> Flags:
        """Return which of these draws take part in this pass: valid ones that were not kept when it started."""
        if len(self.not_offered) == 0:
            return valid
        part = valid.copy()
        for chain in np.unique(ids[:, 0]):
            rows = ids[:, 0] == chain
            part[rows] &= ~np.isin(ids[rows, 1], self.not_offered[self.not_offered[:, 0] == chain, 1])
        return part


def start_pass(config: ThinConfig, state: ThinnerState) -> StepInfo:
    """Start another pass over the same draws."""
    if len(state) == 0:
        raise InputError("There are no kept draws that another pass could improve.", "Add draws first.")
    step = StepInfo((), (), len(state), float("nan"))
    if state.dictionary is None:
        step = end_warmup(config, state, state.pending)
    kept = state.require_dictionary()
    if kept.size == 0:
        raise InputError("There are no kept draws that another pass could improve.", "Add draws first.")
    state.current_pass = state.current_pass.next(kept.contents().ids[:, :2], kept.ksd, state.bound, kept.objective)
    state.pending, state.pending_marks = empty_block(state.dim), None  # pending candidates are offered again
    state.next_index = {}
    return step._replace(size=kept.size, ksd=kept.ksd)


def needs_another_pass(config: ThinConfig, state: ThinnerState) -> bool:
    """Return whether ``config.passes`` requires another pass after the one that has ended."""
    kept, current = state.dictionary, state.current_pass
    if (len(state) if kept is None else kept.size) == 0:
        return False
    if isinstance(config.passes, int):
        return current.number < config.passes
    objective = state.without_warmup(config).require_dictionary().objective
    small = current.initial_root is not None and not math.sqrt(objective) < (1.0 - _MIN_GAIN) * current.initial_root
    return current.number < _MAX_PASSES and not small


def starts_with_sample(config: ThinConfig, state: ThinnerState, pins: bool = False) -> bool:
    """Return whether the initial set is chosen from a subsample.

    Parameters
    ----------
    config : ThinConfig
        Settings of the thinner.
    state : ThinnerState
        State of the thinner, before the first draw.
    pins : bool, default False
        Whether some draws are pinned.

    Returns
    -------
    bool
        Whether to call `start_with_sample`.

    Raises
    ------
    InputError
        If ``start="sample"`` is set but not possible.

    """
    size = config.size
    fixed = isinstance(state.preconditioner, Preconditioner) and state.estimator is None
    plain = not (len(state) or config.stream_weight or config.cost_weight or pins)
    possible = size is not None and config.growth_schedule == schedules.Constant(float(size)) and fixed and plain
    if config.start == "sample" and not possible:
        raise InputError(
            'start="sample" needs a fixed size, no growth, no initial set, no stream term, costs or pins, and a '
            "preconditioner that does not change.",
            "Set size (--size), or leave out start (--start).",
        )
    return possible and (config.start == "sample" or (config.start is None and config.passes == "auto"))


def start_with_sample(config: ThinConfig, state: ThinnerState, sample: Block) -> None:
    """Choose the initial set from a subsample of the chain, if that has at least twice ``size`` draws.

    The chosen draws are not offered in the first pass. They were seen before, so KSD has no bound.
    """
    if config.size is None or not isinstance(state.preconditioner, Preconditioner):
        return
    first = choose_from_sample(sample, config.size, config.kernel, state.preconditioner)
    if first is not None:
        state.start_with(config, first)
        ksd = state.require_dictionary().ksd
        state.current_pass = Pass(not_offered=first.ids, initial_root=ksd, has_bound=False)


def choose_from_sample(sample: Block, size: int, kernel: Kernel, preconditioner: Preconditioner) -> Block | None:
    """Return ``size`` draws of low KSD from a subsample; None if it is too small."""
    if len(sample.draws) < _SAMPLE_FACTOR * size:
        return None
    greedy, even = (Selection(sample, size, kernel, preconditioner) for _ in range(2))
    better = min(greedy.greedy().swap(), even.even().swap(), key=lambda selection: selection.energy)
    return better.shake().block()
