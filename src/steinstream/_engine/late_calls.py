"""Functions that are compiled on their own, when compiled code first calls them.

Numba compiles a function together with all functions that it calls, and again for every caller. A function with the
decorator :func:`called_late` is compiled once, and only if it is called. A caller holds its address, which is null at
first; the first call asks Python for it. Later calls cost about a nanosecond.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import pickle
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from llvmlite.binding import add_symbol
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from steinstream._engine.jit import jit
from steinstream._engine.translation import translation_of

_log = logging.getLogger("steinstream")
_BYTES, _SIZE = ir.IntType(8).as_pointer(), ir.IntType(64)
_SYMBOL = "steinstream_find_address"

_functions: dict[str, Any] = {}


def called_late(result: Any = types.none, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function on its own when compiled code first calls it.

    ``result`` is the type of its result. It is called from compiled code only.
    """
    return lambda function: _called_late(function, result, options)


def _called_late(function: Callable[..., Any], result: Any, options: dict[str, Any]) -> Any:
    name = f"{function.__module__}.{function.__qualname__}"
    body = function if options else translation_of(function, result)
    _functions[name] = jit(**{"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options})(body)
    own = inspect.signature(function)

    def call(context: Any, *given: Any, **named: Any) -> Any:
        kinds = tuple(types.unliteral(kind) for kind in own.bind(*given, **named).args)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address = _address(context, builder, name, kinds)
            pointer = context.call_conv.get_function_type(result, kinds).as_pointer()
            function = builder.bitcast(address, pointer)
            status, value = context.call_conv.call_function(builder, function, result, kinds, values)
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return value

        return result(*kinds), generate

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY)
    call.__signature__ = own.replace(parameters=[context, *own.parameters.values()])  # type: ignore[attr-defined]
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return intrinsic(call)


def _address(context: Any, builder: Any, name: str, kinds: tuple[Any, ...]) -> Any:
    """Emit the instructions that return the address of a function, and find it at the first call."""
    module, convention = builder.module, context.call_conv
    cell = ir.GlobalVariable(module, _BYTES, module.get_unique_name(f"address.of.{name}"))
    cell.linkage, cell.initializer = "internal", ir.Constant(_BYTES, None)
    with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(cell))):
        key = pickle.dumps((name, kinds))
        kind = ir.FunctionType(ir.VoidType(), [_BYTES.as_pointer(), _BYTES, _SIZE])
        find = cgutils.get_or_insert_function(module, kind, _SYMBOL)
        builder.call(find, [cell, context.insert_const_bytes(module, key), _SIZE(len(key))])
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(cell))):
            convention.return_user_exc(
                builder, RuntimeError, (f"The function {name} could not be compiled; the log has the reason.",)
            )
    return builder.load(cell)


@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_int64)
def _find_address(cell: Any, key: int, length: int) -> None:
    """Compile a function, or load it from the cache, and write its address. Called by compiled code.

    An exception cannot pass through compiled code: it is logged, and the caller raises another one.
    """
    name, kinds = pickle.loads(ctypes.string_at(key, length))
    try:
        dispatcher = _functions[name]
        dispatcher.compile(kinds)
        compiled = dispatcher.overloads[kinds]
        cell[0] = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    except Exception:
        _log.exception("The function %s could not be compiled with numba %s.", name, numba.__version__)


add_symbol(_SYMBOL, ctypes.cast(_find_address, ctypes.c_void_p).value)
