"""Bytes to messages and back. `decode` is total: bad input is a `Malformed` value, never an exception.

The usual shape of a 2.0 message is decoded in one step into `PlainMessage`, which forbids members that the
specification does not name. Everything else (other members, unusual ids, batches with a bad element, 1.0,
faults) is decoded slowly, member by member, to describe its faults.

Rules beyond the specification's text: text is strict UTF-8 without a byte-order mark; a number
that no double holds is refused as JSON (RFC 8259, section 6, lets an implementation set that limit); of two
members with one name the last counts; an object with a `method` is a request or notification,
with any other members; an object with `result` or `error` and no `method` is a response.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from .condensed import LONG, condensed
from .dropped import overlong
from .errors import STRING_CODES, LocalError, Refusal, RpcError, too_large
from .leniency import STRICT, Leniency
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
from .scanner import HOLDABLE, SPACE, TOO_DEEP, elements_of, harmless, json_fault, odd, split, too_deep, unholdable


class _Error(Struct, forbid_unknown_fields=True, gc=False):
    code: int
    message: str
    data: Raw | UnsetType = UNSET


@final
class PlainMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A 2.0 message in its usual shape; ids that Python would change (1.0, null) are excluded."""

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


_anything = msgspec.json.Decoder().decode
plain: Callable[[bytes | str], PlainMessage] = msgspec.json.Decoder(PlainMessage).decode
plain_batch: Callable[[bytes | str], list[PlainMessage]] = msgspec.json.Decoder(list[PlainMessage]).decode
_loose = msgspec.json.Decoder(_Loose).decode
_loose_error = msgspec.json.Decoder(_LooseError).decode
_text = msgspec.json.Decoder(str).decode
opening: Callable[[Raw], tuple[int]] = struct.Struct("B").unpack_from
"""Unpacks the first byte of a JSON value, in a tuple of one. It is read of each message, and a memoryview costs twice
as much."""

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
    """Return the message in `raw`. Bytes that are not a message are a `Malformed`, and so is such an element of a
    batch. Raises LocalError for a `str`, and nothing else.

    Of `limits` it uses batch_length, id_length and method_length; the wire checks the size of the whole
    message. Ids are int, str, or Raw where Python would change them (1.0, 1e2, null).
    """
    message = read(raw, limits, lenient)
    if type(message) is not Malformed and unholdable(raw) is not None:
        return _slow(raw, limits, lenient)
    return replace(message, condensed=None) if type(message) is Request and message.condensed is not None else message


def read(raw: bytes, limits: Limits, lenient: Leniency, shape: PlainMessage | None = None) -> Message:
    """Decode a message as `decode` does, but numbers with exponents are not checked, because the decoder of a method's
    params refuses them, and a `Request` may have its long params `condensed`. `shape`: what `plain` has
    decoded `raw` to, if the caller has called it."""
    size = len(raw)
    if size > LONG and (message := _long(raw, limits)) is not None:
        return message
    try:
        shape = shape or plain(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _slow(raw, limits, lenient)
    if ((size > HOLDABLE or size > 2 * limits.depth or not raw.isascii()) and odd(raw, limits.depth)) or (
        shape.id == 0 and b"-0" in raw
    ):
        return _slow(raw, limits, lenient)
    return _message(shape, limits) or _slow(raw, limits, lenient)


def _message(shape: PlainMessage, limits: Limits) -> Single | None:
    """The message for a `PlainMessage`, or None if it needs the slow way."""
    method = shape.method
    if method is not UNSET:
        if len(method) > limits.method_length:
            return None
        params = shape.params
        if params is not UNSET and opening(params)[0] not in b"[{":
            return None
        id = shape.id
        if id is UNSET:
            return Notification(method, params)
        if type(id) is str and len(id) > limits.id_length:
            return None
        return Request(method, params, id)
    id = shape.id
    if id is UNSET:
        return None
    if shape.error is UNSET:
        return None if shape.result is UNSET else Result(shape.result, id)
    if shape.result is not UNSET:
        return None
    return Failure(ErrorObject(shape.error.code, shape.error.message, shape.error.data), id)


def _long(raw: bytes, limits: Limits) -> Single | None:
    """A long message in its usual shape, whose long strings are all in its params or in its result; None for others."""
    short = condensed(raw) if isinstance(raw, bytes) else None
    if short is None:
        return None
    try:
        shape = plain(short.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if odd(short.text, limits.depth) or (shape.id == 0 and b"-0" in short.text):
        return None
    message = _message(shape, limits)
    member = short.member(shape.result if type(message) is Result else shape.params)
    if member is None:
        return None
    if type(message) is Request:
        return Request(message.method, member.raw, message.id, condensed=member)
    if type(message) is Notification:
        return Notification(message.method, member.raw)
    return Result(member.raw, message.id) if type(message) is Result else None


def first_byte(raw: Raw) -> int:
    """The first byte of a JSON value."""
    return opening(raw)[0]


# -- the slow way ---------------------------------------------------------------------------------


def _slow(raw: bytes, limits: Limits, lenient: Leniency) -> Message:
    if isinstance(raw, str):
        raise LocalError(f"a message is bytes, not {raw!r:.60}: encode it")
    depth = limits.depth + (raw.lstrip(SPACE)[:1] == b"[")  # the array of a batch is not counted
    try:
        if len(raw) > 2 * depth and too_deep(raw, depth):
            return _too_deep(raw, limits, lenient)
        return _examine(raw, limits, lenient)
    except RecursionError:  # one decoder may accept a depth that the next one refuses
        return Malformed("parse", "Parse error: the text is nested deeper than this interpreter goes")


def _too_deep(raw: bytes, limits: Limits, lenient: Leniency) -> Malformed:
    """The `Malformed` for a text of too many levels. What seems to be a notification is left unanswered only if
    valid."""
    refused = overlong(raw, too_large("depth", limits.depth, None, "levels"))
    if refused.answerable or refused.id is not UNSET:
        return refused
    fault = json_fault(raw)
    if fault == TOO_DEEP:  # whether it is valid cannot be known
        return replace(refused, id=NULL, answerable=True)
    if fault is not None:
        return _unreadable(raw, f"Parse error: {fault}", lenient)
    message = _element(raw, limits, lenient)
    if isinstance(message, Notification) or (isinstance(message, Malformed) and not message.answerable):
        return refused
    return replace(refused, id=message.id, answerable=True)


def _examine(raw: bytes, limits: Limits, lenient: Leniency) -> Message:
    if raw.lstrip(SPACE)[:1] != b"[":
        return _fault(raw, lenient) or _element(raw, limits, lenient)
    elements = split(raw)
    if elements is None:
        return _unreadable(raw, f"Parse error: {json_fault(raw)}", lenient)
    if not elements:
        return Malformed("invalid", "Invalid Request: an empty array is not a batch")
    if len(elements) > limits.batch_length:
        return overlong(raw, too_large("batch_length", limits.batch_length, len(elements), "elements"))
    try:
        found = [None if one.id == 0 and b"-0" in raw else _message(one, limits) for one in plain_batch(raw)]
    except msgspec.DecodeError:
        found = [None] * len(elements)
    sound = json_fault(raw) is None and unholdable(raw) is None
    return Batch(
        tuple(
            (None if sound else _fault(bytes(element), lenient)) or message or _element(element, limits, lenient)
            for message, element in zip(found, elements, strict=True)
        )
    )


def _fault(raw: bytes, lenient: Leniency) -> Malformed | None:
    """The reason why a message, or an element of a batch, cannot be read as JSON, or None."""
    if (fault := json_fault(raw)) is not None:
        return _unreadable(raw, f"Parse error: {fault}", lenient)
    if (fault := unholdable(raw)) is not None:
        return _unreadable(raw, fault, lenient)
    return None


def _unreadable(raw: bytes, reason: str, lenient: Leniency) -> Malformed:
    """A message with a value that cannot be read; if it looks like a response, with the id of the call it would
    answer."""
    version: Version = "2.0"
    try:
        loose = _loose(harmless(raw))
        version = _version(loose, lenient)
        if loose.method is UNSET and loose.id is not UNSET and (loose.result is not UNSET or loose.error is not UNSET):
            return Malformed("parse", reason, version=version, spoils=_id(loose.id, version)[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        ends = overlong(raw, too_large("message_size", 0, 0))  # read by its ends alone, like a message that was dropped
        if not ends.answerable and ends.id is not UNSET:
            return Malformed("parse", reason, version=version, spoils=ends.id, batch=ends.batch)
    return Malformed("parse", reason, version=version)


def requests(raw: bytes) -> tuple[bool, list[Request]]:
    """Return whether a text is a batch, and the requests in it, as far as they can be found without checking it. It
    serves to answer a message for which our own code failed, so it shares only the decoders with `read`."""
    try:
        batched = raw.lstrip(SPACE)[:1] == b"["
        found: list[Request] = []
        for element in elements_of(raw) if batched else [Raw(raw)]:
            if bytes(element).lstrip(SPACE)[:1] != b"{":
                continue
            loose = _loose(element)
            if loose.method is not UNSET and loose.id is not UNSET and first_byte(loose.method) == ord('"'):
                found.append(Request(_text(loose.method), UNSET, _id(loose.id, "2.0")[0]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False, []
    return batched, found


def _too_large(limit: str, allowed: int, received: int, unit: str, *, id: Any = NULL) -> Malformed:
    refusal = too_large(limit, allowed, received, unit)
    return Malformed("too_large", refusal.reason, id, refusal=refusal)


def _element(raw: bytes | Raw, limits: Limits, lenient: Leniency) -> Single:
    """One element of a batch, or a message that is not an array."""
    kind = _KINDS[bytes(raw).lstrip(SPACE)[0]]
    if kind != "an object":
        return Malformed("invalid", f"Invalid Request: a request is an object, this is {kind}")
    loose = _loose(raw)
    version = _version(loose, lenient)
    if loose.method is UNSET and (loose.result is not UNSET or loose.error is not UNSET):
        return _response(loose, version, lenient)
    return _request(loose, version, limits, lenient)


def _version(loose: _Loose, lenient: Leniency) -> Version:
    """Return the version that a message is written in. Only where 1.0 is accepted can it be 1.0: if the message names
    it, or is a request or a response without `jsonrpc`."""
    if not lenient.accept_v1:
        return "2.0"
    if loose.jsonrpc is not UNSET:
        return "1.0" if bytes(loose.jsonrpc) == b'"1.0"' else "2.0"
    return "2.0" if loose.method is UNSET and loose.result is UNSET and loose.error is UNSET else "1.0"


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
        if id is UNSET:
            return invalid("`method` is missing")
        return replace(invalid("`method` is missing; as a response it lacks `result` and `error`"), spoils=id)
    if first_byte(loose.method) != ord('"'):
        return invalid(f"`method` must be a string, not {_KINDS[first_byte(loose.method)]}")
    method, params = _text(loose.method), loose.params
    if params is not UNSET and _absent(params) and (lenient.null_params or lenient.null_id == "notification"):
        params = UNSET
    if params is not UNSET:
        kind = _KINDS[first_byte(params)]
        if version == "1.0" and kind != "an array":
            return invalid(f"`params` of JSON-RPC 1.0 must be an array, not {kind}")
        if kind not in ("an array", "an object"):
            return invalid(f"`params` must be an array or an object, not {kind}")
    silent = version == "1.0" or lenient.null_id == "notification"
    is_notification = id is UNSET or (silent and isinstance(id, Raw) and _absent(id))
    if len(method) > limits.method_length:
        refused = _too_large("method_length", limits.method_length, len(method), "characters", id=id)
        return replace(refused, id=UNSET, answerable=False) if is_notification else refused
    if is_notification:
        return Notification(method, params, version)
    return Request(method, params, id, version)


def _absent(value: Raw) -> bool:
    return bytes(value) == b"null"


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
    if version == "2.0" and lenient.null_error and loose.result is not UNSET and loose.error is not UNSET:
        if _absent(loose.error):
            loose.error = UNSET
        elif _absent(loose.result):
            loose.result = UNSET
    failed = loose.error is not UNSET and (version == "2.0" or not _absent(loose.error))
    if id is UNSET and not failed:
        return senseless("`id` is missing")
    if version == "1.0":
        if not failed:
            return senseless("`result` is missing") if loose.result is UNSET else Result(loose.result, id, version)
    elif loose.error is UNSET:
        return Result(loose.result, id)
    elif loose.result is not UNSET:
        null = ", the null one must be absent" if _absent(loose.result) or _absent(loose.error) else ""
        return senseless(f"it has both `result` and `error`; exactly one must be there{null}")
    assert loose.error is not UNSET  # `failed` means that there is an error
    error = _error_object(loose.error, version, lenient)
    return senseless(error) if isinstance(error, str) else Failure(error, NULL if id is UNSET else id, version)


def _error_object(raw: Raw, version: Version, lenient: Leniency) -> ErrorObject | str:
    """The error object, or what is wrong with it."""
    kind = _KINDS[first_byte(raw)]
    if kind != "an object":
        if version == "1.0":  # 1.0 allows any value
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


class CallMessage(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A request to be encoded; without `id` a notification."""

    method: str
    params: Any = UNSET
    id: Any = UNSET


class ResultMessage(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A result to be encoded."""

    result: Any
    id: Any


class _ErrorOut(Struct, gc=False):
    code: int
    message: str
    data: Any = UNSET


class ErrorAnswer(Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A failure to be encoded."""

    error: Any
    id: Any


_encode = msgspec.json.Encoder().encode


def encode(message: Message) -> bytes:
    """The JSON text of a message, in the form of its version.

    Raises LocalError for a value that JSON cannot hold, and for a `Malformed`, which cannot be sent
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
            return {"method": method, "params": _listed(params), "id": id} if old else CallMessage(method, params, id)
        case Notification(method, params):
            return {"method": method, "params": _listed(params), "id": None} if old else CallMessage(method, params)
        case Result(result, id):
            return {"result": result, "error": None, "id": id} if old else ResultMessage(result, id)
        case _:
            error = message.error
            inner = _ErrorOut(error.code, error.message, error.data)
            return {"result": None, "error": inner, "id": message.id} if old else ErrorAnswer(inner, message.id)


def _listed(params: Any) -> Any:
    if isinstance(params, dict):
        raise LocalError("JSON-RPC 1.0 knows only positional params: give a list")
    return [] if params is UNSET else params


def result(id: Any, value: Any, version: Version = "2.0") -> bytes:
    """Return the text of the response to a request that succeeded. `value`: any JSON value, or Raw."""
    return _encode(ResultMessage(value, id)) if version == "2.0" else encode(Result(value, id, version))


def failure(id: Any, error: RpcError, version: Version = "2.0") -> bytes:
    """Return the text of the response to a request that failed. Raises LocalError when `error.data` cannot be written
    as JSON."""
    return encode(Failure(_error_member(error), id, version))


def _error_member(error: RpcError) -> ErrorObject:
    """Return an error as the member `error` of a response."""
    return ErrorObject(error.code, error.message, UNSET if error.data is None else error.data)


@final
class FailedAnswer(Struct, frozen=True, eq=False):
    """An answer that is an error: its text, and what the text says, so that nobody has to decode it."""

    text: bytes | None
    """The text as `failure` writes it; None: nothing is sent, because no answer is owed (to a notification)."""
    error: ErrorObject
    """The error in the text, or what the text would say."""
    refusal: Refusal | None = None
    """Our reason for which nothing of the call was begun; None: it was begun, or a far end refused it."""
    ended: Refusal | None = None
    """Our reason for which the call was ended while it ran; None: it ended by itself, or was not begun."""


AnyAnswer: TypeAlias = bytes | FailedAnswer | None
"""An answer on its way to a wire: the text of a result or of the answers to a batch; an error; or None when no answer
is owed."""


def failed_answer(
    id: Any,
    error: RpcError,
    version: Version = "2.0",
    *,
    refusal: Refusal | None = None,
    ended: Refusal | None = None,
) -> FailedAnswer:
    """Return the answer to a request that failed, with the text of `failure`. `refusal`, `ended`: as in FailedAnswer.
    Raises LocalError when `error.data` cannot be written as JSON."""
    inner = _error_member(error)
    return FailedAnswer(encode(Failure(inner, id, version)), inner, refusal, ended)


def unsent_failure(error: RpcError, refusal: Refusal | None) -> FailedAnswer:
    """Return the failure of a notification, or of what must not be answered, without a text: observers learn of it, and
    its caller gets nothing."""
    return FailedAnswer(None, _error_member(error), refusal)


def text_of(answer: AnyAnswer) -> bytes | None:
    """Return the text of an answer; None when no answer is owed."""
    return answer.text if type(answer) is FailedAnswer else answer


def join(answers: Iterable[bytes]) -> bytes:
    """Return encoded messages joined to a batch."""
    return b"[" + b",".join(answers) + b"]"


def key(id: Any) -> Any:
    """Return a hashable value that is equal for equal ids, compared by kind and value: that of 1 equals that of 1.0,
    and not that of "1"."""
    if isinstance(id, Raw):
        try:
            value = _anything(id)
        except msgspec.DecodeError:
            return bytes(id)
        return value if isinstance(value, str | int | float) and not isinstance(value, bool) else (bytes(id),)
    return id
