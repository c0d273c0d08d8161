"""``python -m fuzz``: run cases until the time is over, and write each failing one to the corpus."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fuzz import cases, processes, seeds
from fuzz.runner import TOO_SLOW, Result, minimised, run_batches, run_command, scratch, warm_up

CORPUS = Path(__file__).parent / "corpus"
_PROGRESS = 200  # results between two writes of the counts
_SHARE_OF_PROCESSES = 0.3  # of the time, for signals, full disks and closed pipes


def makers(kinds: list[str], files: dict[str, bytes], seed: int) -> Iterator[Callable[[], cases.Case]]:
    """Iterate over cases of all kinds in turn; a case depends on the seed and its number alone."""
    for number in itertools.count():
        kind = kinds[number % len(kinds)]
        yield partial(cases.generate, kind, files, random.Random(f"{seed} {kind} {number}"))


def replayed(case: cases.Case) -> Result:
    """Run one case in a process of its own."""
    return next(iter(run_batches([lambda: case])))


def save(result: Result) -> Path:
    """Write a failing case, as small as possible, to the corpus."""
    if result.case is None:
        raise ValueError("a result without a case")
    start = result.problem.splitlines()[0][:40]

    def fails(case: cases.Case) -> bool:
        return replayed(case).problem.startswith(start)

    case = result.case
    if result.code >= 0:  # a crash or a hang is kept as it is: each try would cost a process and the limit of time
        case = minimised(case, fails) if fails(case) else case
    case.note = result.problem.strip().splitlines()[-1][:300]  # without the paths of a traceback
    text = case.to_json()
    path = CORPUS / f"{case.kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
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
    parser.add_argument("--result", type=Path, help="json file to which the counts are added")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children must not inherit that it is ignored
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = scratch()
    seeds.make_in_process(folder)
    files = seeds.contents(folder)
    shutil.rmtree(folder)
    warm_up(files)
    end = time.monotonic() + 60 * options.minutes
    counts, failures = Counter[str](), list[str]()
    wanted = options.only.split(",") if options.only else [*cases.available(files), *processes.KINDS]
    kinds, scenarios = ([kind for kind in wanted if kind in known] for known in (cases.KINDS, processes.KINDS))
    known = set[str]()

    def summary() -> dict[str, object]:
        return {"seed": seed, "counts": dict(sorted(counts.items())), "failures": failures}

    if kinds:
        until = end if not scenarios else end - 60 * options.minutes * _SHARE_OF_PROCESSES
        for result in run_batches(itertools.islice(makers(kinds, files, seed), options.cases)):
            counts[result.kind] += 1
            counts[f"code {result.code}"] += 1
            if result.problem in TOO_SLOW and result.case and not replayed(result.case).problem:
                counts["slow because of a compilation"] += 1
            elif result.crashed and result.case and not run_command(result.case):
                counts["crash of a library with a message"] += 1  # the handler is installed by the real command
            elif result.problem:
                short = result.problem.strip().splitlines()
                failures.append(f"{result.kind}: {short[0]} ... {short[-1]}")
                if failures[-1] not in known:  # one case of each cause
                    known.add(failures[-1])
                    print(f"{result.kind}\n{result.problem}", flush=True)
                    if result.case is not None:
                        print(f"written to {save(result)}\n", flush=True)
            if sum(counts[kind] for kind in set(kinds)) % _PROGRESS == 0:
                write(options.result, summary())
            if time.monotonic() > until:
                break
    if scenarios:
        for problem in processes.run_scenarios(scenarios, files, seed, end, counts):
            if problem:
                failures.append(problem)
                print(problem, flush=True)
            write(options.result, summary())
    print(json.dumps(summary(), indent=1))
    write(options.result, summary())
    sys.exit(bool(failures))


def write(path: Path | None, summary: dict[str, object]) -> None:
    """Write the counts of a run to a file, next to those of other seeds."""
    if path is not None:
        runs = json.loads(path.read_text()) if path.exists() else []
        runs = [run for run in runs if run["seed"] != summary["seed"]]
        path.write_text(json.dumps([*runs, summary], indent=1) + "\n")


if __name__ == "__main__":
    main()
