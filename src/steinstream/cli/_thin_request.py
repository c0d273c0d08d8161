"""Request and result of ``steinstream thin``, for online thinning, other methods and workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from steinstream.cli.messages import Messages
from steinstream.cli.options import InputOptions, current_command_line
from steinstream.cli.paths import holds_groups, save_kept
from steinstream.cli.refine import Refinement, refined
from steinstream.errors import SteinstreamError

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.result import Kept, Variable
    from steinstream.thinner import ThinConfig


class ThinRequest(NamedTuple):
    """Chain, settings and output of a run, for any method."""

    chain: tuple[Path, ...]
    output: Path
    files: InputOptions
    config: ThinConfig
    refinement: Refinement
    burn_in: int | float
    initial: Path | None
    messages: Messages

    def open(self) -> Chain:
        """Open the chain, without its burn-in if one is given."""
        source = self.files.open(self.chain, self.burn_in, check_axes=False)
        source.require_plausible_axes(self.config.size)
        return source

    def groups(self, kept: Kept, source: Chain | None = None) -> dict[str, dict[str, Variable]]:
        """Return the variables of the other groups of an ArviZ file at the kept draws, if the output can hold them.

        Returns
        -------
        dict
            Variables by group.
        """
        if not holds_groups(self.output):
            return {}
        if source is not None:
            return source.groups(kept.ids)
        try:
            return self.open().groups(kept.ids)
        except SteinstreamError as error:
            self.messages.warn(f"The other groups of the files are left out: {error}")
            return {}

    def write(self, kept: Kept) -> Kept:
        """Add the command line to the kept draws, and weights or an order if requested; write and return them."""
        kept = replace(kept, settings={**kept.settings, "commands": [current_command_line()]})
        kept = refined(kept, self.refinement, self.messages)
        save_kept(kept, self.output)
        return kept

    @property
    def options(self) -> dict[str, Any]:
        """Options on which the result depends, besides the settings."""
        initial = None if self.initial is None else str(self.initial)
        return {**self.files.settings, "burn_in": self.burn_in, "initial": initial}


class ThinResult(NamedTuple):
    """The kept draws, which are written, and what to print about them."""

    kept: Kept
    source: Chain | None
    headline: str
