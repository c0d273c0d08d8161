"""``python -m fuzz.page``: write the committed counts into docs/robustness.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz.cases import KINDS

_FOLDER = Path(__file__).parent
_PAGE = _FOLDER.parent / "docs" / "robustness.md"
_TABLE = re.compile(r"^\| case \| number \|\n(\|.*\n)*", re.MULTILINE)
EXCUSED = (
    "crash of HDF5, reported by the command",
    "crash of Arrow, reported by the command",
    "endless loop in HDF5",
    "first compilation of a function",
    "interrupted before the program",
)
_OTHERS = ("stores", "full disks", "limited file sizes", "closed pipe", "full device", "no descriptor")


def total(runs: list[dict[str, Any]]) -> Counter[str]:
    """Return the sum of the counts of runs."""
    counts = Counter[str]()
    for run in runs:
        counts.update(run["counts"])
    return counts


def table() -> str:
    """Return the table of counts."""
    runs = json.loads((_FOLDER / "results.json").read_text())
    counts, faults = total(runs), sum(len(run["failures"]) for run in runs)
    guided = json.loads((_FOLDER / "guided.json").read_text())
    soak = json.loads((_FOLDER / "soak.json").read_text())
    signals = {name: number for name, number in counts.items() if name.startswith("stopped by")}
    rows = {
        **{name: counts[name] for name in KINDS},
        "all files and options": sum(counts[name] for name in KINDS),
        **dict(sorted(signals.items())),
        "all signals": sum(signals.values()),
        **{name: counts[name] for name in _OTHERS if counts[name]},
        **{name: counts[name] for name in EXCUSED},
        "faults reported in these cases": faults,
        "guided by coverage: inputs": sum(one["inputs"] for one in guided),
        "guided by coverage: faults": sum(len(one["failures"]) for one in guided),
        "soak test: minutes": round(soak["minutes"]),
        "soak test: draws": soak["draws"],
        "soak test: signals": sum(soak["signals"].values()),
        "soak test: Ctrl-C before the program": soak["interrupted_before_the_program"],
        "soak test: memory in MB, after ten minutes": round(soak["megabytes_of_one_process_by_minute"][10]),
        "soak test: memory in MB, last minute": round(soak["megabytes_of_one_process_by_minute"][-1]),
    }
    lines = [f"| {name} | {f'{number:,}'.replace(',', ' ')} |" for name, number in rows.items()]
    return "\n".join(["| case | number |", "|---|---|", *lines]) + "\n"


def updated(text: str) -> str:
    """Return the text of the page with the current table."""
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    _PAGE.write_text(updated(_PAGE.read_text()))
