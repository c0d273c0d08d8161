"""``--serve``: a page in the browser to watch a command by, for the commands that run long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.live import Page

F = TypeVar("F", bound=Callable[..., Any])


def serve_options(command: F) -> F:
    """Whether to serve the page, and where."""
    for option in (
        click.option("--port", type=click.IntRange(0, 65535),
                     help="With --serve: the page's port.  [default: a free one]"),
        click.option("--serve", is_flag=True,
                     help="Serve a page, on this machine only, to watch the run in a browser."),
    ):  # fmt: skip
        command = option(command)
    return command


class Serving(NamedTuple):
    """What the options ask for."""

    wanted: bool
    port: int

    @contextmanager
    def page(self, chain: Sequence[Path]) -> Iterator[Page | None]:
        """The page for a run over these files, if one is wanted."""
        if not self.wanted:
            yield None
            return
        from steinstream.live import Page

        more = f" and {len(chain) - 1} more" if len(chain) > 1 else ""
        with Page(self.port, title=f"{chain[0].name}{more}") as page:
            click.echo(f"watch it at {page.url}", err=True)
            yield page


def serving(options: dict[str, Any]) -> Serving:
    """Whether to serve, and where; taken out of the options."""
    wanted, port = options.pop("serve"), options.pop("port")
    if port is not None and not wanted:
        raise InputError(f"--port {port} is the port of a page that is not served.", "Add --serve.")
    return Serving(wanted, port or 0)
