"""Everything that changes in a thinner. A checkpoint is a `ThinConfig` plus this state."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steinstream._typing import Ids
from steinstream.discrepancy.ksd import SecondScoreNoise
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner, Streaming, StreamingEstimator, Warmup
from steinstream.result import History
from steinstream.thinner.chain_worth import ChainWorth
from steinstream.thinner.history_recorder import HistoryRecorder
from steinstream.thinner.ingest import CostsAndPins
from steinstream.thinner.layout import DrawLayout, as_layout
from steinstream.thinner.passes import Pass
from steinstream.thinner.sanity_checks import SanityChecks
from steinstream.thinner.subsample import Subsample
from steinstream.validation import IDENTITY_MAX_DRAWS, Block, SteinIdentity, empty_block, finite_rows, id_tuples

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig
    from steinstream.thinner.dictionary import Dictionary
    from steinstream.thinner.dictionary_f32 import DictionaryF32


@dataclass
class ThinnerState:
    """State of a thinner after some number of draws.

    Create it with `create`; `to_dict` and `from_dict` convert it for checkpoints.
    """

    dim: int
    preconditioner: Preconditioner | Warmup
    """The current preconditioner, or the warm-up that has not ended."""
    stein_identity: SteinIdentity
    subsample: Subsample
    """Evenly spaced draws of the stream."""
    recorder: HistoryRecorder
    sanity_checks: SanityChecks
    pending: Block
    """Draws that wait for the end of the warm-up, or for more candidates."""
    pending_marks: CostsAndPins | None = None
    """Costs and pins of the pending draws, if there are any."""
    steps: int = 0
    seen: int = 0
    """Number of draws received, invalid ones included."""
    skipped: int = 0
    """Number of invalid draws."""
    initial_size: int = 0
    """Number of draws in the initial set."""
    external_initial: int = 0
    """Number of initial draws that are not part of the stream."""
    next_index: dict[int, int] = field(default_factory=dict)
    """Index of the next draw of each chain."""
    current_pass: Pass = field(default_factory=Pass)
    estimator: StreamingEstimator | None = None
    """Estimates of a streaming preconditioner."""
    worth: ChainWorth | None = None
    """Effective sample size of the stream, for the stream term."""
    layout: DrawLayout | None = None
    """What the draws of the stream have: scores, second scores, features; None before the first draw."""
    second_score_noise: SecondScoreNoise | None = None
    dictionary: Dictionary | DictionaryF32 | None = None
    """The kept draws; None during a warm-up."""
    sign_validated: bool = False
    """Whether the sign of the scores was validated before the first draw."""
    note: dict[str, Any] = field(default_factory=dict)
    """User data that is stored with a checkpoint: anything that fits into JSON."""

    @classmethod
    def create(cls, dim: int, config: ThinConfig) -> ThinnerState:
        """Return the state before the first draw."""
        chosen = config.live_preconditioner
        state = cls(
            dim=dim,
            preconditioner=Preconditioner.identity() if isinstance(chosen, Streaming) else chosen,
            stein_identity=SteinIdentity(dim),
            subsample=Subsample(dim, config.storage == "float64"),
            recorder=HistoryRecorder(config.history),
            sanity_checks=SanityChecks(config.validate_scores),
            pending=empty_block(dim),
            estimator=StreamingEstimator(chosen, dim) if isinstance(chosen, Streaming) else None,
            worth=ChainWorth(dim) if config.stream_weight else None,
        )
        if isinstance(state.preconditioner, Preconditioner):
            state.open_dictionary(config, state.preconditioner)
        return state

    def open_dictionary(self, config: ThinConfig, preconditioner: Preconditioner) -> None:
        """Create an empty set of kept draws with this preconditioner."""
        from steinstream.thinner.dictionary import Dictionary  # loads numba
        from steinstream.thinner.dictionary_f32 import DictionaryF32

        preconditioner.require(self.dim)
        self.preconditioner = preconditioner
        kind = DictionaryF32 if config.storage == "float32" else Dictionary
        self.dictionary = kind(
            self.layout or DrawLayout(self.dim), config, preconditioner, movable=self.estimator is not None
        )

    def set_layout(self, config: ThinConfig, layout: DrawLayout) -> None:
        """Set what the draws of the stream have, before the first draw."""
        self.layout = layout
        self.pending = empty_block(self.dim, layout.has_scores)
        if layout.has_second_scores:
            basis = self.estimator.streaming if self.estimator else self.preconditioner
            self.second_score_noise = SecondScoreNoise(self.dim, basis)
        if isinstance(self.preconditioner, Preconditioner):
            self.open_dictionary(config, self.preconditioner)

    def start_with(self, config: ThinConfig, block: Block) -> None:
        """Use these draws as the initial set."""
        if self.dictionary is None:
            raise InputError("An initial set needs a fixed preconditioner, not a warm-up.")
        if config.size is not None and len(block.draws) > config.size:
            raise InputError(
                f"{len(block.draws)} initial draws were given, but size={config.size}.", "Thin them, or increase size."
            )
        finite_rows(block, "raise", config.kernel.linear > 0, config.storage)
        layout = self.layout or as_layout(config, self.dim, block, False)
        if self.layout is None:
            self.set_layout(config, layout)
        block = layout.with_sketches(block)
        self.initial_size = len(block.draws)
        self.require_dictionary().insert_all(block)

    def without_warmup(self, config: ThinConfig) -> ThinnerState:
        """Return this state, or during a warm-up a copy whose preconditioner is estimated from the draws so far."""
        from steinstream.thinner.run import end_warmup

        if self.dictionary is not None:
            return self
        if len(self.pending.draws) == 0:
            raise InputError("The thinner has no draws yet.", "Add draws first.")
        view = replace(
            self,
            recorder=HistoryRecorder(config.history),
            worth=deepcopy(self.worth),
            layout=deepcopy(self.layout),
        )
        end_warmup(config, view, view.pending)
        return view

    def require_dictionary(self) -> Dictionary | DictionaryF32:
        """Return the kept draws, or raise an `InputError` during a warm-up."""
        if self.dictionary is None:
            raise InputError("The thinner is still in its warm-up.", "Add more draws first.")
        return self.dictionary

    def __len__(self) -> int:
        """Return the number of kept draws; during a warm-up all draws are kept."""
        return len(self.pending.draws) if self.dictionary is None else self.dictionary.size

    def cap(self, config: ThinConfig) -> int | None:
        """Return the largest number of draws to keep."""
        return config.size if self.current_pass.held is None else self.current_pass.held

    @property
    def bound(self) -> float | None:
        """Upper bound on the expected KSD for independent draws; None if there is none."""
        if self.current_pass.number > 1 or len(self) == 0:
            return self.current_pass.bound
        return self.require_dictionary().bound if self.current_pass.has_bound else None

    @property
    def pinned_ids(self) -> Ids:
        return () if self.dictionary is None else id_tuples(self.dictionary.pinned)

    @property
    def pinned_count(self) -> int:
        """Number of pinned draws."""
        return 0 if self.dictionary is None else len(self.dictionary.pinned)

    @property
    def identity_is_complete(self) -> bool:
        """Whether enough draws were used to validate the sign of the scores."""
        return self.stein_identity.count >= IDENTITY_MAX_DRAWS

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the state as a nested dictionary of plain values and arrays.

        Parameters
        ----------
        rows : bool, default True
            Include draws and scores that are stored as float32; without them the caller stores them elsewhere.

        Returns
        -------
        dict
            The state, which `from_dict` restores.
        """
        identity, current = self.stein_identity, self.current_pass
        fixed = self.preconditioner if isinstance(self.preconditioner, Preconditioner) else None
        return {
            "dim": self.dim,
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "sanity_checks": vars(self.sanity_checks),
            "stein_identity": {name: getattr(identity, name) for name in _IDENTITY},
            "next_index": np.array(sorted(self.next_index.items()), dtype=np.int64).reshape(-1, 2),
            "pending": self.pending._asdict(),
            "pending_marks": None if self.pending_marks is None else self.pending_marks._asdict(),
            "subsample": self.subsample.state(),
            "history": self.recorder.history()._asdict(),
            "current_pass": vars(current),
            "preconditioner": None if fixed is None else {"factor": fixed.factor, "centre": fixed.centre},
            "estimator": None if self.estimator is None else self.estimator.state(),
            "worth": None if self.worth is None else self.worth.state(),
            "layout": None if self.layout is None else self.layout.state(),
            "second_score_noise": None if self.second_score_noise is None else self.second_score_noise.state(),
            "bound": None if self.dictionary is None else self.dictionary.trace,
            "kept": None if self.dictionary is None else self.dictionary.state(rows),
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, config: ThinConfig, values: dict[str, Any]) -> ThinnerState:
        """Restore the result of `to_dict`."""
        state = cls.create(values["dim"], config)
        for name in _COUNTERS:
            setattr(state, name, values["counters"][name])
        state.sanity_checks = SanityChecks(**values["sanity_checks"])
        state.stein_identity = SteinIdentity(state.dim, **values["stein_identity"])
        state.next_index = {int(chain): int(index) for chain, index in values["next_index"]}
        if values["layout"] is not None:
            state.set_layout(config, DrawLayout.restored(values["layout"]))
        state.pending = Block(**values["pending"])
        marks = values["pending_marks"]
        state.pending_marks = None if marks is None else CostsAndPins(**marks)
        state.subsample.restore(values["subsample"])
        state.recorder.restore(History(**values["history"]))
        state.current_pass = Pass(**values["current_pass"])
        if state.estimator is not None:
            state.estimator.restore(values["estimator"])
        if state.worth is not None:
            state.worth.restore(values["worth"])
        if state.second_score_noise is not None:
            state.second_score_noise.restore(values["second_score_noise"])
        if values["kept"] is not None:
            state.open_dictionary(config, Preconditioner(**values["preconditioner"]))
            dictionary = state.require_dictionary()
            dictionary.restore(values["kept"])
            dictionary.trace = values["bound"].copy()
        state.note = values["note"]
        return state


_COUNTERS = ("steps", "seen", "skipped", "initial_size", "external_initial", "sign_validated")
_IDENTITY = ("count", "moment", "mean_draw", "mean_score")
