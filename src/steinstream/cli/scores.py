"""``steinstream scores``: compute the scores of stored draws from a log density written in Python.

With ``--size`` it thins in two stages: first without scores, to the draws whose scores are then computed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.checkpoints import Checkpoint
from steinstream.cli.help import CHECKPOINTS, INPUT, MOST_USED, Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import (
    PATH,
    CheckpointOptions,
    InputOptions,
    burn_in_option,
    chains_options,
    current_command_line,
    reject_unused,
)
from steinstream.cli.paths import check_distinct, check_kept_output, check_writable, input_files, save_kept
from steinstream.cli.progress import bar, count, stoppable
from steinstream.cli.summary import measures_of, print_result
from steinstream.errors import InputError, SteinstreamError

if TYPE_CHECKING:
    from steinstream._typing import Array
    from steinstream.io import Chain
    from steinstream.validation import Block

_FUNCTION = "MODULE:FUNCTION"


@click.command(cls=Command, short_help="Compute the scores of stored draws.")
@chains_options
@option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    metavar="FILE",
    help="Output file, npz: draws and scores; with --size, a file of kept draws as of thin.",
    section=MOST_USED,
)
@option(
    "--size",
    type=click.IntRange(min=1),
    help="Keep N draws: thin without scores, compute the scores of the draws that are left, and thin again.",
    section=MOST_USED,
)
@option(
    "--first",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --size: number of draws whose scores are computed.  [default: 10 times --size]",
)
@option("--log-density", metavar=_FUNCTION, help="Log density of one draw, a Python function.", section=MOST_USED)
@option("--score", metavar=_FUNCTION, help="Score of one draw, a Python function, instead.", section=MOST_USED)
@option(
    "--by",
    type=click.Choice(["finite", "jax", "torch"]),
    default="finite",
    help="How to differentiate the log density: finite differences, JAX or PyTorch.",
    section=MOST_USED,
)
@option(
    "--accuracy",
    type=float,
    default=1e-15,
    help="Relative accuracy of the log density, for finite differences: the tolerance of a solver.",
)
@option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    help="Number of processes for finite differences.",
)
@option(
    "--on-error",
    type=click.Choice(["raise", "nan"]),
    default="raise",
    help="If the log density raises an exception: stop, or set the score to NaN.",
)
@option(
    "--checkpoint",
    type=PATH,
    metavar="FILE",
    help="Save finished finite differences here every 30 seconds and on Ctrl-C, and continue from it.",
    section=CHECKPOINTS,
)
@burn_in_option("Leave out the first N draws of each chain, or a share of them: 1000, 0.1, 10%.  [default: 0]", INPUT)
@message_options
def scores(
    *,
    chain: tuple[Path, ...],
    output: Path,
    size: int | None,
    first: int | None,
    log_density: str | None,
    score: str | None,
    by: str,
    accuracy: float,
    processes: int,
    on_error: str,
    checkpoint: Path | None,
    burn_in: int | float,
    files: InputOptions,
    messages: Messages,
) -> None:
    """Compute the scores of the draws in CHAIN, and write both to a file that steinstream thin reads.

    With --size N, the scores of only some draws are computed: the chain is thinned without scores to 10 N draws, and
    N of these are kept by their scores and the distance to the whole chain.

    The function takes one draw, an array with the parameters in the order of the file. The log density is that of the
    draws as they are in the file: with bounded parameters transformed, and with the Jacobian. MODULE is a module, or a
    file such as model.py. Repeated draws are evaluated once.

    \b
    Example: steinstream scores draws.csv --log-density model.py:log_density -o scored.npz
             steinstream scores draws.csv --log-density model.py:log_density -o kept.npz --size 100
    """
    if (log_density is None) == (score is None):
        raise InputError(
            "Exactly one of --log-density and --score is required.", f"For example --log-density {_FUNCTION}."
        )
    if score is not None or by != "finite":
        why = "with --score" if score is not None else f"with --by {by}"
        reject_unused(["accuracy", "processes", "on_error", "checkpoint", *(["by"] if score is not None else [])], why)
    if size is None:
        reject_unused(["first"], "without --size")
        if output.suffix != ".npz":
            raise InputError(f"The output {output} is not an npz file.", "Use a name that ends with .npz.")
        check_writable("--output", output)
    else:
        check_kept_output(output, messages)
        if first is not None and first < size:
            raise InputError(f"--first {first} is smaller than --size {size}.", "Compute more scores, or keep fewer.")
    check_distinct({"--output": output, "--checkpoint": checkpoint}, input_files(chain, files))
    with _printing_to_stderr():
        function = load_function(log_density or score or "")
    finite = {"accuracy": accuracy, "processes": processes, "on_error": on_error, "checkpoint": checkpoint}
    evaluate = partial(_evaluated, function, log_density or score or "", "score" if score is not None else by, finite)
    source = files.open(chain, burn_in)
    if size is not None:
        _thin_in_two_stages(source, size, first or 10 * size, evaluate, output, messages)
        return
    from steinstream.validation import concatenate

    block = concatenate([*source.blocks()])
    values = evaluate(block.draws)
    _count_bad(values, "steinstream thin --on-bad skip leaves them out", messages)
    _write(output, block, values, source.names)
    messages.say(f"wrote {output}: {count(len(values))} draws with scores")
    messages.result({"draws": len(values), "parameters": source.names, "paths": {"scores": output}})


def _thin_in_two_stages(
    source: Chain, size: int, first: int, evaluate: Callable[[Array], Array], output: Path, messages: Messages
) -> None:
    """Thin without scores, compute the scores of the kept draws, and select from these."""
    from steinstream.api import ChainSource, Stopped, thin_source
    from steinstream.cli._hooks import ThinHooks
    from steinstream.postprocess.merging import merge
    from steinstream.thinner import ThinConfig

    if source.has_scores:
        raise InputError(f"{source.title} has scores.", "Thin it: steinstream thin.")
    for label, text in source.taken.lines():
        messages.say(f"{label:<12}{text}")
    no_checkpoint = Checkpoint.prepare(CheckpointOptions(None, False), {}, [])
    with stoppable() as stop, ThinHooks(source, no_checkpoint, stop, None, dict) as hooks:
        try:
            before = thin_source(ChainSource(source), ThinConfig(size=first), hooks=hooks).kept
        except Stopped:
            messages.note("stopped; nothing was written")
            sys.exit(stop.code)
    before = replace(before, names=source.names, variables=source.variables(before.ids))
    messages.say(f"without scores: kept {count(len(before))} of {count(before.settings['seen'])} draws")
    scores = evaluate(before.draws)
    bad = _count_bad(scores, "they are left out", messages)
    kept = merge([before.with_scores(scores, on_bad="skip")], size=size)
    settings = {**kept.settings, "commands": [current_command_line()]}
    kept = replace(kept, stream=before.stream, settings=settings)
    save_kept(kept, output)
    headline = f"kept {count(len(kept))} of {count(len(scores) - bad)} draws with scores"
    print_result(messages, f"{headline}  ·  {measures_of(kept)}", kept, {"kept": output})


def _count_bad(scores: Array, consequence: str, messages: Messages) -> int:
    """Return the number of draws without a finite score, and warn if there are any; raise if no score is of use."""
    import numpy as np

    bad = int((~np.isfinite(scores).all(axis=1)).sum())
    if bad == len(scores):
        raise InputError(
            "No draw has a finite score: the log density failed or is not finite near all of them.",
            "Check what the function returns for the first draw, and the order of the parameters.",
        )
    if not scores.any():
        raise InputError(
            "Every score is zero: the function does not depend on the draw.",
            "Compute the log density from its argument, without detach or stop_gradient.",
        )
    if bad:
        messages.warn(
            f"{count(bad)} of {count(len(scores))} draws have no finite score, because the log density failed or is "
            f"not finite near them; {consequence}."
        )
    return bad


def _evaluated(function: Callable[[Any], Any], title: str, by: str, finite: dict[str, Any], draws: Array) -> Array:
    """Compute scores with a progress bar; an exception of the user's function is one message."""
    import logging

    log = logging.getLogger("steinstream")
    level = log.level
    log.setLevel(logging.ERROR)  # the command itself reports invalid scores
    with bar("scores", 1.0) as progress, _printing_to_stderr():
        try:
            return _scores(function, draws, by, finite, lambda share: progress.show(share, f"{share:.0%}"))
        except SteinstreamError:
            raise
        except (Exception, SystemExit) as error:  # of the user's function
            raise InputError(
                f"The function {title} failed: {_first_line(error)}.",
                "Finished scores are in the checkpoint; --on-error nan continues without this one."
                if finite["checkpoint"] is not None
                else "Correct it."
                if by != "finite"
                else "Correct it; --on-error nan continues without such draws, --checkpoint FILE stores the others.",
            ) from error
        finally:
            log.setLevel(level)


@contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Send what the user's code prints to standard error, which other processes and compiled code inherit, too."""
    with redirect_stdout(sys.stderr):
        try:
            stdout = os.dup(1)
        except OSError:  # closed
            yield
            return
        os.dup2(2, 1)
        try:
            yield
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".rstrip(".: ")


def load_function(text: str) -> Callable[[Any], Any]:
    """Import a function that is given as MODULE:FUNCTION, where MODULE may be a file: folder/model.py:log_density."""
    module, _, name = text.rpartition(":")
    if not module or not name:
        raise InputError(f"{text!r} is not of the form {_FUNCTION}.", "For example model.py:log_density.")
    path = Path(module)
    folder, title = (path.parent, path.stem) if path.suffix == ".py" else (Path(), module)
    sys.path.insert(0, str(folder.absolute()))  # also for the processes that evaluate the function
    try:
        loaded = importlib.import_module(title)
    except ModuleNotFoundError as error:
        if error.name != title.partition(".")[0]:
            raise InputError(f"{module} cannot be imported: {error}.", "Install what it imports.") from None
        raise InputError(
            f"The module {module} does not exist.", "Run the command in its folder, or give the file."
        ) from None
    except (Exception, SystemExit) as error:  # of the user's module
        import traceback

        where = [
            f", line {one.lineno}" for one in traceback.extract_tb(error.__traceback__) if path.stem in one.filename
        ]
        raise InputError(
            f"{module}{''.join(where[-1:])} cannot be imported: {_first_line(error)}.", "Correct the module."
        ) from error
    function = getattr(loaded, name, None)
    if not callable(function):
        raise InputError(f"{module} has no function {name}.", "Define it at the top level of the module.")
    return function  # type: ignore[no-any-return]


def _scores(
    function: Callable[[Any], Any],
    draws: Array,
    by: str,
    finite: dict[str, Any],
    progress: Callable[[float], None],
) -> Array:
    from steinstream import integrations

    if by == "finite":
        values: Array = integrations.generic.finite_difference_scores(function, draws, progress=progress, **finite)
    elif by == "score":
        values = integrations.generic.scores(function, draws, progress=progress)
    else:
        values = getattr(integrations, by).scores(function, draws, progress=progress)
    return values


def _write(path: Path, block: Block, values: Array, names: tuple[str, ...]) -> None:
    import numpy as np

    from steinstream.io.atomic import replacing

    with replacing(path) as file:
        np.savez(file, draws=block.draws, scores=values, ids=block.ids, names=np.array(names, dtype=np.str_))
