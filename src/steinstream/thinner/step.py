"""What a call to the thinner changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError
from steinstream.validation import as_ids

Ids = tuple[tuple[int, int], ...]


class StepInfo(NamedTuple):
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


def as_pairs(ids: ArrayLike) -> NDArray[np.int64]:
    """Ids (n, 2) that a user gives, as many as there are.

    >>> as_pairs([(0, 3), (1, 5)])
    array([[0, 3],
           [1, 5]])
    """
    try:
        names = np.asarray(ids)
    except ValueError:  # not all of one length
        names = np.zeros(1)
    if names.ndim == 0 or (names.ndim == 1 and len(names)):
        raise InputError("ids must be pairs of whole numbers (chain, draw), and these are not.", "kept.ids has such.")
    return as_ids(names, len(names)) if len(names) else np.zeros((0, 2), dtype=np.int64)


def pairs(ids: NDArray[np.int64]) -> Ids:
    """Ids (n, 2) as plain pairs."""
    return tuple(map(tuple, ids.tolist()))
