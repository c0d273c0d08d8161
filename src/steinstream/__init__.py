"""Keep only the MCMC samples that matter, while the chain is still running.

>>> import numpy as np, steinstream as ss
>>> draws = np.random.default_rng(0).normal(size=(2000, 3))
>>> ss.thin(draws, -draws, size=50)  # the score of a standard normal is -x
Kept(50 of 2000 draws, 3 dimensions, KSD 0.105)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from steinstream import baselines as baselines
    from steinstream import integrations as integrations
    from steinstream import io as io
    from steinstream import parallel as parallel
    from steinstream import samplers as samplers
    from steinstream import schedules as schedules
    from steinstream import targets as targets
    from steinstream.api import thin as thin
    from steinstream.baselines.comparison import compare as compare
    from steinstream.diagnostics import Diagnosis as Diagnosis
    from steinstream.diagnostics import Finding as Finding
    from steinstream.discrepancy.ksd import cumulative_ksd as cumulative_ksd
    from steinstream.discrepancy.ksd import ksd as ksd
    from steinstream.discrepancy.ksd import normalised_ksd as normalised_ksd
    from steinstream.draw_store import DrawStore as DrawStore
    from steinstream.ensemble import EnsemblePrediction as EnsemblePrediction
    from steinstream.errors import ScoresWarning as ScoresWarning
    from steinstream.errors import SteinstreamError as SteinstreamError
    from steinstream.gradient_free import gradient_free_ksd as gradient_free_ksd
    from steinstream.kernels import IMQ as IMQ
    from steinstream.kernels import RBF as RBF
    from steinstream.planning import plan as plan
    from steinstream.postprocess.merging import merge as merge
    from steinstream.preconditioning import Preconditioner as Preconditioner
    from steinstream.preconditioning import Streaming as Streaming
    from steinstream.preconditioning import Warmup as Warmup
    from steinstream.report import plots as plot  # noqa: F401
    from steinstream.result import History as History
    from steinstream.result import Kept as Kept
    from steinstream.result import Variable as Variable
    from steinstream.running_moments import Moments as Moments
    from steinstream.thinner import PAPER as PAPER
    from steinstream.thinner import StepInfo as StepInfo
    from steinstream.thinner import ThinConfig as ThinConfig
    from steinstream.thinner import Thinner as Thinner

# Names are loaded when first used: importing the package costs nothing, least of all numba.
_HOME = {
    "Preconditioner": "preconditioning",
    "Streaming": "preconditioning",
    "Warmup": "preconditioning",
    "Diagnosis": "diagnostics",
    "Finding": "diagnostics",
    "cumulative_ksd": "discrepancy.ksd",
    "ksd": "discrepancy.ksd",
    "normalised_ksd": "discrepancy.ksd",
    "ScoresWarning": "errors",
    "SteinstreamError": "errors",
    "gradient_free_ksd": "gradient_free",
    "History": "result",
    "Kept": "result",
    "Variable": "result",
    "IMQ": "kernels",
    "RBF": "kernels",
    "merge": "postprocess.merging",
    "Moments": "running_moments",
    "DrawStore": "draw_store",
    "EnsemblePrediction": "ensemble",
    "compare": "baselines.comparison",
    "plan": "planning",
    "PAPER": "thinner",
    "thin": "api",
    "StepInfo": "thinner",
    "ThinConfig": "thinner",
    "Thinner": "thinner",
}
_MODULES = {
    "baselines": "baselines",
    "parallel": "parallel",
    "integrations": "integrations",
    "io": "io",
    "plot": "report.plots",
    "samplers": "samplers",
    "schedules": "schedules",
    "targets": "targets",
}

__all__ = [*sorted(_HOME), *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"steinstream.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"steinstream.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'steinstream' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
