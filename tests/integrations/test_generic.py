"""Thinning any iterator, with scores that are given or computed by automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError
from steinstream.integrations.generic import batched_score, thin
from tests.integrations.posterior import DIM, assert_same, constrained, log_density, run_page, score

SIZE = 20


@pytest.fixture(scope="module")
def chain():
    """A random walk."""
    rng, x = np.random.default_rng(0), np.array([1.0, 0.5, 0.0, 0.0])
    draws = []
    for _ in range(600):
        proposal = x + 0.4 * rng.normal(size=DIM)
        if np.log(rng.random()) < log_density(proposal) - log_density(x):
            x = proposal
        draws.append(x)
    return np.array(draws)


@pytest.fixture(scope="module")
def stored(chain):
    thinner = ss.Thinner(DIM, size=SIZE, preconditioner=ss.Streaming())
    thinner.extend(chain, [score(x) for x in chain])
    return thinner.kept


def mixed(chain):
    """Single draws, blocks (one of them empty, one long), single draws."""
    yield from chain[:50]
    yield chain[50:50]
    yield chain[50:500]
    yield chain[500:550]
    yield from chain[550:]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_single_draws_and_blocks_give_the_result_of_the_stored_chain(chain, stored, block):
    assert_same(thin(((x, score(x)) for x in chain), block=block, size=SIZE), stored)
    with_scores = ((x, np.apply_along_axis(score, -1, x) if len(x) else x) for x in mixed(chain))
    assert_same(thin(with_scores, block=block, size=SIZE), stored)
    assert_same(thin(mixed(chain), score=score, block=block, size=SIZE), stored)


def test_ids_lead_to_the_constrained_draws(chain, stored):
    kept = thin(iter(chain), score=score, transform=constrained, size=SIZE)
    for name in ("mu", "sigma", "w"):
        expected = [constrained(chain[draw])[name] for _, draw in stored.ids]
        np.testing.assert_array_equal(kept.variables[name].values, expected)
    assert kept.variables["w"].dims == ("w_dim_0",)


def test_a_second_chain_of_a_thinner_is_reported(chain):
    thinner = ss.Thinner(DIM, size=SIZE, preconditioner=ss.Streaming())
    first, second = np.split(chain, 2)
    thin(first[:200], score=score, thinner=thinner)
    thin(first[200:], score=score, thinner=thinner)
    with pytest.warns(UserWarning, match="one after another.*one thinner per chain.*ss.merge") as caught:
        kept = thin(second, score=score, chain=1, thinner=thinner)
    assert [warning.filename for warning in caught] == [__file__]
    assert kept.settings["seen"] == 600
    np.testing.assert_array_equal(kept.draws, chain.reshape(2, 300, DIM)[kept.ids[:, 0], kept.ids[:, 1]])


def test_merged_thinners_keep_draws_of_every_chain():
    draws = np.random.default_rng(0).normal(size=(4, 2000, 3))
    sets = [thin(draws[chain], score=lambda x: -x, chain=chain, size=200) for chain in range(4)]
    merged = ss.merge(sets, size=200)
    assert np.bincount(merged.ids[:, 0], minlength=4).min() >= 35
    np.testing.assert_array_equal(merged.draws, draws[merged.ids[:, 0], merged.ids[:, 1]])


def test_scores_can_be_computed_by_jax(chain, stored):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        kept = thin(chain, score="jax", log_density=lambda x: log_density(x, jax.numpy), size=SIZE, block=90)
    np.testing.assert_array_equal(kept.ids, stored.ids)
    np.testing.assert_allclose(kept.scores, stored.scores, rtol=1e-8, atol=1e-8)


def test_scores_can_be_computed_by_torch(chain, stored):
    torch = pytest.importorskip("torch")
    from tests.integrations.posterior import ALPHA, Y

    y, alpha = torch.tensor(Y), torch.tensor(ALPHA)

    def target(x):
        w = torch.softmax(torch.cat([x[2:], torch.zeros(1, dtype=x.dtype)]), 0)
        residuals = (y - (x[0] + w[0] - w[2])) / torch.exp(x[1])
        prior = -0.5 * (x[0] / 5.0) ** 2 - 0.5 * x[1] ** 2 + torch.sum(alpha * torch.log(w))
        return prior - len(y) * x[1] - 0.5 * torch.sum(residuals**2)

    kept = thin(chain, score="torch", log_density=target, size=SIZE)
    np.testing.assert_array_equal(kept.ids, stored.ids)
    np.testing.assert_allclose(kept.scores, stored.scores, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_scores_can_be_computed_by_finite_differences(chain, stored, block):
    calls = []

    def counted(x):
        calls.append(x)
        return log_density(x)

    kept = thin(chain, score="finite", log_density=counted, block=block, size=SIZE)
    np.testing.assert_array_equal(kept.ids, stored.ids)
    np.testing.assert_allclose(kept.scores, stored.scores, rtol=1e-5, atol=1e-4)
    assert len(calls) == 2 * DIM * len(np.unique(chain, axis=0))  # a random walk returns to no earlier state


def test_steps_of_finite_differences_follow_the_scales_of_the_draws():
    calls, widths = [], np.array([1e-3, 1e4])
    draws = np.random.default_rng(0).normal(size=(500, 2)) * widths

    def rough(x):  # accurate to 1e-6, as a solver
        calls.append(x)
        density = -0.5 * np.sum((x / widths) ** 2)
        return density * (1 + 1e-6 * np.sin(1e6 * x[0]))

    kept = thin(draws, score="finite", log_density=rough, accuracy=1e-6, size=SIZE)
    np.testing.assert_allclose(kept.scores * widths, -kept.draws / widths, atol=1e-2)
    steps = np.abs(calls[0] - calls[1])[0] / 2, np.abs(calls[2] - calls[3])[1] / 2
    np.testing.assert_allclose(steps, 1e-2 * draws.std(axis=0), rtol=1e-6)


def test_finite_differences_need_a_log_density_and_other_scores_no_accuracy(chain):
    with pytest.raises(InputError, match="'finite' needs a log density"):
        thin(chain, score="finite")
    with pytest.raises(InputError, match="accuracy is for finite differences"):
        thin(chain, score=score, accuracy=1e-6)
    with pytest.raises(InputError, match="accuracy must lie between 0 and 1"):
        thin(chain, score="finite", log_density=log_density, accuracy=2.0)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_draws_alone_are_thinned_without_scores(chain, block, caplog):
    thinner = ss.Thinner(DIM, size=SIZE)
    thinner.extend(chain)
    with caplog.at_level("INFO", "steinstream"):
        kept = thin(mixed(chain), block=block, size=SIZE)
    np.testing.assert_array_equal(kept.ids, thinner.kept.ids)
    assert kept.scores is None and kept.settings["source"]["draws"] == [600]
    assert sum("have no scores" in record.getMessage() for record in caplog.records) == 1


def test_draws_of_two_dimensions_that_are_lists_are_not_pairs():
    rows = np.random.default_rng(0).normal(size=(200, 2))
    kept = thin((list(row) for row in rows), size=10)
    assert kept.draws.shape == (10, 2) and kept.scores is None
    pairs = thin(((list(row), list(-row)) for row in rows), size=10)
    np.testing.assert_array_equal(pairs.scores, -pairs.draws)


def test_scores_of_stored_draws_have_their_shape(chain):
    calls = []

    def counted(x):
        calls.append(x)
        return score(x)

    stored = ss.integrations.generic.scores(counted, chain.reshape(2, 300, DIM))
    np.testing.assert_array_equal(stored.reshape(600, DIM), [score(x) for x in chain])
    assert len(calls) == len(np.unique(chain, axis=0)) < 600  # a random walk repeats its states
    with pytest.raises(InputError, match=r"must have shape \(draws, dimensions\)"):
        ss.integrations.generic.scores(score, chain[0])
    with pytest.raises(InputError, match="must return the gradient"):
        ss.integrations.generic.scores(lambda x: x[:2], chain)


def test_batched_score_is_the_score_of_each_draw(chain):
    np.testing.assert_array_equal(batched_score(score)(chain[:3]), [score(x) for x in chain[:3]])


def test_negated_and_nan_scores_are_errors(chain):
    with pytest.raises(NegatedScoresError, match=r"look negated.*-scores"):
        thin(chain, score=lambda x: -score(x))
    with pytest.raises(InputError, match=r"is nan in coordinate 0. Correct"):
        thin(chain, score=lambda x: np.nan * x)
    with pytest.raises(InputError, match="All 600 draws"):
        thin(chain, score=lambda x: np.nan * x, on_bad="skip")


def test_wrong_arguments_are_errors(chain):
    with pytest.raises(InputError, match="yielded no draws"):
        thin(iter([]))
    with pytest.raises(InputError, match="Some draws were given with scores and others without"):
        thin([chain[0], (chain[1], chain[1])])
    with pytest.raises(InputError, match=r"shape \(4,\) and its score has shape \(3,\)"):
        thin([(chain[0], chain[0][:3])])
    with pytest.raises(InputError, match="different numbers of dimensions"):
        thin([chain[0], chain[0][:3]], score=lambda x: -x)
    with pytest.raises(InputError, match="Unknown score 'jaxx'"):
        thin(chain, score="jaxx")
    with pytest.raises(InputError, match="needs a log density"):
        thin(chain, score="jax")
    with pytest.raises(InputError, match='score="jax"'):
        thin(chain, log_density=log_density)
    for settings in ({"size": 3}, {"config": ss.ThinConfig(size=3)}):
        with pytest.raises(InputError, match=f"Both a thinner and settings were given: {next(iter(settings))}"):
            thin(chain, score=score, thinner=ss.Thinner(DIM), **settings)
    with pytest.raises(InputError, match="for 2 dimensions, the draws have 4"):
        thin(chain, score=score, thinner=ss.Thinner(2))


def test_settings_can_be_given_as_a_config(chain, stored):
    config = ss.ThinConfig(size=SIZE)
    assert_same(thin(chain, score=score, config=config), stored)
    assert len(thin(chain, score=score, config=config, size=10)) == 10
    fixed = thin(chain, score=score, config=config.replace(preconditioner="identity"))
    assert fixed.preconditioner.is_identity and not stored.preconditioner.is_identity
    with pytest.raises(InputError, match="Unknown setting 'sise'"):
        thin(chain, score=score, sise=10)


def test_the_documentation_page(capsys):
    pytest.importorskip("jax")
    run_page("generic.md")
