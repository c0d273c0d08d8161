r"""How many draws, and which budget, for a wanted KSD: the paper's constant-budget corollary, with its constants.

Let N_t be the size of the kept set after step t, f_t its floor, K_t its KSD^2, and kappa = E k0(x, x) under the target.

**Theorem** (independent draws of the target, the best of any number of candidates). A new draw raises N^2 K by kappa at
most in the mean, because E k0(x, .) = 0 and the best candidate does no worse than the first; thinning raises K by the
budget eps_t at most. So, with N = N_{t-1} whatever the algorithm made of it,

.. math:: E[K_t | past] \le \left(\frac{N}{N+1}\right)^2 K_{t-1} + \frac{\kappa}{(N+1)^2} + \epsilon_t ,

and if always :math:`f_t \le N_t \le M_t = \min(t, S)`,

.. math:: E K_n \le \sum_{i \le n} w_i \left(\frac{\kappa}{(f_{i-1} + 1)^2} + \epsilon_i\right), \qquad
          w_i = \prod_{j=i}^{n-1} \left(\frac{M_j}{M_j + 1}\right)^2 .

- ``sizes="any"``: S = infinity, w_i = (i/n)^2. Nothing is assumed. With f = sqrt(t^(1 + alpha) log t) / 2 and eps
  constant the two parts go like n^-alpha / log n and eps n / 3. This is the corollary, for 0 < alpha < 1: the best n is
  O(eps^(-1/(1 + alpha))), and E K_n is then O(eps^(alpha/(1 + alpha))).
- ``sizes="planned"``: S = f_n, the set never holds more than it shall hold at the end. Errors are then forgotten within
  some S steps, and for growth well below linear the bound is about kappa / (2 f_n) + eps f_n / 2, far below the other.
  The largest budget for a radius is kappa / f_n^2 with f_n = kappa / radius^2; n is again O(eps^(-1/(1 + alpha))), but
  E K_n is O(sqrt(eps)). In a set of f_n draws this budget pays for a removal at every step (the removal lemma, if
  k0(x, x) is kappa on average over the set), so the set grows no larger. That average is an observation, not a theorem.

With the budget eta / (N + 1)^2, ``"share"``, all this holds with kappa + eta for kappa and 0 for eps.

**Estimates.** kappa is the mean of k0(x, x) over the settled, second half of a warm-up. In a correlated chain the mean
of k0(x, .) given the past is not 0. What a draw adds in the long run is then the sum of the autocovariances of the
Stein features, and n KSD^2 of n consecutive draws (every m-th one, with m candidates) tends to it. Its mean over eight
pieces is used where it is greater. No theorem covers this; it falls short when a chain's memory is as long as a piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import schedules, validation
from steinstream._formatting import count
from steinstream.discrepancy import ksd
from steinstream.errors import InputError
from steinstream.kernels import Kernel, as_kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.subsample import Subsample, fit_preconditioner

Array = NDArray[np.float64]

SIZES = ("planned", "any")

_MOST = 10**12  # draws
_FEWEST = 100  # settled steps of the warm-up
_PIECES = 8  # of the settled part: n KSD^2 of one piece alone is easily off by a factor of two
_LONGEST = 8192  # steps in a piece


@dataclass(frozen=True, eq=False)
class Plan:
    """What to run for a KSD of ``radius``: ``Thinner(dim, **plan.settings)`` over so many ``draws``.

    ``kept`` of them remain. ``bound`` is the root of the bound on E KSD^2, ``kappa`` the constant in it, ``diagonal``
    what kappa would be if the draws were independent.
    """

    radius: float
    bound: float
    draws: int
    steps: int
    kept: int
    growth: str
    budget: float | str
    candidates: int
    kappa: float
    diagonal: float
    sizes: str
    kernel: Kernel
    preconditioner: Preconditioner

    @property
    def settings(self) -> dict[str, Any]:
        """For :class:`~steinstream.Thinner` and :func:`~steinstream.thin`."""
        names = ("kernel", "preconditioner", "growth", "budget", "candidates")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        steps = "" if self.candidates == 1 else f": {count(self.steps)} steps, the best of {self.candidates} at each"
        excess = self.kappa / self.diagonal
        correlated = f", {excess:.3g} times that of independent draws" if excess > 1 else ""
        return (
            f"KSD       {self.radius:.4g} or less, in the mean\n"
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
    candidates: int = 1,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    sizes: str = "planned",
    validate_scores: bool = True,
) -> Plan:
    """How many draws to make and which budget to give for a KSD of ``radius``; the constants come from a warm-up.

    The warm-up is (n, d) or (chains, n, d) draws with their scores. ``growth`` is ``"power:A"`` or A itself, 1 < A < 2,
    or ``"linear"``, or ``"sqrt"``. The largest constant budget is taken with which the radius can be had;
    ``budget="share"`` is a share of kappa instead, ``"share:ETA"`` one of ETA. ``sizes="any"`` takes the bound that
    assumes nothing on the sizes, and asks for many times more. All else as in :func:`~steinstream.thin`.

    >>> warmup = np.random.default_rng(0).normal(size=(2_000, 2))
    >>> todo = plan(0.4, warmup, -warmup)
    >>> todo.draws, todo.kept, todo.budget
    (329, 93, 0.001777)
    """
    return plan_from(
        validation.as_chains(draws, scores), radius, growth=growth, budget=budget, candidates=candidates, kernel=kernel,
        preconditioner=preconditioner, sizes=sizes, validate_scores=validate_scores,
    )  # fmt: skip


def plan_from(
    chains: list[validation.Block], radius: float, *, growth: str | float, budget: str, candidates: int,
    kernel: Kernel | None, preconditioner: Preconditioner | str, sizes: str, validate_scores: bool,
) -> Plan:  # fmt: skip
    """The same for a warm-up of chains of any lengths, one block each."""
    _require(radius, candidates, sizes)
    floor, kernel = _growth(growth, sizes), as_kernel(kernel)
    aim_with = _aim(budget, floor)
    sketch = Subsample(chains[0].draws.shape[1])
    for block in chains:
        validation.finite_rows(block, "raise")
        sketch.add(block)
    config = ThinConfig(kernel=kernel, preconditioner=preconditioner, validate_scores=validate_scores)
    preconditioner = fit_preconditioner(sketch, config)
    kappa, diagonal = constants(chains, kernel, preconditioner, candidates)
    if radius >= math.sqrt(kappa):
        raise InputError(
            f"A KSD of {radius:.3g} needs no plan: a single draw has {math.sqrt(kappa):.3g} in the mean.",
            "Ask for less.",
        )
    aim = aim_with(kappa)
    point = choose(radius, aim, Bound(floor, sizes), candidates)
    return Plan(
        radius=float(radius),
        bound=math.sqrt(aim.square(radius, point)),
        draws=point.steps * int(candidates),
        steps=point.steps,
        kept=point.kept,
        growth=str(floor),
        budget=aim.budget(radius, point),
        candidates=int(candidates),
        kappa=kappa,
        diagonal=diagonal,
        sizes=sizes,
        kernel=kernel,
        preconditioner=preconditioner,
    )


# -- the bound -----------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A number of steps, the floor there, and the bound: E KSD^2 <= sampling * kappa + thinning * eps."""

    steps: int
    kept: int
    sampling: float
    thinning: float


class Bound:
    """The bound of this module's docstring, after any number of steps.

    Up to a thousand steps every term is summed; beyond, blocks of steps some 0.4 % long are taken together, each with
    the floor at its beginning, which can only raise the bound.

    >>> Bound(schedules.Linear(), "any").at(2)  # (1/4) (1 / 1^2) + 1 / 2^2, and 1/4 + 1
    Point(steps=2, kept=1, sampling=0.5, thinning=1.25)
    """

    def __init__(self, growth: schedules.Schedule, sizes: str) -> None:
        self._growth, self._planned = growth, sizes == "planned"
        self._edges = np.append(np.arange(1000.0), np.floor(np.geomspace(1000, 2 * _MOST, 5000)))
        # A set grows by one draw a step: where a growth close to linear asks for more, the set lags behind.
        self._lead = np.minimum.accumulate(self._floor(self._edges) - self._edges)

    def at(self, steps: int) -> Point:
        """After so many steps."""
        blocks = int(np.searchsorted(self._edges, steps))
        edges = np.append(self._edges[:blocks], float(steps))
        floors = self._edges[:blocks] + self._lead[:blocks]
        kept = int(min(self._floor(edges[-1:])[0], steps + self._lead[blocks - 1]))
        reached = _summed_weights(edges, float(steps), float(kept if self._planned else steps))
        sampling = np.sum(np.diff(reached) / (floors + 1.0) ** 2)
        return Point(steps, kept, float(sampling), float(reached[-1]))

    def _floor(self, t: Array) -> Array:
        """As the thinner has it, and 0 before the first step."""
        floor = np.ceil(schedules.evaluate(self._growth, np.maximum(t, 1.0)))
        return np.minimum(np.maximum(floor, 1.0), t)


def _summed_weights(i: Array, n: float, most: float) -> Array:
    """w_1 + ... + w_i for sizes of at most min(t, most) with most <= n.

    The weights are (i / most)^2 q^(n - most) up to i = most and q^(n - i) beyond, with q = (most / (most + 1))^2.
    """
    log_q = 2.0 * np.log1p(-1.0 / (most + 1.0))
    early, start = np.minimum(i, most), np.exp(log_q * (n - most))
    squares = early * (early + 1.0) * (2.0 * early + 1.0) / 6.0
    geometric = (np.exp(log_q * (n - np.maximum(i, most))) - start) * (most + 1.0) ** 2 / (2.0 * most + 1.0)
    total: Array = squares / most**2 * start + geometric
    return total


# -- the choice ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConstantAim:
    """The largest constant budget that reaches the radius."""

    kappa: float

    def merit(self, radius: float, point: Point) -> float:
        """The budget that is left for thinning; negative where sampling alone takes more than there is."""
        return (radius**2 - self.kappa * point.sampling) / point.thinning

    def budget(self, radius: float, point: Point) -> float:
        """For the thinner, in four digits."""
        return _down(self.merit(radius, point))

    def square(self, radius: float, point: Point) -> float:
        """The bound on E KSD^2."""
        return self.kappa * point.sampling + self.budget(radius, point) * point.thinning


@dataclass(frozen=True)
class ShareAim:
    """The fewest steps that reach the radius with the budget eta / n^2."""

    kappa: float
    eta: float

    def merit(self, radius: float, point: Point) -> float:
        """Higher for fewer steps; negative where the radius is not reached."""
        return 1.0 / point.steps if self.square(radius, point) <= radius**2 else -1.0

    def budget(self, radius: float, point: Point) -> str:
        """For the thinner."""
        return f"share:{self.eta!r}"

    def square(self, radius: float, point: Point) -> float:
        """The bound on E KSD^2."""
        return (self.kappa + self.eta) * point.sampling


def choose(radius: float, aim: ConstantAim | ShareAim, bound: Bound, candidates: int) -> Point:
    """The best number of steps: among 40 in a decade, then finely around the best of these."""
    steps = np.unique(np.geomspace(1, 1.2 * _MOST, 12 * 40).astype(np.int64))
    coarse = [bound.at(int(n)) for n in steps]
    best = _best(radius, aim, coarse)
    if aim.merit(radius, best) <= 0 or best.steps * candidates > _MOST:
        within = [_reachable(draws // candidates, radius, aim, coarse) for draws in (10**6, 10**8)]
        raise InputError(
            f"A KSD of {radius:.3g} is out of reach: it takes more than 10^12 draws (kappa is {aim.kappa:.3g}).",
            f"10^6 draws are enough for {within[0]:.2g}, 10^8 for {within[1]:.2g}; faster growth needs fewer.",
        )
    place = int(np.searchsorted(steps, best.steps))
    low, high = steps[max(place - 1, 0)], steps[min(place + 1, len(steps) - 1)]
    return _best(radius, aim, [bound.at(int(n)) for n in np.unique(np.linspace(low, high, 200).astype(np.int64))])


def _best(radius: float, aim: ConstantAim | ShareAim, points: list[Point]) -> Point:
    return max(points, key=lambda point: aim.merit(radius, point))


def _reachable(steps: int, radius: float, aim: ConstantAim | ShareAim, points: list[Point]) -> float:
    """The smallest radius that takes no more than so many steps, by bisection from one that takes more."""

    def reached(radius: float) -> bool:
        best = _best(radius, aim, points)
        return aim.merit(radius, best) > 0 and best.steps <= max(steps, 1)

    low = high = radius
    while not reached(high):
        low, high = high, 2.0 * high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


# -- the constants -------------------------------------------------------------------------------------------------


def constants(
    chains: list[validation.Block], kernel: Kernel, within: Preconditioner, candidates: int
) -> tuple[float, float]:
    """The constant kappa of the chains, and the mean of k0(x, x) alone: what it is for independent draws."""
    settled = [block.take(slice(len(block.draws) // 2, None)) for block in chains]
    steps = [block.take(slice(None, None, candidates)) for block in settled]
    count = sum(len(block.draws) for block in steps)
    if count < _FEWEST:
        raise InputError(
            f"The warm-up is too short to plan with: its second half makes {count} steps.",
            f"Give at least {2 * _FEWEST * candidates} draws.",
        )
    diagonal = float(np.concatenate([_diagonal(block, kernel, within) for block in settled]).mean())
    total, weight = 0.0, 0
    pieces = math.ceil(_PIECES / len(chains))
    for block in steps:
        for rows in np.array_split(np.arange(len(block.draws)), pieces):
            some = rows[-_LONGEST:]
            if len(some):
                square = ksd(block.draws[some], block.scores[some], kernel=kernel, preconditioner=within) ** 2
                total, weight = total + len(some) ** 2 * square, weight + len(some)
    return max(diagonal, total / weight), diagonal


def _diagonal(block: validation.Block, kernel: Kernel, preconditioner: Preconditioner) -> Array:
    """k0(x, x) in these coordinates."""
    preconditioner.require(block.draws.shape[1])
    points, scores = preconditioner.apply(block.draws, block.scores)
    return kernel.diagonal(scores, points)


# -- what was asked for --------------------------------------------------------------------------------------------


def _require(radius: float, candidates: int, sizes: str) -> None:
    if not (isinstance(radius, int | float | np.number) and 0 < radius < math.inf):
        raise InputError(f"The radius must be a number above 0, got {radius!r}.", "It is the KSD you want to reach.")
    if isinstance(candidates, bool) or not isinstance(candidates, int | np.integer) or candidates < 1:
        raise InputError(f"candidates must be a whole number of at least 1, got {candidates!r}.")
    if sizes not in SIZES:
        raise InputError(f"Unknown sizes {sizes!r}.", f"Choose one of {', '.join(SIZES)}.")


def _growth(choice: str | float, sizes: str) -> schedules.Schedule:
    """Power, linear or sqrt; what cannot be planned with is refused."""
    exponent = choice if isinstance(choice, int | float | np.number) else None
    if exponent is None:
        growth = schedules.growth(choice)
        exponent = growth.alpha if isinstance(growth, schedules.Power) else None
    if exponent is not None:
        if not 1 < exponent < 2:
            raise InputError(
                f"The exponent of the growth must lie between 1 and 2, got {exponent}.",
                'For slower growth plan with "sqrt", for faster with "linear".',
            )
        return schedules.Power(float(exponent))
    if isinstance(growth, schedules.SquareRoot) and sizes == "any":
        raise InputError(
            "With sqrt growth the bound for any sizes falls like 1 / log n: no radius worth having is reached.",
            'Use a power between 1 and 2, or sizes="planned" (--sizes planned).',
        )
    if not isinstance(growth, schedules.SquareRoot | schedules.Linear):
        raise InputError(f"There is no plan for growth {choice!r}.", "Plan with power:A (1 < A < 2), linear or sqrt.")
    return growth


def _aim(budget: str, growth: schedules.Schedule) -> Callable[[float], ConstantAim | ShareAim]:
    """What to aim for, once kappa is known."""
    if budget == "constant":
        return ConstantAim
    if budget == "share":
        return lambda kappa: ShareAim(kappa, _down(kappa))
    share = schedules.budget(budget, growth)
    if not isinstance(share, schedules.Share) or not math.isfinite(share.eta):
        raise InputError(f"There is no plan for budget {budget!r}.", "Plan with constant, share, or share:ETA.")
    return lambda kappa: ShareAim(kappa, share.eta)


def _down(value: float) -> float:
    """The number to four digits, not above it.

    >>> _down(1.23499e-7)
    1.234e-07
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.floor(value / unit) * unit:.4g}")
