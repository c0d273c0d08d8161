"""Compiled functions as arguments of compiled functions, in a way that keeps the caller cacheable.

Numba gives every function a type of its own, which no later process knows again: a chain that takes the
functions of its target as such would be compiled anew in every process. A pointer's type is its signature.
"""

from __future__ import annotations

from typing import Any

import numba
import numba.experimental.function_type  # only then does numba know what a pointer is
from numba import types

from steinstream.targets import Compiled


class Pointer(types.WrapperAddressProtocol):  # type: ignore[misc]
    """A numba function at one signature, compiled when first needed. It must not raise."""

    def __init__(self, function: Any, returns: Any, *arguments: Any) -> None:
        self._function = function
        self._signature = returns(*arguments)

    def __wrapper_address__(self) -> int:
        result = self._function.get_compile_result(self._signature)
        return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))

    def signature(self) -> Any:
        """The signature, by which numba tells one pointer's type from another's."""
        return self._signature


def pointers(target: Compiled) -> tuple[Pointer, Pointer]:
    """The two functions of a compiled target: ``log_densities`` and ``log_density_and_score``."""
    given, vector = numba.typeof(target.parameters), types.float64[::1]
    return (
        Pointer(target.log_densities, types.void, given, types.float64[:, ::1], vector),
        Pointer(target.log_density_and_score, types.float64, given, vector, vector),
    )
