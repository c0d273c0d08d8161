"""Compile with numba, once per machine: the machine code is cached on disk under a name that depends on our sources."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
from numba.core import config


def _cache_folder() -> str:
    """A folder for this very source text.

    Numba alone would judge by the time stamp of the file that holds the outermost function: it would run stale machine
    code after a change in another file, or after an upgrade from wheels that carry one fixed time stamp.
    """
    if config.CACHE_DIR:
        return str(config.CACHE_DIR)
    package = Path(__file__).resolve().parent.parent
    sources = [package / "kernels.py", *sorted((package / "_engine").glob("*.py"))]
    sources += [path for folder in ("targets", "samplers") for path in sorted((package / folder).glob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / (
        "Library/Caches" if sys.platform == "darwin" else ".cache"
    )
    return str(Path(home) / "steinstream" / f"machine-code-{digest}")


_FOLDER = _cache_folder()

F = TypeVar("F", bound=Callable[..., Any])


@overload
def jit(function: F, /) -> F: ...
@overload
def jit(**options: Any) -> Callable[[F], F]: ...
def jit(function: Any = None, /, **options: Any) -> Any:
    """``numba.njit`` with IEEE division, no GIL, no reassociation, and the cache above.

    ``fastmath`` stays off: results must not depend on how a compiler chose to reorder a sum.
    """
    if function is None:
        return lambda function: jit(function, **options)
    options = {"_nrt": True, **options}  # said outright, or it is inherited from the caller
    compiled = numba.njit(function, error_model="numpy", nogil=True, **options)
    if options.get("forceinline"):  # it lives in its callers, and is cached with them
        return compiled
    ours, config.CACHE_DIR = config.CACHE_DIR, _FOLDER
    try:
        compiled.enable_caching()
    except RuntimeError:  # no writable place: compile in every process instead
        pass
    finally:
        config.CACHE_DIR = ours
    return compiled


#: For the engine's loops: no array is made there, hence none counted (a third of a step at a hundred kept draws).
bare = jit(_nrt=False)

#: For what runs inside a loop, where a call would stop vectorisation. Not callable from Python, which halves the time
#: that compiling it takes.
inlined = jit(forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


_forked = False


def _mark_forked() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def threads() -> int | None:
    """How many threads a compiled loop may use; None for one.

    Only OpenMP and TBB wake threads fast enough to pay here, and only they can be used from several Python threads at
    once. GNU OpenMP does not survive a fork, so a forked child keeps to one thread.
    """
    if _forked or not _threads_pay():
        return None
    count = int(numba.get_num_threads())  # of the calling thread: its owner may have set it
    return count if count > 1 else None


@cache
def _threads_pay() -> bool:
    if config.THREADING_LAYER in ("workqueue", "forksafe"):
        return False
    return any(find_spec(f"numba.np.ufunc.{layer}") for layer in ("tbbpool", "omppool"))
