"""`dragoman completion`: prints the script with which a shell completes this command."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from .app import build
from .ends import FINE

app = App(
    name="completion",
    help_epilogue="""\
Examples:

  dragoman --install-completion       for the shell you are in

  dragoman completion bash > \\
      ~/.local/share/bash-completion/completions/dragoman
  dragoman completion zsh > ~/.zfunc/_dragoman      with ~/.zfunc in fpath
  dragoman completion fish > ~/.config/fish/completions/dragoman.fish""",
)


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a completion script.

    Parameters
    ----------
    shell
        The shell.
    """
    print(build().generate_completion(prog_name="dragoman", shell=shell))
    return FINE
