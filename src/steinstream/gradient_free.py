r"""Gradient-free KSD: use the score of a proxy density q and correct with the density ratio q / p.

Let q be a density with a known score, such as a Gaussian fitted to the draws, and p the target, whose log density is
known at each draw up to a constant. With k_q the Stein kernel of q,

.. math:: k(x, y) = r(x)\, r(y)\, k_q(x, y), \qquad r = q / p,

has mean zero under p, because the integral of p r k_q(., y) equals that of q k_q(., y), which is 0. Its KSD measures
the distance to p without the gradient of log p (Fisher and Oates, "Gradient-free kernel Stein discrepancy", NeurIPS
2023). The unknown constant only scales it; it is chosen such that r has mean 1 over the draws, as under p.

A draw at which r is near 0, in tails of p that q does not have, costs nothing, so a thinner would collect such draws
(with a banana for p, the means were wrong by five standard deviations). Therefore log r is clipped to within ``clip``
= c of its median: up to the constant, p is replaced by the nearest density between exp(-c) q and exp(c) q.

The objective of thinning is the gradient-free KSD^2 plus the stream term, as for draws with scores. The chain is in
memory, so the stream term compares with a summary of the whole chain from the first step on. The kept set has no
scores: those of the proxy are not those of the target.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import Array, Flags, Integers
from steinstream.discrepancy.ksd import ksd
from steinstream.discrepancy.mmd import StreamDistance, summarise_points
from steinstream.errors import InputError, ProxyWarning
from steinstream.kernels import Kernel, as_kernel
from steinstream.preconditioning import Preconditioner, Streaming, as_preconditioner
from steinstream.result import History, Kept, SummarisedStream, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.chain_worth import ChainWorth
from steinstream.thinner.config import GRADIENT_FREE, ThinConfig
from steinstream.thinner.history_recorder import HistoryRecorder
from steinstream.thinner.run import step_limits
from steinstream.thinner.state import ThinnerState
from steinstream.thinner.subsample import Subsample, fit_preconditioner
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream._engine.density_ratio import WholeStream
    from steinstream.targets import Gaussian, Target

#: Name of the density ratio among the variables of a kept set.
RATIO = "ratio"

_OFFSETS = 4  # of evenly spaced draws, whose distance to the chain is averaged
_MIN_CORRELATION = -0.5  # of log q and log p; below it the sign of log p is certainly wrong


class ProxiedDraws(NamedTuple):
    """Valid draws with the scores of a proxy."""

    chains: list[Block]
    subsample: Subsample
    proxy: str
    """Name of the proxy."""
    valid: Flags
    """Which of the given draws are valid, in order."""
    log_density: Array
    """Log density of the target at each valid draw."""
    proxy_log_density: Array
    """Log density of the proxy at each valid draw."""

    @property
    def skipped(self) -> int:
        """Number of invalid draws."""
        return int(np.count_nonzero(~self.valid))


def gradient_free_ksd(
    draws: ArrayLike,
    log_density: ArrayLike,
    *,
    proxy: str | Target = "gaussian",
    clip: float = 1.0,
    kernel: Kernel | str | None = None,
    preconditioner: Preconditioner | ArrayLike | str = "auto",
) -> float:
    """Compute the gradient-free KSD of a chain.

    Parameters
    ----------
    draws : array_like
        Draws, (n, d) or (chains, n, d). The constant of the density ratio is estimated from them, so pass a whole
        chain. A kept set has its own KSD.
    log_density : array_like
        Log density of the target at each draw, (n,) or (chains, n), up to a constant.
    proxy : str or Target, default "gaussian"
        ``"gaussian"`` (fitted to the draws), or an object with ``log_density`` and ``score``.
    clip : float, default 1.0
        Limit of the log density ratio.
    kernel : Kernel or str, optional
        Base kernel. Default: `IMQ`.
    preconditioner : Preconditioner, array_like or str, default "auto"
        Preconditioner, or the kind to estimate.

    Returns
    -------
    float
        The gradient-free KSD.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> squares = np.sum(draws**2, axis=1)
    >>> of_the_target, of_another = (gradient_free_ksd(draws, -0.5 * squares / width**2) for width in (1.0, 2.0))
    >>> f"{of_the_target:.2f} {of_another:.2f}"
    '0.09 0.36'

    """
    chosen = preconditioner if isinstance(preconditioner, str) else as_preconditioner(preconditioner)
    config = ThinConfig(kernel=as_kernel(kernel), preconditioner=chosen, validate_scores=False)
    proxied = with_proxy_scores(draws, log_density, proxy, config)
    ratios, _ = _ratios(proxied, clip)
    x, s, *_ = validation.concatenate(proxied.chains)
    fitted = fit_preconditioner(proxied.subsample, config)
    return ksd(x, s, kernel=config.kernel, preconditioner=fitted, weights=ratios) * float(ratios.mean())


def with_proxy_scores(
    draws: ArrayLike, log_density: ArrayLike, proxy: str | Target, config: ThinConfig
) -> ProxiedDraws:
    """Validate draws without scores and evaluate a proxy at them.

    Parameters
    ----------
    draws : array_like
        Draws, (n, d) or (chains, n, d).
    log_density : array_like
        Log density of the target at each draw.
    proxy : str or Target
        The proxy.
    config : ThinConfig
        Settings.

    Returns
    -------
    ProxiedDraws
        The valid draws with the proxy's scores and both log densities.

    """
    chains = validation.as_chains(draws, draws)
    lengths, linear = [len(block.draws) for block in chains], config.kernel.linear > 0
    density = _as_log_density(draws, log_density, sum(lengths), config.on_bad)
    valid = np.isfinite(density)
    valid_by_chain = np.split(valid, np.cumsum(lengths)[:-1])  # views: writing to them changes ``valid``
    subsample = Subsample(chains[0].draws.shape[1])
    for block, rows in zip(chains, valid_by_chain, strict=True):
        rows &= validation.finite_rows(block, config.on_bad, linear)
        subsample.add(block.take(rows))
    _require_any(valid)
    source, name = _as_proxy(proxy, subsample)
    scored, own = [], []
    for block, rows in zip(chains, valid_by_chain, strict=True):
        good = block.take(rows)
        good = good._replace(scores=_evaluate(source, "score", good.draws))
        values = _evaluate(source, "log_density", good.draws)
        finite = _finite_proxy(good, values, config.on_bad, linear)
        rows[rows] = finite
        scored.append(good.take(finite))
        own.append(values[finite])
    _require_any(valid)
    return ProxiedDraws(scored, subsample, name, valid, density[valid], np.concatenate(own))


def thin_by_ratio(proxied: ProxiedDraws, clip: float, config: ThinConfig) -> Kept:
    """Thin by the gradient-free discrepancy.

    Parameters
    ----------
    proxied : ProxiedDraws
        Draws with the scores of a proxy and the log density of the target.
    clip : float
        Limit of the log density ratio.
    config : ThinConfig
        Settings.

    Returns
    -------
    Kept
        The kept draws, without scores; ``ksd`` is the gradient-free KSD, the variable ``"ratio"`` the density ratio.

    """
    from steinstream._engine.compiled_kernel import compile_kernel
    from steinstream._engine.density_ratio import thin_with_ratios  # loads numba
    from steinstream._engine.thinning import StepLog
    from steinstream.thinner.dictionary import StepRecords

    unsupported = config.unsupported_by(GRADIENT_FREE)
    if unsupported is not None:
        raise InputError(
            f"{unsupported} cannot be used with the gradient-free KSD.",
            "Leave it out, or leave out log_density=... (--gradient-free).",
        )
    if isinstance(config.preconditioner, Streaming):
        raise InputError(
            "A streaming preconditioner cannot be used with the gradient-free KSD.",
            'Use preconditioner="auto" (--preconditioner auto).',
        )
    fitted = fit_preconditioner(proxied.subsample, config.replace(validate_scores=False))
    block = validation.concatenate(proxied.chains)
    count, dim = block.draws.shape
    config = config.replace(preconditioner=fitted)
    state = ThinnerState.create(dim, config)
    ratios, clipped = _ratios(proxied, clip)
    steps = np.arange(1, count + 1)
    limits = step_limits(config, state, steps)
    kept, sizes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    log = StepLog(sizes, np.zeros(count), np.zeros(count), np.zeros((0, 3), dtype=np.int64))
    both = np.stack(fitted.apply(block.draws, block.scores), axis=1)
    stream = _Stream.of(block, both, ratios, config, config.size or int(limits.floor[-1]))
    size = thin_with_ratios(
        kernel=compile_kernel(config.kernel, dim),
        draws=both,
        ratios=ratios,
        stream=stream.whole,
        limits=limits,
        kept=kept,
        log=log,
    )
    recorder = HistoryRecorder("log")
    recorder.add(steps, StepRecords(log.sizes, log.squared_ksd, log.squared_mmd, log.dropped))
    recorded = np.union1d(recorder.history().step, count) - 1
    rows = np.sort(kept[:size])
    found, spaced = stream.distances(both[:, 0], rows)
    if found > spaced and clipped > 0:
        warnings.warn(_poor_proxy(proxied.proxy, clipped, found, spaced), stacklevel=3)
    settings = {
        **Thinner.from_state(config, state).settings,
        "seen": count + proxied.skipped,
        "skipped": proxied.skipped,
        "steps": count,
        "has_scores": False,
        **stream.settings,
        "proxy": proxied.proxy,
        "clip": float(clip),
        "clipped": clipped,
        "mmd_ratio": found / spaced if spaced else 1.0,
    }
    ksds, mmds = np.sqrt(log.squared_ksd), np.sqrt(log.squared_mmd)
    return Kept(
        block.draws[rows],
        None,
        block.ids[rows],
        float(ksds[-1]),
        History(recorded + 1, sizes[recorded], ksds[recorded], mmds[recorded]),
        kernel=config.kernel,
        preconditioner=fitted,
        settings=settings,
        mmd=float(mmds[-1]),
        variables={RATIO: Variable(ratios[rows])},
        stream=_without_scores(proxied.subsample.block),
        stream_summary=stream.summary,
    )


class _Stream(NamedTuple):
    """The stream term of a chain in memory."""

    whole: WholeStream
    summary: SummarisedStream | None
    settings: dict[str, Any]
    """What the chain is worth."""
    distance: StreamDistance
    settled: Integers
    """Draws after the burn-in."""

    @classmethod
    def of(cls, block: Block, both: Array, ratios: Array, config: ThinConfig, size: int) -> _Stream:
        """Summarise the chain without its burn-in.

        Parameters
        ----------
        block : Block
            The chain.
        both : array
            Draws and scores in the coordinates of the kernel, (n, 2 d).
        ratios : array
            Density ratios, (n,).
        config : ThinConfig
            Settings.
        size : int
            Number of draws to keep.

        Returns
        -------
        _Stream
            What the stream term needs.

        """
        from steinstream._engine.density_ratio import WholeStream  # loads numba

        worth = ChainWorth(block.draws.shape[1])
        worth.update(block.draws, block.ids)
        settled = np.flatnonzero(~is_burn_in(block.ids, worth.burn_in_ends))
        chosen, weights = summarise_points(config.kernel, both[settled, 0])
        distance = StreamDistance(config.kernel, both[settled[chosen], 0], weights)
        if config.stream_weight == 0.0:
            return cls(WholeStream(np.zeros(len(ratios)), 0.0, 0.0), None, {}, distance, settled)
        diagonal = ratios[settled] ** 2 * config.kernel.diagonal(both[settled, 1], both[settled, 0])
        gamma, equal = config.stream_weight * worth.stream_factor(size), np.full(len(settled), 1.0 / len(settled))
        weight = distance.weight(gamma, diagonal, equal)
        whole = WholeStream(distance.means(both[:, 0]), distance.mean, weight)
        settings: dict[str, Any] = {"effective_draws": worth.effective_draws, "burn_in": worth.burn_in}
        settings |= {"burn_in_ends": sorted(map(list, worth.burn_in_ends.items())), "trust": worth.trust(size)}
        summary = SummarisedStream(block.draws[settled[chosen]], weights)
        return cls(whole, summary, settings, distance, settled)

    def distances(self, base: Array, rows: Integers) -> tuple[float, float]:
        """Return the MMD to the chain of some draws, and the rms of those of as many evenly spaced draws.

        Parameters
        ----------
        base : array
            Draws in the coordinates of the kernel, (n, d).
        rows : array of int
            The draws.

        Returns
        -------
        tuple of float
            Both distances.

        """
        size, equal = len(rows), np.full(len(rows), 1.0 / len(rows))
        starts = (2 * np.arange(_OFFSETS)[:, None] + 1) * len(self.settled) // (2 * _OFFSETS * size)
        spaced = self.settled[starts + np.arange(size) * len(self.settled) // size]
        squares = [self.distance.squared_mmd(base[some], equal) for some in (rows, *spaced)]
        return math.sqrt(squares[0]), math.sqrt(np.mean(squares[1:]))


def _without_scores(block: Block) -> Block:
    """Return the draws of a block without the scores of the proxy."""
    return block._replace(scores=block.scores[:, :0])


def _poor_proxy(proxy: str, clipped: float, found: float, spaced: float) -> ProxyWarning:
    return ProxyWarning(
        f"The kept draws are farther from the chain (MMD {found:.3g}) than as many evenly spaced draws ({spaced:.3g}): "
        f"the proxy {proxy!r} is not close enough to the target, or the chain does not represent it. The density ratio "
        f"was clipped at {clipped:.0%} of the draws.",
        "Leave out log_density, so that the kept draws represent the chain, or pass a better proxy.",
    )


def fitted_gaussian(subsample: Subsample) -> Gaussian:
    """Return a Gaussian with mean and covariance of the second half of each chain, shrunk as a preconditioner is."""
    from steinstream.targets import Gaussian

    draws = subsample.second_halves().draws
    if len(draws) == 0:
        raise InputError("A Gaussian cannot be fitted: no draw is valid.")
    fitted = Preconditioner.estimate("covariance", draws, centred=True)
    factor = fitted.factor if fitted.factor.ndim == 2 else np.diag(fitted.factor)
    return Gaussian(draws.mean(axis=0), factor @ factor.T / (2.0 * draws.shape[1]))


def _require_any(valid: Flags) -> None:
    if not valid.any():
        raise InputError(
            f"None of the {len(valid)} draws is finite with a finite log density and score.", "Check the source."
        )


def _as_proxy(proxy: str | Target, subsample: Subsample) -> tuple[Any, str]:
    """Return the proxy and its name."""
    source = fitted_gaussian(subsample) if isinstance(proxy, str) and proxy == "gaussian" else proxy
    if isinstance(source, str) or not (hasattr(source, "log_density") and hasattr(source, "score")):
        raise InputError(f"Unknown proxy {proxy!r}.", 'Use "gaussian", or an object with log_density(x) and score(x).')
    return source, proxy if isinstance(proxy, str) else type(proxy).__name__


def _finite_proxy(block: Block, log_density: Array, on_bad: str, linear: bool) -> Flags:
    """Return at which draws the proxy has a finite score and log density."""
    finite: Flags = validation.finite_rows(block, "skip", linear) & np.isfinite(log_density)
    if on_bad == "raise" and not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        density = np.isfinite(log_density[row])
        what, value = ("score", block.scores[row]) if density else ("log density", log_density[row])
        chain, draw = block.ids[row].tolist()
        raise InputError(
            f"The {what} of the proxy at chain {chain}, draw {draw} is {value}.",
            'Correct the proxy, or skip such draws with on_bad="skip".',
        )
    return finite


def _as_log_density(draws: ArrayLike, log_density: ArrayLike, total: int, on_bad: str) -> Array:
    """Validate log densities and return them as one vector, chain after chain."""
    values, shape = np.asarray(log_density, dtype=np.float64), np.shape(np.asarray(draws))[:-1]
    if values.shape != shape:
        raise InputError(
            f"log_density has shape {values.shape}, but the draws require {shape}.", "Pass one value per draw."
        )
    values = values.reshape(total)
    if on_bad == "raise" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(
            f"The log density of draw {row} is {values[row]}.",
            'Correct the sampler\'s output, or skip such draws with on_bad="skip".',
        )
    return values


def _evaluate(proxy: Any, what: str, draws: Array) -> Array:
    """Return a proxy's scores or log densities at many draws; vectorised if the proxy supports it."""
    vectorised = getattr(proxy, {"score": "scores", "log_density": "log_densities"}[what], None)
    values = vectorised(draws) if vectorised is not None else [getattr(proxy, what)(x) for x in draws]
    shape = draws.shape if what == "score" else draws.shape[:1]
    return np.asarray(values, dtype=np.float64).reshape(shape)


def _ratios(proxied: ProxiedDraws, clip: float) -> tuple[Array, float]:
    """Return q / p at each draw, clipped, with mean 1, and the fraction of clipped draws."""
    own, density = proxied.proxy_log_density, proxied.log_density
    if not (isinstance(clip, int | float) and clip >= 0):
        raise InputError(f"clip must be a number of at least 0, got {clip!r}.")
    if len(own) >= validation.IDENTITY_MIN_DRAWS and own.std() > 0 and density.std() > 0:
        correlation = float(np.corrcoef(own, density)[0, 1])
        if correlation < _MIN_CORRELATION:
            raise InputError(
                f"The log density looks negated: its correlation with that of the proxy is {correlation:.2f}.",
                "Pass the log density itself, not a potential or a loss.",
            )
    difference = own - density
    difference -= np.median(difference)
    ratios = np.exp(np.clip(difference, -clip, clip))
    return ratios / ratios.mean(), float(np.mean(np.abs(difference) > clip))
