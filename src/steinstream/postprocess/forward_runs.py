"""Forward simulations of the kept draws: the list of runs, and the average of their outputs.

A run is one simulation: a distinct state among the kept draws. Its number is its position among the states sorted by id
(chain, draw), so it does not depend on order and weights. Runs are listed in order of use, see
:mod:`steinstream.postprocess.ordering`: whenever the simulations stop, the finished runs are a good set.

A run fails if it has no output, an output that is not a finite number, or a status that is not a success. Failed runs
are left out, and the weights of the others are divided by their sum.

The standard error of a mean is estimated from its changes along the order of use. Let m_k be the mean of the first k
of n runs. For independent runs, the variances of m_k - m_n and of m_n have a known ratio, 1 / k - 1 / n to 1 / n if all
weights are equal. The estimate is the mean square of m_k - m_n over the second half of the runs, divided by this ratio.
The means of an ordered set settle faster than those of independent draws, and the standard error shows this. It does
not contain the error of the chain.
"""

from __future__ import annotations

import csv
import gzip
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._formatting import aligned, listing, rounded
from steinstream._processes import evaluate
from steinstream._typing import AnyArray, Array, Integers
from steinstream.diagnostics.summary import weighted_quantiles
from steinstream.errors import FailedRunsWarning, InputError, positive
from steinstream.io.atomic import replacing
from steinstream.io.errors import need, reading
from steinstream.result import Kept

#: What `Kept.average` accepts: a file, a table, an array, or the simulation itself.
Outputs = str | PathLike[str] | ArrayLike | Mapping[str, Sequence[Any]] | Callable[[Array], ArrayLike]

RUN, CHAIN, DRAW, WEIGHT, MULTIPLICITY, STATUS = "run", "chain", "draw", "weight", "multiplicity", "status"

#: Values of the column ``status`` that mean success, in lower case. A number is an exit code: 0 is success.
SUCCESSES = ("ok", "success", "successful", "succeeded", "complete", "completed", "done", "finished", "true")

_NO_OUTPUT = "no output"
_MOST_LINES = 30  # outputs and failed runs that are printed
_MIN_RUNS = 4  # for a standard error
_LARGE_LOSS = 0.1  # share of the weight


class Runs(NamedTuple):
    """The simulations that a kept set requires, in order of use.

    Attributes
    ----------
    run : array
        Number of each run, (k,).
    ids : array
        Identifier (chain, draw) of its kept draw, (k, 2); the smallest one if the state was kept several times.
    draws : array
        Parameters of each run, (k, d).
    weights : array
        Weights of sum 1, (k,).
    multiplicity : array
        Number of kept draws with this state, (k,).

    """

    run: Integers
    ids: Integers
    draws: Array
    weights: Array
    multiplicity: Integers

    @classmethod
    def of(cls, kept: Kept) -> Runs:
        """Return the runs of a kept set, which is ordered first if it has no order of use."""
        ordered = kept if kept.order is not None else kept.ordered()
        by_id = np.lexsort(ordered.ids.T[::-1])
        _, first, inverse = np.unique(ordered.draws[by_id], axis=0, return_index=True, return_inverse=True)
        state = np.empty(len(kept), dtype=np.int64)  # run number of each draw
        state[by_id] = np.argsort(np.argsort(first))[inverse.ravel()]
        share = np.full(len(kept), 1.0 / len(kept)) if ordered.weights is None else ordered.weights
        mass = np.bincount(state, weights=share)
        _, use = np.unique(state, return_index=True)  # position of each run in the order of use
        run = np.argsort(use)
        run = run[mass[run] > 0]
        rows = by_id[np.sort(first)][run]
        multiplicity = np.bincount(state)[run]
        return cls(run, ordered.ids[rows], ordered.draws[rows], mass[run] / mass.sum(), multiplicity)


def list_runs(kept: Kept, path: str | PathLike[str] | None = None) -> Runs:
    """List the simulations that a kept set requires, and write them to a csv file.

    Parameters
    ----------
    kept : Kept
        The kept draws.
    path : path, optional
        File to write.

    Returns
    -------
    Runs
        The runs in order of use.

    """
    runs = Runs.of(kept)
    if path is not None:
        columns = _columns(kept, runs)
        with replacing(path, "w") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return runs


def _columns(kept: Kept, runs: Runs) -> dict[str, AnyArray]:
    """Return the columns of the table of runs: number, weight, multiplicity, id, parameters, variables."""
    columns: dict[str, AnyArray] = {RUN: runs.run, WEIGHT: runs.weights, MULTIPLICITY: runs.multiplicity}
    columns |= {CHAIN: runs.ids[:, 0], DRAW: runs.ids[:, 1]}
    columns |= dict(zip(_titles(kept), runs.draws.T, strict=True))
    places = {tuple(pair): place for place, pair in enumerate(kept.ids.tolist())}
    rows = np.array([places[tuple(pair)] for pair in runs.ids.tolist()])
    for name, variable in kept.variables.items():
        for title, values in _elements(name, variable.values[rows]).items():
            if title not in columns:
                columns[title] = values
            elif not np.array_equal(columns[title], values):  # otherwise it is a parameter
                columns[f"variable_{title}"] = values
    return columns


def _titles(kept: Kept) -> list[str]:
    """Return the columns of the parameters; those whose name has another meaning have a prefix."""
    names = kept.names or [f"x{i}" for i in range(kept.draws.shape[1])]
    own = (RUN, CHAIN, DRAW, WEIGHT, MULTIPLICITY, STATUS)
    return [f"parameter_{name}" if name in own else name for name in names]


def _elements(name: str, values: AnyArray) -> dict[str, AnyArray]:
    """Return one column per element of a variable, named as in the tables of kept draws: ``w.1``, ``w.2``."""
    places = [*np.ndindex(*values.shape[1:])]
    return {name + "".join(f".{at + 1}" for at in place): values[(slice(None), *place)] for place in places}


# -- averages ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Average:
    """Weighted mean, standard deviation and quantiles of the outputs of forward simulations.

    Printing it shows a table, and which runs failed.

    Attributes
    ----------
    names : tuple of str
        Names of the outputs.
    mean : array
        Weighted mean, in the shape of one output; (m,) for a table.
    sd : array
        Weighted standard deviation, in the same shape.
    quantiles : dict
        Probability -> weighted quantiles.
    standard_error : array
        Standard error of the mean, from its changes along the order of use; NaN for fewer than 4 runs. It does not
        contain the error of the chain.
    runs : Runs
        The runs that are used, in order of use, with their new weights.
    outputs : array
        Their outputs, (k, ...).
    prefix_means : array
        Mean of the first 1, 2, ..., k of these runs, (k, ...).
    prefix_errors : array
        Standard error of each of these means, (k, ...).
    failed : dict
        Number of each failed run -> reason.
    lost_weight : float
        Share of the failed runs in the weight of the runs up to the last one with an output.
    not_run : int
        Number of runs after that one.
    ignored : dict
        Column that is not an output -> reason.

    """

    names: tuple[str, ...]
    mean: Array
    sd: Array
    quantiles: dict[float, Array]
    standard_error: Array
    runs: Runs
    outputs: Array
    prefix_means: Array
    prefix_errors: Array
    failed: dict[int, str]
    lost_weight: float
    not_run: int
    ignored: dict[str, str]

    @property
    def failures(self) -> list[str]:
        """Which runs failed, why, and what that means; empty if none did."""
        if not self.failed:
            return []
        shown = listing([f"run {run} ({why})" for run, why in self.failed.items()], _MOST_LINES)
        lines = [
            f"Failed and left out: {shown}; {self.lost_weight:.1%} of the weight. The weights of the other runs are "
            "divided by their sum."
        ]
        if self.lost_weight > _LARGE_LOSS:
            lines.append(
                "If simulations fail at extreme parameters, the mean is biased: compare the parameters of the failed "
                "runs with the others."
            )
        return lines

    @property
    def notes(self) -> list[str]:
        """How many runs are used, and which columns are not outputs."""
        used = len(self.runs.run)
        lines = [f"{used} of {used + len(self.failed) + self.not_run} runs are used."]
        if self.not_run:
            lines.append(f"The last {self.not_run} runs in the order of use have no output.")
        if self.ignored:
            lines.append("Not outputs: " + listing([f"{name} ({why})" for name, why in self.ignored.items()]) + ".")
        return lines

    def table(self) -> dict[str, Array]:
        """Return the statistics by name.

        Returns
        -------
        dict
            Name of the statistic -> one value per output, (m,): mean, se, sd, quantiles, and the means of the first
            quarter and the first half of the runs.

        """
        used = len(self.runs.run)
        columns = {"mean": self.mean, "se": self.standard_error, "sd": self.sd}
        columns |= {f"{100 * q:g}%": values for q, values in self.quantiles.items()}
        columns |= {f"first {k}": self.prefix_means[k - 1] for k in sorted({used // 4, used // 2} - {0, used})}
        return {name: np.ravel(values) for name, values in columns.items()}

    def to_dataframe(self) -> Any:
        """Convert to a ``pandas.DataFrame``; requires pandas.

        Returns
        -------
        pandas.DataFrame
            One row per output, with the columns of `table`.

        """
        return need("pandas", "pandas").DataFrame(self.table(), index=self.names)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table as csv, one row per output.

        Parameters
        ----------
        path : path
            The file.

        """
        columns = self.table()
        with replacing(path, "w") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["output", *columns])
            writer.writerows(zip(self.names, *(values.tolist() for values in columns.values()), strict=True))

    def __str__(self) -> str:
        columns = self.table()
        lines = [["", *columns]]
        for i, name in enumerate(self.names[:_MOST_LINES]):
            scale = float(columns["sd"][i])
            cells = [f"{v[i]:.2g}" if title == "se" else rounded(float(v[i]), scale) for title, v in columns.items()]
            lines.append([name, *cells])
        more = len(self.names) - _MOST_LINES
        rest = [f"... and {more} more outputs"] if more > 0 else []
        return "\n".join([*aligned(lines), *rest, *self.notes])

    def __repr__(self) -> str:
        return "\n".join([str(self), *self.failures])


def average_outputs(
    kept: Kept,
    outputs: Outputs,
    *,
    columns: Sequence[str] | None = None,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    processes: int = 1,
) -> Average:
    """Average the outputs of the simulations that `list_runs` lists.

    Parameters
    ----------
    kept : Kept
        The kept draws.
    outputs : path, mapping, DataFrame, array_like or callable
        The outputs, see `Kept.average`.
    columns : sequence of str, optional
        Columns of a table that are outputs. Default: all columns of numbers that are not those of the runs.
    quantiles : sequence of float, default (0.05, 0.5, 0.95)
        Probabilities.
    processes : int, default 1
        Number of processes, if ``outputs`` is a function.

    Returns
    -------
    Average
        The weighted statistics.

    Raises
    ------
    InputError
        If the outputs do not belong to this kept set, or all runs failed.

    """
    if not all(0 <= q <= 1 for q in quantiles):
        raise InputError(f"Probabilities must lie between 0 and 1, got {quantiles!r}.")
    runs = Runs.of(kept)
    found = _found_outputs(kept, runs, outputs, columns, processes)
    values, reasons = found.values, found.reasons
    good = np.array([not why for why in reasons])
    if not good.any():
        raise InputError(f"All runs failed; the first one: {reasons[0]}.", "Correct the simulation, and run it again.")
    last = max(at for at, why in enumerate(reasons) if why != _NO_OUTPUT)
    failed = {int(runs.run[at]): why for at, why in enumerate(reasons[: last + 1]) if why}
    lost = 1.0 - float(runs.weights[good].sum() / runs.weights[: last + 1].sum())
    used = Runs(*(column[good] for column in runs))
    used = used._replace(weights=used.weights / used.weights.sum())
    flat = values[good]
    means, errors = prefix_statistics(flat, used.weights)
    shape = (len(flat), *found.shape)
    # Without rounding errors where all outputs are equal.
    mean = np.where(np.ptp(flat, axis=0) == 0, flat[0], means[-1])
    sd = np.sqrt(used.weights @ (flat - mean) ** 2)
    return Average(
        found.names,
        mean.reshape(found.shape),
        sd.reshape(found.shape),
        {float(q): weighted_quantiles(flat, used.weights, np.array(q)).reshape(found.shape) for q in quantiles},
        errors[-1].reshape(found.shape),
        used,
        flat.reshape(shape),
        means.reshape(shape),
        errors.reshape(shape),
        failed,
        max(lost, 0.0) if failed else 0.0,
        len(reasons) - 1 - last,
        found.ignored,
    )


def expectation(kept: Kept, f: Callable[[Array], ArrayLike] | ArrayLike, weights: Array, processes: int) -> Any:
    """Average a function of the kept draws, or an array with one row per kept draw.

    Parameters
    ----------
    kept : Kept
        The kept draws.
    f : callable or array_like
        Function of one draw (d,), or its values, (n, ...).
    weights : array
        Weights, (n,).
    processes : int
        Number of processes.

    Returns
    -------
    float or array
        The weighted mean without draws for which the function failed or is not finite; a `FailedRunsWarning` says
        which.

    """
    if callable(f):
        states, inverse = np.unique(kept.draws, axis=0, return_inverse=True)
        mass = np.bincount(inverse.ravel(), weights=weights)
        states, mass = states[mass > 0], mass[mass > 0]
        values, reasons, shape = _simulated(f, states, processes)
    else:
        values, reasons, shape = _rows_of_array(f, len(kept), "kept draw")
        mass = np.asarray(weights, dtype=np.float64)
    good = np.array([not why for why in reasons]) & (mass > 0)
    if not good.any():
        raise InputError(f"The function failed for all draws; the first: {reasons[0]}.", "Correct the function.")
    lost = 1.0 - mass[good].sum() / mass.sum()
    if lost > 0:
        why = Counter(why for why in reasons if why).most_common(1)[0][0]
        warnings.warn(
            f"{len(mass) - int(good.sum())} of {len(mass)} evaluations failed ({why}) and are left out, {lost:.1%} of "
            "the weight. The other weights are divided by their sum.",
            FailedRunsWarning,
            stacklevel=3,
        )
    return np.asarray(mass[good] @ values[good] / mass[good].sum()).reshape(shape)[()]


def prefix_statistics(values: Array, weights: Array) -> tuple[Array, Array]:
    """Return the means of the first 1, 2, ... rows (n, m), and their standard errors: see the module docstring."""
    total, squares = np.cumsum(weights), np.cumsum(weights**2)
    means = np.cumsum(weights[:, None] * values, axis=0) / total[:, None]
    variance = squares / total**2  # of the mean of independent runs, in units of the variance of one
    errors = np.full(means.shape, np.nan)
    for k in range(_MIN_RUNS, len(values) + 1):
        half = slice(k // 2 - 1, k - 1)
        covariance = squares[half] / (total[half] * total[k - 1])
        expected = float(np.mean(variance[half] + variance[k - 1] - 2.0 * covariance))
        if expected > 0:
            changes = np.mean((means[half] - means[k - 1]) ** 2, axis=0)
            errors[k - 1] = np.sqrt(changes * variance[k - 1] / expected)
    return means, errors


# -- outputs -----------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """Outputs of all runs in order of use."""

    names: tuple[str, ...]
    values: Array
    """(k, m); the rows of failed runs have no meaning."""
    reasons: list[str]
    """Why each run failed; empty if it did not."""
    shape: tuple[int, ...]
    ignored: dict[str, str]


def _found_outputs(kept: Kept, runs: Runs, outputs: Any, columns: Sequence[str] | None, processes: int) -> _Found:
    title = "The table of outputs"
    if isinstance(outputs, str | PathLike):
        title = str(outputs)
        outputs = _read(Path(outputs))
    if isinstance(outputs, Mapping) or hasattr(outputs, "columns"):
        table = {str(name): _cells(outputs[name]) for name in getattr(outputs, "columns", outputs)}
        index = getattr(outputs, "index", None)
        if RUN not in table and getattr(index, "name", None) == RUN:
            table[RUN] = _cells(index)
        return _from_table(kept, runs, table, columns, title)
    if columns is not None:
        raise InputError("columns requires a table of outputs.", "Leave out columns, or pass a file or a DataFrame.")
    if callable(outputs):
        values, reasons, shape = _simulated(outputs, runs.draws, processes)
    else:
        if kept.order is None:  # a file may not contain what determines the order
            raise InputError(
                "An array of outputs requires kept draws with an order of use, which identifies its rows.",
                f"Pass a table with a column {RUN}, or call ordered() before to_runs().",
            )
        values, reasons, shape = _rows_of_array(outputs, len(runs.run), "run")
    places = ["".join(f"[{at}]" for at in place) for place in np.ndindex(*shape)]
    return _Found(tuple(f"output{place}" for place in places), values, reasons, shape, {})


def _read(path: Path) -> Any:
    """Read a table (csv, csv.gz, parquet) or an array (npy)."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file.", "Check the path.")
    with reading(path, "a table of outputs"):
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".parquet":
            return need("pyarrow.parquet", "parquet").read_table(path).to_pydict()
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            lines = [line for line in csv.reader(file) if line]
    if not lines:
        raise InputError(f"{path} is empty.", f"Write a table with the columns {RUN} and one per output.")
    header = [title.strip() for title in lines[0]]
    if len(header) == 1 and any(other in header[0] for other in ";\t"):
        raise InputError(
            f"{path} has no commas between its columns: {header[0]!r}.", "Write it with commas and points."
        )
    repeated = [title for title, times in Counter(header).items() if times > 1]
    if repeated:
        raise InputError(f"{path} has several columns {repeated[0]!r}.", "Give each column its own name.")
    short = next((number for number, line in enumerate(lines, 1) if len(line) != len(header)), None)
    if short is not None:
        raise InputError(f"{path}: line {short} has {len(lines[short - 1])} cells, not {len(header)}.", "Complete it.")
    return {title: [line[at] for line in lines[1:]] for at, title in enumerate(header)}


def _cells(column: Any) -> list[Any]:
    """Return the values of a column as Python objects."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _from_table(
    kept: Kept, runs: Runs, table: dict[str, list[Any]], columns: Sequence[str] | None, title: str
) -> _Found:
    """Match the rows of a table with the runs."""
    place = _places(runs, table, title)
    names, ignored = _output_columns(_columns(kept, runs), place, table, columns, title)
    status = [_failure(value) for value in table.get(STATUS, [0] * len(place))]
    numbers = np.array([[_number(value) for value in table[name]] for name in names]).T.reshape(len(place), len(names))
    values, reasons = np.full((len(runs.run), len(names)), np.nan), [_NO_OUTPUT] * len(runs.run)
    for row, at in enumerate(place):
        bad = np.flatnonzero(~np.isfinite(numbers[row]))
        why = status[row] or (f"{names[bad[0]]} is {table[names[bad[0]]][row] or 'empty'}" if len(bad) else "")
        if not why and not reasons[at]:
            raise InputError(f"{title} has several outputs of run {runs.run[at]}.", "Keep one row per run.")
        if not why or reasons[at]:  # a failed attempt does not replace a successful one
            values[at], reasons[at] = numbers[row], why
    return _Found(tuple(names), values, reasons, (len(names),), ignored)


def _places(runs: Runs, table: dict[str, list[Any]], title: str) -> list[int]:
    """Return the position of the run of each row, by its number or by chain and draw."""
    by_run: dict[tuple[float, ...], int] = {(run,): at for at, run in enumerate(runs.run.tolist())}
    by_id: dict[tuple[float, ...], int] = {tuple(pair): at for at, pair in enumerate(runs.ids.tolist())}
    found = []
    for keys, known in (((RUN,), by_run), ((CHAIN, DRAW), by_id)):
        if not all(key in table for key in keys):
            continue
        wanted = [tuple(map(_number, row)) for row in zip(*(table[key] for key in keys), strict=True)]
        unknown = next((one for one in wanted if one not in known), None)
        if unknown is not None:
            text = ", ".join(f"{key} {value:g}" for key, value in zip(keys, unknown, strict=True))
            raise InputError(f"{title} has a row for {text}, which is not a run of this kept set.", _OTHER_SET)
        found.append([known[one] for one in wanted])
    if not found:
        raise InputError(
            f"{title} has no column {RUN}; it has {listing(table)}.",
            f"Copy the column {RUN} from the table of runs, or {CHAIN} and {DRAW}.",
        )
    if len(found) == 2 and found[0] != found[1]:
        raise InputError(f"{title}: the columns {RUN} and {CHAIN}, {DRAW} contradict each other.", _OTHER_SET)
    return found[0]


_OTHER_SET = "Use the kept set for which the table of runs was written."


def _output_columns(
    of_runs: dict[str, AnyArray],
    place: list[int],
    table: dict[str, list[Any]],
    columns: Sequence[str] | None,
    title: str,
) -> tuple[list[str], dict[str, str]]:
    """Return the columns that are outputs, and why others are not; columns of the list of runs may be copied."""
    if columns is not None:
        missing = next((name for name in columns if name not in table), None)
        if missing is not None:
            raise InputError(f"{title} has no column {missing}; it has {listing(table)}.", "Choose other columns.")
        return list(columns), {}
    own = (RUN, CHAIN, DRAW, WEIGHT, MULTIPLICITY, STATUS)
    copied = [name for name in table if name in of_runs and _same(table[name], of_runs[name][place])]
    others = [name for name in table if name not in (*own, *copied)]
    texts = {name: "not numbers" for name in others if all(math.isnan(_number(value)) for value in table[name])}
    names = [name for name in others if name not in texts]
    if not names:
        raise InputError(f"{title} has no column of outputs; it has {listing(table)}.", "Add one column per output.")
    return names, texts


def _same(cells: list[Any], values: AnyArray) -> bool:
    """Return whether a column has these values, up to the digits with which it was written."""
    if values.dtype.kind not in "biuf":
        return [str(cell) for cell in cells] == [str(value) for value in values.tolist()]
    return np.allclose([_number(cell) for cell in cells], values.astype(np.float64), rtol=1e-4, equal_nan=True)


def _number(value: Any) -> float:
    """Return a cell as a number; NaN if it is not one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _failure(status: Any) -> str:
    """Return why a status is not a success; empty for a success."""
    if isinstance(status, bool):
        good = status
    else:
        code = _number(status)
        good = code == 0 if not math.isnan(code) else str(status).strip().lower() in SUCCESSES
    return "" if good else f"status {status}"


def _simulated(
    f: Callable[[Array], ArrayLike], states: Array, processes: int
) -> tuple[Array, list[str], tuple[int, ...]]:
    """Call a function for each state; return outputs (k, m), reasons of failures, and the shape of one output."""
    positive(processes, "processes")
    outputs: list[Array | None] = [None] * len(states)
    reasons = [_NO_OUTPUT] * len(states)
    first: Exception | None = None
    for place, value, error in evaluate(f, [*states], processes, "function"):
        if error is None:
            try:
                outputs[place] = output = np.asarray(value, dtype=np.float64)
                reasons[place] = "" if np.isfinite(output).all() else "the output is not finite"
                continue
            except (TypeError, ValueError) as wrong:
                error = wrong
        first = first or error
        reasons[place] = f"{type(error).__name__}: {error}"
    finished = [output for output in outputs if output is not None]
    if not finished:
        raise InputError(
            f"All {len(states)} evaluations failed; one of them: {first!r}.", "Correct the function."
        ) from first
    shape, *others = {output.shape for output in finished}
    if others:
        raise InputError(f"The outputs have different shapes, {shape} and {others[0]}.", "Return arrays of one shape.")
    blank = np.full(shape, np.nan)
    return np.array([blank if one is None else one for one in outputs]).reshape(len(states), -1), reasons, shape


def _rows_of_array(outputs: Any, count: int, what: str) -> tuple[Array, list[str], tuple[int, ...]]:
    """Return outputs (count, m), reasons of failures, and the shape of one output."""
    try:
        values = np.asarray(outputs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"The outputs are not an array of numbers: {type(outputs).__name__}.") from None
    if values.ndim == 0 or len(values) != count:
        raise InputError(
            f"The outputs have shape {values.shape}, but there are {count} {what}s.",
            f"Pass one row per {what}, with NaN for failed ones.",
        )
    flat = values.reshape(count, -1)
    good = [bool(np.isfinite(row).all()) for row in flat]
    return flat, ["" if one else "the output is not finite" for one in good], values.shape[1:]
