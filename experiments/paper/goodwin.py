"""The Goodwin oscillator (section 4.1 of the paper and its appendix): four parameters, random walk and MALA, m = 10."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.paper import Options
from experiments.paper.chains import ThinnedChain, study
from experiments.paper.tape import Tape
from steinstream.samplers import MALA, RandomWalk
from steinstream.targets import Goodwin

START = np.log([0.5, 1.0, 3.0, 2.0])
NAMES = ("log a", "log b", "log c", "log d")
CANDIDATES = 10
_MOVES = {"quick": 100_000, "medium": 500_000, "full": 2_000_000}


def random_walk(options: Options) -> ThinnedChain:
    """Goodwin oscillator, random walk, with and without SPMCMC (figure 2 and appendix)."""
    return _thinned(options, "Goodwin oscillator, random walk", lambda target: RandomWalk(target, step=0.01))


def mala(options: Options) -> ThinnedChain:
    """Goodwin oscillator, MALA, with and without SPMCMC (appendix)."""
    return _thinned(options, "Goodwin oscillator, MALA", lambda target: MALA(target, step=0.003))


def _thinned(options: Options, title: str, sampler: Any) -> ThinnedChain:
    target = Goodwin.simulated(options.seed) if options.observations is None else Goodwin(options.observations)
    tape = Tape(sampler(target), START, options.seed, options.moves or _MOVES[options.scale])
    return study(options, title, tape, NAMES, CANDIDATES)
