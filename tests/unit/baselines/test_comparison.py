"""Comparison of the methods: rows equal what the methods give, errors are relative to a stride, failures are rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream import baselines
from steinstream.baselines import comparison
from steinstream.baselines.comparison import reference_of, rows_of_process
from steinstream.baselines.methods import problem_from_arrays
from steinstream.errors import InputError

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc for the peak memory")


def slow_errors(chain, kept):
    """Errors of a kept set over those of eight evenly spaced sets of the same size, one parameter at a time."""

    def errors(draws):
        squares = np.zeros((chain.shape[1], 4))
        for j, (column, some) in enumerate(zip(chain.T, draws.T, strict=True)):
            sd = column.std()
            low, high = ((np.quantile(some, q) - np.quantile(column, q)) / sd for q in (0.05, 0.95))
            squares[j] = np.square([(some.mean() - column.mean()) / sd, some.std() / sd - 1, low, high])
        return np.sqrt([squares[:, 0].mean(), squares[:, 1].mean(), squares[:, 2:].mean()])

    n, m = len(chain), len(kept)
    strides = [[int((i + (offset + 0.5) / 8) * n / m) for i in range(m)] for offset in range(8)]
    unit = np.sqrt(np.mean([errors(chain[rows]) ** 2 for rows in strides], axis=0))
    return errors(kept) / unit


def test_rows_equal_what_the_methods_give_and_failures_are_rows_too(chain, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    seen = []
    rows = ss.compare(chain, sizes=[40, 10, 4000], methods=["ksdt", "random-thinning"], seed=7, on_row=seen.append)
    assert rows == seen
    assert [(row.method, row.size) for row in rows] == [
        (name, size) for name in ("ksdt", "random_thinning") for size in (10, 40, 4000)
    ]
    with np.load(chain) as arrays:
        x, s = arrays["draws"], arrays["scores"]
    preconditioner = ss.thin(x, s, size=5).preconditioner
    for row in rows:
        if row.size == 4000:
            assert "size is 4000, but the chain has only 3000 draws" in row.problem and np.isnan(row.ksd)
            continue
        chosen = getattr(baselines, row.method)(x, s, row.size, seed=7)[:, 1]
        assert row.problem == "" and row.distinct == len(set(chosen))
        assert row.ksd == ss.ksd(x[chosen], s[chosen], preconditioner=preconditioner)
        assert row.normalised_ksd == row.ksd * row.size**0.5
        expected = slow_errors(x, x[chosen])
        assert np.allclose([row.mean_error, row.sd_error, row.quantile_error], expected, rtol=1e-10)
        assert np.isclose(row.error, np.prod(expected) ** (1 / 3))
        assert row.seconds > 0 and row.reading > 0 and 0 <= row.megabytes < 50


@needs_proc
def test_memory_has_the_chain_only_where_a_method_holds_it(tmp_path):
    x = np.random.default_rng(0).normal(size=(250_000, 5))  # 20 MB with the scores
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    rows = ss.compare(tmp_path / "c.npz", sizes=[20, 21], methods=["ksdt", "stein_thinning"])
    used = {(row.method, row.size): row.megabytes for row in rows}
    for size in (20, 21):  # what the first one left must not hide what the second one takes
        assert used["ksdt", size] < 10 and 38 < used["stein_thinning", size] < 80


class Deadly:
    """A stream that ends its process."""

    def __call__(self):
        os._exit(9)


def test_rows_of_a_process_that_died_give_the_reason():
    draws = np.random.default_rng(0).normal(size=(100, 2))
    problem = problem_from_arrays(draws, -draws, 5, preconditioner="identity")._replace(blocks=Deadly())
    alive = problem_from_arrays(draws, -draws, 5, preconditioner="identity")
    rows = list(rows_of_process(problem, reference_of(alive, [5, 6]), "stride", [5, 6]))
    assert [row.size for row in rows] == [5, 6]
    assert all("ended with code 9" in row.problem for row in rows)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="POSIX")
def test_an_interrupt_while_a_process_starts_ends_it(monkeypatch):
    draws = np.random.default_rng(0).normal(size=(100, 2))
    problem = problem_from_arrays(draws, -draws, 5, preconditioner="identity")
    started, start = [], SpawnProcess.start

    def interrupted_start(process):
        os.kill(os.getpid(), signal.SIGINT)
        start(process)
        started.append(process)

    monkeypatch.setattr(SpawnProcess, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        next(rows_of_process(problem, reference_of(problem, [5]), "stride", [5]))
    assert not started[0].is_alive()


def test_arrays_give_the_rows_of_a_file_and_bad_draws_can_be_skipped(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 2))
    s = -x
    x[7, 1] = np.nan
    np.savez(tmp_path / "c.npz", draws=x, scores=s)
    settings = {"sizes": [20], "methods": ["stein_thinning"]}
    with pytest.raises(InputError, match="draw 7 is nan"):
        ss.compare(x, s, **settings)
    (one,) = ss.compare(x, s, on_bad="skip", **settings)
    (other,) = ss.compare(tmp_path / "c.npz", on_bad="skip", **settings)
    assert (one.ksd, one.distinct) == (other.ksd, other.distinct) and one.problem == ""


def test_without_scores_the_recommended_method_is_compared_and_others_give_the_reason():
    x = np.random.default_rng(0).normal(size=(1000, 2))
    rows = {row.method: row for row in ss.compare(x, sizes=[20], methods=["default", "stride", "stein_thinning"])}
    assert rows["default"].error < 0.5 and np.isnan(rows["default"].ksd)
    assert 0.5 < rows["stride"].error < 2.0
    assert "stein_thinning requires scores" in rows["stein_thinning"].problem


def test_errors_leave_out_constant_parameters_and_a_long_chain_is_read_in_part(monkeypatch):
    x = np.random.default_rng(0).normal(size=(4000, 2))
    flat = np.column_stack([x, np.ones(4000)])
    one, other = (reference_of(problem_from_arrays(draws, None, 50), [50]) for draws in (x, flat))
    assert np.array_equal(one.relative_errors(x[:50]), other.relative_errors(flat[:50]))
    monkeypatch.setattr(comparison, "_REFERENCE_NUMBERS", 4000)
    part = reference_of(problem_from_arrays(x, None, 50), [50])
    assert np.array_equal(part.mean, x[1::2].mean(axis=0))


def test_a_set_of_all_draws_has_the_error_of_a_stride_of_all_draws():
    x = np.random.default_rng(0).normal(size=(60, 2))
    reference = reference_of(problem_from_arrays(x, None, 60), [60])
    assert reference.relative_errors(x).tolist() == [1.0, 1.0, 1.0]


def test_requests_that_make_no_sense_are_refused(chain):
    x = np.zeros((300, 2))
    with pytest.raises(InputError, match="nothing to compare"):
        ss.compare(chain, sizes=[])
    with pytest.raises(InputError, match="nothing to compare"):
        ss.compare(chain, methods=[])
    with pytest.raises(InputError, match=r"scores must be None.*open_chain"):
        ss.compare(chain, x)
    with pytest.raises(InputError, match="size is 3001, but the chain has only 3000 draws"):
        ss.compare(chain, sizes=[3001])


def test_a_script_without_a_main_guard_gets_one_clear_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import numpy as np, steinstream as ss\nss.compare(np.zeros((9, 1)), sizes=[2])\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1
    assert done.stderr.strip().endswith('Put the call below if __name__ == "__main__":.')
