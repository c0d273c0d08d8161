"""Summary of an experiment with networks as Markdown. All measures are means over the chains ± one standard error."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper.networks.chains import BURN_IN
from experiments.paper.networks.measurement import (
    DEFAULT,
    EVEN,
    EVEN_SETTLED,
    EVERY,
    EVERY_SETTLED,
    FEATURES,
    PAPER,
    PAPER_STEPS,
    SIZES,
)
from experiments.paper.networks.scales import NetworkScale
from experiments.paper.settings import GROWTHS, KERNELS
from experiments.results import ResultTable, estimate, select
from steinstream.ensemble import accuracy, agreement, total_variation

MEASURES = ("agreement", "total_variation", "accuracy", "expected_calibration_error")
UNTHINNED = {"method": "every draw", "rule": "paper", "preconditioner": "identity"}
OTHERS = "others"  # stream of the results of `measurement.baselines`
_ORDER = (EVERY, EVERY_SETTLED, EVEN, EVEN_SETTLED, PAPER, DEFAULT, FEATURES)


def mean_over_chains(results: ResultTable, **values: object) -> ResultTable:
    """Return the means over the chains at each step, for rows with the given values."""
    chosen = select(results, **values)
    steps, inverse = np.unique(chosen["step"], return_inverse=True)
    count = np.bincount(inverse)
    columns = ("kept", "ksd", *MEASURES)
    return {"step": steps, **{name: np.bincount(inverse, chosen[name]) / count for name in columns}}


def networks_needed(unthinned: ResultTable, level: float) -> float:
    """Return the smallest number of networks of the unthinned chain that reaches an agreement, or infinity.

    Returns
    -------
    float
        Number of networks, or infinity if the chain does not reach the agreement.

    Examples
    --------
    >>> unthinned = {"kept": np.array([10.0, 20.0]), "agreement": np.array([0.8, 0.9])}
    >>> networks_needed(unthinned, 0.85), networks_needed(unthinned, 0.95)
    (20.0, inf)
    """
    reached = np.flatnonzero(unthinned["agreement"] >= level)
    return float(unthinned["kept"][reached[0]]) if len(reached) else np.inf


def introduction(title: str, scale: NetworkScale, stages: Any, labels: NDArray[np.int64]) -> str:
    """Return the part of the summary that describes the problem, the posterior and the ground truth."""
    parts = [
        f"{title}: {stages.problem.description}.",
        f"Scale: {scale.description}. {_posterior(scale, stages)}; SGLD step {stages.sgld.step:.3g}, minibatches of "
        f"{scale.minibatch}; {scale.chains} chains of {scale.moves:,} moves, $m = {scale.candidates}$. ± is one "
        "standard error over the chains.",
        _trained_networks(stages),
        *([] if scale.nodes is None else [_interpolant(scale, stages)]),
        _ground_truth(scale, stages, labels),
    ]
    return "\n\n".join(parts)


def tables(results: ResultTable) -> str:
    """Return the part of the summary that is computed from the results."""
    parts = [
        "Differences between methods are paired: both methods use the same chains, and the error of the ground truth "
        "is common to both. Such a difference has its own standard error, which does not depend on the "
        "two halves of the ground truth. Negative differences of the total variation are better.",
        _same_steps(results),
        _same_size(results),
        _paired(results),
        _networks_for_same_agreement(results),
        _final_measures(results),
    ]
    return "\n\n".join(part for part in parts if part)


def _posterior(scale: NetworkScale, stages: Any) -> str:
    if scale.authors:
        return "Posterior of the authors: mean log likelihood, prior $N(0, 10 I)$ of $z$, learning rate 0.3 of SGLD"
    return f"Tempered posterior: prior variance {scale.prior_variance:g}, temperature {stages.temperature:g}"


def _trained_networks(stages: Any) -> str:
    lines = ["| network | $z$ | test accuracy | mean log likelihood of training examples |", "|---|---|---|---|"]
    for row in stages.trained_networks:
        first, second = row["z"]
        lines.append(
            f"| {row['name']} | $({first:g}, {second:g})$ | {row['accuracy']:.4f} | {row['log_likelihood']:.3f} |"
        )
    return "\n".join(lines)


def _interpolant(scale: NetworkScale, stages: Any) -> str:
    errors, (first, second) = stages.interpolant_check.errors(), scale.nodes or (0, 0)
    outside = (np.abs(stages.grid.rectangle.local(stages.ground_truth.settled)).max(axis=1) > 1.0).mean()
    return (
        rf"Interpolant: ${first} \times {second}$ nodes replace the network. At {len(errors.score)} random draws of "
        "the ground truth, the predictions of the interpolant for all test inputs are compared with those of the "
        f"network, and its scores with differences of the log likelihood. Agreement {estimate(errors.agreement)} "
        f"(smallest {errors.agreement.min():.4f}); total variation {estimate(errors.total_variation)} (largest "
        f"{errors.total_variation.max():.4f}); error of the score {estimate(errors.score, 3)} (largest "
        f"{errors.score.max():.3f}), where the posterior has unit width, so that scores have a size of 1. Here, ± is "
        f"one standard error over the draws. {outside:.2%} of the draws of the ground truth are outside of the "
        "rectangle, where the log density decreases rapidly."
    )


def _ground_truth(scale: NetworkScale, stages: Any, labels: NDArray[np.int64]) -> str:
    truth = stages.ground_truth
    mean, deviation = truth.settled.mean(axis=0), truth.settled.std(axis=0)
    first, second = truth.halves
    position = ", ".join(rf"{m:.4g} \pm {s:.2g}" for m, s in zip(mean, deviation, strict=True))
    return (
        f"Ground truth: {scale.truth:,} moves, the first {BURN_IN:.0%} discarded; $z = ({position})$, mean and "
        f"standard deviation; accuracy {accuracy(truth.mean, labels):.4f}. Its two halves agree on "
        f"{agreement(first, second):.4f} of the inputs, and their total variation is "
        f"{total_variation(first, second):.4f}."
    )


# -- all methods -------------------------------------------------------------------------------------------------------


def _same_steps(results: ResultTable) -> str:
    """Compare the methods on the same part of the chain, with the number of networks of KSDT-SQRT."""
    steps = [step for step in PAPER_STEPS if step in results["step"]]
    text = (
        "The same steps and the same number of networks. KSDT-SQRT has the settings of the paper (IMQ, SGLD); its "
        "number of networks is used for the other methods too. No burn-in: without the first tenth of the steps. The "
        "last two columns are the total variation minus that of evenly spaced networks without burn-in, and minus that "
        "of every draw."
    )
    groups = [(f"{step:,}", select(results, stream=OTHERS, step=step, size=0)) for step in steps]
    return _comparison(text, "steps", [(name, group, select(group, method=EVERY)) for name, group in groups])


def _same_size(results: ResultTable) -> str:
    """Compare the methods on the complete chain with fixed numbers of networks."""
    sizes = [size for size in SIZES if size in results["size"]]
    text = (
        "The complete chain and fixed numbers of networks. Every draw: the first draws of the chain. KSDT-SQRT: the "
        "settings of the paper and `size=N`, if it was measured. The last two "
        "columns are the total variation minus that of evenly spaced networks without burn-in, and minus that of all "
        "networks of the chain."
    )
    others = select(results, stream=OTHERS)
    complete = select(others, method=EVERY, size=0, step=int(others["step"].max(initial=0)))
    return _comparison(text, "size", [(str(size), select(others, size=size), complete) for size in sizes])


def _comparison(text: str, column: str, groups: list[tuple[str, ResultTable, ResultTable]]) -> str:
    """Return a table with the methods of each group; the groups are name, rows, and rows of every draw."""
    if not groups:
        return ""
    header = (
        f"| {column} | method | networks | agreement | total variation | accuracy | "
        "difference from evenly spaced | difference from every draw |"
    )
    lines = [text, "", header, "|---" * 8 + "|"]
    for name, group, every in groups:
        even = select(group, method=EVEN_SETTLED)
        for method in _ORDER:
            rows = select(group, method=method)
            if not len(rows["kept"]):
                continue
            cells = [estimate(rows[measure]) for measure in MEASURES[:3]]
            for one in (even, every):
                same = one["kept"].tolist() == rows["kept"].tolist() and method in one["method"]
                cells.append("" if same else estimate(rows["total_variation"] - one["total_variation"]))
            lines.append(f"| {name} | {method} | {np.mean(rows['kept']):.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


# -- variants of the paper ---------------------------------------------------------------------------------------------


def _networks_for_same_agreement(results: ResultTable) -> str:
    """Compare each thinned set with the number of unthinned networks of the same agreement."""
    lines = [
        "Networks for the same agreement: networks kept after a number of steps, and the smallest number of networks "
        "with which the unthinned SGLD chain reaches the same mean agreement. The default settings have the numbers "
        "of networks of KSDT-SQRT, and fixed numbers after the last step.",
        "",
        "| kernel | stream | method | rule | preconditioner | steps | kept | agreement | unthinned needs | ratio |",
        "|---" * 10 + "|",
    ]
    streams = select_paper(results)
    last = int(streams["step"].max())
    shown = [step for step in PAPER_STEPS if step < last] + [last]
    for kernel, stream, variant in product(KERNELS, ("SGLD", "SPMCMC"), _variants(streams)):
        if variant == UNTHINNED:
            continue
        unthinned = mean_over_chains(streams, kernel=kernel, stream="SGLD", **UNTHINNED)
        thinned = select(streams, kernel=kernel, stream=stream, **variant)
        for step in shown if variant["method"] == PAPER else shown[-1:]:
            cells = _same_agreement(unthinned, select(thinned, step=step))
            lines.append(f"| {_labels(kernel, stream, variant)} | {step:,} | {cells} |")
    unthinned = mean_over_chains(streams, kernel="imq", stream="SGLD", **UNTHINNED)
    others = select(results, stream=OTHERS)
    fixed = [(last, size) for size in SIZES]
    for method, (step, size) in product((DEFAULT, FEATURES), [*((step, 0) for step in shown), *fixed]):
        rows = select(others, method=method, step=step, size=size)
        if len(rows["kept"]):
            lines.append(f"| | SGLD | {method} | | | {step:,} | {_same_agreement(unthinned, rows)} |")
    return "\n".join(lines)


def _same_agreement(unthinned: ResultTable, rows: ResultTable) -> str:
    """Return the cells of a row: networks, agreement, networks that the unthinned chain needs, and the ratio."""
    kept, most = float(rows["kept"].mean()), unthinned["kept"][-1]
    needed = networks_needed(unthinned, float(rows["agreement"].mean()))
    number = f"{needed:,.0f}" if np.isfinite(needed) else f"more than {most:,.0f}"
    ratio = f"{kept / needed:.2f}" if np.isfinite(needed) else f"below {kept / most:.2f}"
    return f"{kept:.0f} | {estimate(rows['agreement'])} | {number} | {ratio}"


def _paired(results: ResultTable) -> str:
    """Compare the sets of the paper with the unthinned set of the same stream after the same steps."""
    lines = [
        "Thinned minus unthinned, for the settings of the paper: the same kernel, stream and steps, and every draw in "
        "place of the thinned set.",
        "",
        "| kernel | stream | method | steps | kept | unthinned | agreement | total variation | accuracy | ECE |",
        "|---" * 10 + "|",
    ]
    streams = select(select_paper(results), rule="paper", preconditioner="identity")
    methods = [method for method in GROWTHS if method != EVERY]
    for kernel, stream, method in product(KERNELS, ("SGLD", "SPMCMC"), methods):
        of_stream = select(streams, kernel=kernel, stream=stream)
        for step in sorted({*PAPER_STEPS, int(streams["step"].max())} & set(streams["step"].tolist())):
            rows, every = (select(of_stream, method=name, step=step) for name in (method, EVERY))
            kept, unthinned = (f"{np.mean(some['kept']):.0f}" for some in (rows, every))
            differences = " | ".join(estimate(rows[name] - every[name]) for name in MEASURES)
            lines.append(
                f"| {kernel.upper()} | {stream} | {method} | {step:,} | {kept} | {unthinned} | {differences} |"
            )
    return "\n".join(lines)


def _final_measures(results: ResultTable) -> str:
    lines = [
        "At the last step:",
        "",
        "| kernel | stream | method | rule | preconditioner | kept | KSD | agreement | total variation | accuracy | "
        "ECE |",
        "|---" * 11 + "|",
    ]
    streams = select_paper(results)
    streams = select(streams, step=int(streams["step"].max()))
    for kernel, stream, variant in product(KERNELS, ("SGLD", "SPMCMC"), _variants(streams)):
        rows = select(streams, kernel=kernel, stream=stream, **variant)
        measures = " | ".join(estimate(rows[name]) for name in MEASURES)
        cells = f"{np.mean(rows['kept']):.0f} | {estimate(rows['ksd'])} | {measures}"
        lines.append(f"| {_labels(kernel, stream, variant)} | {cells} |")
    return "\n".join(lines)


def select_paper(results: ResultTable) -> ResultTable:
    """Return the results of the streams of the paper, without those of `measurement.baselines`."""
    rows = results["stream"] != OTHERS
    return {name: column[rows] for name, column in results.items()}


def _labels(kernel: str, stream: str, variant: dict[str, str]) -> str:
    return " | ".join((kernel.upper(), stream, variant["method"], variant["rule"], variant["preconditioner"]))


def _variants(results: ResultTable) -> list[dict[str, str]]:
    names = tuple(UNTHINNED)
    seen = dict.fromkeys(zip(*(results[name].tolist() for name in names), strict=True))
    return [dict(zip(names, variant, strict=True)) for variant in seen]
