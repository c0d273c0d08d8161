"""Sanity checks that run when `kept` is first accessed.

A thinner also runs with scores of another density, and with a preconditioner in which the kernel cannot distinguish the
draws; KSD shows neither. The subsample of the stream shows both. Each problem is reported once, as a warning. Nothing
is checked while draws are added. If nothing is wrong, the checks take less than a millisecond in ten dimensions.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics import diagnose_scores
from steinstream.diagnostics.stein_identity import is_suspicious
from steinstream.errors import PreconditionerWarning, ScoresWarning
from steinstream.kernels import Kernel
from steinstream.validation import Block

_MIN_DRAWS = 200

# With the identity, 100 kept draws of a normal distribution five times as wide as the length of IMQ have 0.66 of its
# width. A parameter 50 times as narrow as another one has 0.88 of its width, 100 times 0.4. If all parameters are
# narrow, no harm is done.
_MAX_WIDTH, _MAX_RATIO = 5.0, 10.0

_PACKAGE = str(Path(__file__).parent.parent)


@dataclass
class SanityChecks:
    """Checks that have not failed yet: of the scores, and of a preconditioner that the user did not choose."""

    scores: bool
    preconditioner: bool

    def run(self, stream: Block, kernel: Kernel) -> None:
        """Warn once about each problem in the subsample of the stream."""
        if len(stream.draws) < _MIN_DRAWS or not (self.scores or self.preconditioner):
            return
        late = stream.take(stream.ids[:, 1] >= np.median(stream.ids[:, 1]))  # assuming that burn-in is over
        with np.errstate(all="ignore"):
            scores = self.scores and _problem_of_scores(stream, late)
            widths = self.preconditioner and _problem_of_widths(late.draws, kernel.length(late.draws.shape[1]))
        if scores:
            self.scores = False
            warnings.warn(scores, ScoresWarning, stacklevel=_stacklevel())
        if widths:
            self.preconditioner = False
            warnings.warn(widths, PreconditionerWarning, stacklevel=_stacklevel())


def _problem_of_scores(stream: Block, late: Block) -> str:
    finding = diagnose_scores(stream) if is_suspicious(late.draws, late.scores) else None
    if finding is None or not finding.fired:
        return ""
    advice = finding.advice[0].upper() + finding.advice[1:]
    return (
        f"The scores do not match the draws: {finding.says} ({finding.allowed}). {advice}"
        f"{'' if advice.endswith('?') else '.'} If the scores are right, use validate_scores=False."
    )


def _problem_of_widths(draws: Array, length: float) -> str:
    """Describe why the identity does not fit these draws; empty if it does."""
    widths = draws.std(axis=0)
    moving = np.flatnonzero((widths > 0) & np.isfinite(widths))
    if len(moving) == 0:
        return ""
    least, most = (int(moving[pick(widths[moving])]) for pick in (np.argmin, np.argmax))
    if widths[most] <= min(_MAX_WIDTH * length, _MAX_RATIO * widths[least]):
        return ""
    named = [f"x{j} has a standard deviation of {widths[j]:.2g}" for j in dict.fromkeys((least, most))]
    return (
        f"No preconditioner was given, and a kernel of length {length:.2g} does not fit these draws: "
        f"{', '.join(named)}. The kept set may be far too narrow. Use preconditioner=ss.Streaming(), or "
        "ss.Preconditioner.identity() to keep the draws as they are."
    )


def _stacklevel() -> int:
    """Return the ``stacklevel`` of the first frame outside this package, so that the warning points at user code."""
    frame, count = inspect.currentframe(), 0
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, count = frame.f_back, count + 1
    return count
