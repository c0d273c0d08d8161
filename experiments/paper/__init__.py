"""Experiments of the paper, one module per section.

Each experiment implements `experiments.runner.Experiment`: it is a list of work units, each of which returns a table,
and functions that draw and summarise all results.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from experiments.runner import Experiment
    from steinstream._typing import Array
    from steinstream.io import Chain

SCALES = ("quick", "medium", "full")

_EXPERIMENTS = {  # name: (module, factory, description)
    "goodwin-rwm": ("goodwin", "random_walk", "Goodwin oscillator, random walk, with and without SPMCMC (section 4.1)"),
    "goodwin-mala": ("goodwin", "mala", "Goodwin oscillator, MALA, with and without SPMCMC (appendix)"),
    "calcium": ("calcium", "random_walk", "Calcium signalling, tempered random walk in 38 dimensions (section 4.2)"),
    "adaptivity": ("adaptivity", "Adaptivity", "Kept draws against the number of modes, without growth (section 4.4)"),
    "alpha": ("alpha", "Alpha", "KSD against the exponent of the growth on two modes (appendix)"),
    "cifar10": ("networks", "on_cifar10", "CIFAR-10, ResNet-20 in a plane of weights: kept networks (section 4.3)"),
    "imdb": ("networks", "on_imdb", "IMDB, CNN-LSTM in a plane of weights: kept networks (section 4.3)"),
    "theory": ("theory", "Theory", "Rates of KSD for every growth and budget, against the bound (section 3)"),
    "assumptions": (
        "assumptions",
        "Assumptions",
        "Rates with n candidates and with a chain of known rate (section 3)",
    ),
}
NAMES = tuple(_EXPERIMENTS)


class ExperimentOptions(NamedTuple):
    """User options of an experiment. None selects the default of the experiment."""

    scale: str = "medium"
    seed: int = 0
    moves: int | None = None
    chains: int = 1
    step: float | None = None
    observations: Array | None = None
    chain: Chain | None = None
    chain_name: str = "given chain"
    chain_stride: int = 1
    preconditioner: str = "identity"
    data: Path | None = None
    glove: Path | None = None
    device: str | None = None
    jobs: int | None = None
    posterior: str = "tempered"


def create_experiment(name: str, options: ExperimentOptions) -> Experiment:
    """Return the experiment with this name."""
    module, factory, _ = _EXPERIMENTS[name]
    created: Experiment = getattr(import_module(f"{__name__}.{module}"), factory)(options)
    return created


def description(name: str) -> str:
    """Return a description of the experiment in one line."""
    return _EXPERIMENTS[name][2]
