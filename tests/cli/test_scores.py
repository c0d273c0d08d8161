"""steinstream scores: the scores of a file of draws, in a file that can be thinned."""

from __future__ import annotations

import json
import os

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
        (["--log-density", "nothing.py:f"], "the module nothing.py does not exist"),
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


def counted(tmp_path):
    """Write a log density that appends a line to a file at each evaluation, and return the file."""
    (tmp_path / "counted.py").write_text(
        "def log_density(x):\n"
        f"    with open({str(tmp_path / 'calls')!r}, 'a') as file:\n"
        "        file.write('x')\n"
        "    if x[0] > 2.5:\n"
        "        raise ValueError('the solver failed')\n"
        "    return -0.5 * (x[0] ** 2 + x[1] ** 2)\n"
    )
    (tmp_path / "calls").touch()
    return tmp_path / "calls"


def test_two_stages_compute_scores_of_few_draws_and_represent_the_whole_chain(steinstream, tmp_path):
    x = np.repeat(np.random.default_rng(0).normal(size=(2000, 2)), 2, axis=0)  # rejected moves repeat a state
    np.savez(tmp_path / "chain.npz", draws=x, names=np.array(["a", "b"]))
    calls = counted(tmp_path)
    command = ["scores", "chain.npz", "--log-density", "counted.py:log_density", "-o", "kept.npz", "--size", 40]
    ran = steinstream(*command, "--first", 200)
    assert ran.returncode == 2 and "the solver failed" in ran.stderr and not (tmp_path / "kept.npz").exists()
    calls.write_text("")
    ran = steinstream(*command, "--first", 200, "--on-error", "nan", "--checkpoint", "part.npz")
    assert ran.returncode == 0, ran.stderr
    assert "draws have no finite score" in ran.stderr and ran.stderr.count("finite score") == 1
    assert "parameters  2: a, b" in ran.stdout and "without scores: kept 200 of 4 000 draws" in ran.stdout
    assert len(calls.read_text()) <= 4 * 200  # two evaluations per dimension and distinct state
    assert "scores (only kept draws have scores)" in ran.stdout
    assert "no scores" not in ran.stdout and "without scores of the target" not in ran.stdout
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert len(kept) == 40 and kept.settings["seen"] == 4000 and kept.names == ("a", "b")
    np.testing.assert_allclose(kept.scores, -kept.draws, atol=1e-6)
    np.testing.assert_allclose(kept.mean(), x.mean(axis=0), atol=0.1)
    calls.write_text("")
    again = steinstream(*command, "--first", 200, "--on-error", "nan", "--checkpoint", "part.npz", "--json")
    assert again.returncode == 0 and calls.read_text() == "" and '"kept": 40' in again.stdout


def test_two_stages_are_refused_where_they_make_no_sense(steinstream, chain, tmp_path, draws, model):
    function = ["--log-density", f"{model}.py:log_density", "-o", "kept.npz"]
    for words, message in (
        ([chain, *function, "--size", 5], "has scores"),
        (["draws.csv", *function, "--first", 5], "--first has no effect without --size"),
        (["draws.csv", *function, "--size", 5, "--first", 3], "--first 3 is smaller than --size 5"),
    ):
        ran = steinstream("scores", *words)
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr, ran.stderr


def test_the_burn_in_is_left_out(steinstream, tmp_path, draws, model):
    words = ("scores", "draws.csv", "--score", f"{model}.py:score", "-o", "scored.npz", "--burn-in", "10")
    done = steinstream(*words)
    assert done.returncode == 0 and "100 draws with scores" in done.stdout, done.stderr
    with np.load(tmp_path / "scored.npz") as file:
        np.testing.assert_array_equal(file["draws"], draws.reshape(2, 60, 3)[:, 10:].reshape(-1, 3))
        assert file["ids"][[0, 50]].tolist() == [[0, 10], [1, 10]]
    share = steinstream(*words[:-1], "50%")
    assert share.returncode == 0 and "60 draws with scores" in share.stdout


def test_a_log_density_that_fails_names_the_option_that_continues(steinstream, draws, model):
    ran = steinstream("scores", "draws.csv", "--log-density", f"{model}.py:fails", "-o", "scored.npz")
    assert ran.returncode == 2 and "--on-error nan continues without such draws" in ran.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n1 / 0", "line 2 cannot be imported: ZeroDivisionError: division by zero."),
        ("1 +", "cannot be imported: SyntaxError: "),
        ("\0", "cannot be imported: SyntaxError: "),
        ("exit(1)", "line 1 cannot be imported: SystemExit: 1."),
    ],
)
def test_a_module_that_fails_is_an_error_with_its_line(steinstream, tmp_path, draws, text, message):
    name = f"broken_{tmp_path.name.replace('-', '_')}.py"
    (tmp_path / name).write_text(text)
    done = steinstream("scores", "draws.csv", "--score", f"{name}:f", "-o", "scored.npz")
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("error: ") == 1


def test_a_function_that_ends_the_program_is_an_error(steinstream, tmp_path, draws):
    name = f"ends_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("def f(x): raise SystemExit(1)")
    done = steinstream("scores", "draws.csv", "--score", f"{name}:f", "-o", "scored.npz")
    assert done.returncode == 2 and "failed: SystemExit: 1" in done.stderr


def test_scores_that_are_of_no_use_are_an_error(steinstream, tmp_path, draws):
    (tmp_path / "useless.py").write_text("def constant(x):\n    return 3.0\n\ndef nan(x):\n    return float('nan')\n")
    for name, problem in {"constant": "every score is zero", "nan": "no draw has a finite score"}.items():
        for size in ([], ["--size", 20]):
            ran = steinstream("scores", "draws.csv", "--log-density", f"useless.py:{name}", "-o", "scored.npz", *size)
            assert ran.returncode == 2 and problem in ran.stderr and "warning" not in ran.stderr
            assert not (tmp_path / "scored.npz").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_text_that_the_log_density_prints_does_not_spoil_json(steinstream, tmp_path, draws, processes):
    (tmp_path / "chatty.py").write_text(
        "import os\nprint('hello')\n\ndef f(x):\n    print('step')\n    os.write(1, b'raw')\n    return -x @ x / 2\n"
    )
    options = ["--log-density", "chatty.py:f", "-o", "scored.npz", "--json", "--processes", processes]
    ran = steinstream("scores", "draws.csv", *options, env={**os.environ})
    assert ran.returncode == 0 and json.loads(ran.stdout)["draws"] == 120, ran.stderr
    assert "hello" in ran.stderr and "step" in ran.stderr and "raw" in ran.stderr


def test_an_error_of_the_log_density_is_one_line(steinstream, tmp_path, draws):
    (tmp_path / "long.py").write_text("def f(x):\n    raise ValueError('too stiff\\nsee the log')\n")
    ran = steinstream("scores", "draws.csv", "--log-density", "long.py:f", "-o", "scored.npz")
    assert ran.returncode == 2 and "error: the function long.py:f failed: ValueError: too stiff.\n" in ran.stderr
