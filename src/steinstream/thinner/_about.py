"""How a result came about, in plain words and numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from steinstream.result import Kept
from steinstream.version import __version__

if TYPE_CHECKING:
    from steinstream.thinner import Thinner


def kept(thinner: Thinner, *, look: bool = True) -> Kept:
    """What is kept, as if the stream ended here. A warning tells of scores or coordinates that look wrong."""
    view = thinner._settled()
    if look:
        thinner._looks.at(thinner._sketch.block, thinner.kernel)
    points, scores, ids, checks = view._kept_set.contents()
    preconditioner = view._kept_set.preconditioner
    noise = None if thinner._checks is None else thinner._checks.excess(thinner.kernel, preconditioner)
    return Kept(
        points, scores, ids[:, :2], view._kept_set.ksd, view.history,
        kernel=thinner.kernel, preconditioner=preconditioner, settings=view.settings | ({} if noise is None else {"second_scores_noise": noise}), bound=view.bound,
        second_scores=None if noise is None else checks, stream=thinner._sketch.block,
    )  # fmt: skip


def settings(thinner: Thinner) -> dict[str, Any]:
    """The settings of a thinner and how far it came; all of it fits into JSON."""
    follower, here = thinner._follower, thinner.current_pass
    said: dict[str, Any] = {
        "steinstream": __version__,
        "kernel": repr(thinner.kernel),
        "preconditioner": f"{follower.streaming}: {thinner.preconditioner}"
        if follower
        else str(thinner.preconditioner),
        "growth": str(thinner.growth),
        "budget": str(thinner.budget),
        "rule": thinner.rule,
        "size": thinner.size,
        "candidates": thinner.candidates,
        "anchor": thinner.anchor,
        "cost_weight": thinner.cost_weight,
        "storage": thinner.storage,
        "seen": thinner.seen,
        "skipped": thinner.skipped,
        "initial": thinner._brought,
        "steps": thinner.steps,
        "passes": here.number,
        "bound": thinner.bound,
    }
    if follower:
        said["preconditioner_changed"] = follower.changes  # after these steps: KSD means something else from there on
    if thinner.anchor:
        said["mmd"] = None if math.isnan(thinner.mmd) else thinner.mmd
    if thinner.pinned:
        said["pinned"] = len(thinner.pinned)
    if here.ends:
        said["ksd_after_passes"] = [*here.ends, thinner.ksd]
    return said
