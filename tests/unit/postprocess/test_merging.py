"""Merging: against a computation from scratch, the bound, masses, coordinates, ids."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
import steinstream.postprocess._subset_search
from steinstream.errors import InputError
from steinstream.postprocess.merging import PartFacts, common_preconditioner
from steinstream.preconditioning import Preconditioner

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "posteriordb"


def chain(seed, draws=400, dim=3, scale=1.0):
    x = np.random.default_rng(seed).normal(size=(draws, dim)) * scale
    return x, -x / scale**2


def parts_of(lengths, dim=3, size=20, **settings):
    return [ss.thin(*chain(seed, draws, dim), size=min(size, draws), **settings) for seed, draws in enumerate(lengths)]


def shares(kept):
    return np.full(len(kept), 1.0 / len(kept)) if kept.weights is None else kept.weights


def scratch(kept):
    """KSD from the definition, in plain numpy."""
    x, s = (kept.preconditioner or Preconditioner.identity()).apply(kept.draws, kept.scores)
    w = shares(kept)
    return float(np.sqrt(w @ kept.kernel.matrix(x, s, x, s) @ w))


def objective_matrix(union, trust=1.0):
    """Matrix of the objective of a union, whose stream is in its summary, from the definition."""
    x = union.preconditioner.apply_to_draws(union.draws)
    y, v = union.preconditioner.apply_to_draws(union.stream_summary.draws), union.stream_summary.weights
    v = v / v.sum()
    phi = union.kernel.base_matrix
    means, mean = phi(x, y) @ v, v @ phi(y, y) @ v
    centred, spread = phi(x, x) - means[:, None] - means + mean, 1.0 - mean
    if union.scores is None:
        return centred / spread
    s = union.preconditioner.apply_to_scores(union.scores)
    stein = union.kernel.matrix(x, s, x, s)
    kappa = shares(union) @ np.diag(stein)
    return stein + union.settings["merged"]["stream_weight"] * trust * kappa / spread * centred


def value(matrix, weights):
    return float(weights @ matrix @ weights / weights.sum() ** 2)


def greedy(matrix, mass, size):
    """Rows left when the draw whose loss costs least goes, again and again, everything computed from scratch."""
    alive = np.arange(len(mass))
    while len(alive) > size:
        costs = []
        for i in range(len(alive)):
            rest = np.delete(alive, i)
            costs.append(value(matrix[np.ix_(rest, rest)], mass[rest]))
        alive = np.delete(alive, int(np.argmin(costs)))
    return alive


def rows_in(union, kept):
    ids = union.ids.tolist()
    return [ids.index(id) for id in kept.ids.tolist()]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(5, 300), min_size=1, max_size=4), st.booleans(), st.integers(1, 4))
def test_the_union_is_the_union(lengths, fitted, dim):
    parts = parts_of(lengths, dim, **({} if fitted else ss.PAPER))
    union = ss.merge(parts)
    assert len(union) == sum(map(len, parts)) and union.settings["seen"] == sum(lengths)
    assert union.ksd == pytest.approx(scratch(union), rel=1e-11)
    assert union.ksd == pytest.approx(
        ss.ksd(union.draws, union.scores, preconditioner=union.preconditioner, weights=union.weights), rel=1e-12
    )
    mass = np.bincount(
        union.ids[:, 0], weights=union.weights if union.weights is not None else np.full(len(union), 1 / len(union))
    )
    assert mass == pytest.approx(np.array(lengths) / sum(lengths), rel=1e-9)


@pytest.mark.parametrize("lengths", [[200, 200], [300, 60, 150]])
@pytest.mark.parametrize("scores", [True, False])
def test_thinning_the_union_is_greedy_and_swaps_and_restarts_lower_the_objective(lengths, scores, monkeypatch):
    parts = parts_of(lengths) if scores else [ss.thin(chain(seed, n)[0], size=20) for seed, n in enumerate(lengths)]
    union, best = ss.merge(parts), ss.merge(parts, size=15)
    monkeypatch.setattr(steinstream.postprocess._subset_search, "_RESTARTS", (0, 0))
    swapped = ss.merge(parts, size=15)
    monkeypatch.setattr(steinstream.postprocess._subset_search, "_SWAP_PASSES", 0)
    dropped = ss.merge(parts, size=15)
    trust = {kept.settings["merged"]["trust"] for kept in (best, swapped, dropped)}
    matrix = objective_matrix(union, *trust)
    assert np.array_equal(dropped.ids, union.ids[greedy(matrix, shares(union), 15)])
    values = [
        value(matrix[np.ix_(rows, rows)], shares(union)[rows])
        for rows in (rows_in(union, kept) for kept in (best, swapped, dropped))
    ]
    assert values[0] <= values[1] < values[2] and len(best) == 15


@pytest.mark.parametrize("scores", [True, False])
def test_swaps_end_where_no_single_swap_helps(scores, monkeypatch):
    monkeypatch.setattr(steinstream.postprocess._subset_search, "_SWAP_GAIN", 0.0)
    parts = [ss.thin(*(chain(seed, n) if scores else chain(seed, n)[:1]), size=15) for seed, n in ((0, 200), (1, 500))]
    union, kept = ss.merge(parts), ss.merge(parts, size=8)
    matrix, mass = objective_matrix(union, kept.settings["merged"]["trust"]), shares(union)
    inside = rows_in(union, kept)
    least = value(matrix[np.ix_(inside, inside)], mass[inside])
    for out in inside:
        for new in set(range(len(union))) - set(inside):
            rows = [new if row == out else row for row in inside]
            assert value(matrix[np.ix_(rows, rows)], mass[rows]) >= least * (1 - 1e-9)


def test_after_thinning_ksd_is_still_that_of_what_is_left():
    x, s = chain(0, 3000, 4)
    parts = [ss.thin(x[i::5], s[i::5], size=80) for i in range(5)]
    for kept in (ss.merge(parts, size=30), ss.merge(parts, size=1), ss.merge(parts, merge_budget=1e-3)):
        again = ss.ksd(kept.draws, kept.scores, preconditioner=kept.preconditioner, weights=kept.weights)
        assert kept.ksd == pytest.approx(again, rel=1e-11)


def test_thinners_merge_as_their_kept_sets_do():
    thinners = []
    for seed in range(3):
        thinner = ss.Thinner(3, size=25)
        thinner.extend(*chain(seed), chain=seed)
        thinners.append(thinner)
    one, other = ss.merge(thinners, size=30), ss.merge([thinner.kept for thinner in thinners], size=30)
    assert np.array_equal(one.ids, other.ids) and one.ksd == other.ksd
    assert set(one.ids[:, 0]) <= {0, 1, 2}


@pytest.mark.parametrize("scores", [True, False])
def test_a_budget_is_never_overspent_and_is_spent(scores):
    parts = [ss.thin(*(chain(seed) if scores else chain(seed)[:1]), size=40) for seed in range(3)]
    whole = ss.merge(parts)
    for budget in (0.0, 1e-3, 1e-2):
        kept = ss.merge(parts, merge_budget=budget)
        matrix, rows = objective_matrix(whole, kept.settings["merged"]["trust"]), rows_in(whole, kept)
        after, before = value(matrix[np.ix_(rows, rows)], shares(whole)[rows]), value(matrix, shares(whole))
        assert after <= (before + budget) * (1 + 1e-9)
    assert len(ss.merge(parts, merge_budget=1e-2)) < len(ss.merge(parts, merge_budget=1e-3)) < len(whole)
    assert len(ss.merge(parts, size=50, merge_budget=1e9)) == 50
    assert 50 < len(ss.merge(parts, size=50, merge_budget=0.0)) <= len(whole)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(2, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_the_bounds_of_a_tree_hold(leaves, fan_in, seed, fitted):
    rng = np.random.default_rng(seed)
    nodes = []
    for _ in range(leaves):
        x = rng.normal(size=(int(rng.integers(10, 120)), 2)) * rng.uniform(0.5, 2.0) + rng.normal()
        nodes.append(
            ss.thin(
                x,
                -x,
                size=int(rng.integers(3, 15)),
                preconditioner="auto" if fitted else Preconditioner.identity(),
                validate_scores=False,
            )
        )
    kept = ss.merge(nodes, size=8, fan_in=fan_in)
    ledger = kept.settings["merged"]
    assert kept.ksd <= ledger["bound"] * (1 + 1e-12)
    own = [ss.ksd(node.draws, node.scores, preconditioner=kept.preconditioner) ** 2 for node in nodes]
    mass = np.array([node.settings["seen"] for node in nodes], dtype=float)
    assert ledger["leaves"] == pytest.approx(mass @ own / mass.sum(), rel=1e-9)
    assert kept.mmd <= ledger["mmd"]["bound"] * (1 + 1e-12) + 1e-15
    assert len(ledger["mmd"]["increases"]) == len(ledger["increases"])
    assert len(ledger["increases"]) == int(np.ceil(np.log(leaves) / np.log(fan_in) - 1e-9))
    assert len(kept) <= 8 or leaves == 1


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the reference draws are not in {DATA}")
@pytest.mark.parametrize("path", sorted(DATA.glob("*.npz")), ids=lambda path: path.stem.partition("-")[2])
def test_the_bound_holds_on_the_ten_chains_of_real_posteriors(path):
    with np.load(path) as file:
        draws, scores = file["draws"], file["scores"]
    leaves = [ss.thin(x, s, size=50) for x, s in zip(draws, scores, strict=True)]
    kept = ss.merge(leaves, size=50, fan_in=2)
    assert len(kept) == 50 and kept.ksd < kept.settings["merged"]["bound"]
    assert kept.ksd == pytest.approx(
        ss.ksd(kept.draws, kept.scores, preconditioner=kept.preconditioner, weights=kept.weights), rel=1e-9
    )
    assert all((draws[chain, draw] == point).all() for (chain, draw), point in zip(kept.ids, kept.draws, strict=True))


def test_nodes_below_the_root_keep_what_is_to_spare(monkeypatch):
    monkeypatch.setattr(
        steinstream.postprocess._subset_search, "_RESTARTS", (4, 4)
    )  # else the last merge begins from more sets
    parts = parts_of([400] * 6, dim=2, size=60)
    lean, rich = ss.merge(parts, size=20, fan_in=2, spare=1), ss.merge(parts, size=20, fan_in=2, spare=2.5)
    assert len(lean) == len(rich) == 20 and lean.ksd != rich.ksd
    ours = [replace(part, ids=part.ids + np.array([chain, 0]), stream=None) for chain, part in enumerate(parts)]
    inner = [ss.merge(ours[i : i + 2], size=50, preconditioner=rich.preconditioner) for i in (0, 2, 4)]
    by_hand = ss.merge([ss.merge(inner[:2], size=50), ss.merge(inner[2:], size=50)], size=20)
    assert np.array_equal(by_hand.ids, rich.ids) and by_hand.ksd == rich.ksd
    with pytest.raises(InputError, match="spare must be"):
        ss.merge(parts, size=20, spare=0.5)


def test_a_budget_for_each_level_and_its_bound():
    parts = parts_of([300, 200, 100, 400, 150], dim=2, size=30, stream_weight=0.0)
    kept = ss.merge(parts, merge_budget=[1e-3, 1e-4], fan_in=2)
    ledger = kept.settings["merged"]
    assert len(ledger["increases"]) == 3
    for rise, budget in zip(ledger["increases"], [1e-3, 1e-4, 1e-4], strict=True):
        assert rise <= budget * (1 + 1e-9)
    assert ledger["bound_by_budget"] == pytest.approx(np.sqrt(ledger["leaves"] + 1.2e-3), rel=1e-9)
    assert kept.ksd <= ledger["bound"] <= ledger["bound_by_budget"] * (1 + 1e-12)
    assert len(ss.merge(parts, merge_budget=[0.0, 1e-2], fan_in=2)) < len(ss.merge(parts, merge_budget=0.0, fan_in=2))
    assert ss.merge(parts).settings["merged"]["bound_by_budget"] == pytest.approx(np.sqrt(ledger["leaves"]), rel=1e-9)
    assert ss.merge(parts, size=10, fan_in=2).settings["merged"]["bound_by_budget"] is None
    assert ss.merge(parts, merge_budget=1e-3, stream_weight=1.0).settings["merged"]["bound_by_budget"] is None


def test_a_part_that_got_worse_after_its_merge_does_not_bring_an_old_bound():
    parts = parts_of([300, 300, 300], dim=2, size=40)
    few = ss.merge(parts[:2]).ordered().prefix(2)
    kept = ss.merge([few, parts[2]])
    assert kept.ksd <= kept.settings["merged"]["bound"] * (1 + 1e-12)


def test_the_number_of_threads_does_not_show(monkeypatch):
    parts = parts_of([300, 200, 100], dim=2, size=90)
    many = ss.merge(parts, size=25, stream_weight=1.0)
    monkeypatch.setattr("steinstream.discrepancy.ksd.os.cpu_count", lambda: 1)
    one = ss.merge(parts, size=25, stream_weight=1.0)
    assert np.array_equal(one.ids, many.ids) and one.ksd == many.ksd


def test_masses():
    parts = parts_of([1000, 100])
    by_length = ss.merge(parts)
    assert by_length.weights[by_length.ids[:, 0] == 1].sum() == pytest.approx(1 / 11)
    assert ss.merge(parts, masses="kept").weights is None
    given = ss.merge(parts, masses=[1.0, 3.0])
    assert given.weights[given.ids[:, 0] == 1].sum() == pytest.approx(0.75)
    for wrong in ("length", [1.0], [1.0, 0.0], [1.0, np.nan]):
        with pytest.raises(InputError, match="masses must be"):
            ss.merge(parts, masses=wrong)


def test_initial_draws_have_their_mass(tmp_path):
    x, s = chain(0, 600, 2)
    other = ss.thin(x, s, size=20, preconditioner="identity")
    begun = ss.Thinner(2, initial=(x[:50], s[:50]), growth="none")
    assert len(ss.merge([begun])) == 50  # that nothing came since does no harm
    begun.push([9.0, 9.0], [-9.0, -9.0])
    begun.save(tmp_path / "run.npz")
    for thinner in (begun, ss.Thinner.load(tmp_path / "run.npz")):
        assert thinner.settings["initial"] == 50
        union = ss.merge([thinner, other])
        assert union.weights[union.ids[:, 0] < 2].sum() == pytest.approx(51 / 651)  # chains -1 and 0 of the thinner
        again = ss.merge([union, other])
        assert again.settings["initial"] == 50
        assert again.weights[again.ids[:, 0] < 3].sum() == pytest.approx(651 / 1251)


def test_a_start_with_a_sample_is_part_of_the_stream():
    x, s = chain(0, 600, 2)
    for passes in (1, 2):
        kept = ss.thin(x, s, size=20, start="sample", passes=passes)
        assert kept.settings["initial"] == 0 and PartFacts.of(kept).mass == 600.0


def test_a_part_without_mass_is_refused():
    kept = replace(parts_of([100])[0], settings={"seen": 3, "skipped": 3})
    with pytest.raises(InputError, match="Part 0 represents no draws"):
        ss.merge([kept])
    assert len(ss.merge([kept], masses="kept")) == len(kept)


def test_coordinates_are_reconciled():
    wide, narrow = ss.thin(*chain(0, 500, 2, 2.0), size=30), ss.thin(*chain(1, 500, 2, 0.5), size=30)
    union = ss.merge([wide, narrow])
    expected = (np.linalg.norm(wide.preconditioner.factor) ** 2 + np.linalg.norm(narrow.preconditioner.factor) ** 2) / 2
    assert np.trace(union.preconditioner.factor @ union.preconditioner.factor.T) == pytest.approx(expected)
    same = ss.merge([wide, replace(narrow, preconditioner=wide.preconditioner)])
    assert same.preconditioner is wide.preconditioner
    chosen = ss.merge([wide, narrow], preconditioner=Preconditioner.identity())
    assert chosen.ksd == pytest.approx(ss.ksd(chosen.draws, chosen.scores), rel=1e-12)
    mixed = common_preconditioner(
        [
            PartFacts.of(replace(wide, preconditioner=Preconditioner.length_scale(2.0))),
            PartFacts.of(replace(narrow, preconditioner=Preconditioner.scales([1.0, 3.0]))),
        ],
        np.array([1.0, 1.0]),
    )
    assert mixed.factor == pytest.approx(np.sqrt([2.5, 6.5]))
    centred = [
        replace(part, preconditioner=Preconditioner(part.preconditioner.factor, np.full(2, float(i))))
        for i, part in enumerate([wide, narrow])
    ]
    assert ss.merge(centred).preconditioner.centre == pytest.approx([0.5, 0.5])


def test_ids_keep_their_chain_or_are_numbered_anew():
    x, s = chain(0, 100, 2)
    five, seven = ss.Thinner(2, size=10), ss.Thinner(2, size=10)
    five.extend(x, s, chain=5)
    seven.extend(x + 0.1, s - 0.1, chain=7)
    assert set(ss.merge([seven, five]).ids[:, 0]) == {5, 7}
    both = ss.merge([five, seven, five])
    assert sorted(set(both.ids[:, 0])) == [0, 1, 2]
    assert np.array_equal(both.ids[both.ids[:, 0] == 1, 1], seven.kept.ids[:, 1])


def test_what_else_the_draws_have_comes_along():
    parts = [
        replace(part, names=("a", "b", "c"), variables={"sigma": ss.Variable(np.exp(part.draws[:, :1]), ("one",))})
        for part in parts_of([200, 300])
    ]
    kept = ss.merge(parts, size=12)
    assert np.array_equal(kept.variables["sigma"].values, np.exp(kept.draws[:, :1])) and kept.names == ("a", "b", "c")


def test_weighted_parts_keep_their_weights():
    parts = [part.weighted() for part in parts_of([200, 200], size=30)]
    union = ss.merge(parts)
    assert union.weights == pytest.approx(np.concatenate([part.weights for part in parts]) / 2, rel=1e-12)
    assert union.ksd == pytest.approx(scratch(union), rel=1e-11)


def test_mmd_is_measured_to_the_streams_of_all_parts():
    for scores in (True, False):
        parts = [ss.thin(*(chain(s, n) if scores else chain(s, n)[:1]), size=30) for s, n in ((0, 900), (1, 300))]
        kept = ss.merge(parts, size=20)
        phi, preconditioner = kept.kernel.base_matrix, kept.preconditioner
        x = preconditioner.apply_to_draws(kept.draws)
        y = preconditioner.apply_to_draws(np.concatenate([part.stream_summary.draws for part in parts]))
        v, w = np.concatenate([part.stream_summary.weights for part in parts]) / 1200, shares(kept)
        square = w @ phi(x, x) @ w - 2 * w @ phi(x, y) @ v + v @ phi(y, y) @ v
        assert kept.mmd == pytest.approx(np.sqrt(square), rel=1e-9)
        assert kept.stream_summary.weights.sum() == pytest.approx(1200)
        assert np.isnan(kept.ksd) == (not scores)


def test_the_stream_decides_the_proportions_even_if_the_parts_have_lost_them():
    from steinstream.targets import Mixture

    target = Mixture([[0.0, 0.0], [6.0, 0.0]], covariances=1.0, weights=[0.2, 0.8])
    leaves = []
    for seed in range(4):
        draws, scores = target.sample(3000, seed=seed)
        kept, alone = ss.thin(draws, scores, size=100), ss.thin(draws, scores, size=100, stream_weight=0.0)
        leaves.append(replace(alone, stream_summary=kept.stream_summary))
    merged = [ss.merge(leaves, size=50, stream_weight=weight) for weight in (0.0, 1.0)]
    alone, both = (float(np.mean(kept.draws[:, 0] < 3.0)) for kept in merged)
    assert abs(both - 0.2) < 0.04 < abs(alone - 0.2)


def test_the_stream_counts_less_if_the_chains_are_worth_few_draws():
    parts = [replace(part, settings={**part.settings, "effective_draws": 20.0}) for part in parts_of([400, 400])]
    kept = ss.merge(parts, size=10)
    assert kept.settings["merged"]["trust"] == kept.settings["trust"] == pytest.approx(0.4)
    assert kept.settings["effective_draws"] == 40.0
    assert kept.settings["merged"]["trust"] < ss.merge(parts_of([400, 400]), size=10).settings["merged"]["trust"]


def test_checks_of_a_merged_set_need_no_chain():
    parts = parts_of([5000, 2500], size=60)
    kept = ss.merge(parts, size=60)
    counts = np.bincount(kept.stream.ids[:, 0])
    assert 2000 < counts.sum() <= 4096 + 2 and counts[0] == pytest.approx(2 * counts[1], rel=0.01)
    assert kept.diagnose().findings
    assert ss.merge([replace(part, stream=None) for part in parts], size=60).stream is None


def test_parts_with_and_without_scores_are_refused():
    with_scores, without = parts_of([200])[0], ss.thin(chain(1, 200)[0], size=20)
    with pytest.raises(InputError, match="Part 1 has no scores, part 0 has scores"):
        ss.merge([with_scores, without])
    with pytest.raises(InputError, match="Part 0 has no scores, part 1 has scores"):
        ss.merge([without, with_scores])
    with pytest.raises(InputError, match="cannot be merged by KSD alone"):
        ss.merge([without, without], size=5, stream_weight=0.0)


def test_what_cannot_be_merged_is_refused():
    parts = parts_of([100, 100])
    with pytest.raises(InputError, match="nothing to merge"):
        ss.merge([])
    with pytest.raises(InputError, match="Part 1 has 2 dimensions, part 0 has 3"):
        ss.merge([parts[0], *parts_of([50], dim=2)])
    with pytest.raises(InputError, match="different kernels"):
        ss.merge([parts[0], *parts_of([50], kernel=ss.RBF())])
    with pytest.raises(InputError, match="Part 0 is empty"):
        ss.merge([ss.Thinner(3), parts[0]])
    for wrong in (
        {"size": 0},
        {"merge_budget": -1.0},
        {"merge_budget": float("nan")},
        {"merge_budget": []},
        {"fan_in": 1},
    ):
        with pytest.raises(InputError):
            ss.merge(parts, **wrong)


@pytest.mark.parametrize("weights", [[2.0, -0.5, -0.5], [1.0, 1.0, 1.0], [0.5, 0.5], [np.nan, 0.5, 0.5]])
def test_invalid_weights_in_memory_are_refused_as_those_of_a_file(weights):
    first, second = parts_of([50, 50], size=3)
    with pytest.raises(InputError, match="Part 1 is not a valid kept set: weights"):
        ss.merge([first, replace(second, weights=np.array(weights))])
