"""The page on many chains shows the numbers of the committed runs, and its conclusions follow from them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("benchmarks.quality")
from experiments.distributed import quality

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "experiments" / "distributed" / "README.md").read_text()
GUIDE = (ROOT / "docs" / "many-chains.md").read_text()
LINES = quality.read()
TARGETS = quality.CHOSEN_ON + quality.CONFIRMED_ON


def test_the_runs_are_complete():
    keys = Counter(tuple(line[name] for name in quality.KEY) for line in LINES)
    spares = {"yes": quality.SPARES, "no": (1.0, 2.0, 4.0)}
    expected = {
        (target, scores, str(seed), str(size), method)
        for target, scores, seed, size in product(TARGETS, ("yes", "no"), quality.SEEDS, quality.SIZES)
        for method in [
            "one process",
            *(f"workers, spare {spare:g}" for spare in (spares[scores] if target in quality.CHOSEN_ON else (2.0,))),
        ]
    }
    assert keys == Counter(expected)


def test_the_tables_are_those_of_the_runs():
    tables = quality.tables(LINES)
    assert len(tables) == 4
    for table in tables:
        assert table in README


def means(targets, scores, metric):
    return quality.mean(quality.ratios(LINES, target, scores)[metric] for target in targets)


def test_workers_are_within_ten_percent_of_one_process_on_average():
    for targets, scores in product((quality.CHOSEN_ON, quality.CONFIRMED_ON), ("yes", "no")):
        assert means(targets, scores, "composite") <= 1.1
    for targets in (quality.CHOSEN_ON, quality.CONFIRMED_ON):
        assert means(targets, "yes", "ksd") <= 1.1


def test_the_conclusions_of_the_guide_are_those_of_the_runs():
    text = " ".join(GUIDE.split())
    assert f"On {len(TARGETS)} targets" in text and "on average smaller errors and a smaller [KSD]" in text
    assert means(TARGETS, "yes", "composite") < 1.0 and means(TARGETS, "yes", "ksd") < 1.0
    larger = [found for target in TARGETS if (found := means([target], "yes", "composite")) > 1.1]
    assert len(larger) == 1 and f"On one target they are {larger[0] - 1:.0%} larger".replace("%", " %") in text
