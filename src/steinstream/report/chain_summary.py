"""Summary of the chain that a kept set comes from, read in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._formatting import count
from steinstream._typing import AnyArray
from steinstream.errors import InputError
from steinstream.inspection import Inspection
from steinstream.io import Chain, open_chains
from steinstream.result import Kept
from steinstream.thinner.subsample import Subsample
from steinstream.validation import Block

_MAX_DRAWS = 32_768  # for densities, quantiles and figures
_MIN_DRAWS = 20  # for a comparison

ChainLike: TypeAlias = "ChainSummary | Chain | str | PathLike[str] | Sequence[str | PathLike[str]] | ArrayLike | None"


class ChainSummary:
    """Evenly spaced draws of a chain and its inspection. Draws that are not finite are counted and skipped.

    A chain without scores is not inspected, and the diagnostic checks are made without scores.
    """

    from_thinner = False  # whether the draws are those that the thinner held, and not a chain given by the user

    def __init__(self, kept: Kept, title: str = "", has_scores: bool = True) -> None:
        dim = kept.draws.shape[1]
        self.title = title
        self.inspection: Inspection | None = Inspection(dim) if has_scores else None
        self.seen = 0  # draws read
        self.found = 0  # kept draws that were found in the chain at their position
        self._for_figures, self._for_checks = Subsample(dim, max_draws=_MAX_DRAWS), Subsample(dim)
        self._kept = kept
        self._rows = {int(chain): np.flatnonzero(kept.ids[:, 0] == chain) for chain in np.unique(kept.ids[:, 0])}

    def add(self, block: Block) -> None:
        self.seen += len(block.draws)
        if self.inspection is not None:
            self.inspection.add(block)
        good = block.take(validation.finite_rows(block, "skip"))
        self._for_figures.add(good)
        self._for_checks.add(good)
        for chain in np.unique(good.ids[:, 0]):
            self._count_found(good.take(good.ids[:, 0] == chain), int(chain))

    def _count_found(self, block: Block, chain: int) -> None:
        """Count the kept draws whose id and values occur in this block."""
        rows, order = self._rows.get(chain, np.zeros(0, np.int64)), np.argsort(block.ids[:, 1], kind="stable")
        positions = np.searchsorted(block.ids[order, 1], self._kept.ids[rows, 1])
        inside = positions < len(order)
        rows, at = rows[inside], order[positions[inside]]
        same = block.ids[at, 1] == self._kept.ids[rows, 1]
        same[same] = np.isclose(block.draws[at[same]], self._kept.draws[rows[same]], rtol=1e-9, atol=0).all(axis=1)
        self.found += int(same.sum())

    @property
    def block(self) -> Block:
        """Evenly spaced draws, at most 32 768. Scores are zero if the chain has none."""
        return self._for_figures.block

    @property
    def stream(self) -> Block:
        """Draws that a thinner would have held, for the diagnostic checks. Scores have no columns if there are none."""
        held = self._for_checks.block
        return held if self.inspection is not None else held._replace(scores=np.zeros((len(held.draws), 0)))


class StoredSubsample(ChainSummary):
    """Summary made of the subsample that the thinner held."""

    from_thinner = True

    def __init__(self, kept: Kept, stream: Block) -> None:
        title = f"{count(len(stream.draws))} evenly spaced draws of the stream, stored during thinning"
        super().__init__(kept, title)
        self.inspection, self.seen, self._stream = None, kept.settings.get("seen", len(stream.draws)), stream

    @property
    def block(self) -> Block:
        return self._stream

    @property
    def stream(self) -> Block:
        return self._stream


def summarise_chain(
    kept: Kept,
    chain: ChainLike,
    progress: Callable[[Chain, int], None] | None = None,
    scores: ArrayLike | None = None,
) -> ChainSummary | None:
    """Read the chain that a kept set comes from; without a chain, the subsample that the kept set holds.

    ``progress`` is called with the chain and the number of draws read.

    Returns
    -------
    ChainSummary or None
        None if there are too few draws to compare with.

    Raises
    ------
    InputError
        If the chain cannot be read or has another number of dimensions, or if scores are given without an array.
    """
    if isinstance(chain, list | tuple) and chain and all(isinstance(part, str | PathLike) for part in chain):
        chain = open_chains([Path(part) for part in chain])
    elif isinstance(chain, str | PathLike):
        chain = open_chains([chain])
    if scores is not None and (chain is None or isinstance(chain, Chain | ChainSummary)):
        raise InputError("Scores are given without an array of draws.", "Pass the draws as well, or leave out scores.")
    if chain is None:
        stream = kept.stream
        return StoredSubsample(kept, stream) if stream is not None and len(stream.draws) >= _MIN_DRAWS else None
    if isinstance(chain, ChainSummary):
        summary = chain
    elif isinstance(chain, Chain):
        summary = _summarise_file(kept, chain, progress)
    else:
        summary = _summarise_array(kept, np.asarray(chain), scores)
    return summary if len(summary.block.draws) >= _MIN_DRAWS else None


def stream_subsample(kept: Kept, chain: ChainLike, scores: ArrayLike | None) -> Block:
    """Return the evenly spaced draws of a chain that a thinner would have held, for the diagnostic checks.

    Without ``scores``, the scores of an array of draws have no columns.

    Returns
    -------
    Block
        The draws that a thinner would have held.

    Raises
    ------
    InputError
        If the chain has too few draws.
    """
    summary = summarise_chain(kept, chain, scores=scores)
    stream = None if summary is None else summary.stream
    if stream is None or len(stream.draws) < _MIN_DRAWS:
        raise InputError(
            f"The diagnostic checks need at least {_MIN_DRAWS} draws of the chain.",
            "Pass the whole chain as a file, or as arrays of draws and scores.",
        )
    return stream


def _summarise_file(kept: Kept, chain: Chain, progress: Callable[[Chain, int], None] | None) -> ChainSummary:
    _require_dimension(kept, chain.dim, chain.title)
    summary = ChainSummary(kept, chain.title)
    for block in chain.blocks():
        summary.add(block)
        if progress is not None:
            progress(chain, summary.seen)
    return summary


def _summarise_array(kept: Kept, draws: AnyArray, scores: ArrayLike | None) -> ChainSummary:
    if draws.ndim not in (2, 3) or draws.dtype.kind not in "fiu":
        raise InputError(
            f"The chain has shape {draws.shape} and dtype {draws.dtype}.",
            "Pass an array of numbers with shape (n, d) or (chains, n, d), or a file name.",
        )
    _require_dimension(kept, draws.shape[-1], "The chain")
    summary = ChainSummary(kept, "draws given as an array", has_scores=scores is not None)
    for block in validation.as_chains(draws, scores):
        summary.add(block if block.has_scores else block._replace(scores=np.zeros_like(block.draws)))
    return summary


def _require_dimension(kept: Kept, dim: int, title: str) -> None:
    if dim != kept.draws.shape[1]:
        raise InputError(
            f"{title} has {dim} dimensions, the kept draws have {kept.draws.shape[1]}.",
            "Pass the chain that the draws were kept from.",
        )
