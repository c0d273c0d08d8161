"""Sixteen doubles that one instruction handles together, as a Python value.

A function written with ``+ - * /``, ``**``, ``np.sqrt`` and ``np.exp`` is *traced*: called once with :class:`Lanes`
instead of numbers, it leaves behind the vector instructions that it stands for. The instruction set does not matter:
LLVM splits the lanes over whatever registers there are. Only ``multiply_add`` fuses a product into a sum, so every
machine computes the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_WIDTH = 8  # doubles in one part: the widest register in use; two parts hide the latency of the arithmetic units
_PARTS = LANES // _WIDTH

_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, _WIDTH)
_INTEGERS = ir.VectorType(_INDEX, _WIDTH)
_SINGLES = ir.VectorType(ir.FloatType(), LANES)


def integer(value: int) -> ir.Constant:
    """An index known at compile time."""
    return ir.Constant(_INDEX, value)


class Lanes:
    """A value in all sixteen lanes."""

    def __init__(self, builder: ir.IRBuilder, parts: list[Any]) -> None:
        self._builder = builder
        self._parts = parts

    @classmethod
    def fill(cls, builder: ir.IRBuilder, scalar: Any) -> Lanes:
        """The same number in every lane: a Python float, or a double of the compiled program."""
        if isinstance(scalar, float | int):
            return cls(builder, [ir.Constant(_VECTOR, [float(scalar)] * _WIDTH)] * _PARTS)
        return cls(builder, [_everywhere(builder, _VECTOR, scalar)] * _PARTS)

    @classmethod
    def load(cls, builder: ir.IRBuilder, array: Any, tile: Any) -> Lanes:
        """Sixteen consecutive doubles from a pointer on, the ``tile``-th such group."""
        return cls(builder, [builder.load(p, align=8) for p in _addresses(builder, array, tile)])

    @classmethod
    def product(cls, builder: ir.IRBuilder, factors: Any, array: Any, tile: Any, count: Any) -> Lanes:
        """The sum of factor k times the k-th of ``count`` sixteens of this tile, all in single precision.

        Four sums, each of every fourth product and rounded once a product, hide each other's latency; ``count`` is a
        multiple of four. (In doubles the same takes four times the instructions and twice the memory.)
        """
        sums = [cgutils.alloca_once(builder, _SINGLES) for _ in range(4)]
        for cell in sums:
            builder.store(ir.Constant(_SINGLES, [0.0] * LANES), cell)
        start = builder.bitcast(array, _SINGLES.as_pointer())
        signature = ir.FunctionType(_SINGLES, [_SINGLES] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, signature, f"llvm.fma.v{LANES}f32")
        with cgutils.for_range_slice(builder, integer(0), count, integer(4), inc=True) as (first, _):
            for part, cell in enumerate(sums):
                k = builder.add(first, integer(part))
                factor = builder.load(builder.gep(factors, [k]))
                place = builder.gep(start, [builder.add(builder.mul(tile, count), k)])
                filled = _everywhere(builder, _SINGLES, factor)
                there = builder.load(place, align=4)
                builder.store(builder.call(multiply_add, [filled, there, builder.load(cell)]), cell)
        one, two, three, four = (builder.load(cell) for cell in sums)
        total = builder.fadd(builder.fadd(one, two), builder.fadd(three, four))
        halves = [range(part * _WIDTH, (part + 1) * _WIDTH) for part in range(_PARTS)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), _WIDTH), list(half)) for half in halves]
        return cls(builder, [builder.fpext(builder.shuffle_vector(total, total, mask), _VECTOR) for mask in masks])

    def store(self, array: Any, tile: Any) -> None:
        """Write the lanes where :meth:`load` would read them."""
        for address, part in zip(_addresses(self._builder, array, tile), self._parts, strict=True):
            self._builder.store(part, address, align=8)

    def _each(self, operation: Callable[..., Any], *others: Any) -> Lanes:
        filled = [o if isinstance(o, Lanes) else Lanes.fill(self._builder, o) for o in others]
        columns = zip(self._parts, *(other._parts for other in filled), strict=True)
        return Lanes(self._builder, [operation(*column) for column in columns])

    def _call(self, name: str, *others: Any) -> Lanes:
        signature = ir.FunctionType(_VECTOR, [_VECTOR] * (1 + len(others)))
        function = cgutils.get_or_insert_function(self._builder.module, signature, f"llvm.{name}.v{_WIDTH}f64")
        return self._each(lambda *values: self._builder.call(function, values), *others)

    def __add__(self, other: Any) -> Lanes:
        return self._each(self._builder.fadd, other)

    def __sub__(self, other: Any) -> Lanes:
        return self._each(self._builder.fsub, other)

    def __mul__(self, other: Any) -> Lanes:
        return self._each(self._builder.fmul, other)

    def __truediv__(self, other: Any) -> Lanes:
        return self._each(self._builder.fdiv, other)

    def __rsub__(self, other: Any) -> Lanes:
        return Lanes.fill(self._builder, other) - self

    def __rtruediv__(self, other: Any) -> Lanes:
        return Lanes.fill(self._builder, other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Lanes:
        return self._each(self._builder.fneg)

    def __pow__(self, exponent: Any) -> Lanes:
        return self._call("pow", exponent)

    def __abs__(self) -> Lanes:
        return self._call("fabs")

    def sqrt(self) -> Lanes:
        """What ``np.sqrt`` calls."""
        return self._call("sqrt")

    def multiply_add(self, factor: Any, addend: Any) -> Lanes:
        """``self * factor + addend``, rounded once."""
        return self._call("fma", factor, addend)

    def where_less(self, bound: Any, yes: Any, no: Any) -> Lanes:
        """``yes`` where ``self < bound``, else ``no``; a NaN is never less."""

        def choose(value: Any, limit: Any, a: Any, b: Any) -> Any:
            return self._builder.select(self._builder.fcmp_ordered("<", value, limit), a, b)

        return self._each(choose, bound, yes, no)

    def exp(self) -> Lanes:
        """What ``np.exp`` calls: within one unit in the last place; 0 below -708 (about 3e-308).

        exp(x) = 2^n exp(r) with |r| <= log(2)/2, the Taylor polynomial of degree 13 (error 4e-18) in r, and n
        added to the exponent bits. The library's exp would be called once per lane, and differ from machine to machine.
        """
        magic = 1.5 * 2.0**52  # adding it leaves the nearest integer in the lowest bits
        shifted = self.multiply_add(1.0 / math.log(2.0), magic)
        n = shifted - magic
        r = n.multiply_add(-6.93147180369123816490e-01, self)  # log(2) in two parts, the first with trailing zeros
        r = n.multiply_add(-1.90821492927058770002e-10, r)
        power = Lanes.fill(self._builder, 1.0 / math.factorial(13))
        for degree in range(12, -1, -1):
            power = power.multiply_add(r, 1.0 / math.factorial(degree))

        def scale(value: Any, shifted: Any) -> Any:
            build = self._builder
            exponent = build.shl(build.bitcast(shifted, _INTEGERS), ir.Constant(_INTEGERS, [52] * _WIDTH))
            return build.bitcast(build.add(build.bitcast(value, _INTEGERS), exponent), _VECTOR)

        return self.where_less(-708.0, 0.0, power._each(scale, shifted))


class Variable:
    """Lanes that change from one turn of a loop to the next; they live in registers."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self._builder = builder
        self._cells = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_PARTS)]

    @property
    def value(self) -> Lanes:
        """The current value."""
        return Lanes(self._builder, [self._builder.load(cell) for cell in self._cells])

    @value.setter
    def value(self, new: Lanes | float) -> None:
        lanes = new if isinstance(new, Lanes) else Lanes.fill(self._builder, new)
        for cell, part in zip(self._cells, lanes._parts, strict=True):
            self._builder.store(part, cell)


@intrinsic
def fused(context: Any, factor: Any, other: Any, addend: Any) -> Any:
    """``factor * other + addend``, rounded once: what :meth:`Lanes.multiply_add` does, for scalars of one type."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return factor(factor, factor, factor), generate


@contextmanager
def loop(builder: ir.IRBuilder, first: Any, last: Any) -> Iterator[Any]:
    """The code in the block runs for every index from ``first`` to ``last``, the latter not included."""
    with cgutils.for_range_slice(builder, first, last, integer(1), inc=True) as (index, _):
        yield index


def _everywhere(builder: ir.IRBuilder, kind: Any, scalar: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, undefined, places)


def _addresses(builder: ir.IRBuilder, array: Any, tile: Any) -> list[Any]:
    start = builder.bitcast(array, _VECTOR.as_pointer())
    first = builder.mul(tile, integer(_PARTS))
    return [builder.gep(start, [builder.add(first, integer(part))]) for part in range(_PARTS)]
