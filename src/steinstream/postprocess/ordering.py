"""Order of the kept draws in which the first k draws are a good set for every k.

If every draw costs a simulation, run the simulations in this order and stop at any time. The order is greedy: the next
draw is the one that minimises KSD of the draws so far, and every draw occurs once. This is Stein thinning (Riabiz et
al., "Optimal thinning of MCMC output", 2022) of the kept set, with n^2 kernel evaluations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from steinstream._typing import Integers
from steinstream.discrepancy import cumulative_ksd
from steinstream.errors import InputError
from steinstream.gradient_free import reject_ratios
from steinstream.kernels import as_kernel
from steinstream.postprocess._greedy import greedy_order
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept


def order_draws(kept: Kept) -> Kept:
    """Sort the kept draws in greedy order.

    Parameters
    ----------
    kept : Kept
        The kept draws.

    Returns
    -------
    Kept
        The same draws in this order; ``prefix_ksd`` has KSD of the first 1, 2, ..., n draws.

    Raises
    ------
    InputError
        If the set is empty, or its draws were kept without scores.

    """
    if len(kept) == 0:
        raise InputError("The kept set is empty and cannot be ordered.", "Push draws first.")
    reject_ratios(kept, "An order of use")
    kernel, preconditioner = as_kernel(kept.kernel), kept.preconditioner or Preconditioner.identity()
    preconditioner.require(kept.draws.shape[1])
    indices = greedy_order(kept.draws, kept.scores, len(kept), kernel, preconditioner, unique=True)
    ordered = _take(kept, indices)
    curve = cumulative_ksd(ordered.draws, ordered.scores, kernel=kernel, preconditioner=preconditioner)
    return replace(ordered, prefix_ksd=curve)


def first_draws(kept: Kept, count: int) -> Kept:
    """Return the first draws of an ordered set, with equal weights.

    Parameters
    ----------
    kept : Kept
        A result of :func:`order_draws`.
    count : int
        Number of draws.

    Returns
    -------
    Kept
        The first ``count`` draws and their KSD.

    Raises
    ------
    InputError
        If the set has no order, or fewer draws.

    """
    if kept.prefix_ksd is None:
        raise InputError("The kept draws have no order.", "Call ordered() first.")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= len(kept):
        raise InputError(f"The number of first draws must be an integer from 1 to {len(kept)}, got {count!r}.")
    return replace(
        _take(kept, np.arange(count)),
        weights=None,
        bound=None,
        settings={name: value for name, value in kept.settings.items() if name not in ("weights", "bound")},
        ksd=float(kept.prefix_ksd[count - 1]),
        prefix_ksd=kept.prefix_ksd[:count],
    )


def _take(kept: Kept, indices: Integers) -> Kept:
    """Return the draws at these indices, with everything that is stored per draw."""
    arrays: dict[str, Any] = {
        name: getattr(kept, name) for name in ("draws", "scores", "ids", "second_scores", "weights")
    }
    arrays = {name: array[indices] for name, array in arrays.items() if array is not None}
    variables = {name: one._replace(values=one.values[indices]) for name, one in kept.variables.items()}
    return replace(kept, **arrays, variables=variables)
