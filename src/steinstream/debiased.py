r"""KSD as it is, where scores are noisy: from second scores that the selection has not seen.

Scores a = s + e with noise e (minibatches) make the KSD of a selected set look too small: draws were kept *because*
their noise was lucky. So let every draw bring a second score c = s + f, whose noise f is independent of e and has mean
0, and select nothing by it. Given what was kept, the noise of the checks c still has mean 0 and is independent from
draw to draw. k0(x, y) is linear in either score, so for two different draws

.. math:: E\, k_0(x_i, x_j; c_i, c_j) = k_0(x_i, x_j; s_i, s_j) .

On the diagonal :math:`k_0(x, x) = \phi(0) |s|^2 - 2 \phi'(0) d` comes out too large by :math:`\phi(0) E |f|^2`. The
product <a, c> in place of <c, c> would not do: a is what was selected by, and E <a, c> = <E a, s> still favours the
lucky. But over the *whole* stream, selected or not, (a - c) / sqrt 2 has the covariance of the noise, if e and f have
the same. So in coordinates L, if m_g kept draws share one state and one check,

.. math:: \widehat{KSD^2} = \frac{1}{n^2} \left( \sum_{ij} k_0(x_i, x_j; c_i, c_j) - \phi(0)\, v \sum_g m_g^2 \right),
          \qquad v = \mathrm{tr}(L^T \mathrm{Cov}[(a - c) / \sqrt 2]\, L) .

With a linear term b in the kernel, :math:`\phi(0)` reads :math:`\phi(0) + b (1 + |x_g|^2)`.

This is unbiased if the noise is as large over the kept draws as over the stream, which they stand for, so at least if
it is the same everywhere. Its own error is of the order of v / n: a set with a smaller KSD^2 than that may get an
estimate below 0, and its honest KSD is then given as 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import validation
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner, Streaming, Warmup, wants_matrix
from steinstream.running_moments import Moments

Array = NDArray[np.float64]


def as_check(draws: Array, check: ArrayLike | None, wanted: bool | None) -> Array | None:
    """Second scores as an array like the first; all draws of a stream have them, or none (None: it is the first)."""
    if wanted is not None and (check is not None) != wanted:
        raise InputError(
            "Some draws came with a check score and others without.", "Give check with every draw, or with none."
        )
    return None if check is None else validation.as_block(draws, check)[1]


class Checks:
    """The second scores of a stream: what is known of their noise."""

    def __init__(self, dim: int, preconditioner: Preconditioner | Warmup | Streaming) -> None:
        whole = wants_matrix("auto", dim)
        if isinstance(preconditioner, Preconditioner):
            whole = whole or preconditioner.factor.ndim == 2
        else:
            whole = whole or wants_matrix(preconditioner.kind, dim)
        self.differences = Moments(dim, whole)  # of the two scores of each draw

    def beside(self, block: validation.Block, check: Array, first: bool) -> validation.Block:
        """Second scores travel as further columns of the scores. Noise is learnt when draws come the ``first`` time."""
        if first:
            self.differences.add(block.scores - check)
        return block._replace(scores=np.hstack([block.scores, check]))

    def excess(self, kernel: Kernel, preconditioner: Preconditioner) -> float:
        """phi(0) v: by how much noise raises k0(x, x), at the origin if the kernel has a linear term."""
        factor, covariance = preconditioner.factor, self.differences.covariance
        if covariance is not None and factor.ndim == 2:
            twice = float(np.sum(factor * (covariance @ factor)))
        else:
            twice = float(np.sum(self.differences.variances * factor**2))
        return float(kernel.square_factor(np.zeros((1, len(self.differences.mean))))[0]) * twice / 2.0


def squared_ksd_debiased(
    points: Array,
    checks: Array,
    excess: float,
    kernel: Kernel,
    preconditioner: Preconditioner,
    weights: Array | None = None,
) -> float:
    """The estimate of KSD^2, which may be below 0. With weights the m_g / n are the sums of the weights that share one.

    >>> from steinstream.kernels import IMQ
    >>> points = np.array([[-1.0], [1.0]])
    >>> f"{honest_square(points, -points, 0.1, IMQ(), Preconditioner.identity()):.3f}"  # KSD^2 - 0.1 / 2
    '0.485'
    """
    from steinstream.discrepancy import ksd

    each = np.full(len(points), 1.0 / len(points)) if weights is None else weights
    _, first, shared = np.unique(np.hstack([points, checks]), axis=0, return_index=True, return_inverse=True)
    mass = np.bincount(shared.ravel(), weights=each)
    states, _ = preconditioner.apply(points[first], checks[first])
    factor = kernel.square_factor(states) / kernel.square_factor(np.zeros_like(states))  # 1 without a linear term
    every = ksd(points, checks, kernel=kernel, preconditioner=preconditioner, weights=weights) ** 2
    return every - excess * float(factor @ mass**2)
