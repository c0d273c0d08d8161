"""``--serve``: a dashboard in the browser that shows the progress of a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from steinstream.cli.help import DASHBOARD, option
from steinstream.cli.options import grouped
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.live import Dashboard


class ServeOptions(NamedTuple):
    """Whether to serve the dashboard, and at which port."""

    serve: bool
    port: int | None

    def check(self) -> None:
        """Raise an `InputError` if a port is given without ``--serve``."""
        if self.port is not None and not self.serve:
            raise InputError(f"--port {self.port} has no effect without --serve.", "Add --serve.")

    @contextmanager
    def dashboard(self, chain: Sequence[Path]) -> Iterator[Dashboard | None]:
        """Serve the dashboard of a run over these files; yield None if it is not requested or cannot start."""
        dashboard = self._start(chain) if self.serve else None
        if dashboard is None:
            yield None
            return
        with dashboard:
            click.echo(f"dashboard: {dashboard.url}", err=True)
            yield dashboard

    def _start(self, chain: Sequence[Path]) -> Dashboard | None:
        from steinstream.live import Dashboard

        more = f" and {len(chain) - 1} more" if len(chain) > 1 else ""
        try:
            return Dashboard(self.port or 0, title=f"{chain[0].name}{more}")
        except (OSError, RuntimeError, MemoryError) as error:  # no descriptors, no threads
            import logging

            log = logging.getLogger("steinstream")
            log.warning("The dashboard cannot start (%s). The run continues without it.", error)
            return None


#: Adds the options of the dashboard, as ``live``.
serve_options = grouped(
    "live",
    ServeOptions,
    option(
        "--serve",
        is_flag=True,
        help="Show the progress of the run in a browser, at an address on this machine only.",
        section=DASHBOARD,
    ),
    option(
        "--port",
        type=click.IntRange(0, 65535),
        help="Port of the dashboard.  [default: a free one]",
        section=DASHBOARD,
    ),
)
