"""Any source of draws: an iterator of (draw, score), or of draws alone with a score or a log density beside them.

KSD wants the score of a density on the whole of R^d. Where a parameter is bounded, let the sampler move in log sigma,
logit p and the like, and add the log of the Jacobian to the log density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain as joined
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError
from steinstream.integrations._common import chosen_thinner, need, what_is_kept
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner

Array = NDArray[np.float64]
Batched = Callable[[ArrayLike], Array]

BACKENDS = ("jax", "torch")


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
    **settings: Any,
) -> Kept:
    """Thin whatever ``source`` yields, as it comes, and never hold more than ``block`` draws besides those kept.

    It yields pairs (draw, score) of (d,) each or of blocks (n, d); or, if ``score`` is given, draws (d,) or (n, d)
    alone. ``score`` is a function of one draw, or ``"jax"`` or ``"torch"`` to differentiate ``log_density``, a
    function of one draw written with that package. Ids are (``chain``, 0), (``chain``, 1), ... With ``transform``, a
    function of one draw, each kept draw gets the variables it returns. ``thinner`` goes on with one that is there, for
    the next chain say; otherwise ``settings`` are those of :class:`~steinstream.Thinner`.

    >>> rng = np.random.default_rng(0)
    >>> thin(((x, -x) for x in rng.normal(size=(1000, 2))), size=20)
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.09819)
    >>> thin(rng.normal(size=(1000, 2)), score=lambda x: -x, size=20)
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.09214)
    """
    if block < 1:
        raise InputError(f"block must be at least 1 draw, got {block!r}.")
    gradient = batched_score(score, log_density)
    running: Thinner | None = None
    for draws, scores in _blocks(source, gradient is None, block):
        running = running or chosen_thinner(thinner, draws.shape[1], settings)
        running.extend(draws, scores if gradient is None else gradient(draws), chain=chain)
    if running is None:
        raise InputError("The source is empty: there are no draws to thin.", "An iterator can be read only once.")
    kept = what_is_kept(running, names)
    if transform is not None:
        kept.variables.update(variables_of(transform, kept.draws))
    return kept


def batched_score(
    score: str | Callable[[Any], Any] | None, log_density: Callable[[Any], Any] | None = None
) -> Batched | None:
    """The score of one draw, however it is given, as a function of draws (n, d); None if it is not given.

    JAX computes in float32 unless ``jax_enable_x64`` is set, and its scores then have seven digits; torch in float64.

    >>> batched_score(lambda x: -x)([[1.0, 2.0]])
    array([[-1., -2.]])
    """
    if score in BACKENDS:
        if log_density is None:
            raise InputError(f"score={score!r} needs a log density to differentiate.", "Give log_density.")
        return (_by_jax if score == "jax" else _by_torch)(log_density)
    if isinstance(score, str):
        raise InputError(f"Unknown score {score!r}.", f"Choose one of {', '.join(BACKENDS)}, or give a function.")
    if score is None:
        if log_density is not None:
            raise InputError("A log density alone has no score.", 'Say by what to differentiate it: score="jax".')
        return None
    one = score

    def each(draws: ArrayLike) -> Array:
        return np.array([np.asarray(one(x), dtype=np.float64) for x in np.asarray(draws)])

    return each


def _by_jax(log_density: Callable[[Any], Any]) -> Batched:
    jax = need("jax", "jax")
    gradient = jax.jit(jax.vmap(jax.grad(log_density)))

    def scores(draws: ArrayLike) -> Array:
        x = np.asarray(draws, dtype=np.float64)
        room = 1 << max(len(x) - 1, 0).bit_length()  # few lengths, for each is compiled anew
        padded = np.concatenate([x, np.broadcast_to(x[-1:], (room - len(x), x.shape[1]))])
        return np.asarray(gradient(padded), dtype=np.float64)[: len(x)]

    return scores


def _by_torch(log_density: Callable[[Any], Any]) -> Batched:
    torch = need("torch", "torch")
    gradient = torch.func.vmap(torch.func.grad(log_density))

    def scores(draws: ArrayLike) -> Array:
        x = torch.tensor(np.asarray(draws, dtype=np.float64))
        return np.asarray(gradient(x).detach().numpy(), dtype=np.float64)

    return scores


def variables_of(transform: Callable[[Array], dict[str, Any]], points: Array) -> dict[str, Variable]:
    """What a function of one draw returns, for all of them, by name."""
    each = [transform(point) for point in points]
    return {name: as_variable(name, np.array([np.asarray(one[name]) for one in each])) for name in each[0]}


def as_variable(name: str, values: NDArray[Any]) -> Variable:
    """Values (n, ...) whose dimensions have no names of their own."""
    return Variable(values, tuple(f"{name}_dim_{axis}" for axis in range(values.ndim - 1)))


def _blocks(source: Iterable[Any], paired: bool, most: int) -> Iterator[tuple[Array, Array]]:
    """The source in blocks: single draws are gathered, blocks are split where they are too long."""
    waiting: list[tuple[Array, Array]] = []
    for item in joined(source, [None]):
        draws, scores = _parted(item, paired) if item is not None else (np.zeros((0, 0)), np.zeros((0, 0)))
        if draws.ndim == 1:
            waiting.append((draws, scores))
        if waiting and (draws.ndim != 1 or len(waiting) == most):
            yield _gathered([x for x, _ in waiting]), _gathered([s for _, s in waiting])
            waiting = []
        if draws.ndim != 1:
            for start in range(0, len(draws), most):
                yield draws[start : start + most], scores[start : start + most]


def _parted(item: Any, paired: bool) -> tuple[Array, Array]:
    if not paired:
        draws = np.asarray(item, dtype=np.float64)
        return draws, draws
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(
            "The source must yield pairs (draw, score), and this is none.",
            "If it yields draws alone, give score: a function of one draw, or 'jax' or 'torch' with log_density.",
        )
    draws, scores = (np.asarray(part, dtype=np.float64) for part in item)
    if draws.shape != scores.shape:
        raise InputError(
            f"A draw has shape {draws.shape} and its score {scores.shape}.", "They have one entry for each dimension."
        )
    return draws, scores


def _gathered(rows: list[Array]) -> Array:
    if len({len(row) for row in rows}) > 1:
        raise InputError("The draws have different numbers of dimensions.", "Every draw has as many as the first.")
    return np.array(rows)
