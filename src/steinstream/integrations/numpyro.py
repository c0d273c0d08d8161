"""NumPyro: run chains in compiled chunks and thin each chunk, without storing the chains.

The thinner receives unconstrained draws. NumPyro's ``z_grad`` is the gradient of the potential, which is minus the log
density including the Jacobian of the transforms, so it is minus the score. Kernels that sample discrete sites have no
score; their draws are thinned without scores. Constrained and deterministic sites are computed for the kept draws only.

`scores` computes the scores of a finished fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, log_missing_scores, need, result_of, with_source
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
from steinstream.integrations._stored_draws import ScoredDraws, diverging_in
from steinstream.integrations.jax import scores as scores_of_density
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig

_BATCH = 1024  # draws that are differentiated at a time


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
    as ``mcmc.run``. After ``mcmc.warmup``, or with ``mcmc.post_warmup_state`` set, the chains continue from that state
    without another warm-up. Chains run in turns, one chunk each, or together with ``chain_method="vectorized"``. They
    share one thinner, which receives one draw of each chain in turn; ids are (chain, draw).

    Parameters
    ----------
    mcmc : numpyro.infer.MCMC
        The sampler. The score is the gradient of its kernel (NUTS, HMC, BarkerMH), or that of its potential (SA, AIES,
        ESS). Other kernels, such as those for discrete sites, have no score.
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
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Returns
    -------
    Kept
        The kept draws. ``variables`` holds the sites of the model, ``settings["source"]`` R-hat, ESS and the number of
        divergences of the chains.

    Raises
    ------
    InputError
        If ``mcmc`` is not an MCMC object, or drops draws itself.

    Notes
    -----
    JAX computes in float32 unless ``jax_enable_x64`` is set. The draws of the warm-up are not passed to the thinner.
    """
    _require_thinnable(mcmc)
    _reject_model_arguments(mcmc, settings)
    if getattr(mcmc.sampler, "model", None) is not None:
        _require_arguments(mcmc.sampler.model, args, dict(model_kwargs or {}), "sample(mcmc, rng_key{})")
    model = _Model(copy(mcmc.sampler), args, dict(model_kwargs or {}))  # a copy has no state of an earlier run
    states = _initial_states(mcmc, model, rng_key, init_params)
    together = mcmc.num_chains > 1 and mcmc.chain_method == "vectorized"
    position = _position(model.kernel, states[0], together)
    thinner = live_thinner(flatten(position).size, thinner=thinner, config=config, settings=settings)
    chunks = Chunks(_transition(model, states[0], together), chunk)
    convergence = RunningConvergence(thinner.dim)
    skip = mcmc.num_warmup if mcmc.post_warmup_state is None else 0
    bar = need("tqdm.auto", "numpyro").tqdm(
        total=mcmc.num_samples * mcmc.num_chains, disable=not mcmc.progress_bar, unit=" draws"
    )
    with bar:
        for parts in zip(*(chunks.run(state, skip, mcmc.num_samples) for state in states), strict=True):
            # One draw of each chain in turn: a thinner favours chains that it receives first or last.
            stacked = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
            draws, scores, diverging = parts[0] if together else stacked
            block = as_block(draws, scores, thinner)
            thinner.extend(block.draws, block.scores if block.has_scores else None, ids=block.ids)
            convergence.add(block.ids, block.draws, diverging if diverging.size else None)
            bar.update(len(block.ids))
            bar.set_postfix_str(f"kept {len(thinner)}", refresh=False)
    kept = with_source(result_of(thinner, entry_names(position)), "numpyro", convergence)
    constrain = need("jax", "numpyro").vmap(model.kernel.postprocess_fn(model.args, model.kwargs))
    plates = _plates(getattr(model.kernel, "model", None), model.args, model.kwargs)
    named = _variable_maker({**plates, **dict(dims or {})}, dict(coords or {}))
    kept.variables.update(as_variables(constrain(unflatten(position, kept.draws)), named))
    return kept


def get_samples(kept: Kept) -> dict[str, AnyArray]:
    """Return the sites of kept draws, as ``mcmc.get_samples()`` returns those of all draws.

    Parameters
    ----------
    kept : Kept
        Result of `sample`.

    Returns
    -------
    dict
        Name of a site -> values (n, ...), for ``numpyro.infer.Predictive``.
    """
    return {name: variable.values for name, variable in kept.variables.items()}


def print_summary(kept: Kept, prob: float = 0.9) -> None:
    """Print mean, sd, median and a central interval of each site, and the convergence of the chains.

    R-hat and ESS are those of the unconstrained chains, because those of a thinned set have no meaning.

    Parameters
    ----------
    kept : Kept
        Result of `sample`.
    prob : float, default 0.9
        Probability of the interval.
    """
    columns = {
        name + (f"[{','.join(map(str, place))}]" if place else ""): variable.values[(slice(None), *place)]
        for name, variable in kept.variables.items()
        for place in np.ndindex(*variable.values.shape[1:])
    }
    values = np.stack([*columns.values()], axis=1).astype(np.float64)
    limits = (0.5 - prob / 2, 0.5, 0.5 + prob / 2)
    print(replace(kept, draws=values, names=tuple(columns), stream=None, stream_summary=None).summary(limits))
    source = kept.settings.get("source", {})
    print(f"\n{len(kept)} kept of {sum(source.get('draws', [0]))} draws in {len(source.get('draws', []))} chains")
    if "rhat" in source:
        print(
            f"Chains: largest R-hat {source['rhat']:.3f} ({source['rhat_of']}), smallest ESS {source['ess']:.0f} "
            f"({source['ess_of']})"
        )
    if "divergences" in source:
        print(f"Number of divergences: {source['divergences']}")


def scores(
    model: Any, samples: Any, *args: Any, progress: Callable[[float], None] | None = None, **kwargs: Any
) -> ScoredDraws:
    """Compute the scores of a finished fit.

    The stored samples are mapped to unconstrained space. The score is the gradient of the log density there, Jacobian
    included.

    Parameters
    ----------
    model : callable
        The model that was fitted.
    samples : mapping, numpyro.infer.MCMC, xarray.DataTree or arviz.InferenceData
        The samples: the result of ``mcmc.get_samples()`` or of ``mcmc.get_samples(group_by_chain=True)``, or an object
        that has them.
    *args
        Positional arguments of the model.
    progress : callable, optional
        Called with the finished fraction, 0 to 1.
    **kwargs
        Keyword arguments of the model.

    Returns
    -------
    ScoredDraws
        Unconstrained draws and scores, (n, d) or (chains, n, d), for :func:`steinstream.thin`; its method ``thin``
        keeps the sites of the model, and records the divergences if ``samples`` is an object that has them.

    Raises
    ------
    InputError
        If sites are missing, or the model has discrete sites.

    Notes
    -----
    JAX computes in float32 unless ``jax_enable_x64`` is set.
    """
    jax, util = need("jax", "numpyro"), need("numpyro.infer.util", "numpyro")
    stored = _as_samples(samples)
    _require_arguments(model, args, kwargs, "scores(model, samples{})")
    sites = _latent_sites(model, args, kwargs)
    missing = [name for name in sites if name not in stored]
    if missing:
        raise InputError(
            f"The samples have no {', '.join(missing)}, which are sites of the model.",
            "Pass the model that was fitted, and all of its samples."
            if not {*missing} <= {*_parameters_of(model)}
            else "If they are data, pass them: scores(model, samples, "
            f"{', '.join(f'{name}={name}' for name in missing)}).",
        )
    first, shape = next(iter(sites.items()))
    leading = stored[first].shape[: stored[first].ndim - len(shape)]
    wrong = [name for name, shape in sites.items() if stored[name].shape != (*leading, *shape)]
    if len(leading) not in (1, 2) or wrong:
        raise InputError(
            f"The samples of {', '.join(wrong or [first])} do not have the shape (n, ...) or (chains, n, ...).",
            "Pass mcmc.get_samples(), or mcmc.get_samples(group_by_chain=True), and the arguments of the model.",
        )
    rows = {name: np.reshape(stored[name], (-1, *shape)) for name, shape in sites.items()}
    free = _in_batches(jax, lambda one: util.unconstrain_fn(model, args, kwargs, one), rows)
    scored: Any = scores_of_density(
        lambda z: -util.potential_energy(model, args, kwargs, z), free, batch=_BATCH, progress=progress
    )
    named = _variable_maker(_plates(model, args, kwargs), {})
    variables = {}
    for name, values in stored.items():
        if values.shape[: len(leading)] == leading:
            flat = named(name, values.reshape(-1, *values.shape[len(leading) :]))
            variables[name] = flat._replace(values=values)
    return ScoredDraws(
        scored.draws.reshape(*leading, -1),
        scored.scores.reshape(*leading, -1),
        scored.names,
        variables,
        "numpyro",
        _diverging(samples),
    )


def _in_batches(jax: Any, function: Callable[[Any], Any], rows: Any) -> Any:
    """Apply a function of one draw to all rows of a pytree, some thousand at a time."""
    compiled = jax.jit(lambda tree: jax.lax.map(function, tree, batch_size=_BATCH))
    return jax.tree.map(np.asarray, compiled(rows))


def _as_samples(samples: Any) -> dict[str, AnyArray]:
    if isinstance(samples, need("numpyro.infer", "numpyro").MCMC):
        samples = samples.get_samples(group_by_chain=True)
    posterior = getattr(samples, "posterior", None)
    if posterior is not None:  # a DataTree or an InferenceData
        variables = posterior.data_vars.items()
        return {str(name): array.transpose("chain", "draw", ...).values for name, array in variables}
    if not isinstance(samples, Mapping):
        raise InputError(
            f"Expected samples by site, got {type(samples).__name__}.", "Pass mcmc.get_samples(group_by_chain=True)."
        )
    return {name: np.asarray(values) for name, values in samples.items()}


def _diverging(samples: Any) -> AnyArray | None:
    """Return whether each stored draw ended a divergent transition; None if that is not stored."""
    if isinstance(samples, need("numpyro.infer", "numpyro").MCMC):
        found = samples.get_extra_fields(group_by_chain=True).get("diverging")
        return None if found is None else np.asarray(found)
    return diverging_in(samples)


def _latent_sites(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sites that the model samples."""
    jax, handlers = need("jax", "numpyro"), need("numpyro.handlers", "numpyro")
    sites: dict[str, tuple[int, ...]] = {}
    discrete: list[str] = []

    def trace() -> None:
        for name, site in handlers.trace(handlers.seed(model, 0)).get_trace(*args, **kwargs).items():
            if site["type"] == "sample" and not site["is_observed"]:
                sites[name] = np.shape(site["value"])
                if site["fn"].support.is_discrete:
                    discrete.append(name)

    jax.eval_shape(trace)
    if discrete:
        raise InputError(
            f"The discrete sites {', '.join(discrete)} have no score.",
            "Marginalise them, or thin the samples without scores: ss.thin(draws, size=200).",
        )
    return sites


def _reject_model_arguments(mcmc: Any, settings: Mapping[str, Any]) -> None:
    """Raise an `InputError` if an argument of the model was passed as a setting."""
    known = {one.name for one in fields(ThinConfig)}
    own = _parameters_of(getattr(mcmc.sampler, "model", None))
    names = [name for name in settings if name not in known and name in own]
    if names:
        passed = ", ".join(f'"{name}": {name}' for name in names)
        raise InputError(
            f"{', '.join(names)} is an argument of the model, not a setting.",
            f"Pass keyword arguments of the model as model_kwargs={{{passed}}}.",
        )


def _parameters_of(model: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a model by name; none if they are not known."""
    try:
        return inspect.signature(model).parameters
    except (TypeError, ValueError):
        return {}


def _require_arguments(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: str) -> None:
    """Raise an `InputError` if arguments of the model are missing, or it has no such arguments.

    ``call`` is the user's call, with a place for the missing arguments.
    """
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = signature.bind_partial if not kwargs.keys() - signature.parameters.keys() else None
        bound = {} if given is None or len(args) > len(signature.parameters) else given(*args, **kwargs).arguments
        missing = [
            name
            for name, one in signature.parameters.items()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and name not in bound
        ]
        raise InputError(
            f"The arguments do not fit the model {getattr(model, '__name__', '')}{signature}: {error}.",
            "Pass the arguments of the model"
            + (": " + call.format(", ..." * bool(bound) + "".join(f", {name}" for name in missing)) if missing else "")
            + ".",
        ) from None


def _require_thinnable(mcmc: Any) -> None:
    """Raise an `InputError` if the draws of an MCMC object cannot be thinned."""
    if not isinstance(mcmc, need("numpyro.infer", "numpyro").MCMC):
        raise InputError(
            f"Expected a numpyro.infer.MCMC, got {type(mcmc).__name__}.",
            "Wrap the kernel: MCMC(NUTS(model), num_warmup=1000, num_samples=10000).",
        )
    if mcmc.thinning != 1:
        raise InputError(f"The MCMC keeps only every {mcmc.thinning}th draw.", "Create it without thinning.")


def _initial_states(mcmc: Any, model: _Model, rng_key: Any, init_params: Any) -> list[Any]:
    """Return the initial state of each chain, or one that contains all chains if they run together."""
    jax, util = need("jax", "numpyro"), need("numpyro.util", "numpyro")
    kernel, warm = model.kernel, mcmc.post_warmup_state
    init_params = jax.tree.map(jax.numpy.asarray, init_params)

    def start(key: Any, params: Any, warm: Any) -> Any:
        state = kernel.init(key, mcmc.num_warmup, params, model.args, model.kwargs)
        if warm is None:
            return state
        return warm._replace(rng_key=key[0] if kernel.is_ensemble_kernel else key)  # as in mcmc.run

    if mcmc.num_chains == 1:
        return [start(rng_key, init_params, warm)]
    keys = jax.random.split(rng_key, mcmc.num_chains) if util.is_prng_key(rng_key) else rng_key
    if mcmc.chain_method == "vectorized":
        return [start(keys, init_params, warm)]
    return [
        start(keys[chain], *jax.tree.map(lambda x, chain=chain: x[chain], (init_params, warm)))
        for chain in range(mcmc.num_chains)
    ]


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
    """Return one step of a chain, or of all chains: draw, score, and whether the step diverged."""
    jax, kernel = need("jax", "numpyro"), model.kernel
    gradient = None if hasattr(state, "z_grad") else _gradient(model, state)

    def output(parts: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        position = parts["position"]
        if gradient is not None:
            score = -flatten(gradient(position))
        else:
            score = -flatten(parts["z_grad"]) if "z_grad" in parts else nothing()
        return flatten(position), score, parts.get("diverging", nothing())

    def transition(state: Any, _: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        state = kernel.sample(state, model.args, model.kwargs)
        parts = {"position": getattr(state, kernel.sample_field)}
        parts |= {"z_grad": state.z_grad} if hasattr(state, "z_grad") else {}
        inner = getattr(state, "hmc_state", state)  # HMC within Gibbs
        parts |= {"diverging": inner.diverging} if hasattr(inner, "diverging") else {}
        return state, jax.vmap(output)(parts) if together else output(parts)

    return transition


def _gradient(model: _Model, state: Any) -> Any:
    """Return the gradient of the potential of a kernel that does not compute it; None if it has no potential."""
    jax, kernel = need("jax", "numpyro"), model.kernel
    make, potential = getattr(kernel, "_potential_fn_gen", None), getattr(kernel, "_potential_fn", None)
    leaves = jax.tree.leaves(getattr(state, kernel.sample_field))
    continuous = all(jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating) for leaf in leaves)
    if continuous and make is not None:
        return jax.grad(make(*model.args, **model.kwargs))
    if continuous and potential is not None:
        return jax.grad(potential)
    log_missing_scores(
        f"{type(kernel).__name__} has no gradient; NUTS, HMC, BarkerMH and SA have one. Discrete sites have no score "
        "unless they are marginalised."
    )
    return None


def _position(kernel: Any, state: Any, together: bool) -> Any:
    """Return the position of a chain, or of the first one if several run together."""
    position = getattr(state, kernel.sample_field)
    return need("jax", "numpyro").tree.map(lambda x: x[0], position) if together else position


def _plates(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[str | None]]:
    """Return the plates along the dimensions of each site, None for dimensions without a plate."""
    if function is None:
        return {}
    jax, handlers = need("jax", "numpyro"), need("numpyro.handlers", "numpyro")
    found: dict[str, list[str | None]] = {}

    def trace() -> None:
        traced = handlers.trace(handlers.seed(function, 0)).get_trace(*args, **kwargs)
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
