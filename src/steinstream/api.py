"""Thin a chain that can be read from start to end: the function `thin`, and the pipeline behind it.

`thin_source` is the pipeline of arrays, files and workers: take a subsample, fit the preconditioner, run the thinner,
make further passes. `fit_source` is its first part, which the baselines share. For gradient-free thinning,
:mod:`steinstream.gradient_free` computes density ratios before the first step, because they depend on the whole chain.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.gradient_free import settings_with_ratios, with_proxy_scores, with_ratio_settings
from steinstream.io.data_frame import DrawTable, split_table
from steinstream.io.interleaving import turns
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.ingest import NewMarks
from steinstream.thinner.subsample import Subsample, fit_preconditioner
from steinstream.validation import Block, Magnitudes

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.targets import Target

_log = logging.getLogger("steinstream")

_ROWS = 8192  # draws in a block


def thin(
    draws: ArrayLike,
    scores: ArrayLike | None = None,
    size: int | None = None,
    *,
    config: ThinConfig | None = None,
    costs: ArrayLike | None = None,
    pinned: ArrayLike | None = None,
    features: ArrayLike | Callable[[Array], ArrayLike] | None = None,
    names: Sequence[str] | None = None,
    log_density: ArrayLike | None = None,
    proxy: str | Target = "gaussian",
    clip: float = 1.0,
    **settings: Any,
) -> Kept:
    r"""Keep the draws of a chain that represent its target.

    Parameters
    ----------
    draws : array_like
        Draws, (n, d) or (chains, n, d), in unconstrained space if there are scores. Columns of a DataFrame have the
        same meaning as in a file: ``.chain`` and ``.iteration`` are ids, ``lp__`` is a log density, ``score_a`` is the
        score of ``a``. If such a column is a parameter, pass an array.
    scores : array_like, optional
        Score of each draw, the gradient of the log density, in the shape of ``draws``. Without scores the kept draws
        represent the chain; with scores they also correct burn-in and slow mixing.
    size : int, optional
        Number of draws to keep. If fewer draws are given, all are kept. Default: about
        :math:`\sqrt{n \log n}`, or more if the objective requires it.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    costs : array_like, optional
        Cost of keeping each draw, (n,) or (chains, n).
    pinned : array_like of bool, optional
        Whether a draw must stay, (n,) or (chains, n).
    features : array_like or callable, optional
        Features of the draws, (n, ...) or (chains, n, ...), or a function of one draw (d,) that returns them:
        predictions of a network, outputs of a surrogate model. The stream term then compares the features instead of
        the draws, or both with ``stream_on="both"``.
    names : sequence of str, optional
        Parameter names. Default: those of a DataFrame or of an ``xarray.DataArray``, if ``draws`` is one.
    log_density : array_like, optional
        Log density of the target at each draw, (n,) or (chains, n), for draws without scores: KSD is replaced by the
        gradient-free KSD, see :mod:`steinstream.gradient_free`.
    proxy : str or Target, default "gaussian"
        Density of the gradient-free KSD: ``"gaussian"`` (fitted to the draws), or an object with ``log_density`` and
        ``score``.
    clip : float, default 1.0
        Limit of the log density ratio between proxy and target in the gradient-free KSD.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The preconditioner is estimated from
        the draws unless it is given. ``**ss.PAPER`` selects the settings of the paper.

    Returns
    -------
    Kept
        The kept draws.

    Raises
    ------
    InputError
        If the input has a wrong shape, contains values that are not finite, or the sign of the scores is wrong.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(500, 2)) * [1.0, 0.01]
    >>> thin(draws, -draws / [1.0, 0.0001], size=25)
    Kept(25 of 500 draws, 2 dimensions, KSD 0.1323)
    >>> thin(draws, -draws / [1.0, 0.0001], size=25, passes="auto")
    Kept(25 of 500 draws, 2 dimensions, KSD 0.1283)
    >>> thin(draws, size=25)
    Kept(25 of 500 draws, 2 dimensions, MMD 0.01215, no scores)
    """
    validation.reject_path(draws, "draws")
    if size is not None:
        settings["size"] = size
    if "burn_in" in settings:
        raise InputError(
            "burn_in is not a setting.",
            "Leave out the first draws: draws[n:], or draws[:, n:] for several chains, and the scores likewise. With "
            "scores, burn-in is detected and removed.",
        )
    if log_density is None and (proxy != "gaussian" or clip != 1.0):
        raise InputError("proxy and clip are used with log_density only.", "Give log_density, or leave them out.")
    chosen = ThinConfig.of(config, **settings)
    validation.reject_transposed(draws, chosen.size)
    if chosen.on_bad == "raise":
        for what, values in (("draws", draws), ("scores", scores)):
            validation.reject_masked(values, what)
    table = split_table(draws, scores)
    if table is not None:
        _log.info("columns that are not parameters: %s", ", ".join(table.left_out) or "ids and scores")
    if log_density is not None:
        if scores is not None:
            raise InputError("scores cannot be used with log_density.", "Leave out scores or log_density.")
        plain = draws if table is None else table.draws
        proxied = with_proxy_scores(plain, log_density, proxy, chosen)
        chains = ArraySource.of_blocks(proxied.with_ratios(clip), costs, pinned, features)
        kept = with_ratio_settings(thin_source(chains, settings_with_ratios(chosen)).kept, proxied, clip)
    elif table is not None:
        kept = thin_source(ArraySource.of_table(table, costs, pinned, features), chosen).kept
    else:
        kept = thin_source(ArraySource.of(draws, scores, costs, pinned, features), chosen).kept
    known = validation.parameter_names(draws if table is None else table.draws) if names is None else names
    return kept if known is None else kept.with_names(known)


# -- sources -----------------------------------------------------------------------------------------------------------


class MarkedBlock(NamedTuple):
    """Draws, with features if there are any, and with their costs and pins.

    The arrays of a source in memory are contiguous, with 64 bits per number.
    """

    block: Block
    costs: AnyArray | None = None
    pinned: AnyArray | None = None

    def take(self, rows: slice | Integers) -> MarkedBlock:
        """Return some of the draws."""
        costs, pinned = self.costs, self.pinned
        return MarkedBlock(
            self.block.take(rows), None if costs is None else costs[rows], None if pinned is None else pinned[rows]
        )


class DrawSource(Protocol):
    """A chain, or several, that can be read from start to end."""

    @property
    def title(self) -> str:
        """Description for messages."""

    @property
    def dim(self) -> int:
        """Number of dimensions."""

    @property
    def repeatable(self) -> bool:
        """Whether the draws can be read more than once."""

    @property
    def in_memory(self) -> bool:
        """Whether reading costs nothing, so that all draws are validated before the first step."""

    @property
    def has_pins_or_features(self) -> bool:
        """Whether some draws are pinned, or have features."""

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterable[MarkedBlock]:
        """Read the draws in order, without the first ``skip`` ones.

        If ``interleaved``, several chains are read in turns, each in proportion to its length.

        Returns
        -------
        iterable of MarkedBlock
            Draws with their costs and pins.
        """


@dataclass(frozen=True)
class ArraySource:
    """Chains in memory."""

    chains: Sequence[MarkedBlock]
    title: str = "The chain"
    repeatable: bool = True
    in_memory: bool = True

    @classmethod
    def of(
        cls,
        draws: ArrayLike,
        scores: ArrayLike | None,
        costs: ArrayLike | None = None,
        pinned: ArrayLike | None = None,
        features: ArrayLike | Callable[[Array], ArrayLike] | None = None,
    ) -> ArraySource:
        """Validate arrays (n, d) or (chains, n, d), with costs and pins (n,) or (chains, n) and their features."""
        return cls.of_blocks(validation.as_chains(draws, scores), costs, pinned, features)

    @classmethod
    def of_blocks(
        cls,
        blocks: list[Block],
        costs: ArrayLike | None = None,
        pinned: ArrayLike | None = None,
        features: ArrayLike | Callable[[Array], ArrayLike] | None = None,
    ) -> ArraySource:
        """Use chains that were validated, with costs and pins (n,) or (chains, n) and their features."""
        if features is not None:
            blocks = _with_features(blocks, features)
        return cls([*map(MarkedBlock, blocks, _by_chain(costs, blocks, "costs"), _by_chain(pinned, blocks, "pinned"))])

    @classmethod
    def of_table(
        cls,
        table: DrawTable,
        costs: ArrayLike | None = None,
        pinned: ArrayLike | None = None,
        features: ArrayLike | Callable[[Array], ArrayLike] | None = None,
    ) -> ArraySource:
        """Validate a DataFrame with ids, with costs, pins and features of its rows."""
        places, blocks = map(list, zip(*table.by_chain(), strict=True))
        if features is not None:
            order = np.concatenate(places)
            if not callable(features):
                rows = validation.as_floats(features, "features")
                features = rows[order] if len(rows) == len(order) else rows  # another length is reported
            blocks = _with_features(blocks, features)
        marks = [_by_rows(costs, places, "costs"), _by_rows(pinned, places, "pinned")]
        return cls([*map(MarkedBlock, blocks, *marks)])

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return int(self.chains[0].block.draws.shape[1])

    @property
    def has_pins_or_features(self) -> bool:
        """Whether some draws are pinned, or have features."""
        return any(chain.pinned is not None or chain.block.features is not None for chain in self.chains)

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        """Read the chains, one after another or in turns, without the first ``skip`` draws."""
        if interleaved and len(self.chains) > 1:
            yield from self._interleaved(skip)
            return
        for chain in self.chains:
            yield chain.take(slice(skip, None))
            skip = max(skip - len(chain.block.draws), 0)

    def _interleaved(self, skip: int) -> Iterator[MarkedBlock]:
        """Read the chains in turns, each in proportion to its length."""
        for rows, order in turns([len(chain.block.draws) for chain in self.chains], _ROWS, skip):
            blocks, costs, pinned = zip(*map(MarkedBlock.take, self.chains, rows), strict=True)
            merged = MarkedBlock(
                validation.concatenate(blocks),
                None if costs[0] is None else np.concatenate(costs),
                None if pinned[0] is None else np.concatenate(pinned),
            )
            yield merged.take(order)


@dataclass(frozen=True)
class ChainSource:
    """A chain reader as a source, read in blocks of ``rows`` draws."""

    chain: Chain
    rows: int = _ROWS
    repeatable: bool = True
    in_memory: bool = False
    has_pins_or_features: bool = False

    @property
    def title(self) -> str:
        """Name of the file."""
        return self.chain.title

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.chain.dim

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        """Read the file, without the first ``skip`` draws."""
        return map(MarkedBlock, self.chain.blocks(self.rows, skip, interleaved=interleaved))


def _with_features(blocks: list[Block], features: ArrayLike | Callable[[Array], ArrayLike]) -> list[Block]:
    """Add features, given as an array (n, ...) or (chains, n, ...), or as a function of a draw."""
    lengths = [len(block.draws) for block in blocks]
    if callable(features):
        table = validation.features_by(features, np.concatenate([block.draws for block in blocks]))
    else:
        values = validation.as_floats(features, "features")
        if values.ndim > 1 and len(values) == len(blocks) and {values.shape[1]} == {*lengths}:
            values = values.reshape(sum(lengths), -1)
        table = validation.as_features(values, sum(lengths))
    parts = np.split(table, np.cumsum(lengths)[:-1])
    return [block._replace(features=part) for block, part in zip(blocks, parts, strict=True)]


def _by_chain(values: ArrayLike | None, chains: Sequence[Block], what: str) -> list[AnyArray | None]:
    """Split one value per draw, (n,) or (chains, n), by chain."""
    if values is None:
        return [None] * len(chains)
    rows = np.asarray(values)
    parts = [rows] if len(chains) == 1 and rows.ndim == 1 else list(rows)
    if rows.ndim == 0 or [np.shape(part) for part in parts] != [(len(block.draws),) for block in chains]:
        raise InputError(f"{what} must have one entry per draw, got shape {rows.shape}.")
    return [np.asarray(part) for part in parts]


def _by_rows(values: ArrayLike | None, places: Sequence[Integers], what: str) -> list[AnyArray | None]:
    """Split one value per row of a table by chain."""
    if values is None:
        return [None] * len(places)
    given = np.asarray(values)
    if given.shape != (sum(map(len, places)),):
        raise InputError(f"{what} must have one entry per draw, got shape {given.shape}.")
    return [given[rows] for rows in places]


# -- the pipeline ------------------------------------------------------------------------------------------------------


class RunHooks:
    """Callbacks of `thin_source`; override what is needed."""

    def on_subsample(self, draws: int) -> None:
        """Called after each block of the first reading, with the number of draws read."""

    def on_thinner(self, thinner: Thinner) -> None:
        """Called once, before the first draw is added."""

    def on_block(self, thinner: Thinner) -> None:
        """Called after each block of draws was added."""

    def save(self, thinner: Thinner) -> None:
        """Write a checkpoint; called every `save_interval` seconds."""

    save_interval: float | None = None
    """Seconds between two checkpoints; None for no checkpoints."""

    def stop(self) -> bool:
        """Return whether to stop after the current block."""
        return False


class Stopped(Exception):
    """Raised by `thin_source` when the hooks requested a stop; ``thinner`` is None before the first step."""

    def __init__(self, thinner: Thinner | None) -> None:
        super().__init__("stopped")
        self.thinner = thinner


class Fit(NamedTuple):
    """Result of the first reading of a source."""

    subsample: Subsample
    preconditioner: Preconditioner
    valid: int
    """Number of valid draws."""
    skipped: int
    """Number of invalid draws."""


def thin_source(
    source: DrawSource,
    config: ThinConfig,
    *,
    thinner: Thinner | None = None,
    initial: tuple[ArrayLike, ArrayLike | None] | None = None,
    hooks: RunHooks | None = None,
) -> Thinner:
    """Thin a source: subsample, fit the preconditioner, run, make further passes.

    Without a preconditioner, ``"auto"`` is fitted. ``thinner`` comes from a checkpoint, and is continued. ``initial``
    has draws and scores of the initial set.

    Returns
    -------
    Thinner
        The thinner after the last pass.

    Raises
    ------
    InputError
        If the source has no valid draws, or too few for one step.
    Stopped
        If the hooks requested a stop.
    """
    hooks = hooks or RunHooks()
    thinner, in_range = (thinner, False) if thinner else _started(source, config, initial, hooks)
    hooks.on_thinner(thinner)
    _log.info(
        "thinning %s: %d dimensions, %s, preconditioner %s", source.title, source.dim, config, thinner.preconditioner
    )
    _run_pass(source, thinner, hooks, in_range)
    thinner.require_pins()
    while thinner.needs_another_pass:
        _log.info("pass %d: kept %d draws, KSD %.4g", thinner.current_pass.number, len(thinner), thinner.ksd)
        thinner.start_pass()
        _run_pass(source, thinner, hooks, in_range)
    if thinner.seen == thinner.skipped:
        raise InputError(f"{source.title} has no valid draws.")
    if len(thinner) == 0:
        raise too_short(source.title, thinner.seen - thinner.skipped, config.candidates)
    _log.info("kept %d of %d draws, KSD %.4g", len(thinner), thinner.seen, thinner.ksd)
    return thinner


def fit_source(source: DrawSource, config: ThinConfig, hooks: RunHooks | None = None) -> Fit:
    """Read a source once: take a subsample, validate the scores and fit the preconditioner, by default ``"auto"``."""
    subsample, valid, skipped, _ = _read(source, config, hooks or RunHooks())
    fitted = fit_preconditioner(subsample, config)
    fitted.require(source.dim)
    return Fit(subsample, fitted, valid, skipped)


def too_short(title: str, draws: int, candidates: int) -> InputError:
    """Return the error for a chain that is shorter than one step."""
    return InputError(
        f"{title} has {draws} draws, but one step takes {candidates}.", "Use a longer chain, or fewer candidates."
    )


def _started(
    source: DrawSource, config: ThinConfig, initial: tuple[ArrayLike, ArrayLike | None] | None, hooks: RunHooks
) -> tuple[Thinner, bool]:
    """Create the thinner for a source, and return whether all its draws are known to be valid."""
    chosen = "auto" if config.preconditioner is None else config.preconditioner
    config = config.replace(preconditioner=chosen)
    fits = source.repeatable and isinstance(chosen, str) and chosen != "identity"
    read = _read(source, config, hooks) if fits or source.in_memory else None
    validated = False
    if read is not None and (fits or isinstance(chosen, str | Preconditioner)):
        config = config.replace(preconditioner=fit_preconditioner(read.subsample, config))
        validated = config.validate_scores
    thinner = Thinner(source.dim, config, initial=initial)
    if validated:
        thinner.accept_sign()
    if thinner.starts_with_sample(source.has_pins_or_features):
        read = read or _read(source, config, hooks)
        thinner.start_with_sample(read.subsample.block)
    elif fits and read is not None:
        thinner.correct_stream(read.subsample.block, source.has_pins_or_features)
    return thinner, read is not None and source.in_memory and thinner.accepts_all(read.largest)


class _Reading(NamedTuple):
    """Result of the first reading of a source."""

    subsample: Subsample
    valid: int
    """Number of valid draws."""
    skipped: int
    """Number of invalid draws."""
    largest: Magnitudes
    """Largest absolute values of all draws."""


def _read(source: DrawSource, config: ThinConfig, hooks: RunHooks) -> _Reading:
    """Read the source once."""
    subsample, valid, skipped, largest = Subsample(source.dim), 0, 0, Magnitudes(0.0, 0.0, 0.0)
    for block, _, _ in source.blocks():
        own = Magnitudes.of(block)
        largest = largest.joined(own)
        good = block
        if not max(own) < validation.OVERFLOW_LIMIT:
            good = block.take(validation.finite_rows(block, config.on_bad))
        subsample.add(good)
        valid += len(good.draws)
        skipped += len(block.draws) - len(good.draws)
        hooks.on_subsample(valid + skipped)
        if hooks.stop():
            raise Stopped(None)
    return _Reading(subsample, valid, skipped, largest)


def _run_pass(source: DrawSource, thinner: Thinner, hooks: RunHooks, in_range: bool) -> None:
    """Add the draws of the source that the current pass has not received yet.

    Draws in memory were validated before. A file is validated whenever it is read, because it may have changed.
    """
    saved = time.monotonic()
    # Several chains are read in turns, so that each contributes a similar number of kept draws. The paper has a single
    # chain: with its objective they are read one after another.
    in_turns = thinner.config.stream_weight > 0
    for block, costs, pinned in source.blocks(thinner.current_pass.received, interleaved=in_turns):
        if source.in_memory:
            thinner.extend_block(block, NewMarks(costs, pinned), in_range=in_range)
        else:
            scores = block.scores if block.has_scores else None
            thinner.extend(block.draws, scores, ids=block.ids, costs=costs, pinned=pinned, features=block.features)
        hooks.on_block(thinner)
        if hooks.save_interval is not None and time.monotonic() - saved > hooks.save_interval:
            hooks.save(thinner)
            saved = time.monotonic()
        if hooks.stop():
            raise Stopped(thinner)
