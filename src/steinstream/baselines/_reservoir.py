"""Super-sampling with a reservoir (Paige, Sejdinovic and Wood, 2016), with the Stein kernel.

The reservoir holds ``size`` draws at any time. Each new draw may take the place of one of them: of the swaps, the one
that brings the reservoir's mean embedding closest to that of the stream so far, the new draw included, is made unless
it leads away. No coin is thrown, unlike in the reservoir sampling of Vitter that the name alludes to. The authors
approximate an RBF kernel by random Fourier features; here the kernel is the Stein kernel and its sums are exact,
which takes each draw's kernel values with all draws before it: n^2 / 2 in all, and memory for the chain.

So this summarises the stream, burn-in and all. Under the Stein kernel the mean embedding of the target itself is 0;
with that in place of the stream's, the same swaps are online KSD thinning with a hard cap (``toward="target"``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream.baselines import _ksdt
from steinstream.baselines.job import Integers, Job, job, pick
from steinstream.discrepancy import run_rows_in_threads
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block

_BLOCK = 8192  # draws in one compiled call: bounds the wait for Ctrl-C, changes nothing else


def reservoir(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
    toward: str = "stream",
) -> Integers:
    """Swap draws into a reservoir as long as that brings it closer to the ``"stream"``, or to the ``"target"``.

    Ids are in the order of the reservoir's places, a draw that came in standing where the one it replaced stood.
    """
    choices = {"stream": select, "target": _ksdt.select}
    if toward not in choices:
        raise InputError(f"The reservoir can go toward the stream or the target, got {toward!r}.")
    return choices[toward](job(draws, scores, size, kernel, preconditioner, seed, validate_scores)).ids


def select(job: Job) -> Block:
    """Holds the chain as given and in the kernel's coordinates."""
    from steinstream._engine.baseline_loops import swap_in
    from steinstream._engine.pairwise import as_tiles, rows_before

    chain = job.whole()
    x, s = job.preconditioner.apply(chain.draws, chain.scores)
    compiled, tiles, both = job.kernel.compiled(job.dim), as_tiles(x, s), np.stack([x, s], axis=1)
    past, rest, own = np.zeros((3, job.total))
    once = np.zeros(len(tiles) * tiles.shape[-1])
    once[: job.total] = 1.0

    def rows(begin: int, end: int) -> int:
        rows_before(compiled, tiles, both, once, begin, end, past, rest, own)
        return end * end - begin * begin

    run_rows_in_threads(rows, job.total, None)
    places, empty = np.zeros(job.size, dtype=np.int64), np.zeros((job.size, job.dim))
    slots, held = np.zeros((5, job.size)), as_tiles(empty, empty)
    for begin in range(0, job.total, _BLOCK):
        end = min(begin + _BLOCK, job.total)
        swap_in(compiled, both, begin, end, past, rest, own, slots, held, places)
    return pick(chain, places)
