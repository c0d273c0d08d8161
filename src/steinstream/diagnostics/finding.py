"""Result types of the diagnostic checks."""

from __future__ import annotations

from dataclasses import dataclass

#: Largest false-alarm rate of one check: the fraction of clean runs on which it fires.
FALSE_ALARM = 0.005


@dataclass(frozen=True)
class Finding:
    """Result of one diagnostic check.

    Attributes
    ----------
    name : str
        Name of the check.
    value : float
        Measured value. Larger is worse, with two exceptions: the value of ``slow`` is an effective sample size, and
        the value of ``spread`` is a ratio that should be close to 1.
    threshold : float
        Value beyond which the check fires. For ``spread`` it is on the same side of 1 as the value.
    fired : bool
        Whether the check fired.
    says : str
        The measured value in words.
    advice : str
        What to do if the check fired.
    false_alarm : float
        Largest fraction of clean runs on which the check fires.
    allowed : str
        The threshold in words.

    """

    name: str
    value: float
    threshold: float
    fired: bool
    says: str
    advice: str
    false_alarm: float = FALSE_ALARM
    allowed: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.says}{f' ({self.allowed})' if self.allowed else ''}; {self.advice}"


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Results of all diagnostic checks of one kept set.

    Attributes
    ----------
    findings : tuple of Finding
        One finding per check, fired or not. ``diagnosis[name]`` returns the finding of one check.
    note : str
        Reason why nothing was checked, if ``findings`` is empty.

    Examples
    --------
    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(2000, 2))
    >>> diagnosis = ss.thin(draws, -draws).diagnose()
    >>> diagnosis
    All 9 checks passed.
    >>> diagnosis["spread"].fired
    False

    """

    findings: tuple[Finding, ...]
    note: str = ""

    @property
    def fired(self) -> tuple[Finding, ...]:
        """Findings that exceeded their threshold."""
        return tuple(finding for finding in self.findings if finding.fired)

    @property
    def ok(self) -> bool:
        """Whether the checks ran and none of them fired. False if there were too few draws to check."""
        return bool(self.findings) and not self.fired

    def __getitem__(self, name: str) -> Finding:
        """Return the finding of the check with this name."""
        return {finding.name: finding for finding in self.findings}[name]

    def __str__(self) -> str:
        if self.note:
            return self.note
        if self.ok:
            return f"All {len(self.findings)} checks passed."
        return "\n".join(map(str, self.fired))

    __repr__ = __str__
