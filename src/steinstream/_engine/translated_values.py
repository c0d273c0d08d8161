"""Values of translated functions (:mod:`steinstream._engine.translation`): numbers, arrays, records, references.

A value is a type of numba with an LLVM value, in the form in which numba passes it. Constants and tuples are Python
objects: they exist while a function is translated and take no instructions.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from steinstream._engine.by_reference import Address, load_field

_DOUBLE, _INDEX, _FLAG = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
_LLVM = {types.float64: _DOUBLE, types.int64: _INDEX, types.boolean: _FLAG}
_RANKS = [types.boolean, types.int64, types.float64]
_NO_OVERFLOW = ("nsw",)

_INTEGER_OPERATIONS = {"Add": "add", "Sub": "sub", "Mult": "mul"}
_FLOAT_OPERATIONS = {"Add": "fadd", "Sub": "fsub", "Mult": "fmul", "Div": "fdiv"}
_COMPARISONS = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
_INTRINSICS = {np.sqrt: "sqrt", np.exp: "exp", math.exp: "exp", math.log: "log", abs: "fabs"}


class Value:
    """A type and an LLVM value."""

    def __init__(self, kind: Any, llvm: Any) -> None:
        self.kind, self.llvm = kind, llvm


class ArrayValue:
    """A contiguous array: type of its elements, address, and lengths: LLVM values, or functions that return one."""

    def __init__(self, dtype: Any, address: Any, lengths: list[Any]) -> None:
        self.dtype, self.address, self._lengths = dtype, address, lengths
        self.ndim = len(lengths)

    def length(self, axis: int) -> Any:
        """Return the length of an axis, an LLVM value."""
        if callable(self._lengths[axis]):
            self._lengths[axis] = self._lengths[axis]()
        return self._lengths[axis]


def is_number(value: Any) -> bool:
    """Whether a value is a number: a constant or one of the compiled program."""
    return value.kind in _LLVM if isinstance(value, Value) else isinstance(value, bool | int | float | np.number)


def _contiguous(kind: Any) -> Any:
    """Return the type of an array that is contiguous."""
    if kind.layout != "C":
        raise TypeError("arrays of translated functions are contiguous")
    return kind


class Emitter:
    """Emits the instructions of operations on values, with a context of numba and a builder of LLVM."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder
        self._fields: dict[tuple[Any, str], Any] = {}
        self._members: dict[tuple[Any, str], Any] = {}
        self.start = builder.block  # what every use of a reference needs is loaded here
        self.builder.position_at_end(builder.append_basic_block())
        self._body = builder.block

    def finish(self) -> None:
        """Connect the block of loads with the instructions after it."""
        with self.builder.goto_block(self.start):
            self.builder.branch(self._body)

    # -- conversion ------------------------------------------------------------------------------------------------

    def number(self, value: Any) -> Value:
        """Return a number as a value of the program."""
        if isinstance(value, Value):
            return value
        if isinstance(value, bool | np.bool_):
            return Value(types.boolean, _FLAG(int(value)))
        if isinstance(value, int | np.integer):
            return Value(types.int64, _INDEX(int(value)))
        return Value(types.float64, _DOUBLE(float(value)))

    def cast(self, value: Any, kind: Any) -> Any:
        """Return a number as an LLVM value of this type, which is at least as wide."""
        given = self.number(value)
        if given.kind == kind:
            return given.llvm
        if kind == types.float64:
            convert = self.builder.uitofp if given.kind == types.boolean else self.builder.sitofp
            return convert(given.llvm, _DOUBLE)
        if (given.kind, kind) == (types.boolean, types.int64):
            return self.builder.zext(given.llvm, _INDEX)
        raise TypeError(f"cannot convert {given.kind} to {kind}")

    def index(self, value: Any) -> Any:
        """Return an integer as an LLVM value."""
        return self.cast(value, types.int64)

    def common(self, *values: Any) -> Any:
        """Return the widest type of some numbers."""
        return max((self.number(value).kind for value in values), key=_RANKS.index)

    def is_true(self, value: Any) -> Any:
        """Return a flag as an LLVM value."""
        return self.cast(value, types.boolean)

    def imported(self, kind: Any, llvm: Any) -> Any:
        """Return a value that numba passes."""
        if isinstance(kind, types.NoneType):
            return None
        if isinstance(kind, types.BaseTuple):
            parts = map(self.imported, kind.types, cgutils.unpack_tuple(self.builder, llvm))
            return kind.instance_class(*parts) if hasattr(kind, "instance_class") else tuple(parts)
        if isinstance(kind, types.Array):
            array = self.context.make_array(_contiguous(kind))(self.context, self.builder, llvm)
            return ArrayValue(kind.dtype, array.data, cgutils.unpack_tuple(self.builder, array.shape, kind.ndim))
        return Value(kind, llvm)

    def exported(self, value: Any) -> tuple[Any, Any]:
        """Return type and LLVM value as numba passes them."""
        if value is None:
            return types.none, self.context.get_dummy_value()
        if isinstance(value, ArrayValue):
            kind = types.Array(value.dtype, value.ndim, "C")
            return kind, self._array(kind, value)
        if isinstance(value, tuple):
            kinds, parts = zip(*map(self.exported, value), strict=True)
            named = hasattr(value, "_fields")
            kind = types.NamedTuple(kinds, type(value)) if named else types.Tuple(kinds)
            return kind, self.context.make_tuple(self.builder, kind, parts)
        given = self.number(value)
        return given.kind, given.llvm

    def _array(self, kind: Any, value: ArrayValue) -> Any:
        """Return an array as numba represents it, without an owner."""
        lengths = [value.length(axis) for axis in range(value.ndim)]
        size = self.context.get_constant(types.intp, self.context.get_abi_sizeof(value.address.type.pointee))
        steps = [size]
        for length in lengths[:0:-1]:
            steps.insert(0, self.builder.mul(steps[0], length))
        model = self.context.data_model_manager[kind]
        parts = [cgutils.get_null_value(part) for part in model.get_value_type().elements]
        items = self.builder.udiv(self.builder.mul(steps[0], lengths[0]), size)
        shape, strides = (cgutils.pack_array(self.builder, each) for each in (lengths, steps))
        given = {"data": value.address, "itemsize": size, "nitems": items, "shape": shape, "strides": strides}
        for name, part in given.items():
            parts[model.get_field_position(name)] = part
        return cgutils.pack_struct(self.builder, parts)

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def calculate(self, operation: str, left: Any, right: Any) -> Value:
        """Return the result of an arithmetic operation."""
        build, kind = self.builder, self.common(left, right)
        if operation == "Pow":
            return self._power(left, right)
        if operation in ("FloorDiv", "Mod"):
            return self._divide(operation, left, right)
        if operation == "Div" or kind == types.float64:
            first, second = (self.cast(value, types.float64) for value in (left, right))
            return Value(types.float64, getattr(build, _FLOAT_OPERATIONS[operation])(first, second))
        first, second = self.index(left), self.index(right)
        return Value(types.int64, getattr(build, _INTEGER_OPERATIONS[operation])(first, second, flags=_NO_OVERFLOW))

    def _power(self, base: Any, exponent: Any) -> Value:
        """Return a power; a square is a product."""
        first = self.cast(base, types.float64)
        if isinstance(exponent, int):
            if exponent != 2:
                raise TypeError("the only integer exponent is 2")
            return Value(types.float64, self.builder.fmul(first, first))
        return self._call("pow", first, self.cast(exponent, types.float64))

    def _divide(self, operation: str, left: Any, right: Any) -> Value:
        """Return quotient or remainder of integers, rounded down; the divisor is positive."""
        build, first, second = self.builder, self.index(left), self.index(right)
        if isinstance(right, int) and right & (right - 1) == 0:
            if operation == "Mod":
                return Value(types.int64, build.and_(first, _INDEX(right - 1)))
            return Value(types.int64, build.ashr(first, _INDEX(right.bit_length() - 1)))
        rest = build.srem(first, second)
        below = build.icmp_signed("<", rest, _INDEX(0))
        if operation == "Mod":
            return Value(types.int64, build.select(below, build.add(rest, second), rest))
        return Value(types.int64, build.sub(build.sdiv(first, second), build.zext(below, _INDEX)))

    def compare(self, operation: str, left: Any, right: Any) -> Value:
        """Return the result of a comparison."""
        build, kind, sign = self.builder, self.common(left, right), _COMPARISONS[operation]
        first, second = self.cast(left, kind), self.cast(right, kind)
        if kind != types.float64:
            return Value(types.boolean, build.icmp_signed(sign, first, second))
        compared = build.fcmp_unordered if sign == "!=" else build.fcmp_ordered
        return Value(types.boolean, compared(sign, first, second))

    def negative(self, value: Any) -> Value:
        """Return ``-value``."""
        given = self.number(value)
        negate = self.builder.fneg if given.kind == types.float64 else self.builder.neg
        return Value(given.kind, negate(given.llvm))

    def opposite(self, value: Any) -> Value:
        """Return ``not value``."""
        return Value(types.boolean, self.builder.not_(self.is_true(value)))

    def extreme(self, operation: str, values: list[Any]) -> Value:
        """Return the largest or smallest of some numbers; of equal ones, and if one is NaN, the first."""
        kind = self.common(*values)
        best = Value(kind, self.cast(values[0], kind))
        for value in values[1:]:
            other = Value(kind, self.cast(value, kind))
            better = self.compare(operation, other, best)
            best = Value(kind, self.builder.select(better.llvm, other.llvm, best.llvm))
        return best

    def function(self, name: Any, value: Any) -> Any:
        """Return a function of one number."""
        if name is float:
            return Value(types.float64, self.cast(value, types.float64))
        given = self.number(value)
        if name is int:
            is_float = given.kind == types.float64
            return Value(types.int64, self.builder.fptosi(given.llvm, _INDEX) if is_float else self.index(given))
        if name is np.isnan:
            return Value(types.boolean, self.builder.fcmp_unordered("uno", given.llvm, given.llvm))
        return self._call(_INTRINSICS[name], self.cast(given, types.float64))

    def _call(self, name: str, *values: Any) -> Value:
        function = self.builder.module.declare_intrinsic(f"llvm.{name}", [_DOUBLE])
        return Value(types.float64, self.builder.call(function, values))

    # -- variables -------------------------------------------------------------------------------------------------

    def new_cell(self, kind: Any) -> Value:
        """Return a variable: a type and an address on the stack."""
        with self.builder.goto_entry_block():
            return Value(kind, self.builder.alloca(_LLVM[kind]))

    # -- fields and elements ---------------------------------------------------------------------------------------

    def field(self, owner: Value, name: str) -> Any:
        """Return a field of a reference, loaded before all other instructions, or of a record."""
        if isinstance(owner.kind, types.Record):
            kind, address = self.member(owner, name)
            return Value(kind, self.context.unpack_value(self.builder, kind, address))
        if not isinstance(owner.kind, Address):
            raise AttributeError(f"{owner.kind} has no field {name}")
        key = (owner.llvm, name)
        if key not in self._fields:
            place, kind = owner.kind.field(name)
            self._fields[key] = self._loaded(owner, place, kind)
        return self._fields[key]

    def _loaded(self, owner: Value, place: int, kind: Any) -> Any:
        if isinstance(kind, types.NoneType):
            return None
        with self.builder.goto_block(self.start):
            at = cgutils.gep_inbounds(self.builder, owner.llvm, 0, place)
            if isinstance(kind, types.NamedTuple):
                return Value(Address(kind), at)
            if not isinstance(kind, types.Array):
                return Value(kind, load_field(self.builder, at))
            model = self.context.data_model_manager[_contiguous(kind)]
            address = load_field(self.builder, self._part(at, model, "data"))

            def length(axis: int) -> Any:
                with self.builder.goto_block(self.start):
                    return load_field(self.builder, self._part(at, model, "shape", axis))

            return ArrayValue(kind.dtype, address, [partial(length, axis) for axis in range(kind.ndim)])

    def _part(self, at: Any, model: Any, name: str, *axis: int) -> Any:
        return cgutils.gep_inbounds(self.builder, at, 0, model.get_field_position(name), *axis)

    def member(self, owner: Value, name: str) -> tuple[Any, Any]:
        """Return type and address of a field of a record."""
        key = (owner.llvm, name)
        kind = owner.kind.typeof(name)
        if key not in self._members:
            with self.builder.goto_block(self.start):
                self._members[key] = cgutils.get_record_member(
                    self.builder, owner.llvm, owner.kind.offset(name), self.context.get_data_type(kind)
                )
        return kind, self._members[key]

    def part(self, array: ArrayValue, places: list[Any]) -> ArrayValue:
        """Return the part of an array at some indices; the last one may be a slice ``(first, last)``."""
        build, lengths = self.builder, [array.length(axis) for axis in range(len(places), array.ndim)]
        starts = [self.index(place[0] if isinstance(place, tuple) else place) for place in places]
        offset = starts[0]
        for axis, start in enumerate(starts[1:], 1):
            offset = build.mul(offset, array.length(axis), flags=_NO_OVERFLOW)
            offset = build.add(offset, start, flags=_NO_OVERFLOW)
        for length in lengths:
            offset = build.mul(offset, length, flags=_NO_OVERFLOW)
        if isinstance(places[-1], tuple):
            begin, end = (self.index(bound) for bound in places[-1])
            lengths = [build.sub(end, begin), *lengths]
        return ArrayValue(array.dtype, build.gep(array.address, [offset], inbounds=True), lengths)

    def load(self, array: ArrayValue) -> Any:
        """Return the number at the address of an array without axes, or the array."""
        if array.ndim > 0:
            return array
        return Value(array.dtype, self.context.unpack_value(self.builder, array.dtype, array.address))

    def store(self, kind: Any, address: Any, value: Any) -> None:
        """Write a number."""
        self.context.pack_value(self.builder, kind, self.cast(value, kind), address)

    def zeros(self, *lengths: int) -> ArrayValue:
        """Return an array of zeros on the stack."""
        size = math.prod(lengths)
        with self.builder.goto_entry_block():
            address = self.builder.alloca(ir.ArrayType(_DOUBLE, size))
        self.builder.store(ir.Constant(address.type.pointee, None), address)
        start = self.builder.bitcast(address, _DOUBLE.as_pointer())
        return ArrayValue(types.float64, start, [_INDEX(length) for length in lengths])

    def constant_array(self, values: Any) -> ArrayValue:
        """Return an array of integers that is part of the program."""
        constant = ir.Constant(ir.ArrayType(_INDEX, len(values)), [int(value) for value in values])
        address = self.builder.bitcast(
            cgutils.global_constant(self.builder, "constants", constant), _INDEX.as_pointer()
        )
        return ArrayValue(types.int64, address, [_INDEX(len(values))])
