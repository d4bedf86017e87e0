"""Asks msgspec about an annotation: which classes in it msgspec does not know, and whether it can decode the rest."""

from __future__ import annotations

from typing import Any, get_origin

from msgspec import Struct
from msgspec import inspect as mi

from ...jsonrpc.errors import LocalError
from .tree import reason


def leaves(hint: Any, where: str) -> tuple[list[Any], bool]:
    """Return the classes in an annotation that msgspec does not know, and whether any part stays `msgspec.Raw`. Raises
    LocalError, whose text begins with `where`, for what msgspec cannot decode."""
    try:
        root = mi.type_info(hint)
    except NameError as error:
        raise LocalError(
            f"{where}: {error.name!r} is not known where {hint} is defined; import it at module level"
        ) from error
    except Exception as error:
        raise LocalError(f"{where}: {reason(error)}") from error
    custom: list[Any] = []
    opaque, todo, known = False, [root], set()
    while todo:
        node: Any = todo.pop()
        if id(node) in known:
            continue
        known.add(id(node))
        opaque = opaque or isinstance(node, mi.RawType)
        if isinstance(node, mi.CustomType):
            custom.append(node.cls)
        if isinstance(node, mi.DictType) and isinstance(node.key_type, _NOT_KEYS):
            raise LocalError(
                f"{where}: the names of a JSON object are text, which cannot be decoded to the keys of {hint}"
            )
        if isinstance(node, mi.SetType | mi.FrozenSetType) and _is_mutable(node.item_type):
            raise LocalError(f"{where}: what can be changed cannot be an item of a set, as in {hint}; use a list")
        for part in ("type", "item_type", "key_type", "value_type"):
            if isinstance(inner := getattr(node, part, None), mi.Type):
                todo.append(inner)
        todo.extend(getattr(node, "item_types", ()))
        todo.extend(getattr(node, "types", ()))
        todo.extend(field.type for field in getattr(node, "fields", ()))
    return custom, opaque


def _is_mutable(item: Any) -> bool:
    """Return whether values of this type are mutable, so that they cannot be items of a set."""
    cls = getattr(item, "cls", None)
    cls = get_origin(cls) or cls
    config = getattr(cls, "__struct_config__", None)
    if config is not None:
        return config.eq and not config.frozen and cls.__hash__ is Struct.__hash__
    return isinstance(item, _MUTABLE) or (isinstance(cls, type) and cls.__hash__ is None)


_MUTABLE = (mi.ListType, mi.DictType, mi.SetType, mi.TypedDictType, mi.ByteArrayType)
_NOT_KEYS = (
    mi.CollectionType,
    mi.TupleType,
    mi.DictType,
    mi.StructType,
    mi.DataclassType,
    mi.TypedDictType,
    mi.NamedTupleType,
    mi.CustomType,
    mi.NoneType,
    mi.BoolType,
    mi.RawType,
)
