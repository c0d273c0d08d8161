"""What is carried along the stream, one draw after another, so that no cut into blocks changes a bit.

Running mean and covariance (B. P. Welford, Technometrics 4, 1962), and the numbers of which the bound on E KSD^2 is
made (:mod:`steinstream.thinner.bound`).
"""

from __future__ import annotations

from steinstream._engine.jit import jit
from steinstream._engine.kernel_pair import diagonal

# Places in a trace. The values k0(x, x) are summed in two windows: the draws since the last doubling of their number,
# and those between the two doublings before it.
PAST_COUNT, PAST_SUM, COUNT, SUM, DUE = 0, 1, 2, 3, 4
# The bound is kappa * SAMPLING + SPENT + diagonal * FORCED, as it is now and as it was when KSD last could rise.
SIZE, SAMPLING, SPENT, FORCED, FLAT_SAMPLING, FLAT_SPENT, FLAT_FORCED = 5, 6, 7, 8, 9, 10, 11
TRACE = 12


@jit
def absorb(draws, counts, mean, second, last, apart) -> None:
    """Take draws (n, d) into ``mean`` (d,) and ``second``, the sums of products about it: (d, d), or (1, d) if only its
    diagonal is wanted. ``counts``: how many draws, and how many that differ from the one before, ``last``.
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
            apart[k] = draws[i, k] - mean[k]
            mean[k] += apart[k] / counts[0]
        share = (counts[0] - 1) / counts[0]
        if second.shape[0] == 1:
            for k in range(dim):
                second[0, k] += share * (apart[k] * apart[k])
        else:
            for k in range(dim):
                line, factor = second[k], share * apart[k]
                for j in range(k + 1):  # the lower half: the matrix is symmetric
                    line[j] += factor * apart[j]


@jit
def follow(trace, kernel, draws, scores, sizes, floor, budget, share, cap) -> None:
    """Take in the steps of a run, and all its draws: see the places of a trace above."""
    for i in range(scores.shape[0]):
        if trace[COUNT] >= trace[DUE]:
            trace[PAST_COUNT], trace[PAST_SUM] = trace[COUNT], trace[SUM]
            trace[DUE] += trace[COUNT]
            trace[COUNT] = trace[SUM] = 0.0
        trace[COUNT] += 1.0
        trace[SUM] += diagonal(kernel, draws, scores, i)
    for step in range(sizes.shape[0]):
        before, after = trace[SIZE], trace[SIZE] + 1.0
        shrink = (before / after) ** 2
        sampling = shrink * trace[SAMPLING] + 1.0 / after**2
        spent, forced = shrink * trace[SPENT], shrink * trace[FORCED]
        if before == cap and floor[step] == cap:  # exactly one goes, the one whose loss costs least
            rest = 1.0 - 1.0 / before**2
            sampling, spent, forced = rest * sampling, rest * spent, rest * forced + 1.0 / before**2
        else:
            spent += budget[step] + share[step] / after**2
            while after > cap:
                after -= 1.0
                forced += 1.0 / after**2
            trace[FLAT_SAMPLING], trace[FLAT_SPENT], trace[FLAT_FORCED] = sampling, spent, forced
        trace[SAMPLING], trace[SPENT], trace[FORCED] = sampling, spent, forced
        trace[SIZE] = sizes[step]
