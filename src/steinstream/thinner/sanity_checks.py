"""Looks at the stream when its result is asked for: at the scores, and at coordinates that nobody chose.

A thinner runs happily on scores of another density, and in coordinates in which its kernel sees nothing, and KSD shows
neither. The sketch of the stream shows both. Each is told once, as a warning. Nothing is looked at while draws come,
and where all is well a look takes a fraction of a millisecond in ten dimensions.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steinstream.errors import PreconditionerWarning, ScoresWarning
from steinstream.kernels import PROFILES, Kernel
from steinstream.validation import Array, Block

_FEWEST = 200  # draws, below which there is nothing to tell

# In identity coordinates: of normal draws five times as wide as IMQ's c a set of 100 has 0.66 of their width, of a
# parameter 50 times as narrow as another 0.88 of its width, 100 times 0.4. All of them narrow does no harm.
_WIDE, _APART = 5.0, 10.0

_PACKAGE = str(Path(__file__).parent)


@dataclass
class Looks:
    """What is still to be looked at."""

    scores: bool
    preconditioner: bool

    def at(self, stream: Block, kernel: Kernel) -> None:
        """Warn of what is wrong, once."""
        if len(stream.draws) < _FEWEST or not (self.scores or self.preconditioner):
            return
        late = stream.take(stream.ids[:, 1] >= np.median(stream.ids[:, 1]))  # it has settled by then, one hopes
        with np.errstate(all="ignore"):
            scores = self.scores and _of_scores(stream, late)
            widths = self.preconditioner and _of_widths(late.draws, _length(kernel, late.draws.shape[1]))
        if scores:
            self.scores = False
            warnings.warn(scores, ScoresWarning, stacklevel=_frames_of_ours())
        if widths:
            self.preconditioner = False
            warnings.warn(widths, PreconditionerWarning, stacklevel=_frames_of_ours())


def _of_scores(stream: Block, late: Block) -> str:
    from steinstream.diagnostics import of_scores
    from steinstream.diagnostics.stein_identity import doubtful

    finding = of_scores(stream) if doubtful(late.draws, late.scores) else None
    if finding is None or not finding.fired:
        return ""
    advice = finding.advice[0].upper() + finding.advice[1:]
    return (
        f"The scores do not fit the draws: {finding.says} ({finding.allowed}). {advice}"
        f"{'' if advice.endswith('?') else '.'} If you are sure of them, use validate_scores=False."
    )


def _of_widths(draws: Array, length: float) -> str:
    """Whether identity coordinates do not suit these draws."""
    widths = draws.std(axis=0)
    moving = np.flatnonzero((widths > 0) & np.isfinite(widths))
    if len(moving) == 0:
        return ""
    least, most = (int(moving[pick(widths[moving])]) for pick in (np.argmin, np.argmax))
    if widths[most] <= min(_WIDE * length, _APART * widths[least]):
        return ""
    named = [f"x{j} has a standard deviation of {widths[j]:.2g}" for j in dict.fromkeys((least, most))]
    return (
        f"No coordinates were given, and a kernel of length {length:.2g} does not suit these draws: "
        f"{', '.join(named)}. What is kept may be far too narrow. Use preconditioner=ss.Streaming(), or "
        "ss.Preconditioner.identity() if you mean it."
    )


def _length(kernel: Kernel, dim: int) -> float:
    """How far from itself a point still counts: sqrt(phi(0) / -2 phi'(0)), which is IMQ's c for beta = -1/2."""
    profile, first, second = kernel._parameters(dim)
    phi, slope, _ = PROFILES[profile](0.0, first, second)
    return float(np.sqrt(phi / slope))


def _frames_of_ours() -> int:
    """How many calls up the first one is that is not ours: that is whom to warn."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, count = frame.f_back, count + 1
    return count
