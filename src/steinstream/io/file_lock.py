"""Locks between processes: a checkpoint or a folder belongs to one process at a time.

The system releases the lock when the process ends, also after SIGKILL. Where it has no locks (Windows, some network
file systems), nothing is locked, and a line is logged.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from weakref import finalize

from steinstream.errors import InputError

_log = logging.getLogger("steinstream")


class FileLock:
    """A lock file that one process holds until `release`, or until the object is deleted.

    Parameters
    ----------
    path : Path
        The lock file.
    used : Path
        What it protects, for the error message.
    remove : bool, default True
        Delete the lock file at the end.

    Raises
    ------
    InputError
        If another process holds the lock.
    OSError
        If the lock file cannot be created.

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
            import fcntl

            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            return handle
        except (BlockingIOError, PermissionError):
            os.close(handle)
            raise InputError(
                f"Another process uses {used}.", "Wait until it ends, or use another file or folder."
            ) from None
        except OSError as error:
            _log.info("No lock protects %s: %s.", used, error)
            return handle
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # the process that held the lock has just deleted the file


def _release(handle: int, path: Path | None, owner: int) -> None:
    """Delete the lock file before the lock is released, so that nobody else holds it then."""
    if path is not None and os.getpid() == owner:  # not in a forked child
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.info("A lock file is not deleted: %s.", error)
    os.close(handle)
