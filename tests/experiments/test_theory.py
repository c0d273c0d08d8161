"""The bound in the experiment on rates covers every step of a kept set at its floor, and so does its summary."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.paper import ExperimentOptions, theory
from experiments.results import read_table
from experiments.run_all import HERE
from steinstream import schedules


@pytest.mark.parametrize("growth", theory.GROWTHS)
@pytest.mark.parametrize("budget", theory.BUDGETS)
def test_the_bound_spends_the_budget_of_whole_sets(growth, budget):
    f, n, kappa = schedules.growth(growth), np.arange(1.0, 501.0), 3.5
    sizes = np.maximum(1.0, np.ceil(schedules.evaluate(f, n)))  # at the floor after each step
    before = np.append(0.0, sizes[:-1]) + 1.0
    spent = np.cumsum(before**2 * schedules.evaluate(schedules.budget(budget, f), n))
    late = n > 20
    ratio = theory.bound(growth, budget, n, kappa)[late] * f(n)[late] ** 2 / (n * kappa + spent)[late]
    assert (ratio >= 1 - 1e-12).all() and (ratio < 1.3).all()


def test_the_summary_compares_with_the_bound_from_the_first_step_on():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    results = {name: column.copy() for name, column in read_table(HERE / "theory" / "results.parquet").items()}
    results["ksd"][results["step"] == 2] = 100.0
    lines = theory.Theory(ExperimentOptions("full")).summary(results).splitlines()
    ratios = [float(line.split(" | ")[-1].strip(" |")) for line in lines if " i.i.d. " in line and "±" in line]
    assert len(ratios) == 9 and min(ratios) > 100.0
