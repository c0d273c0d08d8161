"""Options that several commands share, as groups: a group of options is passed to the command as one named tuple."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource

from steinstream.cli.help import CHECKPOINTS, INPUT, MOST_USED, option
from steinstream.errors import InputError, SteinstreamError

if TYPE_CHECKING:
    from steinstream.io import Chain

F = TypeVar("F", bound=Callable[..., Any])

_FORMATS = ("npz", "npy", "stan", "csv", "csv.gz", "parquet", "zarr", "emcee", "netcdf")
_LAYOUTS = ("r", "chain-draw")
_LAYOUT = "steinstream.layout"
_OUTPUTS = "Output file: npz, nc, zarr, csv, csv.gz or parquet; - for csv on standard output."

#: A file or folder.
PATH = click.Path(path_type=Path)


def grouped(name: str, group: type[Any], *options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command and passes their values as one named tuple, ``group``."""

    def decorate(command: F) -> F:
        @wraps(command)
        def with_group(**values: Any) -> Any:
            mine = {field: values[field] for field in group._fields if field in values}
            others = {key: value for key, value in values.items() if key not in mine}
            return command(**others, **{name: group(**mine)})

        decorated = cast(F, with_group)
        for add in reversed(options):
            decorated = add(decorated)
        return decorated

    return decorate


def completions(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a function that completes these words in a shell; other values are valid, too."""
    return lambda context, parameter, begun: [word for word in words if word.startswith(begun)]


def _output_options(help: str, required: bool) -> Callable[[F], F]:
    """Return a decorator that adds ``--output``, and ``--layout``, which is read with `layout`."""

    def decorate(command: F) -> F:
        add_layout = option(
            "--layout",
            type=click.Choice(_LAYOUTS),
            expose_value=False,
            callback=_remember_layout,
            help="Layout of the output. r: csv for R, with .chain, .iteration, .draw and w[1]; chain-draw: nc or zarr "
            "with the dimensions (chain, draw), for ArviZ 0.x and az.loo.",
            section=MOST_USED,
        )
        add_output = option(
            "-o", "--output", type=PATH, required=required, metavar="FILE", help=help, section=MOST_USED
        )
        return add_output(add_layout(command))

    return decorate


def _remember_layout(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[_LAYOUT] = value


def layout() -> str | None:
    """Return the layout of the output."""
    return cast("str | None", click.get_current_context().meta.get(_LAYOUT))


output_option = _output_options(_OUTPUTS, required=True)
optional_output_option = _output_options(f"{_OUTPUTS}  [default: NAME.kept.EXT next to CHAIN]", required=False)


def burn_in_option(help: str, section: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--burn-in``: a number of draws (int), or a share of each chain (float)."""
    return option("--burn-in", metavar="N", callback=_as_burn_in, help=help, section=section)


def _as_burn_in(context: click.Context, parameter: click.Parameter, text: str | None) -> int | float:
    """Convert 1000, 0.1 or 10%."""
    if text is None:
        return 0
    if text.isdecimal():
        return int(text)
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InputError(
            f"--burn-in must be a number of draws or a share below 1, got {text}.",
            "Example: --burn-in 1000, --burn-in 0.1 or --burn-in 10%.",
        )
    return share


# -- input -------------------------------------------------------------------------------------------------------------


class InputOptions(NamedTuple):
    """Location of the draws and scores of a chain."""

    scores: Path | None = None
    draws_name: str = "draws"
    scores_name: str = "scores"
    format: str | None = None
    negate_scores: bool = False
    output_csv: tuple[Path, ...] = ()
    parameters: str | None = None

    def open(self, chain: Path | Sequence[Path], burn_in: int | float = 0, *, check_axes: bool = True) -> Chain:
        """Open a chain, or several files as the chains of one run; with ``check_axes``, the order of axes is checked.

        A single chain with few draws is accepted, because a command may be about few draws of a large model.

        Returns
        -------
        Chain
            The reader.
        """
        from steinstream.io import open_chains

        # zarr would start many threads, each of which reserves memory: 40 MB in all. Two of them decode faster than
        # draws are thinned. zarr reads this variable when it is first imported.
        os.environ.setdefault("ZARR_THREADING__MAX_WORKERS", "2")
        paths = [chain] if isinstance(chain, Path) else chain
        for path in paths:
            if path.is_fifo():
                raise InputError(
                    f"{path} is a pipe, which cannot be read twice.", "Thin it while it is written: steinstream follow."
                )
        source = open_chains(paths, outputs=self.output_csv, burn_in=burn_in, **self.reader_options)
        if check_axes and source.chains != 1:
            source.require_plausible_axes()
        return source

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options of `open_chain`."""
        return {
            "scores": self.scores,
            "draws_name": self.draws_name,
            "scores_name": self.scores_name,
            "negate": self.negate_scores,
            "format": self.format,
            "parameters": None if self.parameters is None else _split_names(self.parameters),
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The options without the files, which a checkpoint identifies by their contents."""
        return {name: value for name, value in self._asdict().items() if name not in ("scores", "output_csv")}

    def command_line(self) -> list[str]:
        """Return the options that are not at their defaults as words of a command line."""
        words: list[str] = []
        for name, value in self._asdict().items():
            if value == self._field_defaults[name]:
                continue
            dashed = name.replace("_", "-")
            if value is True:
                words.append(f"--{dashed}")
            else:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [f"--{dashed}", str(one)]
        return words


def require_scores(chain: Chain, what: str) -> None:
    """Raise an `InputError` if a chain has no scores, which ``what`` needs."""
    if not chain.has_scores:
        raise InputError(
            f"{what} needs scores, and {chain.title} has none.",
            "Compute them with steinstream scores, or name where they are: --scores FILE, --scores-name.",
        )


def _split_names(text: str) -> tuple[str, ...]:
    """Split names at commas, except those within brackets: a,w[0,1]."""
    return tuple(name.strip() for name in re.split(r",(?![^\[\]]*\])", text))


scores_option = option("--scores", type=PATH, metavar="FILE", help="Separate file of the scores.", section=INPUT)
draws_name_option = option(
    "--draws-name",
    default="draws",
    help="Name of the array of draws, or columns: a,b,c; in NetCDF and Zarr GROUP/NAME or GROUP.",
    section=INPUT,
)
scores_name_option = option(
    "--scores-name", default="scores", help="Name of the array or columns of scores.", section=INPUT
)

parameters_option = option(
    "--parameters",
    metavar="A,B,...",
    help="Parameters to use, with commas between them, in this order.  [default: all]",
    section=INPUT,
)
_negate_option = option(
    "--negate-scores", is_flag=True, help="Change the sign of the scores in the file.", section=INPUT
)
_output_csv_option = option(
    "--output-csv",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="CmdStan's file of constrained draws, if it is not next to CHAIN; one per CHAIN.",
    section=INPUT,
)
_content = (
    parameters_option,
    scores_option,
    _negate_option,
    draws_name_option,
    scores_name_option,
    option(
        "--format",
        shell_complete=completions(*_FORMATS),
        help="File format, if it is not recognised: csv, emcee, netcdf, zarr, ...",
        section=INPUT,
    ),
)

#: Adds the options of the contents of a file, as ``files``.
content_options = grouped("files", InputOptions, *_content)


#: Standard input or output in place of a file.
STANDARD = Path("-")

#: Name of the copy of standard input. Formats other than csv are recognised by their content.
STDIN_NAME = "stdin.csv"


def chain_options(command: F) -> F:
    """Add the argument CHAIN, one file or -, and the options of its contents, as ``files``."""
    return click.argument("chain", type=PATH)(_reading_stdin(content_options(command)))


def chains_options(command: F) -> F:
    """Add the argument CHAIN, one or several files or -, and the options of their contents, as ``files``."""
    with_files = grouped("files", InputOptions, *_content, _output_csv_option)(command)
    return click.argument("chain", type=PATH, nargs=-1, required=True)(_reading_stdin(with_files))


def as_typed(chain: Path) -> str:
    """Return a chain as it is typed: - for the copy of standard input."""
    return str(STANDARD if chain.name == STDIN_NAME else chain)


def _reading_stdin(command: F) -> F:
    """Replace - by a temporary file with a copy of standard input, because a chain is read several times."""

    @wraps(command)
    def with_stdin(*, chain: Path | tuple[Path, ...], **values: Any) -> Any:
        paths = chain if isinstance(chain, tuple) else (chain,)
        if STANDARD not in paths:
            return command(chain=chain, **values)
        if len(paths) > 1:
            raise InputError("- is standard input, which cannot be read together with files.", "Give - alone.")
        import shutil  # not for the help
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="steinstream-") as folder:
            copy = Path(folder) / STDIN_NAME
            with copy.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            try:
                return command(chain=(copy,) if isinstance(chain, tuple) else copy, **values)
            except SteinstreamError as error:
                error.problem = error.problem.replace(str(copy), "standard input")
                raise

    return cast(F, with_stdin)


def growing_chains_options(command: F) -> F:
    """Add the argument CHAIN, one or several csv files that grow, and the options of their contents, as ``files``."""
    options = draws_name_option, scores_name_option, parameters_option, _negate_option, _output_csv_option
    with_files = grouped("files", InputOptions, *options)(command)
    return click.argument("chain", type=PATH, nargs=-1, required=True)(with_files)


# -- checkpoints -------------------------------------------------------------------------------------------------------


class CheckpointOptions(NamedTuple):
    """File of the state of a run, and whether to continue from it."""

    checkpoint: Path | None
    resume: bool


#: Adds the options of checkpoints, as ``saving``.
checkpoint_options = grouped(
    "saving",
    CheckpointOptions,
    option(
        "--checkpoint",
        type=PATH,
        metavar="FILE",
        help="Save the state here every 30 seconds and on Ctrl-C.",
        section=CHECKPOINTS,
    ),
    option("--resume", is_flag=True, help="Continue from the checkpoint, if there is one.", section=CHECKPOINTS),
)


# -- the current command line ------------------------------------------------------------------------------------------


def was_given(name: str) -> bool:
    """Return whether the parameter of this name is on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def reject_unused(names: Iterable[str], why: str, remedy: str = "Leave it out.") -> None:
    """Raise an `InputError` if one of these options is given where it has no effect; ``why`` is "without --chain"."""
    parameters = {parameter.name: parameter for parameter in click.get_current_context().command.params}
    for name in names:
        if was_given(name):
            raise InputError(f"{parameters[name].opts[-1]} has no effect {why}.", remedy)


_PRINTING = {"json", "quiet", "strict"}
_WITHOUT_EFFECT_ON_RESULT = {"output", "layout", "checkpoint", "resume", "every", "report", "serve", "port", *_PRINTING}


def current_command_line() -> str:
    """Return the command line that gives the same result again, without the name of the output."""
    context = click.get_current_context()
    words, options = ["steinstream", str(context.info_name)], list[str]()
    for parameter in context.command.get_params(context):
        if not was_given(str(parameter.name)) or parameter.name in _WITHOUT_EFFECT_ON_RESULT:
            continue
        value = context.params[str(parameter.name)]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            words += map(str, values)
        elif isinstance(value, bool):
            options.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            options += [word for one in values for word in (parameter.opts[0], str(one))]
    return shlex.join(words + options)
