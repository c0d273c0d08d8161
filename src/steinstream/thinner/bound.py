r"""Running upper bound on E KSD^2 of the kept draws.

Let N be the number of kept draws before a step, K their KSD^2 and kappa = E k0(x, x) under the target.

**Theorem** (independent draws of the target, the best of any number of candidates). The new draw raises N^2 K by at
most kappa in the mean, and thinning raises K by at most the budget: see :mod:`steinstream.planning`. A removal that a
hard cap forces takes the draw whose removal costs least, hence at most the average cost over all draws (the removal
lemma). With the mean diagonal D of the N + 1 draws,

.. math:: K \to \left(1 - \frac{1}{N^2}\right) K + \frac{D}{N^2} \quad\text{at most.}

With ``size=N`` alone, every step after the N-th is one insertion and one such removal, and
:math:`(1 - 1/N^2) (N/(N+1))^2 = (N-1)/(N+1)`, so

.. math:: E K_t \le \frac{N-1}{N+1} E K_{t-1} + \frac{(N-1) \kappa}{N^2 (N+1)} + \frac{E D_t}{N^2}
          \quad\to\quad \frac{(N-1) \kappa + (N+1) D}{2 N^2} \approx \frac{\kappa + D}{2 N} .

K never rises in this case, because the new draw itself may be removed. So always :math:`E K_t \le \kappa / N`, as after
N steps.

In general a step is :math:`K \to (N/(N+1))^2 K + \kappa/(N+1)^2 + \epsilon_t`, plus :math:`D/n^2` for a draw that a cap
of n forces out. This is linear in kappa and D, so three numbers are updated, with the sizes that the set had.

**Theorem or estimate.** If the sizes are known beforehand (``size=N``; a growth that the set follows exactly), the
recursion is a theorem, given kappa and E D. If sizes depend on the draws, it is a close estimate; the theorem is then
the bound of :mod:`steinstream.planning` with ``sizes="any"``, which is far larger. kappa is estimated by the mean of
k0(x, x) over the last half to three quarters of the draws, so that burn-in is forgotten; D by its current value. For a
correlated chain nothing follows from kappa alone. The preconditioner is considered given, also if it was estimated from
the same draws; when it changes, the bound restarts from the KSD^2 at that time.
"""

from __future__ import annotations

import math
from typing import Any

from steinstream._engine.online_stats import TRACE
from steinstream._engine.state import new_record


def bound(trace: Any, diagonal: float) -> float | None:
    """Return the square root of the bound on E KSD^2, or None before the first draw.

    Parameters
    ----------
    trace : record
        Terms of the bound, updated by :func:`steinstream._engine.online_stats.update_bound`.
    diagonal : float
        Mean of k0(x, x) over the kept draws.

    Returns
    -------
    float or None
        Bound on the root mean square of KSD.

    Examples
    --------
    >>> import numpy as np
    >>> from steinstream import Thinner
    >>> draws = np.random.default_rng(0).normal(size=(2000, 10))
    >>> thinner = Thinner(10, size=50)
    >>> f"{thinner.extend(draws, -draws).ksd:.3f} at most {thinner.bound:.3f}"
    '0.521 at most 0.602'

    """
    count = trace["count"] + trace["previous_count"]
    if count == 0:
        return None
    kappa = (trace["diagonals"] + trace["previous_diagonals"]) / count
    current = kappa * trace["sampling"] + trace["budget"] + diagonal * trace["forced"]
    ceiling = kappa * trace["ceiling_sampling"] + trace["ceiling_budget"] + diagonal * trace["ceiling_forced"]
    return math.sqrt(min(current, ceiling))


def new_trace(size: int = 0, square: float = 0.0) -> Any:
    """Return the terms of the bound for a set with this size and KSD^2."""
    trace = new_record(TRACE)
    trace["doubling"], trace["kept"], trace["budget"], trace["ceiling_budget"] = 1.0, size, square, square
    return trace
