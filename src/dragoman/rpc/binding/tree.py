"""The compiled tree of an annotation, and the facts about classes from which it is made.

`annotations` makes a tree from an annotation at registration, and all code that needs the meaning of an annotation uses
it: the decoder and the JSON Schema take its types; the fault finder and the conversion of 1.0 walk its parts
(`faults`), and so does the removal of undeclared fields from results (`projection`).
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Iterable
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from ...jsonrpc.errors import LocalError

UNION = (Union, types.UnionType)
_WRAPPERS = ("Final", "Required", "NotRequired", "ReadOnly")
"""Names, as typing_extensions has some of its own."""

# -- nodes ----------------------------------------------------------------------------------------

Kind: TypeAlias = Literal["leaf", "items", "positions", "members", "fields", "model", "union"]
"""What has parts: a list and its like (`items`, one part for all), a tuple with a part for each position (`positions`),
a dict (`members`: the names, the values), a class with fields, a union. A leaf and a pydantic model have none."""


class Node(Struct, eq=False):
    """One annotation. A class that refers to itself is a node that has itself among its parts.

    `type` is what is decoded into, `check` the same with every constraint, `shown` what the JSON Schema is made of.
    """

    kind: Kind
    type: Any
    check: Any
    shown: Any
    cls: Any = None
    """The class: of fields and models, and of a leaf that is one."""
    parts: tuple[Node, ...] = ()
    fields: Shape | None = None
    metas: tuple[Meta, ...] = ()
    """Constraints on the value as a whole."""
    translated: bool = False
    """Whether it holds constraints that msgspec would not have read."""
    twinned: bool = False
    """A class in it has a twin, so that `check` must be decoded before `type`."""
    integers: bool = False
    """A number in it may be meant as an integer; of a leaf: it is."""

    adapted: bool = False
    """An adapter decodes a part of it, so that msgspec could not decode a class with it in a field."""

    of: Node | None = None
    """The node whose fields these are, of one with constraints."""

    @property
    def shape(self) -> Shape:
        """The fields of a class."""
        shape = self.fields if self.of is None else self.of.fields
        assert shape is not None  # read before the tree was whole
        return shape

    @property
    def floats(self) -> bool:
        """Whether it accepts any number as it is."""
        return self.cls is float


class TreePart(Struct, frozen=True):
    """One field of a class in a tree."""

    attribute: str
    name: str
    required: bool
    node: Node


class Shape(Struct, frozen=True):
    """A class with fields as JSON shows it. `array`: as an array; `closed`: unknown fields are refused; `private`: it
    has fields that never leave, and are not among these."""

    parts: tuple[TreePart, ...]
    array: bool = False
    closed: bool = False
    tag: Any = None
    tag_field: str | None = None
    private: bool = False


def leaf(hint: Any, *, translated: bool = False) -> Node:
    """A node without parts."""
    values: Iterable[Any] = ()
    if get_origin(hint) is Literal:
        values = get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = [member.value for member in hint]
    whole = hint is int or any(type(value) is int for value in values)
    cls = get_origin(hint) or hint
    return Node("leaf", hint, hint, hint, cls if isinstance(cls, type) else None, translated=translated, integers=whole)


# -- classes with fields --------------------------------------------------------------------------


class Field(Struct, frozen=True):
    """One field of a class with fields. `attribute` of the object, `name` in JSON; `hint` as the class declares it."""

    attribute: str
    name: str
    hint: Any
    required: bool
    default: Any
    factory: Any
    private: bool = False
    """Its name begins with `_`, also in JSON: it is not meant for others, and never leaves."""


def has_fields(cls: Any) -> bool:
    """Whether it is a Struct, dataclass, attrs class, TypedDict or NamedTuple."""
    return isinstance(cls, type) and (
        issubclass(cls, Struct)
        or hasattr(cls, "__dataclass_fields__")
        or hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "__required_keys__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def fields_of(hint: Any, where: str = "") -> tuple[Field, ...]:
    """The fields of a class for which `has_fields` holds, or of an alias of one, in JSON order."""
    cls = get_origin(hint) or hint
    try:
        return facts(hint).fields
    except NameError as error:
        raise LocalError(
            f"{where}: a field of {cls.__qualname__} names {error.name!r}, which its module does not know; "
            "define or import it at module level"
        ) from error
    except Exception as error:
        raise LocalError(f"{where}: {reason(error)}") from error


class Facts(Struct, frozen=True):
    """A class with fields as msgspec sees it. `array`, `closed`, `tag`, `tag_field`: as in `Shape`."""

    fields: tuple[Field, ...]
    array: bool
    closed: bool
    tag: Any
    tag_field: str | None


@functools.lru_cache(1024)
def facts(hint: Any) -> Facts:
    """What is known of a class with fields. Raises what resolving its annotations raises."""
    cls = get_origin(hint) or hint
    members = _members(hint, cls)
    if issubclass(cls, Struct):
        hints = {field.name: field.type for field in msgspec.structs.fields(hint)}
    else:
        hints = get_type_hints(cls, include_extras=True)
    keyed = hasattr(cls, "__required_keys__")
    config = getattr(cls, "__struct_config__", None)
    fields = tuple(
        Field(
            f.name,
            getattr(f, "encode_name", f.name),
            unwrapped(hints.get(f.name, Any)),
            f.required,
            f.default,
            f.default_factory,
            not keyed and f.name.startswith("_") and getattr(f, "encode_name", f.name) == f.name,
        )
        for f in members
    )
    return Facts(
        fields,
        issubclass(cls, tuple) or getattr(config, "array_like", False),
        issubclass(cls, tuple) or getattr(config, "forbid_unknown_fields", False),
        getattr(config, "tag", None),
        getattr(config, "tag_field", None),
    )


class _Member(Struct):
    """A field as msgspec's `inspect` describes it."""

    name: str
    required: bool
    default: Any
    default_factory: Any


def _members(hint: Any, cls: Any) -> list[Any]:
    """The fields of a class, without their types. msgspec itself cannot describe one with a field that an adapter
    decodes."""
    if issubclass(cls, Struct):
        return list(msgspec.structs.fields(hint))
    if issubclass(cls, tuple):
        defaults = cls._field_defaults
        return [_Member(name, name not in defaults, defaults.get(name, NODEFAULT), NODEFAULT) for name in cls._fields]
    return _keys(cls) if hasattr(cls, "__required_keys__") else _attributes(cls)


def _keys(cls: Any) -> list[_Member]:
    """The keys of a TypedDict; annotations that are text hide Required and NotRequired from `__required_keys__`."""
    hints = get_type_hints(cls, include_extras=True)
    return [_Member(name, _needed(cls, name, _marks(hint)), NODEFAULT, NODEFAULT) for name, hint in hints.items()]


def _marks(hint: Any) -> set[str]:
    """The names of Final, Required and their like around a hint."""
    found = set()
    while (name := getattr(get_origin(hint), "_name", "")) in _WRAPPERS:
        found.add(name)
        hint = get_args(hint)[0]
    return found


def _needed(cls: Any, name: str, marks: set[str]) -> bool:
    return "Required" in marks or ("NotRequired" not in marks and name in cls.__required_keys__)


def _attributes(cls: Any) -> list[_Member]:
    """The fields of a dataclass or an attrs class."""
    found = []
    for field in attributes_of(cls):
        default: Any = field.default
        factory: Any = getattr(field, "default_factory", NODEFAULT)
        if type(default).__name__ == "Factory":  # of attrs
            default, factory = NODEFAULT, default.factory
        default, factory = (NODEFAULT if _absent(value) else value for value in (default, factory))
        required = field.init and default is NODEFAULT and factory is NODEFAULT
        found.append(_Member(field.name, required, default, factory))
    return found


def attributes_of(cls: Any) -> list[Any]:
    """The fields of a dataclass or an attrs class, as it has them; none for other classes."""
    every = getattr(cls, "__attrs_attrs__", None) or getattr(cls, "__dataclass_fields__", {}).values()
    return [one for one in every if getattr(getattr(one, "_field_type", None), "name", "_FIELD") == "_FIELD"]


def _absent(value: Any) -> bool:
    """Whether it stands for a default that is not there."""
    return type(value).__name__ in ("_MISSING_TYPE", "_Nothing")


@functools.lru_cache(256)
def writable(cls: Any) -> Any:
    """A TypedDict without ReadOnly, which msgspec does not know; any other class as it is."""
    if not hasattr(cls, "__required_keys__"):
        return cls
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # it is reported with the field's name later
        return cls
    marks = {name: _marks(hint) for name, hint in hints.items()}
    if not any("ReadOnly" in found for found in marks.values()):
        return cls
    keys = {
        name: (Required if _needed(cls, name, marks[name]) else NotRequired)[unwrapped(hint)]
        for name, hint in hints.items()
    }
    made: Any = TypedDict(cls.__name__, keys)  # type: ignore[misc]
    made.__module__, made.__doc__ = cls.__module__, cls.__doc__
    return made


def generic(origin: Any, args: Any) -> Any:
    """The type with these arguments, which are known at run time alone."""
    return origin[args]


def unwrapped(hint: Any) -> Any:
    """The hint without Final, Required and their like."""
    while getattr(get_origin(hint), "_name", "") in _WRAPPERS:
        hint = get_args(hint)[0]
    return hint


def is_model(cls: Any) -> bool:
    """Whether it is a pydantic model, found without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__") and not has_fields(cls)


def shape_of(hint: Any, parts: tuple[TreePart, ...], private: bool) -> Shape:
    """The shape of a class with these parts."""
    found = facts(hint)
    return Shape(parts, found.array, found.closed, found.tag, found.tag_field, private)


def reason(error: Exception) -> str:
    """msgspec's message about an annotation, and what would be right."""
    text = str(error) or type(error).__name__
    return text + next((f"; {words}" for key, words in _REMEDIES if key in text), "")


_UNPACKED = (
    "write the arguments one by one, or as the type of each value, *args: int, **kwargs: int, and a list in place of an "
    "unpacked tuple"
)
_REMEDIES = (
    ("Enums must contain", "give all members texts or all whole numbers, or write Literal[1, 'one'] for some of each"),
    ("Type '*", _UNPACKED),
    ("Unpack[", _UNPACKED),
    ("must be tagged", "give each class a tag: class A(Struct, tag=True)"),
    ("dict-like", "give one object type, or Structs with tags: class A(Struct, tag=True)"),
    ("array-like", "give one array type"),
    ("custom type", "give one type, or a pydantic model that is the union"),
    ("str-like", "give one type that is text in JSON, and convert in the function"),
    ("int-like", "give one type that is a number in JSON, and convert in the function"),
)
