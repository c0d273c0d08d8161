"""Stein kernel of one pair of draws, in scalar code. The functions work in Python and in compiled code."""

from __future__ import annotations

from typing import Any

from steinstream._engine.jit import inlined, shared
from steinstream.kernels import PROFILES

_inverse_square_root, _inverse_power, _gaussian = (shared(profile) for profile in PROFILES)


@shared
def profile_at(kernel: Any, u: Any) -> Any:
    """Return phi, -2 phi' and 4 phi'' at the squared distance u. Reference: `kernels.PROFILES`."""
    if kernel.profile == 0:
        return _inverse_square_root(u, kernel.first, kernel.second)
    if kernel.profile == 1:
        return _inverse_power(u, kernel.first, kernel.second)
    return _gaussian(u, kernel.first, kernel.second)


@shared
def linear_part(linear: Any, scores: Any, product: Any, own: Any) -> Any:
    """Return the part of the Stein kernel due to the linear term; 0 without one. Reference: `kernels.Kernel.matrix`."""
    if linear == 0.0:
        return 0.0
    return linear * (scores * product + own)


@inlined
def value_of(kernel, x, y):
    """Return k0(x, y) of two draws (2, d). Reference: `kernels.Kernel.matrix`."""
    dim = x.shape[1] - kernel.scaled
    u, cross, scores, product, own = 0.0, float(dim), 0.0, 1.0, float(dim)
    for k in range(dim):
        difference = x[0, k] - y[0, k]
        u += difference * difference
        cross += (x[1, k] - y[1, k]) * difference
        scores += x[1, k] * y[1, k]
        product += x[0, k] * y[0, k]
        own += x[1, k] * x[0, k] + y[1, k] * y[0, k]
    phi, slope, curvature = profile_at(kernel, u)
    value = phi * scores + slope * cross - curvature * u + linear_part(kernel.linear, scores, product, own)
    if kernel.scaled == 0:
        return value
    return (x[1, dim] * y[1, dim]) * value


@shared
def diagonal(kernel: Any, draws: Any, scores: Any, i: Any) -> Any:
    """Return k0(x, x) of draw i, given in the coordinates of the kernel; in Python ``i`` may be a slice.

    Reference: `kernels.Kernel.diagonal`.
    """
    dim = draws.shape[1] - kernel.scaled
    squares, lengths, own = 0.0, 1.0, float(dim)
    for k in range(dim):
        squares += scores[i, k] * scores[i, k]
        lengths += draws[i, k] * draws[i, k]
        own += 2.0 * (scores[i, k] * draws[i, k])
    phi, slope, _ = profile_at(kernel, 0.0)
    value = phi * squares + slope * float(dim) + linear_part(kernel.linear, squares, lengths, own)
    if kernel.scaled == 0:
        return value
    return (scores[i, dim] * scores[i, dim]) * value
