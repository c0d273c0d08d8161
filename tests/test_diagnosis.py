"""The blind-spot report is silent on clean runs, finds what is wrong, and travels with the thinner."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import streams

import steinstream as ss
from steinstream import validation
from steinstream.diagnostics import FALSE_ALARM, diagnose
from steinstream.diagnostics.context import Evidence, normal_scores
from steinstream.diagnostics.convergence import parts, r_hat
from steinstream.diagnostics.mcse import effective, threshold
from steinstream.samplers import MALA
from steinstream.targets import Gaussian, Mixture

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "posteriordb"
POSTERIORS = sorted(DATA.glob("*.npz")) if DATA.exists() else []


def autoregression(count, dim, rho, seed):
    """A stationary chain with standard normal marginals and tau = (1 + rho) / (1 - rho)."""
    noise = np.random.default_rng(seed).normal(size=(count, dim))
    x = noise.copy()
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return x


def names(diagnosis):
    return {finding.name for finding in diagnosis.fired}


def stream_of(x, s=None, chains=None):
    ids = validation.consecutive_ids(0, 0, len(x)) if chains is None else chains
    return validation.Block(x, -x if s is None else s, ids)


# -- clean runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 10, 38])
@pytest.mark.parametrize("setting", [{}, {"size": 100}, {"size": 500}])
def test_clean_chains_thinned_by_defaults_are_ok(dim, setting):
    sampler = MALA(Gaussian(np.zeros(dim), 1.0), step=1.5 / dim ** (1 / 6))
    _, block = sampler.sample(sampler.init(np.zeros(dim), seed=dim), 8000)
    scales = np.geomspace(1.0, 1e-2, dim)
    found = ss.thin(5.0 + block.draws * scales, block.scores / scales, **setting).diagnose()
    assert found.ok and not found.fired, found
    assert str(found).startswith("All 9 checks passed") and "\n" not in repr(found)


def test_random_subsets_of_correlated_chains_set_off_no_more_than_promised():
    """What the thresholds are made for: 120 runs, all checks, chains worth about 150 independent draws."""
    fired = {}
    for seed in range(120):
        x = autoregression(900, 2, 0.7, seed)
        chosen = np.sort(np.random.default_rng(seed).choice(len(x), 80, replace=False))
        for name in names(diagnose(x[chosen], stream_of(x).ids[chosen], stream_of(x))):
            fired[name] = fired.get(name, 0) + 1
    checks = 9
    assert sum(fired.values()) <= 120 * checks * FALSE_ALARM + 2 * np.sqrt(120 * checks * FALSE_ALARM), fired


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_draws_of_an_autoregression(rho):
    x = autoregression(4096, 30, rho, 1)
    expected = 4096 * (1 - rho) / (1 + rho)
    assert 0.75 * expected < np.median(effective(x)) < 1.1 * expected


def test_a_constant_parameter_is_to_be_left_out_and_the_rest_is_judged():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    x[:, 1] = 0.1
    assert effective(x)[1] == 1.0
    found = ss.thin(x, -x, size=100).diagnose()
    assert names(found) == {"constant"} and {"slow", "spread", "scores"} <= {f.name for f in found.findings}
    assert str(found).startswith("constant: x1 is constant; leave it out")
    shifted = diagnose(x[::10] + np.array([0, 0, 1]), stream_of(x).ids[::10], stream_of(x), ["a", "b", "c"])
    assert "of c " in shifted["mean"].says  # names stay with their parameters


def test_many_short_chains_are_not_stuck():
    x = np.random.default_rng(0).normal(size=(1000, 4, 3))  # as (draws, chains, dimensions) is read
    found = ss.thin(x, -x).diagnose()
    assert "stuck" not in {finding.name for finding in found.findings}


def test_normal_scores_follow_ranks_and_ties_share():
    x = np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 5.0]])
    scores = normal_scores(x)
    assert (np.argsort(scores[:, 0]) == [1, 2, 0]).all() and abs(scores[:, 0].sum()) < 1e-12
    assert scores[0, 1] == scores[1, 1] < scores[2, 1]


def test_r_hat_is_the_textbook_one():
    pieces = list(np.random.default_rng(0).normal(size=(6, 50, 2)) + np.arange(6)[:, None, None] * 0.3)
    values, _ = r_hat(parts(pieces), list(range(6)), 1)
    for j in range(2):
        means = [piece[:, j].mean() for piece in pieces]
        within = np.mean([piece[:, j].var(ddof=1) for piece in pieces])
        assert values[j] == pytest.approx(np.sqrt(49 / 50 + np.var(means, ddof=1) / within))


# -- faults ------------------------------------------------------------------------------------------------------------


def two_modes(distance, small, left, size, dim=2):
    """A right stream of a mixture; what is kept has ``left`` of the mode that should have ``small``."""
    target = Mixture(
        [np.zeros(dim), np.full(dim, distance / np.sqrt(dim))], covariances=1.0, weights=[1 - small, small]
    )
    x, s = target.sample(8000, 3)
    inside = x.sum(axis=1) / np.sqrt(dim) > distance / 2
    few = round(left * size)
    whole = ss.thin(x, s, size=size)
    thinned = [ss.thin(x[~inside], s[~inside], size=size - few)]
    thinned += [ss.thin(x[inside], s[inside], size=few)] if few else []
    return replace(
        whole, points=np.vstack([k.draws for k in thinned]), scores=np.vstack([k.scores for k in thinned]),
        ids=np.vstack([k.ids for k in thinned]),
    ), whole  # fmt: skip


@pytest.mark.parametrize("distance", [4, 6, 8])
@pytest.mark.parametrize(("small", "left", "size"), [(0.2, 0.01, 100), (0.2, 0.01, 500), (0.05, 0.0, 500)])
def test_a_mode_that_dwindled_is_found_and_a_kept_one_is_not(distance, small, left, size):
    lost, whole = two_modes(distance, small, left, size)
    finding = lost.diagnose()["regions"]
    assert finding.fired and finding.value > finding.threshold and "of the stream" in str(finding)
    assert whole.diagnose().ok, whole.diagnose()


def test_a_mode_is_found_in_many_dimensions():
    lost, _ = two_modes(6, 0.2, 0.01, 200, dim=38)
    assert "regions" in names(lost.diagnose())


def test_identity_coordinates_on_a_narrow_target_are_under_dispersed():
    x, s = Gaussian(np.zeros(2), [1.0, 1e-4]).sample(20_000, 0)
    finding = ss.thin(x, s, **ss.PAPER).diagnose()["spread"]
    assert finding.fired and finding.value < finding.threshold < 1 and "x1" in finding.says
    assert ss.thin(x, s).diagnose().ok


def test_a_set_that_is_too_wide_or_shifted_is_found():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    ids, stream = stream_of(x).ids[::10], stream_of(x)
    wide = diagnose(x[::10] * [1, 1, 2], ids, stream)["spread"]
    assert wide.fired and wide.value > wide.threshold > 1
    shifted = diagnose(x[::10] + np.array([0, 0.7, 0]), ids, stream)
    assert shifted["mean"].fired and shifted["quantiles"].fired and "x1" in shifted["mean"].says
    turned = x[::10] @ np.array([[1, 0.9, 0], [0, np.sqrt(1 - 0.81), 0], [0, 0, 1]])  # each parameter as wide as before
    assert diagnose(turned, ids, stream)["spread"].fired


def test_a_chain_that_stops_is_stuck():
    x = autoregression(4000, 3, 0.5, 0)
    x[2500:] = x[2500]
    found = ss.thin(x, -x, validate_scores=False).diagnose()
    assert found["stuck"].fired and found["stuck"].value == pytest.approx(1500 / 4000, abs=0.01)
    assert "stuck" in names(ss.thin(np.ones((500, 2)), np.ones((500, 2))).diagnose())


def test_a_slow_chain_is_slow_and_nothing_is_judged_by_it():
    x = 0.01 * np.cumsum(np.random.default_rng(1).normal(size=(3000, 2)), axis=0)
    found = ss.thin(x, -x, validate_scores=False).diagnose()
    assert "slow" in names(found) and {f.name for f in found.findings} == {"slow", "stuck", "drift"}


def test_a_last_quarter_that_wandered_off_is_drift():
    x = autoregression(4000, 3, 0.5, 0)
    x[3000:, 1] += 3.0
    finding = ss.thin(x, -x).diagnose()["drift"]
    assert finding.fired and "last quarter" in finding.says and "x1" in finding.says


def test_chains_in_two_modes_disagree_and_good_ones_agree():
    x = np.stack([autoregression(1500, 2, 0.5, seed) for seed in range(4)])
    assert ss.thin(x, -x).diagnose().ok
    x[3] += 6.0
    found = ss.thin(x, -x, validate_scores=False).diagnose()
    assert found["chains"].fired and found["chains"].value > 1.3


def test_one_negated_parameter_is_found_where_the_door_sees_nothing():
    x = np.random.default_rng(0).normal(size=(3000, 10))
    with pytest.warns(ss.ScoresWarning, match="x4"):
        found = ss.thin(x, -x * np.where(np.arange(10) == 4, -1, 1), size=300).diagnose()
    finding = found["scores"]
    assert finding.fired and "x4" in finding.says and "sign" in finding.advice


def test_burn_in_is_found_and_not_held_against_the_rest():
    x = autoregression(4000, 2, 0.5, 0)
    x[:400] += np.linspace(60, 6, 400)[:, None]
    found = ss.thin(x, -x, growth="none").diagnose()
    assert names(found) == {"burn-in"} and found["burn-in"].value == pytest.approx(0.1, abs=0.02)
    assert ss.thin(x, -x, size=200).diagnose().ok  # thinning lets it go, and the stream is judged without it


# -- where it comes from -----------------------------------------------------------------------------------------------


def test_too_few_draws_are_not_judged():
    x = np.random.default_rng(0).normal(size=(99, 2))
    found = ss.thin(x, -x).diagnose()
    assert not found.ok and found.findings == () and "too few draws to tell" in str(found)
    thinner = ss.Thinner(2)
    assert "too few" in repr(thinner.diagnose())


def test_a_kept_set_without_its_stream_says_so():
    x = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.raises(ss.SteinstreamError, match="does not remember its stream"):
        replace(ss.thin(x, -x), stream=None).diagnose()


def test_the_stream_is_all_that_came_candidates_and_warm_up_included():
    x = np.random.default_rng(0).normal(size=(1500, 2))
    for thinner in (ss.Thinner(2, candidates=10), ss.Thinner(2, preconditioner=ss.Warmup(draws=5000))):
        thinner.extend(x, -x)
        assert np.array_equal(thinner.kept.stream.draws, x)
        assert thinner.diagnose().ok


def test_an_earlier_result_is_not_changed_by_what_comes_later():
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
def test_the_sketch_survives_a_checkpoint_to_the_bit(tmp_path_factory, length, cuts, chains):
    path = tmp_path_factory.mktemp("sketch") / "run.npz"
    x = np.arange(2.0 * length).reshape(-1, 2) % 97
    ids = np.column_stack([np.arange(length) % chains, np.arange(length) // chains])
    whole, stopped = (ss.Thinner(2, size=3, validate_scores=False) for _ in range(2))
    whole.extend(x, -x, ids=ids)
    edges = sorted({0, length, *(cut for cut in cuts if cut < length)})
    for begin, end in pairwise(edges):
        stopped.extend(x[begin:end], -x[begin:end], ids=ids[begin:end])
        stopped.save(path)
        stopped = ss.Thinner.load(path)
    assert stopped._sketch.state().keys() == whole._sketch.state().keys()
    for name, array in whole._sketch.state().items():
        assert array.tobytes() == stopped._sketch.state()[name].tobytes()
    assert str(stopped.diagnose()) == str(whole.diagnose())


@settings(max_examples=25, deadline=None)
@given(streams(max_dim=12, max_length=300, min_length=100), st.integers(1, 3))
def test_any_stream_gets_an_answer(stream, chains):
    x, s = stream
    ids = np.column_stack([np.arange(len(x)) % chains, np.arange(len(x)) // chains])
    thinner = ss.Thinner(x.shape[1], validate_scores=False)
    thinner.extend(x, s, ids=ids)
    found = thinner.diagnose()
    assert {"slow", "stuck"} <= {finding.name for finding in found.findings}
    assert all("\n" not in str(finding) for finding in found.findings)


@pytest.mark.parametrize("size", [1e-200, 1e90])
def test_extreme_numbers_get_an_answer(size):
    x = np.random.default_rng(0).normal(size=(300, 3)) * size
    diagnose(x[::3], stream_of(x).ids[::3], stream_of(x, -x))


def test_more_parameters_than_draws_get_an_answer():
    x = np.random.default_rng(0).normal(size=(120, 150))
    assert not names(diagnose(x[::3], stream_of(x).ids[::3], stream_of(x))) & {"spread", "regions", "mean"}


def test_each_function_compared_has_its_own_noise():
    x = np.column_stack([autoregression(2000, 1, 0.9, 0), autoregression(2000, 1, 0.0, 1)])
    evidence = Evidence(x[::20], stream_of(x).ids[::20], stream_of(x))
    slow, fast = evidence.noise(x)
    assert slow == pytest.approx(np.sqrt(19 / 2000 + 0.01), rel=0.2) and fast == pytest.approx(0.1, rel=0.1)


def test_what_is_kept_does_not_depend_on_the_sketch(monkeypatch):
    x = autoregression(6000, 3, 0.8, 0)
    looked_at = ss.Thinner(3)
    looked_at.extend(x, -x)
    looked_at.diagnose()
    monkeypatch.setattr("steinstream.thinner.subsample.Subsample.add", lambda sketch, block: None)
    plain = ss.Thinner(3)
    plain.extend(x, -x)
    assert len(looked_at.kept.stream.draws) > len(plain.kept.stream.draws) == 0
    assert np.array_equal(looked_at.kept.ids, plain.kept.ids) and looked_at.ksd == plain.ksd


@pytest.mark.parametrize("block", [1, 77, 4096])
def test_blocks_do_not_matter(block):
    x = autoregression(5000, 2, 0.9, 0)
    x[4000:] += 5.0
    whole, blocks = ss.Thinner(2), ss.Thinner(2)
    whole.extend(x, -x)
    for begin in range(0, len(x), block):
        blocks.extend(x[begin : begin + block], -x[begin : begin + block])
    assert str(whole.diagnose()) == str(blocks.diagnose()) and whole.diagnose().fired


def test_further_passes_and_coordinates_that_change_leave_the_stream_as_it_came():
    x = autoregression(6000, 2, 0.5, 0) * [1.0, 0.01]
    s = -x / [1.0, 1e-4]
    once = ss.thin(x, s, size=50).stream.draws
    assert np.array_equal(once, x[::2])
    for setting in ({"passes": 3}, {"passes": "auto"}, {"start": "sample"}, {"preconditioner": "streaming"}):
        kept = ss.thin(x, s, size=50, **setting)
        assert np.array_equal(kept.stream.draws, once), setting
        assert kept.diagnose().ok, kept.diagnose()


def test_weights_count_in_the_comparison():
    target = Mixture([[0, 0], [6, 0]], covariances=1.0, weights=[0.8, 0.2])
    x, s = target.sample(20_000, seed=1)
    kept = ss.thin(x, s, **ss.PAPER)
    assert {"regions", "mean"} <= names(kept.diagnose())
    assert kept.weighted(like=x).diagnose().ok
    all_in_one_draw = replace(kept, weights=np.eye(1, len(kept)).ravel()).diagnose()
    assert all_in_one_draw["weights"].fired
    assert all_in_one_draw["mean"].threshold == kept.diagnose()["mean"].threshold  # few effective draws are no excuse


@pytest.mark.parametrize("distance", [6, 8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_weights_that_spoil_the_proportions_are_found(distance, seed):
    """Weights of least KSD leave 0.02 to 0.04 of a mode of 0.2."""
    x, s = Mixture([[0, 0], [distance, 0]], covariances=1.0, weights=[0.8, 0.2]).sample(20_000, seed)
    kept = ss.thin(x, s, size=100)
    assert kept.diagnose().ok
    found = kept.weighted().diagnose()
    assert found["weights"].fired and found["regions"].fired and "like=" in found["weights"].advice
    assert "weights" in found["regions"].advice  # an anchor would not help
    assert kept.weighted(like=x).diagnose().ok


@pytest.mark.parametrize("size", [50, 300])
@pytest.mark.parametrize("dim", [1, 2, 10])
def test_sound_weights_set_nothing_off(dim, size):
    x = np.random.default_rng(dim).normal(size=(10_000, dim))
    kept = ss.thin(x, -x, size=size)
    for weighted in (kept.weighted(), kept.weighted(like=x)):
        found = weighted.diagnose()
        assert found.ok and len(found.findings) == 10, found


def test_weights_on_a_handful_of_draws_are_found():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    kept = ss.thin(x, -x, size=100)
    weights = np.full(100, 1e-9)
    weights[[0, 1, 2, 3]] = 0.25
    found = replace(kept, weights=weights / weights.sum()).diagnose()
    assert found["weights"].fired and found["weights"].value > found["weights"].threshold


def test_a_weight_of_three_is_worth_three_copies():
    x = np.random.default_rng(0).normal(size=(3000, 1))
    ids, stream = stream_of(x).ids, stream_of(x)
    copies = np.where(np.arange(300) < 100, 3, 1)
    rows = np.repeat(np.arange(300), copies)
    weighted, repeated = (
        diagnose(x[:300], ids[:300], stream, weights=copies / 500),
        diagnose(x[rows], ids[rows], stream),
    )
    for name in ("mean", "spread"):
        assert weighted[name].value == pytest.approx(repeated[name].value, rel=1e-9)
    assert weighted["mean"].threshold > repeated["mean"].threshold  # but they are not as good as 500 draws


def test_a_mode_visited_only_at_the_end_is_slow():
    x = autoregression(20_000, 2, 0.5, 0)
    x[19_000:] += 4.0
    target = Mixture([[0, 0], [4, 4]], covariances=1.0, weights=[0.95, 0.05])
    finding = ss.thin(x, target.scores(x)).diagnose()["slow"]
    assert finding.fired and 10 < finding.value < 30 and "how often it is around" in finding.says
    often = np.random.default_rng(0).permutation(x)
    assert ss.thin(often, target.scores(often), size=2000).diagnose()["slow"].value > 500


def test_scores_of_another_scale_are_found():
    x = np.random.default_rng(0).normal(size=(3000, 4))
    found = ss.thin(x, -3.0 * x, size=300, validate_scores=False).diagnose()
    finding = found["scores"]
    assert finding.fired and finding.value == pytest.approx(2.0, abs=0.3) and "another density" in finding.advice
    assert f"off by {finding.value:.3g} of what is expected, 0.4 is allowed" in str(finding)
    assert found["spread"].fired and found["spread"].advice.startswith("follows from the scores")


def test_a_threshold_is_the_effect_or_the_noise():
    assert threshold(0.1, 0.01, 1) == 0.1
    assert threshold(0.1, 0.1, 1) == pytest.approx(0.1 * 2.807, abs=1e-3)  # 99.75 % quantile
    assert threshold(0.1, 0.1, 10) == pytest.approx(0.1 * 3.481, abs=1e-3)


@pytest.mark.skipif(not POSTERIORS, reason="reference posteriors are not beside this checkout")
@pytest.mark.parametrize("path", POSTERIORS, ids=lambda path: path.stem)
def test_real_posteriors_thinned_by_defaults_are_ok(path):
    with np.load(path) as arrays:
        found = ss.thin(arrays["draws"], arrays["scores"], size=100).diagnose()
    assert found.ok and len(found.findings) == 10, found


def test_the_command_line_ends_with_what_was_found(steinstream, chain, tmp_path):
    for method in ((), ("--method", "random_thinning")):
        ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 100, *method)
        assert ran.returncode == 0 and ran.stderr == ""
        assert ran.stdout.splitlines()[-1] == "All 9 checks passed: nothing found that KSD would miss."
    x, s = Gaussian(np.zeros(2), [1.0, 1e-4]).sample(20_000, 0)
    np.savetxt(
        tmp_path / "narrow.csv", np.hstack([x, s]), delimiter=",", header="wide,slim,score_wide,score_slim", comments=""
    )
    ran = steinstream("thin", "narrow.csv", "-o", "kept.npz", "--paper")
    assert ran.returncode == 0, ran.stderr
    assert "spread: the standard deviation of slim is 0." in ran.stderr
    assert "checks passed" not in ran.stdout
    with pytest.raises(ss.SteinstreamError, match="does not remember its stream"):
        ss.Kept.load(tmp_path / "kept.npz").diagnose()
