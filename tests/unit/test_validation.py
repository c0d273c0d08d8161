"""Input validation: shapes, ids, finite values, the sign of the scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steinstream as ss
from steinstream import validation
from steinstream.errors import InputError, NegatedScoresError
from steinstream.validation import Block, SteinIdentity


def block(draws, scores=None):
    draws = np.asarray(draws, dtype=float)
    scores = -draws if scores is None else np.asarray(scores, dtype=float)
    return Block(draws, scores, validation.consecutive_ids(2, 5, len(draws)))


@pytest.mark.parametrize(
    ("draws", "scores", "message"),
    [
        (np.zeros(3), np.zeros(3), r"shape \(draws, dimensions\), got shape \(3,\)"),
        (np.zeros((2, 3, 4)), np.zeros((2, 3, 4)), "several chains"),
        (np.zeros((4, 2)), np.zeros((3, 2)), r"shape \(4, 2\) and scores have shape \(3, 2\)"),
        (np.zeros((4, 0)), np.zeros((4, 0)), "no dimensions"),
        ([["a"]], [["b"]], "array of real numbers"),
        (np.zeros((2, 2), dtype=complex), np.zeros((2, 2)), "array of real numbers"),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0]], "array of real numbers"),
        ("chain.npz", np.zeros((2, 2)), "must be an array, got 'chain.npz'"),
        (Path("chain.npz"), np.zeros((2, 2)), "must be an array"),
    ],
)
def test_what_is_not_a_block_of_draws_is_rejected(draws, scores, message):
    with pytest.raises(InputError, match=message):
        validation.as_draws_and_scores(draws, scores)


def test_the_expected_number_of_dimensions_is_required():
    with pytest.raises(InputError, match="Expected draws with 3 dimensions, got 2"):
        validation.as_draws_and_scores(np.zeros((4, 2)), np.zeros((4, 2)), 3)


def test_the_first_invalid_row_is_named_and_all_are_masked():
    draws = np.zeros((6, 2))
    draws[2, 1], draws[4, 0] = np.nan, np.inf
    with pytest.raises(InputError, match=r"draw of chain 2, draw 7 is nan in coordinate 1"):
        validation.finite_rows(block(draws), "raise")
    assert validation.finite_rows(block(draws), "skip").tolist() == [True, True, False, True, False, True]
    with pytest.raises(InputError, match="score of chain 2, draw 5"):
        validation.finite_rows(block(np.zeros((1, 2)), [[0.0, -np.inf]]), "raise")


@pytest.mark.parametrize(
    ("value", "linear", "storage", "valid"),
    [
        (1e99, False, "float64", True),
        (1e101, False, "float64", False),
        (1e49, True, "float64", True),
        (1e51, True, "float64", False),
        (1e37, False, "float32", True),
        (1e39, False, "float32", False),
    ],
)
def test_the_overflow_limit_depends_on_kernel_and_storage(value, linear, storage, valid):
    assert validation.finite_rows(block([[value]]), "skip", linear, storage).tolist() == [valid]


def test_ids_are_pairs_of_whole_numbers():
    assert validation.as_ids([(0, 1), (2, 3)], 2).dtype == np.int64
    for wrong in ([(0, 1)], [(0.5, 1.0), (1.0, 2.0)], [[0], [1]], [(0, 1), (2,)]):
        with pytest.raises(InputError, match="pairs of whole numbers"):
            validation.as_ids(wrong, 2)
    assert validation.as_id_pairs([]).shape == (0, 2)
    for wrong in (3, [0, 1], [(0, 1), (2,)]):
        with pytest.raises(InputError, match="pairs of whole numbers"):
            validation.as_id_pairs(wrong)


def test_chains_become_blocks_with_their_numbers():
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    blocks = validation.as_chains(x, -x)
    assert [one.ids[:, 0].tolist() for one in blocks] == [[0] * 4, [1] * 4, [2] * 4]
    assert len(validation.as_chains(x[0], -x[0])) == 1
    with pytest.raises(InputError, match="No draws"):
        validation.as_chains(x[:, :0], x[:, :0])
    with pytest.raises(InputError, match="scores have shape"):
        validation.as_chains(x, x[:2])


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 10_000))
def test_steins_identity_does_not_depend_on_the_blocks(cut, dim, seed):
    x = np.random.default_rng(seed).normal(size=(120, dim)) + 100.0
    s = -(x - 100.0)
    whole = SteinIdentity(dim).updated(x, s)
    parts = SteinIdentity(dim).updated(x[:cut], s[:cut]).updated(x[cut:], s[cut:])
    assert parts.count == whole.count and parts.value == pytest.approx(whole.value, rel=1e-9)


def test_a_wrong_sign_is_reported_after_a_hundred_draws():
    x = np.random.default_rng(0).normal(size=(100, 4))
    SteinIdentity(4).updated(x, -x).require_plausible()
    SteinIdentity(4).updated(x[:99], x[:99]).require_plausible()
    with pytest.raises(NegatedScoresError, match=r"look negated.*--negate-scores"):
        SteinIdentity(4).updated(x, x).require_plausible()


def autoregression(chains, count, dim=3, rho=0.95, seed=0):
    """Stationary chains (chains, count, dim) with correlation ``rho`` of consecutive draws."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, count, dim))
    x[:, 0] = rng.normal(size=(chains, dim))
    for t in range(1, count):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=(chains, dim))
    return x * [1.0, 100.0, 0.01][:dim] + 5.0


@pytest.mark.parametrize(("walkers", "steps"), [(4, 500), (10, 60), (32, 2000), (100, 80)])
@pytest.mark.parametrize("seed", range(3))
def test_chains_in_the_order_of_emcee_are_refused_with_a_question(walkers, steps, seed):
    chains = autoregression(walkers, steps, seed=seed)
    assert len(validation.as_chains(chains, None)) == walkers
    with pytest.raises(InputError, match=rf"{steps} chains of {walkers} draws.*Is the order \(draws, chains, dim"):
        validation.as_chains(np.swapaxes(chains, 0, 1), None)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.99])
def test_many_short_chains_are_accepted(seed, rho):
    for chains, count in ((50, 2), (100, 10), (1000, 3), (300, 100)):
        x = autoregression(chains, count, rho=rho, seed=seed)
        assert len(validation.as_chains(x, None)) == chains
        together = x + 10.0 * np.exp(-np.arange(count) / 2.0)[None, :, None]  # a common burn-in
        assert len(validation.as_chains(together, None)) == chains
        on_a_grid = np.linspace(-3, 3, chains)[:, None, None] + 0.1 * x  # chains that stay where they started
        assert len(validation.as_chains(on_a_grid, None)) == chains


def test_constant_and_discrete_parameters_are_accepted():
    rng = np.random.default_rng(0)
    assert len(validation.as_chains(np.ones((100, 5, 2)), None)) == 100
    assert len(validation.as_chains(rng.integers(0, 2, size=(100, 5, 2)), None)) == 100


def test_transposed_draws_are_refused_with_a_question():
    for shape in ((2, 2000), (5, 500), (12, 4000), (50, 1000)):
        for size in (None, 50, 200):
            with pytest.raises(InputError, match=r"Is the order \(dimensions, draws\).*draws.T"):
                validation.reject_transposed(np.zeros(shape), size)


@pytest.mark.parametrize("shape", [(1, 5000), (60, 10_000), (100, 500), (6, 100), (2000, 2), (4, 1000, 3), (7,)])
def test_other_shapes_are_accepted(shape):
    validation.reject_transposed(np.zeros(shape), None)


def test_few_long_draws_are_accepted_if_fewer_are_to_be_kept():
    validation.reject_transposed(np.zeros((8, 270_000)), 4)


def test_masked_entries_are_invalid_and_not_their_values():
    for values in (np.arange(8.0).reshape(4, 2), np.arange(8).reshape(4, 2)):
        masked = np.ma.masked_array(values, mask=np.eye(4, 2, dtype=bool))
        array = validation.as_floats(masked, "draws")
        assert np.isnan(array[[0, 1], [0, 1]]).all() and np.isfinite(array).sum() == 6
        with pytest.raises(InputError, match="draw of chain 2, draw 5 is nan"):
            validation.finite_rows(block(array, np.zeros((4, 2))), "raise")
        unmasked = np.ma.masked_array(values, mask=False)
        np.testing.assert_array_equal(validation.as_floats(unmasked, "draws"), values)


def test_named_dimensions_are_honoured():
    xarray = pytest.importorskip("xarray")
    values = np.random.default_rng(0).normal(size=(3, 5, 4, 2))
    named = xarray.DataArray(values[:, 0], dims=("draw", "chain", "parameter"))
    np.testing.assert_array_equal(validation.as_floats(named, "draws"), np.swapaxes(values[:, 0], 0, 1))
    named = xarray.DataArray(values[0, 0], dims=("parameter", "sample"))
    np.testing.assert_array_equal(validation.as_floats(named, "draws"), values[0, 0].T)
    named = xarray.DataArray(values, dims=("a", "draw", "b", "chain"))
    expected = values.transpose(3, 1, 0, 2).reshape(2, 5, 12)
    np.testing.assert_array_equal(validation.as_floats(named, "draws"), expected)
    unnamed = xarray.DataArray(values[0, 0])
    np.testing.assert_array_equal(validation.as_chains(unnamed, None)[0].draws, values[0, 0])


def test_one_parameter_with_named_dimensions_is_a_column():
    xarray = pytest.importorskip("xarray")
    values = np.arange(12.0).reshape(4, 3)
    blocks = validation.as_chains(xarray.DataArray(values, dims=("draw", "chain")), None)
    assert [block.draws[:, 0].tolist() for block in blocks] == values.T.tolist()
    draws, _ = validation.as_draws_and_scores(xarray.DataArray(values[0], dims="draw"), None)
    assert draws.tolist() == values[0][:, None].tolist()


def test_unknown_names_of_dimensions_are_refused_with_a_remedy():
    xarray = pytest.importorskip("xarray")
    with pytest.raises(InputError, match=r'none of them is named draw.*array\.rename\(time="draw"\)'):
        validation.as_chains(xarray.DataArray(np.zeros((2, 50)), dims=("parameter", "time")), None)


def test_steps_and_walkers_are_draws_and_chains():
    xarray = pytest.importorskip("xarray")
    values = np.random.default_rng(0).normal(size=(20, 4, 3))
    named = xarray.DataArray(values, dims=("step", "walker", "p"), coords={"p": ["a", "b", "c"]})
    blocks = validation.as_chains(named, -named)
    assert validation.parameter_names(named) == ("a", "b", "c")
    for chain, block in enumerate(blocks):
        np.testing.assert_array_equal(block.draws, values[:, chain])
        np.testing.assert_array_equal(block.scores, -values[:, chain])
    assert len(blocks) == 4
    iterations = xarray.DataArray(values[:, 0], dims=("iteration", "p"))
    np.testing.assert_array_equal(validation.as_chains(iterations, None)[0].draws, values[:, 0])


def test_dimensions_that_may_be_the_chains_are_refused():
    xarray = pytest.importorskip("xarray")
    values = np.zeros((20, 4, 3))
    for dims in (("draw", "replica", "p"), ("step", "replica", "p")):
        with pytest.raises(InputError, match=r"replica or p may be the chains.*array\.stack\(parameter="):
            validation.as_chains(xarray.DataArray(values, dims=dims), None)
    matrices = xarray.DataArray(values[None], dims=("chain", "draw", "i", "j"))
    assert validation.as_chains(matrices, None)[0].draws.shape == (20, 12)


def test_labels_of_the_scores_are_ordered_as_those_of_the_draws():
    xarray = pytest.importorskip("xarray")
    values = np.random.default_rng(0).normal(size=(2, 5, 3))
    draws = xarray.DataArray(values, dims=("chain", "draw", "p"), coords={"p": ["a", "b", "c"], "chain": [0, 1]})
    others = (-draws).sel(p=["c", "a", "b"], chain=[1, 0]).transpose("p", "draw", "chain")
    for block, chain in zip(validation.as_chains(draws, others), values, strict=True):
        np.testing.assert_array_equal(block.scores, -chain)
    assert validation.parameter_names(draws) == ("a", "b", "c")
    with pytest.raises(InputError, match="different names: c, d"):
        validation.as_chains(draws, others.assign_coords(p=["d", "a", "b"]))


def test_columns_of_the_scores_are_ordered_as_those_of_the_draws():
    pandas = pytest.importorskip("pandas")
    draws = pandas.DataFrame(np.random.default_rng(0).normal(size=(6, 3)), columns=["a", "b", "c"])
    scores = -draws
    for table in (scores, scores[["c", "a", "b"]]):
        np.testing.assert_array_equal(validation.as_draws_and_scores(draws, table)[1], -draws.to_numpy())
        np.testing.assert_array_equal(validation.as_chains(draws, table)[0].scores, -draws.to_numpy())
    renamed = scores.rename(columns=lambda name: f"score_{name}")
    for table in (renamed, renamed[["score_b", "score_c", "score_a"]]):
        np.testing.assert_array_equal(validation.as_draws_and_scores(draws, table)[1], -draws.to_numpy())
    np.testing.assert_array_equal(validation.as_draws_and_scores(draws, scores.to_numpy())[1], -draws.to_numpy())
    with pytest.raises(InputError, match="different names: c, d"):
        validation.as_draws_and_scores(draws, scores.rename(columns={"c": "d"}))


def test_columns_of_a_table_may_have_different_types_and_missing_values():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64"), "b": [0.5, 1.5, 2.5], "c": [True] * 3})
    expected = [[1.0, 0.5, 1.0], [np.nan, 1.5, 1.0], [3.0, 2.5, 1.0]]
    np.testing.assert_array_equal(validation.as_floats(table, "draws"), expected)
    for other in (["x", "y", "z"], pandas.to_datetime(["2020-01-01"] * 3)):
        with pytest.raises(InputError, match="Column d of the draws is not numeric"):
            validation.as_floats(table.assign(d=other), "draws")


class Table:
    """A DataFrame of another library than pandas: columns, and a conversion to an array."""

    def __init__(self, values, columns):
        self.values, self.columns, self.shape = values, columns, values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values.astype(dtype)


def test_tables_of_other_libraries_are_accepted():
    values = np.random.default_rng(0).normal(size=(5, 2))
    draws, scores = validation.as_draws_and_scores(Table(values, ["a", "b"]), Table(-values[:, ::-1], ["b", "a"]))
    np.testing.assert_array_equal(draws, values)
    np.testing.assert_array_equal(scores, -values)
    assert validation.parameter_names(Table(values, ["a", "b"])) == ("a", "b")
    assert validation.parameter_names(Table(values, ["a", "a"])) is None
    assert validation.parameter_names(values) is None


def test_what_is_not_an_array_has_a_remedy_of_its_own():
    xarray = pytest.importorskip("xarray")
    x = np.zeros((5, 2))
    for value, remedy in (
        ({"a": x}, "np.column_stack"),
        ([x, x[:3]], "ss.parallel.thin"),
        (xarray.Dataset({"a": (("chain", "draw"), x)}), "to_stacked_array"),
        (xarray.DataTree.from_dict({"posterior": xarray.Dataset({"a": (("chain", "draw"), x)})}), "xarray.thin"),
        ([[1.0], [1.0, 2.0]], "same number of entries"),
        (np.array([["a", "b"]]), r"shape \(draws, dimensions\)"),
        (iter(x), r"shape \(draws, dimensions\)"),
    ):
        with pytest.raises(InputError, match=remedy):
            validation.as_chains(value, None)
    with pytest.raises(InputError, match=r"Expected draws with 2 dimensions, got 5. Pass draws\.T"):
        validation.as_draws_and_scores(x.T, None, dim=2)


def test_tensors_of_any_real_type_are_accepted():
    torch = pytest.importorskip("torch")
    values = torch.tensor([[1.0, -2.5], [3.0, 0.5]])
    for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        array = validation.as_floats(values.to(kind).requires_grad_(), "draws")
        assert array.dtype == np.float64 and array.tolist() == values.tolist()
        rows = [row.to(kind).requires_grad_() for row in values]
        assert validation.as_floats(rows, "draws").tolist() == values.tolist()
    assert validation.as_floats(torch.tensor([[1, 2]]), "draws").tolist() == [[1.0, 2.0]]
    with pytest.raises(InputError, match="real numbers"):
        validation.as_floats(values.to(torch.complex64), "draws")


def test_jax_arrays_of_bfloat16_are_accepted():
    jax = pytest.importorskip("jax")
    array = validation.as_floats(jax.numpy.array([[1.0, -2.5]], dtype="bfloat16"), "draws")
    assert array.dtype == np.float64 and array.tolist() == [[1.0, -2.5]]


@pytest.mark.parametrize("weights", ["abc", [1, "a", 2], [1, 2], [1, -1, 2], [0, 0, 0], [1, np.nan, 1], [1, np.inf, 1]])
def test_invalid_weights_are_refused(weights):
    with pytest.raises(InputError, match="Weights must be 3 non-negative numbers"):
        validation.as_weights(weights, 3)
    draws = np.array([[-1.0], [0.0], [1.0]])
    with pytest.raises(InputError, match="Weights must be 3 non-negative numbers"):
        ss.ksd(draws, -draws, weights=weights)


@pytest.mark.parametrize("wrong", ["a", [0.5, "b"], [0.5, 1.1], -0.1, [np.nan]])
def test_invalid_probabilities_are_refused(wrong):
    with pytest.raises(InputError, match="Probabilities must lie between 0 and 1"):
        validation.as_probabilities(wrong)
    draws = np.random.default_rng(0).normal(size=(50, 2))
    kept = ss.Kept(draws, -draws, validation.consecutive_ids(0, 0, 50), 0.0, ss.History.empty())
    with pytest.raises(InputError, match="Probabilities must lie between 0 and 1"):
        kept.quantile(wrong)
