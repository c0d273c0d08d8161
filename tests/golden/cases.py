"""Streams and settings of the golden test: each case runs one configuration and returns the kept ids and the KSD.

The streams use additions and multiplications only, so they have the same bits on every machine. A case marked
``estimated`` depends on LAPACK, BLAS or the mathematics library (covariance estimates, logarithms), whose last bits
differ between processors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss

#: KSD alone, as in the paper: the golden results were computed with it.
KSD_ALONE: dict[str, Any] = {"stream_weight": 0.0}


def make_thinner(dim: int, **settings: Any) -> ss.Thinner:
    """Return a thinner that selects by KSD alone, in the coordinates of the draws unless others are given."""
    return ss.Thinner(dim, **{"preconditioner": ss.Preconditioner.identity(), **KSD_ALONE, **settings})


def thin_by_ksd(*arrays: Any, **settings: Any) -> ss.Kept:
    """Run ss.thin by KSD alone."""
    return ss.thin(*arrays, **{**KSD_ALONE, **settings})


class Case(NamedTuple):
    """A function that returns ids (n, 2) and a number, and whether an estimate goes into it."""

    run: Callable[[], tuple[Any, float]]
    estimated: bool = False


# -- streams -----------------------------------------------------------------------------------------------------------


def normal(dim: int, count: int, seed: int = 0) -> tuple[Any, Any]:
    """Independent draws of a standard normal."""
    x = np.random.default_rng(seed).normal(size=(count, dim))
    return x, -x


def correlated(dim: int, count: int, seed: int = 1, start: float = 8.0) -> tuple[Any, Any]:
    """An autoregressive chain whose stationary law is a normal of unit width; it starts far out."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, dim))
    x[0] = start
    for t in range(1, count):
        x[t] = 0.8 * x[t - 1] + 0.6 * rng.normal(size=dim)
    return x, -x


def widths(dim: int, count: int, seed: int = 2) -> tuple[Any, Any]:
    """A chain whose parameters have widths from 1/8 to 4, powers of two."""
    x, s = correlated(dim, count, seed, 3.0)
    scale = 2.0 ** (np.arange(dim) % 6 - 3.0)
    return x * scale, s / scale


def repeated(dim: int, count: int, seed: int = 3) -> tuple[Any, Any]:
    """A chain that stays where it is two times out of three, as a random walk with rejections does."""
    x, s = correlated(dim, count, seed, 4.0)
    moves = np.maximum.accumulate(np.where(np.random.default_rng(seed).random(count) < 0.35, np.arange(count), 0))
    return x[moves], s[moves]


def tied(dim: int, count: int, seed: int = 4) -> tuple[Any, Any]:
    """Few states and their mirror images, visited again and again: exact ties in every step."""
    x, s = normal(dim, 6, seed)
    x, s = np.vstack([x, -x]), np.vstack([s, -s])
    visits = np.random.default_rng(seed).integers(0, len(x), size=count)
    return x[visits], s[visits]


def extreme(dim: int, count: int, seed: int = 5) -> tuple[Any, Any]:
    """A start with scores of 1e16, beyond what sums hold exactly."""
    x, s = correlated(dim, count, seed)
    s[:20] *= 1e15
    return x, s


def modes(count: int, seed: int = 6) -> tuple[Any, Any]:
    """Two normals in the plane at distance 16; a fifth of the draws is in the left one."""
    rng = np.random.default_rng(seed)
    centre = np.where(rng.random(count) < 0.2, -8.0, 8.0)
    noise = rng.normal(size=(count, 2))
    return noise + np.column_stack([centre, np.zeros(count)]), -noise


# -- ways of running ---------------------------------------------------------------------------------------------------


def thinner(stream: tuple[Any, Any], block: int | None = None, **settings: Any) -> Callable[[], tuple[Any, float]]:
    """Run a Thinner over the stream, in blocks or at once."""

    def run() -> tuple[Any, float]:
        x, s = stream
        made = make_thinner(
            x.shape[1], validate_scores=False, **{"preconditioner": ss.Preconditioner.identity(), **settings}
        )
        step = block or len(x)
        for first in range(0, len(x), step):
            made.extend(x[first : first + step], s[first : first + step])
        kept = made.kept
        return kept.ids, kept.ksd

    return run


def with_draws(stream: tuple[Any, Any], given: dict[str, Any], **settings: Any) -> Callable[[], tuple[Any, float]]:
    """Run a Thinner over the stream with costs or pins."""

    def run() -> tuple[Any, float]:
        x, s = stream
        made = make_thinner(x.shape[1], validate_scores=False, preconditioner=ss.Preconditioner.identity(), **settings)
        made.extend(x, s, **given)
        kept = made.kept
        return kept.ids, kept.ksd

    return run


def thin(stream: tuple[Any, Any], **settings: Any) -> Callable[[], tuple[Any, float]]:
    """Run ss.thin."""

    def run() -> tuple[Any, float]:
        kept = thin_by_ksd(*stream, validate_scores=False, **settings)
        return kept.ids, kept.ksd

    return run


def second_scores(**settings: Any) -> Callable[[], tuple[Any, float]]:
    """Noisy scores with a second, independent score of each draw; the number is the KSD from the second ones."""

    def run() -> tuple[Any, float]:
        x, s = correlated(3, 900)
        rng = np.random.default_rng(12)
        made = make_thinner(3, size=30, validate_scores=False, **settings)
        made.extend(x, s + 0.5 * rng.normal(size=s.shape), second_scores=s + 0.5 * rng.normal(size=s.shape))
        kept = made.kept
        return kept.ids, kept.ksd_debiased

    return run


def initial() -> tuple[Any, float]:
    """A thinner that starts with ten draws."""
    x, s = normal(3, 800)
    made = make_thinner(3, size=40, initial=(x[:10] * 0.5, s[:10] * 0.5), preconditioner=ss.Preconditioner.identity())
    made.extend(x, s)
    return made.kept.ids, made.kept.ksd


def select() -> tuple[Any, float]:
    """SPMCMC: the best of every seven draws, given group by group."""
    x, s = correlated(4, 700)
    made = make_thinner(
        4, growth="sqrt", rule="monotone", preconditioner=ss.Preconditioner.identity(), validate_scores=False
    )
    for first in range(0, len(x), 7):
        made.select(x[first : first + 7], s[first : first + 7])
    return made.kept.ids, made.kept.ksd


def pushed() -> tuple[Any, float]:
    """Draw by draw, with every fifth pinned for a while."""
    x, s = repeated(2, 400)
    made = make_thinner(2, size=25, preconditioner=ss.Preconditioner.identity(), validate_scores=False)
    for i in range(len(x)):
        made.push(x[i], s[i], pinned=i < 50 and i % 5 == 0)
    made.unpin(made.pinned[:5])
    made.extend(x, s, ids=np.column_stack([np.ones(len(x), dtype=np.int64), np.arange(len(x))]))
    return made.kept.ids, made.kept.ksd


def skipped() -> tuple[Any, float]:
    """Draws that are not finite are left out."""
    x, s = correlated(3, 600)
    x[100:103], s[300, 1] = np.nan, np.inf
    made = make_thinner(3, on_bad="skip", size=20, preconditioner=ss.Preconditioner.identity(), validate_scores=False)
    made.extend(x, s)
    return made.kept.ids, made.kept.ksd


def second_pass(**settings: Any) -> Callable[[], tuple[Any, float]]:
    """Three passes over the same draws."""

    def run() -> tuple[Any, float]:
        x, s = correlated(4, 900)
        made = make_thinner(4, preconditioner=ss.Preconditioner.identity(), validate_scores=False, **settings)
        for _ in range(2):
            made.extend(x, s)
            made.start_pass()
        made.extend(x, s)
        return made.kept.ids, made.kept.ksd

    return run


def parts(size: int = 40, **settings: Any) -> list[Any]:
    """Five kept sets of five chains."""
    fixed = {"preconditioner": ss.Preconditioner.identity(), **settings}
    return [thin_by_ksd(*correlated(3, 500, seed), size=size, validate_scores=False, **fixed) for seed in range(20, 25)]


def merged(estimated: bool = False, **settings: Any) -> Case:
    """Merge five kept sets."""

    def run() -> tuple[Any, float]:
        kept = ss.merge(parts(preconditioner="auto") if estimated else parts(), **settings)
        return kept.ids, kept.ksd

    return Case(run, True)


def without_scores(**settings: Any) -> Callable[[], tuple[Any, float]]:
    """Gradient-free thinning, with the log density at each draw."""

    def run() -> tuple[Any, float]:
        x, _ = widths(3, 800)
        density = -np.sum((x / 2.0 ** (np.arange(3) - 3.0)) ** 2, axis=1) / 2.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the proxy is not close to the target
            kept = thin_by_ksd(x, log_density=density, **settings)
        return kept.ids, kept.ksd

    return run


def gradient_free() -> tuple[Any, float]:
    """The gradient-free KSD of a chain."""
    x, _ = normal(2, 500)
    return np.zeros((0, 2), dtype=np.int64), ss.gradient_free_ksd(x, -0.5 * np.sum(x**2, axis=1))


def baseline(name: str, *arguments: Any, **settings: Any) -> Callable[[], tuple[Any, float]]:
    """A baseline, and the KSD of the draws it takes."""

    def run() -> tuple[Any, float]:
        x, s = correlated(3, 800)
        ids = getattr(ss.baselines, name)(x, s, *arguments, **settings)
        places = np.asarray(ids)[:, 1]
        return ids, ss.ksd(x[places], s[places])

    return run


def ordered() -> tuple[Any, float]:
    """A kept set in an order of use."""
    kept = thin_by_ksd(
        *correlated(3, 800), size=40, preconditioner=ss.Preconditioner.identity(), validate_scores=False
    ).ordered()
    return kept.ids, float(kept.prefix_ksd[9])


def weighted() -> tuple[Any, float]:
    """A kept set with weights."""
    kept = thin_by_ksd(
        *correlated(3, 800), size=40, preconditioner=ss.Preconditioner.identity(), validate_scores=False
    ).weighted()
    return kept.ids, kept.ksd


def resumed(**settings: Any) -> Callable[[], tuple[Any, float]]:
    """A thinner that is written to a checkpoint half way and read again."""

    def run() -> tuple[Any, float]:
        from pathlib import Path
        from tempfile import TemporaryDirectory

        x, s = correlated(3, 1100)
        made = make_thinner(3, validate_scores=False, **settings)
        made.extend(x[:555], s[:555])
        with TemporaryDirectory() as folder:
            path = Path(folder) / "half.npz"
            made.save(path)
            made = ss.Thinner.load(path)
        made.extend(x[555:], s[555:])
        return made.kept.ids, made.kept.ksd

    return run


def several_chains() -> tuple[Any, float]:
    """Three chains of 400 draws, as one array."""
    chains = [correlated(3, 400, seed) for seed in (31, 32, 33)]
    kept = thin_by_ksd(
        np.stack([x for x, _ in chains]), np.stack([s for _, s in chains]), size=30, validate_scores=False
    )
    return kept.ids, kept.ksd


def by_default(stream: tuple[Any, Any], scores: bool = True, **settings: Any) -> Case:
    """Run ss.thin with the default objective; the number is the MMD to the stream."""

    def run() -> tuple[Any, float]:
        x, s = stream
        kept = ss.thin(x, s if scores else None, validate_scores=False, **settings)
        return kept.ids, kept.mmd

    return Case(run, True)


def merged_by_default() -> tuple[Any, float]:
    """Merge five sets that were kept by the default objective."""
    chains = [correlated(3, 500, seed) for seed in range(20, 25)]
    kept = ss.merge([ss.thin(*chain, size=40, validate_scores=False) for chain in chains], size=60)
    return kept.ids, kept.mmd


_COSTS = np.arange(900) % 7 + 1.0
_PINNED = np.arange(900) % 97 == 5
_FIXED = ss.Preconditioner.scales([1.0, 2.0, 0.5])

CASES: dict[str, Case] = {
    # the paper's settings
    "paper": Case(thin(correlated(4, 2000), **ss.PAPER)),
    "paper, in blocks of 37": Case(thinner(correlated(4, 2000), 37)),
    "paper, ten dimensions": Case(thin(normal(10, 1500), **ss.PAPER)),
    "paper, forty dimensions": Case(thin(normal(40, 600), **ss.PAPER)),
    "paper, repeated states": Case(thin(repeated(3, 2000), **ss.PAPER)),
    "paper, tied states": Case(thin(tied(3, 1000), **ss.PAPER)),
    "paper, extreme scores": Case(thin(extreme(3, 1000), **ss.PAPER)),
    "paper, two modes": Case(thin(modes(1500), **ss.PAPER)),
    "paper, several passes": Case(thin(correlated(3, 700), **ss.PAPER, passes=3)),
    # kernels
    "imq c": Case(thinner(correlated(3, 1000), kernel=ss.IMQ(c=0.5))),
    "imq beta": Case(thinner(correlated(3, 700), kernel=ss.IMQ(c=2.0, beta=-0.3))),
    "rbf": Case(thinner(correlated(3, 1000), kernel=ss.RBF())),
    "rbf h": Case(thinner(correlated(5, 700), kernel=ss.RBF(h=0.7))),
    "imq linear": Case(thinner(correlated(3, 1000), kernel=ss.IMQ(linear=0.1))),
    "rbf linear": Case(thinner(correlated(3, 700), kernel=ss.RBF(linear=1.0))),
    # growths, budgets, rules
    "growth none": Case(thinner(correlated(2, 120), growth="none")),
    "growth linear": Case(thinner(correlated(3, 500), growth="linear")),
    "growth power 0.5": Case(thinner(correlated(3, 1500), growth="power:0.5")),
    "growth power 1.5": Case(thinner(correlated(3, 600), growth="power:1.5")),
    "growth constant": Case(thinner(correlated(3, 1000), growth="constant:5")),
    "growth number": Case(thinner(correlated(3, 1000), growth=17)),
    "growth function": Case(thinner(correlated(3, 600), growth=lambda t: 3 + t // 4)),
    "budget number": Case(thinner(correlated(3, 800), budget=0.05)),
    "budget decaying": Case(thinner(correlated(3, 800), budget="decaying")),
    "budget share": Case(thinner(correlated(3, 800), budget="share:1.0")),
    "budget function": Case(thinner(correlated(3, 800), budget=lambda t: 1.0 / t)),
    "rule monotone": Case(thinner(correlated(3, 1200), rule="monotone", growth=10)),
    "rule monotone, budget": Case(thinner(repeated(3, 1200), rule="monotone", budget="decaying")),
    # candidates, hard cap
    "candidates": Case(thinner(correlated(3, 1500), candidates=5)),
    "candidates, monotone, repeated": Case(thinner(repeated(3, 1500), candidates=10, rule="monotone")),
    "candidates, size": Case(thinner(correlated(3, 1500), candidates=3, size=40)),
    "select": Case(select),
    "size": Case(thinner(correlated(4, 2000), size=50)),
    "size, blocks": Case(thinner(correlated(4, 2000), 111, size=50)),
    "size 1": Case(thinner(correlated(3, 300), size=1)),
    "size and growth": Case(thinner(correlated(3, 1000), size=60, growth="sqrt", budget="decaying")),
    "size, rbf": Case(thinner(correlated(6, 900), size=64, kernel=ss.RBF())),
    "size, linear term": Case(thinner(correlated(6, 900), size=64, kernel=ss.IMQ(linear=0.5))),
    # pins, costs
    "pins": Case(with_draws(correlated(3, 900), {"pinned": _PINNED}, size=30)),
    "pins, push, unpin": Case(pushed),
    "costs": Case(with_draws(correlated(3, 900), {"costs": _COSTS}, size=30, cost_weight=1.0), True),
    "costs without size": Case(
        with_draws(correlated(3, 900), {"costs": _COSTS}, budget="decaying", cost_weight=2.0), True
    ),
    "costs and pins": Case(
        with_draws(repeated(3, 900), {"costs": _COSTS, "pinned": _PINNED}, size=30, cost_weight=1.0), True
    ),
    # second scores
    "second scores": Case(second_scores(preconditioner=_FIXED)),
    "second scores, streaming": Case(second_scores(preconditioner=ss.Streaming()), True),
    # preconditioners
    "length scale": Case(thinner(correlated(3, 900), size=30, preconditioner=ss.Preconditioner.length_scale(2.0))),
    "scales": Case(thinner(widths(6, 900), size=30, preconditioner=2.0 ** (np.arange(6) - 3.0))),
    "covariance": Case(
        thinner(widths(4, 900), size=30, preconditioner=np.diag(4.0 ** (np.arange(4) - 3.0)) + 1e-3), True
    ),
    "warm-up": Case(thinner(widths(6, 1500), preconditioner=ss.Warmup("auto", draws=300)), True),
    "warm-up scales, candidates": Case(
        thinner(widths(6, 1500), 59, candidates=3, size=30, preconditioner=ss.Warmup("scales", draws=250)), True
    ),
    "warm-up not ended": Case(thinner(widths(3, 200), preconditioner=ss.Warmup("scales", draws=500)), True),
    "streaming": Case(thinner(widths(6, 2500), preconditioner=ss.Streaming()), True),
    "streaming, blocks": Case(thinner(widths(6, 2500), 77, size=50, preconditioner=ss.Streaming()), True),
    "streaming scales, forget": Case(
        thinner(widths(6, 2500), size=50, preconditioner=ss.Streaming("scales", first=50, forget=300)), True
    ),
    "streaming, centred, linear": Case(
        thinner(widths(4, 1500), size=40, kernel=ss.IMQ(linear=1.0), preconditioner=ss.Streaming(centred=True)), True
    ),
    "thin auto": Case(thin(widths(6, 1500)), True),
    "thin auto, size": Case(thin(widths(6, 1500), size=50), True),
    "thin scale": Case(thin(widths(3, 900), size=30, preconditioner="scale"), True),
    "thin scales, monotone": Case(thin(widths(6, 900), preconditioner="scales", rule="monotone"), True),
    "thin streaming": Case(thin(widths(6, 900), size=30, preconditioner="streaming"), True),
    "thin linear": Case(thin(widths(4, 900), size=40, kernel=ss.IMQ(linear=1.0)), True),
    "thin several chains": Case(several_chains, True),
    # passes
    "passes": Case(second_pass(size=40)),
    "passes, candidates": Case(second_pass(size=40, candidates=4)),
    "passes, growth": Case(second_pass(growth="sqrt")),
    "passes auto": Case(thin(correlated(4, 900), size=30, passes="auto"), True),
    "passes from a sample": Case(
        thin(correlated(4, 900), size=30, passes=2, start="sample", preconditioner=ss.Preconditioner.identity())
    ),
    # float32 storage
    "float32": Case(thinner(correlated(12, 700), size=25, storage="float32")),
    "float32, scales, candidates": Case(
        thinner(widths(12, 900), candidates=3, storage="float32", preconditioner=2.0 ** (np.arange(12) % 6 - 3.0))
    ),
    "float32, streaming": Case(
        thinner(widths(12, 900), size=25, storage="float32", preconditioner=ss.Streaming("scales")), True
    ),
    "float32, extreme scores": Case(thinner(extreme(5, 400), size=25, storage="float32")),
    # initial sets, bad draws, checkpoints
    "initial": Case(initial),
    "skipped": Case(skipped),
    "resumed": Case(resumed(size=40, preconditioner=_FIXED)),
    "resumed, streaming": Case(resumed(preconditioner=ss.Streaming()), True),
    "resumed, warm-up": Case(resumed(preconditioner=ss.Warmup(draws=700)), True),
    # merging
    "merge": merged(),
    "merge to a size": merged(size=40),
    "merge within a budget": merged(merge_budget=0.001),
    "merge, size and budget": merged(size=60, merge_budget=0.0005),
    "merge in a tree": merged(size=40, fan_in=2, spare=1.5),
    "merge by kept": merged(size=40, masses="kept"),
    "merge by masses": merged(size=40, masses=[1.0, 2.0, 3.0, 4.0, 5.0]),
    "merge, different preconditioners": merged(True, size=40),
    # without scores
    "gradient-free": Case(without_scores(size=40), True),
    "gradient-free, growth, monotone": Case(without_scores(growth="sqrt", rule="monotone", clip=0.5), True),
    "gradient-free ksd": Case(gradient_free, True),
    # the default objective
    "default": by_default(correlated(4, 2000), size=50),
    "default, growth": by_default(correlated(3, 2000)),
    "default, slow chain in many dimensions": by_default(widths(25, 1500), size=40),
    "default, repeated states": by_default(repeated(3, 2000), size=50),
    "default, candidates": by_default(correlated(3, 2000), size=40, candidates=4),
    "default, costs and pins": by_default(correlated(3, 900), size=40, costs=_COSTS, pinned=_PINNED, cost_weight=0.5),
    "default, passes": by_default(correlated(3, 1500), size=40, passes="auto"),
    "default, RBF": by_default(correlated(3, 1500), size=40, kernel="rbf"),
    "default, without scores": by_default(correlated(4, 2000), scores=False, size=50),
    "default, features": by_default(normal(5, 1500), scores=False, size=40, features=normal(5, 1500)[0] ** 2),
    "default, draws and features": by_default(
        normal(5, 1500), size=40, features=normal(5, 1500)[0] ** 2, stream_on="both"
    ),
    "default, merge": Case(merged_by_default, True),
    # the kept set, and other methods
    "ordered": Case(ordered),
    "weighted": Case(weighted, True),
    **{
        f"baseline {name}": Case(
            baseline(name, 30, preconditioner=ss.Preconditioner.identity(), validate_scores=False), estimated
        )
        for name, estimated in {
            "ksdt": False,
            "stride": False,
            "random_thinning": False,
            "stein_thinning": False,
            "spmcmc": False,
            "spmcmc_fixed_drops": False,
            "reservoir": True,
        }.items()
    },
}
