"""How a result came about, in plain words and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steinstream.version import __version__

if TYPE_CHECKING:
    from steinstream.thinner import Thinner


def settings(thinner: Thinner) -> dict[str, Any]:
    """The settings of a thinner and how far it came; all of it fits into JSON."""
    follower, here = thinner._follower, thinner.current_pass
    said: dict[str, Any] = {
        "steinstream": __version__,
        "kernel": repr(thinner.kernel),
        "coordinates": f"{follower.streaming}: {thinner.coordinates}" if follower else str(thinner.coordinates),
        "growth": str(thinner.growth),
        "budget": str(thinner.budget),
        "rule": thinner.rule,
        "size": thinner.cap,
        "candidates": thinner.candidates,
        "seen": thinner.seen,
        "skipped": thinner.skipped,
        "steps": thinner.steps,
        "passes": here.number,
        "bound": thinner.bound,
    }
    if follower:
        said["coordinates_changed"] = follower.changes  # after these steps: KSD means something else from there on
    if here.ends:
        said["ksd_after_passes"] = [*here.ends, thinner.ksd]
    return said
