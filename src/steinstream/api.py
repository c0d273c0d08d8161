"""Thin a chain that can be read from start to end: the function `thin`, and the pipeline behind it.

`thin_source` is the only pipeline: take a subsample, fit the preconditioner, run the thinner, make further passes. It
serves arrays, files, workers and proxies. `fit_source` is its first part, which the baselines share.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import AnyArray
from steinstream.errors import InputError
from steinstream.gradient_free import proxy_scores, thin_by_ratio, with_proxy_scores
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.passes import needs_another_pass, start_with_sample, starts_with_sample
from steinstream.thinner.subsample import Subsample, fit_preconditioner
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.targets import Target

_log = logging.getLogger("steinstream")


def thin(
    draws: ArrayLike,
    scores: ArrayLike | None = None,
    size: int | None = None,
    *,
    config: ThinConfig | None = None,
    costs: ArrayLike | None = None,
    pinned: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    log_density: ArrayLike | None = None,
    proxy: str | Target | None = None,
    clip: float = 1.0,
    **settings: Any,
) -> Kept:
    """Keep the draws of a chain that represent its target.

    Parameters
    ----------
    draws : array_like
        Unconstrained draws, (n, d) or (chains, n, d).
    scores : array_like, optional
        Score of each draw, the gradient of the log density, in the shape of ``draws``. Required unless ``proxy`` is
        given.
    size : int, optional
        Number of draws to keep. If fewer draws are given, all are kept. Default: about sqrt(n log n), or more if the
        target requires it.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    costs, pinned : array_like, optional
        Cost of keeping each draw, and whether it must stay, (n,) or (chains, n).
    names : sequence of str, optional
        Parameter names. Default: the column names if ``draws`` is a DataFrame.
    log_density : array_like, optional
        Log density of the target at each draw, (n,) or (chains, n), used with ``proxy``.
    proxy : str or Target, optional
        Density whose score replaces missing scores: ``"gaussian"`` (fitted to the draws), or an object with
        ``log_density`` and ``score``. With ``log_density`` the kept draws still represent the target, without it the
        proxy: see :mod:`steinstream.gradient_free`.
    clip : float, default 1.0
        Limit of the log density ratio between proxy and target.
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
    Kept(25 of 500 draws, 2 dimensions, KSD 0.09746)
    >>> thin(draws, -draws / [1.0, 0.0001], size=25, passes="auto")
    Kept(25 of 500 draws, 2 dimensions, KSD 0.08777)

    """
    validation.reject_path(draws, "draws")
    if size is not None:
        settings["size"] = size
    chosen = ThinConfig.of(config, **settings)
    if scores is None:
        kept = _thin_without_scores(draws, log_density, proxy, clip, chosen, costs, pinned)
    elif proxy is not None or log_density is not None:
        raise InputError("proxy and log_density have no effect because scores are given.", "Leave them out.")
    else:
        kept = thin_source(ArraySource.of(draws, scores, costs, pinned), chosen).kept
    return _with_names(kept, names, draws)


def _thin_without_scores(
    draws: ArrayLike,
    log_density: ArrayLike | None,
    proxy: str | Target | None,
    clip: float,
    config: ThinConfig,
    costs: ArrayLike | None,
    pinned: ArrayLike | None,
) -> Kept:
    """Thin by the scores of a proxy, with the density ratio if the log density of the target is known."""
    proxied = with_proxy_scores(draws, log_density, proxy, config)
    if log_density is not None:
        for name, value in (("costs", costs), ("pinned", pinned)):
            if value is not None:
                raise InputError(f"{name} cannot be used with log_density.", "Leave it out, or leave out log_density.")
        return thin_by_ratio(proxied, clip, config)
    scores = proxy_scores(proxied, np.shape(np.asarray(draws)))
    kept = thin_source(ArraySource.of(draws, scores, costs, pinned), config.replace(validate_scores=False)).kept
    return replace(kept, settings={**kept.settings, "proxy": proxied.proxy})


def _with_names(kept: Kept, names: Sequence[str] | None, draws: ArrayLike) -> Kept:
    """Set the given names, or those of the columns of a DataFrame."""
    if names is not None:
        return kept.with_names(names)
    columns = [*getattr(draws, "columns", ())]
    valid = len({*columns}) == kept.draws.shape[1] and all(isinstance(name, str) for name in columns)
    return kept.with_names(columns) if valid else kept


# -- sources -----------------------------------------------------------------------------------------------------------


class MarkedBlock(NamedTuple):
    """Draws with their costs and pins, if there are any."""

    block: Block
    costs: AnyArray | None = None
    pinned: AnyArray | None = None


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
    def has_pins(self) -> bool:
        """Whether some draws are pinned."""

    def blocks(self, skip: int = 0) -> Iterable[MarkedBlock]:
        """Read the draws in order, without the first ``skip`` ones."""


@dataclass(frozen=True)
class ArraySource:
    """Chains in memory, one block per chain."""

    chains: Sequence[MarkedBlock]
    title: str = "The chain"
    repeatable: bool = True
    in_memory: bool = True

    @classmethod
    def of(
        cls, draws: ArrayLike, scores: ArrayLike, costs: ArrayLike | None = None, pinned: ArrayLike | None = None
    ) -> ArraySource:
        """Validate arrays (n, d) or (chains, n, d), with costs and pins (n,) or (chains, n)."""
        blocks = validation.as_chains(draws, scores)
        return cls([*map(MarkedBlock, blocks, _by_chain(costs, blocks, "costs"), _by_chain(pinned, blocks, "pinned"))])

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return int(self.chains[0].block.draws.shape[1])

    @property
    def has_pins(self) -> bool:
        """Whether some draws are pinned."""
        return any(chain.pinned is not None for chain in self.chains)

    def blocks(self, skip: int = 0) -> Iterator[MarkedBlock]:
        """Read the chains, without the first ``skip`` draws."""
        for block, costs, pinned in self.chains:
            rows = slice(skip, None)
            skip = max(skip - len(block.draws), 0)
            yield MarkedBlock(
                block.take(rows), None if costs is None else costs[rows], None if pinned is None else pinned[rows]
            )


@dataclass(frozen=True)
class ChainSource:
    """A chain reader as a source, read in blocks of ``rows`` draws."""

    chain: Chain
    rows: int = 8192
    repeatable: bool = True
    in_memory: bool = False
    has_pins: bool = False

    @property
    def title(self) -> str:
        """Name of the file."""
        return self.chain.title

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.chain.dim

    def blocks(self, skip: int = 0) -> Iterator[MarkedBlock]:
        """Read the file, without the first ``skip`` draws."""
        return map(MarkedBlock, self.chain.blocks(self.rows, skip))


def _by_chain(values: ArrayLike | None, chains: Sequence[Block], what: str) -> list[AnyArray | None]:
    """Split one value per draw, (n,) or (chains, n), by chain."""
    if values is None:
        return [None] * len(chains)
    rows = np.asarray(values)
    parts = [rows] if len(chains) == 1 and rows.ndim == 1 else list(rows)
    if rows.ndim == 0 or [np.shape(part) for part in parts] != [(len(block.draws),) for block in chains]:
        raise InputError(f"{what} must have one entry per draw, got shape {rows.shape}.")
    return [np.asarray(part) for part in parts]


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
    """What the first reading of a source yields."""

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
    initial: tuple[ArrayLike, ArrayLike] | None = None,
    hooks: RunHooks | None = None,
) -> Thinner:
    """Thin a source: subsample, fit the preconditioner, run, make further passes.

    Parameters
    ----------
    source : DrawSource
        The draws.
    config : ThinConfig
        Settings. Without a preconditioner, ``"auto"`` is fitted.
    thinner : Thinner, optional
        A thinner to continue with, from a checkpoint.
    initial : tuple of array_like, optional
        Draws and scores of the initial set.
    hooks : RunHooks, optional
        Callbacks for progress, checkpoints and stopping.

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
    thinner = thinner or _started(source, config, initial, hooks)
    hooks.on_thinner(thinner)
    _log.info(
        "thinning %s: %d dimensions, %s, preconditioner %s", source.title, source.dim, config, thinner.preconditioner
    )
    _run_pass(source, thinner, hooks)
    while needs_another_pass(thinner.config, thinner.state):
        _log.info("pass %d: kept %d draws, KSD %.4g", thinner.current_pass.number, len(thinner), thinner.ksd)
        thinner.start_pass()
        _run_pass(source, thinner, hooks)
    if thinner.seen == thinner.skipped:
        raise InputError(f"{source.title} has no valid draws.")
    if len(thinner) == 0:
        raise too_short(source.title, thinner.seen - thinner.skipped, config.candidates)
    _log.info("kept %d of %d draws, KSD %.4g", len(thinner), thinner.seen, thinner.ksd)
    return thinner


def fit_source(source: DrawSource, config: ThinConfig, hooks: RunHooks | None = None) -> Fit:
    """Read a source once: take a subsample, validate the scores and fit the preconditioner.

    Parameters
    ----------
    source : DrawSource
        The draws.
    config : ThinConfig
        Settings. Without a preconditioner, ``"auto"`` is fitted.
    hooks : RunHooks, optional
        Callbacks for progress and stopping.

    Returns
    -------
    Fit
        Subsample, preconditioner and numbers of draws.

    """
    subsample, valid, skipped = _subsample(source, config, hooks or RunHooks())
    fitted = fit_preconditioner(subsample, config)
    fitted.require(source.dim)
    return Fit(subsample, fitted, valid, skipped)


def too_short(title: str, draws: int, candidates: int) -> InputError:
    """Return the error for a chain that is shorter than one step."""
    return InputError(
        f"{title} has {draws} draws, but one step takes {candidates}.", "Use a longer chain, or fewer candidates."
    )


def _started(
    source: DrawSource, config: ThinConfig, initial: tuple[ArrayLike, ArrayLike] | None, hooks: RunHooks
) -> Thinner:
    """Create the thinner for a source."""
    chosen = "auto" if config.preconditioner is None else config.preconditioner
    config = config.replace(preconditioner=chosen)
    fits = source.repeatable and isinstance(chosen, str) and chosen != "identity"
    subsample: Subsample | None = None
    validated = False
    if fits or source.in_memory:
        subsample, _, _ = _subsample(source, config, hooks)
        if fits or isinstance(chosen, str | Preconditioner):
            config = config.replace(preconditioner=fit_preconditioner(subsample, config))
            validated = config.validate_scores
    thinner = Thinner(source.dim, config, initial=initial)
    thinner.state.sign_validated = validated
    if starts_with_sample(config, thinner.state, source.has_pins):
        if subsample is None:
            subsample, _, _ = _subsample(source, config, hooks)
        start_with_sample(config, thinner.state, subsample.block)
    return thinner


def _subsample(source: DrawSource, config: ThinConfig, hooks: RunHooks) -> tuple[Subsample, int, int]:
    """Read the source once and return a subsample, the number of valid draws and that of invalid ones."""
    subsample, valid, skipped = Subsample(source.dim), 0, 0
    for block, _, _ in source.blocks():
        rows = validation.finite_rows(block, config.on_bad)
        good = block if rows.all() else block.take(rows)
        subsample.add(good)
        valid += len(good.draws)
        skipped += len(block.draws) - len(good.draws)
        hooks.on_subsample(valid + skipped)
        if hooks.stop():
            raise Stopped(None)
    return subsample, valid, skipped


def _run_pass(source: DrawSource, thinner: Thinner, hooks: RunHooks) -> None:
    """Add the draws of the source that the current pass has not received yet."""
    saved = time.monotonic()
    for block, costs, pinned in source.blocks(thinner.current_pass.received):
        thinner.extend(block.draws, block.scores, ids=block.ids, costs=costs, pinned=pinned)
        hooks.on_block(thinner)
        if hooks.save_interval is not None and time.monotonic() - saved > hooks.save_interval:
            hooks.save(thinner)
            saved = time.monotonic()
        if hooks.stop():
            raise Stopped(thinner)
