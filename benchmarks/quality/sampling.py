"""Work chains and references: independent draws, NUTS (numpyro), random walk.

A `Problem` is a target that can be sampled. Log densities and scores are functions of many positions (n, d).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

DRAWS = 10_000  # in a work chain
EXACT_REFERENCE = 40_000  # independent draws
NUTS_REFERENCE = (4, 5_000, 3)  # chains, kept draws per chain, thinning
WARMUP = 1_000


class Chain(NamedTuple):
    """Work chains (chains, n, d) with their scores; log densities (chains, n) if they are known."""

    draws: Array
    scores: Array
    log_densities: Array | None = None


class Problem(NamedTuple):
    """A target that can be sampled.

    ``chain`` and ``reference`` are functions of the seed of the work chain. ``log_density`` and ``score`` are None if
    only draws with their scores are known.
    """

    chain: Callable[[int], Chain]
    reference: Callable[[int], Array]
    log_density: Function | None = None
    score: Function | None = None


def with_scores(draws: Array, log_density: Function, score: Function) -> Chain:
    """Evaluate a target along chains (chains, n, d)."""
    flat = draws.reshape(-1, draws.shape[-1])
    values, gradients = np.asarray(log_density(flat)), np.asarray(score(flat))
    return Chain(draws, gradients.reshape(draws.shape), values.reshape(draws.shape[:2]))


def seed_of(seed: int) -> np.random.Generator:
    """Random numbers of a work chain. Seeds of references are negative."""
    return np.random.default_rng([seed + 1000, 15])


# -- independent draws -------------------------------------------------------------------------------------------------


def exact(
    log_density: Function,
    score: Function,
    draw: Callable[[np.random.Generator, int], Array],
    draws: int = DRAWS,
) -> Problem:
    """Independent draws as work chain and as reference."""
    return Problem(
        lambda seed: with_scores(draw(seed_of(seed), draws)[None], log_density, score),
        lambda _: draw(seed_of(-1), EXACT_REFERENCE),
        log_density,
        score,
    )


# -- NUTS --------------------------------------------------------------------------------------------------------------


def jax_functions(log_density: Callable[[Any], Any]) -> tuple[Function, Function]:
    """Log density and score of many positions, compiled by JAX in double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    many = jax.jit(jax.vmap(log_density))
    gradients = jax.jit(jax.vmap(jax.grad(log_density)))
    return lambda x: np.asarray(many(x)), lambda x: np.asarray(gradients(x))


def nuts(
    log_density: Callable[[Any], Any],
    dim: int,
    *,
    chains: int = 1,
    draws: int = DRAWS,
    accept: float = 0.8,
) -> Problem:
    """NUTS for work chain and reference; ``log_density`` is a JAX function of one position."""
    many, gradients = jax_functions(log_density)

    def long_run(_: int) -> Array:
        number, kept, thinning = NUTS_REFERENCE
        found = run_nuts(log_density, dim, -1, chains=number, draws=kept, thinning=thinning, accept=max(accept, 0.9))
        return found.reshape(-1, dim)

    def chain(seed: int) -> Chain:
        found = run_nuts(log_density, dim, seed, chains=chains, draws=draws, accept=accept)
        return with_scores(found, many, gradients)

    return Problem(chain, long_run, many, gradients)


def in_coordinates(log_density: Callable[[Any], Any], to_position: Function, sampled: Problem) -> Problem:
    """Change coordinates: ``to_position`` transforms the draws of ``sampled``. Seeds of work chains are shifted by 100.

    ``log_density`` is a JAX function of one position in the new coordinates, in which NUTS would not mix.

    Returns
    -------
    Problem
        The problem in the new coordinates.
    """
    many, gradients = jax_functions(log_density)

    def chain(seed: int) -> Chain:
        draws = sampled.chain(seed + 100).draws
        return with_scores(to_position(draws[0])[None], many, gradients)

    return Problem(chain, lambda seed: to_position(sampled.reference(seed)), many, gradients)


def run_nuts(
    log_density: Callable[[Any], Any],
    dim: int,
    seed: int,
    *,
    chains: int,
    draws: int,
    accept: float,
    thinning: int = 1,
) -> Array:
    """Draws (chains, draws, dim) after a warmup, from starts near 0."""
    import jax
    from numpyro.infer import MCMC, NUTS

    starts = 0.5 * seed_of(seed).normal(size=(chains, dim))
    kernel = NUTS(potential_fn=lambda position: -log_density(position), target_accept_prob=accept)
    sampler = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=draws * thinning,
        num_chains=chains,
        thinning=thinning,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed + 1000), init_params=starts if chains > 1 else starts[0])
    return np.asarray(sampler.get_samples(group_by_chain=True), dtype=np.float64)


# -- random walk -------------------------------------------------------------------------------------------------------


def walk(
    log_density: Function,
    score: Function,
    reference: Callable[[int], Array],
    start: Callable[[np.random.Generator], Array],
    step: float,
    *,
    draws: int = 2 * DRAWS,
    thinning: int = 1,
) -> Problem:
    """Random walk as work chain, with everything from its first step, and a reference that is given."""

    def chain(seed: int) -> Chain:
        found = run_walk(log_density, score, start(seed_of(seed)), step, seed, draws * thinning)[::thinning]
        return with_scores(found[None], log_density, score)

    return Problem(chain, reference, log_density, score)


def run_walk(log_density: Function, score: Function, start: Array, step: float, seed: int, steps: int) -> Array:
    """Positions (steps, d) of random-walk Metropolis."""
    from steinstream.samplers import RandomWalk
    from steinstream.targets import Functions

    single = Functions(lambda x: float(log_density(x[None])[0]), lambda x: np.asarray(score(x[None])[0]))
    sampler = RandomWalk(single, step)
    return sampler.sample(sampler.init(start, seed + 1000), steps)[1].draws


def run_walks(log_densities: Function, starts: Array, factor: Array, seed: int, steps: int, thinning: int) -> Array:
    """Run random walks together, with proposals of covariance factor factor^T.

    ``log_densities`` is evaluated at the positions (chains, d) of all chains. Every ``thinning``-th step is kept.

    Returns
    -------
    array
        Positions (chains, steps, d).
    """
    rng = seed_of(seed)
    positions, values = starts.copy(), log_densities(starts)
    kept = np.empty((steps, *starts.shape))
    for step in range(steps * thinning):
        proposals = positions + rng.normal(size=starts.shape) @ factor.T
        proposed = log_densities(proposals)
        accepted = np.log(rng.random(len(starts))) < proposed - values
        positions = np.where(accepted[:, None], proposals, positions)
        values = np.where(accepted, proposed, values)
        if (step + 1) % thinning == 0:
            kept[step // thinning] = positions
    return kept.transpose(1, 0, 2)
