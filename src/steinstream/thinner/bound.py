r"""What KSD can be expected to be at most: a bound on the mean of KSD^2, carried along with the stream.

Let N be the number of kept draws before a step, K their KSD^2 and kappa = E k0(x, x) under the target.

**Theorem** (independent draws of the target, the best of any number of candidates). The new draw raises N^2 K by kappa
at most in the mean, and thinning raises K by the budget at most: :mod:`steinstream.planning`. A removal that a hard cap
forces takes the draw whose loss costs least, hence no more than all cost on average (the removal lemma). With the mean
diagonal D of the N + 1 draws,

.. math:: K \to \left(1 - \frac{1}{N^2}\right) K + \frac{D}{N^2} \quad\text{at most.}

With ``size=N`` alone every step after the N-th is one of each, and :math:`(1 - 1/N^2) (N/(N+1))^2 = (N-1)/(N+1)`, so

.. math:: E K_t \le \frac{N-1}{N+1} E K_{t-1} + \frac{(N-1) \kappa}{N^2 (N+1)} + \frac{E D_t}{N^2}
          \quad\to\quad \frac{(N-1) \kappa + (N+1) D}{2 N^2} \approx \frac{\kappa + D}{2 N} .

Nor does K ever rise then, for the new draw itself might go. So always :math:`E K_t \le \kappa / N`, as after N steps.

In general a step is :math:`K \to (N/(N+1))^2 K + \kappa/(N+1)^2 + \epsilon_t`, and :math:`D/n^2` more for a draw that
a cap of n forces out. This is linear in kappa and D, so three numbers are carried along, with the sizes the set had.

**Theorem or estimate.** Where sizes are settled beforehand (``size=N``; a growth that the set just follows) the
recursion is a theorem, given kappa and E D. Where sizes depend on the draws it is a close guess; the theorem is then
the bound of :mod:`steinstream.planning` with ``sizes="any"``, and far larger. kappa is estimated by the mean of
k0(x, x) over the later draws, between half and three quarters of all, so that burn-in is forgotten; D by its present
value. For a correlated chain nothing follows from kappa alone. Preconditioner are taken as given, also if they were
estimated from the same draws; when they change, the bound begins anew with KSD^2 as it then is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def bound(trace: Array, diagonal: float) -> float | None:
    """The root of the bound on E KSD^2, for a kept set with this mean k0(x, x); None before any draw came.

    >>> from steinstream import Thinner
    >>> draws = np.random.default_rng(0).normal(size=(2000, 10))
    >>> thinner = Thinner(10, size=50)
    >>> f"{thinner.extend(draws, -draws).ksd:.3f} at most {thinner.bound:.3f}"
    '0.521 at most 0.602'
    """
    from steinstream._engine import online_stats as at

    count = trace[at.COUNT] + trace[at.PAST_COUNT]
    if count == 0:
        return None
    kappa = (trace[at.SUM] + trace[at.PAST_SUM]) / count
    now = kappa * trace[at.SAMPLING] + trace[at.SPENT] + diagonal * trace[at.FORCED]
    flat = kappa * trace[at.FLAT_SAMPLING] + trace[at.FLAT_SPENT] + diagonal * trace[at.FLAT_FORCED]
    return math.sqrt(min(now, flat))


def fresh_trace(size: int = 0, square: float = 0.0) -> Array:
    """A trace that begins with a set of this size and KSD^2."""
    from steinstream._engine import online_stats as at

    trace = np.zeros(at.TRACE)
    trace[at.DUE], trace[at.SIZE], trace[at.SPENT], trace[at.FLAT_SPENT] = 1.0, size, square, square
    return trace
