"""The encoding and the line ends of the standard streams.

The command imports this before all else, so it imports little.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from contextlib import suppress
    from io import TextIOWrapper, UnsupportedOperation

    def use_utf8() -> None:
        """Have the standard streams speak UTF-8 with lines that end in LF, as on other systems, whatever the code page.
        Consoles do so anyway."""
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper) and not stream.isatty():
                with suppress(UnsupportedOperation):  # the program has read from it already
                    stream.reconfigure(encoding="utf-8", errors=stream.errors, newline="\n")

else:

    def use_utf8() -> None:
        """Do nothing: the locale says what the standard streams speak."""
