"""Adapters that need no pydantic: for unions whose members msgspec cannot distinguish, for classes with fields that
adapters decode, and for predicates.

Rules:

- Every member of a union is tried: `str` last, since any text fits it. Of the members that fit and have fields, the one
  that has most of the given names is taken; of several such, the first.
- An instance is made by calling its class, as the user's own code would do.
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
    """A member of a union. `names`: those of its fields in JSON; None if it has no fields."""

    decode: Callable[[Any], Any]
    names: frozenset[str] | None


def choice(parts: Sequence[Node]) -> Any:
    """Return the marker of a union whose members are tried one by one."""
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
    """Return the marker of a union in a result, which is described but never decoded."""

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
    """Return one message for the faults of all members: one that lists all expected types, or else the first that says
    something else than which type it expected."""
    matches = [re.fullmatch(_EXPECTED, error) for error in errors]
    kinds = [match[1] for match in matches if match]
    if len(kinds) == len(errors) and (got := matches[0]):
        return f"Expected `{' | '.join(dict.fromkeys(kinds))}`, got {got[2]}"
    return next(error for error, match in zip(errors, matches, strict=True) if match is None)


def whole(node: Node) -> Any:
    """Return the marker of a node whose twin is decoded first, to check the constraints."""
    return marker(Adapter(decoder(node), lambda refs, result: _one(node.shown, refs, result)))


def _one(hint: Any, refs: str, result: bool) -> Described:
    (schema,), components = schemas([hint], refs=refs, result=result)
    return schema, components


def built(hint: Any, fields: Sequence[Field], twin: Any, shown: Any) -> Any:
    """Return the marker of a class whose instances are made from those of its twin, a Struct with fields `f0`, `f1`,
    ...

    `hint`: the class, or an alias of it with type arguments; `shown`: the type of which the JSON Schema is made."""
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
    """Return the marker of a node whose values must satisfy a predicate. `words`: follow "Does not satisfy" in the
    message of one that does not."""
    decode = decoder(node)

    def read(raw: bytes) -> Any:
        value = decode(raw)
        if not predicate(value):
            raise ValueError(f"Does not satisfy {words}")
        return value

    return marker(Adapter(read, lambda refs, result: _one(node.shown, refs, result)))
