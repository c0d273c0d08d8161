"""``python -m fuzz``: run cases until the time is over, and write each failing one to the corpus."""

from __future__ import annotations

import argparse
import fcntl
import gc
import hashlib
import itertools
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fuzz import cases, processes, seeds
from fuzz.runner import (
    TOO_SLOW,
    Result,
    compiled,
    crashed_in_library,
    minimised,
    run_batches,
    run_command,
    scratch,
    warm_up,
)

CORPUS = Path(__file__).parent / "corpus"
_PROGRESS = 200  # results between two writes of the counts
_SHARE_OF_PROCESSES = 0.3  # of the time, for signals, full disks and closed pipes


def makers(kinds: list[str], files: dict[str, bytes], seed: int, first: int = 0) -> Iterator[Callable[[], cases.Case]]:
    """Iterate over cases of all kinds in turn; a case depends on the seed and its number alone."""
    for number in itertools.count(first):
        kind = kinds[number % len(kinds)]
        yield partial(cases.generate, kind, files, random.Random(f"{seed} {kind} {number}"))


def replayed(case: cases.Case) -> Result:
    """Run one case in a process of its own."""
    return next(iter(run_batches([lambda: case])))


def excuse(result: Result) -> str:
    """Return under which name a fault that is none of this package is counted; empty for all others.

    HDF5 and Arrow may crash in their own code, which the installed command reports, and a function of HDF5 may not
    return. A function of this package may be compiled for the first time on this machine, which takes long once.
    """
    library = crashed_in_library(result.problem)
    if result.case is not None and result.crashed and library:
        return "" if run_command(result.case) else f"crash of {library}, reported by the command"
    if library == "HDF5" and result.problem.startswith(TOO_SLOW[0]):
        return "endless loop in HDF5"
    if result.case is not None and compiled(result.problem):
        return "" if replayed(result.case).problem else "first compilation of a function"
    return ""


def version() -> str:
    """Return the commit of this folder, with ``-dirty`` if files were changed since."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=CORPUS, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def replay(folder: Path) -> int:
    """Run the cases of a corpus with all limits, print what is wrong with each as JSON, and return how many fail."""
    made = [(path, cases.Case.from_json(path.read_text())) for path in sorted(folder.glob("*.json"))]
    results = run_batches([partial(lambda case: case, case) for _, case in made])
    problems = {path.stem: result.problem for (path, _), result in zip(made, results, strict=True)}
    print(json.dumps(problems))
    return sum(map(bool, problems.values()))


def without_folders(text: str) -> str:
    """Return a text in which absolute paths are names of files."""
    return re.sub(r"(?<![\w.])(?:/[\w.+-]+)+/(?=[\w.+-]+)", "", text)


def save(result: Result, folder: Path) -> Path:
    """Write a failing case, as small as possible, to the corpus."""
    if result.case is None:
        raise ValueError("a result without a case")
    start = result.problem.splitlines()[0][:40]

    def fails(case: cases.Case) -> bool:
        return replayed(case).problem.startswith(start)

    case = result.case
    if result.code >= 0:  # a crash or a hang is kept as it is: each try would cost a process and the limit of time
        case = minimised(case, fails) if fails(case) else case
    case.note = without_folders(result.problem.strip().splitlines()[-1])[:300]  # without the paths of a traceback
    text = case.to_json()
    path = folder / f"{case.kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    path.write_text(text)
    return path


def main() -> None:
    """Run the fuzzer."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__.partition(": ")[2])
    parser.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    parser.add_argument("--cases", type=int, default=10**9, help="number of cases of files and options, at most")
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument(
        "--only", metavar="NAME,...", help="kinds of cases: " + ", ".join([*cases.KINDS, *processes.KINDS])
    )
    parser.add_argument("--result", type=Path, help="json file to which the counts are added; a run continues there")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of failing cases")
    parser.add_argument("--replay", action="store_true", help="run the cases of the corpus alone")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children must not inherit that it is ignored
    if options.replay:
        sys.exit(bool(replay(options.corpus)))
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = scratch()
    seeds.make_in_process(folder)
    files = seeds.contents(folder)
    shutil.rmtree(folder)
    warm_up(files)
    gc.freeze()  # a collection in a forked process would copy the memory of this one
    end = time.monotonic() + 60 * options.minutes
    run = earlier(options.result, seed, version())
    counts, failures, begun = Counter[str](run["counts"]), list[str](run["failures"]), time.monotonic()
    wanted = options.only.split(",") if options.only else [*cases.available(files), *processes.KINDS]
    kinds, scenarios = ([kind for kind in wanted if kind in known] for known in (cases.KINDS, processes.KINDS))
    known = set[str]()

    def summary() -> dict[str, Any]:
        minutes = round(run["minutes"] + (time.monotonic() - begun) / 60, 1)
        return {**run, "minutes": minutes, "counts": dict(sorted(counts.items())), "failures": failures}

    if kinds:
        first = sum(counts[kind] for kind in set(kinds))
        until = end if not scenarios else end - 60 * options.minutes * _SHARE_OF_PROCESSES
        for result in run_batches(itertools.islice(makers(kinds, files, seed, first), options.cases)):
            counts[result.kind] += 1
            counts[f"code {result.code}"] += 1
            excused = excuse(result)
            if excused:
                counts[excused] += 1
            elif result.problem:
                short = result.problem.strip().splitlines()
                failures.append(f"{result.kind}: {short[0]} ... {short[-1]}")
                if failures[-1] not in known:  # one case of each cause
                    known.add(failures[-1])
                    print(f"{result.kind}\n{result.problem}", flush=True)
                    if result.case is not None:
                        print(f"written to {save(result, options.corpus)}\n", flush=True)
            if sum(counts[kind] for kind in set(kinds)) % _PROGRESS == 0:
                write(options.result, summary())
            if time.monotonic() > until:
                break
    if scenarios:
        first = sum(counts[kind] for kind in scenarios)
        for problem in processes.run_scenarios(scenarios, files, seed, end, counts, first):
            if problem:
                failures.append(problem)
                print(problem, flush=True)
            write(options.result, summary())
    print(json.dumps(summary(), indent=1))
    write(options.result, summary())
    sys.exit(bool(failures))


def earlier(path: Path | None, seed: int, commit: str) -> dict[str, Any]:
    """Return what an interrupted run with this seed and code has written, or an empty summary."""
    runs = json.loads(path.read_text()) if path is not None and path.exists() else []
    same = [run for run in runs if (run["seed"], run["commit"]) == (seed, commit)]
    return same[0] if same else {"seed": seed, "commit": commit, "minutes": 0.0, "counts": {}, "failures": []}


def write(path: Path | None, summary: dict[str, Any]) -> None:
    """Write the counts of a run to a file, next to those of other seeds, which may be running."""
    if path is None:
        return
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        runs = json.loads(file.read() or "[]")
        runs = [run for run in runs if (run["seed"], run["commit"]) != (summary["seed"], summary["commit"])]
        text = json.dumps([*runs, summary], indent=1) + "\n"
        file.truncate(0)
        file.write(text)


if __name__ == "__main__":
    main()
