"""Kept sets of real posteriors represent the chain. The tests are skipped if the data are not available."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from tests.thinners import ksd_thinner, thin_by_ksd

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
POSTERIORS = sorted((DATA / "posteriordb").glob("*.npz"))


@pytest.mark.skipif(not POSTERIORS, reason=f"requires the reference posteriors in {DATA / 'posteriordb'}")
@pytest.mark.parametrize("path", POSTERIORS, ids=lambda path: path.stem)
def test_a_hundred_draws_represent_ten_thousand(path):
    with np.load(path) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    every = draws.reshape(-1, draws.shape[-1])
    kept = thin_by_ksd(draws, scores, size=100)
    step = len(every) // 100
    spaced = ss.ksd(every[::step], scores.reshape(every.shape)[::step], preconditioner=kept.preconditioner)
    sd = every.std(axis=0)
    assert (np.abs(kept.draws.mean(axis=0) - every.mean(axis=0)) < 0.15 * sd).all()
    assert (np.abs(kept.draws.std(axis=0) / sd - 1.0) < 0.25).all()
    assert kept.ksd < 0.5 * spaced


@pytest.mark.skipif(not (DATA / "goodwin").exists(), reason=f"requires the public Goodwin chain in {DATA / 'goodwin'}")
def test_burn_in_is_dropped_without_settings():
    with np.load(DATA / "goodwin" / "goodwin_rw_stride100.npz") as arrays:
        draws, scores = arrays["theta"], arrays["score"]
    thinner = ksd_thinner(4, **ss.PAPER)
    thinner.extend(draws, scores)
    assert thinner.ksd < 0.02 * ss.ksd(draws, scores)
    assert thinner.kept.ids[:, 1].min() > 20
