"""Convergence of the chains that an integration reads: see `steinstream.diagnostics.running_convergence`."""

from __future__ import annotations

from steinstream.diagnostics.running_convergence import RunningConvergence

__all__ = ["RunningConvergence"]
