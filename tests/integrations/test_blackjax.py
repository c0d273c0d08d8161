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
    for _ in range(2):
        ss.integrations.blackjax.sample(algorithm, state, 150, jax.random.key(thinner.seen), thinner=thinner, chunk=64)
    key = jax.random.key(thinner.seen)
    with pytest.warns(UserWarning, match="one after another.*one thinner per chain") as caught:
        kept = ss.integrations.blackjax.sample(algorithm, stacked, 150, key, thinner=thinner, chunk=64)
    assert [warning.filename for warning in caught] == [__file__]
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


def test_kernels_without_a_gradient_are_thinned_without_scores(caplog):
    walk, state = random_walk()
    sgld = blackjax.sgld(lambda position, key: jax.grad(logdensity)(position))
    runs = [(walk, state), (lambda key, position: sgld.step(key, position, key, 1e-2), start())]
    for algorithm, first in runs:
        caplog.clear()
        with caplog.at_level("INFO", "steinstream"):
            kept = ss.integrations.blackjax.sample(algorithm, first, 500, jax.random.key(KEY), size=SIZE, chunk=200)
        assert kept.scores is None and len(kept) == SIZE and np.isfinite(kept.mmd)
        lines = [record.getMessage() for record in caplog.records if "have no scores" in record.getMessage()]
        assert len(lines) == 1 and "logdensity_fn" in lines[0]


def stacked_states(algorithm, chains):
    positions = jax.tree.map(lambda x: jnp.stack([x + 0.1 * i for i in range(chains)]), start())
    return jax.vmap(algorithm.init)(positions)


@pytest.mark.parametrize("chains", [1, 3])
def test_the_number_of_chains_is_that_of_the_stacked_states(chains):
    algorithm = hmc()
    state, key = stacked_states(algorithm, chains), jax.random.key(KEY)
    kept = ss.integrations.blackjax.sample(algorithm, state, 200, key, size=SIZE)
    named = ss.integrations.blackjax.sample(algorithm, state, 200, key, num_chains=chains, size=SIZE)
    assert_same(kept, named)
    assert kept.settings["source"]["draws"] == [200] * chains


def test_a_position_or_a_list_of_states_is_an_error():
    algorithm, run = hmc(), ss.integrations.blackjax.sample
    with pytest.raises(InputError, match=r"cannot start from a dict.*algorithm\.init\(position\)"):
        run(algorithm, start(), 10, jax.random.key(KEY))
    with pytest.raises(InputError, match=r"a list of 2 states.*jax\.vmap\(algorithm\.init\)"):
        run(algorithm, [algorithm.init(start())] * 2, 10, jax.random.key(KEY))


def test_a_number_of_chains_that_differs_from_the_states_is_an_error():
    algorithm, run = hmc(), ss.integrations.blackjax.sample
    with pytest.raises(InputError, match=r"num_chains is 2, but the state is that of 3 chains.*jax.vmap"):
        run(algorithm, stacked_states(algorithm, 3), 10, jax.random.key(KEY), num_chains=2)
    with pytest.raises(InputError, match="num_chains is 2, but the state is that of one chain"):
        run(algorithm, algorithm.init(start()), 10, jax.random.key(KEY), num_chains=2)
    with pytest.raises(InputError, match="num_chains is 2, but the state is that of one chain"):
        run(lambda key, position: position, start(), 10, jax.random.key(KEY), num_chains=2)


def test_convergence_and_divergences_of_the_chains_are_recorded():
    good, bad = hmc(), blackjax.hmc(logdensity, 5.0, jnp.ones(DIM), 4, divergence_threshold=1.0)
    for algorithm, diverges in ((good, False), (bad, True)):
        state = stacked_states(algorithm, 2)
        source = ss.integrations.blackjax.sample(algorithm, state, 300, jax.random.key(KEY)).settings["source"]
        assert source["draws"] == [300, 300] and source["tool"] == "blackjax"
        assert (source["divergences"] > 100) == diverges
        assert (source["rhat"] < 1.2) == (not diverges)


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
