"""The methods that are compared.

A method selects draws of a work chain for every size. `SETTINGS` has the named settings of ``ss.thin`` and of
``ss.Thinner``: to compare another one, add a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss
from benchmarks.quality.cache import problem, stored
from benchmarks.quality.metrics import Integers, spaced, squared_distances, stride
from benchmarks.quality.sampling import Array, Chain
from benchmarks.quality.scoring import Selection

COMPARED_DRAWS = 4096  # evenly spaced draws of the chain that methods with quadratic cost read
_ONLINE_BLOCK = 100  # draws of each chain that a running thinner is given at a time; does not change its result
_MEDIAN_DRAWS = 1000
_HESSIAN_STEP = 1e-4  # in sds


class Work(NamedTuple):
    """A work chain and where it is from."""

    target: str
    seed: int
    chain: Chain

    @property
    def draws(self) -> Array:
        """Concatenated chains (n, d)."""
        return self.chain.draws.reshape(-1, self.chain.draws.shape[-1])

    @property
    def scores(self) -> Array:
        """Scores of the concatenated chains (n, d)."""
        return self.chain.scores.reshape(-1, self.chain.scores.shape[-1])


class NotApplicableError(Exception):
    """The method cannot be used for the target; the message says why."""


Select = Callable[[Work, int], Selection]


class Method(NamedTuple):
    """A method: a function of a work chain and a size. If it is ``nested``, the first m of M draws are the m draws."""

    name: str
    select: Select
    needs: str | None = None
    nested: bool = False

    def missing(self) -> str | None:
        """Return the package that is missing, or None."""
        return self.needs if self.needs is not None and find_spec(self.needs) is None else None

    def select_all(self, work: Work, sizes: Sequence[int]) -> dict[int, Selection]:
        """Select draws for every size."""
        if not self.nested:
            return {size: self.select(work, size) for size in sizes}
        longest = self.select(work, max(sizes))
        return {size: Selection(longest.indices[:size]) for size in sizes}


# -- peers -------------------------------------------------------------------------------------------------------------


def _stride(work: Work, size: int) -> Selection:
    return Selection(stride(len(work.draws), size, 3))


def _random(work: Work, size: int) -> Selection:
    rng = np.random.default_rng([work.seed, size])
    return Selection(rng.choice(len(work.draws), size=size, replace=False))


def _stein_thinning(work: Work, size: int) -> Selection:
    from stein_thinning.thinning import thin

    return Selection(thin(work.draws, work.scores, size, standardize=True, preconditioner="med"))


def _baseline(name: str) -> Select:
    """Method of ``ss.baselines``, with the kernel and the preconditioner of ``ss.thin``."""

    def select(work: Work, size: int) -> Selection:
        found = getattr(ss.baselines, name)(work.draws, work.scores, size, seed=work.seed, validate_scores=False)
        return Selection(found[:, 1])

    return select


def _reservoir(work: Work, size: int) -> Selection:
    """Super-sampling with a reservoir (Paige et al., 2016), of at most 4096 evenly spaced draws."""
    rows = spaced(len(work.draws), min(COMPARED_DRAWS, len(work.draws)))
    found = ss.baselines.reservoir(work.draws[rows], work.scores[rows], size, validate_scores=False)
    return Selection(rows[found[:, 1]])


def _median_distance(z: Array) -> float:
    few = z[spaced(len(z), min(len(z), _MEDIAN_DRAWS))]
    return float(np.sqrt(np.median(squared_distances(few, few)[np.triu_indices(len(few), 1)])))


def _kernax(work: Work, size: int) -> Selection:
    """Regularised Stein thinning (Bénard et al., 2023), with the length and the entropy weight of the package."""
    if work.chain.log_densities is None:
        raise NotApplicableError("regularised Stein thinning requires log densities")
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from kernax import RegularizedSteinThinning

    sd = work.draws.std(0)
    z = work.draws / sd
    second = stored(work.target, f"hessian-{work.seed}", lambda: {"diagonal": _hessian_diagonal(work)})["diagonal"]
    bumps = np.maximum(second * sd**2, 0.0).sum(1)
    arrays = map(jnp.asarray, (z, work.chain.log_densities.ravel(), work.scores * sd, bumps, _median_distance(z)))
    select = RegularizedSteinThinning(*arrays)
    return Selection(np.asarray(select(size)))


def _hessian_diagonal(work: Work) -> Array:
    """Second derivatives (n, d) of the log density, by differences of the score."""
    score = problem(work.target).score
    if score is None:
        raise NotApplicableError("regularised Stein thinning requires second derivatives of the log density")
    x, diagonal = work.draws, np.empty_like(work.draws)
    for j, step in enumerate(_HESSIAN_STEP * x.std(0)):
        shift = np.zeros(x.shape[1])
        shift[j] = step
        diagonal[:, j] = (score(x + shift)[:, j] - score(x - shift)[:, j]) / (2 * step)
    return diagonal


def _kernel_thinning(work: Work, size: int, first: int = 0) -> Selection:
    """Kernel thinning (goodpoints) of at most 4096 evenly spaced draws, IMQ kernel of median length."""
    from goodpoints import kt

    count = len(work.draws) - first
    rounds = int(min(COMPARED_DRAWS, count) // size).bit_length() - 1
    rows = first + spaced(count, size << rounds)
    z = work.draws[rows] / work.draws.std(0)
    kernel = 1 / np.sqrt(1 + squared_distances(z, z) / _median_distance(z) ** 2)
    return Selection(rows[kt.thin_K(kernel, kernel, rounds, seed=work.seed)])


def _kernel_thinning_second_half(work: Work, size: int) -> Selection:
    """Kernel thinning of the second half of the chain, as a user would discard burn-in."""
    return _kernel_thinning(work, size, len(work.draws) // 2)


# -- ours --------------------------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """Settings of ``ss.thin``, or of ``ss.Thinner`` if ``online``, and whether it is given the scores.

    If ``corrected``, the thinner corrects a slow chain at the end.
    """

    settings: Mapping[str, Any]
    scores: bool = True
    online: bool = False
    corrected: bool = False

    def thin(self, chain: Chain, size: int) -> ss.Kept:
        """Return the kept draws."""
        draws, scores = chain.draws, chain.scores if self.scores else None
        if not self.online:
            return ss.thin(draws, scores, size=size, **self.settings)
        thinner = ss.Thinner(draws.shape[-1], size=size, **self.settings)
        for start, number in product(range(0, draws.shape[1], _ONLINE_BLOCK), range(len(draws))):
            block = number, slice(start, start + _ONLINE_BLOCK)
            thinner.extend(draws[block], None if scores is None else scores[block], chain=number)
        return thinner.corrected() if self.corrected else thinner.kept


SETTINGS: dict[str, Setting] = {
    "default": Setting({}),
    "passes-auto": Setting({"passes": "auto"}),
    "no-scores": Setting({}, scores=False),
    "no-scores-passes": Setting({"passes": "auto"}, scores=False),
    "online": Setting({}, online=True),
    "online-corrected": Setting({}, online=True, corrected=True),
    "online-no-scores": Setting({}, scores=False, online=True),
    "pure-ksd": Setting({"stream_weight": 0.0}),
    "pure-ksd-linear": Setting({"stream_weight": 0.0, "kernel": ss.IMQ(linear=1)}),
    "pure-ksd-passes": Setting({"stream_weight": 0.0, "passes": "auto"}),
    "paper": Setting({name: ss.PAPER[name] for name in ss.PAPER if name != "growth"}),  # its growth may keep fewer
}


def _ours(setting: Setting) -> Select:
    def select(work: Work, size: int) -> Selection:
        try:
            kept = setting.thin(work.chain, size)
        except ss.SteinstreamError as error:
            raise NotApplicableError(str(error)) from error
        indices: Integers = kept.ids[:, 0] * work.chain.draws.shape[1] + kept.ids[:, 1]
        return Selection(indices)

    return select


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("stride", _stride),
        Method("random", _random),
        Method("stein-thinning", _stein_thinning, "stein_thinning", nested=True),
        Method("minibatch-stein-thinning", _baseline("minibatch_stein_thinning"), nested=True),
        Method("spmcmc", _baseline("spmcmc")),
        Method("spmcmc-fixed-drops", _baseline("spmcmc_fixed_drops")),
        Method("reservoir", _reservoir),
        Method("kernax", _kernax, "kernax"),
        Method("kt", _kernel_thinning, "goodpoints"),
        Method("kt-second-half", _kernel_thinning_second_half, "goodpoints"),
        *(Method(name, _ours(setting)) for name, setting in SETTINGS.items()),
    )
}
