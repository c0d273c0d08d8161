"""Expectations of functions and arrays over the kept draws, without evaluations that failed."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import FailedRunsWarning, InputError


def squares(x):
    return x**2


@pytest.fixture
def kept():
    draws = np.random.default_rng(0).normal(size=(1200, 2))
    return ss.thin(draws, -draws, size=60)


def test_an_array_of_outputs_is_averaged_and_nan_left_out(kept):
    values = np.array([squares(x) for x in kept.draws])
    np.testing.assert_allclose(kept.expect(values), kept.expect(squares))
    values[3] = np.nan
    with pytest.warns(FailedRunsWarning, match="1 of 60 evaluations"):
        assert kept.expect(values) == pytest.approx(np.delete(values, 3, axis=0).mean(axis=0))
    with pytest.raises(InputError, match="there are 60 kept draws"):
        kept.expect(values[:5])


def test_a_function_that_always_fails_is_an_error(kept):
    with pytest.raises(InputError, match=r"All .* evaluations failed; one of them: ZeroDivisionError"):
        kept.expect(lambda x: 1 / 0)
    with pytest.raises(InputError, match="different shapes"):
        kept.expect(lambda x: np.zeros(1 + (x[0] > 0)))
    with pytest.raises(InputError, match="cannot be sent to another process"):
        kept.average(lambda x: x, processes=2)
