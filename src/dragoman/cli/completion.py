"""`dragoman completion`: prints the script with which a shell completes this command.

The script has the commands and options in it; for what only a server knows it asks `dragoman completion --line`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from ..system.files import reason_of
from .app import build
from .exit_status import FINE, Usage
from .proposing import proposals
from .terminal import say

app: App = App(
    name="completion",
    help_epilogue="""\
Examples:

  dragoman completion bash            print the script
  dragoman completion bash > \\
      ~/.local/share/bash-completion/completions/dragoman
  dragoman completion zsh > ~/.zfunc/_dragoman      with ~/.zfunc in fpath
  dragoman completion fish > ~/.config/fish/completions/dragoman.fish
  dragoman --install-completion       for the shell you are in""",
)


BASH = r"""
# What only a server knows: methods, tools, prompts and their arguments.
_dragoman_asking() {
  _dragoman
  local line="${COMP_LINE:0:COMP_POINT}"
  local last="${line##* }"
  [[ "$line" == *" "*" "* && "$last" != -* ]] || return 0
  local shown="" one
  [[ "$last" == *[:=]* ]] && shown="${last%"${last##*[:=]}"}"   # readline replaces what follows it alone
  while IFS= read -r one; do
    [[ -n "$one" ]] && COMPREPLY+=("${one#"$shown"}")
  done < <("${COMP_WORDS[0]}" completion bash --line "${line#* }" 2>/dev/null)
  [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[=/:] ]] && compopt -o nospace 2>/dev/null
  return 0
}

complete -F _dragoman_asking dragoman
"""
ZSH = r"""
# What only a server knows: methods, tools, prompts and their arguments.
_dragoman_asking() {
  local -a found
  if (( CURRENT > 2 )) && [[ "$words[CURRENT]" != -* ]]; then
    found=("${(@f)$(${words[1]} completion zsh --line "${(j: :)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ${#found} )); then
      compadd -- ${found:#*[=/:]}
      compadd -S '' -- ${(M)found:#*[=/:]}   # more of the word follows
      return 0
    fi
  fi
  _cyclopts_dragoman "$@"
}

compdef _dragoman_asking dragoman
# From a folder in fpath this file runs at the first completion, which it answers as well.
if [[ "${zsh_eval_context[-1]}" == loadautofunc ]]; then
  _dragoman_asking "$@"
fi
"""
FISH = r"""
# What only a server knows: methods, tools, prompts and their arguments.
function __fish_dragoman_asking
    dragoman completion fish --line (commandline -cp | string replace -r '^\s*\S+\s' '') 2>/dev/null
end

complete -c dragoman -f -a '(__fish_dragoman_asking)'
"""
ASKING = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""What each shell's script has in addition."""


_WITHOUT_VALUES = re.compile(r"^( +'(?:\d+|\*):(?!:)(?:(?!->|:\().)*)'(?= \\$|$)", re.MULTILINE)
"""An argument in zsh's script that says what it is and has no values."""


def complete_script(shell: str, script: str) -> str:
    """The script of the parser for a shell, and what only a server knows. In zsh an argument without values has an
    empty list of them: else its message keeps zsh from completing an option instead."""
    if shell == "zsh":
        script = _WITHOUT_VALUES.sub(r"\1:()'", script)
    return script + ASKING[shell]


@app.default
def completion(
    shell: Literal["bash", "zsh", "fish"],
    /,
    *,
    line: Annotated[str | None, Parameter(metavar="TEXT", allow_leading_hyphen=True)] = None,
) -> int:
    """Print a completion script.

    Parameters
    ----------
    shell
        The shell.
    line
        Print what may end this command line instead; the script asks so for methods, tools and arguments.
    """
    if line is None:
        print(complete_script(shell, build().generate_completion(prog_name="dragoman", shell=shell)))
        return FINE
    for one in proposals(line):
        print(one)
    return FINE


def install() -> int:
    """Install completion for the shell you are in."""
    try:
        shell = detect_shell()
    except ShellDetectionError:
        raise Usage("this shell is none of bash, zsh and fish: dragoman completion bash prints the script") from None
    if shell not in ASKING:
        raise Usage(f"there is no completion for {shell}; dragoman completion --help shows the shells")
    try:
        path = build().install_completion(shell=shell)
        path.write_text(complete_script(shell, path.read_text(encoding="utf-8")), encoding="utf-8")
    except OSError as fault:
        raise Usage(f"{fault.filename or 'the script'} cannot be written: {reason_of(fault)}") from None
    say(f"{path} is installed; start a new shell to use it")
    return FINE
