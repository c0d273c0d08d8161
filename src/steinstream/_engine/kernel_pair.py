"""Stein kernel of one pair of draws, in scalar code. The functions work in Python and in compiled code."""

from __future__ import annotations

from typing import Any

from steinstream._engine.jit import inlined, shared
from steinstream.kernels import PROFILES

_inverse_square_root, _inverse_power, _gaussian = (shared(profile) for profile in PROFILES)


@shared
def profile_at(kernel: Any, u: Any) -> Any:
    """Return phi, -2 phi' and 4 phi'' at the squared distance u.

    Reference: `kernels.PROFILES`.
    """
    if kernel.profile == 0:
        return _inverse_square_root(u, kernel.first, kernel.second)
    if kernel.profile == 1:
        return _inverse_power(u, kernel.first, kernel.second)
    return _gaussian(u, kernel.first, kernel.second)


@shared
def linear_part(linear: Any, scores: Any, product: Any, own: Any) -> Any:
    """Return the part of the Stein kernel due to the linear term; 0 without one.

    Reference: `kernels.Kernel.matrix`.
    """
    if linear == 0.0:
        return 0.0
    return linear * (scores * product + own)


@inlined
def value_of(kernel, x, y):
    """Return k0(x, y) of two draws (2, d).

    Reference: `kernels.Kernel.matrix`.
    """
    u, cross, scores, product, own = 0.0, float(x.shape[1]), 0.0, 1.0, float(x.shape[1])
    for k in range(x.shape[1]):
        difference = x[0, k] - y[0, k]
        u += difference * difference
        cross += (x[1, k] - y[1, k]) * difference
        scores += x[1, k] * y[1, k]
        product += x[0, k] * y[0, k]
        own += x[1, k] * x[0, k] + y[1, k] * y[0, k]
    phi, slope, curvature = profile_at(kernel, u)
    return phi * scores + slope * cross - curvature * u + linear_part(kernel.linear, scores, product, own)


@shared
def diagonal(kernel: Any, draws: Any, scores: Any, i: Any) -> Any:
    """Return k0(x, x) of draw i, given in the coordinates of the kernel; in Python ``i`` may be a slice.

    Reference: `kernels.Kernel.diagonal`.
    """
    dim = float(draws.shape[1])
    squares, lengths, own = 0.0, 1.0, dim
    for k in range(draws.shape[1]):
        squares += scores[i, k] * scores[i, k]
        lengths += draws[i, k] * draws[i, k]
        own += 2.0 * (scores[i, k] * draws[i, k])
    phi, slope, _ = profile_at(kernel, 0.0)
    return phi * squares + slope * dim + linear_part(kernel.linear, squares, lengths, own)
