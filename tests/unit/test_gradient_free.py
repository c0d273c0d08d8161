"""Draws without scores: a proxy, ratios of densities, and what they can and cannot do."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.targets import Functions, Gaussian, Mixture

TARGET = Mixture([[-1.5, 0.0], [1.5, 0.0]], covariances=1.0, weights=[0.3, 0.7])


@pytest.fixture(scope="module")
def stream():
    """Draws, scores and log densities of a target that is no Gaussian."""
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
    plain = ss.thin(draws, scores, **settings)
    free = ss.thin(draws, log_density=log_density - 7.0, proxy=Told(), **settings)
    np.testing.assert_array_equal(free.ids, plain.ids)
    np.testing.assert_allclose(free.ksd, plain.ksd, rtol=1e-12)
    np.testing.assert_array_equal(free.history.step, plain.history.step)
    np.testing.assert_allclose(free.history.ksd, plain.history.ksd, rtol=1e-11)


def test_ksd_is_that_of_the_kernel_with_ratios(stream):
    draws, _, log_density = stream
    kept = ss.thin(draws, log_density=log_density, proxy="gaussian", size=30)
    x, s = kept.preconditioner.apply(kept.draws, kept.scores)
    ratios = kept.variables["ratio"].values
    matrix = ratios[:, None] * ratios * kept.kernel.matrix(x, s, x, s)
    assert kept.ksd == pytest.approx(np.sqrt(matrix.mean()), rel=1e-10)


def slow(matrix, floors):
    """The algorithm with budget 0, from a whole kernel matrix."""
    kept: list[int] = []
    for t, floor in enumerate(floors):
        kept.append(t)
        most = matrix[np.ix_(kept, kept)].mean() * (1 + 1e-13)
        while len(kept) > floor:
            part = matrix[np.ix_(kept, kept)]
            worst = int(np.argmax(2 * part.sum(axis=0) - np.diag(part)))
            fewer = [row for place, row in enumerate(kept) if place != worst]
            if matrix[np.ix_(fewer, fewer)].mean() > most:
                break
            kept = fewer
    return kept


@pytest.mark.parametrize("growth", ["sqrt", "linear", 5])
def test_the_result_is_that_of_a_slow_reference(stream, growth):
    draws, _, log_density = (each[:300] for each in stream)
    whole = ss.thin(draws, log_density=log_density, proxy="gaussian", growth="none")
    x, s = whole.preconditioner.apply(whole.draws, whole.scores)
    ratios = whole.variables["ratio"].values
    assert ratios.mean() == pytest.approx(1.0)
    assert ratios.max() / ratios.min() <= np.exp(2.0)
    matrix = ratios[:, None] * ratios * whole.kernel.matrix(x, s, x, s)
    steps = np.arange(1.0, 301.0)
    floors = {"sqrt": np.sqrt(steps * np.log(steps)), "linear": steps / 2, 5: np.minimum(steps, 5)}[growth]
    kept = ss.thin(draws, log_density=log_density, proxy="gaussian", growth=growth)
    np.testing.assert_array_equal(kept.ids[:, 1], slow(matrix, np.maximum(np.ceil(floors), 1)))


def test_log_densities_lead_past_the_proxy_to_the_target(stream):
    draws, scores, log_density = stream
    sets = {
        "scores": ss.thin(draws, scores, size=60),
        "ratios": ss.thin(draws, log_density=log_density, proxy="gaussian", size=60),
        "proxy": ss.thin(draws, proxy="gaussian", size=60),
    }
    preconditioner = sets["scores"].preconditioner
    found = {name: ss.ksd(k.draws, scores[k.ids[:, 1]], preconditioner=preconditioner) for name, k in sets.items()}
    stride = ss.ksd(draws[::66], scores[::66], preconditioner=preconditioner)
    assert found["scores"] < found["ratios"] < 0.5 * found["proxy"] < found["proxy"] < stride
    mean, spread = sets["proxy"].draws.mean(axis=0), sets["proxy"].draws.std(axis=0)
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.1 * draws.std(axis=0).max())
    np.testing.assert_allclose(spread, draws.std(axis=0), rtol=0.1)


def test_without_ratios_it_is_thinning_towards_the_fitted_gaussian(stream):
    draws, _, log_density = stream
    kept = ss.thin(draws, proxy="gaussian", size=20)
    settled = draws[2000:]
    fitted = Gaussian(settled.mean(axis=0), np.cov(settled, rowvar=False))
    np.testing.assert_allclose(kept.scores, fitted.scores(kept.draws), rtol=1e-6)
    assert kept.settings["proxy"] == "gaussian"
    again = ss.thin(draws, log_density=log_density, proxy="gaussian", clip=0.0, size=20)
    np.testing.assert_array_equal(again.ids, kept.ids)
    assert len(kept.weighted().weights) == 20  # towards the proxy


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
    alone = ss.thin(chains, proxy="gaussian", size=30, on_bad="skip")
    assert alone.settings["skipped"] == 1
    np.testing.assert_array_equal(alone.draws, chains[alone.ids[:, 0], alone.ids[:, 1]])


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
    if spoilt == "score":
        with pytest.raises(InputError, match="Correct the proxy"):
            ss.thin(draws, proxy=proxy, size=20)
        alone = ss.thin(draws, proxy=proxy, size=20, on_bad="skip")
        assert alone.settings["skipped"] == out.sum() and (alone.draws[:, 0] <= 2.0).all()


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
    for refused in (loaded.weighted, loaded.ordered):
        with pytest.raises(InputError, match=r"requires scores.*Compute the scores"):
            refused()


def test_the_measure_tells_the_target_from_others(stream):
    draws, scores, log_density = stream
    right = ss.gradient_free_ksd(draws, log_density, proxy=Told(), preconditioner=ss.Preconditioner.identity())
    assert right == pytest.approx(ss.ksd(draws, scores), rel=1e-10)  # ratios are 1
    of_another = Gaussian([0.0, 0.0], [1.0, 1.0]).log_densities(draws)
    assert ss.gradient_free_ksd(draws, log_density) < 0.3 * ss.gradient_free_ksd(draws, of_another)


def test_mistakes_are_named(stream):
    draws, scores, log_density = stream
    thin = ss.thin
    with pytest.raises(InputError, match=r'have no scores.*proxy="gaussian"'):
        thin(draws)
    with pytest.raises(InputError, match="no effect because scores are given"):
        thin(draws, scores, proxy="gaussian")
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
    for more in ({"candidates": 3}, {"passes": 2}, {"start": "sample"}, {"preconditioner": "streaming"}):
        with pytest.raises(InputError, match="with log_density"):
            thin(draws, log_density=log_density, proxy="gaussian", size=10, **more)


def test_the_page(capsys):
    page = Path(__file__).parents[2] / "docs" / "integrations" / "without-scores.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried
    assert failed == 0
