"""Features of draws that the stream term compares: predictions of a network, outputs of a surrogate model.

Feature vectors may have any length. They are reduced in two steps:

1. Vectors longer than 512 are sketched: coordinate i is added with a random sign to one of 512 sums (the count sketch
   of Charikar, Chen and Farach-Colton, 2002), which preserves inner products up to about 5 %. Only sketches are stored.
2. Sketches are projected on their principal components and whitened. The components hold 99.9 % of the variance and
   are at most 32. They are estimated from the stream, again whenever the number of draws has doubled, from the draws
   since the previous estimate, as a `Streaming` preconditioner is. Each component then has variance 1 / (2 q) for q
   components, so that two independent draws have a squared distance of about 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.preconditioning import DoublingWindow

_SKETCH = 512  # longest vector that is not sketched
_COMPONENTS = 32
_VARIANCE = 0.999  # share of the variance that the components hold
_FIRST = 100  # draws before the first estimate
_SEED = 20220118


class FeatureMap:
    """Linear map from feature vectors to whitened principal components, estimated from the stream."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._hashes = _hashes(width) if width > _SKETCH else None
        self._window = DoublingWindow(self.sketch_width, _FIRST, None, covariance=True)
        self._projection = np.eye(self.sketch_width, min(self.sketch_width, _COMPONENTS))
        self._centre = np.zeros(self.sketch_width)

    @property
    def sketch_width(self) -> int:
        return min(self.width, _SKETCH)

    @property
    def components(self) -> int:
        """Number q of components."""
        return self._projection.shape[1]

    def sketch(self, features: Array) -> Array:
        """Return sketches (n, sketch_width) of feature vectors (n, width)."""
        if self._hashes is None:
            return features
        buckets, signs = self._hashes
        rows = [np.bincount(buckets, row * signs, _SKETCH) for row in features]
        return np.array(rows, dtype=np.float64).reshape(-1, _SKETCH)

    def apply(self, sketches: Array) -> Array:
        """Return the components (n, q) of sketches (n, sketch_width). The bits of a row do not depend on the others."""
        from steinstream._engine.linalg import multiply  # loads numba only where it is needed

        return multiply(self._projection, sketches - self._centre)

    def steps_until_due(self, candidates: int) -> int:
        """Return the number of steps of ``candidates`` draws each before the map may change."""
        return self._window.steps_until_due(candidates)

    def update(self, sketches: Array) -> bool:
        """Add sketches of the next draws and return whether the map changed."""
        window = self._window.update(sketches)
        if window is None or window.covariance is None or window.distinct < 2 or not window.variances.any():
            return False
        variances, directions = np.linalg.eigh(window.covariance)
        order = np.argsort(variances)[::-1][:_COMPONENTS]
        variances, directions = np.maximum(variances[order], 0.0), directions[:, order]
        share = np.cumsum(variances) / np.maximum(window.variances.sum(), variances.sum())
        count = min(int(np.searchsorted(share, _VARIANCE)) + 1, int(np.count_nonzero(variances)), window.distinct - 1)
        scale = np.sqrt(2.0 * count * variances[:count])
        self._projection, self._centre = np.ascontiguousarray(directions[:, :count] / scale), window.mean.copy()
        return True

    def state(self) -> dict[str, Any]:
        """Return the map and its moments for a checkpoint."""
        return {
            "width": self.width,
            "window": self._window.state(),
            "projection": self._projection,
            "centre": self._centre,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`, of a map with the same width."""
        self._window.restore(state["window"])
        self._projection, self._centre = np.ascontiguousarray(state["projection"]), np.asarray(state["centre"])


def _hashes(width: int) -> tuple[Integers, Array]:
    """Return a bucket and a sign for each coordinate, the same in every run."""
    random = np.random.default_rng(_SEED)
    return random.integers(0, _SKETCH, size=width), random.choice([-1.0, 1.0], size=width)
