"""Options that several commands share, and what they mean in the library's terms."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.kernels import Kernel
    from steinstream.preconditioning import Preconditioner, Streaming, Warmup

F = TypeVar("F", bound=Callable[..., Any])


def offering(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell completes to, where other values are right, too."""
    return lambda context, parameter, begun: [word for word in words if word.startswith(begun)]


def chain_options(command: F) -> F:
    """Which file, and what in it."""
    return click.argument("chain", type=click.Path(path_type=Path))(content_options(command))


def chains_options(command: F) -> F:
    """Which files, the chains of one run, and what in them."""
    for option in (
        click.option("--output-csv", type=click.Path(path_type=Path), multiple=True,
                     help="CmdStan's file of constrained draws, if not beside CHAIN; one for each."),
        click.argument("chain", type=click.Path(path_type=Path), nargs=-1, required=True),
    ):  # fmt: skip
        command = option(command)
    return content_options(command)


_FORMATS = ("npz", "npy", "stan", "csv", "csv.gz", "parquet", "zarr", "emcee", "netcdf")


def content_options(command: F) -> F:
    """What in the file is what."""
    for option in (
        click.option("--no-validate-scores", is_flag=True, help="Do not check the sign of the scores."),
        click.option("--negate-scores", is_flag=True, help="The file holds minus the score, as some tools write it."),
        click.option("--format", shell_complete=offering(*_FORMATS),
                     help="What the file is, if content and name mislead: csv, emcee, netcdf, zarr, ..."),
        click.option("--transposed/--not-transposed", default=None,
                     help="A csv file with one line a parameter.  [default: guess]"),
        click.option("--scores-name", default="scores", show_default=True, help="The same for the scores."),
        click.option("--draws-name", default="draws", show_default=True,
                     help="Array of the draws, or columns: a,b,c; in NetCDF and Zarr GROUP/NAME or GROUP."),
        click.option("--scores", "scores_file", type=click.Path(path_type=Path), help="File of the scores, if apart."),
    ):  # fmt: skip
        command = option(command)
    return command


OUTPUTS = "npz, nc, zarr, csv, csv.gz or parquet."


def kernel_options(command: F) -> F:
    """How distances are measured."""
    for option in (
        click.option(
            "--scale", default="auto", show_default=True,
            shell_complete=offering("auto", "identity", "scale", "scales", "covariance", "streaming"),
            help="Preconditioner: auto, identity, scale, scales, covariance, a length, streaming (thin only), "
            "or a file (npy of scales or of a covariance; npz, nc or zarr of a kept set, to measure as it did).",
        ),
        click.option(
            "--kernel", default="imq", show_default=True, shell_complete=offering("imq", "rbf"),
            help="imq, imq:c=1,beta=-0.5, rbf, or rbf:h=2; with a linear term imq:linear=1.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def thinning_options(command: F) -> F:
    """How many draws to keep, and which."""
    for option in (
        click.option("--anchor", shell_complete=offering("auto"),
                     help="Keep the chain's proportions, which KSD does not see: auto, or how strongly (0.3)."),
        click.option("--candidates", type=click.IntRange(min=1), default=1, show_default=True,
                     help="Of every so many draws only the best may come in (SPMCMC)."),
        click.option("--rule", type=click.Choice(["paper", "monotone"]), default="paper", show_default=True,
                     help="Whether KSD may rise with a new draw, or never above the growth's floor."),
        click.option("--budget", default="0", show_default=True, shell_complete=offering("decaying", "share:"),
                     help="By how much KSD^2 may rise when a draw goes: EPS, decaying, share:ETA."),
        click.option("--growth", shell_complete=offering("none", "linear", "sqrt", "power:", "constant:"),
                     help="How the number kept grows at least: none (keep all), linear, sqrt, power:ALPHA, "
                     "constant:N.  [default: sqrt]"),
        click.option("--size", type=click.IntRange(min=1), help="Keep exactly so many draws (all, if fewer came)."),
    ):  # fmt: skip
        command = option(command)
    return command


def checkpoint_options(command: F) -> F:
    """How to go on after a stop."""
    for option in (
        click.option("--resume", is_flag=True, help="Go on from the checkpoint if it is there."),
        click.option("--checkpoint", type=click.Path(path_type=Path),
                     help="Save the state here now and then, and on Ctrl-C."),
    ):  # fmt: skip
        command = option(command)
    return command


def typed(name: str) -> bool:
    """Whether the user gave the parameter of this name."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_idle(names: Iterable[str], why: str, remedy: str = "Leave it out.") -> None:
    """Raise if one of these options was given where it means nothing."""
    parameters = {parameter.name: parameter for parameter in click.get_current_context().command.params}
    for name in names:
        if typed(name):
            raise InputError(f"{parameters[name].opts[-1]} means nothing {why}.", remedy)


_PAPER = {"kernel": "imq", "scale": "identity", "rule": "paper"}


def as_in_the_paper(options: dict[str, Any]) -> dict[str, Any]:
    """What ``--paper`` settles; raises if something else was asked for."""
    for name, value in _PAPER.items():
        if typed(name) and options[name] != value:
            raise InputError(f"--paper means --{name} {value}, not {options[name]}.", "Leave one of them out.")
    return {**_PAPER, "growth": options["growth"] or "sqrt"}


def open_the_chain(chain: Path | Sequence[Path], options: dict[str, Any]) -> Chain:
    """The chain that the options name, or the chains; those that do are taken out."""
    from steinstream.io import open_chains

    # zarr would start many threads, each of which holds on to memory of its own: 40 MB for nothing, since two decode
    # faster than draws are thinned. It reads this when it is first imported.
    os.environ.setdefault("ZARR_THREADING__MAX_WORKERS", "2")
    paths = [chain] if isinstance(chain, Path) else chain
    for path in paths:
        if path.is_fifo():
            raise InputError(
                f"{path} is a pipe, which cannot be read twice.", "Thin it as it comes: steinstream follow."
            )
    return open_chains(
        paths,
        outputs=options.pop("output_csv", ()),
        scores=options.pop("scores_file", None),
        draws_name=options.pop("draws_name", "draws"),
        scores_name=options.pop("scores_name", "scores"),
        negate=options.pop("negate_scores", False),
        format=options.pop("format", None),
    )


_BESIDE = {"output", "checkpoint", "resume", "every", "report", "serve", "port"}  # change nothing in what is kept


def as_typed() -> str:
    """The command that runs, as it has to be typed to keep the same again; the output's name is left open."""
    context = click.get_current_context()
    words, options = ["steinstream", str(context.info_name)], list[str]()
    for parameter in context.command.get_params(context):
        if not typed(str(parameter.name)) or parameter.name in _BESIDE:
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


def as_kernel(text: str) -> Kernel:
    """``imq:c=1,beta=-0.5`` and the like."""
    from steinstream.kernels import IMQ, RBF

    name, _, rest = text.partition(":")
    known: dict[str, tuple[type[Kernel], set[str]]] = {
        "imq": (IMQ, {"c", "beta", "linear"}),
        "rbf": (RBF, {"h", "linear"}),
    }
    try:
        kernel, allowed = known[name.lower()]
        pairs = [part.partition("=") for part in rest.split(",") if part]
        parameters = {key.strip(): float(value) for key, _, value in pairs}
        if not parameters.keys() <= allowed:
            raise ValueError
    except (KeyError, ValueError):
        raise InputError(
            f"unknown kernel {text!r}.",
            "Kernels are imq, imq:c=1,beta=-0.5, rbf and rbf:h=2, with your numbers, and linear=0.1 for a linear term.",
        ) from None
    return kernel(**parameters)


def as_anchor(text: str | None) -> float | bool:
    """``auto``, or how strong."""
    if text in (None, "auto"):
        return text == "auto"
    try:
        return float(str(text))
    except ValueError:
        raise InputError(f"unknown anchor {text!r}.", "Give --anchor auto, or a number of at least 0.") from None


def as_preconditioner(text: str) -> Preconditioner | str:
    """A name to estimate by, a length, or the contents of a file."""
    from steinstream.preconditioning import KINDS, Preconditioner

    if text in KINDS:
        return text
    try:
        return Preconditioner.length_scale(float(text))
    except ValueError:
        if Path(text).suffix in (".npy", ".npz", ".nc", ".zarr"):
            return _from_file(Path(text))
    raise InputError(
        f"unknown coordinates {text!r}.",
        f"Choose one of {', '.join(KINDS)}, a length above 0, or a .npy, .npz, .nc or .zarr file.",
    )


def as_live_coordinates(text: str, centred: bool = False) -> Preconditioner | Streaming | Warmup:
    """The same for a chain that still runs: what would be estimated from all of it follows it instead."""
    from steinstream.preconditioning import FOLLOWED, Preconditioner, Streaming, Warmup

    if text in ("streaming", *FOLLOWED):
        return Streaming("auto" if text == "streaming" else text, centred=centred)
    found = as_preconditioner(text)
    if isinstance(found, str):
        return Preconditioner.identity() if found == "identity" else Warmup(found)
    return found


def _from_file(path: Path) -> Preconditioner:
    import numpy as np

    from steinstream.io import read_kept
    from steinstream.io.errors import DAMAGE
    from steinstream.preconditioning import Preconditioner

    if path.suffix in (".nc", ".zarr"):
        kept = read_kept(path).preconditioner
        if kept is None:
            raise InputError(f"{path} holds no coordinates.", "Give a set kept by steinstream, or a .npy file.")
        return kept
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if path.suffix == ".npz":
                return Preconditioner(loaded["preconditioner"], loaded.get("centre"))
    except KeyError:
        raise InputError(f"{path} holds no coordinates.", "Give a set kept by steinstream, or a .npy file.") from None
    except DAMAGE:
        raise InputError(f"{path} cannot be read.", "Give a .npy file of scales or of a covariance.") from None
    return Preconditioner.covariance(loaded) if loaded.ndim == 2 else Preconditioner.scales(loaded)
