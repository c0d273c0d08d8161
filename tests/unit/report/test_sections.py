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
from steinstream.report.chain_summary import summarise_chain
from steinstream.report.compare import ChainComparison


def comparison(**settings):
    x = np.random.default_rng(0).normal(size=(600, 2))
    kept = ss.thin(x, -x, **settings)
    return ChainComparison(kept, summarise_chain(kept, None))


def test_the_chain_is_described():
    text = html.unescape(sections.chain_facts(comparison(size=20)))
    assert "evenly spaced draws of the stream" in text and "<dt>burn-in</dt><dd>none detected</dd>" in text
    assert sections.chain_facts(ChainComparison(comparison(size=20).kept, None)) == ""


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
    assert summary_text(moved).count('class="good"') == 1 and summary_text(moved).count('class="fired"') == 1


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


def test_the_verdict_states_the_outcome_the_differences_and_what_to_do():
    found = comparison(size=50)
    text = sections.verdict(found, ["Repeats: many."], Diagnosis((BAD,), ("heavy tails in x0",)))
    assert "<li>Repeats: many.</li>" in text and "The mean differs.<span>Keep more draws.</span>" in text
    assert "Heavy tails in x0." in text and 'class="verdict fault"' in text and "Check this set" in text
    text = sections.verdict(found, [], Diagnosis((GOOD, skipped("scores", "no scores"))))
    assert 'class="verdict good"' in text and "No fault found" in text and "means differ by at most 0." in text
    assert "mean (differences above 0.2 sd)" in text and "scores (no scores)" in text
    for nothing in (Diagnosis((skipped("mean", "few draws"),)), None):
        assert 'class="verdict unknown"' in sections.verdict(found, [], nothing)
    effect = replace(BAD, name="spread", says="the sd differs", cause="mean")
    text = sections.verdict(found, [], Diagnosis((BAD, effect)))
    assert text.count("<li>") == 1 and "Probably a consequence: The sd differs." in text
    alone = sections.verdict(ChainComparison(found.kept, None), [], None)
    assert "means differ" not in alone and "steinstream report KEPT --chain CHAIN" in alone


def test_checks_show_value_threshold_sensitivity_and_result():
    text = sections.checks(Diagnosis((BAD, GOOD, skipped("scores", "no scores"))))
    assert '<td class="n">0.5</td>' in text and 'class="fired">fired</td>' in text and "0.1% of clean runs" in text
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
