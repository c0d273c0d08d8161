"""``steinstream demo``: sample a real posterior and thin it while it is sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli.help import Command, option
from steinstream.cli.options import PATH
from steinstream.cli.progress import bar, count, number, working_time
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.result import Kept
    from steinstream.thinner import Thinner

_BLOCK = 2000
_WARMUP = 10_000  # draws from which the preconditioner is estimated; they contain the burn-in
_NAMES = ("log a", "log b", "log c", "log d")
_SETTLED = "without burn-in"
_METHODS = {"every draw": "none", _SETTLED: "none", "KSDT-LINEAR": "linear", "KSDT-SQRT": "sqrt"}


@click.command(cls=Command, short_help="Sample a posterior and thin it while it runs.")
@option("--draws", type=click.IntRange(min=1000), default=500_000, help="Length of the chain.")
@option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Random seed of the observations and of the chain.",
)
@option(
    "-o",
    "--output",
    type=PATH,
    default=Path("demo"),
    metavar="FOLDER",
    help="Folder for the results.",
)
def demo(draws: int, seed: int, output: Path) -> None:
    """Sample the posterior of the Goodwin oscillator by a random walk, and thin it in two ways while it runs.

    The oscillator is a model of gene regulation with four parameters; its posterior is the first experiment of the
    paper. The chain starts far out, so that it has a burn-in. The settings are those of the paper, but for the
    preconditioner, which is estimated after 10 000 draws. For comparison, the KSD of every draw is computed, and that
    of every draw after the first 10 000, which contain the burn-in.

    \b
    Example: steinstream demo --draws 50000 -o demo
    """
    from steinstream.io.atomic import make_folder
    from steinstream.report.page import build_report

    make_folder(output)
    click.echo("Sampling the Goodwin oscillator posterior (4 parameters, random walk) and thinning it while it runs")
    thinners, spent = _run(draws, seed)
    _print_table(thinners, spent, draws)
    best = replace(thinners["KSDT-SQRT"].kept, names=_NAMES)
    best.save(output / "kept.npz")
    written = [str(output / "kept.npz")]
    try:
        _draw_picture(output / "demo.png", thinners, best)
        build_report(best, title="Goodwin oscillator, random walk").save(output / "report.html")
        written += [str(output / "demo.png"), str(output / "report.html")]
    except InputError as missing:
        click.echo(f"no picture: {missing}")
    look = "  ·  open the report to see the kept draws" if len(written) > 1 else ""
    click.echo(f"wrote {', '.join(written)}{look}")


def _run(draws: int, seed: int) -> tuple[dict[str, Thinner], dict[str, float]]:
    """Return the thinners at the end, and the seconds spent on sampling and on each of them."""
    import numpy as np

    from steinstream.preconditioning import Warmup
    from steinstream.samplers import RandomWalk
    from steinstream.targets import Goodwin
    from steinstream.thinner import PAPER, Thinner

    sampler = RandomWalk(Goodwin.simulated(seed), step=0.01)
    state = sampler.init(np.log([0.5, 1.0, 3.0, 2.0]), seed)
    paper = {**PAPER, "preconditioner": Warmup("covariance", _WARMUP)}
    thinners = {name: Thinner(4, **{**paper, "growth": growth}) for name, growth in _METHODS.items()}
    spent = dict.fromkeys(["sampling", *thinners], 0.0)
    with bar("sampling", draws) as progress:
        for done in range(0, draws, _BLOCK):
            clock = working_time()
            state, block = sampler.sample(state, min(_BLOCK, draws - done))
            spent["sampling"] += working_time() - clock
            if done == _WARMUP:
                fitted = thinners["every draw"].preconditioner
                thinners[_SETTLED] = Thinner(4, **{**paper, "growth": "none", "preconditioner": fitted})
            for name, thinner in thinners.items():
                if name == _SETTLED and done < _WARMUP:
                    continue
                clock = working_time()
                step = thinner.extend(block.draws, block.scores)
                spent[name] += working_time() - clock
            seen = thinner.seen
            kept = f"kept {count(step.size)}  ·  KSD {number(step.ksd)}" if thinner.steps else "warming up"
            progress.show(
                seen,
                f"{count(seen)}/{count(draws)} draws  ·  {count(round(seen / max(progress.seconds, 1e-3)))} draws/s"
                f"  ·  {kept}",
            )
    return thinners, spent


def _print_table(thinners: dict[str, Thinner], spent: dict[str, float], draws: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in ("draws", "kept", "KSD", "normalised", "draws/s", "share of the time spent thinning"):
        table.add_column(title, justify="right")
    for name, thinner in thinners.items():
        if len(thinner) == 0:  # the chain is shorter than the burn-in
            continue
        thins = _METHODS[name] != "none"  # the KSD of every draw is computed for comparison only
        total = spent["sampling"] + (spent[name] if thins else 0.0)
        ksds = number(thinner.ksd), number(thinner.normalised_ksd)
        share = f"{spent[name] / total:.1%}" if thins else "-"
        table.add_row(name, count(thinner.seen), count(len(thinner)), *ksds, count(round(draws / total)), share)
    Console().print(table)


def _draw_picture(path: Path, thinners: dict[str, Thinner], kept: Kept) -> None:
    from steinstream.io import replacing
    from steinstream.report import plots
    from steinstream.report.chain_comparison import ChainComparison
    from steinstream.report.chain_summary import summarise_chain
    from steinstream.report.style import figure_style, new_figure

    with figure_style():
        picture, (left, right) = new_figure(8.4, 3.4, 1, 2)
        histories = {name: thinner.history for name, thinner in thinners.items() if len(thinner.history.step)}
        if _SETTLED in histories:
            histories[_SETTLED] = histories[_SETTLED]._replace(step=histories[_SETTLED].step + _WARMUP)
        plots.ksd_curves(left, histories)
        left.set_title("KSD while the chain runs")
        plots.pair_panel(right, ChainComparison(kept, summarise_chain(kept, None)), 0, 1)
        right.set_title(f"{count(len(kept))} of {count(thinners['KSDT-SQRT'].seen)} draws kept")
        with replacing(path) as file:
            picture.savefig(file, dpi=180, format="png", facecolor="white")
