"""``steinstream thin`` ends with the diagnostic checks: failed ones on stderr, or one line if all passed."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.targets import Gaussian


def test_thin_prints_that_all_checks_passed(steinstream, chain):
    for method in ((), ("--method", "random_thinning")):
        ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 100, *method)
        assert ran.returncode == 0 and ran.stderr == ""
        assert ran.stdout.splitlines()[-1] == "All 9 checks passed."


def test_thin_prints_the_checks_that_fired(steinstream, tmp_path):
    x, s = Gaussian(np.zeros(2), [1.0, 1e-4]).sample(20_000, 0)
    np.savetxt(
        tmp_path / "narrow.csv", np.hstack([x, s]), delimiter=",", header="wide,slim,score_wide,score_slim", comments=""
    )
    ran = steinstream("thin", "narrow.csv", "-o", "kept.npz", "--paper")
    assert ran.returncode == 0, ran.stderr
    assert "spread: the standard deviation of slim is 0." in ran.stderr
    assert "checks passed" not in ran.stdout
    with pytest.raises(ss.SteinstreamError, match="no subsample of its stream"):
        ss.Kept.load(tmp_path / "kept.npz").diagnose()
    assert ss.Kept.load(tmp_path / "kept.npz").diagnose(tmp_path / "narrow.csv")["spread"].fired


def test_wrong_scores_are_printed_once(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(2000, 3))
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x / 1000)
    ran = steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 20)
    assert ran.returncode == 0 and "scores: for x" in ran.stderr and "number of data" in ran.stderr
    assert "Warning" not in ran.stderr
