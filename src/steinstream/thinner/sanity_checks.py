"""Sanity check that runs when `kept` is first accessed.

A thinner also runs with scores of another density, and KSD does not show it. The subsample of the stream does. The
problem is reported once, as a warning. Nothing is checked while draws are added. If nothing is wrong, the check takes
less than a millisecond in ten dimensions.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steinstream.diagnostics import diagnose_scores
from steinstream.diagnostics.stein_identity import is_suspicious
from steinstream.errors import ScoresWarning
from steinstream.validation import Block

_MIN_DRAWS = 200

_PACKAGE = str(Path(__file__).parent.parent)


@dataclass
class SanityChecks:
    """The check of the scores, unless it has failed already."""

    scores: bool

    def problem(self, stream: Block) -> str | None:
        """Describe why the scores in the subsample of the stream do not match the draws.

        Parameters
        ----------
        stream : Block
            Evenly spaced draws of the stream.

        Returns
        -------
        str or None
            The problem, empty if there is none. None if the check was not made: it is not enabled, there are too few
            draws, or they have no scores.
        """
        if not self.scores or not stream.has_scores or len(stream.draws) < _MIN_DRAWS:
            return None
        late = stream.take(stream.ids[:, 1] >= np.median(stream.ids[:, 1]))  # assuming that burn-in is over
        with np.errstate(all="ignore"):
            return _problem_of_scores(stream, late)

    def run(self, stream: Block) -> None:
        """Warn once if the scores in the subsample of the stream do not match the draws."""
        problem = self.problem(stream)
        if problem:
            self.scores = False
            warnings.warn(problem, ScoresWarning, stacklevel=_stacklevel())


def _problem_of_scores(stream: Block, late: Block) -> str:
    if not is_suspicious(late.draws, late.scores):
        return ""
    finding = diagnose_scores(stream)
    if not finding.fired:
        return ""
    advice = finding.advice[0].upper() + finding.advice[1:]
    return (
        f"The scores do not match the draws: {finding.says} ({finding.allowed}). {advice}"
        f"{'' if advice.endswith('?') else '.'} If the scores are right, use validate_scores=False."
    )


def _stacklevel() -> int:
    """Return the ``stacklevel`` of the first frame outside this package, so that the warning points at user code."""
    frame, count = inspect.currentframe(), 0
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, count = frame.f_back, count + 1
    return count
