r"""Running upper bound on the expected objective of the kept draws.

The objective is the squared distance of two mean embeddings in one Hilbert space: that of the kept draws, and a target
that is 0 in the Stein part (KSD^2) and the mean embedding of the stream in the second part (the stream term). Let h(x)
be the embedding of a draw minus the target, so that the objective K of n draws is the squared norm of the mean of h,
and the mean of h over the target distribution is 0. Without a stream term, :math:`|h(x)|^2 = k_0(x, x)` and K = KSD^2;
with it, :math:`|h(x)|^2 = k_0(x, x) + w |\phi(x, \cdot) - \text{stream}|^2`. Since KSD^2 is at most K, the bound holds
for KSD too.

Let N be the number of kept draws before a step, K their objective and kappa = :math:`E |h(x)|^2` under the target.

**Theorem** (independent draws of the target, the best of any number of candidates). The new draw raises N^2 K by at
most kappa in the mean, and thinning raises K by at most the budget: see :mod:`steinstream.planning`. A removal that a
hard cap forces takes the draw whose removal costs least, hence at most the average cost over all draws (the removal
lemma). With the mean D of :math:`|h|^2` over the N + 1 draws,

.. math:: K \to \left(1 - \frac{1}{N^2}\right) K + \frac{D}{N^2} \quad\text{at most.}

With ``size=N`` alone, every step after the N-th is one insertion and one such removal, and
:math:`(1 - 1/N^2) (N/(N+1))^2 = (N-1)/(N+1)`, so

.. math:: E K_t \le \frac{N-1}{N+1} E K_{t-1} + \frac{(N-1) \kappa}{N^2 (N+1)} + \frac{E D_t}{N^2}
          \quad\to\quad \frac{(N-1) \kappa + (N+1) D}{2 N^2} \approx \frac{\kappa + D}{2 N} .

Without a stream term K never rises in this case, because the new draw itself may be removed. So always
:math:`E K_t \le \kappa / N`, as after N steps. With it the stream, from which K is the distance, changes with every
draw, and this does not hold.

In general a step is :math:`K \to (N/(N+1))^2 K + \kappa/(N+1)^2 + \epsilon_t`, plus :math:`D/n^2` for a draw that a cap
of n forces out. This is linear in kappa and D, so three numbers are updated, with the sizes that the set had.

**Theorem or estimate.** If the sizes are known beforehand (``size=N``; a growth that the set follows exactly), the
recursion is a theorem, given kappa and E D. If sizes depend on the draws, it is a close estimate; the theorem is then
the bound of :mod:`steinstream.planning` with ``bound_for="any"``, which is far larger. kappa is estimated by the mean
of k0(x, x) over the last half to three quarters of the draws, so that burn-in is forgotten, plus the mean of the second
part over the stream; D by its current value. For a correlated chain nothing follows from kappa alone. The
preconditioner, the weight w and the mean embedding of the stream are considered given, also if they were estimated from
the same draws; when the preconditioner or the weight changes, the bound restarts from the objective at that time.
"""

from __future__ import annotations

import math
from typing import Any

from steinstream._engine.online_stats import TRACE
from steinstream._engine.state import new_record


def bound(trace: Any, diagonal: float, stream: float = 0.0, has_scores: bool = True) -> float | None:
    """Return the square root of the bound on the expected objective, or None before the first draw.

    ``trace`` has the terms that :func:`steinstream._engine.online_stats.update_bound` updates; ``diagonal`` is the mean
    of the squared norm of h over the kept draws, and ``stream`` the part of its mean over the stream that is due to the
    stream term.

    Returns
    -------
    float or None
        Bound on the root of the expected objective.

    Examples
    --------
    >>> import numpy as np
    >>> from steinstream import Thinner
    >>> draws = np.random.default_rng(0).normal(size=(2000, 10))
    >>> thinner = Thinner(10, size=50)
    >>> step = thinner.extend(draws, -draws)
    >>> f"{thinner.objective ** 0.5:.3f} at most {thinner.bound:.3f}"
    '1.094 at most 2.830'
    """
    count = trace["count"] + trace["previous_count"]
    if count == 0:
        return None
    kappa = stream + ((trace["diagonals"] + trace["previous_diagonals"]) / count if has_scores else 0.0)
    current = kappa * trace["sampling"] + trace["budget"] + diagonal * trace["forced"]
    ceiling = kappa * trace["ceiling_sampling"] + trace["ceiling_budget"] + diagonal * trace["ceiling_forced"]
    return math.sqrt(min(current, ceiling) if stream == 0.0 else current)


def new_trace(size: int = 0, square: float = 0.0) -> Any:
    """Return the terms of the bound for a set with this size and objective."""
    trace = new_record(TRACE)
    trace["doubling"] = 1.0
    restart(trace, size, square)
    return trace


def restart(trace: Any, size: int, square: float) -> None:
    """Begin with a set of this size and objective; the estimate of kappa continues."""
    for name in ("sampling", "forced", "ceiling_sampling", "ceiling_forced"):
        trace[name] = 0.0
    trace["kept"], trace["budget"], trace["ceiling_budget"] = size, square, square
