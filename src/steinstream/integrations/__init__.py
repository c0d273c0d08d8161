"""Where draws come from while a sampler runs: one tool a file, each imported only when it is used.

Whatever the tool, the thinner sees unconstrained draws with the score of their density, Jacobian included, and what is
kept leads back to the user's own parameters.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

TOOLS = ("blackjax", "emcee", "generic", "numpyro", "nutpie", "pymc", "stan", "torch", "xarray")

__all__ = list(TOOLS)


def __getattr__(name: str) -> ModuleType:
    if name not in TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
