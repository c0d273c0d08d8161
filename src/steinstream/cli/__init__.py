"""The command line: one command a file, thin over the library.

A mistake ends with one message and exit code 2, Ctrl-C with 130, and neither with a traceback.
"""

from __future__ import annotations

import os
import sys
import warnings

import click

from steinstream import __version__
from steinstream.cli.compare import compare
from steinstream.cli.completion import completion
from steinstream.cli.demo import demo
from steinstream.cli.follow import follow
from steinstream.cli.inspect import inspect
from steinstream.cli.ksd import ksd
from steinstream.cli.merge import merge
from steinstream.cli.plan import plan
from steinstream.cli.refine import refine
from steinstream.cli.report import report
from steinstream.cli.thin import thin
from steinstream.cli.usage_errors import Commands, lowered, told
from steinstream.errors import ScoresWarning, SteinstreamError


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="steinstream")
@click.pass_context
def commands(context: click.Context) -> None:
    """Keep only the MCMC samples that matter.

    \b
    steinstream demo                                   sample a posterior and thin it live
    steinstream inspect chain.npz                      look before you thin
    steinstream thin chain.npz -o kept.npz --size 200  keep the 200 draws that matter
    steinstream follow out-diagnostic.csv -o kept.npz  the same, while a sampler writes the file
    steinstream report kept.npz --chain chain.npz      see it: one HTML file
    steinstream ksd kept.npz                           how good are they?
    steinstream merge a.npz b.npz -o kept.npz          several kept sets in one
    steinstream refine kept.npz -o best.npz --order    weights, an order of use
    steinstream plan chain.npz --radius 0.1            how many draws does a KSD of 0.1 take?
    steinstream compare chain.npz                      all methods at the same sizes
    """
    warnings.simplefilter("ignore", ScoresWarning)  # the closing lines tell it
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (demo, inspect, thin, follow, report, ksd, merge, refine, plan, compare, completion):
    commands.add_command(command)


def main(command: click.Command = commands, name: str = "steinstream") -> None:
    """Run a command and exit: one message and code 2 for an error, code 130 after Ctrl-C, never a traceback."""
    try:
        code = command.main(prog_name=name, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as mistake:
        _refuse(*told(mistake))
    except SteinstreamError as mistake:
        _refuse(lowered(mistake.problem), mistake.remedy)
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone, and nobody is left to tell
        sys.exit(141)
    except OSError as problem:
        _let_go()
        place = f"{problem.filename}: " if problem.filename else ""
        _refuse(f"{place}{lowered(problem.strerror or str(problem))}.", "Check the path, and the space on its disk.")


def _let_go() -> None:
    """Forget output that cannot be written, or Python would try once more at its end and complain of that."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(problem: str, remedy: str) -> None:
    """One message, and what to do about it."""
    click.echo(f"error: {problem}", err=True)
    if remedy:
        click.echo(f"       {remedy}", err=True)
    sys.exit(2)
