"""Outputs are matched with runs by number or by id, and failures do not replace results."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.postprocess.run_outputs import find_outputs

DRAWS = np.array([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]])
RUNS = {
    "run": np.array([2, 0, 1]),
    "chain": np.array([0, 0, 1]),
    "draw": np.array([7, 3, 5]),
    "set": np.array(["0a1b2c3d"] * 3),
    "a": DRAWS[:, 0],
    "b": DRAWS[:, 1],
}


@pytest.mark.parametrize("kind", ["csv.gz", "npy", "parquet"])
def test_a_small_file_that_expands_is_an_error(tmp_path, kind):
    path = tmp_path / f"outputs.{kind}"
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(b"run,y\n" + (b"0,1." + bytes([48]) * 1000 + b"\n") * 50_000, 9))
    elif kind == "npy":
        np.save(path, np.zeros((3, 1)))
        path.write_bytes(path.read_bytes().replace(b"(3, 1), }          ", b"(3, 100000000000), }"))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"run": np.zeros(3_000_000)}), path, compression="zstd")
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match=r"its text takes|do not fit|cannot be read"):
        outputs_of(path)


def outputs_of(outputs, columns=None, *, ordered=True):
    return find_outputs(RUNS, DRAWS, outputs, columns, ordered=ordered, processes=1)


def test_rows_are_matched_by_the_number_of_the_run_or_by_the_id():
    by_run = outputs_of({"run": [0, 1, 2], "y": [10.0, 11.0, 12.0]})
    by_id = outputs_of({"chain": [0, 1, 0], "draw": [3, 5, 7], "y": [10.0, 11.0, 12.0]})
    assert by_run.names == by_id.names == ("y",)
    assert by_run.values.tolist() == by_id.values.tolist() == [[12.0], [10.0], [11.0]]


def test_copied_columns_of_the_runs_and_texts_are_not_outputs():
    table = {"run": [2, 0, 1], "a": ["0.5", "1.5", "2.5"], "y": ["1", "2", "3"], "note": ["x", "y", "z"]}
    found = outputs_of(table)
    assert found.names == ("y",) and found.ignored == {"note": "not numbers"}
    assert outputs_of(table, ["a", "y"]).names == ("a", "y")


def test_a_failed_attempt_does_not_replace_a_successful_one():
    table = {"run": [0, 0, 1, 2], "y": [1.0, np.nan, np.nan, 4.0], "status": ["ok", "crashed", 1, 0]}
    found = outputs_of(table)
    assert found.reasons == ["", "", "status 1"] and found.values[:2, 0].tolist() == [4.0, 1.0]


def test_a_function_and_an_ordered_array_give_the_same_outputs():
    by_function = outputs_of(lambda draw: draw.sum())
    by_array = outputs_of(DRAWS.sum(axis=1))
    assert by_function.values.tolist() == by_array.values.tolist() == [[1.5], [3.5], [5.5]]


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ({"run": [0, 9], "y": [1.0, 2.0]}, "row for run 9, which is not a run"),
        ({"y": [1.0, 2.0, 3.0]}, "has no column run"),
        ({"run": [0, 0], "y": [1.0, 2.0]}, "several outputs of run 0"),
        ({"run": [0], "chain": [0], "draw": [7], "y": [1.0]}, "contradict each other"),
        ({"run": [0, 1]}, "no column of outputs"),
    ],
)
def test_tables_that_do_not_fit_the_runs_are_refused(outputs, problem):
    with pytest.raises(InputError, match=problem):
        outputs_of(outputs)


def test_an_array_without_an_order_is_refused():
    with pytest.raises(InputError, match="requires kept draws with an order of use"):
        outputs_of(DRAWS.sum(axis=1), ordered=False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("run;y\n0;1\n", "no commas between its columns"),
        ("run,y,y\n0,1,2\n", "several columns 'y'"),
        ("run,y\n0,1\n1\n", "line 3 has 1 cells, not 2"),
    ],
)
def test_damaged_tables_are_refused(text, problem, tmp_path):
    (tmp_path / "y.csv").write_text(text)
    with pytest.raises(InputError, match=problem):
        outputs_of(tmp_path / "y.csv")
