"""`proctor completion`: the script that makes a shell complete commands, options, runs, trials and more."""

from __future__ import annotations

import click

from proctor.errors import Exit

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the completion script for SHELL. Nothing is installed or changed.

    \b
    bash   echo 'eval "$(proctor completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(proctor completion zsh)"' >> ~/.zshrc
    fish   proctor completion fish > ~/.config/fish/completions/proctor.fish
    """  # noqa: D301 - click wants the character itself
    from click.shell_completion import get_completion_class

    from proctor.cli.main import COMPLETING, group

    found = get_completion_class(shell)
    assert found is not None
    script = found(group, {}, "proctor", COMPLETING)
    # Not `source()`: it starts a bash to ask for its version, which is not always the one that reads this.
    print(script.source_template % script.source_vars())
    return Exit.OK
