"""Compilation of the loops of the engine: functions in a small part of Python are translated to LLVM.

Numba infers the types of all variables of a function, and optimises each function on its own and again in each caller.
The loops here need neither: their arguments have known types, and a variable has the type of its first value. Their
syntax trees are translated in one pass, with all functions that they call in place. This takes a tenth of the time, and
numba can compile the same functions.

The part of Python: numbers, contiguous arrays, records, named tuples by reference
(:mod:`steinstream._engine.by_reference`); ``np.zeros`` of constant shape, on the stack; assignments, ``if``, ``while``,
``for`` over a range, whose step is positive or a constant, and calls of functions written in the same part or of
numba's intrinsics. A test that depends on constants alone, such as
``penalties is None``, selects one branch, and the other one is not translated. Indices are not negative and slices are
inside the array. Integers do not overflow.
"""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from steinstream._engine.jit import jit
from steinstream._engine.translated_values import ArrayValue, Emitter, Value, is_number

_RESULTS = {"None": types.none, "int": types.int64, "float": types.float64, "bool": types.boolean}
_STATIC = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
}
_EXTREMES = {max: "Gt", min: "Lt"}
_UNARY = (float, int, abs, np.isnan)


def translated(function: Callable[..., Any]) -> Any:
    """Compile a function by translation; it can be called from Python. Its result is annotated."""
    return jit(_nrt=False, no_cfunc_wrapper=True)(translation_of(function, annotated_result(function)))


def annotated_result(function: Callable[..., Any]) -> Any:
    """Return the type of the result that an annotation states: None, a number, or a tuple of numbers."""
    text = str(function.__annotations__.get("return", "None"))
    if text.startswith("tuple["):
        return types.Tuple([_RESULTS[name.strip()] for name in text[len("tuple[") : -1].split(",")])
    return _RESULTS[text]


def translation_of(function: Callable[..., Any], result: Any) -> Any:
    """Return a function that numba compiles, and that consists of the translation of another one."""
    signature = inspect.signature(function)

    def translate(context: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Any, called: Any, values: Any) -> Any:
            emitter = Emitter(context, builder)
            with builder.goto_block(emitter.start):
                arguments = [emitter.imported(kind, value) for kind, value in zip(called.args, values, strict=True)]
            value = _Call(emitter, function, arguments, {}).value()
            llvm = _as_result(emitter, value, result)
            emitter.finish()
            return llvm

        return result(*(types.unliteral(kind) for kind in given)), generate

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY)
    plain = [each.replace(annotation=each.empty, default=each.empty) for each in signature.parameters.values()]
    translate.__signature__ = inspect.Signature([context, *plain])  # type: ignore[attr-defined]
    translate.__name__ = function.__name__
    names, scope = ", ".join(signature.parameters), {"translation": intrinsic(translate)}
    text = f"def {function.__name__}({names}): return translation({names})"
    exec(compile(text, function.__code__.co_filename, "exec"), scope)
    outer: Any = scope[function.__name__]
    outer.__module__, outer.__qualname__, outer.__doc__ = function.__module__, function.__qualname__, function.__doc__
    outer.__wrapped__ = function
    return outer


def _as_result(emitter: Emitter, value: Any, kind: Any) -> Any:
    """Return a value as numba passes the result of a function."""
    if isinstance(kind, types.NoneType):
        return emitter.context.get_dummy_value()
    if isinstance(kind, types.BaseTuple):
        parts = [emitter.cast(each, part) for each, part in zip(value, kind.types, strict=True)]
        return emitter.context.make_tuple(emitter.builder, kind, parts)
    return emitter.cast(value, kind)


@cache
def _definitions(module: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}


class _Call:
    """Translation of one call of a function, in place of the call."""

    def __init__(self, emitter: Emitter, function: Callable[..., Any], given: list[Any], named: dict[str, Any]) -> None:
        self._emitter, self._builder = emitter, emitter.builder
        self._globals = function.__globals__
        self._definition = _definitions(function.__module__)[function.__name__]
        self._names: dict[str, Any] = {}  # values
        self._cells: dict[str, Value] = {}  # variables that are numbers
        self._loops: list[tuple[Any, Any]] = []  # blocks of the next iteration and after the loop
        self._depth = 0  # of branches and loops
        self._exit: Any = None  # block after the call, if it is reached from several places
        self._results: Any = None
        assigned = {
            each.id
            for each in ast.walk(self._definition)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        for name, value in inspect.signature(function).bind(*given, **named).arguments.items():
            self._names[name] = value
            if name in assigned:
                self._assign_name(name, value)

    def value(self) -> Any:
        """Translate the body and return the result."""
        self._suite(self._definition.body)
        if self._exit is None:
            return self._results
        if not self._builder.block.is_terminated:
            self._builder.branch(self._exit)
        self._builder.position_at_end(self._exit)
        return self._read_results(self._results)

    # -- statements ------------------------------------------------------------------------------------------------

    def _suite(self, statements: list[ast.stmt]) -> bool:
        """Translate statements; return whether the end is reached."""
        return all(getattr(self, f"_{type(each).__name__.lower()}")(each) for each in statements)

    def _expr(self, node: ast.Expr) -> bool:
        if not isinstance(node.value, ast.Constant):
            self._evaluate(node.value)
        return True

    def _assign(self, node: ast.Assign) -> bool:
        value = self._evaluate(node.value)
        for target in node.targets:
            self._assign_to(target, value)
        return True

    def _augassign(self, node: ast.AugAssign) -> bool:
        operation, target = type(node.op).__name__, node.target
        if isinstance(target, ast.Subscript):
            place = self._place(target)
            result = self._calculate(operation, self._emitter.load(place), self._evaluate(node.value))
            self._emitter.store(place.dtype, place.address, result)
        else:
            before = self._attribute(target) if isinstance(target, ast.Attribute) else self._name(target)
            self._assign_to(target, self._calculate(operation, before, self._evaluate(node.value)))
        return True

    def _return(self, node: ast.Return) -> bool:
        value = None if node.value is None else self._evaluate(node.value)
        if self._depth == 0 and self._exit is None:
            self._results = value
            return False
        if self._exit is None:
            self._exit, self._results = self._builder.append_basic_block(), self._new_results(value)
        self._write_results(self._results, value)
        self._builder.branch(self._exit)
        return False

    def _if(self, node: ast.If) -> bool:
        test = self._evaluate(node.test)
        if not isinstance(test, Value):
            return self._suite(node.body if test else node.orelse)
        yes, no = self._builder.append_basic_block(), self._builder.append_basic_block()
        after = self._builder.append_basic_block() if node.orelse else no
        self._builder.cbranch(self._emitter.is_true(test), yes, no)
        reached = self._branch(yes, node.body, after)
        if node.orelse:
            reached = self._branch(no, node.orelse, after) or reached
        self._builder.position_at_end(after)
        if node.orelse and not reached:
            self._builder.unreachable()
            return False
        return True

    def _branch(self, block: Any, statements: list[ast.stmt], after: Any) -> bool:
        """Translate statements into a block; return whether they reach the block after it."""
        self._builder.position_at_end(block)
        with self._deeper():
            reached = self._suite(statements)
        if reached:
            self._builder.branch(after)
        return reached

    def _while(self, node: ast.While) -> bool:
        test, body, after = (self._builder.append_basic_block() for _ in range(3))
        self._builder.branch(test)
        self._builder.position_at_end(test)
        condition = self._evaluate(node.test)
        if isinstance(condition, Value):
            self._builder.cbranch(self._emitter.is_true(condition), body, after)
        else:
            self._builder.branch(body)
        self._loop(node.body, body, test, after)
        return True

    def _for(self, node: ast.For) -> bool:
        """Translate a loop over a range."""
        if not (isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name)):
            raise TypeError("a loop is over a range")
        bounds = [self._evaluate(each) for each in node.iter.args]
        first, last, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        build, index = self._builder, self._emitter.index
        start, end, by = index(first), index(last), index(step)
        before, (test, body, following, after) = build.block, (build.append_basic_block() for _ in range(4))
        build.branch(test)
        build.position_at_end(test)
        counter = build.phi(start.type)
        counter.add_incoming(start, before)
        downward = not isinstance(step, Value) and step < 0
        build.cbranch(build.icmp_signed(">" if downward else "<", counter, end), body, after)
        build.position_at_end(following)
        counter.add_incoming(build.add(counter, by, flags=("nsw",)), following)
        build.branch(test)
        build.position_at_end(body)
        self._assign_name(node.target.id, Value(types.int64, counter))
        self._loop(node.body, body, following, after)
        return True

    def _loop(self, statements: list[ast.stmt], body: Any, following: Any, after: Any) -> None:
        self._loops.append((following, after))
        self._branch(body, statements, following)
        self._loops.pop()
        self._builder.position_at_end(after)

    def _break(self, node: ast.Break) -> bool:
        self._builder.branch(self._loops[-1][1])
        return False

    def _continue(self, node: ast.Continue) -> bool:
        self._builder.branch(self._loops[-1][0])
        return False

    @contextmanager
    def _deeper(self) -> Any:
        """Mark statements that may be left out or repeated."""
        self._depth += 1
        yield
        self._depth -= 1

    # -- assignment ------------------------------------------------------------------------------------------------

    def _assign_to(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            for part, each in zip(target.elts, value, strict=True):
                self._assign_to(part, each)
        elif isinstance(target, ast.Name):
            self._assign_name(target.id, value)
        elif isinstance(target, ast.Attribute):
            kind, address = self._emitter.member(self._evaluate(target.value), target.attr)
            self._emitter.store(kind, address, value)
        elif isinstance(target, ast.Subscript):
            place = self._place(target)
            self._emitter.store(place.dtype, place.address, value)

    def _assign_name(self, name: str, value: Any) -> None:
        """Set a variable. A number has the type of its first value; arrays and tuples change outside branches only."""
        if is_number(value):
            if name not in self._cells:
                self._cells[name] = self._emitter.new_cell(self._emitter.number(value).kind)
            cell = self._cells[name]
            self._builder.store(self._emitter.cast(value, cell.kind), cell.llvm)
        elif self._depth > 0 and self._names.get(name, value) is not value:
            raise TypeError(f"the array or tuple {name} changes in a branch")
        else:
            self._names[name] = value

    def _new_results(self, value: Any) -> Any:
        """Return variables for the result of the function."""
        if isinstance(value, tuple):
            return tuple(self._new_results(each) for each in value)
        return None if value is None else self._emitter.new_cell(self._emitter.number(value).kind)

    def _write_results(self, cells: Any, value: Any) -> None:
        if isinstance(cells, tuple):
            for cell, each in zip(cells, value, strict=True):
                self._write_results(cell, each)
        elif cells is not None:
            self._builder.store(self._emitter.cast(value, cells.kind), cells.llvm)

    def _read_results(self, cells: Any) -> Any:
        if isinstance(cells, tuple):
            return tuple(self._read_results(cell) for cell in cells)
        return None if cells is None else Value(cells.kind, self._builder.load(cells.llvm))

    # -- expressions -----------------------------------------------------------------------------------------------

    def _evaluate(self, node: ast.expr) -> Any:
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: Any) -> Any:
        if node.id in self._cells:
            cell = self._cells[node.id]
            return Value(cell.kind, self._builder.load(cell.llvm))
        if node.id in self._names:
            return self._names[node.id]
        if node.id in self._globals:
            return self._globals[node.id]
        builtins = self._globals["__builtins__"]
        return builtins[node.id] if isinstance(builtins, dict) else getattr(builtins, node.id)

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self._evaluate(node.value)
        if isinstance(owner, ArrayValue):
            if node.attr != "shape":
                raise TypeError(f"arrays have no attribute {node.attr} here")
            return _Lengths(owner)
        return self._emitter.field(owner, node.attr) if isinstance(owner, Value) else getattr(owner, node.attr)

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._evaluate(each) for each in node.elts)

    def _subscript(self, node: ast.Subscript) -> Any:
        owner = self._evaluate(node.value)
        if isinstance(owner, _Lengths | tuple):
            return owner[self._evaluate(node.slice)]
        return self._emitter.load(self._place(node, owner))

    def _place(self, node: ast.Subscript, owner: Any = None) -> ArrayValue:
        """Return the part of an array that a subscript selects."""
        array = self._evaluate(node.value) if owner is None else owner
        if isinstance(array, np.ndarray):
            array = self._emitter.constant_array(array)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return self._emitter.part(array, [self._bounds(part) for part in parts])

    def _bounds(self, node: ast.expr) -> Any:
        """Return an index, or first and last index of a slice."""
        if isinstance(node, ast.Slice) and node.upper is not None:
            return 0 if node.lower is None else self._evaluate(node.lower), self._evaluate(node.upper)
        return self._evaluate(node)

    def _binop(self, node: ast.BinOp) -> Any:
        return self._calculate(type(node.op).__name__, self._evaluate(node.left), self._evaluate(node.right))

    def _calculate(self, operation: str, left: Any, right: Any) -> Any:
        """Return the result of an operation: a constant if both numbers are."""
        if isinstance(left, Value) or isinstance(right, Value):
            return self._emitter.calculate(operation, left, right)
        return _STATIC[operation](left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self._evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return self._emitter.opposite(value) if isinstance(value, Value) else not value
        return self._emitter.negative(value) if isinstance(value, Value) else -value

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            raise TypeError("a comparison has two sides")
        left, right, operation = self._evaluate(node.left), self._evaluate(node.comparators[0]), node.ops[0]
        if isinstance(operation, ast.Is | ast.IsNot):  # with None
            return (left is right) == isinstance(operation, ast.Is)
        if isinstance(left, Value) or isinstance(right, Value):
            return self._emitter.compare(type(operation).__name__, left, right)
        return _STATIC[type(operation).__name__](left, right)

    def _boolop(self, node: ast.BoolOp) -> Any:
        """Translate ``and`` or ``or``: later operands are evaluated only if they matter."""
        return self._combine(isinstance(node.op, ast.Or), node.values)

    def _combine(self, decisive: bool, operands: list[ast.expr]) -> Any:
        """Return the first operand that has the decisive value, else the last one."""
        value, build = self._evaluate(operands[0]), self._builder
        if len(operands) == 1 or (not isinstance(value, Value) and bool(value) == decisive):
            return value
        if not isinstance(value, Value):
            return self._combine(decisive, operands[1:])
        more, after, before = build.append_basic_block(), build.append_basic_block(), build.block
        build.cbranch(self._emitter.is_true(value), *((after, more) if decisive else (more, after)))
        build.position_at_end(more)
        rest = self._emitter.is_true(self._combine(decisive, operands[1:]))
        end = build.block
        build.branch(after)
        build.position_at_end(after)
        result = build.phi(rest.type)
        result.add_incoming(rest.type(int(decisive)), before)
        result.add_incoming(rest, end)
        return Value(types.boolean, result)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test, build = self._evaluate(node.test), self._builder
        if not isinstance(test, Value):
            return self._evaluate(node.body if test else node.orelse)
        yes, no, after = (build.append_basic_block() for _ in range(3))
        build.cbranch(self._emitter.is_true(test), yes, no)
        ends = []
        for block, part in ((yes, node.body), (no, node.orelse)):
            build.position_at_end(block)
            ends.append((self._evaluate(part), build.block))
        kind = self._emitter.common(*(value for value, _ in ends))
        incoming = []
        for value, block in ends:
            build.position_at_end(block)
            incoming.append((self._emitter.cast(value, kind), block))
            build.branch(after)
        build.position_at_end(after)
        result = build.phi(incoming[0][0].type)
        for llvm, block in incoming:
            result.add_incoming(llvm, block)
        return Value(kind, result)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Any:
        function: Any = self._evaluate(node.func)
        given = [self._evaluate(each) for each in node.args]
        named = {str(each.arg): self._evaluate(each.value) for each in node.keywords}
        if function in _EXTREMES:
            return self._emitter.extreme(_EXTREMES[function], given)
        if function in _UNARY or isinstance(function, np.ufunc) or getattr(function, "__module__", None) == "math":
            return self._emitter.function(function, given[0])
        if function is np.zeros:
            return self._emitter.zeros(*(given[0] if isinstance(given[0], tuple) else given))
        if inspect.isclass(function):  # a named tuple
            return function(*given, **named)
        if hasattr(function, "py_func"):
            function = inspect.unwrap(function.py_func)
        if inspect.isfunction(function):
            return _Call(self._emitter, function, given, named).value()
        if named:
            raise TypeError("arguments of an intrinsic have no names")
        return self._intrinsic(function, given)

    def _intrinsic(self, function: Any, given: list[Any]) -> Any:
        context = self._emitter.context
        kinds, values = zip(*map(self._emitter.exported, given), strict=True)
        called = context.typing_context.resolve_value_type(function)
        signature = called.get_call_type(context.typing_context, kinds, {})
        result = context.get_function(called, signature)(self._builder, values)
        return self._emitter.imported(signature.return_type, result)


class _Lengths:
    """Lengths of the axes of an array, loaded when they are read."""

    def __init__(self, array: ArrayValue) -> None:
        self._array = array

    def __getitem__(self, axis: int) -> Value:
        return Value(types.int64, self._array.length(axis))
