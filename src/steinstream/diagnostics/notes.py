"""Notes of a diagnosis: properties of a run that limit what the checks can find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steinstream._formatting import count
from steinstream.diagnostics.context import DiagnosticContext

_HEAVY_KURTOSIS = 6.0  # that of a Student t distribution with 6 degrees of freedom; a normal distribution has 3
_MENTIONED = 0.005  # share of the draws from which a burn-in is mentioned: a slow chain has a few by chance
_SCORES_DECIDE = 0.2  # trust in the chain below which the stream term has little influence
_REDUCED = 0.5


def notes_of_settings(settings: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    """Return whether the scores are those of a proxy density, and the notes about how the set was kept."""
    if "clip" in settings:
        clipped = f" (density ratio clipped at {settings.get('clipped', 0.0):.0%} of the draws)"
        return True, (f"the set was kept by gradient-free KSD, from log densities{clipped}",)
    if "proxy" in settings:
        return True, ("the set was kept by the scores of a proxy density, so its KSD does not refer to the target",)
    return False, ()


def notes_of_data(context: DiagnosticContext, effective: float, *, has_scores: bool) -> tuple[str, ...]:
    """Return the notes about missing scores, few effective draws and heavy tails."""
    notes = []
    if not has_scores:
        notes.append("without scores of the target, nothing shows whether the stream itself represents the target")
    if effective < context.kept_count:
        notes.append(
            f"the stream is worth {count(round(effective))} independent draws for its slowest parameter, fewer than "
            f"the {count(context.kept_count)} kept draws: its own error is the larger one"
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


def notes_of_summary(error: float | None, mmd: float) -> tuple[str, ...]:
    """Return the note that the error of the summary of the stream is larger than the distance of the kept draws to it.

    Parameters
    ----------
    error : float or None
        Estimated MMD between the summary and the stream.
    mmd : float
        MMD between the kept draws and the summary.

    Returns
    -------
    tuple of str
        The note, or nothing.

    Examples
    --------
    >>> notes_of_summary(0.003, 0.002)
    ('the error of the summary of the stream (MMD about 0.003) exceeds the distance of the kept draws to it (0.002)',)
    >>> notes_of_summary(0.001, 0.002)
    ()
    """
    if error is None or not error > mmd:
        return ()
    return (
        f"the error of the summary of the stream (MMD about {error:.2g}) exceeds the distance of the kept draws to it "
        f"({mmd:.2g})",
    )


def describe_chain(settings: Mapping[str, Any]) -> str | None:
    """Say in one sentence what the chain is worth and what decides.

    Returns
    -------
    str or None
        The sentence; None without an estimate.

    Examples
    --------
    >>> describe_chain({"effective_draws": 25.2, "trust": 0.03, "burn_in": 0, "has_scores": True})
    'The chain is worth about 25 independent draws, so the scores determine the selection.'
    >>> describe_chain({"effective_draws": 5210.0, "trust": 1.0, "burn_in": 300, "has_scores": True})
    'The chain is worth about 5200 independent draws; its first 300 draws are burn-in and were left out.'
    """
    worth, trust, burn_in = (settings.get(name) for name in ("effective_draws", "trust", "burn_in"))
    if worth is None:
        return None
    text = f"The chain is worth about {int(float(f'{worth:.2g}'))} independent draws"
    if settings.get("corrected_stream"):
        text += ", so its distribution was corrected by the scores"
    elif trust is not None and trust < _REDUCED:
        if not settings.get("has_scores"):
            text += ", and the kept draws cannot be more accurate without scores"
        elif trust < _SCORES_DECIDE:
            text += ", so the scores determine the selection"
        else:
            text += f", so the distance to the chain has {trust:.0%} of its full weight"
    if burn_in and burn_in >= _MENTIONED * settings.get("seen", 0):
        chains = len(settings.get("burn_in_ends", ())) or 1
        which = "its first" if chains == 1 else f"in {chains} chains, the first"
        text += f"; {which} {burn_in} draws are burn-in and were left out"
    return text + "."
