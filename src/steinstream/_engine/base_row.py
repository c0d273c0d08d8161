"""Base kernel of one draw with all stored draws, without scores: a weighted sum, or values added to a row.

The draws, or their features, in the coordinates of the kernel are called *base vectors*.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from steinstream._engine import double_double
from steinstream._engine.by_reference import read_field
from steinstream._engine.jit import inlined
from steinstream._engine.kernel_row import KERNEL_ROWS, call_row
from steinstream._engine.simd import LANES, Lanes, LoopVariable, integer, loop
from steinstream._engine.translation import translated
from steinstream._typing import Array

# Operations, as in kernel_row.
SUM_BASE = np.int64(0)  # write the sum of weight * phi, an exact pair per lane
ADD_BASE = np.int64(1)  # add phi to the row

_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(64)
_SIGNATURE = ir.FunctionType(ir.VoidType(), [_DOUBLE] * 3 + [_DOUBLE.as_pointer()] * 5 + [_INDEX] * 3)

#: Variants of a base row: operation, and arrays per stored draw: 1, or 2 with scores. In the table of addresses of a
#: kernel they follow the variants of a kernel row.
BASE_ROWS = ((SUM_BASE, 1), (ADD_BASE, 1), (SUM_BASE, 2), (ADD_BASE, 2))


@intrinsic
def base_row(
    context: Any,
    kernel: Any,
    operation: Any,
    draw: Any,
    tiles: Any,
    weights: Any,
    row: Any,
    lanes: Any,
    begin: Any,
    end: Any,
) -> Any:
    """Compute the base kernel of a draw (d,) over the tiles from ``begin`` to ``end - 1``.

    ``tiles`` is (tiles, d, 16), or (tiles, d, 2, 16) with scores; ``weights`` and ``row`` are (slots,), ``lanes`` is
    (2, 16).

    Reference: `kernels.Kernel.base_matrix`.
    """
    parts = 2 if tiles.ndim == 4 else 1

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kernel, operation, *arrays, begin, end = values
        parameter = partial(read_field, context, builder, signature.args[0], kernel)
        structs = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[2:7], arrays, strict=True)
        ]
        dim = cgutils.unpack_tuple(builder, structs[0].shape, 1)[0]
        given = [parameter(name) for name in ("first", "second", "base_grid")]
        given += [*(each.data for each in structs), dim, begin, end]
        variant = builder.add(operation, integer(len(KERNEL_ROWS) + BASE_ROWS.index((SUM_BASE, parts))))
        call_row(builder, parameter("rows"), variant, _SIGNATURE, given)
        return context.get_dummy_value()

    return types.void(kernel, operation, draw, tiles, weights, row, lanes, begin, end), generate


def base_row_function(module: Any, profile: Callable[..., Any], variant: tuple[Any, int]) -> Any:
    """Add the LLVM function of a variant to a module."""
    operation, parts = variant
    function = ir.Function(module, _SIGNATURE, f"steinstream.base_row.{operation}.{parts}")
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    first, second, grid, draw, tiles, weights, row, lanes, dim, begin, end = function.args
    alpha, beta = Lanes.fill(builder, first), Lanes.fill(builder, second)
    shift = Lanes.fill(builder, grid) * (1.5 * 2.0**52)
    distance, total, rest = (LoopVariable(builder) for _ in range(3))
    total.value = rest.value = 0.0
    with loop(builder, begin, end) as tile:
        distance.value = 0.0
        with loop(builder, integer(0), dim) as k:
            here = Lanes.fill(builder, builder.load(builder.gep(draw, [k])))
            at = builder.mul(builder.add(builder.mul(tile, dim), k), integer(parts))
            difference = here - Lanes.load(builder, tiles, at)
            distance.value = difference.multiply_add(difference, distance.value)
        phi, _, _ = profile(distance.value, alpha, beta)
        phi = (phi + shift) - shift
        if operation == SUM_BASE:
            times = phi * Lanes.load(builder, weights, tile)  # exact: weights are powers of two
            total.value, lost = double_double.two_sum(total.value, times)
            rest.value = rest.value + lost
        else:
            (Lanes.load(builder, row, tile) + phi).store(row, tile)
    if operation == SUM_BASE:
        total.value.store(lanes, integer(0))
        rest.value.store(lanes, integer(1))
    builder.ret_void()
    return function


@inlined
def row_total(kernel, point, tiles, weights, lanes, count):
    """Return the exact sum of weight * phi(point, y) over the first ``count`` stored draws, rounded once.

    Reference: `reference.ReferenceSummary.sum`.
    """
    if count == 0:
        return 0.0
    base_row(kernel, SUM_BASE, point, tiles, weights, weights, lanes, 0, (count + LANES - 1) // LANES)
    high, low = 0.0, 0.0
    for lane in range(LANES):
        high, lost = double_double.two_sum(high, lanes[0, lane])
        low += lost + lanes[1, lane]
    return high + low


# -- many draws ----------------------------------------------------------------------------------------------------


def base_tiles(base: Array) -> Array:
    """Arrange base vectors (n, q) in tiles (tiles, q, 16), the last one padded with zeros."""
    tiles, slot = np.zeros((-(-len(base) // LANES), base.shape[1], LANES)), np.arange(len(base))
    tiles[slot // LANES, :, slot % LANES] = base
    return tiles


def padded(values: Array) -> Array:
    """Return values with zeros up to a multiple of 16."""
    longer = np.zeros(-(-len(values) // LANES) * LANES)
    longer[: len(values)] = values
    return longer


def base_row_sums(kernel: Any, tiles: Array, masses: Array, base: Array) -> Array:
    """Return the sum of mass * phi over the tiled base vectors for each of some base vectors (n, q).

    Reference: `reference.base_values`.
    """
    sums = np.zeros(len(base))
    _fill_sums(kernel, tiles, masses, np.ascontiguousarray(base), np.zeros((2, LANES)), sums)
    return sums


@translated
def _fill_sums(kernel, tiles, masses, base, lanes, sums):
    """Write the sums. Storage bookkeeping."""
    for i in range(base.shape[0]):
        sums[i] = row_total(kernel, base[i], tiles, masses, lanes, masses.shape[0])


def base_matrix(kernel: Any, tiles: Array, base: Array) -> Array:
    """Return phi of each of some base vectors (n, q) with each tiled one, (n, 16 tiles).

    Reference: `reference.base_values`.
    """
    values = np.zeros((len(base), len(tiles) * LANES))
    _fill_matrix(kernel, tiles, np.ascontiguousarray(base), np.zeros((2, LANES)), values)
    return values


@translated
def _fill_matrix(kernel, tiles, base, lanes, values):
    """Write the values. Storage bookkeeping."""
    for i in range(base.shape[0]):
        base_row(kernel, ADD_BASE, base[i], tiles, values[i], values[i], lanes, 0, tiles.shape[0])
