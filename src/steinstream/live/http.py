"""Requests and responses of the dashboard: the part of HTTP/1.1 that a browser needs to read a page.

A request is accepted only if it is well-formed, names this machine and the port of the dashboard in its only ``Host``
header, starts its path with the token, and is a GET or HEAD request. The check of the host rejects pages elsewhere
whose own name resolves to this machine (DNS rebinding). Every connection is closed after one response.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple
from urllib.parse import parse_qsl

#: Largest size of a request line with its headers, in bytes.
MAX_REQUEST = 8192

#: End of the headers.
END = b"\r\n\r\n"

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]+) HTTP/1\.[01]")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::([0-9]{1,5}))?", re.IGNORECASE)
_DEFAULT_PORT = 80

_REASONS = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "connection": "close",
}


class HttpRequest(NamedTuple):
    """An accepted request: the path after ``/TOKEN/``, or None if the slash after the token is missing, and the query.

    If ``head``, the response must not have a body.
    """

    head: bool
    path: str | None
    query: dict[str, str]


class RefusedError(Exception):
    """The request is refused with this status."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(f"{status}: {reason}")


def parse_request(head: bytes, port: int, token: str) -> HttpRequest:
    """Parse and authorise a request: its line and headers, without the empty line that ends them.

    Returns
    -------
    HttpRequest
        The request.

    Raises
    ------
    RefusedError
        If the request is malformed (400), is not authorised (403), or has another method than GET or HEAD (405).
    """
    first, *lines = head.split(b"\r\n")
    request_line = _REQUEST_LINE.fullmatch(first)
    headers = [_HEADER.fullmatch(line) for line in lines]
    if request_line is None or None in headers:
        raise RefusedError(400, "the request is malformed.")
    method, target = request_line[1].decode(), request_line[2].decode()
    hosts = [header[2].decode("latin-1") for header in headers if header and header[1].lower() == b"host"]
    address, _, query = target.partition("?")
    given, slash, path = address.removeprefix("/").partition("/")
    known = secrets.compare_digest(given, token)
    if not known or not address.startswith("/") or len(hosts) != 1 or not _is_own_address(hosts[0], port):
        raise RefusedError(403, "use the complete address that was printed.")
    if method not in ("GET", "HEAD"):
        raise RefusedError(405, "the dashboard is read-only.")
    return HttpRequest(method == "HEAD", path if slash else None, dict(parse_qsl(query)))


def _is_own_address(host: str, port: int) -> bool:
    """Return whether a ``Host`` header is a name of the loopback interface with this port."""
    found = _HOST.fullmatch(host)
    return found is not None and int(found[1] or _DEFAULT_PORT) == port


def response(status: int, body: bytes | None, kind: str = "text/plain", *, head: bool = False, **headers: str) -> bytes:
    """Return a response with further headers; a ``body`` of None follows and ends with the connection."""
    length = {} if body is None else {"content-length": str(len(body))}
    fields = {"content-type": f"{kind}; charset=utf-8", **length, **_HEADERS, **headers}
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + END + (b"" if head or body is None else body)
