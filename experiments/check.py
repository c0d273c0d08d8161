"""Check that the committed results can be reproduced: ``python -m experiments.check [NAME ...] [--data FOLDER]``.

Cheap experiments are run at full scale and compared with the committed results bit for bit. The others are run at quick
scale and must finish. Scripts that measure for long make their tables and figures from the committed results again.
Experiments that need data are skipped without ``--data``. The exit code is 1 if a result differs or a run fails. About
half an hour on two cores; ``make reproduce-check DATA=FOLDER`` runs it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from experiments.results import read_table
from experiments.run_all import AUTHORS, FITTED, HERE, NETWORKS, REPEATED, SLOW, command_line

#: Experiments of the paper that are run at full scale and compared bit for bit.
EXACT = ("adaptivity", "alpha", "theory", "assumptions", "goodwin-published")
#: Experiments of the paper that are run at quick scale.
QUICK = (
    *("goodwin-rwm", REPEATED, "goodwin-mala", SLOW, "calcium", *NETWORKS),
    *(f"{name}-fitted" for name in FITTED),
    *(f"{name}{AUTHORS}" for name in NETWORKS),
)
#: Scripts whose results are compared line by line, and their options. One repeat of ``published`` is compared.
SCRIPTS: dict[str, list[str]] = {
    "hard-cap/run.py": [],
    "coordinates/run.py": [],
    "published/run.py": ["--repeats", "1"],
    "goodwin-mala/steps.py": [],
}
#: Scripts whose tables and figures are made from the committed results, and their options; two seeds of ``linear``.
SHOWN: dict[str, list[str]] = {
    "compare/run.py": [],
    "diagnosis/run.py": [],
    "distributed/run.py": ["--show"],
    "distributed/quality.py": ["--show"],
    "linear/run.py": ["--seeds", "2"],
    "networks/predictions.py": [],
    "noisy-scores/run.py": ["--show"],
    "passes/run.py": [],
    "scales/run.py": [],
    "weights/run.py": ["--show"],
    "weights/forward.py": ["--show"],
    "weights/surrogate.py": ["--show"],
    "without-scores/run.py": ["--show"],
}
NEEDS_DATA = ("goodwin-published", "published/run.py", "goodwin-mala/steps.py")


class CheckError(Exception):
    """A run failed, or its results differ from the committed ones."""


class Check(NamedTuple):
    """One check: a name, and a function that returns what was found or raises `CheckError`."""

    name: str
    run: Callable[[Path], str]


def checks(data: Path | None) -> list[Check]:
    """Return all checks that can be run with or without data."""
    found = [
        *(Check(name, partial(check_exact, name, data)) for name in EXACT),
        *(Check(name, partial(check_script, name, data)) for name in SCRIPTS),
        *(Check(name, partial(check_shown, name)) for name in SHOWN),
        *(Check(name, partial(check_quick, name, data)) for name in QUICK),
    ]
    return [check for check in found if data is not None or check.name not in NEEDS_DATA]


def check_exact(name: str, data: Path | None, folder: Path) -> str:
    """Run an experiment at full scale and compare all numbers with the committed ones."""
    _experiment(name, "full", data, folder)
    difference = first_difference(folder / "results.parquet", HERE / name / "results.parquet")
    if difference:
        raise CheckError(difference)
    return "same as committed, bit for bit"


def check_script(name: str, data: Path | None, folder: Path) -> str:
    """Run a copy of a script and compare its results with the committed ones."""
    copy = _copy(name, folder)
    stem = "results" if copy.stem == "run" else copy.stem
    results = next(copy.parent.glob(f"{stem}.[cp]*"))
    committed = _lines(results)
    options = ["--data", str(data)] if name in NEEDS_DATA else []
    _run([sys.executable, str(copy), *options, *SCRIPTS.get(name, [])])
    new = _lines(results)
    whole = not SCRIPTS.get(name)
    expected = committed if whole else [line for line in committed if line in {*new}]
    for number, (one, other) in enumerate(zip(new, expected, strict=False), start=1):
        if one != other:
            raise CheckError(f"line {number} of {results.name} is {one!r}, committed is {other!r}")
    if len(new) != len(expected):
        raise CheckError(f"{results.name} has {len(new)} lines, of which {len(expected)} are committed")
    return "same as committed, bit for bit" if whole else f"{len(new)} results are the same as committed, bit for bit"


def check_shown(name: str, folder: Path) -> str:
    """Run a copy of a script that makes tables and figures from results."""
    _run([sys.executable, str(_copy(name, folder)), *SHOWN[name]])
    return "makes its tables and figures"


def _lines(path: Path) -> list[str]:
    """Return the lines of a csv file, or those that the table of a parquet file has as csv."""
    if path.suffix == ".csv":
        return path.read_text().splitlines()
    table = read_table(path)
    return [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]


def _copy(name: str, folder: Path) -> Path:
    """Return the script in a copy of its folder, next to a folder for the figures of the documentation."""
    (folder / "docs").mkdir(parents=True)
    script = folder / "experiments" / name
    shutil.copytree((HERE / name).parent, script.parent)
    return script


def check_quick(name: str, data: Path | None, folder: Path) -> str:
    """Run an experiment at quick scale."""
    _experiment(name, "quick", data, folder)
    rows = len(read_table(folder / "results.parquet")["step"])
    return f"runs at quick scale ({rows:,} results)"


def first_difference(new: Path, committed: Path) -> str:
    """Compare two result tables; return the first difference in words, or nothing.

    Parameters
    ----------
    new, committed : Path
        Parquet files.

    Returns
    -------
    str
        Description of the first difference, empty if all values are equal.
    """
    one, other = read_table(new), read_table(committed)
    if list(one) != list(other):
        return f"columns are {', '.join(one)}, committed are {', '.join(other)}"
    for name, column in other.items():
        if len(one[name]) != len(column):
            return f"{len(one[name])} rows, committed are {len(column)}"
        rows = np.flatnonzero(one[name] != column)
        if len(rows):
            row = rows[0]
            return f"{name} in row {row} is {one[name][row]!r}, committed is {column[row]!r} ({len(rows)} rows differ)"
    return ""


def _experiment(name: str, scale: str, data: Path | None, folder: Path) -> None:
    experiment, options = command_line(name, scale, data)
    _run([sys.executable, "-m", "experiments", experiment, "-o", str(folder), *options])


def _run(command: list[str]) -> None:
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path}
    finished = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True)
    if finished.returncode:
        last = (finished.stderr.strip() or finished.stdout.strip() or "no output").splitlines()[-1]
        raise CheckError(f"the run ended with code {finished.returncode}: {last}")


def main() -> None:
    """Run the checks and print one line each."""
    parser = argparse.ArgumentParser(prog="python -m experiments.check", description="Check the committed results.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of experiments (default: all)")
    parser.add_argument("--data", type=lambda path: Path(path).resolve(), help="folder with the published data")
    arguments = parser.parse_args()
    every = checks(arguments.data)
    unknown = set(arguments.names) - {check.name for check in every}
    if unknown:
        names = ", ".join(check.name for check in every)
        parser.error(f"no check of {', '.join(sorted(unknown))}; choose from {names} (more with --data)")
    failed = False
    for check in every:
        if arguments.names and check.name not in arguments.names:
            continue
        with TemporaryDirectory() as folder:
            try:
                found = check.run(Path(folder) / "run")
            except CheckError as error:
                failed, found = True, f"FAILED: {error}"
        print(f"{check.name:<26}{found}", flush=True)
    if arguments.data is None:
        print(f"skipped without --data: {', '.join(NEEDS_DATA)}")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
