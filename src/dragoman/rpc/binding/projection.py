"""Restricts a function's result to the fields that its annotation declares.

msgspec encodes a value by its own class. Where `-> User` returns an instance of a subclass, `{"name": ...}` would
carry the subclass's fields too, though no schema says so. Rules:

- Of a class with fields (Struct, dataclass, attrs, TypedDict, NamedTuple) or a pydantic model only the declared fields
  are sent, also if the value is of a subclass, of another class with the same fields, or a dict; in lists, dicts,
  tuples, unions and other fields alike. A value that lacks them is a LocalError.
- A field whose name begins with `_` is private and is never sent, unless it has another name in JSON.
- A result declared as `Any`, `dict`, `list` or not at all is sent as it is.
- It costs nothing if the annotation has no such classes. If the value is of the declared class and no class
  in the annotation has a subclass, it costs the check of that.
- Values of a TypedDict, of classes with private fields and of attrs classes with a `__dict__` are inspected each time,
  because their class does not say what is in them. their class does not say what is in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import LocalError
from .tree import Node, Shape, has_fields, is_model

Leave: TypeAlias = Callable[[Any], Any]
"""Reduces a value to what may be sent: the value itself if nothing is removed."""

_SEQUENCES = (list, tuple, set, frozenset, deque)
_ABSENT: Any = object()


def projection(tree: Node, kept: tuple[type, ...] = ()) -> Leave | None:
    """The projection for values with this annotation (the tree of a result); None if nothing need be removed.

    Values of a class in `kept` leave as they are. The result raises LocalError for a value of a class that has
    nothing to do with the declared one.
    """
    walk = _Walk(kept)
    project = walk.of(tree)
    if project is None or walk.always:
        return project
    tops = _tops(tree)
    subclasses: tuple[Callable[[], list[Any]], ...] = tuple(cls.__subclasses__ for cls in walk.classes)
    if len(subclasses) == 1:
        (only,) = subclasses
        if len(tops) == 1:
            (top,) = tops
            return lambda value: value if type(value) is top and not only() else project(value)
        return lambda value: value if type(value) in tops and not only() else project(value)

    def leave(value: Any) -> Any:
        if type(value) in tops:
            for have in subclasses:
                if have():
                    break
            else:
                return value
        return project(value)

    return leave


def _tops(node: Node) -> tuple[type, ...]:
    """The classes of values that are what the annotation says, as far as can be seen from outside."""
    if node.kind == "union":
        return tuple(top for part in node.parts for top in _tops(part))
    if node.kind == "members":
        return (dict,)
    if node.kind in ("items", "places"):
        return _SEQUENCES
    return () if node.cls is None else (node.cls,)


class _Walk(Struct):
    """A walk down one tree. `classes`: those that may have subclasses; `always`: a class does not say it all."""

    kept: tuple[type, ...]
    classes: list[type] = []
    always: bool = False
    known: dict[int, _Fields] = {}

    def of(self, node: Node) -> Leave | None:
        if node.kind == "model":
            self.classes.append(node.cls)
            return _model(node.cls, self.kept)
        if node.kind == "fields":
            return self._fields(node.of or node)
        if node.kind == "union":
            if any(part.type is Any for part in node.parts):
                return None
            arms = [(part, self.of(part)) for part in node.parts]
            return _Union(arms, self.kept) if any(leave for _, leave in arms) else None
        if node.kind == "members":
            inner = self.of(node.parts[1])
            return None if inner is None else _Members(inner, self.kept)
        if node.kind == "places":
            each = [self.of(part) for part in node.parts]
            return _Places(each, self.kept) if any(each) else None
        if node.kind == "items":
            inner = self.of(node.parts[0])
            return None if inner is None else _Items(inner, self.kept)
        return None

    def _fields(self, node: Node) -> Leave:
        if id(node) in self.known:
            return self.known[id(node)]
        fields = self.known[id(node)] = _Fields(node.cls, node.shape, self.kept)
        fields.fill([(part.attribute, part.name, self.of(part.node)) for part in node.shape.parts])
        self.always = self.always or fields.look
        if not fields.keyed:
            self.classes.append(node.cls)
        return fields


# -- the nodes: values to what of them may leave --------------------------------------------------


def _strange(value: Any, declared: str, keep: tuple[type, ...]) -> Any:
    """A value that is not of the declared kind: a scalar leaves, and what has fields does not."""
    kind = type(value)
    if (has_fields(kind) or is_model(kind)) and not isinstance(value, keep):
        raise LocalError(f"{kind.__qualname__} was returned where {declared} is declared")
    return value


class _Items:
    def __init__(self, inner: Leave, keep: tuple[type, ...]) -> None:
        self._inner, self._keep = inner, keep

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, _SEQUENCES) or hasattr(value, "_fields"):
            return _strange(value, "a list", self._keep)
        inner = self._inner
        found = [inner(item) for item in value]
        return value if all(a is b for a, b in zip(value, found, strict=True)) else found


class _Places:
    def __init__(self, each: list[Leave | None], keep: tuple[type, ...]) -> None:
        self._each, self._keep = each, keep

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return _strange(value, "a tuple", self._keep)
        return [item if leave is None else leave(item) for item, leave in zip(value, self._each, strict=False)]


class _Members:
    def __init__(self, inner: Leave, keep: tuple[type, ...]) -> None:
        self._inner, self._keep = inner, keep

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _strange(value, "a dict", self._keep)
        inner = self._inner
        found = {name: inner(item) for name, item in value.items()}
        return value if all(found[name] is item for name, item in value.items()) else found


class _Fields:
    """Values of a class with fields."""

    def __init__(self, cls: Any, shape: Shape, keep: tuple[type, ...]) -> None:
        self.cls, self._keep = cls, keep
        self.keyed = hasattr(cls, "__required_keys__")
        self._tag = None if shape.tag is None else (shape.tag_field or "", shape.tag)
        self._array = shape.array
        self._private = shape.private
        config = getattr(cls, "__struct_config__", None)
        self._omits = config is not None and config.omit_defaults
        self._open = hasattr(cls, "__attrs_attrs__") and cls.__dictoffset__ != 0
        self.look = self.keyed or self._open or self._private
        self.names = frozenset(part.name for part in shape.parts)
        self._fields: list[tuple[str, str, Leave | None]] = []
        self._inner: list[tuple[str, str, Leave | None]] = []

    def fill(self, fields: list[tuple[str, str, Leave | None]]) -> None:
        """Say what leaves of its fields: later, since they may lead back here."""
        self._fields = fields
        self._inner = [one for one in fields if one[2] is not None]

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._of_dict(value)
        if type(value) is self.cls and not self._private and not (self._open and len(vars(value)) > len(self._fields)):
            for name, _, leave in self._inner:
                one = getattr(value, name, UNSET)
                if leave is not None and leave(one) is not one:
                    break
            else:
                return value
        kind = type(value)
        if isinstance(value, self._keep) or not (has_fields(kind) or is_model(kind)):
            return value
        return self._of_object(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        if self._array:
            return value
        names = self.names if self._tag is None else self.names | {self._tag[0]}
        found = {name: item for name, item in value.items() if name in names}
        for _, name, leave in self._inner:
            if leave is not None and name in found:
                found[name] = leave(found[name])
        return value if len(found) == len(value) and all(found[n] is value[n] for n in found) else found

    def _of_object(self, value: Any) -> Any:
        found: dict[str, Any] = {} if self._tag is None else dict([self._tag])
        defaults = _defaults(self.cls) if self._omits else {}
        for name, in_json, leave in self._fields:
            one = getattr(value, name, _ABSENT)
            if one is _ABSENT:
                if isinstance(value, self.cls):
                    continue  # declared, and never set
                raise LocalError(
                    f"{type(value).__qualname__} was returned where {self.cls.__qualname__} is declared: it has no {name}"
                )
            if one is not UNSET and not (name in defaults and defaults[name] == one):
                found[in_json] = one if leave is None else leave(one)
        return list(found.values()) if self._array else found


def _defaults(cls: Any) -> dict[str, Any]:
    """The defaults that a Struct with `omit_defaults` leaves out."""
    return {
        field.name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(cls)
        if not field.required
    }


def _model(cls: Any, keep: tuple[type, ...]) -> Leave:
    """Values of a pydantic model, by the declared model's own serializer."""

    def leave(value: Any) -> Any:
        if type(value) is cls:
            return value
        if isinstance(value, cls):
            return Raw(cls.__pydantic_serializer__.to_json(value, by_alias=True))
        if isinstance(value, dict) and cls.model_config.get("extra") != "allow":
            names = {f.serialization_alias or f.alias or name for name, f in cls.model_fields.items()}
            names |= {f.alias or name for name, f in cls.model_computed_fields.items()}
            return {name: item for name, item in value.items() if name in names}
        return _strange(value, cls.__qualname__, keep)

    return leave


class _Union:
    """Values of one of several types: by their class, the nearest of those declared."""

    def __init__(self, arms: list[tuple[Node, Leave | None]], keep: tuple[type, ...]) -> None:
        self._keep = keep
        self._classes: dict[type, Leave | None] = {}
        self._dicts: list[tuple[frozenset[str], Leave | None]] = []
        for node, leave in arms:
            if isinstance(leave, _Fields):
                self._classes[node.cls] = leave
                self._dicts.append((leave.names, leave))
            elif node.kind == "model":
                self._classes[node.cls] = leave
                self._dicts.append((frozenset(node.cls.model_fields), leave))
            elif node.kind == "members" or node.cls is dict:
                self._dicts.append((frozenset(), leave))
            elif node.kind in ("items", "places") or node.cls in _SEQUENCES:
                self._classes |= dict.fromkeys(_SEQUENCES, leave)
        fields = [leave for leave in self._classes.values() if isinstance(leave, _Fields)]
        self._only = fields[0] if len(fields) == 1 else None
        self._declared = " or ".join(cls.__qualname__ for cls in self._classes if cls not in _SEQUENCES)

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return self._of_dict(value)
        for cls in kind.__mro__:
            if cls in self._classes:
                leave = self._classes[cls]
                return value if leave is None else leave(value)
        return _strange(value, self._declared, self._keep) if self._only is None else self._only(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        """The declared type that most of its names belong to; a mapping takes what no class does."""
        if not self._dicts:
            return value
        _, leave = max(self._dicts, key=lambda one: len(one[0] & value.keys()) if one[0] else 0.5)
        return value if leave is None else leave(value)
