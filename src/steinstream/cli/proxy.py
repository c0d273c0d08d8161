"""A file of draws without scores: a Gaussian fitted to them lends its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steinstream import validation
from steinstream._typing import Integers
from steinstream.cli.options import open_the_chain
from steinstream.errors import InputError
from steinstream.io.base import ALL_PARAMETERS, DRAWS, Chain

if TYPE_CHECKING:
    from steinstream.result import Variable
    from steinstream.targets import Gaussian


def scored_by_gaussian(chain: Sequence[Path], options: dict[str, Any]) -> Chain:
    """The draws that the options name, which are read once to fit the Gaussian, with the scores of that."""
    from steinstream.gradient_free import fitted_gaussian
    from steinstream.thinner.subsample import Subsample

    if options["scores_file"] is not None:
        raise InputError("There are scores, so there is no need of a proxy.", "Leave out --scores or --proxy.")
    options["scores_file"] = chain[0] if chain[0].suffix == ".npy" else None
    if options["draws_name"] == DRAWS and chain[0].suffix not in (".npy", ".npz"):
        options["draws_name"] = ALL_PARAMETERS
    options["scores_name"] = options["draws_name"]  # in the scores' place
    draws = open_the_chain(chain, options)
    sketch = Subsample(draws.dim)
    for block in draws.blocks():
        sketch.add(block.take(validation.finite_rows(block, options["on_bad"])))
    return Scored(draws, fitted_gaussian(sketch))


class Scored(Chain):
    """A chain with the scores of a proxy."""

    def __init__(self, draws: Chain, proxy: Gaussian) -> None:
        super().__init__(draws.path, draws.dim, draws.names, draws.length, draws.chains)
        self._draws, self._proxy = draws, proxy

    def _read(self, rows: int, skip: int) -> Iterator[validation.Block]:
        for block in self._draws.blocks(rows, skip):
            good = validation.finite_rows(block, "skip")
            scores = np.zeros_like(block.draws)
            scores[good] = self._proxy.scores(block.draws[good])  # those of bad draws do not matter
            yield block._replace(scores=scores)

    def fraction(self) -> float | None:
        """As far as the file is read."""
        return self._draws.fraction()

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """What the file has."""
        return self._draws.variables(ids)
