"""The thinner: add each new draw, then remove old ones as long as the objective stays within a budget.

The algorithm is that of Hawkins, Koppel and Zhang, "Online, informative MCMC thinning with kernelized Stein
discrepancy" (2022). The objective is the squared KSD plus the stream term, the squared MMD between the kept draws and
the stream; for draws without scores the stream term alone. With n kept draws, a step with m candidates that removes r
draws costs :math:`O((m + r) n d)`, and with the stream term :math:`O(1000 d)` more. The memory is :math:`O(n d)` plus a
subsample of 4096 draws and a summary of 1000 to 2000, whatever the length of the stream.

The package follows a draw: `ingest` validates it, `run` passes blocks of draws to the `dictionary`, which holds the
kept draws in the arrays of the compiled engine. `config` holds the settings, `state` everything that changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import Array, Ids, Integers
from steinstream.errors import InputError, positive
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner, Warmup
from steinstream.result import History, Kept, Variable
from steinstream.thinner import passes
from steinstream.thinner.chain_worth import trust_of_factor
from steinstream.thinner.config import PAPER, ThinConfig, run_settings
from steinstream.thinner.ingest import NewDraws, NewMarks, all_in_range, ingest, ingest_block
from steinstream.thinner.layout import RATIO
from steinstream.thinner.run import DeferredInterrupt, Observer, StepInfo, advance
from steinstream.thinner.state import ThinnerState
from steinstream.thinner.subsample import fit_preconditioner
from steinstream.thinner.thread_lock import exclusive, new_lock
from steinstream.validation import Block, Magnitudes

if TYPE_CHECKING:
    from steinstream.diagnostics import Diagnosis
    from steinstream.live import Dashboard
    from steinstream.thinner.dictionary import Contents

__all__ = ["PAPER", "Observer", "StepInfo", "ThinConfig", "Thinner"]


class Thinner:
    r"""Online thinning by kernelized Stein discrepancy (KSD) and distance to the stream (MMD).

    Parameters
    ----------
    dim : int
        Number of dimensions of a draw.
    config : ThinConfig, optional
        Settings. Default: the default settings, which keep about :math:`\sqrt{n \log n}` of n draws, or more if
        the objective requires it. ``**ss.PAPER`` selects the settings of the paper.
    initial : tuple of array_like, optional
        Draws and scores of the initial set, (n, d) each, at most ``size``; the scores are None for draws without
        scores. Their ids are (-1, 0), (-1, 1), ...
    features : callable, optional
        Function of one draw (d,) that returns its features, a number or an array: predictions of a network, outputs of
        a surrogate model. The stream term then compares the features: see ``stream_on`` in `ThinConfig`. Features can
        also be passed to `push` and `extend`.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> thinner = Thinner(dim=2, size=20)
    >>> thinner.extend(draws, -draws).size  # the score of a standard normal is -x
    20
    >>> thinner.kept
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.1141)

    Scores are optional. Without them, the kept draws represent the stream:

    >>> thinner = Thinner(dim=2, size=20)
    >>> thinner.extend(draws).size
    20

    Notes
    -----
    Several threads may use a thinner: one waits until the call of another one has returned. The kept draws then depend
    on the order of the calls. ``copy.copy``, ``copy.deepcopy`` and ``pickle`` return an independent thinner without the
    observer.
    """

    def __init__(
        self,
        dim: int,
        config: ThinConfig | None = None,
        *,
        initial: tuple[ArrayLike, ArrayLike | None] | None = None,
        features: Callable[[Array], ArrayLike] | None = None,
        **settings: Any,
    ) -> None:
        chosen = ThinConfig.of(config, **settings)
        self._set(chosen, ThinnerState.create(positive(dim, "dim"), chosen), features)
        if initial is not None:
            x, s = validation.as_draws_and_scores(*initial, self.dim)
            ids = validation.consecutive_ids(-1, 0, len(x))
            self.state.start_with(self.config, Block(x, s, ids, self._features_of(x)))
            self.state.external_initial = len(x)

    @classmethod
    def from_state(cls, config: ThinConfig, state: ThinnerState) -> Thinner:
        """Return a thinner that continues from a state."""
        thinner = cls.__new__(cls)
        thinner._set(config, state, None)
        return thinner

    def _set(self, config: ThinConfig, state: ThinnerState, features: Callable[[Array], ArrayLike] | None) -> None:
        self.config, self.state, self.features = config, state, features
        self.observer: Observer | None = None
        self.lock = new_lock(self)

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {"config": self.config, "state": deepcopy(self.state.to_dict()), "features": self.features}

    def __setstate__(self, content: dict[str, Any]) -> None:
        config = content["config"]
        self._set(config, ThinnerState.from_dict(config, content["state"]), content["features"])

    def __copy__(self) -> Thinner:
        thinner = type(self).__new__(type(self))
        thinner.__setstate__(self.__getstate__())
        return thinner

    def __deepcopy__(self, memo: dict[int, Any]) -> Thinner:
        return self.__copy__()

    # -- adding draws --------------------------------------------------------------------------------------------------

    def push(
        self,
        draw: ArrayLike,
        score: ArrayLike | None = None,
        *,
        id: tuple[int, int] | None = None,
        second_scores: ArrayLike | None = None,
        cost: float | None = None,
        pinned: bool = False,
        features: ArrayLike | None = None,
    ) -> StepInfo:
        """Add one draw.

        Parameters
        ----------
        draw : array_like
            The draw, (d,).
        score : array_like, optional
            Its score, the gradient of the log density, (d,). Either all draws have scores, or none.
        id : tuple of int, optional
            Identifier (chain, index). Default: the next index of chain 0.
        second_scores : array_like, optional
            A second score of the draw with independent noise, (d,): see `extend`.
        cost : float, optional
            Cost of keeping the draw.
        pinned : bool, default False
            Whether the draw must stay.
        features : array_like, optional
            Features of the draw: see `extend`.

        Returns
        -------
        StepInfo
            What changed.

        Raises
        ------
        InputError
            If the draw is invalid, or has another number of dimensions.
        """
        x = validation.as_floats(draw, "draw")
        s = None if score is None else validation.as_floats(score, "score")
        if x.shape != (self.dim,) or (s is not None and s.shape != (self.dim,)):
            score_shape = "" if s is None else f" and a score of shape {s.shape}"
            raise InputError(
                f"Expected one draw with {self.dim} dimensions, got a draw of shape {x.shape}{score_shape}.",
                "Pass many draws at once to extend.",
            )
        return self.extend(
            x[None],
            None if s is None else s[None],
            ids=None if id is None else [id],
            second_scores=None if second_scores is None else np.asarray(second_scores)[None],
            costs=None if cost is None else [cost],
            pinned=[True] if pinned else None,
            features=None if features is None else np.ravel(validation.as_floats(features, "features"))[None],
        )

    @exclusive
    def extend(
        self,
        draws: ArrayLike,
        scores: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        chain: int = 0,
        second_scores: ArrayLike | None = None,
        costs: ArrayLike | None = None,
        pinned: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> StepInfo:
        """Add draws in one compiled call; the result is the same as adding them one at a time.

        Parameters
        ----------
        draws : array_like
            Draws, (n, d).
        scores : array_like, optional
            Scores, the gradients of the log density, (n, d). Either all draws have scores, or none. Without scores, the
            stream term alone decides.
        ids : array_like, optional
            Identifiers (chain, index), (n, 2). Default: consecutive indices of ``chain``, from `next_index`.
        chain : int, default 0
            Chain of draws without ids.
        second_scores : array_like, optional
            For noisy scores: a second score of each draw with independent noise (another minibatch), (n, d). The
            selection does not use it; ``kept.ksd_debiased`` is computed from it.
        costs : array_like, optional
            Costs of keeping the draws, (n,), at least 0. Required if ``cost_weight`` > 0.
        pinned : array_like of bool, optional
            Draws that must stay, (n,). A pinned draw among candidates is the one that is added.
        features : array_like, optional
            Features of the draws, (n, ...), which the stream term compares instead of the draws, or with
            ``stream_on="both"`` together with them: predictions, outputs of a surrogate model. Feature vectors of any
            length are reduced to at most 32 whitened principal components. Default: those of the function that the
            thinner was created with, if any.

        Returns
        -------
        StepInfo
            What changed.

        Notes
        -----
        After Ctrl-C, draws that were not processed stay pending and are processed first in the next call.
        """
        features = self._features_of(draws) if features is None else features
        new = NewDraws(
            draws=draws,
            scores=scores,
            ids=ids,
            chain=chain,
            second_scores=second_scores,
            costs=costs,
            pinned=pinned,
            features=features,
        )
        candidates = self.config.candidates
        with DeferredInterrupt():
            block = ingest(self.config, self.state, new, candidates)
            held = self._append_pending(block)
        return advance(self.config, self.state, held, block, candidates, self.observer)

    @exclusive
    def extend_block(self, block: Block, new: NewMarks, *, in_range: bool = False) -> StepInfo:
        """Add draws whose shapes and types were validated before: see `extend`.

        If ``in_range``, all values are known to be finite and in the range of the preconditioner.

        Returns
        -------
        StepInfo
            What changed.
        """
        candidates = self.config.candidates
        with DeferredInterrupt():
            valid = ingest_block(self.config, self.state, block, candidates, new, in_range=in_range)
            held = self._append_pending(valid)
        return advance(self.config, self.state, held, valid, candidates, self.observer)

    def _append_pending(self, block: Block) -> Block:
        """Append draws to the pending ones, and return those that were pending before."""
        held, self.state.pending = self.state.pending, self.state.pending.append(block)
        return held

    @exclusive
    def select(
        self,
        candidates: ArrayLike,
        scores: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        chain: int = 0,
        costs: ArrayLike | None = None,
        pinned: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> StepInfo:
        """Add the best of several candidates, then remove draws (SPMCMC). This is one step.

        Parameters
        ----------
        candidates : array_like
            Candidates, (m, d).
        scores : array_like, optional
            Their scores, (m, d): see `extend`.
        ids : array_like, optional
            Identifiers (chain, index), (m, 2). Default: consecutive indices of ``chain``.
        chain : int, default 0
            Chain of candidates without ids.
        costs : array_like, optional
            Cost of each draw, (m,).
        pinned : array_like, optional
            Whether a draw must stay, (m,).
        features : array_like, optional
            Features of the draws, (m, ...): see `extend`.

        Returns
        -------
        StepInfo
            What changed.

        Raises
        ------
        InputError
            If the draws are invalid, or the thinner holds draws back.
        """
        if self.state.dictionary is None or len(self.state.pending.draws):
            raise InputError(
                "select decides at once, but this thinner holds draws back.",
                "Use a fixed preconditioner and candidates=1, or use extend.",
            )
        features = self._features_of(candidates) if features is None else features
        new = NewDraws(
            draws=candidates,
            scores=scores,
            ids=ids,
            chain=chain,
            second_scores=None,
            costs=costs,
            pinned=pinned,
            features=features,
        )
        with DeferredInterrupt():
            block = self.state.pending = ingest(self.config, self.state, new, None)
        none = block.take(slice(0, 0))
        return advance(self.config, self.state, none, block, max(1, len(block.draws)), self.observer)

    def _features_of(self, draws: ArrayLike) -> Array | None:
        """Return the features of draws (n, d) by the function that the thinner was created with."""
        if self.features is None:
            return None
        x, _ = validation.as_draws_and_scores(draws, None, self.dim)
        return validation.features_by(self.features, x) if len(x) else None

    @property
    def next_indices(self) -> dict[int, int]:
        """Index of the next draw of each chain that was received."""
        return dict(self.state.next_index)

    def next_index(self, chain: int = 0) -> int:
        """Return the index that will be assigned to the next draw of ``chain`` when no id is given.

        Parameters
        ----------
        chain : int, default 0
            Number of the chain.

        Returns
        -------
        int
            The index.
        """
        return self.state.next_index.get(chain, 0)

    @exclusive
    def pin(self, ids: ArrayLike) -> None:
        """Pin kept draws, given by their ids (chain, index), so that they are not removed.

        Parameters
        ----------
        ids : array_like of int of shape (n, 2)
            Ids (chain, index) of kept draws.
        """
        self.state.require_dictionary().pin(validation.as_id_pairs(ids), True)

    @exclusive
    def unpin(self, ids: ArrayLike) -> None:
        """Allow pinned draws, given by their ids (chain, index), to be removed again.

        Parameters
        ----------
        ids : array_like of int of shape (n, 2)
            Ids (chain, index) of kept draws.
        """
        self.state.require_dictionary().pin(validation.as_id_pairs(ids), False)

    @property
    @exclusive
    def pinned(self) -> Ids:
        """Ids of the pinned draws."""
        return self.state.pinned_ids

    @exclusive
    def start_pass(self) -> StepInfo:
        """Start another pass over the same draws: add every draw again, in any order, with its original id.

        The number of kept draws stays the same, and the `objective` does not increase. The preconditioner no longer
        changes. A warm-up ends, which may change the kept draws. See :mod:`steinstream.thinner.passes`.

        Returns
        -------
        StepInfo
            What changed.

        Examples
        --------
        >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
        >>> thinner = Thinner(dim=2, size=20)
        >>> once, _, twice = thinner.extend(draws, -draws), thinner.start_pass(), thinner.extend(draws, -draws)
        >>> f"{once.ksd:.4f} {twice.ksd:.4f}"
        '0.1141 0.1001'
        """
        return passes.start_pass(self.config, self.state, self.observer)

    def require_pins(self) -> None:
        """Raise an `InputError` if the chain ends with a pinned draw that no step can add."""
        marks = self.state.pending_marks
        if marks is not None and marks.pinned.any() and not self.in_warmup:
            raise InputError(
                f"A pinned draw is among the last {len(marks.pinned)} draws, but one step takes "
                f"{self.config.candidates} candidates.",
                "Use candidates=1, or do not pin it.",
            )

    # -- a chain that was read before ----------------------------------------------------------------------------------

    def accepts_all(self, largest: Magnitudes) -> bool:
        """Return whether all draws up to these magnitudes are valid, because the preconditioner does not change.

        Blocks of such draws can be passed to `extend_block` as ``in_range``.

        Returns
        -------
        bool
            Whether all are valid.
        """
        fixed = isinstance(self.state.preconditioner, Preconditioner) and self.state.estimator is None
        return fixed and all_in_range(self.config, self.state.preconditioner, largest)

    def accept_sign(self) -> None:
        """Leave out the validation of the sign of the scores: all draws were read before, and it was right."""
        self.state.sign_validated = True

    def starts_with_sample(self, has_pins_or_features: bool) -> bool:
        """Return whether `start_with_sample` must be called, as the setting ``start`` requires."""
        return passes.starts_with_sample(self.config, self.state, has_pins_or_features)

    @exclusive
    def start_with_sample(self, sample: Block) -> None:
        """Choose the initial set from evenly spaced draws of the chain."""
        passes.start_with_sample(self.config, self.state, sample)

    @exclusive
    def correct_stream(self, sample: Block, has_pins_or_features: bool) -> None:
        """Correct a slow chain, given by evenly spaced draws, by its scores: see `thinner.corrected_stream`."""
        passes.correct_stream(self.config, self.state, sample, has_pins_or_features)

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """Number of dimensions of a draw."""
        return self.state.dim

    @property
    def kernel(self) -> Kernel:
        """Base kernel."""
        return self.config.kernel

    @property
    def size(self) -> int | None:
        """The setting ``size``; ``len(thinner)`` is the number of kept draws."""
        return self.config.size

    @property
    def preconditioner(self) -> Preconditioner | Warmup:
        """The current preconditioner, or the warm-up that has not ended."""
        return self.state.preconditioner

    @property
    def preconditioner_changes(self) -> tuple[int, ...]:
        """Steps after which a `Streaming` preconditioner changed; KSD is a different measure from there on."""
        return () if self.state.estimator is None else tuple(self.state.estimator.changes)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.state.steps

    @property
    def seen(self) -> int:
        """Number of draws received, invalid ones included."""
        return self.state.seen

    @property
    def skipped(self) -> int:
        """Number of invalid draws that were skipped."""
        return self.state.skipped

    @property
    def current_pass(self) -> passes.Pass:
        """Position within the passes over a chain."""
        return self.state.current_pass

    @property
    def note(self) -> dict[str, Any]:
        """User data that is stored with a checkpoint: anything that fits into JSON."""
        return self.state.note

    @note.setter
    def note(self, note: dict[str, Any]) -> None:
        self.state.note = note

    @property
    def subsample(self) -> Block:
        """Evenly spaced draws of the stream, at most 4096, with scores and ids."""
        return self.state.subsample.block

    @property
    def in_warmup(self) -> bool:
        """Whether a `Warmup` has not ended, so that all draws wait."""
        return self.state.dictionary is None

    @property
    def burn_in_ends(self) -> Mapping[int, int]:
        """Index of the first draw after the burn-in of each chain that has one, as far as it is known."""
        return {} if self.state.worth is None else self.state.worth.burn_in_ends

    @property
    def burn_in(self) -> int:
        """Number of draws of the burn-in of all chains."""
        return 0 if self.state.worth is None else self.state.worth.burn_in

    @property
    def needs_another_pass(self) -> bool:
        """Whether the setting ``passes`` requires another pass after the one that has ended."""
        return passes.needs_another_pass(self.config, self.state)

    @property
    def pending(self) -> Block:
        """Draws that wait for the end of a warm-up or for more candidates."""
        return self.state.pending

    @property
    @exclusive
    def stored(self) -> Contents | None:
        """The kept draws in the precision in which they are stored, with the steps at which they were added."""
        return None if self.state.dictionary is None else self.state.dictionary.contents()

    @property
    @exclusive
    def pending_ids(self) -> Ids:
        """Ids of draws that wait for the end of a warm-up or for more candidates."""
        return validation.id_tuples(self.state.pending.ids)

    @property
    @exclusive
    def kept_ids(self) -> Ids:
        """Ids of the kept draws, in order; empty during a warm-up."""
        kept = self.state.dictionary
        return () if kept is None else validation.id_tuples(kept.arrived_after(-1))

    @exclusive
    def peek(self, columns: Sequence[int]) -> tuple[Integers, Array]:
        """Copy some coordinates of the kept draws, without any computation; for observers.

        Parameters
        ----------
        columns : sequence of int
            Coordinates.

        Returns
        -------
        tuple of array
            Step at which each kept draw was added, (n,), and its coordinates, (n, len(columns)), in no order.
        """
        kept = self.state.dictionary
        if kept is None:
            return np.zeros(0, dtype=np.int64), np.zeros((0, len(columns)))
        return kept.peek(list(columns))

    @exclusive
    def __len__(self) -> int:
        return len(self.state)

    @exclusive
    def __repr__(self) -> str:
        measure, value = ("KSD", self.ksd) if self.has_scores else ("MMD", self.mmd)
        kept = "" if len(self) == 0 else f", {measure} {value:.4g}"
        return f"Thinner({len(self)} of {self.seen} draws kept, {self.dim} dimensions{kept})"

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    @exclusive
    def has_scores(self) -> bool:
        """Whether the draws have scores; True before the first draw."""
        return self.state.layout is None or self.state.layout.has_scores

    @property
    @exclusive
    def ksd(self) -> float:
        """KSD of the kept draws; NaN if there are none, or without scores."""
        return self._view().require_dictionary().ksd if len(self) else math.nan

    @property
    @exclusive
    def normalised_ksd(self) -> float:
        """Normalised KSD of the kept draws, see :func:`steinstream.normalised_ksd`; NaN if there are none."""
        if not len(self):
            return math.nan
        kept = self._view().require_dictionary()
        return float(kept.ksd * np.sqrt(kept.size))

    @property
    @exclusive
    def bound(self) -> float | None:
        """Upper bound on the root of the expected objective, hence on KSD: see :mod:`steinstream.thinner.bound`."""
        return self._view().bound if len(self) else self.state.bound

    @property
    @exclusive
    def objective(self) -> float:
        """The objective: squared KSD plus stream term and costs; without scores the stream term; NaN if empty."""
        return self._view().require_dictionary().objective if len(self) else math.nan

    @property
    @exclusive
    def mmd(self) -> float:
        """MMD between the kept draws and a summary of the stream; NaN without a stream term."""
        return self._view().require_dictionary().mmd if len(self) else math.nan

    @property
    @exclusive
    def history(self) -> History:
        """Size and KSD at the recorded steps and at the latest one."""
        return _history(self.state)

    @property
    @exclusive
    def recorded_history(self) -> History:
        """Size and KSD at the recorded steps, without any computation; for observers."""
        return self.state.recorder.history()

    @property
    def kept(self) -> Kept:
        """The kept draws so far.

        The first access warns if the scores do not match the draws (`ScoresWarning`).

        Returns
        -------
        Kept
            A copy: later draws do not change it.
        """
        return self._kept(checks=True)

    @exclusive
    def corrected(self) -> Kept:
        """Return kept draws for which a slow chain was corrected by its scores, as `thin` does for a finished chain.

        They are selected again, from the subsample of at most 4096 draws. The thinner does not change. The conditions
        are those of `thin`, see :mod:`steinstream.thinner.corrected_stream`; an initial set prevents the correction.

        Returns
        -------
        Kept
            The corrected draws, with ``settings["corrected_stream"]``; `kept` if the chain needs no correction, or if
            it cannot be corrected.

        Examples
        --------
        >>> from steinstream.samplers import RandomWalk
        >>> from steinstream.targets import Gaussian
        >>> sampler = RandomWalk(Gaussian(np.zeros(2), 1.0), step=0.1)
        >>> _, chain = sampler.sample(sampler.init(np.zeros(2), seed=1), 5000)
        >>> thinner = Thinner(dim=2, size=50)
        >>> _ = thinner.extend(chain.draws, chain.scores)
        >>> for kept in (thinner.kept, thinner.corrected()):
        ...     print(kept.draws.std(axis=0).round(2))
        [0.98 0.97]
        [0.99 0.98]
        """
        kept, state, config = self.kept, self.state, self.config
        chosen = config.preconditioner.kind if isinstance(config.preconditioner, Warmup) else config.preconditioner
        has_features = state.layout is not None and state.layout.features is not None
        fixed = isinstance(chosen, Preconditioner) or chosen == "identity"
        if fixed or state.external_initial or config.storage == "float32":
            return kept
        estimate = fit_preconditioner(state.subsample, config.replace(preconditioner=chosen, validate_scores=False))
        thinner = Thinner(self.dim, config.replace(preconditioner=estimate, validate_scores=False))
        thinner.correct_stream(self.subsample, has_features or state.pinned_count > 0)
        if not thinner.current_pass.corrected_stream:
            return kept
        thinner.extend_block(self.subsample, NewMarks())
        again, of_chain = thinner.kept, ("seen", "skipped", "effective_draws", "burn_in", "burn_in_ends")
        return replace(again, settings=again.settings | {name: kept.settings[name] for name in of_chain})

    def diagnose(self) -> Diagnosis:
        """Compare the kept draws with the stream, and the stream with itself: what KSD does not detect.

        Returns
        -------
        Diagnosis
            The findings.
        """
        return self._kept(checks=False).diagnose()

    @property
    @exclusive
    def settings(self) -> dict[str, Any]:
        """Configuration and statistics of the run, as plain values that fit into JSON."""
        return _settings(self.config, self._view() if len(self) else self.state)

    def serve(self, port: int = 0, *, names: Sequence[str] | None = None, title: str = "") -> Dashboard:
        """Show the progress of the run in a browser.

        Parameters
        ----------
        port : int, default 0
            Port on the loopback address; 0 selects a free one.
        names : sequence of str, optional
            Parameter names.
        title : str, optional
            Title of the page.

        Returns
        -------
        Dashboard
            The running dashboard; its address is ``.url``.
        """
        from steinstream.live import Dashboard  # facade

        return Dashboard(port, title=title).show(self, names)

    @exclusive
    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint, from which `load` continues bit-identically. The file is complete or absent.

        Parameters
        ----------
        path : path
            The file, which is replaced.
        """
        from steinstream.io.checkpoint import save  # facade

        save(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        features: Callable[[Array], ArrayLike] | None = None,
        **settings: Any,
    ) -> Thinner:
        """Read a checkpoint.

        Parameters
        ----------
        path : path
            File that `save` wrote.
        features : callable, optional
            The function of the features that the thinner was created with, if any.
        **settings
            Settings with which the thinner was created. Required if they are functions, ``growth`` or ``budget``: a
            file cannot hold them.

        Returns
        -------
        Thinner
            The thinner as it was saved.

        Raises
        ------
        CheckpointError
            If the file is damaged or is not a checkpoint, if a function is missing, or if a setting differs.
        """
        from steinstream.io.checkpoint import load  # facade

        thinner = load(path, **settings)
        thinner.features = features
        return thinner

    @exclusive
    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return configuration and state as plain values and arrays, the content of a checkpoint.

        Parameters
        ----------
        rows : bool, default True
            Include draws and scores that are stored as float32.

        Returns
        -------
        dict
            The entries ``"config"`` and ``"state"``.
        """
        return {"config": self.config.to_dict(), "state": self.state.to_dict(rows=rows)}

    def _view(self) -> ThinnerState:
        return self.state.without_warmup(self.config)

    @exclusive
    def _kept(self, *, checks: bool) -> Kept:
        config, state, view = self.config, self.state, self._view()
        if checks:
            state.sanity_checks.run(state.subsample.block)
        kept = view.require_dictionary()
        contents, settings = kept.contents(), _settings(config, view)
        scores, second_scores = contents.scores if settings["has_scores"] else None, None
        stream = state.subsample.block
        if scores is None:
            stream = stream._replace(scores=stream.scores[:, :0])
        if state.second_score_noise is not None:
            second_scores = contents.second_scores
            noise = state.second_score_noise.diagonal_excess(config.kernel, kept.preconditioner)
            settings["second_scores_noise"] = noise
        return Kept(
            contents.draws,
            scores,
            contents.ids[:, :2],
            kept.ksd,
            _history(view),
            kernel=config.kernel,
            preconditioner=kept.preconditioner,
            settings=settings,
            bound=view.bound,
            mmd=kept.mmd,
            second_scores=second_scores,
            variables={} if contents.ratios is None else {RATIO: Variable(contents.ratios[:, 0])},
            stream=stream,
            stream_summary=kept.summarised_stream,
        )


def _history(state: ThinnerState) -> History:
    """Return the recorded steps and the latest one."""
    past, kept = state.recorder.history(), state.dictionary
    if kept is None or state.steps == 0 or (len(past.step) and past.step[-1] == state.steps):
        return past
    now = History.single(state.steps, kept.size, kept.ksd, math.sqrt(kept.squared_mmd))
    return History(*(np.concatenate(pair) for pair in zip(past, now, strict=True)))


def _settings(config: ThinConfig, state: ThinnerState) -> dict[str, Any]:
    """Return configuration and statistics of a run."""
    current, kept = state.current_pass, state.dictionary
    settings = run_settings(
        config,
        f"streaming: {state.preconditioner}" if state.estimator else state.preconditioner,
        seen=state.seen,
        skipped=state.skipped,
        initial=state.external_initial,
        steps=state.steps,
        passes=current.number,
        bound=state.bound if kept is not None else None,
    )
    if state.estimator is not None:
        settings["preconditioner_changed"] = state.estimator.changes
    if kept is not None:
        settings["has_scores"] = kept.layout.has_scores and not kept.layout.has_ratios  # those of a proxy do not count
        if kept.layout.features is not None and not kept.layout.sketches_draws:
            settings["features"] = kept.layout.features.width
    summarises = config.start != "sample" and not current.corrected_stream  # the whole stream, not a subsample of it
    if kept is not None and summarises and kept.stream_error is not None:
        settings["stream_error"] = kept.stream_error
    if state.worth is not None and kept is not None:
        settings["effective_draws"] = state.worth.current_effective_draws()
        settings["burn_in"] = state.worth.burn_in
        settings["burn_in_ends"] = sorted(map(list, state.worth.burn_in_ends.items()))
        settings["trust"] = trust_of_factor(kept.stream_weight / config.stream_weight, kept.layout.dim)
        if current.corrected_stream:
            settings |= {"trust": state.worth.trust(kept.size), "corrected_stream": True}
    if state.pinned_count:
        settings["pinned"] = state.pinned_count
    if current.past_ksd and kept is not None:
        settings["ksd_after_passes"] = [*current.past_ksd, kept.ksd]
    return settings
