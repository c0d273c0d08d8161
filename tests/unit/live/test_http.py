"""Requests are parsed strictly; everything but a request for the own address is refused."""

from __future__ import annotations

from steinstream.live.http import RefusedError, parse_request, response

PORT, TOKEN = 40123, "a-secret_Token"
LINE = f"GET /{TOKEN}/page.js HTTP/1.1"


def status(*lines, line=LINE):
    """Return the status of a request; 200 if it is accepted."""
    try:
        parse_request("\r\n".join((line, *lines)).encode("latin-1"), PORT, TOKEN)
    except RefusedError as error:
        return error.status
    return 200


def test_loopback_names_with_the_port_are_accepted():
    for name in ["127.0.0.1", "localhost", "LOCALHOST", "LocalHost", "[::1]"]:
        assert status(f"Host: {name}:{PORT}") == status(f"hOsT:\t{name}:{PORT} \t") == 200


def test_any_other_host_is_forbidden():
    for host in [
        *(
            "",
            "127.0.0.1",
            "localhost",
            "[::1]",
            "::1",
            f"::1:{PORT}",
            "[::1",
            f"[::2]:{PORT}",
            f"[0:0:0:0:0:0:0:1]:{PORT}",
        ),
        *(
            f"127.0.0.1:{PORT + 1}",
            "127.0.0.1:80",
            "127.0.0.1:",
            f"127.0.0.1:0{PORT}",
            f"127.0.0.1:{PORT}0",
            "localhost:-1",
        ),
        *(f"127.0.0.1:{PORT}@evil.example", f"evil.example@127.0.0.1:{PORT}", f"a:b@localhost:{PORT}"),
        *(
            f"127.0.0.1.evil.example:{PORT}",
            f"localhost.evil.example:{PORT}",
            f"localhost.:{PORT}",
            f"127.0.0.1.:{PORT}",
        ),
        *(
            f"evil-localhost:{PORT}",
            f"evil.example:{PORT}",
            f"127.1:{PORT}",
            f"0x7f.0.0.1:{PORT}",
            f"2130706433:{PORT}",
        ),
        *(f"0.0.0.0:{PORT}", f"127.0.0.2:{PORT}", f"127.0.0.1:{PORT}, evil.example", f"127.0.0.1 :{PORT}"),
        *(
            f"127.0.0.1:{PORT}/",
            f"127.0.0.1:{PORT}#",
            f"127.0.0.1:+{PORT}",
            f"\xad127.0.0.1:{PORT}",
            f"localho\xdft:{PORT}",
        ),
        *(f"http://127.0.0.1:{PORT}", f"127.0.0.1:{PORT}:{PORT}", f"127.0.0.1:{hex(PORT)}", f"127.0.0.1:{'9' * 4000}"),
    ]:
        assert status(f"Host: {host}") == 403


def test_the_port_may_be_left_out_if_it_is_80():
    assert parse_request(f"{LINE}\r\nHost: localhost".encode(), 80, TOKEN).path == "page.js"


def test_exactly_one_host_is_required():
    assert status() == 403
    assert status("X-Forwarded-Host: 127.0.0.1", f"Origin: http://127.0.0.1:{PORT}") == 403
    assert status(f"Host: 127.0.0.1:{PORT}", f"Host: 127.0.0.1:{PORT}") == 403
    assert status(f"Host: 127.0.0.1:{PORT}", "HOST: evil.example") == 403


def test_a_path_without_the_token_is_forbidden():
    for target in [
        *(
            "/",
            "*",
            "//",
            f"//{TOKEN}/",
            f"/a/{TOKEN}/",
            f"/{TOKEN[:-1]}/",
            f"/{TOKEN}x/",
            f"/{TOKEN.upper()}/",
            f"/%61{TOKEN[1:]}/",
        ),
        *(
            f"{TOKEN}/",
            f"http://127.0.0.1:{PORT}/{TOKEN}/",
            f"/?{TOKEN}",
            f"/./{TOKEN}/",
            f"/x/../{TOKEN}/",
            f"/{TOKEN};/",
        ),
    ]:
        assert status(f"Host: localhost:{PORT}", line=f"GET {target} HTTP/1.1") == 403


def test_other_methods_are_not_allowed():
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "GETS"]:
        assert status(f"Host: localhost:{PORT}", line=LINE.replace("GET", method)) == 405


def test_malformed_request_lines_are_refused():
    for line in [
        *(
            "",
            "GET",
            "GET /",
            f"GET /{TOKEN}/",
            f"GET  /{TOKEN}/ HTTP/1.1",
            f"get /{TOKEN}/ HTTP/1.1",
            f"GET /{TOKEN}/ HTTP/2.0",
        ),
        *(
            f"GET /{TOKEN}/ http/1.1",
            f"GET /{TOKEN}/ HTTP/1.1 ",
            f" GET /{TOKEN}/ HTTP/1.1",
            f"GET /{TOKEN}/\x00 HTTP/1.1",
        ),
        *(f"GET /{TOKEN}/\xe9 HTTP/1.1", f"GET /{TOKEN}/ x HTTP/1.1", f"GET\t/{TOKEN}/ HTTP/1.1", "\x16\x03\x01\x02"),
    ]:
        assert status(f"Host: localhost:{PORT}", line=line) == 400


def test_malformed_headers_are_refused():
    for header in [
        "",
        "a",
        ": b",
        "a : b",
        " a: b",
        "\ta: b",
        "a: b\nHost: evil",
        "a: \x00",
        "a\x00: b",
        "é: b",
        "a: b\rc",
        "a(: b",
    ]:
        assert status(f"Host: localhost:{PORT}", header) == 400


def test_path_and_query_are_returned():
    line = f"HEAD /{TOKEN}/events?x=2&y=-1&x=3&z HTTP/1.0"
    request = parse_request(f"{line}\r\nHost: localhost:{PORT}".encode(), PORT, TOKEN)
    assert request.head and request.path == "events" and request.query == {"x": "3", "y": "-1"}
    without_slash = parse_request(f"GET /{TOKEN} HTTP/1.1\r\nHost: localhost:{PORT}".encode(), PORT, TOKEN)
    assert without_slash.path is None


def test_a_response_to_head_has_the_length_and_no_body():
    assert response(200, b"four", head=True).endswith(b"\r\n\r\n")
    assert b"content-length: 4\r\n" in response(200, b"four", head=True)
    assert b"content-length" not in response(200, None)
