"""Thin many chains in parallel: each one where its draws are, then merge the kept sets in a tree.

A leaf of the tree is one chain: a file, a chain of a store, a chunk of a Dask array, or a sampler. A leaf keeps
``spare * size`` draws. When all leaves are done, the tree of :func:`steinstream.merge` runs as tasks. The shape of the
tree depends on the order of the chains alone, so the result is the same to the last bit in one process, on a cluster,
and in whatever order the leaves finish.

`sources` holds what a leaf reads, `worker` thins one leaf, `pipeline` runs all leaves and the tree, and `backends`
decides where the tasks run. The page "Many chains" of the documentation describes the settings.
"""

from __future__ import annotations

from steinstream.parallel.backends import ClusterError
from steinstream.parallel.pipeline import clear, thin

__all__ = ["ClusterError", "clear", "thin"]
