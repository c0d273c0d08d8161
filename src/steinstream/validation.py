"""Input validation for draws and scores.

All public entry points call these functions. Internal code assumes valid input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream._typing import Array, Flags, Id, Ids, Integers
from steinstream.errors import InputError, NegatedScoresError

#: Largest magnitude of a draw or score. The square of a larger score overflows or dominates every other number. With a
#: linear term in the kernel, which multiplies squares of scores and draws, the limit is the square root of this one.
OVERFLOW_LIMIT = 1e100
FLOAT32_LIMIT = 1e38

#: Least and largest number of draws for which Stein's identity is evaluated, and the largest number of coordinates.
IDENTITY_MIN_DRAWS, IDENTITY_MAX_DRAWS = 100, 1000
IDENTITY_MAX_COORDINATES = 10_000


class Block(NamedTuple):
    """Consecutive draws of a stream, one per row.

    Attributes
    ----------
    draws : array
        Draws, (n, d).
    scores : array
        Scores, (n, d), or (n, 0) for draws without scores. Second scores follow as further columns.
    ids : array
        Identifiers (chain, index), (n, 2).
    features : array, optional
        Features of the draws, (n, p), which the stream term compares.
    ratios : array, optional
        Density ratios of the draws, (n, 1), if the scores are those of a proxy: see :mod:`steinstream.gradient_free`.
    """

    draws: Array
    scores: Array
    ids: Integers
    features: Array | None = None
    ratios: Array | None = None

    @property
    def has_scores(self) -> bool:
        """Whether the draws have scores."""
        return bool(self.scores.shape[1])

    def take(self, rows: slice | Flags | Integers) -> Block:
        """Return some of the rows.

        Parameters
        ----------
        rows : slice, array of bool or array of int
            The rows.

        Returns
        -------
        Block
            The rows, in this order.
        """
        features = None if self.features is None else self.features[rows]
        ratios = None if self.ratios is None else self.ratios[rows]
        return Block(self.draws[rows], self.scores[rows], self.ids[rows], features, ratios)

    def copy(self) -> Block:
        """Return a copy that shares no memory."""
        features = None if self.features is None else self.features.copy()
        ratios = None if self.ratios is None else self.ratios.copy()
        return Block(self.draws.copy(), self.scores.copy(), self.ids.copy(), features, ratios)

    def append(self, more: Block) -> Block:
        """Return the rows of both blocks; without a copy if this one is empty."""
        if len(self.draws) == 0:
            return more
        return concatenate([self, more])


def concatenate(blocks: Sequence[Block]) -> Block:
    """Return the rows of all blocks, in order; all or none of them have features, and likewise density ratios."""
    features = [block.features for block in blocks if block.features is not None]
    ratios = [block.ratios for block in blocks if block.ratios is not None]
    return Block(
        np.concatenate([block.draws for block in blocks]),
        np.concatenate([block.scores for block in blocks]),
        np.concatenate([block.ids for block in blocks]),
        np.concatenate(features) if features else None,
        np.concatenate(ratios) if ratios else None,
    )


def empty_block(dim: int, has_scores: bool = True) -> Block:
    """Return a block without rows."""
    return Block(np.zeros((0, dim)), np.zeros((0, dim if has_scores else 0)), np.zeros((0, 2), dtype=np.int64))


def consecutive_ids(chain: int, first: int, count: int) -> Integers:
    """Return the ids (chain, first), (chain, first + 1), ..., as an array (count, 2)."""
    ids = np.empty((count, 2), dtype=np.int64)
    ids[:, 0], ids[:, 1] = chain, np.arange(first, first + count)
    return ids


def as_ids(ids: ArrayLike, count: int) -> Integers:
    """Validate ``count`` ids and return them as an array (count, 2)."""
    try:
        pairs = np.asarray(ids)
    except ValueError:  # rows of different lengths
        pairs = np.zeros(0)
    if pairs.shape != (count, 2) or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError(f"ids must be {count} pairs of whole numbers (chain, draw), got shape {pairs.shape}.")
    return np.ascontiguousarray(pairs, dtype=np.int64)  # compiled code expects this layout


def as_id_pairs(ids: ArrayLike) -> Integers:
    """Validate any number of ids and return them as an array (n, 2).

    Returns
    -------
    array
        Pairs (chain, index).

    Examples
    --------
    >>> as_id_pairs([(0, 3), (1, 5)])
    array([[0, 3],
           [1, 5]])
    """
    try:
        pairs = np.asarray(ids)
    except ValueError:  # rows of different lengths
        pairs = np.zeros(1)
    if pairs.ndim == 0 or (pairs.ndim == 1 and len(pairs)):
        raise InputError("ids must be pairs of whole numbers (chain, draw).", "Use rows of kept.ids.")
    return as_ids(pairs, len(pairs)) if len(pairs) else np.zeros((0, 2), dtype=np.int64)


def id_tuples(ids: Integers) -> Ids:
    """Return ids (n, 2) as a tuple of pairs."""
    pairs: list[Id] = [(chain, draw) for chain, draw in ids.tolist()]
    return tuple(pairs)


def as_floats(values: ArrayLike, what: str) -> Array:
    """Convert a user's array of real numbers, named ``what`` in messages, to a contiguous float64 array.

    Dimensions of an ``xarray.DataArray`` are ordered by their names. Masked entries become NaN.

    Returns
    -------
    array
        The numbers.
    """
    reject_path(values, what)
    given: Any = values
    if isinstance(given, list | tuple) and given and hasattr(given[0], "detach"):
        given = [as_floats(row, what) for row in given]
    if hasattr(given, "detach"):  # a PyTorch tensor, which may require a gradient, or be one of bfloat16
        given = given.detach().cpu()
        given = given if given.is_complex() else given.double()
    try:
        array = _ordered_by_name(given) if hasattr(given, "dims") else np.asanyarray(given)
        if np.iscomplexobj(array):
            raise TypeError
        if np.ma.is_masked(array):
            array = array.astype(np.float64).filled(np.nan)
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        if hasattr(values, "columns"):
            return _from_columns(values, what)
        raise InputError(
            f"The {what} must be an array of real numbers with one row per draw, got {type(values).__name__}.",
            _how_to_convert(values),
        ) from None


def _from_columns(table: Any, what: str) -> Array:
    """Convert a DataFrame with columns of different types; missing values become NaN."""
    columns = []
    for name in table.columns:
        try:
            if np.asarray(table[name]).dtype.kind in "mM":  # dates and times
                raise TypeError
            columns.append(np.asarray(table[name], dtype=np.float64))
        except (TypeError, ValueError):
            raise InputError(f"Column {name} of the {what} is not numeric.", "Leave it out, or convert it.") from None
    return np.column_stack(columns)


def _how_to_convert(values: Any) -> str:
    """Return what to do with a value that is not an array of real numbers."""
    if hasattr(values, "posterior"):  # a DataTree, or an InferenceData of ArviZ 0.x
        return "Use ss.integrations.xarray.thin."
    if isinstance(values, Mapping) and not hasattr(values, "dims"):
        return "Join the parameters as columns: np.column_stack([*samples.values()])."
    if hasattr(values, "to_stacked_array"):  # an xarray.Dataset
        return 'Convert it: dataset.to_stacked_array("parameter", ["chain", "draw"]).'
    if isinstance(values, list | tuple) and values and np.ndim(values[0]) == 2:
        return "Chains of different lengths: pass the list to ss.parallel.thin(chains, workers=0)."
    if isinstance(values, list | tuple):
        return "Every row needs the same number of entries."
    return "Convert it to an array of numbers of shape (draws, dimensions)."


#: Names of the dimensions along which draws are stored, in the order that is expected.
_SAMPLE_DIMS = ("chain", "draw", "sample")


#: Other names of the dimensions of chains and draws, for example those of emcee.
_CHAIN_ALIASES, _DRAW_ALIASES = ("walker", "walkers", "chains"), ("step", "steps", "iteration", "iterations", "draws")


def with_common_names(values: Any) -> Any:
    """Return an ``xarray.DataArray`` whose dimensions of chains and draws are called ``chain`` and ``draw``."""
    dims = [str(name) for name in getattr(values, "dims", ())]
    renamed = {}
    for name, others, aliases in (("draw", {"draw", "sample"}, _DRAW_ALIASES), ("chain", {"chain"}, _CHAIN_ALIASES)):
        found = [alias for alias in aliases if alias in dims]
        if len(found) == 1 and not others & {*dims}:
            renamed[found[0]] = name
    return values.rename(renamed) if renamed and hasattr(values, "rename") else values


def _ordered_by_name(array: Any) -> Any:
    """Return the values of an ``xarray.DataArray``: chain, draw, then all other dimensions as one."""
    array = with_common_names(array)
    leading = [name for name in _SAMPLE_DIMS if name in array.dims]
    if not leading:
        return np.asarray(array)  # names that are not known: by position
    values = np.asarray(array.transpose(*leading, ...).values)
    shape = values.shape[: len(leading)]
    return values.reshape(*shape, -1) if values.ndim > len(leading) + 1 else values


def _as_table(values: ArrayLike, what: str) -> Array:
    """Convert draws or scores; a single parameter with named dimensions becomes a column."""
    values = with_common_names(values)
    array, dims = as_floats(values, what), [str(name) for name in getattr(values, "dims", ())]
    if not dims or all(name.startswith("dim_") for name in dims):
        return array
    others = [name for name in dims if name not in _SAMPLE_DIMS]
    if len(others) > 1 and "draw" in dims and "chain" not in dims:
        few = min(others, key=lambda name: np.shape(values)[dims.index(name)])
        raise InputError(
            f"The {what} have the dimensions {', '.join(dims)}, and {' or '.join(others)} may be the chains.",
            f'Name the chains, for example array.rename({few}="chain"), or join the parameters: '
            f"array.stack(parameter=[{', '.join(map(repr, others))}]).",
        )
    if not {"draw", "sample"} & {*dims}:
        longest = dims[int(np.argmax(np.shape(values)))]
        raise InputError(
            f"The {what} have the dimensions {', '.join(dims)}, and none of them is named draw.",
            f'Name the one along which the draws are stored, for example array.rename({longest}="draw").',
        )
    return array[..., None] if {*dims} <= {*_SAMPLE_DIMS} else array


def parameter_names(draws: Any) -> tuple[str, ...] | None:
    """Return the column names of a DataFrame or DataArray; None if there are none, or they are not unique strings."""
    draws = with_common_names(draws)
    names = [*getattr(draws, "columns", ())]
    others = [name for name in getattr(draws, "dims", ()) if name not in _SAMPLE_DIMS]
    if not names and len(others) == 1 and others[0] in getattr(draws, "indexes", ()):
        names = [*draws.indexes[others[0]]]
    valid = names and len({*names}) == len(names) and all(isinstance(name, str) for name in names)
    return tuple(names) if valid else None


def reject_path(values: object, what: str) -> None:
    """Raise an `InputError` if a file name was passed instead of an array."""
    if isinstance(values, str | PathLike):
        raise InputError(
            f"The {what} must be an array, got {str(values)!r}.",
            "Load the file and pass its arrays, or use the command line: steinstream thin FILE -o kept.npz.",
        )


def reject_masked(values: object, what: str) -> None:
    """Raise an `InputError` if entries of an array are masked."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        mask = np.ma.getmaskarray(values)
        first = tuple(int(place[0]) for place in np.nonzero(mask))
        raise InputError(
            f"The {what} have {int(mask.sum())} masked entries, the first at {first}.",
            'Fill them, or skip such draws with on_bad="skip".',
        )


def as_draws_and_scores(draws: ArrayLike, scores: ArrayLike | None, dim: int | None = None) -> tuple[Array, Array]:
    """Convert draws and scores to float64 arrays (n, d); without scores, the scores have shape (n, 0)."""
    scores = _in_order_of(draws, scores)
    x = _as_table(draws, "draws")
    if x.ndim != 2:
        raise InputError(
            f"Draws must have shape (draws, dimensions), got shape {x.shape}.",
            "Pass a single draw to push. For a single parameter, draws are a column: draws[:, None]."
            if x.ndim == 1
            else "Only ss.thin takes several chains, as (chains, draws, dimensions).",
        )
    s = np.zeros((len(x), 0)) if scores is None else _as_table(scores, "scores")
    if scores is not None and x.shape != s.shape:
        raise wrong_scores(x, s)
    if dim is not None and x.shape[1] != dim:
        raise InputError(
            f"Expected draws with {dim} dimensions, got {x.shape[1]}.",
            "Pass draws.T, and the scores likewise: one row per draw." if len(x) == dim else "",
        )
    if x.shape[1] == 0:
        raise InputError("The draws have no dimensions.")
    return x, s


def as_chains(draws: ArrayLike, scores: ArrayLike | None) -> list[Block]:
    """Convert arrays (n, d) or (chains, n, d) to one block per chain; ``scores`` is None for draws without scores."""
    if isinstance(scores, int | float | np.number):
        raise InputError(f"The scores are {scores}, not an array.", f"To keep {scores} draws, pass size={scores}.")
    scores = _in_order_of(draws, scores)
    x, s = _as_table(draws, "draws"), None if scores is None else _as_table(scores, "scores")
    if x.ndim == 3:
        _reject_swapped_chains(x)
    if x.ndim == 3 and s is not None and x.shape != s.shape:
        raise wrong_scores(x, s)
    chains = [*x] if x.ndim == 3 else [x]
    parts = [None] * len(chains) if s is None else [*s] if x.ndim == 3 else [s]
    arrays = [as_draws_and_scores(*pair) for pair in zip(chains, parts, strict=True)]
    if sum(len(x) for x, _ in arrays) == 0:
        raise InputError("No draws are given.")
    return [Block(x, s, consecutive_ids(chain, 0, len(x))) for chain, (x, s) in enumerate(arrays)]


def _in_order_of(draws: ArrayLike, scores: ArrayLike | None) -> ArrayLike | None:
    """Return scores with the columns of a DataFrame, or the labels of a DataArray, in the order of those of the draws.

    Columns of scores may have the prefix ``score_``. Without common names, the order is left as it is.
    """
    if hasattr(draws, "indexes") and hasattr(scores, "indexes"):
        return _with_labels_of(draws, scores)
    columns, others = ([str(name) for name in getattr(table, "columns", ())] for table in (draws, scores))
    if others and all(name.startswith("score_") for name in others):
        others = [name.removeprefix("score_") for name in others]
    if scores is None or columns == others or not {*columns} & {*others}:
        return scores
    if len(columns) != len({*columns}) or sorted(columns) != sorted(others):
        raise _different_names([*{*columns} ^ {*others}])
    return as_floats(scores, "scores")[:, [others.index(name) for name in columns]]


def _with_labels_of(draws: Any, scores: Any) -> ArrayLike:
    """Return an ``xarray.DataArray`` of scores in the order of the labels of the draws."""
    for dim in draws.dims:
        labels, others = draws.indexes.get(dim), scores.indexes.get(dim)
        if labels is None or others is None or labels.equals(others):
            continue
        if not labels.is_unique or sorted(labels) != sorted(others):
            raise _different_names([str(name) for name in labels.symmetric_difference(others)])
        scores = scores.reindex({dim: labels})
    ordered: ArrayLike = scores
    return ordered


def _different_names(names: list[str]) -> InputError:
    return InputError(
        f"Draws and scores have different names: {', '.join(sorted(names)[:6]) or 'some occur twice'}.",
        "Name the parameters of both in the same way.",
    )


#: Correlation of neighbours that shows the order of the axes, and the least number of chains that can show it.
_SWAPPED_CORRELATION, _SWAPPED_MIN_CHAINS = 0.5, 50


def _reject_swapped_chains(draws: Array) -> None:
    """Raise an `InputError` if draws (chains, n, d) are certainly in the order (n, chains, d), as in emcee."""
    if question := swapped_chains_question(draws):
        raise InputError(
            question,
            "Then pass np.swapaxes(draws, 0, 1), and the scores likewise. If the order is right, add the chains to a "
            "Thinner, one after another.",
        )


def swapped_chains_question(draws: Array, chains: int | None = None) -> str:
    """Return a question if draws (chains, n, d) are certainly in the order (n, chains, d), as emcee returns them.

    Different chains are independent: neighbours along the first axis are not correlated, unless that axis is time. The
    question is asked only if there are many chains, if neighbouring chains are strongly correlated, and if consecutive
    draws are not. ``draws`` may have fewer chains than ``chains``.

    Returns
    -------
    str
        The question; empty if the order is plausible.
    """
    given, count, dim = draws.shape
    if given < _SWAPPED_MIN_CHAINS or not count or not np.isfinite(draws).all():
        return ""
    centred = draws - draws.mean(axis=0)
    scale = np.sqrt((centred**2).mean(axis=(0, 1)))
    if not (scale > 0).all():
        return ""
    centred /= scale
    across = float((centred[1:] * centred[:-1]).mean())
    within = float((centred[:, 1:] * centred[:, :-1]).mean()) if count > 1 else 0.0
    if across <= _SWAPPED_CORRELATION or within >= across / 2:
        return ""
    of = f"{count} draws" if count > 1 else "one draw"
    consecutive = f" and consecutive draws are not ({within:.2f})" if count > 1 else ""
    return (
        f"Draws of shape {(chains or given, count, dim)} are {chains or given} chains of {of}, but "
        f"neighbouring chains are correlated ({across:.2f}){consecutive}. "
        "Is the order (draws, chains, dimensions)?"
    )


#: Largest number of rows, and least number of columns per row, of an array that has its draws along the columns.
_TRANSPOSED_MAX_ROWS, _TRANSPOSED_RATIO = 50, 20


def reject_transposed(draws: ArrayLike, size: int | None) -> None:
    """Raise an `InputError` if draws (n, d) are so few and so long that their order must be (d, n).

    If the size is less than n, the order is taken as intended.
    """
    try:
        shape = np.shape(draws)
    except (TypeError, ValueError, RuntimeError):  # not an array, which `as_floats` reports
        return
    if len(shape) != 2 or hasattr(draws, "columns") or hasattr(draws, "dims"):
        return
    if question := transposed_question(*shape, size):
        raise InputError(
            question,
            "Then pass draws.T, and the scores likewise. If the order is right, set size below the number of draws.",
        )


def transposed_question(rows: int, columns: int, size: int | None) -> str:
    """Return a question if an array (rows, columns) of draws has its draws along the columns; otherwise nothing."""
    few = rows <= _TRANSPOSED_MAX_ROWS and columns >= _TRANSPOSED_RATIO * rows
    if not few or rows <= 1 or (size is not None and size < rows):
        return ""
    return (
        f"Draws of shape {(rows, columns)} are {rows} draws in {columns} dimensions, too few to thin. "
        "Is the order (dimensions, draws)?"
    )


def as_weights(weights: ArrayLike, count: int) -> Array:
    """Validate the weights of ``count`` draws, whose sum may be any positive number."""
    wrong = InputError(f"Weights must be {count} non-negative numbers with a positive sum.")
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise wrong from None
    if values.shape != (count,) or not (values >= 0).all() or not 0 < values.sum() < np.inf:
        raise wrong
    return values


def as_probabilities(values: ArrayLike) -> Array:
    """Validate probabilities."""
    wrong = InputError(f"Probabilities must lie between 0 and 1, got {values!r}.")
    try:
        probabilities = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise wrong from None
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise wrong
    return probabilities


def as_features(features: ArrayLike, count: int) -> Array:
    """Convert the features of ``count`` draws to a (count, p) float64 array."""
    z = as_floats(features, "features")
    z = z.reshape(len(z), math.prod(z.shape[1:])) if z.ndim else z
    if z.ndim != 2 or len(z) != count or z.shape[1] == 0:
        raise InputError(f"features must have one row per draw ({count} rows), got shape {np.shape(features)}.")
    return z


def features_by(function: Callable[[Array], ArrayLike], draws: Array) -> Array:
    """Return the features (n, p) of draws (n, d), n > 0, by a function of one draw; NaN at invalid draws."""
    used = np.flatnonzero(np.isfinite(draws).all(axis=1))
    if len(used) == 0:  # the length of a feature vector is not known otherwise
        used = np.arange(len(draws))
    rows = [np.ravel(as_floats(function(draw), "features")) for draw in draws[used]]
    lengths = {len(row) for row in rows}
    if lengths == {0} or len(lengths) > 1:
        found = "empty vectors" if lengths == {0} else "vectors of different lengths"
        raise InputError(
            f"The function of the features returned {found}.", "Return as many numbers for every draw, at least one."
        )
    table = np.full((len(draws), len(rows[0])), np.nan)
    table[used] = rows
    return table


def wrong_scores(draws: Array, scores: Array) -> InputError:
    """Return the error for scores that do not have the shape of the draws."""
    return InputError(
        f"Draws have shape {draws.shape} and scores have shape {scores.shape}.",
        "Every draw needs its own score: the gradient of the log density at that draw.",
    )


def overflow_limit(linear: bool, storage: str = "float64") -> float:
    """Return the largest magnitude of a draw or score, for a kernel with or without a linear term."""
    return min(OVERFLOW_LIMIT**0.5 if linear else OVERFLOW_LIMIT, FLOAT32_LIMIT if storage == "float32" else np.inf)


def largest_magnitude(values: Array) -> float:
    """Return the largest absolute value; infinite if a value is not finite."""
    largest = max(-float(values.min(initial=0.0)), float(values.max(initial=0.0)))
    return largest if largest < math.inf else math.inf  # NaN too


def finite_rows(block: Block, on_bad: str, linear: bool = False, storage: str = "float64") -> NDArray[np.bool_]:
    """Return a mask of the rows whose values are finite and below the overflow limit.

    Unless ``on_bad`` is ``"skip"``, the first invalid row raises an error. The limit depends on whether the kernel has
    a linear term, and on the storage.

    Returns
    -------
    array of bool
        The mask, (n,).
    """
    draws, scores, ids, features, _ = block
    limit = overflow_limit(linear, storage)
    parts = [("draw", draws), ("score", scores)] + ([] if features is None else [("feature vector", features)])
    if all(part.min(initial=0.0) > -limit and part.max(initial=0.0) < limit for _, part in parts):
        return np.ones(len(draws), dtype=bool)
    rows = np.ones(len(draws), dtype=bool)
    for _, part in parts:
        rows &= (np.abs(part) < limit).all(axis=1)
    if on_bad == "raise" and not rows.all():
        row = int(np.flatnonzero(~rows)[0])
        for what, part in parts:
            values = part[row]
            bad = np.flatnonzero(~(np.abs(values) < limit))
            if len(bad):
                chain, draw = (int(i) for i in ids[row])
                above = f", above the limit of {limit:g}," if np.isfinite(values[bad[0]]) else ""
                raise InputError(
                    f"The {what} of chain {chain}, draw {draw} is {values[bad[0]]}{above} in coordinate {int(bad[0])}.",
                    'Correct the sampler\'s output, or skip such draws with on_bad="skip" (--on-bad skip).',
                )
    return rows


class Magnitudes(NamedTuple):
    """Largest absolute values of draws, scores and features; infinite if a value is not finite."""

    draw: float
    score: float
    feature: float

    @classmethod
    def of(cls, block: Block) -> Magnitudes:
        """Return those of a block."""
        parts = block.draws, block.scores, block.features
        return cls(*(0.0 if part is None else largest_magnitude(part) for part in parts))

    def joined(self, other: Magnitudes) -> Magnitudes:
        """Return those of two blocks together."""
        return Magnitudes(*map(max, self, other))


@dataclass(frozen=True)
class SteinIdentity:
    """Running mean of <x - mean, score>, which is -d under the target and +d if the sign of the scores is wrong.

    For a log-concave target the mean is negative for every set of draws, including burn-in. The memory is O(d). Above
    10 000 dimensions only evenly spaced coordinates are used, because the identity holds for each coordinate.
    """

    dim: int
    count: int = 0
    moment: float = 0.0
    mean_draw: Array = field(default_factory=lambda: np.zeros(0))
    mean_score: Array = field(default_factory=lambda: np.zeros(0))

    def updated(self, draws: Array, scores: Array) -> SteinIdentity:
        """Return the identity after more draws."""
        count = len(draws)
        if count == 0:
            return self
        draws, scores = draws[:, :: self._stride], scores[:, :: self._stride]
        draw, score = draws.mean(axis=0), scores.mean(axis=0)
        moment = float(np.sum((draws - draw) * (scores - score)))
        if self.count == 0:
            return SteinIdentity(self.dim, count, moment, draw, score)
        total = self.count + count
        draw_difference, score_difference = draw - self.mean_draw, score - self.mean_score
        moment += self.moment + float(draw_difference @ score_difference) * self.count * count / total
        weight = count / total
        return SteinIdentity(
            self.dim,
            total,
            moment,
            self.mean_draw + weight * draw_difference,
            self.mean_score + weight * score_difference,
        )

    @property
    def _stride(self) -> int:
        return -(-self.dim // IDENTITY_MAX_COORDINATES)

    @property
    def value(self) -> float:
        """The mean of <x - mean, score>."""
        return self.moment / self.count if self.count else 0.0

    @property
    def expected(self) -> int:
        """Its value under the target: minus the number of coordinates used."""
        return -self.dim // self._stride

    @property
    def negated(self) -> bool:
        """Whether the sign of the scores is certainly wrong, given enough draws."""
        return self.value > -self.expected / 2

    def require_plausible(self) -> None:
        """Raise a `NegatedScoresError` if the sign of the scores is certainly wrong."""
        if self.count >= IDENTITY_MIN_DRAWS and self.negated:
            raise NegatedScoresError(
                f"The scores look negated: the mean of <x - mean, score> is {self.value:+.3g}, "
                f"but Stein's identity requires {self.expected}.",
                "Pass the gradient of the log density itself: -scores, or --negate-scores. "
                "If the sign is right, use validate_scores=False (--no-validate-scores).",
            )
