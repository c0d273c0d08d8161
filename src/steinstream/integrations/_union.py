"""What several thinners have kept, each of a chain of its own, as one set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steinstream.discrepancy import ksd
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept
from steinstream.validation import Block


def union(sets: Sequence[Kept]) -> Kept:
    """All draws of all sets. KSD is of all together, in coordinates estimated from them; there is no history of it."""
    if len(sets) == 1:
        return sets[0]
    points, scores, ids = (np.concatenate([getattr(s, what) for s in sets]) for what in ("draws", "scores", "ids"))
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    points, scores, ids = points[order], scores[order], ids[order]
    kernel, preconditioner = sets[0].kernel, Preconditioner.estimate("auto", points)
    counts = {what: sum(s.settings[what] for s in sets) for what in ("seen", "skipped", "initial", "steps")}
    settings = {**sets[0].settings, **counts, "preconditioner": str(preconditioner), "bound": None}
    settings["thinners"] = [s.settings for s in sets]
    settings.pop("preconditioner_changed", None)
    none = np.zeros(0, dtype=np.int64)
    distance = ksd(points, scores, kernel=kernel, preconditioner=preconditioner)
    history = History(none, none, np.zeros(0))
    streams = [s.stream for s in sets if s.stream is not None]
    return Kept(
        points, scores, ids, distance, history, kernel=kernel, preconditioner=preconditioner, settings=settings,
        stream=Block(*(np.concatenate(parts) for parts in zip(*streams, strict=True))) if streams else None,
    )  # fmt: skip
