"""``steinstream thin``: keep the draws of a chain that represent its target."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream._formatting import listing
from steinstream.cli._config import paper_config, setting_options
from steinstream.cli._thin_request import ThinRequest, ThinResult
from steinstream.cli.baselines import MethodOptions, method_options, thin_with_baseline
from steinstream.cli.checkpoints import Checkpoint, fingerprint, reading_note
from steinstream.cli.help import INPUT, MEASURE, SELECTION, Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import (
    PATH,
    CheckpointOptions,
    InputOptions,
    burn_in_option,
    chains_options,
    checkpoint_options,
    optional_output_option,
    reject_unused,
    require_scores,
)
from steinstream.cli.parallel import WorkerOptions, thin_with_workers, worker_options
from steinstream.cli.paths import check_kept_output, data_files, default_output, input_files, is_complete, save_kept
from steinstream.cli.progress import count, stoppable, working_time
from steinstream.cli.refine import Refinement, refine_options
from steinstream.cli.report import report_option, write_report
from steinstream.cli.serve import ServeOptions, serve_options
from steinstream.cli.summary import kept_of, measures_of, print_result
from steinstream.errors import CheckpointError, InputError, ProxyWarning, SteinstreamError

if TYPE_CHECKING:
    from steinstream._typing import Array
    from steinstream.cli._hooks import ThinHooks
    from steinstream.diagnostics.running_convergence import RunningConvergence
    from steinstream.io import Chain
    from steinstream.result import Kept
    from steinstream.thinner import ThinConfig, Thinner
    from steinstream.watched_source import WatchedSource

_ROWS = 2048  # draws per block: between two checks of the clock, the progress bar and Ctrl-C


@click.command(cls=Command, short_help="Keep the draws that represent the target.")
@burn_in_option("Leave out the first N draws of each chain, or a share of them: 1000, 0.1, 10%.  [default: 0]", INPUT)
@chains_options
@optional_output_option
@setting_options()
@report_option
@refine_options
@option(
    "--paper",
    is_flag=True,
    help="The settings of the paper: IMQ kernel, identity preconditioner, growth sqrt, budget 0, KSD alone.",
    section=MEASURE,
)
@option(
    "--initial",
    type=PATH,
    metavar="FILE",
    help="Draws of the initial set, with their scores if CHAIN has scores; for example an earlier kept set.",
    section=SELECTION,
)
@option(
    "--gradient-free",
    is_flag=True,
    help="Use the log density of each draw, the array log_density of an npz file, by the gradient-free KSD.",
    section=MEASURE,
)
@method_options
@checkpoint_options
@worker_options
@serve_options
@message_options
def thin(
    *,
    chain: tuple[Path, ...],
    output: Path | None,
    config: ThinConfig,
    report: Path | None,
    refinement: Refinement,
    paper: bool,
    burn_in: int | float,
    initial: Path | None,
    gradient_free: bool,
    files: InputOptions,
    baseline: MethodOptions,
    saving: CheckpointOptions,
    workers: WorkerOptions,
    live: ServeOptions,
    messages: Messages,
) -> None:
    """Keep the draws of CHAIN that represent its target. Several files are the chains of one run; - is csv from
    standard input.

    With the scores of the draws, the kept draws represent the target. Without scores they represent the chain. Without
    -o, the kept draws of chain.csv are written to chain.kept.csv, and a summary of the parameters is printed.

    The method default reads the file in blocks. The other methods require --size; of these, stein_thinning,
    minibatch_stein_thinning, reservoir and kernel_thinning hold the whole chain in memory, as does --gradient-free.

    \b
    Example: steinstream thin chain.npz -o kept.npz --size 200
             steinstream thin draws.csv --size 200 --parameters alpha,beta,sigma
             steinstream thin chains/*.csv -o kept.npz --size 200 --workers 4
    """
    config = paper_config(config) if paper else config
    place = default_output(chain) if output is None else output
    request = ThinRequest(
        chain=chain,
        output=place,
        files=files,
        config=config,
        refinement=refinement,
        burn_in=burn_in,
        initial=initial,
        messages=messages,
    )
    _check_options(request, baseline, workers, live)
    if gradient_free:
        others = ["burn_in", "initial", "checkpoint", "resume", "serve", "workers", "client", "method", "parameters"]
        reject_unused(others, "with --gradient-free")
    inputs, outputs = _check_paths(request, report)
    if workers.requested:
        result = thin_with_workers(request, workers, saving, inputs, outputs)
    elif baseline.is_baseline:
        Checkpoint.prepare(saving, outputs, inputs)
        result = thin_with_baseline(request, baseline)
    elif gradient_free:
        result = _thin_gradient_free(request)
    else:
        result = _thin(request, Checkpoint.prepare(saving, outputs, inputs), live)
    if report is not None:
        write_report(report, result.kept, result.source or request.open(), place, messages)
    print_result(messages, result.headline, result.kept, {"kept": place, "report": report}, table=output is None)
    if output is None and not is_complete(place):
        messages.say(
            f"{place.name} is a table of the draws. refine, merge and report need a complete kept set: -o kept.npz"
        )


def _check_options(request: ThinRequest, baseline: MethodOptions, workers: WorkerOptions, live: ServeOptions) -> None:
    """Raise an `InputError` if options contradict each other or have no effect."""
    live.check()
    if live.serve and (baseline.is_baseline or workers.requested):
        raise InputError("--serve cannot be used with workers or other methods.", "Leave it out.")
    if baseline.is_baseline and workers.requested:
        raise InputError(f"--method {baseline.method} cannot be used with workers.", "Leave out one of them.")
    baseline.check()
    workers.check(request)


def _check_paths(request: ThinRequest, report: Path | None) -> tuple[list[Path], dict[str, Path | None]]:
    """Check that the outputs can be written; return input files, and output files by option."""
    check_kept_output(request.output, request.messages)
    if report is not None:
        from steinstream.report.page import check_report_path

        check_report_path(report)
    inputs = input_files(request.chain, request.files, request.initial)
    return inputs, {"-o": request.output, "--report": report}


def _thin(request: ThinRequest, checkpoint: Checkpoint, live: ServeOptions) -> ThinResult:
    """Thin a chain with the online method and write the kept draws."""
    from steinstream.api import ChainSource, Stopped, thin_source
    from steinstream.cli._hooks import ThinHooks
    from steinstream.watched_source import WatchedSource

    config, messages = request.config, request.messages
    source, started = request.open(), working_time()
    _check_scores(source, request)
    if not source.has_scores:
        print_parameters(source, messages)
    initial = _read_initial(request.initial, source)
    with live.dashboard(request.chain) as dashboard, stoppable() as stop:
        watched = WatchedSource(ChainSource(source, _ROWS))
        resumed = _resume(source, watched, checkpoint, request)
        with ThinHooks(source, checkpoint, stop, dashboard, lambda: _note(source, request), watched) as hooks:
            try:
                thinner = thin_source(watched, config, thinner=resumed, initial=initial, hooks=hooks)
                if stop.signal:
                    raise Stopped(thinner)
            except Stopped as stopped:
                _save_stopped(stopped.thinner, checkpoint, hooks, messages)
                sys.exit(stop.code)
    kept = replace(thinner.kept, names=source.names)
    kept = request.write(_with_variables(kept, source, watched.convergence, request))
    checkpoint.remove()
    passes = thinner.current_pass.number
    in_passes = f" and {passes} passes" if passes > 1 else ""
    seconds = working_time() - started
    return ThinResult(kept, source, f"kept {kept_of(kept)} in {seconds:.1f} s{in_passes}  ·  {measures_of(kept)}")


def _thin_gradient_free(request: ThinRequest) -> ThinResult:
    """Thin a chain in memory by the gradient-free KSD, and write the kept draws."""
    import numpy as np

    from steinstream.api import thin as thin_arrays
    from steinstream.diagnostics.running_convergence import RunningConvergence
    from steinstream.validation import concatenate

    source, started = request.open(), working_time()
    log_density = source.log_density()
    if log_density is None or source.has_scores:
        found = "has scores" if source.has_scores else "has no array log_density, with one number per draw"
        raise InputError(f"--gradient-free: {source.title} {found}.", "Leave out --gradient-free.")
    print_parameters(source, request.messages)
    block = concatenate([*source.blocks()])
    draws = block.draws.reshape(*log_density.shape, source.dim)
    with warnings.catch_warnings(record=True) as caught:
        kept = thin_arrays(draws, log_density=log_density, config=request.config)
    for one in caught:
        if isinstance(one.message, ProxyWarning):  # the proxy cannot be chosen on the command line
            remedy = "Leave out --gradient-free, so that the kept draws represent the chain."
            request.messages.warn(f"{one.message.problem} {remedy}")
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if log_density.ndim == 1:
        kept = replace(kept, ids=np.asarray(block.ids)[kept.ids[:, 1]])
    convergence = RunningConvergence(source.dim)
    convergence.add(block.ids, block.draws)
    kept = request.write(_with_variables(replace(kept, names=source.names), source, convergence, request))
    seconds = working_time() - started
    return ThinResult(kept, source, f"kept {kept_of(kept)} in {seconds:.1f} s  ·  {measures_of(kept)}")


def _check_scores(source: Chain, request: ThinRequest) -> None:
    """Raise an `InputError` if an option requires scores or is about scores, and the chain has none."""
    if request.config.stream_weight == 0:
        require_scores(source, "Selection by KSD alone (--stream-weight 0, --paper)")
    if not source.has_scores:
        reject_unused(["negate_scores", "validate_scores"], f"because {source.title} has no scores")


def print_parameters(source: Chain, messages: Messages) -> None:
    """Print what is taken from a file without scores, before it is thinned."""
    messages.say(f"{source.title} has no scores")
    for label, text in [("parameters", f"{source.dim}: {listing(source.names)}"), *source.notes()]:
        messages.say(f"{label:<12}{text}")


def _with_variables(kept: Kept, source: Chain, convergence: RunningConvergence, request: ThinRequest) -> Kept:
    """Add the variables that the file has for the kept draws, and the convergence of its chains."""
    from steinstream.watched_source import with_source

    try:
        convergence.add_divergences(source.divergences())
        kept = with_source(kept, "file", convergence)
        variables = {**kept.variables, **source.variables(kept.ids)}
        return replace(kept, variables=variables, groups=request.groups(kept, source))
    except SteinstreamError:
        save_kept(kept, request.output)  # do not lose a long run because of its variables
        raise


def _read_initial(path: Path | None, source: Chain) -> tuple[Array, Array | None] | None:
    """Read the draws of the initial set, and their scores if the chain has scores."""
    if path is None:
        return None
    from steinstream import validation
    from steinstream.io import open_chain

    first = open_chain(path)
    if first.dim != source.dim:
        raise InputError(
            f"{path} has {first.dim} dimensions, but the chain has {source.dim}.",
            "Use initial draws of the same model.",
        )
    if source.has_scores and not first.has_scores:
        raise InputError(f"{path} has no scores, but the chain has scores.", "Use initial draws with scores.")
    block = validation.concatenate([*first.blocks()])
    return block.draws, block.scores if source.has_scores else None


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


def _resume(source: Chain, watched: WatchedSource, checkpoint: Checkpoint, request: ThinRequest) -> Thinner | None:
    """Return the thinner in the checkpoint, if there is one; raise a `CheckpointError` if the command differs."""
    thinner = checkpoint.load()
    if thinner is None:
        return None
    note = thinner.note
    with reading_note(checkpoint.path):
        checkpoint.check_command(note, "thin")
        checkpoint.check_settings(note, request.config, request.options)
        if thinner.config.passes != request.config.passes:  # forged: the command is not the one that the state is of
            raise CheckpointError(
                f"{checkpoint.path} is damaged: it has {thinner.config.passes} passes, its command "
                f"{request.config.passes}.",
                "Delete it to start again.",
            )
        if thinner.dim != source.dim or note["chain"] != source.title:
            raise CheckpointError(
                f"{checkpoint.path} belongs to {note['chain']} ({thinner.dim} dimensions), not to {source.title}.",
                "Give the same chain as before, or delete the checkpoint to start again.",
            )
        checkpoint.check_files(note["data"], data_files(request.chain, request.files))
        watched.restore(note["convergence"])
    checkpoint.check_draws(thinner, source, request.initial is not None)
    request.messages.note(f"continuing after {_position(thinner)}")
    return thinner


def _save_stopped(thinner: Thinner | None, checkpoint: Checkpoint, hooks: ThinHooks, messages: Messages) -> None:
    """Save the state of a run that was stopped, and print how to continue."""
    if thinner is None or not checkpoint:
        messages.note("stopped; nothing was written (with --checkpoint FILE, a run can be continued)")
        return
    hooks.save(thinner)
    messages.note(f"stopped after {_position(thinner)}; add --resume to the same command to continue")


def _position(thinner: Thinner) -> str:
    """Return how far a thinner is within its passes."""
    number, received = thinner.current_pass.number, thinner.current_pass.received
    return f"{count(received)} draws{f' of pass {number}' if number > 1 else ''}"
