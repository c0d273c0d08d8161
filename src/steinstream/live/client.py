"""State of one open browser page: what it has received, and the next message for it.

Messages contain differences, so that ten thousand kept draws cost little. A slow page receives fewer messages, each
with all changes since the last one; nothing is queued. Draws are sorted by arrival, so that new ones come last. The
values are sent as float32, relative to an origin near the draws, so that draws far from zero and close together remain
distinct.

The draws of the stream behind the kept draws are a subsample of at most 4096. They are sent again every two seconds if
they have changed.
"""

from __future__ import annotations

import json
import math
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.live.snapshot import ARRIVAL, PERIOD, CheckStatus, Snapshot, ThinnerObserver

if TYPE_CHECKING:
    from steinstream.live.dashboard import Dashboard

_HEARTBEAT = 1.0  # seconds between two events if nothing changes
_STREAM_PERIOD = 2.0  # seconds between two updates of the stream behind the kept draws
_WINDOW = 5.0  # seconds over which the rate is measured
_MAX_NAMES = 500  # number of parameters up to which their names are sent


class SentDraws(NamedTuple):
    """Kept draws that a page has received: steps at which they arrived, and the origin of their coordinates."""

    observer: ThinnerObserver
    arrived: Integers
    origin: tuple[float, float]


class Client:
    """One open page, which shows the kept draws in two coordinates, or one of them and ``ARRIVAL``."""

    def __init__(self, x: int | None = None, y: int | None = None) -> None:
        self._requested = x, y
        self.x, self.y = 0, 1
        self._sent: SentDraws | None = None
        self._last_step = -1  # of the curve that was sent
        self._checks: tuple[CheckStatus, ...] = ()  # that were sent
        self._stream: tuple[int, ...] = ()  # number of draws, burn-in and last id that were sent
        self._next_stream = 0.0  # time
        self._progress: deque[tuple[float, int, int]] = deque()  # time, pass, draws

    @property
    def columns(self) -> frozenset[int]:
        """The coordinates that the page shows."""
        return frozenset((self.x, self.y))

    def choose_columns(self, dim: int) -> None:
        """Choose the coordinates to show, once the number of dimensions is known."""
        defaults = (ARRIVAL, 0) if dim == 1 else (0, 1)
        wanted = (usual if asked is None else asked for asked, usual in zip(self._requested, defaults, strict=True))
        self.x, self.y = (min(max(axis, ARRIVAL), dim - 1) for axis in wanted)

    def message(
        self, observer: ThinnerObserver, now: Snapshot, names: tuple[str, ...] | None = None, ended: bool = False
    ) -> dict[str, Any]:
        """Return everything that changed since the previous message; the complete state in the first one."""
        sent = self._sent if self._sent is not None and self._sent.observer is observer else None
        result: dict[str, Any] = {
            "pass": now.pass_number,
            "draws": now.draws,
            "steps": now.steps,
            "kept": now.size,
            "ksd": _finite_or_none(now.ksd),
            "mmd": _finite_or_none(now.mmd),
            "scores": now.has_scores,
            "elapsed": round(time.monotonic() - observer.start_time, 3),
            "rate": self._rate(observer, now, ended),
            "settled": now.warmup_ended,
        }
        if sent is None:
            dim = observer.thinner.dim
            result["about"] = {
                "dim": dim,
                "names": list(names) if names is not None and dim <= _MAX_NAMES else None,
                "candidates": observer.thinner.config.candidates,
                "stream_term": observer.thinner.config.stream_weight > 0,
                "x": self.x,
                "y": self.y,
            }
        last = int(now.history.step[-1]) if len(now.history.step) else 0
        if sent is None or last != self._last_step:
            curve = {
                name: [_finite_or_none(each) for each in part.tolist()] for name, part in now.history._asdict().items()
            }
            result["curve"] = {**curve, "changes": list(now.changes)}
            self._last_step = last
        checks = observer.checks()
        if sent is None or checks != self._checks:
            result["checks"] = [check._asdict() for check in checks]
            self._checks = checks
        result["table"] = {"columns": now.table_columns, "burn_in": now.burn_in}
        for name, moments in (("kept", now.kept_moments), ("stream", now.stream_moments)):
            result["table"][name] = [[_finite_or_none(value) for value in part.tolist()] for part in moments]
        result |= self._draws(observer, sent, now)
        return result | self._density("all" in result, now)

    def _draws(self, observer: ThinnerObserver, sent: SentDraws | None, now: Snapshot) -> dict[str, Any]:
        """Return all kept draws, or the positions of the removed draws and the new draws."""
        order = np.argsort(now.arrived)
        arrived, values = now.arrived[order], [now.columns[axis][order] for axis in (self.x, self.y)]
        if sent is None or len(sent.arrived) == 0:
            x, y = (_origin(part, now.stream_column(axis)) for part, axis in zip(values, (self.x, self.y), strict=True))
            self._sent = SentDraws(observer, arrived, (x, y))
            return {"origin": [x, y], "all": _encode(values, (x, y))}
        first_new = int(np.searchsorted(arrived, sent.arrived[-1], side="right"))
        remaining = np.isin(sent.arrived, arrived[:first_new], assume_unique=True)
        self._sent = sent._replace(arrived=arrived)
        removed = np.flatnonzero(~remaining).astype("<u4")
        return {
            "gone": b64encode(removed.tobytes()).decode(),
            "new": _encode([part[first_new:] for part in values], sent.origin),
        }

    def _density(self, necessary: bool, now: Snapshot) -> dict[str, Any]:
        """Return the draws of the stream, if they have changed and are due."""
        held, clock = len(now.stream.draws), time.monotonic()
        latest = (held, now.burn_in, *now.stream.ids[-1].tolist()) if held else ()
        if self._sent is None or not (necessary or (latest != self._stream and clock >= self._next_stream)):
            return {}
        self._stream, self._next_stream = latest, clock + _STREAM_PERIOD
        return {"stream": _encode([now.stream_column(axis) for axis in (self.x, self.y)], self._sent.origin)}

    def _rate(self, observer: ThinnerObserver, now: Snapshot, ended: bool) -> float | None:
        """Return the draws per second: of the last seconds, or of the whole run in the first and the last message.

        None at the beginning of a further pass.
        """
        clock, progress = time.monotonic(), self._progress
        if ended:
            progress.clear()
        while progress and (
            progress[0][1] != now.pass_number or clock - progress[0][0] > _WINDOW or progress[0][2] > now.draws
        ):
            progress.popleft()
        since, draws = progress[0][::2] if progress else (observer.start_time, observer.first_draw)
        progress.append((clock, now.pass_number, now.draws))
        if now.draws < draws or clock - since <= 0 or (len(progress) == 1 and now.pass_number > 1):
            return None
        return round((now.draws - draws) / (clock - since), 3)


class EventStream:
    """Server-sent events for one page: one for each new snapshot, and one per second if nothing changes.

    ``due`` is the time of the next event; ``ended`` says whether the last one has been returned.
    """

    def __init__(self, dashboard: Dashboard, client: Client) -> None:
        self.dashboard, self.client = dashboard, client
        self.due, self.ended = 0.0, False
        self._sent: Snapshot | None = None
        self._heartbeat = 0.0  # time

    def next_event(self, clients: Iterable[Client]) -> bytes:
        """Return the next event, empty if nothing has changed; the next snapshot has the coordinates of all pages."""
        clock, dashboard = time.monotonic(), self.dashboard
        self.ended, observer = dashboard.ended, dashboard.observer  # read first, so that the last state is sent last
        now = None
        if observer is not None:
            self.client.choose_columns(observer.thinner.dim)
            now = observer.snapshot(frozenset().union(*(each.columns for each in clients)))
            now = now if now is not None and self.client.columns <= now.columns.keys() else None
        self.due = clock + PERIOD
        if now is self._sent and not self.ended and clock < self._heartbeat:
            return b""
        self._sent, self._heartbeat = now, clock + _HEARTBEAT
        state: dict[str, Any] = {
            "title": dashboard.title,
            "waiting": observer is None,
            "ended": self.ended,
            "failed": dashboard.failed,
        }
        if now is not None and observer is not None:
            state |= self.client.message(observer, now, dashboard.names, self.ended)
        return f"data: {json.dumps(state, allow_nan=False, separators=(',', ':'))}\n\n".encode()


def _origin(kept: Array, stream: Array) -> float:
    """Return a number near the draws."""
    values = kept if len(kept) else stream
    return float(np.median(values)) if len(values) else 0.0


def _encode(values: Sequence[Array], origin: tuple[float, float]) -> str:
    """Return pairs of float32, relative to ``origin``, in base64."""
    with np.errstate(over="ignore", invalid="ignore"):
        both = np.stack([part - middle for part, middle in zip(values, origin, strict=True)], axis=1).astype("<f4")
    return b64encode(both.tobytes()).decode()


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
