"""Thin any source of draws: an iterator of (draw, score), or of draws with a score function or a log density.

KSD requires the score of a density on all of R^d. If a parameter is bounded, sample a transformed one (log sigma,
logit p), and add the log of the Jacobian to the log density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain as joined
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array
from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, need, result_of
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig

#: A function of draws (n, d) that returns their scores (n, d).
BatchedScore = Callable[[ArrayLike], Array]

#: Packages that can differentiate a log density.
DIFFERENTIATORS = ("jax", "torch")


def thin(
    source: Iterable[Any],
    *,
    score: str | Callable[[Any], Any] | None = None,
    log_density: Callable[[Any], Any] | None = None,
    chain: int = 0,
    block: int = 1000,
    names: tuple[str, ...] | None = None,
    transform: Callable[[Array], dict[str, Any]] | None = None,
    thinner: Thinner | None = None,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Thin the draws that an iterator yields, with at most ``block`` draws in memory besides the kept ones.

    Parameters
    ----------
    source : iterable
        Yields pairs (draw, score) of shape (d,) each or (n, d) each; with ``score``, draws (d,) or (n, d) alone.
    score : callable or {"jax", "torch"}, optional
        Function of one draw that returns its score, or the package that differentiates ``log_density``.
    log_density : callable, optional
        Log density of one draw, written with JAX or PyTorch.
    chain : int, default 0
        Chain number of the draws: their ids are (chain, 0), (chain, 1), ...
    block : int, default 1000
        Number of draws that are passed to the thinner at a time.
    names : tuple of str, optional
        Parameter names.
    transform : callable, optional
        Function of one draw that returns a dict of variables, which are computed for the kept draws.
    thinner : Thinner, optional
        Thinner to continue with, for example with the next chain. Default: a new one.
    config : ThinConfig, optional
        Settings of a new thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The default preconditioner is
        `Streaming`.

    Returns
    -------
    Kept
        The kept draws.

    Raises
    ------
    InputError
        If the source is empty, or yields draws and scores of different shapes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> thin(((x, -x) for x in rng.normal(size=(1000, 2))), size=20)
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.09819)
    >>> thin(rng.normal(size=(1000, 2)), score=lambda x: -x, size=20)
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.09214)

    """
    if block < 1:
        raise InputError(f"block must be at least 1, got {block!r}.")
    gradient = batched_score(score, log_density)
    running: Thinner | None = None
    for draws, scores in _blocks(source, gradient is None, block):
        running = running or live_thinner(draws.shape[1], thinner=thinner, config=config, settings=settings)
        running.extend(draws, scores if gradient is None else gradient(draws), chain=chain)
    if running is None:
        raise InputError("The source yielded no draws.", "An iterator can be read only once: create a new one.")
    kept = result_of(running, names)
    if transform is not None:
        kept.variables.update(variables_of(transform, kept.draws))
    return kept


def batched_score(
    score: str | Callable[[Any], Any] | None, log_density: Callable[[Any], Any] | None = None
) -> BatchedScore | None:
    """Convert the score of one draw to a function of many draws.

    Parameters
    ----------
    score : callable or {"jax", "torch"}, optional
        Function of one draw that returns its score, or the package that differentiates ``log_density``.
    log_density : callable, optional
        Log density of one draw, written with that package. JAX computes in float32 unless ``jax_enable_x64`` is set;
        PyTorch computes in float64.

    Returns
    -------
    callable or None
        Function of draws (n, d) that returns scores (n, d); None if ``score`` is None.

    Examples
    --------
    >>> batched_score(lambda x: -x)([[1.0, 2.0]])
    array([[-1., -2.]])

    """
    if score in DIFFERENTIATORS:
        if log_density is None:
            raise InputError(f"score={score!r} needs a log density to differentiate.", "Pass log_density.")
        return (_by_jax if score == "jax" else _by_torch)(log_density)
    if isinstance(score, str):
        raise InputError(f"Unknown score {score!r}.", f"Use one of {', '.join(DIFFERENTIATORS)}, or a function.")
    if score is None:
        if log_density is not None:
            raise InputError(
                "log_density was given without score.", 'Choose the package that differentiates it: score="jax".'
            )
        return None
    one = score

    def each(draws: ArrayLike) -> Array:
        return np.array([np.asarray(one(x), dtype=np.float64) for x in np.asarray(draws)])

    return each


def _by_jax(log_density: Callable[[Any], Any]) -> BatchedScore:
    jax = need("jax", "jax")
    gradient = jax.jit(jax.vmap(jax.grad(log_density)))

    def scores(draws: ArrayLike) -> Array:
        x = np.asarray(draws, dtype=np.float64)
        length = 1 << max(len(x) - 1, 0).bit_length()  # padded to a power of two: every length is compiled separately
        padded = np.concatenate([x, np.broadcast_to(x[-1:], (length - len(x), x.shape[1]))])
        return np.asarray(gradient(padded), dtype=np.float64)[: len(x)]

    return scores


def _by_torch(log_density: Callable[[Any], Any]) -> BatchedScore:
    torch = need("torch", "torch")
    gradient = torch.func.vmap(torch.func.grad(log_density))

    def scores(draws: ArrayLike) -> Array:
        x = torch.tensor(np.asarray(draws, dtype=np.float64))
        return np.asarray(gradient(x).detach().numpy(), dtype=np.float64)

    return scores


def variables_of(transform: Callable[[Array], dict[str, Any]], draws: Array) -> dict[str, Variable]:
    """Apply a function of one draw to all draws, and return its results as variables."""
    each = [transform(draw) for draw in draws]
    return {name: as_variable(name, np.array([np.asarray(one[name]) for one in each])) for name in each[0]}


def as_variable(name: str, values: AnyArray) -> Variable:
    """Return values (n, ...) as a variable with default names of the dimensions."""
    return Variable(values, tuple(f"{name}_dim_{axis}" for axis in range(values.ndim - 1)))


def _blocks(source: Iterable[Any], paired: bool, most: int) -> Iterator[tuple[Array, Array]]:
    """Yield the draws in blocks of at most ``most``: single draws are collected, long blocks are split."""
    single: list[tuple[Array, Array]] = []
    for item in joined(source, [None]):
        draws, scores = _as_pair(item, paired) if item is not None else (np.zeros((0, 0)), np.zeros((0, 0)))
        if draws.ndim == 1:
            single.append((draws, scores))
        if single and (draws.ndim != 1 or len(single) == most):
            yield _stacked([x for x, _ in single]), _stacked([s for _, s in single])
            single = []
        if draws.ndim != 1:
            for start in range(0, len(draws), most):
                yield draws[start : start + most], scores[start : start + most]


def _as_pair(item: Any, paired: bool) -> tuple[Array, Array]:
    """Return draws and scores of an item; draws alone stand for both if the scores are computed later."""
    if not paired:
        draws = np.asarray(item, dtype=np.float64)
        return draws, draws
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(
            f"The source must yield pairs (draw, score), but it yielded a {type(item).__name__}.",
            "If it yields draws alone, pass score: a function of one draw, or 'jax' or 'torch' with log_density.",
        )
    draws, scores = (np.asarray(part, dtype=np.float64) for part in item)
    if draws.shape != scores.shape:
        raise InputError(
            f"A draw has shape {draws.shape} and its score has shape {scores.shape}.", "Both need the same shape."
        )
    return draws, scores


def _stacked(rows: list[Array]) -> Array:
    if len({len(row) for row in rows}) > 1:
        raise InputError("The draws have different numbers of dimensions.", "All draws need the same number.")
    return np.array(rows)
