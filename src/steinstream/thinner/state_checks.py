"""Validation of the state in a checkpoint, before any of it is used.

A checkpoint may be forged: its checksum says that it was not damaged, not who wrote it. Compiled code does not check
indices, so every array must have the type and the shape that the thinner itself would write, and every index, counter
and number must be in its range. `check_state` is the only place that decides this. Expected types and shapes are those
of an empty state with the same settings; only numbers of rows differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steinstream._typing import AnyArray, Integers
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner, Streaming, Warmup, same_preconditioner
from steinstream.thinner.chain_worth import BATCHES, COLUMNS, stream_factor
from steinstream.thinner.features import FeatureMap
from steinstream.thinner.layout import DRAWS, STREAM_ON, DrawLayout
from steinstream.thinner.state import ThinnerState
from steinstream.validation import IDENTITY_MAX_COORDINATES

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig

_LARGEST = 2**53  # of counters and ids
_LARGEST_VALUE = 1e150  # of numbers whose squares must be finite
_MOST_KEPT = 1e9  # in the terms of the bound, where a loop counts down from it
_WIDEST = 1 << 24  # numbers of a feature vector; twenty bytes of memory for each, whatever the size of the checkpoint
_ROUNDING = 1e-9  # difference of two computations of the same coordinates, relative to the largest one
_PENALTIES = frozenset(
    (
        *("cost", "pinned", "penalty_scalars", "stream_sum"),
        *("stream", "stream_levels", "stream_ids", "stream_numbers", "stream_squared_error"),
    )
)


def check_state(config: ThinConfig, values: Mapping[str, Any]) -> None:
    """Raise an `InputError` that names the first invalid value of a state that was read from a file."""
    root = _Fields("state", values)
    dim = root.whole("dim", 1)
    layout = _layout(root, dim)
    fixed = _preconditioner(root, config, dim)
    empty = _Fields("state", _empty_state(config, dim, layout, fixed))
    root.same_keys(empty)
    seen = _counters(root)
    _stein_identity(root.part("stein_identity"), dim)
    _draws(root, layout, dim)
    _history(root.part("history"))
    _pass(root.part("current_pass"), empty.part("current_pass"))
    if root.agree(empty, "second_score_noise"):
        _moments(root.part("second_score_noise"), empty.part("second_score_noise"))
    if root.agree(empty, "estimator"):
        root.part("estimator").wholes("changes")
        _window(root.part("estimator").part("window"), empty.part("estimator").part("window"))
    if root.agree(empty, "worth"):
        _worth(root.part("worth"), dim, seen)
    if fixed is not None:
        from steinstream._engine.online_stats import TRACE  # loads numba

        terms = root.array("bound", empty["bound"].dtype, empty["bound"].shape, 0.0)
        if terms.size and (number := terms[(TRACE.names or ()).index("kept")]) > _MOST_KEPT:
            raise root.wrong("bound", f"it has {number:g} kept draws")
        kept = root.part("kept")
        check = _kept_float32 if config.storage == "float32" else _kept
        check(kept, empty.part("kept"), bool(config.stream_weight or config.cost_weight), layout or DrawLayout(dim))
        if layout is not None and config.storage != "float32":
            _coordinates(kept, layout, fixed)
            if "penalty_scalars" in kept.keys:
                _sums_of_penalties(kept, config, dim)
        if len(kept["ids"]) and layout is None:
            raise kept.wrong("ids", "there are kept draws, but no layout of draws")
        if len(kept["ids"]) > seen + root.part("counters")["initial_size"]:
            raise kept.wrong("ids", f"there are {len(kept['ids'])} kept draws of {seen}")
    if not isinstance(root["note"], dict):
        raise root.wrong("note", "it is not a table of names and values")


def _empty_state(
    config: ThinConfig, dim: int, layout: DrawLayout | None, fixed: Preconditioner | None
) -> dict[str, Any]:
    """Return the state of a thinner without draws, with these settings."""
    state = ThinnerState.create(dim, config)
    if layout is not None:
        state.set_layout(config, layout)
    if fixed is not None:
        state.open_dictionary(config, fixed)
    return state.to_dict()


class _Fields:
    """Named values of a part of the state; every method raises an error that names the invalid one."""

    def __init__(self, name: str, values: Any) -> None:
        self._name = name
        if not isinstance(values, Mapping):
            raise InputError(f"{name} is not a table of names and values.")
        self._values = values
        self._rows: dict[str, int] = {}

    def wrong(self, name: str, what: str) -> InputError:
        return InputError(f"{self._name}.{name} is invalid: {what}.")

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise InputError(f"{self._name} has no {name}.")
        return self._values[name]

    def values(self) -> dict[str, Any]:
        return dict(self._values)

    @property
    def keys(self) -> set[str]:
        """Names of all values."""
        return set(self._values)

    def part(self, name: str) -> _Fields:
        return _Fields(f"{self._name}.{name}", self[name])

    def same_keys(self, other: _Fields) -> None:
        """Require the names of the other values."""
        if self.keys != other.keys:
            different = ", ".join(sorted(map(str, self.keys ^ other.keys)))
            raise InputError(f"{self._name} has missing or unknown values: {different}.")

    def agree(self, other: _Fields, name: str) -> bool:
        """Return whether a part exists, which it must if and only if it exists in the other values."""
        if (self[name] is None) != (other[name] is None):
            raise self.wrong(name, "it does not fit the settings")
        return self[name] is not None

    def flag(self, name: str) -> bool:
        if not isinstance(self[name], bool):
            raise self.wrong(name, "it is not true or false")
        return bool(self[name])

    def whole(self, name: str, least: int = 0, most: int = _LARGEST) -> int:
        """Return a whole number in a range."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"it is {value!r}, expected a whole number from {least} to {most}")
        return value

    def wholes(self, name: str) -> list[int]:
        value = self[name]
        if not isinstance(value, list) or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
            raise self.wrong(name, "it is not a list of whole numbers")
        return value

    def number(
        self, name: str, least: float = -_LARGEST_VALUE, most: float = _LARGEST_VALUE, *, optional: bool = False
    ) -> None:
        """Require a number in a range."""
        value = self[name]
        if value is None and optional:
            return
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not least <= value <= most:
            raise self.wrong(name, f"it is {value!r}, expected a number from {least:g} to {most:g}")

    def array(
        self, name: str, dtype: Any, shape: Sequence[int | str | None], low: float | None = None, *, finite: bool = True
    ) -> AnyArray:
        """Return an array of this type, with values of at least ``low``.

        Returns
        -------
        array
            Of this shape, in which None is any size, and a name one size, the same in all arrays of this part.
        """
        value = self[name]
        if not isinstance(value, np.ndarray):
            raise self.wrong(name, "it is not an array")
        sizes = [size if not isinstance(size, str) else self._rows.get(size) for size in shape]
        fits = value.ndim == len(sizes) and all(n in (None, m) for n, m in zip(sizes, value.shape, strict=True))
        if value.dtype != np.dtype(dtype) or not fits or not value.flags.c_contiguous:
            expected = tuple("any" if size is None else size for size in sizes)
            raise self.wrong(
                name, f"it has shape {value.shape} and type {value.dtype}, expected {expected} and {np.dtype(dtype)}"
            )
        self._rows |= {size: m for size, m in zip(shape, value.shape, strict=True) if isinstance(size, str)}
        if finite and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise self.wrong(name, "a value is not finite")
        if low is not None and value.size and value.min() < low:
            raise self.wrong(name, f"it contains {value.min()}, expected at least {low}")
        return value

    def ids(self, name: str, columns: int, rows: int | str | None) -> Integers:
        """Return an array of ids (chain, index), or (chain, index, step)."""
        value: Integers = self.array(name, np.int64, (rows, columns), -_LARGEST)
        if value.size and value.max() > _LARGEST:
            raise self.wrong(name, f"it contains {value.max()}")
        return value

    def like(self, other: _Fields, name: str, rows: str | None = None, **how: Any) -> AnyArray:
        """Return an array with the type and the shape of the other one; the first size is ``rows``."""
        expected = other[name]
        return self.array(name, expected.dtype, (rows, *expected.shape[1:]) if rows else expected.shape, **how)


# -- parts of the state ------------------------------------------------------------------------------------------------


def _layout(root: _Fields, dim: int) -> DrawLayout | None:
    if root["layout"] is None:
        return None
    fields = root.part("layout")
    fields.same_keys(_Fields("", DrawLayout(dim).state()))
    if fields.whole("dim") != dim:
        raise fields.wrong("dim", f"it is {fields['dim']}, expected {dim}")
    if fields["stream_on"] not in STREAM_ON:
        raise fields.wrong("stream_on", f"it is {fields['stream_on']!r}, expected one of {', '.join(STREAM_ON)}")
    if fields.flag("has_second_scores") and not fields.flag("has_scores"):
        raise fields.wrong("has_second_scores", "scores are missing")
    fields.flag("has_scores")
    if fields.flag("has_ratios") and (fields["has_second_scores"] or not fields["has_scores"]):
        raise fields.wrong("has_ratios", "density ratios need scores, without second scores")
    if fields["features"] is None:
        if fields["stream_on"] != DRAWS:
            raise fields.wrong("stream_on", "features are missing")
        return DrawLayout.restored(fields.values())
    features = fields.part("features")
    expected = FeatureMap(features.whole("width", 1, _WIDEST))
    features.same_keys(_Fields("", expected.state()))
    most = expected.components
    projection = features.array("projection", np.float64, (expected.sketch_width, None))
    if not 1 <= projection.shape[1] <= most:
        raise features.wrong("projection", f"it has {projection.shape[1]} columns, expected at most {most}")
    features.array("centre", np.float64, (expected.sketch_width,))
    _window(features.part("window"), _Fields("", expected.state()).part("window"))
    return DrawLayout.restored(fields.values())


def _preconditioner(root: _Fields, config: ThinConfig, dim: int) -> Preconditioner | None:
    """Return the fixed preconditioner; None during a warm-up."""
    if (root["preconditioner"] is None) != (root["kept"] is None) or (root["bound"] is None) != (root["kept"] is None):
        raise root.wrong("kept", "kept draws require a preconditioner and terms of the bound")
    if root["preconditioner"] is None:
        if not isinstance(config.live_preconditioner, Warmup):
            raise root.wrong("preconditioner", "it is missing, and the settings have no warm-up")
        return None
    fields = root.part("preconditioner")
    if fields.keys != {"factor", "centre"}:
        raise root.wrong("preconditioner", "it must have factor and centre")
    factor = fields["factor"]
    if not isinstance(factor, np.ndarray) or factor.ndim > 2:
        raise fields.wrong("factor", "it is not a number, scales or a matrix")
    fields.array("factor", np.float64, [(), (dim,), (dim, dim)][factor.ndim])
    if fields["centre"] is not None:
        fields.array("centre", np.float64, (dim,))
    found = Preconditioner(factor, fields["centre"])
    given = config.live_preconditioner
    if isinstance(given, Preconditioner) and not same_preconditioner(given, found):
        raise root.wrong("preconditioner", "it differs from that of the settings")
    if not isinstance(given, Preconditioner | Warmup | Streaming):
        raise root.wrong("preconditioner", "it does not fit the settings")
    return found


def _counters(root: _Fields) -> int:
    """Return the number of draws received."""
    counters = root.part("counters")
    for name in ("steps", "seen", "initial_size", "external_initial"):
        counters.whole(name)
    counters.whole("skipped", 0, counters["seen"])
    counters.flag("sign_validated")
    root.part("sanity_checks").flag("scores")
    if root.ids("next_index", 2, None)[:, 1].min(initial=0) < 0:
        raise root.wrong("next_index", "an index is negative")
    return int(counters["seen"])


def _stein_identity(fields: _Fields, dim: int) -> None:
    count = fields.whole("count")
    fields.number("moment", -(_LARGEST_VALUE**2), _LARGEST_VALUE**2)
    coordinates = len(range(0, dim, -(-dim // IDENTITY_MAX_COORDINATES))) if count else 0
    for name in ("mean_draw", "mean_score"):
        fields.array(name, np.float64, (coordinates,))


def _draws(root: _Fields, layout: DrawLayout | None, dim: int) -> None:
    """Check draws that are pending, and the subsample of the stream."""
    shape = layout or DrawLayout(dim)
    pending = root.part("pending")
    rows = len(pending.array("draws", np.float64, ("rows", dim)))
    pending.ids("ids", 2, "rows")
    widths = dim * (shape.has_scores + shape.has_second_scores)
    pending.array("scores", np.float64, ("rows", widths if rows else None))
    sketch = None if shape.features is None else shape.features.sketch_width
    if pending["features"] is not None:
        pending.array("features", np.float64, ("rows", sketch if rows else None))
    if rows and ((pending["features"] is None) != (sketch is None) or layout is None):
        raise pending.wrong("features", "they do not fit the layout of the draws")
    if pending["ratios"] is not None:
        pending.array("ratios", np.float64, ("rows", 1), 0.0)
    if rows and (pending["ratios"] is None) == shape.has_ratios:
        raise pending.wrong("ratios", "they do not fit the layout of the draws")
    if root["pending_marks"] is not None:
        marks = root.part("pending_marks")
        marks.array("costs", np.float64, (rows,), 0.0)
        marks.array("pinned", np.bool_, (rows,))
    held = root.part("subsample")
    rows = len(held.array("draws", np.float64, ("rows", dim)))
    held.array("scores", np.float64, ("rows", dim * shape.has_scores if rows else None))
    held.ids("ids", 2, "rows")
    indices = held.array("indices", np.int64, ("rows",), 0)
    stride = held.whole("stride", 1)
    order = np.argsort(held["ids"][:, 0], kind="stable")
    same = held["ids"][order[1:], 0] == held["ids"][order[:-1], 0]
    if (indices % stride != 0).any() or (np.diff(indices[order])[same] <= 0).any():
        raise held.wrong("indices", "they are not increasing multiples of the stride")
    if held.ids("next", 2, None)[:, 1].min(initial=0) < 0:
        raise held.wrong("next", "an index is negative")


def _history(fields: _Fields) -> None:
    for name, dtype in (("step", np.int64), ("size", np.int64), ("ksd", np.float64), ("mmd", np.float64)):
        fields.array(name, dtype, ("rows",), finite=False)


def _pass(fields: _Fields, empty: _Fields) -> None:
    fields.same_keys(empty)
    fields.whole("number", 1)
    fields.whole("received")
    if fields["held"] is not None:
        fields.whole("held", 1)
    fields.ids("not_offered", 2, None)
    for name in ("initial_root", "bound"):
        fields.number(name, 0.0, optional=True)
    past = fields["past_ksd"]
    real = isinstance(past, list) and all(type(value) in (int, float) for value in past)
    if not real or any(not (math.isnan(value) or 0 <= value <= _LARGEST_VALUE) for value in past):
        raise fields.wrong("past_ksd", "it is not a list of numbers of at least 0")
    for name in ("has_bound", "fixed_stream", "corrected_stream"):
        fields.flag(name)


def _moments(fields: _Fields, empty: _Fields) -> int:
    """Check running moments, and return their number of draws."""
    fields.same_keys(empty)
    for name in ("mean", "second", "last"):
        fields.like(empty, name)
    count, distinct = fields.like(empty, "counts", low=0).tolist()
    if not distinct <= count <= _LARGEST:
        raise fields.wrong("counts", f"{distinct} distinct draws of {count}")
    return int(count)


def _window(fields: _Fields, empty: _Fields) -> None:
    fields.same_keys(empty)
    seen = fields.whole("seen")
    fields.whole("due", seen + 1)
    if _moments(fields.part("moments"), empty.part("moments")) > seen:
        raise fields.wrong("moments", f"they are of more draws than {seen}")


def _worth(fields: _Fields, dim: int, seen: int) -> None:
    fields.number("effective_draws", 1.0, max(seen, 1), optional=True)
    chains = fields.part("chains")
    for number in chains.keys:
        try:
            int(number)
        except ValueError:
            raise fields.wrong("chains", f"{number!r} is not the number of a chain") from None
        chain = chains.part(number)
        batches, columns = chain.part("batches"), min(dim, COLUMNS)
        batches.array("first", np.float64, (columns,))
        for name in ("sums", "squares"):
            batches.array(name, np.float64, (BATCHES, columns))
        length, count, current, seen = batches.array("numbers", np.int64, (4,), 0).tolist()
        if not (1 <= length <= _LARGEST and count < BATCHES and current < length and seen == count * length + current):
            raise batches.wrong("numbers", f"they are {[length, count, current, seen]}")
        starts = chain.array("starts", np.int64, (count + (current > 0),), -_LARGEST)
        chain.whole("due", seen + 1)
        burn_in = chain.whole("burn_in")
        if burn_in and -(-burn_in // length) >= len(starts):
            raise chain.wrong("burn_in", f"it is {burn_in} of {seen} draws")


# -- kept draws --------------------------------------------------------------------------------------------------------


def _kept(fields: _Fields, empty: _Fields, penalised: bool, layout: DrawLayout) -> None:
    present = fields.keys & _PENALTIES  # also without a stream term or costs, once a draw was pinned
    expected = (empty.keys - _PENALTIES) | (_PENALTIES if present or penalised else set())
    if fields.keys != expected:
        raise InputError(f"state.kept has missing or unknown values: {', '.join(sorted(fields.keys ^ expected))}.")
    copies = fields.array("copies", np.int64, ("slots",), 1)
    for name in ("draws", "raw", "influence"):
        fields.like(empty, name, "slots")
    labels = len(fields.ids("ids", 3, "labels"))
    if copies.sum() != labels or (copies > labels).any():
        raise fields.wrong("copies", f"they are of {copies.sum()} draws, but there are {labels}")
    latest = int(fields.like(empty, "latest"))
    if not -1 <= latest < len(copies):
        raise fields.wrong("latest", f"it is {latest}, but there are {len(copies)} states")
    total, low, largest = fields.like(empty, "total").tolist()
    if abs(low) > _ROUNDING * (abs(total) + largest * float(copies.sum()) ** 2) or largest < 0.0:
        raise fields.wrong("total", f"it is {[total, low, largest]}")
    if present:
        fields.array("cost", np.float64, ("labels",), 0.0)
        fields.array("pinned", np.bool_, ("labels",))
        from steinstream._engine.penalties import PENALTY_SCALARS  # loads numba

        fields.array("penalty_scalars", np.float64, (len(PENALTY_SCALARS.names or ()),))
        fields.array("stream_sum", np.float64, ("slots",))
        _summary(fields, layout.base_width)


def _coordinates(fields: _Fields, layout: DrawLayout, preconditioner: Preconditioner) -> None:
    """Check that the points of the kernel are the draws as given in the coordinates of the preconditioner."""
    points, raw = fields["draws"], fields["raw"]
    if raw.shape[1] != layout.width:  # the points are the draws as given
        return
    expected = np.hstack(layout.kernel_coordinates(layout.split(raw).block(), preconditioner))
    scale = np.abs(expected).max(axis=0, initial=0.0)
    if (np.abs(points - expected) > _ROUNDING * scale).any():
        raise fields.wrong("draws", "they are not the stored draws in the coordinates of the preconditioner")


def _sums_of_penalties(fields: _Fields, config: ThinConfig, dim: int) -> None:
    """Check counts, weights and sums of the penalties: a base kernel has values from 0 to phi(0)."""
    from steinstream._engine.penalties import PENALTY_SCALARS  # loads numba

    numbers = dict(zip(PENALTY_SCALARS.names or (), fields["penalty_scalars"].tolist(), strict=True))
    for name, value in numbers.items():
        if value < 0.0 and not name.endswith("_low") and name != "log_diagonal_sum":
            raise fields.wrong("penalty_scalars", f"{name} is {value}")
    if not config.stream_weight:
        return
    if not numbers["gamma"] <= stream_factor(1.0, dim) * (1.0 + _ROUNDING) * config.stream_weight:
        raise fields.wrong("penalty_scalars", f"gamma is {numbers['gamma']}, the stream weight {config.stream_weight}")
    if numbers["count"] != float((2 ** fields["stream_levels"]).sum()):
        raise fields.wrong("penalty_scalars", f"count is {numbers['count']}, not that of the stream")
    zero = np.zeros((1, 1))
    largest = float(config.kernel.base_matrix(zero, zero)[0, 0]) * numbers["count"] * (1.0 + _ROUNDING)
    sums = fields["stream_sum"]
    if (
        sums.min(initial=0.0) < 0.0
        or sums.max(initial=0.0) > largest
        or numbers["pair_sum"] > largest * numbers["count"]
    ):
        raise fields.wrong("stream_sum", f"a sum over the stream is not between 0 and {largest:g}")


def _kept_float32(fields: _Fields, empty: _Fields, penalised: bool, layout: DrawLayout) -> None:
    fields.same_keys(empty)
    for name in ("draws", "scores"):
        fields.like(empty, name, "draws")
    rows = len(fields.ids("ids", 3, "draws"))
    fields.array("matrix", np.float64, (rows, rows))
    if "stream_term" in empty.keys:
        term, expected = fields.part("stream_term"), empty.part("stream_term")
        term.same_keys(expected)
        term.like(expected, "sketches", "draws")
        if len(term.array("stream_sums", np.float64, ("draws",))) != rows:
            raise term.wrong("stream_sums", f"they are of {len(term['stream_sums'])} draws, expected {rows}")
        term.like(expected, "sums")
        _summary(term, expected["stream"].shape[1])


def _summary(fields: _Fields, width: int) -> None:
    """Check the summary of a stream: no level may have more draws than the compiled code has space for."""
    from steinstream._engine.stream_summary import LEVELS, capacity  # loads numba

    fields.array("stream", np.float64, ("stream", width))
    levels = fields.array("stream_levels", np.int64, ("stream",), 0)
    fields.ids("stream_ids", 2, "stream")
    fields.array("stream_squared_error", np.float64, (), 0.0)
    seen, highest = fields.array("stream_numbers", np.int64, (2,), 0).tolist()
    if highest > LEVELS - 2 or seen > _LARGEST or (np.diff(levels) < 0).any() or (levels > highest).any():
        raise fields.wrong("stream_levels", "they are not increasing, or above the highest level")
    if 2**highest > max(seen, 1) or int((2**levels).sum()) > seen:
        raise fields.wrong("stream_numbers", f"the levels represent more than {seen} draws")
    counts = np.bincount(levels, minlength=1)
    # A level becomes smaller when a new highest one is added, and is halved only when it receives its next draw.
    if any(count > capacity(level, max(level, highest - 1)) for level, count in enumerate(counts.tolist())):
        raise fields.wrong("stream_levels", "a level has too many draws")
