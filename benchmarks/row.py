"""One draw against many points: the engine's sweeps against C.

Nanoseconds per kernel evaluation. *C* is the fastest of several strict variants: tiles of 8, 16 and 32 points and
plain columns, each with two sets of compiler flags. *loose C* is the fastest that may break the rules of IEEE
arithmetic (-ffast-math, libmvec's exp, an approximate inverse square root). The last columns are ratios to *C*: the
engine's row alone, with the exact sum (look), with the sum and the greatest influence (weigh), with the influences
(remove). Each contender warms the cache before it is timed.
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
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import LOOK, REMOVE, ROW, WEIGH, sweep_tiles
from steinstream._engine.pairwise import as_tiles
from steinstream._engine.simd import LANES
from steinstream._engine.state import empty_store
from steinstream.kernels import Kernel

SIZES = ((2, 960), (2, 8192), (4, 960), (4, 8192), (10, 960), (38, 960), (200, 960), (1000, 960))
MOVES = {"row": ROW, "look": LOOK, "weigh": WEIGH, "remove": REMOVE}
FLAT = 38  # beyond this dimension columns are hopeless, and slow to compile

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
    ratios = {move: best[move] / best["C"] for move in MOVES}
    goal = at_most(ratios["row"], 1.2 if dim <= 4 else 1.5) if name == "IMQ" else ""
    nanoseconds = {who: best[who] / (times * count) * 1e9 for who in ("C", "loose", "row")}
    return {
        "kernel": name,
        "d": dim,
        "points": count,
        "C, ns": nanoseconds["C"],
        "loose C, ns": nanoseconds["loose"],
        "engine, ns": nanoseconds["row"],
        **ratios,
        "goal (row)": goal,
    }


def fastest(runs: list[Run], times: int, seconds: float) -> Run:
    best = race({str(i): repeating(run, times) for i, run in enumerate(runs)}, seconds)
    return runs[min(range(len(runs)), key=lambda i: best[str(i)])]


def engine(kernel: Kernel, points: Any, draw: Any, expected: Any) -> dict[str, Run]:
    """The engine's sweeps, over one store."""
    count, dim = points.shape
    store = empty_store(dim, 0, count, count)
    store.tiles[:] = as_tiles(points, -points)
    store.copies[:] = 1.0
    store.high[:] = 0.0
    both = np.stack([draw, -draw])
    sweeps = {name: partial(sweep_often, store, kernel.compiled(dim), move, both) for name, move in MOVES.items()}
    sweeps["row"](1)
    if not np.allclose(store.row, expected):
        raise ArithmeticError(f"The engine's row is wrong at d = {dim}.")
    return sweeps


@jit
def sweep_often(store, kernel, move, draw, times):
    for _ in range(times):
        sweep_tiles(
            kernel, move, draw, store.tiles, store.copies, store.high, store.low, store.row, store.found,
            None, 0, store.tiles.shape[0],
        )  # fmt: skip


def variants(name: str, kernel: Kernel, points: Any, draw: Any, expected: Any) -> tuple[list[Run], list[Run]]:
    """The strict and the loose C functions, each checked against the readable kernel."""
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
        parameter = ctypes.c_double(kernel.compiled(dim).first)

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
