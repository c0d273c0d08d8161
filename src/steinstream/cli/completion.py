"""``steinstream completion``: what a shell needs to complete commands, options, their values and files."""

from __future__ import annotations

import click


@click.command(short_help="Complete commands and options with Tab.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and their values with Tab.

    \b
    To have it in every new shell, put the line into the file that it names:
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
