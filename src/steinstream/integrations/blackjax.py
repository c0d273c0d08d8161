"""BlackJAX: run a chain in compiled chunks and thin each chunk, without storing the chain.

If the state of a kernel has ``logdensity_grad`` (HMC, NUTS, MALA, Barker, MCLMC), that is the score. Otherwise (random
walks, SGLD) the score is computed in addition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, need, result_of
from steinstream.integrations._jax import Chunks, Transition, as_block, as_variables, entry_names, flatten, unflatten
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig


def sample(
    algorithm: Any,
    state: Any,
    num_samples: int,
    rng_key: Any,
    *,
    num_chains: int = 1,
    logdensity_fn: Callable[[Any], Any] | None = None,
    minibatch_score: Callable[[Any, Any], Any] | None = None,
    transform: Callable[[Any], Any] | None = None,
    chunk: int = 1000,
    progress: Callable[[float], None] | None = None,
    thinner: Thinner | None = None,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Run a chain and return the kept draws.

    Parameters
    ----------
    algorithm : blackjax.SamplingAlgorithm or callable
        The algorithm, for example ``blackjax.nuts(...)``, or a function (rng_key, state) that returns the next state,
        or a tuple (state, info).
    state : pytree
        Initial state, after the warm-up. With several chains, the stacked states of all chains.
    num_samples : int
        Number of draws of each chain.
    rng_key : jax.random.key
        Random key. Draw i uses ``jax.random.split(rng_key, num_samples)[i]``, so the draws are those of a ``lax.scan``
        over these keys. With several chains, each step splits its key once more.
    num_chains : int, default 1
        Number of chains that run together.
    logdensity_fn : callable, optional
        Log density of a position, which is differentiated if the state has no gradient.
    minibatch_score : callable, optional
        Function (rng_key, position) that estimates the score from a minibatch. It is called twice per draw: the
        selection uses the first estimate, ``kept.ksd_debiased`` is computed from the second.
    transform : callable, optional
        Function of one position that returns a dict of variables. Default: the variables of the position.
    chunk : int, default 1000
        Number of draws of each chain that run in one compiled call; two chunks are in memory.
    progress : callable, optional
        Called after each chunk with the finished fraction, 0 to 1.
    thinner : Thinner, optional
        Thinner to continue with; new draws continue its indices. Default: a new one.
    config : ThinConfig, optional
        Settings of a new thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The default preconditioner is
        `Streaming`.

    Returns
    -------
    Kept
        The kept draws, with ids (chain, draw). ``draws`` holds the numbers of the positions, in the order of the
        pytree.

    Raises
    ------
    InputError
        If the state has no gradient and neither ``logdensity_fn`` nor ``minibatch_score`` is given.

    Notes
    -----
    JAX computes in float32 unless ``jax_enable_x64`` is set.

    """
    jax = need("jax", "blackjax")
    together = num_chains > 1
    position = _position(state)
    if together:
        position = jax.tree.map(lambda x: x[0], position)
    score = _score(state, logdensity_fn, minibatch_score)
    transition = _transition(getattr(algorithm, "step", algorithm), score, rng_key, num_chains)
    thinner = live_thinner(flatten(position).size, thinner=thinner, config=config, settings=settings)
    done = 0
    for draws, scores, *more in Chunks(transition, chunk).run(state, 0, num_samples):
        chain = None if together else 0
        block = as_block(draws, scores, chain, thinner)
        second_scores = as_block(draws, more[0], chain, thinner).scores if more else None
        thinner.extend(block.draws, block.scores, ids=block.ids, second_scores=second_scores)
        done += len(draws)
        if progress is not None:
            progress(done / num_samples)
    kept = result_of(thinner, entry_names(position))
    if minibatch_score is not None:
        kept = replace(kept, settings={**kept.settings, "scores": "minibatch"})
    values = unflatten(position, kept.draws)
    kept.variables.update(as_variables(values if transform is None else jax.vmap(transform)(values)))
    return kept


def _position(state: Any) -> Any:
    """Return the position of a state; the state of SGLD is the position itself."""
    return getattr(state, "position", state)


def _score(state: Any, logdensity_fn: Any, minibatch_score: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Return a function of key and state that returns the score, or two scores if they are noisy."""
    jax = need("jax", "blackjax")
    if logdensity_fn is not None and minibatch_score is not None:
        raise InputError("Both logdensity_fn and minibatch_score were given.", "Pass one of them.")
    if minibatch_score is not None:

        def noisy(key: Any, state: Any) -> tuple[Any, ...]:
            return tuple(minibatch_score(one, _position(state)) for one in jax.random.split(jax.random.fold_in(key, 1)))

        return noisy
    if logdensity_fn is not None:
        gradient = jax.grad(logdensity_fn)
        return lambda _, state: (gradient(_position(state)),)
    if not hasattr(state, "logdensity_grad"):
        raise InputError(
            f"The state, a {type(state).__name__}, has no logdensity_grad.",
            "Pass logdensity_fn, from which the score is computed, or minibatch_score for stochastic gradients.",
        )
    return lambda _, state: (state.logdensity_grad,)


def _transition(kernel: Any, score: Any, rng_key: Any, chains: int) -> Transition:
    """Return one step of a chain, or of all chains, with the draw and its scores as outputs."""
    jax = need("jax", "blackjax")

    def one(key: Any, state: Any) -> tuple[Any, tuple[Any, ...]]:
        after = kernel(key, state)
        state = after[0] if type(after) is tuple else after  # (state, info), or a state
        return state, (flatten(_position(state)), *map(flatten, score(key, state)))

    def transition(state: Any, number: Any) -> tuple[Any, tuple[Any, ...]]:
        key = jax.random.fold_in(rng_key, number)
        if chains == 1:
            return one(key, state)
        result: tuple[Any, tuple[Any, ...]] = jax.vmap(one)(jax.random.split(key, chains), state)
        return result

    return transition
