r"""Correction of a slow chain by its scores, for the stream term of a finished chain.

The stream term compares the kept draws with the chain. If the chain mixes slowly, its distribution is not that of the
target. Stein thinning with repetition of a subsample then gives a better one: 1000 times, the draw that leaves the
smallest KSD is added, and may be added again. This is the first half of "debiased distribution compression" (Li,
Dwivedi and Mackey, 2024). The stream term compares with these draws and has its full weight.

The base kernel has a linear term here, with which KSD also sees wrong means and second moments.

The correction is used if

- the chain is worth fewer than 200 independent draws, and fewer than a twentieth of the draws of the subsample. The
  distribution of a better chain needs no correction;
- the mean of :math:`k_0(x, x)` over the corrected draws is at least two thirds of that over the subsample. Stein
  thinning avoids draws with large scores. Where these belong to the target, as in the neck of a funnel, they would be
  lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.discrepancy._greedy import greedy_order
from steinstream.kernels import IMQ, RBF
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.chain_worth import ChainWorth
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig

DRAWS = 1000  # of the corrected stream; fewer than a summary holds before it is halved
_LARGEST_WORTH = 200.0  # independent draws
_SLOW = 20.0  # least number of draws per independent draw
_LEAST_SHARE = 2 / 3  # of the mean of k0(x, x)


class CorrectedStream(NamedTuple):
    """A subsample of the chain without burn-in, and how often the corrected stream has each of its draws."""

    sample: Block
    counts: Array

    @property
    def draws(self) -> Block:
        """The draws of the corrected stream, with repetitions."""
        return self.sample.take(np.repeat(np.arange(len(self.counts)), self.counts.astype(np.int64)))


def corrected_stream(config: ThinConfig, preconditioner: Preconditioner, sample: Block) -> CorrectedStream | None:
    """Correct the distribution of a slow chain.

    Parameters
    ----------
    config : ThinConfig
        Settings, of which the kernel is used.
    preconditioner : Preconditioner
        Coordinates in which the kernel is evaluated.
    sample : Block
        Evenly spaced draws of the chain.

    Returns
    -------
    CorrectedStream or None
        The corrected stream; None if the chain needs none, or if the correction would lose a part of the target.
    """
    if not sample.has_scores:
        return None
    worth = ChainWorth(sample.draws.shape[1])
    worth.update(sample.draws, sample.ids)
    effective = worth.effective_draws
    if effective is None or effective >= min(_LARGEST_WORTH, len(sample.draws) / _SLOW):
        return None
    sample = sample.take(~is_burn_in(sample.ids, worth.burn_in_ends))
    kernel = config.kernel
    if isinstance(kernel, IMQ | RBF) and not kernel.linear:
        kernel = replace(kernel, linear=1.0)
    centred = replace(preconditioner, centre=sample.draws.mean(axis=0))
    chosen = greedy_order(sample.draws, sample.scores, DRAWS, kernel, centred, unique=False)
    counts = np.bincount(chosen, minlength=len(sample.draws)).astype(np.float64)
    diagonal = config.kernel.diagonal(*preconditioner.apply(sample.draws, sample.scores)[::-1])
    share = float((diagonal * counts).sum() / DRAWS / diagonal.mean())
    return CorrectedStream(sample, counts) if share >= _LEAST_SHARE else None
