"""Figures of a kept set, each a matplotlib figure: ``ss.plot.trace(kept).savefig("trace.svg")``.

The same that a report is made of: see :mod:`steinstream.report.plots`. Needs ``steinstream[plot]``.
"""

from steinstream.report.plots import kept_along_chain, marginals, pairs, trace

__all__ = ["kept_along_chain", "marginals", "pairs", "trace"]
