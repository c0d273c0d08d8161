"""Sections describe the settings, the findings and the numbers in plain words."""

from __future__ import annotations

import html
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


def test_settings_are_described():
    text = html.unescape(sections.settings(comparison(size=20)))
    assert "exactly 20 draws" in text and "<dt>growth</dt>" not in text and "<dd>online KSD thinning</dd>" in text
    text = html.unescape(sections.settings(comparison(candidates=3, stream_weight=0.3)))
    assert "sqrt: at least √(t log t) of t draws" in text and "the best of 3 consecutive draws" in text
    assert "0: a draw is removed only if KSD does not increase" in text and "<dd>0.3</dd>" in text
    assert "<dt>burn-in</dt><dd>none detected</dd>" in text


BAD = Finding("mean", 0.5, 0.1, True, "the mean differs", "keep more draws")
GOOD = replace(BAD, fired=False, detects="differences above 0.2 sd", found="largest found 0.1 sd (x0)")


def test_notes_list_what_fired_the_verdict_and_its_notes():
    text = sections.notes(["Repeats: many."], Diagnosis((BAD,), ("heavy tails in x0",)))
    assert "<li>Repeats: many.</li>" in text and "The mean differs.<span>Keep more draws.</span>" in text
    assert "<li>Heavy tails in x0.</li>" in text and 'class="notes">' in text
    assert sections.notes([], None) == ""
    text = sections.notes([], Diagnosis((GOOD, skipped("scores", "no scores"))))
    assert 'class="notes well"' in text and "mean (differences above 0.2 sd)" in text and "scores (no scores)" in text
    assert 'class="notes">' in sections.notes([], Diagnosis((skipped("mean", "few draws"),)))


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
    for name in (*kept.settings["config"], "seen", "bound"):
        assert text.count(f'<th scope="row">{name}</th>') == 1, name
    assert '<th scope="row">config</th>' not in text
