"""Decodes messages whose content has blocks of types that this library does not know. Pure.

A block of an unknown type becomes a `ForeignContent`, which keeps its JSON text; a block of a known type must fit. A
message without such blocks is decoded as by `encoding.decode`, at the same cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from ...jsonrpc.errors import LocalError
from . import encoding
from .foreign import ForeignContent

T = TypeVar("T")
Decode: TypeAlias = Callable[[Raw, Any], Any]
"""Decodes what has no content in it, as `encoding.decode` or `lenient.decode`."""
_Read: TypeAlias = Callable[[Raw, Decode], Any]

_NO_BLOCKS: Final = Raw(b"[]")
_ANY_BLOCK: Final = Raw(b'{"type":"text","text":""}')


class _Typed(Struct):
    type: str


def decode_content(raw: Raw, kind: type[T], otherwise: Decode = encoding.decode) -> T:
    """Return a value of `type`, with a `ForeignContent` for each block of content of an unknown type. `otherwise`:
    decodes what has no such blocks. Raises what that raises."""
    try:
        return cast(T, otherwise(raw, kind))
    except msgspec.ValidationError as error:
        first = error
    read = _reader(cast(Any, kind))
    if read is not None:
        try:
            return cast(T, read(raw, otherwise))
        except (msgspec.DecodeError, LocalError):
            pass
    raise first


def _block(raw: Raw) -> ForeignContent:
    return ForeignContent(encoding.decode(raw, _Typed).type, raw.copy())  # not the whole message that it is a part of


@cache
def _reader(hint: Any) -> _Read | None:
    """Return the function that decodes values with this annotation; None if they have no content."""
    origin = get_origin(hint)
    if hint is ForeignContent:
        return lambda raw, otherwise: _block(raw)
    if origin is Annotated:
        return _reader(hint.__origin__)
    if origin is list:
        return _list_reader(get_args(hint)[0])
    if origin is Union or origin is UnionType:
        return _union_reader(get_args(hint))
    return _struct_reader(hint) if isinstance(hint, type) and issubclass(hint, Struct) else None


def _list_reader(item: Any) -> _Read | None:
    inner = _reader(item)
    if inner is None:
        return None
    return lambda raw, otherwise: [inner(one, otherwise) for one in encoding.decode(raw, list[Raw])]


def _union_reader(hints: tuple[Any, ...]) -> _Read | None:
    if ForeignContent not in hints:
        return None
    lists = next((_reader(one) for one in hints if get_origin(one) is list), None)
    known: dict[Any, type[Struct]] = {
        one.__struct_config__.tag: one
        for one in hints
        if isinstance(one, type) and issubclass(one, Struct) and one is not ForeignContent
    }

    def read(raw: Raw, otherwise: Decode) -> Any:
        if lists is not None and bytes(raw).lstrip()[:1] == b"[":
            return lists(raw, otherwise)
        kind = known.get(encoding.decode(raw, _Typed).type)
        return _block(raw) if kind is None else decode_content(raw, kind, otherwise)

    return read


def _struct_reader(kind: type[Struct]) -> _Read | None:
    parts = {
        field.encode_name: (field.name, inner, _NO_BLOCKS if _is_list(field.type) else _ANY_BLOCK)
        for field in structs.fields(kind)
        if (inner := _reader(field.type)) is not None
    }
    if not parts:
        return None

    def read(raw: Raw, otherwise: Decode) -> Any:
        members, found = encoding.decode(raw, dict[str, Raw]), {}
        for name in parts.keys() & members.keys():
            field, inner, instead = parts[name]
            found[field] = inner(members[name], otherwise)
            members[name] = instead
        return structs.replace(otherwise(Raw(msgspec.json.encode(members)), kind), **found)

    return read


def _is_list(hint: Any) -> bool:
    return get_origin(hint.__origin__ if get_origin(hint) is Annotated else hint) is list
