"""The paper's experiments, one file each: what is run, how it is drawn, what it shows.

An experiment is a list of `Unit` of work, each of which gives a few columns of numbers, and a way to draw all of them
together. The laboratory runs the units side by side, writes each one's numbers as it ends, and goes on where it was
stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from experiments.paper.columns import Columns
    from steinstream.io import Chain
    from steinstream.targets import Array


class Report(Protocol):
    """Told how much is done, from 0 to 1, and what is being done. It raises `Stopped` when the work should end."""

    def __call__(self, share: float, doing: str = "", /) -> None:
        """So much."""


SCALES = ("quick", "medium", "full")

_HOMES = {  # name -> module, what makes it there, what it shows
    "goodwin-rwm": ("goodwin", "random_walk", "Goodwin oscillator, random walk, with and without SPMCMC (section 4.1)"),
    "goodwin-mala": ("goodwin", "mala", "Goodwin oscillator, MALA, with and without SPMCMC (appendix)"),
    "calcium": ("calcium", "random_walk", "Calcium signalling, tempered random walk in 38 dimensions (section 4.2)"),
    "adaptivity": ("adaptivity", "Adaptivity", "Draws kept against the number of modes, without growth (section 4.4)"),
    "alpha": ("alpha", "Alpha", "KSD against the exponent of growth on two modes (appendix)"),
    "cifar10": ("networks", "on_cifar10", "CIFAR-10, ResNet-20 in a plane of weights: networks kept (section 4.3)"),
    "imdb": ("networks", "on_imdb", "IMDB, CNN-LSTM in a plane of weights: networks kept (section 4.3)"),
    "theory": ("theory", "Theory", "Rates of KSD for every growth and budget, against the bound (section 3)"),
}
NAMES = tuple(_HOMES)


class Stopped(Exception):
    """The user wants to end here and go on another time."""


class Options(NamedTuple):
    """What the user may choose about an experiment."""

    scale: str = "medium"
    seed: int = 0
    moves: int | None = None
    observations: Array | None = None
    chain: Chain | None = None
    preconditioner: str = "identity"
    data: Path | None = None
    glove: Path | None = None
    device: str | None = None
    jobs: int | None = None


class Unit(NamedTuple):
    """A piece of work that is done whole: its name, and what does it.

    ``work(checkpoint, report)`` may save its state to ``checkpoint`` now and then and go on from there.
    """

    name: str
    work: Callable[[Path, Report], Columns]


class Experiment(Protocol):
    """What the laboratory needs to know."""

    def prepare(self, folder: Path, report: Report) -> None:
        """Make what the units share, or find it in the folder."""

    def units(self) -> list[Unit]:
        """The work."""

    def draw(self, results: Columns) -> dict[str, Any]:
        """Figures by name."""

    def summary(self, results: Columns) -> str:
        """What came out, in a table of text."""


def experiment(name: str, options: Options) -> Experiment:
    """The experiment of this name."""
    module, factory, _ = _HOMES[name]
    made: Experiment = getattr(import_module(f"{__name__}.{module}"), factory)(options)
    return made


def about(name: str) -> str:
    """What the experiment shows, in one line."""
    return _HOMES[name][2]
