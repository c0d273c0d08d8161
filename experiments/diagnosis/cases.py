"""Clean runs and runs with a fault. Every case creates a kept set from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array, Integers
from steinstream.samplers import MALA, RandomWalk, adapt_step
from steinstream.targets import Functions, Gaussian, Mixture

#: Function that samples draws and scores from a seed.
SampleStream = Callable[[int], tuple[Array, Array]]

#: Function that creates a kept set from a seed.
MakeKept = Callable[[int], ss.Kept]

IDENTITY = ss.Preconditioner.identity()
SIZES = (50, 300)


class DiagnosisCase(NamedTuple):
    """Function that creates a kept set from a seed; for a fault, at least one of the ``wanted`` checks must fire."""

    group: str
    name: str
    run: MakeKept
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


def student_draws(dim: int, freedom: float, draws: int) -> SampleStream:
    """Return a stream of independent draws of a multivariate Student distribution."""

    def stream(seed: int) -> tuple[Array, Array]:
        random = np.random.default_rng(seed)
        x = random.normal(size=(draws, dim)) / np.sqrt(random.chisquare(freedom, size=(draws, 1)) / freedom)
        return x, -(freedom + dim) * x / (freedom + (x**2).sum(axis=1, keepdims=True))

    return stream


def hierarchical(dim: int, draws: int) -> SampleStream:
    """Return independent draws of a funnel: log tau ~ N(0, 0.5^2), and the others given it ~ N(0, tau^2)."""

    def stream(seed: int) -> tuple[Array, Array]:
        random = np.random.default_rng(seed)
        log_tau, z = 0.5 * random.normal(size=(draws, 1)), random.normal(size=(draws, dim - 1))
        tau = np.exp(log_tau)
        first = -log_tau / 0.25 + (z**2).sum(axis=1, keepdims=True) - (dim - 1)
        return np.hstack([log_tau, tau * z]), np.hstack([first, -z / tau])

    return stream


def skewed(dim: int, draws: int) -> SampleStream:
    """Return independent draws of logarithms of gamma variables with shape 0.7, which have a long lower tail."""

    def stream(seed: int) -> tuple[Array, Array]:
        x = np.log(np.random.default_rng(seed).gamma(0.7, size=(draws, dim)))
        return x, 0.7 - np.exp(x)

    return stream


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


def cached(stream: SampleStream) -> SampleStream:
    """Return the stream with a memory, so that several sets are kept from the same draws."""
    return lru_cache(maxsize=25)(stream)


# -- kept sets ---------------------------------------------------------------------------------------------------------


def thinned(stream: SampleStream, **settings: Any) -> MakeKept:
    """Thin the stream."""
    return lambda seed: ss.thin(*stream(seed), **settings)


def weighted(stream: SampleStream, size: int, *, like_stream: bool, **settings: Any) -> MakeKept:
    """Thin the stream and compute weights, which match the means and variances of the stream or minimise KSD."""

    def run(seed: int) -> ss.Kept:
        draws, scores = stream(seed)
        return ss.thin(draws, scores, size=size, **settings).weighted(like=draws if like_stream else None)

    return run


def evenly_spaced(stream: SampleStream, size: int) -> MakeKept:
    """Keep evenly spaced draws, beginning at a random one."""

    def rows(total: int, seed: int) -> Integers:
        first = np.random.default_rng(seed).uniform(0.0, total / size)
        return (first + np.arange(size) * total / size).astype(np.int64)

    return selected(stream, rows)


def at_random(stream: SampleStream, size: int) -> MakeKept:
    """Keep a random subset of the stream, for which the thresholds were derived."""
    return selected(stream, lambda total, seed: np.sort(np.random.default_rng(seed).choice(total, size, replace=False)))


def selected(stream: SampleStream, rows: Callable[[int, int], Integers]) -> MakeKept:
    """Keep rows of the stream, counted over all chains."""

    def run(seed: int) -> ss.Kept:
        draws, scores = stream(seed)
        kept = ss.thin(draws, scores, size=1)
        chains, flat = draws.reshape(-1, *draws.shape[-2:]), draws.reshape(-1, draws.shape[-1])
        chosen = rows(len(flat), seed)
        ids = np.column_stack([chosen // chains.shape[1], chosen % chains.shape[1]])
        return replace(kept, draws=flat[chosen], scores=scores.reshape(flat.shape)[chosen], ids=ids)

    return run


def without_scores(make: MakeKept) -> MakeKept:
    """Remove the scores of the stream."""

    def run(seed: int) -> ss.Kept:
        kept = make(seed)
        assert kept.stream is not None
        return replace(kept, stream=kept.stream._replace(scores=np.zeros((len(kept.stream.draws), 0))))

    return run


def methods(stream: SampleStream, size: int, pure: bool = True) -> Iterator[tuple[str, MakeKept]]:
    """Return sets of one size by name: of both objectives, evenly spaced and random."""
    if pure:
        yield "KSD", thinned(stream, size=size, stream_weight=0.0)
    yield "stream term", thinned(stream, size=size, stream_weight=1.0)
    yield "evenly spaced", evenly_spaced(stream, size)
    yield "random", at_random(stream, size)


# -- clean runs --------------------------------------------------------------------------------------------------------


def clean() -> Iterator[DiagnosisCase]:
    """Return clean cases: streams that have converged, and all methods.

    KSD alone is left out where it is known to keep sets that are too wide or too narrow, or to change proportions:
    those are faults.

    Returns
    -------
    iterator of DiagnosisCase
        One case per stream, method and size.
    """
    two, ten = Gaussian(np.zeros(2), 1.0), Gaussian(np.zeros(10), 1.0)
    streams: dict[str, tuple[SampleStream, tuple[int, ...]]] = {  # the sizes are those of sets by KSD alone
        "normal d=1, MALA": (chain(MALA, Gaussian(np.zeros(1), 1.0), 1, 10_000, 0.574), SIZES),
        "normal d=2, random walk": (chain(RandomWalk, two, 2, 10_000, 0.234), SIZES),
        "normal d=2, 1000 MALA draws": (chain(MALA, two, 2, 1000, 0.574), SIZES),
        "normal d=10, MALA": (chain(MALA, ten, 10, 20_000, 0.574), SIZES),
        "normal d=10, 6000 random walk draws": (chain(RandomWalk, ten, 10, 6000, 0.234), SIZES),
        "normal d=10, four MALA chains": (several(chain(MALA, ten, 10, 5000, 0.574), 4), SIZES),
        "normal d=38, independent": (independent(Gaussian(np.zeros(38), 1.0), 10_000), SIZES[1:]),
        "normal d=68, independent": (independent(Gaussian(np.zeros(68), 1.0), 5000), ()),
        "correlation 0.9, d=10, independent": (independent(correlated(10, 0.9), 10_000), SIZES),
        "correlation 0.999, d=20, independent": (independent(correlated(20, 0.999), 10_000), SIZES),
        "Student t(5) d=3, random walk": (chain(RandomWalk, student(3, 5.0), 3, 10_000, 0.234), SIZES),
        "Student t(4) d=20, independent": (student_draws(20, 4.0, 10_000), ()),
        "skewed d=5, independent": (skewed(5, 10_000), SIZES),
        "banana, random walk": (chain(RandomWalk, banana(), 2, 20_000, 0.234), SIZES),
        "funnel d=10, independent": (hierarchical(10, 10_000), ()),
        "modes 6 apart, independent": (independent(modes(2, 6.0, 0.2), 10_000), ()),
    }
    for name, (stream, pure) in streams.items():
        held = cached(stream)
        for size in SIZES:
            for method, make in methods(held, size, size in pure):
                yield DiagnosisCase(method, f"{name}, {size} kept", make)
    held = cached(independent(ten, 10_000))
    for size in SIZES:
        make = thinned(held, size=size, stream_weight=1.0)
        yield DiagnosisCase("no scores", f"normal d=10, independent, {size} kept", without_scores(make))
        make = weighted(held, size, like_stream=True, stream_weight=1.0)
        yield DiagnosisCase("weights", f"normal d=10, independent, {size} kept", make)


def real(folder: Path) -> Iterator[DiagnosisCase]:
    """Return reference posteriors with ten chains each; every seed uses five of them."""
    for path in sorted(folder.glob("*.npz")):
        held = cached(some_chains(path, 5))
        for size in SIZES:
            for method, make in methods(held, size):
                yield DiagnosisCase(method, f"{path.stem.partition('-')[0]}, {size} kept", make)


# -- planted faults ----------------------------------------------------------------------------------------------------


def rescaled(make: MakeKept, parameter: int | slice, ratio: float) -> MakeKept:
    """Multiply the distances of some parameters from their medians by a ratio."""

    def run(seed: int) -> ss.Kept:
        kept = make(seed)
        draws = kept.draws.copy()
        centre = np.median(draws[:, parameter], axis=0)
        draws[:, parameter] = centre + ratio * (draws[:, parameter] - centre)
        return replace(kept, draws=draws)

    return run


def without_tail(stream: SampleStream, make: Callable[[SampleStream], MakeKept], level: float) -> MakeKept:
    """Keep from the draws whose first parameter is below a quantile, and compare with all of them."""

    def below(seed: int) -> tuple[Array, Array]:
        draws, scores = stream(seed)
        rows = draws[:, 0] < np.quantile(draws[:, 0], level)
        return draws[rows], scores[rows]

    def run(seed: int) -> ss.Kept:
        return replace(make(below)(seed), stream=ss.thin(*stream(seed), size=1).stream)

    return run


def planted() -> Iterator[DiagnosisCase]:
    """Return kept sets of several methods and sizes with one fault each."""
    width = ("spread", "ranges", "quantiles")
    funnel, heavy = cached(hierarchical(10, 10_000)), cached(student_draws(20, 4.0, 10_000))
    normal = thinned(independent(Gaussian(np.zeros(38), 1.0), 10_000), size=50, stream_weight=0.0)
    yield DiagnosisCase("KSD", "normal d=38 as KSD alone keeps it, 50 kept", normal, ("spread", "ranges"))
    many, ten = (cached(independent(Gaussian(np.zeros(dim), 1.0), 8000)) for dim in (68, 10))
    for size in (100, 200, 400):
        for method, make in _three(funnel, size):
            name = f"log tau 22 % too narrow, funnel d=10, {size} kept"
            yield DiagnosisCase(method, name, rescaled(make, 0, 0.78), width)
        for method, make in _three(heavy, size):
            name = f"Student t(4) twice too wide, d=20, {size} kept"
            yield DiagnosisCase(method, name, rescaled(make, slice(None), 2.0), ("spread", "ranges"))
        name = f"Student t(4) d=20 as KSD alone keeps it, {size} kept"
        yield DiagnosisCase("KSD", name, thinned(heavy, size=size, stream_weight=0.0), ("spread", "ranges"))
        for method, make in _three(many, 2 * size):
            for ratio, word in ((0.8, "narrow"), (1.2, "wide")):
                name = f"one of 68 sds 20 % too {word}, {2 * size} kept"
                yield DiagnosisCase(method, name, rescaled(make, 7, ratio), width)
        for method, of in (("stream term", _stream_term), ("evenly spaced", evenly_spaced)):
            tail = without_tail(ten, lambda stream, of=of, size=size: of(stream, size), 0.95)  # type: ignore[misc]
            yield DiagnosisCase(method, f"upper tail of 5 % lost, normal d=10, {size} kept", tail, (*width, "mean"))


def _stream_term(stream: SampleStream, size: int) -> MakeKept:
    return thinned(stream, size=size, stream_weight=1.0)


def _three(stream: SampleStream, size: int) -> list[tuple[str, MakeKept]]:
    """Return the sets of all methods but random ones, which are noisier than evenly spaced ones at most by chance."""
    return [(name, make) for name, make in methods(stream, size) if name != "random"]


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


def langevin(seed: int) -> tuple[Array, Array]:
    """Sample a short Langevin chain of a normal with widths from 1 to 1/30, with scores 50 times too small."""
    random, precision, step = np.random.default_rng(seed), np.geomspace(1.0, 1000.0, 30), 1e-4
    x = np.empty((4000, 30))
    x[0] = random.normal(size=30) / np.sqrt(precision)
    for t in range(1, len(x)):
        x[t] = x[t - 1] - 0.5 * step * precision * x[t - 1] + np.sqrt(step) * random.normal(size=30)
    return x, -precision * x / 50.0


def faults() -> Iterator[DiagnosisCase]:
    """Return runs with one fault each: of the thinning, of the chain, of the scores and of the weights."""
    two, ten = Gaussian(np.zeros(2), 1.0), Gaussian(np.zeros(10), 1.0)
    mala = chain(MALA, ten, 10, 10_000, 0.574)
    narrow = independent(Gaussian(np.zeros(2), [1.0, 1e-4]), 20_000)
    ridge = independent(correlated(2, 0.9999), 20_000)
    out = chain(RandomWalk, two, 2, 5000, 0.5, start=200.0)
    slow = walk(two, 0.1, 20.0, 1000)
    far, far_8 = independent(modes(2, 6.0, 0.2), 20_000), independent(modes(2, 8.0, 0.2), 20_000)
    long = independent(modes(2, 6.0, 0.2), 100_000)
    identity = {"preconditioner": IDENTITY, "stream_weight": 0.0}
    cases: list[tuple[str, MakeKept, tuple[str, ...]]] = [
        ("modes 6 apart, the paper's settings", thinned(far, **ss.PAPER), ("regions",)),
        ("modes 6 apart, the paper's settings, 100 000 draws", thinned(long, **ss.PAPER), ("regions",)),
        ("diag(1, 1e-4), identity", thinned(narrow, **identity), ("spread",)),
        ("correlation 0.9999, identity", thinned(ridge, **identity), ("spread", "directions")),
        ("frozen half-way", thinned(altered(mala, frozen)), ("stuck",)),
        ("random walk 0.001", thinned(chain(RandomWalk, two, 2, 10_000, 0.001, step=50.0)), ("stuck", "slow")),
        ("random walk with tiny steps", thinned(walk(two, 0.01, 0.0, 10_000)), ("slow",)),
        ("from 200 sd out, all kept by KSD", thinned(out, growth="none", stream_weight=0.0), ("burn-in",)),
        (
            "from 200 sd out, 95 % kept by KSD",
            thinned(out, growth=lambda t: 0.95 * t, stream_weight=0.0),
            ("burn-in",),
        ),
        ("60 % burn-in, growth linear", thinned(slow, growth="linear"), ("drift", "slow")),
        ("mode of 0.2 visited in the last fifth only", thinned(late(0.2)), ("drift",)),
        ("mode of 0.05 visited in the last twentieth only", thinned(late(0.05)), ("slow",)),
        ("last quarter 4 sd off", thinned(altered(mala, shifted)), ("drift",)),
        ("two chains in two modes", thinned(two_chains), ("chains",)),
        ("one score of ten negated", thinned(altered(mala, negated)), ("scores",)),
        ("scores three times too large", thinned(altered(mala, magnified)), ("scores",)),
        ("scores half as large", thinned(altered(mala, lambda x, s: (x, 0.5 * s))), ("scores",)),
        ("scores of a mean loss of 50 data, slow Langevin chain", thinned(langevin), ("scores",)),
        ("modes 8 apart, weights of least KSD", weighted(far_8, 100, like_stream=False), ("weights", "regions")),
    ]
    for dim in (2, 10, 38):
        for small, left, size in ((0.2, 0.01, 100), (0.2, 0.05, 500), (0.05, 0.0, 500)):
            name = f"mode of {small} kept as {left}, 4 apart, d={dim}, {size}"
            cases.append((name, wrong_shares(dim, 4.0, small, left, size), ("regions",)))
    for name, make, wanted in cases:
        yield DiagnosisCase("fault", name, make, wanted)
