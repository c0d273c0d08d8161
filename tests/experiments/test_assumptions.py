"""The constants of the bounds in the experiment on the assumptions of the theorems are those of its chain."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.paper import assumptions


@pytest.mark.parametrize("rho", assumptions.RATES)
def test_the_chain_is_stationary_with_the_stated_rate(rho):
    draws, scores = assumptions.autoregressive(rho, 200_000, seed=1)
    error = np.sqrt((1 + rho) / (1 - rho) / len(draws))
    assert np.all(np.abs(draws.mean(axis=0)) < 5 * error)
    assert np.all(np.abs((draws**2).mean(axis=0) - 1.0) < 10 * error)
    assert np.all(np.abs((draws[1:] * draws[:-1]).mean(axis=0) - rho) < 10 * error)
    assert np.array_equal(scores, -draws)


@pytest.mark.parametrize("power", [0.05, 0.3, 0.6, 0.9, 0.97])
def test_the_constant_of_ergodicity_is_large_enough(power):
    """``power`` is rho^k: after k moves from y the chain is normal with mean rho^k y and variance 1 - rho^2k."""
    variance = 1.0 - power**2
    for distance in (0.0, 0.5, 2.0, 8.0):
        shift = power * distance
        x, y = (np.linspace(low, high, 601) for low, high in ((-7.0, 7.0 + shift), (-7.0, 7.0)))
        first, second = np.meshgrid(x, y, indexing="ij")
        moved = np.exp(-((first - shift) ** 2 + second**2) / (2 * variance)) / (2 * np.pi * variance)
        target = np.exp(-(first**2 + second**2) / 2) / (2 * np.pi)
        weighted = np.abs(moved - target) * (1 + np.hypot(first, second))
        norm = weighted.sum() * (x[1] - x[0]) * (y[1] - y[0])
        assert norm <= assumptions.R * (1 + distance) * power


def test_the_bound_of_the_paper_has_the_constants_of_its_proof():
    n = np.array([100.0])
    f, S2, gamma = 50.0, 8.0 * np.log(100), 0.25
    b = np.exp(0.5) * 2.0
    i = np.arange(1.0, 101)
    spent = np.sum(np.log(i) / (i / 2) ** 2 * i**2) / 100**2
    independent = np.e * (100 * (5 * S2 + 4 * b / gamma) / f**2 + spent)
    np.testing.assert_allclose(assumptions.paper_bound("linear", 0.0, n), independent, rtol=1e-12)
    chains = [assumptions.paper_bound("linear", rho, n)[0] for rho in (0.5, 0.9, 0.99)]
    assert independent < chains[0] < chains[1] < chains[2]


def test_the_bounds_are_above_a_run():
    experiment = assumptions.Assumptions(assumptions_options())
    unit = next(unit for unit in experiment.units() if unit.name == "sqrt-0.9-n")
    results = unit.work(None, lambda *_: None)
    for n in np.unique(results["step"]):
        square = np.mean(results["ksd"][results["step"] == n] ** 2)
        assert square < assumptions.independent_bound("sqrt", np.array([float(n)]))[0]
        assert square < assumptions.paper_bound("sqrt", 0.9, np.array([float(n)]))[0]


def assumptions_options():
    """Options of a small run."""
    from experiments.paper import ExperimentOptions

    return ExperimentOptions("quick")
