"""With float32 storage the same draws are kept as with float64, up to rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.float32 import Scaling, inner_products, scaled_inner_products
from steinstream._engine.reference import Reference
from steinstream._engine.reference import inner_products as specified
from steinstream.errors import InputError, NegatedScoresError
from steinstream.thinner.features import FeatureMap
from steinstream.thinner.stream_term import StreamTerm
from steinstream.validation import consecutive_ids
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import groups, ksd_thinner, limits_at, magnitude

plain = kernels.filter(lambda kernel: not kernel.linear)


def singles(stream):
    """Numbers that float32 holds, so that storing changes nothing."""
    return tuple(part.astype(np.float32).astype(np.float64) for part in stream)


def both(dim, **options):
    return [ksd_thinner(dim, storage=storage, validate_scores=False, **options) for storage in ("float64", "float32")]


@settings(max_examples=100, deadline=None)
@given(streams(), plain, growths, budgets, st.sampled_from([None, 1, 4, 9]), st.integers(1, 4), rules)
def test_keeps_the_same_draws_as_the_specification(stream, kernel, growth, budget, cap, candidates, rule):
    x, s = singles(stream)
    _, thinner = both(
        x.shape[1], kernel=kernel, growth=growth, budget=budget, rule=rule, size=cap, candidates=candidates
    )
    reference = Reference(kernel)
    for t, group, names in groups(len(x), candidates):
        before = set(reference.ids)
        limits = limits_at(t, growth, budget, len(reference.draws) + 1, cap, rule)
        reference.step(x[group], s[group], names, **limits)
        step = thinner.extend(x[group], s[group])
        kept = thinner.kept
        assert sorted(map(tuple, kept.ids.tolist())) == sorted(reference.ids), f"step {t}"
        assert set(step.added) == set(reference.ids) - before
        assert set(step.dropped) == before - set(reference.ids)
        assert kept.ksd**2 == pytest.approx(reference.squared_ksd, rel=1e-9, abs=1e-12 * magnitude(reference))
        assert np.array_equal(kept.draws, x[[draw for _, draw in sorted(reference.ids)]])


PRECONDITIONERS = {
    "identity": ss.Preconditioner.identity(),
    "length": ss.Preconditioner.length_scale(30.0),
    "scales": ss.Preconditioner.scales(np.linspace(5.0, 60.0, 1001)),
    "streaming": ss.Streaming(first=40),
    "warmup": ss.Warmup("scale", 50),
}


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS.values(), ids=PRECONDITIONERS)
@pytest.mark.parametrize("candidates", [1, 3])
def test_at_a_thousand_dimensions_it_is_the_thinner_up_to_rounding(preconditioner, candidates):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 1001))
    x, s = singles([x, rng.normal(size=x.shape) - x])
    narrow, wide = both(1001, preconditioner=preconditioner, size=25, candidates=candidates)
    for thinner in (narrow, wide):
        thinner.extend(x, s)
    a, b = narrow.kept, wide.kept
    assert np.array_equal(a.ids, b.ids)
    assert b.ksd == pytest.approx(a.ksd, rel=1e-10)
    assert np.array_equal(a.draws, b.draws) and b.draws.dtype == b.scores.dtype == np.float32
    assert np.allclose(a.history.ksd, b.history.ksd, rtol=1e-10)


@pytest.mark.parametrize("dim", [1, 31, 32, 33, 1000])
def test_inner_products_are_those_of_the_specification(dim):
    rng = np.random.default_rng(dim)
    draws = rng.normal(size=(4, dim)).astype(np.float32)
    wide, scales, sums = draws.astype(np.float64), rng.uniform(0.5, 2.0, dim), np.zeros(3)
    terms = np.abs(wide).max() ** 2 * dim * 8
    inner_products(*draws, sums)
    assert sums == pytest.approx(specified(*wide, np.ones(dim)), abs=1e-14 * terms)
    scaled_inner_products(*draws, Scaling(scales, 1 / scales), sums)
    assert sums == pytest.approx(specified(*wide, scales), abs=1e-14 * terms * 4)


def test_blocks_do_not_change_a_bit():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 300))
    kept = []
    for size in (1, 7, 200):
        thinner = ksd_thinner(300, storage="float32", preconditioner=ss.Streaming(first=30), size=12)
        for first in range(0, 200, size):
            thinner.extend(x[first : first + size], -x[first : first + size])
        kept.append(thinner.kept)
    for other in kept[1:]:
        assert np.array_equal(other.ids, kept[0].ids) and other.ksd == kept[0].ksd


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 300))
    whole = ksd_thinner(300, storage="float32", growth="linear", candidates=2)
    whole.extend(x, -x)
    first = ksd_thinner(300, storage="float32", growth="linear", candidates=2)
    first.extend(x[:101], -x[:101])
    first.save(tmp_path / "half.npz")
    second = ss.Thinner.load(tmp_path / "half.npz")
    assert second.config.storage == second.settings["config"]["storage"] == "float32"
    second.extend(x[101:], -x[101:])
    one, other = whole.state.dictionary.state(), second.state.dictionary.state()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert whole.ksd == second.ksd and np.array_equal(whole.history.ksd, second.history.ksd)


@pytest.mark.parametrize("huge", [1e8, 1e16])
def test_nothing_drifts_after_a_burn_in_with_huge_scores(huge):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 50))
    s = -x
    s[:100] *= huge
    thinner = ksd_thinner(50, storage="float32", size=10, validate_scores=False)
    thinner.extend(x, s)
    kept = thinner.kept
    matrix = kept.kernel.matrix(kept.draws, kept.scores, kept.draws, kept.scores)
    assert kept.ids[:, 1].min() >= 100
    assert kept.ksd == pytest.approx(math.sqrt(math.fsum(matrix.ravel())) / 10, rel=1e-12)


def test_an_initial_set_and_a_second_pass_work():
    x = np.random.default_rng(5).normal(size=(300, 40))
    narrow, wide = both(40, size=8, initial=(x[:5], -x[:5]))
    for thinner in (narrow, wide):
        thinner.extend(x, -x)
        thinner.start_pass()
        thinner.extend(x, -x)
    assert np.array_equal(narrow.kept.ids, wide.kept.ids)
    assert wide.ksd == pytest.approx(narrow.ksd, rel=1e-6)


def test_what_cannot_be_stored_is_refused_with_a_remedy():
    with pytest.raises(InputError, match=r"covariance.*float32") as caught:
        ksd_thinner(3, storage="float32", preconditioner=ss.Preconditioner.covariance(np.eye(3)))
    assert "length_scale" in caught.value.remedy
    with pytest.raises(InputError, match="storage must be 'float64' or 'float32', got 'float16'"):
        ksd_thinner(3, storage="float16")
    thinner = ksd_thinner(2, storage="float32")
    for more in ({"second_scores": [1.0, 2.0]}, {"pinned": True}):
        with pytest.raises(InputError, match="neither pins nor second scores"):
            thinner.push([1.0, 2.0], [1.0, 2.0], **more)
    thinner.push([1.0, 2.0], [1.0, 2.0])  # as if nothing had been
    with pytest.raises(InputError, match="cannot be pinned"):
        thinner.pin([(0, 0)])
    for words, asked in (
        ("cost", {"cost_weight": 1.0}),
        ("linear", {"kernel": ss.IMQ(linear=1.0)}),
    ):
        with pytest.raises(InputError, match=words):
            ksd_thinner(2, storage="float32", **asked)
    draws, scores = np.ones((2, 2)), [[1.0, 2.0], [1e60, 1.0]]
    with pytest.raises(InputError, match=r"score of chain 0, draw 1 is 1e\+60"):
        ksd_thinner(2, storage="float32").extend(draws, scores)
    skipping = ksd_thinner(2, storage="float32", on_bad="skip")
    assert skipping.extend(draws, scores).size == 1 and skipping.skipped == 1


def test_the_sign_of_wide_scores_is_checked_on_some_coordinates():
    x = np.random.default_rng(6).normal(size=(100, 25_000)).astype(np.float32)
    thinner = ksd_thinner(25_000, storage="float32", size=2)
    with pytest.raises(NegatedScoresError, match="-8334"):
        thinner.extend(x, x)
    thinner.extend(x, -x)
    assert len(thinner.state.stein_identity.mean_draw) == 8334
    assert len(thinner.kept.stream.draws) == 0  # a subsample would be larger than the kept set


def test_the_distance_of_many_draws_to_the_stream_does_not_depend_on_their_order():
    points = np.random.default_rng(0).normal(size=(1500, 2))  # the sum over all pairs is beyond the exact range
    terms = [StreamTerm(ss.IMQ(), FeatureMap(2), 1.0, has_scores=False) for _ in range(2)]
    for term, order in zip(terms, (np.arange(1500), np.random.default_rng(1).permutation(1500)), strict=True):
        term.observe(points, consecutive_ids(0, 0, 1500), [], first_pass=True)
        for row in order:
            term.insert(points[row], float(row))
    assert terms[0].squared_mmd() == terms[1].squared_mmd() and terms[0].mmd == terms[1].mmd


@pytest.mark.parametrize("scored", [True, False], ids=["scores", "no scores"])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_start_with_a_sample_lowers_the_objective(scored, passes):
    x = np.random.default_rng(6).normal(size=(900, 40))
    s = -x if scored else None
    options = {"size": 20, "preconditioner": "identity", "storage": "float32", "passes": passes}
    plain, chosen = ss.thin(x, s, **options), ss.thin(x, s, start="sample", **options)
    assert np.array_equal(chosen.draws, x[chosen.ids[:, 1]].astype(np.float32)) and len(set(chosen.ids[:, 1])) == 20
    assert chosen.mmd < plain.mmd
    if scored:
        assert chosen.ksd == pytest.approx(ss.ksd(chosen.draws, chosen.scores), rel=1e-6)


def test_an_initial_set_is_part_of_the_default_objective(tmp_path):
    x = np.random.default_rng(7).normal(size=(600, 40))
    thinner = ss.Thinner(40, size=15, storage="float32", preconditioner="identity", initial=(x[:5], -x[:5]))
    thinner.extend(x[5:300], -x[5:300])
    thinner.save(tmp_path / "half.npz")
    resumed = ss.Thinner.load(tmp_path / "half.npz")
    for one in (thinner, resumed):
        one.extend(x[300:], -x[300:])
    assert np.array_equal(thinner.kept.ids, resumed.kept.ids)
    assert (thinner.ksd, thinner.kept.mmd) == (resumed.ksd, resumed.kept.mmd)
