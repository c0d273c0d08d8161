"""``python -m fuzz.page``: write the committed counts into docs/robustness.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from fuzz.cases import KINDS

_FOLDER = Path(__file__).parent
_PAGE = _FOLDER.parent / "docs" / "robustness.md"
_TABLE = re.compile(r"^\| case \| number \|\n(\|.*\n)*", re.MULTILINE)
_OTHERS = ("full disks", "limited file sizes", "closed pipe", "full device", "no descriptor")


def table() -> str:
    """Return the table of counts."""
    counts = Counter[str]()
    faults = 0
    for run in json.loads((_FOLDER / "results.json").read_text()):
        counts.update(run["counts"])
        faults += len(run["failures"])
    soak = json.loads((_FOLDER / "soak.json").read_text())
    signals = {name: number for name, number in counts.items() if name.startswith("stopped by")}
    rows = {
        **{name: counts[name] for name in KINDS},
        "all files and options": sum(counts[name] for name in KINDS),
        **dict(sorted(signals.items())),
        "all signals": sum(signals.values()),
        **{name: counts[name] for name in _OTHERS if counts[name]},
        "faults reported in these cases": faults,
        "soak test: minutes": round(soak["minutes"]),
        "soak test: draws": soak["draws"],
        "soak test: signals": sum(soak["signals"].values()),
        "soak test: peak memory in MB, last third of the time": soak["peak_megabytes_by_third"][-1],
    }
    lines = [f"| {name} | {f'{number:,}'.replace(',', ' ')} |" for name, number in rows.items()]
    return "\n".join(["| case | number |", "|---|---|", *lines]) + "\n"


def updated(text: str) -> str:
    """Return the text of the page with the current table."""
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    _PAGE.write_text(updated(_PAGE.read_text()))
