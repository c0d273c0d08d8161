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


def test_the_guide_shows_the_numbers_of_the_runs():
    table = GUIDE.split("| target | errors | KSD | errors without scores |")[1].split("\n\n")[0]
    shown = [[cell.strip() for cell in line.strip("|").split("|")[1:]] for line in table.splitlines()[2:]]
    both = [[quality.ratios(LINES, target, scores) for scores in ("yes", "no")] for target in quality.CHOSEN_ON]
    found = [(with_scores["composite"], with_scores["ksd"], without["composite"]) for with_scores, without in both]
    assert shown == [[f"{value:.2f}" for value in row] for row in found]
    text = " ".join(GUIDE.split())
    pairs = (("yes", "composite"), ("yes", "ksd"), ("no", "composite"))
    averages = [means(quality.CONFIRMED_ON, *pair) for pair in pairs]
    stated = "the average is {:.2f} for the errors, {:.2f} for KSD, and {:.2f} for the errors without"
    assert stated.format(*averages) in text
    assert f"are {quality.ratios(LINES, 'mixture-2', 'yes')['composite'] - 1:.0%} above".replace("%", " %") in text
    least, default, most = (
        quality.mean(
            quality.ratios(LINES, target, "yes", f"workers, spare {spare}")["composite"] for target in quality.CHOSEN_ON
        )
        for spare in (1, 2, 4)
    )
    assert abs(least / default - 1) < 0.01
    assert f"with `spare=4` they are {1 - most / default:.0%} smaller".replace("%", " %") in text


def test_the_conclusions_of_the_page_follow_from_the_runs():
    text = " ".join(README.split())
    ksd, composite = (means(quality.CONFIRMED_ON, "yes", metric) for metric in ("ksd", "composite"))
    without = means(quality.CONFIRMED_ON, "no", "composite")
    assert f"on average {ksd:.2f} and {composite:.2f} with scores, and a composite of {without:.2f} without" in text
    above = {
        (target, metric): value
        for target, scores in product(TARGETS, ("yes", "no"))
        for metric, value in quality.ratios(LINES, target, scores).items()
        if value > 1.1 and (metric == "composite" or (metric == "ksd" and scores == "yes"))
    }
    assert [*above] == [("mixture-2", "composite")]
    assert f"mixture-2, is more than 10 % above one process ({above['mixture-2', 'composite']:.2f})" in text
    assert f"the ratio of one run scatters by {quality.scatter(LINES, 'composite'):.0%}".replace("%", " %") in text
    quantiles = means(quality.CONFIRMED_ON, "yes", "quantiles")
    assert f"the errors of quantiles are {quantiles - 1:.0%} larger".replace("%", " %") in text
    assert quality.ratios(LINES, "schools-centred", "yes")["ksd"] < 0.5
    ranges = []
    for method in ("one process", quality.DEFAULT):
        own = [line for line in LINES if (line["target"], line["scores"], line["method"]) == ("gauss-2", "no", method)]
        ranges += [100 * pick(float(line["means"]) for line in own) for pick in (min, max)]
    stated = (
        "its error is {:.1f} to {:.0f} % of that of evenly spaced draws in one process, and {:.0f} to {:.0f} % with"
    )
    assert stated.format(*ranges) in text
