"""False alarms and detected faults of the diagnosis: ``python experiments/diagnosis/run.py``.

Prints the tables of the README from results.csv and stated.csv in the folder of this file, one row per case.
``--measure`` adds missing rows: ``clean`` (0.1 s per run on one core), ``real`` (requires --data), ``planted``,
``fault`` or ``stated``. It can be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import NormalDist, median

from cases import DiagnosisCase, clean, faults, planted, real
from stated import StatedCase, stated

from steinstream.diagnostics import CHECKS

HERE = Path(__file__).parent
COLUMNS = ("kind", "group", "case", "runs", "kept", "effective", "fired", "found", "wanted", *CHECKS)
STATED_COLUMNS = ("check", "case", "runs", "stated", "found")
KINDS = ("clean", "real", "planted", "fault")
METHODS = ("KSD", "stream term", "evenly spaced", "random", "no scores", "weights")

FIRST_SEED = 1000  # other seeds were used to develop the checks

Row = dict[str, str]


def main() -> None:
    """Measure missing rows and print the tables."""
    parser = argparse.ArgumentParser(description="False alarms and detected faults of the diagnosis.")
    parser.add_argument("--measure", choices=(*KINDS, "stated"), help="measure missing rows of this kind")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/, for --measure real")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds per case (default: 20)")
    options = parser.parse_args()
    if options.measure == "real" and options.data is None:
        parser.error("--measure real requires --data FOLDER")
    warnings.simplefilter("ignore")  # samplers warn of stuck chains
    if options.measure == "stated":
        measure_stated(stated(), options.seeds)
    elif options.measure:
        cases = {
            "clean": clean,
            "planted": planted,
            "fault": faults,
            "real": lambda: real(options.data / "posteriordb"),
        }
        measure_cases(options.measure, cases[options.measure](), options.seeds)
    rows = read("results.csv")
    print(alarms(rows), "\n")
    print(planted_table(rows), "\n")
    print(fault_table(rows), "\n")
    print(stated_table(read("stated.csv")))


def measure_cases(kind: str, cases: Iterable[DiagnosisCase], seeds: int) -> None:
    """Run the cases that results.csv lacks."""
    for case in cases:
        rows = read("results.csv")
        if not any((row["kind"], row["group"], row["case"]) == (kind, case.group, case.name) for row in rows):
            write("results.csv", COLUMNS, [*rows, measure(kind, case, seeds)])


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
        effective.append(diagnosis.effective)
    row = {"kind": kind, "group": case.group, "case": case.name, "wanted": " or ".join(case.wanted)}
    row |= {"runs": str(seeds), "kept": f"{median(sizes):.0f}", "effective": f"{median(effective):.0f}"}
    row |= {name: str(counts[name]) for name in ("fired", "found", *CHECKS)}
    print(kind, case.group, case.name, dict(counts), flush=True)
    return row


def measure_stated(cases: Iterable[StatedCase], seeds: int) -> None:
    """Run the cases that stated.csv lacks."""
    for case in cases:
        rows = read("stated.csv")
        if any((row["check"], row["case"]) == (case.check, case.name) for row in rows):
            continue
        results = [one for seed in range(FIRST_SEED, FIRST_SEED + seeds) if (one := case.run(seed)) is not None]
        if not results:
            continue
        row = {"check": case.check, "case": case.name, "runs": str(len(results))}
        row |= {"stated": f"{median(one[0] for one in results):.2f}", "found": str(sum(one[1] for one in results))}
        print(row, flush=True)
        write("stated.csv", STATED_COLUMNS, [*rows, row])


def write(name: str, columns: tuple[str, ...], rows: list[Row]) -> None:
    """Write one row per case."""
    with (HERE / name).open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)


def read(name: str) -> list[Row]:
    """Read a table; empty if it does not exist."""
    path = HERE / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def alarms(rows: list[Row]) -> str:
    """Return the false alarms on clean runs, by method and by check."""
    lines = ["| clean runs | cases | runs | alarms | 95 % interval | by check |", "|---|---|---|---|---|---|"]
    some = [row for row in rows if row["kind"] in ("clean", "real")]
    groups = [
        (f"{kind}: {method}", [row for row in some if (row["kind"], row["group"]) == (key, method)])
        for key, kind in (("clean", "known targets"), ("real", "real posteriors"))
        for method in METHODS
    ]
    for name, members in [*groups, ("all", some)]:
        if members:
            lines.append(
                f"| {name} | {len(members)} | {_rate(members, 'fired', '.1%')} | {_by_check(members) or '-'} |"
            )
    lines += ["", "| clean cases with an alarm | method | alarms | by check |", "|---|---|---|---|"]
    for row in sorted((row for row in some if int(row["fired"])), key=lambda row: -int(row["fired"])):
        lines.append(f"| {row['case']} | {row['group']} | {row['fired']} of {row['runs']} | {_by_check([row])} |")
    return "\n".join(lines)


def planted_table(rows: list[Row]) -> str:
    """Return how often each planted fault is found, with one column per method."""
    some = [row for row in rows if row["kind"] == "planted"]
    methods = [method for method in METHODS if any(row["group"] == method for row in some)]
    lines = [f"| planted fault | {' | '.join(methods)} | by check |", "|---|" + "---|" * (len(methods) + 1)]
    for case in dict.fromkeys(row["case"] for row in some):
        cells = {row["group"]: f"{row['found']} of {row['runs']}" for row in some if row["case"] == case}
        found = " | ".join(cells.get(method, "") for method in methods)
        lines.append(f"| {case} | {found} | {_by_check([row for row in some if row['case'] == case])} |")
    return "\n".join(lines)


def fault_table(rows: list[Row]) -> str:
    """Return how often each fault is detected, and by which checks."""
    lines = ["| fault | kept | expected check | detected | all alarms |", "|---|---|---|---|---|"]
    for row in rows:
        if row["kind"] == "fault":
            of = f"{row['found']} of {row['runs']}"
            lines.append(f"| {row['case']} | {row['kept']} | {row['wanted']} | {of} | {_by_check([row])} |")
    return "\n".join(lines)


def stated_table(rows: list[Row]) -> str:
    """Return how often a fault of the stated size is found."""
    lines = ["| check | kept set | stated (median) | found | 95 % interval |", "|---|---|---|---|---|"]
    for row in rows:
        low, high = wilson(int(row["found"]), int(row["runs"]))
        of = f"{row['found']} of {row['runs']} | {low:.0%} to {high:.0%}"
        lines.append(f"| {row['check']} | {row['case']} | {row['stated']} | {of} |")
    return "\n".join(lines)


def _rate(rows: list[Row], column: str, form: str) -> str:
    runs, hits = (sum(int(row[name]) for row in rows) for name in ("runs", column))
    low, high = wilson(hits, runs)
    return f"{runs} | {hits / runs:{form}} | {low:{form}} to {high:{form}}"


def _by_check(rows: list[Row]) -> str:
    return ", ".join(f"{check} {n}" for check in CHECKS if (n := sum(int(row[check]) for row in rows)))


def wilson(hits: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of a rate.

    Returns
    -------
    tuple of float
        Lower and upper end.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0, 100)]
    [0.0, 0.037]
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = (hits + z * z / 2) / (runs + z * z)
    half = z / (runs + z * z) * (hits * (runs - hits) / runs + z * z / 4) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


if __name__ == "__main__":
    main()
