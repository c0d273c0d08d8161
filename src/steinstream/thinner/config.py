"""The settings of a thinner: `ThinConfig`, the only place where they are listed.

Each field declares its default, what the command line needs (a help text, a section, choices), and which other parts of
the package have the setting. Everything else (`Thinner`, `thin`, checkpoints, the command line, workers, reports) reads
the fields from here.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from steinstream import __version__, schedules
from steinstream._formatting import nearest
from steinstream.errors import InputError, one_of, positive
from steinstream.kernels import IMQ, RBF, Kernel, as_kernel
from steinstream.preconditioning import STREAMING_KINDS, Preconditioner, Streaming, Warmup, as_kind, as_preconditioner
from steinstream.schedules import RULES, Schedule
from steinstream.thinner.layout import STREAM_ON

AUTO = "auto"
_MOST_PASSES = 10_000
_FUNCTION = "function"  # key of the description of a function

#: Sections of the command line's help; `steinstream.cli.help` has their titles.
Section = Literal["most used", "selection", "measure", "validation"]

# Parts of the package that have only some of the settings.
BASELINES, KSD, MERGE, PLAN = "baselines", "ksd", "merge", "plan"


class CommandLine(NamedTuple):
    """Option of a setting: help text, section, and the values that a shell completes."""

    help: str
    section: Section
    completions: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


def _setting(default: Any, command_line: CommandLine | None = None, *, parts: tuple[str, ...] = ()) -> Any:
    """Declare a setting; ``parts`` are the parts of the package that have it although they do not have all settings."""
    return field(default=default, metadata={"command_line": command_line, "parts": parts})


@dataclass(frozen=True, eq=False, kw_only=True)
class ThinConfig:
    r"""Settings of online thinning; immutable and validated.

    `Thinner` and `thin` accept the settings as keyword arguments or as ``config=ThinConfig(...)``.

    Parameters
    ----------
    size : int, optional
        Number of draws to keep (a hard cap). If fewer draws are given, all are kept. Default: no cap.
    growth : str, float or callable, optional
        Least number of draws to keep as a function of the step: ``"none"`` (keep all), ``"linear"``, ``"sqrt"``,
        ``"power:ALPHA"``, ``"constant:N"``, a number, or a function of the step. Default: ``size`` if it is given,
        otherwise ``"sqrt"``, that is :math:`\sqrt{t \log t}`.
    budget : str, float or callable, default 0.0
        Allowed increase of the objective when a draw is removed: a number, ``"decaying"``, ``"share:ETA"``, or a
        function of the step. See :mod:`steinstream.schedules`.
    rule : {"paper", "monotone"}, default "paper"
        Reference value of the budget. ``"paper"``: the objective after the new draw was added. ``"monotone"``: the
        smaller of that and the objective before, so that KSD does not increase while more draws are kept than
        ``growth`` requires.
    candidates : int, default 1
        Number of consecutive draws of which only the best is considered (SPMCMC).
    passes : int or "auto", default 1
        Number of passes over a chain that can be read again. Further passes keep the same number of draws and
        never increase the objective. ``"auto"`` stops when a pass gains less than 1 %. Used by `thin` and the command
        line. At most 10 000.
    start : {"stream", "sample"}, optional
        Initial set: empty, or ``size`` draws chosen by local search from a subsample of the chain. Default:
        ``"sample"`` if ``passes="auto"``, ``size`` is given and ``stream_weight`` is 0, otherwise ``"stream"``. By
        default `thin` also corrects a slow chain by its scores if ``size`` is given: the chain is worth fewer than 200
        independent draws, and than a twentieth of the draws of its subsample. ``"stream"`` turns this off.
    kernel : Kernel or str, default IMQ()
        Base kernel: `IMQ`, `RBF`, or a string such as ``"imq:c=1,beta=-0.5"`` or ``"rbf:h=2"``.
    preconditioner : Preconditioner, Warmup, Streaming, array or str, optional
        Change of coordinates in which the kernel is evaluated. An array (d,) holds scales, (d, d) a covariance.
        ``"auto"``, ``"scale"``, ``"scales"`` and ``"covariance"`` are estimated, ``"identity"`` and ``"streaming"``
        are not. Default: estimated from the draws; `thin` estimates it once (``"auto"``), a `Thinner` while the stream
        runs (``"streaming"``).
    stream_weight : float, default 1.0
        Weight of the stream term, the squared MMD between the kept draws and the stream, relative to the squared KSD. 0
        selects by KSD alone, as in the paper. It is multiplied by the trust in the chain, and by up to 25 in more than
        20 dimensions.
    stream_on : {"draws", "features", "both"}, optional
        What the stream term compares. Default: the features if they are given, otherwise the draws.
    cost_weight : float, default 0.0
        Weight of the per-draw ``costs`` when choosing which draw to remove. With 1, the diagonal term
        :math:`k_0(x, x)` of a draw of average cost is increased by the mean of :math:`k_0(x, x)`.
    history : {"log", "all"} or int, optional
        Steps at which size and KSD are recorded: about 20 per factor of ten, all, every k-th, or none (``None``).
    on_bad : {"raise", "skip"}, default "raise"
        What to do with a draw that is not finite.
    validate_scores : bool, default True
        Raise an error if Stein's identity shows that the sign of the scores is wrong, and warn if the scores do not
        match the draws.
    storage : {"float64", "float32"}, default "float64"
        Precision of the stored draws. ``"float32"`` is for draws of 100 000 and more dimensions.

    Examples
    --------
    >>> config = ThinConfig(size=100, kernel="rbf:h=2")
    >>> config.kernel
    RBF(h=2.0)
    >>> ThinConfig.from_dict(config.to_dict()) == config
    True
    >>> config.differences(ThinConfig(size=50, kernel="rbf:h=2"))
    [Difference(name='size', mine='100', other='50')]
    """

    size: int | None = _setting(
        None,
        CommandLine("Keep exactly N draws, or all if the chain is shorter.", "most used"),
        parts=(MERGE,),
    )
    growth: str | float | Schedule | None = _setting(
        None,
        CommandLine(
            "Least number of draws to keep: none (keep all), linear, sqrt, power:ALPHA, constant:N.  [default: sqrt]",
            "selection",
            ("none", "linear", "sqrt", "power:", "constant:"),
        ),
    )
    budget: str | float | Schedule = _setting(
        0.0,
        CommandLine(
            "Allowed increase of the objective when a draw is removed: EPS, decaying, share:ETA.",
            "selection",
            ("decaying", "share:"),
        ),
    )
    rule: str = _setting(
        "paper",
        CommandLine(
            "paper: a new draw may increase the objective. monotone: it does not increase while more draws are kept "
            "than --growth requires.",
            "selection",
            choices=RULES,
        ),
    )
    candidates: int = _setting(
        1, CommandLine("Consider only the best of every N consecutive draws (SPMCMC).", "selection"), parts=(PLAN,)
    )
    passes: int | str = _setting(
        1,
        CommandLine(
            "Number of passes over the chain, or auto. Further passes keep as many draws and never increase the "
            "objective.",
            "selection",
            (AUTO,),
        ),
    )
    start: str | None = _setting(
        None,
        CommandLine(
            "Initial set, with --size: empty (stream), or chosen from a subsample of the chain.",
            "selection",
            choices=("stream", "sample"),
        ),
    )
    kernel: Kernel = _setting(
        IMQ(),
        CommandLine(
            "imq, imq:c=1,beta=-0.5, rbf, or rbf:h=2; imq:linear=1 adds a linear term.", "measure", ("imq", "rbf")
        ),
        parts=(BASELINES, KSD, MERGE, PLAN),
    )
    preconditioner: Preconditioner | Warmup | Streaming | str | None = _setting(
        None,
        CommandLine(
            "auto, identity, scale, scales, covariance, a length scale, streaming (thin only), or a file: npy (scales "
            "or covariance), npz, nc or zarr (that of a kept set).",
            "measure",
            ("auto", "identity", "scale", "scales", "covariance", "streaming"),
        ),
        parts=(BASELINES, KSD, MERGE, PLAN),
    )
    stream_weight: float = _setting(
        1.0,
        CommandLine(
            "Weight of the distance (MMD) between the kept draws and the chain, next to KSD. 0: KSD alone, as in the "
            "paper.",
            "selection",
        ),
        parts=(MERGE,),
    )
    stream_on: str | None = _setting(None)
    cost_weight: float = _setting(0.0)
    history: str | int | None = _setting("log")
    on_bad: str = _setting(
        "raise",
        CommandLine("What to do with a draw that is not finite.", "validation", choices=("raise", "skip")),
        parts=(BASELINES,),
    )
    validate_scores: bool = _setting(
        True,
        CommandLine("Check the sign of the scores, and whether they match the draws.", "validation"),
        parts=(BASELINES, KSD, PLAN),
    )
    storage: str = _setting("float64")

    def __post_init__(self) -> None:
        for name, value in _normalised(self).items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, config: ThinConfig | None = None, /, **settings: Any) -> ThinConfig:
        """Return a configuration with some settings replaced.

        Parameters
        ----------
        config : ThinConfig, optional
            Configuration to start from. Default: the default settings.
        **settings
            Settings by name.

        Returns
        -------
        ThinConfig
            The new configuration.

        Raises
        ------
        InputError
            If a setting is unknown or has an invalid value.
        """
        if config is not None and not isinstance(config, ThinConfig):
            raise InputError(
                f"config must be a ThinConfig, got {reprlib.repr(config)}.", "Create one: ss.ThinConfig(size=100)."
            )
        unknown = [name for name in settings if name not in NAMES]
        if unknown:
            remedy = f"{nearest(unknown[0], NAMES)}The settings are {', '.join(NAMES)}."
            raise InputError(f"Unknown setting {unknown[0]!r}.", remedy)
        return replace(config, **settings) if config is not None else cls(**settings)

    # -- derived values ----------------------------------------------------------------------------------------------

    @cached_property
    def growth_schedule(self) -> Schedule:
        """Least number of draws to keep, as a function of the step."""
        if self.growth is not None:
            return schedules.growth(self.growth)
        return schedules.growth("sqrt" if self.size is None else self.size)

    @cached_property
    def budget_schedule(self) -> Schedule:
        """Allowed increase of the objective, as a function of the step."""
        return schedules.budget(self.budget, self.growth_schedule)

    @property
    def live_preconditioner(self) -> Preconditioner | Warmup | Streaming:
        """The preconditioner for a stream that cannot be read in advance: names become `Streaming` or `Warmup`."""
        chosen = "auto" if self.preconditioner is None else self.preconditioner
        if isinstance(chosen, str) and chosen == "auto" and self.storage == "float32":
            chosen = "scales"  # a covariance is not available
        if isinstance(chosen, str) and chosen == "identity":
            return Preconditioner.identity()
        if isinstance(chosen, str):
            return Streaming(chosen, centred=self.centred) if chosen in STREAMING_KINDS else Warmup(chosen)
        return chosen

    @property
    def centred(self) -> bool:
        """Whether an estimated preconditioner needs a centre, because the kernel has a linear term."""
        return self.kernel.linear > 0

    # -- dictionaries ------------------------------------------------------------------------------------------------

    def to_dict(self, *, arrays: bool = True) -> dict[str, Any]:
        """Return the settings as plain values, from which `from_dict` creates an equal configuration.

        Parameters
        ----------
        arrays : bool, default True
            Include the arrays of a fixed preconditioner, as NumPy arrays. Without them the result fits into JSON, and
            a fixed preconditioner is only described.

        Returns
        -------
        dict
            Name and value of every setting. A user's function is described by its name.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in NAMES}
        values["kernel"] = {"name": type(self.kernel).__name__, **vars(self.kernel)}
        values["growth"] = None if self.growth is None else _schedule_to_plain(self.growth, self.growth_schedule)
        values["budget"] = _schedule_to_plain(self.budget, self.growth_schedule)
        values["preconditioner"] = _preconditioner_to_plain(self.preconditioner, arrays)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **settings: Any) -> ThinConfig:
        """Create a configuration from the result of `to_dict`.

        Parameters
        ----------
        values : mapping
            Result of `to_dict`, also after a round trip through JSON.
        **settings
            Settings that replace those in ``values``: required for functions, which a dictionary cannot hold.

        Returns
        -------
        ThinConfig
            The configuration.

        Raises
        ------
        InputError
            If a value is invalid, or describes a function or an array that is not given in ``settings``.
        """
        given = {name: value for name, value in values.items() if name not in settings}
        for name, read in _READERS.items():
            if name in given:
                given[name] = read(name, given[name])
        return cls.of(None, **given, **settings)

    def differences(self, other: ThinConfig) -> list[Difference]:
        """List the settings in which two configurations differ.

        Parameters
        ----------
        other : ThinConfig
            The configuration to compare with.

        Returns
        -------
        list of Difference
            Name and both values, as text, in the order of the settings.
        """
        mine, others = self.to_dict(), other.to_dict()
        changed = [name for name in NAMES if not _same(mine[name], others[name])]
        return [Difference(name, self.text(name), other.text(name)) for name in changed]

    def functions(self) -> dict[str, Any]:
        """Return the settings that are functions, which a file cannot hold.

        Returns
        -------
        dict
            Function by name of the setting.
        """
        described = described_functions(self.to_dict(arrays=False))
        return {name: getattr(self, name) for name in described}

    def unsupported_by(self, part: str) -> str | None:
        """Find a setting that is not the default and that a part of the package, such as BASELINES, does not have."""
        own = settings_of(part)
        return next((one.name for one in self.differences(_DEFAULT) if one.name not in own), None)

    def text(self, name: str) -> str:
        """Return the value of a setting as short text for messages."""
        value = getattr(self, name)
        return getattr(value, "__qualname__", None) or str(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThinConfig) and not self.differences(other)

    def __repr__(self) -> str:
        changed = self.differences(_DEFAULT)
        return f"ThinConfig({', '.join(f'{name}={getattr(self, name)!r}' for name, _, _ in changed)})"

    def replace(self, **settings: Any) -> Self:
        """Return a copy with some settings replaced.

        Parameters
        ----------
        **settings
            Settings by name.

        Returns
        -------
        ThinConfig
            The copy.

        Raises
        ------
        InputError
            If a setting is unknown or invalid.
        """
        return replace(self, **settings)


class Difference(NamedTuple):
    """A setting in which two configurations differ, with both values as text."""

    name: str
    mine: str
    other: str


#: Names of all settings, in the order in which they are documented.
NAMES: tuple[str, ...] = tuple(one.name for one in fields(ThinConfig))

#: Settings that the command line offers.
COMMAND_LINE: Mapping[str, CommandLine] = MappingProxyType(
    {one.name: one.metadata["command_line"] for one in fields(ThinConfig) if one.metadata["command_line"]}
)


def settings_of(part: str) -> tuple[str, ...]:
    """Return the names of the settings that a part of the package has, in the order of `NAMES`.

    Returns
    -------
    tuple of str
        The names.

    Examples
    --------
    >>> settings_of(PLAN)
    ('candidates', 'kernel', 'preconditioner', 'validate_scores')
    """
    return tuple(one.name for one in fields(ThinConfig) if part in one.metadata["parts"])


def described_functions(values: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that `ThinConfig.to_dict` only describes, because they are functions."""
    return [name for name, value in values.items() if isinstance(value, Mapping) and _FUNCTION in value]


def run_settings(
    config: ThinConfig, preconditioner: object, names: Sequence[str] = NAMES, **statistics: Any
) -> dict[str, Any]:
    """Return the settings of a kept set as JSON values: version, configuration, measure, and statistics of the run."""
    values = config.to_dict(arrays=False)
    return {
        "steinstream": __version__,
        "config": {name: values[name] for name in names},
        "kernel": repr(config.kernel),
        "preconditioner": str(preconditioner),
        **statistics,
    }


#: The settings of the paper: ``ss.thin(draws, scores, **ss.PAPER)``.
PAPER: Mapping[str, Any] = MappingProxyType(
    {
        "kernel": IMQ(),
        "preconditioner": Preconditioner.identity(),
        "growth": "sqrt",
        "budget": 0.0,
        "rule": "paper",
        "stream_weight": 0.0,
    }
)


# -- validation --------------------------------------------------------------------------------------------------------


def _normalised(config: ThinConfig) -> dict[str, Any]:
    """Validate every setting and convert it to its plain form."""
    kernel = as_kernel(config.kernel)
    size = None if config.size is None else positive(config.size, "size")
    growth = None if config.growth is None else schedules.growth(config.growth)
    floor = growth or schedules.growth("sqrt" if size is None else size)
    return {
        "size": size,
        "growth": growth,
        "budget": _as_budget(config.budget, floor),
        "rule": one_of(RULES, config.rule, "rule"),
        "candidates": positive(config.candidates, "candidates"),
        "passes": _as_passes(config.passes),
        "start": None if config.start is None else one_of(("stream", "sample"), config.start, "start"),
        "kernel": kernel,
        "preconditioner": _as_preconditioner(config.preconditioner, kernel),
        "stream_weight": _as_stream_weight(config.stream_weight),
        "stream_on": None if config.stream_on is None else one_of(STREAM_ON, config.stream_on, "stream_on"),
        "cost_weight": _as_cost_weight(config.cost_weight),
        "history": _as_history(config.history),
        "on_bad": one_of(("raise", "skip"), config.on_bad, "on_bad"),
        "validate_scores": _as_flag(config.validate_scores, "validate_scores"),
        "storage": one_of(("float64", "float32"), config.storage, "storage"),
    }


def _as_budget(budget: Any, growth: Schedule) -> Any:
    """Keep the name of a budget that depends on the growth, so that it follows a change of the growth."""
    found = schedules.budget(budget, growth)
    return str(found) if isinstance(found, schedules.Decaying) and found.growth == growth else found


def _as_passes(passes: Any) -> int | str:
    whole = isinstance(passes, int | np.integer) and not isinstance(passes, bool)
    if (whole or (isinstance(passes, str) and passes.isdecimal() and len(passes) < 10)) and 1 <= int(
        passes
    ) <= _MOST_PASSES:
        return int(passes)
    if isinstance(passes, str) and passes == AUTO:
        return passes
    raise InputError(f'passes must be a whole number from 1 to {_MOST_PASSES} or "auto", got {passes!r}.')


def _as_flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def _as_preconditioner(value: Any, kernel: Kernel) -> Preconditioner | Warmup | Streaming | str | None:
    if value is None or isinstance(value, Warmup | Streaming):
        return value
    if isinstance(value, str):
        return Streaming(centred=kernel.linear > 0) if value == "streaming" else as_kind(value)
    return as_preconditioner(value)


_LARGEST_WEIGHT = 1e30  # no product of weights and kernel values overflows


def _as_stream_weight(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < _LARGEST_WEIGHT:
        raise InputError(
            f"stream_weight must be a number of at least 0, and below {_LARGEST_WEIGHT:g}, got {value!r}.",
            "0 leaves out the stream term.",
        )
    return number


def _as_cost_weight(value: Any) -> float:
    if isinstance(value, bool) or not (isinstance(value, int | float | np.number) and 0 <= value < _LARGEST_WEIGHT):
        raise InputError(
            f"cost_weight must be a number of at least 0, and below {_LARGEST_WEIGHT:g}, got {value!r}.",
            "Pass the costs of the draws to extend.",
        )
    return float(value)


def _as_history(value: Any) -> str | int | None:
    if isinstance(value, str) and value not in ("log", "all"):
        raise InputError(f'history must be "log", "all", a positive number or None, got {value!r}.')
    return value if value is None or isinstance(value, str) else positive(value, "history")


# -- conversion --------------------------------------------------------------------------------------------------------


def _schedule_to_plain(schedule: Any, growth: Schedule) -> Any:
    name = schedule if isinstance(schedule, str) else schedules.name_of(schedule, growth)
    return {_FUNCTION: getattr(schedule, "__qualname__", repr(schedule))} if name is None else name


def _schedule_from_plain(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        raise InputError(
            f"{name} was a function ({value.get(_FUNCTION)}), which cannot be stored.", f"Pass it again: {name}=...."
        )
    return value


def _preconditioner_to_plain(value: Any, arrays: bool) -> Any:
    if isinstance(value, Warmup | Streaming):
        return {"type": type(value).__name__, **vars(value)}
    if not isinstance(value, Preconditioner):
        return value
    described: dict[str, Any] = {"type": "Preconditioner", "description": str(value)}
    return described | ({"factor": value.factor, "centre": value.centre} if arrays else {})


def _preconditioner_from_plain(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    values = {key: item for key, item in value.items() if key not in ("type", "description")}
    match value.get("type"):
        case "Warmup":
            return Warmup(**values)
        case "Streaming":
            return Streaming(**values)
        case "Preconditioner" if "factor" in values:
            centre = values.get("centre")
            return Preconditioner(np.asarray(values["factor"]), None if centre is None else np.asarray(centre))
        case "Preconditioner" if value.get("description") == "identity":
            return Preconditioner.identity()
    raise InputError(f"{name} is described only, not stored.", f"Pass it again: {name}=....")


def _kernel_from_plain(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    kinds = {"IMQ": IMQ, "RBF": RBF}
    if value.get("name") not in kinds:
        raise InputError(f"{name} must be one of {', '.join(kinds)}, got {value.get('name')!r}.")
    return kinds[value["name"]](**{key: item for key, item in value.items() if key != "name"})


_READERS = {
    "growth": _schedule_from_plain,
    "budget": _schedule_from_plain,
    "preconditioner": _preconditioner_from_plain,
    "kernel": _kernel_from_plain,
}


def _same(one: Any, other: Any) -> bool:
    """Compare plain values, arrays included."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


_DEFAULT = ThinConfig()
