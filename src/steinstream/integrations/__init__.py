"""Thin draws while a sampler runs, and compute the scores of a finished fit: one tool per file.

Each tool is imported only when it is used. The thinner receives unconstrained draws and the score of their density,
Jacobian included; if a tool has no scores, draws alone. The kept draws lead back to the parameters of the user's model.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

TOOLS = ("blackjax", "emcee", "generic", "jax", "numpyro", "nutpie", "pymc", "stan", "torch", "xarray")

__all__ = list(TOOLS)


def __getattr__(name: str) -> ModuleType:
    if name not in TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
