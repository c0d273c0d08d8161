"""Sets that are shifted, too narrow or too wide are detected, and faults of the stated size are."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics import diagnose
from steinstream.targets import Gaussian
from tests.chains import as_stream, fired


def test_identity_preconditioner_on_a_narrow_target_is_under_dispersed():
    x, s = Gaussian(np.zeros(2), [1.0, 1e-4]).sample(20_000, 0)
    finding = ss.thin(x, s, **ss.PAPER).diagnose()["spread"]
    assert finding.fired and finding.value < finding.threshold < 1 and "x1" in finding.says
    assert "at least" in finding.allowed and "too short" in finding.advice
    assert ss.thin(x, s).diagnose().ok


def test_a_set_that_is_too_wide_or_shifted_is_found():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    ids, stream = as_stream(x).ids[::10], as_stream(x)
    wide = diagnose(x[::10] * [1, 1, 2], ids, stream)["spread"]
    assert wide.fired and wide.value > wide.threshold > 1 and "too long" in wide.advice
    shifted = diagnose(x[::10] + np.array([0, 0.7, 0]), ids, stream)
    assert shifted["mean"].fired and shifted["quantiles"].fired and "x1" in shifted["mean"].says
    assert "+0.7" in shifted["mean"].says


def test_one_sd_of_68_that_is_off_by_a_fifth_is_found():
    x = np.random.default_rng(0).normal(size=(8000, 68))
    kept = ss.thin(x, -x, size=500, stream_weight=1.0)
    assert kept.diagnose().ok
    for ratio in (0.8, 1.25):
        scales = np.where(np.arange(68) == 41, ratio, 1.0)
        finding = diagnose(kept.draws * scales, kept.ids, kept.stream)["spread"]
        assert finding.fired and "sd of x41 is" in finding.says, ratio


def test_all_parameters_too_narrow_by_less_than_the_noise_of_each_are_found():
    x = np.random.default_rng(0).normal(size=(4000, 50))
    finding = diagnose(0.85 * x[::40], as_stream(x).ids[::40], as_stream(x))["spread"]
    assert finding.fired and "all parameters together" in finding.says


def test_faults_of_the_stated_size_are_found_in_about_nine_of_ten_sets():
    found = dict.fromkeys([("mean", "above "), ("spread", "below "), ("spread", "above ")], 0)
    for seed in range(40):
        x = np.random.default_rng(seed).normal(size=(3000, 5))
        ids, stream, kept = as_stream(x).ids[::30], as_stream(x), x[::30]
        sound = diagnose(kept, ids, stream)
        for check, side in found:
            size = float(sound[check].detects.split(side)[1].split()[0])
            faulty = kept.copy()
            faulty[:, 2] = faulty[:, 2] + size if check == "mean" else faulty[:, 2] * size
            found[check, side] += diagnose(faulty, ids, stream)[check].fired
    assert all(31 <= number <= 40 for number in found.values()), found  # 36 are expected


def test_the_sensitivity_is_beyond_the_threshold_and_improves_with_the_size():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    found = [diagnose(x[::step], as_stream(x).ids[::step], as_stream(x)) for step in (100, 10)]
    assert all(one["mean"].sensitivity > one["mean"].threshold for one in found)
    assert found[0]["mean"].sensitivity > 2 * found[1]["mean"].sensitivity
    assert found[1]["mean"].detects == f"differences above {found[1]['mean'].sensitivity:.2f} sd"


def test_more_parameters_than_draws_do_not_fire():
    x = np.random.default_rng(0).normal(size=(120, 150))
    assert not fired(diagnose(x[::3], as_stream(x).ids[::3], as_stream(x))) & {"spread", "regions", "mean"}


def test_a_weight_of_three_is_worth_three_copies():
    x = np.random.default_rng(0).normal(size=(3000, 1))
    ids, stream = as_stream(x).ids, as_stream(x)
    copies = np.where(np.arange(300) < 100, 3, 1)
    rows = np.repeat(np.arange(300), copies)
    weighted = diagnose(x[:300], ids[:300], stream, weights=copies / 500)
    repeated = diagnose(x[rows], ids[rows], stream)
    for name in ("mean", "spread"):
        assert weighted[name].value == pytest.approx(repeated[name].value, rel=1e-9)
    assert weighted["mean"].threshold > repeated["mean"].threshold  # but they are not as good as 500 draws
