"""Cost model of thinning many chains: kernel evaluations, bytes, seconds, and a simulation of the schedule.

The speed of the machine is measured by run.py. All quantities are for chains of n draws in d dimensions, each thinned
to m = spare * size draws, and a merge tree with the given fan-in.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from steinstream.postprocess.merging import groups

PASSES = 4  # approximate number of passes of the local search
RESTARTS, TRIED = (8, 48), 4800  # of the local search: limits of the number of restarts, and draws tried in all
BASE = 250e6  # bytes of an idle worker: Python, numpy, numba, Dask
BLOCK, SUBSAMPLE = 8192, 4096  # draws of a block and of the subsample of a stream


@dataclass(frozen=True)
class ManyChains:
    """Number, length and dimension of the chains, and settings of the tree."""

    chains: int
    draws: float
    dim: int
    size: int
    spare: float = 2.0
    fan_in: int = 16

    @property
    def leaf(self) -> int:
        """Number of draws that a leaf, or a node below the root, keeps."""
        return math.ceil(self.spare * self.size)


@dataclass(frozen=True)
class Machine:
    """Speed of a core and of the network. Times are in seconds.

    Parameters
    ----------
    evaluation : float
        One value of the Stein kernel in a leaf.
    node : float
        One value of the Stein kernel in a node, which uses double-double sums and masses.
    draw : float
        Reading a draw, and all other work that does not depend on the number of kept draws.
    task : float
        Work of the scheduler for one task.
    start : float
        Overhead of a task on its worker.
    bandwidth : float
        Bytes per second between two workers.
    latency : float
        Latency between two workers.
    workers : int
        Number of workers.
    """

    evaluation: float
    node: float
    draw: float
    task: float = 1e-3
    start: float = 5e-3
    bandwidth: float = 1e9
    latency: float = 1e-3
    workers: int = 1


def leaf_evaluations(p: ManyChains) -> float:
    """Return the kernel evaluations of a leaf: one row per draw; exchanges soon become rare."""
    return p.draws * p.leaf


def node_evaluations(p: ManyChains, children: int, last: bool) -> float:
    """Return the kernel evaluations of a node: cross terms, removals, and local search with restarts."""
    pool, out = children * p.leaf, p.size if last else p.leaf
    return pool**2 + 2 / 3 * pool**2 + (1 + restarts(out, last)) * PASSES * (pool - out) * out


def restarts(size: int, last: bool) -> int:
    """Return the number of restarts of the local search in a node that keeps ``size`` draws."""
    few, many = RESTARTS
    return max(few, min(many, TRIED // size)) if last else few


def kept_bytes(p: ManyChains, size: int) -> float:
    """Return the bytes of a kept set: draws, scores, ids, preconditioner, and about 2 kB of settings."""
    return size * (16 * p.dim + 16) + 8 * min(p.dim, 200) ** 2 + 2000


def levels(p: ManyChains) -> list[list[int]]:
    """Return the number of children of each node, level by level from the leaves to the root."""
    found, nodes = [], p.chains
    while True:
        sizes = [len(group) for group in groups(range(nodes), p.fan_in)]
        found.append(sizes)
        nodes = len(sizes)
        if nodes == 1:
            return found


def bytes_moved(p: ManyChains) -> float:
    """Return an upper bound: each set is sent to another worker once; leaf statistics and the root to the client."""
    nodes = sum(map(len, levels(p)))
    return (p.chains + nodes - 1) * kept_bytes(p, p.leaf) + p.chains * kept_bytes(p, 0) + kept_bytes(p, p.size)


def worker_memory(p: ManyChains) -> float:
    """Return an upper bound on the memory: a leaf with its blocks and subsample, or a node with its union."""
    leaf = 4 * BLOCK * 16 * p.dim + (SUBSAMPLE + p.leaf) * 16 * p.dim
    pool = min(p.fan_in, p.chains) * p.leaf
    return BASE + max(leaf, 5 * pool * 16 * p.dim)


@dataclass(frozen=True)
class Times:
    """Seconds of the consecutive parts of a run."""

    leaves: float
    barrier: float
    tree: float
    root: float

    @property
    def total(self) -> float:
        """Seconds from start to end."""
        return self.leaves + self.barrier + self.tree + self.root


def leaf_seconds(p: ManyChains, m: Machine) -> float:
    """Return the seconds of one leaf on one core."""
    return m.start + p.draws * m.draw + leaf_evaluations(p) * m.evaluation


def node_seconds(p: ManyChains, m: Machine, children: int, last: bool) -> float:
    """Return the seconds of one node: its children are received one after another, then merged."""
    travel = (children - 1) * (m.latency + kept_bytes(p, p.leaf) / m.bandwidth) if m.workers > 1 else 0.0
    return m.start + travel + node_evaluations(p, children, last) * m.node


def simulate(p: ManyChains, m: Machine, jitter: float = 0.1, seed: int = 0) -> Times:
    """Simulate list scheduling on the workers, with one scheduler that issues the tasks one after another.

    The times of the leaves vary by a log-normal factor. The statistics of each leaf are one more task. The tree starts
    when all statistics are known, and a node when its children are complete.

    Returns
    -------
    Times
        Simulated times in seconds.
    """
    factors = np.exp(jitter * np.random.default_rng(seed).normal(size=p.chains))
    free = [0.0] * m.workers
    issued, ends = 0.0, []
    for factor in factors:
        issued += 2 * m.task
        begin = max(heapq.heappop(free), issued)
        ends.append(begin + leaf_seconds(p, m) * factor)
        heapq.heappush(free, ends[-1])
    leaves = max(ends)
    # The covariances of the leaves are sent to the client and averaged.
    barrier = m.latency + p.chains * (m.task + kept_bytes(p, 0) / m.bandwidth)
    now, root, ready = leaves + barrier, 0.0, [leaves + barrier] * p.chains
    issued, free = now, [now] * m.workers
    shape = levels(p)
    for level, sizes in enumerate(shape):
        last, place, done = level == len(shape) - 1, 0, []
        for children in sizes:
            issued += m.task
            begin = max(heapq.heappop(free), issued, *ready[place : place + children])
            seconds = node_seconds(p, m, children, last)
            done.append(begin + seconds)
            heapq.heappush(free, done[-1])
            place += children
            root = seconds if last else root
        ready = done
    return Times(leaves, barrier, ready[0] - now - root, root)


def on(m: Machine, workers: int, bandwidth: float | None = None) -> Machine:
    """Return the machine with another number of workers."""
    return replace(m, workers=workers, bandwidth=bandwidth or m.bandwidth)
