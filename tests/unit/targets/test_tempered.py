"""A tempered target multiplies log density and score of its target by the power."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.targets import Functions, Gaussian, Goodwin, Mixture, Tempered

NORMAL = Gaussian([1.0, 2.0, 3.0], [[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]])
TARGETS = {
    "mixture": (Tempered(Mixture([[0.0] * 3, [2.0] * 3], [0.5, 1.0], [1, 3]), 0.125), 3, 2.0),
    "in Python": (Tempered(Functions(lambda x: -0.25 * float(np.sum(x**4)), lambda x: -(x**3)), 0.5), 3, 2.0),
    "Goodwin": (Tempered(Goodwin.simulated(seed=0), 0.125), 4, 0.1),
}


@pytest.mark.parametrize("name", TARGETS)
def test_score_is_the_gradient_of_the_log_density(name: str) -> None:
    target, d, scale = TARGETS[name]
    for x in np.random.default_rng(1).normal(size=(5, d)) * scale:
        differences = [(target.log_density(x + h) - target.log_density(x - h)) / 2e-5 for h in 1e-5 * np.eye(d)]
        score = target.score(x)
        np.testing.assert_allclose(score, differences, rtol=0, atol=1e-6 * max(1.0, np.abs(score).max()))


def test_tempering_multiplies_both() -> None:
    x = np.ones(3)
    for tempered in (Tempered(NORMAL, 0.125), Tempered(Functions(NORMAL.log_density, NORMAL.score), 0.125)):
        assert tempered.log_density(x) == 0.125 * NORMAL.log_density(x)
        np.testing.assert_array_equal(tempered.score(x), 0.125 * NORMAL.score(x))


def test_compiled_functions_are_those_of_the_target_times_the_power() -> None:
    assert Tempered(Functions(NORMAL.log_density, NORMAL.score), 0.125).compiled() is None
    compiled, x, out, score = Tempered(NORMAL, 0.3).compiled(), np.ones((3, 2)), np.empty(2), np.empty(3)
    assert compiled is not None
    compiled.log_densities(compiled.parameters, x, out)
    np.testing.assert_array_equal(out, 0.3 * NORMAL.log_density(np.ones(3)))
    assert compiled.log_density_and_score(compiled.parameters, np.ones(3), score) == out[0]
    np.testing.assert_array_equal(score, 0.3 * NORMAL.score(np.ones(3)))


@pytest.mark.parametrize("power", [0.0, -1.0, np.nan, np.inf])
def test_a_power_that_is_not_positive_and_finite_is_refused(power: float) -> None:
    with pytest.raises(InputError, match="power must be positive and finite"):
        Tempered(NORMAL, power)


def test_names_are_loaded_on_first_use() -> None:
    code = "import sys, steinstream.targets as t; t.Functions; assert 'numba' not in sys.modules; t.Mixture; t.Tempered"
    subprocess.run([sys.executable, "-c", code], check=True)
