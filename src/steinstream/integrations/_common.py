"""Functions that all integrations share."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from steinstream.errors import InputError
from steinstream.io.errors import need
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.watched_source import with_source

__all__ = [
    "SEQUENTIAL",
    "live_thinner",
    "log_missing_scores",
    "need",
    "result_of",
    "warn_if_sequential",
    "warn_of_sequential_chains",
    "with_source",
]

_log = logging.getLogger("steinstream")

#: Consecutive draws of a chain after which chains are considered to be passed to a thinner one after another.
SEQUENTIAL = 64


def log_missing_scores(how: str) -> None:
    """Log once per run what scores would add, and how to get them."""
    _log.info(
        "The draws have no scores, so the kept draws represent the chain. Scores would also correct burn-in and slow "
        "mixing. %s",
        how,
    )


def live_thinner(
    dim: int,
    *,
    thinner: Thinner | None = None,
    config: ThinConfig | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Thinner:
    """Return the given thinner, or a new one with these settings."""
    settings = settings or {}
    if thinner is None:
        return Thinner(dim, ThinConfig.of(config, **settings))
    given = [*(["config"] if config is not None else []), *settings]
    if given:
        raise InputError(
            f"Both a thinner and settings were given: {', '.join(given)}.", "Pass either a thinner or settings."
        )
    if thinner.dim != dim:
        raise InputError(
            f"The thinner is for {thinner.dim} dimensions, the draws have {dim}.",
            "Count unconstrained parameters: a simplex with three entries has two.",
        )
    return thinner


def warn_of_sequential_chains(remedy: str, stacklevel: int = 3) -> None:
    """Warn that a thinner receives a second chain after the first has ended."""
    warnings.warn(
        "The chains are passed to the thinner one after another. Most of the kept draws may then be from one of them. "
        + remedy,
        stacklevel=stacklevel,
    )


def warn_if_sequential(thinner: Thinner, chains: Iterable[int], remedy: str, stacklevel: int = 4) -> None:
    """Warn if a thinner is to receive the first draw of one of these chains after draws of others."""
    received = thinner.next_indices
    if max(received.values(), default=0) >= SEQUENTIAL and not all(received.get(chain) for chain in chains):
        warn_of_sequential_chains(remedy, stacklevel)


def result_of(thinner: Thinner, names: Sequence[str] | None = None) -> Kept:
    """Return the kept draws with parameter names, or raise an `InputError` if every draw was invalid."""
    if thinner.seen and thinner.seen == thinner.skipped:
        raise InputError(
            f"All {thinner.seen} draws have values that are not finite.",
            "Check that the sampler computes scores; on_bad='raise' shows the first invalid draw.",
        )
    return replace(thinner.kept, names=None if names is None else tuple(names))
