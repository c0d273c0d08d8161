"""The dictionary: the kept draws in the engine's arrays, grown as needed, read out in the order of their ids."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.jit import threads
from steinstream._engine.lanes import LANES
from steinstream._engine.moves import refresh, worth_sharing
from steinstream._engine.store import DRAWS, FREE, LATEST, NONE, SLOTS, TOTAL, TOTAL_LOW, empty_store, roomier
from steinstream._engine.thinning import square, thin_block
from steinstream.coordinates import Coordinates
from steinstream.door import Block
from steinstream.kernels import Kernel
from steinstream.pace import Pace

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
    """The kept draws as the user gave them, sorted by id; ids are (chain, draw, step of arrival)."""

    points: Array
    scores: Array
    ids: Integers


class Dictionary:
    """Kept draws, in fixed coordinates and with one kernel."""

    def __init__(self, dim: int, kernel: Kernel, coordinates: Coordinates) -> None:
        self.dim = dim
        self._kernel = kernel.compiled(dim)
        self.coordinates = coordinates
        # The engine works in its own coordinates; the draws as given are kept beside them, to be handed back unchanged.
        self._raw = 0 if coordinates.is_identity else 2 * dim
        self._store = empty_store(dim, self._raw)
        self._pace = Pace(threads)

    def run(self, block: Block, candidates: int, start: int, plan: Plan, cap: int | None) -> Run:
        """Steps ``start + 1`` and on: the best of each group of candidates comes in, the least influential go out."""
        draws, scores, ids = block
        raw = np.zeros((len(draws), 0))
        if self._raw:
            raw = np.hstack([draws, scores])
            draws, scores = self.coordinates.apply(draws, scores)
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
        return Run(sizes, squares, np.concatenate(dropped))

    def fill(self, block: Block) -> None:
        """Take in draws and drop none."""
        count = len(block.draws)
        plan = Plan(np.full(count, _NO_CAP), np.zeros(count), np.zeros(count))
        self.run(block, 1, -count, plan, None)

    @property
    def size(self) -> int:
        """How many draws are kept, repeated ones included."""
        return int(self._store.counts[DRAWS])

    @property
    def ksd(self) -> float:
        """KSD of the kept draws."""
        return float(np.sqrt(square(self._store))) if self.size else float("nan")

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
        both = state["raw"] if self._raw else state["points"]
        both = both[slot[order]]
        return Contents(both[:, : self.dim].copy(), both[:, self.dim :].copy(), ids[order])

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
