"""Locks between processes: a checkpoint or a folder belongs to one process at a time.

The system releases the lock when the process ends, also after SIGKILL. Some network file systems have no locks: then
nothing is locked, and a warning is logged.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import finalize

from steinstream.errors import InputError

_log = logging.getLogger("steinstream")


class FileLock:
    """A lock file that one process holds until `release`, or until the object is deleted.

    ``used`` is what it protects, for the error message. If ``remove``, the lock file is deleted at the end.
    An `InputError` is raised if another process holds the lock, an `OSError` if the lock file cannot be created.
    """

    def __init__(self, path: Path, used: Path, *, remove: bool = True) -> None:
        handle = _acquire(path, used)
        self._release = finalize(self, _release, handle, path if remove else None, os.getpid())

    @property
    def held(self) -> bool:
        """Whether the lock has not been released."""
        return self._release.alive

    def release(self) -> None:
        """Release the lock. A second call has no effect."""
        self._release()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _acquire(path: Path, used: Path) -> int:
    """Return a handle of the locked file."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle)
        except (BlockingIOError, PermissionError):
            os.close(handle)
            raise InputError(
                f"Another process uses {used}.", "Wait until it ends, or use another file or folder."
            ) from None
        except (OSError, ImportError) as error:
            _log.warning("No lock protects %s (%s). Do not use it in two processes at a time.", used, error)
            return handle
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # the process that held the lock has just deleted the file


def _lock(handle: int) -> None:
    """Lock an open file, or raise a `PermissionError` or a `BlockingIOError` if another process holds the lock."""
    try:
        import fcntl
    except ImportError:
        windows: Any = import_module("msvcrt")
        windows.locking(handle, windows.LK_NBLCK, 1)  # one byte, also of an empty file
    else:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release(handle: int, path: Path | None, owner: int) -> None:
    """Delete the lock file before the lock is released, so that nobody else holds it then.

    Windows deletes only closed files. There no process can delete the file while another one has it open.
    """
    if os.name == "nt":
        os.close(handle)
    if path is not None and os.getpid() == owner:  # not in a forked child
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.info("A lock file is not deleted: %s.", error)
    if os.name != "nt":
        os.close(handle)
