r"""Draws without scores: a proxy lends its score, and the ratio of the two densities makes up for the difference.

Let q be a density with a known score, a Gaussian fitted to the draws say, and p the target, whose log density is known
at each draw up to a constant. With k_q the Stein kernel of q,

.. math:: k(x, y) = r(x)\, r(y)\, k_q(x, y), \qquad r = q / p,

has mean zero under p, since the integral of p r k_q(., y) is that of q k_q(., y), which is 0. So its KSD measures the
distance to p and never asks for the gradient of log p (Fisher and Oates, "Gradient-free kernel Stein discrepancy",
NeurIPS 2023). The unknown constant only scales it; it is chosen such that r has mean 1 over the draws, as under p.

Where r is near 0, in tails of p that q does not have, a draw costs nothing, and a thinner would gather such draws (with
a banana for p, means ended five standard deviations off). Hence log r is clipped to within ``clip`` = c of its median.
That has a plain meaning: up to the constant, p is replaced by the nearest density between exp(-c) q and exp(c) q. With
c = 0, or where no log density is known, r is 1, and KSD is the distance to q itself: what is kept then has the mean and
the spread of the draws, and the shape of the proxy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import validation
from steinstream.discrepancy import ksd
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner, Streaming
from steinstream.result import History, Kept, Variable
from steinstream.thinner.history import Recorder
from steinstream.thinner.ingest import plan as plan_of
from steinstream.thinner.subsample import Subsample

if TYPE_CHECKING:
    from steinstream.targets import Gaussian, Target

Array = NDArray[np.float64]

CLIP = 1.0
RATIO = "ratio"  # the name of r among the variables of a kept draw

# What the gradient-free discrepancy cannot be combined with, and what it is when nobody asks for it.
_PLAIN = {
    "candidates": 1, "passes": 1, "start": None, "anchor": False, "cost_weight": 0.0, "costs": None, "pinned": None,
}  # fmt: skip

_OPPOSED = -0.5  # correlation of log q and log p below which p surely has the wrong sign


class _Lent(NamedTuple):
    """What a proxy makes of draws: those that are usable with its scores, a block for each chain."""

    chains: list[validation.Block]
    sketch: Subsample
    name: str
    usable: NDArray[np.bool_]
    density: Array | None
    """The log density of the target at each of them, if it is known."""
    own: Array
    """And that of the proxy, then."""

    @property
    def skipped(self) -> int:
        return int(np.count_nonzero(~self.usable))


def gradient_free_ksd(
    draws: ArrayLike,
    log_density: ArrayLike,
    *,
    proxy: str | Target = "gaussian",
    clip: float = CLIP,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | ArrayLike | str = "auto",
) -> float:
    """The gradient-free KSD of draws (n, d) or (chains, n, d), with the log density of the target at each of them.

    The ratio's constant is taken from these draws: give a chain, not a handful. A kept set has its own KSD.

    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> squares = np.sum(draws**2, axis=1)
    >>> of_the_target, of_another = (gradient_free_ksd(draws, -0.5 * squares / width**2) for width in (1.0, 2.0))
    >>> f"{of_the_target:.2f} {of_another:.2f}"
    '0.09 0.36'
    """
    from steinstream.api import fitting

    kernel = validation.as_kernel(kernel)
    lent = _lend(draws, log_density, proxy, "raise", kernel)
    ratios, _ = _ratios(lent, clip)
    x, s, _ = _joined(lent.chains)
    fitted = fitting(preconditioner, lent.sketch, validate_scores=False, kernel=kernel)
    return ksd(x, s, kernel=kernel, preconditioner=fitted, weights=ratios) * float(ratios.mean())


def thin_without_scores(
    draws: ArrayLike, log_density: ArrayLike | None, proxy: str | Target | None, clip: float, **settings: Any
) -> Kept:
    """What :func:`steinstream.thin` does with draws that have no scores."""
    from steinstream import api

    if proxy is None:
        raise InputError(
            "There are no scores.",
            'Give them; or proxy="gaussian" to fit one to the draws and take its score, with log_density if known.',
        )
    lent = _lend(draws, log_density, proxy, settings["on_bad"], settings["kernel"])
    if lent.density is not None:
        return _thinned(lent, clip, settings)
    x = np.asarray(draws)
    scores = np.full(x.shape, np.nan)  # those of bad draws, so that they are skipped
    scores.reshape(-1, x.shape[-1])[lent.usable] = _joined(lent.chains).scores
    kept = api.thin(draws, scores, validate_scores=False, **settings)
    return replace(kept, settings={**kept.settings, "proxy": lent.name})


def _thinned(lent: _Lent, clip: float, settings: dict[str, Any]) -> Kept:
    """Thin by the gradient-free discrepancy."""
    from steinstream._engine.density_ratio import thin_with_factors  # brings numba
    from steinstream.api import fitting
    from steinstream.thinner import Thinner

    for name, plain in _PLAIN.items():
        given = settings.pop(name)
        if not (given is plain or given == plain):
            raise InputError(f"{name} cannot be used with log_density.", "Leave it out, or leave out log_density.")
    preconditioner = settings.pop("preconditioner")
    if isinstance(preconditioner, Streaming) or (isinstance(preconditioner, str) and preconditioner == "streaming"):
        raise InputError("Streaming coordinates cannot be used with log_density.", 'Use "auto".')
    fitted = fitting(preconditioner, lent.sketch, validate_scores=False, kernel=settings["kernel"])
    block = _joined(lent.chains)
    count, dim = block.draws.shape
    thinner = Thinner(dim, preconditioner=fitted, **settings)  # for its schedules and settings
    fitted.require(dim)
    ratios, clipped = _ratios(lent, clip)
    plan, steps = plan_of(thinner, np.arange(1, count + 1)), np.arange(1, count + 1)
    kept, sizes, squares = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.zeros(count)
    size = thin_with_factors(
        thinner.kernel.compiled(dim), np.stack(fitted.apply(block.draws, block.scores), axis=1), ratios,
        plan.floor, plan.budget, plan.share, plan.monotone, thinner.size or count, kept, sizes, squares,
    )  # fmt: skip
    recorder = Recorder("log")
    recorder.add(steps, sizes, squares)
    past = np.union1d(recorder.history().step, count) - 1  # and where it ended
    history = History(past + 1, sizes[past], np.sqrt(squares[past]))
    rows = np.sort(kept[:size])
    about = {
        **thinner.settings, "seen": count + lent.skipped, "skipped": lent.skipped, "steps": count,
        "proxy": lent.name, "clip": float(clip), "clipped": clipped,
    }  # fmt: skip
    return Kept(
        block.draws[rows], block.scores[rows], block.ids[rows], float(np.sqrt(squares[-1])), history,
        kernel=thinner.kernel, preconditioner=fitted, settings=about, variables={RATIO: Variable(ratios[rows])},
    )  # fmt: skip


def refuse_ratios(kept: Kept, what: str) -> None:
    """Raise if a set was kept by the gradient-free discrepancy: ``what`` knows of no ratios."""
    if "clip" in kept.settings:
        raise InputError(
            f"{what} needs scores, and these draws were kept without, by the gradient-free discrepancy.",
            "Compute the scores of the kept draws and thin those; or thin without log_density.",
        )


def _lend(draws: ArrayLike, log_density: ArrayLike | None, proxy: str | Target, on_bad: str, kernel: Kernel) -> _Lent:
    """The usable draws with the proxy's scores and, where that of the target is known, its log densities."""
    from steinstream.api import as_chains

    chains = as_chains(draws, draws)
    lengths, linear = [len(block.draws) for block in chains], kernel.linear > 0
    density = None if log_density is None else _densities(draws, log_density, sum(lengths), on_bad)
    fine = np.ones(sum(lengths), dtype=bool) if density is None else np.isfinite(density)
    each = np.split(fine, np.cumsum(lengths)[:-1])  # of every chain its own, in the same memory
    sketch = Subsample(chains[0].draws.shape[1])
    for block, mine in zip(chains, each, strict=True):
        mine &= validation.usable(block, on_bad, linear)
        sketch.add(block.take(mine))
    _require_any(fine)
    source, name = _as_proxy(proxy, sketch)
    lent, own = [], []
    for block, mine in zip(chains, each, strict=True):
        good = block.take(mine)
        good = good._replace(scores=_each(source, "score", good.draws))
        values = np.zeros(len(good.draws)) if density is None else _each(source, "log_density", good.draws)
        mine[mine] = proper = _proper(good, values, on_bad, linear)
        lent.append(good.take(proper))
        own.append(values[proper])
    _require_any(fine)
    return _Lent(lent, sketch, name, fine, None if density is None else density[fine], np.concatenate(own))


def _require_any(fine: NDArray[np.bool_]) -> None:
    if not fine.any():
        raise InputError(
            f"Not one of the {len(fine)} draws is finite, or has a log density and a score that are.",
            "Check the source.",
        )


def _as_proxy(proxy: str | Target, sketch: Subsample) -> tuple[Any, str]:
    """The proxy, and what to call it."""
    source = fitted_gaussian(sketch) if isinstance(proxy, str) and proxy == "gaussian" else proxy
    if isinstance(source, str) or not (hasattr(source, "log_density") and hasattr(source, "score")):
        raise InputError(
            f"The proxy {proxy!r} is not known.", 'Give "gaussian", or an object with log_density(x) and score(x).'
        )
    return source, proxy if isinstance(proxy, str) else type(proxy).__name__


def _proper(lent: validation.Block, own: Array, on_bad: str, linear: bool) -> NDArray[np.bool_]:
    """At which draws the proxy has a score and a log density."""
    proper: NDArray[np.bool_] = validation.usable(lent, "skip", linear) & np.isfinite(own)
    if on_bad == "raise" and not proper.all():
        row = int(np.flatnonzero(~proper)[0])
        what, value = ("score", lent.scores[row]) if np.isfinite(own[row]) else ("log density", own[row])
        chain, draw = lent.ids[row].tolist()
        raise InputError(
            f"The {what} of the proxy at chain {chain}, draw {draw} is {value}.",
            'Repair the proxy, or leave such draws out with on_bad="skip".',
        )
    return proper


def _densities(draws: ArrayLike, log_density: ArrayLike, total: int, on_bad: str) -> Array:
    """The log densities, one per draw, chain after chain."""
    values, shape = np.asarray(log_density, dtype=np.float64), np.shape(np.asarray(draws))[:-1]
    if values.shape != shape:
        raise InputError(
            f"log_density has shape {values.shape}, the draws make it {shape}.", "Every draw needs its log density."
        )
    values = values.reshape(total)
    if on_bad == "raise" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(
            f"The log density of draw {row} is {values[row]}.",
            'Repair the sampler\'s output, or leave such draws out with on_bad="skip".',
        )
    return values


def fitted_gaussian(sketch: Subsample) -> Gaussian:
    """A Gaussian with mean and covariance of the second half of each chain, shrunk as coordinates are."""
    from steinstream.targets import Gaussian

    draws = sketch.settled().draws
    if len(draws) == 0:
        raise InputError("There are no usable draws to fit a Gaussian to.")
    fitted = Preconditioner.estimate("covariance", draws, centred=True)
    factor = fitted.factor if fitted.factor.ndim == 2 else np.diag(fitted.factor)
    return Gaussian(draws.mean(axis=0), factor @ factor.T / (2.0 * draws.shape[1]))


def _each(proxy: Any, what: str, draws: Array) -> Array:
    """A proxy's scores or log densities at many draws, all at once if it can."""
    many = getattr(proxy, {"score": "scores", "log_density": "log_densities"}[what], None)
    values = many(draws) if many is not None else [getattr(proxy, what)(x) for x in draws]
    shape = draws.shape if what == "score" else draws.shape[:1]
    return np.asarray(values, dtype=np.float64).reshape(shape)


def _ratios(lent: _Lent, clip: float) -> tuple[Array, float]:
    """Q / p at each draw, clipped, with mean 1; and the share of draws where it was clipped."""
    mine, density = lent.own, lent.density
    if density is None or not (isinstance(clip, int | float) and clip >= 0):
        raise InputError(f"clip must be a number of at least 0, got {clip!r}.")
    if len(mine) >= validation.FEWEST and mine.std() > 0 and density.std() > 0:
        alike = float(np.corrcoef(mine, density)[0, 1])
        if alike < _OPPOSED:
            raise InputError(
                f"The log density looks negated: its correlation with the proxy's is {alike:.2f}.",
                "Pass the log density itself, not a potential or a loss.",
            )
    apart = mine - density
    apart -= np.median(apart)
    ratios = np.exp(np.clip(apart, -clip, clip))
    return ratios / ratios.mean(), float(np.mean(np.abs(apart) > clip))


def _joined(chains: list[validation.Block]) -> validation.Block:
    return validation.Block(*(np.concatenate(parts) for parts in zip(*chains, strict=True)))
