"""Validation of a kept set that was read from a file, which may be damaged or forged, and of weights in memory.

Draws and scores are validated as those of a chain. Everything else must have the shape, the type and the range that
`Kept` documents, so that no code after this point meets anything else.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io.base import printable
from steinstream.kernels import IMQ, RBF, Kernel
from steinstream.result import History, Kept, SummarisedStream, Variable
from steinstream.validation import Block, finite_rows

SUMMARY_DRAWS, SUMMARY_WEIGHTS = "stream_summary_draws", "stream_summary_weights"
VARIABLE_KINDS = "biufcUSOMm"  # of the NumPy types of variables
_SUM_TOLERANCE = 1e-6
_LARGEST_WEIGHT = 2e30  # of a stream term
_LARGEST_STATISTIC = 1e100  # whose square does not overflow
_ABOVE_ONE = 1.0 + 1e-6  # of the trust, which is rounded
_COUNTS = {"seen", "skipped", "initial", "steps"}
_STATISTICS = {*_COUNTS, "effective_draws", "burn_in", "trust", "second_scores_noise", "stream_error"}
_TYPES: dict[frozenset[str], type] = {
    frozenset({"config", "merged", "source", "leaf"}): dict,
    frozenset({"commands", "preconditioner_changed", "burn_in_ends"}): list,
    frozenset({"corrected_stream"}): bool,
}


def checked_kept(kept: Kept, where: str) -> Kept:
    """Return a kept set with arrays of the documented types, or raise an `InputError` that names what is wrong."""
    check = _Check(where)
    draws = check.floats("draws", kept.draws, (None, None))
    rows, dim = draws.shape
    if dim == 0:
        raise check.wrong("draws have no dimensions")
    ids = check.integers("ids", kept.ids, (rows, 2))
    scores = None if kept.scores is None else check.floats("scores", kept.scores, (rows, dim))
    second = None if kept.second_scores is None else check.floats("second_scores", kept.second_scores, (rows, dim))
    for values in (scores, second):
        try:
            finite_rows(Block(draws, np.zeros((rows, 0)) if values is None else values, ids), "raise")
        except InputError as error:
            raise check.wrong(error.problem.rstrip(".")) from None
    names = None if kept.names is None else tuple(map(printable, kept.names))
    if names is not None and len(names) != dim:
        raise check.wrong(f"{len(names)} names for {dim} parameters")
    check.settings(kept.settings)
    if kept.preconditioner is not None:
        kept.preconditioner.require(dim)
    return replace(
        kept,
        draws=draws,
        scores=scores,
        second_scores=second,
        ids=ids,
        names=names,
        ksd=check.measure("ksd", kept.ksd, scores is not None and rows > 0),
        mmd=check.measure("mmd", kept.mmd, False),
        bound=None if kept.bound is None else check.measure("bound", kept.bound, False, infinite=True),
        history=check.history(kept.history),
        weights=None if kept.weights is None else check.weights(kept.weights, rows),
        prefix_ksd=None if kept.prefix_ksd is None else check.floats("prefix_ksd", kept.prefix_ksd, (rows,)),
        stream_summary=None if kept.stream_summary is None else check.summary(kept.stream_summary, dim),
        variables={printable(name): check.variable(name, one, rows) for name, one in kept.variables.items()},
    )


def require_weights(kept: Kept, where: str) -> None:
    """Raise an `InputError` if the weights of a kept set are negative, or do not have the sum 1."""
    if kept.weights is not None:
        _Check(where).weights(kept.weights, len(kept))


def checked_stream(draws: Any, scores: Any, ids: Any, dim: int, where: str) -> Block:
    """Return draws of a stream, with or without scores, or raise an `InputError` that names what is wrong."""
    check = _Check(where, "stream of a chain")
    draws = check.floats("draws", draws, (None, dim))
    scores = check.floats("scores", scores, (len(draws), None if np.shape(scores)[1:] == (0,) else dim))
    block = Block(draws, scores, check.integers("ids", ids, (len(draws), 2)))
    try:
        finite_rows(block, "raise")
    except InputError as error:
        raise check.wrong(error.problem.rstrip(".")) from None
    return block


class _Check:
    """Checks of single values of one kept set."""

    def __init__(self, where: str, what: str = "kept set") -> None:
        self._where, self._what = where, what

    def wrong(self, what: str) -> InputError:
        return InputError(f"{self._where} is not a valid {self._what}: {what}.", "Create it again with steinstream.")

    def array(self, name: str, values: Any, shape: tuple[int | None, ...], kinds: str) -> AnyArray:
        """Return values as an array of a shape, in which None is any length, and of a kind."""
        array = np.asarray(values)
        fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if not fits or array.dtype.kind not in kinds:
            expected = str(tuple("any" if n is None else n for n in shape)).replace("'", "")
            raise self.wrong(f"{name} has shape {array.shape} and dtype {array.dtype}, expected shape {expected}")
        return array

    def floats(self, name: str, values: Any, shape: tuple[int | None, ...]) -> Array:
        return np.ascontiguousarray(self.array(name, values, shape, "fiu"), dtype=np.float64)

    def integers(self, name: str, values: Any, shape: tuple[int | None, ...]) -> Integers:
        array = self.array(name, values, shape, "iu")
        if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise self.wrong(f"{name} contains {int(array.max())}, which is too large")
        return np.ascontiguousarray(array, dtype=np.int64)

    def measure(self, name: str, value: Any, required: bool, *, infinite: bool = False) -> float:
        """Return a number that is at least 0; NaN unless it is required."""
        number = float(value)
        if not (0.0 <= number < math.inf or (math.isnan(number) and not required) or (infinite and number == math.inf)):
            raise self.wrong(f"{name} is {number}")
        return number

    def weights(self, values: Any, rows: int) -> Array:
        """Return weights that are not negative, with sum 1."""
        weights = self.floats("weights", values, (rows,))
        if not (weights >= 0).all() or not abs(weights.sum() - 1.0) < _SUM_TOLERANCE:
            raise self.wrong("weights must be at least 0 and have the sum 1")
        return weights

    def summary(self, summary: SummarisedStream, dim: int) -> SummarisedStream:
        """Return finite draws with positive weights."""
        draws = self.floats(SUMMARY_DRAWS, summary.draws, (None, dim))
        weights = self.floats(SUMMARY_WEIGHTS, summary.weights, (len(draws),))
        if len(draws) == 0 or not (np.isfinite(draws).all() and np.isfinite(weights).all() and (weights > 0).all()):
            raise self.wrong("the summary of the stream is empty, not finite, or has weights that are not positive")
        return replace(summary, draws=draws, weights=weights)

    def settings(self, settings: Any) -> None:
        """Require the types of those settings that other code uses."""
        if not isinstance(settings, dict):
            raise self.wrong("settings are not a table of names and values")
        for name in settings.keys() & _STATISTICS:
            if settings[name] is not None or name in _COUNTS:
                self.setting(name, settings[name], _ABOVE_ONE if name == "trust" else _LARGEST_STATISTIC)
            if name in _COUNTS and type(settings[name]) is not int:
                raise self.wrong(f"the setting {name} is {reprlib.repr(settings[name])}, expected a whole number")
        for names, kind in _TYPES.items():
            for name in settings.keys() & names:
                if not isinstance(settings[name], kind):
                    raise self.wrong(f"the setting {name} is {reprlib.repr(settings[name])}")
        for name in ("config", "merged"):
            self.setting(f"{name}.stream_weight", settings.get(name, {}).get("stream_weight", 0.0), _LARGEST_WEIGHT)
        for step in settings.get("preconditioner_changed", []):
            self.setting("preconditioner_changed", step, math.inf)
        for pair in settings.get("burn_in_ends", []):
            if not (isinstance(pair, list) and len(pair) == 2 and all(type(each) is int for each in pair)):
                raise self.wrong(f"the setting burn_in_ends is {reprlib.repr(settings['burn_in_ends'])}")

    def setting(self, name: str, value: Any, limit: float) -> None:
        """Require a number that is at least 0 and below a limit."""
        if type(value) not in (int, float) or not 0 <= value < limit:
            raise self.wrong(f"the setting {name} is {reprlib.repr(value)}")

    def history(self, history: History) -> History:
        """Return the history; all its parts have the same length."""
        rows = len(self.array("history_step", history.step, (None,), "iu"))
        return History(
            self.integers("history_step", history.step, (rows,)),
            self.integers("history_size", history.size, (rows,)),
            self.floats("history_ksd", history.ksd, (rows,)),
            self.floats("history_mmd", history.mmd, (rows,)),
        )

    def variable(self, name: str, variable: Variable, rows: int) -> Variable:
        """Return a variable with one value or array per draw."""
        values, dims, coords = np.asarray(variable.values), tuple(map(str, variable.dims)), variable.coords
        if values.ndim != 1 + len(dims) or len(values) != rows or values.dtype.kind not in VARIABLE_KINDS:
            raise self.wrong(f"the variable {name} has shape {values.shape} and dimensions {dims} for {rows} draws")
        for dim, labels in coords.items():
            if dim not in dims or np.shape(labels) != (values.shape[1 + dims.index(dim)],):
                raise self.wrong(f"the labels {dim} of the variable {name} have shape {np.shape(labels)}")
        return Variable(values, dims, coords)


def summary_to_arrays(summary: SummarisedStream | None) -> dict[str, Array]:
    """Return the summary of the stream; a summary of features is not written, because the map would be missing."""
    if summary is None or summary.features is not None:
        return {}
    return {SUMMARY_DRAWS: summary.draws, SUMMARY_WEIGHTS: summary.weights}


def summary_from_arrays(arrays: Mapping[str, Any]) -> SummarisedStream | None:
    """Return the summary of the stream; None if it was not written."""
    if not {SUMMARY_DRAWS, SUMMARY_WEIGHTS} <= arrays.keys():
        return None
    return SummarisedStream(arrays[SUMMARY_DRAWS], arrays[SUMMARY_WEIGHTS])


def parse_kernel(text: object) -> Kernel | None:
    """Create a kernel from its representation in the settings; None if there is none."""
    if text is None:
        return None
    name, _, rest = str(text).rstrip(")").partition("(")
    kernel: type[Kernel] | None = {"IMQ": IMQ, "RBF": RBF}.get(name)
    if kernel is None:
        raise InputError(f"Unknown kernel {str(text)[:40]!r}.", "Write the kept set again with steinstream.")
    pairs = [part.partition("=") for part in rest.split(", ") if part]
    return kernel(**{key: None if value == "None" else float(value) for key, _, value in pairs})
