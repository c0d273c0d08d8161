"""One thread at a time may use a thinner. Another one waits until the call in progress has returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast
from weakref import WeakSet

from steinstream.errors import SteinstreamError

F = TypeVar("F", bound=Callable[..., Any])


_owners: WeakSet[Any] = WeakSet()


def new_lock(owner: Any) -> Any:
    """Return the lock for the attribute ``lock`` of an object; the thread that holds it may acquire it again."""
    _owners.add(owner)
    return RLock()


def exclusive(method: F) -> F:
    """Let a method hold the lock of its object while it runs."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        with self.lock:
            return method(self, *args, **options)

    return cast(F, call)


class _LostLock:
    """Lock of an object that a thread of the parent process used during a fork: no thread will release it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return False

    def __enter__(self) -> None:
        raise SteinstreamError(
            "This process was forked while another thread used the thinner, so its copy of the thinner is incomplete.",
            "Fork before the thread starts, or load a checkpoint.",
        )

    def __exit__(self, *error: object) -> None: ...


def _check_after_fork() -> None:
    """Mark objects that are in use in threads that this process does not have."""
    for each in [*_owners]:
        if each.lock.acquire(blocking=False):
            each.lock.release()
        else:
            each.lock = _LostLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_check_after_fork)
