"""Thinning of many chains by KSD alone: overhead of Dask and data transfer: ``python experiments/distributed/run.py``.

quality.py compares workers and one process with the default objective.

*quality*: KSD of the merge tree over 16 and 64 chains relative to one thinner over all draws, at the same size and with
the same preconditioner; for real posteriors (--data FOLDER with posteriordb/*.npz) their ten chains. *scaling*: 1 to 64
leaves of 100 000 draws in ten dimensions, on a cluster of one and of two processes and in the same number of parallel
plain loops: wall time, processor time, bytes that workers wrote, and memory. *model*: speed of kernel evaluations and
tasks, from which model.py computes the cost of runs that are too large for one machine.

Writes results.csv to the folder of this file and prints the tables of the README. With --only PART only one part is
measured, with --show none. About fifteen minutes.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import model
import numpy as np

import steinstream as ss
from steinstream.targets import Mixture

HERE = Path(__file__).parent
FIELDS = ("part", "case", "leaves", "setting", "measure", "value", "error")
SIZE, SEEDS, LENGTH = 100, 5, 5_000
KSD = {"stream_weight": 0.0}  # the cost model is that of KSD alone
LEAVES, DRAWS, DIM = (1, 2, 4, 8, 16, 64), 100_000, 10
REPEATS = 5

Line = dict[str, Any]


def line(part: str, case: str, leaves: int, setting: str, measure: str, values: Any) -> Line:
    """Return one row of results: the mean and twice its standard error."""
    values = np.atleast_1d(values)
    error = 2 * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return dict(zip(FIELDS, (part, case, leaves, setting, measure, float(values.mean()), float(error)), strict=True))


# -- quality -----------------------------------------------------------------------------------------------------------


def targets(data: Path | None) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    """Yield names and, for each seed, draws and scores (chains, n, d)."""
    for dim in (2, 5, 10, 20):
        yield f"normal, d = {dim}", [normals(dim, 64, seed) for seed in range(SEEDS)]
    three = Mixture([[0.0, 0.0], [4.0, 0.0], [0.0, 5.0]], covariances=1.0, weights=[0.2, 0.5, 0.3])
    yield "mixture, d = 2", [mixtures(three, 64, seed) for seed in range(SEEDS)]
    yield "random walk, d = 4", [walks(4, 64, seed) for seed in range(SEEDS)]
    for path in sorted((data / "posteriordb").glob("*.npz")) if data else ():
        with np.load(path) as file:
            yield path.stem.partition("-")[2], [(file["draws"], file["scores"])]


def normals(dim: int, chains: int, seed: int) -> tuple[Any, Any]:
    """Sample independent normal draws."""
    x = np.random.default_rng(seed).normal(size=(chains, LENGTH, dim))
    return x, -x


def mixtures(target: Mixture, chains: int, seed: int) -> tuple[Any, Any]:
    """Sample independent draws of a mixture."""
    pairs = [target.sample(LENGTH, seed=1000 * seed + chain) for chain in range(chains)]
    return np.stack([x for x, _ in pairs]), np.stack([s for _, s in pairs])


def walks(dim: int, chains: int, seed: int) -> tuple[Any, Any]:
    """Sample autoregressive chains: correlation 0.95, standard deviations 1, 2, ..., start at five of them."""
    random = np.random.default_rng(seed)
    x = np.empty((chains, LENGTH, dim))
    x[:, 0] = 5.0
    for t in range(1, LENGTH):
        x[:, t] = 0.95 * x[:, t - 1] + np.sqrt(1 - 0.95**2) * random.normal(size=(chains, dim))
    widths = np.arange(1.0, dim + 1.0)
    return x * widths, -x / widths


def quality(data: Path | None) -> Iterator[Line]:
    """Measure KSD of the tree relative to one thinner."""
    for name, runs in targets(data):
        for chains in (16, 64):
            if runs[0][0].shape[0] < chains and chains > 16:
                continue
            for spare in (1.0, 2.0, 4.0):
                ratios, bounds = [], []
                for draws, scores in runs:
                    x, s = draws[:chains], scores[:chains]
                    dim = x.shape[2]
                    one = ss.thin(x.reshape(-1, dim), s.reshape(-1, dim), size=SIZE, **KSD)
                    tree = ss.parallel.thin(
                        (x, s),
                        size=SIZE,
                        **KSD,
                        spare=spare,
                        workers=0,
                        validate_scores=False,
                        preconditioner=one.preconditioner,
                    )
                    ratios.append(tree.ksd / one.ksd)
                    bounds.append(tree.ksd / tree.settings["merged"]["bound"])
                found = x.shape[0]
                yield line("quality", name, found, f"spare {spare:g}", "KSD over one thinner's", ratios)
                yield line("quality", name, found, f"spare {spare:g}", "KSD over its bound", bounds)
                print(name, found, spare, np.round(np.mean(ratios), 3), flush=True)


# -- scaling -----------------------------------------------------------------------------------------------------------


class NormalStream:
    """Independent normal draws, sampled where they are thinned."""

    def __init__(self, seed: int, draws: int = DRAWS, dim: int = DIM) -> None:
        self.seed, self.draws, self.dim = seed, draws, dim

    def __call__(self) -> Iterator[tuple[Any, Any]]:
        random = np.random.default_rng(self.seed)
        for begin in range(0, self.draws, 8192):
            x = random.normal(size=(min(8192, self.draws - begin), self.dim))
            yield x, -x


def written(dask_worker: Any) -> int:
    """Return the bytes that a worker has written to all connections since the first call."""
    from distributed.comm import tcp

    if not hasattr(tcp, "counted"):
        plain, tcp.counted = tcp.TCP.write, 0

        async def write(self: Any, *arguments: Any, **options: Any) -> int:
            number = await plain(self, *arguments, **options)
            tcp.counted += number or 0
            return int(number or 0)

        tcp.TCP.write = write
    return int(tcp.counted)


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loop(seeds: range) -> float:
    """Thin these chains one after another and return the processor seconds."""
    start = time.process_time()
    ss.parallel.thin([NormalStream(seed) for seed in seeds], size=SIZE, workers=0, **KSD)
    return time.process_time() - start


def scaling() -> Iterator[Line]:
    """Measure the same work in plain loops, one per process, and on clusters."""
    from steinstream.parallel.backends import local_client

    for workers in (1, 2):
        with (
            ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as processes,
            local_client(workers, memory_limit="2GiB", dashboard_address=None) as client,
        ):

            def loops(leaves: int, processes: Any = processes, workers: int = workers) -> tuple[float, float]:
                start = time.perf_counter()
                seeds = [range(first, leaves, workers) for first in range(min(workers, leaves))]
                work = sum(processes.map(loop, seeds))
                return time.perf_counter() - start, work

            def busy(client: Any = client) -> float:
                return time.process_time() + sum(client.run(time.process_time).values())

            loops(4)  # compile everything
            ss.parallel.thin([NormalStream(seed) for seed in range(4)], size=SIZE, client=client, **KSD)
            for leaves in LEAVES:
                rows = []
                same = ss.parallel.thin([NormalStream(seed) for seed in range(leaves)], size=SIZE, workers=0, **KSD).ksd
                for _ in range(REPEATS):
                    seconds, work = loops(leaves)
                    before, bytes_before, start = busy(), sum(client.run(written).values()), time.perf_counter()
                    kept = ss.parallel.thin(
                        [NormalStream(seed) for seed in range(leaves)], size=SIZE, client=client, **KSD
                    )
                    wall = time.perf_counter() - start
                    moved = sum(client.run(written).values()) - bytes_before
                    rows.append((seconds, work, wall, busy() - before, moved, max(client.run(peak).values())))
                    if kept.ksd != same:
                        raise SystemExit(f"{leaves} leaves: the result on the cluster differs")
                names = ("plain s", "plain processor s", "dask s", "dask processor s", "bytes written", "peak bytes")
                for name, values in zip(names, zip(*rows, strict=True), strict=True):
                    yield line("scaling", f"{workers} workers", leaves, f"size {SIZE}", name, values)
                print(workers, leaves, np.round(np.min(rows, axis=0), 2), flush=True)


# -- model -------------------------------------------------------------------------------------------------------------


def machine() -> Iterator[Line]:
    """Measure the time of an evaluation and of a draw in several dimensions, and of an evaluation in a node.

    The time of a draw includes sampling it, in place of reading it from a file.

    Returns
    -------
    iterator of Line
        Measured times, one line each.
    """
    for dim in (2, 10, 50, 100):
        times = {}
        for kept in (100, 400):
            values = []
            for _ in range(REPEATS):
                thinner = ss.Thinner(dim, size=kept, preconditioner=ss.Streaming(), **KSD)
                blocks = NormalStream(0, 40_000, dim)()
                thinner.extend(*next(blocks))
                start = time.process_time()
                for x, s in blocks:
                    thinner.extend(x, s)
                values.append((time.process_time() - start) / (40_000 - 8192))
            times[kept] = min(values)
        evaluation = (times[400] - times[100]) / 300
        yield line("model", "leaf", 1, f"d = {dim}", "ns an evaluation", 1e9 * evaluation)
        yield line("model", "leaf", 1, f"d = {dim}", "ns a draw", 1e9 * (times[100] - 100 * evaluation))
        parts = [
            ss.thin(*next(NormalStream(seed, 2000, dim)()), size=200, validate_scores=False, **KSD)
            for seed in range(16)
        ]
        values = []
        for _ in range(REPEATS):
            start = time.process_time()
            ss.merge(parts, size=100)
            values.append(time.process_time() - start)
        problem = model.ManyChains(16, 2000, dim, 100)
        counted = model.node_evaluations(problem, 16, True)
        yield line("model", "node", 16, f"d = {dim}", "ns an evaluation", 1e9 * min(values) / counted)
        print(dim, times, evaluation, min(values) / counted, flush=True)


def scheduler() -> Iterator[Line]:
    """Measure the time of the scheduler and the client for a trivial task."""
    from steinstream.parallel.backends import local_client

    with local_client(1, memory_limit="2GiB", dashboard_address=None) as client:
        values = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            client.gather([client.submit(abs, number, pure=False) for number in range(1000)])
            values.append((time.perf_counter() - start) / 1000)
    for dim in (2, 100):
        yield line("model", "dask", 1000, f"d = {dim}", "ns a task", 1e9 * min(values))
    print("task", values)


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description="Thinning of many chains.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/")
    parser.add_argument("--only", choices=["quality", "scaling", "model"], help="measure only this part")
    parser.add_argument("--show", action="store_true", help="only print the tables from results.csv")
    given = parser.parse_args()
    for part, measure in (
        ("model", lambda: [*machine(), *scheduler()]),
        ("scaling", scaling),
        ("quality", lambda: quality(given.data)),
    ):
        if not given.show and given.only in (None, part):
            write(part, list(measure()))
    import tables

    tables.show(read())


def read() -> list[Line]:
    """Read results.csv."""
    path = HERE / "results.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return [{**row, "value": float(row["value"]), "error": float(row["error"])} for row in csv.DictReader(file)]


def write(part: str, lines: list[Line]) -> None:
    """Write lines to results.csv and replace those of the same part."""
    others = [row for row in read() if row["part"] != part]
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in sorted([*others, *lines], key=lambda row: row["part"]):
            writer.writerow({**row, "value": f"{row['value']:.6g}", "error": f"{row['error']:.3g}"})


if __name__ == "__main__":
    main()
