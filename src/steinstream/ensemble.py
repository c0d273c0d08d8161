r"""What the kept networks predict on a reference set, averaged online, and how good that is.

The average follows the kept set: a network that is added brings its prediction in, one that is dropped takes it out
again, and no other network is run. So that nothing is left behind after any number of adds and drops, every prediction
is rounded once to a fixed grid (a whole multiple of ``resolution``, 2^-60 unless told otherwise) and sums are pairs of
doubles (:mod:`steinstream._engine.double_double`): sums of multiples are exact, as long as they stay below 2^105 times the
resolution, so a drop undoes its add to the last bit, in any order.

Measures of a prediction, an array (inputs, classes) of probabilities:

- :func:`agreement`, the share of inputs on which two predictions have the same most probable class, and
  :func:`total_variation`, the mean over inputs of half the L1 distance: P. Izmailov, S. Vikram, M. D. Hoffman and
  A. G. Wilson, "What are Bayesian neural network posteriors really like?", ICML 2021.
- :func:`accuracy` against labels, and :func:`expected_calibration_error`: C. Guo, G. Pleiss, Y. Sun and
  K. Q. Weinberger, "On calibration of modern neural networks", ICML 2017.

Memory: four doubles for each number predicted (two for classes), however many networks are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError

Array = NDArray[np.float64]

KINDS = ("classes", "values")
BINS = 15  # of confidence, as in Guo et al.
_SLACK = 1e-3  # probabilities in half precision do not sum to 1 any better


class Predictions:
    """The mean prediction of a set of networks that changes; exact under any number of adds and drops.

    ``kind`` is ``"classes"`` for probabilities (inputs, classes), whose rows sum to 1, or ``"values"`` for the numbers
    that a regression predicts, in any shape; of those the variance over the networks is known too.

    >>> online = Predictions()
    >>> one, other = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.4, 0.6]])
    >>> online.add(one); online.add(other)
    >>> online.mean
    array([[0.7, 0.3],
           [0.3, 0.7]])
    >>> online.drop(one)
    >>> bool((online.mean == other).all()), online.count
    (True, 1)
    """

    def __init__(self, kind: str = "classes", *, resolution: float = 2.0**-60) -> None:
        if kind not in KINDS:
            raise InputError(f"Predictions are of {' or '.join(map(repr, KINDS))}, got {kind!r}.")
        if not (resolution > 0 and np.frexp(resolution)[0] == 0.5):
            raise InputError(f"The resolution must be a power of two, got {resolution!r}.")
        self.kind = kind
        self.resolution = resolution
        self.count = 0  # networks
        self._sums: list[tuple[Array, Array]] = []  # of the values, and of their squares if the variance is wanted

    def add(self, prediction: ArrayLike) -> None:
        """A network has come."""
        self._take(prediction, 1)

    def drop(self, prediction: ArrayLike) -> None:
        """A network has gone that predicted this when it came."""
        if self.count == 0:
            raise InputError("No network is left that could be dropped.", "Drop only what was added.")
        self._take(prediction, -1)

    def _take(self, prediction: ArrayLike, sign: int) -> None:
        from steinstream._engine import double_double

        values = self._checked(prediction)
        powers = (values,) if self.kind == "classes" else (values, values * values)
        if not self._sums:
            self._sums = [(np.zeros_like(values), np.zeros_like(values)) for _ in powers]
        elif values.shape != self._sums[0][0].shape:
            raise InputError(f"Predictions so far have shape {self._sums[0][0].shape}, this one {values.shape}.")
        more = [sign * self._on_grid(power) for power in powers]
        sums = [double_double.add(*pair, part) for pair, part in zip(self._sums, more, strict=True)]
        if max(float(np.abs(high).max(initial=0.0)) for high, _ in sums) >= 2.0**105 * self.resolution:
            raise InputError(
                f"Predictions up to {np.abs(values).max():.3g} cannot be summed in steps of {self.resolution:.3g}.",
                "Give a larger resolution, or predict in other units.",
            )
        self._sums, self.count = sums, self.count + sign

    def _on_grid(self, values: Array) -> Array:
        return np.rint(values / self.resolution) * self.resolution

    def _checked(self, prediction: ArrayLike) -> Array:
        values = np.asarray(prediction, dtype=np.float64)
        if not np.isfinite(values).all():
            raise InputError(f"A prediction is {values[~np.isfinite(values)][0]}.", "Look at the network's output.")
        if self.kind == "classes":
            probabilities(values)
        return values

    @property
    def mean(self) -> Array:
        """The average over the networks."""
        return self._average(0)

    @property
    def variance(self) -> Array:
        """The variance over the networks, of values."""
        if self.kind == "classes":
            raise InputError("The variance is followed for values only.", 'Use Predictions("values").')
        return np.maximum(self._average(1) - self._average(0) ** 2, 0.0)

    def _average(self, power: int) -> Array:
        if self.count == 0:
            raise InputError("There is no network yet, hence no prediction.", "Add one first.")
        high, low = self._sums[power]
        return high / self.count + low / self.count

    def measures(self, *, labels: ArrayLike | None = None, truth: ArrayLike | None = None) -> dict[str, float]:
        """Everything that can be said of the mean of classes: against ``labels``, and against the prediction ``truth``.

        >>> online = Predictions()
        >>> online.add([[0.9, 0.1], [0.2, 0.8]])
        >>> round(online.measures(labels=[0, 0], truth=[[1.0, 0.0], [0.0, 1.0]])["total_variation"], 6)
        0.15
        """
        said: dict[str, float] = {"networks": self.count}
        if truth is not None:
            said |= {"agreement": agreement(self.mean, truth), "total_variation": total_variation(self.mean, truth)}
        if labels is not None:
            said["accuracy"] = accuracy(self.mean, labels)
            said["expected_calibration_error"] = expected_calibration_error(self.mean, labels)
        return said


def agreement(one: ArrayLike, other: ArrayLike) -> float:
    """The share of inputs on which both find the same class most probable (of equals the first).

    >>> agreement([[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.7, 0.3]])
    0.5
    """
    p, q = _alike(one, other)
    return float(np.mean(p.argmax(axis=1) == q.argmax(axis=1)))


def total_variation(one: ArrayLike, other: ArrayLike) -> float:
    """The mean over inputs of half the sum over classes of |p - q|: 0 for the same predictions, 1 at most.

    >>> total_variation([[1.0, 0.0]], [[0.75, 0.25]])
    0.25
    """
    p, q = _alike(one, other)
    return float(0.5 * np.abs(p - q).sum(axis=1).mean())


def accuracy(prediction: ArrayLike, labels: ArrayLike) -> float:
    """The share of inputs whose most probable class is the label.

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    p = probabilities(prediction)
    return float(np.mean(p.argmax(axis=1) == _labels(labels, p)))


def expected_calibration_error(prediction: ArrayLike, labels: ArrayLike, *, bins: int = BINS) -> float:
    """How far confidence and accuracy are apart: 0 if of all that is said with confidence c a share c is right.

    Inputs go into ``bins`` bins ((m - 1) / bins, m / bins] by the probability of their most probable class; the error
    is the sum over bins of the share of inputs in it times |accuracy - mean confidence| there (Guo et al. 2017). It
    depends on the bins: compare only what was computed with the same number of them.

    >>> round(expected_calibration_error([[0.9, 0.1], [0.8, 0.2]], [0, 1]), 3)
    0.45
    """
    if bins < 1:
        raise InputError(f"There must be at least one bin, got {bins}.")
    p = probabilities(prediction)
    confidence = p.max(axis=1)
    right = p.argmax(axis=1) == _labels(labels, p)
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(p))


def probabilities(prediction: ArrayLike) -> Array:
    """The prediction as an array (inputs, classes), or an error that says why it is none."""
    p = np.asarray(prediction, dtype=np.float64)
    if p.ndim != 2 or p.size == 0:
        raise InputError(f"Probabilities must have shape (inputs, classes), got shape {p.shape}.")
    sums = p.sum(axis=1)
    far = ~((p >= -_SLACK).all(axis=1) & (np.abs(sums - 1.0) < _SLACK))
    if far.any():
        row = int(np.flatnonzero(far)[0])
        raise InputError(
            f"The prediction for input {row} is not a distribution over the classes: least {p[row].min():.3g}, "
            f"sum {sums[row]:.6g}.",
            "Pass probabilities, not logits: softmax them first.",
        )
    return p


def _alike(one: ArrayLike, other: ArrayLike) -> tuple[Array, Array]:
    p, q = probabilities(one), probabilities(other)
    if p.shape != q.shape:
        raise InputError(f"The predictions have shapes {p.shape} and {q.shape}.", "Compare them on the same inputs.")
    return p, q


def _labels(labels: ArrayLike, p: Array) -> NDArray[np.int64]:
    y = np.asarray(labels)
    if y.shape != p.shape[:1] or not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"Labels must be {len(p)} whole numbers from 0 to {p.shape[1] - 1}, got shape {y.shape}.")
    return y.astype(np.int64)
