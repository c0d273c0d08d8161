"""BlackJAX: the draws are those of a scan over its kernels, thinned without being stored."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError
from tests.integrations.posterior import DIM, assert_same, constrained, log_density, run_page, score

jax = pytest.importorskip("jax")
blackjax = pytest.importorskip("blackjax")
jnp = jax.numpy

SIZE, DRAWS = 30, 700
KEY = 5


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def logdensity(position):
    return log_density(jnp.concatenate([position["a"][None], position["b"]]), jnp)


def transform(position):
    return constrained(jnp.concatenate([position["a"][None], position["b"]]), jnp)


def start():
    return {"a": jnp.array(1.0), "b": jnp.zeros(DIM - 1)}


def hmc():
    return blackjax.hmc(logdensity, step_size=0.2, inverse_mass_matrix=jnp.ones(DIM), num_integration_steps=4)


def as_rows(tree, *axes):
    return np.concatenate([np.asarray(tree["a"])[..., None], np.asarray(tree["b"])], axis=-1)


def test_the_result_is_that_of_the_stored_chain():
    algorithm, key = hmc(), jax.random.key(KEY)
    state = algorithm.init(start())
    shares = []
    kept = ss.integrations.blackjax.sample(
        algorithm, state, DRAWS, key, size=SIZE, chunk=300, transform=transform, progress=shares.append
    )

    def one(state, key):
        state, _ = algorithm.step(key, state)
        return state, (state.position, state.logdensity_grad)

    _, (positions, gradients) = jax.lax.scan(one, state, jax.random.split(key, DRAWS))
    draws, scores = as_rows(positions), as_rows(gradients)
    thinner = ss.Thinner(DIM, size=SIZE, preconditioner=ss.Streaming())
    thinner.extend(draws, scores)
    assert_same(kept, thinner.kept)
    assert shares[-1] == 1.0
    assert kept.names == ("a", "b[0]", "b[1]", "b[2]")
    np.testing.assert_allclose(kept.scores, [score(x) for x in kept.draws], rtol=1e-8, atol=1e-8)
    for name in ("mu", "sigma", "w"):
        stored = np.array([constrained(x)[name] for x in draws[kept.ids[:, 1]]])
        np.testing.assert_allclose(kept.variables[name].values, stored, rtol=1e-12)


def test_a_second_run_continues_the_indices_of_the_thinner():
    algorithm, thinner = hmc(), ss.Thinner(DIM, size=SIZE)
    state = algorithm.init(start())
    stacked = jax.vmap(algorithm.init)(jax.tree.map(lambda x: jnp.stack([x, x + 0.1]), start()))
    for first, chains in ((state, 1), (state, 1), (stacked, 2)):
        key = jax.random.key(thinner.seen)
        kept = ss.integrations.blackjax.sample(algorithm, first, 150, key, num_chains=chains, thinner=thinner, chunk=64)
    assert (thinner.next_index(0), thinner.next_index(1)) == (450, 150)
    assert len(np.unique(kept.ids, axis=0)) == SIZE
    assert kept.ids[:, 1].max() >= 300 > 150 > kept.ids[kept.ids[:, 0] == 1, 1].max(initial=0)


def test_chains_that_run_together_are_those_of_a_vmapped_scan():
    algorithm, key = hmc(), jax.random.key(KEY)
    state = jax.vmap(algorithm.init)(jax.tree.map(lambda x: jnp.stack([x, x + 0.1, x - 0.1]), start()))
    kept = ss.integrations.blackjax.sample(algorithm, state, 200, key, num_chains=3, size=SIZE, chunk=64)

    def one(state, key):
        state, _ = jax.vmap(algorithm.step)(jax.random.split(key, 3), state)
        return state, (state.position, state.logdensity_grad)

    _, (positions, gradients) = jax.lax.scan(one, state, jax.random.split(key, 200))
    chain, draw = kept.ids.T
    assert set(chain) == {0, 1, 2}
    np.testing.assert_array_equal(kept.draws, as_rows(positions)[draw, chain])
    np.testing.assert_array_equal(kept.scores, as_rows(gradients)[draw, chain])
    np.testing.assert_array_equal(kept.variables["b"].values, kept.draws[:, 1:])


def random_walk():
    algorithm = blackjax.normal_random_walk(logdensity, jnp.eye(DIM) * 0.3)
    return algorithm, algorithm.init(start())


def test_the_score_of_a_random_walk_is_computed_from_the_log_density():
    algorithm, state = random_walk()
    run = ss.integrations.blackjax.sample
    kept = run(algorithm, state, 500, jax.random.key(KEY), logdensity_fn=logdensity, size=SIZE)
    np.testing.assert_allclose(kept.scores, [score(x) for x in kept.draws], rtol=1e-8, atol=1e-8)
    with pytest.raises(InputError, match=r"RWState, has no logdensity_grad.*Pass logdensity_fn"):
        run(algorithm, state, 500, jax.random.key(KEY))


def test_stochastic_gradients_have_a_second_score():
    gradient = jax.grad(logdensity)

    def minibatch(key, position):
        return jax.tree.map(lambda g: g + 0.3 * jax.random.normal(key, g.shape), gradient(position))

    sgld = blackjax.sgld(lambda position, key: minibatch(key, position))

    def step(key, position):
        return sgld.step(key, position, jax.random.fold_in(key, 7), 1e-2)

    run = ss.integrations.blackjax.sample
    kept = run(step, start(), DRAWS, jax.random.key(KEY), minibatch_score=minibatch, size=SIZE)
    assert kept.settings["scores"] == "minibatch"
    noise = kept.scores - [score(x) for x in kept.draws]
    other = kept.second_scores - [score(x) for x in kept.draws]
    assert 0.2 < other.std() < 0.4
    assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.4
    assert kept.ksd_debiased > 0


def test_negated_and_nan_gradients_are_errors():
    algorithm, state = random_walk()
    run = ss.integrations.blackjax.sample
    with pytest.raises(NegatedScoresError, match=r"look negated.*-scores"):
        run(algorithm, state, 500, jax.random.key(KEY), logdensity_fn=lambda x: -logdensity(x))
    with pytest.raises(InputError, match=r"is nan in coordinate 0. Correct"):
        run(algorithm, state, 500, jax.random.key(KEY), logdensity_fn=lambda x: jnp.nan * x["a"])
    with pytest.raises(InputError, match=r"All 500 draws"):
        run(algorithm, state, 500, jax.random.key(KEY), logdensity_fn=lambda x: jnp.nan * x["a"], on_bad="skip")


def test_the_documentation_page(capsys):
    run_page("blackjax.md")
