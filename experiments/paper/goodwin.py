"""Goodwin oscillator (section 4.1 of the paper and its appendix): four parameters, random walk and MALA, m = 10."""

from __future__ import annotations

import numpy as np

from experiments.paper import ExperimentOptions
from experiments.paper.chain_experiment import ChainExperiment, create_chain_experiment
from experiments.paper.stored_chain import SampledChain
from steinstream.samplers import MALA, RandomWalk
from steinstream.targets import Goodwin

START = np.log([0.5, 1.0, 3.0, 2.0])
NAMES = ("log a", "log b", "log c", "log d")
CANDIDATES = 10
_MOVES = {"quick": 100_000, "medium": 500_000, "full": 2_000_000}


def random_walk(options: ExperimentOptions) -> ChainExperiment:
    """Return the experiment with a random walk (figure 3 and appendix)."""
    return _create(options, "Goodwin oscillator, random walk", RandomWalk, 0.01)


def mala(options: ExperimentOptions) -> ChainExperiment:
    """Return the experiment with MALA (appendix)."""
    return _create(options, "Goodwin oscillator, MALA", MALA, 0.003)


def _create(
    options: ExperimentOptions, title: str, sampler: type[RandomWalk | MALA], default_step: float
) -> ChainExperiment:
    target = Goodwin.simulated(options.seed) if options.observations is None else Goodwin(options.observations)
    if options.step is not None:
        title += f", step {options.step:g}"
    moves = options.moves or _MOVES[options.scale]
    chain = SampledChain(sampler(target, step=options.step or default_step), START, 0, moves)
    return create_chain_experiment(options, title, chain, NAMES, CANDIDATES)
