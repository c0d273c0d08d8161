"""Run the benchmarks: ``python benchmarks/run.py [NAME ...] [--quick] [--data FOLDER]``.

Each runs in a process of its own, so that none depends on what ran before it. A full pass writes its tables to
results.md, each in place of the benchmark's former one; a quick pass only prints.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import cleandoc
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).parent
NAMES = (
    *("row", "step", "beyond", "stein_thinning", "kernel_thinning", "long", "startup", "first_use"),
    *("ksd", "reading", "reading_memory", "report", "collector", "live"),
)
NEEDS = {"collector": "torch", "kernel_thinning": "goodpoints"}

# The folder above instead of this one, which would hide the package stein_thinning behind the benchmark of that name.
sys.path[0] = str(HERE.parent)

# Read when numpy is loaded. The peers' matrix products are small and gained nothing from a second thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.native import compiler  # noqa: E402
from benchmarks.table import Options, Row, markdown, show  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmarks of steinstream.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a short pass, printed only")
    parser.add_argument("--data", type=Path, help="folder that holds goodwin/goodwin_rw_stride100.npz")
    given = parser.parse_args()
    unknown = set(given.names) - set(NAMES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in given.names or NAMES:
        missing = NEEDS.get(name)
        if missing and not find_spec(missing):
            print(f"{name}: left out, for {missing} is not installed")
            continue
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            title, text, rows = process.submit(measure, name, Options(given.quick, given.data)).result()
        show(title, rows)
        if not given.quick:
            write(name, f"{title}\n{text}\n\n{markdown(rows)}")


def measure(name: str, options: Options) -> tuple[str, str, list[Row]]:
    """Title, explanation and rows of a benchmark."""
    benchmark = import_module(f"benchmarks.{name}")
    title, _, text = cleandoc(benchmark.__doc__).partition("\n")
    return title, text, benchmark.run(options)


def write(name: str, section: str) -> None:
    """Put the section into results.md."""
    path = HERE / "results.md"
    parts = re.split(r"^## (\w+)\n", path.read_text(), flags=re.MULTILINE)[1:] if path.exists() else []
    sections = dict(zip(parts[::2], parts[1::2], strict=True)) | {name: section}
    body = "\n\n".join(f"## {each}\n\n{sections[each].strip()}" for each in NAMES if each in sections)
    path.write_text(f"# Results\n\n{machine()}\n\n{body}\n")


def machine() -> str:
    """What this ran on."""
    processor = platform.processor()
    if Path("/proc/cpuinfo").exists():
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = match.group(1) if match else processor
    packages = ", ".join(f"{package} {version(package)}" for package in ("numpy", "numba", "stein-thinning"))
    return f"{processor}, {os.cpu_count()} cores; Python {platform.python_version()}, {packages}; {compiler()}."


if __name__ == "__main__":
    main()
