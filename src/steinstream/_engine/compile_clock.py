"""Time that compilation takes. This module does not import numba."""

from __future__ import annotations

import time
from collections.abc import Callable


class CompileClock:
    """Measures the time of compilations; calls its observers with True when one begins, with False when it ends."""

    def __init__(self) -> None:
        self.observers: list[Callable[[bool], None]] = []
        self._depth = 0
        self._started = 0.0
        self._finished = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of compilation in this process, including the current one."""
        return self._finished + (time.perf_counter() - self._started if self._depth else 0.0)

    def start(self) -> None:
        """Begin a compilation, or a part of one."""
        self._depth += 1
        if self._depth == 1:
            if not self._finished:
                import logging  # not for the help of the command line

                logging.getLogger("steinstream").info("Compiling (first use only).")
            self._started = time.perf_counter()
            self._report(True)

    def stop(self) -> None:
        """End what was begun last."""
        if self._depth == 1:
            self._finished = self.seconds
        self._depth -= 1
        if self._depth == 0:
            self._report(False)

    def _report(self, begins: bool) -> None:
        for observer in self.observers:
            observer(begins)


#: Clock of this process. Numba compiles one function at a time.
compile_clock = CompileClock()
