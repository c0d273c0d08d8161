"""The order in which several chains are read in turns.

Each chain advances in proportion to its length, so that all chains end together. Chains of equal length are read one
draw of each in turn. The order depends on the lengths only, not on the blocks in which the draws are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from steinstream._typing import AnyArray, Integers
from steinstream.validation import Block


class Turn(NamedTuple):
    """Consecutive draws of the interleaved order: rows of each chain, and the order of these rows, concatenated."""

    rows: list[slice]
    order: Integers


def turns(lengths: Sequence[int], rows: int, skip: int = 0) -> Iterator[Turn]:
    """Divide the interleaved order of several chains into blocks of at most ``rows`` draws, without the first ``skip``.

    Draw i = 0, 1, ... of a chain with n draws has the position (i + 1) / n. The draws are ordered by position, those of
    the same position by chain.

    Yields
    ------
    Turn
        The draws of a block. Draws that were left out may be among its rows, but not in its order.

    Examples
    --------
    >>> for rows, order in turns([2, 4], rows=8):
    ...     chains = np.repeat([0, 1], [part.stop - part.start for part in rows])
    ...     print(chains[order])
    [1 0 1 1 0 1]
    """
    chains, total, count = len(lengths), sum(lengths), np.array(lengths, dtype=np.int64)
    start = _draws_until(max(skip - chains, 0) / max(total, 1), count)  # at most ``skip`` draws
    skip -= int(start.sum())
    while (read := int(start.sum())) < total:
        stop = _draws_until((read + max(rows, chains)) / total, count)
        many = stop - start
        index = np.arange(int(many.sum())) + np.repeat(start - (np.cumsum(many) - many), many)
        order = np.argsort((index + 1) / np.repeat(count, many), kind="stable")
        if len(order) > skip:
            yield Turn([slice(*pair) for pair in zip(start.tolist(), stop.tolist(), strict=True)], order[skip:])
        start, skip = stop, max(skip - len(order), 0)


def _draws_until(position: float, lengths: Integers) -> Integers:
    """Return how many draws of each chain have at most this position."""
    count: Integers = np.minimum(np.floor(position * lengths), lengths).astype(np.int64)
    several = np.maximum(lengths, 1)
    count += (count < lengths) & ((count + 1) / several <= position)  # the product was rounded
    count -= (count > 0) & (count / several > position)
    return count


def interleave(blocks: Sequence[Block]) -> Block:
    """Merge blocks of equal length: the first row of each block, then the second of each, and so on.

    Returns
    -------
    Block
        The rows of all blocks, in turns.

    Examples
    --------
    >>> from steinstream.validation import consecutive_ids
    >>> one, two = (Block(np.zeros((2, 1)), np.zeros((2, 0)), consecutive_ids(chain, 0, 2)) for chain in (0, 1))
    >>> interleave([one, two]).ids.tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    features = [block.features for block in blocks if block.features is not None]
    ratios = [block.ratios for block in blocks if block.ratios is not None]
    return Block(
        _interleave_rows([block.draws for block in blocks]),
        _interleave_rows([block.scores for block in blocks]),
        _interleave_rows([block.ids for block in blocks]),
        _interleave_rows(features) if features else None,
        _interleave_rows(ratios) if ratios else None,
    )


def _interleave_rows(arrays: Sequence[AnyArray]) -> AnyArray:
    stacked = np.stack(arrays, axis=1)
    return stacked.reshape(stacked.shape[0] * stacked.shape[1], stacked.shape[2])
