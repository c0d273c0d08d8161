r"""Mean prediction of the kept networks, updated as networks are added and dropped, and measures of its quality.

An added network contributes its prediction and a dropped network takes it away; no other network is evaluated. Each
prediction is rounded once to a grid, the multiples of ``resolution`` (2^-60 by default), and sums are pairs of doubles
(:mod:`steinstream._engine.double_double`). Sums of multiples are exact while they stay below 2^105 times the
resolution, so dropping a network cancels its addition to the last bit, in any order.

Measures of a prediction, an array (inputs, classes) of probabilities:

- :func:`agreement`, the fraction of inputs on which two predictions have the same most probable class, and
  :func:`total_variation`, the mean over inputs of half the L1 distance: P. Izmailov, S. Vikram, M. D. Hoffman and
  A. G. Wilson, "What are Bayesian neural network posteriors really like?", ICML 2021.
- :func:`accuracy` against labels, and :func:`expected_calibration_error`: C. Guo, G. Pleiss, Y. Sun and
  K. Q. Weinberger, "On calibration of modern neural networks", ICML 2017.

Memory: four doubles per predicted number (two for classes), independent of the number of networks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array, Flags, Integers
from steinstream.errors import InputError

CLASSES, VALUES = "classes", "values"
PREDICTION_KINDS = (CLASSES, VALUES)
BINS = 15  # of the confidence, as in Guo et al.
_TOLERANCE = 0.01  # of the sum of probabilities, which may be in half precision (float16, bfloat16)


class EnsemblePrediction:
    """Mean prediction of a changing set of networks, exact after any number of additions and removals.

    Parameters
    ----------
    kind : {"classes", "values"}, optional
        ``"classes"``: predictions are probabilities (inputs, classes) whose rows sum to 1. ``"values"``: predictions
        are numbers of any shape, as in regression, and the variance over the networks is available too. Default:
        ``"classes"`` if the first prediction has at least two columns and consists of probabilities, otherwise
        ``"values"``.
    resolution : float, default 2**-60
        Grid to which predictions are rounded, a power of two.

    Attributes
    ----------
    count : int
        Number of networks.

    Raises
    ------
    InputError
        If ``kind`` is unknown or ``resolution`` is not a power of two.

    Examples
    --------
    >>> ensemble = EnsemblePrediction()
    >>> one, other = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.4, 0.6]])
    >>> ensemble.add(one); ensemble.add(other)
    >>> ensemble.mean
    array([[0.7, 0.3],
           [0.3, 0.7]])
    >>> ensemble.drop(one)
    >>> bool((ensemble.mean == other).all()), ensemble.count
    (True, 1)
    """

    def __init__(self, kind: str | None = None, *, resolution: float = 2.0**-60) -> None:
        if kind is not None and kind not in PREDICTION_KINDS:
            raise InputError(f"kind must be {' or '.join(map(repr, PREDICTION_KINDS))}, got {kind!r}.")
        if not (resolution > 0 and np.frexp(resolution)[0] == 0.5):
            raise InputError(f"resolution must be a power of two, got {resolution!r}.")
        self.kind = kind
        self.resolution = resolution
        self.count = 0
        self._sums: list[tuple[Array, Array]] = []  # of the values; for kind "values" also of their squares

    def add(self, prediction: ArrayLike) -> None:
        """Add the prediction of one network.

        Parameters
        ----------
        prediction : array_like
            Probabilities (inputs, classes), or values of the same shape as before.

        Raises
        ------
        InputError
            If the prediction is not finite, not a distribution over the classes, or too large for the resolution.
        """
        self._accumulate(prediction, 1)

    def drop(self, prediction: ArrayLike) -> None:
        """Remove the prediction of one network.

        Parameters
        ----------
        prediction : array_like
            The same numbers that were added for this network.

        Raises
        ------
        InputError
            If the ensemble is empty, or the prediction is invalid.
        """
        if self.count == 0:
            raise InputError("Cannot drop a network: the ensemble is empty.", "Drop only networks that were added.")
        self._accumulate(prediction, -1)

    def _accumulate(self, prediction: ArrayLike, sign: int) -> None:
        from steinstream._engine import double_double

        values = self._validated(prediction)
        powers = (values,) if self.kind == CLASSES else (values, values * values)
        if not self._sums:
            self._sums = [(np.zeros_like(values), np.zeros_like(values)) for _ in powers]
        elif values.shape != self._sums[0][0].shape:
            raise InputError(f"The prediction has shape {values.shape}, expected {self._sums[0][0].shape} as before.")
        terms = [sign * self._on_grid(power) for power in powers]
        sums = [double_double.add(*pair, term) for pair, term in zip(self._sums, terms, strict=True)]
        if max(float(np.abs(high).max(initial=0.0)) for high, _ in sums) >= 2.0**105 * self.resolution:
            raise InputError(
                f"Predictions up to {np.abs(values).max():.3g} cannot be summed in steps of {self.resolution:.3g}.",
                "Increase the resolution, or predict in other units.",
            )
        self._sums, self.count = sums, self.count + sign

    def _on_grid(self, values: Array) -> Array:
        return np.rint(values / self.resolution) * self.resolution

    def _validated(self, prediction: ArrayLike) -> Array:
        values = np.asarray(prediction, dtype=np.float64)
        if not np.isfinite(values).all():
            raise InputError(
                f"Predictions must be finite, got {values[~np.isfinite(values)][0]}.", "Check the network's output."
            )
        if self.kind is None:
            self.kind = CLASSES if are_probabilities(values) else VALUES
        if self.kind == CLASSES:
            probabilities(values)
        return values

    @property
    def mean(self) -> Array:
        """Mean over the networks."""
        return self._average(0)

    @property
    def variance(self) -> Array:
        """Variance over the networks, for kind "values".

        Returns
        -------
        array
            The variances.

        Raises
        ------
        InputError
            If the predictions are probabilities of classes.
        """
        if self.kind == CLASSES:
            raise InputError('The variance is available for kind "values" only.', 'Use EnsemblePrediction("values").')
        return np.maximum(self._average(1) - self._average(0) ** 2, 0.0)

    def _average(self, power: int) -> Array:
        if self.count == 0:
            raise InputError("The ensemble is empty and has no prediction.", "Add a network first.")
        high, low = self._sums[power]
        return high / self.count + low / self.count

    def measures(self, *, labels: ArrayLike | None = None, truth: ArrayLike | None = None) -> dict[str, float]:
        """Compute the measures of the mean prediction of classes.

        Parameters
        ----------
        labels : array_like of shape (inputs,), optional
            Labels; adds ``accuracy`` and ``expected_calibration_error``.
        truth : array_like of shape (inputs, classes), optional
            Reference prediction; adds ``agreement`` and ``total_variation``.

        Returns
        -------
        dict of str to float
            The number of ``networks`` and the measures.

        Examples
        --------
        >>> ensemble = EnsemblePrediction()
        >>> ensemble.add([[0.9, 0.1], [0.2, 0.8]])
        >>> round(ensemble.measures(labels=[0, 0], truth=[[1.0, 0.0], [0.0, 1.0]])["total_variation"], 6)
        0.15
        """
        measures: dict[str, float] = {"networks": self.count}
        if truth is not None:
            measures |= {"agreement": agreement(self.mean, truth), "total_variation": total_variation(self.mean, truth)}
        if labels is not None:
            measures["accuracy"] = accuracy(self.mean, labels)
            measures["expected_calibration_error"] = expected_calibration_error(self.mean, labels)
        return measures


def agreement(one: ArrayLike, other: ArrayLike) -> float:
    """Compute the fraction of inputs on which two predictions (inputs, classes) have the same most probable class.

    Ties go to the first class.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> agreement([[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.7, 0.3]])
    0.5
    """
    p, q = _same_shape(one, other)
    return float(np.mean(p.argmax(axis=1) == q.argmax(axis=1)))


def total_variation(one: ArrayLike, other: ArrayLike) -> float:
    """Compute the mean over inputs of half the sum over classes of |p - q|, for predictions (inputs, classes).

    Returns
    -------
    float
        0 for equal predictions, at most 1.

    Examples
    --------
    >>> total_variation([[1.0, 0.0]], [[0.75, 0.25]])
    0.25
    """
    p, q = _same_shape(one, other)
    return float(0.5 * np.abs(p - q).sum(axis=1).mean())


def accuracy(prediction: ArrayLike, labels: ArrayLike) -> float:
    """Compute the fraction of inputs whose most probable class is the label, an integer from 0 to classes - 1.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    p = probabilities(prediction)
    return float(np.mean(p.argmax(axis=1) == _labels(labels, p)))


def expected_calibration_error(prediction: ArrayLike, labels: ArrayLike, *, bins: int = BINS) -> float:
    """Compute the expected calibration error (Guo et al. 2017) of a prediction (inputs, classes).

    Inputs are sorted into bins ((m - 1) / bins, m / bins] by the probability of their most probable class. The error is
    the sum over bins of the fraction of inputs in the bin times |accuracy - mean confidence| there. It depends on the
    number of bins: compare only values computed with the same number.

    Returns
    -------
    float
        0 if, for every confidence c, a fraction c of the predictions with that confidence is right.

    Raises
    ------
    InputError
        If ``bins`` is below 1, or the prediction or the labels are invalid.

    Examples
    --------
    >>> round(expected_calibration_error([[0.9, 0.1], [0.8, 0.2]], [0, 1]), 3)
    0.45
    """
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}.")
    p = probabilities(prediction)
    confidence = p.max(axis=1)
    right = p.argmax(axis=1) == _labels(labels, p)
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(p))


def probabilities(prediction: ArrayLike) -> Array:
    """Return a prediction (inputs, classes) as float64; raise if a row is not a distribution over the classes."""
    p = np.asarray(prediction, dtype=np.float64)
    if p.ndim != 2 or p.size == 0:
        raise InputError(f"Probabilities must have shape (inputs, classes), got shape {p.shape}.")
    invalid = ~_are_distributions(p)
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        raise InputError(
            f"The prediction for input {row} is not a distribution over the classes: minimum {p[row].min():.3g}, "
            f"sum {p[row].sum():.6g}.",
            "Pass probabilities, not logits: apply softmax first.",
        )
    return p


def are_probabilities(prediction: Array) -> bool:
    """Return whether a prediction has at least two columns, and all rows are distributions over the classes.

    Returns
    -------
    bool
        False for logits and for values.

    Examples
    --------
    >>> are_probabilities(np.array([[0.3, 0.7]])), are_probabilities(np.array([[-1.0, 2.5]]))
    (True, False)
    """
    return prediction.ndim == 2 and prediction.shape[1] > 1 and bool(_are_distributions(prediction).all())


def _are_distributions(p: Array) -> Flags:
    """Return which rows are distributions over the classes, up to rounding."""
    return np.asarray((p >= -_TOLERANCE).all(axis=1) & (np.abs(p.sum(axis=1) - 1.0) < _TOLERANCE))


def _same_shape(one: ArrayLike, other: ArrayLike) -> tuple[Array, Array]:
    p, q = probabilities(one), probabilities(other)
    if p.shape != q.shape:
        raise InputError(f"The predictions have shapes {p.shape} and {q.shape}.", "Compare them on the same inputs.")
    return p, q


def _labels(labels: ArrayLike, p: Array) -> Integers:
    y = np.asarray(labels)
    if y.shape != p.shape[:1] or not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(
            f"Labels must be {len(p)} integers from 0 to {p.shape[1] - 1}, got {y.dtype} of shape {y.shape}."
        )
    return y.astype(np.int64)
