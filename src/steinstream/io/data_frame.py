"""Tables of draws in memory: a DataFrame with the columns of a file, such as those of R's package posterior."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import Integers
from steinstream.errors import InputError
from steinstream.io._columns import PREFIX, RowIds, find_columns, not_a_parameter
from steinstream.io.base import Request
from steinstream.validation import Block, as_floats, wrong_scores


class DrawTable(NamedTuple):
    """Parameters of a DataFrame, without columns that have another meaning."""

    names: tuple[str, ...]
    draws: Any
    """The columns of the parameters, in the order of the table."""
    scores: Any
    """The scores in this order; None if there are none."""
    ids: Integers
    """Identifiers (chain, draw) of the rows, (n, 2), from 0."""
    left_out: dict[str, str]
    """Title of a column -> why it is not a parameter."""

    def by_chain(self) -> list[tuple[Integers, Block]]:
        """Return the rows of each chain, and its draws."""
        x = as_floats(self.draws, "draws")
        s = np.zeros((len(x), 0)) if self.scores is None else as_floats(self.scores, "scores")
        if self.scores is not None and s.shape != x.shape:
            raise wrong_scores(x, s)
        if len(x) == 0:
            raise InputError("No draws are given.")
        places = [np.flatnonzero(self.ids[:, 0] == chain) for chain in np.unique(self.ids[:, 0])]
        return [(rows, Block(x[rows], s[rows], self.ids[rows])) for rows in places]


def split_table(draws: Any, scores: Any) -> DrawTable | None:
    """Separate the parameters of a DataFrame from ids, log densities and other columns, as in a file.

    Returns
    -------
    DrawTable or None
        The parameters; None if ``draws`` is not a DataFrame, or has no other columns than parameters.
    """
    titles = [*getattr(draws, "columns", ())]
    if not titles or not all(isinstance(title, str) for title in titles):
        return None
    own_scores = scores is None and any(title.startswith(PREFIX) for title in titles)
    if not own_scores and not any(not_a_parameter(title) for title in titles):
        return None
    title = Path("DataFrame")  # in messages
    columns = find_columns(titles, Request(title))
    values = as_floats(_columns(draws, [titles[at] for at in columns.ids]), "ids") if columns.ids else None
    ids = RowIds(title, 0).next_of_table(columns, np.zeros((len(draws), 0)) if values is None else values)
    chosen = [titles[at] for at in columns.draws]
    if own_scores:
        scores = _columns(draws, [titles[at] for at in columns.scores])
    elif hasattr(scores, "columns") and all(isinstance(title, str) for title in scores.columns):
        scores = _matching(scores, chosen)
    return DrawTable(tuple(columns.names), _columns(draws, chosen), scores, ids, dict(columns.left_out))


def _columns(table: Any, titles: Sequence[str]) -> Any:
    return table[list(titles)]


def _matching(scores: Any, names: Sequence[str]) -> Any:
    """Return the scores of these parameters; the table itself if it has other titles."""
    for titles in (list(names), [PREFIX + name for name in names]):
        if {*titles} <= {*scores.columns}:
            return _columns(scores, titles)
    return scores
