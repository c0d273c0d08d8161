"""The Stein kernel in plain numbers, for one pair of draws at a time."""

from __future__ import annotations

from steinstream._engine.jit import inlined
from steinstream.kernels import PROFILES

_root, _power, _gaussian = (inlined(profile) for profile in PROFILES)


@inlined
def profile_at(kernel, u):
    """The three factors of the kernel's profile."""
    if kernel[0] == 0:
        return _root(u, kernel[1], kernel[2])
    if kernel[0] == 1:
        return _power(u, kernel[1], kernel[2])
    return _gaussian(u, kernel[1], kernel[2])


@inlined
def slant(linear, scores, product, own):
    """The linear term's part, if there is one."""
    if linear is None:
        return 0.0
    return linear * (scores * product + own)


@inlined
def value_of(kernel, x, y):
    """k0(x, y) of two draws (2, d)."""
    u, cross, scores, product, own = 0.0, float(x.shape[1]), 0.0, 1.0, float(x.shape[1])
    for k in range(x.shape[1]):
        apart = x[0, k] - y[0, k]
        u += apart * apart
        cross += (x[1, k] - y[1, k]) * apart
        scores += x[1, k] * y[1, k]
        product += x[0, k] * y[0, k]
        own += x[1, k] * x[0, k] + y[1, k] * y[0, k]
    phi, slope, curvature = profile_at(kernel, u)
    return phi * scores + slope * cross - curvature * u + slant(kernel[4], scores, product, own)


@inlined
def diagonal(kernel, draws, scores, i):
    """k0(x, x) of a draw (in the kernel's coordinates)."""
    dim = float(draws.shape[1])
    squares, lengths, own = 0.0, 1.0, dim
    for k in range(draws.shape[1]):
        squares += scores[i, k] * scores[i, k]
        lengths += draws[i, k] * draws[i, k]
        own += 2.0 * (scores[i, k] * draws[i, k])
    phi, slope, _ = profile_at(kernel, 0.0)
    return phi * squares + slope * dim + slant(kernel[4], squares, lengths, own)
