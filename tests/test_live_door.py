"""Who may see the live page, when it begins, and when it ends."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from live import Listener, ask, fed, normal, often, until

import steinstream as ss
from steinstream.errors import InputError
from steinstream.live import Page, server

__all__ = ["often"]

PATHS = ["", "page.css", "page.js", "axes.js", "curve.js", "scatter.js", "events", "none", "../page.js", "%2e%2e/"]


def test_without_the_token_there_is_403_everywhere():
    with fed(ss.Thinner(2, size=20), normal(100)).serve() as page:
        token = urlsplit(page.url).path.strip("/")
        assert len(token) >= 32
        for wrong in ("", token[:-1], token + "a", token.swapcase(), "%00", "é", "x" * 5000):
            for path in PATHS:
                for method in ("GET", "HEAD", "POST", "OPTIONS"):
                    answer, body = ask(page.url, f"/{wrong}/{path}".replace("é", "%C3%A9"), method)
                    assert answer.status == 403, (wrong, path, method)
                    assert token.encode() not in body
        for path in ("*", "//", f"//{token}/", f"/a/{token}/", f"http://{urlsplit(page.url).netloc}/page.js"):
            assert ask(page.url, path, "OPTIONS" if path == "*" else "GET")[0].status == 403, path
        assert ask(page.url, f"/{token}")[0].headers["Location"] == f"/{token}/"
        for path in PATHS[:7]:
            answer, _ = ask(page.url, f"/{token}/{path}")
            assert answer.status == 200, path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert ask(page.url, f"/{token}/none")[0].status == 404
        assert ask(page.url, f"/{token}/events?x=a")[0].status == 400


def test_only_names_of_this_machine_and_only_reading():
    with Page() as page:
        address = urlsplit(page.url)
        for host in (
            ["evil.example"],
            ["127.0.0.1.evil.example"],
            [],
            [""],
            ["evil.example:80"],
            [address.netloc, "evil.example"],
        ):
            assert ask(page.url, address.path, host=host)[0].status in (400, 403), host
        for host in (["localhost"], [f"localhost:{address.port}"], ["LOCALHOST:1"]):
            assert ask(page.url, address.path, host=host)[0].status == 200, host
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert ask(page.url, address.path, method)[0].status == 405, method
        assert ask(page.url, f"{address.path}events", "HEAD")[0].status == 200


def test_it_listens_to_this_machine_alone():
    with Page() as page, socket.socket() as other, pytest.raises(OSError):
        other.connect(("127.0.0.2", urlsplit(page.url).port))


def test_so_many_pages_and_no_more(monkeypatch):
    monkeypatch.setattr(server, "_MOST", 2)
    with fed(ss.Thinner(2), normal(10)).serve() as page:
        with Listener(page.url) as first, Listener(page.url) as second:
            first.hear(), second.hear()
            assert ask(page.url, f"{urlsplit(page.url).path}events")[0].status == 503
        until(lambda: ask(page.url, f"{urlsplit(page.url).path}events")[0].status == 200, "a place is free again")


# -- begin and end


def test_a_port_in_use_is_a_clear_error():
    with Page() as page:
        port = urlsplit(page.url).port
        with pytest.raises(InputError, match=f"port {port} .*in use.* Name another port"):
            ss.Thinner(2).serve(port)
    with ss.Thinner(2).serve(port) as page:  # free again
        assert urlsplit(page.url).port == port
    for wrong in (-1, 70000, "80", True):
        with pytest.raises(InputError, match="port must be"):
            Page(wrong)
    with pytest.raises(InputError, match="3 names, but draws have 2 dimensions"), Page() as page:
        page.show(ss.Thinner(2), ["a", "b", "c"])


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "steinstream.live.server")
    monkeypatch.delattr("steinstream.live.server")
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(InputError, match=r'pip install "steinstream\[live\]"'):
        ss.Thinner(2).serve()


def test_one_page_for_a_thinner_and_the_run_goes_on_without():
    thinner = fed(ss.Thinner(2, size=20), normal(100))
    former = thinner.serve()
    with Listener(former.url) as listener:
        page = thinner.serve()
        assert former.ended and not page.ended and "closed" in repr(former)
        assert listener.hear_until(lambda said: said["ended"])["kept"] == 20
    page.close()
    page.close()  # a second time does no harm
    assert thinner._watch is None and page.url not in page._repr_html_()
    assert fed(thinner, normal(100)).seen == 200


def test_the_end_of_a_program_is_the_end_of_the_page(tmp_path):
    code = """if True:
        import numpy as np, steinstream as ss
        thinner = ss.Thinner(2, size=20)
        print(thinner.serve().url, flush=True)
        draws = np.random.default_rng(0).normal(size=(500, 2))
        thinner.extend(draws, -draws)
        input()
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-W", "error", "-c", code], **pipes) as program:
        with Listener(program.stdout.readline().strip()) as listener:
            listener.hear_until(lambda said: said.get("draws") == 500)
            program.stdin.write("\n")
            program.stdin.flush()
            assert listener.hear_until(lambda said: said["ended"])["kept"] == 20
        assert program.wait(60) == 0 and program.stderr.read() == ""
