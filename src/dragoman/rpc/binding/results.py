"""Values as JSON text and back: what a method returned, what is asked of a far end and what it answered.

Rules: what goes out is encoded once, with pydantic's models by pydantic; what comes in as a result is
decoded straight into the type asked for, and every fault of what does not fit is named.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...jsonrpc.codec import Answer, opening
from ...jsonrpc.codec import Call as WireCall
from ...jsonrpc.errors import BadAnswer, LocalError
from ...jsonrpc.limits import Limits
from ...jsonrpc.scanner import too_deep
from .annotations import ANY, translate
from .faults import find, has_fractions, integral, words
from .hooks import decoder, encode_hook
from .projection import Leave

write: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=encode_hook).encode
"""A value as JSON text; non-finite floats become null. Raises TypeError, RecursionError or UnicodeEncodeError
(lone surrogates) for what has none: the service answers -32603. No function around it: it is on the hot path."""


def writer(leave: Leave) -> Callable[[Any], bytes]:
    """`write` for answers whose result may hold more than its annotation declares: what `leave` lets goes out."""

    def write_declared(envelope: Any) -> bytes:
        if type(envelope) is not Answer:
            return write(envelope | {"result": leave(envelope["result"])})
        value = envelope.result
        left = leave(value)
        return write(envelope if left is value else Answer(left, envelope.id))

    return write_declared


def to_json(value: Any) -> bytes:
    """A value of ours as JSON text; LocalError for what has none."""
    try:
        return write(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalError(f"this cannot be put into JSON: {error}") from error


_STRUCTURES: Final = (list, dict, tuple, UnsetType)
"""What params may be as they are; any other value must be an array or an object once it is JSON text."""


def encode_call(method: str, params: Any, id: Any, *, v1: bool, limits: Limits) -> bytes:
    """The text of a call, or of a notification where `id` is UNSET; in JSON-RPC 1.0 where `v1` says so.

    Raises LocalError for params that are not an array or object, and for a message above a limit.
    """
    kind = type(params)
    if kind not in _STRUCTURES:
        if kind is not Raw:
            params = Raw(to_json(params))
        if not params or opening(params)[0] not in b"[{":
            raise LocalError(
                f"{method}: params are a list or a dict (JSON: an array or an object); leave them out for none"
            )
    if v1:
        if kind is dict:
            raise LocalError(f"{method}: JSON-RPC 1.0 knows only positional params: give a list")
        raw = to_json(
            {"method": method, "params": [] if params is UNSET else params, "id": None if id is UNSET else id}
        )
    else:
        raw = to_json(WireCall(method, params, id))
    size = len(raw)
    if size > limits.response_size:
        raise LocalError(f"{method}: the message has {size} bytes, response_size allows {limits.response_size}")
    if size > 2 * limits.depth and too_deep(raw, limits.depth):
        raise LocalError(f"{method}: the message is nested too deep: depth allows {limits.depth} levels")
    return raw


def result_decoder(kind: Any) -> Callable[[Raw | bytes], Any]:
    """What decodes a far end's result to `kind`: it raises BadAnswer with every fault of what does not fit.

    Raises LocalError for a type that no JSON can be decoded to. Kept for each type.
    """
    try:
        return _known_decoder(kind)
    except TypeError:  # a type with unhashable metadata
        return _known_decoder.__wrapped__(kind)


@functools.lru_cache(1024)
def _known_decoder(kind: Any) -> Callable[[Raw | bytes], Any]:
    annotation = ANY if kind is Any else translate(type(None) if kind is None else kind, f"result={kind!r}")
    try:
        quick = decoder(annotation.tree)
    except Exception as error:
        raise LocalError(f"result={kind!r}: {error}") from error

    def decode(raw: Raw | bytes) -> Any:
        try:
            return quick(raw)
        except Exception as error:  # whatever the far end sent must not look like a fault of ours
            first = error
        try:
            value = msgspec.json.decode(raw)
            if has_fractions(raw):
                value = integral(value, annotation.tree)
            try:
                return quick(msgspec.json.encode(value))
            except msgspec.ValidationError:
                found = find(value, annotation.tree, "result")
        except Exception as error:
            raise BadAnswer(f"the result cannot be read: {error}") from first
        texts = [f"{f.field}: {f.message}" for f in found[:5]] or [words(str(first))[0]]
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise BadAnswer(f"the result does not fit: {'; '.join(texts)}{more}") from first

    return decode
