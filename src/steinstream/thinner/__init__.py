"""The thinner: add each new draw, then drop old ones as long as the kernelized Stein discrepancy stays within budget.

Hawkins, Koppel and Zhang, "Online, informative MCMC thinning with kernelized Stein discrepancy". Each step costs
O((candidates + removed) * kept * d); memory is O(kept * d), and a sketch of 4096 draws, whatever the stream's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream import schedules, validation
from steinstream._engine import fourier_features as anchors
from steinstream.debiased import Checks
from steinstream.errors import InputError, one_of, positive
from steinstream.io import checkpoint
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner, Streaming, Warmup, as_preconditioner
from steinstream.result import History, Kept
from steinstream.thinner import _about, ingest, passes, run
from steinstream.thinner._follower import Follower
from steinstream.thinner._unbroken import Unbroken
from steinstream.thinner.history import Recorder
from steinstream.thinner.marks import Marks, as_weight
from steinstream.thinner.passes import Pass
from steinstream.thinner.sanity_checks import Looks
from steinstream.thinner.step import Ids, StepInfo, as_pairs, pairs
from steinstream.thinner.subsample import Subsample

if TYPE_CHECKING:
    from steinstream.diagnostics import Diagnosis
    from steinstream.live import Page, Watch
    from steinstream.thinner.dictionary import Dictionary
    from steinstream.thinner.dictionary_f32 import WideDictionary


class Thinner:
    """Online KSD thinning. With nothing but ``dim`` given, it is the paper's KSDT-SQRT with the IMQ kernel.

    KSDT-SQRT is the paper's name for keeping about sqrt(n log n) of n draws, or more where KSD asks for it.

    Parameters
    ----------
    dim
        Number of dimensions of a draw.
    kernel
        :class:`~steinstream.IMQ` or :class:`~steinstream.RBF`.
    coordinates
        None is the identity, which is right only where every parameter is about 1 wide; where they are far from it a
        :class:`~steinstream.PreconditionerWarning` tells. Where widths are not known, take a
        :class:`~steinstream.Streaming`, ``Streaming()``, which follows the stream: KSD then means something else after
        each change (``settings["preconditioner_changed"]`` has the steps). A :class:`~steinstream.Warmup` estimates them
        from the first draws. For widths that are known there are :class:`~steinstream.Preconditioner`, an array of d
        scales, or a covariance (d, d).
    growth, budget
        How many draws to keep at least, and by how much KSD^2 may rise, as functions of the step:
        see :mod:`steinstream.schedules`.
    rule
        What KSD^2 is compared with when a draw is to go: its value after the new draw came (``"paper"``), or the lesser
        of that and its value before (``"monotone"``), so that KSD falls as long as more are kept than ``growth`` asks.
    size
        A hard cap. Without ``growth`` exactly so many draws are kept as soon as so many have come.
    candidates
        SPMCMC: of every so many consecutive draws, only the best is added.
    anchor
        Keep the stream's proportions, to which KSD is blind where modes lie far apart. ``True``, or a number gamma:
        KSD^2 above then reads KSD^2 plus gamma times a distance to the stream (:mod:`steinstream._engine.fourier_features`).
    cost
        How much the ``costs`` count that come with the draws (:meth:`extend`). Of the draws that the budget lets go,
        the one goes that influence and cost together point to; with ``cost=1`` a draw of average cost goes as if its
        Stein kernel with itself were greater by the average one.
    initial
        Draws and scores of the initial dictionary D_0, at most ``size``. Their ids are (-1, 0), (-1, 1), ...
    history
        Steps to remember: ``"log"`` (about 20 per decade), ``"all"``, every k-th, or ``None``.
    on_bad
        ``"raise"``, or ``"skip"`` draws with values that are not finite; they are counted in ``skipped``.
    validate_scores
        Stop when Stein's identity shows that the scores' sign is wrong, and warn when the result is asked for and it
        is off for some parameter (:class:`~steinstream.ScoresWarning`).
    storage
        ``"float64"``, or ``"float32"`` for draws of 10^5 dimensions and more: see :mod:`steinstream.thinner.dictionary_f32`.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> thinner = Thinner(dim=2, size=20)
    >>> thinner.extend(draws, -draws).size  # the score of a standard normal is -x
    20
    >>> thinner.kept
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.1485)

    """

    def __init__(
        self,
        dim: int,
        *,
        kernel: Kernel | None = None,
        preconditioner: Preconditioner | Warmup | Streaming | ArrayLike | None = None,
        growth: str | float | schedules.Schedule | None = None,
        budget: str | float | schedules.Schedule = 0.0,
        rule: str = "paper",
        size: int | None = None,
        candidates: int = 1,
        anchor: float | bool = False,
        cost_weight: float = 0.0,
        initial: tuple[ArrayLike, ArrayLike] | None = None,
        history: str | int | None = "log",
        on_bad: str = "raise",
        validate_scores: bool = True,
        storage: str = "float64",
    ) -> None:
        self.dim = positive(dim, "dim")
        self.kernel = validation.as_kernel(kernel)
        self._looks = Looks(scores=bool(validate_scores), preconditioner=preconditioner is None)
        chosen = as_preconditioner(preconditioner)
        self._follower = Follower(chosen, self.dim) if isinstance(chosen, Streaming) else None
        self.preconditioner = Preconditioner.identity() if isinstance(chosen, Streaming) else chosen
        self.size = None if size is None else positive(size, "size")
        self.growth = schedules.growth(growth if growth is not None else "sqrt" if self.size is None else self.size)
        self.budget = schedules.budget(budget, self.growth)
        self.rule = one_of(schedules.RULES, rule, "rule")
        self.candidates = positive(candidates, "candidates")
        self.anchor, self.cost_weight = anchors.strength(anchor), as_weight(cost_weight)
        self.on_bad = one_of(("raise", "skip"), on_bad, "on_bad")
        self.validate_scores = bool(validate_scores)
        self.storage = one_of(("float64", "float32"), storage, "storage")
        self.steps = 0  # done
        self.seen = 0  # draws that came, bad ones included
        self.skipped = 0  # bad ones
        self._numbered: dict[int, int] = {}  # chain -> the number of its next draw
        self._identity = validation.SteinIdentity(self.dim)
        self._sketch = Subsample(
            self.dim, self.storage == "float64"
        )  # of all that came, for diagnose; of wide draws none
        self._recorder = Recorder(history)
        self._waiting = validation.no_draws(self.dim)  # for the end of the warm-up, or for more candidates
        self._marks: Marks | None = None  # costs and pins of those that wait, if any were given
        self._initial = 0  # size of D_0
        self._brought = 0  # how many of them are no part of the stream
        self._checks: Checks | None = None  # second scores, if there are any
        self._watch: Watch | None = None  # while it is served
        self._running = False  # steps are being taken
        #: Where in which pass over the chain: see :meth:`again`.
        self.current_pass = Pass()
        #: What else should travel with a checkpoint: anything that fits into JSON.
        self.note: dict[str, Any] = {}
        self._dictionary: Dictionary | WideDictionary | None = None
        if isinstance(self.preconditioner, Preconditioner):
            self._open(self.preconditioner)
        if initial is not None:
            x, s = validation.as_block(*initial, self.dim)
            self._begin_with(validation.Block(x, s, validation.consecutive(-1, 0, len(x))))
            self._brought = len(x)

    def _open(self, preconditioner: Preconditioner) -> None:
        from steinstream.thinner.dictionary import Dictionary  # brings numba
        from steinstream.thinner.dictionary_f32 import WideDictionary

        preconditioner.require(self.dim)
        self.preconditioner = preconditioner
        movable, checked = self._follower is not None, self._checks is not None
        home = WideDictionary if self.storage == "float32" else Dictionary
        self._dictionary = home(self.dim, self.kernel, preconditioner, movable, checked, self.anchor, self.cost_weight)

    # -- the stream ------------------------------------------------------------------------------------------------

    def push(
        self, draw: ArrayLike, score: ArrayLike, *, id: tuple[int, int] | None = None, second_scores: ArrayLike | None = None,
        cost: float | None = None, pinned: bool = False,
    ) -> StepInfo:  # fmt: skip
        """Take one draw (d,) with its score. See :meth:`extend` for many at once."""
        x, s = validation.as_numbers(draw, "draw"), validation.as_numbers(score, "score")
        if x.shape != (self.dim,) or s.shape != (self.dim,):
            raise InputError(
                f"Expected one draw and one score with {self.dim} dimensions, got shapes {x.shape} and {s.shape}.",
                "Many draws at once go to extend.",
            )
        return self.extend(
            x[None], s[None], ids=None if id is None else [id], costs=None if cost is None else [cost],
            second_scores=None if second_scores is None else np.asarray(second_scores)[None], pinned=[True] if pinned else None,
        )  # fmt: skip

    def extend(
        self, draws: ArrayLike, scores: ArrayLike, *, ids: ArrayLike | None = None, chain: int = 0,
        second_scores: ArrayLike | None = None, costs: ArrayLike | None = None, pinned: ArrayLike | None = None,
    ) -> StepInfo:  # fmt: skip
        """Take draws (n, d) with their scores, in one compiled call; the same result as pushing them one by one.

        ``ids`` are (chain, draw) pairs; without them draws are numbered as they come, from :meth:`numbered` on. Where
        scores are noisy, ``check`` is a second score of each draw, with noise of its own (another minibatch): nothing
        is selected by it, and ``kept.ksd_debiased`` is computed from it. Repeats of a state have the check of the first.
        ``costs`` are n numbers of at least 0, what keeping each draw costs; ``pinned`` n truth values: draws that must
        stay. A pinned one among candidates is taken. After a Ctrl-C draws that have not had their turn wait, and come
        first in the next call.
        """
        with Unbroken():
            new = ingest.admit(self, draws, scores, ids, chain, second_scores, costs, pinned, self.candidates)
            held, self._waiting = self._waiting, self._waiting.then(new)
        return self._advance(held, new, self.candidates)

    def select(
        self, candidates: ArrayLike, scores: ArrayLike, *, ids: ArrayLike | None = None, chain: int = 0,
        costs: ArrayLike | None = None, pinned: ArrayLike | None = None,
    ) -> StepInfo:  # fmt: skip
        """SPMCMC: of these draws (m, d) add the best one, then thin. One step, whatever their number."""
        if self._dictionary is None or len(self._waiting.draws):
            raise InputError(
                "select decides at once, and this thinner holds draws back.",
                "Use fixed coordinates and leave candidates at 1, or use extend.",
            )
        with Unbroken():
            new = ingest.admit(self, candidates, scores, ids, chain, None, costs, pinned, None)
            self._waiting = new
        return self._advance(validation.no_draws(self.dim), new, max(1, len(new.draws)))

    def next_index(self, chain: int = 0) -> int:
        """The number that the next draw of a chain gets if it comes without an id: 0, or 1 more than the greatest."""
        return self._numbered.get(chain, 0)

    def pin(self, ids: ArrayLike) -> None:
        """These kept draws, (chain, draw) pairs, must stay."""
        self._kept_set.pin(as_pairs(ids), True)

    def unpin(self, ids: ArrayLike) -> None:
        """These kept draws may go again."""
        self._kept_set.pin(as_pairs(ids), False)

    @property
    def pinned(self) -> Ids:
        """Ids of the kept draws that must stay."""
        return () if self._dictionary is None else pairs(self._dictionary.pinned)

    def start_pass(self) -> StepInfo:
        """Begin another pass over the same draws: each is to come once more, with the same id.

        As many draws as now are kept throughout, those kept now are not offered, and KSD never rises, or with an anchor
        or costs the :attr:`objective`: see :mod:`steinstream.thinner.passes`. Preconditioner no longer change; a warm-up ends,
        which may change what is kept.

        >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
        >>> thinner = Thinner(dim=2, size=20)
        >>> once, _, twice = thinner.extend(draws, -draws), thinner.start_pass(), thinner.extend(draws, -draws)
        >>> f"{once.ksd:.4f} {twice.ksd:.4f}"
        '0.1485 0.1473'
        """
        return passes.again(self)

    def _expect_checks(self) -> Checks:
        """Make room for second scores, while nothing is kept yet."""
        self._checks = Checks(self.dim, self._follower.streaming if self._follower else self.preconditioner)
        if isinstance(self.preconditioner, Preconditioner):
            self._open(self.preconditioner)
        return self._checks

    def _begin_with(self, block: validation.Block) -> None:
        if self._dictionary is None:
            raise InputError("An initial dictionary needs fixed coordinates, not a warm-up.")
        if self.size is not None and len(block.draws) > self.size:
            raise InputError(
                f"{len(block.draws)} initial draws are more than size={self.size} allows.", "Thin them, or raise size."
            )
        validation.usable(block, "raise", self.kernel.linear > 0, self.storage)
        self._initial = len(block.draws)
        self._dictionary.fill(block)

    # -- the algorithm ---------------------------------------------------------------------------------------------

    def _advance(self, held: validation.Block, new: validation.Block, candidates: int) -> StepInfo:
        """Run as many steps as the draws make that wait now: those that were held before, and the new ones."""
        if isinstance(self.preconditioner, Warmup):
            if len(self._waiting.draws) < self.preconditioner.draws:
                return StepInfo(pairs(new.ids), (), len(self._waiting.draws), float("nan"))
            return self._end_warmup(held)
        before = self.steps
        dropped = run.run(self, candidates)
        return StepInfo(
            pairs(self._kept_set.arrived_after(before)),
            pairs(dropped[dropped[:, 2] <= before, :2]),
            self._kept_set.size,
            self._kept_set.ksd,
        )

    def _end_warmup(self, held: validation.Block) -> StepInfo:
        """Estimate the coordinates and run the steps that waited for them."""
        if isinstance(self.preconditioner, Warmup):
            self._open(self.preconditioner.end(self._waiting.draws))
        run.run(self, self.candidates)
        was, now = set(pairs(held.ids)), set(pairs(self._kept_set.arrived_after(0)))
        return StepInfo(tuple(sorted(now - was)), tuple(sorted(was - now)), self._kept_set.size, self._kept_set.ksd)

    @property
    def _most(self) -> int | None:
        """How many may be kept."""
        return self.size if self.current_pass.held is None else self.current_pass.held

    # -- the result ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._waiting.draws) if self._dictionary is None else self._dictionary.size

    @property
    def ksd(self) -> float:
        """KSD of the kept draws; not a number before there are any."""
        return self._settled()._kept_set.ksd if len(self) else float("nan")

    @property
    def normalised_ksd(self) -> float:
        """KSD times the square root of the number kept."""
        return float(self.ksd * np.sqrt(self._settled()._kept_set.size)) if len(self) else float("nan")

    @property
    def bound(self) -> float | None:
        """What KSD would be at most in the mean, were the draws independent: see :mod:`steinstream.thinner.bound`."""
        if self.current_pass.number > 1 or not len(self):
            return self.current_pass.bound
        return self._settled()._kept_set.bound if self.current_pass.promising else None

    @property
    def objective(self) -> float:
        """What is made small: KSD^2, with an anchor or costs what they add; not a number before there are draws."""
        return self._settled()._kept_set.objective if len(self) else float("nan")

    @property
    def mmd(self) -> float:
        """How far the kept draws' proportions are from the stream's, by the anchor; not a number without one."""
        return self._settled()._kept_set.mmd if len(self) else float("nan")

    @property
    def history(self) -> History:
        """Size and KSD at the remembered steps and at the latest one."""
        past = self._recorder.history()
        if self._dictionary is None or self.steps == 0 or (len(past.step) and past.step[-1] == self.steps):
            return past
        now = np.array([self.steps]), np.array([len(self)]), np.array([self.ksd])
        return History(*(np.concatenate(pair) for pair in zip(past, now, strict=True)))

    @property
    def kept(self) -> Kept:
        """What is kept, as if the stream ended here."""
        return _about.kept(self)

    def diagnose(self) -> Diagnosis:
        """What KSD does not see: the kept draws against the stream they come from, and the stream against itself."""
        return _about.kept(self, look=False).diagnose()  # which says what a warning would

    def serve(self, port: int = 0, *, names: Sequence[str] | None = None, title: str = "") -> Page:
        """A page in the browser, at ``.url``, that shows how the run goes: see :mod:`steinstream.live`."""
        from steinstream.live import Page

        return Page(port, title=title).show(self, names)

    @property
    def settings(self) -> dict[str, Any]:
        """How this result came about, in plain words and numbers."""
        return _about.settings(self)

    @property
    def _kept_set(self) -> Dictionary | WideDictionary:
        if self._dictionary is None:
            raise InputError("The thinner is still in its warm-up.", "Push more draws first.")
        return self._dictionary

    def _settled(self) -> Thinner:
        """Itself, or during the warm-up a copy whose coordinates come from the draws so far."""
        if self._dictionary is not None:
            return self
        if len(self._waiting.draws) == 0:
            raise InputError("No draws have come yet.", "Push some first.")
        settled = copy(self)
        settled._recorder, settled._watch = Recorder(self._recorder.rule), None
        settled._end_warmup(self._waiting)
        return settled

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all. Going on from it is bit-identical to never having stopped."""
        checkpoint.save(self, path)

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, growth: schedules.Schedule | None = None,
        budget: schedules.Schedule | None = None,
    ) -> Thinner:  # fmt: skip
        """The thinner that :meth:`save` wrote. A growth or budget of your own making must be given again."""
        return checkpoint.load(path, growth, budget)
