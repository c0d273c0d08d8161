"""Running mean and covariance of a stream of draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array
from steinstream.errors import InputError


class Moments:
    """Running mean and variances, or covariance, of a stream of draws.

    Parameters
    ----------
    dim : int
        Number of parameters.
    full : bool, default False
        Whether to accumulate the full covariance matrix, in :math:`O(d^2)` memory, instead of the variances, in
        :math:`O(d)`.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        Mean of the draws so far.

    Examples
    --------
    >>> moments = Moments(2, full=True)
    >>> moments.add([[0.0, 0.0], [2.0, 4.0], [2.0, 4.0]])
    >>> moments.count, moments.distinct, moments.mean
    (3, 2, array([1.33333333, 2.66666667]))
    >>> moments.covariance
    array([[1.33333333, 2.66666667],
           [2.66666667, 5.33333333]])
    """

    def __init__(self, dim: int, full: bool = False) -> None:
        self.mean, self._last = np.zeros(dim), np.zeros(dim)
        self._second = np.zeros((dim if full else 1, dim))
        self._counts = np.zeros(2, dtype=np.int64)
        self._full = full  # with d = 1 the shape of _second does not show it

    @classmethod
    def of(cls, draws: ArrayLike) -> Moments:
        """Compute mean and variances of draws that are in memory.

        Parameters
        ----------
        draws : array_like of shape (n, d) or (chains, n, d)
            Draws; all chains are pooled.

        Returns
        -------
        Moments
            Mean and variances of all draws.

        Raises
        ------
        InputError
            If the array is empty or has another number of axes.
        """
        x = np.asarray(draws, dtype=np.float64)
        if x.ndim not in (2, 3) or x.size == 0:
            raise InputError(f"Draws must have shape (n, d) or (chains, n, d), got shape {x.shape}.")
        moments = cls(x.shape[-1])
        moments.add(x.reshape(-1, x.shape[-1]))
        return moments

    def add(self, draws: ArrayLike) -> None:
        """Update the moments with more draws.

        The result is bit-identical to adding the draws one at a time.

        Parameters
        ----------
        draws : array_like of shape (n, d)
            Finite draws.

        Raises
        ------
        InputError
            If the draws have another number of parameters, or a value is not finite.
        """
        from steinstream._engine.online_stats import update_moments  # imports numba

        x = np.ascontiguousarray(draws, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise InputError(f"Expected draws of shape (n, {len(self.mean)}), got shape {x.shape}.")
        if not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
            raise InputError(f"Draws must be finite, got {x[row]} in row {row}.", "Leave out such draws.")
        update_moments(x, self._counts, self.mean, self._second, self._last, np.empty(len(self.mean)))

    @property
    def count(self) -> int:
        """Number of draws."""
        return int(self._counts[0])

    @property
    def distinct(self) -> int:
        """Number of draws that differ from the draw before."""
        return int(self._counts[1])

    @property
    def variances(self) -> Array:
        """Variance of each coordinate, with divisor n."""
        sums = np.diagonal(self._second) if self._full else self._second[0]
        return np.asarray(sums / max(self.count, 1))

    @property
    def covariance(self) -> Array | None:
        """Covariance matrix, with divisor n - 1; None if only variances are accumulated."""
        if not self._full:
            return None
        lower = np.tril(self._second)
        return np.asarray((lower + np.tril(lower, -1).T) / max(self.count - 1, 1))

    def state(self) -> dict[str, AnyArray]:
        """Return the arrays from which :meth:`restore` continues."""
        return {"counts": self._counts, "mean": self.mean, "second": self._second, "last": self._last}

    def restore(self, state: dict[str, AnyArray]) -> None:
        """Continue from the arrays that :meth:`state` returned."""
        self._counts, self.mean = state["counts"].copy(), state["mean"].copy()
        self._second, self._last = state["second"].copy(), state["last"].copy()
