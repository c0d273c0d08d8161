"""Real posteriors, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steinstream as ss

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
POSTERIORS = sorted((DATA / "posteriordb").glob("*.npz")) if DATA.exists() else []


@pytest.mark.skipif(not POSTERIORS, reason="reference posteriors are not beside this checkout")
@pytest.mark.parametrize("path", POSTERIORS, ids=lambda path: path.stem)
def test_a_hundred_draws_stand_for_ten_thousand(path):
    with np.load(path) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    every = draws.reshape(-1, draws.shape[-1])
    kept = ss.thin(draws, scores, size=100)
    stride = every[:: len(every) // 100]
    sd = every.std(axis=0)
    assert (np.abs(kept.draws.mean(axis=0) - every.mean(axis=0)) < 0.15 * sd).all()
    assert (np.abs(kept.draws.std(axis=0) / sd - 1.0) < 0.25).all()
    assert kept.ksd < 0.5 * ss.ksd(
        stride, scores.reshape(every.shape)[:: len(every) // 100], preconditioner=kept.preconditioner
    )


@pytest.mark.skipif(not (DATA / "goodwin").exists(), reason="the public Goodwin chain is not beside this checkout")
def test_burn_in_goes_by_itself():
    with np.load(DATA / "goodwin" / "goodwin_rw_stride100.npz") as arrays:
        draws, scores = arrays["theta"], arrays["score"]
    thinner = ss.Thinner(4)
    thinner.extend(draws, scores)
    assert thinner.ksd < 0.02 * ss.ksd(draws, scores)
    assert thinner.kept.ids[:, 1].min() > 20
