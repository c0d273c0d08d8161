"""Where in a tree of arrays the draws and the scores are: the layout of ArviZ and its relatives.

The score is ``sample_stats/gradient``. Its draws are ``sample_stats/unconstrained_draw`` (nutpie), or the variables of
``unconstrained_posterior``, which are put together by the names that the gradient's dimension carries. Other places are
named by their paths, with commas between: a variable, or a group with all its variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import DRAWS, EVERY, SCORES, WITHOUT
from steinstream.io.columns import split_names
from steinstream.io.errors import listing, nearest
from steinstream.io.tree import Array, Tree

GRADIENT, UNCONSTRAINED = "sample_stats/gradient", "sample_stats/unconstrained_draw"
_GROUP, POSTERIOR = "unconstrained_posterior", "posterior"
NAME_THEM = "Name them with --draws-name and --scores-name: a variable as GROUP/NAME, or a whole GROUP."
_NUTPIE = "nutpie stores both with nutpie.sample(..., store_gradient=True, store_unconstrained=True)."
_IN_ORDER = "List the variables in the order of the gradient: --draws-name GROUP/NAME,GROUP/NAME,..."


class Part(NamedTuple):
    """A variable, where in the tree it is, and the coordinates of its group."""

    title: str
    array: Array
    coords: Mapping[str, Array]


def find(tree: Tree, draws_name: str, scores_name: str, path: Path) -> tuple[list[Part], list[Part]]:
    """The variables that make up the draws and the scores, in one order."""
    if draws_name == EVERY:
        draws = _arrays(tree, _every(tree), path)
        return draws, draws
    scores = _arrays(tree, scores_name if scores_name != SCORES else _default_scores(tree, path), path)
    named = draws_name if draws_name != DRAWS else _default_draws(tree, path)
    if named not in tree.names:
        return _arrays(tree, named, path), scores
    draws = _group(tree, named)
    if scores_name in tree.names:
        return draws, _matched(draws, scores, path)
    names = parameters(scores)
    if names:
        return _assembled(tree, named, names, path), scores
    if len(draws) != 1:
        raise InputError(
            f"{path}: {titles(scores)} does not say in which order it goes through {titles(draws)}.", _IN_ORDER
        )
    return draws, scores


def _every(tree: Tree) -> str:
    """Where the draws are, if nobody asks for scores: unconstrained ones if there are any."""
    places = [place for place in (UNCONSTRAINED, DRAWS) if _lookup(tree, place) is not None]
    return next(iter([*places, *(group for group in (_GROUP, POSTERIOR) if group in tree.names)]), POSTERIOR)


def _default_scores(tree: Tree, path: Path) -> str:
    for place in (GRADIENT, SCORES):
        if _lookup(tree, place) is not None:
            return place
    known = _known(tree)
    raise InputError(
        f"{path} has no scores: no variable {GRADIENT} among {listing(known)}.", f"{NAME_THEM} {_NUTPIE} {WITHOUT}"
    )


def _default_draws(tree: Tree, path: Path) -> str:
    for place in (UNCONSTRAINED, DRAWS):
        if _lookup(tree, place) is not None:
            return place
    if _GROUP in tree.names:
        return _GROUP
    raise InputError(
        f"{path} has scores but no unconstrained draws: neither {UNCONSTRAINED} nor a group {_GROUP}.",
        f"{_NUTPIE} If no parameter is constrained, pass --draws-name {POSTERIOR}.",
    )


def _arrays(tree: Tree, text: str, path: Path) -> list[Part]:
    """The variables that a list of paths names."""
    found: list[Part] = []
    for name in split_names(text):
        if name.strip("/") in tree.names:
            found += _group(tree, name.strip("/"))
            continue
        part = _lookup(tree, name)
        if part is None:
            known = _known(tree)
            near = nearest(name, [*known, *tree.names])
            raise InputError(f"{path} has no variable or group {name}; it has {listing(known)}.", near + NAME_THEM)
        found.append(part)
    if not found:
        raise InputError(f"{path}: {text} has no variables.", NAME_THEM)
    return found


def _assembled(tree: Tree, group: str, names: Sequence[str], path: Path) -> list[Part]:
    """The variables of a group in the order of the gradient's names; what it lacks is not transformed.

    PyMC writes only transformed variables into ``unconstrained_posterior``: the others are those of ``posterior``.
    """
    own = _group(tree, group)
    pool = own + (_group(tree, POSTERIOR) if group == _GROUP and POSTERIOR in tree.names else [])
    order: list[Part] = []
    at = 0
    while at < len(names):
        for part in pool:
            size = len(flat_names(part.array, ("chain", "draw", "sample")))
            if list(names[at : at + size]) in _spellings(part.array):
                order.append(part)
                at += size
                break
        else:
            raise InputError(
                f"{path}: the gradient has a parameter {names[at]}, which no variable of {group} goes with; "
                f"there are {titles(own)}.",
                _IN_ORDER,
            )
    return order


def _spellings(array: Array) -> list[list[str]]:
    """The names of a variable's elements, as different tools spell them."""
    shape = tuple(array.sizes[dim] for dim in array.dims if dim not in ("chain", "draw", "sample"))
    if not shape:
        return [[array.name]]
    places = [[str(i) for i in place] for place in np.ndindex(*shape)]
    forms = (("_", "_", ""), ("[", ",", "]"), ("[", ", ", "]"), (".", ".", ""))
    return [[f"{array.name}{a}{b.join(place)}{c}" for place in places] for a, b, c in forms]


def _matched(draws: list[Part], scores: list[Part], path: Path) -> list[Part]:
    """The scores in the order of the draws, two groups paired by name."""
    by_name = {part.array.name: part for part in scores}
    if {part.array.name for part in draws} != by_name.keys():
        raise InputError(f"{path}: draws are {titles(draws)}, scores {titles(scores)}.", NAME_THEM)
    return [by_name[part.array.name] for part in draws]


def parameters(scores: Sequence[Part]) -> list[str]:
    """The names along the dimension of a gradient that is one array."""
    array = scores[0].array
    if len(scores) != 1 or not array.dims or array.dims[-1] in ("chain", "draw", "sample"):
        return []
    last = scores[0].coords.get(array.dims[-1])
    return [str(name) for name in last.values()] if last is not None and last.is_text else []


def flat_names(array: Array, dims: tuple[str, ...]) -> list[str]:
    """NAME, or NAME[0], NAME[1], ...: one for each number a draw has."""
    shape = [array.sizes[dim] for dim in array.dims if dim not in dims]
    if not shape:
        return [array.name]
    return [f"{array.name}[{','.join(str(i) for i in place)}]" for place in np.ndindex(*shape)]


def _lookup(tree: Tree, name: str) -> Part | None:
    group, _, last = name.strip("/").rpartition("/")
    for place in [group] if group else ["", _GROUP, "sample_stats", POSTERIOR]:
        if not place or place in tree.names:
            found = tree.group(place)
            if last in found.arrays:
                return Part(f"{place}/{last}".strip("/"), found.arrays[last], found.coords)
    return None


def _group(tree: Tree, name: str) -> list[Part]:
    found = tree.group(name)
    return [Part(f"{name}/{title}".strip("/"), array, found.coords) for title, array in found.arrays.items()]


def _known(tree: Tree) -> list[str]:
    return [part.title for group in ("", *tree.names) for part in _group(tree, group)]


def titles(parts: Sequence[Part]) -> str:
    """Where they are, in words."""
    return listing((part.title for part in parts), 6)
