r"""Bounds on KSD and MMD of merged sets: both sides, for ``settings["merged"]``.

KSD^2 and MMD^2 are convex, so those of the union are at most the mean over the parts, weighted by mass.
Removing draws changes them by a measured amount. If merged sets are merged again, in a tree,

.. math:: \mathrm{KSD}^2(\text{root}) \le \sum_c m_c \mathrm{KSD}^2(\text{leaf}_c) + \sum_{l} \text{increase}_l ,

where the increase of a level l is the mean over its nodes, and the same holds for MMD^2, with the error of compressing
the joined stream included in the increase. ``kept.settings["merged"]`` contains both sides of the bound on KSD:
``bound`` with the measured increases, and ``bound_by_budget`` with the budgets in their place, which is known before
the first merge. It is None if a size or a stream term may cost more than the budget. ``merged["mmd"]`` contains those
of the bound on MMD.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from steinstream._typing import Array
from steinstream.postprocess._union import Squares, Union
from steinstream.preconditioning import Preconditioner, same_preconditioner
from steinstream.result import Kept

_ROUNDING = 1e-12


def merge_ledger(
    sets: Sequence[Kept], union: Union, before: Squares, share: Array, budget: float | None
) -> dict[str, Any]:
    """Return both sides of the bounds, for ``settings["merged"]``."""
    after, parts, known = union.squares, union.squares_of_parts, [_known(kept, union) for kept in sets]
    found: dict[str, Any] = {"parts": len(sets), "leaves": None, "increases": None, "bound": None}
    found |= {"bound_by_budget": None, "stream_weight": union.stream_weight, "trust": union.trust, "mmd": None}
    if after.ksd is not None and before.ksd is not None:
        own = [part.ksd or 0.0 for part in parts]
        found |= _bound(known, own, share, after.ksd - before.ksd)
        squares = [_square_by_budget(one, square) for one, square in zip(known, own, strict=True)]
        if budget is not None and None not in squares:
            total = math.fsum(part * (square or 0.0) for part, square in zip(share.tolist(), squares, strict=True))
            found["bound_by_budget"] = math.sqrt(total + budget)
    if after.mmd is not None and before.mmd is not None:
        own = [part.mmd or 0.0 for part in parts]
        mean = float(share @ np.array(own))
        compression = (math.sqrt(mean) + union.stream_error) ** 2 - mean
        found["mmd"] = _bound([one.get("mmd") or {} for one in known], own, share, after.mmd - before.mmd + compression)
        found["mmd"]["stream_error"] = union.stream_error
    return found


def _known(kept: Kept, union: Union) -> dict[str, Any]:
    """Return what is known from earlier merges of a part, if that still holds with the preconditioner of the union."""
    same = same_preconditioner(kept.preconditioner or Preconditioner.identity(), union.preconditioner)
    return kept.settings.get("merged", {}) if same else {}


def _square_by_budget(known: dict[str, Any], own: float) -> float | None:
    """Return the square of the bound of a part by the budgets of earlier merges; None if there is none."""
    if not _holds(known, own):
        return own
    root = known["bound_by_budget"]
    return None if root is None else float(root) ** 2


def _holds(known: dict[str, Any], own: float) -> bool:
    """Return whether the bound of earlier merges of a part holds for its measured square."""
    leaves = known.get("leaves")
    return leaves is not None and own <= math.fsum([leaves, *known["increases"], _ROUNDING * leaves])


def _bound(known: Sequence[dict[str, Any]], own: Sequence[float], share: Array, increase: float) -> dict[str, Any]:
    """Return both sides of a bound; a part that was merged before contributes its own, if that still holds."""
    leaves = 0.0
    increases: list[float] = []
    for before, square, part in zip(known, own, share.tolist(), strict=True):
        merged = _holds(before, square)
        leaves += part * (before["leaves"] if merged else square)
        earlier = before["increases"] if merged else []
        increases += [0.0] * (len(earlier) - len(increases))
        for level, value in enumerate(earlier):
            increases[level] += part * value
    increases.append(increase)
    return {"leaves": leaves, "increases": increases, "bound": math.sqrt(max(leaves + math.fsum(increases), 0.0))}
