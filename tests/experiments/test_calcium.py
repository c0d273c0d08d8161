"""The calcium posterior against known values of the model, finite differences and another integrator."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numba
import numpy as np
import pytest

from experiments.targets import calcium, hinch
from experiments.targets.calcium import NAMES, Calcium, trajectory
from experiments.targets.hinch import PARAMETERS, REST
from steinstream.errors import InputError
from steinstream.samplers import RandomWalk
from steinstream.targets import CompiledTarget, Functions

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "hinch2004"
ORIGIN = np.zeros(38)
THETA = np.array([value for value, _ in PARAMETERS.values()])
TIMES = 5.0 * np.arange(1, 101)

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"requires the reference solution in {DATA}")


@pytest.fixture(scope="module")
def simulated() -> Calcium:
    return Calcium.simulated(seed=0)


def nearby(seed: int, distance: float = 0.15) -> np.ndarray:
    return distance * np.random.default_rng(seed).standard_normal(38)


def leaky() -> np.ndarray:
    """A cell whose background current is twenty times as large, so that it shows."""
    q = nearby(2)
    q[NAMES.index("g_CaB")] = 3.0
    return q


CELLS = pytest.mark.parametrize(
    "q", [ORIGIN, nearby(1), nearby(3, 0.4), leaky()], ids=["origin", "near", "far", "leaky"]
)


@numba.njit(error_model="numpy")
def computed_slopes(theta: np.ndarray, voltage: float, x: tuple[float, ...]) -> tuple[float, ...]:
    return hinch.slopes(hinch.constants(theta, voltage), x, math.log(x[0]), 0.0)


def slopes(theta: np.ndarray, voltage: float, x: np.ndarray) -> np.ndarray:
    """The right hand side as it stands in the paper, with nothing rearranged."""
    p = dict(zip(NAMES, theta, strict=True))
    a, b, c, d, K = p["a"], p["b"], p["c"], p["d"], p["K_RyR"]
    C, S, z1, z2, z3, B = x
    z4 = 1 - z1 - z2 - z3
    v = 96487.0 * voltage / (8314.5 * 295.0)
    h = 2 * v / (1 - math.exp(-2 * v)) if v else 1.0
    w = p["Ca_o"] * math.exp(-2 * v)
    r, l = p["J_R"] / p["g_D"], p["J_L"] / p["g_D"] * h  # noqa: E741
    E = math.exp((voltage - p["V_L"]) / p["del_VL"])
    C_oc, C_co = (C + l * w) / (1 + l), (C + r * S) / (1 + r)

    def beta(y: float) -> float:
        return y**2 / (p["t_R"] * (y**2 + K**2))

    def mu_up(y: float) -> float:
        return (y**2 + c * K**2) / (p["tau_R"] * (y**2 + K**2))

    def mu_down(y: float) -> float:
        return p["theta_R"] * d * (y**2 + c * K**2) / (p["tau_R"] * (d * y**2 + c * K**2))

    def eps(y: float) -> float:
        return y * (E + a) / (p["tau_L"] * p["K_L"] * (E + 1))

    up, down, close = E / (p["t_L"] * (E + 1)), p["phi_L"] / p["t_L"], p["phi_R"] / p["t_R"]
    b_oc, b_cc = beta(C_oc), beta(C)
    D = (up + down) * ((down + close + b_oc) * (close + b_cc) + up * (close + b_oc))
    y_oc = up * close * (up + down + close + b_cc) / D
    y_co = down * (b_cc * (down + close + b_oc) + b_oc * up) / D
    y_oo = up * (b_oc * (up + close + b_cc) + b_cc * down) / D
    y_cc = down * close * (down + up + close + b_oc) / D
    r1 = y_oc * mu_up(C_oc) + y_cc * mu_up(C)
    r2 = (up * mu_down(C_oc) + down * mu_down(C)) / (up + down)
    r3 = close * mu_up(C) / (close + b_cc)
    r4 = mu_down(C)
    r5 = y_co * eps(C_co) + y_cc * eps(C)
    r6 = b * (E + a) / (p["tau_L"] * (b * E + a))
    r7 = down * eps(C) / (up + down)
    J_Rco, J_Roo = p["J_R"] * (S - C) / (1 + r), p["J_R"] * (S - C + l * (S - w)) / (1 + r + l)
    J_Loc, J_Loo = p["J_L"] * h * (w - C) / (1 + l), p["J_L"] * h * (w - C + r * (w - S)) / (1 + r + l)
    n = p["N"] / 25840.0
    I_RyR = n * (z1 * (y_oo * J_Roo + y_co * J_Rco) + z3 * J_Rco * b_cc / (close + b_cc))
    I_LCC = n * (z1 * (y_oo * J_Loo + y_oc * J_Loc) + z2 * J_Loc * up / (up + down))
    e, f = math.exp(p["eta"] * v), math.exp((p["eta"] - 1) * v)
    I_NCX = p["g_NCX"] * (e * p["Na_i"] ** 3 * p["Ca_o"] - f * p["Na_o"] ** 3 * C)
    I_NCX /= (p["Na_o"] ** 3 + p["K_mNa"] ** 3) * (p["Ca_o"] + p["K_mCa"]) * (1 + p["k_sat"] * f)
    I_SERCA = p["g_SERCA"] * C**2 / (p["K_SERCA"] ** 2 + C**2)
    I_p = p["g_pCa"] * C / (p["K_mpCa"] + C)
    I_CaB = p["g_CaB"] * (8314.5 * 295.0 / (2 * 96487.0) * math.log(p["Ca_o"] / C) - voltage)
    I_SR = p["g_SRl"] * (S - C)
    I_T = p["k_m_TRPN"] * (p["B_TRPN"] - B) - p["k_p_TRPN"] * B * C
    total = I_LCC + I_RyR - I_SERCA + I_SR + I_NCX - I_p + I_CaB + I_T
    return np.array(
        [
            total / (1 + p["k_CMDN"] * p["B_CMDN"] / (p["k_CMDN"] + C) ** 2),
            25840.0 / 2098.0 * (-I_RyR + I_SERCA - I_SR),
            -(r1 + r5) * z1 + r2 * z2 + r6 * z3,
            r1 * z1 - (r2 + r7) * z2 + r6 * z4,
            r5 * z1 - (r6 + r3) * z3 + r4 * z4,
            I_T,
        ]
    )


def reference(q: np.ndarray) -> np.ndarray:
    """States (100, 6) at the times of observation, from scipy."""
    integrate = pytest.importorskip("scipy.integrate")
    states, parts = np.array(REST), []
    for start, end, voltage in ((0, 200, 0.0), (200, 500, -80.0)):
        solution = integrate.solve_ivp(
            lambda _, x, voltage: slopes(THETA * np.exp(q), voltage, x),
            (start, end),
            states,
            method="LSODA",
            t_eval=TIMES[(start < TIMES) & (end >= TIMES)],
            rtol=1e-10,
            atol=1e-13,
            args=(voltage,),
        )
        parts.append(solution.y.T)
        states = parts[-1][-1]
    return np.concatenate(parts)


def assert_close(computed: np.ndarray, exact: np.ndarray, tolerance: float) -> None:
    """Within a fraction of the largest value, column by column."""
    scales = np.abs(exact).max(axis=0)
    np.testing.assert_allclose(computed / scales, exact / scales, rtol=0, atol=tolerance)


def test_the_cell_is_at_rest_at_the_resting_voltage() -> None:
    assert np.abs(computed_slopes(THETA, -80.0, REST)).max() < 2.1e-8


@pytest.mark.parametrize("voltage", [0.0, -80.0, 20.0])
def test_slopes_are_those_of_the_paper(voltage: float) -> None:
    for seed in range(20):
        theta = THETA * np.exp(nearby(seed, 0.5))
        x = np.array(REST) * np.random.default_rng(seed).uniform(0.2, 1.0, 6)
        computed = computed_slopes(theta, voltage, tuple(x))
        np.testing.assert_allclose(computed, slopes(theta, voltage, x), rtol=1e-10, atol=1e-15)


def test_peak_of_calcium_and_lowest_level_of_the_store() -> None:
    times, states = trajectory(ORIGIN)
    peak, lowest = states[:, 0].argmax(), states[:, 1].argmin()
    assert (times[peak], times[lowest]) == (7.0, 28.0)
    assert states[peak, 0] == pytest.approx(0.9265e-3, abs=5e-8)
    assert states[lowest, 1] == pytest.approx(0.3585, abs=5e-5)


@CELLS
def test_trajectory_agrees_with_an_adaptive_integrator(q: np.ndarray) -> None:
    times, states = trajectory(q)
    assert_close(states[np.isin(times, TIMES)], reference(q), 2e-5)


def test_a_stiff_cell_is_integrated_too(simulated: Calcium) -> None:
    q = nearby(4)
    q[NAMES.index("theta_R")] = 3.5  # release units relax at 16 per ms
    q[NAMES.index("B_CMDN")] = -2.5  # and calcium is hardly buffered
    assert_close(simulated.solution(q), 1e3 * reference(q)[:, 0], 2e-4)


def test_the_scheme_has_order_four_in_every_mixture_of_its_two_halves() -> None:
    weights = calcium._WEIGHTS
    explicit, implicit, b = weights[:6, :, 0], weights[:6, :, 6] + np.diag([0, *[calcium._GAMMA] * 5]), weights[6, :, 0]
    np.testing.assert_array_equal(b, weights[6, :, 6])
    c = explicit.sum(axis=1)
    np.testing.assert_allclose(implicit.sum(axis=1), c, atol=1e-15)
    np.testing.assert_allclose([b @ c**n for n in range(4)], [1, 1 / 2, 1 / 3, 1 / 4], atol=1e-15)
    for first in (explicit, implicit):
        conditions = [b @ first @ c, (b * c) @ first @ c, b @ first @ c**2]
        np.testing.assert_allclose(conditions, [1 / 6, 1 / 8, 1 / 12], atol=1e-15)
        for second in (explicit, implicit):
            assert b @ first @ second @ c == pytest.approx(1 / 24, abs=1e-15)


@needs_data
def test_parameters_are_the_published_ones() -> None:
    published = json.loads((DATA / "parameters.json").read_text())
    assert published["substitute_38"] == list(NAMES)
    assert {name: published["parameters"][name]["value"] for name in NAMES} == dict(zip(NAMES, THETA, strict=True))
    assert tuple(published["initial_state"].values()) == REST


@needs_data
def test_trajectory_is_the_reference_one() -> None:
    with np.load(DATA / "reference_trajectory.npz") as file:
        moments, exact = file["t_ms"], file["states"]
    times, states = trajectory(ORIGIN)
    common = np.isin(times, moments)
    assert common.sum() > 140
    assert_close(states[common], exact[np.isin(moments, times)], 2e-6)


@needs_data
def test_observations_and_sensitivities_are_the_reference_ones() -> None:
    with np.load(DATA / "substitute_obs_and_sensitivity.npz") as file:
        clean, sensitivity = file["ca_uM_clean"], file["dCa_dq_at_0"]
    solution = Calcium(clean).solution(ORIGIN)
    np.testing.assert_allclose(solution, clean, rtol=0, atol=1e-6)
    # An observation that is off by one makes the score a row of the sensitivities, over the variance.
    rows = [0.02**2 * Calcium(solution + unit).score(ORIGIN) for unit in np.eye(100)]
    np.testing.assert_allclose(rows, sensitivity, rtol=0, atol=2e-5 * np.abs(sensitivity).max())


@CELLS
def test_score_is_the_gradient_of_the_log_density(simulated: Calcium, q: np.ndarray) -> None:
    h = 1e-5
    differences = [(simulated.log_density(q + e) - simulated.log_density(q - e)) / (2 * h) for e in h * np.eye(38)]
    score = simulated.score(q)
    np.testing.assert_allclose(score, differences, rtol=0, atol=1e-6 * np.abs(score).max())


def test_log_density_is_prior_plus_likelihood(simulated: Calcium) -> None:
    q = nearby(1)
    residuals = (simulated.y - simulated.solution(q)) / 0.02
    expected = -0.5 * (residuals**2).sum() - 0.5 * ((q / 0.3) ** 2).sum()
    assert simulated.log_density(q) == pytest.approx(expected, rel=1e-12)


def test_simulated_noise_has_the_stated_size() -> None:
    noise = [Calcium.simulated(seed).y - Calcium.simulated(seed).solution(ORIGIN) for seed in range(20)]
    assert np.std(noise) == pytest.approx(0.02, rel=0.06)
    np.testing.assert_array_equal(Calcium.simulated(3).y, Calcium.simulated(3).y)


def test_a_lane_does_not_depend_on_its_neighbours(simulated: Calcium) -> None:
    positions = np.stack([nearby(seed) for seed in range(35)], axis=1)
    positions[:, 5] = 20.0  # without density, and must not disturb the others
    functions = simulated.compiled()
    alone = [simulated.log_density(q) for q in positions.T]
    for lanes in (1, 3, 16, 35):
        out = np.empty(lanes)
        functions.log_densities(functions.parameters, np.ascontiguousarray(positions[:, :lanes]), out)
        np.testing.assert_array_equal(out, alone[:lanes])


def test_both_functions_give_the_same_log_density(simulated: Calcium) -> None:
    for seed in range(10):
        log_density, score = simulated.log_density_and_score(nearby(seed))
        assert log_density == simulated.log_density(nearby(seed))
        np.testing.assert_array_equal(score, simulated.score(nearby(seed)))


@pytest.mark.parametrize("value", [800.0, -800.0, 20.0, -20.0, np.nan, np.inf])
def test_absurd_parameters_have_no_density(simulated: Calcium, value: float) -> None:
    q = np.full(38, value)
    assert simulated.log_density(q) == -np.inf
    log_density, score = simulated.log_density_and_score(q)
    assert log_density == -np.inf
    assert np.isnan(score).all()


@pytest.mark.parametrize("value", [-300.0, -30.0, 30.0, 300.0])
def test_one_absurd_parameter_never_gives_nan(simulated: Calcium, value: float) -> None:
    for q in value * np.eye(38):
        log_density = simulated.log_density(q)
        assert log_density < -1000
        assert simulated.log_density_and_score(q)[0] == log_density


def test_calcium_that_runs_out_leaves_no_density(simulated: Calcium) -> None:
    q = np.zeros(38)
    q[[NAMES.index("B_TRPN"), NAMES.index("N")]] = -1.0
    assert simulated.log_density(q) == -np.inf


def test_a_chain_runs_compiled_as_in_python(simulated: Calcium) -> None:
    class OneByOne(Calcium):
        def compiled(self) -> CompiledTarget:
            return super().compiled()._replace(lanes=1)

    def run(target: object, n: int) -> np.ndarray:
        sampler = RandomWalk(target, 0.02)
        state, block = sampler.sample(sampler.init(ORIGIN, seed=3), n)
        assert 0 < state.accepted < n
        return np.hstack([block.draws, block.scores])

    chain = run(simulated, 300)
    np.testing.assert_array_equal(chain, run(OneByOne(simulated.y), 300))
    np.testing.assert_array_equal(chain, run(Functions(simulated.log_density, simulated.score), 300))


@pytest.mark.parametrize("y", [np.zeros((100, 1)), np.zeros(99), np.full(100, np.nan)])
def test_unusable_observations_are_refused(y: np.ndarray) -> None:
    with pytest.raises(InputError, match="y has"):
        Calcium(y)


def test_a_position_of_the_wrong_shape_is_refused(simulated: Calcium) -> None:
    with pytest.raises(InputError, match=r"q has shape \(3,\)"):
        simulated.score(np.zeros(3))
