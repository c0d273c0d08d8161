"""Order of the kept draws in which the first k draws are a good set for every k.

If every draw costs a simulation, run the simulations in this order and stop at any time. The order is greedy: the next
draw is the one that minimises the objective of the draws so far, KSD^2 plus the stream term, and every draw occurs
once. The stream is that of the summary in the kept set; if there is none, the kept set stands for the stream. Draws
without scores are ordered by the stream term alone, and sets that were kept by KSD alone by KSD. The order costs n^2
evaluations of both kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.discrepancy.ksd import cumulative_ksd
from steinstream.errors import InputError
from steinstream.kernels import as_kernel
from steinstream.postprocess._greedy import half_diagonal
from steinstream.postprocess._stream import ObjectiveTerms, objective_terms
from steinstream.result import MODEL_GROUPS, Kept, Variable


def order_draws(kept: Kept) -> Kept:
    """Sort the kept draws in greedy order.

    Parameters
    ----------
    kept : Kept
        The kept draws.

    Returns
    -------
    Kept
        The same draws in this order, with KSD and MMD of the first 1, 2, ..., n draws in ``prefix_ksd`` and
        ``prefix_mmd``.

    Raises
    ------
    InputError
        If the set is empty.

    """
    if len(kept) == 0:
        raise InputError("The kept set is empty and cannot be ordered.", "Push draws first.")
    terms = objective_terms(kept)
    indices, mmds = _greedy(terms)
    ordered = take_draws(kept, indices)
    curve = None
    if ordered.scores is not None:
        kernel, preconditioner = as_kernel(kept.kernel), kept.preconditioner
        curve = cumulative_ksd(ordered.draws, ordered.scores, kernel=kernel, preconditioner=preconditioner)
    return replace(ordered, prefix_ksd=curve, prefix_mmd=mmds)


def _greedy(terms: ObjectiveTerms) -> tuple[Integers, Array | None]:
    """Return the indices of all draws in order of selection, and MMD of the first 1, 2, ... of them."""
    from steinstream._engine.base_row import base_matrix, base_tiles
    from steinstream._engine.baseline_loops import add_row
    from steinstream._engine.compiled_kernel import compile_kernel
    from steinstream._engine.pairwise import as_tiles

    count, weight = len(terms.draws), terms.weight
    selected, taken = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    stein = phi = np.zeros(count)
    if terms.scores is not None:
        tiles, compiled = as_tiles(terms.draws, terms.scores), compile_kernel(terms.kernel, terms.draws.shape[1])
        stein = np.full(tiles.shape[0] * tiles.shape[3], np.inf)
        stein[:count] = half_diagonal(terms.kernel, terms.draws, terms.scores, np.ones(terms.draws.shape[1]))
    means, mmds, pairs, total = np.zeros(count), np.zeros(count), 0.0, 0.0
    if terms.stream is not None:
        base, means = np.ascontiguousarray(terms.base), terms.stream.means(terms.base)
        vectors, of_base = base_tiles(base), compile_kernel(terms.kernel, base.shape[1])
        phi = np.full(count, 0.5 * terms.stream.own)
    for size in range(1, count + 1):
        keys = stein[:count] + weight * (phi - size * means)
        keys[taken] = np.inf
        new = int(np.argmin(keys))
        selected[size - 1], taken[new] = new, True
        if terms.stream is not None:
            pairs, total = pairs + 2.0 * phi[new], total + means[new]
            mmds[size - 1] = pairs / size**2 - 2.0 * total / size + terms.stream.mean
            phi = phi + base_matrix(of_base, vectors, base[new : new + 1])[0, :count]
        if terms.scores is not None:
            add_row(compiled, tiles, new, stein)
    return selected, None if terms.stream is None else np.sqrt(np.maximum(mmds, 0.0))


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
        The first ``count`` draws, with their KSD and MMD.

    Raises
    ------
    InputError
        If the set has no order, or fewer draws.

    """
    if kept.order is None:
        raise InputError("The kept draws have no order.", "Call ordered() first.")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= len(kept):
        raise InputError(f"The number of first draws must be an integer from 1 to {len(kept)}, got {count!r}.")
    ksds, mmds = (None if curve is None else curve[:count] for curve in (kept.prefix_ksd, kept.prefix_mmd))
    return replace(
        take_draws(kept, np.arange(count)),
        weights=None,
        bound=None,
        settings={name: value for name, value in kept.settings.items() if name not in ("weights", "bound")},
        ksd=float("nan") if ksds is None else float(ksds[-1]),
        mmd=float("nan") if mmds is None else float(mmds[-1]),
        prefix_ksd=ksds,
        prefix_mmd=mmds,
    )


def take_draws(kept: Kept, indices: Integers) -> Kept:
    """Return the draws at these indices, with everything that is stored per draw; KSD and MMD are not computed."""
    arrays: dict[str, Any] = {
        name: getattr(kept, name) for name in ("draws", "scores", "ids", "second_scores", "weights")
    }
    arrays = {name: array[indices] for name, array in arrays.items() if array is not None}
    variables = _rows_of(kept.variables, indices)
    groups = {name: one if name in MODEL_GROUPS else _rows_of(one, indices) for name, one in kept.groups.items()}
    summary = None if kept.stream_summary is None else kept.stream_summary.take(indices)
    return replace(kept, **arrays, variables=variables, groups=groups, stream_summary=summary)


def _rows_of(variables: Mapping[str, Variable], indices: Integers) -> dict[str, Variable]:
    return {name: one._replace(values=one.values[indices]) for name, one in variables.items()}
