"""R-hat, ESS and divergences of the chains that a source delivers, for ``Kept.settings["source"]``.

Those of a thinned set have no meaning, because its draws were selected. They are computed while the source is read for
the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from steinstream.api import DrawSource, MarkedBlock
from steinstream.diagnostics.running_convergence import PARAMETERS, RunningConvergence, reading_state
from steinstream.result import Kept


class WatchedSource(DrawSource):
    """A source whose convergence is recorded when it is first read, for at most ``parameters`` parameters."""

    def __init__(self, source: DrawSource, parameters: int = PARAMETERS) -> None:
        self.source = source
        self.convergence = RunningConvergence(source.dim, parameters)
        self._read = 0  # number of draws whose convergence is recorded

    @property
    def title(self) -> str:
        return self.source.title

    @property
    def dim(self) -> int:
        return self.source.dim

    @property
    def repeatable(self) -> bool:
        return self.source.repeatable

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    @property
    def has_pins_or_features(self) -> bool:
        return self.source.has_pins_or_features

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        stop = skip
        for marked in self.source.blocks(skip, interleaved=interleaved):
            start, stop = stop, stop + len(marked.block.ids)
            if stop > self._read:
                new = marked.block.take(slice(max(self._read - start, 0), None))
                self.convergence.add(new.ids, new.draws)
                self._read = stop
            yield marked

    def state(self) -> dict[str, Any]:
        """Return what is known about the draws that were read, for a checkpoint."""
        return {"read": self._read, **self.convergence.state()}

    def restore(self, state: Any) -> None:
        """Continue from the result of `state`, or raise a `CheckpointError` if it is invalid."""
        with reading_state():
            self._read = int(state["read"])
        self.convergence.restore(state)


def with_source(kept: Kept, tool: str, convergence: RunningConvergence) -> Kept:
    """Add length, R-hat, ESS and divergences of the chains as ``settings["source"]``."""
    return replace(kept, settings={**kept.settings, "source": {"tool": tool, **convergence.summary(kept.names)}})
