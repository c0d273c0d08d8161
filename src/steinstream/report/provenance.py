"""Commands and Python code that reproduce a kept set."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import version
from typing import Any

import numpy as np

from steinstream import __version__, schedules
from steinstream.errors import InputError
from steinstream.result import Kept

_NOT_FROM_THIN = ("method", "merged", "thinners", "clip", "score", "stan")  # settings of results of other functions
_DEFAULTS = {"rule": "paper", "candidates": 1, "anchor": 0.0, "passes": 1, "cost": 0.0}


def commands(kept: Kept, file: str = "kept.npz") -> list[str]:
    """Return the commands that produced a kept set.

    Parameters
    ----------
    kept : Kept
        The kept set.
    file : str, default "kept.npz"
        File that the last command writes.

    Returns
    -------
    list of str
        One command per line, each of which reads the output of the one before. Empty if they are not known.

    """
    lines = kept.settings.get("commands", [])
    lines = [str(line) for line in lines] if isinstance(lines, list) else []
    outputs = [*(shlex.split(line)[2] for line in lines[1:]), file]
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
    """Return the arguments of `ss.thin`. The only place that translates settings to arguments."""
    settings = kept.settings
    if any(name in settings for name in _NOT_FROM_THIN) or not {"growth", "budget"} <= settings.keys():
        return None
    try:
        growth = schedules.growth(str(settings["growth"]))
        schedules.budget(str(settings["budget"]), growth)
    except InputError:  # a function given by the user
        return None
    words = ["draws"] + ([f"proxy={str(settings['proxy'])!r}"] if "proxy" in settings else ["scores"])
    words += [f"size={settings['size']!r}"] if settings.get("size") else [f"growth={str(settings['growth'])!r}"]
    words += [f"kernel=ss.{kept.kernel!r}"] if kept.kernel is not None else []
    words.append(f"preconditioner={_preconditioner(kept, file)}")
    words += [f"budget={str(settings['budget'])!r}"] if str(settings["budget"]) != "constant:0.0" else []
    changed = [name for name, usual in _DEFAULTS.items() if settings.get(name) not in (usual, None)]
    words += [f"{name}={settings[name]!r}" for name in changed]
    words += ['on_bad="skip"'] if settings.get("skipped") else []
    return [word.replace("'", '"') for word in words]


def _preconditioner(kept: Kept, file: str) -> str:
    if str(kept.settings.get("preconditioner", "")).startswith("streaming"):
        return '"streaming"'
    if kept.preconditioner is None or kept.preconditioner.is_identity:
        return "ss.Preconditioner.identity()"
    return f'ss.Kept.load("{file}").preconditioner'


def _weighting(settings: dict[str, Any]) -> str:
    if settings.get("like") is None:
        return f"kept = kept.weighted(linear={settings.get('linear')!r})"
    comment = f"# like {settings['like']}, without burn-in"
    return f"kept = kept.weighted(like=draws, linear={settings.get('linear')!r})  {comment}"


def versions() -> str:
    """Return the versions of Python and of the packages used."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "matplotlib"))
    return f"steinstream {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {packages}"
