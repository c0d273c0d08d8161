"""What the toy problems share: both kernels, both rules, repeats with seeds of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.paper import Options, Report
from experiments.paper.columns import Columns, as_columns, stacked
from steinstream.kernels import IMQ, RBF
from steinstream.preconditioning import Preconditioner
from steinstream.targets import Array
from steinstream.thinner import Thinner

KERNELS = {"imq": IMQ(), "rbf": RBF()}
RULES = ("paper", "monotone")
IDENTITY = Preconditioner.identity()
CANDIDATES = 5  # SPMCMC's m
_BLOCK = 10_000  # draws between two looks at Ctrl-C


class Toy:
    """An experiment of many short runs that share nothing."""

    def __init__(self, options: Options) -> None:
        self.scale, self.seed = options.scale, options.seed

    def prepare(self, folder: Path, report: Report) -> None:
        """Nothing to share."""


def repeated(
    repeats: int,
    thinner: Callable[[], Thinner],
    sample: Callable[[int], tuple[Array, Array]],
    report: Report,
    **labels: object,
) -> Columns:
    """The history of a new thinner on each of ``sample(0)``, ``sample(1)``, ...: draws and their scores."""
    parts = []
    for repeat in range(repeats):
        mine = thinner()
        draws, scores = sample(repeat)
        for first in range(0, len(draws), _BLOCK):
            mine.extend(draws[first : first + _BLOCK], scores[first : first + _BLOCK])
            report((repeat + first / len(draws)) / repeats)
        parts.append(as_columns(mine.history, **labels, repeat=repeat))
    return stacked(parts)
