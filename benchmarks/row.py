"""Kernel rows, one draw against many: the engine against C.

Nanoseconds per kernel evaluation. *C* is the fastest of several strict variants: tiles of 8, 16 and 32 draws and plain
columns, each with two sets of compiler flags. *loose C* is the fastest variant that may violate IEEE arithmetic
(-ffast-math, the exp of libmvec, an approximate inverse square root). The last columns are ratios to *C*: the kernel
values alone (store), with the exact sum (sum), with the sum and the largest influence (evaluate), subtracted from the
influences (subtract). Each contender warms the cache before it is timed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.native import FAST, STRICT, WIDE, aligned, library, pointer
from benchmarks.race import race, repeating
from benchmarks.table import Options, Row, at_most
from steinstream import IMQ, RBF
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import EVALUATE, STORE, SUBTRACT, SUM, RowArrays, compute_row, new_lanes
from steinstream._engine.pairwise import as_tiles
from steinstream._engine.simd import LANES
from steinstream._engine.state import empty_state
from steinstream.kernels import Kernel

SIZES = ((2, 960), (2, 8192), (4, 960), (4, 8192), (10, 960), (38, 960), (200, 960), (1000, 960))
OPERATIONS = {"store": STORE, "sum": SUM, "evaluate": EVALUATE, "subtract": SUBTRACT}
FLAT = 38  # from this dimension on, columns are slow, also to compile

Run = Callable[[int], object]


def run(options: Options) -> list[Row]:
    return [
        measure(name, kernel, dim, count, 0.3 if options.quick else 3.0)
        for name, kernel in (("IMQ", IMQ()), ("RBF", RBF()))
        for dim, count in (SIZES[::3] if options.quick else SIZES)
    ]


def measure(name: str, kernel: Kernel, dim: int, count: int, seconds: float) -> Row:
    rng = np.random.default_rng(dim)
    points, draw = rng.normal(size=(count, dim)), rng.normal(size=dim)
    times = max(10, int(1e6 / (count * (1 + dim / 5))))  # about a millisecond
    expected = kernel.matrix(draw, -draw, points, -points)[0]

    strict, loose = variants(name.lower(), kernel, points, draw, expected)
    contenders = {
        "C": fastest(strict, times, seconds / 3),
        "loose": fastest(loose, times, seconds / 3),
        **engine(kernel, points, draw, expected),
    }
    best = race({who: repeating(contender, times) for who, contender in contenders.items()}, seconds)
    ratios = {name: best[name] / best["C"] for name in OPERATIONS}
    goal = at_most(ratios["store"], 1.2 if dim <= 4 else 1.5) if name == "IMQ" else ""
    nanoseconds = {who: best[who] / (times * count) * 1e9 for who in ("C", "loose", "store")}
    return {
        "kernel": name,
        "d": dim,
        "points": count,
        "C, ns": nanoseconds["C"],
        "loose C, ns": nanoseconds["loose"],
        "engine, ns": nanoseconds["store"],
        **ratios,
        "goal (store)": goal,
    }


def fastest(runs: list[Run], times: int, seconds: float) -> Run:
    best = race({str(i): repeating(run, times) for i, run in enumerate(runs)}, seconds)
    return runs[min(range(len(runs)), key=lambda i: best[str(i)])]


def engine(kernel: Kernel, points: Any, draw: Any, expected: Any) -> dict[str, Run]:
    """The rows of the engine, over one state."""
    count, dim = points.shape
    state = empty_state(dim, 0, count, count)
    state.tiles[:] = as_tiles(points, -points)
    state.copies[:] = 1.0
    state.influence[:] = 0.0
    state.draw[:] = draw, -draw
    compiled = compile_kernel(kernel, dim)
    rows = {name: partial(repeat_row, state, compiled, operation) for name, operation in OPERATIONS.items()}
    rows["store"](1)
    if not np.allclose(state.row, expected):
        raise ArithmeticError(f"The row of the engine is wrong at d = {dim}.")
    return rows


@jit
def repeat_row(state, kernel, operation, times):
    lanes = new_lanes()
    arrays = RowArrays(state.draw, state.tiles, state.copies, state.influence, state.influence_low, state.row, lanes)
    for _ in range(times):
        compute_row(kernel, operation, arrays, None, 0, state.tiles.shape[0])


def variants(name: str, kernel: Kernel, points: Any, draw: Any, expected: Any) -> tuple[list[Run], list[Run]]:
    """The strict and the loose C functions, each compared with the NumPy kernel."""
    count, dim = points.shape
    both = np.stack([points, -points], axis=1)
    layouts = {
        f"tiles_{width}": aligned(both.reshape(-1, width, 2, dim).transpose(0, 3, 2, 1))
        for width in (LANES // 2, LANES, 2 * LANES)
    }
    if dim < FLAT:
        layouts["columns"] = aligned(both.transpose(2, 1, 0))

    def function(label: str, layout: str, flags: str) -> Run:
        row, score = aligned(np.zeros(count)), -draw
        arrays = layouts[layout], draw, score, row
        call = getattr(library("row.c", dim, flags), f"{label}_{layout}")
        parameter = ctypes.c_double(kernel.parameters(dim).first)

        def row_often(times: int) -> None:
            tiles, x, s, out = map(pointer, arrays)
            call(tiles, x, s, parameter, ctypes.c_long(count), out, ctypes.c_long(times))

        row_often(1)
        if not np.allclose(row, expected):
            raise ArithmeticError(f"{label}_{layout} with {flags} is wrong at d = {dim}.")
        return row_often

    strict = [function(name, layout, flags) for layout in layouts for flags in (STRICT, WIDE)]
    loose = [function(name, layout, FAST) for layout in layouts]
    if name == "imq":
        loose += [function("rough", layout, WIDE) for layout in layouts if layout != "columns"]
    return strict, loose
