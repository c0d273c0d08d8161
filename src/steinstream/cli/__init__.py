"""The command line: one command per file, each a thin layer over the library.

An error ends with one message and exit code 2, --strict after a warning with 3, Ctrl-C with 130; none of them prints a
traceback.
"""

from __future__ import annotations

import os
import sys
import warnings

import click

from steinstream import __version__
from steinstream.cli.average import average
from steinstream.cli.compare import compare
from steinstream.cli.completion import completion
from steinstream.cli.demo import demo
from steinstream.cli.follow import follow
from steinstream.cli.inspect import inspect
from steinstream.cli.ksd import ksd
from steinstream.cli.merge import merge
from steinstream.cli.plan import plan
from steinstream.cli.r_file import r_file
from steinstream.cli.refine import refine
from steinstream.cli.report import report
from steinstream.cli.runs import runs
from steinstream.cli.scores import scores
from steinstream.cli.thin import thin
from steinstream.cli.usage_errors import Commands, lowered, problem_and_remedy
from steinstream.errors import ScoresWarning, SteinstreamError

_BROKEN_PIPE = 141


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="steinstream")
@click.pass_context
def commands(context: click.Context) -> None:
    """Keep only the MCMC samples that matter.

    \b
    steinstream demo                                   sample a posterior and thin it while it runs
    steinstream inspect chain.npz                      describe a chain before thinning it
    steinstream thin chain.npz -o kept.npz --size 200  keep the 200 draws that represent the target
    steinstream thin draws.csv                         the same for draws without scores, with a summary
    steinstream scores x.csv --score f.py:g -o s.npz   compute the scores of stored draws
    steinstream follow out-diagnostic.csv -o kept.npz  thin a file while a sampler writes it
    steinstream report kept.npz --chain chain.npz      write an HTML report
    steinstream ksd kept.npz                           measure the kept set
    steinstream merge a.npz b.npz -o kept.npz          merge several kept sets
    steinstream refine kept.npz -o best.npz --order    add weights, or an order of use
    steinstream runs kept.npz -o runs.csv              list the forward simulations of the kept draws
    steinstream average kept.npz outputs.csv           average their outputs
    steinstream plan chain.npz --radius 0.1            number of draws for a KSD of 0.1
    steinstream compare chain.npz                      compare all methods at the same sizes
    steinstream r-file                                 print the path of the functions for R

    \b
    Exit codes:
      0    success
      2    an error: one message with its remedy on standard error
      3    with --strict: a diagnostic check fired, or a warning was given
      130  stopped by Ctrl-C (143 by SIGTERM)
      141  the output was closed, for example by head
    """
    warnings.simplefilter("ignore", ScoresWarning)  # the diagnostic checks report the same
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


_DRAWS = (demo, inspect, thin, scores, follow, report, ksd, merge, refine, runs, average, plan, compare)
for command in (*_DRAWS, r_file, completion):
    commands.add_command(command)


def main(command: click.Command = commands, name: str = "steinstream") -> None:
    """Run a command and exit: code 2 and one message for an error, code 130 after Ctrl-C."""
    try:
        code = command.main(prog_name=name, standalone_mode=False)
        if sys.stdout is not None:  # it is None if the descriptor is closed
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except SystemExit as ended:
        sys.exit(_BROKEN_PIPE if ended.code == 1 else ended.code)  # click exits with 1 if nobody reads the output
    except click.ClickException as error:
        _fail(*problem_and_remedy(error))
    except SteinstreamError as error:
        _fail(lowered(error.problem), error.remedy)
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads the output any more
        sys.exit(_BROKEN_PIPE)
    except MemoryError as error:
        text = " ".join(str(error).split()).rstrip(".")
        _fail(
            f"not enough memory{f': {lowered(text)}' if text else ''}.",
            "Choose fewer parameters with --parameters, keep fewer draws, or use a machine with more memory.",
        )
    except OSError as error:
        _discard_output()
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{lowered(error.strerror or str(error))}.", "Check the path, and the free space on its disk.")


def _discard_output() -> None:
    """Discard output that cannot be written; otherwise Python would try again at its end and print a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(problem: str, remedy: str) -> None:
    """Print an error and its remedy, and exit."""
    try:
        click.echo(f"error: {problem}", err=True)
        if remedy:
            click.echo(f"       {remedy}", err=True)
    except OSError:  # standard error is full or closed: the exit code has to do
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(2)
