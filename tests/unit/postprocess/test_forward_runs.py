"""Forward simulations: the list of runs, averages without failed runs, standard errors along the order of use."""

from __future__ import annotations

import csv
import os
from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import FailedRunsWarning, InputError
from steinstream.postprocess.forward_runs import prefix_statistics
from steinstream.result import Variable


def output(x):
    """A simulation with two outputs."""
    return [x[0] ** 2, np.exp(0.3 * x[1])]


def fails_for_large(x):
    """A simulation that fails in several ways."""
    if x[0] > 1.5:
        raise ZeroDivisionError("the solver failed")
    return np.nan if x[0] < -1.5 else x[1]


def ends_its_process(x):
    """A simulation that ends its process for some draws, as a solver in C may do."""
    if x[0] > 1.5:
        os._exit(3)
    return x[1]


@pytest.fixture
def kept():
    """A set in which some states occur several times, as in that of a random walk."""
    rng = np.random.default_rng(0)
    draws = np.repeat(rng.normal(size=(400, 2)), 3, axis=0)
    found = ss.thin(draws, -draws, size=60, names=["a", "b"])
    assert len(np.unique(found.draws, axis=0)) < len(found)
    return found


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def with_outputs(rows):
    return [{"run": row["run"], "y": output([float(row["a"]), float(row["b"])])[0]} for row in rows]


# -- the list of runs --------------------------------------------------------------------------------------------------


def test_each_distinct_state_is_one_run_with_the_weight_of_its_copies(kept, tmp_path):
    runs = kept.to_runs(tmp_path / "runs.csv")
    states, counts = np.unique(kept.draws, axis=0, return_counts=True)
    assert len(runs.run) == len(states) and sorted(runs.run.tolist()) == list(range(len(states)))
    at = [int(np.flatnonzero((states == draw).all(axis=1))[0]) for draw in runs.draws]
    np.testing.assert_array_equal(runs.multiplicity, counts[at])
    np.testing.assert_allclose(runs.weights, counts[at] / len(kept))
    rows = rows_of(tmp_path / "runs.csv")
    assert list(rows[0]) == ["run", "weight", "multiplicity", "chain", "draw", "set", "a", "b"]
    assert [[float(row[name]) for name in ("a", "b")] for row in rows] == runs.draws.tolist()  # to the last bit
    ids = {tuple(pair): draw.tolist() for pair, draw in zip(kept.ids.tolist(), kept.draws, strict=True)}
    for row, draw in zip(rows, runs.draws, strict=True):
        assert ids[int(row["chain"]), int(row["draw"])] == draw.tolist()


def test_runs_are_listed_in_order_of_use_and_numbered_independently_of_it(kept):
    runs, ordered = kept.to_runs(), kept.ordered()
    distinct = list(dict.fromkeys(map(tuple, ordered.draws.tolist())))
    assert [tuple(draw) for draw in runs.draws.tolist()] == distinct
    weighted = kept.weighted().to_runs()
    numbers = {tuple(draw): run for draw, run in zip(runs.draws.tolist(), runs.run.tolist(), strict=True)}
    assert all(numbers[tuple(d)] == r for d, r in zip(weighted.draws.tolist(), weighted.run.tolist(), strict=True))
    np.testing.assert_array_equal(ordered.to_runs().run, runs.run)


def test_runs_of_zero_weight_are_not_listed(kept):
    share = np.zeros(len(kept))
    share[:10] = 0.1
    runs = replace(kept, weights=share).to_runs()
    assert len(runs.run) == len(np.unique(kept.draws[:10], axis=0)) and runs.weights.sum() == pytest.approx(1.0)


def test_the_list_has_the_variables_of_the_kept_draws_and_no_name_twice(kept, tmp_path):
    kept = kept.with_names(["a", "weight"])
    kept.variables["sigma"] = Variable(np.exp(kept.draws[:, 1]))
    kept.variables["w"] = Variable(np.stack([kept.draws[:, 0], kept.draws[:, 1]], axis=1), ("k",))
    kept.variables["a"] = Variable(kept.draws[:, 0].copy())  # equals the parameter
    kept.variables["run"] = Variable(kept.draws[:, 0] + 1.0)
    kept.to_runs(tmp_path / "runs.csv")
    rows = rows_of(tmp_path / "runs.csv")
    assert list(rows[0])[3:] == ["chain", "draw", "set", "a", "parameter_weight", "sigma", "w.1", "w.2", "variable_run"]
    for row in rows:
        assert float(row["sigma"]) == np.exp(float(row["parameter_weight"])) and row["w.1"] == row["a"]


# -- averages ----------------------------------------------------------------------------------------------------------


def test_a_file_of_outputs_gives_the_weighted_mean_sd_and_quantiles(kept, tmp_path):
    kept.to_runs(tmp_path / "runs.csv")
    rows = with_outputs(rows_of(tmp_path / "runs.csv"))
    write(tmp_path / "outputs.csv", rows[::-1])  # in any order
    average = kept.average(tmp_path / "outputs.csv", quantiles=[0.1, 0.5])
    y = kept.draws[:, 0] ** 2
    assert average.names == ("y",) and not average.failed and average.lost_weight == 0 and average.not_run == 0
    assert float(average.mean[0]) == pytest.approx(y.mean()) and float(average.sd[0]) == pytest.approx(y.std())
    assert float(average.quantiles[0.5][0]) == pytest.approx(np.median(y), abs=0.1)
    weighted = kept.weighted()
    assert float(weighted.average(tmp_path / "outputs.csv").mean[0]) == pytest.approx(weighted.weights @ y)


def test_tables_arrays_and_functions_give_the_same_average(kept, tmp_path):
    pandas = pytest.importorskip("pandas")
    runs = kept.to_runs()
    values = np.array([output(draw) for draw in runs.draws])
    frame = pandas.DataFrame({"run": runs.run, "y": values[:, 0], "z": values[:, 1]}).sample(frac=1.0, random_state=0)
    np.save(tmp_path / "outputs.npy", values)
    frame.to_csv(tmp_path / "outputs.csv.gz", index=False)
    by_id = {"chain": runs.ids[:, 0], "draw": runs.ids[:, 1], "y": values[:, 0], "z": values[:, 1]}
    tables = [frame, frame.set_index("run"), by_id, output, tmp_path / "outputs.csv.gz"]
    arrays = [values, tmp_path / "outputs.npy"]
    for outputs, own in [*((table, kept) for table in tables), *((array, kept.ordered()) for array in arrays)]:
        average = own.average(outputs)
        np.testing.assert_allclose(average.mean, kept.expect(output), rtol=1e-12)
        assert average.to_dataframe().shape == (2, len(average.table()))
    assert kept.average(frame, columns=["z"]).names == ("z",)


def test_outputs_keep_their_shape(kept):
    average = kept.average(lambda x: np.outer(x, x))
    assert average.mean.shape == (2, 2) and average.standard_error.shape == (2, 2)
    np.testing.assert_allclose(average.mean, kept.draws.T @ kept.draws / len(kept), atol=1e-12)
    assert float(kept.average(lambda x: x[0]).mean) == pytest.approx(kept.mean()[0])
    assert average.outputs.shape == average.prefix_means.shape == (len(kept.to_runs().run), 2, 2)


def test_failed_runs_are_left_out_and_the_others_reweighted(kept, tmp_path):
    runs = kept.to_runs(tmp_path / "runs.csv")
    rows = rows_of(tmp_path / "runs.csv")  # the outputs are added to the table of runs
    for row in rows:
        row |= {"y": float(row["a"]) ** 2, "status": "completed", "host": "node7"}
    rows[1]["status"] = "137"
    rows[2]["y"] = ""
    rows[3]["y"] = "inf"
    del rows[4]
    write(tmp_path / "outputs.csv", rows)
    average = kept.average(tmp_path / "outputs.csv")
    number = runs.run.tolist()
    assert average.failed == {
        number[1]: "status 137",
        number[2]: "y is empty",
        number[3]: "y is inf",
        number[4]: "no output",
    }
    good = [0, *range(5, len(number))]
    share = runs.weights[good] / runs.weights[good].sum()
    assert float(average.mean[0]) == pytest.approx(share @ runs.draws[good, 0] ** 2)
    assert average.lost_weight == pytest.approx(runs.weights[1:5].sum())
    assert average.ignored == {"host": "not numbers"}
    text = repr(average)
    assert str(average) == text
    assert f"{len(good)} of {len(number)} runs are used." in text
    assert f"run {number[1]} (status 137)" in text and f"{average.lost_weight:.1%} of the weight" in text


def test_an_output_may_have_the_name_of_a_parameter(kept):
    runs = kept.to_runs()
    copied = {"run": runs.run, "a": [f"{x:.6g}" for x in runs.draws[:, 0]], "b": runs.draws[:, 1] ** 2}
    assert kept.average(copied).names == ("b",)


def test_files_of_spreadsheets_are_read(kept, tmp_path):
    lines = ["run,größe", *(f"{run},{run / 2}" for run in kept.to_runs().run)]
    (tmp_path / "outputs.csv").write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    assert kept.average(tmp_path / "outputs.csv").names == ("größe",)
    (tmp_path / "outputs.csv").write_text("\n".join(lines).replace(",", ";"), encoding="utf-8")
    with pytest.raises(InputError, match="no commas between its columns"):
        kept.average(tmp_path / "outputs.csv")


def test_the_runs_after_the_last_output_are_not_failures(kept):
    runs = kept.to_runs()
    average = kept.average({"run": runs.run[:10], "y": runs.draws[:10, 0]})
    assert not average.failed and average.not_run == len(runs.run) - 10 and average.lost_weight == 0
    assert f"The last {average.not_run} runs in the order of use have no output." in average.notes
    share = runs.weights[:10] / runs.weights[:10].sum()
    assert float(average.mean[0]) == pytest.approx(share @ runs.draws[:10, 0])


def test_a_repeated_attempt_replaces_a_failed_one_only(kept):
    runs = kept.to_runs()
    run, y = [*runs.run, runs.run[0]], [*runs.draws[:, 0], 5.0]
    failed = ["failed", *["ok"] * len(runs.run)]
    assert kept.average({"run": run, "y": y, "status": failed}).outputs[0, 0] == 5.0
    with pytest.raises(InputError, match="several outputs of run"):
        kept.average({"run": run, "y": y})


@pytest.mark.parametrize(
    ("status", "good"),
    [
        ("ok", True),
        ("OK ", True),
        ("0", True),
        (0, True),
        (True, True),
        ("1", False),
        (False, False),
        ("timeout", False),
    ],
)
def test_a_status_is_an_exit_code_or_a_word(kept, status, good):
    runs = kept.to_runs()
    table = {"run": runs.run, "y": runs.draws[:, 0], "status": [status, *["ok"] * (len(runs.run) - 1)]}
    assert (not kept.average(table).failed) == good


def test_outputs_with_the_mark_of_another_kept_set_are_refused(kept, tmp_path):
    runs, other = kept.to_runs(), replace(kept, draws=kept.draws + 1.0).to_runs()
    assert len(runs.run) == len(other.run)
    for own, accepted in ((runs, True), (kept.weighted().ordered().to_runs(), True), (other, False)):
        own.save(tmp_path / "runs.csv")
        rows = rows_of(tmp_path / "runs.csv")
        lines = ["run,set,y", *(f"{row['run']},{row['set']},{row['a']}" for row in rows)]
        (tmp_path / "outputs.csv").write_text("\n".join(lines))
        if accepted:
            assert kept.average(tmp_path / "outputs.csv").names == ("y",)
        else:
            with pytest.raises(InputError, match="outputs of the kept set k"):
                kept.average(tmp_path / "outputs.csv")


def test_outputs_of_another_kept_set_are_refused(kept, tmp_path):
    runs = kept.to_runs()
    for table, message in (
        ({"run": [10_000], "y": [1.0]}, "a row for run 10000, which is not a run"),
        ({"chain": [7], "draw": [0], "y": [1.0]}, "a row for chain 7, draw 0"),
        ({"id": [1], "y": [1.0]}, "no column run; it has id, y"),
        ({"run": [1], "host": ["x"]}, "no column of outputs"),
        ({"run": runs.run, "chain": runs.ids[:, 0], "draw": runs.ids[::-1, 1], "y": runs.draws[:, 0]}, "contradict"),
        ({"run": runs.run, "y": [np.nan] * len(runs.run)}, "All runs failed; the first one: y is nan"),
        ({"run": [0, 1], "status": ["failed"] * 2, "y": ["", ""]}, "All runs failed; the first one: status failed"),
        ({"run": runs.run, "y": runs.draws[:, 0], "status": ["x"] * len(runs.run)}, "All runs failed"),
        (np.zeros(3), "requires kept draws with an order of use"),
        (tmp_path / "none.csv", "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            kept.average(table)
    wrong = ((np.zeros(3), "there are"), ([["a"]], "not an array of numbers"), (np.zeros(20) * 1j, "not an array of"))
    for array, message in wrong:
        with pytest.raises(InputError, match=message):
            kept.ordered().average(array)
    with pytest.raises(InputError, match="no column z"):
        kept.average({"run": runs.run, "y": runs.draws[:, 0]}, columns=["z"])
    for content, message in (
        ("", "is empty"),
        ("run,y\n1\n", "line 2 has 1 cells"),
        ("run,y,y\n1,2,3\n", "several columns"),
    ):
        (tmp_path / "bad.csv").write_text(content)
        with pytest.raises(InputError, match=message):
            kept.average(tmp_path / "bad.csv")


# -- standard errors ---------------------------------------------------------------------------------------------------


def test_the_standard_error_is_calibrated_for_independent_runs():
    rng = np.random.default_rng(0)
    weights = rng.choice([1.0, 2.0, 3.0], size=60)
    weights /= weights.sum()
    means, errors = prefix_statistics(rng.normal(size=(60, 4000)), weights)
    assert np.mean(errors[-1] ** 2) / np.mean(means[-1] ** 2) == pytest.approx(1.0, abs=0.1)
    assert np.mean(errors[19] ** 2) / np.mean(means[19] ** 2) == pytest.approx(1.0, abs=0.1)
    assert np.isnan(errors[:3]).all() and np.isfinite(errors[3:]).all()


def test_an_ordered_set_has_a_smaller_standard_error_than_independent_draws():
    draws = np.random.default_rng(0).normal(size=(5000, 3))
    average = ss.thin(draws, -draws, size=80).average(lambda x: x)
    assert (average.standard_error < 0.5 * average.sd / np.sqrt(80)).all()
    np.testing.assert_allclose(average.prefix_means[-1], average.mean, atol=1e-12)


@pytest.mark.parametrize("unit", [2.0**1000, 2.0**-1000])
def test_outputs_whose_squares_are_out_of_range_have_the_same_digits(unit):
    draws = np.random.default_rng(0).normal(size=(300, 2))
    kept = ss.thin(draws, -draws, size=20).ordered()
    one, scaled = (kept.average(factor * kept.draws) for factor in (1.0, unit))
    for name in ("mean", "sd", "standard_error", "prefix_means"):
        assert np.array_equal(unit * getattr(one, name), getattr(scaled, name))
    assert (scaled.sd > 0).all() and np.isfinite(scaled.sd).all()


# -- functions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_one_exception_loses_nothing(kept, processes):
    good = np.abs(kept.draws[:, 0]) <= 1.5
    with pytest.warns(FailedRunsWarning, match=r"evaluations failed \(.*\) and are left out, \d+\.\d% of the weight"):
        value = kept.expect(fails_for_large, processes=processes)
    assert float(value) == pytest.approx(kept.draws[good, 1].mean())
    average = kept.average(fails_for_large, processes=processes)
    assert float(average.mean) == pytest.approx(kept.draws[good, 1].mean())
    assert {"ZeroDivisionError: the solver failed", "the output is not finite"} == set(average.failed.values())
    assert average.lost_weight == pytest.approx(1 - good.mean())


def test_a_function_that_ends_its_process_fails_alone(kept):
    average = kept.average(ends_its_process, processes=2)
    good = kept.draws[:, 0] <= 1.5
    assert set(average.failed.values()) == {"RuntimeError: its process ended unexpectedly"}
    assert float(average.mean) == pytest.approx(kept.draws[good, 1].mean())


def test_draws_without_scores_can_be_run():
    draws = np.random.default_rng(0).normal(size=(2000, 2))
    average = ss.thin(draws, size=40).average(lambda x: x)
    np.testing.assert_allclose(average.mean, draws.mean(axis=0), atol=0.05)


def test_runs_have_the_same_numbers_after_a_file_that_may_not_keep_the_order(kept, tmp_path):
    names = ["kept.npz"]
    try:
        import h5netcdf  # noqa: F401

        names.append("kept.nc")
    except ImportError:
        pass
    before = kept.to_runs()
    numbers = {tuple(pair): run for pair, run in zip(before.ids.tolist(), before.run.tolist(), strict=True)}
    for name in names:
        kept.save(tmp_path / name)
        loaded = ss.Kept.load(tmp_path / name)
        after = loaded.to_runs()
        assert {tuple(p): r for p, r in zip(after.ids.tolist(), after.run.tolist(), strict=True)} == numbers
        average = loaded.average({"run": before.run, "y": before.draws[:, 0]})
        assert float(average.mean[0]) == pytest.approx(kept.mean()[0])
        kept.ordered().save(tmp_path / name)
        np.testing.assert_array_equal(ss.Kept.load(tmp_path / name).to_runs().run, kept.ordered().to_runs().run)
