"""Base kernel of one draw with all stored draws, without scores: a weighted sum, or values added to a row."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from steinstream._engine import double_double
from steinstream._engine.simd import Lanes, LoopVariable, integer, loop
from steinstream.kernels import PROFILES

# Operations, as in kernel_row.
SUM = np.int64(0)  # write the sum of weight * phi, an exact pair per lane
ADD = np.int64(1)  # add phi to the row

_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(64)
_SIGNATURE = [_DOUBLE] * 3 + [_DOUBLE.as_pointer()] * 5 + [_INDEX] * 3


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
        profile, *parameters = cgutils.unpack_tuple(builder, kernel)
        structs = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[2:7], arrays, strict=True)
        ]
        dim = cgutils.unpack_tuple(builder, structs[0].shape, 1)[0]
        given = [*parameters[:2], parameters[4], *(each.data for each in structs), dim, begin, end]
        for number, variant in product(range(len(PROFILES)), (SUM, ADD)):
            chosen = builder.and_(
                builder.icmp_signed("==", profile, integer(number)),
                builder.icmp_signed("==", operation, integer(int(variant))),
            )
            with builder.if_then(chosen):
                builder.call(_function(builder.module, number, int(variant), parts), given)
        return context.get_dummy_value()

    return types.void(kernel, operation, draw, tiles, weights, row, lanes, begin, end), generate


def _function(module: Any, number: int, operation: int, parts: int) -> Any:
    """Return the LLVM function of a variant."""
    name = f"steinstream.base_row.{number}.{operation}.{parts}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), _SIGNATURE), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
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
        phi, _, _ = PROFILES[number](distance.value, alpha, beta)
        phi = (phi + shift) - shift
        if operation == SUM:
            times = phi * Lanes.load(builder, weights, tile)  # exact: weights are powers of two
            total.value, lost = double_double.two_sum(total.value, times)
            rest.value = rest.value + lost
        else:
            (Lanes.load(builder, row, tile) + phi).store(row, tile)
    if operation == SUM:
        total.value.store(lanes, integer(0))
        rest.value.store(lanes, integer(1))
    builder.ret_void()
    return function
