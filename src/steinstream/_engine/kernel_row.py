"""Stein kernel of one draw with all stored draws: values, their exact sum and the influences, in one pass.

Stored draws are arranged in tiles of sixteen: ``tiles[t, k, 0]`` holds their k-th coordinates, ``tiles[t, k, 1]`` the
k-th entries of their scores. Memory is read in one stream and a whole tile is computed in registers. The cost is about
five arithmetic operations per coordinate and pair, and per pair one square root and one division (IMQ) or one
exponential (RBF). A linear term in the kernel takes two more operations per coordinate; penalties
(:mod:`steinstream._engine.penalties`) take a few per pair.

Each variant is one LLVM function. It is compiled once per kernel (:mod:`steinstream._engine.compiled_kernel`) and
called by its address, so that the functions that use it compile fast and serve all kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from steinstream._engine import double_double
from steinstream._engine.by_reference import read_field
from steinstream._engine.jit import inlined, inlined_with_arrays
from steinstream._engine.simd import LANES, Lanes, LoopVariable, integer, loop

# Operations: what is done with the kernel values of a row.
# They are not plain integers: numba would compile each function that passes one on once per value.
STORE = np.int64(0)  # write them
SUM = np.int64(1)  # sum them
EVALUATE = np.int64(2)  # write and sum them; find the largest influence if they were added
SUBTRACT = np.int64(3)  # subtract them from the influences; find the largest influence

CACHE = 1 << 18  # bytes of tiles that are reused while many rows are computed: a part of the second-level cache


class LaneResults(NamedTuple):
    """Results of a row, one number per lane (16,)."""

    sums: Any  # of copies * kernel value
    errors: Any  # rounding errors of the sums
    largest: Any  # influence or penalised key
    base_sums: Any  # of copies * phi, with penalties


class RowArrays(NamedTuple):
    """Arrays that a row reads and writes."""

    draw: Any  # (2, d): the draw and its score
    tiles: Any  # (tiles, d, 2, 16): the stored draws and their scores
    copies: Any  # (slots,): multiplicity or mass of each stored draw; 0 in spare slots
    influence: Any  # (slots,): influences, exact pairs
    influence_low: Any
    row: Any  # (slots,): kernel values, written by STORE and EVALUATE
    lanes: LaneResults


class RowPenalties(NamedTuple):
    """Terms that penalties add to the search for the largest influence.

    The key of a draw is stein * influence + weight * kept_sum - share * stream_sum. The search is for the largest
    penalised key, key + cost_scale * removal_cost. EVALUATE adds phi to the kept sums for the search only, and
    observed * phi to the stream sums. SUBTRACT subtracts phi from the kept sums. If ``given`` is 1, phi is that of
    features, computed before, in ``given_row``.
    """

    base_row: Any  # (slots,): written by EVALUATE: phi
    kept_sum: Any  # (slots,): sum of phi over the kept draws
    stream_sum: Any  # (slots,): sum of phi over the stream
    removal_cost: Any  # (slots,)
    keys: Any  # (slots,): written: penalised keys
    given_row: Any  # (slots,)
    stein: float
    weight: float
    share: float
    observed: float
    cost_scale: float
    given: float


class _Arguments(NamedTuple):
    """Arguments of the LLVM function of a row: doubles, pointers to doubles, indices."""

    first: Any  # parameters and grid of the kernel
    second: Any
    grid: Any
    linear: Any  # weight of the linear term
    draw: Any
    tiles: Any
    copies: Any
    influence: Any
    influence_low: Any
    row: Any
    sums: Any
    errors: Any
    largest: Any
    base_sums: Any
    dim: Any
    begin: Any  # first tile
    end: Any  # last tile + 1


class _PenaltyArguments(NamedTuple):
    """Further arguments for penalties: as in :class:`RowPenalties`, and the grid of phi."""

    base_row: Any
    kept_sum: Any
    stream_sum: Any
    removal_cost: Any
    keys: Any
    given_row: Any
    stein: Any
    weight: Any
    share: Any
    observed: Any
    cost_scale: Any
    given: Any
    base_grid: Any


_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(64)
_PLAIN = [_DOUBLE] * 4 + [_DOUBLE.as_pointer()] * 10 + [_INDEX] * 3
_PENALISED = [_DOUBLE.as_pointer()] * 6 + [_DOUBLE] * 7


#: Variants of a row: operation, and whether there are penalties. The index of a variant is its place in the table of
#: addresses of a kernel.
KERNEL_ROWS = ((STORE, False), (SUM, False), (EVALUATE, False), (SUBTRACT, False), (EVALUATE, True), (SUBTRACT, True))


@intrinsic
def compute_row(context: Any, kernel: Any, operation: Any, arrays: Any, penalties: Any, begin: Any, end: Any) -> Any:
    """Compute the kernel row of a draw over the tiles from ``begin`` to ``end - 1``, at least one.

    ``kernel`` is a :class:`~steinstream._engine.compiled_kernel.CompiledKernel`, ``arrays`` a :class:`RowArrays`,
    ``penalties`` is None or a :class:`RowPenalties`. With penalties the operation is EVALUATE or SUBTRACT.

    Reference: `kernels.Kernel.matrix`.
    """
    penalised = not isinstance(penalties, types.NoneType)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def array(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value)

        kernel, operation, arrays, penalties, begin, end = values
        parameter = partial(read_field, context, builder, signature.args[0], kernel)
        fields = _named(builder, signature.args[2], arrays)
        fields |= _named(builder, *fields.pop("lanes"))
        structs = {name: array(*field) for name, field in fields.items()}
        dim = cgutils.unpack_tuple(builder, structs["draw"].shape, 2)[1]
        given = [parameter(name) for name in ("first", "second", "grid", "linear")]
        given += [*(each.data for each in structs.values()), dim, begin, end]
        if penalised:
            terms = [*_named(builder, signature.args[3], penalties).values()]
            given += [array(*term).data for term in terms[:6]] + [value for _, value in terms[6:]]
            given.append(parameter("base_grid"))
            operation = builder.add(operation, integer(KERNEL_ROWS.index((EVALUATE, True)) - int(EVALUATE)))
        call_row(builder, parameter("rows"), operation, _signature(penalised), given)
        return context.get_dummy_value()

    return types.void(kernel, operation, arrays, penalties, begin, end), generate


def call_row(builder: Any, table: Any, index: Any, signature: Any, arguments: list[Any]) -> None:
    """Call the function whose address is an entry of a table."""
    entry = builder.gep(builder.inttoptr(table, _INDEX.as_pointer()), [index])
    builder.call(builder.inttoptr(builder.load(entry), signature.as_pointer()), arguments)


def _named(builder: Any, kind: Any, value: Any) -> dict[str, tuple[Any, Any]]:
    """Return type and value of each field of a named tuple."""
    return dict(zip(kind.fields, zip(kind.types, cgutils.unpack_tuple(builder, value), strict=True), strict=True))


def _signature(penalised: bool) -> Any:
    """Return the type of the LLVM function of a variant."""
    return ir.FunctionType(ir.VoidType(), _PLAIN + _PENALISED * penalised)


class RowKind(NamedTuple):
    """Kernel of a row."""

    profile: Callable[..., Any]
    linear: bool  # whether there is a linear term
    scaled: bool  # whether the kernel is scaled: see `compiled_kernel.compile_kernel`


def row_function(module: Any, kind: RowKind, variant: tuple[Any, bool]) -> Any:
    """Add the LLVM function of a variant to a module."""
    operation, penalised = variant
    function = ir.Function(module, _signature(penalised), f"steinstream.row.{operation}.{penalised:d}")
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    plain, more = function.args[: len(_PLAIN)], function.args[len(_PLAIN) :]
    _trace(builder, _Arguments(*plain), kind, operation, _PenaltyArguments(*more) if penalised else None)
    builder.ret_void()
    return function


def _trace(
    builder: Any,
    given: _Arguments,
    kind: RowKind,
    operation: int,
    penalties: _PenaltyArguments | None,
) -> None:
    """Emit the instructions of a variant."""
    dim = builder.sub(given.dim, integer(1)) if kind.scaled else given.dim
    dimension = Lanes.fill(builder, builder.sitofp(dim, given.grid.type))
    first, second, grid = (Lanes.fill(builder, value) for value in (given.first, given.second, given.grid))
    shift = grid * (1.5 * 2.0**52)

    distance, cross, scores, total, rest, largest, pending = (LoopVariable(builder) for _ in range(7))
    total.value = rest.value = 0.0
    largest.value = -np.inf
    base_total, pending_base = LoopVariable(builder), LoopVariable(builder)
    base_total.value = 0.0
    products, own, own_here = (LoopVariable(builder) for _ in range(3))

    def draw_at(k: Any) -> tuple[Lanes, Lanes]:
        """Return coordinate k of the draw and of its score."""
        here, slope = (
            Lanes.fill(builder, builder.load(builder.gep(given.draw, [place])))
            for place in (k, builder.add(given.dim, k))
        )
        return here, slope

    factor = draw_at(dim)[1] if kind.scaled else None
    if kind.linear:
        own_here.value = 0.0
        with loop(builder, integer(0), dim) as k:
            here, slope = draw_at(k)
            own_here.value = slope.multiply_add(here, own_here.value)

    def stored_at(tile: Any, k: Any) -> tuple[Lanes, Lanes]:
        """Return coordinate k of the draws of a tile and of their scores."""
        at = builder.mul(builder.add(builder.mul(tile, given.dim), k), integer(2))
        there, slope = (Lanes.load(builder, given.tiles, builder.add(at, integer(i))) for i in (0, 1))
        return there, slope

    def kernel_values(tile: Any) -> tuple[Lanes, Lanes]:
        """Return the kernel values of a tile, and phi."""
        distance.value = cross.value = scores.value = 0.0
        if kind.linear:
            products.value = own.value = 0.0
        with loop(builder, integer(0), dim) as k:
            here, slope_here = draw_at(k)
            there, slope_there = stored_at(tile, k)
            difference = here - there
            distance.value = difference.multiply_add(difference, distance.value)
            cross.value = (slope_here - slope_there).multiply_add(difference, cross.value)
            scores.value = slope_here.multiply_add(slope_there, scores.value)
            if kind.linear:
                products.value = here.multiply_add(there, products.value)
                own.value = slope_there.multiply_add(there, own.value)

        u = distance.value
        phi, slope, curvature = kind.profile(u, first, second)
        k0 = phi.multiply_add(scores.value, slope.multiply_add(cross.value + dimension, -(curvature * u)))
        if kind.linear:
            both = (own_here.value + own.value) + dimension
            extra = scores.value.multiply_add(products.value + 1.0, both)
            k0 = Lanes.fill(builder, given.linear).multiply_add(extra, k0)
        if factor is not None:
            k0 = (factor * stored_at(tile, dim)[1]) * k0
        return (k0 + shift) - shift, phi  # a double above 2^52 grids is a multiple of the grid

    def key(tile: Any, influence: Lanes, phi: Lanes) -> Lanes:
        """Return the number that the search compares: the influence, with penalties the penalised key."""
        if penalties is None:
            return influence
        stein, weight, share, observed, cost_scale, features, base_grid = (
            Lanes.fill(builder, value) for value in penalties[penalties._fields.index("stein") :]
        )
        base_shift = base_grid * (1.5 * 2.0**52)
        phi = (phi + base_shift) - base_shift
        phi = features.where_less(0.5, phi, Lanes.load(builder, penalties.given_row, tile))
        kept, stream = (Lanes.load(builder, each, tile) for each in (penalties.kept_sum, penalties.stream_sum))
        if operation == EVALUATE:
            kept, stream = kept + phi, observed.multiply_add(phi, stream)
            phi.store(penalties.base_row, tile)
            stream.store(penalties.stream_sum, tile)
            base_total.value = phi.multiply_add(Lanes.load(builder, given.copies, tile), base_total.value)
        else:
            kept = kept - phi
            kept.store(penalties.kept_sum, tile)
        unpriced = weight.multiply_add(kept, stein.multiply_add(influence, -(share * stream)))
        penalised = cost_scale.multiply_add(Lanes.load(builder, penalties.removal_cost, tile), unpriced)
        penalised.store(penalties.keys, tile)
        return penalised

    def process(tile: Any, k0: Lanes, phi: Lanes) -> None:
        """Do the operation with the kernel values of a tile."""
        if operation in (STORE, EVALUATE):
            k0.store(given.row, tile)
        if operation in (SUM, EVALUATE):
            count = Lanes.load(builder, given.copies, tile)
            times = k0 * count
            error = k0.multiply_add(count, -times)
            total.value, lost = double_double.two_sum(total.value, times)
            rest.value = rest.value + (lost + error)
        if operation in (EVALUATE, SUBTRACT):
            before = Lanes.load(builder, given.influence, tile), Lanes.load(builder, given.influence_low, tile)
            influence, remainder = double_double.add(*before, k0 if operation == EVALUATE else -k0)
            compared = key(tile, influence, phi)
            largest.value = largest.value.where_less(compared, compared, largest.value)
        if operation == SUBTRACT:
            influence.store(given.influence, tile)
            remainder.store(given.influence_low, tile)

    # The divisions and square roots of a tile overlap with the sums of the tile before it.
    pending.value, pending_base.value = kernel_values(given.begin)
    with loop(builder, builder.add(given.begin, integer(1)), given.end) as tile:
        k0, phi = kernel_values(tile)
        process(builder.sub(tile, integer(1)), pending.value, pending_base.value)
        pending.value, pending_base.value = k0, phi
    process(builder.sub(given.end, integer(1)), pending.value, pending_base.value)

    results = ((given.sums, total), (given.errors, rest), (given.largest, largest), (given.base_sums, base_total))
    for pointer, variable in results[: 3 if penalties is None else 4]:
        variable.value.store(pointer, integer(0))


@inlined
def combine_lanes(lanes):
    """Return the exact sum over all lanes as a pair, and the largest influence. Reference: `reference.row_sum`."""
    high, low, largest = 0.0, 0.0, -np.inf
    for lane in range(LANES):
        high, lost = double_double.two_sum(high, lanes.sums[lane])
        low += lost + lanes.errors[lane]
        largest = max(largest, lanes.largest[lane])
    high, low = double_double.two_sum(high, low)
    return high, low, largest


@inlined_with_arrays
def new_lanes():
    """Allocate the results of a row. Storage bookkeeping."""
    return LaneResults(np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES))


@inlined_with_arrays
def store_arrays(draw, tiles, row, lanes):
    """Return the arrays for STORE, which ignores multiplicities and influences. Storage bookkeeping."""
    return RowArrays(draw, tiles, row, row, row, row, lanes)


@inlined_with_arrays
def sum_arrays(draw, tiles, copies, lanes):
    """Return the arrays for SUM, which ignores influences and writes no row. Storage bookkeeping."""
    return RowArrays(draw, tiles, copies, copies, copies, copies, lanes)
