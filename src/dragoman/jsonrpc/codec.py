"""Bytes to messages and back. `decode` is total: bad input is a `Malformed` value, never an exception.

The plain shape of a 2.0 message is decoded in one step into `Wire`, which forbids whatever a
message need not have. All else (other members, odd ids, batches with a bad element, 1.0, plain
faults) takes the slow way, which looks at everything and finds the words.

Rules beyond the specification's text: text is strict UTF-8 without a byte-order mark; a number
that no double holds is no JSON of ours (RFC 8259, section 6, lets us set that limit); of two
members with one name the last counts; an object with a `method` is a request or notification,
whatever else it has; an object with `result` or `error` and no `method` is a response.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .errors import STRING_CODES, LocalError, RpcError, too_large
from .limits import SERVER, Limits
from .messages import (
    NULL,
    Batch,
    ErrorObject,
    Failure,
    Malformed,
    Message,
    Notification,
    Request,
    Result,
    Single,
    Version,
)


class Leniency(Struct, frozen=True, kw_only=True):
    """What is taken from peers that do not keep to JSON-RPC 2.0. All off unless chosen."""

    accept_v1: bool = False
    """JSON-RPC 1.0 as well: no `jsonrpc` member, positional params, `id: null` is a notification, responses
    carry both `result` and `error`. Bitcoin Core and many devices speak it."""
    null_id: Literal["request", "notification"] = "request"
    """What `"id": null` means in 2.0. The specification discourages it; some clients send it for notifications."""
    string_codes: bool = False
    """Words for `error.code` in what peers send ("INVALID_PARAMS"), mapped to their numbers; the word is kept."""


STRICT = Leniency()


class _Error(Struct, forbid_unknown_fields=True, gc=False):
    code: int
    message: str
    data: Raw | UnsetType = UNSET


class Wire(Struct, forbid_unknown_fields=True, gc=False):
    """A 2.0 message in its plain shape; ids that Python would change (1.0, null) are not plain."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    id: int | str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: _Error | UnsetType = UNSET


class _Loose(Struct, gc=False):
    jsonrpc: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _LooseError(Struct, gc=False):
    code: int | float | str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


plain = msgspec.json.Decoder(Wire).decode
plain_batch = msgspec.json.Decoder(list[Wire]).decode
_loose = msgspec.json.Decoder(_Loose).decode
_loose_error = msgspec.json.Decoder(_LooseError).decode
_elements = msgspec.json.Decoder(list[Raw]).decode
_anything = msgspec.json.Decoder().decode
_text = msgspec.json.Decoder(str).decode

_SPACE = b" \t\r\n"
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')  # strings, so that they are passed over, and numbers
_SHAPE = bytes.maketrans(
    b"123456789E", b"000000000e"
)  # all digits alike: numbers that may be too big show by their shape
SHORT = 200
"""A shorter text holds no number beyond a double, but for three digits of exponent."""
_LONG_RUN = b"0" * SHORT
_DIGITS = frozenset(b"0123456789")
_KINDS = {
    ord("["): "an array",
    ord("{"): "an object",
    ord('"'): "a string",
    ord("t"): "a boolean",
    ord("f"): "a boolean",
}
_KINDS |= {ord("n"): "null"} | dict.fromkeys(b"-0123456789", "a number")


# -- in -------------------------------------------------------------------------------------------


def decode(raw: bytes, *, limits: Limits = SERVER, lenient: Leniency = STRICT) -> Message:
    """The message in `raw`. Never raises: what is no message is `Malformed`, in a batch element by element.

    `limits` counts for batch_length, id_length and method_length; the size of the whole is the
    wire's business. Ids are int, str, or Raw where Python would change them (1.0, 1e2, null).
    """
    message = read(raw, limits, lenient)
    if type(message) is not Malformed and (fault := unholdable(raw)) is not None:
        return _unreadable(raw, fault)
    return message


def read(raw: bytes, limits: Limits, lenient: Leniency) -> Message:
    """`decode`, but for numbers with exponents, which the decoder of a method's params refuses by itself."""
    try:
        wire = plain(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _slow(raw, limits, lenient)
    if ((len(raw) > SHORT or not raw.isascii()) and odd(raw)) or (wire.id == 0 and b"-0" in raw):
        return _slow(raw, limits, lenient)
    return _message(wire, limits) or _slow(raw, limits, lenient)


def odd(raw: bytes) -> bool:
    """Whether this text, which passed for a plain shape, is no UTF-8 or may hold a number beyond a double."""
    try:
        raw.isascii() or raw.decode()
    except UnicodeDecodeError:
        return True
    # a run of so many digits has one at every place that is a multiple of its length: most texts need no more than that
    return not _DIGITS.isdisjoint(raw[SHORT - 1 :: SHORT]) and _LONG_RUN in raw.translate(_SHAPE)


def _message(wire: Wire, limits: Limits) -> Single | None:
    """A plain shape as its message, or None where something about it needs words."""
    method = wire.method
    if method is not UNSET:
        if len(method) > limits.method_length:
            return None
        params = wire.params
        if params is not UNSET and memoryview(params)[0] not in b"[{":
            return None
        id = wire.id
        if id is UNSET:
            return Notification(method, params)
        if type(id) is str and len(id) > limits.id_length:
            return None
        return Request(method, params, id)
    id = wire.id
    if id is UNSET:
        return None
    if wire.error is UNSET:
        return None if wire.result is UNSET else Result(wire.result, id)
    if wire.result is not UNSET:
        return None
    return Failure(ErrorObject(wire.error.code, wire.error.message, wire.error.data), id)


def first_byte(raw: Raw) -> int:
    """The first byte of a JSON value."""
    return memoryview(raw)[0]


def unholdable(raw: bytes | Raw) -> str | None:
    """Words for the first number in this JSON text that no double holds, or None."""
    text = bytes(raw)
    shape = text.translate(_SHAPE, b"+")
    if b"0e000" not in shape and _LONG_RUN not in shape:
        return None
    for token in _TOKENS.finditer(text):
        number = token[0]
        if number[0] != ord('"') and math.isinf(_float(number)):
            shown = number.decode() if len(number) <= 40 else f"{number[:37].decode()}..."
            return f"Parse error: the number {shown} is beyond what a double holds"
    return None


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:  # no number at all, which the decoder says better
        return 0.0


# -- the slow way ---------------------------------------------------------------------------------


def _slow(raw: bytes, limits: Limits, lenient: Leniency) -> Message:
    try:
        return _looked_at(raw, limits, lenient)
    except RecursionError:  # a text may fit one decoder's depth and not the next one's
        return Malformed("parse", "Parse error: the text is nested too deep")


def _looked_at(raw: bytes, limits: Limits, lenient: Leniency) -> Message:
    if (fault := _no_json(raw)) is not None:
        return _unreadable(raw, f"Parse error: {fault}")
    if (fault := unholdable(raw)) is not None:
        return _unreadable(raw, fault)
    if raw.lstrip(_SPACE)[:1] != b"[":
        return _element(raw, limits, lenient)
    elements = _elements(raw)
    if not elements:
        return Malformed("invalid", "Invalid Request: an empty array is no batch")
    if len(elements) > limits.batch_length:
        return _too_large("batch_length", limits.batch_length, len(elements), "elements")
    try:
        shapes = [None if wire.id == 0 and b"-0" in raw else _message(wire, limits) for wire in plain_batch(raw)]
    except msgspec.DecodeError:
        shapes = [None] * len(elements)
    return Batch(
        tuple(message or _element(element, limits, lenient) for message, element in zip(shapes, elements, strict=True))
    )


def _unreadable(raw: bytes, reason: str) -> Malformed:
    """What holds a value that cannot be read; of what looks like a response, with the call that it would answer."""
    try:
        loose = _loose(raw)
        if loose.method is UNSET and loose.id is not UNSET and (loose.result is not UNSET or loose.error is not UNSET):
            return Malformed("parse", reason, spoils=_id(loose.id, "2.0")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return Malformed("parse", reason)


def _no_json(raw: bytes) -> str | None:
    """Why this is no JSON text, or None."""
    if raw.startswith(b"\xef\xbb\xbf"):
        return "the text begins with a byte-order mark; JSON must not (RFC 8259, section 8.1)"
    try:
        raw.decode()
        _anything(raw)
    except UnicodeDecodeError as error:
        return f"byte {error.start} is not UTF-8"
    except RecursionError:
        return "the text is nested too deep"
    except msgspec.ValidationError as error:
        return f"a number is beyond what a double holds ({error})"
    except msgspec.DecodeError as error:
        return str(error)
    return None


def _too_large(limit: str, allowed: int, received: int, unit: str, *, id: Any = NULL) -> Malformed:
    refusal = too_large(limit, allowed, received, unit)
    return Malformed("too_large", refusal.reason, id, refusal=refusal)


def _element(raw: bytes | Raw, limits: Limits, lenient: Leniency) -> Single:
    """One element of a batch, or a whole message that is no array."""
    kind = _KINDS[bytes(raw).lstrip(_SPACE)[0]]
    if kind != "an object":
        return Malformed("invalid", f"Invalid Request: a request is an object, this is {kind}")
    loose = _loose(raw)
    version: Version = "2.0"
    if loose.jsonrpc is UNSET and lenient.accept_v1:
        version = "1.0"
    if loose.method is UNSET and (loose.result is not UNSET or loose.error is not UNSET):
        return _response(loose, version, lenient)
    return _request(loose, version, limits, lenient)


def _request(loose: _Loose, version: Version, limits: Limits, lenient: Leniency) -> Single:
    id, fault = _id(loose.id, version)

    def invalid(reason: str) -> Malformed:
        return Malformed("invalid", f"Invalid Request: {reason}", NULL if id is UNSET else id, version=version)

    if fault is not None:
        return invalid(fault)
    if isinstance(id, str) and len(id) > limits.id_length:
        return _too_large("id_length", limits.id_length, len(id), "characters")
    if isinstance(id, Raw) and len(id) > limits.id_length:
        return _too_large("id_length", limits.id_length, len(id), "characters")
    if version == "2.0" and (fault := _jsonrpc_fault(loose.jsonrpc)) is not None:
        return invalid(fault)
    if loose.method is UNSET:
        return invalid("`method` is missing")
    if first_byte(loose.method) != ord('"'):
        return invalid(f"`method` must be a string, not {_KINDS[first_byte(loose.method)]}")
    method = _text(loose.method)
    if len(method) > limits.method_length:
        return _too_large(
            "method_length", limits.method_length, len(method), "characters", id=NULL if id is UNSET else id
        )
    if loose.params is not UNSET:
        kind = _KINDS[first_byte(loose.params)]
        if version == "1.0" and kind != "an array":
            return invalid(f"`params` of JSON-RPC 1.0 must be an array, not {kind}")
        if kind not in ("an array", "an object"):
            return invalid(f"`params` must be an array or an object, not {kind}")
    silent = version == "1.0" or lenient.null_id == "notification"
    if id is UNSET or (silent and isinstance(id, Raw) and bytes(id) == b"null"):
        return Notification(method, loose.params, version)
    return Request(method, loose.params, id, version)


def _jsonrpc_fault(jsonrpc: Raw | UnsetType) -> str | None:
    if jsonrpc is UNSET:
        return '`jsonrpc` is missing; it must be "2.0"'
    if first_byte(jsonrpc) == ord('"') and _text(jsonrpc) == "2.0":
        return None
    return f'`jsonrpc` must be "2.0", not {bytes(jsonrpc)[:40].decode(errors="replace")}'


def _id(raw: Raw | UnsetType, version: Version) -> tuple[Any, str | None]:
    """The id (UNSET where there is none) and what is wrong with it."""
    if raw is UNSET:
        return UNSET, None
    first = first_byte(raw)
    if first == ord('"'):
        return _text(raw), None
    if first in b"-0123456789":
        text = bytes(raw)
        return (int(text) if text.isdigit() and len(text) < 400 else Raw(text)), None
    if first == ord("n") or version == "1.0":
        return Raw(bytes(raw)), None
    return UNSET, f"`id` must be a string, a number or null, not {_KINDS[first]}"


def _response(loose: _Loose, version: Version, lenient: Leniency) -> Single:
    id, fault = _id(loose.id, version)

    def senseless(reason: str) -> Malformed:
        return Malformed(
            "invalid", f"Invalid response: {reason}", NULL if id is UNSET else id, answerable=False, version=version
        )

    if fault is not None:
        return senseless(fault)
    if version == "2.0" and (fault := _jsonrpc_fault(loose.jsonrpc)) is not None:
        return senseless(fault)
    failed = loose.error is not UNSET and (version == "2.0" or bytes(loose.error) != b"null")
    if id is UNSET and not failed:
        return senseless("`id` is missing")
    if version == "1.0":
        if not failed:
            return senseless("`result` is missing") if loose.result is UNSET else Result(loose.result, id, version)
    elif loose.error is UNSET:
        return Result(loose.result, id)
    elif loose.result is not UNSET:
        return senseless("it has both `result` and `error`; exactly one must be there")
    assert loose.error is not UNSET  # that is what failed means, and else there was a result
    error = _error_object(loose.error, version, lenient)
    return senseless(error) if isinstance(error, str) else Failure(error, NULL if id is UNSET else id, version)


def _error_object(raw: Raw, version: Version, lenient: Leniency) -> ErrorObject | str:
    """The error object, or what is wrong with it."""
    kind = _KINDS[first_byte(raw)]
    if kind != "an object":
        if version == "1.0":  # any value may stand there
            return ErrorObject(-32000, _text(raw) if kind == "a string" else "Server error", raw)
        return f"`error` must be an object, not {kind}"
    try:
        error = _loose_error(raw)
    except msgspec.ValidationError as fault:
        return f"`error`: {fault}"
    code: int | float | str | UnsetType = error.code
    name: str | None = None
    if isinstance(code, str) and lenient.string_codes:
        name = code
        code = STRING_CODES.get(name, -32000)
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if not isinstance(code, int):
        if version == "1.0":
            return ErrorObject(-32000, error.message or "Server error", raw)
        return "`error.code` is missing" if code is UNSET else f"`error.code` must be an integer, not {code!r}"
    if error.message is UNSET:
        if version == "1.0":
            return ErrorObject(code, "Server error", error.data, name)
        return "`error.message` is missing"
    return ErrorObject(code, error.message, error.data, name)


# -- out ------------------------------------------------------------------------------------------


class Call(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A request as it is written; without `id` a notification."""

    method: str
    params: Any = UNSET
    id: Any = UNSET


class Answer(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A result as it is written."""

    result: Any
    id: Any


class _ErrorOut(Struct, gc=False):
    code: int
    message: str
    data: Any = UNSET


class ErrorAnswer(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A failure as it is written."""

    error: Any
    id: Any


_encode = msgspec.json.Encoder().encode


def encode(message: Message) -> bytes:
    """The JSON text of a message, in the form of its version.

    Raises LocalError for what JSON cannot hold, and for a `Malformed`, which is nothing to send
    (`failure` makes its answer).
    """
    if isinstance(message, Batch):
        return join(encode(element) for element in message.messages)
    if not isinstance(message, Request | Notification | Result | Failure):
        raise LocalError(
            f"{type(message).__name__} is not a message to send; failure(id, error) answers what was malformed"
        )
    try:
        return _encode(_shape(message))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise LocalError(f"this cannot be written as JSON: {error}") from error


def _shape(message: Request | Notification | Result | Failure) -> Any:
    old = message.version == "1.0"
    match message:
        case Request(method, params, id):
            return {"method": method, "params": _listed(params), "id": id} if old else Call(method, params, id)
        case Notification(method, params):
            return {"method": method, "params": _listed(params), "id": None} if old else Call(method, params)
        case Result(result, id):
            return {"result": result, "error": None, "id": id} if old else Answer(result, id)
        case _:
            error = message.error
            inner = _ErrorOut(error.code, error.message, error.data)
            return {"result": None, "error": inner, "id": message.id} if old else ErrorAnswer(inner, message.id)


def _listed(params: Any) -> Any:
    if isinstance(params, dict):
        raise LocalError("JSON-RPC 1.0 knows only positional params: give a list")
    return [] if params is UNSET else params


def result(id: Any, value: Any, version: Version = "2.0") -> bytes:
    """The answer to a request that went well. `value`: any JSON value, or Raw."""
    return _encode(Answer(value, id)) if version == "2.0" else encode(Result(value, id, version))


def failure(id: Any, error: RpcError, version: Version = "2.0") -> bytes:
    """The answer to a request that went wrong. Raises LocalError when `error.data` is nothing for JSON."""
    return encode(Failure(ErrorObject(error.code, error.message, error.data), id, version))


def join(answers: Iterable[bytes]) -> bytes:
    """Encoded messages as one batch."""
    return b"[" + b",".join(answers) + b"]"


def key(id: Any) -> Any:
    """A hashable value that is equal for equal ids: keyed by type and value, so 1 is not "1" but is 1.0."""
    if isinstance(id, Raw):
        try:
            value = _anything(id)
        except msgspec.DecodeError:
            return bytes(id)
        return value if isinstance(value, str | int | float) and not isinstance(value, bool) else (bytes(id),)
    return id
