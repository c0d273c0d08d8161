"""Thinning of one chain with all variants of the paper: both kernels, with and without SPMCMC, three growths.

A step adds one draw: the first of each group of m moves or, under SPMCMC, the best of the group. Both streams thus
have the same number of steps. Every variant is run twice, on the whole chain and without its burn-in, because any
method that may drop draws easily improves on a chain that starts far out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import ExperimentOptions
from experiments.paper.settings import GROWTHS, KERNELS, paper_thinner
from experiments.paper.stored_chain import FileChain, SampledChain, StoredChain
from experiments.results import ResultTable, from_history, select
from experiments.runner import ProgressCallback, WorkUnit
from steinstream import Preconditioner, Thinner
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.io import replacing
from steinstream.validation import SteinIdentity

STREAMS = ("first", "best")  # draw that is added of each group of m moves
PARTS = ("whole", "settled")

_CHECKPOINT_INTERVAL = 30.0  # seconds
_SUBSAMPLE = 4096  # most draws from which a preconditioner is estimated


@dataclass
class ChainExperiment:
    """Experiment that thins one chain.

    ``candidates`` is the number m of draws per step, ``stride`` the number of moves of the chain per draw.
    """

    title: str
    chain: StoredChain
    candidates: int
    names: tuple[str, ...]
    preconditioner_kind: str = "identity"
    stride: int = 1
    preconditioner: Preconditioner = field(default_factory=Preconditioner.identity)
    statistics: dict[str, Any] = field(default_factory=dict)

    def prepare(self, folder: Path, progress: ProgressCallback) -> None:
        """Record the chain and compute its statistics."""
        if isinstance(self.chain, SampledChain):
            self.chain.record(folder / "chain", progress)
        if self.chain.moves < 2 * self.candidates:
            raise InputError(
                f"The chain has {self.chain.moves} draws, and one step uses {self.candidates} of them.",
                f"Provide a chain of at least {2 * self.candidates} draws.",
            )
        path = folder / "chain.json"
        if path.exists():
            stored = json.loads(path.read_text())
            self.statistics = {name: stored[name] for name in ("moves", "burn_in", "distinct", "mean", "sd")}
        else:
            self.statistics = chain_statistics(self.chain)
        if self.preconditioner_kind != "identity":
            draws = draws_after_burn_in(self.chain, self.statistics["burn_in"])
            self.preconditioner = Preconditioner.estimate(self.preconditioner_kind, draws)
        with replacing(path, "w") as file:
            json.dump(asdict(self._description()), file, indent=1)

    def units(self) -> list[WorkUnit]:
        """Return one work unit per variant, the slowest first."""
        keys = product(reversed(STREAMS), GROWTHS, KERNELS, PARTS)
        return [WorkUnit("-".join(key).lower().replace(" ", "-"), partial(self._thin, key)) for key in keys]

    def _thin(self, key: tuple[str, str, str, str], checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        stream, method, kernel, part = key
        group = self.candidates
        start = self.statistics["burn_in"] if part == "settled" else 0
        if checkpoint.exists():
            thinner = Thinner.load(checkpoint)
        else:
            thinner = paper_thinner(
                self.chain.dim,
                kernel=KERNELS[kernel],
                preconditioner=self.preconditioner,
                growth=GROWTHS[method],
                candidates=group if stream == "best" else 1,
                validate_scores=False,
            )
        done = thinner.note.get("moves", 0)
        saved = time.perf_counter()
        for draws, scores in self.chain.blocks(start + done):
            if stream == "best":
                thinner.extend(draws, scores)
            else:
                thinner.extend(draws[-done % group :: group], scores[-done % group :: group])
            done += len(draws)
            if time.perf_counter() - saved > _CHECKPOINT_INTERVAL:
                thinner.note = {"moves": done}
                thinner.save(checkpoint)
                saved = time.perf_counter()
            progress(min(0.999, (done / (self.chain.moves - start)) ** 2))
        return from_history(thinner.history, stream=stream, method=method, kernel=kernel, part=part)

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return one figure per kernel."""
        return self._description().draw(results)

    def summary(self, results: ResultTable) -> str:
        """Return the last value of every curve and the statistics of the chain."""
        return self._description().summary(results)

    def _description(self) -> ChainDescription:
        title = self.title
        if self.preconditioner_kind != "identity":
            title += ", estimated preconditioner"
        given = (title, str(self.preconditioner), self.candidates, self.names)
        return ChainDescription(*given, **self.statistics, stride=self.stride)


@dataclass(frozen=True)
class ChainDescription:
    """What figures and summary need to know of a chain; stored as ``chain.json``.

    ``moves`` and ``burn_in`` count the draws of the stored chain, which has every ``stride``-th move. ``distinct`` is
    the fraction of draws with a new state; ``mean`` and ``sd`` are those after burn-in.
    """

    title: str
    preconditioner: str
    candidates: int
    names: Sequence[str]
    moves: int
    burn_in: int
    distinct: float
    mean: Sequence[float]
    sd: Sequence[float]
    stride: int = 1

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return one figure per kernel: KSD and normalised KSD of the whole chain, and without its burn-in if any."""
        from experiments.paper import plots

        titles = {"whole": "whole chain"}
        if self.burn_in:
            titles["settled"] = f"without {self.stride * self.burn_in:,} moves of burn-in"
        labels = {"first": "", "best": f", SPMCMC (m = {self.candidates})"}
        moves = self.stride * self.candidates
        return {
            f"figure-{kernel}.png": plots.thinned_chain(self.title, results, kernel, titles, labels, moves)
            for kernel in KERNELS
        }

    def summary(self, results: ResultTable) -> str:
        """Return the last value of every curve and the statistics of the chain."""
        length = f"{self.moves:,} moves"
        if self.stride > 1:
            length = f"{self.moves:,} draws, every {self.stride}th of {self.stride * self.moves:,} moves"
        lines = [
            f"{self.title}: {length}, {self.distinct:.1%} of them to a new state; burn-in "
            f"{self.stride * self.burn_in:,} moves; m = {self.candidates}; preconditioner: {self.preconditioner}",
            "",
            "| kernel | stream | chain | method | steps | kept | KSD | normalised KSD |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for kernel, stream, part, method in product(KERNELS, STREAMS, PARTS, GROWTHS):
            curve = select(results, kernel=kernel, stream=stream, part=part, method=method)
            last = {name: column[-1] for name, column in curve.items()}
            lines.append(
                f"| {kernel.upper()} | {stream} of {self.candidates} | {part} | {method} | {last['step']:,} | "
                f"{last['kept']:,} | {last['ksd']:.4g} | {last['normalised']:.4g} |"
            )
        lines += ["", "After burn-in:", "", "| parameter | mean | sd |", "|---|---|---|"]
        moments = zip(self.names, self.mean, self.sd, strict=True)
        return "\n".join(lines + [f"| {name} | {mean:.4f} | {sd:.4f} |" for name, mean, sd in moments])


def create_chain_experiment(
    options: ExperimentOptions, title: str, chain: SampledChain, names: tuple[str, ...], candidates: int
) -> ChainExperiment:
    """Return the experiment with the chain of the user or, if there is none, with ``chain``."""
    if options.chain is None:
        return ChainExperiment(title, chain, candidates, names, options.preconditioner)
    given = FileChain(options.chain)
    title = f"{title}, {options.chain_name}"
    return ChainExperiment(
        title, given, candidates, options.chain.names, options.preconditioner, stride=options.chain_stride
    )


def chain_statistics(chain: StoredChain) -> dict[str, Any]:
    """Compute the length of the burn-in, the fraction of accepted moves and the moments after burn-in.

    Burn-in ends at the first draw inside the bounding box of the second half of the chain.

    Returns
    -------
    dict
        ``moves``, ``burn_in``, ``distinct`` (fraction of moves to a new state), ``mean`` and ``sd``.

    Raises
    ------
    InputError
        If the scores have the wrong sign.

    """
    half = chain.moves // 2
    low, high = np.full(chain.dim, np.inf), np.full(chain.dim, -np.inf)
    identity = SteinIdentity(chain.dim)
    for draws, scores in chain.blocks(half):
        low, high = np.minimum(low, draws.min(axis=0)), np.maximum(high, draws.max(axis=0))
        identity = identity.updated(draws, scores)
    identity.require_plausible()
    burn_in = first_inside(chain, low, high)
    count, total, squares, distinct, last = 0, np.zeros(chain.dim), np.zeros(chain.dim), 0, None
    for draws, _ in chain.blocks(burn_in):
        count += len(draws)
        total += (draws - low).sum(axis=0)
        squares += ((draws - low) ** 2).sum(axis=0)
        previous = draws[:1] if last is None else last
        distinct += int((np.diff(draws, axis=0, prepend=previous) != 0).any(axis=1).sum())
        last = draws[-1:]
    mean = total / count
    return {
        "moves": chain.moves,
        "burn_in": burn_in,
        "distinct": (distinct + 1) / count,
        "mean": (mean + low).tolist(),
        "sd": np.sqrt(squares / count - mean**2).tolist(),
    }


def draws_after_burn_in(chain: StoredChain, burn_in: int) -> Array:
    """Return at most 4096 evenly spaced draws after burn-in."""
    stride = 1
    while -(-(chain.moves - burn_in) // stride) > _SUBSAMPLE:
        stride *= 2
    rows, first = [], 0
    for draws, _ in chain.blocks(burn_in):
        rows.append(draws[-first % stride :: stride])
        first += len(draws)
    return np.concatenate(rows)


def first_inside(chain: StoredChain, low: Array, high: Array) -> int:
    """Return the index of the first draw inside a box."""
    passed = 0
    for draws, _ in chain.blocks():
        inside = ((draws >= low) & (draws <= high)).all(axis=1)
        if inside.any():
            return passed + int(np.argmax(inside))
        passed += len(draws)
    return passed
