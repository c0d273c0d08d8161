"""A survey of a stream before it is thinned, in one pass and bounded memory."""

from __future__ import annotations

import math

import numpy as np

from steinstream import validation
from steinstream._formatting import count

_STUCK = 0.95  # a larger share of repeats is worth a warning


class Survey:
    """Shape, bad values, repeated states and the scores' sign."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.draws = 0
        self.bad_draws = 0
        self.repeated = 0
        self.missing = {"draws": 0, "scores": 0}
        """Numbers that are NaN."""
        self.lengths: dict[int, int] = {}
        self._first_bad: tuple[int, int] | None = None
        self._identity = validation.SteinIdentity(dim)
        self._previous = validation.empty_block(dim)

    def add(self, block: validation.Block) -> None:
        """Take in the next draws, all of one chain."""
        good = validation.finite_rows(block, "skip")
        if not good.all():
            self._first_bad = self._first_bad or tuple(block.ids[~good][0].tolist())
            for name, values in (("draws", block.draws), ("scores", block.scores)):
                self.missing[name] += int(np.isnan(values).sum())
        self.draws += len(good)
        self.bad_draws += int((~good).sum())
        for chain, draws in zip(*np.unique(block.ids[:, 0], return_counts=True), strict=True):
            self.lengths[int(chain)] = self.lengths.get(int(chain), 0) + int(draws)
        seam = self._previous.append(block)
        same = (seam.draws[1:] == seam.draws[:-1]).all(axis=1) & (seam.ids[1:, 0] == seam.ids[:-1, 0])
        self.repeated += int(same.sum())
        self._previous = block.take(slice(-1, None)).copy()
        block = block.take(good)
        self._identity = self._identity.updated(block.draws, block.scores)

    @property
    def negated(self) -> bool:
        """Whether the scores are surely of the wrong sign."""
        return self._identity.count >= 2 and self._identity.negated

    def shape(self, names: tuple[str, ...]) -> str:
        """``4 chains x 2 000 draws, 10 parameters``."""
        chains = len(self.lengths)
        draws = " to ".join(count(length) for length in sorted(set(self.lengths.values())))
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        return f"{chains} {'chain' if chains == 1 else 'chains'} x {draws} draws, {self.dim} parameters ({shown})"

    def sign(self) -> str:
        """What Stein's identity says."""
        value, expected = self._identity.value, self._identity.expected
        about = f"Stein's identity gives {value:.4g} for {expected}"
        if self.negated:
            return f"look negated: {about}; pass --negate-scores if the tool writes minus the gradient"
        if abs(value - expected) <= -0.25 * expected:
            return f"sign as expected ({about})"
        return f"sign plausible, but {about}: burn-in, a short chain, or scores of another density"

    def repeats(self) -> str:
        """How often the chain stays where it is."""
        return f"{self.repeated / max(self.draws, 1):.0%} of draws repeat their predecessor"

    def bad(self) -> str:
        """How many draws are not finite, and the first of them."""
        if self._first_bad is None:
            return "none: all values are finite"
        chain, draw = self._first_bad
        found = f"{count(self.bad_draws)} of {count(self.draws)} draws not finite"
        shares = [f"{_percent(n / (self.draws * self.dim))} of the {name}" for name, n in self.missing.items() if n]
        told = f" (NaN: {' and '.join(shares)})" if shares else ""
        return f"{found}, the first is chain {chain}, draw {draw}{told}; leave them out with --on-bad skip"

    def warnings(self) -> list[str]:
        """Those of these lines that somebody should read."""
        sign = self.sign()
        lines = [] if sign.startswith("sign as expected") else [f"scores: {sign}"]
        lines += [f"bad values: {self.bad()}"] if self.bad_draws else []
        return lines + ([f"repeats: {self.repeats()}"] if self.repeated > _STUCK * self.draws else [])

    def expected_size(self) -> int:
        """How many draws sqrt growth keeps at least."""
        return max(1, math.ceil(math.sqrt(self.draws * math.log(max(self.draws, 2)))))

    def megabytes(self, kept: int) -> int:
        """Memory for the kept draws: each twice with its score (as given, and in the engine's coordinates), with its
        influence and id, and half as much again as room to grow; and one block of the stream.
        """
        bytes_each = 8 * (4 * self.dim + 11)
        return max(1, math.ceil((1.5 * kept * bytes_each + 8192 * 16 * self.dim * 2) / 1e6))


def _percent(share: float) -> str:
    return f"{share:.2g} %" if (share := 100 * share) < 10 else f"{share:.0f} %"
