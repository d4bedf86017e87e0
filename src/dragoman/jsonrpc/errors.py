"""The error codes of JSON-RPC 2.0 (section 5.1), the errors that cross the wire, and our own.

`RpcError` crosses the wire: code, message and data. `LocalError` never does: it means that dragoman was used wrongly on
this side. A *dialect* of JSON-RPC has a table, `Dialect`, of its codes for our own refusals (busy, too large, out of
time, draining, cancelled).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

RESERVED = range(-32768, -31999)
"""Codes that the specification reserves (5.1) ..."""
SERVER_RANGE = range(-32099, -31999)
"""... except these, which an implementation may define."""

MESSAGES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
}

STRING_CODES = {
    "PARSE_ERROR": PARSE_ERROR,
    "INVALID_REQUEST": INVALID_REQUEST,
    "METHOD_NOT_FOUND": METHOD_NOT_FOUND,
    "INVALID_PARAMS": INVALID_PARAMS,
    "INTERNAL_ERROR": INTERNAL_ERROR,
    "TOOL_NOT_FOUND": INVALID_PARAMS,
    "RESOURCE_NOT_FOUND": INVALID_PARAMS,
}
"""The numbers for strings that some peers send as `error.code`."""


class LocalError(Exception):
    """dragoman was used wrongly on this side; the text says what would be right. Never crosses the wire."""


def needs(what: str, package: str, extra: str) -> LocalError:
    """Return the error for a package that is not installed, which `what` needs; it names the `extra` to install."""
    return LocalError(f"{what} needs {package}: {installing(extra)}")


def installing(extra: str) -> str:
    """How to install an extra of dragoman, in the quotes that every shell has, also cmd.exe."""
    return f'pip install "dragoman[{extra}]", or in a clone of the source pip install -e ".[{extra}]"'


class CallTimeout(TimeoutError):
    """A call had no response in time. The far end may or may not have done the work."""


class BadAnswer(Exception):
    """The far end's reply to a call is not a valid response, or does not fit the requested type."""


class RpcError(Exception):
    """An error that crosses the wire (specification 5.1).

    Raise it, or a subclass that declares `code` and `message`, in a method to answer with it; a
    call raises it when the far end answered with an error. `data` is any JSON value, or None for none.

    In a subclass an annotation `data: SomeType` is what the OpenRPC document shows. A value that the class gives
    `code`, `message` or `data` is the default of its errors.

        class OutOfStock(RpcError):
            code = 1001
            message = "Out of stock"
            data: Shortage

    `name` is the original string where a peer sent a string as code (option `string_codes`).
    Raises LocalError for a code that the specification reserves and does not define.
    """

    code: int = INTERNAL_ERROR
    """An integer. Of the reserved ones, -32768 to -32000, only those that the specification defines or leaves to
    servers (-32099 to -32000) are allowed."""
    message: str = ""
    """One sentence; by default the one that the specification has for the code."""
    data: Any = None
    name: str | None = None
    remote: bool = False
    """True if the far end answered it, False if it was raised here."""
    kinds: ClassVar[dict[int, type[RpcError]]] = {}
    """The class for each code that the specification defines."""

    def __init__(self, message: str | None = None, data: Any = None, *, code: int | None = None) -> None:
        if code is not None:
            check_code(code, type(self).__name__)
            self.code = code
        if message is not None:
            self.message = message
        elif not self.message:
            self.message = MESSAGES.get(self.code, "Server error")
        if data is not None:
            self.data = data
        super().__init__(self.message)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__ and cls.__module__ != __name__:
            check_code(cls.code, cls.__name__)

    def __str__(self) -> str:
        text = f"{self.message} ({self.name or self.code})"
        return text if self.data is None else f"{text}: {_short(self.data)}"

    def __repr__(self) -> str:
        data = "" if self.data is None else f", {_short(self.data, repr)}"
        return f"{type(self).__name__}({self.message!r}{data}, code={self.name or self.code!r})"

    @classmethod
    def of(
        cls, code: int, message: str, data: Any = UNSET, *, kinds: dict[int, type[RpcError]] | None = None
    ) -> RpcError:
        """Return the exception for an error object of the far end, of the class that is declared for its code in
        `kinds`, or of RpcError.

        `data`: a JSON value; None for null, and for UNSET, where the member is absent.
        """
        kind = (kinds or {}).get(code) or RpcError.kinds.get(code) or RpcError
        error = kind.__new__(kind)
        error.code, error.message, error.remote = code, message, True
        error.data = None if data is UNSET else data
        Exception.__init__(error, message)
        return error


def _short(value: Any, write: Callable[[Any], str] = str) -> str:
    text = write(value) if not isinstance(value, msgspec.Raw) else bytes(value).decode("utf-8", "replace")
    return text if len(text) <= 300 else text[:297] + "..."


def check_code(code: int, where: str) -> None:
    """Raise LocalError, beginning with `where`, for a code that is not an integer, or that the specification reserves
    (5.1) and neither defines nor leaves to servers."""
    if not isinstance(code, int) or isinstance(code, bool):
        raise LocalError(f"{where}: an error code is an integer, not {code!r}")
    if code in RESERVED and code not in SERVER_RANGE and code not in MESSAGES:
        raise LocalError(
            f"{where}: code {code} is reserved by the specification; take one outside -32768..-32000, or in -32099..-32000"
        )


class ParseError(RpcError):
    """-32700: what came is not JSON."""

    code = PARSE_ERROR
    message: str = MESSAGES[PARSE_ERROR]


class InvalidRequest(RpcError):
    """-32600: JSON, but not a request object."""

    code = INVALID_REQUEST
    message: str = MESSAGES[INVALID_REQUEST]


class MethodNotFound(RpcError):
    """-32601: there is no such method."""

    code = METHOD_NOT_FOUND
    message: str = MESSAGES[METHOD_NOT_FOUND]
    method: str = ""
    """The method that was called, if the far end answered with this error."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.method in text else f"{self.method}: {text}"


class InvalidParams(RpcError):
    """-32602: the arguments do not fit; `data.errors` lists every fault."""

    code = INVALID_PARAMS
    message: str = MESSAGES[INVALID_PARAMS]


class InternalError(RpcError):
    """-32603: the method failed; the log has the details under the reference in `data`."""

    code = INTERNAL_ERROR
    message: str = MESSAGES[INTERNAL_ERROR]


RpcError.kinds = {
    kind.code: kind for kind in (ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError)
}


class Refusal(Struct, frozen=True):
    """Why we refuse something: a key of a dialect's table, the text, and the numbers for `error.data`."""

    kind: str
    """One of: busy, draining, rate_limited, timed_out, too_large, forbidden, cancelled; or unfit, if a router refused
    it."""
    reason: str
    data: dict[str, Any] = {}
    challenge: str = ""
    """The challenge of a forbidden call: what the caller must show, for wires that have a field for it (RFC 9110,
    11.6.1)."""


class Dialect(Struct, frozen=True, kw_only=True):
    """The conventions that a family of JSON-RPC peers adds to the specification: cancelling, progress, and the codes of
    refusals.

    `cancel`, `progress` and `closing` are method names of notifications, None where the family has none.
    """

    name: str
    """For error texts and `repr`: "lsp", "mcp"."""
    cancel: str | None = None
    cancel_key: str = "id"
    """The member of the cancel message's params that names the call."""
    uncancellable: frozenset[str] = frozenset()
    """Methods whose calls are never cancelled by a message."""
    cancelled_answer: bool = True
    """Whether a cancelled call is answered, with an error; if not, it gets no answer."""
    progress: str | None = None
    progress_key: str = "token"
    """The member of the progress message's params that names the call, by its id."""
    progress_value: str | None = "value"
    """The member that is the progress; None: all params."""
    closing: str | None = None
    """The notification that an end sends before it closes a channel in order: all calls that it took are answered, and
    none that come after are taken."""
    null_id: bool = True
    """Whether an error for a request with an unreadable or missing id has `"id": null` (5.1); if not, it has no id."""
    meta: bool = False
    """Named params may have a member `_meta`, which belongs to the call and not to the method."""
    batches: bool = True
    """Whether several messages may come in one array."""
    codes: dict[str, int]
    """The code of each kind of refusal."""

    def error(self, refusal: Refusal) -> RpcError:
        """The refusal as an error of this dialect."""
        return RpcError.of(self.codes[refusal.kind], refusal.reason, refusal.data or None)


_CODES = {
    "busy": -32000,
    "rate_limited": -32000,
    "draining": -32001,
    "timed_out": -32002,
    "too_large": -32003,
    "forbidden": -32004,
    "cancelled": -32800,
}

PLAIN = Dialect(name="plain", codes=_CODES)
"""JSON-RPC 2.0 to the letter: without cancelling and progress."""
LSP = Dialect(name="lsp", cancel="$/cancelRequest", progress="$/progress", closing="$/closing", codes=_CODES)
"""The Language Server Protocol's base protocol, which dragoman's own peers use by default on duplex wires.

`$/closing` is ours: "if a server or client receives notifications starting with '$/' it is free to ignore the
notification" (LSP 3.17, "$ Notifications and Requests")."""

DIALECTS = {dialect.name: dialect for dialect in (PLAIN, LSP)}


class CallRefused(RpcError):
    """Raised in middleware or a handler to refuse a call. The answer has the code that the caller's dialect has for
    this kind of refusal. Where middleware of an outgoing call raises it, `code` is that of plain JSON-RPC."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal: Refusal = refusal
        """What is refused, and why."""
        self.code: int = _CODES[refusal.kind]
        super().__init__(refusal.reason, refusal.data or None)


NO_IDENTITY = Refusal("forbidden", "Forbidden: this call is for callers that say who they are")
"""The refusal of a call that needs an identity, from a caller without one."""


class UnfitCaller(LocalError):
    """A function needs something of its caller that this caller lacks: an identity, or a wire that carries calls back.
    The text goes to the log, for the author of the function; the caller receives `answer`, which does not say how the
    server is built."""

    def __init__(self, text: str, answer: RpcError) -> None:
        super().__init__(text)
        self.answer: RpcError = answer
        """The error that the caller receives, if its call ends with this."""


def no_way(text: str, what: str, wire: str) -> UnfitCaller:
    """Return the error of a function that calls or notifies its caller on a wire that cannot carry that. `text`: for
    the log; `what`: what the function does, as it follows "this call" in the answer."""
    return UnfitCaller(
        text, RpcError.of(INVALID_REQUEST, f"Invalid Request: this call {what}, and {wire} has no way for it")
    )


def too_large(limit: str, allowed: int, received: int | None, unit: str = "bytes") -> Refusal:
    """The refusal of something above a limit; it states the limit, the allowed and the received number."""
    got = "more" if received is None else f"{received}"
    data = {"limit": limit, "allowed": allowed} | ({} if received is None else {"received": received})
    return Refusal("too_large", f"Too large: {limit} allows {allowed} {unit}, received {got}", data)
