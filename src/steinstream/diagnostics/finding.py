"""Result types of the diagnostic checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steinstream._formatting import count, listing

#: Nominal false-alarm rate of one check: the fraction of clean runs on which it fires.
FALSE_ALARM = 0.001

#: Probability with which a check fires if the fault is as large as its sensitivity.
POWER = 0.9

#: Checks whose sensitivity is part of the verdict.
_MAIN = ("mean", "spread", "ranges")


def normal_quantile(probability: float) -> float:
    """Return a quantile of the standard normal distribution."""
    from statistics import NormalDist  # it loads modules that help texts do not need

    return NormalDist().inv_cdf(probability)


@dataclass(frozen=True)
class Finding:
    """Result of one diagnostic check, or the reason why it was skipped.

    Attributes
    ----------
    name : str
        Name of the check.
    value : float
        Measured value; NaN if the check was skipped. Larger is worse, with two exceptions: the values of ``slow`` and
        ``size`` are numbers of draws, and those of ``spread`` and ``directions`` are ratios that should be close to 1.
    threshold : float
        Value beyond which the check fires. For a ratio it is on the same side of 1 as the value.
    fired : bool
        Whether the check fired.
    says : str
        The measured value in words.
    advice : str
        What to do if the check fired.
    false_alarm : float
        Nominal fraction of clean runs on which the check fires.
    allowed : str
        The threshold in words.
    sensitivity : float
        The smallest fault that the check finds with a probability of 90 %, in the unit of ``value``: the threshold plus
        1.28 standard errors. If a check compares several parameters, it is that of the least sensitive one. NaN if the
        check was skipped or has no such number.
    detects : str
        The sensitivity in words, for both directions: "differences above 0.21 sd".
    found : str
        The measured value in short: "largest found +0.08 sd (x3)".
    skipped : str
        The reason why the check was skipped; empty if it was not.
    cause : str
        Name of the finding of which this one is probably a consequence; empty if there is none.
    """

    name: str
    value: float
    threshold: float
    fired: bool
    says: str
    advice: str
    false_alarm: float = FALSE_ALARM
    allowed: str = ""
    sensitivity: float = math.nan
    detects: str = ""
    found: str = ""
    skipped: str = ""
    cause: str = ""

    def __str__(self) -> str:
        if self.fired:
            return f"{self.name}: {self.says}{f' ({self.allowed})' if self.allowed else ''}; {self.advice}"
        if self.skipped:
            return f"{self.name}: {self.says}"
        return f"{self.name}: {self.detects} would have been found; {self.found or self.says}"


def skipped(name: str, reason: str) -> Finding:
    """Return the finding of a check that was not made.

    Returns
    -------
    Finding
        A finding that did not fire, without a value.

    Examples
    --------
    >>> print(skipped("scores", "no scores"))
    scores: skipped: no scores
    """
    return Finding(name, math.nan, math.nan, False, f"skipped: {reason}", "", skipped=reason)


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Results of all diagnostic checks of one kept set.

    Attributes
    ----------
    findings : tuple of Finding
        One finding per check: fired, passed or skipped. ``diagnosis[name]`` returns the finding of one check.
    notes : tuple of str
        Properties of the run that limit what the checks can find.
    kept : int
        Number of kept draws.
    stream : int
        Number of draws of the stream with which they were compared.
    effective : float
        Smallest effective sample size of these draws of the stream; NaN if it was not computed.

    Examples
    --------
    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(2000, 2))
    >>> diagnosis = ss.thin(draws, -draws, size=100).diagnose()
    >>> diagnosis["spread"].fired, diagnosis["weights"].skipped
    (False, 'equal weights')
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    kept: int = 0
    stream: int = 0
    effective: float = math.nan

    @property
    def fired(self) -> tuple[Finding, ...]:
        """Findings that exceeded their threshold: each cause is followed by its consequences."""
        fired = [finding for finding in self.findings if finding.fired]
        causes = [finding for finding in fired if not finding.cause]
        return tuple(one for cause in causes for one in (cause, *(f for f in fired if f.cause == cause.name)))

    @property
    def passed(self) -> tuple[Finding, ...]:
        """Findings of the checks that were made and did not fire."""
        return tuple(finding for finding in self.findings if not finding.fired and not finding.skipped)

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """Findings of the checks that were not made."""
        return tuple(finding for finding in self.findings if finding.skipped)

    @property
    def ok(self) -> bool:
        """Whether no check fired. False if no check was made. See ``verdict`` for what this means."""
        return bool(self.passed) and not self.fired

    @property
    def verdict(self) -> str:
        """One line: which checks fired, which faults would have been found, and what was not checked."""
        parts = [self._outcome(), self._sensitivity(), self._not_checked()]
        return " ".join(part for part in parts if part)

    def __getitem__(self, name: str) -> Finding:
        """Return the finding of the check with this name."""
        known = {finding.name: finding for finding in self.findings}
        if name not in known:
            raise KeyError(f"No check is named {name!r}. The checks are {listing(known, 20)}.")
        return known[name]

    def __str__(self) -> str:
        lines, number = [self._outcome()], 0
        for finding in self.fired:
            number += not finding.cause
            lines.append(f"     {finding}" if finding.cause else f"  {number}. {finding}")
        if self.passed:
            lines += [f"Sensitivity ({POWER:.0%} probability) of the checks that did not fire:"]
            lines += [f"  {finding}" for finding in self.passed]
        lines += [self._not_checked(), *(f"Note: {note}." for note in self.notes)]
        return "\n".join(line for line in lines if line)

    __repr__ = __str__

    def _outcome(self) -> str:
        made = len(self.findings) - len(self.skipped)
        if not made:
            return ""
        causes = [finding.name for finding in self.fired if not finding.cause]
        names = f": {', '.join(causes)}" if causes else ""
        if len(causes) < len(self.fired):
            names += f" (and as a consequence {', '.join(finding.name for finding in self.fired if finding.cause)})"
        known = not math.isnan(self.effective)
        whose = f", whose effective sample size is {count(round(self.effective))}" if known else ""
        return (
            f"{len(self.fired) or 'None'} of {made} checks fired{names}. {count(self.kept)} kept draws were compared "
            f"with {count(self.stream)} draws of the stream{whose}."
        )

    def _sensitivity(self) -> str:
        main = [f"{one.name} ({one.detects})" for one in self.passed if one.name in _MAIN]
        return f"Faults that would have been found: {', '.join(main)}." if main else ""

    def _not_checked(self) -> str:
        """List the skipped checks by reason."""
        reasons: dict[str, list[str]] = {}
        for finding in self.skipped:
            reasons.setdefault(finding.skipped, []).append(finding.name)
        if reasons and len(self.skipped) == len(self.findings) and len(reasons) == 1:
            return f"Not checked: {next(iter(reasons))}."
        listed = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        return f"Not checked: {listed}." if listed else ""
