"""The online average is the average, whatever came and went; the measures are what their papers say."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinstream.ensemble import (
    EnsemblePrediction,
    accuracy,
    agreement,
    expected_calibration_error,
    total_variation,
)
from steinstream.errors import InputError


def softmax(logits):
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_after_ten_thousand_adds_and_drops_the_mean_is_the_recomputed_one(dtype):
    rng = np.random.default_rng(0)
    online, held, changes = EnsemblePrediction(), [], 0
    while changes < 10_000:
        if len(held) < 5 or (len(held) < 60 and rng.random() < 0.5):
            held.append(softmax(20.0 * rng.normal(size=(40, 10))).astype(dtype))
            online.add(held[-1])
        else:
            online.drop(held.pop(rng.integers(len(held))))
        changes += 1
    assert online.count == len(held)
    again = np.mean(np.array(held, dtype=np.float64), axis=0)
    assert np.abs(online.mean - again).max() < 1e-15  # a millionth is asked for
    fresh = EnsemblePrediction()
    for one in reversed(held):
        fresh.add(one)
    assert np.array_equal(online.mean, fresh.mean)  # to the last bit


def test_the_first_prediction_decides_the_kind():
    classes, values, logits = EnsemblePrediction(), EnsemblePrediction(), EnsemblePrediction()
    classes.add([[0.25, 0.75]])
    values.add([[1.0], [1.0]])
    logits.add([[3.0, -1.0]])
    assert (classes.kind, values.kind, logits.kind) == ("classes", "values", "values")
    with pytest.raises(InputError, match="apply softmax first"):
        logits.measures(labels=[0])
    with pytest.raises(InputError, match="input 0 is not a distribution"):
        classes.add([[3.0, -1.0]])


def test_values_have_a_mean_and_a_variance_however_large_those_were_that_went():
    rng = np.random.default_rng(1)
    online = EnsemblePrediction("values")
    wild = [rng.normal(size=30) * 1e5 for _ in range(50)]
    tame = [rng.normal(size=30) * 1e-3 for _ in range(20)]
    for one in [*wild, *tame]:
        online.add(one)
    for one in wild:
        online.drop(one)
    assert np.allclose(online.mean, np.mean(tame, axis=0), rtol=1e-10, atol=1e-16)
    assert np.allclose(online.variance, np.var(tame, axis=0), rtol=1e-8)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_sum_is_exact(values, random):
    online = EnsemblePrediction("values")
    for value in values:
        online.add([value])
    gone = random.sample(values, random.randrange(len(values)))
    left = list(values)
    for value in gone:
        online.drop([value])
        left.remove(value)
    on_grid = sum((Fraction(round(Fraction(value) * 2**60), 2**60) for value in left), Fraction(0))
    high, low = online._sums[0]
    assert Fraction(float(high[0])) + Fraction(float(low[0])) == on_grid


def test_agreement_and_total_variation_by_hand():
    p = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [1.0, 0.0, 0.0]]
    q = [[0.4, 0.4, 0.2], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]]
    assert agreement(p, q) == 0.5  # in the first row of q the first of equals counts
    assert total_variation(p, q) == pytest.approx((0.1 + 0.7 + 0.0 + 1.0) / 4)
    assert agreement(p, p) == 1.0 and total_variation(p, p) == 0.0


def test_calibration_error_by_hand():
    # confidences 0.9 (right), 0.92 (wrong), 0.61 (right), 1.0 (right) in bins of a tenth
    p = [[0.9, 0.1], [0.92, 0.08], [0.39, 0.61], [1.0, 0.0]]
    labels = [0, 1, 1, 0]
    by_bin = {8: [(0.9, 1)], 9: [(0.92, 0), (1.0, 1)], 6: [(0.61, 1)]}
    expected = sum(len(b) / 4 * abs(np.mean([r for _, r in b]) - np.mean([c for c, _ in b])) for b in by_bin.values())
    assert expected_calibration_error(p, labels, bins=10) == pytest.approx(expected)
    assert accuracy(p, labels) == 0.75


def test_calibration_error_is_that_of_a_plain_loop():
    rng = np.random.default_rng(2)
    p, labels = softmax(2.0 * rng.normal(size=(500, 7))), rng.integers(0, 7, size=500)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    total = 0.0
    for m in range(15):
        inside = (confidence > m / 15) & (confidence <= (m + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert expected_calibration_error(p, labels) == pytest.approx(total, rel=1e-12)


def test_a_calibrated_prediction_has_hardly_any_error_and_a_boastful_one_has():
    rng = np.random.default_rng(3)
    p = softmax(rng.normal(size=(50_000, 4)))
    labels = (rng.random((len(p), 1)) < p.cumsum(axis=1)).argmax(axis=1)
    boast = softmax(4.0 * np.log(p))
    assert expected_calibration_error(p, labels) < 0.01
    assert expected_calibration_error(boast, labels) > 0.25


def test_measures_says_what_it_can():
    online = EnsemblePrediction()
    online.add([[0.9, 0.1], [0.2, 0.8]])
    said = online.measures(labels=[0, 0], truth=[[1.0, 0.0], [0.6, 0.4]])
    assert said["networks"] == 1 and said["accuracy"] == 0.5 and said["agreement"] == 0.5
    assert said["total_variation"] == pytest.approx(0.25)
    assert said["expected_calibration_error"] == pytest.approx((0.1 + 0.8) / 2)
    assert online.measures() == {"networks": 1}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: EnsemblePrediction("logits"), "'classes' or 'values', got 'logits'"),
        (lambda: EnsemblePrediction(resolution=0.3), "power of two"),
        (lambda: EnsemblePrediction("classes").add([[2.0, -1.0]]), "input 0 is not a distribution"),
        (lambda: EnsemblePrediction("classes").add([0.5, 0.5]), "shape"),
        (lambda: EnsemblePrediction("values").add([math.nan]), "must be finite, got nan"),
        (lambda: EnsemblePrediction("values").add([1e60]), "cannot be summed"),
        (lambda: EnsemblePrediction().drop([[1.0, 0.0]]), "Cannot drop a network: the ensemble is empty"),
        (lambda: EnsemblePrediction().mean, "The ensemble is empty"),
        (lambda: EnsemblePrediction("classes").variance, 'available for kind "values" only'),
        (lambda: accuracy([[1.0, 0.0]], [2]), "from 0 to 1"),
        (lambda: agreement([[1.0, 0.0]], [[1.0, 0.0, 0.0]]), "shapes"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_a_prediction_of_another_shape_leaves_the_mean_alone():
    online = EnsemblePrediction()
    online.add([[0.5, 0.5]])
    with pytest.raises(InputError, match=r"shape \(2, 2\), expected \(1, 2\)"):
        online.add([[0.5, 0.5], [0.5, 0.5]])
    assert online.count == 1 and np.array_equal(online.mean, [[0.5, 0.5]])
