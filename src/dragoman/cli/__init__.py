"""The command: `dragoman serve | call | notify | methods | check | bench | demo | completion`, and for
MCP `tools | tool | resources | read | prompts | prompt | discover | ping`.

Rules of this package:

- One file per family of commands; cyclopts and rich are imported nowhere else in dragoman.
- A command is imported when it is the one that was asked for, and `--version` imports nothing at all.
- Results go to stdout, everything else to stderr; tables, colour and progress only to a terminal.
- Exit status: `ends.py`. Whatever goes wrong is one sentence, never a traceback.
"""

from __future__ import annotations

import sys

from .. import __version__


def main() -> None:
    """The entry point of the script `dragoman`: runs `sys.argv` and exits."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        print(f"dragoman {__version__}")
        return
    try:
        from .app import run  # noqa: PLC0415 - needs the extra "cli"
    except ModuleNotFoundError as missing:
        if missing.name not in ("cyclopts", "rich"):
            raise
        print(f"dragoman: the command needs {missing.name}: pip install 'dragoman[cli]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(arguments))
