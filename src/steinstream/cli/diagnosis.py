"""The closing lines of ``steinstream thin``: what KSD does not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from steinstream.result import Kept


def closing_lines(kept: Kept) -> None:
    """One line for each check that fired, or one that says that none did."""
    found = kept.diagnose()
    click.echo(str(found), err=bool(found.fired))
