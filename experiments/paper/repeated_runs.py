"""Common parts of the experiments with many short, independent runs (adaptivity, alpha, theory)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.paper import ExperimentOptions
from experiments.results import ResultTable, concatenate, from_history
from experiments.runner import ProgressCallback
from steinstream import Thinner
from steinstream._typing import Array

CANDIDATES = 5  # m of SPMCMC
_BLOCK = 10_000  # draws between two progress reports


class RepeatedRuns:
    """Base class of experiments whose work units share no data."""

    def __init__(self, options: ExperimentOptions) -> None:
        self.scale, self.seed = options.scale, options.seed

    def prepare(self, folder: Path, progress: ProgressCallback) -> None:
        """Do nothing, because the work units share no data."""


def run_repeats(
    repeats: int,
    create_thinner: Callable[[], Thinner],
    sample: Callable[[int], tuple[Array, Array]],
    progress: ProgressCallback,
    **labels: object,
) -> ResultTable:
    """Thin several streams, each with a new thinner.

    Parameters
    ----------
    repeats : int
        Number of streams.
    create_thinner : callable
        Returns a new thinner.
    sample : callable
        Returns the draws and scores of a stream, given its number.
    progress : ProgressCallback
        Receives the completed fraction.
    **labels
        Constant columns of the result.

    Returns
    -------
    ResultTable
        The histories of all runs, with the columns ``**labels`` and ``repeat``.
    """
    tables = []
    for repeat in range(repeats):
        thinner = create_thinner()
        draws, scores = sample(repeat)
        for first in range(0, len(draws), _BLOCK):
            thinner.extend(draws[first : first + _BLOCK], scores[first : first + _BLOCK])
            progress((repeat + first / len(draws)) / repeats)
        tables.append(from_history(thinner.history, **labels, repeat=repeat))
    return concatenate(tables)
