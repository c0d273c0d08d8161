"""Plans: the bound is that of the recursion, the budget is the largest, and planned runs end within the radius."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream import planning, schedules
from steinstream.errors import InputError

GROWTHS = ["power:1.1", "power:1.5", "power:1.98", "linear", "sqrt"]


def gaussian(draws, dim, seed):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


def two_modes(draws, dim, seed):
    """Normal, at 2 and -2 along the first axis with probability one half each."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(draws, dim))
    x[:, 0] += rng.choice([-2.0, 2.0], size=draws)
    s = -x
    s[:, 0] += 2.0 * np.tanh(2.0 * x[:, 0])
    return x, s


def correlated(draws, dim, seed, memory=0.9):
    """A stationary autoregression with normal marginals."""
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    for t in range(1, draws):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * x[t]
    return x, -x


def floors(growth, steps):
    """The least size after 0, 1, ..., steps: the floor, or one more than before where the floor leaps."""
    t = np.arange(1.0, steps + 1)
    least = [0.0]
    for floor in np.maximum(np.ceil(np.minimum(schedules.growth(growth)(t), t)), 1.0):
        least.append(min(floor, least[-1] + 1))
    return np.array(least)


def recursion(sizes, floor, kappa, eps):
    """E KSD^2 step by step: the factor for these sizes, the new draw's part for these floors."""
    square = 0.0
    for size, least in zip(sizes, floor, strict=True):
        square = (size / (size + 1)) ** 2 * square + kappa / (least + 1) ** 2 + eps
    return square


def run(plan, stream, dim, seeds):
    """Mean KSD^2 after the planned draws, the sizes at the end, and the greatest on the way."""
    squares, ends, most = [], [], []
    for seed in range(seeds):
        thinner = ss.Thinner(dim, **plan.settings, history="all")
        thinner.extend(*stream(plan.draws, dim, seed))
        squares.append(thinner.ksd**2)
        ends.append(len(thinner))
        most.append(thinner.history.size.max())
    return np.mean(squares), ends, max(most)


# -- the bound -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("sizes", planning.BOUND_KINDS)
def test_the_bound_is_the_recursion_at_its_worst_sizes(growth, sizes):
    bound = planning.Bound(schedules.growth(growth), sizes)
    for steps in (1, 2, 3, 50, 999, 1000, 1001, 6000):
        floor = floors(growth, steps)
        most = np.minimum(np.arange(steps), floor[-1] if sizes == "planned" else np.inf)
        point = bound.at(steps)
        assert point.kept == floor[-1]
        assert np.isclose(point.thinning, recursion(most, floor[:-1], 0.0, 1.0), rtol=1e-10)
        sampling = recursion(most, floor[:-1], 1.0, 0.0)
        assert sampling * (1 - 1e-10) <= point.sampling <= sampling * (1.006 if steps > 1000 else 1 + 1e-10)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(GROWTHS), st.sampled_from(planning.BOUND_KINDS), st.integers(1, 120), st.integers(0, 2**32))
def test_no_path_of_sizes_goes_above_the_bound(growth, sizes, steps, seed):
    rng = np.random.default_rng(seed)
    floor = floors(growth, steps)
    most = np.minimum(np.arange(steps + 1), floor[-1] if sizes == "planned" else steps)
    path = [0.0]
    for t in range(1, steps):  # a size grows by one at most, and falls as deep as the floor
        path.append(rng.integers(floor[t], min(path[-1] + 1, most[t]) + 1))
    kappa, eps = rng.exponential(size=2)
    point = planning.Bound(schedules.growth(growth), sizes).at(steps)
    assert recursion(path, path, kappa, eps) <= (kappa * point.sampling + eps * point.thinning) * (1 + 1e-10)


def test_the_bound_goes_on_to_a_million_million_steps():
    """Where kappa / (2 f) + eps f / 2 holds with planned sizes, and eps n / 3 with any."""
    growth, steps = schedules.Power(1.3), 10**12
    kept = float(growth(np.array(float(steps))))
    planned, any_size = (planning.Bound(growth, sizes).at(steps) for sizes in planning.BOUND_KINDS)
    assert np.isclose(planned.sampling, 1 / (2 * kept), rtol=0.01) and np.isclose(planned.thinning, kept / 2, rtol=0.01)
    assert np.isclose(any_size.thinning, steps / 3, rtol=0.01)
    assert np.isclose(any_size.sampling, steps / kept**2 / (2 - 0.3), rtol=0.05)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_exponents_of_the_corollary(alpha):
    """n ~ eps^(-1/(1 + alpha)) and KSD^2 ~ eps^(alpha/(1 + alpha)); the logarithm adds 1 / log n to alpha locally."""
    criterion = planning.LargestConstantBudget(4.0)
    for sizes in planning.BOUND_KINDS:
        bound = planning.Bound(schedules.Power(1 + alpha), sizes)
        radii = np.array([0.04, 0.02])
        points = [planning.choose_steps(radius, criterion, bound, 1) for radius in radii]
        budgets = np.log([criterion.merit(radius, point) for radius, point in zip(radii, points, strict=True)])
        steps = np.log([point.steps for point in points])
        local = alpha + 1 / steps.mean()
        assert abs(np.diff(steps)[0] / np.diff(budgets)[0] + 1 / (1 + local)) < 0.02
        square = np.diff(2 * np.log(radii))[0] / np.diff(budgets)[0]
        assert abs(square - (local / (1 + local) if sizes == "any" else 0.5)) < 0.02


def test_no_other_number_of_steps_allows_a_larger_budget():
    plan = ss.plan(0.5, *gaussian(1000, 2, 0), growth=1.3)
    bound = planning.Bound(schedules.Power(1.3), "planned")
    merits = [
        planning.LargestConstantBudget(plan.kappa).merit(0.5, bound.at(steps)) for steps in range(1, 3 * plan.steps)
    ]
    assert plan.budget <= max(merits) <= 1.01 * plan.budget
    assert 0.499 < plan.bound <= 0.5


# -- the constants -------------------------------------------------------------------------------------------------


def test_kappa_is_the_mean_diagonal_of_independent_draws():
    x, s = gaussian(20_000, 3, 0)
    x[:10_000] *= 100.0  # burn-in, which the plan does not look at
    identity = ss.Preconditioner.identity()
    for kernel, exact in ((ss.IMQ(), 6.0), (ss.IMQ(c=2.0, beta=-0.3), 4**-0.3 * (3 + 0.6 / 4 * 3)), (ss.RBF(), 4.0)):
        plan = ss.plan(0.5, x, s, kernel=kernel, preconditioner=identity)
        assert np.isclose(plan.diagonal, exact, rtol=0.03)
        assert plan.diagonal <= plan.kappa < 1.5 * exact
    assert np.isclose(ss.plan(0.5, x, s).diagonal, 2 * 9 + 3, rtol=0.06)  # |s|^2 is 2 d times what it was


def test_kappa_of_a_correlated_chain_is_its_long_run_value():
    length = ss.Preconditioner.length_scale(2.0)
    chains = [correlated(4000, 2, seed) for seed in range(8)]
    limit = np.mean([4000 * ss.ksd(*chain, preconditioner=length) ** 2 for chain in chains])
    many = ss.plan(0.5, *map(np.stack, zip(*chains, strict=True)), preconditioner=length)
    assert limit > 10 * many.diagonal
    assert np.isclose(many.kappa, limit, rtol=0.4)
    assert np.isclose(ss.plan(0.5, *chains[0], preconditioner=length).kappa, limit, rtol=0.7)
    apart = ss.plan(0.5, *chains[0], preconditioner=length, candidates=20)
    assert apart.kappa < 2 * apart.diagonal and apart.kept < many.kept / 5


# -- runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "dim", "radius", "options"),
    [
        (gaussian, 2, 0.2, {}),
        (gaussian, 2, 0.4, {"growth": 1.2, "budget": "share"}),
        (gaussian, 2, 0.4, {"growth": "sqrt", "candidates": 5}),
        (gaussian, 2, 0.8, {"bound_for": "any"}),
        (gaussian, 4, 0.4, {"growth": "power:1.8"}),
        (two_modes, 2, 0.4, {}),
        (two_modes, 2, 0.4, {"growth": "linear", "kernel": ss.RBF()}),
        (correlated, 2, 0.4, {"growth": 1.8}),
        (correlated, 2, 0.4, {"candidates": 20}),
    ],
)
def test_a_run_as_planned_ends_within_the_radius(stream, dim, radius, options):
    plan = ss.plan(radius, *stream(4000, dim, 1000), **options)
    square, ends, most = run(plan, stream, dim, 5)
    assert plan.bound <= radius
    assert square <= plan.bound**2
    assert set(ends) == {plan.kept} and most == plan.kept


def test_the_plan_is_not_far_off_where_every_draw_counts():
    """Ten dimensions and a short length scale: each draw stands alone, and the bound is nearly reached."""
    for radius in (0.4, 0.2):
        plan = ss.plan(radius, *gaussian(4000, 10, 1000), growth=1.3, preconditioner="identity")
        square, ends, most = run(plan, gaussian, 10, 3)
        assert 0.7 * plan.bound < np.sqrt(square) <= plan.bound
        assert set(ends) == {plan.kept} and most == plan.kept


def test_settings_serve_thin_and_thinner_alike():
    x, s = gaussian(3000, 3, 0)
    for budget in ("constant", "share", "share:2"):
        plan = ss.plan(0.8, x, s, budget=budget, candidates=2)
        thinner = ss.Thinner(3, **plan.settings)
        thinner.extend(x[: plan.draws], s[: plan.draws])
        assert thinner.steps == plan.steps and len(thinner) == plan.kept
        assert thinner.config.stream_weight == 0.0  # the bound is one on KSD
        assert ss.thin(x[: plan.draws], s[: plan.draws], **plan.settings).ksd == thinner.ksd


def test_slower_growth_takes_more_draws_and_smaller_radii_take_more_of_both():
    warmup = gaussian(1000, 2, 0)
    plans = [ss.plan(0.2, *warmup, growth=growth) for growth in ("sqrt", 1.3, 1.6)]
    assert plans[0].draws > plans[1].draws > plans[2].draws
    finer = ss.plan(0.05, *warmup, growth=1.3)
    assert finer.draws > 10 * plans[1].draws and np.isclose(finer.kept, 16 * plans[1].kept, rtol=0.1)
    assert ss.plan(0.2, *warmup, growth=1.3, bound_for="any").draws > 10 * plans[1].draws


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("radius", "options", "says"),
    [
        (0.0, {}, "above 0, got 0.0"),
        (-0.1, {}, "above 0, got -0.1"),
        (float("nan"), {}, "above 0, got nan"),
        (float("inf"), {}, "above 0, got inf"),
        ("0.1", {}, "above 0, got '0.1'"),
        (9.0, {}, "a single draw has 3"),
        (1e-9, {}, "10^6 draws reach 0.0"),
        (1e-9, {"budget": "share", "candidates": 3}, "10^8 reach 0.00"),
        (0.1, {"growth": 1.0}, "between 1 and 2, got 1.0"),
        (0.1, {"growth": "power:0.5"}, "between 1 and 2, got 0.5"),
        (0.1, {"growth": 2}, "between 1 and 2, got 2"),
        (0.1, {"growth": float("nan")}, "between 1 and 2, got nan"),
        (0.1, {"growth": "none"}, "No bound is known for growth 'none'"),
        (0.1, {"growth": "constant:50"}, "No bound is known for growth"),
        (0.1, {"growth": "cubic"}, "Unknown growth 'cubic'"),
        (0.1, {"growth": "sqrt", "bound_for": "any"}, "1 / log n"),
        (0.1, {"budget": "decaying"}, "No bound is known for budget 'decaying'"),
        (0.1, {"budget": "share:inf"}, "No bound is known for budget"),
        (0.1, {"budget": "share:-1"}, "must not be negative"),
        (0.1, {"bound_for": "all"}, "Unknown bound_for 'all'"),
        (0.1, {"candidates": 0}, "at least 1, got 0"),
        (0.1, {"size": 100}, "A plan has no setting size. Its settings are candidates, kernel"),
        (0.1, {"candidates": 10}, "Give at least 2000 draws"),
        (0.1, {"preconditioner": "wide"}, "Unknown preconditioner 'wide'"),
        (0.1, {"preconditioner": ss.Preconditioner.scales([1.0, 2.0, 3.0])}, "for 3 dimensions, the draws have 2"),
    ],
)
def test_mistakes_get_one_clear_error(radius, options, says):
    with pytest.raises(InputError) as error:
        ss.plan(radius, *gaussian(1000, 2, 0), **options)
    assert says in str(error.value)


def test_bad_warmups_get_one_clear_error():
    x, s = gaussian(1000, 2, 0)
    bad = x.copy()
    bad[7, 1] = np.nan
    for draws, scores, says in (
        (bad, s, "chain 0, draw 7 is nan"),
        (x, -s, "look negated"),
        (x[:150], s[:150], "too short: its second half has 75 steps"),
        (x[:0], s[:0], "No draws"),
        (x, None, "A plan requires scores"),
    ):
        with pytest.raises(InputError) as error:
            ss.plan(0.2, draws, scores)
        assert says in str(error.value)
