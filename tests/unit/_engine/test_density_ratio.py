"""Thinning with density ratios keeps the same draws as the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream import schedules
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.density_ratio import WholeStream, thin_with_ratios
from steinstream._engine.reference import Reference
from steinstream._engine.step_rule import NO_CAP, StepLimits
from steinstream._engine.thinning import StepLog
from tests.streams import budgets, growths, kernels, rules
from tests.thinners import limits_at, magnitude


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 25), kernels, growths, budgets, st.sampled_from([None, 1, 5]), rules)
def test_keeps_the_same_draws_as_the_specification(seed, count, kernel, growth, budget, cap, rule):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    s, ratios = -x + 0.3 * rng.normal(size=x.shape), np.exp(rng.uniform(-1.0, 1.0, count))
    specified, sizes, squares = Reference(kernel), [], []
    floors, eps = [], []
    for t in range(1, count + 1):
        limits = limits_at(t, growth, budget, len(specified.draws) + 1, cap, rule)
        specified.step(x[t - 1 : t], s[t - 1 : t], [(0, t - 1)], **limits, ratios=ratios[t - 1 : t])
        sizes.append(len(specified.draws))
        squares.append((specified.squared_ksd, magnitude(specified)))
        floors.append(limits["floor"])
        eps.append(limits["budget"])
    share = isinstance(schedules.budget(budget, schedules.growth(growth)), schedules.Share)
    limits = StepLimits(
        np.array(floors),
        np.zeros(count) if share else np.array(eps),
        np.full(count, 1.0 if share else 0.0),
        rule == "monotone",
        NO_CAP if cap is None else cap,
    )
    kept, log = np.zeros(count, dtype=np.int64), new_log(count)
    none = WholeStream(np.zeros(count), 0.0, 0.0)
    size = thin_with_ratios(compile_kernel(kernel, 2), np.stack([x, s], axis=1), ratios, none, limits, kept, log)
    assert sorted(kept[:size].tolist()) == sorted(draw for _, draw in specified.ids)
    assert log.sizes.tolist() == sizes and np.isnan(log.squared_mmd).all()
    for measured, (expected, scale) in zip(log.squared_ksd, squares, strict=True):
        assert measured == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)


def new_log(count):
    return StepLog(np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros((0, 3), np.int64))


def slow(matrix, floors, cap):
    """The algorithm with budget 0 from the whole matrix of the objective."""
    kept, sizes = [], []
    for t, floor in enumerate(floors):
        kept.append(t)
        most = matrix[np.ix_(kept, kept)].mean() * (1 + 1e-13)
        while len(kept) > floor:
            values = [
                matrix[np.ix_(rest, rest)].mean() for rest in ([*kept[:i], *kept[i + 1 :]] for i in range(len(kept)))
            ]
            best = int(np.argmin(values))
            if len(kept) <= cap and values[best] > most:
                break
            del kept[best]
        sizes.append(len(kept))
    return kept, sizes


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 25), kernels, st.sampled_from([3, 8, 100]), st.floats(0.1, 10.0))
def test_the_stream_term_is_part_of_the_objective(seed, count, kernel, cap, weight):
    rng = np.random.default_rng(seed)
    x, stream = rng.normal(size=(count, 2)), rng.normal(size=(40, 2))
    s, ratios = -x + 0.3 * rng.normal(size=x.shape), np.exp(rng.uniform(-1.0, 1.0, count))
    means, mean = kernel.base_matrix(x, stream).mean(axis=1), float(kernel.base_matrix(stream, stream).mean())
    centred = kernel.base_matrix(x, x) - means[:, None] - means + mean
    stein = ratios[:, None] * ratios * kernel.matrix(x, s, x, s)
    floors = np.minimum(np.maximum(np.arange(1, count + 1) // 2, 1), cap)
    expected, sizes = slow(stein + weight * centred, floors, cap)
    kept, log = np.zeros(count, dtype=np.int64), new_log(count)
    limits = StepLimits(floors, np.zeros(count), np.zeros(count), False, cap)
    whole = WholeStream(means, mean, weight)
    size = thin_with_ratios(compile_kernel(kernel, 2), np.stack([x, s], axis=1), ratios, whole, limits, kept, log)
    assert sorted(kept[:size].tolist()) == expected and log.sizes.tolist() == sizes
    assert log.squared_ksd[-1] == pytest.approx(stein[np.ix_(expected, expected)].mean(), rel=1e-8, abs=1e-9)
    assert log.squared_mmd[-1] == pytest.approx(centred[np.ix_(expected, expected)].mean(), rel=1e-6, abs=1e-9)
