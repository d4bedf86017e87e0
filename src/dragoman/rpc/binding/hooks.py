"""msgspec's hooks for types it does not know: decodes, encodes and describes pydantic models and what has an adapter.

Rules: pydantic is never imported here; a model does its own work, in its JSON mode, and its names in
JSON are its aliases both ways. Whatever else msgspec does not know cannot be put into JSON.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from types import CoroutineType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Raw

from .adapters import adapter_of, is_text
from .by_pydantic import is_foreign, written_by
from .tree import UNION, Node, is_model


def decode_hook(cls: Any, value: Any) -> Any:
    """msgspec's `dec_hook`: models by pydantic, in its JSON mode, and others by their adapters."""
    return reader(cls)(msgspec.json.encode(value))


def reader(cls: Any) -> Callable[[bytes], Any]:
    """What decodes JSON text to a class that msgspec does not know. NotImplementedError if nothing does."""
    if is_model(cls):
        read: Callable[[bytes], Any] = cls.__pydantic_validator__.validate_json
        return read
    if (adapter := adapter_of(cls)) is None:
        raise NotImplementedError
    return adapter.read


def encode_hook(value: Any) -> Any:
    """msgspec's `enc_hook`: models by pydantic, with the names their JSON has; a path is its text."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    serializer = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is not None:
        return Raw(serializer.to_json(value, by_alias=True))
    if is_foreign(type(value)):
        kind: Any = type(value)
        return Raw(written_by(kind)(value))
    if is_text(type(value)):
        return str(value)
    if isinstance(value, CoroutineType):
        value.close()
        raise TypeError("the method returned a coroutine that was not awaited: make it `async def`")
    raise TypeError(f"{type(value).__qualname__} cannot be put into JSON")


_PLAIN: dict[Any, Callable[[Any], Any]] = {kind: msgspec.json.Decoder(kind).decode for kind in (str, int, float, bool)}


def decoder(tree: Node) -> Callable[[Any], Any]:
    """JSON text to a value of a compiled annotation. Raises what msgspec raises."""
    if tree.type in (str, int, float, bool):
        return _PLAIN[tree.type]
    return decoder_of(tree.type, tree.check if tree.twinned else None)


def decoder_of(type: Any, check: Any = None) -> Callable[[Any], Any]:
    """JSON text to a value of a type; where `check` is given, it must fit that first."""
    decode = msgspec.json.Decoder(type, dec_hook=decode_hook).decode
    if check is None:
        return decode
    first = msgspec.json.Decoder(check, dec_hook=decode_hook).decode

    def checked(text: Any) -> Any:
        first(text)
        return decode(text)

    return checked


# -- JSON Schema ----------------------------------------------------------------------------------

_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schemas(hints: Iterable[Any], *, refs: str, result: bool = False) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """JSON Schemas (2020-12) and the components they refer to; `refs` is like "#/$defs/{name}".

    `result`: they describe what goes out, where pydantic's schemas differ.
    """
    hints = list(hints)
    if all(isinstance(hint, type) and hint in _TYPES for hint in hints):
        return [{"type": _TYPES[hint]} for hint in hints], {}
    found, components, models = _generate(hints, refs, result, False)
    if any(
        components.get(name, part) != part for name, part in models.items()
    ):  # two classes of one name: the models take their module's name too
        found, components, models = _generate(hints, refs, result, True)
    return found, components | models


def _generate(
    hints: list[Any], refs: str, result: bool, long: bool
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    models: dict[str, Any] = {}

    def hook(cls: Any) -> dict[str, Any]:
        adapter = adapter_of(cls)
        if adapter is None and not is_model(cls):
            raise NotImplementedError
        describe = functools.partial(_model_schema, cls) if adapter is None else adapter.schema
        own = "pydantic." if adapter is not None else f"{cls.__module__}."
        schema, parts = describe(refs, result, own if long else "")
        if any(models.get(name, part) != part for name, part in parts.items()):
            schema, parts = describe(refs, result, own)
        models.update(parts)
        return schema

    try:
        found, components = msgspec.json.schema_components(hints, schema_hook=hook, ref_template=refs)
    except (TypeError, NotImplementedError):
        if len(hints) == 1:
            return _union(hints[0], refs, result, long)
        parts = [_generate([hint], refs, result, long) for hint in hints]
        components = {name: schema for part in parts for name, schema in part[1].items()}
        return [part[0][0] for part in parts], components, {n: s for part in parts for n, s in part[2].items()}
    return list(found), components, models


def _union(
    hint: Any, refs: str, result: bool, long: bool
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """For what msgspec encodes but could not decode: the members of a union one by one, else anything."""
    if get_origin(hint) not in UNION:
        return [{}], {}, {}
    members, components, models = _generate(list(get_args(hint)), refs, result, long)
    return [{"anyOf": members}], components, models


def _model_schema(cls: Any, refs: str, result: bool, prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    mode = "serialization" if result else "validation"
    schema: dict[str, Any] = cls.model_json_schema(ref_template=refs.replace("{name}", prefix + "{model}"), mode=mode)
    return schema, {prefix + name: part for name, part in schema.pop("$defs", {}).items()}
