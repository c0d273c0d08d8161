"""BlackJAX: run a chain in compiled chunks and thin each chunk, without storing the chain.

If the state of a kernel has ``logdensity_grad`` (HMC, NUTS, MALA, Barker, MCLMC), that is the score. Otherwise (random
walks, SGLD) the score is computed if a log density is given, and the draws are thinned without scores if not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import (
    live_thinner,
    log_missing_scores,
    need,
    result_of,
    warn_if_sequential,
    with_source,
)
from steinstream.integrations._jax import (
    Chunks,
    Transition,
    as_block,
    as_variables,
    entry_names,
    flatten,
    nothing,
    unflatten,
)
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig


def sample(
    algorithm: Any,
    state: Any,
    num_samples: int,
    rng_key: Any,
    *,
    num_chains: int | None = None,
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
    num_chains : int, optional
        Number of chains that run together. Default: that of the stacked log densities in ``state``; 1 if a state has
        no log density.
    logdensity_fn : callable, optional
        Log density of a position, which is differentiated if the state has no gradient. Without it, such draws are
        thinned without scores.
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
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Returns
    -------
    Kept
        The kept draws, with ids (chain, draw). ``draws`` holds the numbers of the positions, in the order of the
        pytree. ``settings["source"]`` holds R-hat, ESS and the number of divergences of the chains.

    Raises
    ------
    InputError
        If both ``logdensity_fn`` and ``minibatch_score`` are given, or ``num_chains`` differs from the stacked states.

    Notes
    -----
    JAX computes in float32 unless ``jax_enable_x64`` is set.
    """
    jax = need("jax", "blackjax")
    if type(state) in (list, tuple) and any(hasattr(one, "position") for one in state):
        raise InputError(
            f"The state is a {type(state).__name__} of {len(state)} states.",
            "Stack the states of all chains: jax.vmap(algorithm.init)(positions).",
        )
    chains = _chain_count(state, num_chains)
    position = _position(state)
    if chains is not None:
        position = jax.tree.map(lambda x: x[0], position)
    score = _score(state, logdensity_fn, minibatch_score)
    if score is None:
        log_missing_scores("To add scores, pass logdensity_fn, or minibatch_score for stochastic gradients.")
    transition = _transition(getattr(algorithm, "step", algorithm), score, rng_key, chains)
    _require_state(transition, state)
    thinner = live_thinner(flatten(position).size, thinner=thinner, config=config, settings=settings)
    remedy = "Run all chains together, or use one thinner per chain and merge the kept sets with ss.merge."
    warn_if_sequential(thinner, range(chains or 1), remedy)
    convergence = RunningConvergence(thinner.dim)
    done = 0
    for draws, scores, second_scores, diverging in Chunks(transition, chunk).run(state, 0, num_samples):
        if chains is None:
            draws, scores = draws[:, None], scores[:, None]
        block = as_block(draws, scores, thinner)
        thinner.extend(
            block.draws,
            block.scores if block.has_scores else None,
            ids=block.ids,
            second_scores=second_scores.reshape(block.draws.shape) if second_scores.size else None,
        )
        convergence.add(block.ids, block.draws, diverging if diverging.size else None)
        done += len(draws)
        if progress is not None:
            progress(done / num_samples)
    kept = with_source(result_of(thinner, entry_names(position)), "blackjax", convergence)
    if minibatch_score is not None:
        kept = replace(kept, settings={**kept.settings, "scores": "minibatch"})
    values = unflatten(position, kept.draws)
    kept.variables.update(as_variables(values if transform is None else jax.vmap(transform)(values)))
    return kept


def _position(state: Any) -> Any:
    """Return the position of a state; the state of SGLD is the position itself."""
    return getattr(state, "position", state)


def _require_state(transition: Transition, state: Any) -> None:
    """Raise an `InputError` if the algorithm cannot start from the state, for example because it is a position."""
    if hasattr(state, "position"):
        return
    try:
        need("jax", "blackjax").eval_shape(transition, state, 0)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"The algorithm cannot start from a {type(state).__name__}: {error}.",
            "Pass a state, algorithm.init(position); for several chains jax.vmap(algorithm.init)(positions).",
        ) from None


def _chain_count(state: Any, num_chains: int | None) -> int | None:
    """Return the number of chains whose states are stacked; None if the state is that of one chain."""
    shape = getattr(getattr(state, "logdensity", None), "shape", None)
    if shape is None:  # SGLD, for example, whose state is the position
        if num_chains is None or num_chains == 1:
            return None
        leaves = need("jax", "blackjax").tree.leaves(state)
        stacked = num_chains if all(leaf.ndim and len(leaf) == num_chains for leaf in leaves) else None
    else:
        stacked = shape[0] if shape else None
    if num_chains not in (None, stacked or 1):
        found = "one chain" if stacked is None else f"{stacked} chains"
        raise InputError(
            f"num_chains is {num_chains}, but the state is that of {found}.",
            "Stack the states of all chains: jax.vmap(algorithm.init)(positions).",
        )
    return stacked


#: Function of key and state that returns the score, and a second one if it is noisy.
_Score = Callable[[Any, Any], tuple[Any, Any]]


def _score(state: Any, logdensity_fn: Any, minibatch_score: Any) -> _Score | None:
    """Return the function that computes the scores; None if there is none."""
    jax = need("jax", "blackjax")
    if logdensity_fn is not None and minibatch_score is not None:
        raise InputError("Both logdensity_fn and minibatch_score were given.", "Pass one of them.")
    if minibatch_score is not None:

        def noisy(key: Any, state: Any) -> tuple[Any, Any]:
            first, second = jax.random.split(jax.random.fold_in(key, 1))
            return minibatch_score(first, _position(state)), minibatch_score(second, _position(state))

        return noisy
    if logdensity_fn is not None:
        gradient = jax.grad(logdensity_fn)
        return lambda _, state: (gradient(_position(state)), nothing())
    if hasattr(state, "logdensity_grad"):
        return lambda _, state: (state.logdensity_grad, nothing())
    return None


def _transition(kernel: Any, score: _Score | None, rng_key: Any, chains: int | None) -> Transition:
    """Return one step of a chain, or of all chains: draw, score, second score, and whether the step diverged."""
    jax = need("jax", "blackjax")

    def one(key: Any, state: Any) -> tuple[Any, tuple[Any, ...]]:
        after = kernel(key, state)
        state, info = after[:2] if type(after) is tuple else (after, None)  # (state, info), or a state
        scores = (nothing(), nothing()) if score is None else score(key, state)
        diverging = getattr(info, "is_divergent", None)
        return state, (
            flatten(_position(state)),
            *map(flatten, scores),
            nothing() if diverging is None else diverging,
        )

    def transition(state: Any, number: Any) -> tuple[Any, tuple[Any, ...]]:
        key = jax.random.fold_in(rng_key, number)
        if chains is None:
            return one(key, state)
        result: tuple[Any, tuple[Any, ...]] = jax.vmap(one)(jax.random.split(key, chains), state)
        return result

    return transition
