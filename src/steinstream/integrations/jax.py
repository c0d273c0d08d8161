"""JAX: the scores of stored draws, by automatic differentiation of a log density.

For chains that are still running see :mod:`steinstream.integrations.numpyro` and
:mod:`steinstream.integrations.blackjax`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError, positive
from steinstream.integrations._common import need
from steinstream.integrations._jax import as_variables, entry_names, flatten, unflatten
from steinstream.integrations._stored_draws import ScoredDraws, for_distinct_states

__all__ = ["scores"]


def scores(
    log_density: Callable[[Any], Any],
    draws: Any,
    *,
    batch: int = 1024,
    batch_dims: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Array | ScoredDraws:
    """Compute the scores of stored draws.

    Parameters
    ----------
    log_density : callable
        Log density of one draw, written with JAX, in unconstrained parameters and with the Jacobian.
    draws : array_like or pytree
        Draws, (n, d) or (chains, n, d). Or a pytree of positions, such as the stacked positions of BlackJAX, whose
        arrays begin with the dimensions (n,), or (chains, n) with ``batch_dims=2``.
    batch : int, default 1024
        Number of draws that are differentiated at a time.
    batch_dims : int, default 1
        Number of leading dimensions of the arrays of a pytree: 1 for (n, ...), 2 for (chains, n, ...).
    progress : callable, optional
        Called with the finished fraction, 0 to 1.

    Returns
    -------
    array or ScoredDraws
        For an array, the scores in the shape of ``draws``. For a pytree, draws and scores as arrays with the names of
        the parameters; its ``thin`` keeps the variables of the positions.

    Raises
    ------
    InputError
        If the arrays of a pytree have different leading dimensions.

    Notes
    -----
    JAX computes in float32 unless ``jax_enable_x64`` is set.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(500, 2))
    >>> ss.thin(draws, ss.integrations.jax.scores(lambda x: -(x**2).sum() / 2, draws), size=20)  # doctest: +SKIP
    Kept(20 of 500 draws, 2 dimensions, KSD 0.1012)
    """
    jax = need("jax", "jax")
    positive(batch, "batch")
    is_tree = not hasattr(draws, "shape") and (hasattr(draws, "_fields") or not isinstance(draws, list | tuple))
    if not is_tree:
        return for_distinct_states(_batched(jax.grad(log_density)), draws, batch=batch, progress=progress)
    shapes = {np.shape(leaf)[:batch_dims] for leaf in jax.tree.leaves(draws)}
    if batch_dims not in (1, 2) or len(shapes) != 1 or len(next(iter(shapes))) != batch_dims:
        raise InputError(
            f"The arrays of the positions begin with the dimensions {', '.join(map(str, sorted(shapes)))}.",
            "All arrays need the same leading dimensions: (n,), or (chains, n) with batch_dims=2.",
        )
    leading = next(iter(shapes))
    rows = jax.tree.map(lambda x: np.reshape(x, (-1, *np.shape(x)[batch_dims:])), draws)
    one = jax.tree.map(lambda x: x[0], rows)
    flat = np.asarray(jax.vmap(flatten)(rows), dtype=np.float64)

    def gradient(vector: Any) -> Any:
        position = jax.tree.map(lambda x: x[0], unflatten(one, vector[None]))
        return flatten(jax.grad(log_density)(position))

    values = for_distinct_states(_batched(gradient), flat, batch=batch, progress=progress)
    shape = (*leading, flat.shape[1])
    variables = {
        name: variable._replace(values=variable.values.reshape(*leading, *variable.values.shape[1:]))
        for name, variable in as_variables(rows).items()
    }
    return ScoredDraws(flat.reshape(shape), values.reshape(shape), entry_names(one), variables)


def _batched(gradient: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Return a compiled function of many draws."""
    jax = need("jax", "jax")
    compiled = jax.jit(jax.vmap(gradient))
    return lambda rows: np.asarray(compiled(rows), dtype=np.float64)
