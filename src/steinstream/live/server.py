"""The server: a guard at the door, a few files, a stream of events. Only this file imports starlette and uvicorn."""

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

from steinstream.live.client import Viewer
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
_MOST = 16  # pages at once
_HEARTBEAT = 1.0  # seconds, after which a page hears that there is no news
_GRACE = 1  # seconds that open pages have to take in how it ended


def server(page: Dashboard, token: str) -> uvicorn.Server:
    """A server that shows this page to those who know the token."""
    folder = files("steinstream.live").joinpath("page")
    routes = [Route(f"/{name}", _file(folder.joinpath(f).read_bytes(), kind)) for name, (f, kind) in _FILES.items()]
    stream = Route("/events", _Stream(page).answer)
    config = uvicorn.Config(
        Guard(Starlette(routes=[*routes, stream]), token),
        loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None, log_level="critical", access_log=False,
        server_header=False, limit_concurrency=4 * _MOST, timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip
    return uvicorn.Server(config)


def _file(content: bytes, kind: str) -> Any:
    async def answer(request: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


class Guard:
    """Lets through who asks for /TOKEN/..., under a name of this machine, and only to read.

    The check of the name keeps out pages elsewhere whose own name was made to point here (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in _HEADERS.items())]
            await send(message)

        answer, inside = self._judge(scope)
        await answer(inside, receive, with_headers)

    def _judge(self, scope: Scope) -> tuple[ASGIApp, Scope]:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        token, slash, path = scope["path"].removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self.token.encode())
        if not known or len(hosts) != 1 or hosts[0].rsplit(":", 1)[0].lower() not in _HOSTS:
            return PlainTextResponse("403: use the address that was given, with all of its characters.\n", 403), scope
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("405: this page can only be read.\n", 405, {"allow": "GET, HEAD"}), scope
        if not slash:
            return RedirectResponse(f"/{self.token}/"), scope
        return self.app, {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}


class _Stream:
    """Server-sent events: a message for each page, as often as there is news and the page keeps up."""

    def __init__(self, page: Dashboard) -> None:
        self.page = page
        self.viewers: set[Viewer] = set()

    async def answer(self, request: Request) -> Response:
        try:
            viewer = Viewer(**{axis: int(value) for axis, value in request.query_params.items() if axis in ("x", "y")})
        except ValueError:
            return PlainTextResponse("400: x and y are numbers of coordinates.\n", 400)
        if len(self.viewers) >= _MOST:
            return PlainTextResponse(f"503: {_MOST} pages are open already.\n", 503)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(self._events(viewer), media_type="text/event-stream")

    async def _events(self, viewer: Viewer) -> AsyncIterator[str]:
        # While a page does not read, this stands still at a yield, with one message in its hands.
        self.viewers.add(viewer)
        try:
            yield "retry: 1000\n\n"
            sent, silent = None, _HEARTBEAT
            while True:
                ended, observer = self.page.ended, self.page.observer  # before looking: what comes last is said last
                now = None if observer is None else self._look(viewer, observer)
                if now is not sent or ended or silent >= _HEARTBEAT:
                    said = (
                        {} if now is None or observer is None else viewer.message(observer, now, self.page.names, ended)
                    )
                    yield _event({"title": self.page.title, "waiting": observer is None, "ended": ended, **said})
                    sent, silent = now, 0.0
                if ended:
                    return
                await asyncio.sleep(PERIOD)
                silent += PERIOD
        finally:
            self.viewers.discard(viewer)

    def _look(self, viewer: Viewer, observer: ThinnerObserver) -> Snapshot | None:
        """The latest snapshot with what this page wants to see, if there is one yet."""
        viewer.settle(observer.thinner.dim)
        now = observer.snapshot(frozenset().union(*(each.columns for each in self.viewers)))
        return now if now is not None and viewer.columns <= now.columns.keys() else None


def _event(said: dict[str, Any]) -> str:
    return f"data: {json.dumps(said, allow_nan=False, separators=(',', ':'))}\n\n"
