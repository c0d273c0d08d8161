"""Clean runs and runs with a fault. Every case creates a kept set from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array
from steinstream.samplers import MALA, RandomWalk, adapt_step
from steinstream.targets import Functions, Gaussian, Mixture

#: Function that samples draws and scores from a seed.
SampleStream = Callable[[int], tuple[Array, Array]]

IDENTITY = ss.Preconditioner.identity()
STREAMING = ss.Streaming()
SMALL, LARGE = {"size": 100}, {"size": 500}


class DiagnosisCase(NamedTuple):
    """Function that creates a kept set from a seed; for a fault, at least one of the ``wanted`` checks must fire."""

    name: str
    run: Callable[[int], ss.Kept]
    wanted: tuple[str, ...] = ()


# -- targets -----------------------------------------------------------------------------------------------------------


def correlated(dim: int, rho: float) -> Gaussian:
    """Return a Gaussian whose neighbouring parameters have correlation rho."""
    place = np.arange(dim)
    return Gaussian(np.zeros(dim), rho ** np.abs(place[:, None] - place))


def student(dim: int, freedom: float) -> Functions:
    """Return a multivariate Student distribution."""
    return Functions(
        lambda x: -0.5 * (freedom + dim) * float(np.log1p(x @ x / freedom)),
        lambda x: -(freedom + dim) * x / (freedom + x @ x),
    )


def banana(bend: float = 0.5) -> Functions:
    """Return the distribution x0 ~ N(0, 1), x1 given x0 ~ N(bend (x0^2 - 1), 0.5^2)."""

    def score(x: Array) -> Array:
        off = (x[1] - bend * (x[0] ** 2 - 1.0)) / 0.25
        return np.array([-x[0] + 2.0 * bend * x[0] * off, -off])

    return Functions(lambda x: float(-0.5 * x[0] ** 2 - 2.0 * (x[1] - bend * (x[0] ** 2 - 1.0)) ** 2), score)


def modes(dim: int, distance: float, small: float) -> Mixture:
    """Return two modes of unit width at a distance along the diagonal; ``small`` is the mass of the second."""
    return Mixture(
        [np.zeros(dim), np.full(dim, distance / np.sqrt(dim))], covariances=1.0, weights=[1.0 - small, small]
    )


# -- streams -----------------------------------------------------------------------------------------------------------


def independent(target: Any, draws: int) -> SampleStream:
    """Return a stream of independent draws."""
    return lambda seed: tuple(target.sample(draws, seed))  # type: ignore[return-value]


def chain(
    kind: Any, target: Any, dim: int, draws: int, acceptance: float, start: float = 0.0, step: float = 0.5
) -> SampleStream:
    """Return a chain with an adapted step; with ``start`` it starts at this distance after the adaptation."""

    def stream(seed: int) -> tuple[Array, Array]:
        sampler = kind(target, step=step)
        sampler, state = adapt_step(sampler, sampler.init(np.zeros(dim), seed=seed), 2000, acceptance)
        if start:
            state = sampler.init(np.full(dim, start), seed=seed)
        _, block = sampler.sample(state, draws)
        return block.draws, block.scores

    return stream


def walk(target: Any, step: float, start: float, draws: int) -> SampleStream:
    """Return a random walk with a fixed step."""

    def stream(seed: int) -> tuple[Array, Array]:
        sampler = RandomWalk(target, step=step)
        _, block = sampler.sample(sampler.init(np.full(2, start), seed=seed), draws)
        return block.draws, block.scores

    return stream


def several(stream: SampleStream, chains: int) -> SampleStream:
    """Return several chains of the same kind."""

    def both(seed: int) -> tuple[Array, Array]:
        draws, scores = zip(*(stream(1000 * seed + k) for k in range(chains)), strict=True)
        return np.array(draws), np.array(scores)

    return both


def some_chains(path: Path, number: int) -> SampleStream:
    """Return a random choice of the chains in a file."""

    def stream(seed: int) -> tuple[Array, Array]:
        with np.load(path) as arrays:
            draws, scores = arrays["draws"], arrays["scores"]
        chosen = np.random.default_rng(seed).choice(len(draws), number, replace=False)
        return draws[chosen], scores[chosen]

    return stream


def thinned(stream: SampleStream, **settings: Any) -> Callable[[int], ss.Kept]:
    """Thin the stream."""
    return lambda seed: ss.thin(*stream(seed), **settings)


def weighted(stream: SampleStream, size: int) -> Callable[[int], ss.Kept]:
    """Thin the stream and match its means and variances by weights."""

    def run(seed: int) -> ss.Kept:
        draws, scores = stream(seed)
        return ss.thin(draws, scores, size=size).weighted(like=draws)

    return run


def at_random(stream: SampleStream, size: int) -> Callable[[int], ss.Kept]:
    """Choose a random subset of the stream, for which the thresholds were derived."""

    def run(seed: int) -> ss.Kept:
        draws, scores = stream(seed)
        kept = ss.thin(draws, scores, size=1)
        chosen = np.sort(np.random.default_rng(seed).choice(len(draws), size, replace=False))
        ids = np.column_stack([np.zeros_like(chosen), chosen])
        return replace(kept, draws=draws[chosen], scores=scores[chosen], ids=ids)

    return run


# -- clean runs --------------------------------------------------------------------------------------------------------


def clean() -> list[DiagnosisCase]:
    """Return clean cases: chains that mix well, thinned with default settings."""
    cases = []
    for dim, draws in ((1, 10_000), (2, 10_000), (10, 20_000), (38, 60_000)):
        normal = Gaussian(np.zeros(dim), 1.0)
        metropolis, langevin = chain(RandomWalk, normal, dim, draws, 0.234), chain(MALA, normal, dim, draws, 0.574)
        cases += [
            DiagnosisCase(f"normal d={dim}, independent, sqrt", thinned(independent(normal, 10_000))),
            DiagnosisCase(f"normal d={dim}, independent, 500", thinned(independent(normal, 10_000), **LARGE)),
            DiagnosisCase(f"normal d={dim}, random walk 0.234, sqrt", thinned(metropolis)),
            DiagnosisCase(f"normal d={dim}, random walk 0.234, 100", thinned(metropolis, **SMALL)),
            DiagnosisCase(f"normal d={dim}, MALA 0.574, sqrt", thinned(langevin)),
            DiagnosisCase(f"normal d={dim}, MALA 0.574, 500", thinned(langevin, **LARGE)),
            DiagnosisCase(f"normal d={dim}, MALA 0.574, 100 at random", at_random(langevin, 100)),
            DiagnosisCase(f"normal d={dim}, random walk 0.234, 500 at random", at_random(metropolis, 500)),
        ]
    two, ten = Gaussian(np.zeros(2), 1.0), Gaussian(np.zeros(10), 1.0)
    ridge, narrow = correlated(10, 0.9), Gaussian(np.zeros(2), [1.0, 1e-4])
    tails, bent = student(3, 5.0), banana()
    near, far = modes(2, 3.0, 0.3), modes(2, 6.0, 0.2)
    short, brief = chain(MALA, two, 2, 1000, 0.574), chain(RandomWalk, two, 2, 1000, 0.234)
    return [
        *cases,
        DiagnosisCase("normal d=2, independent, identity", thinned(independent(two, 10_000), preconditioner=IDENTITY)),
        DiagnosisCase("normal d=2, 1000 MALA draws, sqrt", thinned(short)),
        DiagnosisCase("normal d=2, 1000 MALA draws, 30", thinned(short, size=30)),
        DiagnosisCase("normal d=2, 1000 random walk draws, sqrt", thinned(brief)),
        DiagnosisCase("normal d=2, 1000 random walk draws, 100 at random", at_random(brief, 100)),
        DiagnosisCase(
            "normal d=10, 6000 random walk draws, 300 at random",
            at_random(chain(RandomWalk, ten, 10, 6000, 0.234), 300),
        ),
        DiagnosisCase("normal d=2, random walk 0.05, sqrt", thinned(chain(RandomWalk, two, 2, 20_000, 0.05))),
        DiagnosisCase("normal d=2, random walk 0.7, sqrt", thinned(chain(RandomWalk, two, 2, 20_000, 0.7))),
        DiagnosisCase("normal d=10, MALA 0.9, sqrt", thinned(chain(MALA, ten, 10, 20_000, 0.9))),
        DiagnosisCase("normal d=10, four MALA chains, sqrt", thinned(several(chain(MALA, ten, 10, 5000, 0.574), 4))),
        DiagnosisCase(
            "normal d=10, 32 MALA chains of 500, sqrt", thinned(several(chain(MALA, ten, 10, 500, 0.574), 32))
        ),
        DiagnosisCase("normal d=2, MALA from 20 sd out, sqrt", thinned(chain(MALA, two, 2, 20_000, 0.574, start=20.0))),
        DiagnosisCase(
            "normal d=2, MALA, best of 10, 100", thinned(chain(MALA, two, 2, 20_000, 0.574), candidates=10, **SMALL)
        ),
        DiagnosisCase("correlated d=10, independent, sqrt", thinned(independent(ridge, 10_000))),
        DiagnosisCase("correlated d=10, MALA 0.574, 500", thinned(chain(MALA, ridge, 10, 60_000, 0.574), **LARGE)),
        DiagnosisCase("diag(1, 1e-4), independent, sqrt", thinned(independent(narrow, 10_000))),
        DiagnosisCase("Student t(5) d=3, random walk 0.234, sqrt", thinned(chain(RandomWalk, tails, 3, 10_000, 0.234))),
        DiagnosisCase("Student t(5) d=3, MALA 0.574, 500", thinned(chain(MALA, tails, 3, 10_000, 0.574), **LARGE)),
        DiagnosisCase(
            "Student t(5) d=3, MALA 0.574, 500 at random", at_random(chain(MALA, tails, 3, 10_000, 0.574), 500)
        ),
        DiagnosisCase(
            "Student t(3) d=3, random walk 0.234, 100",
            thinned(chain(RandomWalk, student(3, 3.0), 3, 10_000, 0.234), **SMALL),
        ),
        DiagnosisCase("banana, random walk 0.234, sqrt", thinned(chain(RandomWalk, bent, 2, 20_000, 0.234))),
        DiagnosisCase("banana, MALA 0.574, 100", thinned(chain(MALA, bent, 2, 20_000, 0.574), **SMALL)),
        DiagnosisCase("modes 3 apart, MALA 0.574, sqrt", thinned(chain(MALA, near, 2, 20_000, 0.574))),
        DiagnosisCase("modes 6 apart, independent, 500 at random", at_random(independent(far, 10_000), 500)),
        DiagnosisCase("modes 6 apart, independent, 3000", thinned(independent(far, 10_000), size=3000)),
        DiagnosisCase(
            "modes 6 apart, independent, 200, weighted like the stream", weighted(independent(far, 10_000), 200)
        ),
        DiagnosisCase(
            "normal d=10, MALA 0.574, streaming", thinned(chain(MALA, ten, 10, 20_000, 0.574), preconditioner=STREAMING)
        ),
    ]


def real(folder: Path) -> list[DiagnosisCase]:
    """Return reference posteriors with ten chains each; every seed uses five of them."""
    cases = []
    for path in sorted(folder.glob("*.npz")):
        name = path.stem.partition("-")[0]
        for setting in ({}, SMALL, LARGE):
            cases.append(
                DiagnosisCase(f"{name}, {setting.get('size', 'sqrt')}", thinned(some_chains(path, 5), **setting))
            )
    return cases


# -- faults ------------------------------------------------------------------------------------------------------------


def wrong_shares(dim: int, distance: float, small: float, left: float, size: int) -> Callable[[int], ss.Kept]:
    """Keep only a fraction ``left`` of the draws from the smaller mode of a correct stream."""

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
    """Return the kept draws of the parts, with the stream of ``kept``."""
    names = "draws", "scores", "ids"
    return replace(kept, **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def altered(stream: SampleStream, change: Callable[[Array, Array], tuple[Array, Array]]) -> SampleStream:
    """Return a stream to which a function is applied."""
    return lambda seed: change(*stream(seed))


def frozen(draws: Array, scores: Array) -> tuple[Array, Array]:
    """Freeze the chain in its second half."""
    half = len(draws) // 2
    stay = np.minimum(np.arange(len(draws)), half)
    return draws[stay], scores[stay]


def shifted(draws: Array, scores: Array) -> tuple[Array, Array]:
    """Shift the last quarter by four standard deviations in all parameters; scores of the standard normal."""
    moved = draws.copy()
    moved[-len(draws) // 4 :] += 4.0
    return moved, -moved


def negated(draws: Array, scores: Array) -> tuple[Array, Array]:
    """Negate the score of one parameter."""
    return draws, scores * np.where(np.arange(draws.shape[1]) == 3, -1.0, 1.0)


def magnified(draws: Array, scores: Array) -> tuple[Array, Array]:
    """Multiply the scores by three."""
    return draws, 3.0 * scores


def late(part: float) -> SampleStream:
    """Return a chain that visits a mode with this mass only at its end."""

    def stream(seed: int) -> tuple[Array, Array]:
        target = modes(2, 6.0, part)
        draws = chain(MALA, Gaussian(np.zeros(2), 1.0), 2, 20_000, 0.574)(seed)[0].copy()
        draws[round((1.0 - part) * len(draws)) :] += 6.0 / np.sqrt(2.0)
        return draws, np.array([target.score(x) for x in draws])

    return stream


def two_chains(seed: int) -> tuple[Array, Array]:
    """Sample one chain in each of two modes at a distance of 12."""
    target = modes(2, 12.0, 0.5)
    sampler = MALA(target, step=1.0)
    both = [
        sampler.sample(sampler.init(mode, seed=seed + k), 5000)[1] for k, mode in enumerate(([0.0, 0.0], [8.5, 8.5]))
    ]
    return np.array([block.draws for block in both]), np.array([block.scores for block in both])


def faults() -> list[DiagnosisCase]:
    """Return cases with one fault each."""
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
            cases.append(DiagnosisCase(name, wrong_shares(dim, 4.0, small, left, size), lost))
    return [
        DiagnosisCase("modes 6 apart, the paper's settings", thinned(independent(far, 20_000), **ss.PAPER), lost),
        DiagnosisCase(
            "modes 6 apart, the paper's settings, 100 000 draws", thinned(independent(far, 100_000), **ss.PAPER), lost
        ),
        *cases,
        DiagnosisCase("diag(1, 1e-4), identity, sqrt", thinned(narrow, preconditioner=IDENTITY), ("spread",)),
        DiagnosisCase("correlation 0.9999, identity, sqrt", thinned(ridge, preconditioner=IDENTITY), ("spread",)),
        DiagnosisCase("frozen half-way", thinned(altered(mala, frozen)), ("stuck",)),
        DiagnosisCase(
            "random walk 0.001", thinned(chain(RandomWalk, two, 2, 10_000, 0.001, step=50.0)), ("stuck", "slow")
        ),
        DiagnosisCase("random walk with tiny steps", thinned(walk(two, 0.01, 0.0, 10_000)), ("slow",)),
        DiagnosisCase("from 200 sd out, all kept", thinned(out, growth="none"), ("burn-in",)),
        DiagnosisCase("from 200 sd out, 95% kept", thinned(out, growth=lambda t: 0.95 * t), ("burn-in",)),
        DiagnosisCase("60% burn-in, growth linear", thinned(slow, growth="linear"), ("drift", "slow")),
        DiagnosisCase("mode of 0.2 visited in the last fifth only", thinned(late(0.2)), ("drift",)),
        DiagnosisCase("mode of 0.05 visited in the last twentieth only", thinned(late(0.05)), ("slow",)),
        DiagnosisCase("last quarter 4 sd off", thinned(altered(mala, shifted)), ("drift",)),
        DiagnosisCase("two chains in two modes", thinned(two_chains), ("chains",)),
        DiagnosisCase("one score of ten negated", thinned(altered(mala, negated)), ("scores",)),
        DiagnosisCase("scores three times too large", thinned(altered(mala, magnified)), ("scores",)),
        DiagnosisCase("scores half as large", thinned(altered(mala, lambda x, s: (x, 0.5 * s))), ("scores",)),
        DiagnosisCase("modes 8 apart, Stein weights", weighted_by_ksd(modes(2, 8.0, 0.2), 100), ("weights", "regions")),
    ]


def weighted_by_ksd(target: Mixture, size: int) -> Callable[[int], ss.Kept]:
    """Thin and compute weights that do not depend on the stream."""

    def run(seed: int) -> ss.Kept:
        return ss.thin(*target.sample(20_000, seed), size=size).weighted()

    return run
