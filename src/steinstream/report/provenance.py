"""How to get a kept set again: the commands that made it, if they are known, and the same in Python."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import version
from typing import Any

import numpy as np

from steinstream import __version__, schedules
from steinstream.errors import InputError
from steinstream.result import Kept

_ELSEWHERE = ("method", "merged", "thinners", "clip", "score", "stan")  # in the settings of what ss.thin did not make


def commands(kept: Kept, file: str = "kept.npz") -> list[str]:
    """What has to be typed to make it, one line each: a set that a further command takes, and last this one."""
    lines = kept.settings.get("commands", [])
    lines = [str(line) for line in lines] if isinstance(lines, list) else []
    outputs = [*(shlex.split(line)[2] for line in lines[1:]), file]
    return [f"{line} -o {shlex.quote(output)}" for line, output in zip(lines, outputs, strict=False)]


def python(kept: Kept, file: str = "kept.npz") -> str | None:
    """The call of ``ss.thin`` that gives the same draws, with the coordinates of the set in ``file``; None where there
    is none.

    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(500, 2))
    >>> print(python(ss.thin(draws, -draws, size=20)))
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
    told = kept.settings
    if any(name in told for name in _ELSEWHERE) or not {"growth", "budget"} <= told.keys():
        return None
    try:
        floor = schedules.growth(str(told["growth"]))
        schedules.budget(str(told["budget"]), floor)
    except InputError:  # a function of the user, which has no name
        return None
    words = ["draws"] + ([f"proxy={str(told['proxy'])!r}"] if "proxy" in told else ["scores"])
    words += [f"size={told['size']!r}"] if told.get("size") else [f"growth={str(told['growth'])!r}"]
    words += [f"kernel=ss.{kept.kernel!r}"] if kept.kernel is not None else []
    words.append(f"preconditioner={_preconditioner(kept, file)}")
    words += [f"budget={str(told['budget'])!r}"] if str(told["budget"]) != "constant:0.0" else []
    usual = {"rule": "paper", "candidates": 1, "anchor": 0.0, "passes": 1, "cost": 0.0}
    words += [f"{name}={told[name]!r}" for name, plain in usual.items() if told.get(name) not in (plain, None)]
    words += ['on_bad="skip"'] if told.get("skipped") else []
    words = [word.replace("'", '"') for word in words]
    calls = [_weighing(told["weights"])] if isinstance(told.get("weights"), dict) else []
    calls += ["kept = kept.ordered()"] if kept.prefix_ksd is not None else []
    return "\n".join(
        ["import steinstream as ss", "", "kept = ss.thin(", *(f"    {word}," for word in words), ")", *calls]
    )


def _weighing(how: dict[str, Any]) -> str:
    if how.get("like") is None:
        return f"kept = kept.weighted(linear={how.get('linear')!r})"
    return f"kept = kept.weighted(like=draws, linear={how.get('linear')!r})  # like {how['like']}, without burn-in"


def _preconditioner(kept: Kept, file: str) -> str:
    if str(kept.settings.get("preconditioner", "")).startswith("streaming"):
        return '"streaming"'
    if kept.preconditioner is None or kept.preconditioner.is_identity:
        return "ss.Preconditioner.identity()"
    return f'ss.Kept.load("{file}").preconditioner'


def versions() -> str:
    """Of what made the report."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "matplotlib"))
    return f"steinstream {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {packages}"
