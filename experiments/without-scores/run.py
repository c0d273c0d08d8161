"""Accuracy of thinning without scores, with a proxy: ``python experiments/without-scores/run.py``.

The scores of the targets are known, so that KSD to the target can be measured. 100 of 20 000 independent draws are
kept. One minute.
"""

from __future__ import annotations

import numpy as np
from scipy.cluster.vq import kmeans2

import steinstream as ss
from steinstream.targets import Mixture

DRAWS, SIZE = 20_000, 100


def banana(n, rng):
    """Return draws, scores and log densities of a curved Gaussian."""
    a, b = rng.normal(size=(2, n))
    bend = 0.7 * (a**2 - 1.0)
    x = np.column_stack([a, 0.5 * b + bend])
    residual = (x[:, 1] - bend) / 0.25
    return x, np.column_stack([-a + 1.4 * a * residual, -residual]), -0.5 * a**2 - 0.5 * b**2


def log_gamma(n, rng):
    """Return draws, scores and log densities of logarithms of gamma variables, which have one long tail."""
    x = np.log(rng.gamma(2.0, size=(n, 4)))
    return x, 2.0 - np.exp(x), (2.0 * x - np.exp(x)).sum(axis=1)


def student(n, rng):
    """Return draws, scores and log densities of a Student distribution, which has heavy tails."""
    x = rng.standard_t(4, size=(n, 2))
    return x, -5.0 * x / (4.0 + x**2), -2.5 * np.log1p(x**2 / 4.0).sum(axis=1)


def two_modes(n, rng):
    """Return draws, scores and log densities of a mixture of two Gaussians."""
    target = Mixture([[-1.5, 0.0], [1.5, 0.0]], covariances=1.0, weights=[0.3, 0.7])
    x, scores = target.sample(n, seed=int(rng.integers(1 << 30)))
    return x, scores, target.log_densities(x)


def fitted_mixture(x, components, rounds=60):
    """Fit a Gaussian mixture by expectation maximisation, started with a clustering."""
    n, dim = x.shape
    probabilities = np.eye(components)[kmeans2(x, components, seed=1, minit="++")[1]]
    for _ in range(rounds):
        mass = probabilities.sum(axis=0) + 1e-9
        means = probabilities.T @ x / mass[:, None]
        residuals = x[:, None] - means
        covariances = np.einsum("nk,nki,nkj->kij", probabilities, residuals, residuals) / mass[:, None, None]
        covariances += 1e-3 * np.eye(dim)
        log = np.log(mass / n) - 0.5 * np.linalg.slogdet(covariances)[1]
        log = log - 0.5 * np.einsum("nki,kij,nkj->nk", residuals, np.linalg.inv(covariances), residuals)
        probabilities = np.exp(log - np.logaddexp.reduce(log, axis=1)[:, None])
    return Mixture(means, covariances, mass / n)


def main() -> None:
    """Measure and print the table."""
    print("| target | method | clipped | KSD to the target | error of mean | error of sd |")
    print("|---|---|---|---|---|---|")
    for target in (two_modes, student, log_gamma, banana):
        rng = np.random.default_rng(5)
        x, scores, log_density = target(DRAWS, rng)
        many = target(10 * DRAWS, rng)[0]
        six = fitted_mixture(x[DRAWS // 2 :: 5], 6)
        best = ss.thin(x, scores, size=SIZE)
        methods = {
            "every 200th draw": x[:: DRAWS // SIZE],
            "scores": best,
            "Gaussian alone": ss.thin(x, proxy="gaussian", size=SIZE),
            "Gaussian, log density": ss.thin(x, log_density=log_density, proxy="gaussian", size=SIZE),
            "the same, clip=2": ss.thin(x, log_density=log_density, proxy="gaussian", clip=2.0, size=SIZE),
            "the same, clip=10": ss.thin(x, log_density=log_density, proxy="gaussian", clip=10.0, size=SIZE),
            "six Gaussians, log density": ss.thin(x, log_density=log_density, proxy=six, size=SIZE),
        }
        for name, kept in methods.items():
            rows = kept.ids[:, 1] if isinstance(kept, ss.Kept) else np.arange(0, DRAWS, DRAWS // SIZE)
            clipped = kept.settings.get("clipped") if isinstance(kept, ss.Kept) else None
            value = ss.ksd(x[rows], scores[rows], preconditioner=best.preconditioner)
            mean = np.abs((x[rows].mean(axis=0) - many.mean(axis=0)) / many.std(axis=0)).max()
            spread = np.abs(x[rows].std(axis=0) / many.std(axis=0) - 1.0).max()
            fraction = "" if clipped is None else f"{clipped:.1%}"
            print(f"| {target.__name__} | {name} | {fraction} | {value:.3f} | {mean:.2f} sd | {spread:.0%} |")


if __name__ == "__main__":
    main()
