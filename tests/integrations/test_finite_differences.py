"""Scores by central differences: exact enough, each state once, in parallel, resumable."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.integrations.generic import finite_difference_scores
from tests.integrations.posterior import DIM, log_density, score


@pytest.fixture
def chain():
    rng = np.random.default_rng(0)
    return np.array([1.0, 0.5, 0.0, 0.0]) + rng.normal(size=(40, DIM)) * [0.3, 0.1, 0.5, 0.5]


def exact(chain):
    return np.array([score(x) for x in chain])


def wrong_at_one_draw(x):
    if abs(x[0] - 5.0) < 0.1:
        raise ZeroDivisionError("the solver failed")
    return log_density(x)


class Counted:
    """A log density that counts its evaluations and fails after some."""

    def __init__(self, limit=np.inf):
        self.calls, self.limit = 0, limit

    def __call__(self, x):
        self.calls += 1
        if self.calls > self.limit:
            raise KeyboardInterrupt
        return log_density(x)


def test_scores_are_those_of_the_log_density(chain):
    scores = finite_difference_scores(log_density, chain.reshape(2, 20, DIM))
    np.testing.assert_allclose(scores.reshape(40, DIM), exact(chain), rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(finite_difference_scores(log_density, chain, step=1e-4), exact(chain), atol=1e-3)


def test_the_accuracy_of_a_simulation_sets_the_step(chain):
    rng = np.random.default_rng(1)

    def noisy(x):
        return log_density(x) * (1 + 1e-6 * rng.normal())

    errors = [
        np.abs(finite_difference_scores(noisy, chain, accuracy=accuracy) - exact(chain)).max()
        for accuracy in (1e-6, 1e-15)
    ]
    assert errors[0] < 0.3 < 10 < errors[1]


def test_every_distinct_state_is_evaluated_once(chain):
    counted, shares = Counted(), []
    scores = finite_difference_scores(counted, np.repeat(chain, 3, axis=0), progress=shares.append)
    assert counted.calls == 2 * DIM * len(chain)
    np.testing.assert_array_equal(scores[::3], scores[1::3])
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_an_interrupted_computation_continues_from_its_file(chain, tmp_path):
    path = tmp_path / "scores.npz"
    with pytest.raises(KeyboardInterrupt):
        finite_difference_scores(Counted(limit=2 * DIM * 25 + 3), chain, checkpoint=path)
    counted = Counted()
    scores = finite_difference_scores(counted, chain, checkpoint=path)
    assert counted.calls == 2 * DIM * 15
    np.testing.assert_array_equal(scores, finite_difference_scores(log_density, chain))
    finished = Counted()
    np.testing.assert_array_equal(finite_difference_scores(finished, chain, checkpoint=path), scores)
    assert finished.calls == 0


def test_a_file_of_other_draws_is_an_error(chain, tmp_path):
    path = tmp_path / "scores.npz"
    finite_difference_scores(log_density, chain[:3], checkpoint=path)
    with pytest.raises(InputError, match="not contain scores of these draws"):
        finite_difference_scores(log_density, chain, checkpoint=path)
    with pytest.raises(InputError, match="with these steps"):
        finite_difference_scores(log_density, chain[:3], step=0.1, checkpoint=path)
    np.savez_compressed(path, states=np.zeros(5_000_000))
    with pytest.raises(InputError, match="its content takes 40 MB in memory"):
        finite_difference_scores(log_density, chain, checkpoint=path)
    path.write_bytes(b"not a file of numpy")
    with pytest.raises(InputError, match="cannot be read"):
        finite_difference_scores(log_density, chain, checkpoint=path)


def test_several_processes_give_the_same_scores(chain, tmp_path):
    scores = finite_difference_scores(log_density, chain[:8], processes=2, checkpoint=tmp_path / "scores.npz")
    np.testing.assert_array_equal(scores, finite_difference_scores(log_density, chain[:8]))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failed_evaluation_is_raised_or_yields_nan(chain, processes, tmp_path, caplog):
    draws, path = chain[:6].copy(), tmp_path / "scores.npz"
    draws[4, 0] = 5.0
    step = 1e-5
    with pytest.raises(ZeroDivisionError, match="the solver failed"):
        finite_difference_scores(wrong_at_one_draw, draws, step=step, processes=processes, checkpoint=path)
    options = {"step": step, "processes": processes, "on_error": "nan", "checkpoint": path}
    scores = finite_difference_scores(wrong_at_one_draw, draws, **options)
    assert np.isnan(scores[4]).all() and np.isfinite(np.delete(scores, 4, axis=0)).all()
    assert "1 of 6 draws have no finite score" in caplog.text
    assert ss.thin(draws, scores, size=3, on_bad="skip").settings["skipped"] == 1


def test_a_log_density_that_is_not_finite_has_no_score():
    scores = finite_difference_scores(lambda x: -np.inf if x[0] > 1 else -x @ x, [[0.5, 0.0], [2.0, 0.0]])
    assert np.isfinite(scores[0]).all() and np.isnan(scores[1]).all()


@pytest.mark.filterwarnings("error")
def test_a_draw_at_the_end_of_the_range_has_no_score():
    largest = np.finfo(np.float64).max
    scores = finite_difference_scores(lambda x: -abs(float(x[0])), [[largest], [-largest]])
    assert np.isnan(scores).all()


def test_a_constant_parameter_has_a_step():
    scores = finite_difference_scores(lambda x: -0.5 * x @ x, [[3.0, 0.0, 1.0], [3.0, 0.0, 2.0]])
    np.testing.assert_allclose(scores, [[-3, 0, -1], [-3, 0, -2]], atol=1e-6)


def test_wrong_arguments_are_errors(chain):
    for options, message in (
        ({"accuracy": 0.0}, "accuracy must lie"),
        ({"step": [0.1, 0.1]}, "step must be a number or 4 numbers"),
        ({"step": -1.0}, "positive and finite"),
        ({"processes": 0}, "processes must be"),
        ({"on_error": "skip"}, "on_error must be"),
    ):
        with pytest.raises(InputError, match=message):
            finite_difference_scores(log_density, chain, **options)
    with pytest.raises(InputError, match=r"returned an array of shape \(4,\)"):
        finite_difference_scores(lambda x: x, chain)
    with pytest.raises(InputError, match="cannot be sent to another process"):
        finite_difference_scores(lambda x: -x @ x, chain, processes=2)


def test_a_script_without_a_guard_gets_one_message(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import numpy as np\n"
        "from steinstream.integrations.generic import finite_difference_scores\n"
        "def f(x):\n    return -x @ x\n"
        "try:\n    finite_difference_scores(f, np.eye(3), processes=2)\n"
        "except Exception as error:\n    print(error)\n"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )
    assert 'if __name__ == "__main__"' in done.stdout and done.stderr == ""
