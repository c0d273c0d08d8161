"""Compilation with numba. Machine code is cached on disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
from numba.core import config, event
from numba.extending import register_jitable

from steinstream._engine.code_cache import CachedDispatcher, is_private
from steinstream._engine.compile_clock import compile_clock
from steinstream.errors import SteinstreamError

if config.DISABLE_JIT:
    raise SteinstreamError(
        "The environment variable NUMBA_DISABLE_JIT disables the compiler that steinstream requires.",
        "Unset NUMBA_DISABLE_JIT.",
    )


def _cache_folder() -> str | None:
    """Return the folder of the cache, or None if there is none to which only this user can write."""
    folder = _preferred_folder()
    return str(folder) if folder is not None and is_private(folder) else None


def _preferred_folder() -> Path | None:
    """Return the folder of the cache, or None without a home folder."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "steinstream"
    home = os.environ.get("XDG_CACHE_HOME")
    if not home:
        try:
            home = str(Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache"))
        except RuntimeError:  # HOME is not set and the user is unknown
            return None
    return Path(home) / "steinstream" / "machine-code"


_FOLDER = _cache_folder()

F = TypeVar("F", bound=Callable[..., Any])


@overload
def jit(function: F, /) -> F: ...
@overload
def jit(**options: Any) -> Callable[[F], F]: ...
def jit(function: Any = None, /, **options: Any) -> Any:
    """Apply ``numba.njit`` with IEEE division, without the GIL, and with the cache.

    ``fastmath`` stays off: results must not depend on the order in which a compiler evaluates a sum.
    """
    if function is None:
        return lambda function: jit(function, **options)
    options = {"_nrt": True, **options}  # set explicitly; otherwise it is inherited from the caller
    compiled = CachedDispatcher(
        function, targetoptions={"nopython": True, "error_model": "numpy", "nogil": True} | options
    )
    if _FOLDER is not None and not options.get("forceinline"):  # an inlined function is cached with its callers
        compiled.cache_in(_FOLDER)
    return compiled


#: For loops that allocate no arrays: without reference counting.
bare = jit(_nrt=False, no_cfunc_wrapper=True)

#: For functions that are called inside a loop, where a call would prevent vectorisation. Not callable from Python,
#: which halves their compile time.
inlined = jit(forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)

#: For functions that work in Python and in compiled code, where they are inlined.
shared = register_jitable(forceinline=True, no_cfunc_wrapper=True)

#: For inlined functions that return arrays to a function compiled by ``jit``: with reference counting.
inlined_with_arrays = jit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class _Compilations(event.Listener):  # type: ignore[misc]
    """Reports each compilation to the clock. A function may be compiled on behalf of another one."""

    def on_start(self, event: Any) -> None:
        compile_clock.start()

    def on_end(self, event: Any) -> None:
        compile_clock.stop()


event.register("numba:compile", _Compilations())


_forked = False


def _mark_forked() -> None:
    """Remember that this process is a forked child."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def threads() -> int | None:
    """Return the number of threads that a compiled loop may use, or None for one thread.

    Several threads are used only with OpenMP or TBB: other threading layers start threads too slowly and cannot be
    used from several Python threads at once. GNU OpenMP does not survive a fork, so a forked child uses one thread.
    """
    if _forked or not _has_fast_threads():
        return None
    count = int(numba.get_num_threads())  # setting of the calling thread
    return count if count > 1 else None


@cache
def _has_fast_threads() -> bool:
    """Whether numba can use OpenMP or TBB."""
    if config.THREADING_LAYER in ("workqueue", "forksafe"):
        return False
    return any(find_spec(f"numba.np.ufunc.{layer}") for layer in ("tbbpool", "omppool"))
