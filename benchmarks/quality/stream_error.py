"""How well the summary represents the stream: ``python -m benchmarks.quality.stream_error``.

Prints the MMD, by the base kernel of the objective, between the stream, its summary, the kept draws and evenly spaced
draws, and the estimated error of the summary, `Kept.stream_error`: means over three chains of 10 000 or 20 000 draws,
of which 200 are kept. The table is in docs/objective.md.
"""

from __future__ import annotations

import numpy as np

import steinstream as ss
from benchmarks.quality.metrics import mean_over_pairs, spaced
from benchmarks.quality.sampling import Array
from benchmarks.quality.targets import SEEDS, TARGETS
from benchmarks.table import markdown

NAMES, SIZE = ("banana", "gauss-20", "mixture-2", "t-5", "slow-gauss-20"), 200


def main() -> None:
    """Print the table."""
    columns = {name: np.mean([_distances(name, seed) for seed in SEEDS], axis=0) for name in NAMES}
    rows = ("kept draws to summary", "kept draws to chain", "summary to chain", "summary to chain, estimated")
    rows += ("as many evenly spaced draws to chain", f"{SIZE} evenly spaced draws to chain")
    print(markdown([{"MMD": row} | {name: f"{columns[name][i]:.4f}" for name in NAMES} for i, row in enumerate(rows)]))


def _distances(name: str, seed: int) -> list[float]:
    draws, scores, _ = (each[0] for each in TARGETS[name].build(None).chain(seed))
    kept = ss.thin(draws, scores, size=SIZE)
    draws = draws[kept.burn_in_ends.get(0, 0) :]
    assert kept.stream_summary is not None
    to_kernel = kept.preconditioner.apply_to_draws
    chain, few, summary = map(to_kernel, (draws, kept.draws, kept.stream_summary.draws))
    weights = kept.stream_summary.weights / kept.stream_summary.weights.sum()
    within = _mean_kernel(chain, chain).mean()

    def to_chain(points: Array, w: Array | None = None) -> float:
        w = np.full(len(points), 1 / len(points)) if w is None else w
        square = w @ _mean_kernel(points, points, w) - 2 * w @ _mean_kernel(points, chain) + within
        return float(np.sqrt(max(square, 0.0)))

    spread = [chain[spaced(len(chain), count)] for count in (len(summary), SIZE)]
    assert kept.stream_error is not None
    return [kept.mmd, to_chain(few), to_chain(summary, weights), kept.stream_error, *map(to_chain, spread)]


def _mean_kernel(x: Array, y: Array, weights: Array | None = None) -> Array:
    return mean_over_pairs(x, y, 1.0, weights).kernel


if __name__ == "__main__":
    main()
