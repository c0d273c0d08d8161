"""Sections describe the settings, the findings and the numbers in plain words."""

from __future__ import annotations

import html
from dataclasses import replace

import numpy as np

import steinstream as ss
from steinstream.diagnostics import Diagnosis, Finding
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


def test_notes_list_what_fired_or_that_all_checks_passed():
    bad = Finding("mean", 1.0, 0.1, True, "the mean differs", "keep more draws")
    text = sections.notes(["Repeats: many."], Diagnosis((bad,)))
    assert "<li>Repeats: many.</li>" in text and "The mean differs.<span>Keep more draws.</span>" in text
    assert sections.notes([], None) == ""
    assert "All 1 checks passed." in sections.notes([], Diagnosis((replace(bad, fired=False),)))
    assert 'class="notes">' in sections.notes([], Diagnosis((), "Not checked."))


def test_checks_show_value_threshold_and_result():
    bad = Finding("mean", 0.5, 0.1, True, "the mean differs", "keep more draws")
    text = sections.checks(Diagnosis((bad,)))
    assert '<td class="n">0.5</td>' in text and 'class="fired">fired</td>' in text and "0.5 % of clean runs" in text
    assert "steinstream report KEPT --chain CHAIN" in sections.checks(None)
    assert "Not checked." in sections.checks(Diagnosis((), "Not checked."))


def test_all_settings_are_listed_once():
    kept = comparison(size=20).kept
    text = sections.reproduce(kept, "kept.npz")
    for name in (*kept.settings["config"], "seen", "bound"):
        assert text.count(f'<th scope="row">{name}</th>') == 1, name
    assert '<th scope="row">config</th>' not in text
