"""Figures and summaries can be made from the committed results; the committed summaries are those of the results."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from experiments import redraw
from experiments.paper.networks.description import NetworkDescription, Plane
from experiments.results import estimate, read_table, select


@pytest.mark.parametrize("name", redraw.names())
def test_the_committed_summary_is_that_of_the_results(name):
    folder = redraw.HERE / name
    summary = redraw.load(name, folder).summary(read_table(folder / "results.parquet"))
    assert (folder / "summary.md").read_text().startswith(summary)


def test_every_experiment_with_results_can_be_drawn():
    folders = {path.parent for path in redraw.HERE.glob("*/results.parquet")}
    scripts = {"published"}  # draws its figure itself
    assert {folder.name for folder in folders} == {*redraw.names(), *scripts}
    assert all((redraw.HERE / name / "run.py").exists() for name in scripts)


@pytest.mark.parametrize("name", ["adaptivity", "goodwin-published"])
def test_figures_are_drawn_without_a_run(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(redraw.HERE / name, folder)
    for path in folder.glob("*.png"):
        path.unlink()
    written = redraw.redraw(name, folder)
    assert {path.name for path in written} == {"summary.md", "figure-imq.png", "figure-rbf.png"}
    assert all(path.stat().st_size > 10_000 for path in written if path.suffix == ".png")
    assert (folder / "summary.md").read_text() == (redraw.HERE / name / "summary.md").read_text()


def test_the_description_of_networks_is_stored_with_the_plane(tmp_path):
    points = np.arange(10.0).reshape(5, 2)
    plane = Plane(truth=points, chain=points[:2], corners=np.empty((0, 2)))
    written = NetworkDescription("title", "first\n\nsecond", {"accuracy": 0.5}, plane)
    written.save(tmp_path)
    read = NetworkDescription.load(tmp_path)
    assert read[:3] == written[:3]
    assert all(np.array_equal(one, other) for one, other in zip(read.plane, plane, strict=True))


def test_differences_between_networks_are_paired():
    results = read_table(redraw.HERE / "imdb" / "results.parquet")
    rows = [
        select(results, stream="SGLD", kernel="imq", method=method, rule="paper", preconditioner="identity", step=2000)
        for method in ("KSDT-SQRT", "every draw")
    ]
    expected = estimate(rows[0]["agreement"] - rows[1]["agreement"])
    line = next(
        line
        for line in (redraw.HERE / "imdb" / "summary.md").read_text().splitlines()
        if line.startswith("| IMQ | SGLD | KSDT-SQRT | 2,000 |")
    )
    assert expected in line
    unpaired = np.hypot(*(row["agreement"].std(ddof=1) / np.sqrt(10) for row in rows))
    assert float(expected.split()[-1]) < unpaired
