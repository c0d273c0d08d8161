"""Commands and Python code that reproduce a kept set."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import version
from typing import Any

import numpy as np

from steinstream import __version__
from steinstream.errors import InputError
from steinstream.preconditioning import Streaming, Warmup
from steinstream.result import Kept
from steinstream.thinner.config import NAMES, ThinConfig

# Settings of results that `ss.thin(draws, scores, ...)` does not return, and why.
_NOT_FROM_THIN = {
    "method": "another method selected the draws",
    "merged": "the set was merged from others",
    "thinners": "the set was merged from others",
    "clip": "the log densities of the draws are not recorded",
    "score": "the draws were collected during the training of a network",
    "stan": "the draws are not those that were thinned: they were read from the output of Stan",
    "scores_added": "scores were added to the kept draws afterwards",
}
# Settings of arguments that a kept set does not hold.
_NOT_RECORDED = {"pinned": "pins of the draws", "features": "features of the draws"}


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
    """Return Python code that reproduces a kept set with `ss.thin`; it reads the preconditioner from ``file``.

    Returns
    -------
    str or None
        The code. None if there is an `obstacle`.

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
    config = _config(kept)
    if not isinstance(config, ThinConfig):
        return None
    weights = kept.settings.get("weights")
    calls = [_weighting(weights)] if isinstance(weights, dict) else []
    calls += ["kept = kept.ordered()"] if kept.order is not None else []
    arguments = ["draws", *(["scores"] if kept.settings["has_scores"] else []), *_settings(config, file)]
    return "\n".join(
        ["import steinstream as ss", "", "kept = ss.thin(", *(f"    {word}," for word in arguments), ")", *calls]
    )


def obstacle(kept: Kept) -> str | None:
    """Return why Python code cannot reproduce a kept set, as a clause; None if it can.

    Returns
    -------
    str or None
        The reason.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(500, 2))
    >>> obstacle(ss.merge([ss.thin(draws, -draws, size=20)]))
    'the set was merged from others'
    """
    found = _config(kept)
    return found if isinstance(found, str) else None


def _config(kept: Kept) -> ThinConfig | str:
    """Return the configuration with which `ss.thin` reproduces a kept set, or why it cannot."""
    stored = stored_config(kept)
    other = [reason for name, reason in _NOT_FROM_THIN.items() if name in kept.settings]
    missing = [what for name, what in _NOT_RECORDED.items() if name in kept.settings]
    if other:
        return other[0]
    if not stored or "has_scores" not in kept.settings:
        return "the settings are not recorded"
    try:
        config = ThinConfig.from_dict(stored, **_known_preconditioner(stored, kept))
        if isinstance(config.passes, int):  # a thinner may have made further passes
            config = config.replace(passes=kept.settings.get("passes", config.passes))
    except (InputError, TypeError, ValueError):
        return "a setting is a function, or cannot be read"
    missing += ["costs of the draws"] if config.cost_weight else []
    missing += ["draws of the initial set"] if kept.settings.get("initial") else []
    if missing:
        return f"{' and '.join(missing)} are not recorded"
    if len(kept.history.size) and kept.history.size[-1] != len(kept):
        return "these are not all kept draws"
    return config


def _known_preconditioner(stored: dict[str, Any], kept: Kept) -> dict[str, Any]:
    """Return the fitted preconditioner, which a configuration only describes."""
    described = stored.get("preconditioner")
    fitted = isinstance(described, dict) and described.get("type") == "Preconditioner"
    return {"preconditioner": kept.preconditioner} if fitted else {}


def _settings(config: ThinConfig, file: str) -> list[str]:
    """Return the settings that differ from the defaults, the kernel and the preconditioner, as arguments."""
    values = config.to_dict()
    words = {name: repr(values[name]) for name, _, _ in config.differences(ThinConfig())}
    words["kernel"] = f"ss.{config.kernel!r}"
    words["preconditioner"] = _preconditioner(config, file)
    return [f"{name}={words[name]}".replace("'", '"') for name in NAMES if name in words]


def _preconditioner(config: ThinConfig, file: str) -> str:
    chosen = config.live_preconditioner
    if isinstance(chosen, Warmup | Streaming):
        return f"ss.{chosen!r}"
    return "ss.Preconditioner.identity()" if chosen.is_identity else f'ss.Kept.load("{file}").preconditioner'


def _weighting(settings: dict[str, Any]) -> str:
    share = f"effective_share={settings.get('effective_share')!r}"
    if settings.get("like") != "chain":
        return f"kept = kept.weighted({share})"
    return f"kept = kept.weighted(like=draws, {share})  # draws without burn-in"


def versions() -> str:
    """Return the versions of Python and of the packages used."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "matplotlib"))
    return f"steinstream {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {packages}"
