r"""Number of draws and budget for a given KSD: the constant-budget corollary of the paper, with its constants.

Let :math:`N_t` be the size of the kept set after step t, :math:`f_t` the growth, :math:`K_t` the squared KSD of the
set, and :math:`\kappa = E\, k_0(x, x)` under the target.

**Theorem** (independent draws of the target, the best of any number of candidates). A new draw increases :math:`N^2 K`
by at most :math:`\kappa` in expectation, because :math:`E\, k_0(x, \cdot) = 0` and the best candidate is at least as
good as the first; thinning increases K by at most the budget :math:`\epsilon_t`. With :math:`N = N_{t-1}`, which may
depend on the past,

.. math:: E[K_t | \text{past}] \le \left(\frac{N}{N+1}\right)^2 K_{t-1} + \frac{\kappa}{(N+1)^2} + \epsilon_t ,

and if always :math:`f_t \le N_t \le M_t = \min(t, S)`,

.. math:: E K_n \le \sum_{i \le n} w_i \left(\frac{\kappa}{(f_{i-1} + 1)^2} + \epsilon_i\right), \qquad
          w_i = \prod_{j=i}^{n-1} \left(\frac{M_j}{M_j + 1}\right)^2 .

- ``bound_for="any"``: :math:`S = \infty`, :math:`w_i = (i/n)^2`. No assumption on the sizes. With
  :math:`f_t = \sqrt{t^{1 + \alpha} \log t} / 2` and a constant budget :math:`\epsilon` the two parts behave like
  :math:`n^{-\alpha} / \log n` and :math:`\epsilon n / 3`. This is the corollary, for :math:`0 < \alpha < 1`: the best n
  is :math:`O(\epsilon^{-1/(1 + \alpha)})`, and :math:`E K_n` is then :math:`O(\epsilon^{\alpha/(1 + \alpha)})`.
- ``bound_for="planned"``: :math:`S = f_n`, the set never exceeds its final size. Errors are then forgotten within about
  S steps, and for growth well below linear the bound is about :math:`\kappa / (2 f_n) + \epsilon f_n / 2`, far below
  the other. The largest budget for a radius r is :math:`\kappa / f_n^2` with :math:`f_n = \kappa / r^2`; n is again
  :math:`O(\epsilon^{-1/(1 + \alpha)})`, but :math:`E K_n` is :math:`O(\sqrt{\epsilon})`. In a set of :math:`f_n` draws
  this budget allows a removal at every step (the removal lemma, if :math:`k_0(x, x)` is :math:`\kappa` on average over
  the set), so the set does not grow larger. That average is an observation, not a theorem.

With the budget :math:`\eta / (N + 1)^2`, ``"share"``, all this holds with :math:`\kappa + \eta` in place of
:math:`\kappa` and 0 in place of :math:`\epsilon`.

**Estimates.** The constant :math:`\kappa` is the mean of :math:`k_0(x, x)` over the second half of a warm-up. In a
correlated chain the expectation of :math:`k_0(x, \cdot)` given the past is not 0. The long-run contribution of a draw
is then the sum of the autocovariances of the Stein features, the limit of :math:`n\, \mathrm{KSD}^2` of n consecutive
draws (of every m-th draw, with m candidates). Its mean over eight segments is used if it is larger than :math:`\kappa`.
No theorem covers this estimate; it is too small if the autocorrelation time of the chain is as long as a segment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream import schedules, validation
from steinstream._formatting import count
from steinstream._typing import Array
from steinstream.api import ArraySource, MarkedBlock, fit_source
from steinstream.discrepancy.ksd import ksd
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.config import PLAN, ThinConfig, settings_of

BOUND_KINDS = ("planned", "any")
_GROWTHS = "Plan with power:A (1 < A < 2), linear or sqrt."
_BUDGETS = "Plan with constant, share or share:ETA."

_MAX_DRAWS = 10**12
_MIN_STEPS = 100  # in the second half of the warm-up
_SEGMENTS = 8  # of the second half: n KSD^2 of one segment alone is easily wrong by a factor of two
_MAX_SEGMENT = 8192  # steps in a segment


@dataclass(frozen=True, eq=False)
class Plan:
    r"""Settings with which the expected KSD is at most ``radius``.

    Run ``Thinner(dim, **plan.settings)`` over ``plan.draws`` draws.

    Attributes
    ----------
    radius : float
        The KSD to reach.
    bound : float
        Square root of the bound on :math:`E\, \mathrm{KSD}^2`, at most ``radius``.
    draws : int
        Number of draws.
    steps : int
        Number of steps with ``candidates`` draws each.
    kept : int
        Number of draws kept at the end.
    growth : str
        Growth.
    budget : float or str
        Budget.
    kappa : float
        Constant :math:`\kappa` of the bound.
    diagonal : float
        The value of :math:`\kappa` for independent draws.
    bound_for : str
        Sizes of the set for which the bound holds, ``"planned"`` or ``"any"``.
    preconditioner : Preconditioner
        Preconditioner, estimated from the warm-up.
    config : ThinConfig
        All settings. The weight of the stream term is 0.
    """

    radius: float
    bound: float
    draws: int
    steps: int
    kept: int
    growth: str
    budget: float | str
    kappa: float
    diagonal: float
    bound_for: str
    preconditioner: Preconditioner
    config: ThinConfig

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments for :class:`~steinstream.Thinner` and :func:`~steinstream.thin`: all but the defaults."""
        return {one.name: getattr(self.config, one.name) for one in self.config.differences(ThinConfig())}

    def __str__(self) -> str:
        best_of = self.config.candidates
        steps = "" if best_of == 1 else f": {count(self.steps)} steps, the best of {best_of} at each"
        ratio = self.kappa / self.diagonal
        correlated = f", {ratio:.3g} times that of independent draws" if ratio > 1 else ""
        return (
            f"KSD       at most {self.radius:.4g} in expectation\n"
            f"draws     {count(self.draws)}{steps}\n"
            f"kept      {count(self.kept)} at the end, with growth {self.growth}\n"
            f"budget    {self.budget}\n"
            f"kappa     {self.kappa:.4g}{correlated}"
        )


def plan(
    radius: float,
    draws: ArrayLike,
    scores: ArrayLike,
    *,
    growth: str | float = "power:1.5",
    budget: str = "constant",
    bound_for: str = "planned",
    **settings: Any,
) -> Plan:
    r"""Plan the number of draws and the budget for a given KSD, from a warm-up.

    Parameters
    ----------
    radius : float
        The KSD to reach.
    draws : array_like of shape (n, d) or (chains, n, d)
        Draws of a warm-up, from which the constants of the bound are estimated.
    scores : array_like of shape (n, d) or (chains, n, d)
        Scores of the draws.
    growth : str or float, default "power:1.5"
        ``"power:A"``, or A itself, with 1 < A < 2; ``"linear"``; or ``"sqrt"``.
    budget : str, default "constant"
        ``"constant"``: the largest constant budget that reaches the radius. ``"share"``: the budget
        :math:`\eta / n^2` with :math:`\eta = \kappa`. ``"share:ETA"``: the same with this :math:`\eta`.
    bound_for : {"planned", "any"}, default "planned"
        Sizes of the set that the bound allows. ``"any"`` makes no assumption and requires many times more draws.
    **settings
        ``candidates``, ``kernel``, ``preconditioner`` and ``validate_scores``, as in `ThinConfig`. Default of the
        preconditioner: ``"auto"``.

    Returns
    -------
    Plan
        Number of draws, budget and further settings.

    Raises
    ------
    InputError
        If the radius cannot be reached, the warm-up is too short, or a setting is invalid.

    Examples
    --------
    >>> warmup = np.random.default_rng(0).normal(size=(2_000, 2))
    >>> planned = plan(0.4, warmup, -warmup)
    >>> planned.draws, planned.kept, planned.budget
    (329, 93, 0.001777)
    >>> planned.settings["stream_weight"]  # the plan holds for KSD alone
    0.0
    """
    config = ThinConfig.of(**{"preconditioner": "auto", **settings})
    chains = validation.as_chains(draws, scores)
    return plan_from_blocks(chains, radius, config, growth=growth, budget=budget, bound_for=bound_for)


def plan_from_blocks(
    chains: list[validation.Block],
    radius: float,
    config: ThinConfig,
    *,
    growth: str | float,
    budget: str,
    bound_for: str,
) -> Plan:
    """Plan from a warm-up of chains of any lengths, one block each; the other arguments are those of :func:`plan`."""
    _validate(radius, config, bound_for)
    if not all(block.has_scores for block in chains):
        raise InputError("A plan requires scores: it is about KSD.", "Give the score of each draw of the warm-up.")
    floor, kernel, candidates = _as_growth(growth, bound_for), config.kernel, config.candidates
    criterion_for = _as_criterion(budget, floor)
    fitted = fit_source(ArraySource([MarkedBlock(block) for block in chains]), config).preconditioner
    config = config.replace(preconditioner=fitted, stream_weight=0.0)  # the bound is one of KSD alone
    kappa, diagonal = estimate_kappa(chains, kernel, fitted, candidates)
    if radius >= math.sqrt(kappa):
        raise InputError(
            f"A KSD of {radius:.3g} needs no plan: a single draw has {math.sqrt(kappa):.3g} in expectation.",
            "Choose a smaller radius.",
        )
    criterion = criterion_for(kappa)
    terms = choose_steps(radius, criterion, Bound(floor, bound_for), candidates)
    chosen = criterion.budget(radius, terms)
    return Plan(
        radius=float(radius),
        bound=math.sqrt(criterion.squared_bound(radius, terms)),
        draws=terms.steps * candidates,
        steps=terms.steps,
        kept=terms.kept,
        growth=str(floor),
        budget=chosen,
        kappa=kappa,
        diagonal=diagonal,
        bound_for=bound_for,
        preconditioner=fitted,
        config=config.replace(growth=str(floor), budget=chosen),
    )


# -- the bound -----------------------------------------------------------------------------------------------------


class BoundTerms(NamedTuple):
    """The bound E KSD^2 <= sampling * kappa + thinning * eps after a number of steps, when ``kept`` draws are kept."""

    steps: int
    kept: int
    sampling: float
    thinning: float


class Bound:
    """The bound of the module docstring, after any number of steps.

    Up to a thousand steps every term is summed. Beyond, blocks of steps about 0.4 % long are summed together, each with
    the growth at its beginning, which can only increase the bound.

    >>> Bound(schedules.Linear(), "any").at(2)  # (1/4) (1 / 1^2) + 1 / 2^2, and 1/4 + 1
    BoundTerms(steps=2, kept=1, sampling=0.5, thinning=1.25)
    """

    def __init__(self, growth: schedules.Schedule, bound_for: str) -> None:
        self._growth, self._planned = growth, bound_for == "planned"
        self._edges = np.append(np.arange(1000.0), np.floor(np.geomspace(1000, 2 * _MAX_DRAWS, 5000)))
        # A set grows by at most one draw per step: it lags behind a growth that is steeper than that.
        self._lag = np.minimum.accumulate(self._floor(self._edges) - self._edges)

    def at(self, steps: int) -> BoundTerms:
        """Return the terms of the bound after this number of steps."""
        blocks = int(np.searchsorted(self._edges, steps))
        edges = np.append(self._edges[:blocks], float(steps))
        floors = self._edges[:blocks] + self._lag[:blocks]
        kept = int(min(self._floor(edges[-1:])[0], steps + self._lag[blocks - 1]))
        sums = _weight_sums(edges, float(steps), float(kept if self._planned else steps))
        sampling = np.sum(np.diff(sums) / (floors + 1.0) ** 2)
        return BoundTerms(steps, kept, float(sampling), float(sums[-1]))

    def _floor(self, t: Array) -> Array:
        """Growth as used by the thinner, and 0 before the first step."""
        floor = np.ceil(schedules.evaluate(self._growth, np.maximum(t, 1.0)))
        return np.minimum(np.maximum(floor, 1.0), t)


def _weight_sums(i: Array, n: float, largest: float) -> Array:
    """Compute w_1 + ... + w_i for sizes of at most min(t, largest) with largest <= n.

    The weights are (i / largest)^2 q^(n - largest) up to i = largest and q^(n - i) beyond, with
    q = (largest / (largest + 1))^2.
    """
    log_q = 2.0 * np.log1p(-1.0 / (largest + 1.0))
    early, start = np.minimum(i, largest), np.exp(log_q * (n - largest))
    squares = early * (early + 1.0) * (2.0 * early + 1.0) / 6.0
    geometric = (np.exp(log_q * (n - np.maximum(i, largest))) - start) * (largest + 1.0) ** 2 / (2.0 * largest + 1.0)
    total: Array = squares / largest**2 * start + geometric
    return total


# -- the choice of the number of steps -----------------------------------------------------------------------------


@dataclass(frozen=True)
class LargestConstantBudget:
    """Criterion: the largest constant budget that reaches the radius."""

    kappa: float

    def merit(self, radius: float, terms: BoundTerms) -> float:
        """Budget that is left for thinning; negative if sampling alone exceeds the radius."""
        return (radius**2 - self.kappa * terms.sampling) / terms.thinning

    def budget(self, radius: float, terms: BoundTerms) -> float:
        """Budget for the thinner, rounded down to four digits."""
        return _round_down(self.merit(radius, terms))

    def squared_bound(self, radius: float, terms: BoundTerms) -> float:
        """Bound on E KSD^2."""
        return self.kappa * terms.sampling + self.budget(radius, terms) * terms.thinning


@dataclass(frozen=True)
class FewestStepsWithShare:
    """Criterion: the smallest number of steps that reaches the radius with the budget eta / n^2."""

    kappa: float
    eta: float

    def merit(self, radius: float, terms: BoundTerms) -> float:
        """Inverse of the number of steps; negative if the radius is not reached."""
        return 1.0 / terms.steps if self.squared_bound(radius, terms) <= radius**2 else -1.0

    def budget(self, radius: float, terms: BoundTerms) -> str:
        """Budget for the thinner."""
        return str(schedules.Share(self.eta))

    def squared_bound(self, radius: float, terms: BoundTerms) -> float:
        """Bound on E KSD^2."""
        return (self.kappa + self.eta) * terms.sampling


Criterion = LargestConstantBudget | FewestStepsWithShare


def choose_steps(radius: float, criterion: Criterion, bound: Bound, candidates: int) -> BoundTerms:
    """Maximise the merit over the number of steps: on a grid of 40 per decade, then finely around its best point."""
    steps = np.unique(np.geomspace(1, 1.2 * _MAX_DRAWS, 12 * 40).astype(np.int64))
    coarse = [bound.at(int(n)) for n in steps]
    best = _best(radius, criterion, coarse)
    if criterion.merit(radius, best) <= 0 or best.steps * candidates > _MAX_DRAWS:
        reached = [_smallest_radius(draws // candidates, radius, criterion, coarse) for draws in (10**6, 10**8)]
        raise InputError(
            f"A KSD of {radius:.3g} is out of reach: it takes more than 10^12 draws (kappa is {criterion.kappa:.3g}).",
            f"10^6 draws reach {reached[0]:.2g}, 10^8 reach {reached[1]:.2g}; a faster growth requires fewer draws.",
        )
    place = int(np.searchsorted(steps, best.steps))
    low, high = steps[max(place - 1, 0)], steps[min(place + 1, len(steps) - 1)]
    fine = np.unique(np.linspace(low, high, 200).astype(np.int64))
    return _best(radius, criterion, [bound.at(int(n)) for n in fine])


def _best(radius: float, criterion: Criterion, points: list[BoundTerms]) -> BoundTerms:
    return max(points, key=lambda terms: criterion.merit(radius, terms))


def _smallest_radius(steps: int, radius: float, criterion: Criterion, points: list[BoundTerms]) -> float:
    """Find the smallest radius that takes at most ``steps`` steps, by bisection above a radius that takes more."""

    def reached(radius: float) -> bool:
        best = _best(radius, criterion, points)
        return criterion.merit(radius, best) > 0 and best.steps <= max(steps, 1)

    low = high = radius
    while not reached(high):
        low, high = high, 2.0 * high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


# -- the constants -------------------------------------------------------------------------------------------------


def estimate_kappa(
    chains: list[validation.Block], kernel: Kernel, preconditioner: Preconditioner, candidates: int
) -> tuple[float, float]:
    """Estimate kappa from the second halves of the chains; also return the mean of k0(x, x)."""
    settled = [block.take(slice(len(block.draws) // 2, None)) for block in chains]
    steps = [block.take(slice(None, None, candidates)) for block in settled]
    number = sum(len(block.draws) for block in steps)
    if number < _MIN_STEPS:
        raise InputError(
            f"The warm-up is too short: its second half has {number} steps, and at least {_MIN_STEPS} are required.",
            f"Give at least {2 * _MIN_STEPS * candidates} draws.",
        )
    diagonal = float(np.concatenate([_diagonal(block, kernel, preconditioner) for block in settled]).mean())
    total, weight = 0.0, 0
    segments = math.ceil(_SEGMENTS / len(chains))
    for block in steps:
        for rows in np.array_split(np.arange(len(block.draws)), segments):
            last = rows[-_MAX_SEGMENT:]
            if len(last):
                value = ksd(block.draws[last], block.scores[last], kernel=kernel, preconditioner=preconditioner)
                total, weight = total + len(last) ** 2 * value**2, weight + len(last)
    return max(diagonal, total / weight), diagonal


def _diagonal(block: validation.Block, kernel: Kernel, preconditioner: Preconditioner) -> Array:
    """Compute k0(x, x) of each draw."""
    points, scores = preconditioner.apply(block.draws, block.scores)
    return kernel.diagonal(scores, points)


# -- validation ----------------------------------------------------------------------------------------------------


def _validate(radius: float, config: ThinConfig, bound_for: str) -> None:
    if not (isinstance(radius, int | float | np.number) and 0 < radius < math.inf):
        raise InputError(f"radius, the KSD to reach, must be a number above 0, got {radius!r}.")
    unsupported = config.unsupported_by(PLAN)
    if unsupported is not None:
        raise InputError(f"A plan has no setting {unsupported}.", f"Its settings are {', '.join(settings_of(PLAN))}.")
    if bound_for not in BOUND_KINDS:
        raise InputError(f"Unknown bound_for {bound_for!r}.", f"Choose one of {', '.join(BOUND_KINDS)}.")


def _as_growth(choice: str | float, bound_for: str) -> schedules.Schedule:
    """Return the growth; raise if no bound is known for it."""
    try:
        growth = None if isinstance(choice, int | float | np.number) else schedules.growth(choice)
    except InputError as error:
        raise InputError(error.problem, _GROWTHS) from None
    exponent = choice if growth is None else growth.alpha if isinstance(growth, schedules.Power) else None
    if exponent is not None:
        if not 1 < float(exponent) < 2:
            raise InputError(
                f"The exponent of the growth must lie between 1 and 2, got {exponent}.",
                'For slower growth plan with "sqrt", for faster growth with "linear".',
            )
        return schedules.Power(float(exponent))
    if isinstance(growth, schedules.SquareRoot) and bound_for == "any":
        raise InputError(
            "With sqrt growth the bound for any sizes decreases like 1 / log n and reaches no useful radius.",
            'Use a power between 1 and 2, or bound_for="planned" (--bound-for planned).',
        )
    if not isinstance(growth, schedules.SquareRoot | schedules.Linear):
        raise InputError(f"No bound is known for growth {choice!r}.", _GROWTHS)
    return growth


def _as_criterion(budget: str, growth: schedules.Schedule) -> Callable[[float], Criterion]:
    if budget == "constant":
        return LargestConstantBudget
    if budget == "share":
        return lambda kappa: FewestStepsWithShare(kappa, _round_down(kappa))
    try:
        share = schedules.budget(budget, growth)
    except InputError as error:
        raise InputError(error.problem, _BUDGETS) from None
    if not isinstance(share, schedules.Share) or not math.isfinite(share.eta):
        raise InputError(f"No bound is known for budget {budget!r}.", _BUDGETS)
    return lambda kappa: FewestStepsWithShare(kappa, share.eta)


def _round_down(value: float) -> float:
    """Round down to four significant digits.

    >>> _round_down(1.23499e-7)
    1.234e-07
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.floor(value / unit) * unit:.4g}")
