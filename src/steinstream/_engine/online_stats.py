"""Statistics that are updated draw by draw, so that the division into blocks does not change a bit.

Running mean and covariance (B. P. Welford, Technometrics 4, 1962), and the terms of the bound on E KSD^2
(:mod:`steinstream.thinner.bound`).
"""

from __future__ import annotations

import numpy as np

from steinstream._engine.kernel_pair import diagonal
from steinstream._engine.translation import translated

#: Terms of the bound on E KSD^2. The values k0(x, x) are summed in two windows: the draws since their number last
#: doubled, and the draws between the two doublings before. The bound is kappa * sampling + budget + diagonal * forced,
#: both with the current terms and with the ``ceiling`` terms, those of the last step at which KSD could rise.
TRACE = np.dtype(
    [
        (name, np.float64)
        for name in (
            *("previous_count", "previous_diagonals", "count", "diagonals", "doubling"),
            *("kept", "sampling", "budget", "forced"),
            *("ceiling_sampling", "ceiling_budget", "ceiling_forced"),
        )
    ]
)


@translated
def update_moments(draws, counts, mean, second, last, difference) -> None:
    """Add draws (n, d) to ``mean`` (d,) and to ``second``, the sums of products about the mean.

    ``second`` is (d, d), of which the lower half is used, or (1, d) for the diagonal only. ``counts`` holds the number
    of draws and of draws that differ from the one before, ``last``. ``difference`` (d,) is scratch.

    Reference: `reference.moments`.
    """
    dim = draws.shape[1]
    for i in range(draws.shape[0]):
        new = counts[0] == 0
        for k in range(dim):
            new = new or draws[i, k] != last[k]
            last[k] = draws[i, k]
        counts[0] += 1
        counts[1] += new
        for k in range(dim):
            difference[k] = draws[i, k] - mean[k]
            mean[k] += difference[k] / counts[0]
        share = (counts[0] - 1) / counts[0]
        if second.shape[0] == 1:
            for k in range(dim):
                second[0, k] += share * (difference[k] * difference[k])
        else:
            for k in range(dim):
                line, factor = second[k], share * difference[k]
                for j in range(k + 1):
                    line[j] += factor * difference[j]


@translated
def update_batches(draws, columns, shift, sums, squares, numbers) -> int:
    """Add some columns of draws (n, d) to batches of equal length until all are full; return the number of draws used.

    ``shift`` is the first draw; ``sums`` and ``squares`` (batches, k) are those of the differences from it. ``numbers``
    holds the length of a batch, the number of complete batches, of draws in the current batch, and of all draws.

    Reference: `reference.batches`.
    """
    used, batch, inside, seen = 0, numbers[1], numbers[2], numbers[3]
    while used < draws.shape[0] and batch < sums.shape[0]:
        for k in range(columns.shape[0]):
            if seen == 0:
                shift[k] = draws[used, columns[k]]
            value = draws[used, columns[k]] - shift[k]
            sums[batch, k] += value
            squares[batch, k] += value * value
        used, inside, seen = used + 1, inside + 1, seen + 1
        if inside == numbers[0]:
            batch, inside = batch + 1, 0
    numbers[1], numbers[2], numbers[3] = batch, inside, seen
    return used


@translated
def update_bound(trace, kernel, draws, scores, sizes, limits) -> None:
    """Add the draws and steps of a run to the terms of the bound. ``sizes`` are the numbers of draws after each step.

    Reference: `reference.bound`.
    """
    cap = float(limits.cap)
    for i in range(scores.shape[0]):
        if trace.count >= trace.doubling:
            trace.previous_count, trace.previous_diagonals = trace.count, trace.diagonals
            trace.doubling += trace.count
            trace.count = trace.diagonals = 0.0
        trace.count += 1.0
        trace.diagonals += diagonal(kernel, draws, scores, i)
    for step in range(sizes.shape[0]):
        before, after = trace.kept, trace.kept + 1.0
        shrink = (before / after) ** 2
        sampling = shrink * trace.sampling + 1.0 / after**2
        budget, forced = shrink * trace.budget, shrink * trace.forced
        if before == cap and limits.floor[step] == cap:  # exactly one draw is removed, the one that costs least
            rest = 1.0 - 1.0 / before**2
            sampling, budget, forced = rest * sampling, rest * budget, rest * forced + 1.0 / before**2
        else:
            budget += limits.budget[step] + limits.share[step] / after**2
            while after > cap:
                after -= 1.0
                forced += 1.0 / after**2
            trace.ceiling_sampling, trace.ceiling_budget, trace.ceiling_forced = sampling, budget, forced
        trace.sampling, trace.budget, trace.forced = sampling, budget, forced
        trace.kept = sizes[step]
