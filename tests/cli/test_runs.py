"""steinstream runs and average: from a kept set to the average of the outputs of a simulation that ran elsewhere."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from steinstream.result import Kept


@pytest.fixture
def kept(steinstream, chain):
    assert steinstream("thin", chain, "-o", "kept.npz", "--size", 30).returncode == 0
    return "kept.npz"


def simulate(source, target, failing=()):
    """Run a simulation of two outputs for each line of the list of runs."""
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "status", "peak", "time"])
        for at, row in enumerate(rows):
            x = float(row["x0"])
            writer.writerow([row["run"], 1, "", ""] if at in failing else [row["run"], 0, x**2, np.exp(x)])
    return rows


def test_outputs_of_runs_are_averaged_as_in_the_library(steinstream, kept, tmp_path):
    ran = steinstream("runs", kept, "-o", "runs.csv")
    assert ran.returncode == 0 and "30 runs in order of use" in ran.stdout, ran.stderr
    rows = simulate(tmp_path / "runs.csv", tmp_path / "outputs.csv")
    assert [int(row["run"]) for row in rows] == Kept.load(tmp_path / kept).to_runs().run.tolist()
    ran = steinstream("average", kept, "outputs.csv", "-o", "table.csv", "--quantiles", "0.25,0.75", "--strict")
    assert ran.returncode == 0, ran.stderr
    expected = Kept.load(tmp_path / kept).average(lambda x: [x[0] ** 2, np.exp(x[0])], quantiles=[0.25, 0.75])
    with (tmp_path / "table.csv").open(newline="") as file:
        table = {row["output"]: row for row in csv.DictReader(file)}
    for at, name in enumerate(("peak", "time")):
        assert float(table[name]["mean"]) == pytest.approx(float(expected.mean[at]))
        assert float(table[name]["75%"]) == pytest.approx(float(expected.quantiles[0.75][at]))
    assert "30 of 30 runs are used." in ran.stdout and "peak" in ran.stdout


def test_failed_runs_are_a_warning(steinstream, kept, tmp_path):
    steinstream("runs", kept, "-o", "runs.csv")
    rows = simulate(tmp_path / "runs.csv", tmp_path / "outputs.csv", failing=(2,))
    ran = steinstream("average", kept, "outputs.csv", "--json", "--strict", "--columns", "peak")
    assert ran.returncode == 3
    assert f"warning: Failed and left out: run {rows[2]['run']} (status 1); 3.3% of the weight." in ran.stderr
    found = json.loads(ran.stdout)
    good = [float(row["x0"]) ** 2 for at, row in enumerate(rows) if at != 2]
    assert found["outputs"].keys() == {"peak"} and found["runs"] == 29 and len(found["warnings"]) == 1
    assert found["outputs"]["peak"]["mean"] == pytest.approx(np.mean(good))


def test_mistakes_get_one_message(steinstream, kept, chain, tmp_path):
    (tmp_path / "outputs.csv").write_text("id,y\n0,1\n")
    for words, message in (
        (("average", kept, "outputs.csv"), "has no column run"),
        (("average", kept, "none.csv"), "no such file"),
        (("average", chain, "outputs.csv"), "is not a kept set"),
        (("average", kept, "outputs.csv", "--quantiles", "a"), "--quantiles must be numbers"),
        (("runs", kept, "-o", kept), "is also an input file"),
    ):
        ran = steinstream(*words)
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr, ran.stderr


def test_the_index_of_a_data_frame_is_not_an_output(steinstream, kept, tmp_path):
    steinstream("runs", kept, "-o", "runs.csv")
    rows = simulate(tmp_path / "runs.csv", tmp_path / "outputs.csv")
    lines = [f"{at},{row['run']},{at}" for at, row in enumerate(rows)]
    (tmp_path / "indexed.csv").write_text("\n".join([",run,peak", *lines]) + "\n")
    ran = steinstream("average", kept, "indexed.csv", "--json")
    assert ran.returncode == 0 and json.loads(ran.stdout)["outputs"].keys() == {"peak"}, ran.stderr
    (tmp_path / "indexed.csv").write_text("\n".join(["__index_level_0__,run,peak", *lines]) + "\n")
    ran = steinstream("average", kept, "indexed.csv")
    assert "Not outputs: __index_level_0__ (row numbers)." in ran.stdout, ran.stderr


def test_standard_output_is_no_file_of_runs(steinstream, kept, tmp_path):
    ran = steinstream("runs", kept, "-o", "-")
    assert ran.returncode == 2 and "error: --output cannot be standard output." in ran.stderr
    assert not (tmp_path / "-").exists()
