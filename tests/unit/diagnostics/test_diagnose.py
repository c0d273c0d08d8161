"""The checks pass on clean runs, give an answer for any stream, and do not change the result."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.diagnostics import CHECKS, diagnose
from steinstream.samplers import MALA
from steinstream.targets import Gaussian
from tests.chains import as_stream, autoregression, fired
from tests.streams import streams

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "posteriordb"
POSTERIORS = sorted(DATA.glob("*.npz")) if DATA.exists() else []


# -- clean runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 10, 38])
@pytest.mark.parametrize("setting", [{}, {"size": 100}, {"size": 500}])
def test_clean_chains_thinned_by_defaults_pass(dim, setting):
    sampler = MALA(Gaussian(np.zeros(dim), 1.0), step=1.5 / dim ** (1 / 6))
    _, block = sampler.sample(sampler.init(np.zeros(dim), seed=dim), 8000)
    scales = np.geomspace(1.0, 1e-2, dim)
    found = ss.thin(5.0 + block.draws * scales, block.scores / scales, **setting).diagnose()
    assert found.ok and not found.fired, found
    assert [one.name for one in found.findings] == list(CHECKS)
    assert all(one.detects for one in found.passed) and {one.name for one in found.skipped} <= {
        "chains",
        "weights",
        "directions",
    }


def test_random_subsets_of_correlated_chains_fire_at_most_at_the_false_alarm_rate():
    """120 runs, all checks, chains with an ESS of about 150: the case that the thresholds are made for."""
    counts = {}
    for seed in range(120):
        x = autoregression(900, 2, 0.7, seed)
        chosen = np.sort(np.random.default_rng(seed).choice(len(x), 80, replace=False))
        for name in fired(diagnose(x[chosen], as_stream(x).ids[chosen], as_stream(x))):
            counts[name] = counts.get(name, 0) + 1
    assert sum(counts.values()) <= 6, counts  # 1 % of the runs, of which most set off several checks


@pytest.mark.skipif(not POSTERIORS, reason="the reference posteriors are not available")
@pytest.mark.parametrize("path", POSTERIORS, ids=lambda path: path.stem)
def test_real_posteriors_thinned_by_defaults_pass(path):
    with np.load(path) as arrays:
        found = ss.thin(arrays["draws"], arrays["scores"], size=100).diagnose()
    assert found.ok and [one.name for one in found.skipped] == ["weights"], found


# -- causes and consequences -------------------------------------------------------------------------------------------


def causes(found):
    """Return the findings that are not explained by others."""
    return [one.name for one in found.fired if not one.cause]


def without_scores(x):
    return as_stream(x)._replace(scores=np.zeros((len(x), 0)))


def test_a_lost_mode_is_one_cause():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    x[:800, 0] += 8.0
    x = np.random.default_rng(1).permutation(x)
    stream, rows = without_scores(x), np.flatnonzero(x[:, 0] < 4.0)[::8]
    found = diagnose(x[rows], stream.ids[rows], stream)
    assert causes(found) == ["regions"] and {"mean", "spread", "quantiles"} <= fired(found)
    assert found["mean"].advice == "probably a consequence of regions"


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_a_wrong_width_is_one_cause_although_it_changes_proportions(ratio):
    x = np.random.default_rng(0).standard_t(4, size=(4000, 5))
    stream = without_scores(x)
    found = diagnose(ratio * x[::10], stream.ids[::10], stream)
    assert causes(found) == ["spread"] and {"ranges", "quantiles"} <= fired(found)


def test_a_chain_that_stops_is_stuck_and_therefore_slow():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    x[2000:] = x[2000]
    found = diagnose(x[::40], as_stream(x).ids[::40], without_scores(x))
    assert causes(found) == ["stuck"] and found["slow"].cause == "stuck"


def test_two_faults_are_two_causes():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    x[:1000] += 3.0
    x[:, 1] = 1.0
    assert causes(diagnose(x[::40], as_stream(x).ids[::40], without_scores(x))) == ["constant", "drift"]


# -- any stream --------------------------------------------------------------------------------------------------------


def test_fewer_than_100_draws_are_not_checked():
    x = np.random.default_rng(0).normal(size=(99, 2))
    found = ss.thin(x, -x).diagnose()
    assert not found.ok and found["mean"].skipped == "the stream has 99 draws, at least 100 are required"
    assert str(found) == "Not checked: the stream has 99 draws, at least 100 are required."
    assert str(ss.Thinner(2).diagnose()) == "Not checked: the kept set is empty."


def test_a_kept_set_without_its_stream_is_an_error():
    x = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.raises(ss.SteinstreamError, match="no subsample of its stream"):
        replace(ss.thin(x, -x), stream=None).diagnose()


@settings(max_examples=25, deadline=None)
@given(streams(max_dim=12, max_length=300, min_length=100), st.integers(1, 3))
def test_any_stream_gets_an_answer(stream, chains):
    x, s = stream
    ids = np.column_stack([np.arange(len(x)) % chains, np.arange(len(x)) // chains])
    thinner = ss.Thinner(x.shape[1], validate_scores=False)
    thinner.extend(x, s, ids=ids)
    found = thinner.diagnose()
    assert [one.name for one in found.findings] == list(CHECKS)
    assert all("\n" not in str(finding) for finding in found.findings) and "\n" not in found.verdict
    assert all(one.detects or one.fired for one in found.findings if not one.skipped)


@pytest.mark.parametrize("size", [1e-200, 1e90])
def test_extreme_numbers_get_an_answer(size):
    x = np.random.default_rng(0).normal(size=(300, 3)) * size
    assert diagnose(x[::3], as_stream(x).ids[::3], as_stream(x, -x)).findings


def test_without_scores_only_their_check_is_skipped():
    x = autoregression(4000, 3, 0.5, 0)
    x[:, 1] = 7.0
    stream = as_stream(x)
    bare = stream._replace(scores=np.zeros((4000, 0)))
    with_scores, without = (diagnose(x[::20], stream.ids[::20], one) for one in (stream, bare))
    assert without["scores"].skipped == "no scores" and "scores (no scores)" in without.verdict
    assert any("without scores" in note for note in without.notes)
    others = [[one for one in found.findings if one.name != "scores"] for found in (with_scores, without)]
    assert others[0] == others[1] and without["mean"].detects


def test_a_stream_worth_fewer_draws_than_are_kept_is_noted():
    x = autoregression(4000, 2, 0.9, 0)
    few, many = (diagnose(x[::step], as_stream(x).ids[::step], as_stream(x)) for step in (80, 4))
    assert not few.notes and many.notes[0].startswith("the stream is worth ")


def test_a_set_kept_by_gradient_free_ksd_is_named_and_compared():
    target = Gaussian(np.zeros(2), 1.0)
    x = target.sample(3000, 0)[0]
    by_ratio = ss.thin(x, log_density=target.log_densities(x), proxy=Gaussian(np.zeros(2), 1.5), size=60).diagnose()
    assert "gradient-free KSD, from log densities (density ratio clipped at 2%" in by_ratio.notes[0]
    assert by_ratio["scores"].skipped == "the scores are not those of the target" and by_ratio["mean"].detects


def test_no_finding_names_an_option_that_only_some_commands_have():
    """Findings are printed by several commands and in Python, which have different options."""
    x = np.random.default_rng(0).normal(size=(3000, 3))
    stream, weights = as_stream(x), np.r_[1.0, np.full(99, 1e-6)]
    found = [diagnose(2 * x[:100] + 1, stream.ids[:100], stream), diagnose(0.2 * x[:100], stream.ids[:100], stream)]
    found.append(diagnose(x[:100], stream.ids[:100], stream, weights=weights / weights.sum()))
    for finding in (one for diagnosis in found for one in diagnosis.fired):
        assert "--" not in finding.advice or finding.name == "weights"  # --weights is known if there are weights
        assert "proxy" not in finding.advice


# -- the subsample that is compared ------------------------------------------------------------------------------------


def test_the_subsample_includes_candidates_and_warm_up():
    x = np.random.default_rng(0).normal(size=(1500, 2))
    for thinner in (ss.Thinner(2, candidates=10), ss.Thinner(2, preconditioner=ss.Warmup(draws=5000))):
        thinner.extend(x, -x)
        assert np.array_equal(thinner.kept.stream.draws, x)
        assert thinner.diagnose().ok


def test_an_earlier_result_is_not_changed_by_later_draws():
    x = np.random.default_rng(0).normal(size=(30_000, 2))
    thinner = ss.Thinner(2, size=50)
    thinner.extend(x[:3000], -x[:3000])
    early = thinner.kept
    before = early.stream.copy()
    thinner.extend(x[3000:], -x[3000:])
    assert all(np.array_equal(a, b) for a, b in zip(before, early.stream, strict=True))
    assert len(thinner.kept.stream.draws) <= 4096


@given(st.integers(1, 12_000), st.lists(st.integers(1, 6000), max_size=3), st.integers(1, 5))
@settings(max_examples=8, deadline=None)
def test_checkpoints_do_not_change_the_subsample(tmp_path_factory, length, cuts, chains):
    path = tmp_path_factory.mktemp("subsample") / "run.npz"
    x = np.arange(2.0 * length).reshape(-1, 2) % 97
    ids = np.column_stack([np.arange(length) % chains, np.arange(length) // chains])
    identity = ss.Preconditioner.identity()
    whole, stopped = (ss.Thinner(2, size=3, preconditioner=identity, validate_scores=False) for _ in range(2))
    whole.extend(x, -x, ids=ids)
    edges = sorted({0, length, *(cut for cut in cuts if cut < length)})
    for begin, end in pairwise(edges):
        stopped.extend(x[begin:end], -x[begin:end], ids=ids[begin:end])
        stopped.save(path)
        stopped = ss.Thinner.load(path)
    for one, other in zip(whole.kept.stream[:3], stopped.kept.stream[:3], strict=True):
        assert one.tobytes() == other.tobytes()
    assert str(stopped.diagnose()) == str(whole.diagnose())


def test_the_kept_draws_do_not_depend_on_the_subsample(monkeypatch):
    x = autoregression(6000, 3, 0.8, 0)
    checked = ss.Thinner(3)
    checked.extend(x, -x)
    checked.diagnose()
    monkeypatch.setattr("steinstream.thinner.subsample.Subsample.add", lambda subsample, block: None)
    plain = ss.Thinner(3)
    plain.extend(x, -x)
    assert len(checked.kept.stream.draws) > len(plain.kept.stream.draws) == 0
    assert np.array_equal(checked.kept.ids, plain.kept.ids) and checked.ksd == plain.ksd


@pytest.mark.parametrize("block", [1, 77, 4096])
def test_block_sizes_do_not_change_the_diagnosis(block):
    x = autoregression(5000, 2, 0.9, 0)
    x[4000:] += 5.0
    whole, blocks = ss.Thinner(2), ss.Thinner(2)
    whole.extend(x, -x)
    for begin in range(0, len(x), block):
        blocks.extend(x[begin : begin + block], -x[begin : begin + block])
    assert str(whole.diagnose()) == str(blocks.diagnose()) and whole.diagnose().fired


def test_further_passes_and_preconditioner_changes_do_not_change_the_subsample():
    x = autoregression(6000, 2, 0.5, 0) * [1.0, 0.01]
    s = -x / [1.0, 1e-4]
    once = ss.thin(x, s, size=50).stream.draws
    assert np.array_equal(once, x[::2])
    for setting in ({"passes": 3}, {"passes": "auto"}, {"start": "sample"}, {"preconditioner": "streaming"}):
        kept = ss.thin(x, s, size=50, **setting)
        assert np.array_equal(kept.stream.draws, once), setting
        assert kept.diagnose().ok, kept.diagnose()
