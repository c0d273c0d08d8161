"""The page on errors of forward simulations shows the committed results, and its conclusions follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("PIL")
surrogate = pytest.importorskip("experiments.weights.surrogate")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "forward-errors.md").read_text()
README = (ROOT / "experiments" / "weights" / "README.md").read_text()
TITLES = {"goodwin": surrogate.GoodwinForecast.title, "diffusion": surrogate.Diffusion.title}
ROWS = surrogate.read()


def error(problem, method, size, field="mean"):
    return surrogate.summary(ROWS, problem, method, size, field)[0]


def test_the_results_are_complete():
    expected = len(surrogate.PROBLEMS) * len(surrogate.SEEDS) * (1 + len(surrogate.METHODS) * len(surrogate.SIZES))
    assert len(ROWS) == len({row[:4] for row in ROWS}) == expected
    assert all(0 < row.runs <= row.size for row in ROWS if row.method != "chain")


@pytest.mark.parametrize("problem", TITLES)
def test_the_tables_are_those_of_the_results(problem):
    assert surrogate.table(ROWS, problem, "mean").replace("| mean |", f"| {TITLES[problem]} |") in PAGE
    for field in ("mean", "spread", "standard_error"):
        assert surrogate.table(ROWS, problem, field) in README
    whole = "The whole chain: mean {:.3f}, spread {:.3f}.".format(
        *(error(problem, "chain", 0, field) for field in ("mean", "spread"))
    )
    assert whole in README


def test_the_conclusions_of_the_page_follow_from_the_results():
    few = error("diffusion", "surrogate", 5)
    assert few < 1.2 * error("diffusion", "draws", 40) and few < 0.55 * error("diffusion", "stride", 80)
    for size in surrogate.SIZES:
        assert error("goodwin", "draws", size) < error("goodwin", "surrogate", size)
        for problem in TITLES:
            for method in surrogate.METHODS[1:]:
                assert error(problem, method, size) < error(problem, "stride", size)
    for problem in TITLES:
        for method in ("draws", "draws and scores"):
            assert error(problem, method, 10) < 1.2 * error(problem, "stride", 80)


def test_the_standard_error_is_as_cautious_as_the_page_says():
    ratios = [
        error(problem, method, size, "standard_error") / error(problem, method, size)
        for problem in TITLES
        for method in surrogate.METHODS[1:]
        for size in surrogate.SIZES
    ]
    assert min(ratios) > 1
    assert f"was {min(ratios):.1f} to {max(ratios):.1f} times the" in PAGE


def test_the_simulation_and_its_surrogate_solve_the_same_equations():
    import numpy as np

    problem = object.__new__(surrogate.GoodwinForecast)
    draws = np.log([[1.0, 3.0, 0.5, 1.0], [1.1, 2.5, 0.5, 0.9]])
    fine = np.array([problem.simulate(q) for q in draws])
    problem.step = 0.01
    np.testing.assert_allclose(problem.surrogate(draws), fine, atol=0.011)
    other = object.__new__(surrogate.Diffusion)
    draws = np.random.default_rng(0).normal(size=(3, 20))
    np.testing.assert_allclose(other.surrogate(draws), [other.simulate(q) for q in draws], rtol=0.03)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def errors_of_means(observations, selection):
    means = README.split(f"### {observations} observations")[1].partition("The chain itself")[0]
    (line,) = (line for line in means.splitlines() if line.startswith(f"| {selection} |"))
    return dict(zip(("5", "10", "20", "40", "80", "160"), (cell[:5] for cell in cells(line)[1:]), strict=True))


SELECTIONS = {
    "stride": "stride",
    "without scores": "without scores",
    "default": "default",
    "Stein thinning": "Stein thinning",
    "thinned to this size": "default",
    "first in order of use": "default, in order",
}


@pytest.mark.parametrize(("title", "rows"), [("A chain that mixes slowly", 12), ("Order of use", 6)])
def test_the_tables_of_slow_chains_have_the_numbers_of_the_experiment(title, rows):
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    shown, sizes, observations = 0, [], ""
    for first, *row in (cells(line) for line in section.splitlines() if line.startswith("|")):
        observations = first if first.isdigit() else observations
        if row[0] == "selection":
            sizes = row[1:]
        elif row[0] in SELECTIONS:
            found = errors_of_means(observations, SELECTIONS[row[0]])
            assert row[1:] == [found[size] for size in sizes]
            shown += 1
    assert shown == rows


def test_the_errors_of_the_chains_are_those_of_the_experiment():
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| error of the mean, second half"))
    parts = [README.split(f"### {observations} observations")[1] for observations in (60, 150, 2400)]
    assert cells(row)[1:] == [part.split("The chain itself: ")[1][:5] for part in parts]


@pytest.mark.parametrize("kind", ["with scores", "without scores"])
def test_the_table_of_weights_has_the_numbers_of_the_experiment(kind):
    table = README.split(f"**Targets that confirm, {kind}**")[1]
    (wanted,) = [line for line in table.split("\n\n")[1].splitlines() if line.startswith("| weighted() |")]
    (row,) = (line for line in PAGE.split("## Weights\n")[1].splitlines() if line.startswith(f"| {kind} |"))
    assert cells(row)[1:] == cells(wanted)[2:-1]
