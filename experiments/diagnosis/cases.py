"""Clean runs, and runs with a fault in them. Every case makes a kept set from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from steinstream.samplers import MALA, RandomWalk, adapt_step
from steinstream.targets import Functions, Gaussian, Mixture

Array = NDArray[np.float64]
Stream = Callable[[int], tuple[Array, Array]]

IDENTITY = ss.Preconditioner.identity()
STREAMING = ss.Streaming()
SMALL, LARGE = {"size": 100}, {"size": 500}


class Case(NamedTuple):
    """``wanted`` are the checks that may fire for this fault: at least one of them has to."""

    name: str
    run: Callable[[int], ss.Kept]
    wanted: tuple[str, ...] = ()


# -- targets -----------------------------------------------------------------------------------------------------------


def correlated(dim: int, rho: float) -> Gaussian:
    """Neighbouring parameters correlate by rho."""
    place = np.arange(dim)
    return Gaussian(np.zeros(dim), rho ** np.abs(place[:, None] - place))


def student(dim: int, freedom: float) -> Functions:
    """Student's t in some dimensions."""
    return Functions(
        lambda x: -0.5 * (freedom + dim) * float(np.log1p(x @ x / freedom)),
        lambda x: -(freedom + dim) * x / (freedom + x @ x),
    )


def banana(bend: float = 0.5) -> Functions:
    """x0 ~ N(0, 1), x1 given x0 ~ N(bend (x0^2 - 1), 0.5^2)."""

    def score(x: Array) -> Array:
        off = (x[1] - bend * (x[0] ** 2 - 1.0)) / 0.25
        return np.array([-x[0] + 2.0 * bend * x[0] * off, -off])

    return Functions(lambda x: float(-0.5 * x[0] ** 2 - 2.0 * (x[1] - bend * (x[0] ** 2 - 1.0)) ** 2), score)


def modes(dim: int, distance: float, small: float) -> Mixture:
    """Two modes of width 1, the smaller one along the diagonal."""
    return Mixture(
        [np.zeros(dim), np.full(dim, distance / np.sqrt(dim))], covariances=1.0, weights=[1.0 - small, small]
    )


# -- streams -----------------------------------------------------------------------------------------------------------


def independent(target: Any, draws: int) -> Stream:
    """No chain at all."""
    return lambda seed: tuple(target.sample(draws, seed))  # type: ignore[return-value]


def chain(
    kind: Any, target: Any, dim: int, draws: int, acceptance: float, start: float = 0.0, step: float = 0.5
) -> Stream:
    """A chain whose step was tuned from the origin; with ``start`` it then begins anew, so far out."""

    def stream(seed: int) -> tuple[Array, Array]:
        sampler = kind(target, step=step)
        sampler, state = adapt_step(sampler, sampler.init(np.zeros(dim), seed=seed), 2000, acceptance)
        if start:
            state = sampler.init(np.full(dim, start), seed=seed)
        _, block = sampler.sample(state, draws)
        return block.draws, block.scores

    return stream


def walk(target: Any, step: float, start: float, draws: int) -> Stream:
    """A random walk with this very step."""

    def stream(seed: int) -> tuple[Array, Array]:
        sampler = RandomWalk(target, step=step)
        _, block = sampler.sample(sampler.init(np.full(2, start), seed=seed), draws)
        return block.draws, block.scores

    return stream


def several(stream: Stream, chains: int) -> Stream:
    """Several chains of the same kind."""

    def both(seed: int) -> tuple[Array, Array]:
        draws, scores = zip(*(stream(1000 * seed + k) for k in range(chains)), strict=True)
        return np.array(draws), np.array(scores)

    return both


def some_chains(path: Path, number: int) -> Stream:
    """Some of the chains in a file."""

    def stream(seed: int) -> tuple[Array, Array]:
        with np.load(path) as arrays:
            draws, scores = arrays["draws"], arrays["scores"]
        chosen = np.random.default_rng(seed).choice(len(draws), number, replace=False)
        return draws[chosen], scores[chosen]

    return stream


def thinned(stream: Stream, **settings: Any) -> Callable[[int], ss.Kept]:
    """What ``ss.thin`` keeps."""
    return lambda seed: ss.thin(*stream(seed), **settings)


def weighed(stream: Stream, size: int) -> Callable[[int], ss.Kept]:
    """What ``ss.thin`` keeps, with the stream's means and variances."""

    def run(seed: int) -> ss.Kept:
        draws, scores = stream(seed)
        return ss.thin(draws, scores, size=size).weighted(like=draws)

    return run


def at_random(stream: Stream, size: int) -> Callable[[int], ss.Kept]:
    """A random subset of the stream: what the thresholds are made for."""

    def run(seed: int) -> ss.Kept:
        draws, scores = stream(seed)
        kept = ss.thin(draws, scores, size=1)
        chosen = np.sort(np.random.default_rng(seed).choice(len(draws), size, replace=False))
        ids = np.column_stack([np.zeros_like(chosen), chosen])
        return replace(kept, points=draws[chosen], scores=scores[chosen], ids=ids)

    return run


# -- clean runs --------------------------------------------------------------------------------------------------------


def clean() -> list[Case]:
    """Chains that mix, thinned by defaults."""
    cases = []
    for dim, draws in ((1, 10_000), (2, 10_000), (10, 20_000), (38, 60_000)):
        normal = Gaussian(np.zeros(dim), 1.0)
        metropolis, langevin = chain(RandomWalk, normal, dim, draws, 0.234), chain(MALA, normal, dim, draws, 0.574)
        cases += [
            Case(f"normal d={dim}, independent, sqrt", thinned(independent(normal, 10_000))),
            Case(f"normal d={dim}, independent, 500", thinned(independent(normal, 10_000), **LARGE)),
            Case(f"normal d={dim}, random walk 0.234, sqrt", thinned(metropolis)),
            Case(f"normal d={dim}, random walk 0.234, 100", thinned(metropolis, **SMALL)),
            Case(f"normal d={dim}, MALA 0.574, sqrt", thinned(langevin)),
            Case(f"normal d={dim}, MALA 0.574, 500", thinned(langevin, **LARGE)),
            Case(f"normal d={dim}, MALA 0.574, 100 at random", at_random(langevin, 100)),
            Case(f"normal d={dim}, random walk 0.234, 500 at random", at_random(metropolis, 500)),
        ]
    two, ten = Gaussian(np.zeros(2), 1.0), Gaussian(np.zeros(10), 1.0)
    ridge, narrow = correlated(10, 0.9), Gaussian(np.zeros(2), [1.0, 1e-4])
    tails, bent = student(3, 5.0), banana()
    near, far = modes(2, 3.0, 0.3), modes(2, 6.0, 0.2)
    short, brief = chain(MALA, two, 2, 1000, 0.574), chain(RandomWalk, two, 2, 1000, 0.234)
    return [
        *cases,
        Case("normal d=2, independent, identity", thinned(independent(two, 10_000), preconditioner=IDENTITY)),
        Case("normal d=2, 1000 MALA draws, sqrt", thinned(short)),
        Case("normal d=2, 1000 MALA draws, 30", thinned(short, size=30)),
        Case("normal d=2, 1000 random walk draws, sqrt", thinned(brief)),
        Case("normal d=2, 1000 random walk draws, 100 at random", at_random(brief, 100)),
        Case(
            "normal d=10, 6000 random walk draws, 300 at random",
            at_random(chain(RandomWalk, ten, 10, 6000, 0.234), 300),
        ),
        Case("normal d=2, random walk 0.05, sqrt", thinned(chain(RandomWalk, two, 2, 20_000, 0.05))),
        Case("normal d=2, random walk 0.7, sqrt", thinned(chain(RandomWalk, two, 2, 20_000, 0.7))),
        Case("normal d=10, MALA 0.9, sqrt", thinned(chain(MALA, ten, 10, 20_000, 0.9))),
        Case("normal d=10, four MALA chains, sqrt", thinned(several(chain(MALA, ten, 10, 5000, 0.574), 4))),
        Case("normal d=10, 32 MALA chains of 500, sqrt", thinned(several(chain(MALA, ten, 10, 500, 0.574), 32))),
        Case("normal d=2, MALA from 20 sd out, sqrt", thinned(chain(MALA, two, 2, 20_000, 0.574, start=20.0))),
        Case("normal d=2, MALA, best of 10, 100", thinned(chain(MALA, two, 2, 20_000, 0.574), candidates=10, **SMALL)),
        Case("correlated d=10, independent, sqrt", thinned(independent(ridge, 10_000))),
        Case("correlated d=10, MALA 0.574, 500", thinned(chain(MALA, ridge, 10, 60_000, 0.574), **LARGE)),
        Case("diag(1, 1e-4), independent, sqrt", thinned(independent(narrow, 10_000))),
        Case("Student t(5) d=3, random walk 0.234, sqrt", thinned(chain(RandomWalk, tails, 3, 10_000, 0.234))),
        Case("Student t(5) d=3, MALA 0.574, 500", thinned(chain(MALA, tails, 3, 10_000, 0.574), **LARGE)),
        Case("Student t(5) d=3, MALA 0.574, 500 at random", at_random(chain(MALA, tails, 3, 10_000, 0.574), 500)),
        Case(
            "Student t(3) d=3, random walk 0.234, 100",
            thinned(chain(RandomWalk, student(3, 3.0), 3, 10_000, 0.234), **SMALL),
        ),
        Case("banana, random walk 0.234, sqrt", thinned(chain(RandomWalk, bent, 2, 20_000, 0.234))),
        Case("banana, MALA 0.574, 100", thinned(chain(MALA, bent, 2, 20_000, 0.574), **SMALL)),
        Case("modes 3 apart, MALA 0.574, sqrt", thinned(chain(MALA, near, 2, 20_000, 0.574))),
        Case("modes 6 apart, independent, 500 at random", at_random(independent(far, 10_000), 500)),
        Case("modes 6 apart, independent, 3000", thinned(independent(far, 10_000), size=3000)),
        Case("modes 6 apart, independent, 200, weighed like the stream", weighed(independent(far, 10_000), 200)),
        Case(
            "normal d=10, MALA 0.574, streaming", thinned(chain(MALA, ten, 10, 20_000, 0.574), preconditioner=STREAMING)
        ),
    ]


def real(folder: Path) -> list[Case]:
    """Reference posteriors, ten chains each, of which every seed takes five."""
    cases = []
    for path in sorted(folder.glob("*.npz")):
        name = path.stem.partition("-")[0]
        for setting in ({}, SMALL, LARGE):
            cases.append(Case(f"{name}, {setting.get('size', 'sqrt')}", thinned(some_chains(path, 5), **setting)))
    return cases


# -- faults ------------------------------------------------------------------------------------------------------------


def wrong_shares(dim: int, distance: float, small: float, left: float, size: int) -> Callable[[int], ss.Kept]:
    """The stream is right; of what is kept only ``left`` comes from the smaller mode."""

    def run(seed: int) -> ss.Kept:
        target = modes(dim, distance, small)
        draws, scores = target.sample(20_000, seed)
        inside = draws.sum(axis=1) / np.sqrt(dim) > 0.5 * distance
        kept = ss.thin(draws, scores, size=size)
        few = round(left * size)
        chosen = [ss.thin(draws[~inside], scores[~inside], size=size - few)]
        if few:
            chosen.append(ss.thin(draws[inside], scores[inside], size=few))
        return joined(kept, *chosen)

    return run


def joined(kept: ss.Kept, *parts: ss.Kept) -> ss.Kept:
    """What the parts keep, with the stream of the first."""
    points, scores, ids = (np.concatenate([getattr(p, a) for p in parts]) for a in ("points", "scores", "ids"))
    return replace(kept, points=points, scores=scores, ids=ids)


def altered(stream: Stream, change: Callable[[Array, Array], tuple[Array, Array]]) -> Stream:
    """A stream with something done to it."""
    return lambda seed: change(*stream(seed))


def frozen(draws: Array, scores: Array) -> tuple[Array, Array]:
    """Does not move in its second half."""
    half = len(draws) // 2
    stay = np.minimum(np.arange(len(draws)), half)
    return draws[stay], scores[stay]


def wandered(draws: Array, scores: Array) -> tuple[Array, Array]:
    """The last quarter is four standard deviations off in all parameters; scores of the standard normal."""
    there = draws.copy()
    there[-len(draws) // 4 :] += 4.0
    return there, -there


def negated(draws: Array, scores: Array) -> tuple[Array, Array]:
    """The score of one parameter has the wrong sign."""
    return draws, scores * np.where(np.arange(draws.shape[1]) == 3, -1.0, 1.0)


def magnified(draws: Array, scores: Array) -> tuple[Array, Array]:
    """Scores of another scale."""
    return draws, 3.0 * scores


def late(part: float) -> Stream:
    """A mode with this share of the target that the chain visits only at the very end."""

    def stream(seed: int) -> tuple[Array, Array]:
        target = modes(2, 6.0, part)
        draws = chain(MALA, Gaussian(np.zeros(2), 1.0), 2, 20_000, 0.574)(seed)[0].copy()
        draws[round((1.0 - part) * len(draws)) :] += 6.0 / np.sqrt(2.0)
        return draws, np.array([target.score(x) for x in draws])

    return stream


def two_chains(seed: int) -> tuple[Array, Array]:
    """One chain in each of two modes at a distance of 12."""
    target = modes(2, 12.0, 0.5)
    sampler = MALA(target, step=1.0)
    both = [
        sampler.sample(sampler.init(mode, seed=seed + k), 5000)[1] for k, mode in enumerate(([0.0, 0.0], [8.5, 8.5]))
    ]
    return np.array([block.draws for block in both]), np.array([block.scores for block in both])


def faults() -> list[Case]:
    """One thing wrong in each."""
    two, ten = Gaussian(np.zeros(2), 1.0), Gaussian(np.zeros(10), 1.0)
    mala = chain(MALA, ten, 10, 10_000, 0.574)
    narrow = independent(Gaussian(np.zeros(2), [1.0, 1e-4]), 20_000)
    ridge = independent(correlated(2, 0.9999), 20_000)
    out = chain(RandomWalk, two, 2, 5000, 0.5, start=200.0)
    slow = walk(two, 0.1, 20.0, 1000)
    far = modes(2, 6.0, 0.2)
    lost = ("regions",)
    cases = []
    for dim in (2, 10, 38):
        for small, left, size in ((0.2, 0.01, 100), (0.2, 0.05, 500), (0.05, 0.0, 500)):
            name = f"mode of {small} kept as {left}, 4 apart, d={dim}, {size}"
            cases.append(Case(name, wrong_shares(dim, 4.0, small, left, size), lost))
    return [
        Case("modes 6 apart, the paper's settings", thinned(independent(far, 20_000), **ss.PAPER), lost),
        Case(
            "modes 6 apart, the paper's settings, 100 000 draws", thinned(independent(far, 100_000), **ss.PAPER), lost
        ),
        *cases,
        Case("diag(1, 1e-4), identity, sqrt", thinned(narrow, preconditioner=IDENTITY), ("spread",)),
        Case("correlation 0.9999, identity, sqrt", thinned(ridge, preconditioner=IDENTITY), ("spread",)),
        Case("frozen half-way", thinned(altered(mala, frozen)), ("stuck",)),
        Case("random walk 0.001", thinned(chain(RandomWalk, two, 2, 10_000, 0.001, step=50.0)), ("stuck", "slow")),
        Case("random walk with tiny steps", thinned(walk(two, 0.01, 0.0, 10_000)), ("slow",)),
        Case("from 200 sd out, all kept", thinned(out, growth="none"), ("burn-in",)),
        Case("from 200 sd out, 95% kept", thinned(out, growth=lambda t: 0.95 * t), ("burn-in",)),
        Case("60% burn-in, growth linear", thinned(slow, growth="linear"), ("drift", "slow")),
        Case("mode of 0.2 visited in the last fifth only", thinned(late(0.2)), ("drift",)),
        Case("mode of 0.05 visited in the last twentieth only", thinned(late(0.05)), ("slow",)),
        Case("last quarter 4 sd off", thinned(altered(mala, wandered)), ("drift",)),
        Case("two chains in two modes", thinned(two_chains), ("chains",)),
        Case("one score of ten negated", thinned(altered(mala, negated)), ("scores",)),
        Case("scores three times too large", thinned(altered(mala, magnified)), ("scores",)),
        Case("scores half as large", thinned(altered(mala, lambda x, s: (x, 0.5 * s))), ("scores",)),
        Case("modes 8 apart, Stein weights", weighed_by_ksd(modes(2, 8.0, 0.2), 100), ("weights", "regions")),
    ]


def weighed_by_ksd(target: Mixture, size: int) -> Callable[[int], ss.Kept]:
    """Weights that know nothing of the stream."""

    def run(seed: int) -> ss.Kept:
        return ss.thin(*target.sample(20_000, seed), size=size).weighted()

    return run
