"""A report contains the numbers of the kept set, is safe and self-contained, and exists for every kind of set."""

from __future__ import annotations

import html
import re
import sys

import numpy as np
import pytest

import steinstream as ss
from steinstream.report.page import Report, build_report, check_report_path, notebook_summary
from tests.report_chain import NAMES, numbers


def test_numbers_are_those_of_the_file(written):
    kept, path = written
    found = numbers(path.read_text(encoding="utf-8"))
    assert found["seen"] == 6000 and found["kept"] == 120
    assert found["ksd"] == kept.ksd and found["mmd"] == kept.mmd and found["bound"] == kept.bound
    assert found["distinct"] == len(np.unique(kept.draws, axis=0)) and found["effective"] == kept.effective_size
    assert found["evenly"] > kept.ksd


def test_the_summary_is_that_of_the_kept_set_and_of_the_chain_after_burn_in(written, chain):
    kept, path = written
    rows = re.search(r'id="summary".*?</table>', path.read_text(encoding="utf-8"), re.DOTALL).group()
    cells = [re.sub("<[^>]*>", "|", row).split("|") for row in re.findall(r"<tr.*?</tr>", rows)]
    cells = [[html.unescape(cell) for cell in row if cell] for row in cells][1:]
    assert [row[0] for row in cells[::3]] == list(NAMES)
    with np.load(chain) as arrays:
        settled = arrays["draws"][:, 200:].reshape(-1, 4)
    sd = settled.std(axis=0)
    shown = [
        [[float(cell.replace("\N{MINUS SIGN}", "-")) for cell in row] for row in part]
        for part in (
            [row[2:7] for row in cells[::3]],
            [row[1:6] for row in cells[1::3]],
            [row[1:6] for row in cells[2::3]],
        )
    ]
    differences = [list(map(abs, row)) for row in shown.pop()]
    assert np.max(differences) < 2  # a sound set
    for values, draws in zip(shown, (settled, kept.draws), strict=True):
        expected = [
            draws.mean(axis=0),
            draws.std(axis=0),
            *np.quantile(draws, [0.05, 0.5, 0.95], axis=0, method="hazen"),
        ]
        assert np.allclose(np.array(values).T / sd, expected / sd, atol=0.15)


def test_findings_are_those_of_the_diagnosis(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    narrow = ss.thin(draws[0] * [1, 1, 1, 0.2], scores[0], size=120, validate_scores=False)
    text = html.unescape(narrow.report().html)
    fired = narrow.diagnose().fired
    assert fired and all(finding.says[1:] in text for finding in fired)
    causes = [finding for finding in fired if not finding.cause]
    assert causes and all(finding.advice[1:] in text for finding in causes)


def test_the_end_of_burn_in_is_reported(written):
    found = re.search(r"until about draw (\d+); none of the kept draws belong to it", written[1].read_text())
    assert found and 20 < int(found.group(1)) <= 160  # the thinner knows it to a batch of draws


def test_another_chain_is_noticed(written):
    kept, path = written
    other = np.random.default_rng(1).normal(size=(500, 4))
    assert "120 of the 120 kept draws were not found at their positions" in build_report(kept, other).html
    assert "not found at their positions" not in path.read_text()


def test_negated_scores_and_bad_values_are_reported(chain, folder, written):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"].copy(), -arrays["scores"]
    draws[0, 7, 0] = np.nan
    np.savez(folder / "bad.npz", draws=draws, scores=scores)
    text = html.unescape(build_report(written[0], folder / "bad.npz").html)
    assert "look negated" in text and "1 of 6 000 draws not finite" in text


def test_a_fault_of_the_scores_is_reported_once():
    x = np.random.default_rng(0).normal(size=(2000, 2))
    kept = ss.thin(x, -x / 1000, size=50, validate_scores=False)
    verdict = kept.report(chain=x, scores=-x / 1000).html.partition('<dl class="numbers">')[0]
    assert "gradients of a mean loss" in verdict and "sign plausible" not in verdict


def test_the_report_states_what_it_compares_with(written):
    kept, path = written
    assert "Compared with the chain" in path.read_text()
    text = kept.report().html  # the file contains no subsample of the stream
    assert "no chain was given, so it is not compared" in text and 'class="good"' not in text
    assert "Not checked: the chain is required" in text
    draws = np.random.default_rng(0).normal(size=(9000, 2))
    text = ss.thin(draws, -draws, size=50).report().html
    assert "evenly spaced draws of the stream, stored during thinning" in text and 'class="good"' in text


# -- safety ------------------------------------------------------------------------------------------------------------


def test_a_name_is_text_everywhere(written):
    text = written[1].read_text(encoding="utf-8")
    assert "<script" not in text and "</style></svg>" not in text and text.count("</style>") == 1
    for name in NAMES:
        assert html.escape(name) in text
    labels = [html.unescape(label) for label in re.findall(r"<text[^>]*>([^<]*)</text>", text)]
    assert "$x$ & #009e73 1.23456" in labels  # neither parsed as mathematics nor changed
    assert "<script>ale…)</script>" in labels


def test_settings_from_a_file_are_text():
    draws = np.random.default_rng(0).normal(size=(300, 1))
    kept = ss.thin(draws, -draws, size=20)
    evil = "<img src=x onerror=alert(1)>"
    for name in ("seen", "kernel", "preconditioner", "proxy", "commands", "passes", evil):
        kept.settings[name] = [evil] if name == "commands" else evil
    text = kept.report().html
    assert "<img" not in text and html.escape(evil) in text
    kept.settings["config"] = dict.fromkeys((*kept.settings["config"], evil), evil)
    assert "<img" not in kept.report().html
    kept.settings["config"] = evil
    assert "<img" not in kept.report().html


def test_a_report_needs_nothing_from_elsewhere(written):
    text = written[1].read_text(encoding="utf-8")
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    local = ("#", "data:image/png;base64,", "data:text/csv;charset=utf-8;base64,")
    pages = re.findall(r'<a href="(https://[^"]*)"', text)  # links that a reader may follow; nothing is loaded
    assert links and all(link.startswith(local) for link in links if link not in pages)
    assert all("/docs/" in page for page in pages)
    assert "default-src 'none'" in text and "@import" not in text
    assert set(re.findall(r"https?://[^\"' <]*", text)) == {"http://www.w3.org/2000/svg", *pages}


def test_the_same_set_gives_the_same_bytes(written, chain):
    kept, path = written
    assert build_report(kept, chain, file="kept.npz").html == path.read_text(encoding="utf-8")


# -- every kind of set -------------------------------------------------------------------------------------------------


def test_the_report_of_a_large_set_is_small():
    draws = np.random.default_rng(0).normal(size=(100_000, 10))
    kept = ss.thin(draws, -draws, size=1000)
    text = kept.report(chain=draws).html
    assert len(text.encode()) < 1.5e6 and text.count("<svg") >= 20


@pytest.mark.parametrize(
    ("dim", "settings"),
    [
        (1, {"size": 1}),
        (2, {"growth": "none"}),
        (3, {"candidates": 7, "preconditioner": "streaming"}),
        (14, {"size": 2}),
    ],
)
def test_unusual_sets_have_a_report(dim, settings):
    draws = np.random.default_rng(0).normal(size=(150, dim))
    text = ss.thin(draws, -draws, **settings).report().html
    shown = min(dim, 5)
    assert text.count("<svg") == 4 + min(dim, 12) + shown * (shown - 1) // 2
    assert ("in 1 dimension." in text) == (dim == 1)


def test_merged_weighted_ordered_and_constant_sets_have_a_report(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    one, two = (ss.thin(draws[c], scores[c], size=40) for c in (0, 1))
    assert "several thinned sets, merged" in ss.merge([one, two], size=50).report(chain=chain).html
    weighted = one.weighted().ordered()
    text = weighted.report().html
    assert numbers(text)["effective"] == pytest.approx(weighted.effective_size) and "kept.ordered()" in text
    constant = np.zeros((200, 2))
    assert "<svg" in ss.thin(constant, constant, size=10, validate_scores=False).report().html


def test_an_empty_set_has_no_report():
    with pytest.raises(ss.SteinstreamError, match="The kept set is empty"):
        ss.Thinner(2).kept.report()


def test_a_report_is_written_to_the_given_path(written, tmp_path):
    report = written[0].report(tmp_path / "again.html")
    assert isinstance(report, Report) and (tmp_path / "again.html").read_text(encoding="utf-8") == report.html
    assert repr(report).startswith("Report(Kept draws, ")


def test_an_output_that_cannot_be_written_is_rejected_early(tmp_path):
    check_report_path(tmp_path / "report.html")
    with pytest.raises(ss.SteinstreamError, match=r"the folder .* does not exist"):
        check_report_path(tmp_path / "nowhere" / "report.html")
    with pytest.raises(ss.SteinstreamError, match=r"ends in \.html"):
        check_report_path(tmp_path / "report.pdf")


def test_without_matplotlib_the_error_names_the_extra(written, monkeypatch):
    kept, _ = written
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (kept.report, lambda: check_report_path("report.html")):
        with pytest.raises(ss.SteinstreamError, match=r"steinstream\[plot\]"):
            draw()
    assert f"{kept.ksd:.3g}" in kept._repr_html_() and "<svg" not in kept._repr_html_()


# -- notebooks ---------------------------------------------------------------------------------------------------------


def test_a_notebook_shows_the_numbers(written):
    kept, _ = written
    text = kept._repr_html_()
    assert text == notebook_summary(kept)
    assert "<svg" in text and f"{kept.ksd:.3g}" in text and "6 000" in text and len(text) < 60_000
    shown = kept.report()._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.count('"') == 6
