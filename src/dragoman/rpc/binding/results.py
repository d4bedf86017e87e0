"""Values as JSON text and back: what a method returned, what a far end answered.

Rules: what goes out is encoded once, with pydantic's models by pydantic; what comes in as a result is
decoded straight into the type asked for, and every fault of what does not fit is named.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ...jsonrpc.codec import Answer
from ...jsonrpc.errors import BadAnswer, LocalError
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
