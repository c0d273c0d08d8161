"""Draws without scores, and features: the stream term alone decides, with the same guarantees."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine import reference
from steinstream._engine.reference import Reference
from steinstream.api import ArraySource, thin_source
from steinstream.thinner.features import FeatureMap
from steinstream.thinner.layout import DrawLayout
from steinstream.thinner.local_search import Selection
from steinstream.validation import Block, consecutive_ids
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import assert_same, groups, limits_at

IDENTITY = ss.Preconditioner.identity()


@settings(max_examples=50, deadline=None)
@given(
    streams(max_dim=6, max_length=30),
    kernels.filter(lambda kernel: not kernel.linear),
    growths,
    budgets,
    st.sampled_from([None, 4, 9]),
    st.integers(1, 3),
    rules,
)
def test_keeps_the_same_draws_as_the_reference(stream, kernel, growth, budget, cap, candidates, rule):
    x, _ = stream
    thinner = ss.Thinner(
        x.shape[1],
        kernel=kernel,
        growth=growth,
        budget=budget,
        rule=rule,
        size=cap,
        candidates=candidates,
        preconditioner=IDENTITY,
    )
    specified = Reference(kernel, stream_weight=1.0, scored=False)
    for t, group, names in groups(len(x), candidates):
        limits = limits_at(t, growth, budget, len(specified.draws) + 1, cap, rule)
        specified.step(x[group], np.zeros_like(x[group]), names, **limits)
        thinner.extend(x[group])
        scale = 1.0 + specified.mmd_weight
        assert thinner.objective == pytest.approx(specified.objective, rel=1e-9, abs=1e-12 * scale)
        if sorted(thinner.kept_ids) != sorted(specified.ids):
            return  # an exact tie, decided by rounding: the objective is the same
    kept = thinner.kept
    if len(kept):
        assert kept.scores is None and math.isnan(kept.ksd) and math.isnan(kept.history.ksd[-1])
        squares, mean = specified.squared_distances()
        assert mean == pytest.approx(1.0 if specified.mmd_weight else 0.0)
        assert min(squares) >= -1e-9


@settings(max_examples=30, deadline=None)
@given(
    streams(max_dim=4, max_length=60),
    st.sampled_from([None, 5]),
    st.integers(1, 3),
    st.integers(1, 20),
    st.booleans(),
    st.booleans(),
)
def test_blocks_and_checkpoints_do_not_matter(tmp_path_factory, stream, size, candidates, block, with_features, scored):
    x, s = stream
    s = s if scored else None
    choice = {"stream_on": "both"} if with_features and size else {}
    choice["validate_scores"] = False
    path = tmp_path_factory.mktemp("stream") / "run.npz"
    features = np.column_stack([x.sum(axis=1), x[:, 0] ** 2]) if with_features else None

    def part(rows):
        return None if features is None else features[rows]

    whole, parts = (ss.Thinner(x.shape[1], size=size, candidates=candidates, **choice) for _ in range(2))
    whole.extend(x, s, features=features)
    for first in range(0, len(x), block):
        rows = slice(first, first + block)
        parts.extend(x[rows], None if s is None else s[rows], features=part(rows))
        parts.save(path)
        parts = ss.Thinner.load(path)
    assert_same(whole, parts)


def banana(count=4000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    x[:, 1] += x[:, 0] ** 2
    return x


def error(kept, x):
    """Root mean square error of means and sds, in sds of the chain."""
    mean, sd = x.mean(axis=0), x.std(axis=0)
    return float(np.sqrt(np.mean([((kept.mean(0) - mean) / sd) ** 2, (kept.std(0) / sd - 1) ** 2])))


def test_the_kept_draws_represent_the_chain_better_than_evenly_spaced_ones():
    for seed in range(3):
        x = banana(seed=seed)
        kept, again = ss.thin(x, size=50), ss.thin(x, size=50, passes="auto")
        stride = np.mean([error(x[offset::80], x) for offset in range(0, 80, 10)])
        assert error(kept.draws, x) < 0.5 * stride and error(again.draws, x) < 0.5 * stride
        assert again.mmd < kept.mmd < 0.05
        assert "MMD" in repr(kept) and "no scores" in repr(kept)


def test_discrete_parameters_can_be_thinned():
    x = np.random.default_rng(0).poisson([3.0, 0.4], size=(3000, 2))
    kept = ss.thin(x, size=60)
    assert error(kept.draws, x) < 0.1
    assert set(map(tuple, kept.draws)) <= set(map(tuple, x.astype(float)))


def test_the_bound_holds_for_the_objective():
    """For independent draws; the weight of the stream term and its target are estimated from the same draws."""
    for scores in (True, False):
        squares = []
        for seed in range(15):
            x = np.random.default_rng(seed).normal(size=(1500, 4))
            thinner = ss.Thinner(4, size=30, preconditioner=ss.Preconditioner.length_scale(2.0))
            thinner.extend(x, -x if scores else None)
            squares.append((thinner.objective, thinner.bound**2))
        objective, bound = np.mean(squares, axis=0)
        assert objective <= bound <= 20 * objective


def test_the_removal_lemma_holds_for_the_objective():
    """min_j J(D without j) <= (1 - 1/N^2) J(D) + mean |h_i|^2 / N^2 with N = |D| - 1, scored or not."""
    rng = np.random.default_rng(0)
    for scored in (True, False):
        specified = Reference(ss.IMQ(), stream_weight=1.0, scored=scored)
        for t in range(40):
            x = rng.normal(size=(1, 3))
            limits = {"floor": 12, "budget": 0.0, "cap": 12, "rule": "paper"}
            specified.step(x, -x, [(0, t)], **limits)
            if len(specified.draws) < 3:
                continue
            squares, _ = specified.squared_distances()
            if scored:
                kept = np.array(specified.scores)
                squares = squares + ss.IMQ().diagonal(kept, np.array(specified.draws))
            others = len(specified.draws) - 1
            smallest = min(specified.objective_without(j) for j in range(others + 1))
            allowed = (1 - 1 / others**2) * specified.objective + np.mean(squares) / others**2
            assert smallest <= allowed * (1 + 1e-9)


@pytest.mark.parametrize(
    ("more", "scored"),
    [
        *[({"passes": passes}, scored) for passes in (2, "auto") for scored in (True, False)],
        ({"start": "sample"}, False),  # with scores, its stream weight is that of the subsample: another objective
    ],
)
def test_further_passes_and_local_search_lower_the_objective(more, scored):
    x = banana(2000)
    s = -np.column_stack([x[:, 0] - 2 * x[:, 0] * (x[:, 1] - x[:, 0] ** 2), x[:, 1] - x[:, 0] ** 2])
    fixed = ss.Preconditioner.estimate("covariance", x)

    def objective(**settings):
        config = ss.ThinConfig(size=40, preconditioner=fixed, **settings)
        return thin_source(ArraySource.of(x, s if scored else None), config).objective

    assert 0 < objective(**more) < objective()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.booleans())
def test_local_search_lowers_the_objective_as_the_reference_does(seed, size, scored):
    x = np.random.default_rng(seed).normal(size=(24, 2))
    block = Block(x, -x if scored else np.zeros((24, 0)), consecutive_ids(0, 0, 24))
    selection = Selection(block, ss.ThinConfig(size=size), IDENTITY, stream_weight=0.7).even()
    matrix, bias = reference.objective_matrix(ss.IMQ(), x, -x if scored else None, 0.7, size)
    chosen = selection.chosen.tolist()
    assert selection.energy == pytest.approx(reference.subset_energy(matrix, chosen, bias), abs=1e-9)
    expected = chosen
    for _ in range(10):
        before, expected = expected, reference.swap_subset(matrix, expected, bias)
        if expected == before:
            break
    assert sorted(selection.swap().chosen.tolist()) == sorted(expected)
    before = selection.energy
    assert selection.shake().energy <= before + 1e-9


def test_scores_are_given_with_every_draw_or_with_none():
    x = np.random.default_rng(0).normal(size=(50, 2))
    thinner = ss.Thinner(2, size=10)
    thinner.extend(x)
    with pytest.raises(ss.SteinstreamError, match="with scores and others without"):
        thinner.extend(x, -x)
    assert len(thinner) == 10 and thinner.seen == 50
    for wrong in ({"stream_weight": 0.0}, {"kernel": ss.IMQ(linear=1.0)}):
        with pytest.raises(ss.SteinstreamError, match="scores"):
            ss.Thinner(2, size=10, **wrong).extend(x)
    with pytest.raises(ss.SteinstreamError, match="second_scores were given without scores"):
        ss.Thinner(2, size=10).extend(x, second_scores=-x)


# -- features ------------------------------------------------------------------------------------------------------


def test_features_instead_of_the_draws_are_represented():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6))
    grid = np.linspace(-1, 1, 40)

    def predict(w):
        return np.tanh(np.outer(grid, w[:3])) @ w[3:]

    table = np.array([predict(w) for w in x])
    mean, sd = table.mean(axis=0), table.std(axis=0)

    def miss(rows):
        return float(np.sqrt(np.mean([((table[rows].mean(0) - mean) / sd) ** 2, (table[rows].std(0) / sd - 1) ** 2])))

    on_draws, on_features = ss.thin(x, size=30), ss.thin(x, size=30, features=predict)
    both = ss.thin(x, size=30, features=table, stream_on="both")
    stride = np.mean([miss(slice(offset, None, 100)) for offset in range(0, 100, 10)])
    assert miss(on_features.indices) < 0.5 * stride
    assert miss(on_features.indices) < miss(on_draws.indices)
    assert miss(both.indices) < stride
    assert np.array_equal(on_features.draws, x[on_features.indices])
    given_as_array = ss.thin(x, size=30, features=table)
    assert np.array_equal(given_as_array.ids, on_features.ids)
    live = ss.Thinner(6, size=30, features=predict)
    for draw in x[:300]:
        live.push(draw)
    other = ss.Thinner(6, size=30)
    other.extend(x[:300], features=table[:300])
    assert live.kept_ids == other.kept_ids


class Unchanged(FeatureMap):
    """Features as they are, whatever the stream."""

    def update(self, sketches):
        super().update(sketches)
        self._projection, self._centre = np.eye(self.sketch_width), np.zeros(self.sketch_width)
        return False


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=5, max_length=40), growths, st.sampled_from([None, 4, 9]), st.integers(1, 3), rules)
def test_features_that_equal_the_draws_keep_the_same_draws(stream, growth, cap, candidates, rule):
    x, s = stream
    choice = {"growth": growth, "rule": rule, "size": cap, "candidates": candidates, "preconditioner": IDENTITY}
    on_draws, on_features = (ss.Thinner(x.shape[1], validate_scores=False, **choice) for _ in range(2))
    layout = DrawLayout(x.shape[1], features=Unchanged(x.shape[1]), stream_on="features")
    on_features.state.set_layout(on_features.config, layout)
    for first in range(0, len(x), 7):
        rows = slice(first, first + 7)
        on_draws.extend(x[rows], s[rows])
        on_features.extend(x[rows], s[rows], features=x[rows])
        assert on_draws.kept_ids == on_features.kept_ids
        assert on_draws.objective == on_features.objective or not len(on_draws)


def test_scores_and_features_are_both_used():
    x = np.random.default_rng(4).normal(size=(3000, 4))
    values = np.exp(x[:, 0])
    kept, plain = ss.thin(x, -x, size=40, features=values), ss.thin(x, -x, size=40)
    assert kept.scores is not None and kept.ksd < 2.0 * plain.ksd
    assert abs(values[kept.indices].mean() - values.mean()) < 0.1 * values.std()


def test_long_feature_vectors_are_sketched():
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(3, 5000))
    x = rng.normal(size=(1500, 3))
    kept = ss.thin(x, size=40, features=x @ weights)
    exact = ss.thin(x, size=40)
    assert error(kept.draws, x) < 2.0 * error(exact.draws, x) + 0.05


def test_features_that_cannot_be_used_are_refused():
    x = np.random.default_rng(0).normal(size=(50, 2))
    for message, call in {
        "one row per draw": lambda: ss.thin(x, size=5, features=np.ones((49, 2))),
        "features have no effect": lambda: ss.thin(x, -x, size=5, features=x, stream_weight=0.0),
        "needs features": lambda: ss.thin(x, size=5, stream_on="features"),
        "feature vector of chain 0, draw 3 is nan": lambda: ss.thin(
            x, size=5, features=np.where(np.arange(50) == 3, np.nan, 1.0)
        ),
        "different lengths": lambda: ss.thin(x, size=5, features=lambda v: np.ones(1 + (v[0] > 0))),
        "empty vectors": lambda: ss.thin(x, size=5, features=lambda v: []),
    }.items():
        with pytest.raises(ss.SteinstreamError, match=message):
            call()
    thinner = ss.Thinner(2, size=5)
    thinner.extend(x, features=x[:, :1])
    with pytest.raises(ss.SteinstreamError, match="Expected 1 features per draw, got 2"):
        thinner.extend(x, features=x)
    with pytest.raises(ss.SteinstreamError, match="with features and others without"):
        thinner.extend(x)
    thinner = ss.Thinner(2, size=5, initial=(x[:3], None), preconditioner=IDENTITY)
    with pytest.raises(ss.SteinstreamError, match=r"Those of an initial set .* Thinner\(features=function\)"):
        thinner.extend(x, features=x)


def test_features_of_chains_have_the_shape_of_the_chains():
    x = np.random.default_rng(0).normal(size=(2, 100, 2))
    for chains in (1, 2):
        draws, features = x[:chains], np.sum(x[:chains], axis=2)
        kept = ss.thin(draws, size=9, features=features)
        assert np.array_equal(kept.ids, ss.thin(draws, size=9, features=np.sum).ids)
        assert np.array_equal(kept.ids, ss.thin(draws, size=9, features=features.ravel()).ids)


def test_the_function_of_the_features_is_not_called_at_invalid_draws():
    x = np.random.default_rng(0).normal(size=(200, 2))
    x[7], calls = np.nan, []

    def predict(draw):
        calls.append(draw[0])
        return [int(10 * draw[0]), draw[1]]

    kept = ss.thin(x, size=9, features=predict, on_bad="skip")
    thinner = ss.Thinner(2, size=9, features=predict, on_bad="skip", preconditioner=kept.preconditioner)
    thinner.extend(x)
    assert np.array_equal(kept.ids, thinner.kept.ids) and kept.settings["skipped"] == thinner.skipped == 1
    assert np.isfinite(calls).all()
    with pytest.raises(ss.SteinstreamError, match="draw of chain 0, draw 7 is nan"):
        ss.thin(x, size=9, features=predict)


def test_an_initial_set_has_the_features_of_the_function():
    x = np.random.default_rng(0).normal(size=(400, 2))
    thinner = ss.Thinner(2, size=20, features=np.sum, initial=(x[:20], None), preconditioner=IDENTITY)
    for rows in (slice(0, 5), slice(5, None)):  # the first ones replace few of the initial draws
        thinner.extend(x[rows])
        kept = thinner.kept
        assert np.array_equal(kept.stream_summary.kept[:, 0], kept.draws.sum(axis=1))
    assert abs(kept.draws.sum(axis=1).mean() - x.sum(axis=1).mean()) < 0.2


# -- float32 storage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("with_features", [True, False])
def test_float32_storage_keeps_sets_of_the_same_quality(tmp_path, scored, with_features):
    x = banana(1200)
    s = -np.column_stack([x[:, 0] - 2 * x[:, 0] * (x[:, 1] - x[:, 0] ** 2), x[:, 1] - x[:, 0] ** 2])
    wide, scores = np.repeat(x, 300, axis=1) / math.sqrt(300), np.repeat(s, 300, axis=1) / math.sqrt(300)
    features = x if with_features else None
    choice = {"size": 25, "storage": "float32", "preconditioner": ss.Preconditioner.length_scale(2.0)}

    def extend(thinner, rows):
        given = None if features is None else features[rows]
        thinner.extend(wide[rows], scores[rows] if scored else None, features=given)

    whole, parts = ss.Thinner(600, **choice), ss.Thinner(600, **choice)
    extend(whole, slice(None))
    for first in range(0, 1200, 170):
        extend(parts, slice(first, first + 170))
        parts.save(tmp_path / "run.npz")
        parts = ss.Thinner.load(tmp_path / "run.npz")
    assert_same(whole, parts)
    assert whole.mmd < 0.15
    if not scored:  # the scores of repeated coordinates are not those of a density
        stride = np.mean([error(x[offset::48], x) for offset in range(0, 48, 6)])
        assert error(x[whole.kept.indices], x) < 0.8 * stride


def test_thin_estimates_scales_for_float32_storage():
    x = np.random.default_rng(0).normal(size=(400, 6)) * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    for scores in (-x / x.var(axis=0), None):
        assert str(ss.thin(x, scores, size=10, storage="float32").preconditioner) == "scales"
