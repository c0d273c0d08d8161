"""Several threads are used where that is faster, without changing a bit of the result."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from steinstream._engine.jit import threads
from steinstream.thinner.threads import PATIENCE, ThreadChooser
from tests.thinners import ksd_thinner

pytestmark = pytest.mark.skipif(threads() is None, reason="one core, or no OpenMP or TBB for numba here")


def kept_by(monkeypatch, workers, **settings):
    monkeypatch.setattr(ThreadChooser, "choose", lambda self: workers)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 60))
    thinner = ksd_thinner(60, validate_scores=False, **settings)
    thinner.extend(x, -x)
    return thinner.kept


@pytest.mark.parametrize("settings", [{"growth": "none"}, {"size": 3200}, {"size": 400, "candidates": 10}])
def test_threads_change_nothing(monkeypatch, settings):
    alone, shared, many = (kept_by(monkeypatch, workers, **settings) for workers in (None, 2, 5))
    assert alone.ksd == shared.ksd == many.ksd
    assert np.array_equal(alone.ids, shared.ids) and np.array_equal(alone.ids, many.ids)


def test_fewer_tiles_than_threads(monkeypatch):
    x = np.random.default_rng(0).normal(size=(12, 60_000))
    results = []
    for workers in (None, 4):
        monkeypatch.setattr(ThreadChooser, "choose", lambda self, workers=workers: workers)
        thinner = ksd_thinner(60_000, size=5, validate_scores=False)
        thinner.extend(x, -x)
        results.append((thinner.ksd, thinner.kept.ids.tolist()))
    assert results[0] == results[1]


def test_several_thinners_may_run_in_several_threads(monkeypatch):
    monkeypatch.setattr(ThreadChooser, "choose", lambda self: 2)

    def run(seed):
        x = np.random.default_rng(seed).normal(size=(3500, 60))
        thinner = ksd_thinner(60, growth="none", validate_scores=False)
        thinner.extend(x, -x)
        return thinner.ksd

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(4)))
    assert together == [run(seed) for seed in range(4)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_continues_with_one_thread():
    program = """
import os, numpy as np, steinstream as ss
from steinstream.thinner import threads
threads.PATIENCE = 0.0
x = np.random.default_rng(0).normal(size=(4000, 60))
def run():
    thinner = ss.Thinner(60, growth="none", validate_scores=False, preconditioner="identity", stream_weight=0.0)
    thinner.extend(x, -x)
    return thinner.ksd
first = run()
child = os.fork()
if child == 0:
    os._exit(0 if run() == first else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=900).returncode == 0


def test_the_choice_follows_the_timings():
    chooser = ThreadChooser(lambda: 2)
    assert chooser.choose() is None
    for _ in range(2):
        chooser.record(None, 1000, PATIENCE)
    assert chooser.choose() == 2, "several threads are tried after a while"
    chooser.record(2, 1000, 60.0)
    assert chooser.choose() == 2, "and again, because the first call may include compilation"
    chooser.record(2, 1000, 1.0)
    assert chooser.choose() == 2, "and used while they are faster"
    chooser.record(2, 1000, 1000.0)
    assert chooser.choose() is None, "but not on a busy machine"
    choices = []
    for _ in range(100):
        choices.append(chooser.choose())
        chooser.record(choices[-1], 1000, 1.0 if choices[-1] is None else 50.0)
    assert 1 <= choices.count(2) <= 5, "the slower choice is tried again from time to time"
    assert ThreadChooser(lambda: None).choose() is None


def test_calls_take_about_the_same_time():
    chooser = ThreadChooser(lambda: 2)
    assert chooser.steps_per_call(1000.0) > 0
    for _ in range(2):
        chooser.record(None, 1e6, 1.0)
    assert chooser.steps_per_call(1e3) in (199, 200) and chooser.steps_per_call(1e9) == 1
