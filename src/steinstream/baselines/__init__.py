"""Methods that reduce a chain to a given number of draws, for comparison with each other.

Every method is a function ``method(draws, scores, size, *, kernel, preconditioner, seed, validate_scores)`` of draws
(n, d) or (chains, n, d). It returns the ids (chain, draw) of the selected draws, an array (size, 2), in order of
selection. ``scores`` may be None for ``default``, ``stride`` and ``random_thinning``; the other methods require
scores. :func:`steinstream.compare` runs all methods on one chain.

>>> import numpy as np
>>> from steinstream.baselines import stein_thinning, stride
>>> draws = np.random.default_rng(0).normal(size=(1000, 2))
>>> stride(draws, None, 4).tolist()
[[0, 249], [0, 499], [0, 749], [0, 999]]
>>> stein_thinning(draws, -draws, 4).shape
(4, 2)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steinstream.baselines.methods import Select
    from steinstream.baselines.methods import default as default
    from steinstream.baselines.methods import kernel_thinning as kernel_thinning
    from steinstream.baselines.methods import ksdt as ksdt
    from steinstream.baselines.methods import minibatch_stein_thinning as minibatch_stein_thinning
    from steinstream.baselines.methods import random_thinning as random_thinning
    from steinstream.baselines.methods import reservoir as reservoir
    from steinstream.baselines.methods import spmcmc as spmcmc
    from steinstream.baselines.methods import spmcmc_fixed_drops as spmcmc_fixed_drops
    from steinstream.baselines.methods import stein_thinning as stein_thinning
    from steinstream.baselines.methods import stride as stride

#: Names of all methods, the recommended one and that of the paper first. They are imported on first use, because they
#: import NumPy.
METHODS = (
    "default",
    "ksdt",
    "stride",
    "random_thinning",
    "stein_thinning",
    "minibatch_stein_thinning",
    "spmcmc",
    "spmcmc_fixed_drops",
    "reservoir",
    "kernel_thinning",
)

__all__ = ["METHODS", *METHODS]


def method_name(name: str) -> str:
    """Return the name of a method as in ``METHODS``; dashes are accepted in place of underscores.

    Returns
    -------
    str
        The name with underscores.

    Raises
    ------
    InputError
        If the method is unknown.

    Examples
    --------
    >>> method_name("stein-thinning")
    'stein_thinning'
    """
    from steinstream._formatting import listing, nearest
    from steinstream.errors import InputError

    known = name.strip().replace("-", "_")
    if known not in METHODS:
        raise InputError(f"Unknown method {name!r}.", f"{nearest(known, METHODS)}Methods are {listing(METHODS)}.")
    return known


def selector(name: str) -> Select:
    """Return a method as a function of a problem and of its further keywords, which returns the selected draws."""
    select: Select = import_module("steinstream.baselines.methods").SELECTORS[method_name(name)]
    return select


def __getattr__(name: str) -> Any:
    if name not in METHODS:
        raise AttributeError(f"module 'steinstream.baselines' has no attribute {name!r}")
    value = getattr(import_module("steinstream.baselines.methods"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
