"""The Goodwin posterior against its published scores, finite differences and another integrator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.samplers import RandomWalk
from steinstream.targets import Goodwin

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "goodwin"
START = np.log([0.5, 1.0, 3.0, 2.0])
TRUTH = np.log([1.0, 3.0, 0.5, 1.0])
NEARBY = np.log([0.9, 2.7, 0.55, 1.1])

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published Goodwin chain is not in {DATA}")


@pytest.fixture(scope="module")
def simulated() -> Goodwin:
    return Goodwin.simulated(seed=0)


@pytest.fixture(scope="module")
def published() -> Goodwin:
    with np.load(DATA / "goodwin_obs_effective.npz") as file:
        return Goodwin(file["y"])


@needs_data
@pytest.mark.parametrize(
    ("q", "score"),
    [
        (START, (110554.293, -3.0285e-5, -205573.728, 95847.530)),
        ((-0.00251379, 1.05141414, -0.68284037, 0.00576264), (364.4108, 15.7601, -321.7573, 263.0054)),
    ],
)
def test_score_is_the_published_one(published: Goodwin, q: np.ndarray, score: tuple[float, ...]) -> None:
    error = published.score(np.array(q)) - score
    assert np.linalg.norm(error) < 4e-6 * np.linalg.norm(score)


@needs_data
def test_score_agrees_with_the_published_chain(published: Goodwin) -> None:
    with np.load(DATA / "goodwin_rw_stride100.npz") as file:
        draws, scores = file["theta"][::97], file["score"][::97]
    computed = np.array([published.score(q) for q in draws])
    errors = np.linalg.norm(computed - scores, axis=1)
    # The published solver's own tolerance shows where the score nearly vanishes: hence the constant.
    assert np.all(errors < 1e-5 * np.linalg.norm(scores, axis=1) + 0.02)
    assert np.median(errors / np.linalg.norm(scores, axis=1)) < 6e-6


@needs_data
def test_a_random_walk_agrees_with_the_published_chain(published: Goodwin) -> None:
    """Means and standard deviations after burn-in: those of the published chain, and those stated for this target."""
    sampler = RandomWalk(published, step=0.01)
    state, _ = sampler.sample(sampler.init(np.log([0.5, 1.0, 3.0, 2.0]), seed=1), 5_000)
    state, block = sampler.sample(state, 300_000)
    assert 0.06 < (state.accepted / state.steps) < 0.1
    mean, sd = block.draws.mean(axis=0), block.draws.std(axis=0)
    with np.load(DATA / "goodwin_rw_stride100.npz") as file:
        chain = file["theta"][100:]
    for means, sds in (
        (chain.mean(axis=0), chain.std(axis=0)),
        ((0.0079, 1.074, -0.685, 0.0029), (0.0060, 0.0169, 0.0037, 0.0050)),
    ):
        assert np.all(np.abs(mean - means) < 0.2 * sd)
        np.testing.assert_allclose(sd, sds, rtol=0.1)


@needs_data
def test_solution_is_the_published_one(published: Goodwin) -> None:
    with np.load(DATA / "goodwin_obs_effective.npz") as file:
        np.testing.assert_allclose(published.solution(TRUTH), file["u_true"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("q", [TRUTH, NEARBY, START], ids=["truth", "nearby", "start"])
def test_score_is_the_gradient_of_the_log_density(simulated: Goodwin, q: np.ndarray) -> None:
    steps = 1e-5 * np.eye(4)
    differences = [(simulated.log_density(q + h) - simulated.log_density(q - h)) / 2e-5 for h in steps]
    score = simulated.score(q)
    np.testing.assert_allclose(score, differences, rtol=0, atol=1e-6 * np.abs(score).max())


@pytest.mark.parametrize("q", [TRUTH, NEARBY, START], ids=["truth", "nearby", "start"])
def test_solution_agrees_with_an_adaptive_integrator(simulated: Goodwin, q: np.ndarray) -> None:
    integrate = pytest.importorskip("scipy.integrate")
    a, b, c, d = np.exp(q)
    exact = integrate.solve_ivp(
        lambda _, s: (a / (1 + b * s[1] ** 10) - c * s[0], d * s[0] - c * s[1]),
        (0, 25),
        (0, 0),
        method="DOP853",
        t_eval=1 + 0.01 * np.arange(2400),
        rtol=1e-11,
        atol=1e-13,
    )
    np.testing.assert_allclose(simulated.solution(q), exact.y.T, rtol=0, atol=1e-8)


def test_log_density_is_prior_plus_likelihood(simulated: Goodwin) -> None:
    residuals = (simulated.y - simulated.solution(NEARBY)) / (0.1, 0.05)
    expected = -0.5 * (residuals**2).sum() - 0.5 * (NEARBY**2).sum()
    assert simulated.log_density(NEARBY) == pytest.approx(expected, rel=1e-12)


def test_simulated_noise_has_the_stated_size() -> None:
    target = Goodwin.simulated(seed=1)
    noise = target.y - target.solution(TRUTH)
    np.testing.assert_allclose(noise.std(axis=0), (0.1, 0.05), rtol=0.06)
    np.testing.assert_array_equal(target.y, Goodwin.simulated(seed=1).y)


def test_a_lane_does_not_depend_on_its_neighbours(simulated: Goodwin) -> None:
    positions = TRUTH[:, None] + 0.1 * np.random.default_rng(0).standard_normal((4, 19))
    positions[2, 5] = 8.0  # overflows, and must not disturb the others
    functions = simulated.compiled()
    alone = [simulated.log_density(q) for q in positions.T]
    for lanes in (1, 3, 8, 16, 19):
        out = np.empty(lanes)
        functions.log_densities(functions.parameters, np.ascontiguousarray(positions[:, :lanes]), out)
        np.testing.assert_array_equal(out, alone[:lanes])


def test_both_functions_give_the_same_log_density(simulated: Goodwin) -> None:
    for q in (TRUTH, NEARBY, START):
        log_density, score = simulated.log_density_and_score(q)
        assert log_density == simulated.log_density(q)
        np.testing.assert_array_equal(score, simulated.score(q))


@pytest.mark.parametrize("q", [(800, 0, 0, 0), (0, 0, 8, 0), (0, 0, 800, 0), (0, np.nan, 0, 0)])
def test_overflow_is_zero_density_not_a_crash(simulated: Goodwin, q: tuple[float, ...]) -> None:
    assert simulated.log_density(np.array(q)) == -np.inf
    assert simulated.log_density_and_score(np.array(q))[0] == -np.inf


@pytest.mark.parametrize("y", [np.zeros((2, 2400)), np.zeros(3), np.zeros((0, 2)), np.array([[0.0, np.inf]])])
def test_unusable_observations_are_refused(y: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"y must have shape \(n, 2\)|Observations must be finite"):
        Goodwin(y)


def test_a_position_of_the_wrong_shape_is_refused(simulated: Goodwin) -> None:
    with pytest.raises(InputError, match=r"q must have shape \(4,\).* got shape \(3,\)"):
        simulated.score(np.zeros(3))


def test_numba_is_imported_only_when_a_target_is_used() -> None:
    code = "import sys, steinstream.targets, steinstream.samplers; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
