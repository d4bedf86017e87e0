"""Reads nulls as absent members, from peers whose JSON library writes every member.

In every schema optional members are absent or have a value, but many servers write `"nextCursor": null`,
`"title": null`. A result that does not fit is decoded once more without such nulls; where null is a value (in
`_meta`, schemas, structured content) it stays. Params of a request are read in this way if `Leniency.null_params` says
so.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, structs
from msgspec import inspect as types

from .encoding import decode as strictly

T = TypeVar("T")


def decode(raw: Raw, kind: type[T]) -> T:
    """Decode a result leniently. Raises what `encoding.decode` raises."""
    try:
        return strictly(raw, kind)
    except msgspec.ValidationError as error:
        if b"null" not in bytes(raw):
            raise
        first = error
    try:
        return strictly(msgspec.json.encode(_without(msgspec.json.decode(raw), types.type_info(kind))), kind)
    except msgspec.ValidationError:
        raise first from None


def without_nulls(params: Raw, kind: type[Struct]) -> Raw:
    """Return params without their optional members that are null, at any depth of Structs. Text that is no object stays
    as it is; so does the content of members that are kept as they came, such as a tool's arguments."""
    if b"null" not in bytes(params):
        return params
    try:
        members = strictly(params, dict[str, Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return params
    fields = {field.encode_name: field for field in structs.fields(kind)}
    kept: dict[str, Any] = {}
    for name, value in members.items():
        field = fields.get(name)
        if field is None or b"null" not in bytes(value):
            kept[name] = value
        elif bytes(value) != b"null":
            kept[name] = _member_without_nulls(value, types.type_info(field.type))
        elif field.required:
            kept[name] = value
    return Raw(msgspec.json.encode(kept))


def _member_without_nulls(value: Raw, kind: types.Type) -> Any:
    """Return a member of params without the nulls in it; one that is kept as it came, unchanged."""
    if isinstance(kind, types.RawType) or (
        isinstance(kind, types.UnionType) and any(isinstance(one, types.RawType) for one in kind.types)
    ):
        return value
    try:
        return _without(msgspec.json.decode(value), kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return value


def _without(value: Any, kind: types.Type) -> Any:
    """Return the value without its optional members that are null."""
    if isinstance(kind, types.Metadata):
        return _without(value, kind.type)
    if isinstance(kind, types.UnionType):
        arms = [one for one in kind.types if _may_be(value, one)]
        return _without(value, arms[0]) if len(arms) == 1 else value
    if isinstance(kind, types.ListType) and isinstance(value, list):
        return [_without(one, kind.item_type) for one in value]
    if isinstance(kind, types.DictType) and isinstance(value, dict):
        return {name: _without(one, kind.value_type) for name, one in value.items()}
    if isinstance(kind, types.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field for field in kind.fields}
        return {
            name: _without(one, fields[name].type) if name in fields else one
            for name, one in value.items()
            if one is not None or name not in fields or fields[name].required or _takes_null(fields[name].type)
        }
    return value


def _may_be(value: Any, kind: types.Type) -> bool:
    if isinstance(kind, types.Metadata):
        return _may_be(value, kind.type)
    if isinstance(kind, types.StructType):
        tagged = kind.tag_field is not None
        return isinstance(value, dict) and (not tagged or value.get(kind.tag_field) == kind.tag)
    return isinstance(kind, types.ListType | types.DictType) and isinstance(
        value, list if isinstance(kind, types.ListType) else dict
    )


def _takes_null(kind: types.Type) -> bool:
    if isinstance(kind, types.Metadata):
        return _takes_null(kind.type)
    if isinstance(kind, types.UnionType):
        return any(_takes_null(one) for one in kind.types)
    return isinstance(kind, types.AnyType | types.NoneType | types.RawType)
