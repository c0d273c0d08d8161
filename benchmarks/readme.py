"""Write the measured numbers of README.md, comparison.md and faq.md: ``python benchmarks/readme.py [--text]``.

The numbers come from three committed runs: readme.json (measured by this script), results.md (``make bench``) and
quality/results.md and .json (``make quality``); those on networks from experiments/*/summary.md. The text between the
markers of a page is replaced. ``--text`` measures and draws nothing. A test compares the pages with the committed runs.
"""

from __future__ import annotations

import argparse
import json
import math
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
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", DOCS / "comparison.md", DOCS / "faq.md")
MEASURED, RESULTS, QUALITY = HERE / "readme.json", HERE / "results.md", HERE / "quality" / "results.md"
CELLS = QUALITY.with_suffix(".json")
COMPOSITE = 7  # the first metrics of results.json: all but MMD and KSD
DRAWS = 50_000
FOUR = ("normal", "4", "100000")  # the row of results.md on draws in four dimensions
METHODS = {  # name in quality/results.md: name on the pages, input, what has to be in memory
    "default": ("**steinstream** `thin` with scores", "draws, scores", "kept, summary"),
    "online": ("**steinstream** `Thinner` with scores", "draws, scores", "kept, summary"),
    "online-corrected": ("**steinstream** `Thinner` with scores, `corrected()`", "draws, scores", "kept, summary"),
    "no-scores": ("**steinstream** `thin` without scores", "draws", "kept, summary"),
    "online-no-scores": ("**steinstream** `Thinner` without scores", "draws", "kept, summary"),
    "passes-auto": ('steinstream with scores, `passes="auto"`', "draws, scores", "the chain"),
    "no-scores-passes": ('steinstream without scores, `passes="auto"`', "draws", "the chain"),
    "kt": ("[kernel thinning](https://pypi.org/project/goodpoints/)", "draws", "the chain"),
    "kt-second-half": ("kernel thinning, second half", "draws", "half of the chain"),
    "stein-thinning": ("[Stein thinning](https://pypi.org/project/stein-thinning/)", "draws, scores", "the chain"),
    "minibatch-stein-thinning": ("mini-batch Stein thinning (Teymur et al. 2021)", "draws, scores", "the chain"),
    "kernax": (
        "[regularised Stein thinning](https://pypi.org/project/kernax/)", "draws, scores, log density", "the chain"
    ),
    "spmcmc": ("SPMCMC (Chen et al. 2019)", "draws, scores", "kept draws"),
    "spmcmc-fixed-drops": ("SPMCMC with fixed drops", "draws, scores", "kept draws"),
    "reservoir": ("super-sampling with a reservoir (Paige et al. 2016)", "draws, scores", "the chain"),
    "pure-ksd": ("steinstream, KSD alone (`stream_weight=0`)", "draws, scores", "kept draws"),
    "pure-ksd-linear": ("steinstream, KSD alone, `kernel=IMQ(linear=1)`", "draws, scores", "kept draws"),
    "pure-ksd-passes": ('steinstream, KSD alone, `passes="auto"`', "draws, scores", "the chain"),
    "paper": ("steinstream, settings of the paper (`**ss.PAPER`)", "draws, scores", "kept draws"),
    "stride": ("evenly spaced draws (stride)", "draws", "kept draws"),
}  # fmt: skip
WORTH = ("default", "online", "no-scores", "kt", "stein-thinning", "stride")
WORTH_MORE = (
    "default", "online", "online-corrected", "no-scores", "online-no-scores",
    "kt", "kt-second-half", "stein-thinning", "stride",
)  # fmt: skip
SAME_OBJECTIVE = ("default", "online", "online-corrected", "online-no-scores", "passes-auto", "no-scores-passes")
NETWORKS = {name: ROOT / "experiments" / name / "summary.md" for name in ("cifar10", "imdb")}
NETWORK_SIZES, NETWORK_GOAL = ("20", "50", "100"), 0.5

Numbers = dict[str, Any]
Rows = list[dict[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the measured numbers of the pages.")
    parser.add_argument("--text", action="store_true", help="only the text, from what was measured before")
    if not parser.parse_args().text:
        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
        draw()
    measured, cells = json.loads(MEASURED.read_text()), json.loads(CELLS.read_text())
    parts = sections(measured, RESULTS.read_text(), QUALITY.read_text(), cells)
    for page in PAGES:
        page.write_text(written(page.read_text(), parts))


def measure() -> Numbers:
    """Reduce the same draws by each method, in turns; times in seconds."""
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
    """Make the pictures, by the commands that the pages name."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "steinstream", "demo", "-o", folder], check=True)
        (DOCS / "demo.png").write_bytes(Path(folder, "demo.png").read_bytes())
    animation = [sys.executable, "-m", "experiments.animation", "-o", str(DOCS / "thinning.gif")]
    subprocess.run(animation, check=True, cwd=DOCS.parent)


def sections(measured: Numbers, results: str, quality: str, cells: Numbers) -> dict[str, str]:
    """Return the generated text of each section, by name."""
    return {
        "worth": worth(quality, cells, WORTH),
        "worth-more": worth(quality, cells, WORTH_MORE),
        "sizes": sizes(quality),
        "all-methods": composite(quality, cells),
        "metrics": metrics(quality),
        "others-win": others_win(quality),
        "slow-chains": slow_chains(quality),
        "halves": halves(quality),
        "missed": missed(quality, results, {name: path.read_text() for name, path in NETWORKS.items()}),
        "high-ksd": high_ksd(quality),
        "predictions": predictions(quality),
        "kernel-thinning": kernel_thinning(quality),
        "speed": speed(measured),
        "costs": costs(results),
    }


def written(page: str, parts: dict[str, str]) -> str:
    """Return a page with the text between its markers replaced."""

    def replaced(found: re.Match[str]) -> str:
        return f"{found[1]}{parts[found[2]]}\n{found[3]}"

    pattern = r"(<!-- ([\w-]+): made by benchmarks/readme\.py -->\n).*?(<!-- end of \2 -->\n)"
    page, count = re.subn(pattern, replaced, page, flags=re.DOTALL)
    if not count:
        raise SystemExit("No marker such as <!-- worth: made by benchmarks/readme.py --> on this page.")
    return page


def worth(quality: str, cells: Numbers, methods: tuple[str, ...]) -> str:
    """Return the table of what 100 kept draws are worth in evenly spaced ones."""
    worths = by_method(rows(quality, "Worth"))
    head = ["100 draws selected by", "in memory", "worth in evenly spaced draws", "error, burn-in", "error, bad mixing"]
    lines = []
    for name in methods:
        title, _, memory = METHODS[name]
        title += " with scores" if name == "stein-thinning" else ""
        lines.append([title, memory, worths[name]["m = 100"], *on_slow_chains(cells, name)])
    targets = rows(quality, "Targets")
    fresh = sum(row["half"] == "fresh" for row in targets)
    said = f"""
        Means over {len(targets)} targets; {fresh} were added after all settings were fixed, except the correction of
        slow chains."""
    return f"{table(head, lines)}\n{paragraph(said)}"[:-1]


def sizes(quality: str) -> str:
    """Return the table of what kept draws are worth, for each size."""
    worths = by_method(rows(quality, "Worth"))
    kept = [name.removeprefix("m = ") for name in worths["default"] if name != "method"]
    head = ["kept draws", "worth in evenly spaced draws, with scores", "without scores"]
    lines = [[m, *(worths[name][f"m = {m}"] for name in ("default", "no-scores"))] for m in kept]
    mixed = sum("slow chain" not in row["kind"] for row in rows(quality, "Targets"))
    return f"{table(head, lines)}\nMeans over {mixed} targets with well-mixed chains.\n"


def composite(quality: str, cells: Numbers) -> str:
    """Return the table of errors relative to stride."""
    found = by_method(rows(quality, "Composite"))
    head = ["method", "input", "all targets", "burn-in", "bad mixing", "other chains"]
    head += ["cells worse than stride", "worst cell"]
    lines = []
    for name, (title, needs, _) in METHODS.items():
        row = found[name]
        worse = row["worse than stride"].partition(" (")[0]
        slow = on_slow_chains(cells, name)
        lines.append([title, needs, row["all targets"], *slow, row["other chains"], worse, row["worst cell"]])
    return table(head, lines)


def on_slow_chains(cells: Numbers, method: str) -> list[str]:
    """Return the errors on the targets with burn-in and on those with bad mixing, relative to stride."""
    found = []
    for kind in ("burn-in-", "bad-mixing-"):
        of_targets = [methods[method] for target, methods in cells["results"].items() if target.startswith(kind)]
        logs = [
            sum(math.log(ratio) for ratio in cell["ratios"][:COMPOSITE]) / COMPOSITE / len(by_size)
            for by_size in of_targets
            for cell in by_size.values()
        ]
        found.append(f"{math.exp(sum(logs) / len(of_targets)):.2f}")
    return found


def metrics(quality: str) -> str:
    """Return the table of errors by metric."""
    found = by_method(rows(quality, "Ratio by metric"))
    names = ["means", "sds", "correlations", "quantiles", "functions", "ksd"]
    return table(
        ["method", *(name.upper() if name == "ksd" else name for name in names)],
        [[title, *(found[name][metric] for metric in names)] for name, (title, _, _) in METHODS.items()],
    )


def others_win(quality: str) -> str:
    """Return the table of targets on which another method has a smaller error than the default, and their numbers."""
    lines, wins = [], dict.fromkeys((name for name in METHODS if name not in (*SAME_OBJECTIVE, "stride")), 0)
    found = rows(quality, "Composite by target")
    for row in found:
        others = {name: row[name] for name in wins if row[name]}
        better = sorted((float(value), name) for name, value in others.items() if float(value) < float(row["default"]))
        for _, name in better:
            wins[name] += 1
        if better:
            said = ", ".join(f"{plain(name)} {value:.2f}" for value, name in better)
            lines.append([row["target"], row["default"], said])
    most = sorted((name for name in wins if wins[name]), key=lambda name: -wins[name])
    counts = ", ".join(f"{plain(name)} {wins[name]}" for name in most)
    said = f"Number of targets, of {len(found)}, on which each method has a smaller error than the default: {counts}."
    return paragraph(said) + table(["target", "default", "smaller error"], lines)


def plain(method: str) -> str:
    """Return the name of a method without emphasis and link; without the name of the package for its own ones."""
    name = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", METHODS[method][0].replace("**", ""))
    return re.sub(r"^steinstream,? ", "", name)


def slow_chains(quality: str) -> str:
    """Return the table of errors on slow chains: the default, further passes and KSD alone."""
    names = {"default": "default", "online": "`Thinner`", "online-corrected": "`Thinner.corrected`"}
    names["passes-auto"] = '`passes="auto"`'
    names |= {"pure-ksd": "KSD alone", "pure-ksd-passes": 'KSD alone, `passes="auto"`'}
    names |= {"pure-ksd-linear": "KSD alone, linear term", "stein-thinning": "Stein thinning"}
    found = [row for row in rows(quality, "Composite by target") if row["target"].startswith(("burn-in", "bad-mixing"))]
    return table(["target", *names.values()], [[row["target"], *(row[name] for name in names)] for row in found])


def halves(quality: str) -> str:
    """Return the table of errors on the targets that choose, confirm and are fresh."""
    found = by_method(rows(quality, "Composite"))
    kinds = ["choose", "confirm", "fresh"]
    names = ("default", "online", "passes-auto", "no-scores", "online-no-scores", "kt", "pure-ksd", "pure-ksd-linear")
    return table(["method", *kinds], [[METHODS[name][0], *(found[name][kind] for kind in kinds)] for name in names])


def missed(quality: str, results: str, summaries: dict[str, str]) -> str:
    """Return the table of all goals that are missed."""
    lines = []
    for row in rows(quality, "Goals"):
        values = {name: cell.removesuffix(" MISSED") for name, cell in row.items() if cell.endswith(" MISSED")}
        if values:
            said = "; ".join(f"{plain(name)}: {value}" for name, value in values.items())
            lines.append([row[""], row["goal"], said])
    for row in rows(results, "kernel_thinning"):
        goal, _, verdict = row["goal"].partition(": ")
        if verdict == "MISSED":
            lines.append([f"time relative to kernel thinning, d = {row['d']}", goal, row["default / kernel thinning"]])
    for name, summary in summaries.items():
        ratios = network_ratios(summary)
        if max(ratios.values()) > NETWORK_GOAL:
            label = f"total variation relative to evenly spaced networks, {name}, {', '.join(ratios)} networks"
            lines.append([label, f"<= {NETWORK_GOAL}", ", ".join(f"{ratio:.2f}" for ratio in ratios.values())])
    return table(["goal", "required", "result"], lines)


def network_ratios(summary: str) -> dict[str, float]:
    """Return the total variation of networks selected by predictions, relative to evenly spaced ones, by number."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in summary.splitlines() if line[:1] == "|"]
    variation = {
        (line[0], line[1]): float(line[4].split()[0])
        for line in cells
        if line[0] in NETWORK_SIZES and line[2] == line[0]
    }
    return {
        size: variation[size, "default, predictions"] / variation[size, "evenly spaced, no burn-in"]
        for size in NETWORK_SIZES
    }


def high_ksd(quality: str) -> str:
    """Return the table of targets on which KSD exceeds the goal."""
    found = rows(quality, "KSD of the default")
    return table(list(found[0]), [list(row.values()) for row in found])


def predictions(quality: str) -> str:
    """Return the table of errors of posterior predictions."""
    found = by_method(rows(quality, "Posterior prediction"))
    names = [name for name in found["default"] if name != "method"]
    return table(
        ["method", *names],
        [[METHODS[name][0], *(found[name][each] for each in names)] for name in METHODS if name in found],
    )


def kernel_thinning(quality: str) -> str:
    """Return a sentence on the targets on which kernel thinning is at least as good as the default."""
    found = rows(quality, "Composite by target")
    smaller = [row["target"] for row in found if float(row["kt"]) < float(row["default"])]
    equal = [row["target"] for row in found if float(row["kt"]) == float(row["default"])]
    said = f"""
        Of {len(found)} targets, kernel thinning has a smaller error than steinstream with scores on
        {listed(smaller)}, and the same error, to two digits, on {listed(equal)}."""
    return paragraph(said)[:-1]


def listed(names: list[str]) -> str:
    """Return the number of targets and their names."""
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def speed(measured: Numbers) -> str:
    """Return the table of time and KSD against stein-thinning."""
    draws, size, stride = (f"{measured[name]:,}".replace(",", " ") for name in ("draws", "size", "stride"))
    package = f"[stein-thinning](https://pypi.org/project/stein-thinning/) {measured['stein-thinning']}"
    ours, theirs = (f"{measured[f'{name}, s']:.2g} s" for name in ("steinstream", "stein-thinning"))
    ksd = {name: f"{measured[name]:.4f}" for name in ("ksd of all", "ksd of every nth", "their KSD", "our KSD")}
    said = f"""
        Time and KSD of {size} draws, selected from {draws} draws of a mixture of four Gaussians in the plane. All
        methods use the same kernel and the identity preconditioner, and one thread; steinstream selects by KSD
        alone."""
    return paragraph(said) + table(
        ["method", "reads the chain", "in memory", "time", "KSD"],
        [
            [f"all {draws} draws", "", "", "", ksd["ksd of all"]],
            [f"every {stride}th draw", "while it runs", "kept draws", "", ksd["ksd of every nth"]],
            [package, "afterwards", "the chain", theirs, ksd["their KSD"]],
            [f"**steinstream**, `size={size}`", "while it runs", "kept draws", f"**{ours}**", f"**{ksd['our KSD']}**"],
        ],
    )  # fmt: skip


def costs(results: str) -> str:
    """Return the table of figures that are quoted from results.md."""
    (same,) = (row for row in rows(results, "stein_thinning") if (row["stream"], row["d"], row["draws"]) == FOUR)
    steps = [float(row["extend / C"]) for row in rows(results, "step")]
    (long,) = rows(results, "long")
    (many,) = (row for row in rows(results, "ksd") if (row["points"], row["d"]) == ("100000", "10"))
    (start,) = (row for row in rows(results, "startup") if row["process"] == "steinstream --help")
    large = f"{float(many['all threads, s']):.2g} s, {float(many['memory, MB']):.0f} MB"
    faster = f"{float(same['same ids, times faster']):.0f} times as fast"
    normal = f"{int(FOUR[2]):,} draws in {FOUR[1]} dimensions".replace(",", " ")
    values = {
        "a step with KSD alone, relative to a loop in C with plain sums": f"{min(steps):.1f} to {max(steps):.1f}",
        "a step at draw 10 000 000, relative to draw 10 000": f"{float(long['late / early']):.2f}",
        "growth of memory up to draw 10 000 000": f"{float(long['to 10,000,000, MB']):.1f} MB",
        "KSD of 100 000 draws in 10 dimensions, two cores": large,
        "`steinstream --help`": f"{float(start['s']):.2f} s",
        f"`ss.baselines.stein_thinning` on {normal}, relative to stein-thinning with the same result": faster,
    }
    return table(["measurement", "value"], [list(item) for item in values.items()])


def table(head: list[str], lines: list[list[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)) + "\n"


def paragraph(text: str) -> str:
    """Return a paragraph in lines of even length."""
    return fill(" ".join(text.split()), 120) + "\n\n"


def rows(results: str, section: str) -> Rows:
    """Return the table of a section of a page of results."""
    body = re.split(r"^## ", results, flags=re.MULTILINE)
    (text,) = (part for part in body if part.startswith(f"{section}\n"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def by_method(found: Rows) -> dict[str, dict[str, str]]:
    """Return the rows of a table by method."""
    return {row["method"]: row for row in found}


if __name__ == "__main__":
    main()
