"""PyTorch: collect networks while a sampler changes the weights, and keep those that represent the posterior.

The sampler is any loop that changes the weights of a module. After each step the collector passes the weights (all that
require a gradient, as one vector in the order of ``module.parameters()``) and the gradient of the log posterior to a
thinner. The data of a draw (weights, predictions, payload) exist exactly as long as the draw is kept, also on disk and
after the process was killed: see :mod:`steinstream.draw_store`.

The scores can be of three kinds, which are recorded (:mod:`steinstream.samplers.sgld` explains the difference):

- ``"full"``: from all data, without noise.
- ``"minibatch"``: from the minibatch of the sampler's own step, which costs nothing if that gradient is available.
- ``"independent"``: from another minibatch, whose noise does not influence the chain.

Without a log posterior and without scores, the draws are compared with the chain alone. With ``predict_on=inputs`` the
stream term compares what the networks predict on these inputs, instead of their weights.

A call costs the computation of the score, unless it is given, and one pass over the kept draws. Networks with more than
10 000 weights are stored as float32 (:mod:`steinstream.thinner.dictionary_f32`); all kept draws are in memory and on
disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array, Id, Integers
from steinstream.diagnostics.running_convergence import FEW_PARAMETERS, RunningConvergence
from steinstream.ensemble import EnsemblePrediction
from steinstream.errors import InputError, one_of
from steinstream.integrations._common import live_thinner, need, with_source
from steinstream.integrations.torch._predictions import PredictionsOn, evaluated
from steinstream.integrations.torch._storage import FileStorage, MemoryStorage
from steinstream.integrations.torch._weights import Tensors, Weights
from steinstream.io import checkpoint
from steinstream.preconditioning import Streaming, Warmup
from steinstream.result import Kept
from steinstream.thinner import StepInfo, Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.layout import BOTH, FEATURES
from steinstream.validation import consecutive_ids, id_tuples

if TYPE_CHECKING:
    from steinstream.integrations.torch._scores import scores as scores
    from steinstream.integrations.torch.flat_network import FlatNetwork as FlatNetwork
    from steinstream.integrations.torch.posterior import SubspacePosterior as SubspacePosterior
    from steinstream.integrations.torch.subspace import Subspace as Subspace

__all__ = ["Collector", "FlatNetwork", "Posterior", "Subspace", "SubspacePosterior", "scores"]

_WITH_TORCH = {
    "FlatNetwork": "flat_network",
    "Subspace": "subspace",
    "SubspacePosterior": "posterior",
    "scores": "_scores",
}

SCORE_KINDS = ("full", "minibatch", "independent")

_FLOAT32_DIM = 10_000  # number of weights above which draws are stored as float32
_CHECKPOINT_STEPS = 100  # steps after which a checkpoint is written even if the kept draws did not change
_SCORE, _PREDICTION, _PAYLOAD = "steinstream/score", "steinstream/prediction", "steinstream/payload/"


class Posterior:
    """Log posterior from a loss and a prior; on a minibatch, an unbiased estimate of that on all data.

    Parameters
    ----------
    loss : callable
        ``loss(module, *batch)``: minus the mean log likelihood of the examples in the batch.
    prior : float or callable
        Standard deviation of a normal prior of every weight, or a function of the module that returns the log density
        of its weights.
    examples : int
        Number of examples in all data.

    Raises
    ------
    InputError
        If the standard deviation or the number of examples is not positive.
    """

    def __init__(self, loss: Callable[..., Any], prior: float | Callable[[Any], Any], examples: int) -> None:
        if not callable(prior) and not prior > 0:
            raise InputError(f"The standard deviation of the prior must be positive, got {prior!r}.")
        if not examples > 0:
            raise InputError(f"The number of examples must be positive, got {examples!r}.")
        self.loss, self.prior, self.examples = loss, prior, examples

    def __call__(self, module: Any, *batch: Any) -> Any:
        """Return the log posterior, up to a constant."""
        return self.log_prior(module) - self.examples * self.loss(module, *batch)

    def log_prior(self, module: Any) -> Any:
        """Return the log prior of the weights, up to a constant.

        Parameters
        ----------
        module : torch.nn.Module
            Network with the weights.

        Returns
        -------
        torch.Tensor or float
            Log prior, up to a constant.
        """
        if callable(self.prior):
            return self.prior(module)
        squares = sum(weight.square().sum() for weight in module.parameters() if weight.requires_grad)
        return -0.5 * squares / self.prior**2


class WeightSubspace(Protocol):
    """Interface of a subspace of weights: any object with ``dim`` and ``weights(z)``, such as `Subspace`.

    Attributes
    ----------
    dim : int
        Dimension of the subspace.
    """

    dim: int

    def weights(self, z: Any, /) -> Any:
        """Return the weight vector at z, differentiable by z.

        Parameters
        ----------
        z : torch.Tensor of shape (dim,)
            Coordinates in the subspace.

        Returns
        -------
        torch.Tensor
            Weight vector, differentiable by ``z``.
        """


class _Candidate(NamedTuple):
    """A draw that waits for the other candidates of its chain, with the weights that the module had."""

    draw: Array
    score: Array | None
    state: Tensors
    prediction: Any


class Collector:
    """Collects networks while they are sampled, and keeps those that represent the posterior.

    Parameters
    ----------
    module : torch.nn.Module
        Network whose weights the sampler changes. The collector changes neither the weights nor their gradients.
    log_posterior : callable, optional
        ``log_posterior(module, *batch)`` returns a scalar, which is differentiated; see `Posterior`. Without it, draws
        have the scores of the calls, or no scores.
    thinner : Thinner, optional
        A new thinner. Default: one with the settings below.
    folder : path, optional
        Folder for ``draws/CHAIN_DRAW.safetensors``, one file per kept draw with the weights under the names of the
        module, and the checkpoint ``thinner.npz``. Default: everything is in memory.
    resume : bool, default False
        Continue with the run in ``folder``.
    sync : bool, default True
        Wait until files are on the disk: see :mod:`steinstream.draw_store`.
    score : {"full", "minibatch", "independent"}, default "full"
        Kind of the scores.
    data : iterable of tuple, optional
        Batches (tuples of tensors), which are read repeatedly. A full score is the mean over all batches, weighted by
        their lengths; an independent one is computed from the next batch. Without it, pass batches to the calls.
    subspace : WeightSubspace, optional
        Draws are positions z in a subspace instead of weights.
    predict : callable, optional
        ``predict(module)`` returns the prediction of a network on a reference set, a tensor. It is called once for each
        draw that is kept, with the module in evaluation mode; ``predictions`` holds the average over the kept draws.
        With ``stream_on="features"`` or ``"both"`` it is called for every draw, and the stream term compares the
        predictions.
    predict_on : torch.Tensor or sequence of torch.Tensor, optional
        Inputs (n, ...), or batches of them. The prediction of a network is its output on these inputs, and the stream
        term compares the predictions instead of the weights. For classes, probabilities are compared: see
        ``predictions``. The inputs are moved to the device of the module, and processed 512 at a time.
    predictions : EnsemblePrediction, optional
        Accumulator of the predictions. Its kind decides what the outputs on ``predict_on`` are: logits or probabilities
        of ``"classes"``, or ``"values"``. Default: decided by the first prediction; an error if outputs may be logits.
    payload : callable, optional
        ``payload(module)`` returns further tensors or arrays by name that are stored with a draw.
    config : ThinConfig, optional
        Settings of a new thinner. Default: the default settings, with ``storage="float32"`` above 10 000 weights.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The default preconditioner is
        `Streaming`. ``candidates`` are consecutive draws of one chain.

    Attributes
    ----------
    thinner : Thinner
        The thinner.
    predictions : EnsemblePrediction
        Average prediction of the kept networks.

    Raises
    ------
    InputError
        If an argument is invalid, ``folder`` holds a run and ``resume`` is False, or the settings differ from those of
        the run.
    """

    def __init__(
        self,
        module: Any,
        log_posterior: Callable[..., Any] | None = None,
        *,
        thinner: Thinner | None = None,
        folder: str | PathLike[str] | None = None,
        resume: bool = False,
        sync: bool = True,
        score: str = "full",
        data: Iterable[Any] | None = None,
        subspace: WeightSubspace | None = None,
        predict: Callable[[Any], Any] | None = None,
        predict_on: Any = None,
        predictions: EnsemblePrediction | None = None,
        payload: Callable[[Any], Mapping[str, Any]] | None = None,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        self._torch = need("torch", "torch")
        if log_posterior is not None and not callable(log_posterior):
            raise InputError(
                f"log_posterior must be a function of the module and a batch, got {type(log_posterior).__name__}.",
                "Create one from a loss and a prior with Posterior.",
            )
        if isinstance(data, tuple) and data and all(self._torch.is_tensor(part) for part in data):
            raise InputError("data must be a collection of batches, got one batch.", "Pass data=[(x, y)].")
        self.module = module
        self.log_posterior, self.data, self.subspace = log_posterior, data, subspace
        self.score = one_of(SCORE_KINDS, score, "score")
        self._weights = Weights(module)
        self.dim = self._weights.dim if subspace is None else int(subspace.dim)
        chosen = self._config(config, settings) if thinner is None else None
        self.candidates = 1 if chosen is None else chosen.candidates
        if chosen is not None:
            self.thinner = Thinner(self.dim, chosen.replace(candidates=1))  # the collector groups the candidates
        else:
            self.thinner = live_thinner(self.dim, thinner=thinner, config=config, settings=settings)
            _require_usable(self.thinner)
        self.predictions = predictions or EnsemblePrediction()
        if predict is not None and predict_on is not None:
            raise InputError("Both predict and predict_on were given.", "Pass one of them.")
        inputs = None if predict_on is None else PredictionsOn(predict_on, self.predictions.kind)
        self.predict, self.payload = inputs or predict, payload
        stream_on = self.thinner.config.stream_on
        self._thins_predictions = stream_on in (FEATURES, BOTH) or (stream_on is None and predict_on is not None)
        if self._thins_predictions and self.predict is None:
            raise InputError(f'stream_on="{stream_on}" needs predictions.', "Pass predict_on or predict.")
        self.thinner.note["collector"] = {
            "score": score,
            "candidates": self.candidates,
            "subspace": subspace is not None,
            "predict_on": None if inputs is None else inputs.checksum,
        }
        self._next_batch: Iterator[Any] = iter(())
        self._groups: dict[int, list[_Candidate]] = {}  # candidates of each chain
        self._convergence = RunningConvergence(self.dim, FEW_PARAMETERS)
        self._unsaved_steps = 0
        self._storage_failed = False  # whether a kept draw could not be stored
        self._storage: FileStorage | MemoryStorage = (
            MemoryStorage() if folder is None else FileStorage(Path(folder), sync)
        )
        self._checkpoint_path = None if folder is None else Path(folder) / "thinner.npz"
        if self._checkpoint_path is not None:
            self._start(self._checkpoint_path, resume)

    def _config(self, config: ThinConfig | None, settings: dict[str, Any]) -> ThinConfig:
        if config is None and self.subspace is None and self.dim > _FLOAT32_DIM:
            settings = {"storage": "float32", **settings}
        chosen = ThinConfig.of(config, **settings)
        if chosen.storage == "float32" and chosen.preconditioner is None:
            chosen = chosen.replace(preconditioner=Streaming("scales"))
        if isinstance(chosen.preconditioner, Warmup):
            raise _holds_back()
        return chosen

    # -- adding draws --------------------------------------------------------------------------------------------------

    def __call__(
        self, *batch: Any, position: ArrayLike | None = None, score: ArrayLike | None = None, chain: int = 0
    ) -> StepInfo:
        """Add the current weights of the module, or those at a position of the subspace.

        Parameters
        ----------
        *batch
            Batch from which the score is computed. Default: ``data``.
        position : array_like, optional
            Position in the subspace, (d,). Default: that of the current weights.
        score : array_like, optional
            Score of the draw, (d,): see `gradient`. Default: it is computed from the log posterior, if there is one.
        chain : int, default 0
            Chain of the draw.

        Returns
        -------
        StepInfo
            What changed.

        Raises
        ------
        InputError
            If the score cannot be computed, or an earlier draw could not be stored.
        """
        if self._storage_failed:
            raise InputError(
                "An earlier draw could not be stored.", "Create the collector again with resume=True to continue."
            )
        x = self._position(position)
        s = None if score is None else _as_array(score)
        if s is None and self.log_posterior is not None:
            s = self._computed_score(self.log_posterior, x, batch)
        elif s is None and batch:
            raise InputError("A batch was given without a log posterior.", "Pass a log posterior to differentiate.")
        prediction = self._prediction(self._network(x)) if self._thins_predictions else None
        group = self._groups.setdefault(chain, [])
        group.append(_Candidate(x, s, self._weights.state(self.module) if self.candidates > 1 else {}, prediction))
        if len(group) < self.candidates:
            return StepInfo((), (), len(self.thinner), self.thinner.ksd)
        del self._groups[chain]
        first, draws = self.thinner.next_index(chain), np.stack([one.draw for one in group])
        step = self.thinner.select(
            draws,
            _stacked([one.score for one in group]),
            chain=chain,
            features=_stacked([None if one.prediction is None else _as_array(one.prediction) for one in group]),
        )
        self._convergence.add(consecutive_ids(chain, first, len(draws)), draws)
        self._storage_failed = True
        added = {id: self._tensors(group[id[1] - first]) for id in step.added}
        self._unsaved_steps += 1
        if added or step.dropped:
            self._commit(added, step.dropped)
        elif self._unsaved_steps >= _CHECKPOINT_STEPS:
            self.save()
        self._storage_failed = False
        return step

    def gradient(self, scale: float) -> Array:
        """Return the gradients that the weights hold (``.grad``) as a score.

        Call it after ``loss.backward()``, before the weights change.

        Parameters
        ----------
        scale : float
            Factor between the loss and the log posterior: -1 if the loss is its negative, minus the number of examples
            if the loss is the negative mean over them.

        Returns
        -------
        array
            The score, (d,).
        """
        return scale * self._weights.gradients(self.module)

    def _position(self, position: ArrayLike | None) -> Array:
        if self.subspace is None:
            if position is not None:
                raise InputError("position was given without a subspace.", "Leave it out, or pass a subspace.")
            return self._weights.vector(self.module)
        if position is not None:
            return _as_array(position)
        if not hasattr(self.subspace, "coordinates"):
            raise InputError(
                "The subspace has no method coordinates(weights).", "Add it, or pass the position of each draw."
            )
        return _as_array(self.subspace.coordinates(self._weights.tensor(self.module)))

    def _network(self, x: Array) -> Any:
        """Return the network of a draw: the module, or a copy with the weights of a position."""
        return self.module if self.subspace is None else self._weights.at(self.module, self._weights_at(x))

    def _prediction(self, network: Any) -> Any:
        """Return the prediction of a network, a tensor; None without a function of the predictions."""
        return None if self.predict is None else evaluated(self.predict, network)

    def _computed_score(self, log_posterior: Callable[..., Any], x: Array, batch: tuple[Any, ...]) -> Array:
        network = self._network(x)
        total, count = np.zeros(self._weights.dim), 0
        for part in [batch] if batch else self._batches():
            length = len(part[0]) if part and hasattr(part[0], "__len__") else 1
            with self._torch.enable_grad():
                total += length * self._weights.derivative(network, log_posterior(network, *part))
            count += length
        if count == 0:
            raise InputError("No data are given to compute a score from.", "Pass batches as data.")
        score = total / count
        return score if self.subspace is None else self._in_subspace(x, score)

    def _batches(self) -> Iterator[tuple[Any, ...]]:
        """Yield the batches of a score if the call has none."""
        if self.score == "minibatch":
            raise InputError("The minibatch of the step is not known.", "Pass the batch, or the score of the step.")
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

    def _weights_at(self, z: Array) -> Any:
        with self._torch.no_grad():
            return self.subspace.weights(self._torch.as_tensor(z))  # type: ignore[union-attr]

    def _in_subspace(self, z: Array, score: Array) -> Array:
        """Return the gradient with respect to z from that with respect to the weights."""
        with self._torch.enable_grad():
            place = self._torch.tensor(z, requires_grad=True)
            weights = self.subspace.weights(place)  # type: ignore[union-attr]
            (slope,) = self._torch.autograd.grad(weights, place, self._torch.as_tensor(score).to(weights))
        return _as_array(slope)

    # -- storage -------------------------------------------------------------------------------------------------------

    def _tensors(self, new: _Candidate) -> Tensors:
        """Return everything that is stored with a draw."""
        network = self._weights.loaded(self.module, new.state) if new.state else self._network(new.draw)
        tensors = {} if self.subspace is not None else self._weights.state(network)
        if self.thinner.config.storage == "float32" and new.score is not None:
            tensors[_SCORE] = self._torch.as_tensor(new.score, dtype=self._torch.float32)
        prediction = self._prediction(network) if new.prediction is None else new.prediction
        if prediction is not None:
            tensors[_PREDICTION] = prediction
        with self._torch.no_grad():
            more = self.payload(network) if self.payload is not None else {}
            for name, value in more.items():
                tensors[_PAYLOAD + name] = self._torch.as_tensor(value).detach().cpu().clone()
        return tensors

    def _commit(self, added: Mapping[Id, Tensors], dropped: Iterable[Id]) -> None:
        dropped = list(dropped)
        if self.predict is not None:
            for tensors in added.values():
                self.predictions.add(_as_array(tensors[_PREDICTION]))
            for id in dropped:
                self.predictions.drop(_as_array(self._storage.read(id, _PREDICTION)))
        self._storage.commit(added, dropped, self._write_checkpoint)

    def save(self) -> None:
        """Write the checkpoint.

        This also happens whenever the kept draws change, and every 100 steps. Candidates of an incomplete group are not
        part of the checkpoint.
        """
        self._storage.commit({}, [], self._write_checkpoint)

    def _write_checkpoint(self) -> None:
        if self._checkpoint_path is not None:
            self.thinner.note["convergence"] = self._convergence.state()
            rows = self.subspace is not None
            checkpoint.save(self.thinner, self._checkpoint_path, rows=rows, sync=self._storage.sync)
        self._unsaved_steps = 0

    def _start(self, path: Path, resume: bool) -> None:
        """Continue with the run in the folder if ``resume``; otherwise require that there is none."""
        if not resume and (path.exists() or self._storage.ids()):
            raise InputError(
                f"{path.parent} already holds a run.", "Pass resume=True to continue with it, or choose another folder."
            )
        for leftover in path.parent.glob(f".{path.name}.*.tmp"):
            leftover.unlink()
        if path.exists():
            stored = checkpoint.load(path, read_rows=self._stored_rows, **self.thinner.config.functions())
            _require_same(stored, self.thinner)
            self.thinner = stored
            self._convergence.restore(stored.note.get("convergence"))
        self._storage.reconcile(self.ids)
        for id in self.ids if self.predict is not None else ():
            self.predictions.add(_as_array(self._storage.read(id, _PREDICTION)))

    def _stored_rows(self, ids: Integers) -> dict[str, AnyArray]:
        """Return draws and scores of float32 storage, which are in the files of the draws, not in the checkpoint."""
        draws, scores = [], []
        for id in id_tuples(ids[:, :2]):
            tensors = self._storage.read_all(id)
            draws.append(self._weights.flat(tensors).astype(np.float32))
            scores.append(tensors[_SCORE].numpy() if _SCORE in tensors else np.zeros(0, np.float32))
        return {"draws": np.reshape(draws, (-1, self.dim)), "scores": np.reshape(scores, (len(draws), -1))}

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> list[Id]:
        """Ids (chain, draw) of the kept draws, in order."""
        return list(self.thinner.kept_ids)

    @property
    def kept(self) -> Kept:
        """The kept draws.

        Returns
        -------
        Kept
            ``settings["score"]`` is the kind of their scores, None without scores. ``settings["source"]`` holds the
            length of the chains, and R-hat and ESS of the worst of at most 64 weights.
        """
        kept = with_source(self.thinner.kept, "torch", self._convergence)
        score = None if kept.scores is None else self.score
        return replace(kept, settings={**kept.settings, "score": score, "candidates": self.candidates})

    def networks(self) -> Iterator[tuple[Id, Any]]:
        """Yield id and network of each kept draw, in order; each network is a copy of the module.

        Yields
        ------
        tuple
            Id (chain, index) and network.
        """
        if self.subspace is None:
            for id in self.ids:
                yield id, deepcopy(self._weights.loaded(self.module, self._storage.read_all(id)))
            return
        for id, z in zip(self.ids, self.thinner.kept.draws if self.ids else (), strict=True):
            yield id, deepcopy(self._weights.at(self.module, self._weights_at(z)))

    def payloads(self) -> Iterator[tuple[Id, dict[str, Any]]]:
        """Yield id and result of ``payload`` for each kept draw, in order.

        Yields
        ------
        tuple
            Id (chain, index) and the dictionary that ``payload`` returned.
        """
        for id in self.ids:
            tensors = self._storage.read_all(id)
            found = {name: value for name, value in tensors.items() if name.startswith(_PAYLOAD)}
            yield id, {name.removeprefix(_PAYLOAD): value for name, value in found.items()}

    def close(self) -> None:
        """Write the checkpoint if it is not up to date, and release the folder."""
        if self._unsaved_steps and self._storage.open and not self._storage_failed:
            self.save()
        self._storage.close()


def _require_usable(thinner: Thinner) -> None:
    """Raise an `InputError` if a thinner has draws, or would not decide about each draw at once."""
    if thinner.seen or len(thinner):
        raise InputError("The thinner already has draws, whose weights are not known.", "Pass a new thinner.")
    if thinner.config.candidates != 1 or isinstance(thinner.preconditioner, Warmup):
        raise _holds_back()


def _holds_back() -> InputError:
    return InputError(
        "The thinner would hold draws back, because it has candidates or a warm-up.",
        "Pass candidates= and other settings instead of a thinner, and use a fixed preconditioner or Streaming.",
    )


def _require_same(stored: Thinner, now: Thinner) -> None:
    """Raise an `InputError` if the settings of a stored run differ from the current ones."""
    own = (("collector", stored.note.get("collector"), now.note.get("collector")), ("dim", stored.dim, now.dim))
    differing = [difference for difference in own if difference[1] != difference[2]]
    for name, before, after in [*differing, *stored.config.differences(now.config)]:
        raise InputError(
            f"The run was started with {name} = {before}, but now {name} = {after}.",
            "Continue with the same settings, or choose another folder.",
        )


def _as_array(values: Any) -> Array:
    values = values.detach().cpu().double().numpy() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=np.float64)


def _stacked(rows: Sequence[Array | None]) -> Array | None:
    """Stack rows; None if there are none."""
    known = [row for row in rows if row is not None]
    if known and len(known) < len(rows):
        raise InputError("Some draws have scores and others have none.", "Pass a score with every call, or with none.")
    return np.stack(known) if known else None


def _as_batch(batch: Any) -> tuple[Any, ...]:
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def __getattr__(name: str) -> Any:
    """Import the classes that need PyTorch on first use."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need("torch", "torch")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
