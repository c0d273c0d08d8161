"""Thin draws while a sampler runs: one tool per file, each imported only when it is used.

For every tool, the thinner receives unconstrained draws and the score of their density, Jacobian included. The kept
draws lead back to the parameters of the user's model.
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
