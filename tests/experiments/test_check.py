"""The check of the committed results finds a difference, and covers every experiment of the paper."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from experiments import check
from experiments.paper import NAMES
from experiments.results import read_table, write_table


@pytest.fixture
def tables(tmp_path):
    """Two equal tables in files."""
    table = {"kernel": np.array(["imq", "rbf"]), "step": np.array([1, 2]), "ksd": np.array([0.1, 0.2])}
    for name in ("new", "committed"):
        write_table(tmp_path / f"{name}.parquet", table)
    return tmp_path / "new.parquet", tmp_path / "committed.parquet"


def test_equal_tables_have_no_difference(tables):
    assert check.first_difference(*tables) == ""


def test_a_change_of_the_last_bit_is_found(tables):
    new = read_table(tables[0])
    write_table(tables[0], {**new, "ksd": np.array([0.1, np.nextafter(0.2, 1)])})
    assert "ksd in row 1" in check.first_difference(*tables)


def test_missing_rows_and_columns_are_found(tables):
    new = read_table(tables[0])
    write_table(tables[0], {name: column[:1] for name, column in new.items()})
    assert "1 rows, committed are 2" in check.first_difference(*tables)
    write_table(tables[0], {"ksd": new["ksd"]})
    assert "columns are ksd" in check.first_difference(*tables)


def test_every_experiment_of_the_paper_is_checked(tmp_path):
    assert {*NAMES} <= {one.name for one in check.checks(tmp_path)}
    without = {one.name for one in check.checks(None)}
    assert "adaptivity" in without and not without & {*check.NEEDS_DATA}


def scripts():
    """The scripts in the folders of the experiments."""
    names = [path.relative_to(check.HERE).as_posix() for path in check.HERE.glob("*/*.py")]
    return sorted(name for name in names if '"__main__"' in (check.HERE / name).read_text())


def test_every_script_is_checked(tmp_path):
    assert {*scripts()} - {"networks/subspace.py", "diagnosis/cost.py"} <= {one.name for one in check.checks(tmp_path)}


@pytest.mark.parametrize("name", scripts())
def test_a_script_that_is_asked_for_help_does_not_measure(name):
    assert "ArgumentParser(" in (check.HERE / name).read_text()


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script of an experiment that writes one result, in a folder of experiments."""
    folder = tmp_path / "committed" / "hard-cap"
    folder.mkdir(parents=True)
    monkeypatch.setattr(check, "HERE", tmp_path / "committed")
    path = folder / "run.py"
    path.write_text('from pathlib import Path\nPath(__file__).with_name("results.csv").write_text("a\\n1\\n")\n')
    path.with_name("results.csv").write_text("a\n1\n")
    return path


def test_a_script_that_gives_other_numbers_fails(script, tmp_path):
    results = script.with_name("results.csv")
    assert check.check_script("hard-cap/run.py", None, tmp_path / "one") == "same as committed, bit for bit"
    results.write_text("a\n2\n")
    with pytest.raises(check.CheckError, match="line 2"):
        check.check_script("hard-cap/run.py", None, tmp_path / "two")
    results.write_text("a\n1\n")
    script.write_text("raise SystemExit('broken')")
    with pytest.raises(check.CheckError, match="code 1: broken"):
        check.check_script("hard-cap/run.py", None, tmp_path / "three")


def test_a_script_with_some_of_the_results_is_compared_with_these(script, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "SCRIPTS", {"hard-cap/run.py": ["--repeats", "1"]})
    results = script.with_name("results.csv")
    results.write_text("a\n0\n1\n2\n")
    assert check.check_script("hard-cap/run.py", None, tmp_path / "one").startswith("2 results are the same")
    results.write_text("a\n0\n2\n")
    with pytest.raises(check.CheckError, match="2 lines, of which 1 are committed"):
        check.check_script("hard-cap/run.py", None, tmp_path / "two")


def test_a_script_that_cannot_make_its_tables_fails(script, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "SHOWN", {"hard-cap/run.py": []})
    assert check.check_shown("hard-cap/run.py", tmp_path / "one") == "makes its tables and figures"
    script.write_text("raise SystemExit('broken')")
    with pytest.raises(check.CheckError, match="code 1: broken"):
        check.check_shown("hard-cap/run.py", tmp_path / "two")
