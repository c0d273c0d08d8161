"""Scores of stored draws by JAX and PyTorch, in the layout of `ss.thin`."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.integrations._stored_draws import for_distinct_states
from steinstream.integrations.generic import ScoredDraws
from tests.integrations.posterior import DIM, log_density, score

DRAWS = np.array([1.0, 0.5, 0.0, 0.0]) + 0.3 * np.random.default_rng(0).normal(size=(3, 50, DIM))
SCORES = np.apply_along_axis(score, -1, DRAWS)


@pytest.fixture
def jax():
    module = pytest.importorskip("jax")
    with module.enable_x64(True):
        yield module


def test_states_are_evaluated_in_batches_of_one_shape_with_progress():
    shapes, fractions = [], []

    def scores(states):
        shapes.append(states.shape)
        return -states

    draws = np.repeat(DRAWS[0, :10], 3, axis=0)
    found = for_distinct_states(scores, draws, batch=4, progress=fractions.append)
    np.testing.assert_array_equal(found, -draws)
    assert shapes == [(4, DIM)] * 3 and fractions == [0.4, 0.8, 1.0]
    assert for_distinct_states(scores, draws).shape == draws.shape and shapes[3:] == [(10, DIM)]


@pytest.mark.parametrize("tool", ["generic", "jax", "torch"])
def test_each_function_reports_its_progress(tool):
    pytest.importorskip("numpy" if tool == "generic" else tool)
    batch, fractions = {} if tool == "generic" else {"batch": 20}, []
    function = score if tool == "generic" else lambda x: -0.5 * (x**2).sum()
    getattr(ss.integrations, tool).scores(function, DRAWS[0], progress=fractions.append, **batch)
    assert fractions == sorted(fractions) and fractions[-1] == 1.0 and len(fractions) == (3 if batch else 50)


@pytest.mark.parametrize("batch", [7, 1024])
@pytest.mark.parametrize("draws", [DRAWS, DRAWS[0]])
def test_scores_by_jax_have_the_shape_of_the_draws(jax, batch, draws):
    scores = ss.integrations.jax.scores(lambda x: log_density(x, jax.numpy), draws, batch=batch)
    expected = SCORES if draws.ndim == 3 else SCORES[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    assert len(ss.thin(draws, scores, size=20)) == 20


def test_scores_of_positions_by_jax_have_names_and_variables(jax):
    def of_position(position):
        return log_density(jax.numpy.concatenate([position["a"][None], position["b"]]), jax.numpy)

    positions = {"a": DRAWS[..., 0], "b": DRAWS[..., 1:]}
    scored = ss.integrations.jax.scores(of_position, positions, batch_dims=2)
    np.testing.assert_array_equal(scored.draws, DRAWS)
    np.testing.assert_allclose(scored.scores, SCORES, rtol=1e-9, atol=1e-9)
    kept = scored.thin(size=20)
    chain, draw = kept.ids.T
    assert kept.names == ("a", "b[0]", "b[1]", "b[2]") and len(kept) == 20
    np.testing.assert_array_equal(kept.variables["b"].values, DRAWS[chain, draw, 1:])
    one = ss.integrations.jax.scores(of_position, {name: part[0] for name, part in positions.items()})
    np.testing.assert_array_equal(one.draws, DRAWS[0])
    assert one.thin(size=20).variables["a"].values.shape == (20,)
    with pytest.raises(InputError, match="same leading dimensions"):
        ss.integrations.jax.scores(of_position, {"a": np.zeros(3), "b": np.zeros((4, 3))})


def test_scores_by_torch_have_the_shape_of_the_draws():
    torch = pytest.importorskip("torch")

    def target(x):
        return -0.5 * torch.sum(x**2) - torch.sum(x**4)

    for draws in (DRAWS, DRAWS[0], torch.tensor(DRAWS)):
        scores = ss.integrations.torch.scores(target, draws, batch=32)
        expected = -np.asarray(draws) - 4 * np.asarray(draws) ** 3
        np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_convergence_of_the_stored_chains_is_recorded():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 400, 2))
    x[1, :, 1] += 3.0
    diverging = np.zeros((2, 400), dtype=bool)
    diverging[0, :3] = True
    kept = ScoredDraws(x, -x, ("a", "b"), {}, "tool", diverging).thin(size=20, validate_scores=False)
    source = kept.settings["source"]
    assert source["tool"] == "tool" and source["draws"] == [400, 400] and source["divergences"] == 3
    assert source["rhat"] > 1.5 and source["rhat_of"] == "b"
    one = ScoredDraws(x[0], -x[0], ("a", "b")).thin(size=20).settings["source"]
    assert one["draws"] == [400] and one["rhat"] < 1.1 and "divergences" not in one
