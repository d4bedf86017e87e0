"""What the two ends of a child process's pipe say to each other, as bytes: pickles, each after its length.

Both ends run the same program as the same user, so that each unpickles what the other sends.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ...jsonrpc.errors import LocalError, RpcError

MARK: Final = b"\0dragoman: a child process begins\0"
"""What a child writes first. What comes before it was printed while the interpreter started."""
_LENGTH: Final = struct.Struct("!Q")
LONGEST_ERROR: Final = 512 * 1024
"""Bytes of an error with its traceback."""
HEADROOM: Final = 1024 * 1024
"""Bytes of a frame that are not of the values which `ProcessLimits.message_size` bounds, such as an error."""
_LONGEST_TRACE: Final = 20_000
"""Characters of a child's traceback that an error keeps."""


class FrameTooLong(Exception):
    """A frame is longer than the limit. `size`: its bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class FunctionPath(Struct, frozen=True):
    """A function, as a child finds it again."""

    module: str
    name: str
    """Its qualified name in the module."""
    depth: int = 0
    """How many wrappers of decorators are around it there (`__wrapped__`)."""
    file: str | None = None
    """The module's file, for a module that cannot be imported by its name."""
    main: str | None = None
    """The module that was run by `python -m`, if the function is in `__main__`; None: `file` was run."""


class SetupFrame(Struct, frozen=True):
    """What a child has to know before its first call."""

    arguments: list[str]
    """`sys.argv` of the parent."""
    level: int
    """The level of the parent's root logger."""
    message_size: int


class UseFrame(Struct, frozen=True):
    """A child uses a member of a context. `given`: the pickle of (arguments, named arguments) for a method."""

    number: int
    context: int
    path: str
    given: bytes | None = None


class ForgetFrame(Struct, frozen=True):
    """A child waits no longer for the answer with this number."""

    number: int


class AnswerFrame(Struct, frozen=True):
    """The answer to a `UseFrame`: the pickle of a value, or of an error."""

    number: int
    value: bytes
    failed: bool = False


class CallFrame(Struct, frozen=True):
    """Runs a function. `given`: the pickle of (arguments, named arguments)."""

    target: FunctionPath
    given: bytes


class BegunFrame(Struct, frozen=True):
    """A child has received its call."""


class LogFrame(Struct, frozen=True):
    """A record of a child's log, as the members of a LogRecord."""

    record: dict[str, Any]


class OutcomeFrame(Struct, frozen=True):
    """How a call ended: the pickle of its result, or of its error. `reusable`: nothing of the call is left in the
    process."""

    value: bytes
    failed: bool
    reusable: bool


Frame: TypeAlias = SetupFrame | CallFrame | AnswerFrame | UseFrame | ForgetFrame | BegunFrame | LogFrame | OutcomeFrame


def pack(frame: Frame) -> bytes:
    """Return a frame as bytes."""
    text = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(text)) + text


class FrameReader:
    """Takes a stream of bytes apart."""

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self._buffer = bytearray()
        self._wanted: int | None = None

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take bytes, and return the frames that are complete. Raises FrameTooLong, and whatever unpickling raises."""
        self._buffer += data
        while True:
            if self._wanted is None:
                if len(self._buffer) < _LENGTH.size:
                    return
                (self._wanted,) = _LENGTH.unpack_from(self._buffer)
                del self._buffer[: _LENGTH.size]
                if self._longest is not None and self._wanted > self._longest:
                    raise FrameTooLong(self._wanted)
            if len(self._buffer) < self._wanted:
                return
            text, self._wanted = bytes(self._buffer[: self._wanted]), None
            del self._buffer[: len(text)]
            yield pickle.loads(text)


# -- errors ---------------------------------------------------------------------------------------


class ChildError(Exception):
    """An exception of a function in a child process that could not be sent itself: its type and text."""


class _Rebuilt(Struct):
    """An exception that is sent without a call of its class's `__init__`."""

    kind: type[BaseException]
    error: BaseException

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(vars(self.error))
        if isinstance(self.error, RpcError):
            state |= {name: getattr(self.error, name) for name in ("code", "message", "data", "name", "remote")}
        return rebuild, (self.kind, self.error.args, state)


def rebuild(kind: type[BaseException], arguments: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Return an exception with these members."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


_ROOTS: Final = (BaseException, Exception, object)


def pack_error(error: BaseException) -> bytes:
    """Return the pickle of an exception: itself, or without its `__init__`; if its class cannot be found by its name,
    as the nearest base class that can, but for `Exception` itself; else, or if it is too long, as a `ChildError`."""
    bases = [kind for kind in type(error).__mro__ if kind not in _ROOTS and issubclass(kind, BaseException)]
    for sent in (error, *(_Rebuilt(kind, error) for kind in bases)):
        try:
            text = pickle.dumps(sent, pickle.HIGHEST_PROTOCOL)
            again = pickle.loads(text)
            if isinstance(error, type(again)) and str(again) == str(error) and len(text) <= LONGEST_ERROR:
                return text
        except Exception:  # whatever the code of a user's class raises
            continue
    made = ChildError(f"{type(error).__name__}: {_text_of(error)[:_LONGEST_TRACE]}")
    for note in getattr(error, "__notes__", ())[-1:]:
        made.add_note(str(note)[:_LONGEST_TRACE])
    return pickle.dumps(made, pickle.HIGHEST_PROTOCOL)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:  # as above
        return object.__repr__(value)


def unpack_error(text: bytes) -> BaseException:
    """Return the exception in a pickle; a `ChildError` if it cannot be unpickled here."""
    try:
        error = pickle.loads(text)
    except Exception as fault:
        return ChildError(f"an exception that cannot be unpickled here: {type(fault).__name__}: {fault}")
    return error if isinstance(error, BaseException) else ChildError(repr(error))


def with_trace(error: BaseException) -> BaseException:
    """Return the exception with its traceback as a note, since no traceback can be sent."""
    trace = "".join(traceback.format_exception(error, chain=True))
    error.add_note(f"In the child process:\n{trace[-_LONGEST_TRACE:]}")
    return error


Reducers: TypeAlias = Mapping[type, Callable[[Any], Any]]
"""How values of these types are pickled, as in `copyreg.dispatch_table`."""


def pack_value(value: Any, what: str, reducers: Reducers = MappingProxyType({})) -> bytes:
    """Return the pickle of a value. `what`: what it is, for the error. Raises LocalError for one that has none."""
    into = io.BytesIO()
    pickler = pickle.Pickler(into, pickle.HIGHEST_PROTOCOL)
    if reducers:
        pickler.dispatch_table = copyreg.dispatch_table | dict(reducers)
    try:
        pickler.dump(value)
    except Exception as error:  # PicklingError, TypeError, AttributeError, RecursionError, or of a user's class
        raise LocalError(
            f"{what} is a {type(value).__name__}, which cannot be sent between processes: {error}; pass data, of types "
            "that are defined at the top of a module"
        ) from error
    return into.getvalue()


def check_size(text: bytes, limit: int, what: str) -> None:
    """Raise LocalError for a pickle of more than `limit` bytes. `what`: what it is."""
    if len(text) > limit:
        raise LocalError(
            f"{what} has {len(text)} bytes; limit ProcessLimits.message_size allows {limit}: send less, or write it to a "
            "file"
        )


def unpack_value(text: bytes, what: str) -> Any:
    """Return the value in a pickle. Raises LocalError for one that cannot be unpickled here."""
    try:
        return pickle.loads(text)
    except Exception as error:  # as above
        raise LocalError(f"{what} cannot be unpickled: {type(error).__name__}: {error}") from error
