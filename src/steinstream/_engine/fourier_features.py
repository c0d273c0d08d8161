r"""The anchor: what is kept shall have the stream's proportions.

KSD is blind to the proportions of modes that lie far apart. So with an anchor the thinner's objective is

.. math:: J(D) = \mathrm{KSD}^2(D) + w\, |\bar f(D) - \bar f(\text{stream})|^2 / M ,

where :math:`f(x) = (\cos \langle \omega_m, x \rangle, \sin \langle \omega_m, x \rangle)`, m = 1 .. M, and the bars are
means over what is kept and over all draws of the stream so far. With frequencies from the base kernel's spectrum the
second term is the squared MMD of the base kernel, by random Fourier features (Rahimi and Recht 2007), once and for all
the same ones: so it is a sum of squares, exactly 0 where all these means agree, and no approximation can pull the kept
draws away from the stream. An RBF kernel's frequencies are Gaussian; IMQ, a mixture of Gaussians, has Gaussian ones
with a random width. Directions are orthogonal (Yu et al. 2016) and lengths evenly spread over their distribution, so
that a few are enough.

The weight is :math:`w = \gamma \kappa / \nu`, with :math:`\kappa` the geometric mean of k0(x, x) over the stream and
:math:`\nu` the mean of :math:`|f(x) - \bar f|^2 / M`, which is :math:`1 - |\bar f|^2 / M`. For n independent draws the
two terms are then about :math:`\kappa / n` and :math:`\gamma \kappa / n`, in any coordinates: gamma has no unit.

The sums over the stream are plain sums, to be added where streams are joined. Where coordinates follow the stream
(:class:`~steinstream.Streaming`), frequencies are those of the first estimate, and the anchor's stream begins there:
later estimates change the kernel's coordinates, not the anchor's. :math:`\kappa` is then the mean since the last
change, beginning with what was kept. In a later pass over the same draws nothing is added to the sums.

Memory O(M) for the stream and O(M) for each kept draw; time per step O(M) for each kept draw.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.kernels import Kernel

Array = NDArray[np.float64]

#: gamma where the user says True: see experiments/anchor.
DEFAULT = 0.3

PAIRS = 16  # frequencies
GRID = 2.0**-22  # cosines and sines are rounded to it: their sums are exact, and single precision holds them
_SEED = 20220117
_MANY = 1 << 15  # lengths of frequencies drawn to find their quantiles


def strength(anchor: float | bool) -> float:
    """Gamma, from what the user said.

    >>> strength(False), strength(True), strength(2)
    (0.0, 0.3, 2.0)
    """
    if isinstance(anchor, bool | np.bool_):
        return DEFAULT if anchor else 0.0
    if not isinstance(anchor, int | float | np.number) or not 0 <= anchor < math.inf:
        raise InputError(
            f"anchor must be True, or a number of at least 0, got {anchor!r}.", "0 leaves the thinner without one."
        )
    return float(anchor)


def frequencies(kernel: Kernel, dim: int, factor: Array, pairs: int = PAIRS) -> Array:
    """The frequencies (d, pairs) of the base kernel in these coordinates, in turns: a wave is cos(2 pi <column, x>).

    They are for draws as they were given: <w, L^-1 x> = <L^-T w, x>. The coordinates' centre would but turn all waves
    by the same angle, which changes no distance.
    """
    turns = _frequencies(kernel, dim, pairs)
    if factor.ndim == 2:
        return np.ascontiguousarray(np.linalg.solve(factor.T, turns))
    return turns / (factor[:, None] if factor.ndim == 1 else factor)


@lru_cache(maxsize=32)
def _frequencies(kernel: Kernel, dim: int, pairs: int) -> Array:
    rng = np.random.default_rng(_SEED)
    widths = kernel.spectrum(dim, rng, _MANY)
    lengths = np.sqrt(2.0 * widths * rng.chisquare(dim, _MANY))
    radii = np.quantile(lengths, (np.arange(pairs) + 0.5) / pairs)
    width = min(dim, pairs)
    blocks = [np.linalg.qr(rng.normal(size=(dim, width)))[0] for _ in range(-(-pairs // width))]
    directions = np.hstack(blocks)[:, :pairs]
    return np.ascontiguousarray(directions * rng.permutation(radii) / (2.0 * math.pi))


def wave(turns: Any) -> Any:
    """Cosine and sine of an angle in turns, on the grid. Plain arithmetic: the same bits on every machine.

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


def features(points: Array, turns: Array) -> Array:
    """The waves (n, 2 M) of points (n, d), readable and slow: cosines first, then sines."""
    return np.hstack(wave(points @ turns))
