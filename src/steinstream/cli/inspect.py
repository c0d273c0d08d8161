"""``steinstream inspect``: what is in a file of draws, and is it fit to be thinned?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from steinstream.cli.options import chain_options, open_the_chain
from steinstream.cli.progress import bar, count


@click.command(short_help="Look at a chain before thinning it.")
@chain_options
@click.option("--size", type=click.IntRange(min=1), help="How many draws you mean to keep, for the memory estimate.")
def inspect(chain: Path, size: int | None, **options: Any) -> None:
    """Tell what CHAIN holds: shape, bad values, repeats, the scores' sign, the memory that thinning it takes.

    \b
    Example: steinstream inspect chain.npz
    """
    from steinstream.survey import Survey

    source = open_the_chain(
        chain, options["scores_file"], options["draws_name"], options["scores_name"], options["negate_scores"]
    )
    survey = Survey(source.dim)
    with bar("looking", source.length or 1.0) as progress:
        for block in source.blocks():
            survey.add(block)
            progress.show(survey.draws if source.length else source.fraction() or 0.0, f"{count(survey.draws)} draws")
    kept = size or survey.expected_size()
    _line("", survey.shape(source.names))
    _line(
        "scores", survey.sign() + ("  (not checked when thinning: --trust-scores)" if options["trust_scores"] else "")
    )
    _line("repeats", survey.repeats())
    _line("bad", survey.bad())
    _line("will need", f"{survey.megabytes(kept)} MB for {count(kept)} kept draws")
    extra = ["--scores", str(options["scores_file"])] if options["scores_file"] else []
    extra += ["--negate-scores"] if survey.negated or options["negate_scores"] else []
    extra += ["--on-bad skip"] if survey.bad_draws else []
    _line("next", " ".join(["steinstream thin", str(chain), *extra, "-o kept.npz"]))


def _line(label: str, text: str) -> None:
    click.echo(f"{label:<10}{text}" if label else text)
