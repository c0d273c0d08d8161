"""One chain, thinned every way the paper does: both kernels, with and without SPMCMC, three growths.

A step takes in one draw: the first of each group of m moves, or under SPMCMC the best of the group, so that both
streams have as many steps. Everything is done twice, on the whole chain and without its burn-in: a chain that starts
far out is easily beaten by any method that may drop what it wants.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import Options, Report, Unit
from experiments.paper.columns import Columns, as_columns, matching
from experiments.paper.tape import FromFile, Source, Tape
from steinstream.errors import InputError
from steinstream.io.atomic import replacing
from steinstream.kernels import IMQ, RBF
from steinstream.preconditioning import Preconditioner
from steinstream.targets import Array
from steinstream.thinner import Thinner
from steinstream.thinner.subsample import Subsample
from steinstream.validation import Block, SteinIdentity, consecutive_ids

KERNELS = {"imq": IMQ(), "rbf": RBF()}
GROWTHS = {"every draw": "none", "KSDT-LINEAR": "linear", "KSDT-SQRT": "sqrt"}
STREAMS = ("first", "best")  # of each group of m
PARTS = ("whole", "settled")

_SAVE = 30.0  # seconds between two checkpoints


@dataclass
class ThinnedChain:
    """A chain and the number m of its moves that make a step."""

    title: str
    source: Source
    candidates: int
    names: tuple[str, ...]
    kind: str = "identity"  # of coordinates
    preconditioner: Preconditioner = field(default_factory=Preconditioner.identity)
    about: dict[str, Any] = field(default_factory=dict)

    def prepare(self, folder: Path, report: Report) -> None:
        """Record the chain and look at it: where does its burn-in end?"""
        if isinstance(self.source, Tape):
            self.source.record(folder / "chain", report)
        if self.source.moves < 2 * self.candidates:
            raise InputError(
                f"The chain has {self.source.moves} draws, and one step takes {self.candidates} of them.",
                "Give a longer chain.",
            )
        note = folder / "chain.json"
        if not note.exists():
            about = look(self.source)
            with replacing(note, "w") as file:
                json.dump(about, file, indent=1)
        self.about = json.loads(note.read_text())
        if self.kind != "identity":
            self.preconditioner = Preconditioner.estimate(self.kind, settled(self.source, self.about["burn_in"]))

    def units(self) -> list[Unit]:
        """The slowest first, so that no core waits long at the end."""
        keys = product(reversed(STREAMS), GROWTHS, KERNELS, PARTS)
        return [Unit("-".join(key).lower().replace(" ", "-"), partial(self._thin, key)) for key in keys]

    def _thin(self, key: tuple[str, str, str, str], checkpoint: Path, report: Report) -> Columns:
        stream, method, kernel, part = key
        group = self.candidates
        start = self.about["burn_in"] if part == "settled" else 0
        if checkpoint.exists():
            thinner = Thinner.load(checkpoint)
        else:
            thinner = Thinner(
                self.source.dim, kernel=KERNELS[kernel], preconditioner=self.preconditioner, growth=GROWTHS[method],
                candidates=group if stream == "best" else 1, validate_scores=False,
            )  # fmt: skip
        done = thinner.note.get("moves", 0)
        saved = time.perf_counter()
        for draws, scores in self.source.blocks(start + done):
            if stream == "best":
                thinner.extend(draws, scores)
            else:
                thinner.extend(draws[-done % group :: group], scores[-done % group :: group])
            done += len(draws)
            if time.perf_counter() - saved > _SAVE:
                thinner.note = {"moves": done}
                thinner.save(checkpoint)
                saved = time.perf_counter()
            report(min(0.999, (done / (self.source.moves - start)) ** 2))
        return as_columns(thinner.history, stream=stream, method=method, kernel=kernel, part=part)

    def draw(self, results: Columns) -> dict[str, Any]:
        """One figure a kernel: KSD and normalised KSD, whole chain and settled part."""
        from experiments.paper import plots

        titles = {
            "whole": "whole chain",
            "settled": f"without {self.about['burn_in']:,} moves of burn-in",
        }
        labels = {"first": "", "best": f", SPMCMC (m = {self.candidates})"}
        return {
            f"figure-{kernel}.png": plots.thinned_chain(self.title, results, kernel, titles, labels)
            for kernel in KERNELS
        }

    def summary(self, results: Columns) -> str:
        """The last value of every curve, and what the chain is like."""
        about = self.about
        lines = [
            f"{self.title}: {about['moves']:,} moves, {about['distinct']:.1%} of them to a new state; "
            f"burn-in {about['burn_in']:,} moves; m = {self.candidates}; coordinates: {self.preconditioner}",
            "",
            "| kernel | stream | chain | method | steps | kept | KSD | normalised KSD |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for kernel, stream, part, method in product(KERNELS, STREAMS, PARTS, GROWTHS):
            curve = matching(results, kernel=kernel, stream=stream, part=part, method=method)
            last = {name: column[-1] for name, column in curve.items()}
            lines.append(
                f"| {kernel.upper()} | {stream} of {self.candidates} | {part} | {method} | {last['step']:,} | "
                f"{last['kept']:,} | {last['ksd']:.4g} | {last['normalised']:.4g} |"
            )
        lines += ["", "After burn-in:", "", "| parameter | mean | sd |", "|---|---|---|"]
        rows_of = zip(self.names, about["mean"], about["sd"], strict=True)
        return "\n".join(lines + [f"| {name} | {mean:.4f} | {sd:.4f} |" for name, mean, sd in rows_of])


def look(source: Source) -> dict[str, Any]:
    """How long the chain is, how often it moves, where its burn-in ends, and its moments after that.

    Burn-in ends when the chain first enters the box that its second half spans.
    """
    half = source.moves // 2
    low, high = np.full(source.dim, np.inf), np.full(source.dim, -np.inf)
    identity = SteinIdentity(source.dim)
    for draws, scores in source.blocks(half):
        low, high = np.minimum(low, draws.min(axis=0)), np.maximum(high, draws.max(axis=0))
        identity = identity.updated(draws, scores)
    identity.require_plausible()
    burn_in = next_inside(source, low, high)
    count, total, squares, distinct, last = 0, np.zeros(source.dim), np.zeros(source.dim), 0, None
    for draws, _ in source.blocks(burn_in):
        count += len(draws)
        total += (draws - low).sum(axis=0)
        squares += ((draws - low) ** 2).sum(axis=0)
        before = draws[:1] if last is None else last
        distinct += int((np.diff(draws, axis=0, prepend=before) != 0).any(axis=1).sum())
        last = draws[-1:]
    mean = total / count
    return {
        "moves": source.moves,
        "burn_in": burn_in,
        "distinct": (distinct + 1) / count,
        "mean": (mean + low).tolist(),
        "sd": np.sqrt(squares / count - mean**2).tolist(),
    }


def settled(source: Source, burn_in: int) -> Array:
    """Some of the draws after burn-in, evenly spaced."""
    sketch, first = Subsample(source.dim), 0
    for draws, scores in source.blocks(burn_in):
        sketch.add(Block(draws, scores, consecutive_ids(0, first, len(draws))))
        first += len(draws)
    return sketch.block.draws


def next_inside(source: Source, low: Any, high: Any) -> int:
    """The first move inside a box."""
    passed = 0
    for draws, _ in source.blocks():
        inside = ((draws >= low) & (draws <= high)).all(axis=1)
        if inside.any():
            return passed + int(np.argmax(inside))
        passed += len(draws)
    return passed


def study(options: Options, title: str, tape: Tape, names: tuple[str, ...], candidates: int) -> ThinnedChain:
    """Thin the user's chain, or else the one to be recorded."""
    if options.chain is None:
        return ThinnedChain(title, tape, candidates, names, options.preconditioner)
    source = FromFile(options.chain)
    return ThinnedChain(options.chain.path.name, source, candidates, options.chain.names, options.preconditioner)
