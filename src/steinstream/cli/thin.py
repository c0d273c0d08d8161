"""``steinstream thin``: a file of draws in, the ones that matter out."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.baselines import METHODS
from steinstream.cli.checkpoints import Checkpoint, check_folder, fingerprint
from steinstream.cli.diagnosis import closing_lines
from steinstream.cli.help import Sectioned
from steinstream.cli.options import (
    OUTPUTS,
    as_anchor,
    as_in_the_paper,
    as_kernel,
    as_preconditioner,
    as_typed,
    chains_options,
    checkpoint_options,
    kernel_options,
    offering,
    open_the_chain,
    refuse_idle,
    thinning_options,
    typed,
)
from steinstream.cli.parallel import Workers, thin_on_workers, worker_options, workers_in
from steinstream.cli.paths import data_of, read_by
from steinstream.cli.progress import Stop, bar, count, number, stoppable
from steinstream.cli.refine import Refinement, refine_options, refined, taken_from
from steinstream.cli.report import report_option, write_report
from steinstream.cli.serve import Serving, serve_options, serving

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.result import Kept
    from steinstream.thinner import Thinner
    from steinstream.thinner.subsample import Subsample
    from steinstream.validation import Array

_ROWS = 2048  # draws between two looks at the clock, the progress bar and Ctrl-C
_EVERY = 30.0  # seconds between two checkpoints


@click.command(cls=Sectioned, short_help="Keep the draws that matter.")
@chains_options
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help=OUTPUTS)
@thinning_options
@click.option("--passes", default="1", show_default=True, shell_complete=offering("auto"),
              help="Passes over the chain, or auto: further ones keep as many draws and lower KSD.")  # fmt: skip
@click.option("--start", type=click.Choice(["stream", "sample"]),
              help="With --size: begin with a good set out of a sample of the chain.  [default: with --passes auto]"
              )  # fmt: skip
@kernel_options
@click.option("--paper", is_flag=True, help="The paper's settings: IMQ, identity coordinates, sqrt growth, budget 0.")
@click.option("--on-bad", type=click.Choice(["raise", "skip"]), default="raise", show_default=True,
              help="What to do with a draw that is not finite.")  # fmt: skip
@click.option("--proxy", type=click.Choice(["gaussian"]),
              help="The file has no scores: take those of a Gaussian fitted to the draws, with all its limits."
              )  # fmt: skip
@click.option("--initial", help="A file of draws and scores to begin with: an earlier kept set, say.")
@checkpoint_options
@click.option(
    "--method",
    default="ksdt",
    show_default=True,
    shell_complete=offering(*METHODS),
    help=f"Or {', '.join(METHODS[1:])}.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of a method that chooses at random."
)
@refine_options
@worker_options
@report_option
@serve_options
def thin(
    chain: tuple[Path, ...], output: Path, checkpoint: Path | None, resume: bool, method: str, seed: int,
    report: Path | None, **options: Any,
) -> None:  # fmt: skip
    """Keep the draws of CHAIN that matter; several files are the chains of one run.

    The method ksdt streams the file. Of the others, which need --size, stein_thinning, reservoir and kernel_thinning
    hold the whole chain in memory.

    \b
    Example: steinstream thin chain.npz -o kept.npz --size 200
             steinstream thin chains/*.csv -o kept.npz --size 200 --workers 4
    """
    from steinstream.thinner.passes import as_passes

    passes, workers, live = as_passes(options["passes"]), workers_in(options), serving(options)
    _check_options(method, workers, live, options)
    state = _check_files(chain, output, report, checkpoint, resume, workers, options)
    if method != "ksdt":
        from steinstream.cli.baselines import thin_by

        kept = thin_by(method, seed, chain, output, {**options, "checkpoint": checkpoint, "resume": resume})
    else:
        refinement = taken_from(options)
        if options["paper"]:
            options |= as_in_the_paper(options)
        if workers.wanted:
            kept = thin_on_workers(chain, output, checkpoint, resume, workers, refinement, dict(options))
        else:
            kept = _thin_one_stream(chain, output, state, passes, live, refinement, dict(options))
    if report is not None:
        write_report(report, kept, _source(chain, dict(options)), output)


def _check_options(method: str, workers: Workers, live: Serving, options: dict[str, Any]) -> None:
    """Raise what does not go together."""
    from steinstream.errors import InputError

    if live.wanted and (method != "ksdt" or workers.wanted):
        raise InputError("--serve shows one thinner at work, not workers or other methods.", "Leave it out.")
    if method != "ksdt" and workers.wanted:
        raise InputError(f"--method {method} does not go with workers.", "Leave one of them out.")
    if not typed("method"):
        refuse_idle(["seed"], "without --method")
    if not workers.wanted:
        refuse_idle(["fan_in", "spare", "skip_corrupt"], "without --workers or --scheduler")
    elif options["size"] is None:
        refuse_idle(["spare"], "without --size")
    if options["proxy"]:
        refuse_idle(["scores_name", "negate_scores"], "to a proxy, which has scores of its own")


def _check_files(
    chain: tuple[Path, ...], output: Path, report: Path | None, checkpoint: Path | None, resume: bool,
    workers: Workers, options: dict[str, Any],
) -> Checkpoint:  # fmt: skip
    """Raise what would go wrong with files later; where the state of a run is saved."""
    from steinstream.io import check_output

    check_output(output)
    if report is not None:
        from steinstream.report.page import check_output as check_report

        check_report(report)
    files, outputs = read_by(chain, options), {"-o": output, "--report": report}
    if workers.wanted:  # whose checkpoint is a folder
        check_folder(checkpoint, [*files, output])
        return Checkpoint(None, resume and checkpoint is None, outputs, files)
    return Checkpoint(checkpoint, resume, outputs, files)


def _source(chain: tuple[Path, ...], options: dict[str, Any]) -> Chain:
    if options.get("proxy"):
        from steinstream.cli.proxy import scored_by_gaussian

        return scored_by_gaussian(chain, options)
    return open_the_chain(chain, options)


def _thin_one_stream(
    chain: tuple[Path, ...], output: Path, state: Checkpoint, passes: int | str, live: Serving,
    refinement: Refinement, options: dict[str, Any],
) -> Kept:  # fmt: skip
    from steinstream.thinner.passes import go_on

    asked, data = _asked(options), data_of(chain, options)
    source, began = _source(chain, options), time.perf_counter()
    with live.page(chain) as page, stoppable() as stop:
        thinner = _resumed(source, state, asked, data) or _begin(source, options, stop)
        if thinner is not None:
            if state and not thinner.note:
                known = [fingerprint(path) for path in data]
                thinner.note = {"chain": source.title, "options": asked, "data": known}
            if page is not None:
                page.show(thinner, source.names)
            _stream(source, thinner, state, stop)
            while not stop.signal and go_on(thinner, passes):
                thinner.start_pass()
                _stream(source, thinner, state, stop)
        if thinner is None or stop.signal:
            _give_up(thinner, state)
            sys.exit(stop.code)
    kept = _kept(source, thinner, output, options)
    kept = refined(kept, refinement, source, options["on_bad"])
    kept.save(output)
    _tell(kept, thinner, time.perf_counter() - began, output)
    state.remove()
    return kept


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """The options on which what is kept depends, as a checkpoint notes them."""
    files = ("scores_file", "output_csv")  # known by what is in them, not by their names
    return {name: value for name, value in options.items() if name not in files}


def _kept(source: Chain, thinner: Thinner, output: Path, options: dict[str, Any]) -> Kept:
    """What came of it, with all that the file has of these draws."""
    from steinstream.api import too_short
    from steinstream.errors import InputError, SteinstreamError

    if thinner.seen == thinner.skipped:
        raise InputError(f"{source.title} has no usable draws.")
    if len(thinner) == 0:
        raise InputError(*too_short(thinner.seen - thinner.skipped, thinner.candidates))
    kept = thinner.kept
    proxy = {"proxy": options["proxy"]} if options["proxy"] else {}
    kept = replace(kept, names=source.names, settings={**kept.settings, "commands": [as_typed()], **proxy})
    try:
        return replace(kept, variables=source.variables(kept.ids))
    except SteinstreamError:
        kept.save(output)  # a long run should not be lost for what stands beside it
        raise


def _tell(kept: Kept, thinner: Thinner, seconds: float, output: Path) -> None:
    skipped = f", {count(thinner.skipped)} bad ones skipped" if thinner.skipped else ""
    made = thinner.current_pass.number
    times = f" and {made} passes" if made > 1 else ""
    bound = f" (bound for an independent chain: {number(kept.bound)} in the mean)" if kept.bound is not None else ""
    click.echo(
        f"kept {count(len(kept))} of {count(thinner.seen)} draws{skipped} in {seconds:.1f} s{times}"
        f"  ·  KSD {number(kept.ksd)}{bound}  ·  normalised {number(kept.normalised_ksd)}  ·  wrote {output}"
    )
    closing_lines(kept)


def _begin(source: Chain, options: dict[str, Any], stop: Stop) -> Thinner | None:
    """A new thinner, fitted to the chain; None if stopped before it was."""
    from steinstream import schedules
    from steinstream.api import fitting
    from steinstream.preconditioning import Preconditioner, Streaming
    from steinstream.thinner import Thinner
    from steinstream.thinner.passes import as_passes, begin_well, begins_with_sample
    from steinstream.thinner.subsample import Subsample

    kernel, passes = as_kernel(options["kernel"]), as_passes(options["passes"])
    anchor = as_anchor(options["anchor"])
    scale = (
        Streaming(centred=kernel.linear > 0) if options["scale"] == "streaming" else as_preconditioner(options["scale"])
    )
    schedules.budget(options["budget"], schedules.growth(options["growth"] or "sqrt"))  # a typo should not cost a pass
    if scale == "identity":
        scale = Preconditioner.identity()
    sketch, to_fit = Subsample(source.dim), isinstance(scale, str)
    if to_fit and not _look(source, sketch, options["on_bad"], stop):
        return None
    thinner = Thinner(
        source.dim,
        kernel=kernel,
        preconditioner=fitting(scale, sketch, not options["trust_scores"], kernel) if isinstance(scale, str) else scale,
        growth=options["growth"],
        budget=options["budget"],
        rule=options["rule"],
        size=options["size"],
        candidates=options["candidates"],
        anchor=anchor,
        initial=_initial(options["initial"], source.dim),
        on_bad=options["on_bad"],
        validate_scores=not options["trust_scores"],
    )
    if begins_with_sample(options["start"], passes, thinner):
        if not to_fit and not _look(source, sketch, options["on_bad"], stop):
            return None
        begin_well(thinner, sketch.block)
    return thinner


def _initial(path: str | None, dim: int) -> tuple[Array, Array] | None:
    """The draws and scores to begin with."""
    if path is None:
        return None
    from steinstream import validation
    from steinstream.errors import InputError
    from steinstream.io import open_chain

    first = open_chain(path)
    if first.dim != dim:
        raise InputError(
            f"{path} has {first.dim} dimensions, the chain has {dim}.", "Begin with draws of the same model."
        )
    block = validation.empty_block(dim)
    for more in first.blocks():
        block = block.append(more)
    return block.draws, block.scores


def _resumed(source: Chain, state: Checkpoint, asked: dict[str, Any], data: list[Path]) -> Thinner | None:
    """The thinner in the checkpoint, which must be the one that this command would have made; None if there is none."""
    from steinstream.errors import CheckpointError

    thinner = state.load()
    if thinner is None:
        return None
    state.check_options(thinner.note.get("options"), asked)
    if thinner.dim != source.dim or thinner.note.get("chain") != source.title:
        its = thinner.note.get("chain", "another command")
        raise CheckpointError(
            f"{state.path} belongs to {its} ({thinner.dim} dimensions), not to {source.title}.",
            "Name its own chain, or delete the checkpoint to start anew.",
        )
    state.check_files(thinner.note.get("data"), data)
    here = thinner.current_pass
    click.echo(f"going on after {count(here.came)} draws{_of_pass(here.number)}", err=True)
    return thinner


def _look(source: Chain, sketch: Subsample, on_bad: str, stop: Stop) -> bool:
    """One pass through the file, to see where the draws lie. False if stopped."""
    from steinstream import validation

    seen = 0
    with bar("looking ", source.length or 1.0) as progress:
        for block in source.blocks(_ROWS):
            sketch.add(block.take(validation.finite_rows(block, on_bad)))
            seen += len(block.draws)
            progress.show(seen if source.length else source.fraction() or 0.0, f"{count(seen)} draws")
            if stop.signal:
                return False
    return True


def _stream(source: Chain, thinner: Thinner, state: Checkpoint, stop: Stop) -> None:
    """Run the chain through the thinner, saving now and then."""
    began = saved = time.perf_counter()
    start, here = thinner.current_pass.came, thinner.current_pass
    with bar("thinning" if here.number == 1 else f"pass {here.number}  ", source.length or 1.0) as progress:
        for block in source.blocks(_ROWS, skip=start):
            thinner.extend(block.draws, block.scores, ids=block.ids)
            now = time.perf_counter()
            rate = (here.came - start) / (now - began)
            progress.show(
                here.came if source.length else source.fraction() or 0.0,
                f"{count(here.came)} draws  ·  {count(round(rate))} draws/s  ·  "
                f"kept {count(len(thinner))}  ·  KSD {number(thinner.ksd)}",
            )
            if state and now - saved > _EVERY:
                state.save(thinner)
                saved = time.perf_counter()
            if stop.signal:
                return


def _give_up(thinner: Thinner | None, state: Checkpoint) -> None:
    if thinner is None or not state:
        click.echo("stopped; nothing is written (with --checkpoint FILE it could go on later)", err=True)
        return
    state.save(thinner)
    here = thinner.current_pass
    after = f"{count(here.came)} draws{_of_pass(here.number)}"
    click.echo(f"stopped after {after}; the same command with --resume goes on", err=True)


def _of_pass(number: int) -> str:
    return f" of pass {number}" if number > 1 else ""
