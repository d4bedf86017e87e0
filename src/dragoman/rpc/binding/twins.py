"""Makes twins: Structs of the same JSON shape as one of the user's classes, with other annotations of the fields.

msgspec ignores constraints of `annotated_types` in the fields of a class, and the user's class must not be changed. A
twin has them as `msgspec.Meta`.
"""

from __future__ import annotations

import re
import weakref
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT

from .tree import Field, facts, has_fields, is_model

_TWINS: dict[tuple[str, bool], weakref.WeakKeyDictionary[Any, Any]] = {}
"""The twins by kind and `result`, one for each class, so that a schema has one component for it."""


def twin(hint: Any, kind: str, result: bool, fields: list[Field], hints: list[Any]) -> Any:
    """Return a Struct with the JSON shape of a class, whose fields (`f0`, `f1`, ...) have these annotations. `kind`:
    what the twin is for, "check", "read" or "shown"; `result`: it is one of a result."""
    known = _TWINS.setdefault((kind, result), weakref.WeakKeyDictionary())
    if hint not in known:
        known[hint] = _made_twin(hint, get_origin(hint) or hint, fields, hints)
    return known[hint]


def _made_twin(hint: Any, cls: Any, fields: list[Field], hints: list[Any]) -> Any:
    found = facts(hint)
    members: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for index, (field, inner) in enumerate(zip(fields, hints, strict=True)):
        if field.required:
            members.append((f"f{index}", inner))
        elif field.factory is not NODEFAULT:
            members.append((f"f{index}", inner, msgspec.field(default_factory=field.factory)))
        elif field.default is not NODEFAULT:
            members.append((f"f{index}", inner, _default(field.default)))
        else:  # a key of a TypedDict that may be absent
            members.append((f"f{index}", Union[inner, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
    return msgspec.defstruct(
        re.sub(r"\W+", "_", "_".join([cls.__name__, *(getattr(arg, "__name__", str(arg)) for arg in get_args(hint))])),
        members,
        rename={f"f{index}": field.name for index, field in enumerate(fields)},
        kw_only=not found.array,
        array_like=found.array,
        forbid_unknown_fields=found.closed,
        tag=found.tag,
        tag_field=found.tag_field,
        module=cls.__module__,
        namespace={"__doc__": None if (cls.__doc__ or "").startswith(f"{cls.__name__}(") else cls.__doc__},
    )


def _default(value: Any) -> Any:
    shared = isinstance(value, list | dict | set | bytearray) or has_fields(type(value)) or is_model(type(value))
    return msgspec.field(default_factory=lambda: value) if shared else value
