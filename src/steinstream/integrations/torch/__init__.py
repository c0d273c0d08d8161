"""PyTorch: a sampler that walks through a network's weights, and a collector that keeps the networks that matter.

The sampler is the user's: any loop that changes a module's weights. After each of its steps the collector takes the
weights (all that want a gradient, one vector in the order of ``module.parameters()``) with the gradient of the log
posterior there, and asks a thinner. What hangs on a kept draw, its weights and predictions among them, exists exactly
as long as the draw is kept, on disk too, and after a kill at any instant: :mod:`steinstream.draw_store`.

Which score goes with a draw matters (:mod:`steinstream.samplers.sgld` says why), and is recorded:

- ``"full"``: from all data. No noise.
- ``"minibatch"``: from the minibatch of the sampler's own step. It costs nothing more where that gradient is at hand.
- ``"independent"``: from another minibatch, whose noise has no part in where the chain goes.

Cost of a call: that of the score if it is not given, and one pass over the kept draws. Networks of more than 10 000
weights are stored as float32 (:mod:`steinstream.thinner.dictionary_f32`); the whole of their draws is in memory and on disk.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream._typing import Id
from steinstream.ensemble import EnsemblePrediction
from steinstream.errors import InputError, one_of
from steinstream.integrations._common import live_thinner, need
from steinstream.integrations.torch._storage import Files, Memory, Tensors, Weights
from steinstream.integrations.torch._storage import Posterior as Posterior
from steinstream.io import checkpoint
from steinstream.preconditioning import Streaming, Warmup
from steinstream.result import Kept
from steinstream.schedules import name_of
from steinstream.thinner import StepInfo, Thinner
from steinstream.validation import id_tuples as pairs

if TYPE_CHECKING:
    from steinstream.integrations.torch.flat_network import FlatNetwork as FlatNetwork
    from steinstream.integrations.torch.posterior import SubspacePosterior as SubspacePosterior
    from steinstream.integrations.torch.subspace import Subspace as Subspace

__all__ = ["Collector", "FlatNetwork", "Posterior", "Subspace", "SubspacePosterior"]

_WITH_TORCH = {"FlatNetwork": "flat_network", "Subspace": "subspace", "SubspacePosterior": "posterior"}

SCORES = ("full", "minibatch", "independent")

_WIDE = 10_000  # weights from which on draws are stored as float32
_EVERY = 100  # steps after which a checkpoint is written though nothing changed
_SCORE, _PREDICTION, _PAYLOAD = "steinstream/score", "steinstream/prediction", "steinstream/payload/"


class WeightSubspace(Protocol):
    """Interface of a subspace of weights: any object with ``dim`` and ``weights(z)``, such as `Subspace`."""

    dim: int

    def weights(self, z: Any, /) -> Any:
        """Return the weight vector at z, differentiable by z."""


class Collector:
    """Keeps the networks that matter, while they are sampled.

    Parameters
    ----------
    module
        The network whose weights the sampler changes. The collector changes neither them nor their gradients.
    log_posterior
        ``log_posterior(module, *batch)``, a scalar to differentiate; :class:`Posterior` makes one of a loss and a
        prior. None if every call brings its score.
    thinner, settings
        A fresh thinner, or the settings of one: ``size=100``, say. Its coordinates follow the stream unless given.
    candidates
        SPMCMC: of every so many consecutive draws of a chain, only the best is added.
    folder, resume, sync
        Where to store things, else they are in memory: ``draws/CHAIN_DRAW.safetensors`` for each kept draw, with the
        weights under the names the module has for them, and ``thinner.npz``. With ``resume`` a run that is there goes
        on. ``sync`` is explained in :mod:`steinstream.draw_store`.
    score
        Which score the draws have: ``"full"``, ``"minibatch"`` or ``"independent"``.
    data
        Batches (tuples of tensors), to go through again and again: all of them make a full score (the mean over the
        batches, by their lengths), the next one makes an independent one. Without, batches come with the calls.
    subspace
        Draws are positions z in it, not weights; the posterior is that of the weights, cut by it.
    predict, predictions
        ``predict(module)`` gives what a network says on a reference set. It is called once for each draw that comes to
        be kept, and the average of all that are kept is in ``predictions``.
    payload
        ``payload(module)`` gives more to keep with a draw: tensors or arrays by name.

    """

    def __init__(
        self,
        module: Any,
        log_posterior: Callable[..., Any] | None = None,
        *,
        thinner: Thinner | None = None,
        candidates: int = 1,
        folder: str | PathLike[str] | None = None,
        resume: bool = False,
        sync: bool = True,
        score: str = "full",
        data: Iterable[Any] | None = None,
        subspace: WeightSubspace | None = None,
        predict: Callable[[Any], Any] | None = None,
        predictions: EnsemblePrediction | None = None,
        payload: Callable[[Any], Mapping[str, Any]] | None = None,
        **settings: Any,
    ) -> None:
        self._torch = need("torch", "torch")
        if log_posterior is not None and not callable(log_posterior):
            raise InputError(
                f"The log posterior must be a function of the module and a batch, not {type(log_posterior).__name__}.",
                "Make one of a loss and a prior with Posterior.",
            )
        if isinstance(data, tuple) and data and all(self._torch.is_tensor(part) for part in data):
            raise InputError("data is one batch, and must be a collection of them.", "Give data=[(x, y)].")
        self.module = module
        self.log_posterior, self.data, self.subspace = log_posterior, data, subspace
        self.score = one_of(SCORES, score, "score")
        self.candidates = candidates
        self._weights = Weights(module)
        self.dim = self._weights.dim if subspace is None else int(subspace.dim)
        self.thinner = self._chosen(thinner, settings)
        self.thinner.note["collector"] = {"score": score, "candidates": candidates, "subspace": subspace is not None}
        self.predict, self.payload = predict, payload
        self.predictions = predictions or EnsemblePrediction()
        self._next_batch: Iterator[Any] = iter(())
        self._groups: dict[int, list[tuple[NDArray[Any], NDArray[Any], Tensors]]] = {}  # candidates of each chain
        self._unsaved = 0  # steps
        self._behind = False  # whether a draw is kept that could not be stored
        self._store: Files | Memory = Memory() if folder is None else Files(Path(folder), sync)
        self._saved = None if folder is None else Path(folder) / "thinner.npz"
        if self._saved is not None:
            self._begin(self._saved, resume)

    def _chosen(self, thinner: Thinner | None, settings: dict[str, Any]) -> Thinner:
        if thinner is None:
            if self.subspace is None and self.dim > _WIDE:
                settings.setdefault("storage", "float32")
            if settings.get("storage") == "float32":
                settings.setdefault("preconditioner", Streaming("scales"))
            thinner = live_thinner(self.dim, **settings)
        elif settings:
            raise InputError(f"Both a thinner and settings for one were given: {', '.join(settings)}.")
        if thinner.dim != self.dim:
            raise InputError(f"The thinner is for {thinner.dim} dimensions, the draws have {self.dim}.")
        if thinner.seen or len(thinner):
            raise InputError("The thinner has draws already, of which the collector has no weights.", "Give a new one.")
        if thinner.candidates != 1 or isinstance(thinner.preconditioner, Warmup):
            raise InputError(
                "The thinner would hold draws back: it has candidates or a warm-up.",
                "Give candidates to the collector itself; use fixed coordinates or Streaming.",
            )
        return thinner

    # -- the stream ------------------------------------------------------------------------------------------------

    def __call__(
        self, *batch: Any, position: ArrayLike | None = None, score: ArrayLike | None = None, chain: int = 0
    ) -> StepInfo:
        """Take the module's current weights, or those at a ``position`` of the subspace.

        The score is computed from the batch, or from ``data``, unless it is given: (d,) in the coordinates of the draw;
        :meth:`gradient` makes one of the gradients that the module has.
        """
        if self._behind:
            raise InputError(
                "An earlier draw was taken in and could not be stored.",
                "Begin again: with resume=True what is in the folder goes on.",
            )
        x = self._position(position)
        s = self._computed_score(x, batch) if score is None else _array(score)
        group = self._groups.setdefault(chain, [])
        group.append((x, s, self._weights.state(self.module) if self.candidates > 1 else {}))
        if len(group) < self.candidates:
            return StepInfo((), (), len(self.thinner), self.thinner.ksd)
        del self._groups[chain]
        first = self.thinner.next_index(chain)
        draws, scores, _ = zip(*group, strict=True)
        step = self.thinner.select(np.stack(draws), np.stack(scores), chain=chain)
        self._behind = True
        new = {id: self._tensors(*group[id[1] - first]) for id in step.added}
        self._unsaved += 1
        if new or step.dropped:
            self._commit(new, step.dropped)
        elif self._unsaved >= _EVERY:
            self.save()
        self._behind = False
        return step

    def gradient(self, scale: float) -> NDArray[np.float64]:
        """The gradients that the module's weights hold (``.grad``) times ``scale``, as a score.

        After ``loss.backward()``, and before the weights change. ``scale`` is what makes a log posterior of the loss:
        -1 for its negative, minus the number of examples if that is a mean over them.
        """
        return scale * self._weights.gradients(self.module)

    def _position(self, position: ArrayLike | None) -> NDArray[np.float64]:
        if self.subspace is None:
            if position is not None:
                raise InputError("A position needs a subspace; without one the draw is the module's weights.")
            return self._weights.vector(self.module)
        if position is not None:
            return _array(position)
        if not hasattr(self.subspace, "coordinates"):
            raise InputError("The subspace cannot say where the weights are.", "Pass the position of each draw.")
        return _array(self.subspace.coordinates(self._weights.tensor(self.module)))

    def _computed_score(self, x: NDArray[np.float64], batch: tuple[Any, ...]) -> NDArray[np.float64]:
        if self.log_posterior is None:
            raise InputError("There is no log posterior to make a score of.", "Give one, or a score with each call.")
        network = self.module if self.subspace is None else self._weights.at(self.module, self._weights_at(x))
        total, count = np.zeros(self._weights.dim), 0
        for part in [batch] if batch else self._batches():
            length = len(part[0]) if part and hasattr(part[0], "__len__") else 1
            with self._torch.enable_grad():
                total += length * self._weights.derivative(network, self.log_posterior(network, *part))
            count += length
        if count == 0:
            raise InputError("There is no data to make a score of.", "Give batches as data.")
        score = total / count
        return score if self.subspace is None else self._along(x, score)

    def _batches(self) -> Iterator[tuple[Any, ...]]:
        """What a score is made of, if a call brings no batch."""
        if self.score == "minibatch":
            raise InputError("The step's own minibatch is not known here.", "Pass the batch, or the score of the step.")
        if self.data is None:
            yield ()
        elif self.score == "full":
            yield from map(_as_batch, self.data)
        else:
            batch = next(self._next_batch, None)
            if batch is None:
                self._next_batch = iter(self.data)
                batch = next(self._next_batch, None)
            if batch is not None:
                yield _as_batch(batch)

    def _weights_at(self, z: NDArray[np.float64]) -> Any:
        with self._torch.no_grad():
            return self.subspace.weights(self._torch.as_tensor(z))  # type: ignore[union-attr]

    def _along(self, z: NDArray[np.float64], score: NDArray[np.float64]) -> NDArray[np.float64]:
        """The part of a score that lies in the subspace."""
        with self._torch.enable_grad():
            place = self._torch.tensor(z, requires_grad=True)
            weights = self.subspace.weights(place)  # type: ignore[union-attr]
            (slope,) = self._torch.autograd.grad(weights, place, self._torch.as_tensor(score).to(weights))
        return _array(slope)

    # -- payloads --------------------------------------------------------------------------------------------------

    def _tensors(self, x: NDArray[np.float64], s: NDArray[np.float64], state: Tensors) -> Tensors:
        """All that is to be stored of a draw that came to be kept."""
        network = self.module
        if self.subspace is not None:
            network = self._weights.at(self.module, self._weights_at(x))
        elif state:
            network = self._weights.loaded(self.module, state)
        tensors = {} if self.subspace is not None else self._weights.state(network)
        if self.thinner.storage == "float32":
            tensors[_SCORE] = self._torch.as_tensor(s, dtype=self._torch.float32)
        with self._torch.no_grad():
            if self.predict is not None:
                tensors[_PREDICTION] = self._torch.as_tensor(self.predict(network)).detach().cpu().clone()
            more = self.payload(network) if self.payload is not None else {}
            for name, value in more.items():
                tensors[_PAYLOAD + name] = self._torch.as_tensor(value).detach().cpu().clone()
        return tensors

    def _commit(self, new: Mapping[Id, Tensors], gone: Iterable[Id]) -> None:
        gone = list(gone)
        if self.predict is not None:
            for tensors in new.values():
                self.predictions.add(tensors[_PREDICTION].numpy())
            for id in gone:
                self.predictions.drop(self._store.read(id, _PREDICTION).numpy())
        self._store.commit(new, gone, self._checkpoint)

    def save(self) -> None:
        """Write the checkpoint. That happens by itself whenever what is kept changes, and every 100 steps.

        Candidates of which none was chosen yet are not part of it.
        """
        self._store.commit({}, [], self._checkpoint)

    def _checkpoint(self) -> None:
        if self._saved is not None:
            checkpoint.save(self.thinner, self._saved, rows=self.subspace is not None, sync=self._store.sync)
        self._unsaved = 0

    def _begin(self, saved: Path, resume: bool) -> None:
        """Take over what the folder holds, if it is to be."""
        if not resume and (saved.exists() or self._store.ids()):
            raise InputError(
                f"{saved.parent} already holds a run.", "Pass resume=True to go on with it, or choose another folder."
            )
        for leftover in saved.parent.glob(f".{saved.name}.*.tmp"):
            leftover.unlink()
        if saved.exists():
            floor, given = self.thinner.growth, (self.thinner.growth, self.thinner.budget)
            growth, budget = (None if name_of(one, floor) else one for one in given)  # those that a file cannot hold
            before = checkpoint.load(saved, growth, budget, self._rows)
            _require_same(before, self.thinner)
            self.thinner = before
        self._store.reconcile(self.ids)
        for id in self.ids if self.predict is not None else ():
            self.predictions.add(self._store.read(id, _PREDICTION).numpy())

    def _rows(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Draws and scores of a wide dictionary: they are in the payloads, not in the checkpoint."""
        points, scores = np.zeros((2, len(ids), self.dim), dtype=np.float32)
        for place, id in enumerate(pairs(ids[:, :2])):
            tensors = self._store.read_all(id)
            points[place], scores[place] = self._weights.flat(tensors), tensors[_SCORE].numpy()
        return {"points": points, "scores": scores}

    # -- the result ------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> list[Id]:
        """Ids (chain, draw) of the kept draws, in order."""
        return list(pairs(self.thinner._kept_set.arrived_after(-1)))

    @property
    def kept(self) -> Kept:
        """The kept draws; ``settings["score"]`` says which scores they have."""
        kept = self.thinner.kept
        return replace(kept, settings={**kept.settings, "score": self.score, "candidates": self.candidates})

    def networks(self) -> Iterator[tuple[Id, Any]]:
        """The kept networks with their ids, each a copy of the module, in the order of the ids."""
        for id, point in zip(self.ids, self._positions(), strict=True):
            if self.subspace is not None:
                yield id, deepcopy(self._weights.at(self.module, self._weights_at(point)))
            else:
                yield id, deepcopy(self._weights.loaded(self.module, self._store.read_all(id)))

    def _positions(self) -> Iterable[Any]:
        return self.ids if self.subspace is None or not len(self.thinner) else self.thinner.kept.draws

    def payloads(self) -> Iterator[tuple[Id, dict[str, Any]]]:
        """What ``payload`` gave for each kept draw."""
        for id in self.ids:
            tensors = self._store.read_all(id)
            found = {name: value for name, value in tensors.items() if name.startswith(_PAYLOAD)}
            yield id, {name.removeprefix(_PAYLOAD): value for name, value in found.items()}

    def close(self) -> None:
        """Write the checkpoint if it is behind, and let others use the folder."""
        if self._unsaved and self._store.open and not self._behind:
            self.save()
        self._store.close()


def _require_same(before: Thinner, now: Thinner) -> None:
    """A run goes on with the settings it began with."""
    for what, one, other in (
        ("collector", before.note.get("collector"), now.note.get("collector")),
        ("dim", before.dim, now.dim),
        ("size", before.size, now.size),
        ("kernel", before.kernel, now.kernel),
        ("preconditioner", _preconditioner(before), _preconditioner(now)),
        ("growth", str(before.growth), str(now.growth)),
        ("budget", str(before.budget), str(now.budget)),
        ("rule", before.rule, now.rule),
        ("anchor", before.anchor, now.anchor),
        ("storage", before.storage, now.storage),
    ):
        if one != other:
            raise InputError(
                f"The run was begun with {what} = {one}, and now it is {other}.",
                "Go on with the same settings, or choose another folder.",
            )


def _preconditioner(thinner: Thinner) -> str:
    follower = thinner._follower
    factor = getattr(thinner.preconditioner, "factor", np.zeros(0))
    return repr(follower.streaming) if follower else f"{thinner.preconditioner} {zlib.crc32(factor.tobytes()):x}"


def _array(values: Any) -> NDArray[np.float64]:
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=np.float64)


def _as_batch(batch: Any) -> tuple[Any, ...]:
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def __getattr__(name: str) -> Any:
    """Import the classes that need PyTorch on first use."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need("torch", "torch")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
