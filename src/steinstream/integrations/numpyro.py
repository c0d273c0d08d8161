"""NumPyro: run chains in compiled chunks and thin each chunk, without storing the chains.

The thinner receives unconstrained draws. NumPyro's ``z_grad`` is the gradient of the potential, which is minus the log
density including the Jacobian of the transforms, so it is minus the score. Constrained and deterministic sites are
computed for the kept draws only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain as joined
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray
from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, need, result_of
from steinstream.integrations._jax import Chunks, Transition, as_block, as_variables, entry_names, flatten, unflatten
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig


class _Model(NamedTuple):
    """Kernel of a run and the arguments of its model."""

    kernel: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def sample(
    mcmc: Any,
    rng_key: Any,
    *args: Any,
    model_kwargs: Mapping[str, Any] | None = None,
    init_params: Any = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, ArrayLike] | None = None,
    chunk: int = 1000,
    thinner: Thinner | None = None,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Run a ``numpyro.infer.MCMC`` and return the kept draws.

    Kernel, warm-up, number of samples and number of chains are those of ``mcmc``, and the same key gives the same draws
    as ``mcmc.run``. Chains run one after another, or together with ``chain_method="vectorized"``. They share one
    thinner; ids are (chain, draw).

    Parameters
    ----------
    mcmc : numpyro.infer.MCMC
        The sampler. Its kernel must have a gradient (NUTS, HMC, BarkerMH), or a potential that can be differentiated
        (SA).
    rng_key : jax.random.key
        Random key.
    *args
        Arguments of the model.
    model_kwargs : mapping, optional
        Keyword arguments of the model.
    init_params : pytree, optional
        Initial unconstrained parameters, as in ``mcmc.run``.
    dims : mapping, optional
        Names of dimensions by site, as in ArviZ. Default: the names of the plates.
    coords : mapping, optional
        Coordinates by dimension, as in ArviZ.
    chunk : int, default 1000
        Number of draws of each chain that run in one compiled call; two chunks are in memory.
    thinner : Thinner, optional
        Thinner to continue with; new draws continue its indices. After an interruption, ``thinner.kept`` holds the kept
        draws so far. Default: a new one.
    config : ThinConfig, optional
        Settings of a new thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The default preconditioner is
        `Streaming`.

    Returns
    -------
    Kept
        The kept draws. ``variables`` holds the sites of the model.

    Raises
    ------
    InputError
        If ``mcmc`` is not an MCMC object, drops draws itself, or has no gradient.

    Notes
    -----
    JAX computes in float32 unless ``jax_enable_x64`` is set. The draws of the warm-up are not passed to the thinner.

    """
    _require_thinnable(mcmc)
    model = _Model(copy(mcmc.sampler), args, dict(model_kwargs or {}))  # a copy has no state of an earlier run
    chains = _initial_states(mcmc, model, rng_key, init_params)
    first = next(chains)
    together = first[0] is None
    position = _position(model.kernel, first[1], together)
    thinner = live_thinner(flatten(position).size, thinner=thinner, config=config, settings=settings)
    chunks = Chunks(_transition(model, first[1], together), chunk)
    bar = need("tqdm.auto", "numpyro").tqdm(
        total=mcmc.num_samples * mcmc.num_chains, disable=not mcmc.progress_bar, unit=" draws"
    )
    with bar:
        for chain, state in joined([first], chains):
            for draws, scores in chunks.run(state, mcmc.num_warmup, mcmc.num_samples):
                block = as_block(draws, scores, chain, thinner)
                thinner.extend(block.draws, block.scores, ids=block.ids)
                bar.update(len(block.ids))
                bar.set_postfix_str(f"kept {len(thinner)}, KSD {thinner.ksd:.3g}", refresh=False)
    kept = result_of(thinner, entry_names(position))
    constrain = need("jax", "numpyro").vmap(model.kernel.postprocess_fn(model.args, model.kwargs))
    named = _variable_maker({**_plates(model), **dict(dims or {})}, dict(coords or {}))
    kept.variables.update(as_variables(constrain(unflatten(position, kept.draws)), named))
    return kept


def _require_thinnable(mcmc: Any) -> None:
    """Raise an `InputError` if the draws of an MCMC object cannot be thinned."""
    if not isinstance(mcmc, need("numpyro.infer", "numpyro").MCMC):
        raise InputError(
            f"Expected a numpyro.infer.MCMC, got {type(mcmc).__name__}.",
            "Wrap the kernel: MCMC(NUTS(model), num_warmup=1000, num_samples=10000).",
        )
    if mcmc.thinning != 1:
        raise InputError(f"The MCMC keeps only every {mcmc.thinning}th draw.", "Create it without thinning.")
    if mcmc.sampler.is_ensemble_kernel:
        raise InputError(
            f"{type(mcmc.sampler).__name__} is an ensemble kernel and has no score.", "Use NUTS, HMC, BarkerMH or SA."
        )


def _initial_states(mcmc: Any, model: _Model, rng_key: Any, init_params: Any) -> Iterator[tuple[int | None, Any]]:
    """Yield each chain with its initial state; or None with the states of all chains, if they run together."""
    jax, util = need("jax", "numpyro"), need("numpyro.util", "numpyro")
    kernel, warmup = model.kernel, mcmc.num_warmup
    init_params = jax.tree.map(jax.numpy.asarray, init_params)
    if mcmc.num_chains == 1:
        yield 0, kernel.init(rng_key, warmup, init_params, model.args, model.kwargs)
        return
    keys = jax.random.split(rng_key, mcmc.num_chains) if util.is_prng_key(rng_key) else rng_key
    if mcmc.chain_method == "vectorized":
        yield None, kernel.init(keys, warmup, init_params, model.args, model.kwargs)
        return
    for chain in range(mcmc.num_chains):
        start = jax.tree.map(lambda x, chain=chain: x[chain], init_params)
        yield chain, kernel.init(keys[chain], warmup, start, model.args, model.kwargs)


def _variable_maker(
    dims: Mapping[str, Sequence[str | None]], coords: Mapping[str, ArrayLike]
) -> Callable[[str, AnyArray], Variable]:
    """Return a function that makes a variable with names of dimensions and coordinates."""

    def make(name: str, values: AnyArray) -> Variable:
        own = [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]
        given = [*dims.get(name, ())][: len(own)]
        given += [None] * (len(own) - len(given))
        axes = tuple(axis or default for axis, default in zip(given, own, strict=True))
        return Variable(values, axes, {axis: np.asarray(coords[axis]) for axis in axes if axis in coords})

    return make


def _transition(model: _Model, state: Any, together: bool) -> Transition:
    """Return one step of a chain, or of all chains, with the draw and its score as outputs."""
    jax, kernel = need("jax", "numpyro"), model.kernel
    has_gradient = hasattr(state, "z_grad")
    gradient: Any = None if has_gradient else jax.grad(_potential(model))

    def output(state: Any) -> tuple[Any, Any]:
        position = getattr(state, kernel.sample_field)
        return flatten(position), -flatten(state.z_grad if has_gradient else gradient(position))

    def transition(state: Any, _: Any) -> tuple[Any, tuple[Any, Any]]:
        state = kernel.sample(state, model.args, model.kwargs)
        return state, _output_of_each(output, kernel, state) if together else output(state)

    return transition


def _output_of_each(output: Any, kernel: Any, state: Any) -> Any:
    """Return the outputs of chains that run together, from the parts of the state that have one entry per chain."""
    parts = {name: getattr(state, name) for name in (kernel.sample_field, "z_grad") if hasattr(state, name)}
    return need("jax", "numpyro").vmap(lambda each: output(SimpleNamespace(**each)))(parts)


def _potential(model: _Model) -> Any:
    """Return the potential of a kernel that does not compute its gradient."""
    kernel = model.kernel
    make, potential = getattr(kernel, "_potential_fn_gen", None), getattr(kernel, "_potential_fn", None)
    if make is not None:
        return make(*model.args, **model.kwargs)
    if potential is not None:
        return potential
    raise InputError(
        f"{type(kernel).__name__} has neither a gradient nor a potential.",
        "Use NUTS, HMC, BarkerMH or SA; discrete sites that are sampled, not marginalised, have no score.",
    )


def _position(kernel: Any, state: Any, together: bool) -> Any:
    """Return the position of a chain, or of the first one if several run together."""
    position = getattr(state, kernel.sample_field)
    return need("jax", "numpyro").tree.map(lambda x: x[0], position) if together else position


def _plates(model: _Model) -> dict[str, list[str | None]]:
    """Return the plates along the dimensions of each site, None for dimensions without a plate."""
    function = getattr(model.kernel, "model", None)
    if function is None:
        return {}
    jax, handlers = need("jax", "numpyro"), need("numpyro.handlers", "numpyro")
    found: dict[str, list[str | None]] = {}

    def trace() -> None:
        traced = handlers.trace(handlers.seed(function, 0)).get_trace(*model.args, **model.kwargs)
        for name, site in traced.items():
            frames = site.get("cond_indep_stack") or ()
            if site["type"] not in ("sample", "deterministic") or not frames:
                continue
            shape = np.shape(site["value"])
            event = site["fn"].event_dim if site["type"] == "sample" else len(shape) - max(-f.dim for f in frames)
            axes: list[str | None] = [None] * len(shape)
            for frame in frames:
                axis = len(shape) - event + frame.dim
                if 0 <= axis < len(shape) and shape[axis] == frame.size:
                    axes[axis] = frame.name
            found[name] = axes

    jax.eval_shape(trace)  # shapes only: nothing is computed
    return found
