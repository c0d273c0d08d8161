"""Coordinates, step and noise of SGLD in the plane.

Tempered posterior. In the coordinates z of the plane, the posterior may be hundreds of times longer than wide, and SGLD
would mix slowly. It therefore runs in coordinates u with z = m + A u, where m is the mode nearest to the midpoint of
the curve and A A^T the inverse of the negative Hessian H at m. Minibatch scores use control variates at m. Let V be the
covariance of the minibatch scores in u, one standard deviation from m. A step h increases the variance of the chain by
relative amounts of about h V / 4 and h H / 4. The choice h = 0.8 / (|V| + 2 |H|), with the larger |H| of mode and
start, limits the first to 20 % and the second to 10 %.

Posterior of the authors. As in their code, with learning rate r = 0.3 the step is z + r s / 2 + r e, where s is a
minibatch score without control variates and e standard normal noise. The noise of SGLD has the standard deviation
sqrt(r); with r instead, the chain is that of a target with temperature r. In terms of `steinstream.samplers.SGLD`, this
is a step r^2 with scores that are multiplied by 1 / r.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.network_models.newton import find_mode, negative_hessian
from experiments.runner import ProgressCallback
from steinstream._typing import Array
from steinstream.io import replacing
from steinstream.samplers import SGLD

BATCHES = 20  # minibatches per position from which the noise of the scores is estimated
MIN_CURVATURE = 1e-4  # smallest curvature that is used, relative to the largest
AUTHORS_RATE = 0.3  # learning rate of the authors

NoisyScore = Callable[[Array, np.random.Generator], Array]


@dataclass(frozen=True)
class SGLDSettings:
    """Settings of SGLD: z = origin + root u, a step h of the noise in u, and a factor of the scores.

    Parameters
    ----------
    step : float
        Variance of the noise in u.
    gain : float
        Factor of the scores.
    origin : list of float
        Position z of u = 0.
    root : list of lists
        The matrix A.
    variates : bool
        Whether minibatches use control variates at the origin.
    """

    step: float
    gain: float
    origin: list[float]
    root: list[list[float]]
    variates: bool

    @classmethod
    def tempered(
        cls, posterior: Any, start: Array, minibatch: int, step: float | None, seed: int, progress: ProgressCallback
    ) -> SGLDSettings:
        """Return the settings for a posterior with a mode near ``start``; ``step`` replaces the computed one."""
        generator = np.random.default_rng([seed, 4])
        mode = find_mode(posterior, start, progress)
        curvatures, axes = np.linalg.eigh(negative_hessian(posterior, mode))
        root = axes / np.sqrt(np.maximum(curvatures, MIN_CURVATURE * curvatures.max()))
        noisy_score = posterior.minibatch(minibatch, posterior.control_variates(mode))
        covariances = []
        for position in (*(mode + root.T), *(mode - root.T)):
            scores = [root.T @ noisy_score(position, generator) for _ in range(BATCHES)]
            covariances.append(np.cov(scores, rowvar=False))
            progress(1.0)
        noise = float(np.linalg.norm(np.mean(covariances, axis=0), 2))
        curvature = max(1.0, float(np.linalg.norm(root.T @ negative_hessian(posterior, start) @ root, 2)))
        return cls(step or 0.8 / (noise + 2 * curvature), 1.0, mode.tolist(), root.tolist(), variates=True)

    @classmethod
    def of_the_authors(cls, dim: int) -> SGLDSettings:
        """Return the settings of the authors' code."""
        return cls(AUTHORS_RATE**2, 1 / AUTHORS_RATE, [0.0] * dim, np.eye(dim).tolist(), variates=False)

    @classmethod
    def load(cls, path: Path, compute: Callable[[], SGLDSettings]) -> SGLDSettings:
        """Read the settings from a file; compute and write them if it does not exist."""
        if not path.exists():
            with replacing(path, "w") as file:
                json.dump(asdict(compute()), file, indent=1)
        return cls(**json.loads(path.read_text()))

    def sampler(self, posterior: Any, minibatch: int, record: Any) -> SGLD:
        """Return the sampler in the coordinates u."""
        origin, root = np.array(self.origin), np.array(self.root)
        variates = posterior.control_variates(origin) if self.variates else None
        noisy_score: NoisyScore = posterior.minibatch(minibatch, variates)

        def score(u: Array, generator: np.random.Generator) -> Array:
            return np.asarray(self.gain * (root.T @ noisy_score(origin + root @ u, generator)))

        return SGLD(None, self.step, score, record)

    def from_plane(self, position: Array) -> Array:
        """Return u of a position z."""
        return np.asarray(np.linalg.solve(self.root, position - self.origin), dtype=np.float64)

    def to_plane(self, draws: Array, scores: Array) -> tuple[Array, Array]:
        """Return draws and scores (n, k) in the coordinates z."""
        root = np.array(self.root)
        return self.origin + draws @ root.T, np.linalg.solve(root.T, scores.T).T / self.gain
