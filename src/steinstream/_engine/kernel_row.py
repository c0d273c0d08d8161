"""One draw against all kept ones: Stein kernel values, their exact sum and the influences, in one pass.

Points are stored in tiles of sixteen, ``tiles[t, k, 0]`` their k-th coordinates, ``tiles[t, k, 1]`` the k-th entries of
their scores, so that memory is read in one stream and a whole tile is computed in registers. Cost: about five
arithmetic operations per coordinate and pair, and per pair one square root and one division (IMQ) or one exponential.
A linear term in the kernel takes two operations more per coordinate, a guide (:mod:`steinstream._engine.penalties`) two per
wave; both are compiled in only where they are asked for, that is, where their argument is not None.
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

from steinstream._engine import double_double
from steinstream._engine.jit import inlined
from steinstream._engine.simd import LANES, Lanes, Variable, integer, loop
from steinstream.kernels import PROFILES

# What a sweep does with the kernel values.
# (Not plain integers: for each of those numba would compile every function that passes one on.)
ROW = np.int64(0)  # write them down
LOOK = np.int64(1)  # sum them
WEIGH = np.int64(2)  # write them down, sum them, find the greatest influence if they were added
REMOVE = np.int64(3)  # take them out of the influences

CACHE = 1 << 18  # bytes of points to stay with while many rows pass: a share of the second-level cache

# Places in a guide's numbers.
WEIGHT, SCALE = 0, 1

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


class _Guidance(NamedTuple):
    """What a guide adds: the search is for the greatest influence + weight <lean, waves> + scale * dear."""

    lean: Any  # these two in single precision
    waves: Any
    dear: Any
    keys: Any  # out: influence + weight <lean, waves>
    weight: Any
    scale: Any
    count: Any  # of waves


_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(64)
_PLAIN = [_DOUBLE] * 3 + [_DOUBLE.as_pointer()] * 7 + [_INDEX] * 3
_POINTERS = [ir.FloatType().as_pointer()] * 2 + [_DOUBLE.as_pointer()] * 2
_FROM_GUIDE = ("lean", "waves", "dear", "keys", "numbers")
_GUIDED = [*_POINTERS, _DOUBLE, _DOUBLE, _INDEX]


@intrinsic
def sweep_tiles(
    context: Any, kernel: Any, move: Any, draw: Any, tiles: Any, copies: Any, high: Any, low: Any,
    row: Any, found: Any, guide: Any, begin: Any, end: Any,
) -> Any:  # fmt: skip
    """Run the sweep for this kernel and this move over the tiles from begin to end; at least one.

    ``guide`` is None or a :class:`~steinstream._engine.penalties.Guide`.
    """
    arguments = (kernel, move, draw, tiles, copies, high, low, row, found, guide, begin, end)
    linear = not isinstance(kernel.types[4], types.NoneType)
    guided = not isinstance(guide, types.NoneType)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def array(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value)

        kernel, move, *arrays, guide, begin, end = values
        profile, *parameters = cgutils.unpack_tuple(builder, kernel)
        arrays = [array(kind, value) for kind, value in zip(signature.args[2:9], arrays, strict=True)]
        dim = cgutils.unpack_tuple(builder, arrays[0].shape, 2)[1]
        given = [*parameters[:3], *(each.data for each in arrays), dim, begin, end]
        if linear:
            given.append(parameters[3])
        if guided:
            kind = signature.args[9]
            parts = zip(kind.fields, kind.types, cgutils.unpack_tuple(builder, guide), strict=True)
            named = {name: array(part, value) for name, part, value in parts if name in _FROM_GUIDE}
            *pointers, numbers = (named[name].data for name in _FROM_GUIDE)
            weights = [builder.load(builder.gep(numbers, [integer(place)])) for place in (WEIGHT, SCALE)]
            given += [*pointers, *weights, cgutils.unpack_tuple(builder, named["lean"].shape, 1)[0]]
        for number, variant in product(range(len(PROFILES)), (ROW, LOOK, WEIGH, REMOVE)):
            chosen = builder.and_(
                builder.icmp_signed("==", profile, integer(number)),
                builder.icmp_signed("==", move, integer(int(variant))),
            )
            with builder.if_then(chosen):
                searches = guided and variant in (WEIGH, REMOVE)
                chosen = _function(builder.module, number, int(variant), linear, searches)
                builder.call(chosen, given if searches else given[: len(_PLAIN) + linear])
        return context.get_dummy_value()

    return types.void(*arguments), generate


def _function(module: Any, profile: int, move: int, linear: bool, guided: bool) -> Any:
    """The sweep's variant in this module. Never inlined: it is long, and called from several places."""
    name = f"steinstream.sweep.{profile}.{move}.{linear:d}.{guided:d}"
    if name in module.globals:
        return module.globals[name]
    signature = ir.FunctionType(ir.VoidType(), _PLAIN + [_DOUBLE] * linear + _GUIDED * guided)
    function = ir.Function(module, signature, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    plain, more = _Arguments(*function.args[: len(_PLAIN)]), list(function.args[len(_PLAIN) :])
    slant = more.pop(0) if linear else None
    _trace(builder, plain, PROFILES[profile], move, slant, _Guidance(*more) if guided else None)
    builder.ret_void()
    return function


def _trace(
    builder: Any, given: _Arguments, profile: Callable[..., Any], move: int, slant: Any, guidance: _Guidance | None
) -> None:
    dimension = Lanes.fill(builder, builder.sitofp(given.dim, given.grid.type))
    first, second, grid = (Lanes.fill(builder, value) for value in (given.first, given.second, given.grid))
    shift = grid * (1.5 * 2.0**52)

    distance, cross, scores, total, rest, greatest, pending = (Variable(builder) for _ in range(7))
    total.value = rest.value = 0.0
    greatest.value = -np.inf
    products, own, mine = (Variable(builder) for _ in range(3))

    def draw_at(k: Any) -> tuple[Lanes, Lanes]:
        """Coordinate k of the draw and of its score."""
        here, slope = (
            Lanes.fill(builder, builder.load(builder.gep(given.draw, [place])))
            for place in (k, builder.add(given.dim, k))
        )
        return here, slope

    if slant is not None:
        mine.value = 0.0
        with loop(builder, integer(0), given.dim) as k:
            here, slope = draw_at(k)
            mine.value = slope.multiply_add(here, mine.value)

    def compare(tile: Any) -> Lanes:
        """The kernel values of a tile."""
        distance.value = cross.value = scores.value = 0.0
        if slant is not None:
            products.value = own.value = 0.0
        with loop(builder, integer(0), given.dim) as k:
            here, slope_here = draw_at(k)
            at = builder.mul(builder.add(builder.mul(tile, given.dim), k), integer(2))
            there, slope_there = (Lanes.load(builder, given.tiles, builder.add(at, integer(i))) for i in (0, 1))
            apart = here - there
            distance.value = apart.multiply_add(apart, distance.value)
            cross.value = (slope_here - slope_there).multiply_add(apart, cross.value)
            scores.value = slope_here.multiply_add(slope_there, scores.value)
            if slant is not None:
                products.value = here.multiply_add(there, products.value)
                own.value = slope_there.multiply_add(there, own.value)

        u = distance.value
        phi, slope, curvature = profile(u, first, second)
        k0 = phi.multiply_add(scores.value, slope.multiply_add(cross.value + dimension, -(curvature * u)))
        if slant is not None:
            both = (mine.value + own.value) + dimension
            extra = scores.value.multiply_add(products.value + 1.0, both)
            k0 = Lanes.fill(builder, slant).multiply_add(extra, k0)
        on_grid: Lanes = (k0 + shift) - shift  # more than 2^52 grids away from 0 every double is on it
        return on_grid

    def guide(tile: Any, influence: Lanes) -> Lanes:
        """What the search goes by: the influence and where the guide leans."""
        if guidance is None:
            return influence
        leans = Lanes.product(builder, guidance.lean, guidance.waves, tile, guidance.count)
        key = Lanes.fill(builder, guidance.weight).multiply_add(leans, influence)
        key.store(guidance.keys, tile)
        return Lanes.fill(builder, guidance.scale).multiply_add(Lanes.load(builder, guidance.dear, tile), key)

    def absorb(tile: Any, k0: Lanes) -> None:
        """Let the sum and the influences take in a tile's kernel values."""
        if move in (ROW, WEIGH):
            k0.store(given.row, tile)
        if move in (LOOK, WEIGH):
            count = Lanes.load(builder, given.copies, tile)
            times = k0 * count
            error = k0.multiply_add(count, -times)
            total.value, lost = double_double.two_sum(total.value, times)
            rest.value = rest.value + (lost + error)
        if move in (WEIGH, REMOVE):
            before = Lanes.load(builder, given.high, tile), Lanes.load(builder, given.low, tile)
            influence, remainder = double_double.add(*before, k0 if move == WEIGH else -k0)
            key = guide(tile, influence)
            greatest.value = greatest.value.where_less(key, key, greatest.value)
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
        high, lost = double_double.two_sum(high, found[HIGH, lane])
        low += lost + found[LOW, lane]
        greatest = max(greatest, found[GREATEST, lane])
    high, low = double_double.two_sum(high, low)
    return high, low, greatest
