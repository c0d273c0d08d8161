"""Thinning of chains with all variants of the paper: both kernels, with and without SPMCMC, three growths.

There is one chain, as in the paper, or several independent ones, whose results have the column ``chain``. A step adds
one draw: the first of each group of m moves or, under SPMCMC, the best of the group. Both streams thus have the same
number of steps. Every variant is run twice, on the whole chain and without its burn-in, because any method that may
drop draws easily improves on a chain that starts far out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import ExperimentOptions
from experiments.paper.settings import GROWTHS, KERNELS, paper_thinner
from experiments.paper.stored_chain import FileChain, SampledChain, StoredChain
from experiments.results import ResultTable, estimate, from_history, select
from experiments.runner import ProgressCallback, WorkUnit
from steinstream import Preconditioner, Thinner
from steinstream._typing import Array
from steinstream.diagnostics.convergence import autocorrelation_time
from steinstream.errors import InputError
from steinstream.io import replacing
from steinstream.validation import SteinIdentity

STREAMS = ("first", "best")  # draw that is added of each group of m moves
PARTS = ("whole", "settled")

_CHECKPOINT_INTERVAL = 30.0  # seconds
_SUBSAMPLE = 4096  # most draws from which a preconditioner is estimated
_SERIES = 2**19  # most draws from which autocorrelation times are estimated


@dataclass
class ChainExperiment:
    """Experiment that thins one or more chains.

    ``candidates`` is the number m of draws per step, ``stride`` the number of moves of the chain per draw. There are
    one preconditioner and one dictionary of ``statistics`` per chain.
    """

    title: str
    chains: Sequence[StoredChain]
    candidates: int
    names: tuple[str, ...]
    preconditioner_kind: str = "identity"
    stride: int = 1
    preconditioners: list[Preconditioner] = field(default_factory=list)
    statistics: list[dict[str, Any]] = field(default_factory=list)

    def prepare(self, folder: Path, progress: ProgressCallback) -> None:
        """Record the chains and compute their statistics."""
        for number, chain in enumerate(self.chains):
            self._prepare_chain(number, chain, folder, progress)
        with replacing(folder / "chain.json", "w") as file:
            json.dump(asdict(self._description()), file, indent=1)

    def _prepare_chain(self, number: int, chain: StoredChain, folder: Path, progress: ProgressCallback) -> None:
        """Record a chain, compute its statistics, which are stored, and estimate its preconditioner."""
        if isinstance(chain, SampledChain):
            chain.record(folder / (f"chain-{number}" if number else "chain"), progress)
        if chain.moves < 2 * self.candidates:
            raise InputError(
                f"The chain has {chain.moves} draws, and one step uses {self.candidates} of them.",
                f"Provide a chain of at least {2 * self.candidates} draws.",
            )
        path = folder / f"statistics-{number}.json"
        if not path.exists():
            with replacing(path, "w") as file:
                json.dump(chain_statistics(chain), file)
        self.statistics.append(json.loads(path.read_text()))
        preconditioner = Preconditioner.identity()
        if self.preconditioner_kind != "identity":
            draws = draws_after_burn_in(chain, self.statistics[-1]["burn_in"], _SUBSAMPLE)[0]
            preconditioner = Preconditioner.estimate(self.preconditioner_kind, draws)
        self.preconditioners.append(preconditioner)

    def units(self) -> list[WorkUnit]:
        """Return one work unit per chain and variant, the slowest variants first."""
        keys = [*product(range(len(self.chains)), reversed(STREAMS), GROWTHS, KERNELS, PARTS)]
        return [WorkUnit(self._unit_name(key), partial(self._thin, key)) for key in keys]

    def _unit_name(self, key: tuple[int, str, str, str, str]) -> str:
        number, *variant = key
        name = "-".join(variant).lower().replace(" ", "-")
        return f"chain-{number}-{name}" if number else name

    def _thin(self, key: tuple[int, str, str, str, str], checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        number, stream, method, kernel, part = key
        chain, group = self.chains[number], self.candidates
        start = self.statistics[number]["burn_in"] if part == "settled" else 0
        if checkpoint.exists():
            thinner = Thinner.load(checkpoint)
        else:
            thinner = paper_thinner(
                chain.dim,
                kernel=KERNELS[kernel],
                preconditioner=self.preconditioners[number],
                growth=GROWTHS[method],
                candidates=group if stream == "best" else 1,
                validate_scores=False,
            )
        done = thinner.note.get("moves", 0)
        saved = time.perf_counter()
        for draws, scores in chain.blocks(start + done):
            if stream == "best":
                thinner.extend(draws, scores)
            else:
                thinner.extend(draws[-done % group :: group], scores[-done % group :: group])
            done += len(draws)
            if time.perf_counter() - saved > _CHECKPOINT_INTERVAL:
                thinner.note = {"moves": done}
                thinner.save(checkpoint)
                saved = time.perf_counter()
            progress(min(0.999, (done / (chain.moves - start)) ** 2))
        labels = {"chain": number} if len(self.chains) > 1 else {}
        return from_history(thinner.history, **labels, stream=stream, method=method, kernel=kernel, part=part)

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
        given = (title, str(self.preconditioners[0]), self.candidates, self.names)
        first, *others = self.statistics
        return ChainDescription(*given, **first, stride=self.stride, others=others)


@dataclass(frozen=True)
class ChainDescription:
    """What figures and summary need to know of the chains; stored as ``chain.json``.

    ``moves``, ``burn_in`` and ``autocorrelation`` count the draws of the stored chain, which has every ``stride``-th
    move. ``distinct`` is the fraction of draws with a new state; ``mean``, ``sd`` and ``autocorrelation`` (the
    autocorrelation time of each parameter) are those after burn-in. ``others`` has the same statistics of the second
    and further chains.
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
    autocorrelation: Sequence[float]
    stride: int = 1
    others: Sequence[dict[str, Any]] = ()

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return one figure per kernel: KSD and normalised KSD of the whole chain, and without its burn-in if any."""
        from experiments.paper import plots

        titles = {"whole": "whole chain"}
        if self._burn_ins != "0":
            titles["settled"] = f"without {self._burn_ins} moves of burn-in"
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
        if self.others:
            length = f"{1 + len(self.others)} chains of {length}"
        errors = "Means over the chains ± one standard error, at the last step of each." if self.others else ""
        lines = [
            f"{self.title}: {length}, {self.distinct:.1%} of them to a new state; burn-in "
            f"{self._burn_ins} moves; $m = {self.candidates}$; preconditioner: {self.preconditioner}",
            *(["", errors] if errors else []),
            "",
            "| kernel | stream | chain | method | steps | kept | KSD | normalised KSD |",
            "|---|---|---|---|---|---|---|---|",
        ]
        parts = PARTS if self._burn_ins != "0" else PARTS[:1]  # without burn-in both are the same
        for kernel, stream, part, method in product(KERNELS, STREAMS, parts, GROWTHS):
            curve = select(results, kernel=kernel, stream=stream, part=part, method=method)
            last = last_steps(curve)
            measures = [_significant(last[name]) for name in ("ksd", "normalised")]
            cells = f"{last['step'][0]:,} | {last['kept'][0]:,} | {' | '.join(measures)}"
            lines.append(f"| {kernel.upper()} | {stream} of {self.candidates} | {part} | {method} | {cells} |")
        of = "After burn-in, first chain" if self.others else "After burn-in"
        lines += ["", f"{of}; autocorrelation time in moves:", ""]
        lines += ["| parameter | mean | sd | autocorrelation time |", "|---|---|---|---|"]
        times = [self.stride * time for time in self.autocorrelation]
        moments = zip(self.names, self.mean, self.sd, times, strict=True)
        return "\n".join(
            lines + [f"| {name} | {mean:.4f} | {sd:.4f} | {tau:,.0f} |" for name, mean, sd, tau in moments]
        )

    @property
    def _burn_ins(self) -> str:
        """The moves of burn-in of all chains: one number, or the smallest and the largest."""
        lengths = [self.stride * self.burn_in, *(self.stride * other["burn_in"] for other in self.others)]
        low, high = min(lengths), max(lengths)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def last_steps(curve: ResultTable) -> ResultTable:
    """Return the last row of each chain."""
    if "chain" not in curve:
        return {name: column[-1:] for name, column in curve.items()}
    rows = [np.flatnonzero(curve["chain"] == number)[-1] for number in np.unique(curve["chain"])]
    return {name: column[rows] for name, column in curve.items()}


def _significant(values: Array) -> str:
    """Return a value with four digits, or the mean of several ± one standard error with as many decimals."""
    if len(values) == 1:
        rounded = f"{values[0]:.4g}"
        return f"{float(rounded):,.0f}" if values[0] >= 1000.0 else rounded
    return estimate(values, max(0, 3 - int(np.floor(np.log10(values.mean())))))


def create_chain_experiment(
    options: ExperimentOptions, title: str, chain: SampledChain, names: tuple[str, ...], candidates: int
) -> ChainExperiment:
    """Return the experiment with the chain of the user or, if there is none, with chains like ``chain``."""
    if options.chain is None:
        chains = [replace(chain, seed=options.seed + number) for number in range(options.chains)]
        return ChainExperiment(title, chains, candidates, names, options.preconditioner)
    given = [FileChain(options.chain)]
    title = f"{title}, {options.chain_name}"
    return ChainExperiment(
        title, given, candidates, options.chain.names, options.preconditioner, stride=options.chain_stride
    )


def chain_statistics(chain: StoredChain) -> dict[str, Any]:
    """Compute the length of the burn-in, the fraction of accepted moves, moments and autocorrelation after burn-in.

    Burn-in ends at the first draw inside the bounding box of the second half of the chain.

    Returns
    -------
    dict
        ``moves``, ``burn_in``, ``distinct`` (fraction of moves to a new state), ``mean``, ``sd`` and
        ``autocorrelation`` (autocorrelation time of each parameter in draws).

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
    series, stride = draws_after_burn_in(chain, burn_in, _SERIES)
    times = [float(stride * autocorrelation_time(column[:, None])[0]) for column in series.T]
    return {
        "moves": chain.moves,
        "burn_in": burn_in,
        "distinct": (distinct + 1) / count,
        "mean": (mean + low).tolist(),
        "sd": np.sqrt(squares / count - mean**2).tolist(),
        "autocorrelation": times,
    }


def draws_after_burn_in(chain: StoredChain, burn_in: int, most: int) -> tuple[Array, int]:
    """Return at most ``most`` evenly spaced draws after burn-in and their stride."""
    stride = 1
    while -(-(chain.moves - burn_in) // stride) > most:
        stride *= 2
    rows, first = [], 0
    for draws, _ in chain.blocks(burn_in):
        rows.append(draws[-first % stride :: stride])
        first += len(draws)
    return np.concatenate(rows), stride


def first_inside(chain: StoredChain, low: Array, high: Array) -> int:
    """Return the index of the first draw inside a box."""
    passed = 0
    for draws, _ in chain.blocks():
        inside = ((draws >= low) & (draws <= high)).all(axis=1)
        if inside.any():
            return passed + int(np.argmax(inside))
        passed += len(draws)
    return passed
