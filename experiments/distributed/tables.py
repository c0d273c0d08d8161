"""Tables of the README, and simulations of runs that are too large for one machine."""

from __future__ import annotations

from typing import Any

import model
import numpy as np

Lines = list[dict[str, Any]]

#: Dimension, size, workers and fan-in of the simulated runs.
LARGE_RUNS = (
    (10, 100, 100, 16),
    (10, 100, 1000, 16),
    (10, 100, 10_000, 16),
    (10, 1000, 10_000, 16),
    (10, 1000, 10_000, 4),
    (10, 1000, 10_000, 64),
    (100, 100, 10_000, 16),
    (100, 1000, 10_000, 16),
)


def show(lines: Lines) -> None:
    """Print all tables."""
    quality([one for one in lines if one["part"] == "quality"])
    scaling([one for one in lines if one["part"] == "scaling"], lines)
    large_runs(lines)


def table(head: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown."""
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def quality(lines: Lines) -> None:
    """Print KSD of the tree relative to one thinner."""
    ratios = {
        (one["case"], int(one["leaves"]), one["setting"]): one
        for one in lines
        if one["measure"] == "KSD over one thinner's"
    }
    columns = [(few, spare) for few in (True, False) for spare in ("spare 1", "spare 2", "spare 4")]
    rows = []
    for case in dict.fromkeys(one["case"] for one in lines):
        row = [case]
        for few, spare in columns:
            found = [one for (c, n, s), one in ratios.items() if c == case and (n <= 16) == few and s == spare]
            row.append(f"{found[0]['value']:.2f} ± {found[0]['error']:.2f}" if found else "")
        rows.append(row)
    table(["target", *(f"{'16' if few else '64'} chains, {spare}" for few, spare in columns)], rows)
    for spare in ("spare 1", "spare 2", "spare 4"):
        some = [one["value"] for (_, n, s), one in ratios.items() if n <= 16 and s == spare]
        if some:
            print(f"{spare}: mean {np.mean(some):.3f}, largest {max(some):.3f}")
    bounds = [one["value"] for one in lines if one["measure"] == "KSD over its bound"]
    if bounds:
        print(f"KSD over its bound: {min(bounds):.2f} to {max(bounds):.2f}")


def machine(lines: Lines, dim: int) -> model.Machine:
    """Interpolate the measured speeds to a dimension."""
    found: dict[str, dict[int, float]] = {}
    for one in lines:
        if one["part"] == "model":
            name = f"{one['case']} {one['measure']}"
            found.setdefault(name, {})[int(one["setting"].removeprefix("d = "))] = one["value"] * 1e-9
    at = {name: float(np.interp(dim, list(values), list(values.values()))) for name, values in found.items()}
    times = at["leaf ns an evaluation"], at["node ns an evaluation"], at["leaf ns a draw"]
    return model.Machine(*times, task=at["dask ns a task"], start=at["dask ns a task"])


def scaling(lines: Lines, everything: Lines) -> None:
    """Print measured times and those of the model."""
    rows = []
    for workers in (1, 2):
        own = [one for one in lines if one["case"] == f"{workers} workers"]
        for leaves in dict.fromkeys(int(one["leaves"]) for one in own):
            got = {one["measure"]: one["value"] for one in own if int(one["leaves"]) == leaves}
            problem = model.ManyChains(leaves, 100_000, 10, 100)
            cores = model.on(machine(everything, 10), workers)
            work = got["dask processor s"] / got["plain processor s"] - 1
            cells = {
                "workers": str(workers),
                "leaves": str(leaves),
                "processor s, loop": f"{got['plain processor s']:.2f}",
                "processor s, Dask": f"{got['dask processor s']:.2f}",
                "overhead": f"{100 * work:.0f} %",
                "model": f"{model.simulate(problem, model.on(cores, 1), 0.0).total:.2f}",
                "wall s, loop": f"{got['plain s']:.2f}",
                "wall s, Dask": f"{got['dask s']:.2f}",
                "kB written": f"{got['bytes written'] / 1e3:.0f}",
                "model, at most": f"{model.bytes_moved(problem) / 1e3:.0f}",
                "peak MB": f"{got['peak bytes'] / 1e6:.0f}",
            }
            rows.append(list(cells.values()))
    table(list(cells), rows)


def seconds(value: float) -> str:
    """Format a time."""
    if value >= 3600:
        return f"{value / 3600:.1f} h"
    return f"{value / 60:.1f} min" if value >= 120 else f"{value:.0f} s" if value >= 10 else f"{value:.2g} s"


def size(value: float) -> str:
    """Format a number of bytes."""
    power = min(max(int(np.log10(max(value, 1.0)) // 3), 0), 4)
    return f"{value / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def large_runs(lines: Lines) -> None:
    """Print simulations of ten thousand chains of ten million draws."""
    if not any(one["part"] == "model" for one in lines):
        return
    rows = []
    for dim, kept, workers, fan_in in LARGE_RUNS:
        problem = model.ManyChains(10_000, 1e7, dim, kept, fan_in=fan_in)
        times = model.simulate(problem, model.on(machine(lines, dim), workers))
        durations = [seconds(value) for value in (times.leaves, times.barrier, times.tree, times.root)]
        bytes_ = [model.bytes_moved(problem), 1e4 * 1e7 * 16 * dim, model.worker_memory(problem)]
        rows.append([str(dim), str(kept), str(workers), str(fan_in), *durations, *map(size, bytes_)])
    head = ["d", "size", "workers", "fan-in", "leaves", "barrier", "tree", "root", "moved", "draws", "worker"]
    table(head, rows)
