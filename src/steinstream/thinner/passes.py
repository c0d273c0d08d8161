"""Further passes over a chain that can be read again: every draw is offered once more, and the number kept stays.

A step of such a pass adds a draw and then removes the draw whose removal gives the smallest objective
(:attr:`steinstream.Thinner.objective`), the new one included. Removing the new one would restore the previous set, so
the objective never increases, up to rounding: the number kept is constant, and the sums over the stream do not change
any more. Without a stream term and costs the objective is KSD^2, whose sums are exact. Pinned draws stay. A draw that
is kept when a pass starts is not offered in it, and every draw is offered once per pass, so no draw is kept twice.

Passes converge to a set that no single exchange improves, which depends on the initial set. ``start="sample"`` starts
with a set chosen by local search from an evenly spaced subsample of the chain
(:mod:`steinstream.thinner.local_search`), at a cost that does not depend on the length of the chain. The subsample then
represents the stream in all passes. Without a stream term ``passes="auto"`` implies it. Measured in experiments/passes.

By default a slow chain is represented by draws of the subsample that were selected by their scores
(:mod:`steinstream.thinner.corrected_stream`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steinstream import schedules
from steinstream._typing import Flags, Integers
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.chain_worth import ChainWorth, stream_factor
from steinstream.thinner.corrected_stream import DRAWS as CORRECTED_DRAWS
from steinstream.thinner.corrected_stream import corrected_stream
from steinstream.thinner.layout import as_layout
from steinstream.thinner.local_search import Selection
from steinstream.thinner.run import Observer, StepInfo, end_warmup
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
    fixed_stream: bool = False
    """Whether the stream of the stream term was known before the first pass."""
    corrected_stream: bool = False
    """Whether the stream term compares with a chain that was corrected by its scores."""

    @property
    def extends_stream(self) -> bool:
        """Whether the draws of this pass are added to the stream of the stream term."""
        return self.number == 1 and not self.fixed_stream

    def next(self, ids: Integers, ksd: float, bound: float | None, objective: float) -> Pass:
        """Return the pass that follows, which starts with the draws ``ids``."""
        return Pass(
            number=self.number + 1,
            held=len(ids),
            not_offered=ids,
            initial_root=math.sqrt(objective),
            past_ksd=[*self.past_ksd, ksd],
            bound=bound,
            corrected_stream=self.corrected_stream,
        )

    def offered(self, ids: Integers, valid: Flags) -> Flags:
        """Return which of these draws take part in this pass: valid ones that were not kept when it started."""
        if len(self.not_offered) == 0:
            return valid
        part = valid.copy()
        for chain in np.unique(ids[:, 0]):
            rows = ids[:, 0] == chain
            part[rows] &= ~np.isin(ids[rows, 1], self.not_offered[self.not_offered[:, 0] == chain, 1])
        return part


def start_pass(config: ThinConfig, state: ThinnerState, observer: Observer | None = None) -> StepInfo:
    """Start another pass over the same draws."""
    if len(state) == 0:
        raise InputError("No draws are kept that another pass could improve.", "Add draws first.")
    step = StepInfo((), (), len(state), float("nan"))
    if state.dictionary is None:
        step = end_warmup(config, state, state.pending, observer)
    kept = state.require_dictionary()
    if kept.size == 0:
        raise InputError("No draws are kept that another pass could improve.", "Add draws first.")
    bound = state.bound
    kept.refresh_stream_sums()
    state.current_pass = state.current_pass.next(kept.contents().ids[:, :2], kept.ksd, bound, kept.objective)
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


def starts_with_sample(config: ThinConfig, state: ThinnerState, marked: bool = False) -> bool:
    """Return whether the initial set is chosen from a subsample; raise an `InputError` if it must be, but cannot."""
    possible = _may_start_with_sample(config, state, marked)
    if config.start == "sample" and not possible:
        remedy = "Set size (--size)" if config.size is None else "Leave out what does not fit"
        raise InputError(
            'start="sample" needs a fixed size, no growth, no initial set, no costs, pins or features, and a '
            "preconditioner that does not change.",
            f"{remedy}, or leave out start (--start).",
        )
    automatic = config.start is None and config.passes == "auto" and not config.stream_weight
    return possible and (config.start == "sample" or automatic)


def _may_start_with_sample(config: ThinConfig, state: ThinnerState, marked: bool) -> bool:
    size = config.size
    fixed = isinstance(state.preconditioner, Preconditioner) and state.estimator is None
    plain = not (len(state) or config.cost_weight or marked)
    return size is not None and config.growth_schedule == schedules.Constant(float(size)) and fixed and plain


def start_with_sample(config: ThinConfig, state: ThinnerState, sample: Block) -> None:
    """Choose the initial set from a subsample of the chain, if that has at least twice ``size`` draws.

    The chosen draws are not offered in the first pass. They were seen before, so KSD has no bound.
    """
    if config.size is None or not isinstance(state.preconditioner, Preconditioner):
        return
    chosen = choose_from_sample(config, state.preconditioner, sample)
    if chosen is not None:
        _start_with(config, state, chosen)


def correct_stream(config: ThinConfig, state: ThinnerState, sample: Block, marked: bool = False) -> bool:
    """If the chain mixes slowly, correct its distribution by its scores, and choose the initial set from a subsample.

    Only a fixed number of draws in float64 without costs, pins and features can be chosen. ``start="stream"`` turns
    this off.

    Returns
    -------
    bool
        Whether the chain was corrected.
    """
    wanted = config.start is None and config.stream_weight > 0 and config.storage == "float64"
    if not wanted or not _may_start_with_sample(config, state, marked):
        return False
    chosen = choose_by_corrected_stream(config, state.require_dictionary().preconditioner, sample)
    if chosen is not None:
        _start_with(config, state, chosen, corrected=True)
    return chosen is not None


def _start_with(config: ThinConfig, state: ThinnerState, chosen: SampleChoice, *, corrected: bool = False) -> None:
    """Start the first pass with chosen draws and a known stream."""
    state.set_layout(config, as_layout(config, state.dim, chosen.draws, False))
    if config.stream_weight:
        state.require_dictionary().set_stream(chosen.stream)
    state.start_with(config, chosen.draws)
    root = math.sqrt(state.require_dictionary().objective)
    state.current_pass = Pass(
        not_offered=chosen.draws.ids,
        initial_root=root,
        has_bound=False,
        fixed_stream=config.stream_weight > 0,
        corrected_stream=corrected,
    )


class SampleChoice(NamedTuple):
    """Draws chosen from a subsample of the stream, and the draws that represent the stream."""

    draws: Block
    stream: Block


def choose_from_sample(config: ThinConfig, preconditioner: Preconditioner, sample: Block) -> SampleChoice | None:
    """Return ``config.size`` draws with a small objective from a subsample of the stream; None if it is too small.

    The subsample represents the stream, without its burn-in. The weight of the stream term falls if the chain is worth
    few independent draws, as in a run.

    Returns
    -------
    SampleChoice or None
        The chosen draws.
    """
    size, weight = config.size or 0, config.stream_weight
    if weight:
        worth = ChainWorth(sample.draws.shape[1])
        worth.update(sample.draws, sample.ids)
        weight *= worth.stream_factor(size)
        sample = sample.take(~is_burn_in(sample.ids, worth.burn_in_ends))
    if len(sample.draws) < _SAMPLE_FACTOR * size:
        return None
    even = Selection(sample, config, preconditioner, weight).even().swap()
    best = even
    if not weight:
        greedy = Selection(sample, config, preconditioner).greedy().swap()
        best = min(greedy, even, key=lambda selection: selection.energy)
    return SampleChoice(best.shake().block(), sample)


def choose_by_corrected_stream(
    config: ThinConfig, preconditioner: Preconditioner, sample: Block
) -> SampleChoice | None:
    """Return ``config.size`` draws that represent a slow chain as corrected by its scores; None if it needs none.

    Parameters
    ----------
    config : ThinConfig
        Settings, with a size.
    preconditioner : Preconditioner
        The preconditioner.
    sample : Block
        Subsample of the stream.

    Returns
    -------
    SampleChoice or None
        The chosen draws and the corrected stream. None also if the subsample is too small, or if more draws are kept
        than half of those of a corrected stream.
    """
    size = config.size or 0
    if len(sample.draws) < _SAMPLE_FACTOR * size or _SAMPLE_FACTOR * size > CORRECTED_DRAWS:
        return None
    corrected = corrected_stream(config, preconditioner, sample)
    if corrected is None or len(corrected.sample.draws) < _SAMPLE_FACTOR * size:
        return None
    weight = config.stream_weight * stream_factor(1.0, sample.draws.shape[1])
    chosen = Selection(corrected.sample, config, preconditioner, weight, corrected.counts).even().swap().shake()
    return SampleChoice(chosen.block(), corrected.draws)
