"""``steinstream completion``: the script with which a shell completes commands, options, their values and files."""

from __future__ import annotations

import click

from steinstream.cli.help import Command


@click.command(cls=Command, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and their values with Tab.

    \b
    Add the line for your shell to its startup file:
    eval "$(steinstream completion bash)"       ~/.bashrc
    eval "$(steinstream completion zsh)"        ~/.zshrc, after compinit
    steinstream completion fish | source        ~/.config/fish/config.fish

    \b
    Example: steinstream completion bash
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    if script is not None:
        click.echo(script(context.find_root().command, {}, "steinstream", "_STEINSTREAM_COMPLETE").source())
