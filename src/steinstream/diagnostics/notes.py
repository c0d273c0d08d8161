"""Notes of a diagnosis: properties of a run that limit what the checks can find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steinstream.diagnostics.context import DiagnosticContext

_HEAVY_KURTOSIS = 6.0  # that of a Student t distribution with 6 degrees of freedom; a normal distribution has 3


def notes_of_settings(settings: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    """Return whether the scores are those of a proxy density, and the notes about how the set was kept.

    Parameters
    ----------
    settings : mapping
        Settings of a kept set.

    Returns
    -------
    bool
        True if the scores are not those of the target.
    tuple of str
        The notes.

    """
    if "clip" in settings:
        clipped = f" (density ratio clipped at {settings.get('clipped', 0.0):.0%} of the draws)"
        return True, (f"the set was kept by gradient-free KSD, from log densities{clipped}",)
    if "proxy" in settings:
        return True, ("the set was kept by the scores of a proxy density, so its KSD does not refer to the target",)
    return False, ()


def notes_of_data(context: DiagnosticContext, effective: float, *, has_scores: bool) -> tuple[str, ...]:
    """Return the notes about missing scores, few effective draws and heavy tails.

    Parameters
    ----------
    context : DiagnosticContext
        Kept draws and stream.
    effective : float
        Smallest effective sample size of the stream.
    has_scores : bool
        Whether the stream has scores of the target.

    Returns
    -------
    tuple of str
        The notes.

    """
    notes = []
    if not has_scores:
        notes.append("without scores of the target, nothing shows whether the stream itself represents the target")
    if effective < context.kept_count:
        notes.append(
            f"the stream is worth {effective:.0f} independent draws for its slowest parameter, fewer than the "
            f"{context.kept_count} kept draws: its own error is the larger one"
        )
    kurtosis = (context.standardise(context.draws) ** 4).mean(axis=0)
    heavy = np.flatnonzero(kurtosis > _HEAVY_KURTOSIS)
    if len(heavy):
        most = int(np.argmax(kurtosis))
        subject = "1 parameter" if len(heavy) == 1 else f"{len(heavy)} parameters"
        notes.append(
            f"heavy tails in {subject} (kurtosis {kurtosis[most]:.0f} of {context.names[most]}): sds are uncertain "
            "there, see ranges"
        )
    return tuple(notes)
