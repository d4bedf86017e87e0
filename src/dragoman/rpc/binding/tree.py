"""The tree of a compiled annotation, and the facts about classes from which it is made.

`annotations` makes a tree from an annotation at registration. All code that depends on what an annotation means uses
the tree: the decoder and the JSON Schema use its types; its parts are walked to find faults and to convert 1.0
(`faults`), and to remove undeclared fields from results (`projection`)."""

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
"""The origins of unions: `Union[A, B]` and `A | B`."""
_WRAPPERS = ("Final", "Required", "NotRequired", "ReadOnly")
"""Names of qualifiers; compared by name, since typing_extensions has its own."""

# -- nodes ----------------------------------------------------------------------------------------

Kind: TypeAlias = Literal["leaf", "items", "positions", "members", "fields", "model", "union"]
"""What parts a node has: `items`, a list or the like, one part for all items; `positions`, a tuple, a part for each
position; `members`, a dict, a part for the names and one for the values; `fields`, a class with fields, a part for
each; `union`, a part for each member. A `leaf` and a `model` (pydantic's) have none."""


class Node(Struct, eq=False):
    """The node of one annotation. The node of a class that refers to itself has itself among its parts.

    `type`: what JSON is decoded to; `check`: a type of the same shape with every constraint; `shown`: the type of which
    the JSON Schema is made.
    """

    kind: Kind
    type: Any
    check: Any
    shown: Any
    cls: Any = None
    """The class of `fields` and `model`, and of a leaf that is a class."""
    parts: tuple[Node, ...] = ()
    fields: Shape | None = None
    metas: tuple[Meta, ...] = ()
    """Constraints on the value as a whole."""
    translated: bool = False
    """Whether it has constraints that msgspec would have ignored in the original annotation."""
    twinned: bool = False
    """Whether a class in it has a twin, so that JSON must be decoded to `check` first, and then to `type`."""
    integers: bool = False
    """Whether a number in it may have to be an integer; for a leaf: whether it is one."""

    adapted: bool = False
    """Whether an adapter decodes a part of it, so that msgspec cannot decode a class with a field of it."""

    of: Node | None = None
    """For a class with constraints of its own: the node that has its fields."""

    @property
    def shape(self) -> Shape:
        """The shape of a class with fields."""
        shape = self.fields if self.of is None else self.of.fields
        assert shape is not None  # read before the tree was whole
        return shape

    @property
    def floats(self) -> bool:
        """Whether it is a float, which a number like 1.0 fits as it is."""
        return self.cls is float


class TreePart(Struct, frozen=True):
    """One field of a class in a tree. `attribute`: its name in Python; `name`: in JSON."""

    attribute: str
    name: str
    required: bool
    node: Node


class Shape(Struct, frozen=True):
    """The JSON shape of a class with fields. `array`: it is an array, else an object; `closed`: unknown fields are
    refused; `tag`, `tag_field`: msgspec's tag and its name, None without one; `private`: the class has private fields,
    which are never sent and are not in `parts`."""

    parts: tuple[TreePart, ...]
    array: bool = False
    closed: bool = False
    tag: Any = None
    tag_field: str | None = None
    private: bool = False


def leaf(hint: Any, *, translated: bool = False) -> Node:
    """Return a node without parts."""
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
    """One field of a class with fields. `attribute`: its name in Python; `name`: in JSON; `hint`: its annotation;
    `default`, `factory`: msgspec.NODEFAULT if there is none."""

    attribute: str
    name: str
    hint: Any
    required: bool
    default: Any
    factory: Any
    private: bool = False
    """Whether its name begins with `_`, in JSON too: such a field is for internal use and is never sent."""


def has_fields(cls: Any) -> bool:
    """Return whether it is a Struct, a dataclass, an attrs class, a TypedDict or a NamedTuple."""
    return isinstance(cls, type) and (
        issubclass(cls, Struct)
        or hasattr(cls, "__dataclass_fields__")
        or hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "__required_keys__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def fields_of(hint: Any, where: str = "") -> tuple[Field, ...]:
    """Return the fields, in JSON order, of a class for which `has_fields` is true, or of an alias of one. Raises
    LocalError, whose text begins with `where`, if their annotations cannot be resolved."""
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
    """What is known of a class with fields before its tree is made. `array`, `closed`, `tag`, `tag_field`: as in
    `Shape`."""

    fields: tuple[Field, ...]
    array: bool
    closed: bool
    tag: Any
    tag_field: str | None


@functools.lru_cache(1024)
def facts(hint: Any) -> Facts:
    """Return what is known of a class with fields. Raises what resolving its annotations raises."""
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
    """A field without its type, with the attributes that msgspec's `FieldInfo` has."""

    name: str
    required: bool
    default: Any
    default_factory: Any


def _members(hint: Any, cls: Any) -> list[Any]:
    """Return the fields of a class, without their types; not by msgspec, which cannot describe a class with a field
    that an adapter decodes."""
    if issubclass(cls, Struct):
        return list(msgspec.structs.fields(hint))
    if issubclass(cls, tuple):
        defaults = cls._field_defaults
        return [_Member(name, name not in defaults, defaults.get(name, NODEFAULT), NODEFAULT) for name in cls._fields]
    return _keys(cls) if hasattr(cls, "__required_keys__") else _attributes(cls)


def _keys(cls: Any) -> list[_Member]:
    """Return the keys of a TypedDict. Which are required is read from the annotations, since `__required_keys__`
    ignores Required and NotRequired in annotations that are text."""
    hints = get_type_hints(cls, include_extras=True)
    return [_Member(name, _needed(cls, name, _marks(hint)), NODEFAULT, NODEFAULT) for name, hint in hints.items()]


def _marks(hint: Any) -> set[str]:
    """Return the names of the qualifiers (Final, Required and the like) around a hint."""
    found = set()
    while (name := getattr(get_origin(hint), "_name", "")) in _WRAPPERS:
        found.add(name)
        hint = get_args(hint)[0]
    return found


def _needed(cls: Any, name: str, marks: set[str]) -> bool:
    return "Required" in marks or ("NotRequired" not in marks and name in cls.__required_keys__)


def _attributes(cls: Any) -> list[_Member]:
    """Return the fields of a dataclass or an attrs class, with msgspec's words for absent defaults."""
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
    """Return the fields of a dataclass or an attrs class, as that class describes them; none for other classes."""
    every = getattr(cls, "__attrs_attrs__", None) or getattr(cls, "__dataclass_fields__", {}).values()
    return [one for one in every if getattr(getattr(one, "_field_type", None), "name", "_FIELD") == "_FIELD"]


def _absent(value: Any) -> bool:
    """Return whether it is what a dataclass or an attrs class has instead of a default."""
    return type(value).__name__ in ("_MISSING_TYPE", "_Nothing")


@functools.lru_cache(256)
def writable(cls: Any) -> Any:
    """Return a TypedDict without ReadOnly, which msgspec does not know; any other class as it is."""
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
    """Return a generic type with these arguments; for type checkers, to which the arguments are not known."""
    return origin[args]


def unwrapped(hint: Any) -> Any:
    """Return the hint without qualifiers (Final, Required and the like) around it."""
    while getattr(get_origin(hint), "_name", "") in _WRAPPERS:
        hint = get_args(hint)[0]
    return hint


def is_model(cls: Any) -> bool:
    """Return whether it is a pydantic model; without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__") and not has_fields(cls)


def shape_of(hint: Any, parts: tuple[TreePart, ...], private: bool) -> Shape:
    """Return the shape of a class with these parts. `private`: it has private fields besides."""
    found = facts(hint)
    return Shape(parts, found.array, found.closed, found.tag, found.tag_field, private)


def reason(error: Exception) -> str:
    """Return msgspec's message about an annotation, followed by what would be right, if that is known."""
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
