"""Further columns of a table of kept draws: the variables of the user's model.

They bear the variables' names, and those of arrays their places, as CmdStan has it: ``sigma``, ``w.1``, ``w.2``. A name
that means something else in such a table (a parameter's, ``weight``, ``score_mu``) gets ``variable_`` in front. A
table holds real numbers: dimensions have no names of their own in it, and what is no number is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.io.base import Floats, Ints
from steinstream.io.cmdstan import arranged
from steinstream.io.columns import CHAIN, DRAW, ORDER, PREFIX, WEIGHT
from steinstream.result import Kept, Variable

FRONT = "variable_"


def variable_columns(kept: Kept, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The variables of kept draws with parameters of these names, by the title of the column."""
    taken = {CHAIN, DRAW, WEIGHT, ORDER, *names}
    columns: dict[str, NDArray[Any]] = {}
    for name, (values, _, _) in kept.variables.items():
        if values.dtype.kind not in "biuf":
            warnings.warn(
                f"The variable {name} holds {values.dtype}, not numbers, and is left out: npz has room for it.",
                stacklevel=2,
            )
            continue
        titles = [name + "".join(f".{at + 1}" for at in place) for place in np.ndindex(*values.shape[1:])]
        if name.startswith((PREFIX, FRONT)) or not taken.isdisjoint(titles) or not columns.keys().isdisjoint(titles):
            titles = [FRONT + title for title in titles]
        columns |= dict(zip(titles, values.reshape(len(values), len(titles)).T, strict=True))
    return columns


def as_variables(titles: Sequence[str], table: Floats) -> dict[str, Variable]:
    """What :func:`variable_columns` laid out.

    >>> found = as_variables(["variable_mu", "w.1", "w.2"], np.array([[1.0, 2.0, 3.0]]))
    >>> found["mu"].values.tolist(), found["w"].values.tolist()
    ([1.0], [[2.0, 3.0]])
    """
    return arranged([title.removeprefix(FRONT) for title in titles], table)


def rows_of(wanted: Ints, blocks: Iterable[Ints]) -> Ints | None:
    """In which row of a table each of these ids stands, where ``blocks`` are all of its own; None if one is missing.

    >>> rows_of(np.array([[0, 7], [0, 5]]), [np.array([[0, 5], [0, 6]]), np.array([[0, 7]])])
    array([2, 0])
    """
    at: dict[tuple[int, ...], int] = {}
    row = 0
    for ids in blocks:
        near = np.flatnonzero(np.isin(ids[:, 1], wanted[:, 1]))
        for pair, place in zip(ids[near].tolist(), near.tolist(), strict=True):
            at.setdefault(tuple(pair), row + place)
        row += len(ids)
    found = [at.get(tuple(pair)) for pair in wanted.tolist()]
    return None if None in found else np.array(found, dtype=np.int64)
