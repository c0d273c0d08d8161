"""Summary of a stream before it is thinned, in one pass and in bounded memory."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steinstream import validation
from steinstream._formatting import count, number
from steinstream.errors import NotKeptError, SteinstreamError
from steinstream.io import read_kept
from steinstream.io.base import BLOCK_BYTES
from steinstream.io.errors import DAMAGE
from steinstream.thinner import Thinner

if TYPE_CHECKING:
    from steinstream.io import Chain

_MANY_REPEATS = 0.95  # fraction of repeated states from which to warn


class Inspection:
    """Shape, invalid values, repeated states and the sign of the scores of a stream, which may have no scores.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> inspection = Inspection(dim=2)
    >>> inspection.add(validation.Block(draws, -draws, validation.consecutive_ids(0, 0, 1000)))
    >>> inspection.shape(("mu", "tau"))
    '1 chain x 1 000 draws, 2 parameters (mu, tau)'
    >>> inspection.sign()
    'sign as expected (mean of <x - mean, score> is -2.001, expected -2)'
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.draws = 0
        self.bad_draws = 0  # with a value that is not finite
        self.repeated = 0  # draws that repeat their predecessor
        self.missing = {"draws": 0, "scores": 0}  # values that are NaN
        self.lengths: dict[int, int] = {}  # draws of each chain
        self.has_scores = False
        self._first_bad: tuple[int, int] | None = None
        self._identity = validation.SteinIdentity(dim)
        self._previous = validation.empty_block(dim)

    @classmethod
    def of(cls, chain: Chain) -> Inspection:
        """Inspect a chain in one pass."""
        inspection = cls(chain.dim)
        for block in chain.blocks():
            inspection.add(block)
        return inspection

    def add(self, block: validation.Block) -> None:
        """Add the next draws of the stream."""
        self.has_scores = block.has_scores
        good = validation.finite_rows(block, "skip")
        if not good.all():
            self._first_bad = self._first_bad or tuple(block.ids[~good][0].tolist())
            for name, values in (("draws", block.draws), ("scores", block.scores)):
                self.missing[name] += int(np.isnan(values).sum())
        self.draws += len(good)
        self.bad_draws += int((~good).sum())
        for chain, length in zip(*np.unique(block.ids[:, 0], return_counts=True), strict=True):
            self.lengths[int(chain)] = self.lengths.get(int(chain), 0) + int(length)
        joined = self._previous.append(block)
        same_chain = joined.ids[1:, 0] == joined.ids[:-1, 0]
        self.repeated += int(((joined.draws[1:] == joined.draws[:-1]).all(axis=1) & same_chain).sum())
        self._previous = block.take(slice(-1, None)).copy()
        if self.has_scores:
            self._identity = self._identity.updated(block.draws[good], block.scores[good])

    @property
    def negated(self) -> bool:
        """Whether the scores certainly have the wrong sign."""
        return self._identity.count >= 2 and self._identity.negated

    def shape(self, names: tuple[str, ...]) -> str:
        """Describe the number of chains, draws and parameters: ``4 chains x 2 000 draws, 10 parameters (...)``."""
        chains = len(self.lengths)
        ends = sorted({min(self.lengths.values(), default=0), max(self.lengths.values(), default=0)})
        lengths = " to ".join(map(count, ends))
        listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        return f"{chains} {'chain' if chains == 1 else 'chains'} x {lengths} draws, {self.dim} parameters ({listed})"

    def sign(self) -> str:
        """Describe whether the scores fulfil Stein's identity; "none" without scores."""
        if not self.has_scores:
            return "none"
        value, expected = self._identity.value, self._identity.expected
        identity = f"mean of <x - mean, score> is {value:.4g}, expected {expected}"
        if self.negated:
            return f"look negated: {identity}; pass --negate-scores if the tool writes minus the gradient"
        if abs(value - expected) <= -0.25 * expected:
            return f"sign as expected ({identity})"
        return f"sign plausible, but {identity}: burn-in, a short chain, or scores of another density"

    def repeats(self) -> str:
        """Describe how many draws repeat their predecessor."""
        return f"{self.repeated / max(self.draws, 1):.0%} of draws repeat their predecessor"

    def bad(self) -> str:
        """Describe how many draws are not finite, and name the first one."""
        if self._first_bad is None:
            return "none: all values are finite"
        chain, draw = self._first_bad
        found = f"{count(self.bad_draws)} of {count(self.draws)} draws not finite"
        parts = [f"{_percent(n / (self.draws * self.dim))} of the {name}" for name, n in self.missing.items() if n]
        missing = f" (NaN: {' and '.join(parts)})" if parts else ""
        first = f"the first is chain {chain}, draw {draw}{missing}"
        return f"{found}, {first}; steinstream thin --on-bad skip leaves them out"

    def warnings(self) -> list[str]:
        """Return the lines that describe a problem."""
        sign = self.sign()
        lines = [] if not self.has_scores or sign.startswith("sign as expected") else [f"scores: {sign}"]
        lines += [f"bad values: {self.bad()}"] if self.bad_draws else []
        return lines + ([f"repeats: {self.repeats()}"] if self._many_repeats else [])

    @property
    def problems(self) -> set[str]:
        """Labels of the `lines` that describe a problem of the chain."""
        found = {"axes": True, "scores": self.negated, "invalid": self.bad_draws > 0, "repeats": self._many_repeats}
        return {label for label, wrong in found.items() if wrong}

    @property
    def _many_repeats(self) -> bool:
        return self.repeated > _MANY_REPEATS * self.draws

    def lines(self, chain: Chain) -> list[tuple[str, str]]:
        """Describe a chain after all its blocks were added, as pairs of a label and a line of text.

        Returns
        -------
        list of tuple
            Shape (without a label), location of the draws, parameters, scores and their sign or the way to get scores,
            what the file says about itself, repeated draws, and values that are not finite.
        """
        lines = [("", self.shape(chain.names)), ("draws", chain.draws_from)]
        if error := chain.axes_error():
            lines.append(("axes", str(error)))
        lines += [line for line in chain.taken.lines() if line[0] == "parameters"]
        if self.has_scores:
            lines.append(("scores", ", ".join(filter(None, [chain.scores_from, self.sign()]))))
        lines += [*chain.notes(), ("repeats", self.repeats()), ("invalid", self.bad())]
        return [(label, text) for label, text in lines if text]

    def expected_size(self) -> int:
        """Return the number of draws that sqrt growth keeps at least."""
        return max(1, math.ceil(math.sqrt(self.draws * math.log(max(self.draws, 2)))))

    def megabytes(self, kept: int) -> int:
        """Return the memory in MB that thinning to ``kept`` draws needs.

        Returns
        -------
        int
            Memory for the kept draws and one block of the stream. Each kept draw and its score are stored twice, as
            given and preconditioned, with influence and id, and half of it again is reserved for growth.
        """
        bytes_each = 8 * (4 * self.dim + 11)
        block = min(8192 * 16 * self.dim, BLOCK_BYTES)
        return max(1, math.ceil((1.5 * kept * bytes_each + 2 * block) / 1e6))


def checkpoint_lines(path: Path) -> list[tuple[str, str]]:
    """Describe the state of a run in a checkpoint, as labels and lines of text; empty if the file is not one."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            if not {"head.npy", "checksum.npy"} <= {*archive.namelist()}:
                return []
    except DAMAGE:
        return []  # the reader reports what is wrong
    thinner = Thinner.load(path)
    received, measure = thinner.current_pass.received, "KSD" if thinner.has_scores else "MMD"
    value = thinner.ksd if thinner.has_scores else thinner.mmd
    words = [str(thinner.note[name]) for name in ("command", "chain") if name in thinner.note]
    command = f"steinstream {' '.join(words)}" if "command" in thinner.note else ""
    again = f"the same command with --resume: {command} ..." if command else f"steinstream.Thinner.load({str(path)!r})"
    return [
        ("", f"checkpoint of a run: {count(received)} draws, {thinner.dim} parameters"),
        ("kept", f"{count(len(thinner))} draws, {measure} {number(value)}"),
        ("continue", again),
    ]


def kept_lines(path: Path, format: str | None = None) -> list[tuple[str, str]]:
    """Describe the kept draws in a file, as labels and lines of text; empty if the file is not a kept set."""
    try:
        kept = read_kept(path, format)
    except NotKeptError:
        return []
    except SteinstreamError as error:
        return [("kept set", f"damaged: {error.problem}")]
    extra = [text for text, given in (("weights", kept.weights), ("order", kept.order)) if given is not None]
    return [("kept set", ", with ".join([repr(kept), *[" and ".join(extra)] * bool(extra)]))]


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"
