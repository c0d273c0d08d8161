"""Compiled functions whose machine code is saved in files of our own.

Each function has one file per signature and processor. A file starts with a checksum of its key and its content. A file
that does not match it, for example because it was truncated, is ignored and replaced after compilation. Files are
replaced as a whole, so that several processes can share the folder.

A file is program code. The checksum detects damage and not forgery, so a folder is used only if no other user can write
to it.

Numba by itself loads a damaged file, and two processes that start at once can give one number to two files. It compares
only the time stamp of the source file with the outermost function. Here the key contains the text of all sources.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps

_log = logging.getLogger("steinstream")
_CHECKSUM = 32  # bytes


def is_private(folder: Path) -> bool:
    """Create a folder and return whether only this user and root can write to it. Windows protects the home folder."""
    if not hasattr(os, "geteuid"):
        return True
    trusted = (0, os.geteuid())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        own, above = folder.stat(), [parent.stat() for parent in folder.parents]
    except OSError as problem:
        _log.info("Machine code is not saved: %s.", problem)
        return False
    private = own.st_uid in trusted and not own.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if private and all(each.st_mode & stat.S_ISVTX or not each.st_mode & stat.S_IWOTH for each in above):
        return True
    _log.info("Machine code is not saved, because other users can write to %s.", folder)
    return False


@cache
def _sources() -> str:
    """Return a digest of the sources of all compiled functions."""
    package = Path(__file__).resolve().parent.parent
    sources = [package / "kernels.py"]
    sources += [
        path for folder in ("_engine", "targets", "samplers") for path in sorted((package / folder).glob("*.py"))
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


class CodeFiles:
    """Files of one function (before its compilation) in a folder, in place of numba's own."""

    def __init__(self, folder: str, function: Callable[..., Any]) -> None:
        self._folder, self._name = Path(folder), function.__name__
        self._function = f"{function.__module__}.{function.__qualname__}"

    def load(self, key: Any) -> Any:
        """Return what was saved with a key, or None. The key contains the signature and the processor."""
        text = self._text(key)
        try:
            content = self._path(text).read_bytes()
        except OSError:
            return None
        if content[:_CHECKSUM] != _checksum(text, content[_CHECKSUM:]):
            _log.info("A damaged file with machine code is ignored: %s.", self._path(text))
            return None
        try:
            return pickle.loads(content[_CHECKSUM:])
        except Exception as problem:  # of another version of a library
            _log.info("A file with machine code is ignored: %s (%s).", self._path(text), problem)
            return None

    def save(self, key: Any, data: Any) -> None:
        """Save data with a key. Without space or permission nothing is saved."""
        text, content = self._text(key), dumps(data)
        path = self._path(text)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}")
        try:
            temporary.write_bytes(_checksum(text, content) + content)
            temporary.replace(path)
        except OSError as problem:
            with suppress(OSError):
                temporary.unlink()
            _log.info("Machine code is not saved: %s.", problem)

    def flush(self) -> None:
        """Remove the files of this function."""
        for path in self._folder.glob(f"{self._name}-*"):
            path.unlink(missing_ok=True)

    def _text(self, key: Any) -> bytes:
        """Return everything on which the machine code depends."""
        return repr((sys.implementation.cache_tag, numba.__version__, _sources(), self._function, key)).encode()

    def _path(self, text: bytes) -> Path:
        """Return the file of a key."""
        return self._folder / f"{self._name}-{hashlib.sha256(text).hexdigest()[:32]}"


class CodeCache(FunctionCache):  # type: ignore[misc]
    """Cache of one function, which uses :class:`CodeFiles`."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        previous, config.CACHE_DIR = config.CACHE_DIR, folder
        try:
            super().__init__(function)
        finally:
            config.CACHE_DIR = previous
        self._impl.locator.ensure_cache_path = lambda: None  # raises if the disk is full; the files do not
        self._cache_file = CodeFiles(self.cache_path, function)


class CachedDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Result of ``numba.njit``, with a :class:`CodeCache`."""

    def cache_in(self, folder: str) -> None:
        """Save machine code in a folder, or nowhere if the folder cannot be written."""
        try:
            self._cache = CodeCache(self.py_func, folder)
        except RuntimeError:  # compile in every process
            return


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()
