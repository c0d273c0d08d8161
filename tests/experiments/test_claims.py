"""The numbers of the table of claims in docs/paper.md are those of the committed results."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from experiments.paper import assumptions, theory
from experiments.paper.networks.summary import UNTHINNED, mean_over_chains, networks_needed
from experiments.results import mean_over_repeats, read_table, select

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / "experiments"
PAIR = ("KSDT-LINEAR", "KSDT-SQRT")
ALL = ("every draw", *PAIR)


@cache
def results(name):
    """The committed results of an experiment."""
    return read_table(EXPERIMENTS / name / "results.parquet")


@cache
def rows():
    """The rows of the table of claims: the claim, and the other cells as one text."""
    page = (ROOT / "docs" / "paper.md").read_text()
    table = page[page.index("## Claims and numbers") : page.index("## Beyond the paper")]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {claim: " | ".join(rest) for claim, *rest in cells[1:]}


# -- numbers as the page writes them -----------------------------------------------------------------------------------


def plain(value):
    """A value of one run: 25 260, 56, 3.45, 0.76."""
    digits = 0 if value >= 10 else 2
    return f"{float(f'{value:.4g}') if value >= 1000 else value:,.{digits}f}".replace(",", " ")


def interval(values, digits, sign=""):
    """The mean and two standard errors of repeated values as a formula."""
    numbers = np.mean(values), 2.0 * np.std(values, ddof=1) / np.sqrt(len(values))
    if digits < 0:  # 42 400 with -2
        mean, error = (f"{round(number, digits):,.0f}".replace(",", r"\thinspace") for number in numbers)
        return rf"${mean} \pm {error}$"
    return rf"${numbers[0]:{sign}.{digits}f} \pm {numbers[1]:.{digits}f}$"


def last(name, method, stream="first", part="whole", kernel="imq", measure="ksd"):
    """The last values of the chains of an experiment."""
    table = select(results(name), method=method, stream=stream, part=part, kernel=kernel)
    if "chain" not in table:
        return table[measure][-1:]
    return np.array([table[measure][table["chain"] == number][-1] for number in np.unique(table["chain"])])


def three(name, **key):
    """'LINEAR and SQRT against every draw' of one chain."""
    every, linear, sqrt = (plain(float(last(name, method, **key)[0])) for method in ALL)
    return f"{linear} and {sqrt} against {every}"


def difference(name, step, measure="agreement", method="KSDT-SQRT", stream="SGLD", kernel="imq"):
    """Thinned minus unthinned networks, paired over the chains."""
    key = {"stream": stream, "kernel": kernel, "rule": "paper", "preconditioner": "identity", "step": step}
    one, every = (select(results(name), method=which, **key) for which in (method, "every draw"))
    return interval(one[measure] - every[measure], 4, "+")


def repeats(name, measure, digits, step=20_000, **key):
    """Mean and two standard errors over the repeats at the last step."""
    return interval(select(results(name), step=step, **key)[measure], digits)


@cache
def published():
    """The last step of every run of the algorithm of the authors' code: measures by problem, setting and kernel."""
    table = results("published")
    keys = zip(*(table[name] for name in ("problem", "setting", "kernel", "algorithm", "repeat")), strict=True)
    values = zip(table["kept"], table["ksd"] * table["kept"] ** 0.5, strict=True)
    return {key: {"kept": kept, "normalised": normalised} for key, (kept, normalised) in zip(keys, values, strict=True)}


def of_code(problem, setting, measure, digits, kernel="imq"):
    """Mean and two standard errors over the repeats of the published algorithm."""
    chosen = (problem, setting, kernel, "published")
    return interval([values[measure] for key, values in published().items() if key[:4] == chosen], digits)


def slope(name, first, digits=2, **key):
    """Slope of the mean squared KSD and two standard errors as a formula."""
    fit, error = theory.slope_over_repeats(select(results(name), **key), first)
    return rf"${fit:.{digits}f} \pm {2 * error:.{digits}f}$"


def bound_over_measured(growth):
    """The bound of the paper over the measured mean squared KSD at n = 800, for independent draws."""
    curve = mean_over_repeats(select(results("assumptions"), growth=growth, candidates="n", rho=0.0))
    return assumptions.paper_bound(growth, 0.0, curve["step"])[-1] / curve["square"][-1]


def lowest(kernel, setting="1.0"):
    """Mean normalised KSD of the algorithm of the authors' code at the recorded steps: the lowest, and its step."""
    table = select(results("published"), problem="alpha", setting=setting, kernel=kernel, algorithm="published")
    curve = mean_over_repeats({**table, "normalised": table["ksd"] * table["kept"] ** 0.5})
    return min((value, step) for step, value in zip(curve["step"], curve["normalised"], strict=True) if step >= 10)


def stored(name, file):
    """The description that a run has stored."""
    return json.loads((EXPERIMENTS / name / file).read_text())


def stated(name, *numbers):
    """Numbers of the interpolant and of the ground truth, which the run has stored."""
    found = decimals("\n".join(stored(name, "networks.json")["introduction"]))
    for number in numbers:
        assert any(round(float(one), len(number) - 2) == float(number) for one in found), number
    return list(numbers)


def decimals(text):
    """All decimal numbers of a text."""
    return re.findall(r"\d+\.\d+", text)


def same_agreement(name, method, step, stream="SGLD"):
    """Kept networks, networks that the unthinned chain needs for the same agreement, and the agreement."""
    table = results(name)
    paper = {column: values[table["stream"] != "others"] for column, values in table.items()}
    every = mean_over_chains(paper, kernel="imq", stream="SGLD", **UNTHINNED)
    if method == "default":
        kept = select(table, stream="others", method=method, step=step, size=0)
    else:
        kept = select(paper, kernel="imq", stream=stream, step=step, **{**UNTHINNED, "method": method})
    agreement = float(kept["agreement"].mean())
    return int(kept["kept"].mean()), networks_needed(every, agreement), agreement


def ratios(name, steps=(100, 200, 500, 1000, 2000)):
    """Fractions of networks that KSDT-SQRT needs, at the steps whose agreement the chain reaches."""
    found = [same_agreement(name, "KSDT-SQRT", step) for step in steps]
    values = [kept / needed for kept, needed, _ in found if np.isfinite(needed)]
    return f"{min(values):.2f} to {max(values):.2f}"


def networks(name, method, step):
    """'124 against 1000 for 0.9738'."""
    kept, needed, agreement = same_agreement(name, method, step)
    return f"{kept} against {needed:.0f} for {agreement:.4f}"


# -- the rows ----------------------------------------------------------------------------------------------------------


def goodwin(stream="first", measure="ksd", digits=(3, 0, 1)):
    """The parts of a row on the random walk: one chain and five chains, with and without burn-in.

    ``digits`` are those of the thinned sets and of every draw of the five chains, with and without burn-in.
    """
    thinned, *unthinned = digits
    expected = []
    for part, of_every in zip(("whole", "settled"), unthinned, strict=True):
        every, linear, sqrt = (last("goodwin-rwm-chains", method, stream, part, measure=measure) for method in ALL)
        five = f"{interval(linear, thinned)} and {interval(sqrt, thinned)} against {interval(every, of_every)}"
        one = three("goodwin-rwm", stream=stream, part=part, measure=measure)
        prefix = "without burn-in " if part == "settled" else ""
        expected += [prefix + one, prefix + five]
    return expected


def paired_methods(**key):
    """KSDT-LINEAR minus KSDT-SQRT over the five chains."""
    linear, sqrt = (last("goodwin-rwm-chains", method, **key) for method in PAIR)
    return interval(linear - sqrt, 3)


def steps_below(method, stream, kernel, other="every draw", name="calcium"):
    """Recorded steps of the whole chain at which a set is below and above another one, and all recorded steps."""
    key = {"stream": stream, "kernel": kernel, "part": "whole"}
    one, second = (select(results(name), method=which, **key)["ksd"] for which in (method, other))
    return int((one < second).sum()), int((one > second).sum()), len(one)


def calcium_below(kernel, stream):
    """Numbers of steps of calcium at which both thinned sets are below the unthinned one."""
    return " and ".join(str(steps_below(method, stream, kernel)[0]) for method in PAIR)


def against_every(method, **key):
    """A thinned set against the unthinned set of calcium."""
    return " against ".join(plain(float(last("calcium", which, **key)[0])) for which in (method, "every draw"))


def two(name, **key):
    """'LINEAR against SQRT' of one chain."""
    return " against ".join(plain(float(last(name, method, **key)[0])) for method in PAIR)


def rates_of_chains():
    """The largest difference of KSD between chains and independent draws with n candidates at n = 800, in percent."""
    values = [
        mean_over_repeats(select(results("assumptions"), growth=growth, candidates="n", rho=rho, step=800))["square"][0]
        for growth in assumptions.GROWTHS
        for rho in assumptions.RATES
    ]
    square = np.array(values).reshape(len(assumptions.GROWTHS), -1)
    return [f"within {np.ceil(100 * np.abs(np.sqrt(square / square[:, :1]) - 1.0).max()):.0f} %", r"$\rho \le 0.99$"]


def plans():
    """The smallest and the largest KSD of a planned run over its radius."""
    table, values = results("theory"), []
    for growth, stream, radius in product(theory.EXPONENTS, theory.STREAMS, theory.RADII):
        runs = select(table, growth=growth, stream=stream, budget=f"{theory.PLANNED}{radius}")
        values.append(np.sqrt(mean_over_repeats(runs)["square"][-1]) / radius)
    return [f"at {min(values):.2f} to {max(values):.2f}"]


def calcium_excess(kernel):
    """By how much KSDT-LINEAR exceeds the unthinned set after SPMCMC from step 10 on, and the last such step."""
    key = {"stream": "best", "kernel": kernel, "part": "whole"}
    one, every = (select(results("calcium"), method=which, **key) for which in ("KSDT-LINEAR", "every draw"))
    late, above = one["step"] > 10, one["ksd"] > every["ksd"]
    excess = 100 * ((one["ksd"] / every["ksd"])[late].max() - 1.0)
    return f"{excess:.0f} %", f"{one['step'][above][-1]:,}".replace(",", " ")


def same_with_rbf():
    """The exceptions of the row on RBF and Goodwin."""

    def pair(name, stream, part, method, other, digits=2):
        found = [
            [f"{float(last(name, which, stream, part, kernel)[0]):.{digits}f}" for which in (method, other)]
            for kernel in ("rbf", "imq")
        ]
        joint = " against " if other == "every draw" else " and "
        return f"{joint.join(found[0])}, IMQ {joint.join(found[1])}"

    return [
        f"({pair('goodwin-mala', 'first', 'settled', 'KSDT-SQRT', 'every draw')})",
        f"({pair('goodwin-rwm', 'best', 'whole', *PAIR, digits=3)})",
        f"({pair('goodwin-published', 'first', 'settled', *PAIR)})",
        f"({pair('goodwin-mala-slow', 'best', 'settled', *PAIR)})",
    ]


EXPECTED = {
    "$V$-uniformly ergodic": rates_of_chains,
    "fixed budget": plans,
    "calcium: about 10": lambda: [f"{100 * stored('calcium', 'chain.json')['distinct']:.1f} %"],
    "networks for the same agreement": lambda: [
        *(ratios(name) for name in ("cifar10", "imdb")),
        networks("cifar10", "KSDT-SQRT", 2000),
        networks("imdb", "KSDT-SQRT", 100),
        "{2:.4f} with {0}".format(*same_agreement("cifar10", "default", 500)),
        networks("imdb", "default", 2000),
        "{2:.4f} with {0}".format(*same_agreement("imdb", "KSDT-SQRT", 1000)),
    ],
    "RBF gives similar": same_with_rbf,
    "Contribution 2": lambda: [slope("theory", 100_000 / 30, growth="linear", budget="decaying", stream="i.i.d.")],
    "for $\\sqrt{n \\log n}$": lambda: [
        slope("theory", 100_000 / 30, growth="sqrt", budget="decaying", stream="i.i.d.")
    ],
    "with $m_i = n$ candidates": lambda: [
        *(slope("assumptions", 100, growth=growth, candidates="n", rho=0.0) for growth in ("linear", "sqrt")),
        plain(1000 * np.round(min(map(bound_over_measured, assumptions.GROWTHS)) / 1000)),
    ],
    "Goodwin, random walk": goodwin,
    "and on normalised KSD": lambda: goodwin(measure="normalised", digits=(1, -2, -1)),
    "the same after SPMCMC": lambda: goodwin("best", digits=(3, 0, 2)),
    "after SPMCMC on normalised KSD": lambda: goodwin("best", "normalised", (1, -2, 0)),
    "the same on the [published chain]": lambda: [
        f"KSD {three('goodwin-published')}, SPMCMC {three('goodwin-published', stream='best')}",
        f"normalised {three('goodwin-published', measure='normalised')}",
        f"SPMCMC {three('goodwin-published', stream='best', measure='normalised')}",
        f"Without burn-in after SPMCMC, KSD {three('goodwin-published', stream='best', part='settled')}",
    ],
    "KSDT-LINEAR is below KSDT-SQRT": lambda: [
        f"random walk {two('goodwin-rwm')}; {two('goodwin-rwm', measure='normalised')}",
        paired_methods(),
        paired_methods(stream="best"),
        f"Slow MALA {two('goodwin-mala-slow')} at the end",
        "above at {1} of {2} recorded steps".format(
            *steps_below("KSDT-LINEAR", "first", "imq", "KSDT-SQRT", "goodwin-mala-slow")
        ),
        f"; {two('goodwin-mala-slow', measure='normalised')}",
    ],
    "Goodwin, MALA": lambda: [
        f"slow step: {three('goodwin-mala-slow')}, SPMCMC {three('goodwin-mala-slow', stream='best')}",
        f"fast step: {three('goodwin-mala')}, SPMCMC {three('goodwin-mala', stream='best')}",
    ],
    "MALA on normalised KSD": lambda: [
        f"{step}: {three(name, measure='normalised')}, SPMCMC {three(name, stream='best', measure='normalised')}"
        for step, name in (("slow step", "goodwin-mala-slow"), ("fast step", "goodwin-mala"))
    ],
    "calcium: both thinned": lambda: [
        three("calcium", measure="normalised"),
        f"SPMCMC {three('calcium', stream='best', measure='normalised')}",
    ],
    "calcium: KSDT-LINEAR is below": lambda: [
        f"at the end {against_every('KSDT-LINEAR')}; SPMCMC {against_every('KSDT-LINEAR', stream='best')}",
        "above at {1} of {2} recorded steps".format(*steps_below("KSDT-LINEAR", "best", "imq")),
        "RBF: {1} of {2}".format(*steps_below("KSDT-LINEAR", "best", "rbf")),
        "{} ({})".format(*(calcium_excess(kernel)[0] for kernel in ("imq", "rbf"))),
        "{} ({})".format(*(calcium_excess(kernel)[1] for kernel in ("imq", "rbf"))),
    ],
    "calcium, appendix": lambda: [
        f"{calcium_below('imq', 'first')} of 83 (RBF {calcium_below('rbf', 'first')})",
        f"SPMCMC {calcium_below('imq', 'best')} (RBF {calcium_below('rbf', 'best')})",
    ],
    "calcium: KSDT-SQRT ends below": lambda: [
        f"{against_every('KSDT-SQRT')} (IMQ), {against_every('KSDT-SQRT', kernel='rbf')} (RBF)"
    ],
    "adaptivity: 24 draws": lambda: [
        *(
            " and ".join(repeats("adaptivity", "kept", 1, kernel="imq", rule=rule, modes=modes) for modes in (4, 10))
            for rule in ("paper", "monotone")
        ),
        f"{of_code('adaptivity', '4', 'kept', 1)} and {of_code('adaptivity', '10', 'kept', 1)}",
    ],
    "$\\alpha = 1.8$ has the lowest KSD": lambda: [
        repeats("alpha", "ksd", 5, kernel=kernel, rule="paper", alpha=alpha)
        for kernel in ("imq", "rbf")
        for alpha in (1.8, 2.0)
    ],
    "and the lowest normalised KSD": lambda: [
        *(
            " against ".join(
                repeats("alpha", "normalised", 3, kernel=kernel, rule="paper", alpha=alpha) for alpha in (1.8, 2.0)
            )
            for kernel in ("imq", "rbf")
        ),
        *(
            " against ".join(of_code(problem, alpha, "normalised", 3, kernel) for alpha in ("1.8", "2.0"))
            for problem in ("alpha-authors", "alpha")
            for kernel in ("imq", "rbf")
        ),
    ],
    "normalised KSD for $\\alpha = 1.0$": lambda: [
        repeats("alpha", "normalised", 3, kernel="imq", rule="paper", alpha=1.0),
        "rises from {:.2f} (step {}) to {}".format(*lowest("imq"), of_code("alpha", "1.0", "normalised", 2)),
        "RBF {:.2f} to {}".format(lowest("rbf")[0], of_code("alpha", "1.0", "normalised", 2, "rbf")),
    ],
    "IMDB: higher agreement": lambda: [
        difference("imdb", 2000),
        difference("imdb", 100),
        difference("imdb", 2000, stream="SPMCMC"),
        *stated("imdb", "0.0108", "0.9850"),
    ],
    "IMDB: lower total variation": lambda: [
        difference("imdb", 2000, "total_variation"),
        difference("imdb", 100, "total_variation"),
        difference("imdb", 2000, "total_variation", stream="SPMCMC"),
    ],
    "IMDB: higher accuracy": lambda: [
        difference("imdb", 2000, "accuracy"),
        difference("imdb", 100, "accuracy"),
        difference("imdb", 2000, "accuracy", stream="SPMCMC"),
    ],
    "IMDB: new points": lambda: [
        difference("imdb", 2000, "expected_calibration_error"),
        difference("imdb", 100, "expected_calibration_error"),
        difference("imdb", 2000, "expected_calibration_error", stream="SPMCMC"),
    ],
    "CIFAR-10: higher agreement": lambda: [
        *(difference("cifar10", step) for step in (100, 200, 500, 1000, 2000)),
        difference("cifar10", 2000, method="KSDT-LINEAR"),
        *(difference("cifar10", step, stream="SPMCMC") for step in (200, 2000)),
        difference("cifar10", 2000, method="KSDT-LINEAR", stream="SPMCMC"),
        *stated("cifar10", "0.979", "0.0139"),
    ],
    "CIFAR-10: agreement with the posterior": lambda: of_authors("cifar10-authors", "0.046"),
    "IMDB: agreement with the posterior": lambda: [
        *of_authors("imdb-authors", "0.090"),
        difference("imdb-authors", 2000, stream="SPMCMC"),
    ],
    "CIFAR-10: total variation": lambda: [
        *(difference("cifar10", step, "total_variation") for step in (100, 200, 2000)),
        difference("cifar10", 2000, "total_variation", "KSDT-LINEAR"),
        *stated("cifar10", "0.0139"),
    ],
    "CIFAR-10: accuracy": lambda: of_pair("accuracy"),
    "CIFAR-10: expected calibration": lambda: [
        difference("cifar10", 1000, "expected_calibration_error"),
        *of_pair("expected_calibration_error"),
    ],
    "RBF: calcium": lambda: [against_every("KSDT-SQRT", kernel="rbf")],
    "RBF: $\\alpha$": lambda: [f"the lowest KSD at {best_exponent('rbf')}"],
    "RBF: IMDB": lambda: [
        difference("imdb", step, measure, stream=stream, kernel="rbf")
        for measure in ("agreement", "total_variation")
        for step, stream in ((2000, "SGLD"), (100, "SGLD"), (2000, "SPMCMC"))
    ],
    "RBF: CIFAR-10": lambda: [
        *(difference("cifar10", step, kernel="rbf") for step in (200, 2000)),
        difference("cifar10", 2000, stream="SPMCMC", kernel="rbf"),
        difference("cifar10", 2000, method="KSDT-LINEAR", kernel="rbf"),
        *(difference("cifar10", 2000, "total_variation", method, kernel="rbf") for method in PAIR),
    ],
    "RBF: adaptivity": lambda: [
        "10.0 or 10.1",
        f"{of_code('adaptivity', '4', 'kept', 1, 'rbf')} and {of_code('adaptivity', '10', 'kept', 1, 'rbf')}",
    ],
}


def best_exponent(kernel):
    """The exponent with the lowest mean KSD."""
    table = select(results("alpha"), kernel=kernel, rule="paper", step=20_000)
    return min(np.unique(table["alpha"]), key=lambda alpha: select(table, alpha=alpha)["ksd"].mean())


def of_pair(measure):
    """Differences of both thinned sets from the unthinned chain on CIFAR-10 at step 2000."""
    return [difference("cifar10", 2000, measure, *of) for of in product(PAIR, ("SGLD", "SPMCMC"))]


def of_authors(name, interpolant):
    """The numbers of a row on the posterior of the authors."""
    return [
        *stated(name, interpolant),
        ratios(name),
        difference(name, 100),
        difference(name, 2000),
        difference(name, 2000, method="KSDT-LINEAR"),
        difference(name, 2000, "total_variation"),
        difference(name, 2000, "total_variation", "KSDT-LINEAR"),
    ]


@pytest.mark.parametrize("claim", EXPECTED)
def test_the_numbers_of_a_claim_are_those_of_the_results(claim):
    found = [text for name, text in rows().items() if name.startswith(claim)]
    assert len(found) == 1, claim
    missing = [expected for expected in EXPECTED[claim]() if expected not in found[0]]
    assert not missing, found[0]


@pytest.mark.parametrize("claim", rows())
def test_every_decimal_number_of_a_claim_is_computed(claim):
    name = next((name for name in EXPECTED if claim.startswith(name)), None)
    computed = set(decimals(" ".join(EXPECTED[name]()))) if name else set()
    written = set(decimals(re.sub(r"\\alpha = [\d.]+|\(read off[^)]*\)|\([^)]*\.md[^)]*\)", "", rows()[claim])))
    assert written - computed == set()
