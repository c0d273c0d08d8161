"""False alarms and detected faults of the diagnosis: ``python experiments/diagnosis/run.py``.

Prints the tables of the README from results.csv in the folder of this file, one row per case. ``--measure`` adds
missing rows: ``clean`` (0.1 s per run on one core), ``real`` (requires --data) or ``fault``. It can be interrupted
and resumed.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import Counter
from pathlib import Path
from statistics import NormalDist, median

from cases import DiagnosisCase, clean, faults, real

HERE = Path(__file__).parent
CHECKS = ("slow", "stuck", "drift", "chains", "scores", "burn-in", "weights", "regions", "mean", "quantiles", "spread")
COLUMNS = ("kind", "case", "runs", "kept", "effective", "fired", "found", "wanted", *CHECKS)
KINDS = ("clean", "real", "fault")

FIRST_SEED = 1000  # other seeds were used to develop the checks, see the README

Row = dict[str, str]


def main() -> None:
    """Measure missing rows and print the tables."""
    parser = argparse.ArgumentParser(description="False alarms and detected faults of the diagnosis.")
    parser.add_argument("--measure", choices=KINDS, help="measure missing rows of this kind")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/, for --measure real")
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds per case (default: 100)")
    options = parser.parse_args()
    if options.measure == "real" and options.data is None:
        parser.error("--measure real requires --data FOLDER")
    if options.measure:
        warnings.simplefilter("ignore")  # samplers warn of stuck chains
        cases = {"clean": clean, "fault": faults, "real": lambda: real(options.data / "posteriordb")}[options.measure]()
        for case in cases:
            if not any((row["kind"], row["case"]) == (options.measure, case.name) for row in read()):
                write([*read(), measure(options.measure, case, options.seeds)])
    rows = read()
    print(alarms(rows), "\n")
    print(found(rows))


def measure(kind: str, case: DiagnosisCase, seeds: int) -> Row:
    """Run one case with all its seeds."""
    counts: Counter[str] = Counter()
    sizes, effective = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        kept = case.run(seed)
        diagnosis = kept.diagnose()
        names = {finding.name for finding in diagnosis.fired}
        counts.update(names)
        counts["fired"] += bool(names)
        counts["found"] += bool(names & set(case.wanted))
        sizes.append(len(kept))
        effective.append(diagnosis["slow"].value)
    row = {"kind": kind, "case": case.name, "wanted": " or ".join(case.wanted)}
    row |= {"runs": str(seeds), "kept": f"{median(sizes):.0f}", "effective": f"{median(effective):.0f}"}
    row |= {name: str(counts[name]) for name in ("fired", "found", *CHECKS)}
    print(row, flush=True)
    return row


def write(rows: list[Row]) -> None:
    """Write one row per case, sorted by kind and name."""
    with (HERE / "results.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["case"])))


def read() -> list[Row]:
    """Read results.csv."""
    path = HERE / "results.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def alarms(rows: list[Row]) -> str:
    """Return the false alarms on clean runs, by kind of kept set and by check."""
    made = [row for row in rows if row["kind"] == "clean"]
    groups = (
        ("known targets, thinned", [row for row in made if "at random" not in row["case"]]),
        ("known targets, random subsets", [row for row in made if "at random" in row["case"]]),
        ("real posteriors, thinned", [row for row in rows if row["kind"] == "real"]),
        ("all", [row for row in rows if row["kind"] != "fault"]),
    )
    lines = ["| clean runs | cases | runs | alarms | 95 % interval | by check |", "|---|---|---|---|---|---|"]
    for name, some in groups:
        runs, fired = (sum(int(row[column]) for row in some) for column in ("runs", "fired"))
        if runs:
            low, high = wilson(fired, runs)
            interval = f"{fired / runs:.2%} | {low:.2%} to {high:.2%}"
            lines.append(f"| {name} | {len(some)} | {runs} | {interval} | {_by_check(some) or '-'} |")
    worst = sorted((row for row in rows if row["kind"] != "fault"), key=lambda row: -int(row["fired"]))[:6]
    lines += [
        "",
        "| clean cases with most alarms | kept | alarms | 95 % interval | by check |",
        "|---|---|---|---|---|",
    ]
    for row in worst:
        low, high = wilson(int(row["fired"]), int(row["runs"]))
        of = f"{row['fired']} of {row['runs']} | {low:.0%} to {high:.0%}"
        lines.append(f"| {row['case']} | {row['kept']} | {of} | {_by_check([row]) or '-'} |")
    return "\n".join(lines)


def found(rows: list[Row]) -> str:
    """Return how often each fault is detected, and by which checks."""
    lines = ["| fault | kept | expected check | detected | 95 % interval | all alarms |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row["kind"] == "fault":
            low, high = wilson(int(row["found"]), int(row["runs"]))
            of = f"{row['found']} of {row['runs']} | {low:.0%} to {high:.0%}"
            lines.append(f"| {row['case']} | {row['kept']} | {row['wanted']} | {of} | {_by_check([row])} |")
    return "\n".join(lines)


def _by_check(rows: list[Row]) -> str:
    return ", ".join(f"{check} {n}" for check in CHECKS if (n := sum(int(row[check]) for row in rows)))


def wilson(hits: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of a rate.

    >>> [round(end, 3) for end in wilson(0, 100)]
    [0.0, 0.037]
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = (hits + z * z / 2) / (runs + z * z)
    half = z / (runs + z * z) * (hits * (runs - hits) / runs + z * z / 4) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


if __name__ == "__main__":
    main()
