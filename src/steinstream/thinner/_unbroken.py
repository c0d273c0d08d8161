"""Ctrl-C between two steps, never within one."""

from __future__ import annotations

from importlib import import_module
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

# What the module ``signal`` wraps: without its enumerations a change takes a tenth of a microsecond, not ten.
_signal: Any = import_module("_signal")
_CTRL_C = int(_signal.SIGINT)


class Unbroken:
    """What is begun within is finished; a Ctrl-C that came meanwhile is heeded at the end.

    Only the main thread is interrupted at all, and only where Ctrl-C is left to Python. Less than a microsecond.
    """

    __slots__ = ("_came", "_usual")

    def __enter__(self) -> None:
        self._came: FrameType | bool | None = False
        self._usual: Any = _signal.getsignal(_CTRL_C) if current_thread() is main_thread() else None
        if callable(self._usual):
            _signal.signal(_CTRL_C, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = frame

    def __exit__(self, *problem: object) -> None:
        if callable(self._usual):
            _signal.signal(_CTRL_C, self._usual)
            if self._came is not False:
                self._usual(_CTRL_C, self._came)
