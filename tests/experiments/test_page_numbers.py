"""The decimal numbers on the pages of the experiments of the paper are those of the committed summaries and results."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from experiments.results import read_table, select

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
PAGES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/summary.md"))
NUMBER = re.compile(r"(?<![\w.^{])\d+\.\d+(?![\w.])")
#: Numbers that are settings, sections of the paper, or stated by other sources, and why.
STATED = {
    "assumptions": {"3.30", "3.28"},  # constants of the bound, from formulas on the page and from a grid
    "calcium": {"4.2", "0.9265", "0.3585"},  # section; values of the cell model, tests/experiments/test_calcium.py
    "cifar10": {"4.3"},  # section
    "goodwin-mala": {"2.5"},  # norm of the first score
    "goodwin-rwm": {"4.1"},  # section
}


def text_of(page):
    """The text of a page without code, formulas of constants and targets of links."""
    return re.sub(r"^    .*?$|```.*?```|`[^`]*`|\]\([^)]*\)|doi:\S+", "", page, flags=re.MULTILINE | re.DOTALL)


def numbers_of(name):
    """All numbers of the summary of an experiment, and those that its page computes from the results."""
    summary = (EXPERIMENTS / name / "summary.md").read_text()
    found = [number.replace(",", "") for number in re.findall(r"\d[\d,]*(?:\.\d+)?", summary)]
    return [*found, *COMPUTED.get(name, list)()]


def of_chains():
    """Two standard errors over the five chains, and paired differences, of the page goodwin-rwm-chains."""
    table, numbers = read_table(EXPERIMENTS / "goodwin-rwm-chains" / "results.parquet"), []
    chains = np.unique(table["chain"])
    for kernel in ("imq", "rbf"):
        for stream in ("first", "best"):
            for part in ("whole", "settled"):
                some = select(table, kernel=kernel, stream=stream, part=part)
                last = {
                    method: np.array([select(some, method=method, chain=chain)["ksd"][-1] for chain in chains])
                    for method in ("every draw", "KSDT-LINEAR", "KSDT-SQRT")
                }
                values = [*last.values(), last["KSDT-LINEAR"] - last["KSDT-SQRT"]]
                numbers += [one.mean() for one in values] + [2 * one.std(ddof=1) / np.sqrt(5) for one in values]
    return [f"{abs(number):.9f}" for number in numbers]


def of_published():
    """Paired differences of normalised KSD between two exponents, for the algorithm of the authors' code."""
    table = read_table(EXPERIMENTS / "published" / "results.parquet")
    keys = zip(*(table[name] for name in ("problem", "kernel", "algorithm", "setting", "repeat")), strict=True)
    last = dict(zip(keys, table["ksd"] * table["kept"] ** 0.5, strict=True))
    numbers = []
    for problem in ("alpha", "alpha-authors"):
        for kernel in ("imq", "rbf"):
            one, other = (
                np.array([last[problem, kernel, "published", exponent, repeat] for repeat in range(10)])
                for exponent in ("1.8", "2.0")
            )
            numbers += [abs((one - other).mean()), (one - other).std(ddof=1) / np.sqrt(10)]
    return [f"{number:.9f}" for number in numbers]


def of_steps():
    """The numbers of steps.csv."""
    rows = (EXPERIMENTS / "goodwin-mala" / "steps.csv").read_text()
    numbers = [float(number) for number in re.split(r"[,\n]", rows) if re.fullmatch(r"[\d.e+-]+", number)]
    return [f"{number:.9f}" for number in [*numbers, *(100 * number for number in numbers)]]


COMPUTED = {"goodwin-rwm-chains": of_chains, "published": of_published, "goodwin-mala": of_steps}


def rounds_to(source, number):
    """Whether a number with at least as many decimals rounds to another one."""
    decimals = len(number.split(".")[1])
    return len(source.partition(".")[2]) >= decimals and abs(float(source) - float(number)) <= 0.5001 * 10**-decimals


@pytest.mark.parametrize("name", PAGES)
def test_the_decimal_numbers_of_a_page_are_those_of_the_results(name):
    page = (EXPERIMENTS / name / "README.md").read_text()
    linked = [name, *(other for other in re.findall(r"\.\./([\w-]+)/(?:README|summary)\.md", page) if other in PAGES)]
    sources = [number for one in dict.fromkeys(linked) for number in numbers_of(one)]
    unknown = [
        number
        for number in NUMBER.findall(text_of(page))
        if number not in STATED.get(name, ()) and not any(rounds_to(source, number) for source in sources)
    ]
    assert not unknown


def test_the_tables_of_the_page_on_passes_are_those_of_the_results():
    spec = spec_from_file_location("passes", EXPERIMENTS / "passes" / "run.py")
    passes = module_from_spec(spec)
    spec.loader.exec_module(passes)
    rows = passes.read()
    printed = [passes.synthetic_table(rows), passes.real_table(rows, "auto")]
    expected = {f"{float(number):g}" for number in re.findall(r"\d\.\d+|\de-\d+", "\n".join(printed))}
    page = (EXPERIMENTS / "passes" / "README.md").read_text()
    tables = page[page.index("| target |") : page.index("Cases in which")]
    numbers = re.findall(r"\d\.\d+", re.sub(r"stein-thinning \S+", "", tables))
    written = [f"{float(number):g}" for number in numbers]
    assert len(written) > 100
    assert not {*written} - expected
