"""The dictionary: the kept draws in the engine's arrays, grown as needed, read out in the order of their ids."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.jit import threads
from steinstream._engine.lanes import LANES
from steinstream._engine.moments import follow
from steinstream._engine.moves import refresh, worth_sharing
from steinstream._engine.store import DRAWS, FREE, LATEST, NONE, SLOTS, TOTAL, TOTAL_LOW, empty_store, roomier
from steinstream._engine.thinning import square, thin_block
from steinstream.coordinates import Coordinates
from steinstream.door import Block
from steinstream.kernels import Kernel
from steinstream.pace import Pace
from steinstream.promise import bound, fresh_trace

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_NO_CAP = np.iinfo(np.int64).max


class Plan(NamedTuple):
    """For each step the least number to keep, the budget, and the part of the budget that is divided by size^2.

    ``monotone``: the budget counts from KSD^2 before the step if that was less than after the addition.
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

    ``checked``: every draw brings a second score, as further columns of a block's scores.
    """

    def __init__(
        self, dim: int, kernel: Kernel, coordinates: Coordinates, movable: bool = False, checked: bool = False
    ) -> None:
        self.dim = dim
        self.kernel = kernel
        self._kernel = kernel.compiled(dim)
        self.coordinates = coordinates
        # The engine works in its own coordinates; the draws as given are kept beside them, to be handed back unchanged.
        self._given = 0 if coordinates.is_identity and not movable else 2 * dim
        self._raw = self._given + (dim if checked else 0)
        self._store = empty_store(dim, self._raw)
        self._pace = Pace(threads)
        self.trace = fresh_trace()

    def run(self, block: Block, candidates: int, start: int, plan: Plan, cap: int | None) -> Run:
        """Steps ``start + 1`` and on: the best of each group of candidates comes in, the least influential go out."""
        draws, scores, ids = block
        raw = np.zeros((len(draws), 0))
        if self._raw:
            raw = np.hstack([draws, scores])[:, -self._raw :]
            draws, scores = self.coordinates.apply(draws, scores[:, : self.dim])
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
            began = time.perf_counter()
            ran, drops = thin_block(
                self._store, self._kernel, draws[rest], scores[rest], raw[rest], ids[rest], candidates, start + done,
                plan.floor[part], plan.budget[part], plan.share[part], plan.monotone,
                _NO_CAP if cap is None else cap, sizes[part], squares[part], log, sums, workers,
            )  # fmt: skip
            if shareable:
                self._pace.learn(workers, ran * slots, time.perf_counter() - began)
            dropped.append(log[:drops].copy())
            done += ran
            if done < last:
                self._store = roomier(self._store)
        most = np.inf if cap is None else float(cap)
        follow(self.trace, scores, sizes, plan.floor, plan.budget, plan.share, most)
        return Run(sizes, squares, np.concatenate(dropped))

    def fill(self, block: Block) -> None:
        """Take in draws and drop none."""
        count = len(block.draws)
        plan = Plan(np.full(count, _NO_CAP), np.zeros(count), np.zeros(count))
        self.run(block, 1, -count, plan, None)
        self.trace = fresh_trace(self.size, self.square if self.size else 0.0)

    def rebase(self, coordinates: Coordinates) -> None:
        """Other coordinates: the state is as if the kept draws had come in these from the start, in this order."""
        points, scores, ids, checks = self.contents()
        order = np.argsort(ids[:, 2])  # of arrival: one draw a step
        self.coordinates = coordinates
        self._store = empty_store(self.dim, self._raw, len(ids) + LANES, len(ids) + LANES)
        self.fill(Block(points[order], np.hstack([scores, checks])[order], ids[order, :2]))
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
        """What KSD is at most in the mean, for independent draws: see :mod:`steinstream.promise`."""
        slots = int(self._store.counts[SLOTS])
        scores = self._store.tiles[:, :, 1].transpose(0, 2, 1).reshape(-1, self.dim)[:slots]
        diagonal = np.average(self.kernel.diagonal(scores), weights=self._store.copies[:slots]) if slots else 0.0
        return bound(self.trace, self.kernel, self.dim, float(diagonal))

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

    def state(self) -> dict[str, NDArray[Any]]:
        """All there is to know, in an order that depends on the contents alone: by the oldest id of each state."""
        store, slots = self._store, int(self._store.counts[SLOTS])
        first = store.ids[store.oldest[:slots]]
        order = np.lexsort((first[:, 1], first[:, 0]))
        labels = []
        for slot in order:
            label = store.oldest[slot]
            while label != NONE:
                labels.append(label)
                label = store.following[label]
        points = store.tiles.transpose(0, 3, 2, 1).reshape(-1, 2 * self.dim)
        latest = np.flatnonzero(order == store.counts[LATEST])
        return {
            "points": points[order],
            "raw": store.raw[order],
            "copies": store.copies[order].astype(np.int64),
            "influence": np.column_stack([store.high[order], store.low[order]]),
            "ids": store.ids[np.array(labels, dtype=np.int64)],
            "latest": np.array(int(latest[0]) if len(latest) else NONE),
            "total": store.sums[[TOTAL, TOTAL_LOW]],
        }

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
        store.sums[[TOTAL, TOTAL_LOW]] = state["total"]
        refresh(store, self._kernel)
        self._store = store
