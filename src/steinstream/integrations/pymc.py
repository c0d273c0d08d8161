"""PyMC: thin all chains while ``pm.sample`` runs.

    thin = ss.integrations.pymc.Callback(model, size=200)
    pm.sample(callback=thin)
    thin.kept, thin.datatree()

PyMC hands every draw to the callback in the parent process, unconstrained. Its score is the gradient of the model's log
density there, Jacobian included, which costs one evaluation a draw. Tuning draws are not for keeping. :class:`Trace`
does the same as ``pm.sample(trace=...)``: then PyMC itself stores nothing but what is kept.

Chains that run side by side come in an order that changes from run to run. Each draw's id, (chain, draw), does not; but
one thinner in common sees another stream each time, and may keep other draws, as good. ``per_chain=True`` or
``pm.sample(cores=1)`` gives the same draws again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, need
from steinstream.integrations._running_convergence import RunningConvergence
from steinstream.integrations._union import union
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner
from steinstream.validation import OVERFLOW_LIMIT

_BaseTrace: Any = need("pymc.backends.base", "pymc").BaseTrace

Array = NDArray[np.float64]
Id = tuple[int, int]
Stats = Sequence[Mapping[str, Any]]

_MANY = 64  # draws at once cost a thinner far less than one by one


class Space:
    """The unconstrained space of a PyMC model: its points as vectors, their scores, and the user's own parameters."""

    def __init__(self, model: Any) -> None:
        discrete = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] not in model.continuous_value_vars]
        if discrete:
            raise InputError(
                f"The model has discrete parameters, {', '.join(discrete)}: there the score is not defined.",
                "Marginalise them, for instance with pymc_extras.marginalize.",
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
        """A point as PyMC has it, as one vector."""
        return np.concatenate([np.ravel(point[name]) for name in self._inputs]).astype(np.float64, copy=False)

    def score(self, vector: Array) -> Array:
        """The gradient of the log density, Jacobian included."""
        return np.array(self._gradient(vector.astype(self._gradient.dtype, copy=False))[1], dtype=np.float64)

    def values(self, points: Array) -> dict[str, NDArray[Any]]:
        """All of the model's unobserved variables at points (n, d): constrained, unconstrained and deterministic."""
        rows = [self._transform(self._point(point)) for point in points]
        if not rows:
            return {}
        return {name: np.array([row[i] for row in rows]) for i, name in enumerate(self._outputs)}

    def variables(self, values: Mapping[str, NDArray[Any]]) -> dict[str, Variable]:
        """Those a user knows, with the model's dimensions and coordinates."""
        coords, dims = self.labels()
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

    def labels(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Preconditioner and dimensions by name, as PyMC gives them to ArviZ."""
        coords, dims = need("pymc.backends.arviz", "pymc").coords_and_dims_for_inferencedata(self.model)
        return coords, dims

    def data(self) -> dict[str, Any]:
        """The groups ``observed_data`` and ``constant_data``: posterior prediction compares with the latter."""
        arviz, base = need("pymc.backends.arviz", "pymc"), need("arviz_base", "pymc")
        coords, dims = self.labels()
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


class _Queue:
    """Draws on their way to a thinner, and PyMC's statistics of those that are kept. The same result as one by one."""

    def __init__(self, thinner: Thinner) -> None:
        self.thinner = thinner
        self.stats: dict[Id, Stats] = {}
        self._draws: list[tuple[Array, Array, Id]] = []
        self._waiting: dict[Id, Stats] = {}  # statistics of draws of which the thinner has not said whether they stay

    def put(self, draw: Array, score: Array, pair: Id, stats: Stats | None) -> None:
        """One draw; a bad one is brought to the thinner's notice at once."""
        self._draws.append((draw, score, pair))
        good = bool((np.abs(draw) < OVERFLOW_LIMIT).all() and (np.abs(score) < OVERFLOW_LIMIT).all())
        if good and stats is not None:
            self._waiting[pair] = stats
        if not good or len(self._draws) >= _MANY:
            self.flush()

    def flush(self) -> None:
        """Hand over what has come."""
        draws, self._draws = self._draws, []
        if not draws:
            return
        points, scores, ids = zip(*draws, strict=True)
        step = self.thinner.extend(np.array(points), np.array(scores), ids=np.array(ids))
        self.stats |= {pair: self._waiting[pair] for pair in step.added if pair in self._waiting}
        for pair in step.dropped:
            self.stats.pop(pair, None)
        over = len(self._waiting) - (self.thinner.candidates - 1)  # the last may wait for more candidates
        for pair in list(self._waiting)[: max(over, 0)]:
            del self._waiting[pair]


class _Run:
    """One call of ``pm.sample``: all of its chains, one thinner in common or one each."""

    def __init__(self, model: Any, thinner: Thinner | None, per_chain: bool, settings: dict[str, Any]) -> None:
        self.space = Space(model)
        if thinner is not None and (per_chain or settings):
            raise InputError(
                "A thinner was given, and settings for another.", "Give the thinner alone, or the settings alone."
            )
        if thinner is not None and thinner.dim != self.space.dim:
            raise InputError(
                f"The thinner has {thinner.dim} dimensions, the model {self.space.dim}: {', '.join(self.space.names)}.",
                "Count unconstrained parameters, where a simplex of 3 is 2; or leave the thinner out.",
            )
        self._settings, self._per_chain = settings, per_chain
        self._queues = {} if per_chain else {0: _Queue(thinner or live_thinner(self.space.dim, **settings))}
        self.draws: dict[int, int] = {}  # that came, by chain, without tuning
        self._first: dict[int, int] = {}  # the number of the first of them: a thinner may go on
        self._convergence = RunningConvergence(self.space.dim)

    def take(self, chain: int, point: Mapping[str, Any], stats: Stats, store: bool) -> None:
        """One draw, which is no tuning draw; its statistics are for keeping if ``store``."""
        x = self.space.vector(point)
        queue = self._queue(chain)
        number = self._first.setdefault(chain, queue.thinner.next_index(chain)) + self.draws.setdefault(chain, 0)
        self.draws[chain] += 1
        queue.put(x, self.space.score(x), (chain, number), stats if store else None)
        if np.isfinite(x).all():
            self._convergence.add(chain, x, any(bool(each.get("diverging", False)) for each in stats))

    @property
    def thinners(self) -> dict[int, Thinner]:
        """They have seen all draws that came."""
        for queue in self._queues.values():
            queue.flush()
        return {chain: queue.thinner for chain, queue in sorted(self._queues.items())}

    @property
    def stats(self) -> dict[Id, Stats]:
        """PyMC's statistics of the kept draws."""
        return {pair: stats for queue in self._queues.values() for pair, stats in queue.stats.items()}

    @property
    def kept(self) -> Kept:
        """What is kept of all chains, as if they ended here."""
        if not self.draws:
            raise InputError("No draws have come yet, tuning aside.", "Call pm.sample first, with draws after tuning.")
        sets = [thinner.kept for thinner in self.thinners.values() if thinner.seen > thinner.skipped]
        if not sets:
            raise InputError(f"All {sum(self.draws.values())} draws were bad.", "Repair the model.")
        source = {"tool": "pymc", **self._convergence.summary(self.space.names)}
        kept = union(sets)
        return replace(kept, names=self.space.names, settings={**kept.settings, "source": source})

    def datatree(self, kept: Kept, stacked: bool) -> Any:
        tree, xarray = kept.to_datatree(stacked=stacked), need("xarray", "pymc")
        return tree.assign({name: xarray.DataTree(dataset) for name, dataset in self.space.data().items()})

    def _queue(self, chain: int) -> _Queue:
        if not self._per_chain:
            return self._queues[0]
        if chain not in self._queues:
            self._queues[chain] = _Queue(live_thinner(self.space.dim, **self._settings))
        return self._queues[chain]


class _Thinned:
    """What a run of ``pm.sample`` leaves."""

    _run: _Run

    @property
    def thinners(self) -> dict[int, Thinner]:
        """The one thinner, as 0, or one by chain."""
        return self._run.thinners

    @property
    def kept(self) -> Kept:
        """What is kept, with the model's own variables."""
        kept = self._run.kept
        space = self._run.space
        return replace(kept, variables=space.variables(space.values(kept.draws)))

    def datatree(self, *, stacked: bool = True) -> Any:
        """What is kept, as ArviZ and ``pm.sample_posterior_predictive`` take it, with the model's data.

        One dimension ``sample``; or without ``stacked`` a single chain, which they take without being told.
        """
        return self._run.datatree(self.kept, stacked)


class Callback(_Thinned):
    """For ``pm.sample(callback=...)``: thins all chains as they run.

    With nothing but the model, about sqrt(n log n) draws are kept, in coordinates that follow the stream. ``settings``
    are those of :class:`~steinstream.Thinner`, ``size`` for one; or give a ``thinner`` of your own, which numbers draws
    on from an earlier run. All chains share one thinner, or with ``per_chain`` have one each, with the same settings.

    PyMC's own trace goes on storing the whole chain: :class:`Trace` does not.
    """

    def __init__(self, model: Any, thinner: Thinner | None = None, *, per_chain: bool = False, **settings: Any) -> None:
        self._run = _Run(model, thinner, per_chain, settings)
        self._last: dict[int, int] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Take one draw of one chain, as PyMC hands it over."""
        if draw.draw_idx <= self._last.get(draw.chain, -1):
            raise InputError("This callback has served another run of pm.sample.", "Make a new one for each run.")
        self._last[draw.chain] = draw.draw_idx
        if not draw.tuning:
            self._run.take(draw.chain, draw.point, draw.stats, store=False)


class Trace(_Thinned, _BaseTrace):  # type: ignore[misc]
    """For ``pm.sample(trace=...)``: PyMC stores what is kept and nothing else, memory O(kept * d).

    ``pm.sample`` then returns the kept draws of all chains as if they were one chain, for thinned chains have different
    lengths; ``sample_stats`` has PyMC's statistics of each, ``source_chain`` and ``source_draw``. PyMC's convergence
    checks mean nothing for them: pass ``compute_convergence_checks=False``; ``kept.settings["source"]`` has R-hat and
    ESS of the chains themselves. Arguments, ``kept`` and ``datatree()`` as in :class:`Callback`.
    """

    def __init__(self, model: Any, thinner: Thinner | None = None, *, per_chain: bool = False, **settings: Any) -> None:
        super().__init__(model=model)
        if thinner is not None and (thinner.seen or len(thinner)):
            raise InputError(
                "This thinner has draws already, and PyMC's statistics of them are not known.",
                "Give the trace a new thinner, or go on with this one in a Callback.",
            )
        self._run = _Run(model, thinner, per_chain, settings)
        self._tuned = 0
        self._result: _Result | None = None
        self._rows: NDArray[np.int64] | None = None

    # PyMC copies the trace for every chain, and so they share the run.

    def setup(self, draws: int, chain: int, sampler_vars: Any = None) -> None:
        """Called by PyMC for each chain before it starts."""
        if self._run.draws:
            raise InputError("This trace has served another run of pm.sample.", "Make a new one for each run.")
        own = {"source_chain": np.int64, "source_draw": np.int64}
        super().setup(draws, chain, [*(sampler_vars or []), own])
        self.chain = chain

    def record(self, draw: Mapping[str, Any], stats: Sequence[Mapping[str, Any]], *, in_warmup: bool) -> None:
        """Called by PyMC for each draw."""
        if in_warmup:
            self._tuned += 1
        else:
            self._run.take(self.chain, draw, stats, store=True)

    # What pm.sample asks for in the end: tuning draws are rows below 0, of which nothing is known.

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return self._tuned + len(self._run.kept) if self._speaks else 0

    @property
    def _speaks(self) -> bool:
        """Whether this is the chain as which the kept draws of all are shown: the first that came out of tuning."""
        return self.chain is not None and self.chain == next(iter(self._run.draws), None)

    def _slice(self, idx: slice) -> Trace:
        sliced = copy(self)
        sliced._result = self._result or _Result(self._run)
        rows = np.arange(-self._tuned, len(sliced._result.kept)) if self._rows is None else self._rows
        sliced._rows = rows[idx]
        return sliced

    def get_values(self, varname: str, burn: int = 0, thin: int = 1) -> NDArray[Any]:
        """The kept draws of a variable."""
        return self._shown.values[varname][self._picked(burn, thin)]

    def _get_sampler_stats(self, stat_name: str, sampler_idx: int, burn: int, thin: int) -> NDArray[Any]:
        rows, result = self._picked(burn, thin), self._shown
        source = {"source_chain": 0, "source_draw": 1}
        if stat_name in source:
            ids: NDArray[Any] = result.kept.ids[rows, source[stat_name]]
            return ids
        each = [result.stats[row][sampler_idx][stat_name] for row in rows]
        array: NDArray[Any] = np.empty(len(each), dtype=self.sampler_vars[sampler_idx][stat_name])
        array[:] = each
        return array

    def point(self, idx: int) -> dict[str, Any]:
        """The variables of one kept draw."""
        return {name: self.get_values(name)[idx] for name in self.varnames}

    @property
    def _shown(self) -> _Result:
        return self._result or _Result(self._run)

    def _picked(self, burn: int, thin: int) -> NDArray[np.int64]:
        rows = np.arange(len(self._run.kept)) if self._rows is None else self._rows
        rows = rows[burn::thin]
        if len(rows) and rows[0] < 0:
            raise InputError("Tuning draws are not stored by this trace.", "Leave discard_tuned_samples at True.")
        return rows


class _Result:
    """All that is known of the kept draws, computed once, when sampling is over."""

    def __init__(self, run: _Run) -> None:
        self.kept = run.kept
        self.values = run.space.values(self.kept.draws)
        stats = run.stats
        self.stats = [stats[chain, draw] for chain, draw in self.kept.ids.tolist()]
