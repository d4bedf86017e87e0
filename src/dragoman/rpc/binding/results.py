"""Encodes results and calls as JSON text, and decodes the results that a far end answers with.

Rules: what is sent is encoded once, pydantic's models by pydantic. A received result is decoded directly to the
requested type; if it does not fit, every fault is reported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...jsonrpc.codec import CallMessage, ResultMessage, opening
from ...jsonrpc.errors import BadAnswer, LocalError
from ...jsonrpc.limits import Limits
from ...jsonrpc.scanner import too_deep
from .annotations import ANY, translate
from .faults import ValueFault, find, has_fractions, integral, words
from .hooks import decoder, encode_hook
from .projection import projection
from .tree import Node, is_model

write: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=encode_hook).encode
"""Returns a value as JSON text; non-finite floats become null. Raises TypeError, RecursionError or UnicodeEncodeError
(lone surrogates) for a value that has none: the service then answers -32603. It is msgspec's own function, with none
around it, since every call uses it."""


def writer(name: str, tree: Node) -> Callable[[Any], bytes]:
    """Return the function that encodes answers whose result is declared by `tree`: it checks the result, and writes
    only what is declared of it.

    Scalars are not checked, since a function around `write` takes a tenth of the time of the shortest call; nor is a
    result that is `Raw`. The function raises LocalError, which names `name`, for a result that is not what is declared.
    """
    project, check = projection(tree), None if _is_scalar(tree) else result_check(tree)
    if project is None and check is None:
        return write

    def write_declared(envelope: Any) -> bytes:
        plain = type(envelope) is not ResultMessage
        value = envelope["result"] if plain else envelope.result
        if type(value) is Raw:
            return write(envelope)
        result = value if project is None else project(value)
        if check is not None:
            result = Raw(write(result))
            if (wrong := check(result)) and (wrong := [one for one in wrong if not _is_written_null(one)]):
                raise LocalError(f"{name} returned what it does not declare: {_listed(wrong)}")
        return write(envelope | {"result": result} if plain else ResultMessage(result, envelope.id))

    return write_declared


def _is_scalar(tree: Node) -> bool:
    """Return whether a tree declares nothing about the content of arrays and objects: so scalars, and also plain `dict`
    and `list`."""
    return tree.kind == "leaf" or (tree.kind == "union" and all(map(_is_scalar, tree.parts)))


def _is_written_null(fault: ValueFault) -> bool:
    """Return whether a fault is null where a number is declared: that is how a non-finite float is written."""
    expected, _, got = fault.message.partition(", got ")
    return got == "null" and "a number" in expected


def result_check(tree: Node) -> Callable[[bytes], list[ValueFault]] | None:
    """Return the function that finds the faults of a result's JSON text; None if JSON cannot be decoded to what is
    declared, such as a union of classes without tags."""
    try:
        decode = msgspec.json.Decoder(tree.check, dec_hook=_check_model).decode
    except (TypeError, ValueError):
        return None

    def faults(text: bytes) -> list[ValueFault]:
        try:
            decode(text)
        except msgspec.ValidationError:
            value = msgspec.json.decode(text)
            if has_fractions(text):  # 1.0 is an integer to JSON Schema
                value = integral(value, tree)
            return find(value, tree, "result")
        return []

    return faults


def _check_model(kind: Any, value: Any) -> Any:
    """msgspec's `dec_hook` for checking results: return an empty instance of a class that msgspec does not know. A
    pydantic model checked its fields when it was made; so it is only checked here that a dict sent instead has the
    required ones. Raises TypeError or ValueError if it does not."""
    if is_model(kind) and (needed := _needed(kind)) is not None:
        if not isinstance(value, dict):
            raise TypeError(f"Expected `object`, got `{type(value).__name__}`")
        if missing := [name for name in needed if name not in value]:
            raise ValueError(f"Object missing required field `{missing[0]}`")
    return kind.__new__(kind)


@functools.lru_cache(1024)
def _needed(kind: Any) -> tuple[str, ...] | None:
    """Return the names that each JSON object of a pydantic model has; None if the model is written as something
    else."""
    if getattr(kind, "__pydantic_root_model__", False) or kind.__pydantic_decorators__.model_serializers:
        return None
    fields = kind.model_fields.items()
    return tuple(f.serialization_alias or f.alias or name for name, f in fields if f.is_required() and not f.exclude)


def to_json(value: Any) -> bytes:
    """Return a value as JSON text. Raises LocalError for a value that has none."""
    try:
        return write(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalError(f"this cannot be put into JSON: {error}") from error


_STRUCTURES: Final = (list, dict, tuple, UnsetType)
"""Types of params that are arrays or objects in any case; the JSON text of other params must be checked to be one."""


def encode_call(method: str, params: Any, id: Any, *, v1: bool, limits: Limits) -> bytes:
    """Return the text of a call, or of a notification if `id` is UNSET. `v1`: in JSON-RPC 1.0.

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
        raw = to_json(CallMessage(method, params, id))
    size = len(raw)
    if size > limits.response_size:
        raise LocalError(f"{method}: the message has {size} bytes, response_size allows {limits.response_size}")
    if size > 2 * limits.depth and too_deep(raw, limits.depth):
        raise LocalError(f"{method}: the message is nested too deep: depth allows {limits.depth} levels")
    return raw


def result_decoder(kind: Any) -> Callable[[Raw | bytes], Any]:
    """Return the function that decodes a far end's result to `kind`; it raises BadAnswer, which lists the first faults,
    for a result that does not fit. The functions of the last 1024 types are cached.

    Raises LocalError for a type to which JSON cannot be decoded.
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
        except Exception as error:  # a bad answer of the far end must not look like an error in this program
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
        raise BadAnswer(f"the result does not fit: {_listed(found) or words(str(first))[0]}") from first

    return decode


def _listed(found: list[ValueFault]) -> str:
    """Return the first five faults in one line, and how many more there are."""
    more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
    return "; ".join(f"{fault.field}: {fault.message}" for fault in found[:5]) + more
