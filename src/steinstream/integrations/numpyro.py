"""NumPyro: a chain runs in compiled chunks, each is thinned while the next is on its way, and none is stored.

The thinner sees the unconstrained draws. NumPyro's ``z_grad`` is the gradient of the potential, which is minus the log
density with the Jacobian of the transforms: minus the score. Constrained and deterministic sites are computed for the
kept draws alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain as joined
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError
from steinstream.integrations._common import chosen_thinner, need, what_is_kept
from steinstream.integrations._jax import Chunks, Transition, as_variables, entry_names, flat, side_by_side, unflatten
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner


class Thinned:
    """An ``numpyro.infer.MCMC`` that keeps only the draws that matter.

    Nothing else changes: kernel, warm-up, number of samples and of chains are those of ``mcmc``, and the same key makes
    the same draws. Warm-up draws are not offered to the thinner. Chains run one after another, or all at once with
    ``chain_method="vectorized"``; they share one thinner, and ids are (chain, draw). JAX computes in float32 unless
    ``jax_enable_x64`` is set; scores then have seven digits, which is enough to thin by.

    Parameters
    ----------
    mcmc
        The ``numpyro.infer.MCMC``. Its kernel is one that knows the gradient (NUTS, HMC, BarkerMH), or whose potential
        can be differentiated beside it (SA).
    thinner, settings
        A thinner to go on with, which numbers the draws on, or the settings of a new one for each run: ``size=200``,
        say.
    dims, coords
        Names of dimensions and places along them, as ArviZ takes them; plates are named already.
    chunk
        Draws of each chain in memory at once, twice.

    """

    def __init__(
        self,
        mcmc: Any,
        *,
        thinner: Thinner | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, ArrayLike] | None = None,
        chunk: int = 1000,
        **settings: Any,
    ) -> None:
        if not isinstance(mcmc, need("numpyro.infer", "numpyro").MCMC):
            raise InputError(
                f"Expected a numpyro.infer.MCMC, got {type(mcmc).__name__}.",
                "Wrap the kernel: MCMC(NUTS(model), num_warmup=1000, num_samples=10000).",
            )
        if mcmc.thinning != 1:
            raise InputError(f"This MCMC drops all but every {mcmc.thinning}th draw.", "Leave out its thinning.")
        if mcmc.sampler.is_ensemble_kernel:
            raise InputError(
                f"{type(mcmc.sampler).__name__} moves an ensemble and has no score.", "Use NUTS, HMC, BarkerMH or SA."
            )
        self.mcmc, self._thinner, self._settings = mcmc, thinner, settings
        #: The thinner of the latest run: its ``kept`` is there even if the run was interrupted.
        self.thinner = thinner
        self._dims, self._coords, self._chunk = dict(dims or {}), dict(coords or {}), chunk

    def run(self, rng_key: Any, *args: Any, init_params: Any = None, **kwargs: Any) -> Kept:
        """As ``mcmc.run``, with the arguments of the model; what comes back are the kept draws."""
        mcmc, kernel = self.mcmc, copy(self.mcmc.sampler)  # a copy is as new: it may serve another number of chains
        chains = self._chains(kernel, rng_key, init_params, args, kwargs)
        first = next(chains)
        together = first[0] is None
        position = _position(kernel, first[1], together)
        thinner = self.thinner = chosen_thinner(self._thinner, flat(position).size, self._settings)
        chunks = Chunks(_step(kernel, first[1], args, kwargs, together), self._chunk)
        bar = need("tqdm.auto", "numpyro").tqdm(
            total=mcmc.num_samples * mcmc.num_chains, disable=not mcmc.progress_bar, unit=" draws"
        )
        with bar:
            for chain, state in joined([first], chains):
                for draws, scores in chunks.run(state, mcmc.num_warmup, mcmc.num_samples):
                    block = side_by_side(draws, scores, chain, thinner)
                    thinner.extend(block.draws, block.scores, ids=block.ids)
                    bar.update(len(block.ids))
                    bar.set_postfix_str(f"kept {len(thinner)}, KSD {thinner.ksd:.3g}", refresh=False)
        kept = what_is_kept(thinner, entry_names(position))
        constrain = need("jax", "numpyro").vmap(kernel.postprocess_fn(args, kwargs))
        dims = {**_plates(getattr(kernel, "model", None), args, kwargs), **self._dims}
        kept.variables.update(as_variables(constrain(unflatten(position, kept.draws)), self._namer(dims)))
        return kept

    def _chains(
        self, kernel: Any, rng_key: Any, init_params: Any, args: Any, kwargs: Any
    ) -> Iterator[tuple[int | None, Any]]:
        """Each chain with its first state; or None with the first states of all chains, if they run all at once."""
        jax, util = need("jax", "numpyro"), need("numpyro.util", "numpyro")
        mcmc, warmup = self.mcmc, self.mcmc.num_warmup
        init_params = jax.tree.map(jax.numpy.asarray, init_params)
        if mcmc.num_chains == 1:
            yield 0, kernel.init(rng_key, warmup, init_params, args, kwargs)
            return
        keys = jax.random.split(rng_key, mcmc.num_chains) if util.is_prng_key(rng_key) else rng_key
        if mcmc.chain_method == "vectorized":
            yield None, kernel.init(keys, warmup, init_params, args, kwargs)
            return
        for chain in range(mcmc.num_chains):
            start = jax.tree.map(lambda x, chain=chain: x[chain], init_params)
            yield chain, kernel.init(keys[chain], warmup, start, args, kwargs)

    def _namer(self, dims: dict[str, Sequence[str | None]]) -> Callable[[str, NDArray[Any]], Variable]:
        def named(name: str, values: NDArray[Any]) -> Variable:
            own = [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]
            given = [*dims.get(name, ())][: len(own)]
            given += [None] * (len(own) - len(given))
            axes = tuple(axis or default for axis, default in zip(given, own, strict=True))
            return Variable(
                values, axes, {axis: np.asarray(self._coords[axis]) for axis in axes if axis in self._coords}
            )

        return named


def _step(kernel: Any, state: Any, args: Any, kwargs: Any, together: bool) -> Transition:
    """One step of a chain, which leaves the draw and its score."""
    jax = need("jax", "numpyro")
    knows = hasattr(state, "z_grad")
    gradient: Any = None if knows else jax.grad(_potential(kernel, args, kwargs))

    def leave(state: Any) -> tuple[Any, Any]:
        position = getattr(state, kernel.sample_field)
        return flat(position), -flat(state.z_grad if knows else gradient(position))

    def step(state: Any, _: Any) -> tuple[Any, tuple[Any, Any]]:
        state = kernel.sample(state, args, kwargs)
        return state, _of_each(leave, kernel, state) if together else leave(state)

    return step


def _of_each(leave: Any, kernel: Any, state: Any) -> Any:
    """What chains that run together leave: only what belongs to a chain has a place for each."""
    kept = {name: getattr(state, name) for name in (kernel.sample_field, "z_grad") if hasattr(state, name)}
    return need("jax", "numpyro").vmap(lambda each: leave(SimpleNamespace(**each)))(kept)


def _potential(kernel: Any, args: Any, kwargs: Any) -> Any:
    """The potential of a kernel that has no use for its gradient."""
    make, potential = getattr(kernel, "_potential_fn_gen", None), getattr(kernel, "_potential_fn", None)
    if make is not None:
        return make(*args, **kwargs)
    if potential is not None:
        return potential
    raise InputError(
        f"{type(kernel).__name__} tells neither its gradient nor its potential.",
        "Use NUTS, HMC, BarkerMH or SA; discrete sites that are sampled, not summed out, have no score.",
    )


def _position(kernel: Any, state: Any, together: bool) -> Any:
    """Where a chain is: the first one, if there are several."""
    position = getattr(state, kernel.sample_field)
    return need("jax", "numpyro").tree.map(lambda x: x[0], position) if together else position


def _plates(model: Any, args: Any, kwargs: Any) -> dict[str, list[str | None]]:
    """For each site of the model the plates along its dimensions, None where there is none."""
    if model is None:
        return {}
    jax, handlers = need("jax", "numpyro"), need("numpyro.handlers", "numpyro")
    found: dict[str, list[str | None]] = {}

    def look() -> None:
        for name, site in handlers.trace(handlers.seed(model, 0)).get_trace(*args, **kwargs).items():
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

    jax.eval_shape(look)  # shapes alone: nothing is computed
    return found
