"""Commands and Python code that reproduce a kept set."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import version
from typing import Any

import numpy as np

from steinstream import __version__
from steinstream.errors import InputError
from steinstream.result import Kept
from steinstream.thinner.config import NAMES, ThinConfig

_NOT_FROM_THIN = ("method", "merged", "thinners", "clip", "score", "stan")  # settings of results of other functions


def stored_config(kept: Kept) -> dict[str, Any]:
    """Return the configuration of the run as plain values; empty if it was not recorded."""
    config = kept.settings.get("config")
    return dict(config) if isinstance(config, dict) else {}


def recorded_commands(kept: Kept, file: str = "kept.npz") -> list[str]:
    """Return the commands that produced a kept set, the last of which writes ``file``; empty if they are not known."""
    lines = kept.settings.get("commands", [])
    lines = [str(line) for line in lines] if isinstance(lines, list) else []
    try:
        outputs = [*(shlex.split(line)[2] for line in lines[1:]), file]
    except (ValueError, IndexError):  # not commands of this program
        return []
    return [f"{line} -o {shlex.quote(output)}" for line, output in zip(lines, outputs, strict=False)]


def python_code(kept: Kept, file: str = "kept.npz") -> str | None:
    """Return Python code that reproduces a kept set with `ss.thin`.

    Parameters
    ----------
    kept : Kept
        The kept set.
    file : str, default "kept.npz"
        File of the kept set, from which the preconditioner is read.

    Returns
    -------
    str or None
        The code. None if the set was not made by `ss.thin`, or with functions that have no name.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(500, 2))
    >>> print(python_code(ss.thin(draws, -draws, size=20)))
    import steinstream as ss
    <BLANKLINE>
    kept = ss.thin(
        draws,
        scores,
        size=20,
        kernel=ss.IMQ(c=1.0, beta=-0.5),
        preconditioner=ss.Kept.load("kept.npz").preconditioner,
    )

    """
    arguments = _arguments(kept, file)
    if arguments is None:
        return None
    weights = kept.settings.get("weights")
    calls = [_weighting(weights)] if isinstance(weights, dict) else []
    calls += ["kept = kept.ordered()"] if kept.prefix_ksd is not None else []
    return "\n".join(
        ["import steinstream as ss", "", "kept = ss.thin(", *(f"    {word}," for word in arguments), ")", *calls]
    )


def _arguments(kept: Kept, file: str) -> list[str] | None:
    """Return the arguments of `ss.thin`: the settings that differ from the defaults, kernel and preconditioner."""
    stored = stored_config(kept)
    if not stored or any(name in kept.settings for name in _NOT_FROM_THIN):
        return None
    preconditioner = stored.get("preconditioner")
    adaptive = isinstance(preconditioner, dict) and preconditioner.get("type") in ("Warmup", "Streaming")
    try:
        config = ThinConfig.from_dict(stored, **({} if adaptive else {"preconditioner": kept.preconditioner}))
    except (InputError, TypeError, ValueError):  # a function given by the user, or not a configuration
        return None
    words = {name: repr(stored[name]) for name, _, _ in config.differences(ThinConfig())}
    words["kernel"] = f"ss.{config.kernel!r}"
    words["preconditioner"] = f"ss.{config.preconditioner!r}" if adaptive else _preconditioner(kept, file)
    words = {name: words[name].replace("'", '"') for name in NAMES if name in words}
    scores = f"proxy={str(kept.settings['proxy'])!r}".replace("'", '"') if "proxy" in kept.settings else "scores"
    return ["draws", scores, *(f"{name}={word}" for name, word in words.items())]


def _preconditioner(kept: Kept, file: str) -> str:
    if kept.preconditioner is None or kept.preconditioner.is_identity:
        return "ss.Preconditioner.identity()"
    return f'ss.Kept.load("{file}").preconditioner'


def _weighting(settings: dict[str, Any]) -> str:
    share = f"effective_share={settings.get('effective_share')!r}"
    if settings.get("like") != "chain":
        return f"kept = kept.weighted({share})"
    return f"kept = kept.weighted(like=draws, {share})  # draws without burn-in"


def versions() -> str:
    """Return the versions of Python and of the packages used."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "matplotlib"))
    return f"steinstream {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {packages}"
