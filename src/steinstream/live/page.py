"""The page as its owner holds it: an address, what is shown there, and an end."""

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
from steinstream.live.snapshot import Watch

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

HOST = "127.0.0.1"
_UNREAD = 1 << 16  # bytes that the system holds for a page that is slow: it should see what is, not what was
_START, _END = 30.0, 5.0  # seconds that the server may take to begin, and to end


class Page:
    """A server in a thread of its own, until :meth:`close`, the end of a ``with`` block, or the end of the program."""

    def __init__(self, port: int = 0, *, title: str = "") -> None:
        self.title = title
        self.names: tuple[str, ...] | None = None
        self.watch: Watch | None = None
        self.ended = False
        self._owner = os.getpid()
        self._closing = threading.Lock()
        token = secrets.token_urlsafe(24)
        server = _server(self, token)
        listening = _listen(port)
        #: Where to look. The token in it is the key: who knows it can watch.
        self.url = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
        self._server = server
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="steinstream live page", daemon=True
        )
        self._thread.start()
        until = time.monotonic() + _START
        while not server.started and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        atexit.register(self.close)

    def show(self, thinner: Thinner, names: Sequence[str] | None = None) -> Page:
        """From now on show this thinner; ``names`` are its parameters'. A page that showed it before is closed."""
        if names is not None and len(names) != thinner.dim:
            raise InputError(f"{len(names)} names, but draws have {thinner.dim} dimensions.", "Give one for each.")
        former = thinner._watch
        if former is None or former is not self.watch:
            if former is not None and former.page is not self:
                former.page.close()
            self._let_go()
            self.watch = Watch(thinner, self)
        self.names = self.names if names is None else tuple(map(str, names))
        return self

    def _let_go(self) -> None:
        if self.watch is not None and self.watch.thinner._watch is self.watch:
            self.watch.thinner._watch = None

    def close(self) -> None:
        """Show open pages how it ended, and stop serving."""
        if self._owner != os.getpid():  # a fork has no server
            return
        with self._closing:
            if self.ended:
                return
            if self.watch is not None:
                self.watch.last_look()
            self._let_go()
            self.ended = True
            self._server.should_exit = True
            self._thread.join(_END)
            atexit.unregister(self.close)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Page({self.url}{', closed' if self.ended else ''})"

    def _repr_html_(self) -> str:
        if self.ended:
            return "<p>This page is closed.</p>"
        url = html.escape(self.url)
        return f'<p>Live page: <a href="{url}" target="_blank" rel="noreferrer">{url}</a></p>'


def _server(page: Page, token: str) -> Any:
    try:
        from steinstream.live.server import server
    except ImportError:
        raise InputError("The live page needs starlette and uvicorn.", 'pip install "steinstream[live]"') from None
    return server(page, token)


def _listen(port: int) -> socket.socket:
    """Listen at this port, or at a free one, for this machine alone."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise InputError(f"port must be a number from 0 to 65535, got {port!r}.", "Leave it out for a free one.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":  # elsewhere this would let two programs listen at once
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)
    try:
        listening.bind((HOST, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise InputError(
            f"Nothing can be served at port {port} of {HOST}: {error.strerror}.",
            "Name another port, or none for a free one.",
        ) from None
    return listening
