"""BlackJAX: a chain runs in compiled chunks, each is thinned while the next is on its way, and none is stored.

Where the state of a kernel carries ``logdensity_grad`` (HMC, NUTS, MALA, Barker, MCLMC), that is the score. Where it
does not (random walks, SGLD), the score is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steinstream.errors import InputError
from steinstream.integrations._common import chosen_thinner, need, what_is_kept
from steinstream.integrations._jax import Chunks, Transition, as_variables, entry_names, flat, side_by_side, unflatten
from steinstream.result import Kept
from steinstream.thinner import Thinner


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
    thinner: Thinner | None = None,
    chunk: int = 1000,
    progress: Callable[[float], None] | None = None,
    **settings: Any,
) -> Kept:
    """Run a chain and keep only the draws that matter. Positions may be any tree of arrays.

    Draw i uses ``jax.random.split(rng_key, num_samples)[i]``, so the draws are those of a ``lax.scan`` over these keys;
    with several chains each step splits its key once more, one for each. Ids are (chain, draw). JAX computes in float32
    unless ``jax_enable_x64`` is set.

    Parameters
    ----------
    algorithm
        What BlackJAX makes (``blackjax.nuts(...)``), or a function (rng_key, state) -> (state, info), or -> state.
    state
        The state to begin with, after the warm-up. With ``num_chains`` above 1, the states of all chains, stacked.
    num_samples, rng_key, num_chains
        Draws of each chain, the key they are made from, and how many chains run side by side.
    logdensity_fn
        To be differentiated, where the state has no gradient.
    minibatch_score
        A function (rng_key, position) -> estimate of the score from a minibatch, where the full one is too dear. It is
        called twice a draw: draws are kept by the first, and ``kept.ksd_debiased`` is computed from the second.
    transform
        A function of one position -> dict of the variables a user wants to see. Without it, they are the position's.
    thinner, settings
        A thinner to go on with, which numbers the draws on, or the settings of a new one: ``size=200``, say.
    chunk
        Draws of each chain in memory at once, twice.
    progress
        Is called with the share done, from 0 to 1.

    """
    jax = need("jax", "blackjax")
    together = num_chains > 1
    position = _position(state)
    if together:
        position = jax.tree.map(lambda x: x[0], position)
    score = _score(state, logdensity_fn, minibatch_score)
    step = _step(getattr(algorithm, "step", algorithm), score, rng_key, num_chains)
    thinner = chosen_thinner(thinner, flat(position).size, settings)
    done = 0
    for draws, scores, *more in Chunks(step, chunk).run(state, 0, num_samples):
        chain = None if together else 0
        block = side_by_side(draws, scores, chain, thinner)
        check = side_by_side(draws, more[0], chain, thinner).scores if more else None
        thinner.extend(block.draws, block.scores, ids=block.ids, second_scores=check)
        done += len(draws)
        if progress is not None:
            progress(done / num_samples)
    about = {"scores": "minibatch"} if minibatch_score is not None else {}
    kept = what_is_kept(thinner, entry_names(position), **about)
    values = unflatten(position, kept.draws)
    kept.variables.update(as_variables(values if transform is None else jax.vmap(transform)(values)))
    return kept


def _position(state: Any) -> Any:
    """Where a chain is: SGLD's state is the position itself."""
    return getattr(state, "position", state)


def _score(state: Any, logdensity_fn: Any, minibatch_score: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    """The scores that go with a state: one, or two where they are noisy."""
    jax = need("jax", "blackjax")
    if logdensity_fn is not None and minibatch_score is not None:
        raise InputError("Both logdensity_fn and minibatch_score were given.", "Give one of them.")
    if minibatch_score is not None:

        def noisy(key: Any, state: Any) -> tuple[Any, ...]:
            return tuple(minibatch_score(one, _position(state)) for one in jax.random.split(jax.random.fold_in(key, 1)))

        return noisy
    if logdensity_fn is not None:
        gradient = jax.grad(logdensity_fn)
        return lambda _, state: (gradient(_position(state)),)
    if not hasattr(state, "logdensity_grad"):
        raise InputError(
            f"The state, a {type(state).__name__}, carries no logdensity_grad.",
            "Give logdensity_fn, from which the score is computed, or for stochastic gradients minibatch_score.",
        )
    return lambda _, state: (state.logdensity_grad,)


def _step(kernel: Any, score: Any, rng_key: Any, chains: int) -> Transition:
    """One step of a chain, or of all, which leaves the draw and its scores."""
    jax = need("jax", "blackjax")

    def one(key: Any, state: Any) -> tuple[Any, tuple[Any, ...]]:
        after = kernel(key, state)
        state = after[0] if type(after) is tuple else after  # with info, or without
        return state, (flat(_position(state)), *map(flat, score(key, state)))

    def step(state: Any, number: Any) -> tuple[Any, tuple[Any, ...]]:
        key = jax.random.fold_in(rng_key, number)
        if chains == 1:
            return one(key, state)
        result: tuple[Any, tuple[Any, ...]] = jax.vmap(one)(jax.random.split(key, chains), state)
        return result

    return step
