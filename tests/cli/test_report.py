"""The commands ``report``, ``thin --report`` and ``demo`` write reports, and report wrong input clearly."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import shlex
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli import main
from tests.browser import chromium, complaints
from tests.report_chain import numbers, write_chain

pytest.importorskip("matplotlib")

from steinstream.report import provenance


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def chain(folder):
    return write_chain(folder / "chain.npz")


@pytest.fixture(scope="module")
def written(folder, chain):
    """The kept set and the file of its report, written by the command line."""
    ran = run(folder, "thin", chain.name, "-o", "kept.npz", "--size", 120, "--report", "thin.html")
    assert ran.returncode == 0, ran.stderr
    assert "wrote thin.html" in ran.stdout
    ran = run(folder, "report", "kept.npz", "--chain", "chain.npz", "-o", "report.html")
    assert ran.returncode == 0, ran.stderr
    return ss.Kept.load(folder / "kept.npz"), folder / "report.html"


def run(folder, *words):
    """Run the command line in that folder, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(SystemExit) as end,
    ):
        patch.setattr(sys, "argv", ["steinstream", *map(str, words)])
        main()
    return SimpleNamespace(returncode=end.value.code, stdout=out.getvalue(), stderr=err.getvalue())


def test_the_report_of_thin_is_the_report_of_the_file(written, folder):
    kept, path = written
    text = path.read_text(encoding="utf-8")
    assert (folder / "thin.html").read_bytes() == path.read_bytes()
    assert numbers(text)["ksd"] == kept.ksd
    assert "steinstream thin chain.npz --size 120 -o kept.npz" in html.unescape(text)


def test_the_commands_in_the_report_reproduce_the_set(written, folder):
    options = ("--size", 50, "--preconditioner", "scales", "--no-validate-scores", "--weights")
    ran = run(folder, "thin", "chain.npz", "-o", "weighted.npz", *options)
    assert ran.returncode == 0, ran.stderr
    assert run(folder, "refine", "weighted.npz", "-o", "a b.npz", "--order").returncode == 0
    kept = ss.Kept.load(folder / "a b.npz")
    commands = provenance.recorded_commands(kept, "a b.npz")
    assert commands[1] == "steinstream refine weighted.npz --order -o 'a b.npz'" and len(commands) == 2
    for name in ("weighted.npz", "a b.npz"):
        (folder / name).unlink()
    for command in commands:
        assert run(folder, *shlex.split(command)[1:]).returncode == 0
    same = ss.Kept.load(folder / "a b.npz")
    assert np.array_equal(same.ids, kept.ids) and np.array_equal(same.weights, kept.weights) and same.ksd == kept.ksd


@pytest.mark.parametrize("more", [(), ("--method", "stride")])
def test_thin_reports_a_chain_whose_arrays_have_other_names(folder, chain, more):
    with np.load(chain) as arrays:
        np.savez(folder / "named.npz", theta=arrays["draws"], potential=-arrays["scores"])
    how = ("--draws-name", "theta", "--scores-name", "potential", "--negate-scores")
    ran = run(folder, "thin", "named.npz", "-o", "o.npz", "--size", 30, "--report", "named.html", *how, *more)
    assert ran.returncode == 0, ran.stderr
    assert "Compared with the chain" in (folder / "named.html").read_text()


def test_other_methods_write_reports_too(written, folder):
    ran = run(folder, "thin", "chain.npz", "-o", "m.npz", "--method", "stride", "--size", 30, "--report", "m.html")
    assert ran.returncode == 0, ran.stderr
    text = (folder / "m.html").read_text()
    assert numbers(text)["kept"] == 30 and "stride" in text


def test_one_clear_error_for_each_wrong_input(written, folder, chain):
    with np.load(chain) as arrays:
        np.savez(folder / "three.npz", draws=arrays["draws"][..., :3], scores=arrays["scores"][..., :3])
    written[0].save(folder / "kept.csv")
    wrong = {
        ("absent.npz",): "there is no such file",
        ("kept.npz", "--chain", "absent.npz"): "there is no such file",
        ("kept.npz", "--chain", "three.npz"): "three.npz has 3 dimensions, the kept draws have 4",
        ("chain.npz",): "chain.npz is (not a kept set|not a steinstream result)",
        ("kept.csv",): "kept.csv .*kernel and (coordinates|preconditioner)",
        ("kept.npz", "-o", "nowhere/report.html"): "the folder .* does not exist",
        ("kept.npz", "-o", "report.pdf"): r"ends in \.html",
    }
    for words, message in wrong.items():
        ran = run(folder, "report", *words)
        assert ran.returncode == 2 and "Traceback" not in ran.stderr, (words, ran.stderr)
        assert re.search(message, ran.stderr), (words, ran.stderr)
    ran = run(folder, "thin", "chain.npz", "-o", "other.npz", "--report", "report.txt")
    assert ran.returncode == 2 and not (folder / "other.npz").exists()


@pytest.fixture(scope="module")
def demo(folder):
    ran = run(folder, "demo", "--draws", 12_000, "-o", "demo")
    assert ran.returncode == 0, ran.stderr
    return ss.Kept.load(folder / "demo" / "kept.npz"), folder / "demo" / "report.html"


def test_the_demo_writes_a_report(demo):
    kept, path = demo
    found = numbers(path.read_text(encoding="utf-8"))
    assert found["kept"] == len(kept) and found["ksd"] == kept.ksd


@pytest.mark.browser
def test_the_report_of_the_demo_opens_without_errors(demo, folder):
    kept, path = demo
    with chromium(folder / "profile") as browser:
        browser.get(path.as_uri())
        assert complaints(browser) == []
        shown = browser.find_element("css selector", "[data-number=ksd]").get_attribute("data-value")
        assert json.loads(shown) == kept.ksd


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not valid UTF-8")
def test_a_file_name_that_is_not_valid_utf8_can_be_reported(steinstream, chain, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / chain).rename(tmp_path / "bad\udcff.npz")
    ran = steinstream("thin", "bad\udcff.npz", "-o", "kept.npz", "--size", 20, "--report", "report.html")
    assert ran.returncode == 0, ran.stderr
    assert "bad?.npz" in (tmp_path / "report.html").read_text()
