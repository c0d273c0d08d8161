"""Preconditioner: what can be given for them, and what is made of draws that do not move or lie far out."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from tests.thinners import ksd_thinner, thin_by_ksd


def normal(draws=400, dim=2):
    return np.random.default_rng(0).normal(size=(draws, dim))


def test_an_array_stands_for_coordinates():
    x = normal()
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    for array, meant in (
        ([1.0, 2.0], ss.Preconditioner.scales([1.0, 2.0])),
        (np.array([1, 2]), ss.Preconditioner.scales([1.0, 2.0])),
        (covariance, ss.Preconditioner.covariance(covariance)),
    ):
        thinner = ksd_thinner(2, size=10, preconditioner=array)
        assert thinner.extend(x, -x).ksd == thin_by_ksd(x, -x, size=10, preconditioner=meant).ksd
        assert ss.ksd(x, -x, preconditioner=array) == ss.ksd(x, -x, preconditioner=meant)
        kept = thin_by_ksd(x, -x, size=10, preconditioner=array)
        assert np.array_equal(kept.preconditioner.factor, meant.factor)
        free = thin_by_ksd(x, log_density=-0.5 * np.sum(x**2, axis=1), proxy="gaussian", size=10, preconditioner=array)
        assert np.array_equal(free.preconditioner.factor, meant.factor)
        assert np.array_equal(ss.merge([kept, thinner], preconditioner=array).preconditioner.factor, meant.factor)


@pytest.mark.parametrize("wrong", [3.0, [[[1.0]]], ["a", "b"], [1.0, -1.0], [[1.0, 0.0], [1.0, 1.0]], {}])
def test_what_is_not_a_preconditioner_is_rejected_at_once(wrong):
    x = normal(20)
    with pytest.raises(InputError, match=r"preconditioner|scale|covariance"):
        ksd_thinner(2, preconditioner=wrong)
    with pytest.raises(InputError, match=r"preconditioner|scale|covariance"):
        thin_by_ksd(x, -x, preconditioner=wrong)


def test_the_error_names_what_is_possible():
    with pytest.raises(InputError, match=r"auto, or pass an ss\.Preconditioner, an array of d scales"):
        ksd_thinner(2, preconditioner="round")
    with pytest.raises(InputError, match=r"Pass an ss\.Preconditioner, an array"):
        thin_by_ksd(normal(20), -normal(20), preconditioner=7.0)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("identity", ss.Preconditioner.identity()), ("auto", ss.Streaming()), ("scale", ss.Warmup("scale", 1000))],
)
def test_a_thinner_takes_names_and_estimates_while_the_stream_runs(name, meant):
    x = normal(1500)
    one, other = (ksd_thinner(2, size=20, preconditioner=chosen) for chosen in (name, meant))
    assert one.extend(x, -x) == other.extend(x, -x)


@pytest.mark.parametrize(
    "factor",
    [0.0, -1.0, np.nan, [1.0, -1.0], [1.0, np.inf], "a", [[1.0, 0.0]], [[1.0, 0.5], [0.5, 1.0]], np.ones((1, 1, 1)),
     [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [np.nan, 1.0]]],
)  # fmt: skip
def test_a_factor_that_cannot_be_divided_by_is_refused(factor):
    with pytest.raises(InputError, match="preconditioner"):
        ss.Preconditioner(factor)


def test_a_factor_and_a_centre_may_be_lists():
    x = normal(20)
    listed = ss.Preconditioner([[1.0, 0.0], [0.5, 2.0]], centre=[1.0, 2.0])
    arrays = ss.Preconditioner(np.array([[1.0, 0.0], [0.5, 2.0]]), centre=np.array([1.0, 2.0]))
    for one, other in zip(listed.apply(x, -x), arrays.apply(x, -x), strict=True):
        assert np.array_equal(one, other)
    for centre in ([np.nan, 1.0], 1.0, "a"):
        with pytest.raises(InputError, match="centre"):
            ss.Preconditioner([1.0, 2.0], centre=centre)


def test_a_warmup_takes_a_whole_number_of_draws():
    for wrong in (100.5, "100", True, 1):
        with pytest.raises(InputError, match="draws"):
            ss.Warmup(draws=wrong)


def test_a_number_of_draws_in_place_of_the_kind_of_a_warmup_is_an_error_with_the_right_call():
    with pytest.raises(InputError, match=r"kind of a warm-up must be one of .*, got 500\..*ss\.Warmup\(draws=500\)"):
        ss.Warmup(500)
    assert ss.Warmup(draws=500).draws == 500


@pytest.mark.parametrize("kind", ["scales", "covariance", "auto"])
@pytest.mark.parametrize("value", [0.1, 0.5, 1e9 / 3])
def test_a_coordinate_that_stands_still_has_the_unit_one(kind, value):
    x = normal(1000)
    unit = np.sqrt(2 * 2)  # estimated coordinates multiply the covariance by 2 d
    still = ss.Preconditioner.estimate(kind, np.full((1000, 2), value)).factor
    assert np.array_equal(still, np.full(2, unit))
    half = ss.Preconditioner.estimate(kind, np.column_stack([x[:, 0], np.full(1000, value)])).factor
    widths = half if half.ndim == 1 else np.diagonal(half)
    assert widths[1] == pytest.approx(unit, rel=1e-12)
    assert widths[0] == pytest.approx(unit * x[:, 0].std(), rel=1e-3)  # a constant parameter does not change the other


def test_estimates_need_draws():
    for draws in (np.zeros((0, 2)), np.zeros(3)):
        with pytest.raises(InputError, match="shape"):
            ss.Preconditioner.estimate("scales", draws)


@pytest.mark.parametrize("offset", [1e4, 1e8, 1e9])
def test_the_median_distance_does_not_depend_on_where_the_draws_lie(offset):
    x = np.round(normal(2000) * 2.0**16) / 2.0**16  # whose sums with the offset are exact
    here, there = (ss.Preconditioner.estimate("scale", x + shift).factor for shift in (0.0, offset))
    assert there == pytest.approx(here, rel=1e-6)


def test_the_median_distance_looks_at_no_more_than_1000_draws(monkeypatch):
    looked = []
    median = np.median
    monkeypatch.setattr(np, "median", lambda values: looked.append(len(values)) or median(values))
    ss.Preconditioner.estimate("scale", normal(1999))
    assert 0 < looked[0] <= 1000 * 999 // 2


def test_complex_factors_are_refused():
    with pytest.raises(InputError, match="must be an array of numbers"):
        ss.Preconditioner(np.array([1.0 + 1.0j, 2.0]))
