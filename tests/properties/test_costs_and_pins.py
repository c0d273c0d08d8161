"""Draws that cost more are removed earlier, pinned draws never, and the budget holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.reference import Reference
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import assert_same, assert_same_in_parts, groups, ksd_thinner, limits_at, replace_kept, thin_by_ksd

lambdas = st.sampled_from([0.0, 0.1, 1.0, 20.0])
gammas = st.sampled_from([0.0, 0.0, 0.3])


def marks(draw, length, candidates):
    """Costs, some of them equal, some zero, and pins, at most one in a group of candidates."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    costs = rng.choice([0.0, 1.0, 1.0, 2.0, 5.0], size=length)
    if draw(st.booleans()):
        costs = rng.exponential(size=length)
    pinned = rng.random(length) < draw(st.sampled_from([0.0, 0.1, 0.4]))
    for first in range(0, length, candidates):
        more = np.flatnonzero(pinned[first : first + candidates])[1:]
        pinned[first + more] = False
    return costs, pinned


@settings(max_examples=120, deadline=None)
@given(
    st.data(),
    streams(max_dim=6, max_length=30),
    kernels,
    growths,
    budgets,
    st.sampled_from([None, 4, 9]),
    st.integers(1, 3),
    rules,
    lambdas,
    gammas,
)
def test_keeps_the_same_draws_as_the_reference(
    data, stream, kernel, growth, budget, cap, candidates, rule, cost, gamma
):
    x, s = stream
    costs, pinned = marks(data.draw, len(x), candidates)
    if cap is not None:
        pinned[np.flatnonzero(pinned)[cap:]] = False
    if not cost:
        costs[:] = 0.0
    thinner = ksd_thinner(
        x.shape[1],
        kernel=kernel,
        growth=growth,
        budget=budget,
        rule=rule,
        size=cap,
        candidates=candidates,
        cost_weight=cost,
        stream_weight=gamma,
        validate_scores=False,
    )
    reference = Reference(kernel, stream_weight=gamma, cost_weight=cost)
    for t, group, names in groups(len(x), candidates):
        limits = limits_at(t, growth, budget, len(reference.draws) + 1, cap, rule)
        pins = {(0, int(i)) for i in np.flatnonzero(pinned)}
        reference.step(x[group], s[group], names, **limits, costs=costs[group], pinned=pins)
        thinner.extend(x[group], s[group], costs=costs[group] if cost else None, pinned=pinned[group])
        assert sorted(map(tuple, thinner.kept.ids.tolist())) == sorted(reference.ids), f"step {t}"
        assert set(thinner.pinned) == reference.pinned <= set(reference.ids)
        assert thinner.ksd == ss.ksd(thinner.kept.draws, thinner.kept.scores, kernel=kernel)


@settings(max_examples=40, deadline=None)
@given(
    st.data(),
    streams(max_dim=6, max_length=40),
    kernels,
    growths,
    gammas,
    st.integers(1, 3),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_blocks_checkpoints_and_the_order_of_storage_do_not_matter(
    tmp_path_factory, data, stream, kernel, growth, gamma, candidates, block, random
):
    x, s = stream
    costs, pinned = marks(data.draw, len(x), candidates)
    path = tmp_path_factory.mktemp("costs") / "run.npz"

    def make():
        return ksd_thinner(
            x.shape[1],
            kernel=kernel,
            growth=growth,
            cost_weight=1.0,
            stream_weight=gamma,
            candidates=candidates,
            validate_scores=False,
        )

    def add(thinner, rows):
        thinner.extend(x[rows], s[rows], costs=costs[rows], pinned=pinned[rows])

    assert_same_in_parts(make, add, len(x), block, path, random)


def test_costs_lower_the_bill_and_hardly_raise_ksd():
    rng = np.random.default_rng(0)
    x, costs = rng.normal(size=(20_000, 2)), rng.exponential(size=20_000)
    bills, ksds = [], []
    for cost in (0.0, 0.1, 1.0):
        thinner = ksd_thinner(2, size=100, cost_weight=cost)
        thinner.extend(x, -x, costs=costs if cost else None)
        bills.append(costs[thinner.kept.ids[:, 1]].mean())
        ksds.append(thinner.ksd)
    assert 0.7 < bills[0] < 1.3 and bills[1] < 0.5 * bills[0] and bills[2] < 0.5 * bills[1]
    assert ksds[0] <= ksds[1] < 1.5 * ksds[0] and ksds[2] < 4.0 * ksds[0]


def test_costs_have_no_unit():
    rng = np.random.default_rng(1)
    x, costs = rng.normal(size=(2000, 2)), rng.random(2000)
    ids = []
    for unit in (1.0, 1024.0):
        thinner = ksd_thinner(2, size=30, cost_weight=0.5)
        thinner.extend(x, -x, costs=costs * unit)
        ids.append(thinner.kept.ids)
    assert np.array_equal(*ids)


@settings(max_examples=30, deadline=None)
@given(streams(max_dim=4, max_length=40), kernels, growths, st.sampled_from([None, 5]))
def test_equal_costs_and_pins_that_do_not_matter_change_nothing(stream, kernel, growth, cap):
    """Costs that are all the same shift all keys equally; a draw that stays anyway may as well be pinned."""
    x, s = stream
    plain, pinned = (
        ksd_thinner(x.shape[1], kernel=kernel, growth=growth, size=cap, validate_scores=False) for _ in "ab"
    )
    plain.extend(x, s)
    pinned.extend(x, s, pinned=np.isin(np.arange(len(x)), plain.kept.ids[-1:, 1]))
    free = ksd_thinner(x.shape[1], kernel=kernel, growth=growth, size=cap, cost_weight=1.0, validate_scores=False)
    free.extend(x, s, costs=np.zeros(len(x)))
    assert np.array_equal(plain.kept.ids, free.kept.ids) and plain.ksd == free.ksd
    guided = ksd_thinner(x.shape[1], kernel=kernel, growth=growth, size=cap, validate_scores=False)
    guided.extend(x, s, pinned=np.zeros(len(x), dtype=bool))
    assert np.array_equal(plain.kept.ids, guided.kept.ids) and plain.ksd == guided.ksd


def test_copies_of_a_state_are_pinned_one_by_one():
    x = np.repeat(np.array([[3.0, 0.0], [0.0, 0.0], [0.1, 0.2]]), 4, axis=0)
    pinned = np.zeros(12, dtype=bool)
    pinned[[1, 3]] = True  # two of four copies of a draw far out
    thinner = ksd_thinner(2, size=5, validate_scores=False)
    thinner.extend(x, -x, pinned=pinned)
    assert thinner.pinned == ((0, 1), (0, 3))
    kept = [tuple(id) for id in thinner.kept.ids.tolist()]
    assert {(0, 1), (0, 3)} <= set(kept) and not {(0, 0), (0, 2)} & set(kept)
    assert thinner.ksd == ss.ksd(thinner.kept.draws, thinner.kept.scores)


def test_the_dearest_copy_goes_first():
    x = np.repeat(np.array([[1.0, 0.0]]), 6, axis=0)
    thinner = ksd_thinner(2, size=3, cost_weight=1.0, validate_scores=False)
    thinner.extend(x, -x, costs=[1.0, 5.0, 2.0, 5.0, 1.0, 0.5])
    assert thinner.kept.ids[:, 1].tolist() == [0, 4, 5]


def test_pins_come_and_go_with_ids():
    x = np.random.default_rng(2).normal(size=(3000, 2))
    thinner = ksd_thinner(2, size=20)
    thinner.extend(x[:500], -x[:500])
    hold = thinner.kept.ids[:3]
    thinner.pin(hold)
    assert thinner.pinned == tuple(map(tuple, hold.tolist()))
    thinner.extend(x[500:2000], -x[500:2000])
    assert set(map(tuple, hold.tolist())) <= set(map(tuple, thinner.kept.ids.tolist()))
    thinner.unpin(hold[:2])
    assert thinner.pinned == (tuple(hold[2].tolist()),)
    thinner.extend(x[2000:], -x[2000:])
    assert tuple(hold[2].tolist()) in set(map(tuple, thinner.kept.ids.tolist())) and len(thinner) == 20
    with pytest.raises(ss.SteinstreamError, match="Draw 2999999 of chain 0 is not kept"):
        thinner.pin([(0, 2_999_999)])


def test_a_thinner_full_of_pins_lets_nobody_in():
    x = np.random.default_rng(3).normal(size=(50, 2))
    thinner = ksd_thinner(2, size=4)
    thinner.extend(x[:4], -x[:4], pinned=np.ones(4, dtype=bool))
    step = thinner.extend(x[4:], -x[4:])
    assert step.added == () and step.dropped == () and thinner.kept.ids[:, 1].tolist() == [0, 1, 2, 3]
    seen = thinner.seen
    with pytest.raises(ss.SteinstreamError, match="5 draws would be pinned, but size=4"):
        thinner.push(x[0], -x[0], pinned=True)
    assert thinner.seen == seen and len(thinner) == 4


def test_a_pinned_candidate_is_taken():
    x = np.random.default_rng(4).normal(size=(12, 2))
    x[7] += 5.0
    pinned = np.arange(12) == 7
    by_extend = ksd_thinner(2, candidates=4, growth="none", validate_scores=False)
    by_extend.extend(x[:6], -x[:6], pinned=pinned[:6])
    by_extend.extend(x[6:], -x[6:], pinned=pinned[6:])
    by_select = ksd_thinner(2, growth="none", validate_scores=False)
    for first in range(0, 12, 4):
        by_select.select(x[first : first + 4], -x[first : first + 4], pinned=pinned[first : first + 4])
    for thinner in (by_extend, by_select):
        assert (0, 7) in set(map(tuple, thinner.kept.ids.tolist())) and thinner.pinned == ((0, 7),)
    both = np.isin(np.arange(4), [1, 2])
    with pytest.raises(ss.SteinstreamError, match="same 4 candidates"):
        by_extend.extend(x[:4], -x[:4], pinned=both)
    with pytest.raises(ss.SteinstreamError, match="same 4 candidates"):
        by_select.select(x[:4], -x[:4], pinned=both)


@pytest.mark.parametrize("settings", [{}, {"passes": 2}, {"preconditioner": ss.Warmup(draws=20)}])
def test_a_pin_among_too_few_candidates_at_the_end_is_refused(settings):
    x = np.random.default_rng(0).normal(size=(103, 2))
    for pinned in (99, 101):
        options = {"size": 20, "candidates": 5, "pinned": np.arange(103) == pinned, **settings}
        if pinned == 101:
            with pytest.raises(ss.SteinstreamError, match="last 3 draws, but one step takes 5 candidates"):
                ss.thin(x, -x, **options)
        else:
            assert [0, 99] in ss.thin(x, -x, **options).ids.tolist()


def test_marks_wait_with_their_draws(tmp_path):
    """Through a warm-up, a checkpoint in it, and draws that are skipped."""
    x = np.random.default_rng(5).normal(size=(300, 2))
    bad = x.copy()
    bad[10] = np.nan
    costs, pinned = np.random.default_rng(6).random(300), np.arange(300) % 90 == 11

    def make():
        return ksd_thinner(2, size=12, cost_weight=1.0, preconditioner=ss.Warmup("scales", 200), on_bad="skip")

    whole, parts = make(), make()
    whole.extend(bad, -x, costs=costs, pinned=pinned)
    for first in range(0, 300, 70):
        part = slice(first, first + 70)
        parts.extend(bad[part], -x[part], costs=costs[part], pinned=pinned[part])
        parts.save(tmp_path / "run.npz")
        parts = ss.Thinner.load(tmp_path / "run.npz")
    assert_same(whole, parts)
    assert whole.pinned == parts.pinned == ((0, 11), (0, 101), (0, 191), (0, 281))
    assert whole.skipped == 1


@settings(max_examples=40, deadline=None)
@given(
    st.data(),
    streams(max_dim=5, max_length=60, min_length=10),
    kernels,
    growths,
    gammas,
    st.integers(1, 3),
    st.integers(1, 9),
)
def test_marks_go_along_when_coordinates_change(
    tmp_path_factory, data, stream, kernel, growth, gamma, candidates, block
):
    """Copies of a state have costs and pins of their own, wherever the changes and the checkpoints fall."""
    x, s = stream
    costs, pinned = marks(data.draw, len(x), candidates)
    path = tmp_path_factory.mktemp("marks") / "run.npz"

    def make():
        return ksd_thinner(
            x.shape[1],
            kernel=kernel,
            growth=growth,
            cost_weight=1.0,
            stream_weight=gamma,
            candidates=candidates,
            preconditioner=ss.Streaming(first=8),
            validate_scores=False,
        )

    whole, resumed = make(), make()
    whole.extend(x, s, costs=costs, pinned=pinned)
    for first in range(0, len(x), block):
        part = slice(first, first + block)
        resumed.extend(x[part], s[part], costs=costs[part], pinned=pinned[part])
        resumed.save(path)
        resumed = ss.Thinner.load(path, **({"growth": growth} if callable(growth) else {}))
    assert_same(whole, resumed)
    decided = np.arange(len(x)) < len(x) // candidates * candidates
    assert whole.pinned == resumed.pinned == tuple((0, int(i)) for i in np.flatnonzero(pinned & decided))
    state = whole.state.dictionary.state()
    assert np.array_equal(state["cost"], costs[state["ids"][:, 1]])
    assert np.array_equal(state["pinned"], pinned[state["ids"][:, 1]])


@settings(max_examples=30, deadline=None)
@given(st.data(), streams(max_dim=4, max_length=30, min_length=4), kernels, gammas, st.sampled_from([0.1, 1.0, 20.0]))
def test_later_passes_never_raise_objective_and_costs_together_and_move_no_pin(data, stream, kernel, gamma, cost):
    x, s = stream
    costs, pinned = marks(data.draw, len(x), 1)
    thinner = ksd_thinner(
        x.shape[1], kernel=kernel, growth="sqrt", cost_weight=cost, stream_weight=gamma, validate_scores=False
    )
    thinner.extend(x, s, costs=costs, pinned=pinned)
    pins = thinner.pinned
    judge = Reference(kernel, stream_weight=gamma, cost_weight=cost)
    judge.observe(x, s, [(0, i) for i in range(len(x))], costs)

    def judged():
        rows = thinner.kept.ids[:, 1]
        replace_kept(judge, x[rows], s[rows], [(0, int(row)) for row in rows])
        spent = 2.0 * judge.cost_scale * costs[rows].sum() / len(rows) ** 2 if costs.any() else 0.0
        return judge.objective + spent, np.abs(judge.matrix()).mean() + judge.mmd_weight + spent

    thinner.start_pass()
    value, terms = judged()
    size = len(thinner)
    assert thinner.objective == pytest.approx(value, rel=1e-9, abs=1e-9 * terms)
    for draw, score, price in zip(x, s, costs, strict=True):
        thinner.push(draw, score, cost=price)
        now, more = judged()
        assert now <= value + 1e-6 * max(terms, more)
        assert len(thinner) == size and thinner.pinned == pins
        value, terms = now, more


def test_a_later_pass_can_pin_too_while_there_is_room():
    x = np.random.default_rng(7).normal(size=(200, 2))
    thinner = ksd_thinner(2, growth="sqrt")
    thinner.extend(x, -x)
    thinner.start_pass()
    size, absent = len(thinner), sorted(set(range(200)) - set(thinner.kept.ids[:, 1].tolist()))
    far = np.isin(np.arange(200), absent[:3])
    thinner.extend(x, -x, pinned=far)
    assert thinner.pinned == tuple((0, i) for i in absent[:3]) and len(thinner) == size
    assert {(0, i) for i in absent[:3]} <= set(map(tuple, thinner.kept.ids.tolist()))
    thinner.start_pass()
    kept = set(thinner.kept.ids[:, 1].tolist())
    more = [i for i in range(200) if i not in kept][: size - 2]
    with pytest.raises(ss.SteinstreamError, match=f"{size + 1} draws would be pinned"):
        thinner.extend(x, -x, pinned=np.isin(np.arange(200), more))
    free = min(kept - set(absent[:3]))
    with pytest.raises(ss.SteinstreamError, match=f"Draw {free} of chain 0 was kept when this pass started"):
        thinner.extend(x, -x, pinned=np.arange(200) == free)
    assert thinner.current_pass.received == 0


def test_thin_takes_costs_and_pins_of_one_chain_or_several():
    x = np.random.default_rng(8).normal(size=(2, 300, 2))
    costs, pinned = np.random.default_rng(9).random((2, 300)), np.zeros((2, 300), dtype=bool)
    pinned[1, 7] = True
    kept = thin_by_ksd(x, -x, size=20, cost_weight=1.0, costs=costs, pinned=pinned, passes=2)
    thinner = ksd_thinner(2, size=20, cost_weight=1.0, preconditioner=kept.preconditioner)
    for number in range(2):
        for chain in range(2):
            ids = [(chain, draw) for draw in range(300)]
            thinner.extend(x[chain], -x[chain], costs=costs[chain], pinned=pinned[chain], ids=ids)
        if number == 0:
            thinner.start_pass()
    assert np.array_equal(kept.ids, thinner.kept.ids) and [1, 7] in kept.ids.tolist()
    assert kept.settings["config"]["cost_weight"] == 1.0 and kept.settings["pinned"] == 1 and kept.bound is None
    one = thin_by_ksd(x[0], -x[0], size=20, pinned=pinned[1], passes="auto")
    assert [0, 7] in one.ids.tolist(), "a pin is kept where a good set would be the start"
    with pytest.raises(ss.SteinstreamError, match=r"costs must have one entry per draw, got shape \(300,\)"):
        thin_by_ksd(x, -x, size=20, cost_weight=1.0, costs=costs[0])
    with pytest.raises(ss.SteinstreamError, match="no costs, pins or features"):
        thin_by_ksd(x[0], -x[0], size=20, pinned=pinned[1], start="sample")


def test_errors_say_what_is_wrong():
    x = np.zeros((3, 2))
    priced, plain = ksd_thinner(2, cost_weight=1.0), ksd_thinner(2)
    for wrong, match in (
        (lambda: priced.extend(x, -x), "costs is required because cost_weight > 0"),
        (lambda: plain.extend(x, -x, costs=[1.0, 2.0, 3.0]), "costs has no effect because cost_weight is 0"),
        (lambda: priced.extend(x, -x, costs=[1.0, 2.0]), r"costs must be 3 numbers, one per draw, got shape \(2,\)"),
        (lambda: priced.extend(x, -x, costs=[1.0, -2.0, 0.0]), "The cost of draw 1 is -2.0"),
        (lambda: priced.extend(x, -x, costs=[1.0, 2.0, np.nan]), "The cost of draw 2 is nan"),
        (lambda: priced.extend(x, -x, costs=[1.0, 2.0, 1e300]), "The cost of draw 2 is 1e\\+300"),
        (lambda: priced.extend(x, -x, costs=["a", "b", "c"]), "costs must be 3 numbers, one per draw"),
        (lambda: plain.extend(x, -x, pinned=[True]), "pinned must be 3 booleans"),
        (lambda: plain.extend(x, -x, pinned=[0, 1, 2]), "pinned must be 3 booleans, one per draw, got int64"),
        (lambda: ksd_thinner(2, cost_weight=-1.0), "cost_weight must be a number"),
        (lambda: ksd_thinner(2, preconditioner=ss.Warmup()).pin([(0, 0)]), "warm-up"),
    ):
        with pytest.raises(ss.SteinstreamError, match=match):
            wrong()
    assert priced.seen == plain.seen == 0
