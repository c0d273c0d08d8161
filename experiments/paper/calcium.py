"""Calcium signalling in a heart cell (section 4.2 of the paper and its appendix): 38 parameters, tempered, m = 100.

The observations, the prior and the list of parameters of the paper are not public. This experiment uses the same cell
model with a documented substitute, see `experiments.targets.calcium`. The public chains can be thinned with
``--chain``.
"""

from __future__ import annotations

import numpy as np

from experiments.paper import ExperimentOptions
from experiments.paper.chain_experiment import ChainExperiment, create_chain_experiment
from experiments.paper.stored_chain import SampledChain
from experiments.targets.calcium import NAMES, Calcium
from steinstream.samplers import RandomWalk
from steinstream.targets import Tempered

CANDIDATES = 100
POWER = 1 / 8
_MOVES = {"quick": 40_000, "medium": 400_000, "full": 4_000_000}


def random_walk(options: ExperimentOptions) -> ChainExperiment:
    """Return the experiment with a tempered random walk (figure 4 and appendix)."""
    target = Calcium.simulated(options.seed) if options.observations is None else Calcium(options.observations)
    sampler = RandomWalk(Tempered(target, POWER), step=0.048)
    start, moves = np.zeros(len(NAMES)), options.moves or _MOVES[options.scale]
    title = "Calcium signalling, tempered random walk"
    return create_chain_experiment(options, title, SampledChain(sampler, start, 0, moves), NAMES, CANDIDATES)
