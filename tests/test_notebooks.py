"""The notebooks of the documentation run, and give the text output that is stored in them."""

from __future__ import annotations

import ast
import contextlib
import io
import json

import pytest

from tests.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


def run_cell(source: str, names: dict) -> str:
    """Run a cell as Jupyter does; return what it prints, and the value of a last expression."""
    tree, value = ast.parse(source), None
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(last, "cell", "eval"), names)
    return printed.getvalue() + ("" if value is None else repr(value))


def stored_text(cell: dict) -> str:
    """Return the text output that a notebook has for a cell, without descriptions of figures."""
    outputs = [output for output in cell["outputs"] if output["output_type"] != "display_data"]
    assert all(output["output_type"] in ("stream", "execute_result") for output in outputs), outputs
    return "".join("".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_the_output_that_is_stored_in_it(path, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib", reason="the notebooks draw figures")
    matplotlib.use("agg")
    if "import torch" in path.read_text():
        pytest.importorskip("torch", reason="this notebook uses PyTorch")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    for number, cell in enumerate(cells):
        assert run_cell("".join(cell["source"]), names) == stored_text(cell), f"code cell {number}"
    assert not list(tmp_path.iterdir())


def test_every_figure_of_a_notebook_has_an_alternative_text():
    assert len(NOTEBOOKS) >= 3
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
                assert cell["metadata"]["mystnb"]["image"]["alt"], path.name
