"""Forward simulations of the kept draws: the list of runs, and the average of their outputs.

A run is one simulation: a distinct state among the kept draws. Its number is its position among the states sorted by id
(chain, draw), so it does not depend on order and weights. The column ``set`` identifies the kept set: if a table of
outputs has a copy of it, outputs of another set are refused. Runs are listed in order of use, see
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
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from steinstream._formatting import aligned, listing, rounded
from steinstream._typing import AnyArray, Array, Flags, Integers
from steinstream.diagnostics.summary import weighted_quantiles
from steinstream.errors import InputError
from steinstream.io.atomic import replacing
from steinstream.io.errors import need
from steinstream.postprocess.run_outputs import (
    CHAIN,
    DRAW,
    KEPT_SET,
    MULTIPLICITY,
    RESERVED,
    RUN,
    WEIGHT,
    Outputs,
    RunTable,
    find_outputs,
)
from steinstream.result import Kept
from steinstream.result.expectation import NO_OUTPUT
from steinstream.validation import as_probabilities

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
    table : mapping
        Columns of the table that `save` writes, by name.
    ordered : bool
        Whether the kept set had an order of use. Then its runs have this order in every process.
    """

    run: Integers
    ids: Integers
    draws: Array
    weights: Array
    multiplicity: Integers
    table: RunTable
    ordered: bool

    @classmethod
    def of(cls, kept: Kept) -> Runs:
        """Return the runs of a kept set, which is ordered first if it has no order of use.

        Parameters
        ----------
        kept : Kept
            The kept set.

        Returns
        -------
        Runs
            The runs.
        """
        ordered = kept if kept.order is not None else kept.ordered()
        by_id = np.lexsort(ordered.ids.T[::-1])
        _, first, inverse = np.unique(ordered.draws[by_id], axis=0, return_index=True, return_inverse=True)
        state = np.empty(len(kept), dtype=np.int64)  # run number of each draw
        state[by_id] = np.argsort(np.argsort(first))[inverse.ravel()]
        mass = np.bincount(state, weights=ordered.shares())
        _, use = np.unique(state, return_index=True)  # position of each run in the order of use
        run = np.argsort(use)
        run = run[mass[run] > 0]
        rows = by_id[np.sort(first)][run]
        multiplicity = np.bincount(state)[run]
        ids, draws, weights = ordered.ids[rows], ordered.draws[rows], mass[run] / mass.sum()
        table: dict[str, AnyArray] = {RUN: run, WEIGHT: weights, MULTIPLICITY: multiplicity}
        table |= {CHAIN: ids[:, 0], DRAW: ids[:, 1], KEPT_SET: np.full(len(run), _fingerprint(kept))}
        table |= dict(zip(_titles(kept), draws.T, strict=True))
        for name, variable in ordered.variables.items():
            for title, values in _elements(name, variable.values[rows]).items():
                if title not in table:
                    table[title] = values
                elif not np.array_equal(table[title], values):  # otherwise it is a parameter
                    table[f"variable_{title}"] = values
        return cls(
            run=run,
            ids=ids,
            draws=draws,
            weights=weights,
            multiplicity=multiplicity,
            table=table,
            ordered=kept.order is not None,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table as csv, one row per run.

        Parameters
        ----------
        path : path
            The file.
        """
        _write_csv(path, self.table)

    def take(self, rows: Flags) -> Runs:
        """Return some of the runs, with weights of sum 1."""
        weights = self.weights[rows] / self.weights[rows].sum()
        table = {**{name: column[rows] for name, column in self.table.items()}, WEIGHT: weights}
        run, ids, draws, multiplicity = self.run[rows], self.ids[rows], self.draws[rows], self.multiplicity[rows]
        return Runs(
            run=run, ids=ids, draws=draws, weights=weights, multiplicity=multiplicity, table=table, ordered=self.ordered
        )

    def average(
        self,
        outputs: Outputs,
        *,
        columns: Sequence[str] | None = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        processes: int = 1,
    ) -> Average:
        """Average the outputs of these runs: see `Kept.average`."""
        as_probabilities(quantiles)
        found = find_outputs(self.table, self.draws, outputs, columns, ordered=self.ordered, processes=processes)
        values, reasons = found.values, found.reasons
        good = np.array([not why for why in reasons])
        if not good.any():
            raise InputError(
                f"All runs failed; the first one: {next((why for why in reasons if why != NO_OUTPUT), NO_OUTPUT)}.",
                "Correct the simulation, and run it again.",
            )
        last = max(at for at, why in enumerate(reasons) if why != NO_OUTPUT)
        failed = {int(self.run[at]): why for at, why in enumerate(reasons[: last + 1]) if why}
        lost = 1.0 - float(self.weights[good].sum() / self.weights[: last + 1].sum())
        used = self.take(good)
        flat = values[good]
        # Squares of outputs above 1e154 would overflow. A power of two as the unit changes no digit.
        unit = np.frexp(np.abs(flat).max(axis=0))[1]
        scaled = np.ldexp(flat, -unit)
        means, errors = prefix_statistics(scaled, used.weights)
        shape = (len(flat), *found.shape)
        # Without rounding errors where all outputs are equal.
        mean = np.where(np.ptp(scaled, axis=0) == 0, scaled[0], means[-1])
        sd = np.sqrt(used.weights @ (scaled - mean) ** 2)
        mean, sd, means, errors = (np.ldexp(each, unit) for each in (mean, sd, means, errors))
        return Average(
            names=found.names,
            mean=mean.reshape(found.shape),
            sd=sd.reshape(found.shape),
            quantiles={
                float(q): weighted_quantiles(flat, used.weights, np.array(q)).reshape(found.shape) for q in quantiles
            },
            standard_error=errors[-1].reshape(found.shape),
            runs=used,
            outputs=flat.reshape(shape),
            prefix_means=means.reshape(shape),
            prefix_errors=errors.reshape(shape),
            failed=failed,
            lost_weight=max(lost, 0.0) if failed else 0.0,
            not_run=len(reasons) - 1 - last,
            ignored=found.ignored,
        )


def _write_csv(path: str | PathLike[str], columns: Mapping[str, AnyArray]) -> None:
    with replacing(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _fingerprint(kept: Kept) -> str:
    """Return eight characters that identify the kept draws, whatever their order and weights."""
    order = np.lexsort(kept.ids.T[::-1])
    parts = np.ascontiguousarray(kept.ids[order], dtype="<i8"), np.ascontiguousarray(kept.draws[order], dtype="<f8")
    return "k" + hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:7]  # never a number


def _titles(kept: Kept) -> list[str]:
    """Return the columns of the parameters; those whose name has another meaning have a prefix."""
    names = kept.names or [f"x{i}" for i in range(kept.draws.shape[1])]
    return [f"parameter_{name}" if name in RESERVED else name for name in names]


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
        """Failed runs, with reasons and consequences, as text; empty if none failed."""
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
        """Number of used runs, and columns that are not outputs, as text."""
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
        _write_csv(path, {"output": np.array(self.names, dtype=object), **self.table()})

    @property
    def text(self) -> str:
        """Table of the statistics with the notes, without the failures."""
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
        return "\n".join([self.text, *self.failures])


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
