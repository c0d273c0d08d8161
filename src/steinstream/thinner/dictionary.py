"""The kept draws of a thinner: arrays of the compiled engine, enlarged as needed and read in the order of ids."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from steinstream._engine.jit import threads
from steinstream._engine.online_stats import update_bound
from steinstream._engine.penalties import (
    Penalties,
    add_log_diagonals,
    compare_all_copies,
    current_stream_term,
    empty_penalties,
    enlarged_penalties,
    restore_sums,
    sums_over_summary,
)
from steinstream._engine.simd import LANES
from steinstream._engine.state import NONE, KeptState, empty_state, enlarged, record_values, set_record
from steinstream._engine.step_rule import NO_CAP, StepLimits
from steinstream._engine.stream_summary import (
    SummaryDraws,
    empty_summary,
    filled_summary,
    sum_over_pairs,
    summary_draws,
)
from steinstream._engine.thinning import Batch, StepLog, thin_block
from steinstream._engine.updates import restore_derived, worth_sharing
from steinstream._typing import AnyArray, Array, Flags, Integers
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.bound import bound, new_trace
from steinstream.thinner.ingest import CostsAndPins
from steinstream.thinner.threads import ThreadChooser
from steinstream.validation import Block


class StepRecords(NamedTuple):
    """What a run of steps did."""

    sizes: Integers
    """Number of kept draws after each step."""
    squared_ksds: Array
    """KSD^2 after each step."""
    dropped: Integers
    """Chain, index and step of arrival of the removed draws, in order of their removal."""


class Contents(NamedTuple):
    """The kept draws as given by the user, sorted by id."""

    draws: Array
    scores: Array
    ids: Integers
    """Chain, index and step of arrival."""
    second_scores: Array
    """(n, d), or (n, 0) if there are none."""


class Dictionary:
    """Kept draws in float64.

    Parameters
    ----------
    dim : int
        Number of dimensions.
    kernel : Kernel
        Base kernel.
    preconditioner : Preconditioner
        Coordinates in which the kernel is evaluated.
    movable : bool, default False
        Whether :meth:`change_preconditioner` will be called.
    checked : bool, default False
        Whether every draw has a second score, in further columns of the scores of a block.
    stream_weight : float, default 0
        Weight gamma of the stream term; 0 for none.
    cost : float, default 0
        Weight lambda of the costs of draws; 0 for none.
    scored : bool, default True
        Whether the draws have scores. Without scores the stream term alone decides.

    """

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        preconditioner: Preconditioner,
        movable: bool = False,
        checked: bool = False,
        stream_weight: float = 0.0,
        cost: float = 0.0,
        scored: bool = True,
    ) -> None:
        self.dim = dim
        self.kernel = kernel
        self._kernel = kernel.compiled(dim)
        self.preconditioner = preconditioner
        # The engine works in preconditioned coordinates; the draws as given are stored in columns of their own.
        self._unscaled = 0 if preconditioner.is_identity and not movable else 2 * dim
        self._columns = self._unscaled + (dim if checked else 0)
        self._state = empty_state(dim, self._columns)
        self._stream_weight, self._cost_weight, self._scored = stream_weight, cost, scored
        self._penalties = self._new_penalties() if stream_weight or cost else None
        self._chooser = ThreadChooser(threads)
        self._trace = new_trace()

    def run(
        self,
        block: Block,
        candidates: int,
        start: int,
        limits: StepLimits,
        marks: CostsAndPins | None = None,
        first_pass: bool = True,
    ) -> StepRecords:
        """Run steps ``start + 1`` and on: insert the best of each group of candidates, remove others.

        Parameters
        ----------
        block : Block
            ``candidates`` draws for each step.
        candidates : int
            Number of draws per step.
        start : int
            Number of the step before the first one.
        limits : StepLimits
            Limits of each step.
        marks : CostsAndPins, optional
            Costs and pins of the draws.
        first_pass : bool, default True
            Whether the draws are added to the stream of the stream term.

        Returns
        -------
        StepRecords
            Sizes, KSD^2 and removed draws.

        """
        if marks is not None:
            self._add_penalties()
        if self._penalties is not None:
            self._penalties.scalars["first_pass"] = first_pass
        batch = self._batch(block, candidates, start, marks)
        steps, done = len(limits.floor), 0
        sizes, squared_ksds, dropped = np.zeros(steps, dtype=np.int64), np.zeros(steps), []
        while done < steps:
            work = int(self._state.scalars["slots"]) * candidates
            shareable = worth_sharing(work, self.dim)
            last = min(steps, done + self._chooser.steps_per_call(work)) if shareable else steps
            workers = self._chooser.choose() if shareable else None
            part = slice(done, last)
            log = StepLog(sizes[part], squared_ksds[part], np.zeros((self.size + last - done, 3), dtype=np.int64))
            began = time.perf_counter()
            ran, removed = thin_block(
                self._state, self._kernel, self._penalties, batch.part(part), limits.part(part), log, workers=workers
            )
            if shareable:
                self._chooser.record(workers, ran * work, time.perf_counter() - began)
            dropped.append(log.dropped[:removed])
            done += ran
            if done < last:
                self._state = enlarged(self._state)
                self._penalties = self._penalties and enlarged_penalties(self._penalties, self._state)
        update_bound(self._trace, self._kernel, batch.draws, batch.scores, sizes, limits)
        return StepRecords(
            sizes, squared_ksds, np.concatenate(dropped) if dropped else np.zeros((0, 3), dtype=np.int64)
        )

    def _batch(self, block: Block, candidates: int, start: int, marks: CostsAndPins | None) -> Batch:
        """Return the draws of a block for the engine."""
        draws, scores, raw = block.draws, block.scores, np.zeros((len(block.draws), 0))
        if self._columns:
            raw = np.hstack([draws, scores])[:, -self._columns :]
            draws, scores = self.preconditioner.apply(draws, scores[:, : self.dim])
        batch = Batch(draws, scores, raw, block.ids, candidates, start, np.zeros((candidates, 2)))
        if self._penalties is None:
            return batch
        costs, pinned = marks or CostsAndPins.none(len(draws))
        return batch._replace(unscaled=block.draws, costs=costs, pinned=pinned, stream_sums=np.zeros(len(draws)))

    def insert_all(self, block: Block, marks: CostsAndPins | None = None) -> None:
        """Insert all draws of a block and remove none. They are not part of the stream."""
        count = len(block.draws)
        limits = StepLimits(np.full(count, NO_CAP), np.zeros(count), np.zeros(count))
        self.run(block, 1, -count, limits, marks, first_pass=False)
        if self._penalties is not None:
            draws, scores = self.preconditioner.apply(block.draws, block.scores[:, : self.dim])
            add_log_diagonals(self._kernel, self._penalties, draws, scores)
        self._trace = new_trace(self.size, self.squared_ksd if self.size else 0.0)

    def change_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Change the preconditioner: the state becomes that of the kept draws inserted in order of arrival.

        The sums over the stream are recomputed from its summary.
        """
        self.preconditioner = preconditioner
        self._rebuild(np.ones(self.size, dtype=np.bool_), 0)

    def forget_burn_in(self, draws: int, step: int) -> Integers:
        """Leave the first draws of the stream out of the stream term, and remove the kept draws among them.

        Parameters
        ----------
        draws : int
            Number of draws of the burn-in.
        step : int
            Number of steps of the burn-in.

        Returns
        -------
        array
            Chain, index and step of arrival of the removed draws. Pinned and initial draws stay, and all draws stay if
            none would be left.

        """
        ids, marks = self.contents().ids, self._marks()
        early = (ids[:, 2] > 0) & (ids[:, 2] <= step)
        if marks is not None:
            early &= ~marks.pinned
        if early.all():
            early[:] = False
        self._rebuild(~early, draws)
        return ids[early]

    def _rebuild(self, rows: Flags, arrival: int) -> None:
        """Insert some of the kept draws again, in order of arrival, and forget the first draws of the stream."""
        draws, scores, ids, second_scores = self.contents()
        marks, before = self._marks(), self._penalties
        order = np.argsort(ids[:, 2])  # of arrival: one draw per step
        order = order[rows[order]]
        self._state = empty_state(self.dim, self._columns, len(order) + LANES, len(order) + LANES)
        if before is not None:
            stream = summary_draws(before.summary).after(arrival) if self._stream_weight else None
            self._penalties = self._new_penalties(stream)
            scalars = self._penalties.scalars
            scalars["cost_sum"], scalars["count"] = before.scalars["cost_sum"], before.scalars["count"]
            if stream is not None:
                scalars["count"] = float(np.sum(2.0**stream.levels))
                scalars["pair_sum"] = sum_over_pairs(self._kernel, self._penalties.summary)
        block = Block(draws[order], np.hstack([scores, second_scores])[order], ids[order, :2])
        self.insert_all(block, marks and marks.take(order))
        self._state.ids[: len(order), 2] = ids[order, 2]  # an empty state assigns its labels in order

    @property
    def size(self) -> int:
        """Number of kept draws, repeated ones included."""
        return int(self._state.scalars["draws"])

    @property
    def squared_ksd(self) -> float:
        """KSD^2 of the kept draws; NaN if there are none."""
        if not self.size:
            return float("nan")
        return max(float(self._state.scalars["total"]), 0.0) / (float(self.size) * float(self.size))

    @property
    def ksd(self) -> float:
        """KSD of the kept draws; NaN if there are none."""
        return math.sqrt(self.squared_ksd)

    @property
    def bound(self) -> float | None:
        """Upper bound on the expected KSD for independent draws, as in `thinner.bound`; None with penalties."""
        if self._penalties is not None:
            return None
        slots = int(self._state.scalars["slots"])
        points, scores = self._state.tiles.transpose(2, 0, 3, 1).reshape(2, -1, self.dim)[:, :slots]
        diagonal = self.kernel.diagonal(scores, points)
        copies = self._state.copies[:slots]
        mean = math.fsum(diagonal * copies) / float(copies.sum()) if slots else 0.0  # independent of the order
        return bound(self._trace, mean)

    @property
    def engine_state(self) -> KeptState:
        """Arrays of the compiled engine, which change with every step."""
        return self._state

    @property
    def trace(self) -> Array:
        """Terms of the bound."""
        return record_values(self._trace)

    @trace.setter
    def trace(self, values: Array) -> None:
        set_record(self._trace, values)

    # -- stream term, costs, pins ----------------------------------------------------------------------------------

    def _new_penalties(self, stream: SummaryDraws | None = None) -> Penalties:
        """Return penalties for the current state, with the draws of the summary of a stream, or of an empty one."""
        if stream is None:
            summary = empty_summary(self.dim, self._stream_weight > 0)
        else:
            scaled, _ = self.preconditioner.apply(stream.draws, np.zeros_like(stream.draws))
            summary = filled_summary(stream, scaled)
        penalties = empty_penalties(summary, len(self._state.copies), len(self._state.following))
        scalars = penalties.scalars
        scalars["gamma"], scalars["cost_weight"], scalars["stein"] = (
            self._stream_weight,
            self._cost_weight,
            self._scored,
        )
        return penalties

    def _add_penalties(self) -> Penalties:
        """Return the penalties; create them if there were none."""
        if self._penalties is None:
            self._penalties = self._new_penalties()
            compare_all_copies(self._state, self._penalties)
        return self._penalties

    def _marks(self) -> CostsAndPins | None:
        """Return costs and pins of the contents, or None without penalties."""
        if self._penalties is None:
            return None
        state = self.state()
        order = np.lexsort((state["ids"][:, 1], state["ids"][:, 0]))
        return CostsAndPins(state["cost"][order], state["pinned"][order])

    @property
    def stream_weight(self) -> float:
        """Weight gamma of the stream term, trust in the chain included."""
        return self._stream_weight

    @stream_weight.setter
    def stream_weight(self, weight: float) -> None:
        self._stream_weight = weight
        if self._penalties is not None:
            self._penalties.scalars["gamma"] = weight

    @property
    def mmd(self) -> float:
        """MMD between the kept draws and the summary of the stream; NaN without a stream term."""
        penalties = self._penalties
        if penalties is None or not self._stream_weight or not self.size or not penalties.scalars["count"]:
            return float("nan")
        slots, size, count = int(self._state.scalars["slots"]), self.size, float(penalties.scalars["count"])
        kept, stream = np.zeros(slots), np.zeros(slots)
        pairs = sums_over_summary(self._state, self._kernel, penalties, kept, stream)
        copies = self._state.copies[:slots]
        inner, mixed = (math.fsum(copies * sums) for sums in (kept, stream))  # independent of the order
        return math.sqrt(max(inner / size**2 - 2.0 * mixed / (size * count) + pairs / count**2, 0.0))

    @property
    def objective(self) -> float:
        """KSD^2 plus the stream term plus lambda kappa / n times the mean cost of the kept draws, relative to all."""
        penalties = self._penalties
        if penalties is None or not self.size or not penalties.scalars["count"]:
            return self.squared_ksd
        value = self.squared_ksd if self._scored else 0.0
        value = max(value + current_stream_term(self._state, self._kernel, penalties), 0.0)  # below 0 by rounding
        if self._cost_weight and penalties.scalars["cost_sum"]:
            cost = penalties.cost[self._labels(range(int(self._state.scalars["slots"])))].sum()
            value += 2.0 * penalties.scalars["cost_scale"] * cost / self.size**2
        return float(value)

    @property
    def pinned(self) -> Integers:
        """Ids (chain, draw) of the pinned draws, in order."""
        ids = self._state.ids[:0] if self._penalties is None else self._state.ids[self._penalties.pinned]
        return ids[np.lexsort((ids[:, 1], ids[:, 0])), :2]

    def pin(self, ids: Integers, pinned: bool) -> None:
        """Pin these kept draws, or release them.

        Raises
        ------
        InputError
            If one of them is not kept.

        """
        labels = self._labels(range(int(self._state.scalars["slots"])))
        known = {(chain, draw): label for label, (chain, draw, _) in zip(labels, self._state.ids[labels], strict=True)}
        wanted = [*map(tuple, ids.tolist())]
        for id in wanted:
            if id not in known:
                raise InputError(
                    f"Draw {id[1]} of chain {id[0]} is not kept.", "Only kept draws can be pinned; kept.ids lists them."
                )
        penalties = self._add_penalties()
        penalties.pinned[[known[id] for id in wanted]] = pinned
        compare_all_copies(self._state, penalties)

    # -- contents --------------------------------------------------------------------------------------------------

    def arrived_after(self, step: int) -> Integers:
        """Return the ids (chain, draw) of the kept draws that arrived after a step, in order."""
        ids = self._state.ids[self._state.ids[:, 2] > step, :2]
        return ids[np.lexsort((ids[:, 1], ids[:, 0]))]

    def contents(self) -> Contents:
        """Return the kept draws."""
        state = self.state()
        slot = np.repeat(np.arange(len(state["copies"])), state["copies"])
        ids = state["ids"]
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        both = state["raw"] if self._unscaled else np.hstack([state["points"], state["raw"]])
        draws, scores, second_scores = np.split(both[slot[order]], [self.dim, 2 * self.dim], axis=1)
        return Contents(draws.copy(), scores.copy(), ids[order], second_scores.copy())

    def peek(self, columns: list[int]) -> tuple[Integers, Array]:
        """Return the step of arrival of each kept draw (n,) and some of its coordinates (n, columns), in any order."""
        state, slots = self._state, int(self._state.scalars["slots"])
        values = state.tiles[:, columns, 0].transpose(0, 2, 1).reshape(-1, len(columns))[:slots]
        if self._unscaled:
            values = state.raw[:slots, columns]
        labels, of = [state.oldest[:slots]], [np.arange(slots)]
        while len(labels[-1]):  # the next copy of every state that has one
            following = state.following[labels[-1]]
            labels.append(following[following != NONE])
            of.append(of[-1][following != NONE])
        return state.ids[np.concatenate(labels), 2], values[np.concatenate(of)]

    def state(self, rows: bool = True) -> dict[str, AnyArray]:
        """Return everything that :meth:`restore` needs, slots sorted by the oldest id; ``rows`` has no effect."""
        state, slots = self._state, int(self._state.scalars["slots"])
        first = state.ids[state.oldest[:slots]]
        order = np.lexsort((first[:, 1], first[:, 0]))
        labels = self._labels(order)
        points = state.tiles.transpose(0, 3, 2, 1).reshape(-1, 2 * self.dim)
        latest = np.flatnonzero(order == state.scalars["latest"])
        arrays: dict[str, AnyArray] = {
            "points": points[order],
            "raw": state.raw[order],
            "copies": state.copies[order].astype(np.int64),
            "influence": np.column_stack([state.influence[order], state.influence_low[order]]),
            "ids": state.ids[labels],
            "latest": np.array(int(latest[0]) if len(latest) else NONE),
            "total": np.array([state.scalars[name] for name in _TOTAL]),
        }
        if self._penalties is not None:
            scalars = self._penalties.scalars.copy()
            for name in _OF_A_STEP:
                scalars[name] = 0.0
            arrays |= {"cost": self._penalties.cost[labels], "pinned": self._penalties.pinned[labels]}
            arrays |= {"penalty_scalars": record_values(scalars), "stream_sum": self._penalties.stream_sum[order]}
            stream = summary_draws(self._penalties.summary)
            arrays |= {"stream": stream.draws, "stream_levels": stream.levels, "stream_arrivals": stream.arrivals}
            arrays |= {"stream_numbers": np.array([stream.seen, stream.highest])}
        return arrays

    def _labels(self, slots: Iterable[int]) -> Integers:
        """Return the labels of all draws in these slots, slot by slot and the oldest first."""
        labels = []
        for slot in slots:
            label = self._state.oldest[slot]
            while label != NONE:
                labels.append(label)
                label = self._state.following[label]
        return np.array(labels, dtype=np.int64)

    def restore(self, state: dict[str, AnyArray]) -> None:
        """Take over the state that :meth:`state` returned."""
        slots, labels = len(state["copies"]), len(state["ids"])
        new = empty_state(self.dim, self._columns, slots + LANES, labels + LANES)
        tiles = new.tiles.transpose(0, 3, 2, 1)  # (tile, lane, draw or score, coordinate)
        slot = np.arange(slots)
        tiles[slot // LANES, slot % LANES] = state["points"].reshape(slots, 2, self.dim)
        new.copies[:slots] = state["copies"]
        new.influence[:slots], new.influence_low[:slots] = state["influence"].T
        new.raw[:slots] = state["raw"]
        new.ids[:labels] = state["ids"]
        last = np.cumsum(state["copies"]) - 1
        new.following[last] = NONE  # before that, each label is followed by the next
        new.oldest[:slots], new.newest[:slots] = last - state["copies"] + 1, last
        scalars = new.scalars
        scalars["slots"], scalars["draws"], scalars["free"], scalars["latest"] = (
            slots,
            labels,
            labels,
            int(state["latest"]),
        )
        for name, value in zip(_TOTAL, state["total"], strict=True):
            scalars[name] = value
        restore_derived(new, self._kernel)
        self._state, self._penalties = new, None
        if "stream" in state:
            self._restore_penalties(state)

    def _restore_penalties(self, state: dict[str, AnyArray]) -> None:
        """Take over the penalties that :meth:`state` returned."""
        stream = None
        if self._stream_weight:
            seen, highest = map(int, state["stream_numbers"])
            stream = SummaryDraws(state["stream"], state["stream_levels"], state["stream_arrivals"], seen, highest)
        penalties = self._penalties = self._new_penalties(stream)
        labels = len(state["ids"])
        penalties.cost[:labels], penalties.pinned[:labels] = state["cost"], state["pinned"]
        penalties.stream_sum[: len(state["stream_sum"])] = state["stream_sum"]
        set_record(penalties.scalars, state["penalty_scalars"])
        self._stream_weight = float(penalties.scalars["gamma"])
        restore_sums(self._state, self._kernel, penalties)
        compare_all_copies(self._state, penalties)


_TOTAL = ("total", "total_low", "largest_diagonal")  # numbers of a state that are part of a checkpoint
_OF_A_STEP = (
    "weight",
    "share",
    "cost_scale",
    "new_removal_cost",
    "new_key",
    "new_penalised_key",
    "first_pass",
    "new_kept_sum",
    "new_stream_sum",
)
