"""Kernels as the engine uses them: parameters, and the addresses of the compiled rows.

The rows of a profile, with or without linear term, are compiled when a kernel of this kind is first used.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from steinstream._engine import base_row, kernel_row
from steinstream._engine.by_reference import by_reference
from steinstream._engine.jit import jit
from steinstream._engine.simd import integer
from steinstream._typing import Integers
from steinstream.kernels import PROFILES, Kernel

_compiling = Lock()


@by_reference
class CompiledKernel(NamedTuple):
    """Parameters of a kernel, as in :class:`steinstream.kernels.KernelParameters`, and its compiled rows."""

    profile: int
    first: float
    second: float
    grid: float
    linear: float
    base_grid: float
    rows: int  # address of the table of addresses
    scaled: int = 0  # 1 if the kernel is r(x) r(y) k0(x, y): see `compile_kernel`


def compile_kernel(kernel: Kernel, dim: int, scaled: bool = False) -> CompiledKernel:
    """Return the parameters and the compiled rows of a kernel in ``dim`` dimensions.

    A *scaled* kernel is r(x) r(y) k0(x, y), with a factor r of each draw. Draws and scores then have one more
    coordinate, the last one: it is 0 for the draw, so that the base kernel is the same, and r for the score.
    """
    parameters = kernel.parameters(dim)
    with _compiling:  # two threads would make two tables, and only one of them is held
        table = _row_table(parameters.profile, parameters.linear > 0.0, scaled)
    return CompiledKernel(*parameters, rows=table.ctypes.data, scaled=int(scaled))


@cache
def _row_table(profile: int, linear: bool, scaled: bool) -> Integers:
    """Return the addresses of the rows of a profile, with or without linear term and factors of the draws."""
    table = np.zeros(len(kernel_row.KERNEL_ROWS) + len(base_row.BASE_ROWS), dtype=np.int64)
    signature = (types.literal(profile), types.literal(linear), types.literal(scaled), types.int64[::1])
    compiled: Any = _write_addresses
    compiled.compile(signature)
    compiled.overloads[signature].entry_point(profile, linear, scaled, table)
    return table


@jit
def _write_addresses(profile, linear, scaled, table):
    """Write the addresses of all rows. The arguments before ``table`` are literals. Storage bookkeeping."""
    _compile_rows(profile, linear, scaled, table)


@intrinsic(prefer_literal=True)
def _compile_rows(context: Any, profile: Any, linear: Any, scaled: Any, table: Any) -> Any:
    """Compile the rows of a profile and write their addresses. Storage bookkeeping."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        module, phi = builder.module, PROFILES[profile.literal_value]
        kind = kernel_row.RowKind(phi, linear.literal_value, scaled.literal_value)
        functions = [kernel_row.row_function(module, kind, each) for each in kernel_row.KERNEL_ROWS]
        functions += [base_row.base_row_function(module, phi, each) for each in base_row.BASE_ROWS]
        addresses = context.make_array(signature.args[3])(context, builder, values[3]).data
        for index, function in enumerate(functions):
            address = builder.ptrtoint(function, cgutils.intp_t)
            builder.store(address, builder.gep(addresses, [integer(index)]))
        return context.get_dummy_value()

    return types.void(profile, linear, scaled, table), generate
