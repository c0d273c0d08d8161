"""Tables and figure of the quality suite: ``python -m benchmarks.quality.tables [FOLDER]``.

Reads the files in FOLDER/.results and writes results.json, results.md and quality.png to FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from benchmarks.quality.methods import METHODS
from benchmarks.quality.metrics import COMPOSITE, LADDER, METRICS, OFFSETS, rms_over_offsets, worth
from benchmarks.quality.predictions import PREDICT, PREDICTIONS
from benchmarks.quality.run import BASELINE, HERE, RESULTS
from benchmarks.quality.sampling import Array
from benchmarks.quality.targets import CHOOSE, CONFIRM, FRESH, SEEDS, SIZES, SLOW, TARGETS, WIDE, Target
from benchmarks.table import Row, markdown

OURS, WITHOUT_SCORES, PURE, PEER, PASSES = "default", "no-scores", "pure-ksd", "kt", "passes-auto"
ONLINE, CORRECTED, ONLINE_WITHOUT_SCORES = "online", "online-corrected", "online-no-scores"
HALVES = (CHOOSE, CONFIRM, FRESH)
FIGURE = "quality.png"
_SHOWN = ("stein-thinning", "kernax", PEER, PURE, OURS, WITHOUT_SCORES, ONLINE)  # in the figure
_WITH, _WITHOUT = (OURS, ONLINE, CORRECTED), (WITHOUT_SCORES, ONLINE_WITHOUT_SCORES)
_GOAL_METHODS = (*_WITH, PASSES, *_WITHOUT, PURE, PEER)
_COMPOSITE_LIMITS = dict.fromkeys(_WITH, 0.47) | dict.fromkeys(_WITHOUT, 0.52)
KSD_LIMIT = 1.3
_COMPOSITE_GOAL = "<= 0.47; without scores <= 0.52"


class Scores(NamedTuple):
    """Results of a method on a target for one size."""

    cells: Array  # (metrics,), ratios averaged over the chains
    chains: Array  # (chains, metrics), ratios of each chain; no rows if only their means are known
    spread: float
    scales: Array  # (scale parameters,)
    worth: float  # number of evenly spaced draws with the same composite error
    predictions: Array | None = None  # ratios of the errors of predictions


class Results:
    """All results in a folder: those in results.json, and those in .results, which replace them.

    So a method or a target can be added to committed results without running the others again. Results of a target in
    results.json are left out if its chains changed, that is, if the errors of stride thinning differ.
    """

    def __init__(self, folder: Path, *, former_only: bool = False) -> None:
        self.scores: dict[tuple[str, str, int], Scores] = {}
        self.noise: dict[
            tuple[str, int], Array
        ] = {}  # sd (metrics,) of the ratios of single offsets of stride thinning
        self.not_applicable: dict[str, dict[str, str]] = {}  # method -> target -> reason
        self._stride: dict[tuple[str, int], Array] = {}  # errors (chains * offsets, metrics)
        files, former = folder / RESULTS, folder / "results.json"
        if former.exists():
            self._read_former(json.loads(former.read_text()))
        for target in () if former_only else TARGETS:
            if any((files / target).glob(f"{BASELINE}-*.json")):
                self._read_stride(files / target, target)
                for method in METHODS:
                    self._read_method(files / target, target, method)
        known = {(target, method) for target, method, _ in self.scores}
        self.targets = [name for name in TARGETS if any(target == name for target, _ in known)]
        self.methods = [name for name in METHODS if any(method == name for _, method in known)]

    def _read_former(self, content: dict[str, Any]) -> None:
        for target, methods in content["results"].items():
            for method, sizes in methods.items():
                for size, cell in sizes.items():
                    if target in TARGETS and method in METHODS:
                        self.scores[target, method, int(size)] = Scores(
                            np.array(cell["ratios"]),
                            np.array(cell.get("chains", ())).reshape(-1, len(METRICS)),
                            cell["spread"],
                            np.array(cell["scales"]),
                            cell["worth"],
                            np.array(cell["predictions"]) if "predictions" in cell else None,
                        )
        for target, by_size in content.get("noise", {}).items():
            self.noise |= {(target, int(size)): np.array(values) for size, values in by_size.items()}
        self.not_applicable = {method: dict(found) for method, found in content.get("not applicable", {}).items()}

    def _read_stride(self, folder: Path, target: str) -> None:
        found = [json.loads(path.read_text())["errors"] for path in sorted(folder.glob(f"{BASELINE}-*.json"))]
        for size in LADDER:
            if all(str(size) in each for each in found):
                errors = np.array([each[str(size)] for each in found])
                self._stride[target, size] = errors.reshape(-1, len(METRICS))
                ratios = errors / np.sqrt((errors**2).mean(1, keepdims=True))
                if size in SIZES:
                    self.noise[target, size] = ratios.std((0, 1), ddof=1)

    def _read_method(self, folder: Path, target: str, method: str) -> None:
        found = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{method}-[0-9].json"))]
        reasons = [each["not applicable"] for each in found if "not applicable" in each]
        if reasons:
            self.not_applicable.setdefault(method, {})[target] = reasons[0]
        for size in SIZES:
            rows = [each["sizes"][str(size)] for each in found if str(size) in each["sizes"]]
            if len(rows) < len(SEEDS) and (target, method, size) in self.scores:
                continue  # of a run that was interrupted
            if rows:
                self._add(target, method, size, rows)

    def _add(self, target: str, method: str, size: int, rows: list[dict[str, Any]]) -> None:
        """Add the results of all chains, in place of former ones."""
        errors, ratios = (
            np.array([[row[field][metric] for metric in METRICS] for row in rows]) for field in ("errors", "ratios")
        )
        former = self.scores.get((target, method, size))
        if method == "stride" and former is not None and not np.allclose(former.cells, ratios.mean(0), rtol=1e-3):
            print(f"{target}: the chains changed, so results of former runs are left out")
            self.scores = {key: value for key, value in self.scores.items() if key[0] != target}
        predicted = [[row["predictions"][name] for name in PREDICTIONS] for row in rows if "predictions" in row]
        self.scores[target, method, size] = Scores(
            ratios.mean(0),
            ratios,
            float(np.mean([row["spread"] for row in rows])),
            np.mean([row["scales"] for row in rows], axis=0),
            self._worth(target, errors),
            np.mean(predicted, axis=0) if predicted else None,
        )

    def _worth(self, target: str, errors: Array) -> float:
        sizes = [size for size in LADDER if (target, size) in self._stride]
        ladder = [_geometric(rms_over_offsets(self._stride[target, size])) for size in sizes]
        return worth(np.array(sizes), np.array(ladder), _geometric(rms_over_offsets(errors)))

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

    def of_half(self, half: str) -> list[str]:
        """Names of the targets that choose, confirm or are fresh."""
        return self.where(lambda target: target.half == half)

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
        of_stride = float(self.noise[target, size][k])
        of_method = float(found.chains[:, k].std(ddof=1)) if len(found.chains) > 1 else 0.0
        return max(of_stride, of_method) / float(np.sqrt(len(found.chains) or len(SEEDS)))


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
                **{half: _two(results.composite(method, results.of_half(half))) for half in HALVES},
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
                results.scores[target, method, size].worth
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
    """Compare with the goals of the project, and say for each method that a goal names whether it reaches it."""
    methods = [name for name in _GOAL_METHODS if name in results.methods]
    burn_in, bad = (
        [name for name in _of_kind(results, SLOW) if name.startswith(start)] for start in ("burn-in", "bad-mixing")
    )

    def row(what: str, goal: str, value: Callable[[str], Value], limits: dict[str, float]) -> Row:
        return {"": what, "goal": goal} | {name: _judged(value(name), limits.get(name)) for name in methods}

    def composite(what: str, targets: list[str] | None, limits: dict[str, float], goal: str | None = None) -> Row:
        def value(name: str) -> Value:
            return _number(results.composite(name, targets))

        return row(f"composite, {what}", goal or f"<= {next(iter(limits.values())):.2f}", value, limits)

    def relative(method: str) -> Value:
        common = {target for target, _ in results.of(method)} & {target for target, _ in results.of(PEER)}
        return _number(results.composite(method, common) / results.composite(PEER, common))

    ours = dict.fromkeys(_WITH, 0.0)
    rows = [
        composite("all targets", None, _COMPOSITE_LIMITS, _COMPOSITE_GOAL),
        *(
            composite(f"targets that {what}", results.of_half(half), _COMPOSITE_LIMITS, _COMPOSITE_GOAL)
            for half, what in ((CONFIRM, "confirm"), (FRESH, "are fresh"))
            if results.of_half(half)
        ),
        row("composite relative to kernel thinning", "<= 0.92", relative, dict.fromkeys(_WITH, 0.92)),
        row("cells worse than stride", "none", lambda name: _worse(results, name), dict.fromkeys(_WITH + _WITHOUT, 0)),
        composite("burn-in or bad mixing", burn_in + bad, dict.fromkeys(_WITH, 0.2)),
        composite("burn-in alone", burn_in, dict.fromkeys(_WITH, 0.2)),
        composite("bad mixing alone", bad, dict.fromkeys(_WITH, 0.2)),
    ]
    if wide := _of_kind(results, WIDE):
        rows.append(composite("bad mixing in many dimensions", wide, dict.fromkeys(_WITH, 1.0)))
    for target, goal in (("gauss-20", 0.04), ("gauss-50", 0.04), ("t-20", 0.2), ("t-100", 0.2)):
        if target in results.targets:
            label = f"mean spread error, {target}, m = 50"
            limits = dict.fromkeys(_WITH, goal)
            rows.append(row(label, f"within {goal:.0%}", lambda name, t=target: _spread(results, t, name), limits))
    for target in results.where(lambda target: bool(target.scales)):
        label = f"sd of scale parameters, {target}, m = 200"
        limits = dict.fromkeys(_WITH, 0.07)
        rows.append(row(label, "within 7%", lambda name, t=target: _scales(results, t, name), limits))
    ksd = "KSD relative to pure KSD, not slow"
    above = f"target and size with more than {KSD_LIMIT}"
    paired = "cells worse than those of the default, paired"
    rows += [
        row(f"{ksd}: mean", f"<= {KSD_LIMIT}", lambda name: _ksd_mean(results, name), dict.fromkeys(_WITH, KSD_LIMIT)),
        row(f"{ksd}: {above}", "none", lambda name: _ksd_above(results, name), ours),
        row(paired, 'none with `passes="auto"`', lambda name: _paired(results, name), {PASSES: 0.0}),
    ]
    return rows


class Value(NamedTuple):
    """A value of a goal: as text, and the numbers that are compared with the limit."""

    text: str
    numbers: tuple[float, ...]


def _judged(value: Value, limit: float | None) -> str:
    """Return a value, and whether it reaches the goal if the goal names the method."""
    if limit is None or not value.numbers:
        return value.text
    return f"{value.text} {'reached' if max(map(abs, value.numbers)) <= limit else 'MISSED'}"


def _number(value: float) -> Value:
    return Value(_two(value), () if np.isnan(value) else (round(value, 2),))


def _percentages(values: Array) -> Value:
    rounded = [round(float(value), 2) for value in values]
    return Value(", ".join(f"{value:+.0%}" for value in rounded), tuple(rounded))


def _worse(results: Results, method: str) -> Value:
    cells = results.cells(method)
    worse = sum(cell.worse for cell in cells)
    return Value(_share(worse, len(cells)), (worse,))


def _spread(results: Results, target: str, method: str) -> Value:
    found = results.scores.get((target, method, 50))
    return _percentages(np.array([found.spread])) if found else Value("", ())


def _scales(results: Results, target: str, method: str) -> Value:
    found = results.scores.get((target, method, 200))
    return _percentages(found.scales - 1) if found else Value("", ())


def ksd_quotients(results: Results, method: str) -> dict[tuple[str, int], float]:
    """KSD relative to pure KSD, by target and size, without slow chains."""
    k = METRICS.index("ksd")
    return {
        (target, size): float(found.cells[k] / results.scores[target, PURE, size].cells[k])
        for (target, size), found in results.of(method, results.where(_mixes)).items()
        if (target, PURE, size) in results.scores
    }


def _ksd_mean(results: Results, method: str) -> Value:
    quotients = [*ksd_quotients(results, method).values()]
    return _number(float(np.exp(np.mean(np.log(quotients))))) if quotients else Value("", ())


def _ksd_above(results: Results, method: str) -> Value:
    quotients = [*ksd_quotients(results, method).values()]
    above = sum(value > KSD_LIMIT for value in quotients)
    return (
        Value(f"{above} of {len(quotients)}, at most {_two(max(quotients))}", (above,)) if quotients else Value("", ())
    )


def high_ksd(results: Results) -> list[Row]:
    """List the targets on which KSD of the default exceeds the goal: geometric mean over sizes, and largest."""
    rows = []
    for target in results.where(_mixes):
        by_size = [value for (name, _), value in ksd_quotients(results, OURS).items() if name == target]
        if by_size and max(by_size) > KSD_LIMIT:
            mean = float(np.exp(np.mean(np.log(by_size))))
            rows.append({"target": target, "geometric mean over sizes": _two(mean), "largest": _two(max(by_size))})
    return sorted(rows, key=lambda row: -float(row["geometric mean over sizes"]))


class PairedCell(NamedTuple):
    """Logarithm of the ratio of two methods in a cell, averaged over chains."""

    target: str
    size: int
    metric: str
    difference: float
    standard_error: float


def paired_cells(results: Results, method: str, other: str) -> list[PairedCell]:
    """Compare two methods on the same chains.

    With three chains the spread of one cell is imprecise. The standard error is that of the cell, or that of all cells
    of the metric (root mean square) if it is larger.

    Returns
    -------
    list of PairedCell
        One cell for each target, size and metric that both methods have.
    """
    found, others = results.of(method), results.of(other)
    keys = [key for key in found if key in others and len(found[key].chains) == len(others[key].chains) > 1]
    if not keys:
        return []
    logs = np.log(np.maximum([found[key].chains for key in keys], 1e-12))[..., :COMPOSITE]
    logs -= np.log(np.maximum([others[key].chains for key in keys], 1e-12))[..., :COMPOSITE]
    chains, own = logs.shape[1], logs.std(1, ddof=1)
    errors = np.maximum(own, np.sqrt((own**2).mean(0))) / np.sqrt(chains)
    return [
        PairedCell(*key, METRICS[k], float(logs[i, :, k].mean()), float(errors[i, k]))
        for i, key in enumerate(keys)
        for k in range(COMPOSITE)
    ]


def _paired(results: Results, method: str) -> Value:
    if method == OURS:
        return Value("", ())
    cells = paired_cells(results, method, OURS)
    worse = sum(cell.difference > 2 * cell.standard_error for cell in cells)
    better = sum(cell.difference < -2 * cell.standard_error for cell in cells)
    return Value(f"{worse} of {len(cells)} ({better} better)", (worse,)) if cells else Value("", ())


def worse_with_passes(results: Results) -> list[Row]:
    """List the cells in which further passes are worse than the default beyond two standard errors."""
    cells = [cell for cell in paired_cells(results, PASSES, OURS) if cell.difference > 2 * cell.standard_error]
    return [
        {
            "target": cell.target,
            "m": cell.size,
            "metric": cell.metric,
            "relative to the default": _two(float(np.exp(cell.difference))),
            "standard error": _two(cell.standard_error),
        }
        for cell in sorted(cells, key=lambda cell: -cell.difference)
    ]


def predictions(results: Results) -> list[Row]:
    """Errors of posterior predictions of the finished fits: geometric mean over sizes."""
    targets = [name for name in results.targets if (name, OURS, SIZES[0]) in results.scores and name in PREDICT]
    rows = []
    for method in results.methods:
        row: Row = {"method": method}
        for target in targets:
            found = [each.predictions for each in results.of(method, [target]).values() if each.predictions is not None]
            means = np.exp(np.log(found).mean(0)) if found else np.full(len(PREDICTIONS), np.nan)
            row |= {f"{target}, {name}": _two(float(value)) for name, value in zip(PREDICTIONS, means, strict=True)}
        rows.append(row)
    return rows if targets else []


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
        raise SystemExit(f"{folder / RESULTS} has no results.")
    (folder / "results.json").write_text(json.dumps(_numbers(results), indent=None, separators=(",", ":")) + "\n")
    results = Results(folder, former_only=True)  # rounded, so that the page can be made again
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
    """Everything that is read again, as numbers."""
    content: dict[str, Any] = {"metrics": METRICS, "results": {}, "noise": {}}
    for (target, method, size), found in sorted(results.scores.items(), key=_order):
        cell = {
            "ratios": _digits(found.cells),
            "chains": [_digits(chain) for chain in found.chains],
            "spread": _digits(found.spread),
            "scales": _digits(found.scales),
            "worth": _digits(found.worth),
        }
        cell |= {} if found.predictions is None else {"predictions": _digits(found.predictions)}
        content["results"].setdefault(target, {}).setdefault(method, {})[size] = cell
    for (target, size), noise in results.noise.items():
        content["noise"].setdefault(target, {})[size] = _digits(noise)
    content["not applicable"] = results.not_applicable
    return content


def _order(item: tuple[tuple[str, str, int], Scores]) -> tuple[int, int, int]:
    target, method, size = item[0]
    return [*TARGETS].index(target), [*METHODS].index(method), size


def _digits(values: Any) -> Any:
    """Round to four digits."""
    return np.vectorize(lambda value: float(f"{value:.4g}"), otypes=[float])(values).tolist()


_PREDICTED = (
    "Errors of posterior predictions of new data for the finished fits, relative to stride thinning of the same size: "
    "predictive means and 5 % and 95 % predictive quantiles. Geometric mean over 50, 100 and 200 kept draws."
)
_HIGH_KSD = f"Targets on which KSD exceeds {KSD_LIMIT} times that of pure KSD at some size; without slow chains."
_WORSE_WITH_PASSES = (
    "Beyond two standard errors, on the same chains. The standard error is that of the logarithm of the ratio in the "
    "cell, or the root mean square of those of all cells of the metric if it is larger."
)


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
            "Below 1 is better than stride. Settings are chosen on one half of the targets and confirmed on the other, "
            "with [four exceptions](../README.md#quality); the fresh targets were added after most settings were "
            "fixed. *Cells above 1*: (target, size, metric) with a mean ratio above 1. *Worse than stride*: above 1 by "
            "more than two standard errors. A method that cannot be used for a target is averaged over the others."
            + _only_means(results),
            overview(results),
        ),
        (
            "Goals",
            "*Reached* or *MISSED* for the methods that a goal names; the other methods are shown for comparison. "
            "*Paired*: the ratio to the default on the same chains is above 1 by more than two standard errors.",
            goals(results),
        ),
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
        *([("Posterior prediction", _PREDICTED, predicted)] if (predicted := predictions(results)) else []),
        *([("KSD of the default", _HIGH_KSD, high)] if (high := high_ksd(results)) else []),
        *(
            [('Cells in which `passes="auto"` is worse than the default', _WORSE_WITH_PASSES, worse_passes)]
            if (worse_passes := worse_with_passes(results))
            else []
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


def _only_means(results: Results) -> str:
    """Return a sentence on the methods of which not every chain is known."""
    methods = [name for name in results.methods if any(not len(found.chains) for found in results.of(name).values())]
    if not methods:
        return ""
    return (
        " Some results of former runs have only means over the chains; their standard error is that of "
        f"stride thinning: {', '.join(methods)}."
    )


def _seeds(results: Results) -> int:
    return max(len(found.chains) for found in results.scores.values())


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
    halves = [half for half in reversed(HALVES) if results.of_half(half)]
    names = [name for half in halves for name in reversed(results.of_half(half))]
    figure, axes = plt.subplots(figsize=(9, 0.24 * len(names) + 1.4), layout="constrained")
    for number, method in enumerate(shown):
        values = [results.composite(method, [name]) for name in names]
        style = {
            "color": plots.METHOD_COLOURS[number % len(plots.METHOD_COLOURS)],
            "marker": plots.MARKERS[number % len(plots.MARKERS)],
        }
        axes.semilogx(values, range(len(names)), ls="", ms=5.5, alpha=0.9, label=method, **style)
    axes.axvline(1.0, color="0.5", lw=1, zorder=0)
    end = -0.5
    for number, half in enumerate(halves):
        end += len(results.of_half(half))
        style = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "top", "color": "0.4"}
        axes.text(0.995, end - 0.1, half, **style)
        if number + 1 < len(halves):
            axes.axhline(end, color="0.5", lw=0.8, ls="--", zorder=0)
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
