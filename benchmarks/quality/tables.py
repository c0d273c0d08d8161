"""Tables and figure of the quality suite: ``python -m benchmarks.quality.tables [FOLDER]``.

Reads the files in FOLDER/.results and writes results.json, results.md and quality.png to FOLDER.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from benchmarks.quality.methods import METHODS
from benchmarks.quality.metrics import COMPOSITE, LADDER, METRICS, OFFSETS, rms_over_offsets, worth
from benchmarks.quality.run import BASELINE, HERE, RESULTS
from benchmarks.quality.sampling import Array
from benchmarks.quality.targets import CHOOSE, CONFIRM, SIZES, SLOW, TARGETS, WIDE, Target
from benchmarks.table import Row, markdown

OURS, WITHOUT_SCORES, PURE, PEER = "default", "no-scores", "pure-ksd", "kt"
FIGURE = "quality.png"
_SHOWN = ("stein-thinning", "kernax", PEER, PURE, OURS, WITHOUT_SCORES)  # in the figure
_COMPOSITE_GOAL = "<= 0.47; without scores <= 0.52"
_GOAL_METHODS = (OURS, WITHOUT_SCORES, PURE, PEER)


class Scores(NamedTuple):
    """Results of a method on a target for one size: a row per seed."""

    errors: Array  # (seeds, metrics)
    ratios: Array  # (seeds, metrics)
    spread: Array  # (seeds,)
    scales: Array  # (seeds, scale parameters)

    @property
    def cells(self) -> Array:
        """Ratios (metrics,) averaged over the chains."""
        return self.ratios.mean(0)


class Results:
    """Everything in a folder of results."""

    def __init__(self, folder: Path) -> None:
        self.scores: dict[tuple[str, str, int], Scores] = {}
        self.stride: dict[tuple[str, int], Array] = {}  # errors (seeds * offsets, metrics)
        self.seconds: dict[str, list[float]] = {}
        self.not_applicable: dict[str, dict[str, str]] = {}  # method -> target -> reason
        files = folder / RESULTS
        self.targets = [name for name in TARGETS if any((files / name).glob(f"{BASELINE}-*.json"))]
        for target in self.targets:
            self._read_stride(files / target, target)
            for method in METHODS:
                self._read_method(files / target, target, method)
        self.methods = [name for name in METHODS if any(method == name for _, method, _ in self.scores)]

    def _read_stride(self, folder: Path, target: str) -> None:
        found = [json.loads(path.read_text())["errors"] for path in sorted(folder.glob(f"{BASELINE}-*.json"))]
        for size in LADDER:
            if all(str(size) in each for each in found):
                self.stride[target, size] = np.array([each[str(size)] for each in found])

    def _read_method(self, folder: Path, target: str, method: str) -> None:
        found = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{method}-[0-9].json"))]
        self.seconds.setdefault(method, []).extend(each["seconds"] for each in found if "seconds" in each)
        reasons = [each["not applicable"] for each in found if "not applicable" in each]
        if reasons:
            self.not_applicable.setdefault(method, {})[target] = reasons[0]
        for size in SIZES:
            rows = [each["sizes"][str(size)] for each in found if str(size) in each["sizes"]]
            if rows:
                errors, ratios = (
                    np.array([[row[field][metric] for metric in METRICS] for row in rows])
                    for field in ("errors", "ratios")
                )
                spread, scales = (np.array([row[field] for row in rows]) for field in ("spread", "scales"))
                self.scores[target, method, size] = Scores(errors, ratios, spread, scales)

    def of(self, method: str, targets: Iterable[str] | None = None) -> dict[tuple[str, int], Scores]:
        """Results of a method by target and size."""
        chosen = set(self.targets if targets is None else targets)
        return {
            (target, size): found
            for (target, name, size), found in self.scores.items()
            if name == method and target in chosen
        }

    def where(self, condition: Callable[[Target], bool]) -> list[str]:
        """Names of the targets that fulfil a condition."""
        return [name for name in self.targets if condition(TARGETS[name])]

    def composite(self, method: str, targets: Iterable[str] | None = None) -> float:
        """Geometric mean over metrics, sizes and targets; every target has the same weight."""
        logs: dict[str, list[float]] = {}
        for (target, _), found in self.of(method, targets).items():
            logs.setdefault(target, []).append(float(np.log(found.cells[:COMPOSITE]).mean()))
        return float(np.exp(np.mean([np.mean(each) for each in logs.values()]))) if logs else np.nan

    def count(self, method: str) -> int:
        """Number of targets for which the method was run."""
        return len({target for target, _ in self.of(method)})

    def cells(self, method: str) -> list[Cell]:
        """Return all cells of a method."""
        return [
            Cell(target, size, METRICS[k], float(found.cells[k]), self._standard_error(target, size, found, k))
            for (target, size), found in self.of(method).items()
            for k in range(COMPOSITE)
        ]

    def _standard_error(self, target: str, size: int, found: Scores, k: int) -> float:
        """Standard error of a cell, from the spread over chains or that of stride thinning if it is larger."""
        errors = self.stride[target, size][..., k]
        ratios = errors / np.sqrt((errors**2).mean(-1, keepdims=True))
        of_stride = float(ratios.std(ddof=1))
        of_method = float(found.ratios[:, k].std(ddof=1)) if len(found.ratios) > 1 else 0.0
        return max(of_stride, of_method) / float(np.sqrt(len(found.ratios)))

    def worth(self, target: str, method: str, size: int) -> float:
        """Number of evenly spaced draws with the same composite error."""
        sizes = [each for each in LADDER if (target, each) in self.stride]
        ladder = [_geometric(rms_over_offsets(self.stride[target, each].reshape(-1, len(METRICS)))) for each in sizes]
        error = _geometric(np.sqrt((self.scores[target, method, size].errors ** 2).mean(0)))
        return worth(np.array(sizes), np.array(ladder), error)


class Cell(NamedTuple):
    """Ratio of a metric, averaged over chains."""

    target: str
    size: int
    metric: str
    ratio: float
    standard_error: float

    @property
    def worse(self) -> bool:
        """Whether it is worse than stride thinning beyond two standard errors."""
        return self.ratio > 1 + 2 * self.standard_error


def _geometric(values: Array) -> float:
    return float(np.exp(np.log(values[..., :COMPOSITE]).mean()))


def _mixes(target: Target) -> bool:
    return target.kind not in (SLOW, WIDE)


def _of_kind(results: Results, kind: str) -> list[str]:
    return results.where(lambda target: target.kind == kind)


# -- tables ------------------------------------------------------------------------------------------------------------


def overview(results: Results) -> list[Row]:
    """Composite and cells of every method."""
    rows = []
    for method in results.methods:
        cells = results.cells(method)
        worst = max(cells, key=lambda cell: cell.ratio)
        worse = [cell for cell in cells if cell.worse]
        rows.append(
            {
                "method": method,
                "all targets": _two(results.composite(method)),
                CHOOSE: _two(results.composite(method, results.where(lambda target: target.half == CHOOSE))),
                CONFIRM: _two(results.composite(method, results.where(lambda target: target.half == CONFIRM))),
                "slow chains": _two(results.composite(method, _of_kind(results, SLOW))),
                "slow, many dimensions": _two(results.composite(method, _of_kind(results, WIDE))),
                "other chains": _two(results.composite(method, results.where(_mixes))),
                "cells above 1": _share(sum(cell.ratio > 1 for cell in cells), len(cells)),
                "worse than stride": _share(len(worse), len(cells)),
                "worst cell": f"{_two(worst.ratio)} ({worst.target}, {worst.size}, {worst.metric})",
                "targets": results.count(method),
            }
        )
    return rows


def by_metric(results: Results) -> list[Row]:
    """Geometric mean of the ratio of each metric over targets and sizes."""
    rows = []
    for method in results.methods:
        cells = np.array([found.cells for found in results.of(method).values()])
        means = np.exp(np.log(np.maximum(cells, 1e-12)).mean(0))
        rows.append({"method": method} | {metric: _two(means[k]) for k, metric in enumerate(METRICS)})
    return rows


def by_target(results: Results) -> list[Row]:
    """Composite of every method on every target."""
    return [
        {"target": name, "half": TARGETS[name].half}
        | {method: _two(results.composite(method, [name])) for method in results.methods}
        for name in results.targets
    ]


def worths(results: Results) -> list[Row]:
    """Number of evenly spaced draws with the same error, by size; geometric mean over targets without slow chains."""
    rows = []
    for method in results.methods:
        row: Row = {"method": method}
        for size in SIZES:
            found = [
                results.worth(target, method, size)
                for target in results.where(_mixes)
                if (target, method, size) in results.scores
            ]
            row[f"m = {size}"] = f"{np.exp(np.mean(np.log(found))):.0f}" if found else ""
        rows.append(row)
    return rows


def list_targets(results: Results) -> list[Row]:
    """Describe the targets."""
    return [
        {"target": each.name, "kind": each.kind, "half": each.half, "d": each.dim, "work chain": each.stream}
        for each in (TARGETS[name] for name in results.targets)
    ]


def list_not_applicable(results: Results) -> list[Row]:
    """List the methods that cannot be used for some targets."""
    return [
        {"method": method, "targets": len(found), "reason": " / ".join(dict.fromkeys(found.values()))}
        for method, found in results.not_applicable.items()
    ]


def goals(results: Results) -> list[Row]:
    """Compare with the goals of the project, and say which of them the default reaches."""
    methods = [name for name in _GOAL_METHODS if name in results.methods]
    confirm = results.where(lambda target: target.half == CONFIRM)
    burn_in, bad = (
        [name for name in _of_kind(results, SLOW) if name.startswith(start)] for start in ("burn-in", "bad-mixing")
    )

    def row(what: str, goal: str, value: Callable[[str], str]) -> Row:
        found = {method: value(method) for method in methods}
        return {"": what, "goal": goal, "default reaches it": _reached(goal, found.get("default", ""))} | found

    def relative(method: str) -> str:
        return _two(results.composite(method) / results.composite(PEER)) if PEER in methods else ""

    rows = [
        row("composite, all targets", _COMPOSITE_GOAL, lambda name: _two(results.composite(name))),
        row("composite, targets that confirm", _COMPOSITE_GOAL, lambda name: _two(results.composite(name, confirm))),
        row("composite relative to kernel thinning", "<= 0.92", relative),
        row("cells worse than stride", "none", lambda name: _share(*_worse(results, name))),
        row("composite, burn-in left in", "<= 0.20", lambda name: _two(results.composite(name, burn_in))),
        row("composite, bad mixing", "<= 0.20", lambda name: _two(results.composite(name, bad))),
    ]
    if wide := _of_kind(results, WIDE):
        label = "composite, bad mixing in many dimensions"
        rows.append(row(label, "<= 1.00", lambda name: _two(results.composite(name, wide))))
    for target, goal in (("gauss-20", 0.04), ("gauss-50", 0.04), ("t-20", 0.2), ("t-100", 0.2)):
        if target in results.targets:
            label = f"mean spread error, {target}, m = 50"
            rows.append(row(label, f"within {goal:.0%}", lambda name, target=target: _spread(results, target, name)))
    for target in results.where(lambda target: bool(target.scales)):
        label = f"sd of scale parameters, {target}, m = 200"
        rows.append(row(label, "within 7%", lambda name, target=target: _scales(results, target, name)))
    rows.append(row("KSD relative to pure KSD, not slow: mean, largest", "<= 1.3", lambda name: _ksd(results, name)))
    return rows


def _reached(goal: str, found: str) -> str:
    """Return whether values, of which all must fulfil a goal such as "<= 0.20", "within 7%" or "none", do so."""
    values = [float(value.rstrip("%")) for value in re.findall(r"-?[0-9.]+%?", found.split("of")[0])]
    if not values:
        return ""
    limit = 0.0 if goal == "none" else float(re.findall(r"[0-9.]+", goal)[0])
    return "yes" if max(map(abs, values)) <= limit else "no"


def _worse(results: Results, method: str) -> tuple[int, int]:
    cells = results.cells(method)
    return sum(cell.worse for cell in cells), len(cells)


def _spread(results: Results, target: str, method: str) -> str:
    found = results.scores.get((target, method, 50))
    return f"{found.spread.mean():+.0%}" if found else ""


def _scales(results: Results, target: str, method: str) -> str:
    found = results.scores.get((target, method, 200))
    return ", ".join(f"{value - 1:+.0%}" for value in found.scales.mean(0)) if found else ""


def _ksd(results: Results, method: str) -> str:
    k = METRICS.index("ksd")
    quotients = [
        float((found.errors[:, k] / results.scores[target, PURE, size].errors[:, k]).mean())
        for (target, size), found in results.of(method, results.where(_mixes)).items()
        if (target, PURE, size) in results.scores
    ]
    return f"{_two(float(np.exp(np.mean(np.log(quotients)))))}, {_two(max(quotients))}" if quotients else ""


def _two(value: float) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})"


# -- files -------------------------------------------------------------------------------------------------------------


def write(folder: Path) -> None:
    """Write results.json, results.md and the figure."""
    results = Results(folder)
    if not results.methods:
        raise SystemExit(f"There are no results in {folder / RESULTS}.")
    (folder / "results.json").write_text(json.dumps(_numbers(results), indent=None, separators=(",", ":")) + "\n")
    (folder / "results.md").write_text(_page(results))
    _figure(results, folder / FIGURE)


def summary(folder: Path) -> str:
    """Return the overview for the terminal."""
    results = Results(folder)
    rows = overview(results)
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in rows[0]}
    lines = [dict(zip(widths, widths, strict=True)), *rows]
    table = ["  ".join(str(line[name]).ljust(width) for name, width in widths.items()) for line in lines]
    absent = [
        f"{row['method']}: not applicable to {row['targets']} targets: {row['reason']}"
        for row in list_not_applicable(results)
    ]
    return "\n".join([*table, *absent])


def _numbers(results: Results) -> dict[str, Any]:
    """All cells as numbers."""
    content: dict[str, Any] = {"metrics": METRICS, "results": {}}
    for (target, method, size), found in results.scores.items():
        content["results"].setdefault(target, {}).setdefault(method, {})[size] = {
            "ratios": [_digits(value) for value in found.cells],
            "spread": _digits(found.spread.mean()),
            "scales": [_digits(value) for value in found.scales.mean(0)],
            "worth": _digits(results.worth(target, method, size)),
        }
    content["seconds"] = {method: _digits(sum(times)) for method, times in results.seconds.items() if times}
    return content


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _page(results: Results) -> str:
    worse = sorted((cell for cell in results.cells(OURS) if cell.worse), key=lambda cell: -cell.ratio)
    listed: list[Row] = [
        {
            "target": cell.target,
            "m": cell.size,
            "metric": cell.metric,
            "ratio": _two(cell.ratio),
            "standard error": _two(cell.standard_error),
        }
        for cell in worse[:20]
    ]
    tables = [
        (
            "Composite",
            "Geometric mean over metrics, sizes and targets of the error relative to stride thinning of the same size. "
            "Below 1 is better than stride. Settings are chosen on one half of the targets and confirmed on the other. "
            "*Cells above 1*: (target, size, metric) with a mean ratio above 1. *Worse than stride*: above 1 by more "
            "than two standard errors. A method that cannot be used for a target is averaged over the others.",
            overview(results),
        ),
        ("Goals", "Of the default and without scores; pure KSD and kernel thinning for comparison.", goals(results)),
        (
            "Composite by target",
            f"![Composite of each method on each target]({FIGURE})",
            by_target(results),
        ),
        ("Ratio by metric", "Geometric mean over targets and sizes.", by_metric(results)),
        (
            "Worth",
            "Number of evenly spaced draws with the same composite error as the m kept draws. Geometric mean over "
            "targets, without slow chains; at most half of the work chain.",
            worths(results),
        ),
        *(
            [("Cells of the default that are worse than stride", f"The first 20 of {len(worse)}.", listed)]
            if listed
            else []
        ),
        *([("Not applicable", "", list_not_applicable(results))] if results.not_applicable else []),
        ("Targets", "", list_targets(results)),
    ]
    head = (
        "# Quality of kept sets\n\nMade by `make quality`; see [the description](../README.md#quality) for metrics, "
        f"methods and targets. {OFFSETS} offsets of stride thinning, {_seeds(results)} chains per target."
    )
    return (
        head + "\n" + "".join(f"\n## {title}\n\n{_paragraph(text)}{markdown(rows)}\n" for title, text, rows in tables)
    )


def _seeds(results: Results) -> int:
    return max(len(found.spread) for found in results.scores.values())


def _paragraph(text: str) -> str:
    return f"{fill(text, 120)}\n\n" if text else ""


def _figure(results: Results, path: Path) -> None:
    """Draw the composite of each method on each target."""
    if find_spec("matplotlib") is None:
        print(f"{FIGURE} skipped: package matplotlib is missing")
        return
    from steinstream.report import plots

    plt = plots.pyplot()
    shown = [name for name in _SHOWN if name in results.methods] or results.methods
    names = [name for half in (CONFIRM, CHOOSE) for name in reversed(results.targets) if TARGETS[name].half == half]
    figure, axes = plt.subplots(figsize=(9, 0.24 * len(names) + 1.4), layout="constrained")
    for number, method in enumerate(shown):
        values = [results.composite(method, [name]) for name in names]
        style = {
            "color": plots.METHOD_COLOURS[number % len(plots.METHOD_COLOURS)],
            "marker": plots.MARKERS[number % len(plots.MARKERS)],
        }
        axes.semilogx(values, range(len(names)), ls="", ms=5.5, alpha=0.9, label=method, **style)
    axes.axvline(1.0, color="0.5", lw=1, zorder=0)
    border = sum(TARGETS[name].half == CONFIRM for name in names) - 0.5
    axes.axhline(border, color="0.5", lw=0.8, ls="--", zorder=0)
    axes.text(0.995, border + 0.1, "choose", transform=axes.get_yaxis_transform(), ha="right", va="bottom", color="0.4")
    axes.text(0.995, border - 0.1, "confirm", transform=axes.get_yaxis_transform(), ha="right", va="top", color="0.4")
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5, 10, 20, 50, 100) if low < tick < high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(axis="y", color="0.93", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("composite error relative to stride thinning (less is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str]) -> None:
    """Make the tables again."""
    write(Path(arguments[0]) if arguments else HERE)


if __name__ == "__main__":
    main(sys.argv[1:])
