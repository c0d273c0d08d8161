"""``steinstream thin --method NAME``: reduce a chain with another method, and write the result as a kept set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import click

from steinstream.cli._config import fitted_or_fixed
from steinstream.cli._thin_request import ThinRequest, ThinResult
from steinstream.cli.help import OTHER_METHODS, Option, generated
from steinstream.cli.options import F, completions, grouped, reject_unused, was_given
from steinstream.cli.progress import bar, working_time
from steinstream.cli.summary import kept_of, measures_of
from steinstream.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from steinstream.io import Chain
    from steinstream.result import Kept
    from steinstream.thinner import ThinConfig

_ONLINE = "default"


class MethodOptions(NamedTuple):
    """The method, and the seed of its random numbers."""

    method: str
    seed: int

    @property
    def is_baseline(self) -> bool:
        """Whether the method is another one than online thinning."""
        return self.method != _ONLINE

    def check(self) -> None:
        """Raise an `InputError` if an option has no effect with this method, or is missing."""
        from steinstream.baselines import method_name
        from steinstream.thinner.config import BASELINES, COMMAND_LINE, settings_of

        name = method_name(self.method)
        if not was_given("method"):
            reject_unused(["seed"], "without --method")
        if self.is_baseline:
            unused = [name for name in COMMAND_LINE if name not in ("size", *settings_of(BASELINES))]
            reject_unused(
                [*unused, "initial", "checkpoint", "resume"], f"with --method {name}", "Leave out one of them."
            )
            if not was_given("size"):
                raise InputError(f"--method {name} requires the number of draws to keep.", "Add --size N.")


def _options() -> list[Option]:
    from steinstream.baselines import METHODS

    others = ", ".join(name for name in METHODS if name != _ONLINE)
    return [
        Option(
            ["--method"],
            default=_ONLINE,
            shell_complete=completions(*METHODS),
            help=f"Another method: {others}.",
            section=OTHER_METHODS,
        ),
        Option(
            ["--seed"],
            type=click.IntRange(min=0),
            default=0,
            help="Random seed for randomised methods.",
            section=OTHER_METHODS,
        ),
    ]


def method_options(command: F) -> F:
    """Add ``--method`` and ``--seed``, as ``baseline``."""
    return generated(_options)(grouped("baseline", MethodOptions)(command))


def thin_with_baseline(request: ThinRequest, baseline: MethodOptions) -> ThinResult:
    """Reduce a chain with another method and write the kept draws."""
    from steinstream.baselines import method_name

    name, source, started = method_name(baseline.method), request.open(), working_time()
    with bar("reading ", 1.0) as progress:
        kept = _run(name, source, request.config, baseline.seed, progress.show, lambda: progress.begin(name, None))
    variables, groups = source.variables(kept.ids), request.groups(kept, source)
    kept = request.write(replace(kept, names=source.names, variables=variables, groups=groups))
    seconds = working_time() - started
    return ThinResult(kept, source, f"{name} kept {kept_of(kept)} in {seconds:.1f} s  ·  {measures_of(kept)}")


def _run(
    name: str,
    source: Chain,
    config: ThinConfig,
    seed: int,
    on_read: Callable[[float], None],
    on_select: Callable[[], None],
) -> Kept:
    """Run a method on a chain; the callbacks report the share that is read, and the start of the selection."""
    from steinstream.baselines import selector
    from steinstream.baselines.methods import problem_from_chain, to_kept

    if config.size is None:
        raise ValueError("size is required")
    shared = config.replace(size=None, preconditioner=fitted_or_fixed(config))
    problem = problem_from_chain(source, config.size, shared, seed=seed, progress=on_read)
    on_select()
    return to_kept(problem, name, selector(name)(problem))
