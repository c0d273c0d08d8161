"""``steinstream inspect``: what is in a file of draws, and is it fit to be thinned?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from steinstream.cli.options import chains_options, open_the_chain
from steinstream.cli.progress import bar, count


@click.command(short_help="Look at a chain before thinning it.")
@chains_options
@click.option("--size", type=click.IntRange(min=1), help="How many draws you mean to keep, for the memory estimate.")
def inspect(chain: tuple[Path, ...], size: int | None, **options: Any) -> None:
    """Tell what CHAIN holds: shape, where draws and scores are, the scores' sign, repeats, bad values, the memory that
    thinning it takes.

    \b
    Example: steinstream inspect chain.npz
    """
    from steinstream.inspection import Inspection

    extra = _again(options)
    source = open_the_chain(chain, options)
    inspection = Inspection(source.dim)
    with bar("looking", source.length or 1.0) as progress:
        for block in source.blocks():
            inspection.add(block)
            progress.show(
                inspection.draws if source.length else source.fraction() or 0.0, f"{count(inspection.draws)} draws"
            )
    kept = size or inspection.expected_size()
    _line("", inspection.shape(source.names))
    if source.draws_from:
        _line("draws", source.draws_from)
    place = f"{source.scores_from}, " if source.scores_from else ""
    trusted = "  (not checked when thinning: --no-validate-scores)" if options["trust_scores"] else ""
    _line("scores", f"{place}{inspection.sign()}{trusted}")
    for label, text in source.notes():
        _line(label, text)
    _line("repeats", inspection.repeats())
    _line("bad", inspection.bad())
    _line("will need", f"{inspection.megabytes(kept)} MB for {count(kept)} kept draws")
    extra += ["--negate-scores"] if inspection.negated and "--negate-scores" not in extra else []
    extra += ["--on-bad skip"] if inspection.bad_draws else []
    suffix = chain[0].suffix if chain[0].suffix in (".nc", ".zarr") else ".npz"
    paths = [shlex.quote(str(path)) for path in chain]
    output = "fewer" if Path(f"kept{suffix}") in chain else "kept"
    _line("next", " ".join(["steinstream thin", *paths, *extra, f"-o {output}{suffix}"]))


def _again(options: dict[str, Any]) -> list[str]:
    """The options that say what to read, as they have to be typed again."""
    words = []
    for name, flag in (("scores_file", "--scores"), ("draws_name", "--draws-name"), ("scores_name", "--scores-name"),
                       ("format", "--format")):  # fmt: skip
        if options[name] not in (None, "draws", "scores"):
            words += [flag, shlex.quote(str(options[name]))]
    if options["transposed"] is not None:
        words.append("--transposed" if options["transposed"] else "--not-transposed")
    words += [word for path in options["output_csv"] for word in ("--output-csv", shlex.quote(str(path)))]
    return words + (["--negate-scores"] if options["negate_scores"] else [])


def _line(label: str, text: str) -> None:
    click.echo(f"{label:<10}{text}" if label else text)
