"""A command as one text, in the manner of the system's own shell or C runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

if sys.platform == "win32":
    import subprocess

    def split_command(text: str) -> list[str]:
        """Split a command as Windows' C runtime does, so that backslashes in paths stay (CommandLineToArgvW). Raises
        ValueError."""
        found, word, quoted, at = [], "", False, 0
        begun = False
        while at < len(text):
            mark = text[at]
            if mark == "\\":
                end = at
                while end < len(text) and text[end] == "\\":
                    end += 1
                count = end - at
                if end < len(text) and text[end] == '"':
                    word += "\\" * (count // 2)
                    if count % 2:
                        word, end = word + '"', end + 1
                else:
                    word += "\\" * count
                at, begun = end, True
                continue
            if mark == '"':
                quoted, begun = not quoted, True
            elif mark in " \t" and not quoted:
                if begun:
                    found.append(word)
                word, begun = "", False
            else:
                word, begun = word + mark, True
            at += 1
        if quoted:
            raise ValueError("No closing quotation")
        return [*found, word] if begun else found

    join_command: Callable[[Sequence[str]], str] = subprocess.list2cmdline
    """Return a command as one text, which `split_command` splits again."""

else:
    import shlex

    split_command: Callable[[str], list[str]] = shlex.split
    """Split a command as the shell would. Raises ValueError."""
    join_command: Callable[[Sequence[str]], str] = shlex.join
    """Return a command as one text, which `split_command` splits again."""


def quote_word(word: str) -> str:
    """Return a word so that it is one, and itself, in a command."""
    return join_command([word])
