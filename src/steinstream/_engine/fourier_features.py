r"""Fourier features of the stream anchor, and its formulas.

KSD does not detect wrong proportions of modes that are far apart. With an anchor the objective of the thinner is
therefore

.. math:: J(D) = \mathrm{KSD}^2(D) + w\, |\bar f(D) - \bar f(\text{stream})|^2 / M ,

where :math:`f(x) = (\cos \langle \omega_m, x \rangle, \sin \langle \omega_m, x \rangle)`, m = 1 .. M, and the bars are
means over the kept draws and over all draws of the stream so far. With frequencies from the spectrum of the base
kernel, the second term approximates the squared MMD of the base kernel by random Fourier features (Rahimi and Recht
2007). The frequencies are fixed, so the term is a sum of squares that is exactly 0 where all means agree: the
approximation never moves the kept draws away from the stream. The frequencies of an RBF kernel are Gaussian; those of
IMQ, a mixture of Gaussians, are Gaussian with a random width. Directions are orthogonal (Yu et al. 2016) and lengths
evenly spread over their distribution, so that few frequencies are enough.

The weight is :math:`w = \gamma \kappa / \nu`, with :math:`\kappa` the geometric mean of k0(x, x) over the stream and
:math:`\nu` the mean of :math:`|f(x) - \bar f|^2 / M`, which is :math:`1 - |\bar f|^2 / M`. For n independent draws the
two terms are then about :math:`\kappa / n` and :math:`\gamma \kappa / n` in any coordinates: gamma has no unit.

The sums over the stream are plain sums; those of several streams can be added. If the preconditioner is estimated from
the stream (:class:`~steinstream.Streaming`), the frequencies are those of the first estimate and the stream of the
anchor starts there. Later estimates change the coordinates of the kernel, not those of the anchor; :math:`\kappa` is
then the mean since the last change, starting with the draws kept at that time. In a later pass over the same draws
nothing is added to the sums.

Memory: O(M) for the stream and O(M) per kept draw. Time per step: O(M) per kept draw.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.kernels import Kernel

#: Default of gamma: see experiments/anchor.
DEFAULT = 0.3

PAIRS = 16  # number of frequencies, M
GRID = 2.0**-22  # cosines and sines are rounded to multiples of it: their sums are exact, and they fit float32
_SEED = 20220117
_SAMPLE = 1 << 15  # size of the sample from which the quantiles of the lengths are computed


def strength(anchor: float | bool) -> float:
    """Return gamma for the value of the setting ``anchor``.

    >>> strength(False), strength(True), strength(2)
    (0.0, 0.3, 2.0)
    """
    if isinstance(anchor, bool | np.bool_):
        return DEFAULT if anchor else 0.0
    if not isinstance(anchor, int | float | np.number) or not 0 <= anchor < math.inf:
        raise InputError(
            f"anchor must be True, or a number of at least 0, got {anchor!r}.", "Use 0 or False for no anchor."
        )
    return float(anchor)


def frequencies(kernel: Kernel, dim: int, factor: Array, pairs: int = PAIRS) -> Array:
    """Return the frequencies of the base kernel under a preconditioner.

    The frequencies apply to draws before preconditioning: <w, L^-1 x> = <L^-T w, x>. The centre of the preconditioner
    would only rotate all features by the same angle, which changes no distance.

    Parameters
    ----------
    kernel : Kernel
        Base kernel.
    dim : int
        Number of dimensions d.
    factor : array
        Factor L of the preconditioner: a number, (d,) or (d, d).
    pairs : int, default PAIRS
        Number of frequencies.

    Returns
    -------
    array
        Frequencies (d, pairs) in turns: a feature is cos(2 pi <column, x>).

    """
    turns = _frequencies(kernel, dim, pairs)
    if factor.ndim == 2:
        return np.ascontiguousarray(np.linalg.solve(factor.T, turns))
    return turns / (factor[:, None] if factor.ndim == 1 else factor)


@lru_cache(maxsize=32)
def _frequencies(kernel: Kernel, dim: int, pairs: int) -> Array:
    """Return the frequencies without a preconditioner."""
    rng = np.random.default_rng(_SEED)
    rates = kernel.spectrum(dim, rng, _SAMPLE)
    lengths = np.sqrt(2.0 * rates * rng.chisquare(dim, _SAMPLE))
    radii = np.quantile(lengths, (np.arange(pairs) + 0.5) / pairs)
    width = min(dim, pairs)
    blocks = [np.linalg.qr(rng.normal(size=(dim, width)))[0] for _ in range(-(-pairs // width))]
    directions = np.hstack(blocks)[:, :pairs]
    return np.ascontiguousarray(directions * rng.permutation(radii) / (2.0 * math.pi))


def wave(turns: Any) -> Any:
    """Return cosine and sine of an angle in turns, rounded to the grid; the same bits on every machine.

    >>> [[round(float(value), 6) for value in wave(turns)] for turns in (0.125, -1.0)]
    [[0.707107, 0.707107], [1.0, 0.0]]
    """
    half = np.pi * (turns - np.floor(turns + 0.5))  # half the angle, between -pi/2 and pi/2
    square = half * half
    sine = 1.0 / 355687428096000.0  # Taylor series up to the 17th and the 18th power: 4e-14
    cosine = -1.0 / 6402373705728000.0
    sine = sine * square - 1.0 / 1307674368000.0
    cosine = cosine * square + 1.0 / 20922789888000.0
    sine = sine * square + 1.0 / 6227020800.0
    cosine = cosine * square - 1.0 / 87178291200.0
    sine = sine * square - 1.0 / 39916800.0
    cosine = cosine * square + 1.0 / 479001600.0
    sine = sine * square + 1.0 / 362880.0
    cosine = cosine * square - 1.0 / 3628800.0
    sine = sine * square - 1.0 / 5040.0
    cosine = cosine * square + 1.0 / 40320.0
    sine = sine * square + 1.0 / 120.0
    cosine = cosine * square - 1.0 / 720.0
    sine = sine * square - 1.0 / 6.0
    cosine = cosine * square + 1.0 / 24.0
    sine = (sine * square + 1.0) * half
    cosine = (cosine * square - 0.5) * square + 1.0
    shift = 1.5 * 2.0**30  # 2^52 grids
    return (1.0 - 2.0 * (sine * sine) + shift) - shift, (2.0 * (sine * cosine) + shift) - shift


def features(draws: Array, frequencies: Array) -> Array:
    """Return the features (n, 2 M) of draws (n, d) for frequencies (d, M): cosines first, then sines."""
    return np.hstack(wave(draws @ frequencies))
