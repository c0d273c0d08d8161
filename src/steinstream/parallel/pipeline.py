"""The three rounds of a run: look into the files, thin every leaf, merge them in a tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.io.errors import listing
from steinstream.parallel.backends import Cluster
from steinstream.parallel.sources import Contents, File, Source, leaves_of, look
from steinstream.parallel.worker import Failure, Leaf, light
from steinstream.postprocess.merging import Facts, Merge, Node, groups
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept

Progress = Callable[[str, int, int], None]


def refused(failures: list[Failure], total: int) -> InputError:
    """The error for chains that cannot be read, when nobody said to go on without them."""
    more = f" So are {len(failures) - 1} more of {total}." if len(failures) > 1 else ""
    first = failures[0]
    return InputError(
        f"{first.problem}{more}", f'{first.remedy} To go on without such chains: on_corrupt="skip" (--skip-corrupt).'
    )


def find(
    cluster: Cluster, given: list[Any], on_corrupt: str, show: Progress
) -> tuple[list[Source], list[Failure]]:  # fmt: skip
    """All leaves, their chains numbered as they were given, and files that cannot be opened."""
    files = [one for one in given if isinstance(one, File)]
    handles = cluster.start(_look_safely, [(file,) for file in files])
    for done, _ in enumerate(cluster.finished(handles), 1):
        show("looking", done, len(files))
    found = iter(cluster.fetch(handles))
    sources: list[Source] = []
    failures: list[Failure] = []
    names: dict[tuple[str, ...], str] = {}
    chain = 0
    for one in given:
        if not isinstance(one, File):
            leaves = one(chain)
        else:
            contents: Contents | Failure = next(found)
            if isinstance(contents, Failure):
                failures.append(contents)
                chain += 1
                continue
            names.setdefault(contents.names, one.path)
            leaves = leaves_of(one, contents, chain)
            chain += contents.chains - len({leaf.chain for leaf in leaves})
        sources += leaves
        chain += len({leaf.chain for leaf in leaves})
    if failures and on_corrupt == "raise":
        raise refused(failures, len(given))
    _require_one_model(names)
    return sources, failures


def _require_one_model(names: dict[tuple[str, ...], str]) -> None:
    """Columns go together by their place, so that all files must name them alike; ``names`` has a file for each."""
    if len(names) < 2:
        return
    (ours, one), (theirs, other) = list(names.items())[:2]
    if len(ours) != len(theirs):
        problem = f"{other} has {len(theirs)} dimensions, {one} has {len(ours)}."
    else:
        problem = f"{other} has the parameters {listing(theirs)}, {one} has {listing(ours)}."
    raise InputError(problem, "Give chains of one model together.")


def _look_safely(file: File) -> Contents | Failure:
    try:
        return look(file)
    except InputError as wrong:
        return Failure(Path(file.path).name, wrong.problem, wrong.remedy)


def thin_all(
    cluster: Cluster, how: Leaf, sources: list[Source], on_corrupt: str, show: Progress
) -> tuple[dict[int, tuple[Any, LeafFacts]], list[Failure]]:
    """Handles of the leaves that came out, and what has to be known of them; what is wrong with the others."""
    calls = [(number, source.bare(), *source.values) for number, source in enumerate(sources)]
    handles = cluster.start(how.thin, calls)
    try:
        given, strict = isinstance(how.preconditioner, Preconditioner), len(sources) if on_corrupt == "raise" else None
        facts = cluster.start(partial(facts_of, given, strict), [(handle,) for handle in handles])
        for number, _ in enumerate(cluster.finished(facts), start=1):
            show("thinning", number, len(sources))
        known = cluster.fetch(facts)  # all at once: a round trip for each leaf would cost as much as Dask's tasks
    except BaseException:
        cluster.forget(handles)
        raise
    failures = [one for one in known if isinstance(one, Failure)]
    good = {place: (handles[place], one) for place, one in enumerate(known) if isinstance(one, LeafFacts)}
    return good, failures


def facts_of(given: bool, strict: int | None, kept: Kept | Failure) -> LeafFacts | Failure:
    """What has to be known of a leaf before the tree begins; not its coordinates, where they were ``given``.

    If all of the chains, so many, must come out, it raises what is wrong with this one.
    """
    if isinstance(kept, Failure):
        if strict is not None:
            raise refused([kept], strict)
        return kept
    facts = Facts.of(kept)
    facts = facts._replace(preconditioner=Preconditioner.identity()) if given else facts
    return LeafFacts(kept.settings["leaf"]["title"], kept.ksd, facts)


class LeafFacts(NamedTuple):
    """A leaf, in short."""

    title: str
    ksd: float
    facts: Facts


def merge_all(
    cluster: Cluster, plan: Merge, leaves: list[Any], mass: NDArray[np.float64], fan_in: int, show: Progress
) -> Kept:
    """The root of the tree. Only kept sets go from worker to worker, and the root's to here."""
    first, masses = groups(leaves, fan_in), groups(mass.tolist(), fan_in)
    last = len(first) == 1
    nodes = cluster.start(partial(_first, plan, last), [(m, *group) for group, m in zip(first, masses, strict=True)])
    everything = list(nodes)
    for level in count(1):
        if last:
            break
        parts = groups(nodes, fan_in)
        last = len(parts) == 1
        nodes = cluster.start(partial(_node, plan, level, last), [tuple(group) for group in parts])
        everything += nodes
    for done, _ in enumerate(cluster.finished(everything), 1):
        show("merging", done, len(everything))
    root: Node = cluster.fetch(nodes)[0]
    return root.kept


def _first(plan: Merge, last: bool, masses: list[float], *sets: Kept) -> Node:
    return _node(plan, 0, last, *(Node(kept, mass) for kept, mass in zip(sets, masses, strict=True)))


def _node(plan: Merge, level: int, last: bool, *children: Node) -> Node:
    kept, mass = plan.node(children, level, last)
    return Node(light(kept), mass)
