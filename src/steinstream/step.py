"""What a call to the thinner changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = tuple[tuple[int, int], ...]


class Step(NamedTuple):
    """What a call changed: make whatever should hang on ``added``, delete whatever hangs on ``dropped``.

    ``added`` are draws of this call that are kept after it, ``dropped`` draws kept before it that no longer are.
    Ids are pairs (chain, draw); ``size`` and ``ksd`` are those after the call.

    >>> import steinstream as ss
    >>> thinner = ss.Thinner(dim=1, size=1)
    >>> thinner.push([2.0], [-2.0]).added
    ((0, 0),)
    >>> step = thinner.push([0.0], [0.0])
    >>> step.added, step.dropped, step.size
    (((0, 1),), ((0, 0),), 1)
    """

    added: Ids
    dropped: Ids
    size: int
    ksd: float


def pairs(ids: NDArray[np.int64]) -> Ids:
    """Ids (n, 2) as plain pairs."""
    return tuple(map(tuple, ids.tolist()))
