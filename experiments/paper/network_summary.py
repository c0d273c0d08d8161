"""What the experiments with networks show, in words and tables."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper.chains import KERNELS
from experiments.paper.columns import Columns, matching
from experiments.paper.network_scales import Scale
from experiments.paper.network_stages import BURN_IN
from steinstream.ensemble import accuracy, agreement, total_variation

MEASURES = ("agreement", "total_variation", "accuracy", "expected_calibration_error")
_UNTHINNED = {"method": "every draw", "rule": "paper", "coordinates": "identity"}


def curve(results: Columns, **wanted: object) -> Columns:
    """At each step the means over the chains."""
    mine = matching(results, **wanted)
    steps, place = np.unique(mine["step"], return_inverse=True)
    count = np.bincount(place)
    return {"step": steps, **{name: np.bincount(place, mine[name]) / count for name in ("kept", "ksd", *MEASURES)}}


def needed(unthinned: Columns, level: float) -> float:
    """The least number of networks of the whole stream that reach an agreement; infinite if none does."""
    reached = np.flatnonzero(unthinned["agreement"] >= level)
    return float(unthinned["kept"][reached[0]]) if len(reached) else np.inf


def summary(title: str, scale: Scale, stages: Any, results: Columns, labels: NDArray[np.int64]) -> str:
    """The whole page."""
    parts = [
        f"{title}: {stages.problem.about}.",
        f"Scale: {scale.about}. Prior variance {scale.prior_variance:g}, temperature {scale.temperature:g}; SGLD step "
        f"{stages.about['step']:.3g} (variance, where the mode has unit width), minibatches of {scale.minibatch}; "
        f"{scale.chains} chains of {scale.moves:,} moves, m = {scale.candidates}.",
        _networks(stages, labels),
        _truth(scale, stages, labels),
        _saved(results),
        _table(results),
    ]
    return "\n\n".join(parts)


def _networks(stages: Any, labels: NDArray[np.int64]) -> str:
    posterior, test = stages.posterior(), stages.problem.test_inputs
    places = {"first end": (1.0, 0.0), "second end": (-1.0, 0.0), "middle": (0.0, 1.0), "base": (0.0, 0.0)}
    lines = ["| network | z | test accuracy | log density |", "|---|---|---|---|"]
    for name, place in places.items():
        z = np.array(place)
        right = accuracy(posterior.predict(z, test), labels)
        lines.append(f"| {name} | ({z[0]:g}, {z[1]:g}) | {right:.4f} | {posterior.log_density(z):,.0f} |")
    return "\n".join(lines)


def _truth(scale: Scale, stages: Any, labels: NDArray[np.int64]) -> str:
    truth = stages.truth
    settled = truth.draws[0][int(BURN_IN * scale.truth) :]
    mean, spread = settled.mean(axis=0), settled.std(axis=0)
    one, other = truth.halves
    where = ", ".join(f"{m:.4g} ± {s:.2g}" for m, s in zip(mean, spread, strict=True))
    return (
        f"Ground truth: {scale.truth:,} moves, the first {BURN_IN:.0%} left out, {truth.networks:,} networks predict; "
        f"z = ({where}); accuracy {accuracy(truth.mean, labels):.4f}. Its two halves agree on "
        f"{agreement(one, other):.4f} of the inputs, their total variation is {total_variation(one, other):.4f}: "
        "nothing closer than that can be told."
    )


def _saved(results: Columns) -> str:
    """How many networks the whole SGLD chain needs for the agreement of each thinned set."""
    lines = [
        "Networks for the same agreement, means over the chains: what is kept after so many steps of SGLD, and the "
        "least number of networks with which the unthinned SGLD chain reaches that agreement.",
        "",
        "| kernel | stream | method | rule | coordinates | steps | kept | agreement | unthinned needs | share |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    last = int(results["step"].max())
    shown = [step for step in (100, 200, 500, 1000, 2000) if step < last] + [last]
    for kernel, stream, variant in product(KERNELS, ("SGLD", "SPMCMC"), _variants(results)):
        if variant == _UNTHINNED:
            continue
        unthinned = curve(results, kernel=kernel, stream="SGLD", **_UNTHINNED)
        mine = curve(results, kernel=kernel, stream=stream, **variant)
        for step in shown if variant["method"] == "KSDT-SQRT" else shown[-1:]:
            row = int(np.searchsorted(mine["step"], step))
            kept, level = mine["kept"][row], mine["agreement"][row]
            number = needed(unthinned, level)
            many = f"{number:,.0f}" if np.isfinite(number) else f"more than {unthinned['kept'][-1]:,.0f}"
            share = f"{kept / number:.2f}" if np.isfinite(number) else f"below {kept / unthinned['kept'][-1]:.2f}"
            lines.append(
                f"| {kernel.upper()} | {stream} | {variant['method']} | {variant['rule']} | {variant['coordinates']} | "
                f"{step:,} | {kept:.0f} | {level:.4f} | {many} | {share} |"
            )
    return "\n".join(lines)


def _table(results: Columns) -> str:
    lines = [
        "At the end, means over the chains:",
        "",
        "| kernel | stream | method | rule | coordinates | kept | KSD | agreement | total variation | accuracy | ECE |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kernel, stream, variant in product(KERNELS, ("SGLD", "SPMCMC"), _variants(results)):
        mine = {name: values[-1] for name, values in curve(results, kernel=kernel, stream=stream, **variant).items()}
        said = " | ".join(f"{mine[name]:.4f}" for name in MEASURES)
        lines.append(
            f"| {kernel.upper()} | {stream} | {variant['method']} | {variant['rule']} | {variant['coordinates']} | "
            f"{mine['kept']:.0f} | {mine['ksd']:.4g} | {said} |"
        )
    return "\n".join(lines)


def _variants(results: Columns) -> list[dict[str, str]]:
    names = ("method", "rule", "coordinates")
    seen = dict.fromkeys(zip(*(results[name].tolist() for name in names), strict=True))
    return [dict(zip(names, variant, strict=True)) for variant in seen]
