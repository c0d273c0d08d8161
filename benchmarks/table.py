"""What a benchmark takes and gives, and how its rows are shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]  # column -> text or number


class Options(NamedTuple):
    """A short pass or a full one, and the folder with data that cannot be shipped."""

    quick: bool
    data: Path | None


def at_most(value: float, limit: float) -> str:
    """The goal, and whether it is reached."""
    return f"<= {limit:g}: {'reached' if value <= limit else 'MISSED'}"


def at_least(value: float, limit: float) -> str:
    """The goal, and whether it is reached."""
    return f">= {limit:g}: {'reached' if value >= limit else 'MISSED'}"


def show(title: str, rows: Sequence[Row]) -> None:
    """On the terminal."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(_text, row.values()))
    console.print(table)


def markdown(rows: Sequence[Row]) -> str:
    """For a file."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(map(_text, row.values())) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
