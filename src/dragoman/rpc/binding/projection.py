"""Restricts a function's result to the fields that its annotation declares.

msgspec encodes a value by its own class. Where `-> User` returns an instance of a subclass, `{"name": ...}` would
carry the subclass's fields too, though no schema says so. Rules:

- Of a class with fields (Struct, dataclass, attrs, TypedDict, NamedTuple) or a pydantic model only the declared fields
  are sent, also if the value is of a subclass, of another class with the same fields, or a dict; in lists, dicts,
  tuples, unions and other fields alike. A value that lacks them is a LocalError, and so is an array or an object where
  another shape is declared.
- A field whose name begins with `_` is private and is never sent, unless it has another name in JSON.
- A result declared as `Any`, `dict`, `list` or not at all is sent as it is.
- It costs nothing if the annotation has no such classes. Elsewhere the classes of all values in a result are looked at;
  where they are the declared ones it is sent as it is.
- Values of a TypedDict, of classes with private fields and of attrs classes with a `__dict__` are inspected one by one,
  because their class does not say what is in them.
"""

from __future__ import annotations

import functools
from collections import abc, deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import LocalError
from .annotations import result_tree
from .tree import Kind, Node, Shape, has_fields, is_model, leaf

Leave: TypeAlias = Callable[[Any], Any]
"""Reduces a value to what may be sent: the value itself if nothing is removed."""
Exact: TypeAlias = dict[type, Callable[[Any], bool] | None]
"""Classes of values of which nothing is removed: all of them (None), or those that a function says."""

_SEQUENCES = (list, tuple, set, frozenset, deque)
_ARRAYS = (*_SEQUENCES, abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_SCALARS: Final[Exact] = dict.fromkeys((type(None), UnsetType, str, int, float, bool))
_ABSENT: Any = object()


def projection(tree: Node, kept: tuple[type, ...] = ()) -> Leave | None:
    """The projection for values with this annotation (the tree of a result); None if nothing need be removed.

    Values of a class in `kept` leave as they are. The result raises LocalError for a value of a class that has
    nothing to do with the declared one.
    """
    project = _Walk(kept).of(tree)
    if project is None:
        return None
    exact = project.exact

    def leave(value: Any) -> Any:
        fits = exact.get(type(value), _differs)
        return value if fits is None or fits(value) else project(value)

    return leave


def _differs(value: Any) -> bool:
    return False


class _Projection(Protocol):
    """The projection of one node."""

    exact: Exact

    def __call__(self, value: Any) -> Any:
        """What of a value may leave."""


class _Walk(Struct):
    """A walk down one tree."""

    kept: tuple[type, ...]
    known: dict[int, _Fields] = {}

    def of(self, node: Node) -> _Projection | None:
        if node.kind == "model":
            return _Model(node.cls, self.kept)
        if node.kind == "fields":
            return self._fields(node.of or node)
        if node.kind == "union":
            if any(part.type is Any for part in node.parts):
                return None
            arms = [(part, self.of(part)) for part in _told_apart(node.parts)]
            return _Union(arms, self.kept) if any(leave for _, leave in arms) else None
        if node.kind == "members":
            inner = self.of(node.parts[1])
            return None if inner is None else _Members(inner, self.kept)
        if node.kind == "positions":
            each = [self.of(part) for part in node.parts]
            return _Places(each, self.kept) if any(each) else None
        if node.kind == "items":
            inner = self.of(node.parts[0])
            return None if inner is None else _Items(inner, self.kept)
        return None

    def _fields(self, node: Node) -> _Fields:
        if id(node) in self.known:
            return self.known[id(node)]
        fields = self.known[id(node)] = _Fields(node.cls, node.shape, self.kept)
        fields.fill([(part.attribute, part.name, self.of(part.node)) for part in node.shape.parts])
        return fields


def _is_array(node: Node) -> bool:
    return node.kind in ("items", "positions") or (node.kind == "leaf" and node.cls in _ARRAYS)


def _is_mapping(node: Node) -> bool:
    return node.kind == "members" or (node.kind == "leaf" and node.cls in _MAPPINGS)


def _told_apart(parts: Sequence[Node]) -> list[Node]:
    """The members of a union, of which at most one is an array and one a mapping: what is in several of those may be in
    any of them."""
    arrays, mappings = [p for p in parts if _is_array(p)], [p for p in parts if _is_mapping(p)]
    found = [p for p in parts if p not in arrays and p not in mappings]
    if arrays:
        inner = [part for one in arrays for part in one.parts or (leaf(Any),)]
        found.append(arrays[0] if len(arrays) == 1 else _of_parts("items", _of_parts("union", *inner)))
    if mappings:
        inner = [(one.parts or (Any, leaf(Any)))[1] for one in mappings]
        found.append(mappings[0] if len(mappings) == 1 else _of_parts("members", leaf(str), _of_parts("union", *inner)))
    return found


def _of_parts(kind: Kind, *parts: Node) -> Node:
    """A node of which only the parts count."""
    return Node(kind, None, None, None, parts=parts)


# -- the nodes: values to what of them may leave --------------------------------------------------


def _strange(value: Any, declared: str, keep: tuple[type, ...]) -> Any:
    """A value that is not of the declared kind: a scalar leaves, and what may have something in it does not."""
    kind = type(value)
    holds = isinstance(value, (*_SEQUENCES, Mapping)) or has_fields(kind) or is_model(kind)
    if holds and not isinstance(value, keep):
        raise LocalError(f"{kind.__qualname__} was returned where {declared} is declared")
    return value


class _Items:
    def __init__(self, inner: _Projection, keep: tuple[type, ...]) -> None:
        self._inner, self._keep = inner, keep
        self.exact: Exact = _SCALARS | dict.fromkeys(_SEQUENCES, self._fits)

    def _fits(self, value: Any) -> bool:
        kinds = set(map(type, value))
        for kind in kinds:
            fits = self._inner.exact.get(kind, _differs)
            if fits is None:
                continue
            alike = value if len(kinds) == 1 else [item for item in value if type(item) is kind]
            if not all(map(fits, alike)):
                return False
        return True

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, _SEQUENCES) or hasattr(value, "_fields"):
            return _strange(value, "a list", self._keep)
        return [self._inner(item) for item in value]


class _Places:
    def __init__(self, each: list[_Projection | None], keep: tuple[type, ...]) -> None:
        self._each, self._keep = each, keep
        self.exact: Exact = _SCALARS | dict.fromkeys((list, tuple), self._fits)

    def _fits(self, value: Any) -> bool:
        if len(value) != len(self._each):
            return False
        for item, leave in zip(value, self._each, strict=True):
            fits = None if leave is None else leave.exact.get(type(item), _differs)
            if fits is not None and not fits(item):
                return False
        return True

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return _strange(value, "a tuple", self._keep)
        return [item if leave is None else leave(item) for item, leave in zip(value, self._each, strict=False)]


class _Members:
    def __init__(self, inner: _Projection, keep: tuple[type, ...]) -> None:
        self._inner, self._keep = inner, keep
        items = _Items(inner, keep)
        self.exact: Exact = _SCALARS | {dict: lambda value: items._fits(value.values())}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _strange(value, "a dict", self._keep)
        return {name: self._inner(item) for name, item in value.items()}


class _Fields:
    """Values of a class with fields."""

    def __init__(self, cls: Any, shape: Shape, keep: tuple[type, ...]) -> None:
        self._cls, self._keep = cls, keep
        self._tag = None if shape.tag is None else (shape.tag_field or "", shape.tag)
        self._array = shape.array
        config = getattr(cls, "__struct_config__", None)
        self._omits = config is not None and config.omit_defaults
        is_open = hasattr(cls, "__attrs_attrs__") and cls.__dictoffset__ != 0
        look = shape.private or is_open or hasattr(cls, "__required_keys__")
        self.exact: Exact = _SCALARS if look else _SCALARS | {cls: self._fits}
        self.names = frozenset(part.name for part in shape.parts)
        self._fields: list[tuple[str, str, _Projection | None]] = []
        self._inner: list[tuple[Callable[[Any], Any], Exact]] = []

    def fill(self, fields: list[tuple[str, str, _Projection | None]]) -> None:
        """Say what leaves of its fields: later, since they may lead back here."""
        self._fields = fields
        self._inner = [(attrgetter(name), leave.exact) for name, _, leave in fields if leave is not None]
        if not self._inner and self._cls in self.exact:
            self.exact[self._cls] = None

    def _fits(self, value: Any) -> bool:
        try:
            for get, exact in self._inner:
                one = get(value)
                fits = exact.get(type(one), _differs)
                if fits is not None and not fits(one):
                    return False
        except AttributeError:  # a field that was never set
            return False
        return True

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, dict) and not self._array:
            return self._of_dict(value)
        if isinstance(value, self._keep) or not (has_fields(kind) or is_model(kind)):
            return _strange(value, self._cls.__qualname__, self._keep)
        return self._of_object(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        names = self.names if self._tag is None else self.names | {self._tag[0]}
        found = {name: item for name, item in value.items() if name in names}
        for _, name, leave in self._fields:
            if leave is not None and name in found:
                found[name] = leave(found[name])
        return found

    def _of_object(self, value: Any) -> Any:
        found: dict[str, Any] = {} if self._tag is None else dict([self._tag])
        defaults = _defaults(self._cls) if self._omits else {}
        for name, in_json, leave in self._fields:
            one = getattr(value, name, _ABSENT)
            if one is _ABSENT:
                if isinstance(value, self._cls):
                    continue  # declared, and never set
                raise LocalError(
                    f"{type(value).__qualname__} was returned where {self._cls.__qualname__} is declared: it has no {name}"
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


class _Model:
    """Values of a pydantic model, by the declared model's own serializer."""

    def __init__(self, cls: Any, keep: tuple[type, ...]) -> None:
        self._cls, self._keep = cls, keep
        self.exact: Exact = _SCALARS | {cls: None}
        self.names = frozenset(cls.model_fields)

    def __call__(self, value: Any) -> Any:
        cls = self._cls
        if type(value) is cls:
            return value
        if isinstance(value, cls):
            return Raw(cls.__pydantic_serializer__.to_json(value, by_alias=True))
        if getattr(cls, "__pydantic_root_model__", False):
            root = self._members["root"]
            return value if root is None else root(value)
        if isinstance(value, dict):
            is_open = cls.model_config.get("extra") == "allow"
            return {
                name: item if (leave := self._members.get(name)) is None else leave(item)
                for name, item in value.items()
                if is_open or name in self._members
            }
        return _strange(value, cls.__qualname__, self._keep)

    @functools.cached_property
    def _members(self) -> dict[str, Leave | None]:
        """What leaves of a dict in place of the model, by names in JSON."""
        hints = {
            f.serialization_alias or f.alias or n: f.annotation
            for n, f in self._cls.model_fields.items()
            if not f.exclude
        }
        hints |= {f.alias or name: f.return_type for name, f in self._cls.model_computed_fields.items()}
        where = f"{self._cls.__qualname__} as a result"
        return {name: projection(result_tree(hint, where, self._keep), self._keep) for name, hint in hints.items()}


class _Union:
    """Values of one of several types: by their class, the nearest of those declared."""

    def __init__(self, arms: list[tuple[Node, _Projection | None]], keep: tuple[type, ...]) -> None:
        self._keep = keep
        self._classes: dict[type, _Projection | None] = {}
        self._dicts: list[tuple[frozenset[str], _Projection | None]] = []
        for node, leave in arms:
            if isinstance(leave, _Fields | _Model):
                self._classes[node.cls] = leave
                self._dicts.append((leave.names, leave))
            elif _is_mapping(node):
                self._dicts.append((frozenset(), leave))
            elif _is_array(node):
                self._classes |= dict.fromkeys(_SEQUENCES, leave)
        self.exact: Exact = _SCALARS.copy()
        for kind, leave in self._classes.items():
            self.exact |= {kind: None} if leave is None else {kind: leave.exact.get(kind, _differs)}
        if len(self._dicts) == 1 and (alone := self._dicts[0][1]) is not None:
            self.exact[dict] = alone.exact.get(dict, _differs)
        fields = [leave for leave in self._classes.values() if isinstance(leave, _Fields)]
        self._only = fields[0] if len(fields) == 1 else None
        declared = [cls.__qualname__ for cls in self._classes if cls not in _SEQUENCES]
        self._declared = " or ".join(declared + ["a list"] * (list in self._classes) + ["a dict"] * (not declared))

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._of_dict(value)
        for cls in type(value).__mro__:
            if cls in self._classes:
                leave = self._classes[cls]
                return value if leave is None else leave(value)
        return _strange(value, self._declared, self._keep) if self._only is None else self._only(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        """The declared type that most of its names belong to; a mapping takes what no class does."""
        if not self._dicts:
            return _strange(value, self._declared, self._keep)
        _, leave = max(self._dicts, key=lambda one: len(one[0] & value.keys()) if one[0] else 0.5)
        return value if leave is None else leave(value)
