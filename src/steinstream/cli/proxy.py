"""``--proxy``: a chain without scores, whose scores are those of a Gaussian fitted to its draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steinstream import validation
from steinstream._typing import Integers
from steinstream.api import ChainSource, fit_source
from steinstream.cli.options import InputOptions
from steinstream.errors import InputError
from steinstream.gradient_free import fitted_gaussian
from steinstream.io.base import ALL_PARAMETERS, DRAWS, Chain
from steinstream.thinner.config import ThinConfig

if TYPE_CHECKING:
    from steinstream.result import Variable
    from steinstream.targets import Gaussian


def open_with_proxy(chain: Sequence[Path], files: InputOptions, on_bad: str) -> Chain:
    """Open draws, read them once to fit a Gaussian, and return them with its scores.

    Parameters
    ----------
    chain : sequence of Path
        Files of draws.
    files : InputOptions
        Where the draws are.
    on_bad : str
        What to do with a draw that is not finite.

    Returns
    -------
    Chain
        The draws with the scores of the Gaussian.

    """
    if files.scores is not None:
        raise InputError("--proxy has no effect because --scores is given.", "Leave out one of them.")
    draws_name = files.draws_name
    if draws_name == DRAWS and chain[0].suffix not in (".npy", ".npz"):
        draws_name = ALL_PARAMETERS
    # The reader requires scores; the draws are read in their place.
    scores = chain[0] if chain[0].suffix == ".npy" else None
    draws = files._replace(scores=scores, draws_name=draws_name, scores_name=draws_name).open(chain)
    config = ThinConfig(preconditioner="identity", on_bad=on_bad, validate_scores=False)
    return ProxyChain(draws, fitted_gaussian(fit_source(ChainSource(draws), config).subsample))


class ProxyChain(Chain):
    """A chain with the scores of a proxy."""

    def __init__(self, draws: Chain, proxy: Gaussian) -> None:
        super().__init__(draws.path, draws.dim, draws.names, draws.length, draws.chains)
        self._draws, self._proxy = draws, proxy

    def _read(self, rows: int, skip: int) -> Iterator[validation.Block]:
        for block in self._draws.blocks(rows, skip):
            finite = validation.finite_rows(block, "skip")
            scores = np.zeros_like(block.draws)
            scores[finite] = self._proxy.scores(block.draws[finite])  # draws that are not finite are skipped anyway
            yield block._replace(scores=scores)

    def fraction(self) -> float | None:
        """Return how much of the file is read."""
        return self._draws.fraction()

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Return the variables of the file."""
        return self._draws.variables(ids)
