"""R-hat and ESS of chains that are not stored are those of the chains."""

from __future__ import annotations

import json

import numpy as np
import pytest

from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import CheckpointError
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 1.7e308])
def test_draws_that_no_thinner_accepts_are_left_out(value):
    chain = autoregression(600, 2, 0.5, 0)
    bad = np.insert(chain, [100, 101], value, axis=0)
    assert watched([bad]) == watched([chain])


def of_chains(chains, parameters=1000):
    convergence = RunningConvergence(chains[0].shape[1], parameters)
    for number, chain in enumerate(chains):
        convergence.add(consecutive_ids(number, 0, len(chain)), chain)
    return convergence


def test_of_many_parameters_some_are_used_and_named_by_their_position():
    chain = autoregression(400, 101, 0.0, 0)
    chain[200:, [50, 60]] += np.array([2.0, 5.0])
    assert of_chains([chain], 101).summary()["rhat_of"] == "x60"
    assert of_chains([chain], 3).summary() == {
        name: {"rhat_of": "x50", "ess_of": "x50"}.get(name, value)
        for name, value in of_chains([chain[:, [0, 50, 100]]]).summary().items()
    }


def test_draws_of_too_many_chains_are_only_counted(monkeypatch):
    monkeypatch.setattr("steinstream.diagnostics.running_convergence._MAX_RECORDS", 4)
    chains = [autoregression(200, 2, 0.0, seed) + 9.0 * (seed == 3) for seed in range(4)]
    summary = of_chains(chains).summary()
    assert summary == {**of_chains(chains[:2]).summary(), "draws": [200] * 4}
    again = RunningConvergence(2)
    again.restore(of_chains(chains).state())
    assert again.summary() == summary


@pytest.mark.parametrize("as_json", [True, False])
def test_a_restored_state_continues_to_the_same_bits(as_json):
    chains = [autoregression(1500, 2, 0.5, seed) for seed in range(2)]
    first = of_chains([chain[:333] for chain in chains])
    first.add_divergences(2)
    state = first.state()
    if as_json:
        lists = {
            chain: {name: one.tolist() for name, one in arrays.items()} for chain, arrays in state["chains"].items()
        }
        state = json.loads(json.dumps({**state, "chains": lists}))
    again = RunningConvergence(2)
    again.restore(state)
    for number, chain in enumerate(chains):
        again.add(consecutive_ids(number, 333, len(chain) - 333), chain[333:])
    again.add_divergences(3)
    assert again.summary() == {**of_chains(chains).summary(), "divergences": 5}


def damaged(**changes):
    state = of_chains([autoregression(100, 2, 0.0, 0)]).state()
    state["chains"]["0"] |= changes
    return state


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        damaged(sums=np.zeros((1, 2))),
        damaged(first=np.zeros(3)),
        damaged(numbers=np.array([0, 0, 0, 0])),
        damaged(numbers=np.array([1, 99, 0, 99])),
        damaged(numbers=np.array([1, 5, 0, 7])),
        damaged(squares=["a"]),
        {**damaged(), "divergences": "many"},
    ],
)
def test_an_invalid_state_is_an_error(state):
    with pytest.raises(CheckpointError, match="convergence in the checkpoint is invalid"):
        RunningConvergence(2).restore(state)


def test_parts_that_were_read_separately_are_compared():
    chains = [autoregression(400, 2, 0.3, seed) + seed for seed in range(3)]
    parts = [of_chains([chain]) for chain in chains]
    joined = RunningConvergence(2)
    for number, chain in enumerate(chains):
        part = RunningConvergence(2)
        part.add(consecutive_ids(number, 0, 400), chain)
        part.add_divergences(number)
        joined.join(part)
    assert joined.summary() == {**of_chains(chains).summary(), "divergences": 3}
    joined.join(parts[0])  # another part of chain 0
    assert joined.summary()["draws"] == [800, 400, 400]
