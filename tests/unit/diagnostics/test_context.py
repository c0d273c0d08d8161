"""The context separates burn-in from the rest, and normalises by ranks."""

from __future__ import annotations

import numpy as np

from steinstream.diagnostics.context import DiagnosticContext, rank_normalise, standard_deviations
from tests.chains import as_stream, autoregression


def test_rank_normalisation_follows_ranks_and_ties_share():
    x = np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 5.0]])
    normal = rank_normalise(x)
    assert (np.argsort(normal[:, 0]) == [1, 2, 0]).all() and abs(normal[:, 0].sum()) < 1e-12
    assert normal[0, 1] == normal[1, 1] < normal[2, 1]


def test_burn_in_is_excluded_from_stream_and_kept_draws():
    x = autoregression(1000, 2, 0.5, 0)
    x[:100] += np.linspace(60, 6, 100)[:, None]
    stream = as_stream(x)
    context = DiagnosticContext(x[::10], stream.ids[::10], stream)
    assert context.settled_rows[0][0] > 80 and len(context.draws) == 1000 - context.settled_rows[0][0]
    assert np.flatnonzero(context.burn_in).tolist() == list(range(int(context.burn_in.sum())))
    assert context.kept_count == len(context.kept) == 100 - context.burn_in.sum() and np.abs(context.mean).max() < 0.5


def test_burn_in_ends_where_the_thinner_found_its_end_if_that_is_later():
    x = autoregression(1000, 2, 0.5, 0)
    stream = as_stream(x)
    kept = x[::10], stream.ids[::10], stream
    assert DiagnosticContext(*kept).settled_rows[0][0] == 0
    for context in (DiagnosticContext(*kept, burn_in_ends={0: 300}), DiagnosticContext(*kept, burn_in_ends={5: 300})):
        first = 300 if context.settled_rows[0][0] else 0
        assert context.unweighted().settled_rows[0][0] == context.settled_rows[0][0] == first
    assert len(DiagnosticContext(*kept, burn_in_ends={0: 5000}).draws) == 1000, "not an index of this stream"


def test_constant_parameters_are_removed_with_their_names():
    x = np.random.default_rng(0).normal(size=(500, 3))
    x[:, 1] = 7.0
    stream = as_stream(x)
    context, removed = DiagnosticContext(x[:50], stream.ids[:50], stream, ["a", "b", "c"]).without_constants()
    assert removed == ["b"] and context.names == ["a", "c"] and context.draws.shape[1] == context.kept.shape[1] == 2
    unchanged, none = context.without_constants()
    assert unchanged is context and none == []


def test_weights_are_normalised_and_zero_weights_are_left_out():
    x = np.random.default_rng(0).normal(size=(300, 2))
    stream, weights = as_stream(x), np.r_[np.zeros(10), np.arange(1.0, 21.0)]
    context = DiagnosticContext(x[:30], stream.ids[:30], stream, weights=weights)
    assert context.is_weighted and len(context.kept) == 20 and context.kept_count == 30
    assert context.weights.sum() == 1.0
    assert not context.unweighted().is_weighted and len(context.unweighted().kept) == 30


def test_the_standard_deviation_of_a_constant_is_one():
    assert standard_deviations(np.array([[1.0, 2.0], [1.0, 4.0]])).tolist() == [1.0, 1.0]
    assert standard_deviations(np.array([[0.1, 0.0], [0.1, 4.0]])).tolist() == [1.0, 2.0]
