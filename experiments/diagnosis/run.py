"""How often the blind-spot report fires, on clean runs and on faults: ``python experiments/diagnosis/run.py``.

Prints the README's tables from results.csv beside this file, one row a case. ``--measure`` makes the rows that are not
there: ``clean`` (0.1 s a run on one core), ``real`` (needs --data) or ``fault``. It can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import Counter
from pathlib import Path
from statistics import NormalDist, median

from cases import Case, clean, faults, real

HERE = Path(__file__).parent
CHECKS = ("slow", "stuck", "drift", "chains", "scores", "burn-in", "weights", "regions", "mean", "quantiles", "spread")
COLUMNS = ("kind", "case", "runs", "kept", "effective", "fired", "found", "wanted", *CHECKS)
KINDS = ("clean", "real", "fault")

FIRST = 1000  # the first seed; the README says which were looked at while the checks were made

Row = dict[str, str]


def main() -> None:
    """Measure, or read what was measured, and show it."""
    parser = argparse.ArgumentParser(description="False alarms and faults found by the blind-spot report.")
    parser.add_argument("--measure", choices=KINDS, help="make the rows of this kind that results.csv lacks")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/, for --measure real")
    parser.add_argument("--seeds", type=int, default=100, help="of each case  [100]")
    options = parser.parse_args()
    if options.measure == "real" and options.data is None:
        parser.error("--measure real needs --data FOLDER")
    if options.measure:
        warnings.simplefilter("ignore")  # samplers say that stuck chains are stuck
        cases = {"clean": clean, "fault": faults, "real": lambda: real(options.data / "posteriordb")}[options.measure]()
        for case in cases:
            if not any((row["kind"], row["case"]) == (options.measure, case.name) for row in read()):
                write([*read(), measure(options.measure, case, options.seeds)])
    rows = read()
    print(alarms(rows), "\n")
    print(found(rows))


def measure(kind: str, case: Case, seeds: int) -> Row:
    """One case with all its seeds."""
    counts: Counter[str] = Counter()
    sizes, worth = [], []
    for seed in range(FIRST, FIRST + seeds):
        kept = case.run(seed)
        diagnosis = kept.diagnose()
        names = {finding.name for finding in diagnosis.fired}
        counts.update(names)
        counts["fired"] += bool(names)
        counts["found"] += bool(names & set(case.wanted))
        sizes.append(len(kept))
        worth.append(diagnosis["slow"].value)
    row = {"kind": kind, "case": case.name, "wanted": " or ".join(case.wanted)}
    row |= {"runs": str(seeds), "kept": f"{median(sizes):.0f}", "effective": f"{median(worth):.0f}"}
    row |= {name: str(counts[name]) for name in ("fired", "found", *CHECKS)}
    print(row, flush=True)
    return row


def write(rows: list[Row]) -> None:
    """One row a case, in an order that does not depend on when it was measured."""
    with (HERE / "results.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["case"])))


def read() -> list[Row]:
    """What was written."""
    path = HERE / "results.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def alarms(rows: list[Row]) -> str:
    """Clean runs: how many set anything off, by what was kept, and by check."""
    made = [row for row in rows if row["kind"] == "clean"]
    groups = (
        ("known targets, thinned", [row for row in made if "at random" not in row["case"]]),
        ("known targets, random subsets", [row for row in made if "at random" in row["case"]]),
        ("real posteriors, thinned", [row for row in rows if row["kind"] == "real"]),
        ("all", [row for row in rows if row["kind"] != "fault"]),
    )
    lines = ["| clean runs | cases | runs | fired | 95 % interval | by check |", "|---|---|---|---|---|---|"]
    for name, some in groups:
        runs, fired = (sum(int(row[column]) for row in some) for column in ("runs", "fired"))
        if runs:
            low, high = wilson(fired, runs)
            interval = f"{fired / runs:.2%} | {low:.2%} to {high:.2%}"
            lines.append(f"| {name} | {len(some)} | {runs} | {interval} | {_by_check(some) or '-'} |")
    worst = sorted((row for row in rows if row["kind"] != "fault"), key=lambda row: -int(row["fired"]))[:6]
    lines += ["", "| clean cases that fire most | kept | fired | 95 % interval | by check |", "|---|---|---|---|---|"]
    for row in worst:
        low, high = wilson(int(row["fired"]), int(row["runs"]))
        of = f"{row['fired']} of {row['runs']} | {low:.0%} to {high:.0%}"
        lines.append(f"| {row['case']} | {row['kept']} | {of} | {_by_check([row]) or '-'} |")
    return "\n".join(lines)


def found(rows: list[Row]) -> str:
    """Faults: how often each is found, and what fires."""
    lines = ["| fault | kept | should fire | does | 95 % interval | all that fires |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row["kind"] == "fault":
            low, high = wilson(int(row["found"]), int(row["runs"]))
            of = f"{row['found']} of {row['runs']} | {low:.0%} to {high:.0%}"
            lines.append(f"| {row['case']} | {row['kept']} | {row['wanted']} | {of} | {_by_check([row])} |")
    return "\n".join(lines)


def _by_check(rows: list[Row]) -> str:
    return ", ".join(f"{check} {n}" for check in CHECKS if (n := sum(int(row[check]) for row in rows)))


def wilson(hits: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a rate.

    >>> [round(end, 3) for end in wilson(0, 100)]
    [0.0, 0.037]
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = (hits + z * z / 2) / (runs + z * z)
    half = z / (runs + z * z) * (hits * (runs - hits) / runs + z * z / 4) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


if __name__ == "__main__":
    main()
