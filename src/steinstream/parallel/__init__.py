"""Many chains on many machines: each is thinned where its draws are, and only what is kept travels.

A leaf is one chain: a file, a chain of a store, a chunk of a Dask array, a sampler. Leaves keep ``spare * size`` draws.
When all are done, their coordinates are reconciled, and the tree of :func:`steinstream.merge` is made of tasks. Its
shape depends on the order of the chains alone, so that the result is the same to the last bit on one core, on a
cluster, and whatever finishes first.

``docs/many-chains.md`` says what it costs and what to set.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._engine.fourier_features import strength
from steinstream.errors import InputError, OutputError
from steinstream.io.atomic import make_folder
from steinstream.parallel.backends import ClusterError, connected
from steinstream.parallel.pipeline import Progress, find, merge_all, thin_all
from steinstream.parallel.sources import as_given
from steinstream.parallel.worker import Leaf
from steinstream.postprocess.merging import (
    Merge,
    as_budgets,
    as_fan_in,
    as_masses,
    as_size,
    common_preconditioner,
    same_kernel,
    times,
)
from steinstream.preconditioning import Preconditioner, Streaming, as_fixed
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.passes import as_passes

__all__ = ["ClusterError", "clear", "thin"]


def thin(
    chains: Any,
    *,
    size: int | None = None,
    client: Any = None,
    workers: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    every: float = 30.0,
    spare: float = 2.0,
    fan_in: int = 16,
    merge_budget: float | list[float] | None = None,
    masses: str | ArrayLike = "lengths",
    preconditioner: Preconditioner | Streaming | ArrayLike | str = "auto",
    anchor: float | bool = False,
    passes: int | str = 1,
    start: str | None = None,
    on_corrupt: str = "raise",
    read: dict[str, Any] | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
    **settings: Any,
) -> Kept:
    """Thin each of these chains where it is, and merge what is kept.

    ``chains`` is a list of files, of pairs of arrays (draws, scores), of delayed pairs, or of functions that give
    blocks of such pairs; or one file or one pair of arrays (numpy, Dask, Zarr) with several chains. A chain is a leaf;
    of a Dask array each chunk is, wherever it lies. Preconditioner are fitted to each chain that can be read twice, and
    follow a sampler. ``read`` are options of :func:`steinstream.io.open_chain`.

    ``client`` is a Dask client or a scheduler's address. Without it, the client of this process is used, or else
    ``workers`` processes of this machine, as many as it has cores; ``workers=0`` does without Dask.

    ``folder``, which all workers must see, gets a checkpoint of each leaf every so many seconds, and what it kept when
    it is done. A lost worker then costs what it did since; and the same call after a crash goes on, unless
    ``resume=False``. On several machines, paths must lead to the same files everywhere.

    Leaves and nodes below the root keep ``spare * size`` draws; ``fan_in``, ``merge_budget`` and ``masses`` as
    in :func:`steinstream.merge`. Without ``size`` leaves grow as a thinner does, and the tree drops what it can within
    the budget, 0 unless given. ``on_corrupt="skip"`` goes on without chains that cannot be read, and warns;
    ``kept.settings["corrupt"]`` has them. All else goes to each leaf's :class:`~steinstream.Thinner`.

    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(20, 1000, 2))
    >>> ss.parallel.thin((draws, -draws), size=50, workers=0)
    Kept(50 of 20000 draws, 2 dimensions, KSD 0.03394)
    """
    how = _leaf(size, spare, preconditioner, anchor, as_passes(passes), start, folder, every, settings)
    budgets, gamma = as_budgets(merge_budget if merge_budget is not None or size is not None else 0.0), strength(anchor)
    if on_corrupt not in ("raise", "skip"):
        raise InputError(f'on_corrupt must be "raise" or "skip", got {on_corrupt!r}.')
    as_fan_in(fan_in)
    given = as_given(chains, read or {})
    show = progress or _nothing
    if how.folder is not None:
        _prepare(how.folder, resume)
    with connected(client, workers, tell) as cluster:
        sources, failures = find(cluster, given, on_corrupt, show)
        leaves, more = thin_all(cluster, how, sources, on_corrupt, show)
        failures += more
        if not leaves:
            raise InputError(f"None of the {len(given)} chains can be used. {failures[0].problem}", failures[0].remedy)
        about = [leaf for _, leaf in leaves.values()]
        facts = [leaf.facts for leaf in about]
        if not isinstance(masses, str) and np.shape(masses) == (len(sources),):
            masses = np.asarray(masses)[list(leaves)]
        kernel, mass = same_kernel(facts), as_masses(masses, facts)
        common = preconditioner if isinstance(preconditioner, Preconditioner) else common_preconditioner(facts, mass)
        plan = Merge(kernel, common, size, times(size, spare), budgets, gamma)
        kept = merge_all(cluster, plan, [handle for handle, _ in leaves.values()], mass, fan_in, show)
    listed = [{"title": one.title, "seen": one.facts.seen, "kept": one.facts.size, "ksd": one.ksd} for one in about]
    told = {**kept.settings, "leaves": listed, "corrupt": [failure._asdict() for failure in failures]}
    if failures:
        some = " ".join(failure.problem for failure in failures[:5])
        warnings.warn(f"{len(failures)} of {len(given)} chains were left out. {some}", stacklevel=2)
    return replace(kept, settings=told)


def _nothing(what: str, done: int, total: int) -> None:
    """Show no progress."""


def _prepare(folder: Path, resume: bool) -> None:
    """A folder for leaves; without ``resume`` there are none in it."""
    try:
        make_folder(folder)
    except OutputError as wrong:
        raise OutputError(wrong.problem, "Name another folder for the checkpoints (--checkpoint).") from None
    if not resume:
        clear(folder)


def clear(folder: str | os.PathLike[str]) -> None:
    """Remove all leaves from a folder, done or not."""
    for pattern in ("leaf-*.npz", "leaf-*.checkpoint", ".leaf-*.tmp"):
        for path in Path(folder).glob(pattern):
            path.unlink(missing_ok=True)


def _leaf(
    size: int | None, spare: float, preconditioner: Preconditioner | Streaming | ArrayLike | str, anchor: float | bool,
    passes: int | str, start: str | None, folder: str | os.PathLike[str] | None, every: float, settings: dict[str, Any],
) -> Leaf:  # fmt: skip
    """How leaves are thinned; wrong settings are found here, before any work."""
    most = times(as_size(size), spare)
    whole = {**settings, **({} if most is None else {"size": most}), "anchor": anchor}
    if isinstance(preconditioner, str) and preconditioner == "streaming":
        kernel = settings.get("kernel")
        preconditioner = Streaming(centred=kernel is not None and kernel.linear > 0)
    Thinner(1, **whole)
    if isinstance(preconditioner, str):
        Preconditioner.estimate(preconditioner, [[0.0], [1.0]])
    elif not isinstance(preconditioner, Streaming):
        preconditioner = as_fixed(preconditioner)
    return Leaf(preconditioner, whole, passes, start, None if folder is None else Path(folder).absolute(), every)
