"""The pages about the diagnosis show the numbers of the committed runs."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "diagnosis"
EXPLAINED = (ROOT / "docs" / "blind-spots.md").read_text()


@pytest.fixture(scope="module")
def rows():
    with (FOLDER / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_tables_are_those_of_the_results():
    done = subprocess.run([sys.executable, "run.py"], cwd=FOLDER, capture_output=True, text=True, check=True)
    page = set((FOLDER / "README.md").read_text().splitlines())
    tables = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert len(tables) > 50 and not [line for line in tables if line not in page]


def test_the_explanation_has_the_numbers_of_the_results(rows):
    def false_alarms(*groups):
        some = [row for row in rows if row["kind"] in ("clean", "real") and row["group"] in groups]
        return f"{sum(int(row['fired']) for row in some)} of {sum(int(row['runs']) for row in some)}"

    assert f"| selected with the stream term | {false_alarms('stream term', 'no scores', 'weights')} |" in EXPLAINED
    assert f"| selected by KSD alone | {false_alarms('KSD')} |" in EXPLAINED
    assert f"| evenly spaced or random subsets | {false_alarms('evenly spaced', 'random')} |" in EXPLAINED


def test_the_explanation_has_the_power_of_the_results(rows):
    found = {
        row["case"]: int(row["found"]) for row in rows if (row["kind"], row["group"]) == ("planted", "stream term")
    }
    cases = {
        "Student t set twice too wide, 20 dimensions": "Student t(4) twice too wide, d=20",
        "one of 68 sds 20 % too small": "one of 68 sds 20 % too narrow",
        "upper tail of 5 % lost, 10 dimensions": "upper tail of 5 % lost, normal d=10",
    }
    for title, case in cases.items():
        counts = [str(found.get(f"{case}, {size} kept", "")) for size in (100, 200, 400)]
        assert f"| {title} | {' | '.join(counts)} |".replace("|  |", "| |") in EXPLAINED
