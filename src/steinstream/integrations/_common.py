"""What all live sources share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from steinstream.errors import InputError
from steinstream.io.errors import need
from steinstream.preconditioning import Streaming
from steinstream.result import Kept
from steinstream.thinner import Thinner

__all__ = ["chosen_thinner", "live_thinner", "need", "what_is_kept"]


def live_thinner(dim: int, **settings: Any) -> Thinner:
    """A thinner for a chain that is still running: coordinates follow the stream unless given."""
    settings.setdefault("preconditioner", Streaming())
    return Thinner(dim, **settings)


def chosen_thinner(thinner: Thinner | None, dim: int, settings: dict[str, Any]) -> Thinner:
    """The user's thinner, or one of these settings."""
    if thinner is None:
        return live_thinner(dim, **settings)
    if settings:
        raise InputError(
            f"Both a thinner and settings for one were given: {', '.join(settings)}.", "Give the one or the other."
        )
    if thinner.dim != dim:
        raise InputError(
            f"The thinner is for {thinner.dim} dimensions, the draws have {dim}.",
            "Count dimensions where the sampler moves: a simplex of three has two.",
        )
    return thinner


def what_is_kept(thinner: Thinner, names: Sequence[str] | None = None, **about: Any) -> Kept:
    """The kept draws with what else is known of them; an error if not one draw was fit to be kept."""
    if thinner.seen and thinner.seen == thinner.skipped:
        raise InputError(
            f"All {thinner.seen} draws came with values that are not finite.",
            "Check that the sampler computes scores at all; on_bad='raise' shows the first bad one.",
        )
    kept = thinner.kept
    return replace(kept, names=None if names is None else tuple(names), settings={**kept.settings, **about})
