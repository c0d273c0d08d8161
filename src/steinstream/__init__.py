"""Keep only the MCMC samples that matter, while the chain is still running.

>>> import numpy as np, steinstream as ss
>>> draws = np.random.default_rng(0).normal(size=(2000, 3))
>>> ss.thin(draws, -draws, size=50)  # the score of a standard normal is -x
Kept(50 of 2000 draws, 3 dimensions, KSD 0.09579)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from steinstream.version import __version__ as __version__

if TYPE_CHECKING:
    from steinstream import baselines as baselines
    from steinstream import distributed as distributed
    from steinstream import integrations as integrations
    from steinstream import io as io
    from steinstream import plot as plot
    from steinstream import samplers as samplers
    from steinstream import schedules as schedules
    from steinstream import targets as targets
    from steinstream.coordinates import Coordinates as Coordinates
    from steinstream.coordinates import Streaming as Streaming
    from steinstream.coordinates import Warmup as Warmup
    from steinstream.diagnosis import Diagnosis as Diagnosis
    from steinstream.diagnosis import Finding as Finding
    from steinstream.discrepancy import cumulative_ksd as cumulative_ksd
    from steinstream.discrepancy import ksd as ksd
    from steinstream.discrepancy import normalised_ksd as normalised_ksd
    from steinstream.errors import CoordinatesWarning as CoordinatesWarning
    from steinstream.errors import ScoresWarning as ScoresWarning
    from steinstream.errors import SteinstreamError as SteinstreamError
    from steinstream.gradient_free import gradient_free_ksd as gradient_free_ksd
    from steinstream.kept import History as History
    from steinstream.kept import Kept as Kept
    from steinstream.kept import Variable as Variable
    from steinstream.kernels import IMQ as IMQ
    from steinstream.kernels import RBF as RBF
    from steinstream.merging import merge as merge
    from steinstream.moments import Moments as Moments
    from steinstream.payloads import Payloads as Payloads
    from steinstream.planning import plan as plan
    from steinstream.predictions import Predictions as Predictions
    from steinstream.step import Step as Step
    from steinstream.thinner import Thinner as Thinner
    from steinstream.thinning import PAPER as PAPER
    from steinstream.thinning import thin as thin

# Names are loaded when first used: importing the package costs nothing, least of all numba.
_HOME = {
    "Coordinates": "coordinates",
    "Streaming": "coordinates",
    "Warmup": "coordinates",
    "Diagnosis": "diagnosis",
    "Finding": "diagnosis",
    "cumulative_ksd": "discrepancy",
    "ksd": "discrepancy",
    "normalised_ksd": "discrepancy",
    "CoordinatesWarning": "errors",
    "ScoresWarning": "errors",
    "SteinstreamError": "errors",
    "gradient_free_ksd": "gradient_free",
    "History": "kept",
    "Kept": "kept",
    "Variable": "kept",
    "IMQ": "kernels",
    "RBF": "kernels",
    "merge": "merging",
    "Moments": "moments",
    "Payloads": "payloads",
    "plan": "planning",
    "Predictions": "predictions",
    "PAPER": "thinning",
    "thin": "thinning",
    "Step": "step",
    "Thinner": "thinner",
}
_MODULES = ("baselines", "distributed", "integrations", "io", "plot", "samplers", "schedules", "targets")

__all__ = [*sorted(_HOME), *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"steinstream.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"steinstream.{name}")
    else:
        raise AttributeError(f"module 'steinstream' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
