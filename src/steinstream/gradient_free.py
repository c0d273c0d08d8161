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

A run of the thinner gets the ratios with the draws and the scores of the proxy; everything else is as for draws with
scores. Only the ratios need the whole chain before the first step. The kept set has no scores: those of the proxy are
not those of the target.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import Array, Flags
from steinstream.discrepancy.ksd import ksd
from steinstream.discrepancy.mmd import StreamDistance, summarise_points
from steinstream.errors import InputError, ProxyWarning
from steinstream.kernels import IMQ, Kernel, as_kernel
from steinstream.preconditioning import Preconditioner, as_preconditioner
from steinstream.result import Kept
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.subsample import Subsample, fit_preconditioner
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.targets import Gaussian, Target

_OFFSETS = 4  # of evenly spaced draws, whose distance to the chain is averaged
_MIN_CORRELATION = -0.5  # of log q and log p; below it the sign of log p is certainly wrong


class ProxiedDraws(NamedTuple):
    """Draws with the scores of a proxy. At invalid draws, these are NaN."""

    chains: list[Block]
    subsample: Subsample
    """Of the valid draws."""
    proxy: str
    """Name of the proxy."""
    valid: Flags
    """Which draws are valid, chain after chain."""
    log_density: Array
    """Log density of the target at each valid draw."""
    proxy_log_density: Array
    """Log density of the proxy at each valid draw."""

    def usable(self) -> Block:
        """Return the valid draws, chain after chain."""
        return validation.concatenate(self.chains).take(self.valid)

    def with_ratios(self, clip: float) -> list[Block]:
        """Return the chains with density ratios, whose logarithms are limited to ``clip``."""
        ratios = np.ones((len(self.valid), 1))
        ratios[self.valid, 0], _ = _ratios(self, clip)
        parts = np.split(ratios, np.cumsum([len(block.draws) for block in self.chains])[:-1])
        return [block._replace(ratios=part) for block, part in zip(self.chains, parts, strict=True)]


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
    draws_with_scores = proxied.usable()
    fitted = fit_preconditioner(proxied.subsample, config)
    x, s = draws_with_scores.draws, draws_with_scores.scores
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
        The draws with the proxy's scores and both log densities.
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
        good, scores = block.take(rows), np.full_like(block.draws, np.nan)
        good = good._replace(scores=_evaluate(source, "score", good.draws))
        values = _evaluate(source, "log_density", good.draws)
        finite = _finite_proxy(good, values, config.on_bad, linear)
        rows[rows] = finite
        scores[rows] = good.scores[finite]
        scored.append(block._replace(scores=scores))
        own.append(values[finite])
    _require_any(valid)
    return ProxiedDraws(scored, subsample, name, valid, density[valid], np.concatenate(own))


def settings_with_ratios(config: ThinConfig) -> ThinConfig:
    """Return the settings for draws with density ratios; raise an `InputError` if one cannot be used."""
    if config.start == "sample":
        raise InputError(
            'start="sample" cannot be used with the gradient-free KSD: the subsample has no density ratios.',
            "Leave it out, and use further passes.",
        )
    return config.replace(start="stream", validate_scores=False)


def with_ratio_settings(kept: Kept, proxied: ProxiedDraws, clip: float) -> Kept:
    """Add proxy and ratios to the settings of a kept set, and warn if the proxy is poor.

    Parameters
    ----------
    kept : Kept
        Draws that were kept with density ratios.
    proxied : ProxiedDraws
        The chain.
    clip : float
        Limit of the log density ratio.

    Returns
    -------
    Kept
        The kept set with further settings.
    """
    _, clipped = _ratios(proxied, clip)
    found, spaced = _distances_to_chain(kept, proxied)
    if found > spaced and clipped > 0:
        warnings.warn(_poor_proxy(proxied.proxy, clipped, found, spaced), stacklevel=3)
    ratio = found / spaced if spaced else 1.0
    more = {"proxy": proxied.proxy, "clip": float(clip), "clipped": clipped, "mmd_ratio": ratio}
    return replace(kept, settings=kept.settings | more)


def _distances_to_chain(kept: Kept, proxied: ProxiedDraws) -> tuple[float, float]:
    """Return the MMD between kept draws and the chain without its burn-in, and the rms of that of every k-th draw."""
    chain = proxied.usable()
    preconditioner = kept.preconditioner or Preconditioner.identity()
    base = preconditioner.apply_to_draws(chain.draws[~is_burn_in(chain.ids, kept.burn_in_ends)])
    kernel, summary, size = kept.kernel or IMQ(), kept.stream_summary, len(kept)
    if summary is None or summary.features is not None:
        chosen, weights = summarise_points(kernel, base)
        points = base[chosen]
    else:
        points, weights = preconditioner.apply_to_draws(summary.draws), summary.weights
    distance, equal = StreamDistance(kernel, points, weights), np.full(size, 1.0 / size)
    starts = (2 * np.arange(_OFFSETS)[:, None] + 1) * len(base) // (2 * _OFFSETS * size)
    spaced = starts + np.arange(size) * len(base) // size
    sets = [preconditioner.apply_to_draws(kept.draws), *base[spaced]]
    squares = [distance.squared_mmd(each, equal) for each in sets]
    return math.sqrt(squares[0]), math.sqrt(np.mean(squares[1:]))


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
