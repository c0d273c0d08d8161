"""The kept draws of a thinner: arrays of the compiled engine, enlarged as needed and read in the order of ids."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.jit import threads
from steinstream._engine.online_stats import update_bound
from steinstream._engine.penalties import (
    Penalties,
    add_diagonals,
    base_at_zero,
    compare_all_copies,
    current_weight,
    empty_penalties,
    enlarged_penalties,
    logged_mmd,
    restore_sums,
    stream_squares,
    sums_over_summary,
)
from steinstream._engine.simd import LANES
from steinstream._engine.state import NONE, KeptState, empty_state, enlarged, record_values, set_record
from steinstream._engine.step_rule import NO_CAP, StepLimits
from steinstream._engine.stream_summary import (
    SummaryDraws,
    append_to_summary,
    empty_summary,
    error_of_summary,
    filled_summary,
    sum_over_pairs,
    summary_draws,
    with_space,
)
from steinstream._engine.thinning import Batch, StepLog, thin_block
from steinstream._engine.updates import restore_derived, worth_sharing
from steinstream._typing import AnyArray, Array, Flags, Integers
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner
from steinstream.result import SummarisedStream
from steinstream.thinner.bound import bound, new_trace, restart
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.chain_worth import stream_factor
from steinstream.thinner.ingest import CostsAndPins
from steinstream.thinner.layout import FEATURES, DrawLayout
from steinstream.thinner.threads import ThreadChooser
from steinstream.validation import Block, overflow_limit

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig
    from steinstream.thinner.dictionary_f32 import DictionaryF32


class StepRecords(NamedTuple):
    """Records of a run of steps."""

    sizes: Integers
    """Number of kept draws after each step."""
    squared_ksds: Array
    """KSD^2 after each step; NaN without scores."""
    squared_mmds: Array
    """Squared MMD to the stream after each step; NaN without a stream term."""
    dropped: Integers
    """Chain, index and step of arrival of the removed draws, in order of their removal."""

    def corrected(self, kept: Dictionary | DictionaryF32) -> StepRecords:
        """Write the values after a change of the kept draws, or of their coordinates, to the last step."""
        self.sizes[-1], self.squared_ksds[-1], self.squared_mmds[-1] = kept.size, kept.squared_ksd, kept.squared_mmd
        return self


def _joined(parts: list[Integers]) -> Integers:
    """Return the rows of all parts, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros((0, 3), dtype=np.int64), *parts])


class Contents(NamedTuple):
    """The kept draws as given by the user, sorted by id."""

    draws: Array
    scores: Array
    """(n, d), or (n, 0) without scores."""
    ids: Integers
    """Chain, index and step of arrival."""
    second_scores: Array
    """(n, d), or (n, 0) if there are none."""
    ratios: Array | None = None
    """Density ratios, (n, 1), if there are any."""
    sketches: Array | None = None
    """Sketches of the features, if there are any."""

    def block(self, rows: slice | Integers = slice(None)) -> Block:
        """Return some of the draws, with second scores as further columns."""
        scores = np.hstack([self.scores, self.second_scores])
        return Block(self.draws, scores, self.ids[:, :2], self.sketches, self.ratios).take(rows)


class Dictionary:
    """Kept draws in float64; if ``movable``, :meth:`change_coordinates` will be called."""

    def __init__(
        self, layout: DrawLayout, config: ThinConfig, preconditioner: Preconditioner, movable: bool = False
    ) -> None:
        self.layout, self.kernel, self.preconditioner = layout, config.kernel, preconditioner
        # The engine stores draws and scores in the coordinates of the kernel. Unless these are the draws as given, the
        # columns of the layout are stored as well.
        plain = layout.has_scores and layout.features is None and not layout.has_ratios
        self._as_given = preconditioner.is_identity and not movable and plain
        self._columns = layout.width - (2 * layout.dim if self._as_given else 0)
        self._stream_weight = config.stream_weight * stream_factor(1.0, layout.dim)
        self._cost_weight = config.cost_weight
        self._chooser = ThreadChooser(threads)
        self._trace = new_trace()
        self._clear()

    def _clear(self, draws: int = 0) -> None:
        """Create an empty state with space for this number of draws."""
        scaled = self.layout.has_ratios
        self._kernel = compile_kernel(self.kernel, self._kernel_dim - scaled, scaled)
        self._state = empty_state(self._kernel_dim, self._columns, draws + LANES, draws + LANES)
        self._penalties = self._new_penalties() if self._stream_weight or self._cost_weight else None

    @property
    def dim(self) -> int:
        """Number of dimensions of a draw."""
        return self.layout.dim

    @property
    def _has_features(self) -> bool:
        """Whether the base vectors are not the coordinates of the kernel: there are scores, and features."""
        return self.layout.has_scores and not self.layout.compares_draws

    @property
    def _kernel_dim(self) -> int:
        """Number of coordinates of the kernel: without scores, those of the base vectors."""
        return self.layout.dim + self.layout.has_ratios if self.layout.has_scores else self.layout.base_dim

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

        In the first pass, the draws are added to the stream of the stream term.

        Returns
        -------
        StepRecords
            Sizes, KSD^2 and removed draws.
        """
        if marks is not None:
            self._add_penalties()
        if self._penalties is not None:
            self._penalties.scalars["first_pass"] = first_pass
            if first_pass and self._stream_weight:
                summary = with_space(self._penalties.summary, len(block.draws))
                self._penalties = self._penalties._replace(summary=summary)
        batch = self._batch(block, candidates, start, marks)
        steps, done = len(limits.floor), 0
        sizes, squared_ksds, squared_mmds = np.zeros(steps, dtype=np.int64), np.zeros(steps), np.zeros(steps)
        dropped: list[Integers] = []
        while done < steps:
            work = int(self._state.scalars["slots"]) * candidates
            shareable = worth_sharing(work, self._kernel_dim)
            last = min(steps, done + self._chooser.steps_per_call(work)) if shareable else steps
            workers = self._chooser.choose() if shareable else None
            part = slice(done, last)
            room = np.zeros((self.size + last - done, 3), dtype=np.int64)
            log = StepLog(sizes[part], squared_ksds[part], squared_mmds[part], room)
            began = time.perf_counter()
            ran, removed = thin_block(
                self._state,
                self._kernel,
                self._penalties,
                batch.part(part),
                limits.part(part),
                log,
                workers=workers or 1,
            )
            if shareable:
                self._chooser.record(workers, ran * work, time.perf_counter() - began)
            dropped.append(log.dropped[:removed])
            done += ran
            if done < last:
                self._state = enlarged(self._state)
                self._penalties = self._penalties and enlarged_penalties(self._penalties, self._state)
        update_bound(self._trace, self._kernel, batch.draws, batch.scores, sizes, limits)
        if not self.layout.has_scores:
            squared_ksds[:] = np.nan
        return StepRecords(sizes, squared_ksds, squared_mmds, _joined(dropped))

    def _batch(self, block: Block, candidates: int, start: int, marks: CostsAndPins | None) -> Batch:
        draws, scores = self._coordinates(block)
        raw = self.layout.columns(block)[:, -self._columns :] if self._columns else np.zeros((len(draws), 0))
        draws, scores, raw, ids = map(_writable, (draws, scores, raw, block.ids))
        batch = Batch(
            draws=draws,
            scores=scores,
            raw=raw,
            ids=ids,
            candidates=candidates,
            start=start,
            influence=np.zeros((candidates, 2)),
        )
        if self._penalties is None:
            return batch
        costs, pinned = marks or CostsAndPins.none(len(draws))
        costs, pinned, unscaled = map(_writable, (costs, pinned, self.layout.base_vectors(block)))
        base = self.layout.in_kernel_coordinates(unscaled, self.preconditioner) if self._has_features else draws
        sums = np.zeros(len(draws))
        return batch._replace(base=_writable(base), unscaled=unscaled, costs=costs, pinned=pinned, stream_sums=sums)

    def _coordinates(self, block: Block) -> tuple[Array, Array]:
        """Return draws and scores in the coordinates of the kernel; without scores, base vectors and zeros."""
        if self._as_given:
            return block.draws, block.scores[:, : self.dim]
        return self.layout.kernel_coordinates(block, self.preconditioner)

    def insert_all(self, block: Block, marks: CostsAndPins | None = None) -> None:
        """Insert all draws of a block and remove none. They are not part of the stream."""
        count = len(block.draws)
        limits = StepLimits(np.full(count, NO_CAP), np.zeros(count), np.zeros(count))
        self.run(block, 1, -count, limits, marks, first_pass=False)
        if self._penalties is not None:
            add_diagonals(self._kernel, self._penalties, *self._coordinates(block))
        self._trace = new_trace(self.size, self.objective_part if self.size else 0.0)

    def change_coordinates(self, preconditioner: Preconditioner) -> None:
        """Change the preconditioner, or use the current map of the features.

        The state becomes that of the kept draws inserted in order of arrival. The sums over the stream are recomputed
        from its summary. If a draw is out of range in the new coordinates, an `InputError` is raised first.
        """
        contents = self.contents()
        known = [Block(contents.draws, contents.scores, contents.ids[:, :2])]
        if self._penalties is not None and self._stream_weight and self.layout.stream_on != FEATURES:
            stream = summary_draws(self._penalties.summary)
            known.append(Block(stream.draws[:, : self.dim], np.zeros((len(stream.draws), 0)), stream.ids))
        for block in known:
            preconditioner.rows_in_range(block, "raise", overflow_limit(self.kernel.linear > 0))
        self.preconditioner = preconditioner
        self._rebuild(np.ones(self.size, dtype=np.bool_), {})

    def refresh_stream_sums(self) -> None:
        """Recompute the sums over the stream of all kept draws from the summary, with which new draws are compared.

        The sum of a draw is that over the summary when it arrived, plus exact values since then. Before another pass
        over the same stream, all sums must be those over the same summary, so that the objective is a distance.
        """
        before = self._penalties
        if before is not None and self._stream_weight:
            self._rebuild(np.ones(self.size, dtype=np.bool_), {})
            self._restore_diagonals(before)

    def _restore_diagonals(self, before: Penalties) -> None:
        """Take over the sums of k0(x, x) over the stream."""
        if self._penalties is not None:
            for name in before.scalars.dtype.names:
                if "diagonal" in name:
                    self._penalties.scalars[name] = before.scalars[name]

    def set_stream(self, stream: Block) -> None:
        """Use these draws as the stream of the stream term, before the first draw is inserted."""
        base = self.layout.base_vectors(stream)
        points, penalties = self.layout.in_kernel_coordinates(base, self.preconditioner), self._new_penalties()
        penalties = penalties._replace(summary=with_space(penalties.summary, len(base)))
        append_to_summary(self._kernel, penalties.summary, *map(_writable, (points, base, stream.ids)))
        penalties.scalars["count"] = len(base)
        penalties.scalars["pair_sum"] = sum_over_pairs(self._kernel, penalties.summary)
        add_diagonals(self._kernel, penalties, *self._coordinates(stream))
        self._penalties = penalties

    def forget_burn_in(self, burn_in: Mapping[int, int]) -> Integers:
        """Leave the first draws of some chains out of the stream term, and remove the kept draws among them.

        Returns
        -------
        array
            Chain, index and step of arrival of the removed draws. Pinned and initial draws stay, and all draws stay if
            none would be left.
        """
        ids, marks = self.contents().ids, self._marks()
        early = is_burn_in(ids, burn_in) & (ids[:, 2] > 0)
        if marks is not None:
            early &= ~marks.pinned
        if early.all():
            early[:] = False
        before = self._penalties
        self._rebuild(~early, burn_in)
        if before is not None and not before.scalars["first_pass"]:  # no draw adds to the sums of a known stream
            self._restore_diagonals(before)
        return ids[early]

    def _rebuild(self, rows: Flags, burn_in: Mapping[int, int]) -> None:
        """Insert some of the kept draws again, in order of arrival, and forget the burn-in of the stream."""
        contents, marks, before = self.contents(), self._marks(), self._penalties
        ids = contents.ids
        order = np.argsort(ids[:, 2])  # of arrival: one draw per step
        order = order[rows[order]]
        self._clear(len(order))
        if before is not None:
            stream = summary_draws(before.summary) if self._stream_weight else None
            if stream is not None:
                stream = stream.take(~is_burn_in(stream.ids, burn_in))
            self._penalties = self._new_penalties(stream)
            scalars = self._penalties.scalars
            scalars["cost_sum"], scalars["count"] = before.scalars["cost_sum"], before.scalars["count"]
            if stream is not None:
                scalars["count"] = float(np.sum(stream.weights))
                scalars["pair_sum"] = sum_over_pairs(self._kernel, self._penalties.summary)
        self.insert_all(contents.block(order), marks and marks.take(order))
        self._state.ids[: len(order), 2] = ids[order, 2]  # an empty state assigns its labels in order

    @property
    def size(self) -> int:
        """Number of kept draws, repeated ones included."""
        return int(self._state.scalars["draws"])

    @property
    def squared_ksd(self) -> float:
        """KSD^2 of the kept draws; NaN if there are none, or without scores."""
        if not self.size or not self.layout.has_scores:
            return float("nan")
        return max(float(self._state.scalars["total"]), 0.0) / (float(self.size) * float(self.size))

    @property
    def ksd(self) -> float:
        """Square root of `squared_ksd`."""
        return math.sqrt(self.squared_ksd)

    @property
    def bound(self) -> float | None:
        """Upper bound on the root of the expected objective, as in `thinner.bound`; None if there is none."""
        penalties = self._penalties
        # Clipped density ratios do not have mean 0 in the Stein kernel.
        if self.layout.has_ratios or self._cost_weight or (penalties is not None and penalties.pinned.any()):
            return None
        slots = int(self._state.scalars["slots"])
        diagonal, stream = np.zeros(slots), 0.0
        if self.layout.has_scores:
            points, scores = self._state.tiles.transpose(2, 0, 3, 1).reshape(2, -1, self.dim)[:, :slots]
            diagonal = self.kernel.diagonal(scores, points)
        if penalties is not None and self._stream_weight and penalties.scalars["count"]:
            squares, stream = stream_squares(self._state, self._kernel, penalties)
            diagonal = diagonal + squares
        copies = self._state.copies[:slots]
        mean = math.fsum(diagonal * copies) / float(copies.sum()) if slots else 0.0  # independent of the order
        return bound(self._trace, mean, stream, self.layout.has_scores)

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
        layout = self.layout
        if stream is None:
            summary = empty_summary(layout.base_dim, layout.base_width, 0)
        else:
            summary = filled_summary(stream, layout.in_kernel_coordinates(stream.draws, self.preconditioner))
        slots, labels = len(self._state.copies), len(self._state.following)
        penalties = empty_penalties(summary, slots, labels, self._has_features)
        scalars = penalties.scalars
        scalars["gamma"], scalars["cost_weight"] = self._stream_weight, self._cost_weight
        scalars["stein"] = layout.has_scores
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
        """Weight of the stream term: gamma times `stream_factor`."""
        return self._stream_weight

    @stream_weight.setter
    def stream_weight(self, weight: float) -> None:
        changed, self._stream_weight = weight != self._stream_weight, weight
        if self._penalties is not None:
            self._penalties.scalars["gamma"] = weight
            if changed:
                restart(self._trace, self.size, self.objective_part if self.size else 0.0)

    @property
    def squared_mmd(self) -> float:
        """Squared MMD to the stream by the running sums, as in the history; NaN without a stream term."""
        penalties = self._penalties
        if penalties is None or not self._stream_weight or not self.size or not penalties.scalars["count"]:
            return float("nan")
        return float(logged_mmd(self._state, penalties))

    @property
    def mmd(self) -> float:
        """MMD between the kept draws and the summary of the stream; NaN without a stream term."""
        penalties = self._penalties
        if penalties is None or not self._stream_weight or not self.size or not penalties.scalars["count"]:
            return float("nan")
        slots, size, count = int(self._state.scalars["slots"]), self.size, float(penalties.scalars["count"])
        kept, stream, pairs = sums_over_summary(self._state, self._kernel, penalties)
        copies = self._state.copies[:slots]
        inner, mixed = (math.fsum(copies * sums) for sums in (kept, stream))  # independent of the order
        return math.sqrt(max(inner / size**2 - 2.0 * mixed / (size * count) + pairs / count**2, 0.0))

    @property
    def summarised_stream(self) -> SummarisedStream | None:
        """Copy of the summary of the stream; None without a stream term."""
        penalties = self._penalties
        if penalties is None or not self._stream_weight or not penalties.scalars["count"]:
            return None
        stream = summary_draws(penalties.summary)
        if self.layout.compares_draws:
            return SummarisedStream(stream.draws, stream.weights)
        kept = self.layout.base_vectors(self.contents().block())
        return SummarisedStream(stream.draws, stream.weights, copy.copy(self.layout.features), kept)

    @property
    def stream_error(self) -> float | None:
        """Estimated MMD between the summary and the stream; None without a stream term."""
        penalties = self._penalties
        if penalties is None or not self._stream_weight or not penalties.scalars["count"]:
            return None
        return error_of_summary(summary_draws(penalties.summary))

    @property
    def objective_part(self) -> float:
        """The objective without costs: KSD^2 plus the stream term, by the summary of the stream."""
        value = self.squared_ksd if self.layout.has_scores else 0.0
        mmd = self.mmd
        if self._penalties is None or math.isnan(mmd):
            return value
        return value + current_weight(self._kernel, self._penalties) * mmd**2

    @property
    def objective(self) -> float:
        """KSD^2 plus the stream term plus lambda kappa / n times the mean cost of the kept draws, relative to all."""
        penalties = self._penalties
        if penalties is None or not self.size or not penalties.scalars["count"]:
            return self.squared_ksd
        value = self.objective_part
        if self._cost_weight and penalties.scalars["cost_sum"]:
            costs = penalties.cost[self._labels(range(int(self._state.scalars["slots"])))]
            cost = math.fsum(costs)  # independent of the order
            current_weight(self._kernel, penalties)  # updates the scale of the costs, which a checkpoint does not hold
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
        columns = np.hstack([state["draws"], state["raw"]]) if self._as_given else state["raw"]
        found = self.layout.split(columns[slot[order]])
        return Contents(
            found.draws.copy(),
            found.scores.copy(),
            ids[order],
            found.second_scores.copy(),
            found.ratios,
            found.sketches,
        )

    def peek(self, columns: list[int]) -> tuple[Integers, Array]:
        """Return the step of arrival of each kept draw (n,) and some of its coordinates (n, columns), in any order."""
        state, slots = self._state, int(self._state.scalars["slots"])
        if self._as_given:
            values = state.tiles[:, columns, 0].transpose(0, 2, 1).reshape(-1, len(columns))[:slots]
        else:
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
        points = state.tiles.transpose(0, 3, 2, 1).reshape(-1, 2 * state.tiles.shape[1])
        latest = np.flatnonzero(order == state.scalars["latest"])
        arrays: dict[str, AnyArray] = {
            "draws": points[order],
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
            arrays |= {"stream": stream.draws, "stream_levels": stream.levels, "stream_ids": stream.ids}
            arrays |= {"stream_numbers": np.array([stream.seen, stream.highest])}
            arrays |= {"stream_squared_error": np.array(stream.squared_error)}
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
        self._clear()
        new = empty_state(self._kernel_dim, self._columns, slots + LANES, labels + LANES)
        tiles = new.tiles.transpose(0, 3, 2, 1)  # (tile, lane, draw or score, coordinate)
        slot = np.arange(slots)
        tiles[slot // LANES, slot % LANES] = state["draws"].reshape(slots, 2, self._kernel_dim)
        new.copies[:slots] = state["copies"]
        new.influence[:slots], new.influence_low[:slots] = state["influence"].T
        new.raw[:slots] = state["raw"]
        new.ids[:labels] = state["ids"]
        last = np.cumsum(state["copies"]) - 1
        new.following[last] = NONE  # before that, each label is followed by the next
        new.oldest[:slots], new.newest[:slots] = last - state["copies"] + 1, last
        scalars = new.scalars
        scalars["slots"], scalars["latest"] = slots, int(state["latest"])
        scalars["draws"] = scalars["free"] = labels
        for name, value in zip(_TOTAL, state["total"], strict=True):
            scalars[name] = value
        restore_derived(new, self._kernel)
        self._state, self._penalties = new, None
        if "stream" in state:
            self._restore_penalties(state)

    def _restore_penalties(self, state: dict[str, AnyArray]) -> None:
        stream = None
        if self._stream_weight:
            seen, highest = map(int, state["stream_numbers"])
            rows = (state["stream"], state["stream_levels"], state["stream_ids"])
            stream = SummaryDraws(*rows, seen, highest, float(state["stream_squared_error"]))
        penalties = self._penalties = self._new_penalties(stream)
        labels = len(state["ids"])
        penalties.cost[:labels], penalties.pinned[:labels] = state["cost"], state["pinned"]
        penalties.stream_sum[: len(state["stream_sum"])] = state["stream_sum"]
        if self._has_features:
            block = self.layout.split(state["raw"]).block()
            slot = np.arange(len(block.draws))
            base = self.layout.in_kernel_coordinates(self.layout.base_vectors(block), self.preconditioner)
            penalties.tiles[slot // LANES, :, slot % LANES] = base
        set_record(penalties.scalars, state["penalty_scalars"])
        self._stream_weight = float(penalties.scalars["gamma"])
        self._check_totals(*restore_sums(self._state, self._kernel, penalties))
        compare_all_copies(self._state, penalties)

    def _check_totals(self, kept_total: float, stream_total: float) -> None:
        """Raise an `InputError` if the restored P and B of the stream term are not those of the kept draws."""
        if not self._stream_weight or self._penalties is None:
            return
        scalars, size = self._penalties.scalars, float(self.size)
        largest = float(base_at_zero(self._kernel)) * size
        for name, value, expected, most in (
            ("kept draws", scalars["kept_total"], kept_total, largest * size),
            ("stream", scalars["stream_total"] + scalars["stream_total_low"], stream_total, largest * scalars["count"]),
        ):
            if not abs(value - expected) <= _TOTAL_TOLERANCE * most:
                raise InputError(f"The sum over the {name} is {value:.17g}, but {expected:.17g} for the stored draws.")


def _writable(array: AnyArray) -> AnyArray:
    """Return a contiguous, writable array: the engine would be compiled once more for each other kind."""
    return array if array.flags.carray else np.array(array, order="C")


_TOTAL_TOLERANCE = 1e-9  # of P and B, relative to their bounds: they are rounded in each step
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
