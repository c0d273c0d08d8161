"""``steinstream scores``: compute the scores of stored draws from a log density written in Python."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.help import CHECKPOINTS, MOST_USED, Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, InputOptions, chains_options, reject_unused
from steinstream.cli.paths import check_distinct, check_writable, input_files
from steinstream.cli.progress import bar, count
from steinstream.errors import InputError, SteinstreamError

if TYPE_CHECKING:
    from steinstream._typing import Array
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
    help="Output file, npz: draws and scores.",
    section=MOST_USED,
)
@option("--log-density", metavar=_FUNCTION, help="Log density of one draw, a Python function.", section=MOST_USED)
@option("--score", metavar=_FUNCTION, help="Score of one draw, a Python function, instead.", section=MOST_USED)
@option(
    "--by",
    type=click.Choice(["finite", "jax", "torch"]),
    default="finite",
    show_default=True,
    help="How to differentiate the log density: finite differences, JAX or PyTorch.",
    section=MOST_USED,
)
@option(
    "--accuracy",
    type=float,
    default=1e-15,
    show_default=True,
    help="Relative accuracy of the log density, for finite differences: the tolerance of a solver.",
)
@option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes for finite differences.",
)
@option(
    "--on-error",
    type=click.Choice(["raise", "nan"]),
    default="raise",
    show_default=True,
    help="If the log density raises an exception: stop, or set the score to NaN.",
)
@option(
    "--checkpoint",
    type=PATH,
    metavar="FILE",
    help="Save finished finite differences here every 30 seconds and on Ctrl-C, and continue from it.",
    section=CHECKPOINTS,
)
@message_options
def scores(
    *,
    chain: tuple[Path, ...],
    output: Path,
    log_density: str | None,
    score: str | None,
    by: str,
    accuracy: float,
    processes: int,
    on_error: str,
    checkpoint: Path | None,
    files: InputOptions,
    messages: Messages,
) -> None:
    """Compute the scores of the draws in CHAIN, and write both to a file that steinstream thin reads.

    The function takes one draw, an array with the parameters in the order of the file. The log density is that of the
    draws as they are in the file: with bounded parameters transformed, and with the Jacobian. MODULE is a module, or a
    file such as model.py. Repeated draws are evaluated once.

    \b
    Example: steinstream scores draws.csv --log-density model.py:log_density -o scored.npz
    """
    if (log_density is None) == (score is None):
        raise InputError(
            "Exactly one of --log-density and --score is required.", f"For example --log-density {_FUNCTION}."
        )
    if score is not None or by != "finite":
        why = "with --score" if score is not None else f"with --by {by}"
        reject_unused(["accuracy", "processes", "on_error", "checkpoint", *(["by"] if score is not None else [])], why)
    if output.suffix != ".npz":
        raise InputError(f"The output {output} is not an npz file.", "Use a name that ends with .npz.")
    check_writable("--output", output)
    check_distinct({"--output": output, "--checkpoint": checkpoint}, input_files(chain, files))
    function = load_function(log_density or score or "")
    source = files.open(chain)
    block = _all_draws([*source.blocks()])
    finite = {"accuracy": accuracy, "processes": processes, "on_error": on_error, "checkpoint": checkpoint}
    with bar("scores", 1.0) as progress:
        try:
            values = _scores(
                function,
                block.draws,
                "score" if score is not None else by,
                finite,
                lambda share: progress.show(share, f"{share:.0%}"),
            )
        except SteinstreamError:
            raise
        except Exception as error:  # of the user's function
            raise InputError(
                f"The function {log_density or score} failed: {type(error).__name__}: {error}.",
                "Finished scores are in the checkpoint; --on-error nan continues without this one."
                if checkpoint is not None
                else "Correct it; --checkpoint FILE stores finished scores.",
            ) from error
    _write(output, block, values, source.names)
    messages.say(f"wrote {output}: {count(len(values))} draws with scores")
    messages.result({"draws": len(values), "parameters": source.names, "paths": {"scores": output}})


def load_function(text: str) -> Callable[[Any], Any]:
    """Import a function that is given as MODULE:FUNCTION, where MODULE may be a file.

    Parameters
    ----------
    text : str
        For example ``model:log_density`` or ``folder/model.py:log_density``.

    Returns
    -------
    callable
        The function.

    Raises
    ------
    InputError
        If there is no such module or function.

    """
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
        raise InputError(f"There is no module {module}.", "Run the command in its folder, or give the file.") from None
    function = getattr(loaded, name, None)
    if not callable(function):
        raise InputError(f"{module} has no function {name}.", "Define it at the top level of the module.")
    return function  # type: ignore[no-any-return]


def _all_draws(blocks: list[Block]) -> Block:
    from steinstream.validation import concatenate

    return concatenate(blocks)


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
        values = integrations.generic.scores(function, draws)
    else:
        values = getattr(integrations, by).scores(function, draws)
    return values


def _write(path: Path, block: Block, values: Array, names: tuple[str, ...]) -> None:
    import numpy as np

    from steinstream.io.atomic import replacing

    with replacing(path) as file:
        np.savez(file, draws=block.draws, scores=values, ids=block.ids, names=np.array(names, dtype=np.str_))
