"""HTTP server of the dashboard: access control, static files, and a stream of events.

Only this module imports starlette and uvicorn.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from steinstream.live.client import Client
from steinstream.live.snapshot import PERIOD, Snapshot, ThinnerObserver

if TYPE_CHECKING:
    from steinstream.live.page import Dashboard

_FILES = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "axes.js": ("axes.js", "text/javascript"),
    "curve.js": ("curve.js", "text/javascript"),
    "scatter.js": ("scatter.js", "text/javascript"),
}
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
_MAX_CLIENTS = 16
_HEARTBEAT = 1.0  # seconds between messages if nothing changes
_SHUTDOWN = 1  # seconds that open pages have to receive the last message


def create_server(dashboard: Dashboard, token: str) -> uvicorn.Server:
    """Create the server of a dashboard.

    Parameters
    ----------
    dashboard : Dashboard
        The dashboard, whose ``title``, ``names``, ``observer`` and ``ended`` are shown.
    token : str
        Secret first part of every path.

    Returns
    -------
    uvicorn.Server
        The server, not yet running.

    """
    folder = files("steinstream.live").joinpath("static")
    routes = [Route(f"/{name}", _file(folder.joinpath(f).read_bytes(), kind)) for name, (f, kind) in _FILES.items()]
    stream = Route("/events", _EventStream(dashboard).respond)
    config = uvicorn.Config(
        AccessControl(Starlette(routes=[*routes, stream]), token),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=4 * _MAX_CLIENTS,
        timeout_graceful_shutdown=_SHUTDOWN,
    )
    return uvicorn.Server(config)


def _file(content: bytes, kind: str) -> Any:
    async def respond(request: Request) -> Response:
        return Response(content, media_type=kind)

    return respond


class AccessControl:
    """ASGI middleware that accepts GET requests for /TOKEN/... under a name of this machine.

    The check of the host name rejects pages elsewhere whose own name resolves to this machine (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in _HEADERS.items())]
            await send(message)

        app, inner_scope = self._authorise(scope)
        await app(inner_scope, receive, send_with_headers)

    def _authorise(self, scope: Scope) -> tuple[ASGIApp, Scope]:
        """Return the application that answers the request, and the scope without the token."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        token, slash, path = scope["path"].removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self.token.encode())
        if not known or len(hosts) != 1 or hosts[0].rsplit(":", 1)[0].lower() not in _HOSTS:
            return PlainTextResponse("403: use the complete address that was printed.\n", 403), scope
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("405: the dashboard is read-only.\n", 405, {"allow": "GET, HEAD"}), scope
        if not slash:
            return RedirectResponse(f"/{self.token}/"), scope
        return self.app, {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}


class _EventStream:
    """Server-sent events: one message per change for each client that keeps up."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.clients: set[Client] = set()

    async def respond(self, request: Request) -> Response:
        try:
            client = Client(**{axis: int(value) for axis, value in request.query_params.items() if axis in ("x", "y")})
        except ValueError:
            return PlainTextResponse("400: x and y must be indices of coordinates.\n", 400)
        if len(self.clients) >= _MAX_CLIENTS:
            return PlainTextResponse(f"503: {_MAX_CLIENTS} pages are already open.\n", 503)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(self._events(client), media_type="text/event-stream")

    async def _events(self, client: Client) -> AsyncIterator[str]:
        # While a client does not read, this generator is suspended at a yield and holds one message.
        self.clients.add(client)
        try:
            yield "retry: 1000\n\n"
            sent, silence = None, _HEARTBEAT
            while True:
                # Read first, so that the last state is sent last.
                ended, observer = self.dashboard.ended, self.dashboard.observer
                now = None if observer is None else self._snapshot(client, observer)
                if now is not sent or ended or silence >= _HEARTBEAT:
                    state: dict[str, Any] = {"title": self.dashboard.title, "waiting": observer is None, "ended": ended}
                    if now is not None and observer is not None:
                        state |= client.message(observer, now, self.dashboard.names, ended)
                    yield _event(state)
                    sent, silence = now, 0.0
                if ended:
                    return
                await asyncio.sleep(PERIOD)
                silence += PERIOD
        finally:
            self.clients.discard(client)

    def _snapshot(self, client: Client, observer: ThinnerObserver) -> Snapshot | None:
        """Return the latest snapshot if it has the coordinates that this client shows."""
        client.choose_columns(observer.thinner.dim)
        now = observer.snapshot(frozenset().union(*(each.columns for each in self.clients)))
        return now if now is not None and client.columns <= now.columns.keys() else None


def _event(message: dict[str, Any]) -> str:
    return f"data: {json.dumps(message, allow_nan=False, separators=(',', ':'))}\n\n"
