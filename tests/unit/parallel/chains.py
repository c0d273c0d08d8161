"""Chains, samplers and comparisons for the tests of parallel thinning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import numpy as np

import steinstream as ss
from steinstream.errors import CheckpointError

PATIENCE = 600.0  # seconds after which a test gives up; a busy machine does not need that long


def normal(seed, draws=600, dim=2):
    """Correlated normal draws and their scores."""
    factor = np.triu(np.ones((dim, dim)))
    x = np.random.default_rng(seed).normal(size=(draws, dim)) @ factor
    return x, -x @ np.linalg.inv(factor.T @ factor)


def write(folder, count, draws=600, dim=2):
    """Write one npz file per chain."""
    paths = []
    for number in range(count):
        x, s = normal(number, draws, dim)
        path = folder / f"chain-{number:02d}.npz"
        np.savez(path, draws=x, scores=s)
        paths.append(path)
    return paths


def same(one, other):
    """Whether two merged sets are equal to the last bit."""
    return (
        np.array_equal(one.ids, other.ids)
        and np.array_equal(one.draws, other.draws)
        and one.ksd == other.ksd
        and np.array_equal(one.preconditioner.factor, other.preconditioner.factor)
        and one.settings["merged"] == other.settings["merged"]
    )


def wait_until(condition):
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition was never met"
        time.sleep(0.02)


def wait_for_workers(client):
    """Wait until all workers run again after another test has killed one.

    Dask does not start a worker again if it is killed while its nanny is still starting it, which takes long on a busy
    machine.
    """
    wait_until(lambda: all(nanny.status.name == "running" for nanny in client.cluster.workers.values()))
    client.wait_for_workers(len(client.cluster.workers), timeout=PATIENCE)


def received(path):
    """Number of draws in a checkpoint; None if there is none yet."""
    try:
        return ss.Thinner.load(path).current_pass.received
    except CheckpointError:
        return None


class PausingSampler:
    """Records its process and start; chain 1 stops after 1000 draws until the file ``go`` exists."""

    def __init__(self, number, folder):
        self.number, self.folder = number, folder

    def __call__(self, skip=0):
        x, s = normal(self.number, 2000)
        with (self.folder / f"starts-{self.number}").open("a") as file:
            file.write(f"{os.getpid()} {skip}\n")
        for begin in range(skip, 2000, 100):
            if self.number == 1 and begin >= 1000:
                wait_until((self.folder / "go").exists)
            yield x[begin : begin + 100], s[begin : begin + 100]


def starts(folder, number):
    """Process and ``skip`` of every call of a `PausingSampler`."""
    path = folder / f"starts-{number}"
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []


_CLUSTER = """
import time
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(3600)
"""


@contextmanager
def separate_cluster(folder):
    """Start a Dask cluster in processes of its own; yield the process of the scheduler and its address."""
    script = folder / "cluster.py"
    script.write_text(_CLUSTER)
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # workers import modules of the tests
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True, env=path
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
