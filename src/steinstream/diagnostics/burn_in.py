"""Check ``burn-in``: kept draws from early in a chain that lie outside the region it visits afterwards.

Thinning removes burn-in as soon as it may. With a growth that requires nearly every draw it may not.
"""

from __future__ import annotations

from steinstream.diagnostics.context import MARGIN, DiagnosticContext
from steinstream.diagnostics.finding import Finding


def check_burn_in(context: DiagnosticContext) -> Finding:
    """Measure the fraction of kept draws that are burn-in. One such draw is enough to fire, because it is far out."""
    count = int(context.burn_in.sum())
    last = int(context.ids[context.burn_in, 1].max()) if count else 0
    subject = "1 kept draw precedes" if count == 1 else f"{count} kept draws precede"
    return Finding(
        name="burn-in",
        value=count / len(context.all_kept),
        threshold=0.0,
        fired=count > 0,
        says=f"{subject} convergence, outside the region that the chain visits afterwards",
        advice=f"discard the first {last + 1} draws, or keep fewer draws so that thinning removes them",
        allowed="none expected",
        sensitivity=1.0 / len(context.all_kept),
        detects=f"one early draw {MARGIN:g} times as far out as the second half of its chain",
        found="none found",
    )
