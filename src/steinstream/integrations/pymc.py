"""PyMC: thin all chains while ``pm.sample`` runs.

    thin = ss.integrations.pymc.Callback(model, size=200)
    pm.sample(callback=thin)
    thin.kept, thin.datatree()

PyMC passes every draw to the callback in the parent process, unconstrained. The score is the gradient of the log
density of the model there, Jacobian included; it costs one evaluation per draw. Tuning draws are not used. `Trace` does
the same for ``pm.sample(trace=...)``; PyMC itself then stores the kept draws only.

The draws of chains that run in parallel arrive in an order that changes from run to run. Their ids, (chain, draw), do
not change, but a thinner for all chains receives another stream in each run and may keep other draws. With
``per_chain=True`` or ``pm.sample(cores=1)`` the result is reproducible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import AnyArray, Array, Id, Integers
from steinstream.errors import InputError
from steinstream.integrations._common import live_config, live_thinner, need
from steinstream.integrations._draw_metadata import DrawMetadata
from steinstream.integrations._running_convergence import RunningConvergence
from steinstream.postprocess.merging import merge
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import OVERFLOW_LIMIT, concatenate

_BaseTrace: Any = need("pymc.backends.base", "pymc").BaseTrace

#: Statistics of one draw, one mapping per step method.
Stats = Sequence[Mapping[str, Any]]

_BLOCK = 64  # draws that are passed to a thinner at a time


class UnconstrainedModel:
    """The unconstrained space of a PyMC model: draws as vectors, their scores, and the variables of the model.

    Parameters
    ----------
    model : pymc.Model
        The model.

    Raises
    ------
    InputError
        If the model has discrete parameters.

    """

    def __init__(self, model: Any) -> None:
        discrete = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] not in model.continuous_value_vars]
        if discrete:
            raise InputError(
                f"The model has discrete parameters, {', '.join(discrete)}, which have no score.",
                "Marginalise them, for example with pymc_extras.marginalize.",
            )
        self.model = model
        self._inputs = [value.name for value in model.continuous_value_vars]
        self._gradient = model.logp_dlogp_function(ravel_inputs=True)
        self._gradient.set_extra_values({})
        start = model.initial_point()
        self._shapes = [np.shape(start[name]) for name in self._inputs]
        self.names = tuple(
            name + (f"[{','.join(map(str, index))}]" if shape else "")
            for name, shape in zip(self._inputs, self._shapes, strict=True)
            for index in np.ndindex(*shape)
        )
        self._outputs = [value.name for value in model.unobserved_value_vars]
        self._transform = model.compile_fn(
            model.unobserved_value_vars, inputs=model.value_vars, on_unused_input="ignore", point_fn=True
        )

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""
        return len(self.names)

    def vector(self, point: Mapping[str, Any]) -> Array:
        """Return a point of PyMC as one vector."""
        return np.concatenate([np.ravel(point[name]) for name in self._inputs]).astype(np.float64, copy=False)

    def score(self, vector: Array) -> Array:
        """Return the gradient of the log density, Jacobian included."""
        return np.array(self._gradient(vector.astype(self._gradient.dtype, copy=False))[1], dtype=np.float64)

    def values(self, draws: Array) -> dict[str, AnyArray]:
        """Return all unobserved variables at draws (n, d): constrained, unconstrained and deterministic."""
        rows = [self._transform(self._point(draw)) for draw in draws]
        if not rows:
            return {}
        return {name: np.array([row[i] for row in rows]) for i, name in enumerate(self._outputs)}

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

    def _point(self, vector: Array) -> dict[str, Array]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = np.split(vector, ends[:-1])
        return {name: part.reshape(shape) for name, part, shape in zip(self._inputs, parts, self._shapes, strict=True)}


class _Draw(NamedTuple):
    """A draw on its way to the thinner, with PyMC's statistics if they are to be stored."""

    draw: Array
    score: Array
    id: Id
    stats: Stats | None

    @property
    def finite(self) -> bool:
        """Whether all values are finite and below the overflow limit."""
        return bool((np.abs(self.draw) < OVERFLOW_LIMIT).all() and (np.abs(self.score) < OVERFLOW_LIMIT).all())


class _Buffer:
    """Collects draws for a thinner, and holds the statistics of the kept ones. Blocks do not change the result."""

    def __init__(self, thinner: Thinner) -> None:
        self.thinner = thinner
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
        draws, scores, ids, _ = zip(*new, strict=True)
        step = self.thinner.extend(np.array(draws), np.array(scores), ids=np.array(ids))
        self.stats.update(self.thinner, step, [(one.id, one.stats) for one in new if one.stats is not None])


class _Run:
    """One call of ``pm.sample``: all of its chains, with one thinner for all or one each."""

    def __init__(
        self,
        model: Any,
        thinner: Thinner | None,
        per_chain: bool,
        config: ThinConfig | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.space = UnconstrainedModel(model)
        if thinner is not None and per_chain:
            raise InputError("A thinner was given with per_chain=True.", "Pass the settings of the thinners instead.")
        if thinner is not None and thinner.dim != self.space.dim:
            raise InputError(
                f"The thinner is for {thinner.dim} dimensions, the model has {self.space.dim}: "
                f"{', '.join(self.space.names)}.",
                "Count unconstrained parameters: a simplex with three entries has two.",
            )
        self._config: ThinConfig | None = None  # of the thinner of each chain
        self._buffers: dict[int, _Buffer] = {}
        if per_chain:
            self._config = live_config(config, settings)
        else:
            common = live_thinner(self.space.dim, thinner=thinner, config=config, settings=settings)
            self._buffers[0] = _Buffer(common)
        self.draws: dict[int, int] = {}
        """Number of draws of each chain, without tuning."""
        self._first: dict[int, int] = {}  # index of the first draw of each chain: a thinner may have earlier draws
        self._convergence = RunningConvergence(self.space.dim)

    def add(self, chain: int, point: Mapping[str, Any], stats: Stats, store: bool) -> None:
        """Add one draw, and its statistics if ``store``."""
        x = self.space.vector(point)
        buffer = self._buffer(chain)
        index = self._first.setdefault(chain, buffer.thinner.next_index(chain)) + self.draws.setdefault(chain, 0)
        self.draws[chain] += 1
        buffer.add(_Draw(x, self.space.score(x), (chain, index), stats if store else None))
        if np.isfinite(x).all():
            self._convergence.add(chain, x, any(bool(each.get("diverging", False)) for each in stats))

    def _buffer(self, chain: int) -> _Buffer:
        if self._config is None:
            return self._buffers[0]
        if chain not in self._buffers:
            self._buffers[chain] = _Buffer(Thinner(self.space.dim, self._config))
        return self._buffers[chain]

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
        if self._config is None:
            return self._buffers[0].stats.select(ids.tolist())
        return [self._buffers[chain].stats.select([(chain, index)])[0] for chain, index in ids.tolist()]

    @property
    def kept(self) -> Kept:
        """The kept draws of all chains so far, without variables."""
        if not self.draws:
            raise InputError("There are no draws after tuning yet.", "Run pm.sample first, with draws after tuning.")
        sets = [thinner.kept for thinner in self.thinners.values() if thinner.seen > thinner.skipped]
        if not sets:
            raise InputError(
                f"All {sum(self.draws.values())} draws have values that are not finite.", "Check the model."
            )
        kept = sets[0] if len(sets) == 1 else _merged(sets)
        source = {"tool": "pymc", **self._convergence.summary(self.space.names)}
        return replace(kept, names=self.space.names, settings={**kept.settings, "source": source})


def _merged(sets: Sequence[Kept]) -> Kept:
    """Return the union of the kept sets of several thinners, in which all draws have the same weight."""
    kept = merge(sets, masses="kept")
    streams = [one.stream for one in sets if one.stream is not None]
    settings = {**kept.settings, "config": sets[0].settings["config"], "thinners": [one.settings for one in sets]}
    return replace(kept, settings=settings, stream=concatenate(streams) if streams else None)


class _RunResult:
    """Results of a run of ``pm.sample``, for `Callback` and `Trace`."""

    _run: _Run

    @property
    def thinners(self) -> dict[int, Thinner]:
        """The thinner of all chains, under key 0, or the thinner of each chain."""
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
    model : pymc.Model
        The model.
    thinner : Thinner, optional
        Thinner to continue with; new draws continue its indices. Default: a new one.
    per_chain : bool, default False
        Use one thinner per chain, with the same settings. `kept` is then the union of their kept draws.
    config : ThinConfig, optional
        Settings of a new thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The default preconditioner is
        `Streaming`.

    Raises
    ------
    InputError
        If the model has discrete parameters, or both a thinner and settings are given.

    """

    def __init__(
        self,
        model: Any,
        thinner: Thinner | None = None,
        *,
        per_chain: bool = False,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        self._run = _Run(model, thinner, per_chain, config, settings)
        self._last: dict[int, int] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Add one draw of one chain; called by PyMC."""
        if draw.draw_idx <= self._last.get(draw.chain, -1):
            raise InputError("This callback was used in another run of pm.sample.", "Create a new one for each run.")
        self._last[draw.chain] = draw.draw_idx
        if not draw.tuning:
            self._run.add(draw.chain, draw.point, draw.stats, store=False)


class Trace(_RunResult, _BaseTrace):  # type: ignore[misc]
    """Trace for ``pm.sample(trace=...)``: PyMC stores the kept draws only, in O(kept * d) memory.

    ``pm.sample`` then returns the kept draws of all chains as one chain, because thinned chains have different lengths.
    ``sample_stats`` has PyMC's statistics of each draw, ``source_chain`` and ``source_draw``. PyMC's convergence checks
    have no meaning for thinned draws: pass ``compute_convergence_checks=False``. ``kept.settings["source"]`` holds
    R-hat and ESS of the chains.

    Parameters
    ----------
    model, thinner, per_chain, config, **settings
        See `Callback`. A thinner must not have draws yet.

    Raises
    ------
    InputError
        If the model has discrete parameters, the thinner has draws, or both a thinner and settings are given.

    """

    def __init__(
        self,
        model: Any,
        thinner: Thinner | None = None,
        *,
        per_chain: bool = False,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model=model)
        if thinner is not None and (thinner.seen or len(thinner)):
            raise InputError(
                "The thinner already has draws, whose statistics are not known.",
                "Pass a new thinner to the trace, or use a Callback.",
            )
        self._run = _Run(model, thinner, per_chain, config, settings)
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
