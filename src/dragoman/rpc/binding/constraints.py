"""What stands beside a type in `Annotated`: constraints of annotated_types and of pydantic as msgspec.Meta;
descriptions.

Rules:

- They are recognised by name and attribute; neither package is imported.
- A constraint is honoured, or refused with what to write instead: none is dropped in silence. Metadata of other
  packages is none of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, get_args, get_origin

from msgspec import Meta

from ...jsonrpc.errors import LocalError

_KEYS = {"Gt": "gt", "Ge": "ge", "Lt": "lt", "Le": "le", "MultipleOf": "multiple_of", "MinLen": "min_length"}
_KEYS |= {"MaxLen": "max_length"}
_UNSAID = ("Unit", "DocInfo", "GroupedMetadata")
"""Members of annotated_types that constrain nothing."""


def constraints(extra: Any, where: str) -> Iterable[tuple[str, Any]]:
    """`msgspec.Meta` arguments for one member of `Annotated`; nothing for what is no constraint."""
    if isinstance(extra, slice):  # an old spelling of Len
        if extra.start:
            yield "min_length", extra.start
        if extra.stop is not None:
            yield "max_length", extra.stop
        return
    module = type(extra).__module__.partition(".")[0]
    if module == "pydantic":
        yield from _of_pydantic(extra, where)
        return
    kinds = [kind for kind in type(extra).__mro__ if kind.__module__.partition(".")[0] == "annotated_types"]
    if not kinds or any(kind.__name__ == "DocInfo" for kind in kinds):
        return
    if getattr(extra, "__is_annotated_types_grouped_metadata__", False):
        for part in extra:
            yield from constraints(part, where)
        return
    name = kinds[0].__name__
    if name in _KEYS:
        value = getattr(extra, _KEYS[name])
        if name != "MinLen" or value:
            yield _KEYS[name], value
    elif name == "Timezone" and (extra.tz is ... or extra.tz is None):
        yield "tz", extra.tz is ...
    elif name not in _UNSAID:
        raise LocalError(f"{where}: {extra!r} cannot be checked on JSON; check it in the function")


_FIELD_WORDS = {
    "alias": "name the parameter as its argument is called",
    "validation_alias": "name the parameter as its argument is called",
    "default_factory": "give the parameter a default; one that can be changed is copied for each call",
    "discriminator": "give Structs with tags: class A(Struct, tag=True)",
}
"""What of pydantic's Field is no constraint, and what to write instead."""
_PYDANTIC = ("min_length", "max_length", "pattern", "gt", "ge", "lt", "le", "multiple_of")
_PYDANTIC_ELSE = ("strip_whitespace", "to_upper", "to_lower", "max_digits", "decimal_places", "allow_inf_nan")
"""Of its other metadata: what has a word in msgspec, and what has none."""


def _of_pydantic(extra: Any, where: str) -> Iterable[tuple[str, Any]]:
    """pydantic's metadata outside of its models: msgspec checks what it can; the rest is refused."""
    name = type(extra).__name__
    if name == "FieldInfo":
        for option, instead in _FIELD_WORDS.items():
            if getattr(extra, option, None) is not None:
                raise LocalError(f"{where}: Field({option}=...) is read in models alone; {instead}")
        if type(extra.default).__name__ != "PydanticUndefinedType" and extra.default is not ...:
            raise LocalError(f"{where}: Field(default=...) is read in models alone; write the default after =")
        for part in extra.metadata:
            yield from constraints(part, where)
        return
    if name in ("Strict", "WithJsonSchema", "Examples"):
        return  # JSON is read strictly anyway
    told = {key: getattr(extra, key, None) for key in (*_PYDANTIC, *_PYDANTIC_ELSE)}
    given = {key: value for key, value in told.items() if value is not None and value is not False}
    if not given or any(key in _PYDANTIC_ELSE for key in given):
        what = next((f"{name}({key}=...)" for key in given if key in _PYDANTIC_ELSE), name)
        raise LocalError(
            f"{where}: {what} is run by pydantic alone, in its models; check it in the function, or put the type into a "
            "BaseModel"
        )
    for key, value in given.items():
        yield key, getattr(value, "pattern", value) if key == "pattern" else value


_TOLD = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_SAID = ("title", "description", "examples", "extra_json_schema", "extra")


def merged(metas: list[Meta], foreign: list[tuple[str, Any]]) -> list[Meta]:
    """The metas with further constraints, each told once (msgspec refuses more): the strictest."""
    told = [(key, value) for meta in metas for key in _TOLD if (value := getattr(meta, key)) is not None]
    said = {key: value for meta in metas for key in _SAID if (value := getattr(meta, key)) is not None}
    constraints: dict[str, Any] = {}
    for key, value in (*told, *foreign):
        constraints[key] = _stricter(key, constraints[key], value) if key in constraints else value
    if "gt" in constraints and "ge" in constraints:
        del constraints["gt" if constraints["ge"] > constraints["gt"] else "ge"]
    if "lt" in constraints and "le" in constraints:
        del constraints["lt" if constraints["le"] < constraints["lt"] else "le"]
    return [Meta(**constraints, **said)]


def _stricter(key: str, one: Any, other: Any) -> Any:
    if key in ("gt", "ge", "min_length"):
        return max(one, other)
    return min(one, other) if key in ("lt", "le", "max_length") else other


def described(hint: Any) -> str:
    """The description in an `Annotated`: Doc("..."), doc("..."), msgspec.Meta(description=...), Field(...) or a
    string."""
    if get_origin(hint) is not Annotated:
        return ""
    for extra in get_args(hint)[1:]:
        text = extra if isinstance(extra, str) else None
        for name in ("documentation", "description"):
            text = text or getattr(extra, name, None)
        if isinstance(text, str):
            return text
    return ""
