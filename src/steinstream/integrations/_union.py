"""What several thinners have kept, each of a chain of its own, as one set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steinstream.coordinates import Coordinates
from steinstream.discrepancy import ksd
from steinstream.door import Block
from steinstream.kept import History, Kept


def union(sets: Sequence[Kept]) -> Kept:
    """All draws of all sets. KSD is of all together, in coordinates estimated from them; there is no history of it."""
    if len(sets) == 1:
        return sets[0]
    points, scores, ids = (np.concatenate([getattr(s, what) for s in sets]) for what in ("points", "scores", "ids"))
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    points, scores, ids = points[order], scores[order], ids[order]
    kernel, coordinates = sets[0].kernel, Coordinates.estimate("auto", points)
    counts = {what: sum(s.settings[what] for s in sets) for what in ("seen", "skipped", "initial", "steps")}
    settings = {**sets[0].settings, **counts, "coordinates": str(coordinates), "bound": None}
    settings["thinners"] = [s.settings for s in sets]
    settings.pop("coordinates_changed", None)
    none = np.zeros(0, dtype=np.int64)
    distance = ksd(points, scores, kernel=kernel, coordinates=coordinates)
    history = History(none, none, np.zeros(0))
    streams = [s.stream for s in sets if s.stream is not None]
    return Kept(
        points, scores, ids, distance, history, kernel=kernel, coordinates=coordinates, settings=settings,
        stream=Block(*(np.concatenate(parts) for parts in zip(*streams, strict=True))) if streams else None,
    )  # fmt: skip
