"""``agentcompass completion``: print the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .terminal import print_text


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    r"""
    Print the completion script of a shell.

    \b
    bash  eval "$(agentcompass completion bash)"     in ~/.bashrc
    zsh   eval "$(agentcompass completion zsh)"      in ~/.zshrc
    fish  agentcompass completion fish | source      in ~/.config/fish/config.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None  # the choices are the shells that click knows
    print_text(completion(ctx.find_root().command, {}, "agentcompass", "_AGENTCOMPASS_COMPLETE").source())
    return 0
