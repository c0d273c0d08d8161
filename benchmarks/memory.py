"""Memory of this process, as Linux reports it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

_PROCESS = Path("/proc/self")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as in malloc.h


def resident() -> float:
    """Megabytes now."""
    return _status("VmRSS")


def trim() -> None:
    """Give back what earlier calls left, which later ones could use again unseen."""
    ctypes.CDLL(None).malloc_trim(0)


def hoard() -> None:
    """Let malloc keep what is freed.

    By default large arrays may go back to the system, depending on what the process did before; then numpy waits for
    fresh pages at every temporary and is up to two and a half times slower.
    """
    library = ctypes.CDLL(None)
    library.mallopt(_TRIM_THRESHOLD, 1 << 30)
    library.mallopt(_MMAP_THRESHOLD, 32 << 20)


def growth(run: Callable[[], object]) -> float:
    """Megabytes that a call takes at its peak, beyond what was there before."""
    trim()
    (_PROCESS / "clear_refs").write_text("5")  # resets the peak
    before = resident()
    run()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    match = re.search(rf"{name}:\s*(\d+) kB", (_PROCESS / "status").read_text())
    if match is None:
        raise OSError(f"This system does not report {name}.")
    return int(match.group(1)) / 1024
