"""Checks ``size``, ``constant``, ``slow`` and ``stuck``: what the comparison of kept draws and stream requires."""

from __future__ import annotations

import math

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import FALSE_ALARM, Finding, skipped

_MIN_ESS = 50.0  # a clean run has 100
_SURE_ESS = 30.0  # an estimate is below _MIN_ESS with a probability of 90 % if the effective sample size is this one
_MIN_SIZE = 20
_MAX_RUN = 0.1  # fraction of a chain
_MIN_LENGTH = 20  # draws of a chain; one or two of fewer draws are already a tenth


def check_size(context: DiagnosticContext) -> Finding:
    """Count the distinct kept draws. With fewer than 20, hardly any fault can be found."""
    count = len(np.unique(context.all_kept, axis=0))
    too_few = ", too few to compare with the stream" if count < _MIN_SIZE else ""
    return Finding(
        name="size",
        value=float(count),
        threshold=float(_MIN_SIZE),
        fired=count < _MIN_SIZE,
        says=f"the set has {count} distinct draw{'' if count == 1 else 's'}{too_few}",
        advice="keep more draws; the other checks of this set find only large faults",
        allowed=f"at least {_MIN_SIZE}",
        sensitivity=float(_MIN_SIZE - 1),
        detects=f"fewer than {_MIN_SIZE} distinct draws",
        found=f"found {count}",
    )


def check_slow(context: DiagnosticContext) -> Finding:
    """Measure the ESS of the slowest parameter or region, which must suffice for the stream to serve as a reference.

    If a region holds a fraction p of the stream, all of it in one visit, its ESS is about 1 / p: a mode that was
    visited once, or only at the end. The partitions in two and in four regions are used. Finer ones have too much
    noise.

    Returns
    -------
    Finding
        The check ``slow``.
    """
    coarse = sum(map(len, context.partitions[:2]))
    ess = effective_sample_size(np.hstack([context.rank_normalised, context.membership[:, :coarse]]))
    worst, dim = int(ess.argmin()), context.draws.shape[1]
    subject = context.names[worst] if worst < dim else f"the time spent near {context.describe_region(worst - dim)}"
    return Finding(
        name="slow",
        value=float(ess[worst]),
        threshold=_MIN_ESS,
        fired=bool(ess[worst] < _MIN_ESS),
        says=f"for {subject}, the effective sample size of the stream is {ess[worst]:.0f}",
        advice="run the chain longer or improve the sampler; the kept draws were not compared with this stream",
        allowed=f"at least {_MIN_ESS:.0f}",
        sensitivity=_SURE_ESS,
        detects=f"effective sample sizes of the stream below {_SURE_ESS:.0f}",
        found=f"smallest found {ess[worst]:.0f} ({subject})",
    )


def check_constant(names: list[str]) -> Finding:
    """Report parameters that never change. The other checks run without them."""
    several = len(names) > 1
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    pronoun = "them" if several else "it"
    return Finding(
        name="constant",
        value=float(len(names)),
        threshold=0.0,
        fired=bool(names),
        says=f"{listed} {'are' if several else 'is'} constant" if names else "no parameter is constant",
        advice=f"remove {pronoun}; the other parameters were checked without {pronoun}",
        sensitivity=1.0,
        detects="a constant parameter",
        found="none found",
    )


def check_stuck(context: DiagnosticContext) -> Finding:
    """Measure the longest run of identical states, as a fraction of its chain; skipped if all chains are short.

    Random-walk chains repeat states, and the lengths of the runs are approximately geometric. Among M runs with
    probability r of one more repeat, the longest exceeds log(M / 0.005) / -log r draws in one chain of 200. The
    threshold is twice that, and at least a tenth of the chain.

    Returns
    -------
    Finding
        The check ``stuck``.
    """
    runs = {chain: _run_lengths(context.stream.draws[rows]) for chain, rows in context.chain_rows.items()}
    number = sum(map(len, runs.values()))
    repeat = 1.0 - number / len(context.stream.draws)
    expected = 2.0 * math.log(number / FALSE_ALARM) / -math.log(repeat) if repeat > 0 else 0.0
    found = []
    for chain, lengths in runs.items():
        total = int(lengths.sum())
        if total >= _MIN_LENGTH:
            found.append((int(lengths.max()) / total, min(max(_MAX_RUN, expected / total), 0.999), chain))
    if not found:
        return skipped("stuck", f"chains of fewer than {_MIN_LENGTH} draws")
    value, limit, chain = max(found, key=lambda one: one[0] / one[1])
    return Finding(
        name="stuck",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"longest run of identical states: {100 * value:.3g}% of chain {chain}",
        advice="the sampler does not move there: use a smaller step size or another parameterisation",
        allowed=f"at most {limit:.0%}",
        sensitivity=limit,
        detects=f"a state repeated for more than {limit:.0%} of a chain",
        found=f"longest found {value:.1%}",
    )


def _run_lengths(draws: Array) -> Integers:
    moves = np.flatnonzero((draws[1:] != draws[:-1]).any(axis=1)) + 1
    return np.diff(np.concatenate([[0], moves, [len(draws)]]))
