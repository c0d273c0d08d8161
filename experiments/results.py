"""Result tables: named columns of equal length, stored as parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steinstream.io import replacing
from steinstream.io.parquet import pyarrow
from steinstream.result import History

#: Columns of equal length, by name.
ResultTable: TypeAlias = dict[str, NDArray[Any]]


def from_history(history: History, **labels: object) -> ResultTable:
    """Return the history of a run as a table.

    Parameters
    ----------
    history : History
        Numbers of kept draws and KSD values of a thinner.
    **labels
        Constant columns that identify the run.

    Returns
    -------
    ResultTable
        The label columns, then ``step``, ``kept``, ``ksd`` and ``normalised``.
    """
    rows = len(history.step)
    return {
        **{name: np.repeat(np.asarray(value), rows) for name, value in labels.items()},
        "step": history.step,
        "kept": history.size,
        "ksd": history.ksd,
        "normalised": history.ksd * np.sqrt(history.size),
    }


def concatenate(tables: Sequence[ResultTable]) -> ResultTable:
    """Return the rows of several tables with the same columns as one table."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def select(table: ResultTable, **values: object) -> ResultTable:
    """Return the rows in which the named columns have the given values.

    Returns
    -------
    ResultTable
        The chosen rows of all columns.

    Examples
    --------
    >>> select({"kernel": np.array(["imq", "rbf"]), "ksd": np.array([0.1, 0.2])}, kernel="rbf")["ksd"].tolist()
    [0.2]
    """
    rows = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    return {name: column[rows] for name, column in table.items()}


def mean_over_repeats(table: ResultTable) -> ResultTable:
    """Return the mean size, KSD, KSD^2 (``square``) and normalised KSD at each step."""
    steps, inverse = np.unique(table["step"], return_inverse=True)
    count = np.bincount(inverse)
    values = {"kept": table["kept"], "ksd": table["ksd"], "square": table["ksd"] ** 2}
    values["normalised"] = table["normalised"]
    return {"step": steps, **{name: np.bincount(inverse, value) / count for name, value in values.items()}}


def error_over_repeats(table: ResultTable, name: str, group: str = "step") -> NDArray[np.float64]:
    """Return the standard error of the mean of a column over the repeats at each step.

    Returns
    -------
    ndarray
        Standard errors in the order of the steps; 0 for a single repeat.

    Examples
    --------
    >>> error_over_repeats({"step": np.array([1, 1, 2, 2]), "ksd": np.array([1.0, 3.0, 5.0, 5.0])}, "ksd").tolist()
    [1.0, 0.0]
    """
    groups = [table[name][table[group] == step] for step in np.unique(table[group])]
    return np.array([np.std(some, ddof=1) / np.sqrt(len(some)) if len(some) > 1 else 0.0 for some in groups])


def estimate(values: NDArray[Any], digits: int = 4) -> str:
    """Return the mean of repeated values ± one standard error of the mean.

    Returns
    -------
    str
        ``mean ± error``.

    Examples
    --------
    >>> estimate(np.array([0.5, 0.7]), 2)
    '0.60 ± 0.10'
    """
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def write_table(path: Path, table: ResultTable) -> None:
    """Write a table to a parquet file atomically."""
    arrow = pyarrow()
    with replacing(path) as file:
        arrow.parquet.write_table(arrow.table(table), file)


def read_table(path: Path) -> ResultTable:
    """Read a table from a parquet file."""
    table = pyarrow().parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}
