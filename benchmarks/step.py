"""Whole steps of a full thinner (size reached, steady state): the engine against C with plain sums.

Microseconds per step; IMQ, draws from a standard normal. *C* runs on one thread and carries its sums in plain doubles:
fast, but neither exact nor free of drift. The engine runs on one thread, on all of them (it shares only sweeps that are
worth it), and as a user calls it: Thinner.extend, with all checks and records. *replaced* is the share of steps that
drop an older draw and so cost a second sweep. *same ids* names those who kept the same draws as one thread did.
*threads* asks for all cores at every step, and means something only where all of them are free: a thread that has to
wait for its core holds up the other. *extend* keeps to one thread here: it tries more only in long runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.native import WIDE, aligned, library, pointer
from benchmarks.race import race
from benchmarks.table import Options, Row
from steinstream import Thinner
from steinstream._engine.jit import threads
from steinstream._engine.state import Store, empty_store
from steinstream._engine.thinning import thin_block

SIZES = (100, 1000, 10_000)
DIMENSIONS = (2, 10, 38)


def run(options: Options) -> list[Row]:
    return [measure(size, dim, options.quick) for size in SIZES for dim in DIMENSIONS]


def measure(size: int, dim: int, quick: bool) -> Row:
    steps = max(100, int(2e7 / (size * (dim + 8))))  # some ten milliseconds
    case = steady(size, dim, steps, before=2 * size if quick else max(50_000, 5 * size))
    alone = InEngine(case, None)
    others = {"C": InC(case), "threads": InEngine(case, threads()), "extend": AsCalled(case)}
    best = race({"one thread": alone, **others}, 1.0 if quick else 5.0)
    return {
        "kept": size,
        "d": dim,
        **{f"{who}, us": best[who] / steps * 1e6 for who in ("C", "one thread", "threads", "extend")},
        "one thread / C": best["one thread"] / best["C"],
        "extend / C": best["extend"] / best["C"],
        "one thread / threads": best["one thread"] / best["threads"],
        "replaced": f"{alone.replaced:.0%}",
        "same ids": ", ".join(who for who, other in others.items() if other.kept == alone.kept),
    }


class Case(NamedTuple):
    """A thinner in its steady state, its store, and the draws to come."""

    thinner: Thinner
    store: Store
    draws: Any
    scores: Any
    start: int

    @property
    def kernel(self) -> Any:
        return self.thinner.kernel.compiled(self.thinner.dim)


def steady(size: int, dim: int, steps: int, before: int) -> Case:
    rng = np.random.default_rng(size + dim)
    thinner = Thinner(dim, size=size)
    draws = rng.normal(size=(size + before, dim))
    thinner.extend(draws, -draws)
    draws = aligned(rng.normal(size=(steps, dim)))
    return Case(thinner, thinner._dictionary._store, draws, aligned(-draws), thinner.steps)


def duplicate(store: Store) -> Store:
    """A copy, aligned as the original is: every run starts from the same state."""
    copy = empty_store(store.tiles.shape[1], 0, len(store.copies), len(store.following))
    for mine, its in zip(copy, store, strict=True):
        mine[...] = its
    return copy


class InEngine:
    """The compiled loop alone."""

    def __init__(self, case: Case, workers: int | None) -> None:
        self.case, self.workers = case, workers
        steps, size = len(case.draws), len(case.thinner)
        self.ids = np.column_stack([np.zeros(steps, np.int64), case.start + np.arange(steps)])
        self.plan = np.full(steps, size), np.zeros(steps), np.zeros(steps), False, size
        self.log = np.zeros(steps, np.int64), np.zeros(steps), np.zeros((size + steps, 3), np.int64), np.zeros((1, 2))

    def __call__(self) -> Callable[[], object]:
        self.store = duplicate(self.case.store)
        return self.go

    def go(self) -> None:
        case = self.case
        raw = np.zeros((len(case.draws), 0))
        thin_block(
            self.store, case.kernel, None, case.draws, case.scores, raw, self.ids, 1, case.start, *self.plan, *self.log,
            self.workers,
        )  # fmt: skip

    @property
    def kept(self) -> set[int]:
        return present(self.store)

    @property
    def replaced(self) -> float:
        steps, dropped = len(self.case.draws), self.log[2]
        return float(np.mean(dropped[:steps, 2] <= self.case.start + np.arange(steps)))


class AsCalled:
    """What a user calls."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __call__(self) -> Callable[[], object]:
        thinner = self.case.thinner
        thinner._dictionary._store = duplicate(self.case.store)
        thinner.steps = thinner._numbered[0] = self.case.start
        return self.go

    def go(self) -> None:
        self.case.thinner.extend(self.case.draws, self.case.scores)

    @property
    def kept(self) -> set[int]:
        return present(self.case.thinner._dictionary._store)


class InC:
    """The loop of step.c, from the same state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.steps = library("step.c", case.thinner.dim, WIDE).steps

    def __call__(self) -> Callable[[], object]:
        store = self.case.store
        self.arrays = [aligned(part) for part in (store.tiles, store.high, store.row, store.ids[store.oldest, 1])]
        return self.go

    def go(self) -> None:
        case = self.case
        self.steps(
            *map(pointer, self.arrays), ctypes.c_long(len(case.thinner)), ctypes.c_double(case.kernel.first),
            pointer(case.draws), pointer(case.scores), ctypes.c_long(case.start), ctypes.c_long(len(case.draws)),
        )  # fmt: skip

    @property
    def kept(self) -> set[int]:
        return set(self.arrays[3][: len(self.case.thinner)].tolist())


def present(store: Store) -> set[int]:
    return set(store.ids[store.ids[:, 2] >= 0, 1].tolist())
