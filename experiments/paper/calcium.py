"""Calcium signalling in a heart cell (section 4.2 of the paper and its appendix): 38 parameters, tempered, m = 100.

The paper's observations, prior and list of parameters are not public; this is the same cell model with a stated
substitute, see `steinstream.targets.Calcium`. The public chains themselves can be thinned with ``--chain``.
"""

from __future__ import annotations

import numpy as np

from experiments.paper import Options
from experiments.paper.chains import ThinnedChain, study
from experiments.paper.tape import Tape
from experiments.targets.calcium import NAMES
from steinstream.samplers import RandomWalk
from steinstream.targets import Calcium, Tempered

CANDIDATES = 100
POWER = 1 / 8
_MOVES = {"quick": 40_000, "medium": 400_000, "full": 4_000_000}


def random_walk(options: Options) -> ThinnedChain:
    """Calcium signalling, tempered random walk in 38 dimensions (figure 3 and appendix)."""
    target = Calcium.simulated(options.seed) if options.observations is None else Calcium(options.observations)
    sampler = RandomWalk(Tempered(target, POWER), step=0.048)
    tape = Tape(sampler, np.zeros(len(NAMES)), options.seed, options.moves or _MOVES[options.scale])
    return study(options, "Calcium signalling, tempered random walk", tape, NAMES, CANDIDATES)
