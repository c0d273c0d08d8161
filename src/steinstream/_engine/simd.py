"""Vector code from Python expressions: sixteen doubles as one Python value.

A function written with ``+ - * /``, ``**``, ``np.sqrt`` and ``np.exp`` is *traced*: it is called once with
:class:`Lanes` instead of numbers and emits the corresponding vector instructions. LLVM distributes the lanes over the
registers of the instruction set. Only ``multiply_add`` fuses a product into a sum, so every machine computes the same
bits.
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
_WIDTH = 8  # doubles per part: the widest register in use; two parts hide the latency of the arithmetic units
_PARTS = LANES // _WIDTH

_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, _WIDTH)
_INTEGERS = ir.VectorType(_INDEX, _WIDTH)


def integer(value: int) -> ir.Constant:
    """Return a constant index."""
    return ir.Constant(_INDEX, value)


class Lanes:
    """One value per lane, sixteen lanes."""

    def __init__(self, builder: ir.IRBuilder, parts: list[Any]) -> None:
        self._builder = builder
        self.parts = parts

    @classmethod
    def fill(cls, builder: ir.IRBuilder, scalar: Any) -> Lanes:
        """Return lanes that all hold the same number, a Python float or a double of the compiled program."""
        if isinstance(scalar, float | int):
            return cls(builder, [ir.Constant(_VECTOR, [float(scalar)] * _WIDTH)] * _PARTS)
        return cls(builder, [_broadcast(builder, _VECTOR, scalar)] * _PARTS)

    @classmethod
    def load(cls, builder: ir.IRBuilder, array: Any, tile: Any) -> Lanes:
        """Load the ``tile``-th group of sixteen consecutive doubles from a pointer."""
        return cls(builder, [builder.load(p, align=8) for p in _addresses(builder, array, tile)])

    def store(self, array: Any, tile: Any) -> None:
        """Write the lanes to the place that :meth:`load` reads."""
        for address, part in zip(_addresses(self._builder, array, tile), self.parts, strict=True):
            self._builder.store(part, address, align=8)

    def apply(self, operation: Callable[..., Any], *others: Any) -> Lanes:
        """Apply a scalar operation of LLVM to every part."""
        filled = [o if isinstance(o, Lanes) else Lanes.fill(self._builder, o) for o in others]
        columns = zip(self.parts, *(other.parts for other in filled), strict=True)
        return Lanes(self._builder, [operation(*column) for column in columns])

    def _intrinsic(self, name: str, *others: Any) -> Lanes:
        signature = ir.FunctionType(_VECTOR, [_VECTOR] * (1 + len(others)))
        function = cgutils.get_or_insert_function(self._builder.module, signature, f"llvm.{name}.v{_WIDTH}f64")
        return self.apply(lambda *values: self._builder.call(function, values), *others)

    def __add__(self, other: Any) -> Lanes:
        return self.apply(self._builder.fadd, other)

    def __sub__(self, other: Any) -> Lanes:
        return self.apply(self._builder.fsub, other)

    def __mul__(self, other: Any) -> Lanes:
        return self.apply(self._builder.fmul, other)

    def __truediv__(self, other: Any) -> Lanes:
        return self.apply(self._builder.fdiv, other)

    def __rsub__(self, other: Any) -> Lanes:
        return Lanes.fill(self._builder, other) - self

    def __rtruediv__(self, other: Any) -> Lanes:
        return Lanes.fill(self._builder, other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Lanes:
        return self.apply(self._builder.fneg)

    def __pow__(self, exponent: Any) -> Lanes:
        return self._intrinsic("pow", exponent)

    def __abs__(self) -> Lanes:
        return self._intrinsic("fabs")

    def sqrt(self) -> Lanes:
        """Return the square root; called by ``np.sqrt``."""
        return self._intrinsic("sqrt")

    def multiply_add(self, factor: Any, addend: Any) -> Lanes:
        """Return ``self * factor + addend``, rounded once."""
        return self._intrinsic("fma", factor, addend)

    def where_less(self, bound: Any, yes: Any, no: Any) -> Lanes:
        """Return ``yes`` where ``self < bound``, else ``no``; a NaN is never less."""

        def choose(value: Any, limit: Any, a: Any, b: Any) -> Any:
            return self._builder.select(self._builder.fcmp_ordered("<", value, limit), a, b)

        return self.apply(choose, bound, yes, no)

    def exp(self) -> Lanes:
        """Return the exponential; called by ``np.exp``. Accurate to one unit in the last place; 0 below -708.

        exp(x) = 2^n exp(r) with |r| <= log(2)/2, a Taylor polynomial of degree 13 (error 4e-18) in r, and n added
        to the exponent bits. The exp of the C library would be called once per lane and differs between machines.
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

        return self.where_less(-708.0, 0.0, power.apply(scale, shifted))


class LoopVariable:
    """Lanes that change between the iterations of a loop; they are kept in registers."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self._builder = builder
        self._cells = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_PARTS)]

    @property
    def value(self) -> Lanes:
        """Current value."""
        return Lanes(self._builder, [self._builder.load(cell) for cell in self._cells])

    @value.setter
    def value(self, new: Lanes | float) -> None:
        lanes = new if isinstance(new, Lanes) else Lanes.fill(self._builder, new)
        for cell, part in zip(self._cells, lanes.parts, strict=True):
            self._builder.store(part, cell)


@intrinsic
def fma(context: Any, factor: Any, other: Any, addend: Any) -> Any:
    """Return ``factor * other + addend``, rounded once: :meth:`Lanes.multiply_add` for scalars of one type.

    Reference: `fractions.Fraction`, rounded once.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return factor(factor, factor, factor), generate


@contextmanager
def loop(builder: ir.IRBuilder, first: Any, last: Any) -> Iterator[Any]:
    """Run the code in the block for every index from ``first`` up to, but not including, ``last``."""
    with cgutils.for_range_slice(builder, first, last, integer(1), inc=True) as (index, _):
        yield index


def _broadcast(builder: ir.IRBuilder, kind: Any, scalar: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, undefined, places)


def _addresses(builder: ir.IRBuilder, array: Any, tile: Any) -> list[Any]:
    """Return the addresses of the parts of a tile."""
    start = builder.bitcast(array, _VECTOR.as_pointer())
    first = builder.mul(tile, integer(_PARTS))
    return [builder.gep(start, [builder.add(first, integer(part))]) for part in range(_PARTS)]
