"""steinstream scores: the scores of a file of draws, in a file that can be thinned."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss

MODEL = """
import numpy as np

SCALES = np.array([1.0, 0.1, 10.0])

def log_density(x):
    return -0.5 * np.sum((x / SCALES) ** 2)

def score(x):
    return -x / SCALES**2

def fails(x):
    if x[0] > 2.0:
        raise ValueError("the solver failed")
    return log_density(x)

number = 3
"""


@pytest.fixture
def draws(tmp_path):
    """Write draws.csv, two chains of 60 draws, and the log density in a module of its own for each test."""
    x = np.random.default_rng(0).normal(size=(120, 3)) * [1.0, 0.1, 10.0]
    rows = [f"{i // 60},{','.join(map(repr, row.tolist()))}" for i, row in enumerate(x)]
    (tmp_path / "draws.csv").write_text("chain,mu,tau,beta\n" + "\n".join(rows) + "\n")
    return x


@pytest.fixture
def model(tmp_path):
    name = f"model_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    return name


@pytest.mark.parametrize(
    "options", [["--log-density", "{}.py:log_density"], ["--log-density", "{}:log_density"], ["--score", "{}.py:score"]]
)
def test_the_output_has_the_draws_their_scores_and_ids(steinstream, tmp_path, draws, model, options):
    done = steinstream("scores", "draws.csv", *(word.format(model) for word in options), "-o", "scored.npz")
    assert done.returncode == 0 and "120 draws with scores" in done.stdout
    with np.load(tmp_path / "scored.npz") as file:
        np.testing.assert_array_equal(file["draws"], draws)
        np.testing.assert_allclose(file["scores"], -draws / [1.0, 0.01, 100.0], rtol=1e-6, atol=1e-6)
        assert file["ids"][[0, 60]].tolist() == [[0, 0], [1, 0]] and file["names"].tolist() == ["mu", "tau", "beta"]
    thinned = steinstream("thin", "scored.npz", "-o", "kept.npz", "--size", "20")
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert thinned.returncode == 0 and kept.names == ("mu", "tau", "beta") and kept.scores is not None
    assert set(kept.ids[:, 0]) == {0, 1}


@pytest.mark.parametrize("tool", ["jax", "torch"])
def test_the_log_density_can_be_differentiated_automatically(steinstream, tmp_path, draws, tool):
    pytest.importorskip(tool)
    name = f"auto_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("def log_density(x):\n    return -0.5 * (x**2).sum()\n")
    done = steinstream("scores", "draws.csv", "--log-density", f"{name}:log_density", "--by", tool, "-o", "scored.npz")
    assert done.returncode == 0
    with np.load(tmp_path / "scored.npz") as file:
        np.testing.assert_allclose(file["scores"], -draws, rtol=1e-5)


def test_a_failure_keeps_the_finished_scores_for_the_next_run(steinstream, tmp_path, draws, model):
    command = ["scores", "draws.csv", "--log-density", f"{model}.py:fails", "-o", "scored.npz"]
    done = steinstream(*command, "--checkpoint", "part.npz")
    assert done.returncode != 0 and not (tmp_path / "scored.npz").exists()
    assert "the solver failed" in done.stderr and "Traceback" not in done.stderr
    with np.load(tmp_path / "part.npz") as file:
        assert 0 < file["done"].sum() < 120
    done = steinstream(*command, "--checkpoint", "part.npz", "--on-error", "nan")
    assert done.returncode == 0
    with np.load(tmp_path / "scored.npz") as file:
        assert np.isnan(file["scores"]).any(axis=1).sum() == (draws[:, 0] > 2.0 - 1e-3).sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "exactly one of --log-density and --score"),
        (["--log-density", "model"], "is not of the form MODULE:FUNCTION"),
        (["--log-density", "nothing.py:f"], "there is no module nothing.py"),
        (["--log-density", "{}:number"], "has no function number"),
        (["--score", "{}:score", "--processes", "2"], "--processes has no effect with --score"),
        (["--log-density", "{}:log_density", "--by", "jax", "--accuracy", "0.1"], "--accuracy has no effect with --by"),
        (["--log-density", "{}:log_density", "--accuracy", "2"], "accuracy must lie between 0 and 1"),
    ],
)
def test_wrong_options_are_errors(steinstream, draws, model, options, message):
    done = steinstream("scores", "draws.csv", *(word.format(model) for word in options), "-o", "scored.npz")
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_the_output_is_an_npz_file(steinstream, draws, model):
    done = steinstream("scores", "draws.csv", "--score", f"{model}:score", "-o", "scored.csv")
    assert done.returncode == 2 and "not an npz file" in done.stderr
