"""A diagnosis says which checks fired, what the others would have found, and what was not checked."""

from __future__ import annotations

import math

import pytest

from steinstream.diagnostics import FALSE_ALARM, Diagnosis, Finding
from steinstream.diagnostics.finding import skipped

GOOD = Finding(
    "mean",
    0.05,
    0.1,
    False,
    "the mean of x0 differs by 0.05",
    "keep more draws",
    allowed="at most 0.1",
    sensitivity=0.14,
    detects="differences above 0.14 sd",
    found="largest found 0.05 sd (x0)",
)
BAD = Finding("stuck", 0.5, 0.1, True, "longest run of identical states: 50%", "use a smaller step size")
SKIPPED = skipped("scores", "no scores")


def test_a_finding_that_fired_prints_value_tolerance_and_advice():
    assert str(BAD) == "stuck: longest run of identical states: 50%; use a smaller step size"
    assert GOOD.false_alarm == FALSE_ALARM


def test_a_finding_that_passed_prints_what_it_would_have_found():
    assert str(GOOD) == "mean: differences above 0.14 sd would have been found; largest found 0.05 sd (x0)"


def test_a_skipped_check_has_a_reason_and_no_value():
    assert str(SKIPPED) == "scores: skipped: no scores" and not SKIPPED.fired
    assert math.isnan(SKIPPED.value) and math.isnan(SKIPPED.sensitivity)


def test_the_verdict_has_the_outcome_the_sensitivity_and_what_was_not_checked():
    diagnosis = Diagnosis((GOOD, SKIPPED), kept=100, stream=4000, effective=1234.5)
    assert diagnosis.verdict == (
        "None of 1 checks fired. 100 kept draws were compared with 4 000 draws of the stream, whose effective sample "
        "size is 1 234. "
        "Faults that would have been found: mean (differences above 0.14 sd). Not checked: scores (no scores)."
    )
    assert "1 of 2 checks fired: stuck." in Diagnosis((GOOD, BAD)).verdict


def test_a_diagnosis_prints_every_finding_and_note():
    text = str(Diagnosis((GOOD, BAD, SKIPPED), ("heavy tails in x0",), 10, 200))
    assert repr(Diagnosis((GOOD, BAD, SKIPPED), ("heavy tails in x0",), 10, 200)) == text
    assert text.splitlines()[1:] == [
        f"  1. {BAD}",
        "Sensitivity (90% probability) of the checks that did not fire:",
        f"  {GOOD}",
        "Not checked: scores (no scores).",
        "Note: heavy tails in x0.",
    ]


def test_causes_are_numbered_and_followed_by_their_consequences():
    slow = Finding("slow", 9.0, 50.0, True, "effective sample size 9", "probably a consequence of stuck", cause="stuck")
    burn_in = Finding("burn-in", 0.1, 0.0, True, "1 kept draw precedes convergence", "discard it")
    diagnosis = Diagnosis((slow, BAD, GOOD, burn_in))
    assert diagnosis.fired == (BAD, slow, burn_in)
    assert "3 of 4 checks fired: stuck, burn-in (and as a consequence slow). " in diagnosis.verdict
    assert str(diagnosis).splitlines()[1:4] == [f"  1. {BAD}", f"     {slow}", f"  2. {burn_in}"]


def test_findings_are_available_by_name_and_by_state():
    diagnosis = Diagnosis((GOOD, BAD, SKIPPED))
    assert diagnosis["mean"] is GOOD and diagnosis["scores"] is SKIPPED
    assert (diagnosis.passed, diagnosis.fired, diagnosis.skipped) == ((GOOD,), (BAD,), (SKIPPED,))
    with pytest.raises(KeyError, match=r"No check is named .means'\. The checks are mean, stuck, scores"):
        diagnosis["means"]


def test_a_diagnosis_without_a_check_that_passed_is_not_ok():
    nothing = Diagnosis((SKIPPED, skipped("mean", "no scores")))
    assert not nothing.ok and str(nothing) == nothing.verdict == "Not checked: no scores."
    assert Diagnosis((GOOD, SKIPPED)).ok and not Diagnosis((GOOD, BAD)).ok
