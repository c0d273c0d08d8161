"""PyMC: thin all chains while ``pm.sample`` runs.

::

    thin = ss.integrations.pymc.Callback(model, size=200)
    pm.sample(callback=thin)
    thin.kept, thin.datatree()

PyMC passes every draw to the callback in the parent process, unconstrained. The score is the gradient of the log
density of the model there, Jacobian included; it costs one evaluation per draw. A model with discrete parameters, or
without a gradient, is thinned without scores. Tuning draws are not used. `Trace` does the same for
``pm.sample(trace=...)``; PyMC itself then stores the kept draws only.

For a finished fit, `scores` and `with_scores` compute the scores of the stored draws.

Each chain has its own thinner, and ``kept`` merges them, so that every chain contributes, and the order in which the
draws of parallel chains arrive does not matter. A thinner that is passed receives all chains: in parallel their order
changes from run to run, and chains that run one after another contribute unevenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import AnyArray, Array, Id, Integers
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import (
    SEQUENTIAL,
    live_thinner,
    log_missing_scores,
    need,
    warn_of_sequential_chains,
    with_source,
)
from steinstream.integrations._draw_metadata import DrawMetadata
from steinstream.integrations._stored_draws import ScoredDraws, diverging_in
from steinstream.integrations.xarray import as_datatree
from steinstream.postprocess.merging import inner_size, merge
from steinstream.result import Kept, Variable
from steinstream.schedules import evaluate
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import OVERFLOW_LIMIT, concatenate

_BaseTrace: Any = need("pymc.backends.base", "pymc").BaseTrace

#: Statistics of one draw, one mapping per step method.
Stats = Sequence[Mapping[str, Any]]

_UNCONSTRAINED = "unconstrained_posterior"  # group of transformed variables, with include_transformed=True

_BLOCK = 64  # draws that are passed to a thinner at a time
_SPARE = 2.0  # draws that the thinner of each chain keeps, as a multiple of ``size``
_ROUNDING = 1e-9


class UnconstrainedModel:
    """The unconstrained space of a PyMC model: draws as vectors, their scores, and the variables of the model.

    Without ``model``, that of the context is used. Scores are computed if the model has a gradient and no discrete
    parameters.
    """

    def __init__(self, model: Any = None, with_scores: bool = True) -> None:
        self.model = model = _as_model(model)
        values = model.value_vars
        self._inputs = [value.name for value in values]
        start = model.initial_point()
        self._shapes = [np.shape(start[name]) for name in self._inputs]
        self._dtypes = [np.asarray(start[name]).dtype for name in self._inputs]
        self.names = tuple(
            name + (f"[{','.join(map(str, index))}]" if shape else "")
            for name, shape in zip(self._inputs, self._shapes, strict=True)
            for index in np.ndindex(*shape)
        )
        self.discrete = [value.name for value in values if value not in model.continuous_value_vars]
        self._gradient = self._compiled_gradient() if with_scores and not self.discrete else None
        self._outputs = [value.name for value in model.unobserved_value_vars]
        self._transform = model.compile_fn(
            model.unobserved_value_vars, inputs=model.value_vars, on_unused_input="ignore", point_fn=True
        )

    def _compiled_gradient(self) -> Any:
        """Return the function for log density and gradient; None if some part of the model has no gradient."""
        try:
            gradient = self.model.logp_dlogp_function(ravel_inputs=True)
        except (NotImplementedError, need("pytensor.gradient", "pymc").NullTypeGradError):
            return None
        gradient.set_extra_values({})
        return gradient

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""
        return len(self.names)

    @property
    def has_scores(self) -> bool:
        """Whether scores can be computed."""
        return self._gradient is not None

    @property
    def why_no_scores(self) -> str:
        """Why the scores are missing, and what to do."""
        if self.discrete:
            return (
                f"The discrete parameters {', '.join(self.discrete)} have no score; marginalise them, for example with "
                "pymc_extras.marginalize."
            )
        return "A part of the model has no gradient; finite differences can replace it."

    def vector(self, point: Mapping[str, Any]) -> Array:
        """Return a point of PyMC as one vector."""
        return np.concatenate([np.ravel(point[name]) for name in self._inputs]).astype(np.float64, copy=False)

    def score(self, vector: Array) -> Array:
        """Return the gradient of the log density, Jacobian included; an empty array without scores."""
        if self._gradient is None:
            return np.zeros(0)
        return np.array(self._gradient(vector.astype(self._gradient.dtype, copy=False))[1], dtype=np.float64)

    def values(self, draws: Array) -> dict[str, AnyArray]:
        """Return all unobserved variables at draws (n, d): constrained, unconstrained and deterministic."""
        rows = [self._transform(self._point(draw)) for draw in draws]
        if not rows:
            return {}
        return {name: np.array([row[i] for row in rows]) for i, name in enumerate(self._outputs)}

    def unconstrain(self, posterior: Any) -> Array:
        """Map stored draws with dimensions (chain, draw, ...) to unconstrained draws (chains, n, d)."""
        if all(name in posterior for name in self._inputs):  # transformed variables were stored
            stored = [posterior[name].transpose("chain", "draw", ...).values for name in self._inputs]
            return np.concatenate([part.reshape(*part.shape[:2], -1) for part in stored], axis=2).astype(np.float64)
        free = self.model.free_RVs
        missing = [rv.name for rv in free if rv.name not in posterior]
        if missing:
            raise InputError(
                f"The posterior has no {', '.join(missing)}, which are parameters of the model.",
                "Pass the model that was fitted, and all of its parameters.",
            )
        forward = self._forward()
        parts = [posterior[rv.name].transpose("chain", "draw", ...).values.astype(rv.dtype) for rv in free]
        chains, count = parts[0].shape[:2]
        rows = [
            np.concatenate([np.ravel(one) for one in forward(*(part[chain, draw] for part in parts))])
            for chain in range(chains)
            for draw in range(count)
        ]
        return np.array(rows, dtype=np.float64).reshape(chains, count, self.dim)

    def _forward(self) -> Any:
        """Return the compiled function from all constrained parameters to all unconstrained ones."""
        pytensor = need("pytensor", "pymc")
        replace_in = need("pytensor.graph.replace", "pymc").graph_replace
        given = {rv: rv.type(name=f"{rv.name}_given") for rv in self.model.free_RVs}
        outputs = []
        for rv, value in given.items():
            transform = self.model.rvs_to_transforms[rv]
            # Bounds may depend on other parameters, which are replaced by their given values.
            outputs.append(value if transform is None else transform.forward(value, *rv.owner.inputs))
        outputs = replace_in(outputs, given, strict=False)
        return pytensor.function([*given.values()], outputs, on_unused_input="ignore")

    def variables(self, values: Mapping[str, AnyArray]) -> dict[str, Variable]:
        """Return the constrained and deterministic values, with dimensions and coordinates of the model."""
        coords, dims = self._labels()
        transformed = {value.name for value in self.model.value_vars} - {rv.name for rv in self.model.free_RVs}
        found = {}
        for name, array in values.items():
            if name not in transformed:
                own = dims.get(name, ())
                own = tuple(f"{name}_dim_{i}" if i >= len(own) else own[i] for i in range(array.ndim - 1))
                sizes = dict(zip(own, array.shape[1:], strict=True))
                places = {dim: np.asarray(coords.get(dim, range(size))) for dim, size in sizes.items()}
                found[name] = Variable(array, own, {d: p for d, p in places.items() if len(p) == sizes[d]})
        return found

    def _labels(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return coordinates and dimensions by name, as PyMC passes them to ArviZ."""
        coords, dims = need("pymc.backends.arviz", "pymc").coords_and_dims_for_inferencedata(self.model)
        return coords, dims

    def data(self) -> dict[str, Any]:
        """Return the groups ``observed_data`` and ``constant_data``; posterior prediction requires the latter."""
        arviz, base = need("pymc.backends.arviz", "pymc"), need("arviz_base", "pymc")
        coords, dims = self._labels()
        groups = {
            "observed_data": arviz.find_observations(self.model),
            "constant_data": arviz.find_constants(self.model),
        }
        return {
            group: base.dict_to_dataset(arrays, coords=coords, dims=dims, sample_dims=[])
            for group, arrays in groups.items()
            if arrays
        }

    def _point(self, vector: Array) -> dict[str, AnyArray]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = np.split(vector, ends[:-1])
        layout = zip(self._inputs, parts, self._shapes, self._dtypes, strict=True)
        return {name: part.reshape(shape).astype(dtype) for name, part, shape, dtype in layout}


def _as_model(model: Any) -> Any:
    """Return the model, or that of the context."""
    pymc = need("pymc", "pymc")
    if isinstance(model, pymc.Model):
        return model
    if model is not None:
        raise InputError(
            f"Expected a pymc.Model, got {type(model).__name__}.", "Pass the model; for Bambi, model.backend.model."
        )
    try:
        return pymc.modelcontext(None)
    except TypeError:
        raise InputError("No model is given.", "Pass the model, or use with model:.") from None


class _Draw(NamedTuple):
    """A draw on its way to the thinner, with PyMC's statistics if they are to be stored."""

    draw: Array
    score: Array
    id: Id
    stats: Stats | None
    diverging: bool

    @property
    def finite(self) -> bool:
        """Whether all values are finite and below the overflow limit."""
        return bool((np.abs(self.draw) < OVERFLOW_LIMIT).all() and (np.abs(self.score) < OVERFLOW_LIMIT).all())


class _Buffer:
    """Collects draws for a thinner, and holds the statistics of the kept ones. Blocks do not change the result."""

    def __init__(self, thinner: Thinner, convergence: RunningConvergence) -> None:
        self.thinner, self._convergence = thinner, convergence
        self.stats: DrawMetadata[Stats] = DrawMetadata()
        self._draws: list[_Draw] = []

    def add(self, draw: _Draw) -> None:
        """Add one draw; an invalid one is passed to the thinner at once."""
        self._draws.append(draw)
        if len(self._draws) >= _BLOCK or not draw.finite:
            self.flush()

    def flush(self) -> None:
        """Pass the collected draws to the thinner."""
        new, self._draws = self._draws, []
        if not new:
            return
        draws, scores, ids = (np.array([getattr(one, part) for one in new]) for part in ("draw", "score", "id"))
        step = self.thinner.extend(draws, scores if scores.shape[1] else None, ids=ids)
        self._convergence.add(ids, draws, [one.diverging for one in new])
        self.stats.update(self.thinner, step, [(one.id, one.stats) for one in new if one.stats is not None])


class _Run:
    """One call of ``pm.sample``: all of its chains, with a given thinner for all or one each."""

    def __init__(
        self,
        model: Any,
        thinner: Thinner | None,
        per_chain: bool,
        scores: bool,
        config: ThinConfig | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.space = UnconstrainedModel(model, scores)
        if scores and not self.space.has_scores:
            log_missing_scores(self.space.why_no_scores)
        if thinner is not None and per_chain:
            raise InputError("A thinner was given with per_chain=True.", "Pass the settings of the thinners instead.")
        if thinner is not None and thinner.dim != self.space.dim:
            raise InputError(
                f"The thinner is for {thinner.dim} dimensions, the model has {self.space.dim}: "
                f"{', '.join(self.space.names)}.",
                "Count unconstrained parameters: a simplex with three entries has two.",
            )
        self._chosen: ThinConfig | None = None  # settings of the result; None with a given thinner
        self._per_chain = per_chain
        self._buffers: dict[int, _Buffer] = {}
        self._convergence = RunningConvergence(self.space.dim)
        if thinner is None:
            self._chosen = ThinConfig.of(config, **settings)
            spare = 1.0 if per_chain else _SPARE
            self._leaf = self._chosen.replace(size=inner_size(self._chosen.size, spare))
        else:
            common = live_thinner(self.space.dim, thinner=thinner, config=config, settings=settings)
            self._buffers[0] = _Buffer(common, self._convergence)
        self.draws: dict[int, int] = {}
        """Number of draws of each chain, without tuning."""
        self._first: dict[int, int] = {}  # index of the first draw of each chain: a thinner may have earlier draws
        self._last_chain, self._consecutive, self._changes = -1, 0, 0
        self._computed: tuple[int, Kept] | None = None  # number of draws and the kept set

    def add(self, chain: int, point: Mapping[str, Any], stats: Stats, store: bool) -> None:
        """Add one draw, and its statistics if ``store``."""
        x = self.space.vector(point)
        buffer = self._buffer(chain)
        index = self._first.setdefault(chain, buffer.thinner.next_index(chain)) + self.draws.setdefault(chain, 0)
        self.draws[chain] += 1
        if self._chosen is None:
            self._warn_if_sequential(chain)
        diverging = any(bool(each.get("diverging", False)) for each in stats)
        buffer.add(_Draw(x, self.space.score(x), (chain, index), stats if store else None, diverging))

    def _buffer(self, chain: int) -> _Buffer:
        if self._chosen is None:
            return self._buffers[0]
        if chain not in self._buffers:
            self._buffers[chain] = _Buffer(Thinner(self.space.dim, self._leaf), self._convergence)
        return self._buffers[chain]

    def _warn_if_sequential(self, chain: int) -> None:
        """Warn once if a second chain is added to a given thinner after the first chain has ended."""
        if chain != self._last_chain:
            self._changes += self._last_chain >= 0
            self._last_chain, self._consecutive = chain, 0
        self._consecutive += 1
        if self._consecutive == SEQUENTIAL and self._changes == 1 and len(self.draws) == 2:
            warn_of_sequential_chains(
                "Pass the settings instead of a thinner: each chain then has its own thinner, and kept merges them.",
                stacklevel=4,
            )

    @property
    def thinners(self) -> dict[int, Thinner]:
        """The thinners, after all draws were passed to them."""
        for buffer in self._buffers.values():
            buffer.flush()
        return {chain: buffer.thinner for chain, buffer in sorted(self._buffers.items())}

    @property
    def stored_stats(self) -> int:
        """Number of draws whose statistics are held."""
        return sum(len(buffer.stats) for buffer in self._buffers.values())

    def stats(self, ids: Integers) -> list[Stats]:
        """Return PyMC's statistics of kept draws."""
        if self._chosen is None:
            return self._buffers[0].stats.select(ids.tolist())
        return [self._buffers[chain].stats.select([(chain, index)])[0] for chain, index in ids.tolist()]

    @property
    def kept(self) -> Kept:
        """The kept draws of all chains so far, without variables."""
        received = sum(self.draws.values())
        if not received:
            raise InputError(
                "No draws after tuning were received yet.", "Run pm.sample first, with draws after tuning."
            )
        if self._computed is None or self._computed[0] != received:
            self._computed = received, self._compute_kept()
        return self._computed[1]

    def _compute_kept(self) -> Kept:
        thinners = [thinner for thinner in self.thinners.values() if thinner.seen > thinner.skipped]
        if not thinners:
            raise InputError(
                f"All {sum(self.draws.values())} draws have values that are not finite.", "Check the model."
            )
        if self._chosen is None:
            kept = thinners[0].kept
        elif self._per_chain:
            kept = _union([thinner.kept for thinner in thinners], self._chosen)
        else:
            kept = _merged(thinners, self._chosen)
        return with_source(replace(kept, names=self.space.names), "pymc", self._convergence)


def _union(sets: Sequence[Kept], config: ThinConfig, size: int | None = None) -> Kept:
    """Merge the kept sets of several chains, in which all draws have the same weight, to ``size`` if it is given."""
    if len(sets) == 1 and (size is None or size >= len(sets[0])):
        return sets[0]
    kept = merge(sets, masses="kept", size=size)
    streams = [one.stream for one in sets if one.stream is not None]
    own = {"config": config.to_dict(arrays=False), "thinners": [one.settings for one in sets]}
    return replace(kept, settings={**kept.settings, **own}, stream=concatenate(streams) if streams else None)


def _merged(thinners: Sequence[Thinner], config: ThinConfig) -> Kept:
    """Merge the thinners of all chains to the number of draws that one thinner for all chains keeps."""
    sets = [thinner.kept for thinner in thinners]
    lengths = np.array([thinner.seen - thinner.skipped for thinner in thinners])
    size = _merged_size(thinners, config)
    density = min(len(kept) / length for kept, length in zip(sets, lengths, strict=True))
    if len({*lengths.tolist()}) > 1:  # chains of different lengths: the same number of draws per kept draw
        few = [max(round(density * length), 1) for length in lengths.tolist()]
        sets = [_union([kept], config, count) for kept, count in zip(sets, few, strict=True)]
    return _union(sets, config, min(size, sum(map(len, sets))))


def _merged_size(thinners: Sequence[Thinner], config: ThinConfig) -> int:
    """Return the number of draws that one thinner for all chains keeps, given those of the thinners of each chain."""
    steps = np.array([thinner.steps for thinner in thinners], dtype=np.float64)
    steps = np.append(np.maximum(steps, 1.0), max(steps.sum(), 1.0))
    least = np.minimum(evaluate(thinners[0].config.growth_schedule, steps), steps)
    share = min(float(least[-1] / least[:-1].sum()), 1.0)
    grown = max(math.ceil(share * sum(map(len, thinners)) - _ROUNDING), 1)
    return grown if config.size is None else min(grown, config.size)


class _RunResult:
    """Results of a run of ``pm.sample``, for `Callback` and `Trace`."""

    _run: _Run

    @property
    def thinners(self) -> dict[int, Thinner]:
        """The thinner of each chain, or under key 0 the thinner that was passed for all chains."""
        return self._run.thinners

    @property
    def kept(self) -> Kept:
        """The kept draws so far, with the variables of the model."""
        kept, space = self._run.kept, self._run.space
        return replace(kept, variables=space.variables(space.values(kept.draws)))

    def datatree(self, *, stacked: bool = True) -> Any:
        """Return the kept draws for ArviZ and ``pm.sample_posterior_predictive``, with the data of the model.

        Parameters
        ----------
        stacked : bool, default True
            Use one dimension ``sample``; otherwise a single chain, which ArviZ expects by default.

        Returns
        -------
        xarray.DataTree
            The tree.
        """
        tree, xarray = self.kept.to_datatree(stacked=stacked), need("xarray", "pymc")
        return tree.assign({name: xarray.DataTree(dataset) for name, dataset in self._run.space.data().items()})


class Callback(_RunResult):
    """Callback for ``pm.sample(callback=...)`` that thins all chains while they run.

    PyMC itself still stores the whole chain; see `Trace` to avoid that.

    Parameters
    ----------
    model : pymc.Model, optional
        The model. Default: that of the context, ``with model:``.
    thinner : Thinner, optional
        Thinner to continue with; new draws continue its indices. Default: one per chain.
    per_chain : bool, default False
        Keep ``size`` draws of each chain. Default: ``size`` draws of all chains together.
    scores : bool, default True
        Compute the score of each draw. A model with discrete parameters or without a gradient has none.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Raises
    ------
    InputError
        If no model is known, or both a thinner and settings are given.
    """

    def __init__(
        self,
        model: Any = None,
        thinner: Thinner | None = None,
        *,
        per_chain: bool = False,
        scores: bool = True,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        self._run = _Run(model, thinner, per_chain, scores, config, settings)
        self._last: dict[int, int] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Add one draw of one chain; called by PyMC."""
        if draw.draw_idx <= self._last.get(draw.chain, -1):
            raise InputError("This callback was used in another run of pm.sample.", "Create a new one for each run.")
        self._last[draw.chain] = draw.draw_idx
        if not draw.tuning:
            self._run.add(draw.chain, draw.point, draw.stats, store=False)


class Trace(_RunResult, _BaseTrace):  # type: ignore[misc]
    """Trace for ``pm.sample(trace=...)``: PyMC stores the kept draws only.

    ``pm.sample`` then returns the kept draws of all chains as one chain, because thinned chains have different lengths.
    ``sample_stats`` has PyMC's statistics of each draw, ``source_chain`` and ``source_draw``. PyMC's convergence checks
    have no meaning for thinned draws: pass ``compute_convergence_checks=False``. ``kept.settings["source"]`` holds
    R-hat and ESS of the chains.

    Parameters
    ----------
    model : pymc.Model, optional
        The model. Default: that of the context, ``with model:``.
    thinner : Thinner, optional
        Thinner without draws. Default: one per chain.
    per_chain : bool, default False
        Keep ``size`` draws of each chain. Default: ``size`` draws of all chains together.
    scores : bool, default True
        Compute the score of each draw. A model with discrete parameters or without a gradient has none.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Raises
    ------
    InputError
        If no model is known, the thinner has draws, or both a thinner and settings are given.
    """

    def __init__(
        self,
        model: Any = None,
        thinner: Thinner | None = None,
        *,
        per_chain: bool = False,
        scores: bool = True,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        model = _as_model(model)
        super().__init__(model=model)
        if thinner is not None and (thinner.seen or len(thinner)):
            raise InputError(
                "The thinner already has draws, whose statistics are not known.",
                "Pass a new thinner to the trace, or use a Callback.",
            )
        self._run = _Run(model, thinner, per_chain, scores, config, settings)
        self._tuned = 0
        self._result: _TraceResult | None = None
        self._rows: Integers | None = None

    @property
    def stored_stats(self) -> int:
        """Number of draws whose statistics are in memory: kept draws, and draws that wait for a decision."""
        return self._run.stored_stats

    # PyMC copies the trace for every chain; the copies share the run.

    def setup(self, draws: int, chain: int, sampler_vars: Any = None) -> None:
        """Prepare a chain; called by PyMC."""
        if self._run.draws:
            raise InputError("This trace was used in another run of pm.sample.", "Create a new one for each run.")
        own = {"source_chain": np.int64, "source_draw": np.int64}
        super().setup(draws, chain, [*(sampler_vars or []), own])
        self.chain = chain

    def record(self, draw: Mapping[str, Any], stats: Stats, *, in_warmup: bool) -> None:
        """Add one draw; called by PyMC."""
        if in_warmup:
            self._tuned += 1
        else:
            self._run.add(self.chain, draw, stats, store=True)

    # PyMC calls the following methods after sampling. Tuning draws are rows below 0, which are not stored.

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return self._tuned + len(self._run.kept) if self._holds_result else 0

    @property
    def _holds_result(self) -> bool:
        """Whether the kept draws of all chains are returned as this chain: the first one that ended its tuning."""
        return self.chain is not None and self.chain == next(iter(self._run.draws), None)

    def _slice(self, idx: slice) -> Trace:
        result, sliced = self._computed_result(), copy(self)
        rows = np.arange(-self._tuned, len(result.kept)) if self._rows is None else self._rows
        sliced.__dict__.update(_result=result, _rows=rows[idx])
        return sliced

    def get_values(self, varname: str, burn: int = 0, thin: int = 1) -> AnyArray:
        """Return the kept draws of a variable; called by PyMC."""
        return self._computed_result().values[varname][self._picked(burn, thin)]

    def _get_sampler_stats(self, stat_name: str, sampler_idx: int, burn: int, thin: int) -> AnyArray:
        rows, result = self._picked(burn, thin), self._computed_result()
        source = {"source_chain": 0, "source_draw": 1}
        if stat_name in source:
            ids: AnyArray = result.kept.ids[rows, source[stat_name]]
            return ids
        each = [result.stats[row][sampler_idx][stat_name] for row in rows]
        array: AnyArray = np.empty(len(each), dtype=self.sampler_vars[sampler_idx][stat_name])
        array[:] = each
        return array

    def point(self, idx: int) -> dict[str, Any]:
        """Return the variables of one kept draw; called by PyMC."""
        return {name: self.get_values(name)[idx] for name in self.varnames}

    def _computed_result(self) -> _TraceResult:
        return self._result or _TraceResult(self._run)

    def _picked(self, burn: int, thin: int) -> Integers:
        rows = np.arange(len(self._run.kept)) if self._rows is None else self._rows
        rows = rows[burn::thin]
        if len(rows) and rows[0] < 0:
            raise InputError("This trace does not store tuning draws.", "Leave out discard_tuned_samples=False.")
        return rows


class _TraceResult:
    """Kept draws, variables and statistics, computed once after sampling."""

    def __init__(self, run: _Run) -> None:
        self.kept = run.kept
        self.values = run.space.values(self.kept.draws)
        self.stats = run.stats(self.kept.ids)


# -- finished fits -----------------------------------------------------------------------------------------------------


def scores(model: Any, idata: Any, *, progress: Callable[[float], None] | None = None) -> ScoredDraws:
    """Compute the scores of a finished fit.

    The stored draws are mapped back to unconstrained space. The score is the gradient of the log density there,
    Jacobian included.

    Parameters
    ----------
    model : pymc.Model or None
        The model that was fitted; None for that of the context, ``with model:``.
    idata : xarray.DataTree or arviz.InferenceData
        The fit, with all parameters of the model in the group ``posterior``.
    progress : callable, optional
        Called with the finished fraction, 0 to 1.

    Returns
    -------
    ScoredDraws
        Unconstrained draws and scores, (chains, n, d), for :func:`steinstream.thin`; its method ``thin`` keeps the
        variables of the posterior.

    Raises
    ------
    InputError
        If the model has no scores, or the fit does not contain its parameters.
    """
    space = UnconstrainedModel(model)
    if not space.has_scores:
        raise InputError(
            f"The model has no scores. {space.why_no_scores}",
            "The draws can be thinned without scores: steinstream.integrations.xarray.thin.",
        )
    tree = as_datatree(idata)
    if "posterior" not in tree.children:
        raise InputError("The fit has no group posterior.", "Pass the result of pm.sample.")
    posterior = tree["posterior"].dataset
    if _UNCONSTRAINED in tree.children:
        posterior = posterior.merge(tree[_UNCONSTRAINED].dataset)
    draws = space.unconstrain(posterior)
    flat = draws.reshape(-1, space.dim)
    values = np.empty(flat.shape)
    for row, x in enumerate(flat):
        values[row] = space.score(x)
        if progress is not None:
            progress((row + 1) / len(flat))
    variables = {
        str(name): Variable(
            array.transpose("chain", "draw", ...).values,
            tuple(map(str, array.dims[2:])),
            {str(dim): array[dim].values for dim in array.dims[2:] if dim in array.coords},
        )
        for name, array in tree["posterior"].dataset.transpose("chain", "draw", ...).data_vars.items()
    }
    return ScoredDraws(draws, values.reshape(draws.shape), space.names, variables, "pymc", diverging_in(tree))


def with_scores(model: Any, idata: Any, *, progress: Callable[[float], None] | None = None) -> Any:
    """Add the scores of a finished fit to its tree, so that ``tree.stein.thin(size=200)`` uses them.

    Parameters
    ----------
    model : pymc.Model or None
        The model that was fitted; None for that of the context, ``with model:``.
    idata : xarray.DataTree or arviz.InferenceData
        The fit, with all parameters of the model in the group ``posterior``.
    progress : callable, optional
        Called with the finished fraction, 0 to 1.

    Returns
    -------
    xarray.DataTree
        A copy of the fit with ``sample_stats/unconstrained_draw`` and ``sample_stats/gradient``.
    """
    scored, tree = scores(model, idata, progress=progress), as_datatree(idata).copy()
    dims = ("chain", "draw", "unconstrained_parameter")
    posterior = tree["posterior"].dataset
    coords = {name: posterior[name].values for name in ("chain", "draw") if name in posterior.coords}
    added = need("xarray", "pymc").Dataset(
        {"unconstrained_draw": (dims, scored.draws), "gradient": (dims, scored.scores)},
        {**coords, "unconstrained_parameter": list(scored.names)},
    )
    stats = tree["sample_stats"].dataset if "sample_stats" in tree.children else None
    if stats is not None:
        own = [name for name in ("unconstrained_draw", "gradient", "unconstrained_parameter") if name in stats]
        added = stats.drop_vars(own).merge(added)
    return tree.assign({"sample_stats": need("xarray", "pymc").DataTree(added)})
