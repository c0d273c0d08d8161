"""``steinstream thin``: keep the draws of a chain that represent its target."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from steinstream.cli._config import paper_config, setting_options
from steinstream.cli.baselines import MethodOptions, method_options
from steinstream.cli.checkpoints import Checkpoint, fingerprint
from steinstream.cli.help import INPUT, MEASURE, SELECTION, Command, option
from steinstream.cli.options import (
    PATH,
    CheckpointOptions,
    InputOptions,
    chains_options,
    checkpoint_options,
    current_command_line,
    output_option,
    reject_unused,
)
from steinstream.cli.parallel import WorkerOptions, worker_options
from steinstream.cli.paths import data_files, input_files
from steinstream.cli.progress import count, stoppable
from steinstream.cli.refine import Refinement, refine_options, refined
from steinstream.cli.report import report_option, write_report
from steinstream.cli.serve import ServeOptions, serve_options
from steinstream.cli.summary import kept_of, ksd_of, print_summary

if TYPE_CHECKING:
    from steinstream._typing import Array
    from steinstream.io import Chain
    from steinstream.result import Kept
    from steinstream.thinner import ThinConfig, Thinner

_ROWS = 2048  # draws per block: between two checks of the clock, the progress bar and Ctrl-C


class ThinRequest(NamedTuple):
    """What to thin and how, whatever the method."""

    chain: tuple[Path, ...]
    output: Path
    files: InputOptions
    config: ThinConfig
    refinement: Refinement
    proxy: str | None
    initial: Path | None

    def open(self) -> Chain:
        """Open the chain, with the scores of a proxy if one is requested."""
        if self.proxy is None:
            return self.files.open(self.chain)
        from steinstream.cli.proxy import open_with_proxy

        return open_with_proxy(self.chain, self.files, self.config.on_bad)

    @property
    def options(self) -> dict[str, Any]:
        """Options on which the result depends, besides the settings."""
        initial = None if self.initial is None else str(self.initial)
        return {**self.files.settings, "proxy": self.proxy, "initial": initial}


@click.command(cls=Command, short_help="Keep the draws that represent the target.")
@chains_options
@output_option
@setting_options()
@report_option
@refine_options
@option(
    "--paper",
    is_flag=True,
    help="The settings of the paper: IMQ kernel, identity preconditioner, growth sqrt, budget 0.",
    section=MEASURE,
)
@option(
    "--proxy",
    type=click.Choice(["gaussian"]),
    help="The file has no scores: use those of a Gaussian fitted to the draws. See the documentation for its limits.",
    section=INPUT,
)
@option(
    "--initial",
    type=PATH,
    metavar="FILE",
    help="Draws and scores of the initial set, for example an earlier kept set.",
    section=SELECTION,
)
@method_options
@checkpoint_options
@worker_options
@serve_options
def thin(
    *,
    chain: tuple[Path, ...],
    output: Path,
    config: ThinConfig,
    report: Path | None,
    refinement: Refinement,
    paper: bool,
    proxy: str | None,
    initial: Path | None,
    files: InputOptions,
    baseline: MethodOptions,
    saving: CheckpointOptions,
    workers: WorkerOptions,
    live: ServeOptions,
) -> None:
    """Keep the draws of CHAIN that represent its target. Several files are the chains of one run.

    The method ksdt reads the file in blocks. The other methods require --size; of these, stein_thinning, reservoir and
    kernel_thinning hold the whole chain in memory.

    \b
    Example: steinstream thin chain.npz -o kept.npz --size 200
             steinstream thin chains/*.csv -o kept.npz --size 200 --workers 4
    """
    config = paper_config(config) if paper else config
    request = ThinRequest(chain, output, files, config, refinement, proxy, initial)
    _check_options(request, baseline, workers, live)
    inputs, outputs = _check_paths(request, report)
    if workers.requested:
        from steinstream.cli.parallel import thin_with_workers

        kept, source = thin_with_workers(request, workers, saving, inputs, outputs), None
    elif baseline.is_baseline:
        from steinstream.cli.baselines import thin_with_baseline

        Checkpoint.prepare(saving, outputs, inputs)
        kept, source = thin_with_baseline(request, baseline)
    else:
        kept, source = _thin(request, Checkpoint.prepare(saving, outputs, inputs), live)
    if report is not None:
        write_report(report, kept, source or request.open(), output)


def _check_options(request: ThinRequest, baseline: MethodOptions, workers: WorkerOptions, live: ServeOptions) -> None:
    """Raise an `InputError` if options contradict each other or have no effect."""
    from steinstream.errors import InputError

    live.check()
    request.refinement.check()
    if live.serve and (baseline.is_baseline or workers.requested):
        raise InputError("--serve cannot be used with workers or other methods.", "Leave it out.")
    if baseline.is_baseline and workers.requested:
        raise InputError(f"--method {baseline.method} cannot be used with workers.", "Leave out one of them.")
    baseline.check()
    workers.check(request)
    if request.proxy:
        reject_unused(["scores_name", "negate_scores"], "with --proxy")


def _check_paths(request: ThinRequest, report: Path | None) -> tuple[list[Path], dict[str, Path | None]]:
    """Check that the outputs can be written; return input files, and output files by option."""
    from steinstream.io import check_output

    check_output(request.output)
    if report is not None:
        from steinstream.report.page import check_output as check_report

        check_report(report)
    inputs = input_files(request.chain, request.files, request.initial)
    return inputs, {"-o": request.output, "--report": report}


def _thin(request: ThinRequest, checkpoint: Checkpoint, live: ServeOptions) -> tuple[Kept, Chain]:
    """Thin a chain with the online method; return the kept draws and the chain."""
    from steinstream.api import ChainSource, Stopped, thin_source
    from steinstream.cli._hooks import ThinHooks

    config = request.config.replace(validate_scores=False) if request.proxy else request.config
    source, started = request.open(), time.perf_counter()
    initial = _read_initial(request.initial, source.dim)
    with live.dashboard(request.chain) as dashboard, stoppable() as stop:
        resumed = _resume(source, checkpoint, request)
        with ThinHooks(source, checkpoint, stop, dashboard, lambda: _note(source, request)) as hooks:
            try:
                thinner = thin_source(ChainSource(source, _ROWS), config, thinner=resumed, initial=initial, hooks=hooks)
                if stop.signal:
                    raise Stopped(thinner)
            except Stopped as stopped:
                _save_stopped(stopped.thinner, checkpoint)
                sys.exit(stop.code)
    kept = _with_metadata(thinner.kept, source, request)
    kept = refined(kept, request.refinement, source, config.on_bad)
    kept.save(request.output)
    passes = thinner.current_pass.number
    in_passes = f" and {passes} passes" if passes > 1 else ""
    seconds = time.perf_counter() - started
    print_summary(f"kept {kept_of(kept)} in {seconds:.1f} s{in_passes}  ·  {ksd_of(kept)}", kept, request.output)
    checkpoint.remove()
    return kept, source


def _with_metadata(kept: Kept, source: Chain, request: ThinRequest) -> Kept:
    """Add names, the command line, and the variables that the file has for the kept draws."""
    from steinstream.errors import SteinstreamError

    proxy = {"proxy": request.proxy} if request.proxy else {}
    settings = {**kept.settings, "commands": [current_command_line()], **proxy}
    kept = replace(kept, names=source.names, settings=settings)
    try:
        return replace(kept, variables=source.variables(kept.ids))
    except SteinstreamError:
        kept.save(request.output)  # do not lose a long run because of its variables
        raise


def _read_initial(path: Path | None, dim: int) -> tuple[Array, Array] | None:
    """Read the draws and scores of the initial set."""
    if path is None:
        return None
    from steinstream import validation
    from steinstream.errors import InputError
    from steinstream.io import open_chain

    first = open_chain(path)
    if first.dim != dim:
        raise InputError(
            f"{path} has {first.dim} dimensions, but the chain has {dim}.", "Use initial draws of the same model."
        )
    block = validation.empty_block(dim)
    for more in first.blocks():
        block = block.append(more)
    return block.draws, block.scores


# -- checkpoints -------------------------------------------------------------------------------------------------------


def _note(source: Chain, request: ThinRequest) -> dict[str, Any]:
    """Return what a checkpoint has to know about the command."""
    return {
        "command": "thin",
        "chain": source.title,
        "config": request.config.to_dict(),
        "options": request.options,
        "data": [fingerprint(path) for path in data_files(request.chain, request.files)],
    }


def _resume(source: Chain, checkpoint: Checkpoint, request: ThinRequest) -> Thinner | None:
    """Return the thinner in the checkpoint, if there is one; raise a `CheckpointError` if the command differs."""
    from steinstream.errors import CheckpointError

    thinner = checkpoint.load()
    if thinner is None:
        return None
    checkpoint.check_command(thinner.note, "thin")
    checkpoint.check_settings(thinner.note, request.config, request.options)
    if thinner.dim != source.dim or thinner.note["chain"] != source.title:
        raise CheckpointError(
            f"{checkpoint.path} belongs to {thinner.note['chain']} ({thinner.dim} dimensions), not to {source.title}.",
            "Give the same chain as before, or delete the checkpoint to start again.",
        )
    checkpoint.check_files(thinner.note["data"], data_files(request.chain, request.files))
    click.echo(f"continuing after {_position(thinner)}", err=True)
    return thinner


def _save_stopped(thinner: Thinner | None, checkpoint: Checkpoint) -> None:
    """Save the state of a run that was stopped, and print how to continue."""
    if thinner is None or not checkpoint:
        click.echo("stopped; nothing was written (with --checkpoint FILE, a run can be continued)", err=True)
        return
    checkpoint.save(thinner)
    click.echo(f"stopped after {_position(thinner)}; add --resume to the same command to continue", err=True)


def _position(thinner: Thinner) -> str:
    """Return how far a thinner is within its passes."""
    number, received = thinner.current_pass.number, thinner.current_pass.received
    return f"{count(received)} draws{f' of pass {number}' if number > 1 else ''}"
