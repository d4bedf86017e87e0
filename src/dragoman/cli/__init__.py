"""The command: `dragoman serve | call | notify | methods | check | bench | demo | completion`, and for
MCP `tools | tool | resources | read | prompts | prompt | discover | ping`.

Rules of this package:

- One folder per family of commands, one file per command or pair; what they share is here. cyclopts and rich are
  imported nowhere else in dragoman.
- Only the module of the command on the command line is imported, and `--version` imports nothing.
- Results go to stdout, everything else to stderr; tables, colour and progress are for terminals only.
- Exit status: `exit_status.py`. A failure is reported in one sentence, never with a traceback.
"""

from __future__ import annotations

import sys

from .. import __version__

INTERRUPTED = 130
"""The exit status after Ctrl-C, which may come while the command is still imported."""


def main() -> None:
    """The entry point of the script `dragoman`: runs `sys.argv` and exits."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        print(f"dragoman {__version__}")
        return
    try:
        from .app import run  # noqa: PLC0415 - needs the extra "cli"

        status = run(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as missing:
        if missing.name not in ("cyclopts", "rich"):
            raise
        from ..jsonrpc.errors import needs  # noqa: PLC0415 - not for --version

        print(f"dragoman: {needs('the command', missing.name, 'cli')}", file=sys.stderr)
        sys.exit(2)
    sys.exit(status)
