"""The pipeline: sources, hooks, stopping and resuming, messages."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import steinstream as ss
from steinstream import validation
from steinstream.api import ArraySource, MarkedBlock, RunHooks, Stopped, fit_source, thin_source
from steinstream.errors import InputError
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block, consecutive_ids


def chains(count: int = 2, length: int = 500, dim: int = 2) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, length, dim)) * [1.0, 0.1]


def scores(x: np.ndarray) -> np.ndarray:
    return -x / np.array([1.0, 0.1]) ** 2


def source() -> ArraySource:
    return ArraySource.of(chains(), scores(chains()))


def test_thin_is_the_pipeline_over_arrays():
    config = ThinConfig(size=30, passes=2)
    one, other = ss.thin(chains(), scores(chains()), config=config), thin_source(source(), config).kept
    assert np.array_equal(one.ids, other.ids) and one.ksd == other.ksd


def test_size_is_the_third_argument():
    assert len(ss.thin(chains()[0], scores(chains()[0]), 17)) == 17


def array_types():
    """Return the same chains (2, 500, 2) and scores in the types of other libraries."""
    x, s = chains(), scores(chains())
    yield "lists", x.tolist(), s.tolist()
    yield "masked", np.ma.masked_array(x, mask=False), s
    try:
        import xarray as xr
    except ImportError:
        return
    labelled = xr.DataArray(x, dims=("chain", "draw", "p"), coords={"p": ["a", "b"]})
    given = xr.DataArray(s, dims=("chain", "draw", "p"), coords={"p": ["a", "b"]})
    yield "xarray", labelled.transpose("p", "draw", "chain"), given.sel(p=["b", "a"])
    yield "xarray and NumPy", labelled.transpose("draw", "chain", "p"), s


@pytest.mark.parametrize("case", [*array_types()], ids=lambda case: case[0])
def test_arrays_of_other_libraries_give_the_same_draws(case):
    name, draws, of_draws = case
    kept, expected = ss.thin(draws, of_draws, 30), ss.thin(chains(), scores(chains()), 30)
    assert np.array_equal(kept.ids, expected.ids) and kept.ksd == expected.ksd
    assert kept.names == (("a", "b") if name.startswith("xarray") else None)
    if name != "lists":
        together = ss.parallel.thin((draws, of_draws), size=30, workers=0)
        assert np.array_equal(together.ids, ss.parallel.thin((chains(), scores(chains())), size=30, workers=0).ids)
        assert together.names == kept.names


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_of_low_precision_are_thinned_as_their_values(kind, library):
    module = pytest.importorskip(library)
    draws = (module.tensor if library == "torch" else module.asarray)(chains(), dtype=getattr(module, kind))
    values = np.asarray(draws.double() if library == "torch" else draws.astype("float32"), dtype=np.float64)
    kept, expected = (ss.thin(x, -x, 30, validate_scores=False) for x in (draws, values))
    assert np.array_equal(kept.ids, expected.ids) and kept.ksd == expected.ksd


def test_discrete_parameters_without_scores_keep_their_proportions():
    counts = np.random.default_rng(0).poisson(2.0, size=(4000, 1))
    kept = ss.thin(counts, size=60)
    assert np.array_equal(kept.draws, counts[kept.indices])
    for value in range(5):
        assert abs((kept.draws == value).mean() - (counts == value).mean()) < 1.5 / 60


@pytest.mark.parametrize("name", ["imq", "IMQ", "rbf", "imq:c=2"])
def test_a_kernel_is_given_by_its_name(name):
    kernel = {"imq": ss.IMQ(), "rbf": ss.RBF(), "imq:c=2": ss.IMQ(c=2.0)}[name.lower()]
    x, s = chains()[0], scores(chains()[0])
    assert np.array_equal(ss.thin(x, s, 20, kernel=name).ids, ss.thin(x, s, 20, kernel=kernel).ids)
    assert ss.ksd(x, s, kernel=name) == ss.ksd(x, s, kernel=kernel)


def test_a_stopped_run_continues_where_it_was(monkeypatch):
    monkeypatch.setattr("steinstream.api._ROWS", 500)

    class StopAfterOneBlock(RunHooks):
        def __init__(self) -> None:
            self.blocks = 0

        def on_block(self, thinner: ss.Thinner) -> None:
            self.blocks += 1

        def stop(self) -> bool:
            return self.blocks == 1

    config = ThinConfig(size=30, passes=3)
    with pytest.raises(Stopped) as stopped:
        thin_source(source(), config, hooks=StopAfterOneBlock())
    assert stopped.value.thinner.seen == 500
    resumed = thin_source(source(), config, thinner=stopped.value.thinner)
    whole = thin_source(source(), config)
    assert np.array_equal(resumed.kept.ids, whole.kept.ids) and resumed.ksd == whole.ksd


def test_a_stop_while_the_subsample_is_taken_leaves_no_thinner():
    class StopAtOnce(RunHooks):
        def stop(self) -> bool:
            return True

    with pytest.raises(Stopped) as stopped:
        thin_source(source(), ThinConfig(), hooks=StopAtOnce())
    assert stopped.value.thinner is None


def test_hooks_are_called_in_order_and_checkpoints_are_due_after_the_interval(monkeypatch):
    monkeypatch.setattr("steinstream.api._ROWS", 500)

    class Record(RunHooks):
        save_interval = 0.0

        def __init__(self) -> None:
            self.calls: list[str] = []

        def on_subsample(self, draws: int) -> None:
            self.calls.append(f"subsample {draws}")

        def on_thinner(self, thinner: ss.Thinner) -> None:
            self.calls.append(f"thinner {thinner.seen}")

        def on_block(self, thinner: ss.Thinner) -> None:
            self.calls.append(f"block {thinner.seen}")

        def save(self, thinner: ss.Thinner) -> None:
            self.calls.append("save")

    hooks = Record()
    thin_source(source(), ThinConfig(size=10), hooks=hooks)
    expected = ["subsample 500", "subsample 1000", "thinner 0", "block 500", "save", "block 1000", "save"]
    assert hooks.calls == expected


def test_the_first_reading_counts_valid_and_invalid_draws():
    x = chains()
    x[1, 7] = np.nan
    fit = fit_source(ArraySource.of(x, scores(x)), ThinConfig(on_bad="skip"))
    assert (fit.valid, fit.skipped) == (999, 1)
    with pytest.raises(InputError, match="chain 1, draw 7"):
        fit_source(ArraySource.of(x, scores(x)), ThinConfig())


def test_a_chain_shorter_than_one_step_is_rejected():
    x = chains(1, 3)[0]
    with pytest.raises(InputError, match="has 3 draws, but one step takes 5"):
        ss.thin(x, scores(x), candidates=5, preconditioner="identity")


def test_a_run_is_logged_under_the_name_of_the_package(caplog):
    with caplog.at_level(logging.DEBUG, logger="steinstream"):
        thin_source(source(), ThinConfig(size=30, passes=2))
        ss.thin(chains()[0], scores(chains()[0]), 20, preconditioner="streaming")
    text = caplog.text
    assert "thinning The chain: 2 dimensions" in text and "pass 1: kept 30 draws" in text
    assert "kept 30 of 1000 draws" in text and "new preconditioner (covariance)" in text
    assert {record.name for record in caplog.records} == {"steinstream"}


def test_the_size_is_the_third_argument_and_a_kernel_has_a_name():
    """As in the package stein-thinning: thin(draws, scores, 40)."""
    draws = np.random.default_rng(0).normal(size=(300, 2))
    kept = ss.thin(draws, -draws, 40, kernel="imq")
    assert np.array_equal(kept.ids, ss.thin(draws, -draws, size=40, kernel=ss.IMQ()).ids)
    assert ss.ksd(draws, -draws, kernel="rbf:h=2") == ss.ksd(draws, -draws, kernel=ss.RBF(h=2))


@pytest.mark.parametrize("with_scores", [True, False])
def test_every_chain_contributes_a_similar_number_of_kept_draws(with_scores):
    x = np.random.default_rng(1).normal(size=(4, 1000, 3))
    kept = ss.thin(x, -x if with_scores else None, size=100)
    assert np.bincount(kept.ids[:, 0], minlength=4).min() >= 15
    assert np.array_equal(kept.draws, x[kept.ids[:, 0], kept.ids[:, 1]])


def test_a_chain_that_is_one_draw_shorter_contributes_as_much_as_the_others():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(1).normal(size=(4, 1000, 3))
    table = pandas.DataFrame(x.reshape(-1, 3), columns=["a", "b", "c"])
    table.insert(0, "chain", np.repeat(range(4), 1000))
    table = table.drop(index=1999)
    kept = ss.thin(table, -table[["a", "b", "c"]], size=100)
    assert np.bincount(kept.ids[:, 0], minlength=4).min() >= 15


def test_several_chains_are_read_in_turns_with_their_costs_pins_and_features():
    x = chains(3, 5)
    marks = np.arange(15.0).reshape(3, 5)
    one = ArraySource.of(x, None, marks, marks > 12, marks[..., None])
    block, costs, pinned = next(iter(one.blocks(4, interleaved=True)))
    ids = np.array([(chain, index) for index in range(5) for chain in range(3)])[4:]
    expected = marks[ids[:, 0], ids[:, 1]]
    assert np.array_equal(block.ids, ids) and np.array_equal(block.draws, x[ids[:, 0], ids[:, 1]])
    assert np.array_equal(costs, expected) and np.array_equal(block.features[:, 0], expected)
    assert np.array_equal(pinned, expected > 12)


def test_chains_of_unequal_length_keep_their_costs_pins_and_features():
    parts = [MarkedBlock(block, *marks) for block, *marks in marked_chains([2, 5, 3])]
    block, costs, pinned = next(iter(ArraySource(parts).blocks(4, interleaved=True)))
    ids = np.array([(1, 0), (2, 0), (1, 1), (0, 0), (1, 2), (2, 1), (1, 3), (0, 1), (1, 4), (2, 2)])[4:]
    expected = 10.0 * ids[:, 0] + ids[:, 1]
    assert np.array_equal(block.ids, ids) and np.array_equal(block.draws[:, 0], expected)
    assert np.array_equal(costs, expected) and np.array_equal(block.features[:, 0], expected)
    assert np.array_equal(pinned, expected > 12)


def marked_chains(lengths):
    """Return chains of given lengths as blocks with costs and pins; all values are 10 * chain + index."""
    for chain, length in enumerate(lengths):
        values = 10.0 * chain + np.arange(length)
        table = values[:, None]
        yield Block(table, table[:, :0], consecutive_ids(chain, 0, length), table), values, values > 12


def test_with_the_objective_of_the_paper_chains_are_read_one_after_another():
    x, s = chains(2, 200), scores(chains(2, 200))
    thinner = ss.Thinner(2, ThinConfig.of(None, **ss.PAPER, size=20))
    for chain in range(2):
        thinner.extend(x[chain], s[chain], chain=chain)
    assert np.array_equal(ss.thin(x, s, size=20, **ss.PAPER).ids, thinner.kept.ids)


def test_the_columns_of_r_are_ids_and_not_parameters():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).normal(size=(4, 250, 2))
    table = pandas.DataFrame(x.reshape(-1, 2), columns=["mu", "tau"])
    table.insert(0, ".chain", np.repeat([1, 2, 3, 4], 250))
    table.insert(1, ".iteration", np.tile(np.arange(1, 251), 4))
    table.insert(2, ".draw", np.arange(1, 1001))
    table["lp__"] = -0.5 * (x.reshape(-1, 2) ** 2).sum(axis=1)
    expected = ss.thin(x, -x, size=40)
    scores = -table[["mu", "tau"]]
    for given in (scores, scores.to_numpy(), -table):
        kept = ss.thin(table, given, size=40)
        assert kept.names == ("mu", "tau")
        np.testing.assert_array_equal(kept.ids, expected.ids)
        np.testing.assert_array_equal(kept.draws, expected.draws)
    both = table.assign(score_mu=scores["mu"], score_tau=scores["tau"])
    np.testing.assert_array_equal(ss.thin(both, size=40).scores, expected.scores)
    alone = ss.thin(table.sample(frac=1.0, random_state=1).sort_values(".draw"), size=40)
    np.testing.assert_array_equal(alone.ids, ss.thin(x, size=40).ids)
    assert ss.thin(table, log_density=table["lp__"], size=10).names == ("mu", "tau")
    pinned = np.zeros(1000, dtype=bool)
    pinned[600] = True
    assert [2, 100] in ss.thin(table, scores, size=40, pinned=pinned).ids.tolist()
    with pytest.raises(InputError, match="pinned must have one entry per draw"):
        ss.thin(table, scores, size=40, pinned=pinned[:5])


def test_a_burn_in_is_refused_with_the_way_to_leave_it_out():
    x = chains()
    with pytest.raises(InputError, match=r"burn_in is not a setting.*draws\[:, n:\]"):
        ss.thin(x, scores(x), size=10, burn_in=100)


def test_masked_entries_are_called_masked():
    x = np.ma.masked_array(chains()[0])
    x[7, 1] = np.ma.masked
    with pytest.raises(InputError, match=r"The draws have 1 masked entries, the first at \(7, 1\).*on_bad"):
        ss.thin(x, size=10)
    assert ss.thin(x, size=10, on_bad="skip").settings["skipped"] == 1


@pytest.mark.parametrize("passes", [1, 2])
def test_draws_in_memory_are_validated_once(monkeypatch, passes):
    draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    measured = []

    def largest(values, original=validation.largest_magnitude):
        measured.append(len(values))
        return original(values)

    monkeypatch.setattr(validation, "largest_magnitude", largest)
    kept = ss.thin(draws, -draws, size=20, passes=passes)
    assert sum(measured) == 2 * 2000  # draws and scores
    assert len(kept) == 20


def test_draws_beyond_the_range_of_the_preconditioner_are_found_without_a_second_look():
    x = np.random.default_rng(0).normal(size=(500, 2))
    x[100, 0] = 1e80
    narrow = ss.Preconditioner.scales([1e-30, 1.0])
    with pytest.raises(InputError, match="chain 0, draw 100"):
        ss.thin(x, -x, size=20, preconditioner=narrow, validate_scores=False)
    kept = ss.thin(x, -x, size=20, preconditioner=narrow, on_bad="skip", validate_scores=False)
    assert kept.settings["skipped"] == 1 and 100 not in kept.indices
