"""Sections describe the settings, the findings and the numbers in plain words."""

from __future__ import annotations

import base64
import csv
import html
import re
from dataclasses import replace

import numpy as np

import steinstream as ss
from steinstream.diagnostics import Diagnosis, Finding
from steinstream.diagnostics.finding import skipped
from steinstream.report import sections
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.chain_summary import summarise_chain


def comparison(**settings):
    x = np.random.default_rng(0).normal(size=(600, 2))
    kept = ss.thin(x, -x, **settings)
    return ChainComparison(kept, summarise_chain(kept, None))


def test_the_chain_is_described():
    text = html.unescape(sections.chain_facts(comparison(size=20)))
    assert "evenly spaced draws of the stream" in text and "<dt>burn-in</dt><dd>none detected</dd>" in text
    assert sections.chain_facts(ChainComparison(comparison(size=20).kept, None)) == ""


def test_the_effective_size_counts_a_repeated_state_once():
    found = comparison(size=20).kept
    same = replace(found, draws=np.concatenate([found.draws[:1]] * 10 + [found.draws[:10]]))
    weighted = replace(same, weights=np.repeat([0.0, 0.1], 10))
    wanted = ((found, 20, 20.0), (same, 10, 1 / (0.55**2 + 9 * 0.05**2)), (weighted, 10, 10.0))
    for kept, states, effective in wanted:
        numbers = dict(re.findall(r'data-number="(\w+)" data-value="([^"]*)"', sections.key_numbers(kept, None)))
        assert int(numbers["distinct"]) == states and abs(float(numbers["effective"]) - effective) < 1e-9


def test_the_summary_can_be_saved_as_csv():
    found = comparison(size=20)
    link = re.search(r'href="data:text/csv;charset=utf-8;base64,([^"]*)" download="summary.csv"', summary_text(found))
    rows = list(csv.reader(base64.b64decode(link.group(1)).decode().splitlines()))
    assert rows[0] == list(found.summary.columns) and [row[:2] for row in rows[1:4]] == [
        ["x0", "kept"],
        ["x0", "stream"],
        ["x0", "difference"],
    ]
    assert float(rows[1][2]) == found.summary.mean[0]


def test_the_summary_marks_parameters_that_differ():
    found = comparison(size=50)
    assert summary_text(found).count('class="good"') == 2 and 'class="fired"' not in summary_text(found)
    moved = ChainComparison(replace(found.kept, draws=found.kept.draws + 2.0 * np.eye(2)[0]), found.chain)
    assert summary_text(moved).count('class="good"') == 1 and summary_text(moved).count('title="beyond"') == 1
    assert "\N{MINUS SIGN}0.0<" not in summary_text(found) and "+0.0<" not in summary_text(found)
    one = summary_text(moved).split("<tbody>")[1]
    assert one.count('class="fired"') == 4  # the mean, two quantiles and the result; not the sd


def test_a_summary_of_many_parameters_shows_the_most_different_and_lists_all():
    x = np.random.default_rng(0).normal(size=(500, 20))
    kept = ss.thin(x, -x, size=50)
    text = summary_text(ChainComparison(kept, summarise_chain(kept, None)))
    shown, rest = text.split("<details>")
    assert shown.count("rowgroup") == 12 and rest.count("rowgroup") == 20 and "All 20 parameters" in rest
    alone = summary_text(ChainComparison(kept, None))
    assert "rowspan" not in alone and alone.count("rowgroup") == 12 + 20


def summary_text(found):
    return sections.summary_table(found)


BAD = Finding("mean", 0.5, 0.1, True, "the mean differs", "keep more draws")
GOOD = replace(BAD, fired=False, detects="differences above 0.2 sd", found="largest found 0.1 sd (x0)")


def test_checks_show_value_threshold_sensitivity_and_result():
    text = sections.checks(Diagnosis((BAD, GOOD, skipped("scores", "no scores"))))
    assert '<td class="n">0.500</td>' in text and 'class="fired">fired</td>' in text and "0.1% of clean runs" in text
    assert (
        "the mean differs" in text and "largest found 0.1 sd (x0)" in text
    )  # of the one that fired, and the other one
    assert "differences above 0.2 sd" in text and "skipped: no scores" in text and ">skipped</td>" in text
    assert "nan" not in text
    assert "steinstream report KEPT --chain CHAIN" in sections.checks(None)
    assert "Not checked: few draws." in sections.checks(Diagnosis((skipped("mean", "few draws"),)))


def test_all_settings_are_listed_once():
    kept = comparison(size=20).kept
    text = sections.reproduce(kept, "kept.npz")
    for name in ("method", *kept.settings["config"], "seen", "bound"):
        assert text.count(f'<th scope="row">{name}</th>') == 1, name
    assert '<th scope="row">config</th>' not in text
    for name, shown in (("growth", "not set"), ("validate_scores", "yes"), ("stream_weight", "1")):
        assert f'<th scope="row">{name}</th><td><code>{shown}</code></td>' in text, name
    assert re.search(r'<th scope="row">bound</th><td><code>0\.\d{1,3}</code></td>', text)
