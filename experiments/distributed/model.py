"""What a run of many chains costs, in kernel evaluations, bytes and seconds, and a simulation of its schedule.

The machine's numbers are measured by run.py; this file only counts. Every quantity is for chains of n draws in d
dimensions, thinned to m = spare * size each, and a tree with the given fan-in over them.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from steinstream.postprocess.merging import groups
from steinstream.postprocess.union import starts

PASSES = 4  # that swaps take, about
BASE = 250e6  # bytes of a worker that does nothing: Python, numpy, numba, Dask
BLOCK, SKETCH = 8192, 4096  # draws in a block, and in the sketch of a stream


@dataclass(frozen=True)
class Problem:
    """What is to be thinned."""

    chains: int
    draws: float
    dim: int
    size: int
    spare: float = 2.0
    fan_in: int = 16

    @property
    def leaf(self) -> int:
        """Draws that a leaf keeps, and a node below the root."""
        return math.ceil(self.spare * self.size)


@dataclass(frozen=True)
class Machine:
    """What one core does, and what lies between them. Times in seconds."""

    evaluation: float
    """One value of the Stein kernel, in a leaf."""
    node: float
    """The same in a node, where sums are in pairs of doubles and draws have masses."""
    draw: float
    """Reading a draw and all that does not depend on how many are kept."""
    task: float = 1e-3
    """The scheduler's work for one task."""
    start: float = 5e-3
    """What a task costs its worker besides."""
    bandwidth: float = 1e9
    """Bytes a second between two workers."""
    latency: float = 1e-3
    workers: int = 1


def leaf_evaluations(p: Problem) -> float:
    """A row for each draw; one more where another draw goes for it, which soon is rare."""
    return p.draws * p.leaf


def node_evaluations(p: Problem, children: int, last: bool) -> float:
    """Cross terms, drops, and swaps from several sets, over what the children keep."""
    pool, out = children * p.leaf, p.size if last else p.leaf
    return pool**2 + 2 / 3 * pool**2 + (1 + starts(out, last)) * PASSES * (pool - out) * out


def kept_bytes(p: Problem, size: int) -> float:
    """Draws, scores and ids of a kept set, its coordinates, and about 2 kB of settings."""
    return size * (16 * p.dim + 16) + 8 * min(p.dim, 200) ** 2 + 2000


def levels(p: Problem) -> list[list[int]]:
    """The tree, from the leaves to the root: how many children each node has."""
    found, nodes = [], p.chains
    while True:
        sizes = [len(group) for group in groups(range(nodes), p.fan_in)]
        found.append(sizes)
        nodes = len(sizes)
        if nodes == 1:
            return found


def bytes_moved(p: Problem) -> float:
    """At most: every set goes to another worker once, what is known of each leaf to the client, and the root."""
    nodes = sum(map(len, levels(p)))
    return (p.chains + nodes - 1) * kept_bytes(p, p.leaf) + p.chains * kept_bytes(p, 0) + kept_bytes(p, p.size)


def worker_memory(p: Problem) -> float:
    """Bytes at most: a leaf with its blocks and its sketch, or a node with its pool; its own leaves wait beside it."""
    leaf = 4 * BLOCK * 16 * p.dim + (SKETCH + p.leaf) * 16 * p.dim
    pool = min(p.fan_in, p.chains) * p.leaf
    return BASE + max(leaf, 5 * pool * 16 * p.dim)


@dataclass(frozen=True)
class Times:
    """Seconds of each part of a run, one after another; and all of it."""

    leaves: float
    barrier: float
    tree: float
    root: float

    @property
    def total(self) -> float:
        """From start to end."""
        return self.leaves + self.barrier + self.tree + self.root


def leaf_seconds(p: Problem, m: Machine) -> float:
    """One leaf on one core."""
    return m.start + p.draws * m.draw + leaf_evaluations(p) * m.evaluation


def node_seconds(p: Problem, m: Machine, children: int, last: bool) -> float:
    """One node: its children come over the net, one after another; then it is merged."""
    travel = (children - 1) * (m.latency + kept_bytes(p, p.leaf) / m.bandwidth) if m.workers > 1 else 0.0
    return m.start + travel + node_evaluations(p, children, last) * m.node


def simulate(p: Problem, m: Machine, jitter: float = 0.1, seed: int = 0) -> Times:
    """List scheduling on the workers. Tasks reach them one by one, as the scheduler gets to them.

    Leaves differ by a log-normal factor, as machines and chains do. The facts of each leaf are one more task; the tree
    begins when all are known, and a node when its children are there.
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
    # What is known of the leaves: covariances to one place, and their mean.
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
    """The same cores, so many."""
    return replace(m, workers=workers, bandwidth=bandwidth or m.bandwidth)
