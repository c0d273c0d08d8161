"""Options that several commands share, and what they mean in the library's terms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.coordinates import Coordinates
    from steinstream.io import Chain
    from steinstream.kernels import Kernel

F = TypeVar("F", bound=Callable[..., Any])


def chain_options(command: F) -> F:
    """Which file, and what in it."""
    for option in (
        click.option("--trust-scores", is_flag=True, help="Do not check the sign of the scores."),
        click.option("--negate-scores", is_flag=True, help="The file holds minus the score, as some tools write it."),
        click.option("--scores-name", default="scores", show_default=True, help="The same for the scores."),
        click.option("--draws-name", default="draws", show_default=True, help="Array of the draws, or columns: a,b,c."),
        click.option("--scores", "scores_file", type=click.Path(path_type=Path), help="File of the scores, if apart."),
        click.argument("chain", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


def kernel_options(command: F) -> F:
    """How distances are measured."""
    for option in (
        click.option(
            "--scale", default="auto", show_default=True,
            help="Coordinates: auto, identity, scale, scales, covariance, a length, streaming (thin only), "
            "or a file (npy of scales or of a covariance; npz of a kept set, to measure as it did).",
        ),
        click.option(
            "--kernel", default="imq", show_default=True,
            help="imq, imq:c=1,beta=-0.5, rbf, or rbf:h=2; with a linear term imq:linear=1.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def open_the_chain(chain: Path, scores: Path | None, draws_name: str, scores_name: str, negate: bool) -> Chain:
    """The chain that the options name."""
    from steinstream.io import open_chain

    return open_chain(chain, scores=scores, draws_name=draws_name, scores_name=scores_name, negate=negate)


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


def as_coordinates(text: str) -> Coordinates | str:
    """A name to estimate by, a length, or the contents of a file."""
    from steinstream.coordinates import KINDS, Coordinates

    if text in KINDS:
        return text
    try:
        return Coordinates.length_scale(float(text))
    except ValueError:
        if Path(text).suffix in (".npy", ".npz"):
            return _from_file(Path(text))
    raise InputError(
        f"unknown coordinates {text!r}.",
        f"Choose one of {', '.join(KINDS)}, a length above 0, or a .npy or .npz file.",
    )


def _from_file(path: Path) -> Coordinates:
    import numpy as np

    from steinstream.coordinates import Coordinates
    from steinstream.io.problems import DAMAGE

    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if path.suffix == ".npz":
                return Coordinates(loaded["coordinates"], loaded.get("centre"))
    except KeyError:
        raise InputError(f"{path} holds no coordinates.", "Give a set kept by steinstream, or a .npy file.") from None
    except DAMAGE:
        raise InputError(f"{path} cannot be read.", "Give a .npy file of scales or of a covariance.") from None
    return Coordinates.covariance(loaded) if loaded.ndim == 2 else Coordinates.scales(loaded)
