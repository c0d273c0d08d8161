"""Gradient-free KSD: a proxy, ratios of densities, and the stream term."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream._engine.reference import Reference
from steinstream.discrepancy.mmd import StreamDistance
from steinstream.errors import InputError, ProxyWarning
from steinstream.targets import Functions, Gaussian, Mixture
from tests.thinners import limits_at

TARGET = Mixture([[-1.5, 0.0], [1.5, 0.0]], covariances=1.0, weights=[0.3, 0.7])


@pytest.fixture(scope="module")
def stream():
    """Draws, scores and log densities of a target that is not Gaussian."""
    draws, scores = TARGET.sample(4000, seed=0)
    return draws, scores, TARGET.log_densities(draws)


class Told:
    """A proxy that is the target itself."""

    log_density, score = TARGET.log_density, TARGET.score
    log_densities, scores = TARGET.log_densities, TARGET.scores


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 40},
        {},
        {"growth": "linear", "budget": "share:1"},
        {"growth": 10, "rule": "monotone"},
        {"size": 40, "kernel": ss.RBF(), "preconditioner": ss.Preconditioner.identity()},
        {"growth": "sqrt", "size": 50, "budget": "decaying"},
    ],
)
def test_with_the_target_for_a_proxy_it_is_plain_thinning(stream, settings):
    draws, scores, log_density = stream
    plain = ss.thin(draws, scores, stream_weight=0.0, **settings)
    free = ss.thin(draws, log_density=log_density - 7.0, proxy=Told(), stream_weight=0.0, **settings)
    np.testing.assert_array_equal(free.ids, plain.ids)
    np.testing.assert_allclose(free.ksd, plain.ksd, rtol=1e-12)
    np.testing.assert_array_equal(free.history.step, plain.history.step)
    np.testing.assert_allclose(free.history.ksd, plain.history.ksd, rtol=1e-11)


def objective_of(kept, proxy):
    """Matrices of the gradient-free KSD and of the squared MMD, from the definition, and the weight of the second."""
    x, s = kept.preconditioner.apply(kept.draws, proxy.scores(kept.draws))
    ratios, phi = kept.variables["ratio"].values, kept.kernel.base_matrix
    stein = ratios[:, None] * ratios * kept.kernel.matrix(x, s, x, s)
    y, v = kept.preconditioner.apply_to_draws(kept.stream_summary.draws), kept.stream_summary.weights
    v = v / v.sum()
    means, mean = phi(x, y) @ v, v @ phi(y, y) @ v
    kappa = np.diag(stein).mean()
    return stein, phi(x, x) - means[:, None] - means + mean, kept.settings["trust"] * kappa / (1.0 - mean)


def fitted(draws):
    """The Gaussian that is fitted to the second half of a chain."""
    settled = draws[len(draws) // 2 :]
    return Gaussian(settled.mean(axis=0), np.cov(settled, rowvar=False))


def test_ksd_and_mmd_are_those_of_the_definitions(stream):
    draws, _, log_density = stream
    kept = ss.thin(draws, log_density=log_density, size=30)
    stein, centred, _ = objective_of(kept, fitted(draws))
    assert kept.ksd == pytest.approx(np.sqrt(stein.mean()), rel=1e-4)
    assert kept.mmd == pytest.approx(np.sqrt(centred.mean()), rel=1e-6)
    assert kept.scores is None and kept.settings["has_scores"] is False


@pytest.mark.parametrize("growth", ["sqrt", "linear", 5])
@pytest.mark.parametrize("candidates", [1, 3])
def test_the_result_is_that_of_a_slow_reference(stream, growth, candidates):
    draws, _, log_density = (each[:300] for each in stream)
    wide, steps = Gaussian([0.0, 0.0], [4.0, 2.0]), 300 // candidates
    whole = ss.thin(draws, log_density=log_density, proxy=wide, growth="none")
    ratios = whole.variables["ratio"].values
    assert ratios.mean() == pytest.approx(1.0)
    assert ratios.max() / ratios.min() <= np.exp(2.0)
    kept = ss.thin(draws, log_density=log_density, proxy=wide, growth=growth, candidates=candidates, stream_weight=0.0)
    x, s = kept.preconditioner.apply(draws, wide.scores(draws))
    reference = Reference(kept.kernel)
    for t in range(1, steps + 1):
        rows = range((t - 1) * candidates, t * candidates)
        limits = limits_at(t, growth, 0.0, len(reference.draws) + 1)
        reference.step(x[rows], s[rows], [(0, row) for row in rows], **limits, ratios=ratios[rows])
    np.testing.assert_array_equal(kept.ids, sorted(reference.ids))


OPTIONS = [
    {"candidates": 4},
    {"passes": 3},
    {"passes": "auto"},
    {"growth": "sqrt", "size": None, "rule": "monotone", "candidates": 2},
    {"costs": np.arange(4000) % 7 + 1.0, "cost_weight": 1.0},
    {"pinned": np.arange(4000) % 500 == 3},
    {"preconditioner": "streaming", "history": 10},
]


@pytest.mark.parametrize(
    "settings",
    [
        *[{**options, "stream_weight": weight} for options in OPTIONS for weight in (0.0, 1.0)],
        {"features": lambda x: x**2, "stream_on": "both"},
    ],
    ids=", ".join,  # names of the settings
)
def test_with_the_target_for_a_proxy_every_option_is_that_of_scores(stream, settings):
    draws, scores, log_density = stream
    settings = {"size": 30, "start": "stream", **settings}
    plain = ss.thin(draws, scores, **settings)
    free = ss.thin(draws, log_density=log_density + 3.0, proxy=Told(), **settings)
    np.testing.assert_array_equal(free.ids, plain.ids)
    np.testing.assert_allclose(free.ksd, plain.ksd, rtol=1e-10)
    np.testing.assert_allclose(free.mmd, plain.mmd, rtol=1e-10)
    np.testing.assert_allclose(free.history.ksd, plain.history.ksd, rtol=1e-8)
    assert (free.bound, free.scores) == (None, None)


def test_bad_draws_keep_the_costs_and_pins_of_the_others(stream):
    draws, _, log_density = (each[:600] for each in stream)
    spoilt = np.where(np.arange(600) % 3 == 1, np.nan, log_density)
    costs, pinned = np.arange(600) % 11 + 1.0, np.random.default_rng(0).random(600) > 0.98
    pinned &= np.isfinite(spoilt)
    shared = {"size": 40, "cost_weight": 1.0, "proxy": Told()}
    kept = ss.thin(draws, log_density=spoilt, costs=costs, pinned=pinned, on_bad="skip", **shared)
    good = np.isfinite(spoilt)
    plain = ss.thin(draws[good], log_density=log_density[good], costs=costs[good], pinned=pinned[good], **shared)
    np.testing.assert_array_equal(kept.ids[:, 1], np.flatnonzero(good)[plain.ids[:, 1]])
    assert set(np.flatnonzero(pinned)) <= set(kept.ids[:, 1])
    assert (kept.settings["seen"], kept.settings["skipped"]) == (600, 200)


def test_log_densities_lead_past_the_proxy_to_the_target(stream):
    draws, scores, log_density = stream
    sets = {
        "scores": ss.thin(draws, scores, size=60, stream_weight=0.0),
        "ratios": ss.thin(draws, log_density=log_density, size=60, stream_weight=0.0),
    }
    # Without ratios it is the distance to the proxy.
    sets["proxy"] = ss.thin(draws, log_density=log_density, size=60, clip=0.0, stream_weight=0.0)
    assert sets["proxy"].settings["clipped"] == 1.0
    preconditioner = sets["scores"].preconditioner
    found = {name: ss.ksd(k.draws, scores[k.ids[:, 1]], preconditioner=preconditioner) for name, k in sets.items()}
    stride = ss.ksd(draws[::66], scores[::66], preconditioner=preconditioner)
    assert found["scores"] < found["ratios"] < 0.5 * found["proxy"] < found["proxy"] < stride


def test_the_stream_term_repairs_a_poor_proxy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 10_000))
    banana, log_density = np.column_stack([a, 0.5 * b + 0.7 * (a**2 - 1.0)]), -0.5 * a**2 - 0.5 * b**2
    with pytest.warns(ProxyWarning, match=r"than as many evenly spaced draws.* clipped at 1\d%.*Leave out log_density"):
        alone = ss.thin(banana, log_density=log_density, size=100, stream_weight=0.0)
    both = ss.thin(banana, log_density=log_density, size=100)  # no warning
    errors = [np.abs((kept.mean() - banana.mean(axis=0)) / banana.std(axis=0)).max() for kept in (alone, both)]
    assert errors[1] < 0.1 < errors[0]
    assert both.settings["mmd_ratio"] < 1.0 < alone.settings["mmd_ratio"]
    stream, weights = both.preconditioner.apply_to_draws(both.stream_summary.draws), both.stream_summary.weights
    distance, equal = StreamDistance(both.kernel, stream, weights), np.full(100, 0.01)
    strides = [both.preconditioner.apply_to_draws(banana[start::100]) for start in (12, 37, 62, 87)]
    spaced = np.sqrt(np.mean([distance.squared_mmd(x, equal) for x in strides]))
    assert both.settings["mmd_ratio"] == pytest.approx(both.mmd / spaced, rel=1e-6)


def test_what_needs_no_scores_works_on_the_result(stream):
    draws, _, log_density = stream
    kept = ss.thin(draws, log_density=log_density, size=40)
    assert kept.weighted().weights.sum() == pytest.approx(1.0)
    assert kept.ordered().prefix_mmd[-1] == pytest.approx(kept.mmd, rel=1e-6)
    assert len(ss.merge([kept, kept], size=30)) == 30
    assert kept.stream.draws.shape[1] == 2 and not kept.stream.has_scores
    with pytest.raises(InputError, match="KSD needs scores"):
        kept.require_scores("KSD")


def test_a_proxy_is_any_object_with_a_log_density_and_a_score(stream):
    draws, _, log_density = (each[:500] for each in stream)
    wide = Gaussian([0.0, 0.0], [4.0, 2.0])
    one_by_one = Functions(wide.log_density, wide.score)
    a, b = (ss.thin(draws, log_density=log_density, proxy=proxy, size=20) for proxy in (wide, one_by_one))
    np.testing.assert_array_equal(a.ids, b.ids)
    assert (a.settings["proxy"], b.settings["proxy"]) == ("Gaussian", "Functions")


def test_chains_and_bad_draws_keep_their_ids(stream):
    draws, _, log_density = stream
    chains, densities = draws.reshape(2, 2000, 2).copy(), log_density.reshape(2, 2000).copy()
    chains[0, 3, 1], densities[1, 5] = np.nan, -np.inf
    kept = ss.thin(chains, log_density=densities, proxy="gaussian", size=30, on_bad="skip")
    assert (kept.settings["seen"], kept.settings["skipped"]) == (4000, 2)
    np.testing.assert_array_equal(kept.draws, chains[kept.ids[:, 0], kept.ids[:, 1]])
    assert set(kept.ids[:, 0]) == {0, 1}


def test_a_linear_term_is_measured_from_the_middle_of_the_draws(stream):
    draws, _, log_density = (each[:600] for each in stream)
    kernel = ss.IMQ(linear=0.1)
    near, far = (
        ss.thin(draws + shift, log_density=log_density, proxy="gaussian", kernel=kernel, size=20)
        for shift in (0.0, 100.0)
    )
    assert far.preconditioner.centre is not None and far.ksd == pytest.approx(near.ksd, rel=1e-6)
    whole = [ss.gradient_free_ksd(draws + shift, log_density, kernel=kernel) for shift in (0.0, 100.0)]
    assert whole[1] == pytest.approx(whole[0], rel=1e-6)


@pytest.mark.parametrize("spoilt", ["score", "log_density"])
def test_where_a_proxy_has_no_number_the_draw_is_bad(stream, spoilt):
    draws, _, log_density = (each[:600] for each in stream)
    out = draws[:, 0] > 2.0
    proxy = Functions(
        lambda x: np.nan if spoilt == "log_density" and x[0] > 2.0 else TARGET.log_density(x),
        lambda x: TARGET.score(x) * (np.nan if spoilt == "score" and x[0] > 2.0 else 1.0),
    )
    first = int(np.flatnonzero(out)[0])
    with pytest.raises(InputError, match=rf"proxy.*chain 0, draw {first}\b.*Correct the proxy"):
        ss.thin(draws, log_density=log_density, proxy=proxy, size=20)
    with pytest.raises(InputError, match="Correct the proxy"):
        ss.gradient_free_ksd(draws, log_density, proxy=proxy)
    kept = ss.thin(draws, log_density=log_density, proxy=proxy, size=20, on_bad="skip")
    assert kept.settings["skipped"] == out.sum() and (kept.draws[:, 0] <= 2.0).all()
    assert np.isfinite(kept.ksd) and np.array_equal(kept.draws, draws[kept.ids[:, 1]])


def test_a_proxy_that_has_no_number_anywhere_is_refused(stream):
    draws, _, log_density = (each[:50] for each in stream)
    nowhere = Functions(lambda x: np.nan, lambda x: x * np.nan)
    with pytest.raises(InputError, match="None of the 50 draws"):
        ss.thin(draws, log_density=log_density, proxy=nowhere, on_bad="skip")


def test_ratios_survive_a_file(stream, tmp_path):
    draws, _, log_density = (each[:500] for each in stream)
    kept = ss.thin(draws, log_density=log_density, proxy="gaussian", size=20)
    kept.save(tmp_path / "kept.npz")
    loaded = ss.Kept.load(tmp_path / "kept.npz")
    np.testing.assert_array_equal(loaded.variables["ratio"].values, kept.variables["ratio"].values)
    assert loaded.scores is None and loaded.ksd == kept.ksd and loaded.mmd == kept.mmd


def test_the_measure_tells_the_target_from_others(stream):
    draws, scores, log_density = stream
    right = ss.gradient_free_ksd(draws, log_density, proxy=Told(), preconditioner=ss.Preconditioner.identity())
    assert right == pytest.approx(ss.ksd(draws, scores), rel=1e-10)  # ratios are 1
    of_another = Gaussian([0.0, 0.0], [1.0, 1.0]).log_densities(draws)
    assert ss.gradient_free_ksd(draws, log_density) < 0.3 * ss.gradient_free_ksd(draws, of_another)


def test_mistakes_are_named(stream):
    draws, scores, log_density = stream
    thin = ss.thin
    with pytest.raises(InputError, match="scores cannot be used with log_density"):
        thin(draws, scores, log_density=log_density)
    with pytest.raises(InputError, match=r"log density looks negated.*not a potential"):
        thin(draws, log_density=-log_density, proxy="gaussian")
    with pytest.raises(InputError, match=r"log density of draw 0 is nan.*on_bad"):
        thin(draws, log_density=np.full(len(draws), np.nan), proxy="gaussian")
    with pytest.raises(InputError, match="None of the 4000 draws"):
        thin(draws, log_density=np.full(len(draws), np.nan), proxy="gaussian", on_bad="skip")
    with pytest.raises(InputError, match=r"shape \(3999,\), but the draws require \(4000,\)"):
        thin(draws, log_density=log_density[1:], proxy="gaussian")
    with pytest.raises(InputError, match="Unknown proxy 'cauchy'"):
        thin(draws, log_density=log_density, proxy="cauchy")
    with pytest.raises(InputError, match="clip must be"):
        thin(draws, log_density=log_density, proxy="gaussian", clip=-1.0)
    for more in ({"start": "sample"}, {"storage": "float32"}):
        with pytest.raises(InputError, match="cannot be used with the gradient-free KSD"):
            thin(draws, log_density=log_density, proxy="gaussian", size=10, **more)


def test_the_page(capsys):
    page = Path(__file__).parents[2] / "docs" / "integrations" / "without-scores.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried
    assert failed == 0


@pytest.mark.parametrize("given", [{"proxy": Told()}, {"clip": 2.0}], ids=", ".join)
def test_options_of_the_proxy_need_log_densities(stream, given):
    draws, _, log_density = stream
    with pytest.raises(InputError, match="with log_density only"):
        ss.thin(draws, size=20, **given)
    assert len(ss.thin(draws, size=20, log_density=log_density, **given)) == 20
