"""HTTP server of the dashboard: one thread, few connections, bounded time.

The server shares the process with the run, so everything that a client can cause is bounded:

- *Descriptors*. At most 32 connections are open. A further one replaces the connection that has waited longest for its
  request, or is closed at once. No connection is accepted while more than half of the descriptors that the process may
  open are in use.
- *Time*. A request must be complete after 5 seconds, a response must be read within 10, and an event within 60.
- *Memory*. A request has at most 8 KiB. A client that does not read holds back one event, and no events are queued.
- *Processor*. The thread sleeps after its work, so that it uses at most 3 % of a core, whatever the number of requests.

An error of a connection closes this connection. Any other error ends the server, and never the run.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from importlib.resources import files
from typing import TYPE_CHECKING

from steinstream.live.client import Client, EventStream
from steinstream.live.http import END, MAX_REQUEST, HttpRequest, RefusedError, parse_request, response

if TYPE_CHECKING:
    from steinstream.live.dashboard import Dashboard

_FILES = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "axes.js": ("axes.js", "text/javascript"),
    "curve.js": ("curve.js", "text/javascript"),
    "density.js": ("density.js", "text/javascript"),
    "scatter.js": ("scatter.js", "text/javascript"),
    "table.js": ("table.js", "text/javascript"),
}
_MAX_CONNECTIONS = 32
_MAX_STREAMS = 16  # open pages
_DESCRIPTOR_SHARE = 0.5  # of the descriptors that the process may open; above it no connection is accepted
_REQUEST_SECONDS = 5.0  # from the start of a connection to its complete request
_RESPONSE_SECONDS = 10.0  # to send a file
_EVENT_SECONDS = 60.0  # to send an event
_CLOSING_SECONDS = 1.0  # that a client has to close the connection after the response
_LAST_SECONDS = 1.0  # to send the last event to all pages
_RETRY_SECONDS = 1.0  # until connections are accepted again after an error
_CPU_SHARE = 0.03  # of a core
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds
_CHUNK = 1 << 16  # bytes received or sent at once


class _Phase(Enum):
    READING = auto()  # the request
    SENDING = auto()  # a response, or events
    CLOSING = auto()  # the response was sent; the client has not closed the connection yet


class _Connection:
    """A connection to a client."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.phase = _Phase.READING
        self.deadline = time.monotonic() + _REQUEST_SECONDS
        self.request = b""
        self.unsent = memoryview(b"")
        self.events: EventStream | None = None


class Server:
    """Server of a dashboard, which sends its ``title``, ``names``, ``observer``, ``ended`` and ``failed``.

    It closes the socket ``listening`` on the loopback address. Every path starts with the secret token. ``on_error`` is
    called with an error that ended the server.
    """

    def __init__(
        self, dashboard: Dashboard, listening: socket.socket, token: str, on_error: Callable[[BaseException], None]
    ) -> None:
        self._dashboard, self._listening, self._token, self._on_error = dashboard, listening, token, on_error
        self._port = int(listening.getsockname()[1])
        folder = files("steinstream.live").joinpath("static")
        self._files = {path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
        self._connections: dict[socket.socket, _Connection] = {}
        self._stop = threading.Event()
        self._accept_from = 0.0  # time
        self._wake_up, self._woken = socket.socketpair()
        try:
            self._selector = selectors.DefaultSelector()
        except OSError:
            self._wake_up.close()
            self._woken.close()
            raise
        for each in (listening, self._wake_up, self._woken):
            each.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(listening, selectors.EVENT_READ)

    def stop(self) -> None:
        """Let `run` send the last event and return. May be called in any thread; does not wait."""
        self._stop.set()
        with suppress(OSError):
            self._wake_up.send(b"x")

    def run(self) -> None:
        """Serve until `stop` is called. Never raises."""
        try:
            self._serve()
            self._send_last()
        except BaseException as error:  # the run must go on, whatever happened
            self._on_error(error)
        finally:
            self.close()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        used, debt = time.thread_time(), 0.0  # processor time, and the part for which the thread has not slept yet
        while not self._stop.is_set():
            for key, _ in self._selector.select(self._seconds_to_wait()):
                self._handle(key.fileobj)
            self._check_times()
            now = time.thread_time()
            debt, used = debt + now - used, now
            pause = debt * (1.0 / _CPU_SHARE - 1.0)
            if pause >= _SHORTEST_PAUSE:
                part = min(1.0, _LONGEST_PAUSE / pause)
                self._stop.wait(part * pause)
                debt *= 1.0 - part

    def _send_last(self) -> None:
        """Send the last event to every page that can receive it in time."""
        until = time.monotonic() + _LAST_SECONDS
        self._accept_from = 0.0
        for each in (self._listening, self._woken):
            with suppress(KeyError):
                self._selector.unregister(each)
        for connection in [*self._connections.values()]:
            if connection.events is None:
                self._close(connection)
            else:
                connection.events.due = 0.0
        while self._connections and time.monotonic() < until:
            self._check_times()
            for key, _ in self._selector.select(0.02):
                self._handle(key.fileobj)

    def _seconds_to_wait(self) -> float | None:
        """Return the time to the next deadline or event; None if there is none."""
        times = [min(each.deadline, _due(each)) for each in self._connections.values()]
        if self._accept_from:
            times.append(self._accept_from)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _handle(self, ready: object) -> None:
        """Handle a socket that is ready."""
        if ready is self._listening:
            self._accept()
        elif ready is self._woken:
            self._woken.recv(_CHUNK)
        elif isinstance(ready, socket.socket) and ready in self._connections:
            connection = self._connections[ready]
            try:
                self._continue(connection)
            except BlockingIOError:
                pass
            except OSError:  # the client has closed the connection
                self._close(connection)

    def _check_times(self) -> None:
        """Close connections whose time is over, send events that are due, and accept connections again."""
        now = time.monotonic()
        for connection in [*self._connections.values()]:
            if now >= connection.deadline:
                self._close(connection)
            elif now >= _due(connection):
                self._send_event(connection)
        if self._accept_from and now >= self._accept_from:
            self._accept_from = 0.0
            self._selector.register(self._listening, selectors.EVENT_READ)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptors or no memory
            self._accept_from = time.monotonic() + _RETRY_SECONDS
            self._selector.unregister(self._listening)
            return
        if accepted.fileno() >= _descriptor_limit() or not self._make_room():
            accepted.close()
            return
        connection = self._connections[accepted] = _Connection(accepted)
        try:
            accepted.setblocking(False)
            self._selector.register(accepted, selectors.EVENT_READ)
        except OSError:
            self._close(connection)

    def _make_room(self) -> bool:
        """Return whether another connection may be open; close one that waits for its request if necessary."""
        if len(self._connections) < _MAX_CONNECTIONS:
            return True
        waiting = [each for each in self._connections.values() if each.phase is not _Phase.SENDING]
        if waiting:
            self._close(waiting[0])  # the oldest one
        return bool(waiting)

    def _close(self, connection: _Connection) -> None:
        del self._connections[connection.socket]
        with suppress(OSError, KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()

    def close(self) -> None:
        """Close all sockets; only if `run` was not called, which does it itself."""
        for connection in [*self._connections.values()]:
            self._close(connection)
        self._selector.close()
        for each in (self._listening, self._wake_up, self._woken):
            each.close()

    # -- requests and responses ----------------------------------------------------------------------------------------

    def _continue(self, connection: _Connection) -> None:
        """Receive or send more."""
        if connection.phase is _Phase.READING:
            self._receive(connection)
        elif connection.phase is _Phase.CLOSING:
            if not connection.socket.recv(_CHUNK):
                self._close(connection)
        elif connection.events is not None and self._has_input(connection):  # closed, or more than one request
            self._close(connection)
        else:
            self._send(connection)

    def _receive(self, connection: _Connection) -> None:
        received = connection.socket.recv(MAX_REQUEST)
        if not received:
            self._close(connection)
            return
        connection.request += received
        head, end, _ = connection.request.partition(END)
        if len(head) > MAX_REQUEST:
            refused = RefusedError(431, f"the request has more than {MAX_REQUEST} bytes.")
            self._respond(connection, _refusal(refused))
        elif end:
            try:
                request = parse_request(head, self._port, self._token)
                self._respond(connection, self._response(connection, request))
            except RefusedError as error:
                self._respond(connection, _refusal(error, head=head.startswith(b"HEAD ")))

    def _response(self, connection: _Connection, request: HttpRequest) -> bytes:
        if request.path is None:
            return response(307, b"", location=f"/{self._token}/")
        if request.path == "events":
            return self._start_events(connection, request)
        if request.path not in self._files:
            raise RefusedError(404, "this page does not exist.")
        body, kind = self._files[request.path]
        return response(200, body, kind, head=request.head)

    def _start_events(self, connection: _Connection, request: HttpRequest) -> bytes:
        try:
            client = Client(**{axis: int(value) for axis, value in request.query.items() if axis in ("x", "y")})
        except ValueError:
            raise RefusedError(400, "x and y must be indices of coordinates.") from None
        if len(self._streams()) >= _MAX_STREAMS:
            raise RefusedError(503, f"{_MAX_STREAMS} pages are already open.")
        if not request.head:
            connection.events = EventStream(self._dashboard, client)
        return response(200, None, "text/event-stream") + b"retry: 1000\n\n"

    def _streams(self) -> list[EventStream]:
        return [each.events for each in self._connections.values() if each.events is not None]

    def _respond(self, connection: _Connection, data: bytes) -> None:
        connection.request = b""
        connection.phase = _Phase.SENDING
        self._start_sending(connection, data, _RESPONSE_SECONDS)

    def _send_event(self, connection: _Connection) -> None:
        if connection.events is None:
            return
        event = connection.events.next_event([stream.client for stream in self._streams()])
        if event:
            try:
                self._start_sending(connection, event, _EVENT_SECONDS)
            except BlockingIOError:
                pass
            except OSError:
                self._close(connection)

    def _start_sending(self, connection: _Connection, data: bytes, seconds: float) -> None:
        connection.unsent = memoryview(data)
        connection.deadline = time.monotonic() + seconds
        reading = selectors.EVENT_READ if connection.events is not None else 0
        self._selector.modify(connection.socket, reading | selectors.EVENT_WRITE)
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        """Send what the system accepts."""
        while connection.unsent:
            sent = connection.socket.send(connection.unsent[:_CHUNK])
            connection.unsent = connection.unsent[sent:]
        if connection.events is not None and not connection.events.ended:
            connection.deadline = time.monotonic() + _EVENT_SECONDS
            self._selector.modify(connection.socket, selectors.EVENT_READ)
        elif connection.events is not None:
            self._close(connection)
        else:  # closing at once would discard the response if the client has sent more than was read
            connection.socket.shutdown(socket.SHUT_WR)
            connection.phase, connection.deadline = _Phase.CLOSING, time.monotonic() + _CLOSING_SECONDS
            self._selector.modify(connection.socket, selectors.EVENT_READ)

    def _has_input(self, connection: _Connection) -> bool:
        """Return whether the client has sent something or has closed the connection."""
        try:
            connection.socket.recv(1)
        except BlockingIOError:
            return False
        return True


def _due(connection: _Connection) -> float:
    """Return the time of the next event; infinite if there is none, or if the one before has not been sent."""
    return float("inf") if connection.events is None or connection.unsent else connection.events.due


def _refusal(error: RefusedError, head: bool = False) -> bytes:
    headers = {"allow": "GET, HEAD"} if error.status == 405 else {}
    return response(error.status, f"{error}\n".encode(), head=head, **headers)


def _descriptor_limit() -> float:
    """Return the descriptor from which on a connection is not accepted; systems assign the smallest free one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return float("inf")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if limit == resource.RLIM_INFINITY else _DESCRIPTOR_SHARE * limit
