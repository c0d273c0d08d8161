"""What all live sources share."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from steinstream.coordinates import Streaming
from steinstream.errors import InputError
from steinstream.thinner import Thinner


def live_thinner(dim: int, **settings: Any) -> Thinner:
    """A thinner for a chain that is still running: coordinates follow the stream unless given."""
    settings.setdefault("coordinates", Streaming())
    return Thinner(dim, **settings)


def need(module: str, extra: str) -> Any:
    """Import a tool, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise InputError(
            f"{module} cannot be imported: {problem}.", f"Install it: pip install 'steinstream[{extra}]'."
        ) from None
