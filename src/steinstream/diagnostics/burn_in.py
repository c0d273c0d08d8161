"""Are there kept draws from early in a chain that lie where the chain never returned?

Thinning removes burn-in by itself, as long as it may: with a floor that asks for nearly every draw it may not.
"""

from __future__ import annotations

from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import Finding


def check(evidence: Evidence) -> Finding:
    """The part of the kept draws that are burn-in. One is enough: it is far out."""
    count = int(evidence.burnt.sum())
    last = int(evidence.ids[evidence.burnt, 1].max()) if count else 0
    return Finding(
        "burn-in", count / len(evidence.points), 0.0, count > 0,
        f"{count} kept {'draw is' if count == 1 else 'draws are'} from where a chain began and never returned",
        f"leave out the first {last + 1} draws, or keep fewer so that they go by themselves",
    )  # fmt: skip
