"""Numba decorators with a disk cache that depends on the sources of this package.

Numba alone compares only the time stamp of the file that contains the outermost function. After a change in another
file it would use outdated machine code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {"error_model": "numpy", "nogil": True}


def _cache_folder() -> str:
    """Return the cache folder of the current sources."""
    if config.CACHE_DIR:
        return str(config.CACHE_DIR)
    sources = sorted(Path(__file__).resolve().parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(home / "steinstream" / f"experiments-{digest}")


_FOLDER = _cache_folder()


def jit(function: F) -> F:
    """Compile a function with IEEE division, without the GIL and without reassociation, and cache it on disk."""
    compiled = numba.njit(function, _nrt=True, **_OPTIONS)
    previous, config.CACHE_DIR = config.CACHE_DIR, _FOLDER
    try:
        compiled.enable_caching()
    except RuntimeError:  # the folder is not writable: compile in every process
        pass
    finally:
        config.CACHE_DIR = previous
    return compiled


def inlined(function: F) -> F:
    """Compile a function that is always inlined into its caller, so that the caller can be vectorised."""
    options = {"forceinline": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(function, **options, **_OPTIONS)
