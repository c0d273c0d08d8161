"""Whole steps of a full thinner (size reached, steady state): the engine against C with plain sums.

Microseconds per step; IMQ, draws from a standard normal. *C* runs on one thread and uses sums in plain doubles, which
are fast but neither exact nor free of drift. The engine runs on one thread, on all threads (only long kernel rows are
shared), and through Thinner.extend, with validation and records. *replaced* is the share of steps that remove an
older draw and so cost a second kernel row. *same ids* lists the contenders that kept the same draws as one thread
did. *threads* uses all cores at every step, which is meaningful only if all of them are free: a thread that waits for
its core delays the others. *extend* uses one thread here: several are tried only in long runs. All of them select by
KSD alone; *stream term* is Thinner.extend with the default objective, relative to the same loop in C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.native import WIDE, aligned, library, pointer
from benchmarks.race import race
from benchmarks.steady import Steady
from benchmarks.table import Options, Row
from steinstream import Thinner
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.jit import threads
from steinstream._engine.state import KeptState, copy_state
from steinstream._engine.step_rule import StepLimits
from steinstream._engine.thinning import Batch, StepLog, thin_block

SIZES = (100, 1000, 10_000)
DIMENSIONS = (2, 10, 38)


def run(options: Options) -> list[Row]:
    return [measure(size, dim, options.quick) for size in SIZES for dim in DIMENSIONS]


def measure(size: int, dim: int, quick: bool) -> Row:
    steps = max(100, int(2e7 / (size * (dim + 8))))  # some ten milliseconds
    before = 2 * size if quick else max(50_000, 5 * size)
    steady = Steady(size, dim, steps=steps, before=before)
    case = Case.of(steady)
    alone = InEngine(case, None)
    others = {"C": InC(case), "threads": InEngine(case, threads()), "extend": AsCalled(steady)}
    with_stream = AsCalled(Steady(size, dim, steps=steps, before=before, stream_weight=1.0))
    best = race({"one thread": alone, "stream term": with_stream, **others}, 1.0 if quick else 5.0)
    return {
        "kept": size,
        "d": dim,
        **{f"{who}, us": best[who] / steps * 1e6 for who in ("C", "one thread", "threads", "extend")},
        "one thread / C": best["one thread"] / best["C"],
        "extend / C": best["extend"] / best["C"],
        "stream term / C": best["stream term"] / best["C"],
        "one thread / threads": best["one thread"] / best["threads"],
        "replaced": f"{alone.replaced:.0%}",
        "same ids": ", ".join(who for who, other in others.items() if other.kept == alone.kept),
    }


class Case(NamedTuple):
    """Arrays of a thinner in its steady state, and the draws of a run."""

    state: KeptState
    kernel: Any
    draws: Any
    scores: Any
    start: int
    size: int

    @classmethod
    def of(cls, steady: Steady) -> Case:
        thinner = steady.thinner()
        state, kernel = thinner.state.dictionary.engine_state, compile_kernel(thinner.config.kernel, thinner.dim)
        return cls(state, kernel, aligned(steady.draws), aligned(-steady.draws), steady.start, len(thinner))


class InEngine:
    """The compiled loop alone."""

    def __init__(self, case: Case, workers: int | None) -> None:
        self.case, self.workers = case, workers or 1
        steps, size = len(case.draws), case.size
        ids = np.column_stack([np.zeros(steps, np.int64), case.start + np.arange(steps)])
        raw, scratch = np.zeros((steps, 0)), np.zeros((1, 2))
        self.batch = Batch(case.draws, case.scores, raw, ids, candidates=1, start=case.start, influence=scratch)
        self.limits = StepLimits(np.full(steps, size), np.zeros(steps), np.zeros(steps), cap=size)
        sizes, dropped = np.zeros(steps, np.int64), np.zeros((size + steps, 3), np.int64)
        self.log = StepLog(sizes, np.zeros(steps), np.zeros(steps), dropped)

    def __call__(self) -> Callable[[], object]:
        state = self.case.state
        self.state = copy_state(state, len(state.copies), len(state.following))
        return self.go

    def go(self) -> None:
        thin_block(self.state, self.case.kernel, None, self.batch, self.limits, self.log, workers=self.workers)

    @property
    def kept(self) -> set[int]:
        return set(self.state.ids[self.state.ids[:, 2] >= 0, 1].tolist())

    @property
    def replaced(self) -> float:
        steps = len(self.case.draws)
        return float(np.mean(self.log.dropped[:steps, 2] <= self.case.start + np.arange(steps)))


class AsCalled:
    """Thinner.extend."""

    def __init__(self, steady: Steady) -> None:
        self.steady = steady

    def __call__(self) -> Callable[[], object]:
        self.thinner: Thinner = self.steady.thinner()
        return lambda: self.steady.extend(self.thinner, self.steady.draws)

    @property
    def kept(self) -> set[int]:
        return set(self.thinner.kept.ids[:, 1].tolist())


class InC:
    """The loop of step.c, from the same state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.steps = library("step.c", case.draws.shape[1], WIDE).steps

    def __call__(self) -> Callable[[], object]:
        state = self.case.state
        self.arrays = [aligned(part) for part in (state.tiles, state.influence, state.row, state.ids[state.oldest, 1])]
        return self.go

    def go(self) -> None:
        case = self.case
        tiles, influence, row, ids = map(pointer, self.arrays)
        size, steps, start = (ctypes.c_long(value) for value in (case.size, len(case.draws), case.start))
        draws, scores, first = pointer(case.draws), pointer(case.scores), ctypes.c_double(case.kernel.first)
        arguments = (tiles, influence, row, ids, size, first, draws, scores, start, steps)
        self.steps(*arguments)

    @property
    def kept(self) -> set[int]:
        return set(self.arrays[3][: self.case.size].tolist())
