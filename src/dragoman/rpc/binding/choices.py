"""Adapters of our own: unions whose members msgspec cannot tell apart, classes with fields that adapters decode,
and predicates.

Rules:

- Of a union every member is tried: text (`str`) last, since it fits all text. Among members that fit and
  have fields, the one that knows most of the given names is taken, then the first.
- A class is made by its constructor, as the user's own code would make it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, ValidationError

from .adapters import Adapter, Described, marker
from .hooks import decoder, schemas
from .tree import Field, Node, attributes_of

_EXPECTED = r"Expected `([^`]*)`, got (`[^`]*`)"


class _Member(Struct, frozen=True):
    """A member of a union. `names`: those of its fields; None for what has none."""

    decode: Callable[[Any], Any]
    names: frozenset[str] | None


def choice(parts: Sequence[Node]) -> Any:
    """The marker of a union that tries its members."""
    ordered = sorted(parts, key=lambda part: part.cls is str)
    members = [_Member(decoder(part), _names(part)) for part in ordered]
    ranked = sum(member.names is not None for member in members) > 1

    def read(raw: bytes) -> Any:
        errors: list[str] = []
        best, most = UNSET, -1
        given = _given(raw) if ranked else frozenset()
        for member in members:
            try:
                value = member.decode(raw)
            except ValidationError as error:
                errors.append(str(error))
                continue
            if not ranked:
                return value
            known = len(given & member.names) if member.names is not None else 0
            if known > most:
                best, most = value, known
        if best is UNSET:
            raise ValueError(_one_message(errors))
        return best

    return marker(Adapter(read, _schema_of(parts)))


def _schema_of(parts: Sequence[Node]) -> Callable[[str, bool], Described]:
    def schema(refs: str, result: bool) -> Described:
        found, components = schemas([part.shown for part in parts], refs=refs, result=result)
        return {"anyOf": found}, components

    return schema


def outgoing(parts: Sequence[Node]) -> Any:
    """The marker of a union in a result, which is described and never decoded."""

    def read(raw: bytes) -> Any:
        raise TypeError("this union is of results alone")

    return marker(Adapter(read, _schema_of(parts)))


def _names(part: Node) -> frozenset[str] | None:
    if part.kind == "fields" and not part.shape.array:
        return frozenset(one.name for one in part.shape.parts)
    if part.kind == "model" and part.cls is not None:
        return frozenset(field.alias or name for name, field in part.cls.model_fields.items())
    return None


def _given(raw: bytes) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(raw, type=dict[str, Raw]))
    except ValidationError:
        return frozenset()


def _one_message(errors: list[str]) -> str:
    """One message of those of all members."""
    matches = [re.fullmatch(_EXPECTED, error) for error in errors]
    kinds = [match[1] for match in matches if match]
    if len(kinds) == len(errors) and (got := matches[0]):
        return f"Expected `{' | '.join(dict.fromkeys(kinds))}`, got {got[2]}"
    return next(error for error, match in zip(errors, matches, strict=True) if match is None)


def whole(node: Node) -> Any:
    """The marker of a node whose constraints are checked before it is decoded."""
    return marker(Adapter(decoder(node), lambda refs, result: _one(node.shown, refs, result)))


def _one(hint: Any, refs: str, result: bool) -> Described:
    (schema,), components = schemas([hint], refs=refs, result=result)
    return schema, components


def built(hint: Any, fields: Sequence[Field], twin: Any, shown: Any) -> Any:
    """The marker of a class whose values are made of those of its twin, a Struct with fields `f0`, `f1`, ..."""
    cls = get_origin(hint) or hint
    decode = decoder(Node("leaf", twin, twin, twin))
    attrs = hasattr(cls, "__attrs_attrs__")
    fixed = {one.name for one in attributes_of(cls) if not one.init}
    names = [
        (f"f{index}", field.attribute.lstrip("_") if attrs else field.attribute)
        for index, field in enumerate(fields)
        if field.attribute not in fixed
    ]
    optional = {f"f{index}" for index, field in enumerate(fields) if not field.required}

    def read(raw: bytes) -> Any:
        value = decode(raw)
        given = {name: getattr(value, at) for at, name in names}
        for at, name in names:
            if at in optional and given[name] is UNSET:
                del given[name]
        return cls(**given)

    return marker(Adapter(read, lambda refs, result: _one(shown, refs, result)))


def checked(node: Node, predicate: Callable[[Any], Any], words: str) -> Any:
    """The marker of a node whose values must satisfy a predicate."""
    decode = decoder(node)

    def read(raw: bytes) -> Any:
        value = decode(raw)
        if not predicate(value):
            raise ValueError(f"Does not satisfy {words}")
        return value

    return marker(Adapter(read, lambda refs, result: _one(node.shown, refs, result)))
