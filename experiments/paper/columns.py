"""Results as columns of plain words and numbers, and as parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steinstream.io.atomic import replacing
from steinstream.io.parquet import pyarrow
from steinstream.result import History

#: Columns of equal length, by name.
Columns: TypeAlias = dict[str, NDArray[Any]]


def as_columns(history: History, **labels: object) -> Columns:
    """A run's history, with its labels in every row."""
    rows = len(history.step)
    return {
        **{name: np.repeat(np.asarray(value), rows) for name, value in labels.items()},
        "step": history.step,
        "kept": history.size,
        "ksd": history.ksd,
        "normalised": history.ksd * np.sqrt(history.size),
    }


def stacked(parts: Sequence[Columns]) -> Columns:
    """One below the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def matching(results: Columns, **wanted: object) -> Columns:
    """The rows in which these columns have these values."""
    rows = np.logical_and.reduce([results[name] == value for name, value in wanted.items()])
    return {name: column[rows] for name, column in results.items()}


def mean_over_repeats(results: Columns) -> Columns:
    """At each step the means of size, KSD, KSD^2 and normalised KSD."""
    steps, place = np.unique(results["step"], return_inverse=True)
    count = np.bincount(place)
    values = {"kept": results["kept"], "ksd": results["ksd"], "square": results["ksd"] ** 2}
    values["normalised"] = results["normalised"]
    return {"step": steps, **{name: np.bincount(place, value) / count for name, value in values.items()}}


def write(path: Path, columns: Columns) -> None:
    """A parquet file, whole or not at all."""
    arrow = pyarrow()
    with replacing(path) as file:
        arrow.parquet.write_table(arrow.table(columns), file)


def read(path: Path) -> Columns:
    """The columns of such a file."""
    table = pyarrow().parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}
