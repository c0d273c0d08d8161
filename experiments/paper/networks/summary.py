"""Summary of an experiment with networks as Markdown."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper.networks.scales import NetworkScale
from experiments.paper.networks.stages import BURN_IN
from experiments.paper.settings import KERNELS
from experiments.results import ResultTable, select
from steinstream.ensemble import accuracy, agreement, total_variation

MEASURES = ("agreement", "total_variation", "accuracy", "expected_calibration_error")
UNTHINNED = {"method": "every draw", "rule": "paper", "preconditioner": "identity"}


def mean_over_chains(results: ResultTable, **values: object) -> ResultTable:
    """Return the means over the chains at each step, for rows with the given values."""
    chosen = select(results, **values)
    steps, inverse = np.unique(chosen["step"], return_inverse=True)
    count = np.bincount(inverse)
    columns = ("kept", "ksd", *MEASURES)
    return {"step": steps, **{name: np.bincount(inverse, chosen[name]) / count for name in columns}}


def networks_needed(unthinned: ResultTable, level: float) -> float:
    """Return the smallest number of networks of the unthinned chain that reaches an agreement, or infinity.

    >>> unthinned = {"kept": np.array([10.0, 20.0]), "agreement": np.array([0.8, 0.9])}
    >>> networks_needed(unthinned, 0.85), networks_needed(unthinned, 0.95)
    (20.0, inf)
    """
    reached = np.flatnonzero(unthinned["agreement"] >= level)
    return float(unthinned["kept"][reached[0]]) if len(reached) else np.inf


def summary(title: str, scale: NetworkScale, stages: Any, results: ResultTable, labels: NDArray[np.int64]) -> str:
    """Return the complete summary."""
    parts = [
        f"{title}: {stages.problem.description}.",
        f"Scale: {scale.description}. Prior variance {scale.prior_variance:g}, temperature {scale.temperature:g}; SGLD "
        f"step {stages.sgld_settings['step']:.3g} (variance, where the mode has unit width), minibatches of "
        f"{scale.minibatch}; {scale.chains} chains of {scale.moves:,} moves, m = {scale.candidates}.",
        _trained_networks(stages, labels),
        _ground_truth(scale, stages, labels),
        _networks_for_same_agreement(results),
        _final_measures(results),
    ]
    return "\n\n".join(parts)


def _trained_networks(stages: Any, labels: NDArray[np.int64]) -> str:
    posterior, test = stages.posterior(), stages.problem.test_inputs
    positions = {"first end": (1.0, 0.0), "second end": (-1.0, 0.0), "midpoint": (0.0, 1.0), "base": (0.0, 0.0)}
    lines = ["| network | z | test accuracy | log density |", "|---|---|---|---|"]
    for name, position in positions.items():
        z = np.array(position)
        value = accuracy(posterior.predict(z, test), labels)
        lines.append(f"| {name} | ({z[0]:g}, {z[1]:g}) | {value:.4f} | {posterior.log_density(z):,.0f} |")
    return "\n".join(lines)


def _ground_truth(scale: NetworkScale, stages: Any, labels: NDArray[np.int64]) -> str:
    truth = stages.ground_truth
    settled = truth.draws[0][int(BURN_IN * scale.truth) :]
    mean, deviation = settled.mean(axis=0), settled.std(axis=0)
    first, second = truth.halves
    position = ", ".join(f"{m:.4g} ± {s:.2g}" for m, s in zip(mean, deviation, strict=True))
    return (
        f"Ground truth: {scale.truth:,} moves, the first {BURN_IN:.0%} discarded, predictions of {truth.networks:,} "
        f"networks; z = ({position}); accuracy {accuracy(truth.mean, labels):.4f}. Its two halves agree on "
        f"{agreement(first, second):.4f} of the inputs, and their total variation is "
        f"{total_variation(first, second):.4f}. Smaller differences are not significant."
    )


def _networks_for_same_agreement(results: ResultTable) -> str:
    """Compare each thinned set with the number of unthinned networks of the same agreement."""
    lines = [
        "Networks for the same agreement, means over the chains: networks kept after a number of steps, and the "
        "smallest number of networks with which the unthinned SGLD chain reaches the same agreement.",
        "",
        "| kernel | stream | method | rule | preconditioner | steps | kept | agreement | unthinned needs | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    last = int(results["step"].max())
    shown = [step for step in (100, 200, 500, 1000, 2000) if step < last] + [last]
    for kernel, stream, variant in product(KERNELS, ("SGLD", "SPMCMC"), _variants(results)):
        if variant == UNTHINNED:
            continue
        unthinned = mean_over_chains(results, kernel=kernel, stream="SGLD", **UNTHINNED)
        thinned = mean_over_chains(results, kernel=kernel, stream=stream, **variant)
        for step in shown if variant["method"] == "KSDT-SQRT" else shown[-1:]:
            row = int(np.searchsorted(thinned["step"], step))
            kept, level = thinned["kept"][row], thinned["agreement"][row]
            needed = networks_needed(unthinned, level)
            most = unthinned["kept"][-1]
            number = f"{needed:,.0f}" if np.isfinite(needed) else f"more than {most:,.0f}"
            ratio = f"{kept / needed:.2f}" if np.isfinite(needed) else f"below {kept / most:.2f}"
            lines.append(
                f"| {_labels(kernel, stream, variant)} | {step:,} | {kept:.0f} | {level:.4f} | {number} | {ratio} |"
            )
    return "\n".join(lines)


def _final_measures(results: ResultTable) -> str:
    lines = [
        "At the last step, means over the chains:",
        "",
        "| kernel | stream | method | rule | preconditioner | kept | KSD | agreement | total variation | accuracy | "
        "ECE |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kernel, stream, variant in product(KERNELS, ("SGLD", "SPMCMC"), _variants(results)):
        curve = mean_over_chains(results, kernel=kernel, stream=stream, **variant)
        last = {name: values[-1] for name, values in curve.items()}
        measures = " | ".join(f"{last[name]:.4f}" for name in MEASURES)
        lines.append(f"| {_labels(kernel, stream, variant)} | {last['kept']:.0f} | {last['ksd']:.4g} | {measures} |")
    return "\n".join(lines)


def _labels(kernel: str, stream: str, variant: dict[str, str]) -> str:
    return " | ".join((kernel.upper(), stream, variant["method"], variant["rule"], variant["preconditioner"]))


def _variants(results: ResultTable) -> list[dict[str, str]]:
    names = tuple(UNTHINNED)
    seen = dict.fromkeys(zip(*(results[name].tolist() for name in names), strict=True))
    return [dict(zip(names, variant, strict=True)) for variant in seen]
