"""Thinning with density ratios keeps the same draws as the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream import schedules
from steinstream._engine.density_ratio import thin_with_ratios
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
    kept, log = np.zeros(count, dtype=np.int64), StepLog(np.zeros(count, np.int64), np.zeros(count), np.zeros((0, 3)))
    size = thin_with_ratios(kernel.compiled(2), np.stack([x, s], axis=1), ratios, limits, kept, log)
    assert sorted(kept[:size].tolist()) == sorted(draw for _, draw in specified.ids)
    assert log.sizes.tolist() == sizes
    for measured, (expected, scale) in zip(log.squared_ksd, squares, strict=True):
        assert measured == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)
