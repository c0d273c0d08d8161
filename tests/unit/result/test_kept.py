"""Kept: a sequence of draws, weighted expectations, conversions."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steinstream as ss
from steinstream.errors import InputError


def kept_set(count: int = 30, dim: int = 3, weights: bool = False, seed: int = 0) -> ss.Kept:
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(count, dim))
    ids = np.column_stack([np.zeros(count, dtype=np.int64), np.arange(count) * 7])
    none = ss.History.empty()
    share = rng.random(count) if weights else None
    return ss.Kept(draws, -draws, ids, 0.1, none, weights=None if share is None else share / share.sum())


def test_a_kept_set_is_a_sequence_of_draws():
    kept = kept_set()
    assert len(kept) == 30 and np.array_equal(np.asarray(kept), kept.draws)
    assert np.array_equal(kept[3], kept.draws[3]) and np.array_equal(kept[::2], kept.draws[::2])
    assert all(np.array_equal(one, other) for one, other in zip(kept, kept.draws, strict=True))
    assert np.asarray(kept, dtype=np.float32).dtype == np.float32
    copied = np.array(kept, copy=True)
    copied[:] = 0.0
    assert kept.draws.any()


def test_indices_exist_for_one_chain_only():
    kept = kept_set()
    assert np.array_equal(kept.indices, kept.ids[:, 1])
    several = replace(kept, ids=np.column_stack([np.arange(30) % 2, np.arange(30)]))
    with pytest.raises(InputError, match="from 2 chains"):
        several.indices  # noqa: B018


@given(st.integers(0, 1000), st.integers(1, 40))
def test_weights_count_like_repeated_draws(seed, count):
    """Integer weights give the mean, covariance and expectations of the set in which draws are repeated."""
    plain = kept_set(count, 2, seed=seed)
    copies = np.random.default_rng(seed).integers(1, 4, size=count)
    weighted = replace(plain, weights=copies / copies.sum())
    repeated = np.repeat(plain.draws, copies, axis=0)
    np.testing.assert_allclose(weighted.mean(), repeated.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(weighted.cov(), np.cov(repeated.T, bias=True).reshape(2, 2), atol=1e-12)
    np.testing.assert_allclose(weighted.expect(lambda x: x**3), (repeated**3).mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(weighted.summary().sd, repeated.std(axis=0), atol=1e-12)


@given(st.integers(0, 1000), st.booleans())
def test_quantiles_increase_and_stay_within_the_draws(seed, weights):
    kept = kept_set(25, 3, weights, seed)
    values = kept.quantile(np.linspace(0, 1, 21))
    assert values.shape == (21, 3) and (np.diff(values, axis=0) >= 0).all()
    assert np.array_equal(values[0], kept.draws.min(axis=0)) and np.array_equal(values[-1], kept.draws.max(axis=0))
    assert np.array_equal(kept.quantile(0.5), kept.quantile([0.5])[0])


def test_equal_weights_give_hazen_quantiles():
    kept = kept_set(101)
    np.testing.assert_allclose(
        kept.quantile([0.05, 0.5, 0.95]), np.quantile(kept.draws, [0.05, 0.5, 0.95], axis=0, method="hazen")
    )


def test_a_probability_outside_of_0_to_1_is_rejected():
    with pytest.raises(InputError, match="between 0 and 1"):
        kept_set().quantile(1.5)


def test_the_summary_prints_a_row_per_parameter():
    text = str(kept_set().with_names(["mu", "tau", "theta"]).summary([0.1]))
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["mu", "tau", "theta"]
    assert text.splitlines()[0].split() == ["mean", "sd", "10%"]


def test_an_empty_set_has_no_expectations():
    with pytest.raises(InputError, match="empty"):
        kept_set(0).mean()


def test_a_dataframe_has_ids_parameters_weights_and_scalar_variables():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    kept = kept_set(weights=True).with_names(["a", "b", "c"])
    kept.variables.update(sigma=ss.Variable(np.arange(30.0)), matrix=ss.Variable(np.ones((30, 2)), ("k",)))
    frame = kept.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["chain", "draw", "a", "b", "c", "weight", "sigma"]
    assert np.array_equal(frame[["a", "b", "c"]].to_numpy(), kept.draws)


def test_names_must_fit():
    for wrong in ("abc", ["a", "b"], ["a", "a", "b"], [1, 2, 3]):
        with pytest.raises(InputError, match="names must be 3 different strings"):
            kept_set().with_names(wrong)


def test_a_set_with_variables_can_be_pickled():
    kept = replace(kept_set(5), variables={"a": ss.Variable(np.arange(5))})
    back = pickle.loads(pickle.dumps(kept))
    assert np.array_equal(back.variables["a"].values, np.arange(5)) and back.variables["a"].coords == {}


@pytest.mark.filterwarnings("error")
def test_scores_out_of_range_are_refused_before_they_are_averaged():
    with pytest.raises(InputError, match="above the limit"):
        kept_set().with_scores(np.full((30, 3), 1e308))
