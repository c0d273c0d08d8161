"""The README's pictures and numbers, made in one go: ``python benchmarks/readme.py [--text]``.

Measures the table of the README and keeps what came out in readme.json, makes the pictures, takes all other numbers
from results.md, and writes the README anew between its markers. ``--text`` measures nothing and draws nothing: it puts
into the README what readme.json and results.md say. A test sees to it that the README says just that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
README, MEASURED, RESULTS, DOCS = ROOT / "README.md", HERE / "readme.json", HERE / "results.md", ROOT / "docs"
DRAWS = 50_000
FOUR = ("normal", "4", "100000")  # the row of results.md on draws in four dimensions

Numbers = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="The README's pictures and numbers.")
    parser.add_argument("--text", action="store_true", help="only the text, from what was measured before")
    if not parser.parse_args().text:
        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
        draw()
    README.write_text(written(README.read_text(), json.loads(MEASURED.read_text()), RESULTS.read_text()))


def measure() -> Numbers:
    """The same draws reduced by each method, the contenders taking turns; times in seconds."""
    # The folder above instead of this one, which would hide the package stein_thinning behind the benchmark.
    sys.path[0] = str(ROOT)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import steinstream as ss
    from benchmarks import stein_thinning
    from benchmarks.memory import hoard
    from benchmarks.streams import mixture

    hoard()
    stream = mixture(DRAWS)
    stride = DRAWS // stein_thinning.SIZE
    row = stein_thinning.measure(stream, rounds=7)
    return {
        "draws": DRAWS,
        "size": stein_thinning.SIZE,
        "stride": stride,
        "stein-thinning": version("stein-thinning"),
        "ksd of all": ss.ksd(stream.draws, stream.scores),
        "ksd of every nth": ss.ksd(stream.draws[::stride], stream.scores[::stride]),
        **{name: row[name] for name in ("stein-thinning, s", "steinstream, s", "their KSD", "our KSD")},
    }


def draw() -> None:
    """The pictures, by the commands that the README names."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "steinstream", "demo", "-o", folder], check=True)
        (DOCS / "demo.png").write_bytes(Path(folder, "demo.png").read_bytes())
    animation = [sys.executable, "-m", "experiments.animation", "-o", str(DOCS / "thinning.gif")]
    subprocess.run(animation, check=True, cwd=DOCS.parent)


def written(readme: str, measured: Numbers, results: str) -> str:
    """The README with what stands between its markers made anew."""
    for name, text in {"table": table(measured), "figures": figures(results)}.items():
        begin, end = f"<!-- {name}: made by benchmarks/readme.py -->\n", f"<!-- end of {name} -->\n"
        if readme.count(begin) != 1 or readme.count(end) != 1:
            raise SystemExit(f"README.md has no place for {name}: it needs one line {begin!r}, and one {end!r}.")
        before, rest = readme.split(begin)
        readme = f"{before}{begin}{text}\n{end}{rest.split(end)[1]}"
    return readme


def table(measured: Numbers) -> str:
    """The methods side by side."""
    draws, size, stride = (f"{measured[name]:,}".replace(",", " ") for name in ("draws", "size", "stride"))
    package = f"[stein-thinning](https://pypi.org/project/stein-thinning/) {measured['stein-thinning']}"
    ours, theirs = (f"{measured[f'{name}, s']:.2g} s" for name in ("steinstream", "stein-thinning"))
    ksd = {name: f"{measured[name]:.4f}" for name in ("ksd of all", "ksd of every nth", "their KSD", "our KSD")}
    lines = [
        ["method", "sees the chain", "memory", "time", "KSD"],
        ["---"] * 5,
        [f"all {draws} draws", "", "", "", ksd["ksd of all"]],
        [f"every {stride}th draw", "as it runs", "what is kept", "none", ksd["ksd of every nth"]],
        [package, "whole, afterwards", "the whole chain", theirs, ksd["their KSD"]],
        [f"**steinstream**, `size={size}`", "as it runs", "what is kept", f"**{ours}**", f"**{ksd['our KSD']}**"],
    ]
    said = f"""
        The same {draws} draws of a mixture of four Gaussians in the plane, reduced to {size}; kernel and coordinates
        the same for all (IMQ, identity), one thread each, from one run:"""
    return paragraph(said) + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def figures(results: str) -> str:
    """The figures that are cited from results.md."""
    (same,) = (row for row in rows(results, "stein_thinning") if (row["stream"], row["d"], row["draws"]) == FOUR)
    steps = [float(row["extend / C"]) for row in rows(results, "step")]
    (long,) = rows(results, "long")
    (many,) = (row for row in rows(results, "ksd") if (row["points"], row["d"]) == ("100000", "10"))
    (start,) = (row for row in rows(results, "startup") if row["process"] == "steinstream --help")
    faster, late, grown = same["so many times faster"], long["late / early"], long["to 10,000,000, MB"]
    apart = f"""
        Stein thinning itself is here too, compiled (`steinstream.baselines.stein_thinning`, the same draws as the
        package above, {float(faster):.0f} times as fast on 100 000 draws in four dimensions), with stride, random and
        kernel thinning, SPMCMC and the reservoir: [every method on real posteriors](experiments/compare/README.md).
        What sets ours apart is that it never needs the chain."""
    costs = f"""
        A step as a user calls it costs {min(steps):.1f} to {max(steps):.1f} times what it costs in C written for the
        purpose, with plain sums where ours are exact. At draw ten million it costs {float(late):.2f} times what it
        costs at draw ten thousand, and memory has grown by {float(grown):.1f} MB. KSD of 100 000 points in ten
        dimensions takes {float(many["all threads, s"]):.2g} s on two cores and {float(many["memory, MB"]):.0f} MB, and
        `steinstream --help` {float(start["s"]):.2f} s. [All figures](benchmarks/results.md), made by `make bench`;
        those on this page by `make readme`."""
    return paragraph(apart) + paragraph(costs).rstrip() + "\n"


def paragraph(text: str) -> str:
    """In lines of even length."""
    return fill(" ".join(text.split()), 120) + "\n\n"


def rows(results: str, section: str) -> list[dict[str, str]]:
    """The table of a section of results.md."""
    body = re.split(r"^## ", results, flags=re.MULTILINE)
    (text,) = (part for part in body if part.startswith(f"{section}\n"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


if __name__ == "__main__":
    main()
