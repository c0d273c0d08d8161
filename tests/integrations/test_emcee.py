"""emcee: the backend stores the kept draws only, and implements everything else that a sampler uses."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError
from tests.integrations.posterior import DIM, assert_same, constrained, log_density, run_page, score

emcee = pytest.importorskip("emcee")

WALKERS, SIZE = 10, 30


def both(x, factor=1.0):
    return log_density(x), factor * score(x)


def sampler(backend, log_prob=both, blobs=True, **options):
    kind = {"blobs_dtype": [("score", float, DIM)]} if blobs else {}
    made = emcee.EnsembleSampler(WALKERS, DIM, log_prob, backend=backend, **kind, **options)
    made.random_state = np.random.RandomState(3).get_state()
    return made


def start():
    return np.array([1.0, 0.5, 0.0, 0.0]) + 0.1 * np.random.default_rng(1).normal(size=(WALKERS, DIM))


def thinned(steps=120, log_prob=both, **settings):
    backend = ss.integrations.emcee.Backend(size=SIZE, **settings)
    sampler(backend, log_prob).run_mcmc(start(), steps)
    return backend


@pytest.fixture(scope="module")
def stored():
    made = sampler(None)
    made.run_mcmc(start(), 120)
    return made


def test_the_result_is_that_of_the_stored_chain(stored):
    kept = thinned(transform=constrained, names=("mu", "log sigma", "z1", "z2")).kept
    chain, scores = stored.get_chain(), stored.get_blobs()["score"]
    thinner = ss.Thinner(DIM, size=SIZE, preconditioner=ss.Streaming())
    for step in range(120):
        thinner.extend(chain[step], scores[step], ids=[(walker, step) for walker in range(WALKERS)])
    assert_same(kept, thinner.kept)
    assert kept.names == ("mu", "log sigma", "z1", "z2")
    walker, step = kept.ids.T
    for name in ("mu", "sigma", "w"):
        expected = [constrained(x)[name] for x in chain[step, walker]]
        np.testing.assert_array_equal(kept.variables[name].values, expected)


def test_scores_are_the_gradient_of_the_log_density():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        exact = jax.vmap(jax.grad(lambda x: log_density(x, jax.numpy)))(thinned().kept.draws)
        np.testing.assert_allclose(thinned().kept.scores, exact, rtol=1e-8, atol=1e-8)


def test_scores_can_be_computed_by_finite_differences(stored):
    made = ss.integrations.emcee.Backend(size=SIZE, score="finite", log_density=log_density)
    sampler(made, log_density, blobs=False).run_mcmc(start(), 120)
    with_blobs = thinned().kept
    np.testing.assert_array_equal(made.kept.ids, with_blobs.ids)
    np.testing.assert_allclose(made.kept.scores, with_blobs.scores, rtol=1e-5, atol=1e-4)


def test_a_new_sampler_continues_from_the_backend(stored):
    backend = thinned(70)
    first = emcee.EnsembleSampler(WALKERS, DIM, both, backend=backend, blobs_dtype=[("score", float, DIM)])
    assert first.iteration == 70
    first.run_mcmc(None, 50)  # a new sampler, which knows only the backend
    assert_same(backend.kept, thinned(120).kept)
    last, expected = first.get_last_sample(), stored.get_last_sample()
    np.testing.assert_array_equal(last.coords, expected.coords)
    np.testing.assert_array_equal(last.log_prob, expected.log_prob)
    np.testing.assert_array_equal(last.blobs["score"], expected.blobs["score"])
    np.testing.assert_array_equal(first.acceptance_fraction, stored.acceptance_fraction)


def test_reset_deletes_the_kept_draws():
    backend = thinned()
    made = sampler(backend)
    made.reset()
    assert backend.iteration == 0
    with pytest.raises(InputError, match="No step"):
        _ = backend.kept
    with pytest.raises(AttributeError, match="run the sampler"):
        backend.get_last_sample()


def test_the_first_steps_can_be_discarded():
    kept = thinned(discard=100).kept
    assert kept.settings["seen"] == 20 * WALKERS
    assert kept.ids[:, 1].min() >= 100


def test_scores_can_come_from_a_function():
    backend = ss.integrations.emcee.Backend(score=score, size=SIZE)
    sampler(backend, log_density, blobs=False).run_mcmc(start(), 120)
    assert_same(backend.kept, thinned().kept)


def test_a_single_blob_without_a_name_can_be_the_score():
    backend = ss.integrations.emcee.Backend(size=SIZE, score="blob")
    sampler(backend, blobs=False, moves=None).run_mcmc(start(), 120)
    assert_same(backend.kept, thinned().kept)


@pytest.mark.parametrize(
    "log_prob", [log_density, lambda x: (log_density(x), 1.0), lambda x: (log_density(x), *np.exp(x))]
)
def test_without_a_score_the_walkers_are_thinned_without_scores(log_prob, stored, caplog):
    backend = ss.integrations.emcee.Backend(size=SIZE)
    with caplog.at_level("INFO", "steinstream"):
        sampler(backend, log_prob, blobs=False).run_mcmc(start(), 120)
    kept = backend.kept
    thinner = ss.Thinner(DIM, size=SIZE)
    for step, positions in enumerate(stored.get_chain()):
        thinner.extend(positions, ids=[(walker, step) for walker in range(WALKERS)])
    assert kept.scores is None
    np.testing.assert_array_equal(kept.ids, thinner.kept.ids)
    lines = [record.getMessage() for record in caplog.records if "have no scores" in record.getMessage()]
    assert len(lines) == 1 and 'blobs_dtype=[("score", float, 4)]' in lines[0]


def test_convergence_of_the_walkers_is_recorded():
    source = thinned().kept.settings["source"]
    assert source["tool"] == "emcee" and source["draws"] == [120] * WALKERS
    assert source["rhat"] > 1.0 and 1 <= source["ess"] <= 1200 and "divergences" not in source


def test_methods_that_need_the_whole_chain_are_errors():
    backend = thinned()
    made = sampler(backend)
    with pytest.raises(InputError, match=r"chain is not stored.*backend.kept"):
        made.get_chain()
    with pytest.raises(InputError, match=r"get_log_prob\(\) is not available"):
        made.get_log_prob(discard=3)
    with pytest.raises(InputError, match="not stored"):
        made.get_autocorr_time()


def test_missing_negated_and_nan_scores_are_errors():
    with pytest.raises(InputError, match=r"'gradient' is not among the blobs \(score\).*\"gradient\", float, 4"):
        thinned(field="gradient")
    with pytest.raises(InputError, match="not one score of 4 entries per walker"):
        backend = ss.integrations.emcee.Backend(score="blob")
        sampler(backend, lambda x: (log_density(x), 1.0), blobs=False).run_mcmc(start(), 5)
    with pytest.raises(NegatedScoresError, match=r"look negated.*-scores"):
        thinned(log_prob=lambda x: both(x, -1.0))
    with pytest.raises(InputError, match=r"is nan in coordinate 0. Correct"):
        thinned(log_prob=lambda x: both(x, np.nan))
    with pytest.raises(InputError, match="All 1200 draws"):
        _ = thinned(log_prob=lambda x: both(x, np.nan), on_bad="skip").kept
    with pytest.raises(InputError, match="size must be"):
        ss.integrations.emcee.Backend(size=0)


def test_settings_can_be_given_as_a_config():
    backend = ss.integrations.emcee.Backend(config=ss.ThinConfig(size=SIZE))
    sampler(backend).run_mcmc(start(), 120)
    assert_same(backend.kept, thinned().kept)


def test_the_documentation_page(capsys):
    run_page("emcee.md")
