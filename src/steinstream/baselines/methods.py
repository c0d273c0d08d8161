"""Methods that select a given number of draws of a stream.

A method is a function of a :class:`SelectionProblem` that returns the block of selected draws in order of selection.
:func:`baseline` registers it and returns it as a public function of arrays, with the signature and the documentation
that all methods share (:class:`Baseline`). Online methods iterate over ``problem.blocks()`` and hold only what they
select; the others call ``problem.load()``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from steinstream import schedules, validation
from steinstream._typing import Array, Integers
from steinstream.api import ArraySource, ChainSource, DrawSource, RunHooks, fit_source
from steinstream.discrepancy._greedy import greedy_order
from steinstream.discrepancy.ksd import ksd, run_rows_in_threads
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import BASELINES, ThinConfig, run_settings, settings_of
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.io import Chain

_RESERVOIR_BLOCK = 8192  # draws per compiled call, so that Ctrl-C is handled in between; does not change the result
_MAX_DROP_RATE = 0.3  # largest rate that Chen et al. (2019) examine
_MINIBATCH = 100  # draws
_EXCHANGES = 100  # most rounds of exchanges in a mini-batch
_QUIET = ThinConfig(history=None, validate_scores=False)  # of thinners inside of a method

# -- the problem ---------------------------------------------------------------------------------------------------


class SelectionProblem(NamedTuple):
    """A stream of draws and the number of draws to select from it.

    ``blocks`` returns an iterator over the ``total`` valid draws; ``skipped`` others are left out. Without scores, the
    scores of a block have no columns. All methods have the kernel and the preconditioner of the configuration.
    ``subsample`` has evenly spaced draws of the stream.
    """

    blocks: Callable[[], Iterable[Block]]
    total: int
    dim: int
    size: int
    config: ThinConfig
    preconditioner: Preconditioner
    has_scores: bool = True
    seed: int = 0
    skipped: int = 0
    subsample: Block | None = None

    @property
    def kernel(self) -> Kernel:
        return self.config.kernel

    def load(self) -> Block:
        """Read all valid draws into memory."""
        draws, scores = np.empty((self.total, self.dim)), np.empty((self.total, self.dim if self.has_scores else 0))
        ids, start = np.empty((self.total, 2), dtype=np.int64), 0
        for block in self.blocks():
            rows = slice(start, start + len(block.draws))
            draws[rows], scores[rows], ids[rows] = block[:3]
            start = rows.stop
        return Block(draws, scores, ids)

    def take(self, indices: Integers) -> Block:
        """Read the draws at these indices (k,) of the stream, in this order, in one pass."""
        order = np.argsort(indices, kind="stable")
        ascending, parts, start = indices[order], [validation.empty_block(self.dim, self.has_scores)], 0
        for block in self.blocks():
            first, last = np.searchsorted(ascending, [start, start + len(block.draws)])
            parts.append(block.take(ascending[first:last] - start))
            start += len(block.draws)
        found = validation.concatenate(parts)
        return found.take(np.argsort(order))


def problem_from_source(
    source: DrawSource,
    size: int,
    config: ThinConfig | None = None,
    *,
    seed: int = 0,
    hooks: RunHooks | None = None,
    **settings: Any,
) -> SelectionProblem:
    """Return the problem of selecting ``size`` draws of a source after reading it once; settings as in ThinConfig."""
    config = baseline_config(config, **settings)
    fit = fit_source(source, config, hooks)
    validate_size(size, fit.valid)
    return SelectionProblem(
        ValidBlocks(source, complete=fit.skipped == 0),
        fit.valid,
        source.dim,
        int(size),
        config,
        fit.preconditioner,
        has_scores=fit.subsample.block.has_scores,
        seed=seed,
        skipped=fit.skipped,
        subsample=fit.subsample.block,
    )


def baseline_config(config: ThinConfig | None = None, **settings: Any) -> ThinConfig:
    """Return a configuration with some settings replaced; raise if a setting is not one of all methods."""
    chosen = ThinConfig.of(config, **settings)
    unsupported = chosen.unsupported_by(BASELINES)
    if unsupported is not None:
        own = ", ".join(settings_of(BASELINES))
        raise InputError(f"{unsupported} is not a setting of all methods.", f"These are {own}.")
    return chosen


def problem_from_arrays(
    draws: ArrayLike, scores: ArrayLike | None, size: int, config: ThinConfig | None = None, **settings: Any
) -> SelectionProblem:
    """Return the problem of selecting ``size`` draws (n, d) or (chains, n, d); chains are concatenated."""
    return problem_from_source(ArraySource.of(draws, scores), size, config, **settings)


def problem_from_chain(
    chain: Chain,
    size: int,
    config: ThinConfig | None = None,
    *,
    progress: Callable[[float], None] | None = None,
    **settings: Any,
) -> SelectionProblem:
    """Return the problem of selecting ``size`` draws of a file; ``progress`` is called with the fraction read."""
    hooks = None if progress is None else _ReadingProgress(chain, progress)
    return problem_from_source(ChainSource(chain), size, config, hooks=hooks, **settings)


class _ReadingProgress(RunHooks):
    """Report the fraction of a file that was read."""

    def __init__(self, chain: Chain, report: Callable[[float], None]) -> None:
        self._chain, self._report = chain, report

    def on_subsample(self, draws: int) -> None:
        self._report(self._chain.fraction() or 0.0)


@dataclass(frozen=True)
class ValidBlocks:
    """Iterate over the valid draws of a source; ``complete`` if all its draws are valid."""

    source: DrawSource
    complete: bool

    def __call__(self) -> Iterator[Block]:
        for block, _, _ in self.source.blocks():
            yield block if self.complete else block.take(validation.finite_rows(block, "skip"))


def validate_size(size: int, total: float) -> None:
    """Raise unless ``size`` is a positive integer of at most ``total``.

    >>> validate_size(5, 4)
    Traceback (most recent call last):
    steinstream.errors.InputError: size is 5, but the chain has only 4 draws. Choose a smaller size.
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(f"size must be an integer of at least 1, got {size!r}.")
    if size > total:
        raise InputError(f"size is {size}, but the chain has only {total} draws.", "Choose a smaller size.")


def ksd_of(problem: SelectionProblem, selected: Block) -> float:
    """Compute KSD of selected draws; NaN without scores."""
    if not selected.has_scores:
        return math.nan
    return ksd(selected.draws, selected.scores, kernel=problem.kernel, preconditioner=problem.preconditioner)


def to_kept(problem: SelectionProblem, method: str, selected: Block) -> Kept:
    """Return the draws that a method selected as a kept set, sorted by id, with their KSD if they have scores."""
    draws, scores, ids, *_ = selected.take(np.lexsort((selected.ids[:, 1], selected.ids[:, 0])))
    value = ksd_of(problem, selected)
    return Kept(
        draws,
        scores if selected.has_scores else None,
        ids,
        value,
        History.single(problem.total, len(draws), value),
        kernel=problem.kernel,
        preconditioner=problem.preconditioner,
        settings=run_settings(
            problem.config.replace(size=problem.size, preconditioner=problem.preconditioner),
            problem.preconditioner,
            ("size", *settings_of(BASELINES)),
            method=method,
            seed=problem.seed,
            seen=problem.total + problem.skipped,
            skipped=problem.skipped,
        ),
        stream=problem.subsample,
    )


# -- the shared signature ------------------------------------------------------------------------------------------

#: A method as a function of a problem and of its further keywords.
Select = Callable[..., Block]

#: All methods by name; filled by :func:`baseline`.
SELECTORS: dict[str, Select] = {}


class Baseline(Protocol):
    """A method as a function of arrays: the signature and the documentation that all methods share."""

    __name__: str

    def __call__(
        self,
        draws: ArrayLike,
        scores: ArrayLike | None,
        size: int,
        *,
        seed: int = 0,
        **settings: Any,
    ) -> Integers:
        """Select draws.

        Parameters
        ----------
        draws : array_like of shape (n, d) or (chains, n, d)
            Draws; chains are concatenated.
        scores : array_like of the same shape, or None
            Gradient of the log density at each draw. ``default``, ``stride`` and ``random_thinning`` also accept None.
        size : int
            Number of draws to select.
        seed : int, default 0
            Random seed. Only randomised methods use it.
        **settings
            ``kernel``, ``preconditioner``, ``on_bad`` and ``validate_scores``, as in `ThinConfig`.

        Returns
        -------
        ndarray of shape (size, 2)
            Ids (chain, draw) of the selected draws, in order of selection.

        Raises
        ------
        InputError
            If the chain has fewer than ``size`` draws, a draw is not finite, the scores look negated or are missing,
            or a setting is invalid.
        """


def baseline(select: Select, *, needs_scores: bool = True, **options: str) -> Baseline:
    """Register a method and return it as a function of arrays.

    The name of ``select`` has a leading underscore. ``options`` document the further keywords of the method, which are
    the keyword-only parameters of ``select``.

    Returns
    -------
    callable
        Function with the signature and the documentation of :class:`Baseline` and the further keywords.
    """
    name = select.__name__.lstrip("_")
    selector = _with_scores_required(select, name) if needs_scores else select
    further = [p for p in inspect.signature(select).parameters.values() if p.kind is p.KEYWORD_ONLY]
    shared = inspect.signature(Baseline.__call__)
    _, *parameters, settings = shared.parameters.values()  # without self
    signature = shared.replace(parameters=[*parameters, *further, settings])

    def method(*arguments: Any, **keywords: Any) -> Integers:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        values = bound.arguments
        own = {parameter.name: values.pop(parameter.name) for parameter in further}
        settings = values.pop("settings")
        return selector(problem_from_arrays(**values, **settings), **own).ids

    public: Any = method
    public.__name__ = public.__qualname__ = name
    public.__signature__ = signature
    public.__doc__ = _documentation(select, {parameter: options[parameter.name] for parameter in further})
    SELECTORS[name] = selector
    return cast(Baseline, public)


def _with_scores_required(select: Select, name: str) -> Select:
    """Return a method that raises an error for draws without scores."""

    def checked(problem: SelectionProblem, **options: Any) -> Block:
        if not problem.has_scores:
            raise InputError(
                f"The method {name} requires scores.",
                "Give the gradient of the log density at each draw, or use default, stride or random_thinning.",
            )
        return select(problem, **options)

    return checked


def _documentation(select: Select, further: dict[inspect.Parameter, str]) -> str:
    """Return the docstring of a method, completed by the shared sections and the documentation of further keywords."""
    text, _, examples = inspect.cleandoc(select.__doc__ or "").partition("Examples\n--------\n")
    sections = inspect.cleandoc(Baseline.__call__.__doc__ or "").partition("\n\n")[2]
    entries = [f"{p.name} : {p.annotation}, default {p.default!r}\n    {text}\n" for p, text in further.items()]
    sections = sections.replace("**settings\n", f"{''.join(entries)}**settings\n")
    return "\n\n".join([text.rstrip(), sections, *([f"Examples\n--------\n{examples}"] if examples else [])])


# -- online thinning and plain subsets -----------------------------------------------------------------------------


def _default(problem: SelectionProblem) -> Block:
    """Select draws by online thinning with the recommended objective: the ids of ``thin(..., size=size)``.

    The objective is KSD plus the distance of the selected draws to the stream; without scores it is that distance
    alone. One pass that holds the kept draws and a summary of the stream.
    """
    return _thinned(problem, size=problem.size)


default = baseline(_default, needs_scores=False)


def _ksdt(problem: SelectionProblem) -> Block:
    """Select draws by KSD alone, as in the paper, with a hard cap.

    The ids are those of ``thin(..., size=size, stream_weight=0)``. The paper uses the preconditioner ``"identity"``.
    One pass that holds only the kept draws, with ``size`` kernel evaluations per draw.
    """
    return _thinned(problem, size=problem.size, stream_weight=0.0)


ksdt = baseline(_ksdt)


def _thinned(problem: SelectionProblem, **settings: Any) -> Block:
    """Return the draws that a thinner keeps of the whole stream."""
    thinner = _thinner(problem, **settings)
    for block in problem.blocks():
        thinner.extend(block.draws, block.scores if block.has_scores else None, ids=block.ids)
    return _kept_block(thinner)


def _thinner(problem: SelectionProblem, **settings: Any) -> Thinner:
    """Return a thinner with the kernel and the preconditioner of the problem."""
    return Thinner(problem.dim, _QUIET, kernel=problem.kernel, preconditioner=problem.preconditioner, **settings)


def _kept_block(thinner: Thinner) -> Block:
    kept = thinner.kept
    return Block(kept.draws, np.zeros((len(kept), 0)) if kept.scores is None else kept.scores, kept.ids)


def _stride(problem: SelectionProblem) -> Block:
    """Select evenly spaced draws.

    The last draw is always selected; the first, which may belong to the burn-in, only if ``size`` exceeds half of the
    draws. One pass that holds only the selected draws.

    Examples
    --------
    >>> stride(np.zeros((2, 5, 1)), None, 4).tolist()
    [[0, 1], [0, 4], [1, 1], [1, 4]]
    """
    return problem.take(_spaced(problem.total, problem.size))


stride = baseline(_stride, needs_scores=False)


def _spaced(total: int, size: int) -> Integers:
    """Indices of the ends of ``size`` segments whose lengths differ by at most one.

    >>> _spaced(10, 3)
    array([2, 5, 9])
    """
    return np.arange(1, size + 1, dtype=np.int64) * total // size - 1


def _random_thinning(problem: SelectionProblem) -> Block:
    """Select draws at random, without replacement.

    One pass that holds only the selected draws. The same seed selects the same draws.

    Examples
    --------
    >>> sorted(random_thinning(np.zeros((5, 1)), None, 5).tolist())
    [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]]
    """
    return problem.take(np.random.default_rng(problem.seed).choice(problem.total, problem.size, replace=False))


random_thinning = baseline(_random_thinning, needs_scores=False)


# -- Stein thinning ------------------------------------------------------------------------------------------------


def _stein_thinning(problem: SelectionProblem, *, unique: bool = False) -> Block:
    r"""Select greedily from the whole chain: Stein thinning (Riabiz et al., "Optimal thinning of MCMC output", 2022).

    The next draw y minimises KSD, that is :math:`k_0(y, y) / 2 + \sum_i k_0(y, x_i)` over the draws :math:`x_i`
    selected so far. A draw may be selected more than once. The method holds the chain. It makes ``size`` kernel
    evaluations for each draw of the chain.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> stein_thinning(draws, -draws, 3).tolist()
    [[0, 462], [0, 426], [0, 646]]
    """
    chain, fitted = problem.load(), problem.preconditioner
    return chain.take(greedy_order(chain.draws, chain.scores, problem.size, problem.kernel, fitted, unique=unique))


stein_thinning = baseline(_stein_thinning, unique="Whether to select no draw twice.")


def _minibatch_stein_thinning(problem: SelectionProblem, *, batch: int = _MINIBATCH, together: int = 1) -> Block:
    r"""Select greedily from random mini-batches (Teymur et al., "Optimal quantisation of probability measures", 2021).

    Each step takes a mini-batch of the chain at random and selects its draw y that minimises KSD, that is
    :math:`k_0(y, y) / 2 + \sum_i k_0(y, x_i)` over the draws :math:`x_i` selected so far. This is the myopic variant of
    the authors. With ``together`` = s > 1, each step selects the s draws of the mini-batch that together minimise KSD,
    their non-myopic variant: for s = 2 all pairs are compared; for more, draws are added to the best pair one by one,
    and pairs are exchanged until no exchange lowers KSD. The authors solve the same problem by integer or
    semidefinite programming. A draw may be selected in several steps. The method holds the chain. For m selected draws
    and a mini-batch of b draws it makes about :math:`b m^2 / (2 s) + b^2 m / s` kernel evaluations, whatever the length
    of the chain; the second term is only for s > 1.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> minibatch_stein_thinning(draws, -draws, 3, batch=1000).tolist()
    [[0, 462], [0, 426], [0, 646]]
    """
    from steinstream._engine.baseline_loops import pairs
    from steinstream._engine.compiled_kernel import compile_kernel

    if batch < 1:
        raise InputError(f"batch must be an integer of at least 1, got {batch}.")
    if not 1 <= together <= batch:
        raise InputError(f"together must be an integer from 1 to batch = {batch}, got {together}.")
    chain, rng = problem.load(), np.random.default_rng(problem.seed)
    compiled = compile_kernel(problem.kernel, problem.dim)
    states = np.stack(problem.preconditioner.apply(chain.draws, chain.scores), axis=1)

    def kernel_table(rows: Integers, others: Integers) -> Array:
        """Return the kernel of each row and its others, (rows, others)."""
        values = np.empty(others.size)
        pairs(compiled, states, np.repeat(rows, others.shape[1]), others.ravel(), values)
        return values.reshape(others.shape)

    selected = np.empty(0, dtype=np.int64)
    while len(selected) < problem.size:
        rows = np.sort(rng.choice(problem.total, min(batch, problem.total), replace=False))
        table = kernel_table(rows, np.column_stack([rows, np.broadcast_to(selected, (len(rows), len(selected)))]))
        costs = table[:, 0] / 2.0 + table[:, 1:].sum(axis=1)
        number = min(together, problem.size - len(selected), len(rows))
        if number == 1:
            chosen = [int(np.argmin(costs))]
        else:
            chosen = _best_together(costs, kernel_table(rows, np.tile(rows, (len(rows), 1))), number)
        selected = np.append(selected, rows[chosen])
    return chain.take(selected)


def _best_together(costs: Array, matrix: Array, number: int) -> list[int]:
    """Return distinct indices with a small sum of costs and of the entries of a symmetric matrix between them.

    For two indices the sum is the smallest. More are added one by one to the best pair; then pairs are exchanged until
    no exchange of one or two indices lowers the sum.

    >>> costs, matrix = np.array([0.0, 0.1, 0.5]), np.array([[1.0, 0.9, -0.5], [0.9, 1.0, 0.0], [-0.5, 0.0, 1.0]])
    >>> _best_together(costs, matrix, 2)
    [0, 2]
    """

    def costs_with(others: list[int]) -> Array:
        with_others: Array = costs + matrix[:, others].sum(axis=1)
        with_others[others] = np.inf
        return with_others

    def best_pair(others: list[int]) -> tuple[list[int], Array]:
        single = costs_with(others)
        sums = single[:, None] + single + matrix
        np.fill_diagonal(sums, np.inf)
        return [int(index) for index in np.unravel_index(np.argmin(sums), sums.shape)], sums

    chosen = best_pair([])[0]
    while len(chosen) < number:
        chosen.append(int(np.argmin(costs_with(chosen))))
    for _ in range(_EXCHANGES):
        before = [*chosen]
        for one, other in combinations(range(number), 2):
            pair, sums = best_pair([index for place, index in enumerate(chosen) if place not in (one, other)])
            if sums[tuple(pair)] < sums[chosen[one], chosen[other]]:
                chosen[one], chosen[other] = pair
        if chosen == before:
            break
    return chosen


minibatch_stein_thinning = baseline(
    _minibatch_stein_thinning,
    batch="Number of draws in a mini-batch; the whole chain if it is shorter.",
    together="Number of draws that each step selects at once, at most ``batch``.",
)


# -- Stein point MCMC ----------------------------------------------------------------------------------------------


def _spmcmc(problem: SelectionProblem) -> Block:
    r"""Select the best draw of each of ``size`` groups (Chen et al., "Stein point Markov chain Monte Carlo", 2019).

    The authors start a short chain of m draws for each point; here the given chain is divided into groups of
    consecutive draws, whose lengths differ by at most one. The draw y of a group that minimises KSD, that is
    :math:`k_0(y, y) / 2 + \sum_i k_0(y, x_i)`, is added to the draws :math:`x_i` selected so far, and no draw is
    removed. The method makes one pass and holds the selected draws and one group. It makes ``size / 2`` kernel
    evaluations for each draw of the chain on average.
    """
    return _best_of_groups(problem, problem.size, schedules.KeepAll())


spmcmc = baseline(_spmcmc)


def _spmcmc_fixed_drops(problem: SelectionProblem, *, drop_rate: float = _MAX_DROP_RATE) -> Block:
    """Select as SPMCMC, and drop draws at fixed steps (Chen et al. 2019, appendix A.6.5).

    Each step adds the best draw of the next group. At the drop sites, which are fixed in advance, the worst draw (the
    one whose removal leaves the smallest KSD) is removed first, even if KSD increases. For a drop rate r there are
    ``size / (1 - r)`` steps, and the sites are evenly spaced from step 10 to the last, as in the authors' public code;
    for fewer than ten draws they start earlier. The set grows linearly and ends with ``size`` draws. The method makes
    one pass and holds the selected draws and one group.
    """
    if not 0 <= drop_rate < 1:
        raise InputError(f"drop_rate must be at least 0 and below 1, got {drop_rate}.")
    steps = min(round(problem.size / (1.0 - drop_rate)), problem.total)
    sites = drop_sites(steps, problem.size)

    def growth(t: int) -> float:
        """Size after step t, when the draw that step t + 1 drops is already removed."""
        return float(t - np.searchsorted(sites, t + 1, side="right"))

    return _best_of_groups(problem, steps, growth)


spmcmc_fixed_drops = baseline(
    _spmcmc_fixed_drops, drop_rate="Fraction of the steps that remove a draw, at least 0 and below 1."
)


def drop_sites(steps: int, size: int) -> Integers:
    """Return the steps, counted from 1, that drop a draw before they add one.

    Returns
    -------
    ndarray of shape (steps - size,)
        Steps, counted from 1.

    Examples
    --------
    >>> drop_sites(20, 14)
    array([10, 12, 14, 16, 18, 20])
    """
    first = max(2, min(10, size + 1))
    return np.floor(np.linspace(first, steps, steps - size) + 0.5).astype(np.int64)


def _best_of_groups(problem: SelectionProblem, steps: int, growth: schedules.Schedule) -> Block:
    """Add the best draw of each group; after step t remove the worst draws until ``growth(t)`` are left."""
    thinner = _thinner(problem, growth=growth, budget=np.inf, stream_weight=0.0)
    for group in _groups(problem, steps):
        thinner.select(group.draws, group.scores, ids=group.ids)
    return _kept_block(thinner)


def _groups(problem: SelectionProblem, count: int) -> Iterator[Block]:
    """Divide the stream into ``count`` groups whose lengths differ by at most one."""
    edges = np.arange(count + 1) * problem.total // count
    held, start, done = validation.empty_block(problem.dim), 0, 0
    for block in problem.blocks():
        held = held.append(block)
        last = int(np.searchsorted(edges, start + len(held.draws), side="right")) - 1
        for first, end in pairwise(edges[done : last + 1] - start):
            yield held.take(slice(first, end))
        held = held.take(slice(edges[last] - start, None))
        done, start = last, int(edges[last])


# -- kernel methods that match the stream --------------------------------------------------------------------------


def _reservoir(problem: SelectionProblem) -> Block:
    """Super-sample with a reservoir (Paige, Sejdinovic and Wood, 2016), with the Stein kernel.

    The reservoir always holds ``size`` draws. Each new draw may replace one of them: the swap that brings the mean
    embedding of the reservoir closest to that of the stream so far, including the new draw, is made unless it increases
    the distance. No random numbers are used, unlike in the reservoir sampling of Vitter. The authors approximate an RBF
    kernel by random Fourier features; here the kernel is the Stein kernel and its sums are exact. This requires the
    kernel values of each draw with all draws before it, :math:`n^2 / 2` in all, and memory for the chain.

    The result represents the stream including its burn-in. The mean embedding of the target under the Stein kernel is
    0; with it in place of that of the stream, the same swaps are online KSD thinning with a hard cap (``ksdt``). Ids
    are in the order of the places of the reservoir: a new draw has the place of the draw that it replaced.
    """
    from steinstream._engine.baseline_loops import empty_reservoir, update_reservoir
    from steinstream._engine.compiled_kernel import compile_kernel
    from steinstream._engine.pairwise import empty_sums, rows_before, tiled

    chain = problem.load()
    x, s = problem.preconditioner.apply(chain.draws, chain.scores)
    compiled, points = compile_kernel(problem.kernel, problem.dim), tiled(x, s, np.ones(problem.total))
    sums, kept = empty_sums(problem.total), empty_reservoir(problem.size, problem.dim)

    def rows(begin: int, end: int) -> int:
        rows_before(compiled, points, begin, end, sums)
        return end * end - begin * begin

    run_rows_in_threads(rows, problem.total, None)
    for begin in range(0, problem.total, _RESERVOIR_BLOCK):
        end = min(begin + _RESERVOIR_BLOCK, problem.total)
        update_reservoir(compiled, points.draws, sums, kept, begin, end)
    return chain.take(kept.places)


reservoir = baseline(_reservoir)


def _kernel_thinning(problem: SelectionProblem) -> Block:
    """Select by kernel thinning (Dwivedi and Mackey, 2021 and 2024), with the Stein kernel and the package goodpoints.

    An evenly spaced subset of the chain is halved m times into :math:`2^m` sets of ``size`` draws that balance each
    other under the kernel, with the largest m that the chain allows. The best of these sets is then refined: each of
    its draws is replaced by the draw that minimises KSD (the mean embedding of the target under the Stein kernel is 0).
    A draw may be selected more than once. The method makes about :math:`n^2 / 2` kernel evaluations and holds at least
    half of the chain. The halving is random.

    Requires ``pip install "steinstream[kernel-thinning]"``.
    """
    from steinstream._engine.baseline_loops import pairs
    from steinstream._engine.compiled_kernel import compile_kernel

    kt = _goodpoints()
    rounds = int(problem.total // problem.size).bit_length() - 1
    chain = problem.take(_spaced(problem.total, problem.size << rounds))
    compiled = compile_kernel(problem.kernel, problem.dim)
    states = np.stack(problem.preconditioner.apply(chain.draws, chain.scores), axis=1)

    def stein_kernel(some: Integers, others: Integers) -> Array:
        """Stein kernel of draws that are given to goodpoints by their indices."""
        one, other = (np.array(part) for part in np.broadcast_arrays(some[:, 0], others[:, 0]))
        out = np.empty(len(one))
        pairs(compiled, states, one, other, out)
        return out

    numbers = np.arange(len(states), dtype=np.int64)[:, None]
    indices = kt.thin_X(numbers, rounds, stein_kernel, stein_kernel, seed=problem.seed, meanK=np.zeros(len(states)))
    return chain.take(indices)


kernel_thinning = baseline(_kernel_thinning)


def _goodpoints() -> Any:
    try:
        return import_module("goodpoints.kt")
    except ModuleNotFoundError:
        raise InputError(
            "Kernel thinning requires the package goodpoints.", 'pip install "steinstream[kernel-thinning]"'
        ) from None
