"""What one page has been told, and what it has to be told next: differences, so that ten thousand draws cost little.

A page that is slow is told less often, and each time all that changed since: nothing piles up for it. Draws are sorted
by their arrival, so that new ones stand behind all others. Preconditioner travel as float32, as distances from an origin
near them: what lies far from zero and close together stays apart.
"""

from __future__ import annotations

import math
import time
from base64 import b64encode
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.live.snapshot import ARRIVAL, Snapshot, ThinnerObserver

_WINDOW = 5.0  # seconds over which the rate is measured
_LISTED = 500  # parameters, up to which their names are told


class Told(NamedTuple):
    """What a page knows of the kept draws."""

    observer: ThinnerObserver
    arrived: NDArray[np.int64]
    origin: tuple[float, float]


class Viewer:
    """One open page, which shows the draws in two coordinates: those asked for, or the first two."""

    def __init__(self, x: int | None = None, y: int | None = None) -> None:
        self._asked = x, y
        self.x, self.y = 0, 1
        self._told: Told | None = None
        self._curve = -1  # its last step
        self._pace: deque[tuple[float, int, int]] = deque()  # when, pass, draws

    @property
    def columns(self) -> frozenset[int]:
        """The coordinates it looks at."""
        return frozenset((self.x, self.y))

    def settle(self, dim: int) -> None:
        """Now that the number of dimensions is known: what a page asks for must be among them."""
        first = (ARRIVAL, 0) if dim == 1 else (0, 1)
        wanted = (own if asked is None else asked for asked, own in zip(self._asked, first, strict=True))
        self.x, self.y = (min(max(axis, ARRIVAL), dim - 1) for axis in wanted)

    def message(
        self, observer: ThinnerObserver, now: Snapshot, names: tuple[str, ...] | None = None, ended: bool = False
    ) -> dict[str, Any]:
        """All that changed since the last one; at first all there is."""
        told = self._told if self._told is not None and self._told.observer is observer else None
        said: dict[str, Any] = {
            "pass": now.pass_number,
            "draws": now.draws,
            "steps": now.steps,
            "kept": now.size,
            "ksd": _number(now.ksd),
            "elapsed": round(time.monotonic() - observer.start_time, 3),
            "rate": self._rate(observer, now, ended),
            "settled": now.warmup_ended,
        }
        if told is None:
            dim = observer.thinner.dim
            said["about"] = {
                "dim": dim,
                "names": list(names) if names is not None and dim <= _LISTED else None,
                "candidates": observer.thinner.config.candidates,
                "x": self.x,
                "y": self.y,
            }
        last = int(now.history.step[-1]) if len(now.history.step) else 0
        if told is None or last != self._curve:
            step, size, ksd = (part.tolist() for part in now.history)
            said["curve"] = {"step": step, "size": size, "ksd": list(map(_number, ksd)), "changes": list(now.changes)}
            self._curve = last
        return said | self._draws(observer, told, now)

    def _draws(self, observer: ThinnerObserver, told: Told | None, now: Snapshot) -> dict[str, Any]:
        """The kept draws, or which of them went (by their places) and which came."""
        order = np.argsort(now.arrived)
        arrived, values = now.arrived[order], [now.columns[axis][order] for axis in (self.x, self.y)]
        if told is None or len(told.arrived) == 0:
            middle = [float(np.median(part)) if len(part) else 0.0 for part in values]
            self._told = Told(observer, arrived, (middle[0], middle[1]))
            return {"origin": middle, "all": _coded(values, middle)}
        first_new = int(np.searchsorted(arrived, told.arrived[-1], side="right"))
        still = np.isin(told.arrived, arrived[:first_new], assume_unique=True)
        self._told = told._replace(arrived=arrived)
        gone = np.flatnonzero(~still).astype("<u4")
        return {
            "gone": b64encode(gone.tobytes()).decode(),
            "new": _coded([part[first_new:] for part in values], told.origin),
        }

    def _rate(self, observer: ThinnerObserver, now: Snapshot, ended: bool) -> float | None:
        """Draws a second of late; at first and at the end of all, and not known in a pass that has just begun."""
        clock, pace = time.monotonic(), self._pace
        if ended:
            pace.clear()
        while pace and (pace[0][1] != now.pass_number or clock - pace[0][0] > _WINDOW or pace[0][2] > now.draws):
            pace.popleft()
        when, draws = pace[0][::2] if pace else (observer.start_time, observer.first_draw)
        pace.append((clock, now.pass_number, now.draws))
        if now.draws < draws or clock - when <= 0 or (len(pace) == 1 and now.pass_number > 1):
            return None
        return round((now.draws - draws) / (clock - when), 3)


def _coded(values: list[NDArray[np.float64]], origin: tuple[float, float] | list[float]) -> str:
    """Pairs of float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        both = np.stack([part - middle for part, middle in zip(values, origin, strict=True)], axis=1).astype("<f4")
    return b64encode(both.tobytes()).decode()


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
