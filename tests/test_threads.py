"""Both cores where it pays, without changing a bit of the result."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import steinstream as ss
from steinstream._engine.jit import threads

pytestmark = pytest.mark.skipif(threads() is None, reason="one core, or no OpenMP or TBB for numba here")


def kept_by(monkeypatch, workers, **settings):
    from steinstream.dictionary import Dictionary

    monkeypatch.setattr(Dictionary, "_workers", lambda self, candidates: workers)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 60))
    thinner = ss.Thinner(60, check_scores=False, **settings)
    thinner.extend(x, -x)
    return thinner.kept


@pytest.mark.parametrize("settings", [{"growth": "none"}, {"size": 1700}, {"growth": 20, "size": 40, "candidates": 10}])
def test_threads_change_nothing(monkeypatch, settings):
    alone, shared, many = (kept_by(monkeypatch, workers, **settings) for workers in (None, 2, 5))
    assert alone.ksd == shared.ksd == many.ksd
    assert np.array_equal(alone.ids, shared.ids) and np.array_equal(alone.ids, many.ids)


def test_several_thinners_may_run_in_several_threads(monkeypatch):
    from steinstream.dictionary import Dictionary

    monkeypatch.setattr(Dictionary, "_workers", lambda self, candidates: 2)

    def run(seed):
        x = np.random.default_rng(seed).normal(size=(2500, 60))
        thinner = ss.Thinner(60, growth="none", check_scores=False)
        thinner.extend(x, -x)
        return thinner.ksd

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(4)))
    assert together == [run(seed) for seed in range(4)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_goes_on_with_one_thread():
    program = """
import os, numpy as np, steinstream as ss
x = np.random.default_rng(0).normal(size=(2500, 60))
def run():
    thinner = ss.Thinner(60, growth="none", check_scores=False)
    thinner.extend(x, -x)
    return thinner.ksd
first = run()
child = os.fork()
if child == 0:
    os._exit(0 if run() == first else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=120).returncode == 0
