"""The verdict states the outcome of the checks, the differences from the chain and what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import steinstream as ss
from steinstream.diagnostics import Diagnosis, Finding
from steinstream.diagnostics.finding import skipped
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.chain_summary import summarise_chain
from steinstream.report.verdict import verdict

BAD = Finding("mean", 0.5, 0.1, True, "the mean differs", "keep more draws")
GOOD = replace(BAD, fired=False, detects="differences above 0.2 sd", found="largest found 0.1 sd (x0)")


def test_the_verdict_states_the_outcome_the_differences_and_what_to_do():
    x = np.random.default_rng(0).normal(size=(600, 2))
    kept = ss.thin(x, -x, size=50)
    found = ChainComparison(kept, summarise_chain(kept, None))
    text = verdict(found, ["Repeats: many."], Diagnosis((BAD,), ("heavy tails in x0",)))
    assert "<li>Repeats: many.</li>" in text and "The mean differs.<span>Keep more draws.</span>" in text
    assert "Heavy tails in x0." in text and 'class="verdict fault"' in text and "Check this set" in text
    text = verdict(found, [], Diagnosis((GOOD, skipped("scores", "no scores")), (), 50, 600, 580.2))
    assert 'class="verdict good"' in text and "No fault found" in text and "means differ by at most 0." in text
    assert "<li>Compared: 50 kept draws with 600 of the chain (effective sample size 580).</li>" in text
    assert "<li>Checks that did not fire would have found: mean (differences above 0.2 sd).</li>" in text
    assert "<li>Not checked: scores (no scores).</li>" in text
    blind = replace(GOOD, name="spread", detects="no differences of sds")  # heavy tails
    assert "spread" not in verdict(found, [], Diagnosis((GOOD, blind), (), 50, 600, 580.2))
    for nothing in (Diagnosis((skipped("mean", "few draws"),)), None):
        assert 'class="verdict unknown"' in verdict(found, [], nothing)
    effect = replace(BAD, name="spread", says="the sd differs", cause="mean")
    text = verdict(found, [], Diagnosis((BAD, effect)))
    assert (
        text.partition('<ul class="muted">')[0].count("<li>") == 1 and "Probably a consequence: The sd differs." in text
    )
    alone = verdict(ChainComparison(found.kept, None), [], None)
    assert "means differ" not in alone and "steinstream report KEPT --chain CHAIN" in alone
