"""The dictionary: the kept draws in the engine's arrays, grown as needed, read out in the order of their ids."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream._engine import penalties as at
from steinstream._engine.fourier_features import PAIRS, frequencies
from steinstream._engine.jit import threads
from steinstream._engine.objective import square
from steinstream._engine.online_stats import follow
from steinstream._engine.penalties import Guide, empty_guide, fill_waves, gap_as_of_now, reconsider_all, roomier_guide
from steinstream._engine.simd import LANES
from steinstream._engine.state import DRAWS, FREE, LATEST, NONE, SLOTS, TOTAL, TOTAL_LOW, WORST, empty_store, roomier
from steinstream._engine.thinning import thin_block
from steinstream._engine.updates import refresh, worth_sharing
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner._pace import Pace
from steinstream.thinner.bound import bound, fresh_trace
from steinstream.thinner.ingest import CostsAndPins
from steinstream.validation import Block

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_NO_CAP = np.iinfo(np.int64).max


class Plan(NamedTuple):
    """For each step the least number to keep, the budget, and the part of the budget that is divided by size^2.

    ``monotone``: the budget counts from the objective before the step if that was less than after the addition.
    """

    floor: Integers
    budget: Array
    share: Array
    monotone: bool = False


class Run(NamedTuple):
    """For each step size and KSD^2 after it; and (chain, draw, step of arrival) of all draws dropped, in order."""

    sizes: Integers
    squares: Array
    dropped: Integers


class Contents(NamedTuple):
    """The kept draws as the user gave them, sorted by id; ids are (chain, draw, step of arrival).

    ``checks`` are (n, d), or (n, 0) if there are none.
    """

    points: Array
    scores: Array
    ids: Integers
    checks: Array


class Dictionary:
    """Kept draws with one kernel, in coordinates that are fixed, or changed by :meth:`rebase` if ``movable``.

    ``checked``: every draw brings a second score, as further columns of a block's scores. ``anchor`` is gamma, ``cost``
    lambda; with either, or with pins, there is a guide (:mod:`steinstream._engine.penalties`).
    """

    def __init__(
        self, dim: int, kernel: Kernel, preconditioner: Preconditioner, movable: bool = False, checked: bool = False,
        anchor: float = 0.0, cost: float = 0.0,
    ) -> None:  # fmt: skip
        self.dim = dim
        self.kernel = kernel
        self._kernel = kernel.compiled(dim)
        self.preconditioner = preconditioner
        # The engine works in its own coordinates; the draws as given are kept beside them, to be handed back unchanged.
        self._given = 0 if preconditioner.is_identity and not movable else 2 * dim
        self._raw = self._given + (dim if checked else 0)
        self._store = empty_store(dim, self._raw)
        self._anchor, self._cost = anchor, cost
        # Where coordinates are still to be found the anchor waits for them: waves of no frequency hold nobody.
        self._turns = np.zeros((dim, PAIRS if anchor else 0))
        if anchor and not movable:
            self._turns = frequencies(kernel, dim, preconditioner.factor)
        self._guide = self._new_guide() if anchor or cost else None
        self._pace = Pace(threads)
        self.trace = fresh_trace()

    def run(
        self, block: Block, candidates: int, start: int, plan: Plan, cap: int | None, marks: CostsAndPins | None = None,
        first_pass: bool = True,
    ) -> Run:  # fmt: skip
        """Steps ``start + 1`` and on: the best of each group of candidates comes in, the least influential go out.

        In the first pass the draws are part of the stream, whose proportions an anchor keeps; later they were before.
        """
        if marks is not None:
            self._be_guided()
        costs, pinned = marks or CostsAndPins.none(len(block.draws))
        draws, scores, ids = block
        raw = np.zeros((len(draws), 0))
        if self._raw:
            raw = np.hstack([draws, scores])[:, -self._raw :]
            draws, scores = self.preconditioner.apply(draws, scores[:, : self.dim])
        steps, done = len(plan.floor), 0
        sums = np.zeros((candidates, 2))
        sizes, squares = np.zeros(steps, dtype=np.int64), np.zeros(steps)
        dropped = [np.zeros((0, 3), dtype=np.int64)]
        while done < steps:
            slots = int(self._store.counts[SLOTS]) * candidates
            shareable = worth_sharing(slots, self.dim)
            last = min(steps, done + self._pace.portion(slots)) if shareable else steps
            workers = self._pace.choose() if shareable else None
            part, rest = slice(done, last), slice(done * candidates, last * candidates)
            log = np.zeros((self.size + last - done, 3), dtype=np.int64)
            guide = self._guide
            if guide is not None:
                guide = guide._replace(given=block.draws[rest], costs=costs[rest], pins=pinned[rest])
                guide.numbers[at.LISTENS] = first_pass
            began = time.perf_counter()
            ran, drops = thin_block(
                self._store, self._kernel, guide, draws[rest], scores[rest], raw[rest], ids[rest], candidates,
                start + done, plan.floor[part], plan.budget[part], plan.share[part], plan.monotone,
                _NO_CAP if cap is None else cap, sizes[part], squares[part], log, sums, workers,
            )  # fmt: skip
            if shareable:
                self._pace.learn(workers, ran * slots, time.perf_counter() - began)
            dropped.append(log[:drops].copy())
            done += ran
            if done < last:
                self._store = roomier(self._store)
                self._guide = self._guide and roomier_guide(self._guide, self._store)
        most = np.inf if cap is None else float(cap)
        follow(self.trace, self._kernel, draws, scores, sizes, plan.floor, plan.budget, plan.share, most)
        return Run(sizes, squares, np.concatenate(dropped))

    def fill(self, block: Block, marks: CostsAndPins | None = None) -> None:
        """Take in draws and drop none. They are no part of the stream."""
        count, sums = len(block.draws), list(at.OVER_THE_STREAM)
        plan = Plan(np.full(count, _NO_CAP), np.zeros(count), np.zeros(count))
        before = self._guide and (self._guide.stream.copy(), self._guide.numbers[sums])
        self.run(block, 1, -count, plan, None, marks)
        if self._guide is not None:
            self._guide.stream[:], self._guide.numbers[sums] = before or (0.0, 0.0)
        self.trace = fresh_trace(self.size, self.square if self.size else 0.0)

    def rebase(self, preconditioner: Preconditioner) -> None:
        """Other coordinates: the state is as if the kept draws had come in these from the start, in this order.

        An anchor takes its frequencies from the first such coordinates, and keeps them: the stream begins for it there.
        """
        points, scores, ids, checks = self.contents()
        order = np.argsort(ids[:, 2])  # of arrival: one draw a step
        marks, before = self._marks(), self._guide
        self.preconditioner = preconditioner
        self._store = empty_store(self.dim, self._raw, len(ids) + LANES, len(ids) + LANES)
        if before is not None:
            begins = self._anchor > 0 and not self._turns.any()
            self._turns = frequencies(self.kernel, self.dim, preconditioner.factor) if begins else self._turns
            self._guide = self._new_guide()
            if not begins:
                self._guide.stream[:] = before.stream
                self._guide.numbers[list(at.OVER_THE_STREAM)] = before.numbers[list(at.OVER_THE_STREAM)]
        self.fill(Block(points[order], np.hstack([scores, checks])[order], ids[order, :2]), marks and marks.take(order))
        self._store.ids[: len(ids), 2] = ids[order, 2]  # an empty store hands out its labels in order

    @property
    def size(self) -> int:
        """How many draws are kept, repeated ones included."""
        return int(self._store.counts[DRAWS])

    @property
    def square(self) -> float:
        """KSD^2 of the kept draws."""
        return float(square(self._store)) if self.size else float("nan")

    @property
    def ksd(self) -> float:
        """KSD of the kept draws."""
        return float(np.sqrt(self.square))

    @property
    def bound(self) -> float | None:
        """What KSD is at most in the mean, for independent draws: see :mod:`steinstream.thinner.bound`.

        None if anything but KSD guides the choice.
        """
        if self._guide is not None:
            return None
        slots = int(self._store.counts[SLOTS])
        points, scores = self._store.tiles.transpose(2, 0, 3, 1).reshape(2, -1, self.dim)[:, :slots]
        diagonal = self.kernel.diagonal(scores, points)
        copies = self._store.copies[:slots]
        return bound(self.trace, math.fsum(diagonal * copies) / float(copies.sum()) if slots else 0.0)  # in any order

    # -- anchor, costs, pins ---------------------------------------------------------------------------------------

    def _new_guide(self) -> Guide:
        """For the store as it is, of a stream that has not begun."""
        guide = empty_guide(self._turns, len(self._store.copies), len(self._store.following))
        guide.numbers[[at.GAMMA, at.LAMBDA]] = self._anchor, self._cost
        return guide

    def _be_guided(self) -> Guide:
        """From now on look at pins."""
        if self._guide is None:
            self._guide = self._new_guide()
            reconsider_all(self._store, self._guide)
        return self._guide

    def _marks(self) -> CostsAndPins | None:
        """Costs and pins of the contents, if there is a guide."""
        if self._guide is None:
            return None
        state = self.state()
        order = np.lexsort((state["ids"][:, 1], state["ids"][:, 0]))
        return CostsAndPins(state["cost"][order], state["pinned"][order])

    @property
    def mmd(self) -> float:
        """The anchor's distance between what is kept and the stream; not a number without an anchor."""
        guide = self._guide
        if guide is None or not self._turns.any() or not self.size or not guide.numbers[at.COUNT]:
            return float("nan")
        apart = guide.kept / self.size - guide.stream / guide.numbers[at.COUNT]
        return float(np.sqrt(apart @ apart / PAIRS))

    @property
    def objective(self) -> float:
        """KSD^2, what the anchor adds, and lambda kappa / n times what the kept draws cost on average, over all."""
        guide = self._guide
        if guide is None or not self.size or not guide.numbers[at.COUNT]:
            return self.square
        value = self.square + gap_as_of_now(self._store, guide)
        if self._cost and guide.numbers[at.COSTS]:
            spent = guide.cost[self._labels(range(int(self._store.counts[SLOTS])))].sum()
            value += 2.0 * guide.numbers[at.SCALE] * spent / self.size**2
        return float(value)

    @property
    def pinned(self) -> Integers:
        """Ids (chain, draw) of the pinned draws, in order."""
        ids = self._store.ids[:0] if self._guide is None else self._store.ids[self._guide.pinned]
        return ids[np.lexsort((ids[:, 1], ids[:, 0])), :2]

    def pin(self, ids: Integers, pinned: bool) -> None:
        """Pin these kept draws, or let them go again."""
        labels = self._labels(range(int(self._store.counts[SLOTS])))
        known = {(chain, draw): label for label, (chain, draw, _) in zip(labels, self._store.ids[labels], strict=True)}
        missing = [id for id in map(tuple, ids.tolist()) if id not in known]
        if missing:
            chain, draw = missing[0]
            raise InputError(f"Draw {draw} of chain {chain} is not kept.", "Only what is kept can be pinned: kept.ids.")
        guide = self._be_guided()
        guide.pinned[[known[id] for id in map(tuple, ids.tolist())]] = pinned
        reconsider_all(self._store, guide)

    # -- contents --------------------------------------------------------------------------------------------------

    def arrived_after(self, step: int) -> Integers:
        """Ids (chain, draw) of the kept draws that came after this step, in order."""
        ids = self._store.ids[self._store.ids[:, 2] > step, :2]
        return ids[np.lexsort((ids[:, 1], ids[:, 0]))]

    def contents(self) -> Contents:
        """The kept draws."""
        state = self.state()
        slot = np.repeat(np.arange(len(state["copies"])), state["copies"])
        ids = state["ids"]
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        both = state["raw"] if self._given else np.hstack([state["points"], state["raw"]])
        points, scores, checks = np.split(both[slot[order]], [self.dim, 2 * self.dim], axis=1)
        return Contents(points.copy(), scores.copy(), ids[order], checks.copy())

    def glance(self, columns: list[int]) -> tuple[Integers, Array]:
        """When each kept draw arrived, (n,), and these coordinates of it, (n, columns): a quick copy, in any order."""
        store, slots = self._store, int(self._store.counts[SLOTS])
        values = store.tiles[:, columns, 0].transpose(0, 2, 1).reshape(-1, len(columns))[:slots]
        if self._given:
            values = store.raw[:slots, columns]
        labels, of = [store.oldest[:slots]], [np.arange(slots)]
        while len(labels[-1]):  # the next copy of every state that has one
            following = store.following[labels[-1]]
            labels.append(following[following != NONE])
            of.append(of[-1][following != NONE])
        return store.ids[np.concatenate(labels), 2], values[np.concatenate(of)]

    def state(self, rows: bool = True) -> dict[str, NDArray[Any]]:
        """All there is to know, in an order that depends on the contents alone: by the oldest id of each state.

        Always with the draws themselves, whether their ``rows`` are asked for or not.
        """
        store, slots = self._store, int(self._store.counts[SLOTS])
        first = store.ids[store.oldest[:slots]]
        order = np.lexsort((first[:, 1], first[:, 0]))
        labels = self._labels(order)
        points = store.tiles.transpose(0, 3, 2, 1).reshape(-1, 2 * self.dim)
        latest = np.flatnonzero(order == store.counts[LATEST])
        state: dict[str, NDArray[Any]] = {
            "points": points[order],
            "raw": store.raw[order],
            "copies": store.copies[order].astype(np.int64),
            "influence": np.column_stack([store.high[order], store.low[order]]),
            "ids": store.ids[labels],
            "latest": np.array(int(latest[0]) if len(latest) else NONE),
            "total": store.sums[[TOTAL, TOTAL_LOW, WORST]],
        }
        if self._guide is not None:
            numbers = self._guide.numbers.copy()
            numbers[: at.GAMMA] = 0.0  # what each step makes anew
            state |= {"cost": self._guide.cost[labels], "pinned": self._guide.pinned[labels], "numbers": numbers}
            state |= {"turns": self._turns, "stream": self._guide.stream.copy()}
        return state

    def _labels(self, slots: Iterable[int]) -> Integers:
        """The labels of all draws in these slots, slot by slot and the oldest first."""
        labels = []
        for slot in slots:
            label = self._store.oldest[slot]
            while label != NONE:
                labels.append(label)
                label = self._store.following[label]
        return np.array(labels, dtype=np.int64)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what :meth:`state` gave."""
        slots, labels = len(state["copies"]), len(state["ids"])
        store = empty_store(self.dim, self._raw, slots + LANES, labels + LANES)
        tiles = store.tiles.transpose(0, 3, 2, 1)  # (tile, lane, point or score, coordinate)
        slot = np.arange(slots)
        tiles[slot // LANES, slot % LANES] = state["points"].reshape(slots, 2, self.dim)
        store.copies[:slots] = state["copies"]
        store.high[:slots], store.low[:slots] = state["influence"].T
        store.raw[:slots] = state["raw"]
        store.ids[:labels] = state["ids"]
        last = np.cumsum(state["copies"]) - 1
        store.following[last] = NONE  # before that, each label is followed by the next
        store.oldest[:slots], store.newest[:slots] = last - state["copies"] + 1, last
        store.counts[[SLOTS, DRAWS, FREE, LATEST]] = slots, labels, labels, state["latest"]
        store.sums[[TOTAL, TOTAL_LOW, WORST]] = state["total"]
        refresh(store, self._kernel)
        self._store, self._guide = store, None
        if "turns" in state:
            self._turns = state["turns"].copy()
            guide = self._guide = self._new_guide()
            guide.cost[:labels], guide.pinned[:labels] = state["cost"], state["pinned"]
            guide.stream[:], guide.numbers[:] = state["stream"], state["numbers"]
            given = state["raw" if self._given else "points"][:, : self.dim]
            fill_waves(store, guide._replace(given=np.ascontiguousarray(given)))
            reconsider_all(store, guide)
