"""What a method is asked for: so many draws of a stream, with this kernel in these coordinates.

A method is one function ``Job -> Block`` that returns the draws it selects, in order of selection. One that works
online runs over ``blocks`` and holds no more than it keeps; one that needs the chain whole calls ``whole``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import __version__, validation
from steinstream.errors import InputError
from steinstream.kernels import IMQ, Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.subsample import Subsample, fit_preconditioner
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.io import Chain

Integers = NDArray[np.int64]


class Job(NamedTuple):
    """A stream of ``total`` usable draws of ``dim`` dimensions, and what is wanted of it."""

    blocks: Callable[[], Iterable[Block]]
    total: int
    dim: int
    size: int
    kernel: Kernel
    preconditioner: Preconditioner
    seed: int
    skipped: int = 0  # draws that were not usable
    sketch: Block | None = None  # some evenly spaced ones

    def whole(self) -> Block:
        """The chain, all of it in memory."""
        draws, scores = np.empty((self.total, self.dim)), np.empty((self.total, self.dim))
        ids, start = np.empty((self.total, 2), dtype=np.int64), 0
        for block in self.blocks():
            rows = slice(start, start + len(block.draws))
            draws[rows], scores[rows], ids[rows] = block
            start = rows.stop
        return Block(draws, scores, ids)

    def rows(self, wanted: Integers) -> Block:
        """The draws at these places of the stream, in this order, in one pass that holds nothing else."""
        order = np.argsort(wanted, kind="stable")
        ascending, parts, start = wanted[order], [validation.empty_block(self.dim)], 0
        for block in self.blocks():
            first, last = np.searchsorted(ascending, [start, start + len(block.draws)])
            parts.append(pick(block, ascending[first:last] - start))
            start += len(block.draws)
        found = Block(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        return pick(found, np.argsort(order))


def pick(block: Block, places: Integers) -> Block:
    """The rows at these places, in this order."""
    return Block(block.draws[places], block.scores[places], block.ids[places])


def job(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    kernel: Kernel | None,
    preconditioner: Preconditioner | str,
    seed: int = 0,
    validate_scores: bool = True,
) -> Job:
    """The job on draws (n, d) or (chains, n, d) that are in memory, chain after chain."""
    from steinstream.api import ArraySource, fit_source

    config = ThinConfig(kernel=kernel or IMQ(), preconditioner=preconditioner, validate_scores=validate_scores)
    source = ArraySource.of(draws, scores)
    chains = [chain.block for chain in source.chains]
    require_size(size, sum(len(block.draws) for block in chains))
    fit = fit_source(source, config)
    return Job(
        lambda: chains, fit.valid, source.dim, int(size), config.kernel, fit.preconditioner, seed,
        sketch=fit.subsample.block,
    )  # fmt: skip


@dataclass(frozen=True)
class Usable:
    """The blocks of a file, without bad draws if they are to be skipped."""

    chain: Chain
    on_bad: str

    def __call__(self) -> Iterator[Block]:
        for block in self.chain.blocks():
            yield block.take(validation.finite_rows(block, self.on_bad))


def job_from_file(
    chain: Chain,
    kernel: Kernel | None,
    preconditioner: Preconditioner | str,
    seed: int = 0,
    on_bad: str = "raise",
    validate_scores: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Job:
    """The job on a file, after one pass through it to count and to see where the draws lie. Of size 0: replace that."""
    sketch, total, skipped = Subsample(chain.dim), 0, 0
    for block in chain.blocks():
        good = block.take(validation.finite_rows(block, on_bad))
        sketch.add(good)
        total += len(good.draws)
        skipped += len(block.draws) - len(good.draws)
        if progress is not None:
            progress(chain.fraction() or 0.0)
    config = ThinConfig(kernel=kernel or IMQ(), preconditioner=preconditioner, validate_scores=validate_scores)
    fitted = fit_preconditioner(sketch, config)
    fitted.require(chain.dim)
    return Job(Usable(chain, on_bad), total, chain.dim, 0, kernel or IMQ(), fitted, seed, skipped, sketch.block)


def as_kept(job: Job, method: str, chosen: Block) -> Kept:
    """What a method chose as a kept set: sorted by id, measured with the job's kernel in its coordinates."""
    from steinstream.discrepancy import ksd

    points, scores, ids = pick(chosen, np.lexsort((chosen.ids[:, 1], chosen.ids[:, 0])))
    value = ksd(points, scores, kernel=job.kernel, preconditioner=job.preconditioner)
    settings = {
        "steinstream": __version__,
        "method": method,
        "kernel": repr(job.kernel),
        "preconditioner": str(job.preconditioner),
        "size": job.size,
        "seed": job.seed,
        "seen": job.total + job.skipped,
        "skipped": job.skipped,
    }
    history = History(np.array([job.total]), np.array([len(points)]), np.array([value]))
    return Kept(points, scores, ids, value, history, job.kernel, job.preconditioner, settings, stream=job.sketch)


def require_size(size: int, total: float) -> None:
    """Raise unless a chain of ``total`` draws has so many."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(f"size must be a whole number of at least 1, got {size!r}.")
    if size > total:
        raise InputError(f"{size} draws were asked for, but the chain has {total}.", "Ask for fewer.")
