"""What a check finds, and all of it together."""

from __future__ import annotations

from dataclasses import dataclass

#: How often a check fires on a clean run, at most.
FALSE_ALARM = 0.005


@dataclass(frozen=True)
class Finding:
    """One check: its number, from where on it counts, and what to do.

    Larger is worse, but for ``slow``, where it is few effective draws, and ``spread``, where the ratio and its
    threshold are both below 1 or both above. ``says`` puts the number into words. ``false_alarm`` is how often the
    check fires on a clean run, at most; ``allowed`` puts the threshold into words.
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
    """All findings, fired or not; ``note`` says why there are none. A finding is also had by its name.

    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(2000, 2))
    >>> diagnosis = ss.thin(draws, -draws).diagnose()
    >>> diagnosis
    All 9 checks passed: nothing found that KSD would miss.
    >>> diagnosis["spread"].fired
    False
    """

    findings: tuple[Finding, ...]
    note: str = ""

    @property
    def fired(self) -> tuple[Finding, ...]:
        """What is wrong."""
        return tuple(finding for finding in self.findings if finding.fired)

    @property
    def ok(self) -> bool:
        """Whether all was checked and nothing is wrong. Too few draws are not ok."""
        return bool(self.findings) and not self.fired

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        return {finding.name: finding for finding in self.findings}[name]

    def __str__(self) -> str:
        if self.note:
            return self.note
        if self.ok:
            return f"All {len(self.findings)} checks passed: nothing found that KSD would miss."
        return "\n".join(map(str, self.fired))

    __repr__ = __str__
