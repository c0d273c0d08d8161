"""Properties of all samplers: bit-identical chains however they are run, and clear errors for invalid input."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from steinstream import validation
from steinstream.errors import InputError
from steinstream.samplers import MALA, SGLD, Draws, RandomWalk, SamplerWarning, base
from steinstream.targets import CompiledTarget, Functions, Gaussian, Goodwin, Mixture, Tempered
from tests.unit.samplers.common import COVARIANCE, GAUSSIAN, assert_mean, assert_same, in_python, run

Maker = Callable[[Any], Any]

SAMPLERS = {
    "random walk": lambda target: RandomWalk(target, 0.8),
    "MALA": lambda target: MALA(target, 0.9),
    "SGLD": lambda target: SGLD(target, 0.1),
    "SGLD by minibatch": lambda target: SGLD(
        target,
        0.1,
        # takes a number of random numbers that depends on where it is
        lambda x, generator: target.score(x) + generator.normal(size=1 + int(abs(x[0]) * 3)).sum(),
        record="independent",
    ),
}
REJECTING = ["random walk", "MALA"]


@pytest.fixture(params=SAMPLERS)
def make(request: pytest.FixtureRequest) -> Maker:
    return SAMPLERS[request.param]


@pytest.fixture(params=REJECTING)
def make_rejecting(request: pytest.FixtureRequest) -> Maker:
    return SAMPLERS[request.param]


# -- the same bits ---------------------------------------------------------------------------------------------------


def test_blocks_give_the_same_chain_as_one_call(make: Maker) -> None:
    sampler = make(GAUSSIAN)
    first = sampler.init(np.zeros(2), seed=1)
    state, blocks = first, []
    for n in (1, 2, 0, 3, 94, 100):
        state, block = sampler.sample(state, n)
        blocks.append(block)
    joined = Draws(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    assert_same((state, joined), sampler.sample(first, 200))


def test_no_draws_leave_the_chain_where_it_is(make: Maker) -> None:
    state = make(GAUSSIAN).init(np.ones(2), seed=1)
    after, block = make(GAUSSIAN).sample(state, 0)
    assert block.draws.shape == block.scores.shape == (0, 2)
    assert_same((state, block), (after, block))


def test_sampling_leaves_the_state_it_started_from(make: Maker) -> None:
    sampler = make(GAUSSIAN)
    state = sampler.init(np.zeros(2), seed=1)
    assert_same(sampler.sample(state, 50), sampler.sample(state, 50))
    np.testing.assert_array_equal(state.position, np.zeros(2))


def test_another_seed_gives_another_chain(make: Maker) -> None:
    one, other = (run(make(GAUSSIAN), 20, seed=seed)[1].draws for seed in (1, 2))
    assert not np.any(one[-1] == other[-1])


@pytest.mark.parametrize(
    "target",
    [
        GAUSSIAN,
        Gaussian(np.zeros(2), 1.0),
        Mixture([[0.0, 0.0], [3.0, 3.0]], [0.5, 1.0], [1, 2]),
        Tempered(GAUSSIAN, 0.125),
        Tempered(Tempered(GAUSSIAN, 0.25), 2.0),
    ],
    ids=["full", "isotropic", "mixture", "tempered", "tempered twice"],
)
def test_a_python_target_gives_the_chain_of_the_compiled_one(make: Maker, target: Any) -> None:
    assert_same(run(make(target), 500), run(make(in_python(target)), 500))


def test_a_tempered_python_target_gives_the_chain_of_the_compiled_one(make: Maker) -> None:
    assert_same(run(make(Tempered(GAUSSIAN, 0.3)), 300), run(make(Tempered(in_python(GAUSSIAN), 0.3)), 300))


def test_goodwin_in_python_gives_the_chain_of_the_compiled_one() -> None:
    target = Tempered(Goodwin.simulated(seed=0), 1 / 8)
    start = np.log([0.95, 2.9, 0.52, 1.02])
    for sampler in (MALA(target, 0.01), SGLD(target, 1e-6)):
        plain = type(sampler)(in_python(target), sampler.step)
        assert_same(run(sampler, 150, start), run(plain, 150, start))


def test_many_dimensions_do_not_change_what_python_and_machine_code_agree_on() -> None:
    target = Gaussian(np.linspace(-1, 1, 50), np.linspace(0.1, 2, 50))
    sampler, plain = MALA(target, 0.4), MALA(in_python(target), 0.4)
    state, _ = both = run(sampler, 300, np.zeros(50))
    assert 50 < state.accepted < 250
    assert_same(both, run(plain, 300, np.zeros(50)))


def test_scores_belong_to_their_draws() -> None:
    for name in ("random walk", "MALA", "SGLD"):
        state, block = run(SAMPLERS[name](GAUSSIAN), 300)
        np.testing.assert_array_equal(block.scores, GAUSSIAN.scores(block.draws))
        np.testing.assert_array_equal(state.score, block.scores[-1])
        assert state.log_density == GAUSSIAN.log_density(block.draws[-1])
        moved = np.any(np.diff(block.draws, axis=0, prepend=np.zeros((1, 2))) != 0, axis=1)
        np.testing.assert_array_equal(moved, block.accepted)
        assert (state.steps, state.accepted) == (300, block.accepted.sum())


def test_tempering_divides_the_variance() -> None:
    target = Tempered(GAUSSIAN, 0.25)
    for sampler in (RandomWalk(target, 3.0), MALA(target, 2.0)):
        _, block = run(sampler, 200_000)
        assert_mean((block.draws - GAUSSIAN.mean) ** 2, np.diag(COVARIANCE) / 0.25, 0.2)


def test_settings_are_plain() -> None:
    def noisy(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return -x

    assert RandomWalk(GAUSSIAN, 0.5).settings == {"sampler": "RandomWalk", "target": "Gaussian", "step": 0.5}
    settings = SGLD(None, 0.1, noisy, record="independent").settings
    assert settings.pop("minibatch").endswith("noisy")
    assert settings == {"sampler": "SGLD", "target": None, "step": 0.1, "record": "independent"}


# -- what cannot be used ---------------------------------------------------------------------------------------------


def test_a_useless_step_is_refused() -> None:
    for step in [0.0, -1.0, np.nan, np.inf, "1", None, True, 1j, np.ones(2)]:
        for sampler in (RandomWalk, MALA, SGLD):
            with pytest.raises(InputError, match="step must be a positive number"):
                sampler(GAUSSIAN, step)


def test_a_useless_start_is_refused(make: Maker) -> None:
    for start in [np.zeros((1, 2)), [0.0, np.nan], [0.0, np.inf], [], "here", [[0.0], [1.0, 2.0]]]:
        with pytest.raises(InputError, match="start must be a vector"):
            make(GAUSSIAN).init(start, seed=0)


def test_a_start_of_another_dimension_is_refused(make: Maker) -> None:
    with pytest.raises(InputError, match=r"shape \(n, 2\), got shape \(1, 3\)"):
        make(GAUSSIAN).init(np.zeros(3), seed=0)


def test_a_useless_seed_is_refused(make: Maker) -> None:
    for seed in [-1, 1.0, "1", None, True]:
        with pytest.raises(InputError, match="seed must be an integer of at least 0"):
            make(GAUSSIAN).init(np.zeros(2), seed)


def test_a_useless_number_of_draws_is_refused(make: Maker) -> None:
    for n in [-1, 2.0, "2", None, True]:
        sampler = make(GAUSSIAN)
        with pytest.raises(InputError, match="n must be an integer of at least 0"):
            sampler.sample(sampler.init(np.zeros(2), 0), n)


def test_a_start_without_density_is_refused(make_rejecting: Maker) -> None:
    for value in [-np.inf, np.inf, np.nan]:
        target = Functions(lambda x, value=value: value, lambda x: -x)
        with pytest.raises(InputError, match=rf"log density at \[1, 2\] is {value}"):
            make_rejecting(target).init([1.0, 2.0], seed=0)


def test_a_start_without_score_is_refused(make: Maker) -> None:
    target = Functions(lambda x: 0.0, lambda x: x / np.array([1.0, np.inf]) * np.nan)
    with pytest.raises(InputError, match=r"score at \[1, 2\] is nan in coordinate 0"):
        make(target).init([1.0, 2.0], seed=0)


@pytest.mark.parametrize("score", [0.0, np.zeros(1), np.zeros(3), np.zeros((1, 2))], ids=np.shape)
def test_a_score_of_another_shape_is_refused(make: Maker, score: Any) -> None:
    with pytest.raises(InputError, match=r"score at .* has shape"):
        make(Functions(lambda x: -0.5 * float(x @ x), lambda x: score)).init(np.zeros(2), seed=0)
    later = Functions(lambda x: -0.5 * float(x @ x), lambda x: -x if not x.any() else score)
    if make is SAMPLERS["SGLD by minibatch"]:
        return  # it adds a number to the score, which takes the shape of the sum
    with pytest.raises(InputError, match=r"score at .* has shape"):
        run(make(later), 50)


def test_a_log_density_that_is_no_number_is_refused(make_rejecting: Maker) -> None:
    with pytest.raises(InputError, match=r"log density at .* has shape \(1,\)"):
        run(make_rejecting(Functions(lambda x: -0.5 * x[:1] ** 2, lambda x: -x)), 1)
    with pytest.raises(InputError, match=r"log density at \[0, 0\] is None"):
        run(make_rejecting(Functions(lambda x: None, lambda x: -x)), 1)


FINE, NAN_DENSITY, INFINITE_DENSITY, NAN_SCORE, HUGE_SCORE = 0.0, 1.0, 2.0, 3.0, 4.0


@numba.njit(error_model="numpy")
def broken_score(parameters: tuple[Any, Any], x: np.ndarray, score: np.ndarray) -> float:
    """A standard normal that breaks where x[0] > 1."""
    kind = parameters[0][0] if x[0] > 1.0 else FINE
    total = 0.0
    for j in range(x.size):
        total -= 0.5 * (x[j] * x[j])
        score[j] = -x[j]
    if kind == NAN_SCORE:
        score[1] = np.nan
    if kind == HUGE_SCORE:
        score[1] = 1e150
    return np.nan if kind == NAN_DENSITY else np.inf if kind == INFINITE_DENSITY else total


@numba.njit(error_model="numpy")
def broken_log_densities(parameters: tuple[Any, Any], positions: np.ndarray, out: np.ndarray) -> None:
    score = np.empty(positions.shape[0])
    for k in range(out.size):
        out[k] = broken_score(parameters, positions[:, k].copy(), score)


class Broken:
    def __init__(self, kind: float, lanes: int = 1) -> None:
        self.parameters, self.lanes = (np.array([kind]), np.zeros(0)), lanes

    def log_density(self, x: np.ndarray) -> float:
        return broken_score(self.parameters, x, np.empty(2))

    def score(self, x: np.ndarray) -> np.ndarray:
        score = np.empty(2)
        broken_score(self.parameters, x, score)
        return score

    def compiled(self) -> CompiledTarget:
        return CompiledTarget(broken_log_densities, broken_score, self.parameters, self.lanes)


def failure(sampler: Any, blocks: tuple[int, ...]) -> str:
    state = sampler.init(np.zeros(2), seed=3)
    with pytest.raises(InputError) as caught:
        for n in blocks:
            state, _ = sampler.sample(state, n)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (NAN_DENSITY, r"The log density at \[1\.\d+, .*\] is nan, proposed in step \d+\. It must be"),
        (INFINITE_DENSITY, r"The log density at \[1\.\d+, .*\] is inf, proposed in step \d+\. It must be"),
        (NAN_SCORE, r"The score at \[1\.\d+, .*\] is nan in coordinate 1, proposed in step \d+\. It must be"),
        (HUGE_SCORE, r"The score at \[1\.\d+, .*\] is 1e\+150 in coordinate 1, proposed in step \d+\. It must be"),
    ],
)
def test_a_broken_target_is_named_with_position_and_value(make_rejecting: Maker, kind: float, problem: str) -> None:
    said = failure(make_rejecting(Broken(kind)), (200,))
    assert re.match(problem, said), said
    assert failure(make_rejecting(Broken(kind, lanes=5)), (200,)) == said
    assert failure(make_rejecting(in_python(Broken(kind))), (200,)) == said
    assert failure(make_rejecting(Broken(kind)), (1, 2) * 70) == said


def test_the_limit_of_scores_is_that_of_the_validation() -> None:
    assert base.SCORE_LIMIT == validation.OVERFLOW_LIMIT


def test_a_chain_that_does_not_move_is_reported(make_rejecting: Maker) -> None:
    sampler = make_rejecting(Gaussian(np.zeros(2), 1e-12))
    state = sampler.init(np.zeros(2), seed=0)
    with pytest.warns(SamplerWarning, match=rf"None of 1000 proposals .* step {sampler.step}: .* Try step 0\.0[89]"):
        state, _ = sampler.sample(state, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.sample(state, 999)


def test_a_state_without_log_density_is_refused(make_rejecting: Maker) -> None:
    state = SAMPLERS["SGLD by minibatch"](GAUSSIAN).init(np.zeros(2), seed=0)
    with pytest.raises(InputError, match="log density of the state is nan"):
        make_rejecting(GAUSSIAN).sample(state, 1)
