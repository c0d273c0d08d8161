"""The function `thin`, and its three stages: open the files, thin every leaf, merge the leaves in a tree."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError, OutputError, ParametersWarning, ScoresWarning, one_of
from steinstream.io.atomic import make_folder
from steinstream.io.base import require_one_model
from steinstream.io.file_lock import FileLock
from steinstream.parallel.backends import ParallelBackend, connect
from steinstream.parallel.sources import (
    FileContents,
    GivenChain,
    UnopenedFile,
    WorkerSource,
    as_given_chains,
    file_sources,
    inspect_file,
    with_scores,
)
from steinstream.parallel.worker import FILE_PATTERNS, Failure, Worker, convergence_of, without_history
from steinstream.postprocess.merging import (
    MergeRule,
    Node,
    PartFacts,
    as_budgets,
    as_fan_in,
    as_masses,
    common_kernel,
    common_preconditioner,
    groups,
    inner_size,
    require_stream_term,
)
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.thinner.config import ThinConfig
from steinstream.watched_source import with_source

#: Called with the stage, the number of finished tasks and their total number.
StageProgress = Callable[[str, int, int], None]

_LISTED = 5  # failures in a warning
_STREAM_DRAWS, _LEAST_STREAM_DRAWS = 4096, 4  # evenly spaced draws of all chains, for the checks, and least of a chain


def thin(
    chains: Any,
    scores: Any = None,
    *,
    size: int | None = None,
    config: ThinConfig | None = None,
    client: Any = None,
    workers: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    every: float = 30.0,
    spare: float = 2.0,
    fan_in: int = 16,
    merge_budget: float | Sequence[float] | None = None,
    masses: str | ArrayLike = "lengths",
    on_corrupt: str = "raise",
    read: dict[str, Any] | None = None,
    progress: StageProgress | None = None,
    tell: Callable[[str], None] | None = None,
    **settings: Any,
) -> Kept:
    """Thin each chain where it is, and merge the kept sets.

    Parameters
    ----------
    chains : path, array, tuple of array, callable, or list of these
        Files, arrays of draws, pairs of arrays (draws, scores), delayed ones, or functions that yield blocks of draws
        or pairs (draws, scores). A file or an array (NumPy, Dask, Zarr) may hold several chains. Each chunk of a Dask
        array is thinned separately. Either all chains have scores, or none.
    scores : array or list of array, optional
        Scores of the draws, if ``chains`` is an array or a list of arrays.
    size : int, optional
        Number of draws to keep. Default: leaves grow as a `Thinner` does, and the tree removes draws within
        ``merge_budget``.
    config : ThinConfig, optional
        Settings of the leaves. Default: the default settings.
    client : distributed.Client or str, optional
        Dask client, or address of a scheduler. Default: the client of this process, or else ``workers`` processes.
    workers : int, optional
        Number of local processes; 0 runs everything in this process, without Dask. Default: one per core.
    folder : path, optional
        Folder for checkpoints, which all workers can read and write. After a crash, the same call continues. On
        several machines, all paths must lead to the same files.
    resume : bool, default True
        Continue with the checkpoints in ``folder``; otherwise they are deleted.
    every : float, default 30.0
        Seconds between two checkpoints of a leaf.
    spare : float, default 2.0
        Leaves, and nodes below the root, keep ``spare * size`` draws.
    fan_in : int, default 16
        Number of sets that are merged at a time.
    merge_budget : float or sequence of float, optional
        Allowed increase of the objective per level of the tree: see :func:`steinstream.merge`. Default: 0 without
        ``size``, no limit with ``size``.
    masses : {"lengths", "kept"} or array_like, default "lengths"
        Mass of each chain: see :func:`steinstream.merge`.
    on_corrupt : {"raise", "skip"}, default "raise"
        What to do with a chain that cannot be read. With ``"skip"`` it is left out with a warning, and listed in
        ``kept.settings["corrupt"]``.
    read : dict, optional
        Options of :func:`steinstream.io.open_chain`.
    progress : callable, optional
        Called with the stage, the number of finished tasks and their total number.
    tell : callable, optional
        Called with the address of the Dask dashboard.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. Without a preconditioner, one is fitted
        to each chain that can be read twice, and estimated from the stream of a function.

    Returns
    -------
    Kept
        The merged set. ``settings["leaves"]`` lists the leaves, ``settings["merged"]`` holds the bounds on KSD and MMD,
        ``settings["source"]`` the length of the chains, the number of divergences if it is known, and R-hat and ESS of
        the worst of at most 64 parameters.

    Raises
    ------
    InputError
        If a setting is invalid, or a chain cannot be read.
    CheckpointError
        If ``folder`` holds files of other chains or settings.
    ClusterError
        If the cluster cannot be reached, or has no workers.

    Examples
    --------
    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(20, 1000, 2))
    >>> ss.parallel.thin((draws, -draws), size=50, workers=0)
    Kept(50 of 20000 draws, 2 dimensions, KSD 0.03622)
    """
    if size is not None:
        settings["size"] = size
    chosen = ThinConfig.of(config, **settings)
    leaf_size = inner_size(chosen.size, spare)
    budgets = as_budgets(0.0 if merge_budget is None and chosen.size is None else merge_budget)
    one_of(("raise", "skip"), on_corrupt, "on_corrupt")
    as_fan_in(fan_in)
    given = as_given_chains(chains if scores is None else with_scores(chains, scores), read or {})
    where = None if folder is None else Path(folder).absolute()
    lock = nullcontext() if where is None else _prepare(where, resume)
    show = progress or (lambda stage, done, total: None)
    with lock, connect(client, workers, tell) as backend:
        sources, failures = open_sources(backend, given, on_corrupt, show)
        worker = Worker(
            chosen.replace(size=leaf_size),
            where,
            every,
            max(_STREAM_DRAWS // max(len(sources), 1), _LEAST_STREAM_DRAWS),
        )
        leaves, failed = thin_leaves(backend, worker, sources, on_corrupt, show)
        failures += failed
        if not leaves:
            raise InputError(f"None of the {len(given)} chains can be used. {failures[0].problem}", failures[0].remedy)
        facts = [leaf.facts for leaf in leaves]
        if not isinstance(masses, str) and np.shape(masses) == (len(sources),):
            masses = np.asarray(masses)[[leaf.number for leaf in leaves]]
        kernel, mass = common_kernel(facts), as_masses(masses, facts)
        require_stream_term(facts, chosen.stream_weight)
        fixed = chosen.preconditioner
        common = fixed if isinstance(fixed, Preconditioner) else common_preconditioner(facts, mass)
        rule = MergeRule(chosen.replace(kernel=kernel), common, leaf_size, budgets)
        kept = merge_leaves(backend, rule, [leaf.handle for leaf in leaves], mass, fan_in, show)
    _repeat_warnings(leaves)
    if failures:
        some = " ".join(failure.problem for failure in failures[:_LISTED])
        warnings.warn(f"{len(failures)} of {len(given)} chains were left out. {some}", stacklevel=2)
    listed = [leaf.summary() for leaf in leaves]
    corrupt = [failure._asdict() for failure in failures]
    kept = replace(kept, settings={**kept.settings, "leaves": listed, "corrupt": corrupt})
    convergence = leaves[0].convergence
    for leaf in leaves[1:]:
        convergence.join(leaf.convergence)
    return with_source(kept, "parallel", convergence)


def clear(folder: str | os.PathLike[str]) -> None:
    """Delete the checkpoints and results of all leaves from a folder.

    Parameters
    ----------
    folder : path
        The folder that `thin` was called with.
    """
    for pattern in FILE_PATTERNS:
        for path in Path(folder).glob(pattern):
            path.unlink(missing_ok=True)


def _repeat_warnings(leaves: Sequence[Leaf]) -> None:
    """Repeat the warning of the first chain whose scores do not match, and state how many there are."""
    warned = [leaf for leaf in leaves if leaf.warning]
    if warned:
        others = f" and {len(warned) - 1} more" if len(warned) > 1 else ""
        warnings.warn(f"{warned[0].title}{others}: {warned[0].warning}", ScoresWarning, stacklevel=3)


def _prepare(folder: Path, resume: bool) -> FileLock:
    """Create and lock the folder for checkpoints; without ``resume`` delete those in it."""
    try:
        make_folder(folder)
        lock = FileLock(folder / ".lock", folder)
    except (OutputError, OSError) as error:
        problem = error.problem if isinstance(error, OutputError) else f"Cannot write to {folder}: {error.strerror}."
        raise OutputError(problem, "Choose another folder for the checkpoints (--checkpoint).") from None
    if not resume:
        clear(folder)
    return lock


def _unreadable(failures: list[Failure], total: int) -> InputError:
    """Return the error for chains that cannot be read."""
    first = failures[0]
    more = f" {len(failures) - 1} more of {total} cannot be read either." if len(failures) > 1 else ""
    return InputError(
        f"{first.problem}{more}", f'{first.remedy} To leave out such chains: on_corrupt="skip" (--on-corrupt skip).'
    )


# -- opening the files -------------------------------------------------------------------------------------------------


def open_sources(
    backend: ParallelBackend, given: list[GivenChain], on_corrupt: str, show: StageProgress
) -> tuple[list[WorkerSource], list[Failure]]:
    """Return the sources of all leaves, with chains numbered in the order given, and files that cannot be opened."""
    files = [one for one in given if isinstance(one, UnopenedFile)]
    handles = backend.submit(_inspect, [(file,) for file in files])
    for done, _ in enumerate(backend.as_completed(handles), 1):
        show("opening", done, len(files))
    inspected = iter(backend.gather(handles))
    sources: list[WorkerSource] = []
    failures: list[Failure] = []
    models: list[tuple[Path, tuple[str, ...], bool]] = []
    chain, warning = 0, ""
    for one in given:
        if not isinstance(one, UnopenedFile):
            new = one(chain)
            chain += len({source.chain for source in new})
        else:
            contents: FileContents | Failure = next(inspected)
            if isinstance(contents, Failure):
                failures.append(contents)
                chain += 1
                continue
            models.append((Path(one.path), contents.names, contents.has_scores))
            warning = warning or contents.warning
            new = file_sources(one, contents, chain)
            chain += contents.chains
        sources += new
    if failures and on_corrupt == "raise":
        raise _unreadable(failures, len(given))
    if models:
        require_one_model(models)
    if warning:
        warnings.warn(warning, ParametersWarning, stacklevel=3)
    return sources, failures


def _inspect(file: UnopenedFile) -> FileContents | Failure:
    try:
        return inspect_file(file)
    except InputError as error:
        return Failure(Path(file.path).name, error.problem, error.remedy)


# -- thinning the leaves -----------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A finished leaf."""

    title: str
    ksd: float
    mmd: float
    warning: str
    """Why the scores do not match the draws; empty if they do."""
    facts: PartFacts
    convergence: RunningConvergence
    """What is known about R-hat and ESS of its chains."""
    number: int = 0
    handle: Any = None
    """Handle of its kept set, which stays on the worker."""

    @classmethod
    def of(cls, fixed: bool, total: int | None, kept: Kept | Failure) -> Leaf | Failure:
        """Describe a kept set; a preconditioner that is ``fixed`` is known, and not sent.

        With ``total``, the number of chains, a failure raises an `InputError`.

        Returns
        -------
        Leaf or Failure
            The description, or the failure.
        """
        if isinstance(kept, Failure):
            if total is not None:
                raise _unreadable([kept], total)
            return kept
        facts = PartFacts.of(kept)
        facts = facts._replace(preconditioner=Preconditioner.identity()) if fixed else facts
        leaf = kept.settings["leaf"]
        return cls(leaf["title"], kept.ksd, kept.mmd, leaf["warning"], facts, convergence_of(kept))

    def summary(self) -> dict[str, Any]:
        """Return title, number of draws, kept draws, KSD and MMD; None where a measure is not defined."""
        ksd, mmd = (None if np.isnan(value) else value for value in (self.ksd, self.mmd))
        return {"title": self.title, "seen": self.facts.seen, "kept": self.facts.size, "ksd": ksd, "mmd": mmd}


def thin_leaves(
    backend: ParallelBackend, worker: Worker, sources: list[WorkerSource], on_corrupt: str, show: StageProgress
) -> tuple[list[Leaf], list[Failure]]:
    """Thin all sources; return the leaves, and the failures if they are to be skipped."""
    calls = [(number, source.without_values(), *source.values) for number, source in enumerate(sources)]
    handles = backend.submit(worker.thin, calls)
    try:
        fixed = isinstance(worker.config.preconditioner, Preconditioner)
        total = len(sources) if on_corrupt == "raise" else None
        facts = backend.submit(partial(Leaf.of, fixed, total), [(handle,) for handle in handles])
        for done, _ in enumerate(backend.as_completed(facts), start=1):
            show("thinning", done, len(sources))
        known = backend.gather(facts)  # in one request: one request per leaf would take as long as Dask's tasks
    except BaseException:
        backend.cancel(handles)
        raise
    failures = [one for one in known if isinstance(one, Failure)]
    leaves = [one._replace(number=n, handle=handles[n]) for n, one in enumerate(known) if isinstance(one, Leaf)]
    return leaves, failures


# -- merging -----------------------------------------------------------------------------------------------------------


def merge_leaves(
    backend: ParallelBackend, rule: MergeRule, leaves: list[Any], mass: Array, fan_in: int, show: StageProgress
) -> Kept:
    """Merge the leaves in a tree. Only kept sets are sent between workers, and that of the root to this process."""
    families, masses = groups(leaves, fan_in), groups(mass.tolist(), fan_in)
    last = len(families) == 1
    calls = [(each, *family) for family, each in zip(families, masses, strict=True)]
    nodes = backend.submit(partial(_merge_sets, rule, last), calls)
    submitted = list(nodes)
    for level in count(1):
        if last:
            break
        families = groups(nodes, fan_in)
        last = len(families) == 1
        nodes = backend.submit(partial(_merge_nodes, rule, level, last), [tuple(family) for family in families])
        submitted += nodes
    for done, _ in enumerate(backend.as_completed(submitted), 1):
        show("merging", done, len(submitted))
    root: Node = backend.gather(nodes)[0]
    return root.kept


def _merge_sets(rule: MergeRule, last: bool, masses: list[float], *sets: Kept) -> Node:
    return _merge_nodes(rule, 0, last, *(Node(kept, mass) for kept, mass in zip(sets, masses, strict=True)))


def _merge_nodes(rule: MergeRule, level: int, last: bool, *children: Node) -> Node:
    kept, mass = rule.merge(children, level, last)
    return Node(without_history(kept), mass)
