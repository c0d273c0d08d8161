"""Threads wait for each other, copies are independent, and a forked child does not use an incomplete state."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import steinstream as ss


def test_threads_that_share_a_thinner_wait_for_each_other(tmp_path):
    """Blocks of several chains are added one at a time while other threads read; the order of the blocks is theirs."""
    draws = np.random.default_rng(0).normal(size=(4, 2000, 2))
    thinner, order = ss.Thinner(2, size=15), []

    def add(chain):
        for first in range(0, 2000, 25):
            with thinner.lock:  # also records the order
                order.append((chain, first))
                rows = draws[chain, first : first + 25]
                thinner.extend(rows, -rows, chain=chain)

    def read(number):
        for _ in range(40):
            kept = thinner.kept if len(thinner) else None
            assert kept is None or (len(kept) <= 15 and np.isfinite(kept.draws).all())
            bound = thinner.bound  # read once: another thread may change it
            assert bound is None or bound > 0
            thinner.save(tmp_path / f"{number}.npz")
            assert len(ss.Thinner.load(tmp_path / f"{number}.npz")) <= 15
            assert repr(thinner) and len(copy.copy(thinner)) <= 15 and thinner.settings and thinner.kept_ids is not None

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(add, chain) for chain in range(4)] + [pool.submit(read, number) for number in range(2)]
        for each in done:
            each.result()
    alone = ss.Thinner(2, size=15)
    for chain, first in order:
        rows = draws[chain, first : first + 25]
        alone.extend(rows, -rows, chain=chain)
    assert thinner.seen == 8000 and thinner.objective == alone.objective
    assert np.array_equal(thinner.kept.ids, alone.kept.ids)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda thinner: pickle.loads(pickle.dumps(thinner))])
@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_copies_are_independent(duplicate, storage):
    draws = np.random.default_rng(0).normal(size=(400, 2))
    thinner, plain = ss.Thinner(2, size=10, storage=storage), ss.Thinner(2, size=10, storage=storage)
    thinner.extend(draws[:200], -draws[:200])
    plain.extend(draws[:200], -draws[:200])
    with thinner.serve():
        other = duplicate(thinner)
        assert other.observer is None and other.lock is not thinner.lock
    other.extend(draws[200:], -draws[200:])
    assert thinner.seen == 200 and thinner.objective == plain.objective
    plain.extend(draws[200:], -draws[200:])
    assert other.objective == plain.objective and np.array_equal(other.kept.ids, plain.kept.ids)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_results_and_settings_can_be_copied(duplicate):
    draws = np.random.default_rng(0).normal(size=(400, 2))
    kept = ss.thin(draws, -draws, 10)
    other = duplicate(kept)
    assert (
        np.array_equal(other.draws, kept.draws)
        and other.ksd == kept.ksd
        and other.diagnose().passed == kept.diagnose().passed
    )
    assert duplicate(ss.ThinConfig(size=3)) == ss.ThinConfig(size=3)
    copied = duplicate(kept.preconditioner)
    assert np.array_equal(copied.apply_to_draws(draws), kept.preconditioner.apply_to_draws(draws))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_that_was_forked_during_a_call_of_another_thread_refuses_the_thinner():
    program = """
import os, threading, numpy as np, steinstream as ss
inside, leave = threading.Event(), threading.Event()
def growth(step):
    inside.set()
    leave.wait()
    return 5.0
thinner, idle = ss.Thinner(2, growth=growth), ss.Thinner(2, size=5)
x = np.random.default_rng(0).normal(size=(50, 2))
run = threading.Thread(target=thinner.extend, args=(x, -x))
run.start()
inside.wait()
child = os.fork()
if child == 0:
    idle.extend(x, -x)
    try:
        thinner.kept
    except ss.SteinstreamError as error:
        os._exit(0 if "forked" in str(error) and len(idle) == 5 else 2)
    os._exit(1)
leave.set()
run.join()
assert len(thinner) >= 5
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=900).returncode == 0
