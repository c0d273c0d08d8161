"""A diagnosis prints what fired, and findings are available by name."""

from __future__ import annotations

import pytest

from steinstream.diagnostics import FALSE_ALARM, Diagnosis, Finding

GOOD = Finding("mean", 0.05, 0.1, False, "the mean of x0 differs by 0.05", "keep more draws", allowed="at most 0.1")
BAD = Finding("stuck", 0.5, 0.1, True, "longest run of identical states: 50%", "use a smaller step size")


def test_a_finding_prints_value_tolerance_and_advice():
    assert str(GOOD) == "mean: the mean of x0 differs by 0.05 (at most 0.1); keep more draws"
    assert str(BAD) == "stuck: longest run of identical states: 50%; use a smaller step size"
    assert GOOD.false_alarm == FALSE_ALARM


def test_a_diagnosis_prints_the_findings_that_fired_or_that_none_did():
    assert str(Diagnosis((GOOD, BAD))) == str(BAD) and repr(Diagnosis((GOOD, GOOD))) == "All 2 checks passed."
    assert Diagnosis((GOOD, BAD)).fired == (BAD,) and Diagnosis((GOOD, BAD))["mean"] is GOOD


def test_a_diagnosis_without_findings_is_not_ok():
    nothing = Diagnosis((), "Not checked.")
    assert not nothing.ok and nothing.fired == () and str(nothing) == "Not checked."
    assert Diagnosis((GOOD,)).ok and not Diagnosis((GOOD, BAD)).ok
    with pytest.raises(KeyError):
        nothing["mean"]
