"""Scores of stored draws, by automatic differentiation of a log density that is written with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from steinstream._typing import Array
from steinstream.errors import positive
from steinstream.integrations._stored_draws import for_distinct_states
from steinstream.integrations.generic import batched_score


def scores(
    log_density: Callable[[Any], Any],
    draws: ArrayLike,
    *,
    batch: int = 1024,
    progress: Callable[[float], None] | None = None,
) -> Array:
    """Compute the scores of stored draws, in float64.

    Parameters
    ----------
    log_density : callable
        Log density of one draw, a tensor (d,), in unconstrained parameters and with the Jacobian.
    draws : array_like
        Draws, (n, d) or (chains, n, d).
    batch : int, default 1024
        Number of draws that are differentiated at a time.
    progress : callable, optional
        Called with the finished fraction, 0 to 1.

    Returns
    -------
    array
        Scores in the shape of ``draws``, for :func:`steinstream.thin`.
    """
    positive(batch, "batch")
    gradient: Any = batched_score("torch", log_density)
    return for_distinct_states(gradient, draws, batch=batch, progress=progress)
