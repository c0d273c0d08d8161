"""How good a kept set is for what users compute from it: ``python -m benchmarks.quality``; see benchmarks/README.md.

From Python, to score a selection of one of the work chains::

    from benchmarks.quality import TARGETS, chain, evaluate

    work = chain("gauss-20", seed=0)  # draws and scores (chains, n, d)
    evaluate("gauss-20", 0, {50: range(0, 10_000, 200)})[50]["composite"]
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {"TARGETS": "targets", "chain": "scoring", "evaluate": "scoring", "Selection": "scoring"}
__all__ = ["TARGETS", "Selection", "chain", "evaluate"]


def __getattr__(name: str) -> Any:  # imported on first use: the command line sets the number of threads before NumPy
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
