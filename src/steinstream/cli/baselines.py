"""``steinstream thin --method NAME``: another way to reduce a chain, its result written as a kept set like ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.diagnosis import closing_lines
from steinstream.cli.options import as_in_the_paper, as_kernel, as_preconditioner, as_typed, open_the_chain
from steinstream.cli.progress import bar, count, number
from steinstream.cli.refine import refined, taken_from

if TYPE_CHECKING:
    from steinstream.result import Kept

#: What means something to online KSD thinning alone, and what it is when nobody asks for it.
_OURS = {
    "growth": None, "budget": "0", "rule": "paper", "candidates": 1, "anchor": None, "passes": "1", "start": None,
    "initial": None, "checkpoint": None, "resume": False, "proxy": None,
}  # fmt: skip


def thin_by(name: str, seed: int, chain: Sequence[Path], output: Path, options: dict[str, Any]) -> Kept:
    """Reduce the chain to ``--size`` draws by the method of this name."""
    from steinstream.baselines import method_name, selector
    from steinstream.baselines.methods import problem_from_chain, to_kept
    from steinstream.errors import InputError

    name = method_name(name)
    for option, default in _OURS.items():
        if options[option] != default:
            raise InputError(f"--{option} means nothing to {name}.", "Leave it out, or leave out --method.")
    if options["size"] is None:
        raise InputError(f"{name} has to be told how many draws to keep.", "Add --size N.")
    refinement = taken_from(options)
    if options["paper"]:
        options |= as_in_the_paper(options)
    kernel, preconditioner = as_kernel(options["kernel"]), as_preconditioner(options["scale"])
    source = open_the_chain(chain, options)
    began = time.perf_counter()
    with bar("looking ", 1.0) as progress:
        problem = problem_from_chain(
            source, options["size"], kernel=kernel, preconditioner=preconditioner, seed=seed, on_bad=options["on_bad"],
            validate_scores=not options["trust_scores"], progress=progress.show,
        )  # fmt: skip
    with bar("thinning", None) as progress:
        progress.show(0, name)
        kept = to_kept(problem, name, selector(name)(problem))
        kept = replace(kept, names=source.names, variables=source.variables(kept.ids))
    kept = replace(kept, settings={**kept.settings, "commands": [as_typed()]})
    kept = refined(kept, refinement, source, options["on_bad"])
    kept.save(output)
    skipped = f", {count(problem.skipped)} bad ones skipped" if problem.skipped else ""
    click.echo(
        f"{name} kept {count(len(kept))} of {count(kept.settings['seen'])} draws{skipped} in "
        f"{time.perf_counter() - began:.1f} s  ·  KSD {number(kept.ksd)}  ·  "
        f"normalised {number(kept.normalised_ksd)}  ·  wrote {output}"
    )
    closing_lines(kept)
    return kept
