"""Describes a command that was started: its name, how it ended, and the cause, found in what it wrote to stderr. PURE.

Rules: the cause is a line that the program wrote, never a guess; a program of any language may have written it, so
the table names how each announces a failure. A program that announces nothing is quoted by its last line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from ..system.words import join_command
from .urls import printable

LONGEST_NAME = 80
"""Characters of a command in a message."""
LONGEST_CAUSE = 300
"""Characters of a cause in a message."""


def command_name(command: Sequence[str], most: int = LONGEST_NAME) -> str:
    """Return the command in one line. Above `most` characters folders are left out of its paths, then its middle."""
    whole = join_command(command)
    if len(whole) <= most:
        return printable(whole, most)
    short = [_short_path(word) for word in command]
    text = join_command(short)
    if len(text) > most:
        text = f"{text[: most // 2 - 2]}...{text[len(text) - most // 2 + 1 :]}"
    return printable(text, most)


def _short_path(word: str) -> str:
    """Return the last part of a path, with `name=` before it. A word that is not a path stays as it is."""
    before, mark, path = word.rpartition("=") if "=/" in word else ("", "", word)
    return f"{before}{mark}{path.rstrip('/').rpartition('/')[2]}" if path.startswith(("/", "./", "../", "~/")) else word


class _Sign(Struct, frozen=True):
    """A form in which programs announce why they ended."""

    pattern: re.Pattern[str]
    last: bool = False
    """The last such line is the cause, not the first."""
    more: re.Pattern[str] | None = None
    """Lines that may follow it and belong to the cause."""
    most: int = 1
    """Lines of `more` that are taken."""
    root: re.Pattern[str] | None = None
    """A later line that names the first cause of a chain; its last one is taken as well."""
    near: int = 200
    """Only so many lines before the end are searched: a log has errors that did not end the program."""


def _sign(
    pattern: str,
    *,
    last: bool = False,
    more: str | None = None,
    most: int = 1,
    root: str | None = None,
    near: int = 200,
) -> _Sign:
    after, chain = (None if text is None else re.compile(text) for text in (more, root))
    return _Sign(re.compile(pattern), last, after, most, chain, near)


_SIGNS: tuple[_Sign, ...] = (
    # Rust: the message of a panic stands on the next line since 1.73
    _sign(r"^thread '.*' (?:\(\d+\) )?panicked at .*:$", more=r"^(?!note:|stack backtrace)"),
    _sign(r"^thread '.*' (?:\(\d+\) )?panicked at "),
    # Go
    _sign(r"^panic: "),
    _sign(r"^fatal error: "),
    # C and C++, and what the system's loader says
    _sign(r"^terminate called ", more=r"^\s*what\(\):"),
    _sign(r"error while loading shared libraries: "),
    _sign(r"(?:dyld\[\d+\]|dyld): Library not loaded"),
    # Java, Kotlin, Scala
    _sign(r"^Description:$", more=r"."),  # Spring
    _sign(r'^Exception in thread ".*" ', root=r"^Caused by: "),
    # .NET
    _sign(r"^Unhandled [Ee]xception[.:] ", root=r"^ ---> "),
    # Python: the last line of the last traceback; pydantic names the first wrong variable below it
    _sign(
        r"^(?:[A-Za-z_][\w]*\.)*ValidationError: \d+ validation errors? for ",
        last=True,
        more=r"^(?!\s*For further information)",
        most=2,
    ),
    _sign(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration)(?::\s.*|$)", last=True),
    # Node, Deno and Bun: `TypeError [ERR_X]: ...` before the trace
    _sign(r"^(?:Uncaught )?[A-Z]\w*(?:Error|Exception) \[\w+\]: "),
    _sign(r"^error: Uncaught "),
    # package runners: npm, uv, pip, cargo, docker
    _sign(r"^npm (?:ERR!|error) (?!code|errno|syscall|path|dest|A complete log|\s*$)"),
    _sign(r"× No solution found", more=r"╰─▶|Because "),
    _sign(r"^ERROR: (?:Could not|No matching|Failed)"),
    _sign(r"^docker: "),
    # Ruby, PHP, Perl
    _sign(r"^\S+:\d+:in .*: .*\((?:\w+::)*\w*(?:Error|Exception|Interrupt)\)$"),
    _sign(r"^(?:PHP )?Fatal error: "),
    _sign(r" at \S+ line \d+\.$"),
    # what command lines of many languages print: the first of them is the cause, what follows explains
    _sign(r"^Error: ", more=r"^Caused by:", root=r"^\s+(?:\d+: )?\S"),
    _sign(r"^(?:\S+: )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL|[Pp]anic)(?:\[\w+\])?: ", near=20),
    _sign(r"(?:: |^)(?:command not found|not found|No such file or directory|Permission denied)(?:: .*)?$", near=20),
    _sign(r"(?i)\b(?:fatal|critical|panic|error)\b", last=True, near=20),
)
"""The first sign of the table that any line shows gives the cause."""
_GROUP = re.compile(r"^[\s|+]*\| ")
"""How Python draws an exception group."""
_MOST_READ = 2000
"""Characters of a line that are searched."""


def cause_of(lines: Sequence[str]) -> str:
    """Find why a program failed, in one line of its stderr: the sentence that announces it, else the last line; ""
    where it wrote nothing."""
    written = [_GROUP.sub("", line[:_MOST_READ]).rstrip() for line in lines if line.strip()]
    for sign in _SIGNS:
        first = max(0, len(written) - sign.near)
        found = [at for at in range(first, len(written)) if sign.pattern.search(written[at])]
        if found:
            return _with_continuation(written, found[-1] if sign.last else found[0], sign)
    return printable(written[-1].strip(), LONGEST_CAUSE) if written else ""


def _with_continuation(written: Sequence[str], at: int, sign: _Sign) -> str:
    """Return the line with the lines that belong to it."""
    parts = [written[at].strip()]
    rest = written[at + 1 :]
    if sign.more is not None:
        for line in rest[: sign.most]:
            if not sign.more.search(line):
                break
            parts.append(line.strip())
    chain_needs_head = sign.more is not None and sign.root is not None
    if sign.root is not None and (not chain_needs_head or len(parts) > 1):
        roots = [line.strip() for line in rest if sign.root.search(line) and line.strip() not in parts]
        parts += roots[-1:]
    text = " ".join(part for part in parts if part != "Caused by:")
    return printable(text, LONGEST_CAUSE)
