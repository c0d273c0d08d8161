"""R-hat and ESS of chains that are not stored are those of the chains."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.validation import consecutive_ids
from tests.chains import autoregression


def watched(chains, diverging=(), rows=1):
    convergence = RunningConvergence(chains[0].shape[1])
    for number, chain in enumerate(chains):
        for index in range(0, len(chain), rows):
            draws = chain[index : index + rows]
            ids = consecutive_ids(number, index, len(draws))
            convergence.add(ids, draws, [tuple(one) in diverging for one in ids.tolist()])
    return convergence.summary([f"p{j}" for j in range(chains[0].shape[1])])


def split_r_hat(chains):
    """Return split R-hat by its definition."""
    halves = [half for chain in chains for half in np.split(chain, 2)]
    length = len(halves[0])
    within = np.mean([half.var(axis=0, ddof=1) for half in halves], axis=0)
    between = np.var([half.mean(axis=0) for half in halves], axis=0, ddof=1)
    return np.sqrt((length - 1) / length + between / within)


def test_r_hat_is_that_of_the_halves():
    chains = [autoregression(1024, 3, 0.5, seed) + 0.2 * seed * np.array([0, 1, 0]) for seed in range(4)]
    summary = watched(chains)
    assert summary["rhat"] == pytest.approx(split_r_hat(chains).max(), rel=1e-9) and summary["rhat_of"] == "p1"
    assert summary["draws"] == [1024] * 4 and summary["divergences"] == 0


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.98])
def test_ess_is_that_of_the_chains_within_a_factor(rho):
    chains = [autoregression(4000, 1, rho, seed) for seed in range(4)]
    expected = 16_000 * (1 - rho) / (1 + rho)
    assert 0.5 * expected < watched(chains)["ess"] < 1.6 * expected


def test_chains_of_different_lengths_and_divergences_are_counted():
    chains = [autoregression(length, 2, 0.5, length) for length in (300, 500)]
    summary = watched(chains, diverging={(0, 3), (1, 200)})
    assert summary["draws"] == [300, 500] and summary["divergences"] == 2
    assert 0.98 < summary["rhat"] < 1.1 and 50 < summary["ess"] <= 800


def test_a_constant_parameter_has_r_hat_one_and_is_not_the_slowest():
    chains = [np.column_stack([np.ones(200), autoregression(200, 1, 0.0, seed)]) for seed in range(2)]
    summary = watched(chains)
    assert summary["ess_of"] == "p1" and summary["rhat"] < 1.1


def test_a_few_draws_have_no_statistics():
    assert watched([np.ones((3, 2))]) == {"draws": [3], "divergences": 0}


def test_the_result_does_not_depend_on_the_blocks_or_on_the_order_of_the_chains():
    chains = [autoregression(1500, 2, 0.5, seed) for seed in range(3)]
    turns = RunningConvergence(2)  # one draw of each chain in turn
    for index in range(1500):
        turns.add(np.array([(chain, index) for chain in range(3)]), np.array([chain[index] for chain in chains]))
    one_by_one, blocks = watched(chains), watched(chains, rows=700)
    assert one_by_one == blocks
    assert turns.summary(["p0", "p1"]) == {name: value for name, value in blocks.items() if name != "divergences"}


def test_draws_that_are_not_finite_are_left_out():
    chain = autoregression(600, 2, 0.5, 0)
    bad = np.insert(chain, 100, np.nan, axis=0)
    assert watched([bad]) == watched([chain])
