"""One draw against all kept ones: Stein kernel values, their exact sum and the influences, in one pass.

Points are stored in tiles of sixteen, ``tiles[t, k, 0]`` their k-th coordinates, ``tiles[t, k, 1]`` the k-th entries of
their scores, so that memory is read in one stream and a whole tile is computed in registers. Cost: about five
arithmetic operations per coordinate and pair, and per pair one square root and one division (IMQ) or one exponential.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from steinstream._engine import exact
from steinstream._engine.jit import inlined
from steinstream._engine.lanes import LANES, Lanes, Variable, integer, loop
from steinstream.kernels import PROFILES

# What a sweep does with the kernel values.
# (Not plain integers: for each of those numba would compile every function that passes one on.)
ROW = np.int64(0)  # write them down
LOOK = np.int64(1)  # sum them
WEIGH = np.int64(2)  # write them down, sum them, find the greatest influence if they were added
REMOVE = np.int64(3)  # take them out of the influences

CACHE = 1 << 18  # bytes of points to stay with while many rows pass: a share of the second-level cache

# Rows of the array in which a sweep leaves its findings, sixteen lanes each.
HIGH, LOW, GREATEST = 0, 1, 2


class _Arguments(NamedTuple):
    """The sweep as a function of the compiled program: numbers, pointers to doubles, indices."""

    first: Any  # the kernel's parameters and grid
    second: Any
    grid: Any
    draw: Any  # (2, d): the draw and its score
    tiles: Any
    copies: Any  # how often each stored point counts; 0 where there is none
    high: Any  # the influences, as exact pairs
    low: Any
    row: Any  # out: the kernel values, where the move writes them down
    found: Any  # out: HIGH and LOW of the sum of copies * row, GREATEST influence
    dim: Any
    begin: Any  # from this tile to that one, not included
    end: Any


_SIGNATURE = ir.FunctionType(
    ir.VoidType(), [ir.DoubleType()] * 3 + [ir.DoubleType().as_pointer()] * 7 + [ir.IntType(64)] * 3
)


@intrinsic
def sweep_tiles(
    context: Any, profile: Any, first: Any, second: Any, grid: Any, move: Any, draw: Any, tiles: Any,
    copies: Any, high: Any, low: Any, row: Any, found: Any, begin: Any, end: Any,
) -> Any:  # fmt: skip
    """Run the sweep for this kernel profile and this move over the tiles from begin to end; at least one."""
    arguments = (profile, first, second, grid, move, draw, tiles, copies, high, low, row, found, begin, end)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        profile, first, second, grid, move, *arrays, begin, end = values
        arrays = [
            context.make_array(kind)(context, builder, array)
            for kind, array in zip(signature.args[5:12], arrays, strict=True)
        ]
        dim = cgutils.unpack_tuple(builder, arrays[0].shape, 2)[1]
        given = (first, second, grid, *(array.data for array in arrays), dim, begin, end)
        for number, variant in product(range(len(PROFILES)), (ROW, LOOK, WEIGH, REMOVE)):
            chosen = builder.and_(
                builder.icmp_signed("==", profile, integer(number)),
                builder.icmp_signed("==", move, integer(int(variant))),
            )
            with builder.if_then(chosen):
                builder.call(_function(builder.module, number, int(variant)), given)
        return context.get_dummy_value()

    return types.void(*arguments), generate


def _function(module: Any, profile: int, move: int) -> Any:
    """The sweep's variant in this module. Never inlined: it is long, and called from several places."""
    name = f"steinstream.sweep.{profile}.{move}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, _SIGNATURE, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    _trace(builder, _Arguments(*function.args), PROFILES[profile], move)
    builder.ret_void()
    return function


def _trace(builder: Any, given: _Arguments, profile: Callable[..., Any], move: int) -> None:
    dimension = Lanes.fill(builder, builder.sitofp(given.dim, given.grid.type))
    first, second, grid = (Lanes.fill(builder, value) for value in (given.first, given.second, given.grid))
    shift = grid * (1.5 * 2.0**52)

    distance, cross, scores, total, rest, greatest, pending = (Variable(builder) for _ in range(7))
    total.value = rest.value = 0.0
    greatest.value = -np.inf

    def compare(tile: Any) -> Lanes:
        """The kernel values of a tile."""
        distance.value = cross.value = scores.value = 0.0
        with loop(builder, integer(0), given.dim) as k:
            here, slope_here = (
                Lanes.fill(builder, builder.load(builder.gep(given.draw, [place])))
                for place in (k, builder.add(given.dim, k))
            )
            at = builder.mul(builder.add(builder.mul(tile, given.dim), k), integer(2))
            there, slope_there = (Lanes.load(builder, given.tiles, builder.add(at, integer(i))) for i in (0, 1))
            apart = here - there
            distance.value = apart.multiply_add(apart, distance.value)
            cross.value = (slope_here - slope_there).multiply_add(apart, cross.value)
            scores.value = slope_here.multiply_add(slope_there, scores.value)

        u = distance.value
        phi, slope, curvature = profile(u, first, second)
        k0 = phi.multiply_add(scores.value, slope.multiply_add(cross.value + dimension, -(curvature * u)))
        on_grid: Lanes = (k0 + shift) - shift  # more than 2^52 grids away from 0 every double is on it
        return on_grid

    def absorb(tile: Any, k0: Lanes) -> None:
        """Let the sum and the influences take in a tile's kernel values."""
        if move in (ROW, WEIGH):
            k0.store(given.row, tile)
        if move in (LOOK, WEIGH):
            count = Lanes.load(builder, given.copies, tile)
            times = k0 * count
            error = k0.multiply_add(count, -times)
            total.value, lost = exact.two_sum(total.value, times)
            rest.value = rest.value + (lost + error)
        if move in (WEIGH, REMOVE):
            before = Lanes.load(builder, given.high, tile), Lanes.load(builder, given.low, tile)
            influence, remainder = exact.add(*before, k0 if move == WEIGH else -k0)
            greatest.value = greatest.value.where_less(influence, influence, greatest.value)
        if move == REMOVE:
            influence.store(given.high, tile)
            remainder.store(given.low, tile)

    # Divisions and square roots of one tile run while the sums of the tile before are made.
    pending.value = compare(given.begin)
    with loop(builder, builder.add(given.begin, integer(1)), given.end) as tile:
        k0 = compare(tile)
        absorb(builder.sub(tile, integer(1)), pending.value)
        pending.value = k0
    absorb(builder.sub(given.end, integer(1)), pending.value)

    for place, variable in ((HIGH, total), (LOW, rest), (GREATEST, greatest)):
        variable.value.store(given.found, integer(place))


@inlined
def collect(found):
    """The sum over all lanes (a pair), and the greatest influence."""
    high, low, greatest = 0.0, 0.0, -np.inf
    for lane in range(LANES):
        high, lost = exact.two_sum(high, found[HIGH, lane])
        low += lost + found[LOW, lane]
        greatest = max(greatest, found[GREATEST, lane])
    high, low = exact.two_sum(high, low)
    return high, low, greatest
