"""Settings on the command line: options generated from the metadata of `ThinConfig`, and converted back to one.

An option has the name of its setting, with dashes. Values are passed to `ThinConfig` as they are typed, which validates
them. Only a preconditioner can be more than a name here: a length scale, or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from steinstream.cli.help import SECTIONS, Option, generated
from steinstream.cli.options import completions, was_given
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.preconditioning import Preconditioner
    from steinstream.thinner.config import ThinConfig

F = TypeVar("F", bound=Callable[..., Any])

_FILES = (".npy", ".npz", ".nc", ".zarr")
_VARIED_BY_PAPER = ("growth", "budget")


def setting_options(*names: str, part: str = "", without: Collection[str] = ()) -> Callable[[F], F]:
    """Return a decorator that adds options for settings, or for those of a part, and passes them as ``config``."""

    def chosen() -> list[str]:
        from steinstream.thinner.config import COMMAND_LINE, settings_of

        return [name for name in names or (settings_of(part) if part else COMMAND_LINE) if name not in without]

    def decorate(command: F) -> F:
        @wraps(command)
        def with_config(**values: Any) -> Any:
            settings = {name: values[name] for name in chosen()}
            others = {name: value for name, value in values.items() if name not in settings}
            return command(**others, config=_as_config(settings))

        return generated(lambda: [_option(name) for name in chosen()])(cast(F, with_config))

    return decorate


def _option(name: str) -> Option:
    from dataclasses import fields

    from steinstream.thinner.config import COMMAND_LINE, ThinConfig

    offered = COMMAND_LINE[name]
    kind = {field.name: str(field.type) for field in fields(ThinConfig)}[name].removesuffix(" | None")
    default = _default_text(name)
    text = offered.help if default is None or "[default:" in offered.help else f"{offered.help}  [default: {default}]"
    dashed = f"--{name.replace('_', '-')}"
    if kind == "bool":
        return Option([f"{dashed}/--no-{dashed[2:]}"], default=None, help=text, section=SECTIONS[offered.section])
    return Option(
        [dashed],
        type=click.Choice(offered.choices) if offered.choices else click.INT if kind == "int" else click.STRING,
        help=text,
        shell_complete=completions(*offered.completions) if offered.completions else None,
        section=SECTIONS[offered.section],
    )


def given_settings(part: str, **replaced: object) -> list[str]:
    """Return the settings of a part that the user gave, or that are replaced, as words of a command line."""
    from steinstream.thinner.config import settings_of

    typed = click.get_current_context().params
    given = {name: typed[name] for name in settings_of(part) if was_given(name)} | replaced
    words = []
    for name, value in given.items():
        dashed = name.replace("_", "-")
        words += (
            [f"--{dashed}" if value else f"--no-{dashed}"] if isinstance(value, bool) else [f"--{dashed}", str(value)]
        )
    return words


def _default_text(name: str) -> str | None:
    """Return the default of a setting as it would be typed; None if there is none."""
    from steinstream.thinner.config import ThinConfig

    if name == "preconditioner":
        return "auto"
    default = ThinConfig()
    if getattr(default, name) is None or isinstance(getattr(default, name), bool):
        return None
    return default.text(name).partition("(")[0].lower().removeprefix("constant:").removesuffix(".0")


def _as_config(settings: dict[str, Any]) -> ThinConfig:
    """Create the configuration from the values of options, of which those that are not given are None."""
    from steinstream.thinner.config import ThinConfig

    given = {name: value for name, value in settings.items() if value is not None}
    if "preconditioner" in settings:
        given["preconditioner"] = preconditioner_of_option(given.get("preconditioner", "auto"))
    return ThinConfig.of(None, **given)


def paper_config(config: ThinConfig) -> ThinConfig:
    """Return the settings of the paper with the options that are given; raise an `InputError` if they contradict."""
    from steinstream.thinner.config import COMMAND_LINE, PAPER, ThinConfig

    paper = ThinConfig.of(None, **{**PAPER, "preconditioner": "identity"})
    fixed_names = [name for name in PAPER if name not in _VARIED_BY_PAPER]
    for name, fixed, value in paper.differences(config):
        if name in fixed_names and was_given(name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"--paper sets {option} {fixed}, but {value} was given.", "Leave out one of them.")
    given = {name: getattr(config, name) for name in COMMAND_LINE if was_given(name) and name not in fixed_names}
    return paper.replace(**given)


def fitted_or_fixed(config: ThinConfig) -> Preconditioner | str:
    """Return the preconditioner of a configuration, or its name; raise an `InputError` if it needs a running stream."""
    from steinstream.preconditioning import Preconditioner

    chosen = config.preconditioner
    if isinstance(chosen, str | Preconditioner):
        return chosen
    raise InputError(
        "--preconditioner streaming can only be used to thin a stream.", "Choose another one, for example auto."
    )


def preconditioner_of_option(text: str) -> Preconditioner | str:
    """Convert the value of ``--preconditioner``: a name, a length scale, or a file; raise an `InputError` otherwise."""
    from steinstream.preconditioning import Preconditioner
    from steinstream.thinner.config import COMMAND_LINE

    names: Sequence[str] = COMMAND_LINE["preconditioner"].completions
    if text in names:
        return text
    if Path(text).suffix in _FILES:
        return _from_file(Path(text))
    try:
        length = float(text)
    except ValueError:
        raise InputError(
            f"Unknown preconditioner {text!r}.",
            f"Choose one of {', '.join(names)}, a length scale above 0, or a {', '.join(_FILES)} file.",
        ) from None
    return Preconditioner.length_scale(length)


def _from_file(path: Path) -> Preconditioner:
    """Read scales or a covariance from npy, or the preconditioner of a kept set."""
    import numpy as np

    from steinstream.io import read_kept
    from steinstream.io.errors import DAMAGE
    from steinstream.io.npz import read_arrays
    from steinstream.preconditioning import Preconditioner

    if not path.exists():
        raise InputError(f"The preconditioner {path} does not exist.", "Check the path.")
    missing = InputError(f"{path} has no preconditioner.", "Use a set kept by steinstream, or a .npy file.")
    if path.suffix in (".nc", ".zarr"):
        kept = read_kept(path).preconditioner
        if kept is None:
            raise missing
        return kept
    try:
        if path.suffix == ".npz":
            arrays = read_arrays(path)
            return Preconditioner(arrays["preconditioner"], arrays.get("centre"))
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
    except KeyError:
        raise missing from None
    except DAMAGE:
        raise InputError(f"{path} cannot be read.", "Use a .npy file of scales or of a covariance.") from None
    return Preconditioner.covariance(loaded) if loaded.ndim == 2 else Preconditioner.scales(loaded)
