"""Compiled functions as arguments of cached compiled functions.

Numba gives every compiled function a type of its own, which later processes do not recognise: a sampler that received
the functions of its target directly would be compiled in every process. The type of a pointer is its signature.
"""

from __future__ import annotations

from typing import Any

import numba
import numba.experimental.function_type  # registers the type of pointers
from numba import types

from steinstream.targets import CompiledTarget


class FunctionPointer(types.WrapperAddressProtocol):  # type: ignore[misc]
    """A numba function with one signature, compiled when first called. The function must not raise."""

    def __init__(self, function: Any, returns: Any, *arguments: Any) -> None:
        self._function = function
        self._signature = returns(*arguments)

    def __wrapper_address__(self) -> int:
        result = self._function.get_compile_result(self._signature)
        return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))

    def signature(self) -> Any:
        """Return the signature, which is the numba type of the pointer."""
        return self._signature


def function_pointers(target: CompiledTarget) -> tuple[FunctionPointer, FunctionPointer]:
    """Return pointers to ``log_densities`` and ``log_density_and_score`` of a compiled target."""
    parameters, vector = numba.typeof(target.parameters), types.float64[::1]
    return (
        FunctionPointer(target.log_densities, types.void, parameters, types.float64[:, ::1], vector),
        FunctionPointer(target.log_density_and_score, types.float64, parameters, vector, vector),
    )
