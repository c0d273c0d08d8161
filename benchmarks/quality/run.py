"""Run the quality suite: ``python -m benchmarks.quality``.

One small file per target, seed and method is written to FOLDER/.results, so that an interrupted run continues where it
stopped. A file is computed again if the settings of the method or the version of the suite changed. The tables are made
from all files in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality import cache, scoring
from benchmarks.quality.methods import METHODS, SETTINGS, Method, NotApplicableError, Work
from benchmarks.quality.targets import SEEDS, SIZES, TARGETS

HERE = Path(__file__).parent
QUICK_TARGETS = ("gauss-2", "t-20", "mixture-2", "log-gamma", "funnel", "burn-in-gauss", "bad-mixing-gauss")
QUICK_METHODS = ("stride", "random", "kt", "pure-ksd", "default", "no-scores")
QUICK_SIZES = (50, 200)
RESULTS = ".results"
BASELINE = "baseline"

Json = dict[str, Any]


class Plan(NamedTuple):
    """What to compute."""

    folder: Path
    targets: tuple[str, ...]
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    again: bool = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = _parser().parse_args(arguments)
    for variable, value in ((cache.CACHE_VARIABLE, given.cache), (cache.DATA_VARIABLE, given.data)):
        if value is not None:
            os.environ[variable] = str(value.resolve())
    folder = given.output or (HERE.parents[1] / "build" / "quality" if given.quick else HERE)
    plan = Plan(
        folder,
        _chosen("target", given.targets, TARGETS, QUICK_TARGETS if given.quick else TARGETS),
        _chosen("method", given.methods, METHODS, QUICK_METHODS if given.quick else METHODS),
        tuple(given.sizes or (QUICK_SIZES if given.quick else SIZES)),
        (0,) if given.quick else SEEDS,
        given.again,
    )
    start = time.monotonic()
    run(plan, given.jobs)
    from benchmarks.quality import tables

    tables.write(folder)
    print(tables.summary(folder))
    elapsed = time.monotonic() - start
    print(f"{elapsed:.0f} s, {_processor_time():.0f} s of processor time. Tables: {folder / 'results.md'}")


def _processor_time() -> float:
    """Return the processor time of this process and of its processes that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.quality", description="Quality of kept sets.")
    parser.add_argument("--quick", action="store_true", help="a small subset, under two minutes")
    parser.add_argument("--targets", nargs="+", metavar="NAME", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=f"default: all of {', '.join(METHODS)}")
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, metavar="M", help="of 50 100 200 500")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes, default 2")
    parser.add_argument("--again", action="store_true", help="compute also what is in the folder already")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/, default ../shared/data if it exists")
    parser.add_argument("--cache", type=Path, help="folder for chains, default benchmarks/quality/.cache")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="default benchmarks/quality; with --quick, build/quality"
    )
    return parser


def _chosen(what: str, given: Sequence[str] | None, known: Iterable[str], default: Iterable[str]) -> tuple[str, ...]:
    unknown = set(given or ()) - set(known)
    if unknown:
        raise SystemExit(f"Unknown {what}: {', '.join(sorted(unknown))}. Known: {', '.join(known)}.")
    return tuple(given or default)


def run(plan: Plan, jobs: int = 1) -> None:
    """Compute what is missing in the folder, in several processes, and print what cannot be computed."""
    targets, methods = [], []
    for name in plan.targets:
        missing = TARGETS[name].missing(cache.data_folder())
        if missing:
            print(f"target {name} skipped: {missing} is missing", flush=True)
        else:
            targets.append(name)
    for name in plan.methods:
        missing = METHODS[name].missing()
        if missing:
            print(f"method {name} skipped: package {missing} is missing", flush=True)
        else:
            methods.append(name)
    plan = plan._replace(targets=tuple(targets), methods=tuple(methods))
    slowest_first = sorted(targets, key=lambda name: -TARGETS[name].dim)
    if jobs == 1:
        for name in slowest_first:
            print(run_target(plan, name), flush=True)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as processes:
        for done in as_completed([processes.submit(run_target, plan, name) for name in slowest_first]):
            print(done.result(), flush=True)


def run_target(plan: Plan, name: str) -> str:
    """Compute what is missing for one target and return a line for the terminal."""
    start, before, new = time.monotonic(), _processor_time(), 0
    for seed in plan.seeds:
        new += _run_baseline(plan, name, seed)
        new += sum(_run_method(plan, name, seed, METHODS[method]) for method in plan.methods)
    processor = _processor_time() - before
    return f"{name}: {new} new results, {time.monotonic() - start:.0f} s, {processor:.1f} s of processor time"


def _run_baseline(plan: Plan, name: str, seed: int) -> bool:
    """Write the errors of stride thinning of all sizes."""
    path = result_path(plan.folder, name, seed, BASELINE)
    if not plan.again and _read(path).get("fingerprint") == fingerprint(BASELINE):
        return False
    errors = scoring.scorer(name, seed).stride_errors
    _write(path, {"fingerprint": fingerprint(BASELINE), "errors": {size: errors[size].tolist() for size in errors}})
    return True


def _run_method(plan: Plan, name: str, seed: int, method: Method) -> bool:
    """Write the scores of a method for the sizes that are not in its file, or why the method cannot be used."""
    path = result_path(plan.folder, name, seed, method.name)
    known = _read(path)
    if plan.again or known.get("fingerprint") != fingerprint(method.name):
        known = {"fingerprint": fingerprint(method.name), "sizes": {}}
    wanted = [size for size in plan.sizes if size in TARGETS[name].sizes and str(size) not in known["sizes"]]
    if not wanted:
        return False
    known.pop("not applicable", None)
    work = Work(name, seed, scoring.chain(name, seed))
    try:
        kept = method.select_all(work, wanted)
    except NotApplicableError as error:
        _write(path, known | {"not applicable": str(error)})
        return True
    known["sizes"] |= {str(size): found for size, found in scoring.evaluate(name, seed, kept).items()}
    _write(path, known)
    return True


def fingerprint(method: str) -> str:
    """Identify what a result depends on, apart from the code of steinstream."""
    settings = f" {SETTINGS[method].settings}" if method in SETTINGS else ""
    return f"{cache.VERSION}.{scoring.VERSION} {method}{settings}"


def result_path(folder: Path, target: str, seed: int, method: str) -> Path:
    """File of a result."""
    return folder / RESULTS / target / f"{method}-{seed}.json"


def _read(path: Path) -> Json:
    found: Json = json.loads(path.read_text()) if path.exists() else {}
    return found


def _write(path: Path, content: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)
