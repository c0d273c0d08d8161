"""The dashboard: a web server in a thread of its own that shows the progress of a thinner."""

from __future__ import annotations

import atexit
import errno
import html
import logging
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steinstream.errors import InputError
from steinstream.live.server import Server
from steinstream.live.snapshot import ThinnerObserver

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

_log = logging.getLogger("steinstream")

HOST = "127.0.0.1"
_SEND_BUFFER = 1 << 16  # bytes that the system buffers for a slow client, which should see recent data
_BACKLOG = 128  # connections that the system holds until the server accepts them
_STOP_TIMEOUT = 5.0  # seconds
_PORT_ERRORS = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)


class Dashboard:
    """A web page that shows the progress of a thinner.

    The server runs in a thread of its own until `close` is called, the ``with`` block ends, or the program ends. If it
    fails, a warning is logged under the name ``steinstream``, and the run continues.

    Parameters
    ----------
    port : int, default 0
        Port on the loopback address; 0 selects a free one.
    title : str, optional
        Title of the page.

    Attributes
    ----------
    url : str
        Address of the page. It contains a secret token: everyone who has the address can see the page.
    ended : bool
        Whether the dashboard is closed or has failed.
    failed : bool
        Whether an error has stopped the dashboard.

    Raises
    ------
    InputError
        If the port is not a port, or is in use.
    OSError
        If the system has no resources for the server, such as file descriptors.
    """

    def __init__(self, port: int = 0, *, title: str = "") -> None:
        self.title = title
        self.names: tuple[str, ...] | None = None
        self.observer: ThinnerObserver | None = None
        self.ended = self.failed = self._closed = False
        self._owner = os.getpid()
        self._closing = threading.Lock()
        token = secrets.token_urlsafe(24)
        listening = _listen(port)
        try:
            self.url = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
            self._server = Server(self, listening, token, self.fail)
        except BaseException:
            listening.close()
            raise
        self._thread = threading.Thread(target=self._server.run, name="steinstream dashboard", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._server.close()
            raise
        atexit.register(self.close)

    def show(self, thinner: Thinner, names: Sequence[str] | None = None) -> Dashboard:
        """Show a thinner. Another dashboard that shows it is closed. Does nothing if this dashboard has ended.

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
        if self.ended:
            return self
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

    def fail(self, error: BaseException) -> None:
        """Stop the dashboard because of an error, and log a warning. Does not wait and never raises."""
        if self.ended:
            return
        self.failed = self.ended = True
        _log.warning("The dashboard has stopped (%s: %s). The run continues.", type(error).__name__, error)
        _log.debug("The error of the dashboard", exc_info=error)
        self._detach()
        self._server.stop()

    def close(self) -> None:
        """Send the final state to open pages and stop the server."""
        if self._owner != os.getpid():  # a forked child has no server thread
            return
        with self._closing:
            if self._closed:
                return
            if self.observer is not None and not self.ended:
                self.observer.take_last()
            self._closed = self.ended = True
            self._detach()
            self._server.stop()
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


def _listen(port: int) -> socket.socket:
    """Listen on this port of the loopback address, or on a free one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise InputError(f"port must be a number from 0 to 65535, got {port!r}.", "0 selects a free one.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows this would let two programs use the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listening.bind((HOST, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno not in _PORT_ERRORS:
            raise
        raise InputError(
            f"Cannot bind to {HOST}:{port}: {error.strerror}.",
            "Use another port, or 0 for a free one.",
        ) from None
    return listening
