"""The worth of a chain: close to the effective sample size, the same for any blocks, and used as trust."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream._engine import reference
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.notes import describe_chain
from steinstream.thinner.chain_worth import ChainWorth, stream_factor, trust_in, trust_of_factor


def ids_of(count, chain=0, first=0):
    return np.column_stack([np.full(count, chain), np.arange(first, first + count)])


def autoregression(rho, count, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((count, dim))
    x[0] = rng.normal(size=dim)
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=dim)
    return x


@pytest.mark.parametrize("rho", [0.0, 0.9, 0.99])
def test_the_worth_is_close_to_the_effective_sample_size(rho):
    x = autoregression(rho, 16_384)
    worth = ChainWorth(3)
    assert worth.update(x, ids_of(len(x)))
    assert worth.effective_draws == pytest.approx(np.median(effective_sample_size(x)), rel=0.4)


def test_blocks_do_not_matter_and_a_stored_state_continues():
    x = autoregression(0.8, 3000, dim=2)
    whole, parts = ChainWorth(2), ChainWorth(2)
    ids = ids_of(3000)
    whole.update(x[:2048], ids[:2048])
    for first in range(0, 2048, 100):
        part = slice(first, min(first + 100, 2048))
        parts.update(x[part], ids[part])
        other = ChainWorth(2)
        other.restore(parts.state())
        parts = other
    assert whole.effective_draws == parts.effective_draws
    upcoming = np.zeros(5000, dtype=np.int64)
    assert whole.steps_until_due(1, upcoming) == parts.steps_until_due(1, upcoming) == 2048
    length, sums, squares = reference.batches(x[:2048], 128)
    state = whole.state()["chains"]["0"]["batches"]
    assert state["numbers"].tolist() == [length, len(sums), 0, 2048]
    assert state["sums"][: len(sums)] == pytest.approx(sums, rel=1e-9, abs=1e-9)
    assert state["squares"][: len(sums)] == pytest.approx(squares, rel=1e-9)


def test_trust_falls_with_the_worth_and_the_number_of_kept_draws():
    worth = ChainWorth(1)
    assert worth.trust(100) == 1.0, "no estimate yet"
    worth.effective_draws = 500.0
    assert worth.trust(10) == 1.0 and worth.trust(100) == 0.5 and worth.trust(10_000) == 0.03


def test_in_many_dimensions_the_chain_keeps_more_trust():
    trusts = [trust_in(25.0, 100, dim) for dim in (1, 5, 10, 20, 100, 10_000)]
    assert trusts[0] == trusts[1] == 0.03 and np.all(np.diff(trusts[1:]) > 0) and trusts[-1] > 0.99


@pytest.mark.parametrize("count", [1000, 4000, 5000, 10_000])
def test_the_reported_worth_is_that_of_the_whole_chain(count):
    x = autoregression(0.0, count)
    kept = ss.thin(x, -x, size=50)
    assert 0.5 * count < kept.settings["effective_draws"] < 1.5 * count


def test_spread_is_not_lost_on_a_slow_chain_in_many_dimensions():
    """KSD alone selects draws near the mode from a chain that is worth fewer draws than are kept."""
    errors = []
    for seed in range(3):
        x = autoregression(0.99, 8000, 20, seed)
        errors.append([abs(draws.std(axis=0) - 1).mean() for draws in (ss.thin(x, -x, size=100).draws, x[40::80])])
    ours, stride = np.mean(errors, axis=0)
    assert ours < 1.25 * stride


@pytest.mark.parametrize("dim", [1, 20, 21, 60, 100, 270_000])
def test_the_factor_of_the_stream_weight_grows_with_trust_and_dimension(dim):
    trusts = np.linspace(0.03, 1.0, 50)
    factors = [stream_factor(trust, dim) for trust in trusts]
    assert np.all(np.diff(factors) > 0) and np.all(factors >= trusts)
    assert factors[-1] == min(25.0, max(1.0, (dim / 20) ** 2))
    assert factors[0] == trusts[0]  # the scores decide for a bad chain in any dimension
    np.testing.assert_allclose([trust_of_factor(factor, dim) for factor in factors], trusts, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_in_many_dimensions_the_neck_of_a_funnel_is_kept(seed):
    rng = np.random.default_rng(seed)
    log_tau = rng.normal(-1.0, 0.5, size=6000)
    effects = np.exp(log_tau)[:, None] * rng.normal(size=(6000, 60))
    draws = np.column_stack([effects, log_tau])
    inverse = np.exp(-2 * log_tau)[:, None]
    of_scale = (effects**2 * inverse).sum(1) - 60 - (log_tau + 1.0) / 0.25
    scores = np.column_stack([-effects * inverse, of_scale])
    spread, plain = (
        ss.thin(draws, scores, size=100, stream_weight=weight).draws[:, -1].std()
        for weight in (1.0, 1.0 / stream_factor(1.0, 61))
    )
    assert abs(spread / 0.5 - 1) < 0.12 and abs(spread / 0.5 - 1) < abs(plain / 0.5 - 1)


def test_a_chain_that_stands_still_is_worth_one_draw():
    worth = ChainWorth(2)
    worth.update(np.ones((200, 2)), ids_of(200))
    assert worth.effective_draws == 1.0


def test_the_thinner_uses_and_reports_the_worth():
    slow, fast = autoregression(0.99, 4096), autoregression(0.0, 4096)
    kept = [ss.thin(x, -x, size=50, stream_weight=1.0).settings for x in (slow, fast)]
    assert kept[0]["effective_draws"] < 50 and kept[0]["trust"] < 0.1
    assert kept[1]["effective_draws"] > 2000 and kept[1]["trust"] == 1.0
    assert "so its distribution was corrected by the scores" in describe_chain(kept[0])
    assert describe_chain(kept[1]).endswith("independent draws.")


def with_burn_in(count=6000, length=900, dim=2, seed=3):
    x = autoregression(0.5, count, dim, seed)
    x[:length] += np.linspace(40.0, 5.0, length)[:, None]
    return x


def test_burn_in_is_found_and_left_out():
    x = with_burn_in()
    worth = ChainWorth(2)
    for first in range(0, len(x), 1000):
        worth.update(x[first : first + 1000], ids_of(1000, first=first))
    assert 800 <= worth.burn_in <= 960 and worth.effective_draws > 500
    still = ChainWorth(2)
    still.update(autoregression(0.9, 8192, 2), ids_of(8192))
    assert still.burn_in == 0


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_burn_in_of_every_chain_is_found(interleaved):
    chains = [with_burn_in(3000, 400, 2, seed) for seed in range(4)]
    ids = np.concatenate([ids_of(3000, chain) for chain in range(4)])
    x = np.concatenate(chains)
    if interleaved:
        order = np.argsort(ids[:, 1], kind="stable")
        x, ids = x[order], ids[order]
    whole, parts = (ss.Thinner(2, size=60, validate_scores=False) for _ in range(2))
    whole.extend(x, -x, ids=ids)
    for first in range(0, len(x), 331):
        part = slice(first, first + 331)
        parts.extend(x[part], -x[part], ids=ids[part])
    kept = whole.kept
    assert np.array_equal(kept.ids, parts.kept.ids) and whole.objective == parts.objective
    assert len(kept.burn_in_ends) == 4 and 4 * 300 <= kept.settings["burn_in"] <= 4 * 480
    assert kept.ids[:, 1].min() >= 300
    assert "in 4 chains" in kept.chain_worth


def test_chains_beyond_the_limit_are_counted_together():
    worth = ChainWorth(1)
    x = np.random.default_rng(0).normal(size=(40 * 200, 1))
    ids = np.concatenate([ids_of(200, chain) for chain in range(40)])
    assert worth.update(x, ids)
    assert len(worth.state()["chains"]) == 33
    assert worth.effective_draws > 2000


def test_ids_need_not_count_from_zero():
    x = with_burn_in(3000, 400)
    thinner = ss.Thinner(2, size=60, validate_scores=False)
    ids = ids_of(3000, first=0) * [1, 10] + [0, 7]
    thinner.extend(x, -x, ids=ids)
    assert thinner.kept.ids[:, 1].min() >= 7 + 10 * 300


def test_kept_draws_of_the_burn_in_are_removed_whatever_the_blocks(tmp_path):
    x = with_burn_in()
    whole = ss.Thinner(2, size=60, stream_weight=1.0, validate_scores=False)
    dropped = set(whole.extend(x, -x).dropped)
    parts = ss.Thinner(2, size=60, stream_weight=1.0, validate_scores=False)
    for first in range(0, len(x), 77):
        parts.extend(x[first : first + 77], -x[first : first + 77])
        parts.save(tmp_path / "run.npz")
        parts = ss.Thinner.load(tmp_path / "run.npz")
    kept = whole.kept
    assert np.array_equal(kept.ids, parts.kept.ids) and kept.ksd == parts.ksd and whole.objective == parts.objective
    assert kept.settings["burn_in"] >= 800 and kept.ids[:, 1].min() >= kept.settings["burn_in"]
    assert not dropped & set(map(tuple, kept.ids.tolist())) and len(kept) == 60


def test_pinned_and_initial_draws_stay():
    x = with_burn_in()
    pinned = np.zeros(len(x), dtype=bool)
    pinned[10] = True
    thinner = ss.Thinner(2, size=40, stream_weight=1.0, initial=(x[:2] + 1.0, -x[:2]), validate_scores=False)
    thinner.extend(x, -x, pinned=pinned)
    assert (0, 10) in thinner.pinned
    assert thinner.kept.settings["burn_in"] > 0
