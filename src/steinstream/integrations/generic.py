r"""Thin any source of draws, and compute the scores of stored draws from any log density.

`thin` takes an iterator of (draw, score), or of draws with a score function or a log density, or of draws alone. The
functions `scores` and `finite_difference_scores` take stored draws.

KSD requires the score of a density on all of :math:`\mathbb{R}^d`. If a parameter is bounded, sample a transformed one
(:math:`\log \sigma`, :math:`\mathrm{logit}\, p`), and add the log of the Jacobian to the log density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain as joined
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import (
    live_thinner,
    log_missing_scores,
    need,
    result_of,
    warn_if_sequential,
    with_source,
)
from steinstream.integrations._finite_differences import RunningFiniteDifferences, finite_difference_scores
from steinstream.integrations._stored_draws import ScoredDraws, for_distinct_states
from steinstream.result import Kept, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import consecutive_ids

__all__ = ["ScoredDraws", "finite_difference_scores", "scores", "thin"]

#: A function of draws (n, d) that returns their scores (n, d).
BatchedScore = Callable[[ArrayLike], Array]

#: Ways to differentiate a log density: packages, or finite differences.
DIFFERENTIATORS = ("jax", "torch", "finite")


def thin(
    source: Iterable[Any],
    *,
    score: str | Callable[[Any], Any] | None = None,
    log_density: Callable[[Any], Any] | None = None,
    accuracy: float | None = None,
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
        Yields pairs (draw, score) of shape (d,) each or (n, d) each; or draws (d,) or (n, d) alone, whose scores are
        computed by ``score``. Without ``score``, draws alone are thinned without scores.
    score : callable or {"jax", "torch", "finite"}, optional
        Function of one draw that returns its score, or how ``log_density`` is differentiated: by JAX, by PyTorch, or
        by finite differences.
    log_density : callable, optional
        Log density of one draw, written with JAX or PyTorch, or any function for finite differences.
    accuracy : float, optional
        Relative accuracy of the log density, for finite differences; for a simulation, the tolerance of its solver. The
        step in each parameter is the cube root of ``accuracy`` times the standard deviation of the parameter over the
        draws so far. Default: 1e-15.
    chain : int, default 0
        Chain number of the draws: their ids are (chain, 0), (chain, 1), ...
    block : int, default 1000
        Number of draws that are passed to the thinner at a time.
    names : tuple of str, optional
        Parameter names.
    transform : callable, optional
        Function of one draw that returns a dict of variables, which are computed for the kept draws.
    thinner : Thinner, optional
        Thinner to continue with. Default: a new one. Use one thinner per chain, and merge the kept sets with
        :func:`steinstream.merge`: a thinner that receives one chain after another favours one of them, and a warning
        says so.
    config : ThinConfig, optional
        Settings of a new thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Returns
    -------
    Kept
        The kept draws. ``settings["source"]`` holds R-hat and ESS of the draws that were read.

    Raises
    ------
    InputError
        If the source is empty, or yields draws and scores of different shapes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> thin(((x, -x) for x in rng.normal(size=(1000, 2))), size=20)
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.1141)
    >>> thin(rng.normal(size=(1000, 2)), score=lambda x: -x, size=20)
    Kept(20 of 1000 draws, 2 dimensions, KSD 0.1073)
    >>> thin(rng.normal(size=(1000, 2)), size=20)
    Kept(20 of 1000 draws, 2 dimensions, MMD 0.01328, no scores)
    """
    if block < 1:
        raise InputError(f"block must be at least 1, got {block!r}.")
    gradient = batched_score(score, log_density, accuracy)
    running: Thinner | None = None
    for piece in _pieces(source, gradient is None, block):
        draws, scores = piece.draws, piece.scores if gradient is None else gradient(piece.draws)
        if running is None:
            running = live_thinner(draws.shape[1], thinner=thinner, config=config, settings=settings)
            convergence = RunningConvergence(running.dim)
            warn_if_sequential(running, [chain], "Use one thinner per chain, and merge the kept sets with ss.merge.")
            if scores is None:
                log_missing_scores("To add scores, yield pairs (draw, score), or pass score.")
        ids = consecutive_ids(chain, running.next_index(chain), len(draws))
        running.extend(draws, scores, ids=ids)
        convergence.add(ids, draws)
    if running is None:
        raise InputError("The source yielded no draws.", "An iterator can be read only once: create a new one.")
    kept = with_source(result_of(running, names), "generic", convergence)
    if transform is not None:
        kept.variables.update(variables_of(transform, kept.draws))
    return kept


def scores(score: Callable[[Any], Any], draws: ArrayLike, *, progress: Callable[[float], None] | None = None) -> Array:
    """Compute the scores of stored draws by a function of one draw; repeated states are evaluated once.

    Parameters
    ----------
    score : callable
        Function of one draw (d,) that returns its score (d,), the gradient of the log density.
    draws : array_like
        Draws, (n, d) or (chains, n, d).
    progress : callable, optional
        Called with the finished fraction, 0 to 1.

    Returns
    -------
    array
        Scores in the shape of ``draws``, for :func:`steinstream.thin`.

    Raises
    ------
    InputError
        If the score is missing.

    Examples
    --------
    >>> scores(lambda x: -x, [[1.0, 2.0], [3.0, 4.0]])
    array([[-1., -2.],
           [-3., -4.]])
    """
    each = batched_score(score)
    if each is None:
        raise InputError("score is missing.", "Pass a function of one draw that returns its score.")
    return for_distinct_states(each, draws, batch=1, progress=progress)


def batched_score(
    score: str | Callable[[Any], Any] | None,
    log_density: Callable[[Any], Any] | None = None,
    accuracy: float | None = None,
) -> BatchedScore | None:
    """Convert the score of one draw, or the way to differentiate ``log_density``, to a function of many draws.

    JAX computes in float32 unless ``jax_enable_x64`` is set; PyTorch computes in float64. ``"finite"`` evaluates any
    function 2 d times per draw; repeated states of one call and the call before are evaluated once. For a simulation,
    ``accuracy`` is the tolerance of its solver. The step in each parameter is the cube root of it times the standard
    deviation of the parameter over the draws so far.

    Returns
    -------
    callable or None
        Function of draws (n, d) that returns scores (n, d); None if ``score`` is None.

    Raises
    ------
    InputError
        If the score is unknown, requires a log density that is not given, or has no use for ``accuracy``.

    Examples
    --------
    >>> batched_score(lambda x: -x)([[1.0, 2.0]])
    array([[-1., -2.]])
    """
    if accuracy is not None and score != "finite":
        raise InputError("accuracy is for finite differences.", 'Leave it out, or pass score="finite".')
    if isinstance(score, str):
        if score not in DIFFERENTIATORS:
            raise InputError(f"Unknown score {score!r}.", f"Use one of {', '.join(DIFFERENTIATORS)}, or a function.")
        if log_density is None:
            raise InputError(f"score={score!r} needs a log density to differentiate.", "Pass log_density.")
        if score == "finite":
            return RunningFiniteDifferences(log_density, 1e-15 if accuracy is None else accuracy)
        return (_by_jax if score == "jax" else _by_torch)(log_density)
    if score is None:
        if log_density is not None:
            raise InputError(
                "log_density was given without score.",
                'Choose how it is differentiated: score="jax", score="torch" or score="finite".',
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


class _Piece(NamedTuple):
    """Draws (n, d), or one draw (d,), with their scores if there are any."""

    draws: Array
    scores: Array | None


def _pieces(source: Iterable[Any], may_be_pairs: bool, most: int) -> Iterator[_Piece]:
    """Yield the draws in blocks of at most ``most``: single draws are collected, long blocks are split."""
    single: list[_Piece] = []
    for item in joined(source, [None]):
        piece = _Piece(np.zeros((0, 0)), None) if item is None else _as_piece(item, may_be_pairs)
        if piece.draws.ndim == 1:
            single.append(piece)
        if single and (piece.draws.ndim != 1 or len(single) == most):
            yield _stacked(single)
            single = []
        if piece.draws.ndim != 1:
            for start in range(0, len(piece.draws), most):
                rows = slice(start, start + most)
                yield _Piece(piece.draws[rows], None if piece.scores is None else piece.scores[rows])


def _as_piece(item: Any, may_be_pair: bool) -> _Piece:
    """Return draws and scores of an item: a pair of arrays, or draws alone."""
    is_pair = may_be_pair and isinstance(item, tuple | list) and len(item) == 2 and np.ndim(item[0]) > 0
    if not is_pair:
        return _Piece(np.asarray(item, dtype=np.float64), None)
    draws, scores = (np.asarray(part, dtype=np.float64) for part in item)
    if draws.shape != scores.shape:
        raise InputError(
            f"A draw has shape {draws.shape} and its score has shape {scores.shape}.", "Both need the same shape."
        )
    return _Piece(draws, scores)


def _stacked(pieces: list[_Piece]) -> _Piece:
    """Return single draws as a block."""
    if len({len(piece.draws) for piece in pieces}) > 1:
        raise InputError("The draws have different numbers of dimensions.", "All draws need the same number.")
    scores = [piece.scores for piece in pieces if piece.scores is not None]
    if len(scores) not in (0, len(pieces)):
        raise InputError(
            "Some draws were given with scores and others without.", "Pass scores with every draw, or with none."
        )
    return _Piece(np.array([piece.draws for piece in pieces]), np.array(scores) if scores else None)
