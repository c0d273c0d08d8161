"""``steinstream thin`` ends with the verdict of the diagnostic checks; on stderr if a check fired."""

from __future__ import annotations

import re

import numpy as np
import pytest

import steinstream as ss
from steinstream.targets import Gaussian


def test_thin_prints_what_was_checked_and_what_would_have_been_found(steinstream, chain):
    for method in ((), ("--method", "random_thinning")):
        ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 100, *method)
        assert ran.returncode == 0 and ran.stderr == ""
        verdict = ran.stdout.splitlines()[-1]
        assert re.match(
            r"None of \d+ checks fired. 100 kept draws were compared with [\d ]+ draws of the stream", verdict
        )
        assert re.search(r"would have been found: mean \(differences above 0\.\d\d sd\), spread \(sds below", verdict)
        assert "Not checked: " in verdict and "weights (equal weights)" in verdict


def test_a_set_of_three_draws_does_not_pass(steinstream, chain):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 3)
    assert ran.returncode == 0 and "size: the set has 3 distinct draws" in ran.stderr
    assert "None of" not in ran.stdout + ran.stderr


def test_thin_prints_the_checks_that_fired(steinstream, tmp_path):
    x, s = Gaussian(np.zeros(2), [1.0, 1e-4]).sample(20_000, 0)
    np.savetxt(
        tmp_path / "narrow.csv", np.hstack([x, s]), delimiter=",", header="wide,slim,score_wide,score_slim", comments=""
    )
    ran = steinstream("thin", "narrow.csv", "-o", "kept.npz", "--paper")
    assert ran.returncode == 0, ran.stderr
    assert "spread: the sd of slim is 0." in ran.stderr and "checks fired: " in ran.stderr.splitlines()[-1]
    assert "checks fired" not in ran.stdout
    with pytest.raises(ss.SteinstreamError, match="no subsample of its stream"):
        ss.Kept.load(tmp_path / "kept.npz").diagnose()
    assert ss.Kept.load(tmp_path / "kept.npz").diagnose(tmp_path / "narrow.csv")["spread"].fired


def test_wrong_scores_are_printed_once(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(2000, 3))
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x / 1000)
    ran = steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 20)
    assert ran.returncode == 0 and "scores: for x" in ran.stderr and "number of data" in ran.stderr
    assert "Warning" not in ran.stderr
