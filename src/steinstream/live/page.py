"""The dashboard: a web server in a thread of its own that shows the progress of a thinner."""

from __future__ import annotations

import atexit
import html
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steinstream.errors import InputError
from steinstream.live.snapshot import ThinnerObserver

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

HOST = "127.0.0.1"
_SEND_BUFFER = 1 << 16  # bytes that the system buffers for a slow client, which should see recent data
_START_TIMEOUT, _STOP_TIMEOUT = 30.0, 5.0  # seconds


class Dashboard:
    """A web page that shows the progress of a thinner.

    The server runs in a thread of its own until `close` is called, the ``with`` block ends, or the program ends.

    Parameters
    ----------
    port : int, default 0
        Port on the loopback address; 0 selects a free one.
    title : str, optional
        Title of the page.

    """

    def __init__(self, port: int = 0, *, title: str = "") -> None:
        self.title = title
        self.names: tuple[str, ...] | None = None
        self.observer: ThinnerObserver | None = None
        self.ended = False
        self._owner = os.getpid()
        self._closing = threading.Lock()
        token = secrets.token_urlsafe(24)
        server = _server(self, token)
        listening = _listen(port)
        #: Address of the page. It contains a secret token: everyone who has the address can see the page.
        self.url = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
        self._server = server
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="steinstream dashboard", daemon=True
        )
        self._thread.start()
        until = time.monotonic() + _START_TIMEOUT
        while not server.started and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        atexit.register(self.close)

    def show(self, thinner: Thinner, names: Sequence[str] | None = None) -> Dashboard:
        """Show a thinner. Another dashboard that shows it is closed.

        Parameters
        ----------
        thinner : Thinner
            The thinner.
        names : sequence of str, optional
            Parameter names.

        Returns
        -------
        Dashboard
            This dashboard.

        """
        if names is not None and len(names) != thinner.dim:
            raise InputError(
                f"{len(names)} names were given, but the draws have {thinner.dim} dimensions.",
                "Pass one name per dimension.",
            )
        current = thinner.observer
        if current is None or current is not self.observer:
            if isinstance(current, ThinnerObserver) and current.dashboard is not self:
                current.dashboard.close()
            self._detach()
            self.observer = ThinnerObserver(thinner, self)
        self.names = self.names if names is None else tuple(map(str, names))
        return self

    def _detach(self) -> None:
        if self.observer is not None and self.observer.thinner.observer is self.observer:
            self.observer.thinner.observer = None

    def close(self) -> None:
        """Send the final state to open pages and stop the server."""
        if self._owner != os.getpid():  # a forked child has no server thread
            return
        with self._closing:
            if self.ended:
                return
            if self.observer is not None:
                self.observer.take_last()
            self._detach()
            self.ended = True
            self._server.should_exit = True
            self._thread.join(_STOP_TIMEOUT)
            atexit.unregister(self.close)

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Dashboard({self.url}{', closed' if self.ended else ''})"

    def _repr_html_(self) -> str:
        if self.ended:
            return "<p>The dashboard is closed.</p>"
        url = html.escape(self.url)
        return f'<p>Dashboard: <a href="{url}" target="_blank" rel="noreferrer">{url}</a></p>'


def _server(dashboard: Dashboard, token: str) -> Any:
    try:
        from steinstream.live.server import create_server
    except ImportError:
        raise InputError("The dashboard requires starlette and uvicorn.", 'pip install "steinstream[live]"') from None
    return create_server(dashboard, token)


def _listen(port: int) -> socket.socket:
    """Listen on this port of the loopback address, or on a free one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise InputError(f"port must be a number from 0 to 65535, got {port!r}.", "0 selects a free one.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":  # on Windows this would let two programs use the port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    try:
        listening.bind((HOST, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise InputError(
            f"Cannot bind to {HOST}:{port}: {error.strerror}.",
            "Use another port, or 0 for a free one.",
        ) from None
    return listening
