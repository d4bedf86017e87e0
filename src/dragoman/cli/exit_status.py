"""How the command ends: the exit status, and the sentence that gives the reason.

0  success
1  the peer answered with an error (or `check` found faults)
2  wrong usage: an unknown option, a bad URL or target, a missing extra
3  no connection, or no answer in time
130, 141, 143  ended by Ctrl-C, by a closed pipe, by SIGTERM, as every command is
70  a fault of dragoman itself
71  the process may not have enough files open
74  the output cannot be written: the disk is full
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from ..channel import ChannelError
from ..jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError, needs
from ..jsonrpc.options import alike
from ..system.files import reason_of
from ..system.limits import most_files

FINE = 0
ANSWERED_WITH_ERROR = 1
WRONG_USAGE = 2
NO_ANSWER = 3
OUR_FAULT = 70
NOT_ENOUGH = 71
NOT_WRITTEN = 74
PIPE_CLOSED = 141

FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""Why writing fails: the disk is full, or the terminal is gone. No connection fails so."""

LEAST_FILES = 32
"""Open files that `serve` needs to begin: its own, Python's, the loop's and a few callers'."""
SHORTAGE = frozenset((errno.EMFILE, errno.ENFILE))

EXTRAS = {"joserfc": "auth", "cryptography": "auth", "httptools": "http"}
"""Packages that commands import at once, and the extra that brings each."""


class Usage(Exception):
    """The command was used wrongly; the text says what would be right."""


class MissingArgument(Usage):
    """An argument is missing; the text says which. An example of the right call is shown below it."""


def suggest_name(name: str, known: Iterable[str], otherwise: str) -> str:
    """For an unknown name: a suggestion of the known one that was probably meant, or `otherwise`."""
    near = alike(name, known)
    return f"did you mean {near}?" if near else otherwise


class NoAnswer(Exception):
    """There is no connection, or no answer came in time; the text says why."""


class Ending(Struct, frozen=True):
    """Why a command did not succeed. `error`: the error that the peer answered, if it did."""

    status: int
    kind: Literal["answered", "usage", "no_answer", "fault", "output", "system"]
    text: str
    error: RpcError | None = None
    advice: tuple[str, ...] = ()
    """What to do next, a sentence each."""

    def as_json(self) -> dict[str, object]:
        """What `--json` prints: `{"error": {...}}`; the peer's own error object, or `kind` and `message`; with
        `advice`, a list, where there is any."""
        return self._error() | ({"advice": self.advice} if self.advice else {})

    def _error(self) -> dict[str, object]:
        if self.error is None:
            return {"error": {"kind": self.kind, "message": self.text}}
        shown: dict[str, object] = {"code": self.error.name or self.error.code, "message": self.error.message}
        if self.error.data is not None:
            shown["data"] = self.error.data
        return {"error": shown}


def ending_of(error: Exception) -> Ending:
    """The ending for an exception; its notes are the advice."""
    return msgspec.structs.replace(_ending_of(error), advice=tuple(getattr(error, "__notes__", ())))


def _ending_of(error: Exception) -> Ending:
    if isinstance(error, ImportError) and (package := _package(error)) in EXTRAS:
        error = needs("this command", package, EXTRAS[package])
    if isinstance(error, RpcError):
        return Ending(ANSWERED_WITH_ERROR, "answered", error.message, error)
    if isinstance(error, (Usage, LocalError)):
        return Ending(WRONG_USAGE, "usage", str(error))
    if isinstance(error, CallTimeout):
        return Ending(NO_ANSWER, "no_answer", str(error) or "no answer in time")
    if isinstance(error, (ChannelError, BadAnswer, NoAnswer)):
        return Ending(NO_ANSWER, "no_answer", str(error) or type(error).__name__)
    if isinstance(error, OSError) and error.errno in FULL:
        what = error.filename or "the output"
        return Ending(NOT_WRITTEN, "output", f"{what} cannot be written: {error.strerror}")
    if _is_shortage(error):
        return Ending(NOT_ENOUGH, "system", f"too many open files: this process may have {_files()} (ulimit -n)")
    if isinstance(error, OSError):
        return Ending(NO_ANSWER, "no_answer", _system(error))
    return Ending(OUR_FAULT, "fault", f"{type(error).__name__}: {error}")


def _is_shortage(error: BaseException | None) -> bool:
    """Whether too few descriptors caused it, also of a failure of what was cleaned up then."""
    for _ in range(10):
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            return True
        error = None if error is None else error.__cause__ or error.__context__
    return False


def _files() -> str:
    limit = most_files()
    return "no more of them" if limit is None else f"{limit} of them"


def check_files() -> None:
    """Raises OSError where `serve` could not begin for want of descriptors."""
    if (limit := most_files()) is not None and limit < LEAST_FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _package(error: ImportError) -> str:
    """The package that is missing, also where a command's module could not be imported for it."""
    missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    return (missing.name or "").partition(".")[0]


def _system(error: OSError) -> str:
    """An error of the operating system as text; if several are nested, the innermost."""
    if error.errno is None or error.errno not in errno.errorcode:
        return str(error) or type(error).__name__
    return f"{error.filename}: {reason_of(error)}" if error.filename else os.strerror(error.errno)


def readable(data: object, message: str = "") -> str:
    """`error.data` for people: a list of argument faults as lines, without those that `message` has already (MCP's text
    for the model), otherwise its JSON."""
    raw = bytes(data) if isinstance(data, msgspec.Raw) else msgspec.json.encode(data)
    try:
        faults = msgspec.json.decode(raw, type=_Faults)
    except msgspec.ValidationError:
        return msgspec.json.format(raw, indent=2 if len(raw) > 100 else 0).decode()
    return "\n".join(said for fault in faults.errors if (said := fault.sentence()) not in message)


class _Fault(Struct):
    field: str
    message: str
    received: msgspec.Raw = msgspec.Raw(b"")

    def sentence(self) -> str:
        got = bytes(self.received).decode()
        shown = f" (received {got if len(got) <= 80 else got[:77] + '...'})" if got else ""
        return f"{self.field}: {self.message}{shown}"


class _Faults(Struct, forbid_unknown_fields=True):
    errors: list[_Fault]
