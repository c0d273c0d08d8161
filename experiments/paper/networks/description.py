"""Description of an experiment with networks: what its figures and its summary need besides the results.

It is stored as ``networks.json`` and ``plane.npz``, so that figures and summary can be made again without a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.paper.networks.summary import tables
from experiments.paper.settings import KERNELS
from experiments.results import ResultTable
from steinstream._typing import Array
from steinstream.io import replacing

JSON, NPZ = "networks.json", "plane.npz"
_SHOWN = 4000  # draws of the ground truth in the figure


class Plane(NamedTuple):
    """Draws in the plane: the ground truth, one compared chain, and the corners of the interpolant (or no rows)."""

    truth: Array
    chain: Array
    corners: Array

    @classmethod
    def of(cls, stages: Any) -> Plane:
        """Return the plane of the stages of an experiment."""
        truth, chain = stages.ground_truth.draws[0], stages.compared_chain(0).draws[0]
        corners = np.empty((0, 2))
        if stages.scale.nodes is not None:
            centre, sides = stages.grid.rectangle
            corners = centre + np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)]) @ sides.T
        return cls(np.asarray(truth[:: max(1, len(truth) // _SHOWN)]), np.asarray(chain), corners)


class NetworkDescription(NamedTuple):
    """Title, first part of the summary, measures of the ground truth (``levels``), and the plane if it is stored."""

    title: str
    introduction: str
    levels: Mapping[str, float]
    plane: Plane | None = None

    @classmethod
    def load(cls, folder: Path) -> NetworkDescription:
        """Read the description of the results in a folder."""
        stored, plane = json.loads((folder / JSON).read_text()), None
        if (folder / NPZ).exists():
            with np.load(folder / NPZ) as file:
                plane = Plane(*(file[name] for name in Plane._fields))
        return cls(stored["title"], "\n\n".join(stored["introduction"]), stored["levels"], plane)

    def save(self, folder: Path) -> None:
        """Write ``networks.json`` and ``plane.npz``."""
        stored = {"title": self.title, "introduction": self.introduction.split("\n\n"), "levels": dict(self.levels)}
        with replacing(folder / JSON, "w") as file:
            json.dump(stored, file, indent=1, ensure_ascii=False)
        if self.plane is not None:
            with replacing(folder / NPZ) as file:
                np.savez_compressed(
                    file, **{name: part.astype(np.float32) for name, part in self.plane._asdict().items()}
                )

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return the figures by file name."""
        from experiments.paper.networks import plots

        figures = {} if self.plane is None else {"plane.png": plots.plane(self.title, self.plane)}
        figures["comparison.png"] = plots.comparison(self.title, results)
        for kernel in KERNELS:
            figures[f"figure-{kernel}.png"] = plots.measures(self.title, results, kernel, self.levels)
            figures[f"variants-{kernel}.png"] = plots.variants(self.title, results, kernel)
        return figures

    def summary(self, results: ResultTable) -> str:
        """Return the summary as Markdown."""
        return f"{self.introduction}\n\n{tables(results)}"
