"""Order of the kept draws in which the first k draws are a good set for every k.

If every draw costs a simulation, run the simulations in this order and stop at any time. The order is greedy: the next
draw is the one that minimises the objective of the draws so far, KSD^2 plus the stream term, and every draw occurs
once. The stream is that of the summary in the kept set; if there is none, the kept set stands for the stream. Draws
without scores are ordered by the stream term alone, and sets that were kept by KSD alone by KSD. The order costs n^2
evaluations of both kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.discrepancy._greedy import half_diagonal
from steinstream.discrepancy.ksd import cumulative_ksd
from steinstream.errors import InputError
from steinstream.kernels import as_kernel
from steinstream.postprocess._stream import ObjectiveTerms, objective_terms
from steinstream.result import Kept


def order_draws(kept: Kept) -> Kept:
    """Sort the kept draws in greedy order, and add KSD and MMD of the first 1, 2, ..., n draws."""
    if len(kept) == 0:
        raise InputError("The kept set is empty and cannot be ordered.", "Push draws first.")
    terms = objective_terms(kept)
    indices, mmds = _greedy(terms)
    ordered = kept.take(indices)
    curve = None
    if ordered.scores is not None:
        kernel, preconditioner = as_kernel(kept.kernel), kept.preconditioner
        curve = cumulative_ksd(ordered.draws, ordered.scores, kernel=kernel, preconditioner=preconditioner)
    return replace(ordered, ksd=kept.ksd, mmd=kept.mmd, bound=kept.bound, prefix_ksd=curve, prefix_mmd=mmds)


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
        stein[:count] = half_diagonal(terms.kernel, terms.draws, terms.scores)
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
