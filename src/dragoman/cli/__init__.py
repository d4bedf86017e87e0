"""The command `dragoman`; `commands.py` has the table of its commands.

Rules of this package:

- One folder per family of commands, one file per command or pair; what they share is here. cyclopts and rich are
  imported nowhere else in dragoman.
- Only the module of the command on the command line is imported; `--version` and `--help` alone import nothing else.
- Results go to stdout, everything else to stderr; tables, colour and progress are for terminals only.
- Exit status: `exit_status.py`. A failure is reported in one sentence, never with a traceback.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from .. import __version__
from ..system.streams import use_utf8

INTERRUPTED = 130
"""The exit status after Ctrl-C, which may come while the command is still imported."""


def main() -> None:
    """The entry point of the script `dragoman`: runs `sys.argv` and exits."""
    use_utf8()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        print(f"dragoman {__version__}")
        return
    if arguments in ([], ["--help"], ["-h"], ["help"]):
        from .commands import show_help  # noqa: PLC0415 - not for --version

        with suppress(OSError):  # the output cannot be written, which is reported below
            show_help()
            sys.stdout.flush()
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
