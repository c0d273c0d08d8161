"""Coordinates: what can be given for them, and what is made of draws that do not move or lie far out."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError


def normal(draws=400, dim=2):
    return np.random.default_rng(0).normal(size=(draws, dim))


def test_an_array_stands_for_coordinates():
    x = normal()
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    for array, meant in (
        ([1.0, 2.0], ss.Coordinates.scales([1.0, 2.0])),
        (np.array([1, 2]), ss.Coordinates.scales([1.0, 2.0])),
        (covariance, ss.Coordinates.covariance(covariance)),
    ):
        thinner = ss.Thinner(2, size=10, coordinates=array)
        assert thinner.extend(x, -x).ksd == ss.thin(x, -x, size=10, coordinates=meant).ksd
        kept = ss.thin(x, -x, size=10, coordinates=array)
        assert np.array_equal(kept.coordinates.factor, meant.factor)
        free = ss.thin(x, log_density=-0.5 * np.sum(x**2, axis=1), proxy="gaussian", size=10, coordinates=array)
        assert np.array_equal(free.coordinates.factor, meant.factor)
        assert np.array_equal(ss.merge([kept, thinner], coordinates=array).coordinates.factor, meant.factor)


@pytest.mark.parametrize("wrong", ["auto", 3.0, [[[1.0]]], ["a", "b"], [1.0, -1.0], [[1.0, 0.0], [1.0, 1.0]], {}])
def test_what_are_no_coordinates_is_refused_at_once(wrong):
    x = normal(20)
    with pytest.raises(InputError, match=r"oordinates|scale|covariance"):
        ss.Thinner(2, coordinates=wrong)
    if wrong != "auto":
        with pytest.raises(InputError, match=r"oordinates|scale|covariance"):
            ss.thin(x, -x, coordinates=wrong)


def test_the_error_names_what_is_possible():
    with pytest.raises(InputError, match=r"ss\.Warmup or ss\.Streaming, ss\.Coordinates, an array of d scales"):
        ss.Thinner(2, coordinates="auto")
    x = normal(20)
    for wrong in (ss.Warmup(), None):
        with pytest.raises(InputError, match=r"Give ss\.Coordinates, an array"):
            ss.thin(x, -x, coordinates=wrong)


@pytest.mark.parametrize(
    "factor",
    [0.0, -1.0, np.nan, [1.0, -1.0], [1.0, np.inf], "a", [[1.0, 0.0]], [[1.0, 0.5], [0.5, 1.0]], np.ones((1, 1, 1)),
     [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [np.nan, 1.0]]],
)  # fmt: skip
def test_a_factor_that_cannot_be_divided_by_is_refused(factor):
    with pytest.raises(InputError, match="oordinates"):
        ss.Coordinates(factor)


def test_a_factor_and_a_centre_may_be_lists():
    x = normal(20)
    listed = ss.Coordinates([[1.0, 0.0], [0.5, 2.0]], centre=[1.0, 2.0])
    arrays = ss.Coordinates(np.array([[1.0, 0.0], [0.5, 2.0]]), centre=np.array([1.0, 2.0]))
    for one, other in zip(listed.apply(x, -x), arrays.apply(x, -x), strict=True):
        assert np.array_equal(one, other)
    for centre in ([np.nan, 1.0], 1.0, "a"):
        with pytest.raises(InputError, match="centre"):
            ss.Coordinates([1.0, 2.0], centre=centre)


def test_a_warmup_takes_a_whole_number_of_draws():
    for wrong in (100.5, "100", True, 1):
        with pytest.raises(InputError, match="draws"):
            ss.Warmup(draws=wrong)
