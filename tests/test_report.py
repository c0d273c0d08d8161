"""A report holds what is in the file, opens offline in a real browser, in light, dark, on a phone and on paper."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import re
import shlex
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from browser import chromium, complaints, requests, sideways

import steinstream as ss
from steinstream.cli import main

pytest.importorskip("matplotlib")

from steinstream.report import page, provenance
from steinstream.report.chain_summary import outline

#: Names that a page, a style sheet or matplotlib could take for something else.
NAMES = ("<script>alert(1)</script>", "</style></svg><b>bold", "$x$ & #009e73 1.23456", "tau")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def chain(folder):
    """Two chains with a burn-in, and with names that mean mischief."""
    draws = np.random.default_rng(0).normal(size=(2, 3000, 4)) * [1.0, 0.1, 10.0, 1.0]
    draws[:, :100] += np.linspace(30, 0, 100)[:, None]
    np.savez(folder / "chain.npz", draws=draws, scores=-draws / [1.0, 0.01, 100.0, 1.0], names=np.array(NAMES))
    return folder / "chain.npz"


@pytest.fixture(scope="module")
def written(folder, chain):
    """The kept set and its report, as the command line makes them."""
    made = _run(folder, "thin", chain.name, "-o", "kept.npz", "--size", 120, "--report", "thin.html")
    assert made.returncode == 0, made.stderr
    assert "wrote thin.html" in made.stdout
    made = _run(folder, "report", "kept.npz", "--chain", "chain.npz", "-o", "report.html")
    assert made.returncode == 0, made.stderr
    return ss.Kept.load(folder / "kept.npz"), folder / "report.html"


@pytest.fixture(scope="module")
def browser(folder):
    with chromium(folder / "profile") as window:
        yield window


def _run(folder, *words):
    """The command line in that folder, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end,
    ):  # fmt: skip
        patch.setattr(sys, "argv", ["steinstream", *map(str, words)])
        main()
    return SimpleNamespace(returncode=end.value.code, stdout=out.getvalue(), stderr=err.getvalue())


def _numbers(text):
    found = re.findall(r'data-number="(\w+)" data-value="([^"]*)"', text)
    return {name: float(value) for name, value in found}


# -- what is in it -------------------------------------------------------------------------------------------------


def test_numbers_are_those_in_the_file(written):
    kept, path = written
    text = path.read_text(encoding="utf-8")
    told = _numbers(text)
    assert told["seen"] == 6000 and told["kept"] == 120
    assert told["ksd"] == kept.ksd and told["normalised"] == kept.normalised_ksd and told["bound"] == kept.bound
    assert "steinstream thin chain.npz --size 120 -o kept.npz" in html.unescape(text)


def test_the_report_of_thin_is_the_report_of_the_file(written, folder):
    _, path = written
    assert (folder / "thin.html").read_bytes() == path.read_bytes()


def test_differences_are_those_of_the_settled_chain(written, chain):
    kept, path = written
    rows = re.search(r'id="marginals".*?</table>', path.read_text(encoding="utf-8"), re.DOTALL).group()
    cells = [re.sub("<[^>]*>", "|", row).split("|") for row in re.findall(r"<tr>.*?</tr>", rows)]
    cells = [[cell for cell in row if cell] for row in cells][1:]
    assert [html.unescape(row[0]) for row in cells] == list(NAMES)
    with np.load(chain) as arrays:
        settled = arrays["draws"][:, 200:].reshape(-1, 4)
    sd = settled.std(axis=0)
    told = np.array([[float(cell.replace("\N{MINUS SIGN}", "-")) for cell in row[1:]] for row in cells])
    assert np.allclose(told[:, 0] / sd, settled.mean(axis=0) / sd, atol=0.1)
    assert np.allclose(told[:, 2], (kept.draws.mean(axis=0) - settled.mean(axis=0)) / sd, atol=0.1)
    assert np.allclose(told[:, 5], kept.draws.std(axis=0) / sd, atol=0.1)
    quantiles = [np.quantile(x, [0.05, 0.5, 0.95], axis=0) for x in (kept.draws, settled)]
    assert np.allclose(told[:, 6:].T, (quantiles[0] - quantiles[1]) / sd, atol=0.15)


def test_findings_are_those_of_the_thinner(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    kept = ss.thin(draws, scores, size=120)
    assert outline(kept, ss.io.open_chain(chain)).stream.draws.tolist() == kept.stream.draws.tolist()
    half = ss.thin(draws[0] * [1, 1, 1, 0.2], scores[0], size=120, validate_scores=False)
    text = html.unescape(half.report().html)
    fired = half.diagnose().fired
    assert fired and all(finding.says[1:] in text and finding.advice[1:] in text for finding in fired)


def test_burn_in_is_told(written):
    told = re.search(r"up to about draw (\d+); none of the kept draws are from it", written[1].read_text())
    assert told and 20 < int(told.group(1)) <= 100


def test_another_chain_is_noticed(written, folder):
    kept, _ = written
    other = np.random.default_rng(1).normal(size=(500, 4))
    assert "120 of the 120 kept draws do not stand at their places" in page.page(kept, other).html
    assert "do not stand at their places" not in written[1].read_text()


def test_negated_scores_and_bad_values_are_told(chain, folder, written):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"].copy(), -arrays["scores"]
    draws[0, 7, 0] = np.nan
    np.savez(folder / "bad.npz", draws=draws, scores=scores)
    text = html.unescape(page.page(written[0], folder / "bad.npz").html)
    assert "look negated" in text and "1 of 6 000 draws not finite" in text


def test_without_a_chain_it_says_what_it_compares_with(written):
    kept, _ = written
    text = kept.report().html  # from a file, which has no stream
    assert "does not remember its stream" in text and 'id="marginals"' not in text
    draws = np.random.default_rng(0).normal(size=(9000, 2))
    text = ss.thin(draws, -draws, size=50).report().html
    assert "evenly spaced draws of the stream, held while it was thinned" in text and 'id="marginals"' in text


def test_a_name_is_text_wherever_it_stands(written):
    text = written[1].read_text(encoding="utf-8")
    assert "<script" not in text and "</style></svg>" not in text and text.count("</style>") == 1
    for name in NAMES:
        assert html.escape(name) in text
    labels = [html.unescape(label) for label in re.findall(r"<text[^>]*>([^<]*)</text>", text)]
    assert "$x$ & #009e73 1.23456" in labels  # neither set as mathematics nor changed
    assert "<script>alert(1)</scr…" in labels


def test_settings_from_a_file_are_text():
    draws = np.random.default_rng(0).normal(size=(300, 1))
    kept = ss.thin(draws, -draws, size=20)
    evil = "<img src=x onerror=alert(1)>"
    for name in ("seen", "growth", "preconditioner", "proxy", "size", "commands", "passes", evil):
        kept.settings[name] = [evil] if name == "commands" else evil
    text = kept.report().html
    assert "<img" not in text and html.escape(evil) in text


def test_a_page_needs_nothing_from_elsewhere(written):
    text = written[1].read_text(encoding="utf-8")
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert links and all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert "default-src 'none'" in text and "@import" not in text
    assert set(re.findall(r"https?://[^\"' <]*", text)) == {"http://www.w3.org/2000/svg"}


def test_the_same_set_gives_the_same_bytes(written, chain):
    kept, path = written
    assert page.page(kept, chain, file="kept.npz").html == path.read_text(encoding="utf-8")


def test_a_large_report_is_small():
    draws = np.random.default_rng(0).normal(size=(100_000, 10))
    kept = ss.thin(draws, -draws, size=1000)
    text = kept.report(chain=draws).html
    assert len(text.encode()) < 1.5e6 and text.count("<svg") >= 20


def test_a_chain_is_never_held_whole(folder):
    draws = np.random.default_rng(0).normal(size=(300_000, 8))  # 19 MB, and as much for the scores
    np.savez(folder / "long.npz", draws=draws, scores=-draws)
    kept = ss.thin(draws[:1000], -draws[:1000], size=50)
    chain = ss.io.open_chain(folder / "long.npz")
    tracemalloc.start()
    seen = outline(kept, chain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen.seen == 300_000 and seen.found == 50 and len(seen.block.draws) > 10_000
    assert peak < 16e6


@pytest.mark.parametrize(
    ("dim", "settings"),
    [
        (1, {"size": 1}),
        (2, {"growth": "none"}),
        (3, {"candidates": 7, "preconditioner": "streaming"}),
        (14, {"size": 2}),
    ],
)
def test_odd_sets_have_a_report(dim, settings):
    draws = np.random.default_rng(0).normal(size=(150, dim))
    text = ss.thin(draws, -draws, **settings).report().html
    shown = min(dim, 5)
    assert text.count("<svg") == 4 + min(dim, 12) + shown * (shown - 1) // 2


def test_sets_of_other_kinds_have_a_report(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    one, two = (ss.thin(draws[c], scores[c], size=40) for c in (0, 1))
    assert "sets thinned apart, then merged" in ss.merge([one, two], size=50).report(chain=chain).html
    weighted = one.weighted().ordered()
    text = weighted.report().html
    assert _numbers(text)["worth"] == weighted.effective_size and "kept.ordered()" in text
    stuck = np.zeros((200, 2))  # a chain that never moves
    assert "<svg" in ss.thin(stuck, stuck, size=10, validate_scores=False).report().html


def test_the_call_in_the_report_makes_the_set_again(chain, folder):
    with np.load(chain) as arrays:
        names = {"draws": arrays["draws"], "scores": arrays["scores"]}
    several = (
        {"size": 60},
        {"growth": "linear", "budget": 0.01, "rule": "monotone"},
        {"passes": 2, "size": 30},
        {"preconditioner": "streaming", "kernel": ss.RBF(h=2.0)},
        {"candidates": 3, "anchor": True, "size": 20},
    )
    for settings in several:
        kept = ss.thin(**names, **settings)
        kept.save(folder / "again.npz")
        exec(provenance.python(kept, str(folder / "again.npz")), here := dict(names))
        assert here["kept"].ids.tolist() == kept.ids.tolist() and here["kept"].ksd == kept.ksd


def test_weights_like_a_chain_are_called_so(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"][:, 200:], arrays["scores"][:, 200:]
    call = provenance.python(ss.thin(draws, scores, size=40).weighted(like=draws))
    assert "kept.weighted(like=draws, linear=1.0)  # like 5600 draws, without burn-in" in call


def test_the_command_in_the_report_makes_the_set_again(written, folder):
    ran = _run(folder, "thin", "chain.npz", "-o", "weighted.npz", "--size", 50, "--scale", "scales", "--no-validate-scores",
               "--weights", "stein")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert _run(folder, "refine", "weighted.npz", "-o", "a b.npz", "--order").returncode == 0
    kept = ss.Kept.load(folder / "a b.npz")
    commands = provenance.commands(kept, "a b.npz")
    assert commands[1] == "steinstream refine weighted.npz --order -o 'a b.npz'" and len(commands) == 2
    for name in ("weighted.npz", "a b.npz"):
        (folder / name).unlink()
    for command in commands:
        assert _run(folder, *shlex.split(command)[1:]).returncode == 0
    same = ss.Kept.load(folder / "a b.npz")
    assert np.array_equal(same.ids, kept.ids) and np.array_equal(same.weights, kept.weights) and same.ksd == kept.ksd


# -- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--method", "stride")])
def test_thin_reports_a_chain_whose_arrays_have_other_names(folder, chain, more):
    with np.load(chain) as arrays:
        np.savez(folder / "named.npz", theta=arrays["draws"], potential=-arrays["scores"])
    how = ("--draws-name", "theta", "--scores-name", "potential", "--negate-scores")
    ran = _run(folder, "thin", "named.npz", "-o", "o.npz", "--size", 30, "--report", "named.html", *how, *more)
    assert ran.returncode == 0, ran.stderr
    assert "Compared with the chain" in (folder / "named.html").read_text()


def test_one_clear_error_for_each_mistake(written, folder, chain):
    with np.load(chain) as arrays:
        np.savez(folder / "three.npz", draws=arrays["draws"][..., :3], scores=arrays["scores"][..., :3])
    written[0].save(folder / "kept.csv")
    mistakes = {
        ("absent.npz",): "there is no such file",
        ("kept.npz", "--chain", "absent.npz"): "there is no such file",
        ("kept.npz", "--chain", "three.npz"): "three.npz has 3 dimensions, the kept draws have 4",
        ("chain.npz",): "is no kept set",
        ("kept.csv",): "does not remember kernel and coordinates",
        ("kept.npz", "-o", "nowhere/report.html"): "there is no folder",
        ("kept.npz", "-o", "report.pdf"): "end in .html",
    }
    for words, message in mistakes.items():
        ran = _run(folder, "report", *words)
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr, (words, ran.stderr)
    ran = _run(folder, "thin", "chain.npz", "-o", "other.npz", "--report", "report.txt")
    assert ran.returncode == 2 and not (folder / "other.npz").exists()


def test_without_matplotlib_it_says_what_to_install(written, monkeypatch):
    kept, _ = written
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (kept.report, lambda: ss.plot.trace(kept)):
        with pytest.raises(ss.SteinstreamError, match=r"steinstream\[plot\]"):
            draw()
    assert f"{kept.ksd:.3g}" in kept._repr_html_() and "<svg" not in kept._repr_html_()


def test_other_methods_write_reports_too(written, folder):
    ran = _run(folder, "thin", "chain.npz", "-o", "m.npz", "--method", "stride", "--size", 30, "--report", "m.html")
    assert ran.returncode == 0, ran.stderr
    text = (folder / "m.html").read_text()
    assert _numbers(text)["kept"] == 30 and "stride" in text


# -- figures, one by one, and in a notebook ------------------------------------------------------------------------


def test_each_figure_stands_alone(written, chain, folder):
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    kept, _ = written
    before = dict(rcParams)
    made = {
        "trace": ss.plot.trace(kept),
        "pairs": ss.plot.pairs(kept, chain),
        "marginals": ss.plot.marginals(kept, chain),
        "kept_along_chain": ss.plot.kept_along_chain(kept, chain),
        "alone": ss.plot.kept_along_chain(kept),
    }
    assert {name: len(figure.axes) for name, figure in made.items()} == {
        "trace": 2, "pairs": 6, "marginals": 4, "kept_along_chain": 2, "alone": 1,
    }  # fmt: skip
    for name, figure in made.items():
        assert isinstance(figure, Figure)
        figure.savefig(folder / f"{name}.png")
        assert figure._repr_html_().count("<svg") == 1
    assert dict(rcParams) == before


def test_figures_do_not_depend_on_the_users_settings(written):
    import matplotlib

    kept, _ = written
    plain = ss.plot.trace(kept)._repr_html_()
    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "black", "font.size": 30}):
        assert ss.plot.trace(kept)._repr_html_() == plain


def test_a_notebook_shows_the_numbers(written):
    kept, _ = written
    text = kept._repr_html_()
    assert "<svg" in text and f"{kept.ksd:.3g}" in text and "6 000" in text and len(text) < 60_000
    shown = kept.report()._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.count('"') == 6


# -- in a browser --------------------------------------------------------------------------------------------------

_FIGURES = """
return [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])
"""
_CONTRAST = """
const level = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b }
const paper = level(getComputedStyle(document.documentElement).backgroundColor)
const against = colour => { const l = level(colour); return (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05) }
const all = [...document.querySelectorAll('p, h1, h2, dt, dd, td, th, figcaption')].map(e => getComputedStyle(e).color)
const svg = [...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)
return [paper, Math.min(...all.concat(svg).map(against))]
"""


def test_it_opens_without_a_complaint_and_asks_for_nothing(written, browser):
    kept, path = written
    requests(browser)
    browser.get(path.as_uri())
    assert complaints(browser) == [] and requests(browser) == [path.as_uri()]
    sizes = browser.execute_script(_FIGURES)
    assert len(sizes) == 2 + 2 + 6 + 4 and all(width > 150 and height > 60 for width, height in sizes)
    shown = {e.get_attribute("data-number"): e.text for e in browser.find_elements("css selector", "[data-number]")}
    assert shown["ksd"] == f"{kept.ksd:.3g}" and shown["kept"] == "120"
    assert "".join(shown["seen"].split()) == "6000"
    assert not browser.find_elements("css selector", "script, body b b, iframe, object, link")
    names = [e.text for e in browser.find_elements("css selector", "#marginals tbody th")]
    assert names == list(NAMES)
    images = browser.execute_script(
        "return Promise.all([...document.querySelectorAll('svg image')].map(i => { const p = new Image();"
        "p.src = i.getAttribute('href'); return p.decode().then(() => p.naturalWidth) }))"
    )
    assert len(images) >= 6 and min(images) > 0


def test_light_is_light_and_dark_is_dark(written, folder, browser):
    _, path = written
    for dark in (False, True):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        browser.get(path.as_uri())
        paper, least = browser.execute_script(_CONTRAST)
        assert (paper < 0.05) if dark else (paper > 0.9)
        assert least >= 4.5
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_need_not_scroll_sideways(written, folder):
    _, path = written
    with chromium(folder / "phone", width=390, height=844) as phone:
        phone.get(path.as_uri())
        assert sideways(phone) == 0
        assert all(150 < width <= 390 for width, _ in phone.execute_script(_FIGURES))
        heights = "return [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
        assert min(phone.execute_script(heights)) >= 7


def test_it_prints_light_on_a_few_pages(written, browser):
    _, path = written
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": scheme})
    browser.get(path.as_uri())
    paper, least = browser.execute_script(_CONTRAST)
    assert paper > 0.9 and least >= 4.5
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8


def test_the_demo_writes_a_report(folder, browser):
    ran = _run(folder, "demo", "--draws", 12_000, "-o", "demo")
    assert ran.returncode == 0, ran.stderr
    kept = ss.Kept.load(folder / "demo" / "kept.npz")
    browser.get((folder / "demo" / "report.html").as_uri())
    assert complaints(browser) == []
    assert browser.find_element("css selector", "[data-number=kept]").get_attribute("data-value") == str(len(kept))
    assert json.loads(browser.find_element("css selector", "[data-number=ksd]").get_attribute("data-value")) == kept.ksd
