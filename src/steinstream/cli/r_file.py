"""``steinstream r-file``: where the functions for R are."""

from __future__ import annotations

from pathlib import Path

import click

import steinstream.integrations
from steinstream.cli.help import Command


@click.command("r-file", cls=Command, short_help="Print the path of the functions for R.")
def r_file() -> None:
    """Print the path of steinstream.R, which contains functions that thin fits of rstan, brms and rstanarm.

    \b
    Example: steinstream r-file
    In R:    source(system2("steinstream", "r-file", stdout = TRUE))
    """
    click.echo(Path(steinstream.integrations.__file__).with_name("steinstream.R"))
