"""Other ways to reduce a chain, to compare with: one method a file.

Each is a function ``(draws, scores, size, *, kernel, coordinates, seed, validate_scores)`` of draws (n, d) or (chains, n,
d), and returns the ids (chain, draw) of the draws it takes, (size, 2), in order of selection.

>>> import numpy as np
>>> draws = np.random.default_rng(0).normal(size=(1000, 2))
>>> stride(draws, -draws, 4).tolist()
[[0, 249], [0, 499], [0, 749], [0, 999]]
>>> stein_thinning(draws, -draws, 4).shape
(4, 2)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steinstream.baselines._kernel_thinning import kernel_thinning as kernel_thinning
    from steinstream.baselines._ksdt import ksdt as ksdt
    from steinstream.baselines._random_thinning import random_thinning as random_thinning
    from steinstream.baselines._reservoir import reservoir as reservoir
    from steinstream.baselines._spmcmc import spmcmc as spmcmc
    from steinstream.baselines._spmcmc_fixed_drops import spmcmc_fixed_drops as spmcmc_fixed_drops
    from steinstream.baselines._stein_thinning import stein_thinning as stein_thinning
    from steinstream.baselines._stride import stride as stride
    from steinstream.baselines.job import Job
    from steinstream.validation import Block

#: Every method by name, and what it does in a few words. Each is loaded when first used.
METHODS = {
    "ksdt": "online KSD thinning with a hard cap",
    "stride": "evenly spaced draws",
    "random_thinning": "draws at random, without replacement",
    "stein_thinning": "the best draw of the whole chain, again and again",
    "spmcmc": "the best of each group of consecutive draws",
    "spmcmc_fixed_drops": "the same, and now and then the least influential goes",
    "reservoir": "swaps that bring the reservoir closer to the chain so far",
    "kernel_thinning": "halving by kernel, then swaps; needs goodpoints",
}

__all__ = ["METHODS", "method", "selector", *METHODS]


def method(name: str) -> str:
    """The method's name as it stands in ``METHODS``; dashes do as well.

    >>> method("stein-thinning")
    'stein_thinning'
    """
    from steinstream.errors import InputError
    from steinstream.io.errors import listing, nearest

    known = name.strip().replace("-", "_")
    if known not in METHODS:
        raise InputError(f"unknown method {name!r}.", f"{nearest(known, METHODS)}Methods are {listing(METHODS)}.")
    return known


def selector(name: str) -> Callable[[Job], Block]:
    """The method of this name as a function of a job."""
    select: Callable[[Job], Block] = import_module(f"steinstream.baselines._{method(name)}").select
    return select


def __getattr__(name: str) -> Any:
    if name not in METHODS:
        raise AttributeError(f"module 'steinstream.baselines' has no attribute {name!r}")
    value = getattr(import_module(f"steinstream.baselines._{name}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
