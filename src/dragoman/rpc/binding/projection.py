"""Restricts a function's result to the fields that its annotation declares.

msgspec encodes a value by its own class. If a function declared `-> User` returns an instance of a subclass, its fields
would be sent too, though no schema mentions them. Rules:

- Of a class with fields (Struct, dataclass, attrs, TypedDict, NamedTuple) or a pydantic model only the declared fields
  are sent, also if the value is of a subclass, of another class with the same fields, or a dict; in lists, dicts,
  tuples, unions and other fields alike. A value that lacks them raises LocalError, and so does an array or an object
  where another shape is declared.
- A field whose name begins with `_` is private and is never sent, unless it has another name in JSON.
- A result declared as `Any`, `dict`, `list` or not at all is sent as it is.
- It costs nothing if the annotation has no such classes. Otherwise the classes of all values in a result are compared
  with the declared ones; if they are the same, the result is sent as it is.
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

Project: TypeAlias = Callable[[Any], Any]
"""Reduces a value to what may be sent: returns the value itself if nothing need be removed."""
Exact: TypeAlias = dict[type, Callable[[Any], bool] | None]
"""Classes of values from which nothing need be removed: from no value of the class (None), or from those for which the
function returns True."""

_SEQUENCES = (list, tuple, set, frozenset, deque)
_ARRAYS = (*_SEQUENCES, abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_SCALARS: Final[Exact] = dict.fromkeys((type(None), UnsetType, str, int, float, bool))
_ABSENT: Any = object()


def projection(tree: Node, kept: tuple[type, ...] = ()) -> Project | None:
    """Return the projection for values with this annotation (the tree of a result); None if nothing need be removed.

    Values of a class in `kept` are sent as they are. The projection raises LocalError for an array or an object that is
    not what is declared.
    """
    project = _ProjectionMaker(kept).of(tree)
    if project is None:
        return None
    exact = project.exact

    def project_unless_exact(value: Any) -> Any:
        fits = exact.get(type(value), _never_fits)
        return value if fits is None or fits(value) else project(value)

    return project_unless_exact


def _never_fits(value: Any) -> bool:
    return False


class _Projection(Protocol):
    """The projection of one node. `exact`: the values that need none."""

    exact: Exact

    def __call__(self, value: Any) -> Any:
        """Return what of a value may be sent. Raises LocalError for a value that is not what is declared."""


class _ProjectionMaker(Struct):
    """Makes the projections of one tree's nodes. `known`: those of classes, which may refer to themselves, by the
    node's id()."""

    kept: tuple[type, ...]
    known: dict[int, _Fields] = {}

    def of(self, node: Node) -> _Projection | None:
        """Return the projection of a node; None if nothing need be removed from its values."""
        if node.kind == "model":
            return _Model(node.cls, self.kept)
        if node.kind == "fields":
            return self._fields(node.of or node)
        if node.kind == "union":
            if any(part.type is Any for part in node.parts):
                return None
            arms = [(part, self.of(part)) for part in _merged(node.parts)]
            return _Union(arms, self.kept) if any(project for _, project in arms) else None
        if node.kind == "members":
            inner = self.of(node.parts[1])
            return None if inner is None else _Members(inner, self.kept)
        if node.kind == "positions":
            each = [self.of(part) for part in node.parts]
            return _Positions(each, self.kept) if any(each) else None
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


def _merged(parts: Sequence[Node]) -> list[Node]:
    """Return the members of a union with all arrays merged into one and all mappings merged into one, since a value
    does not show which of them it is: what one of them may contain, the merged one may contain."""
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
    """Return a node of which only the kind and the parts are used."""
    return Node(kind, None, None, None, parts=parts)


# -- projections by kind of node ------------------------------------------------------------------


def _undeclared(value: Any, declared: str, keep: tuple[type, ...]) -> Any:
    """Return a value that is not of the declared kind, if it is a scalar or of a class in `keep`. Raises LocalError for
    others, which may contain undeclared fields. `declared`: what is declared, in words."""
    kind = type(value)
    holds = isinstance(value, (*_SEQUENCES, Mapping)) or has_fields(kind) or is_model(kind)
    if holds and not isinstance(value, keep):
        raise LocalError(f"{kind.__qualname__} was returned where {declared} is declared")
    return value


class _Items:
    """The projection of lists and the like."""

    def __init__(self, inner: _Projection, keep: tuple[type, ...]) -> None:
        self._inner, self._keep = inner, keep
        self.exact: Exact = _SCALARS | dict.fromkeys(_SEQUENCES, self._fits)

    def _fits(self, value: Any) -> bool:
        kinds = set(map(type, value))
        for kind in kinds:
            fits = self._inner.exact.get(kind, _never_fits)
            if fits is None:
                continue
            alike = value if len(kinds) == 1 else [item for item in value if type(item) is kind]
            if not all(map(fits, alike)):
                return False
        return True

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, _SEQUENCES) or hasattr(value, "_fields"):
            return _undeclared(value, "a list", self._keep)
        return [self._inner(item) for item in value]


class _Positions:
    """The projection of tuples with a type for each position."""

    def __init__(self, each: list[_Projection | None], keep: tuple[type, ...]) -> None:
        self._each, self._keep = each, keep
        self.exact: Exact = _SCALARS | dict.fromkeys((list, tuple), self._fits)

    def _fits(self, value: Any) -> bool:
        if len(value) != len(self._each):
            return False
        for item, project in zip(value, self._each, strict=True):
            fits = None if project is None else project.exact.get(type(item), _never_fits)
            if fits is not None and not fits(item):
                return False
        return True

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return _undeclared(value, "a tuple", self._keep)
        return [item if project is None else project(item) for item, project in zip(value, self._each, strict=False)]


class _Members:
    """The projection of dicts and the like."""

    def __init__(self, inner: _Projection, keep: tuple[type, ...]) -> None:
        self._inner, self._keep = inner, keep
        items = _Items(inner, keep)
        self.exact: Exact = _SCALARS | {dict: lambda value: items._fits(value.values())}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _undeclared(value, "a dict", self._keep)
        return {name: self._inner(item) for name, item in value.items()}


class _Fields:
    """The projection of a class with fields."""

    def __init__(self, cls: Any, shape: Shape, keep: tuple[type, ...]) -> None:
        self._cls, self._keep = cls, keep
        self._tag = None if shape.tag is None else (shape.tag_field or "", shape.tag)
        self._array = shape.array
        config = getattr(cls, "__struct_config__", None)
        self._omits = config is not None and config.omit_defaults
        is_open = hasattr(cls, "__attrs_attrs__") and cls.__dictoffset__ != 0
        # values whose class does not say what is in them
        uncertain = shape.private or is_open or hasattr(cls, "__required_keys__")
        self.exact: Exact = _SCALARS if uncertain else _SCALARS | {cls: self._fits}
        self.names = frozenset(part.name for part in shape.parts)
        self._fields: list[tuple[str, str, _Projection | None]] = []
        self._inner: list[tuple[Callable[[Any], Any], Exact]] = []

    def fill(self, fields: list[tuple[str, str, _Projection | None]]) -> None:
        """Set the projections of the fields (attribute, name in JSON, projection); after it was made, since a field may
        be of this same class."""
        self._fields = fields
        self._inner = [(attrgetter(name), project.exact) for name, _, project in fields if project is not None]
        if not self._inner and self._cls in self.exact:
            self.exact[self._cls] = None

    def _fits(self, value: Any) -> bool:
        try:
            for get, exact in self._inner:
                one = get(value)
                fits = exact.get(type(one), _never_fits)
                if fits is not None and not fits(one):
                    return False
        except AttributeError:  # a field was never set
            return False
        return True

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, dict) and not self._array:
            return self._of_dict(value)
        if isinstance(value, self._keep) or not (has_fields(kind) or is_model(kind)):
            return _undeclared(value, self._cls.__qualname__, self._keep)
        return self._of_object(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        names = self.names if self._tag is None else self.names | {self._tag[0]}
        found = {name: item for name, item in value.items() if name in names}
        for _, name, project in self._fields:
            if project is not None and name in found:
                found[name] = project(found[name])
        return found

    def _of_object(self, value: Any) -> Any:
        found: dict[str, Any] = {} if self._tag is None else dict([self._tag])
        defaults = _defaults(self._cls) if self._omits else {}
        for name, in_json, project in self._fields:
            one = getattr(value, name, _ABSENT)
            if one is _ABSENT:
                if isinstance(value, self._cls):
                    continue  # declared, and never set
                raise LocalError(
                    f"{type(value).__qualname__} was returned where {self._cls.__qualname__} is declared: it has no {name}"
                )
            if one is not UNSET and not (name in defaults and defaults[name] == one):
                found[in_json] = one if project is None else project(one)
        return list(found.values()) if self._array else found


def _defaults(cls: Any) -> dict[str, Any]:
    """Return the defaults of a Struct with `omit_defaults`, by field; values equal to them are not sent."""
    return {
        field.name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(cls)
        if not field.required
    }


class _Model:
    """The projection of a pydantic model: by the declared model's own serializer."""

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
                name: item if (project := self._members.get(name)) is None else project(item)
                for name, item in value.items()
                if is_open or name in self._members
            }
        return _undeclared(value, cls.__qualname__, self._keep)

    @functools.cached_property
    def _members(self) -> dict[str, Project | None]:
        """The projections of the members of a dict that is returned instead of the model, by names in JSON."""
        hints = {
            f.serialization_alias or f.alias or n: f.annotation
            for n, f in self._cls.model_fields.items()
            if not f.exclude
        }
        hints |= {f.alias or name: f.return_type for name, f in self._cls.model_computed_fields.items()}
        where = f"{self._cls.__qualname__} as a result"
        return {name: projection(result_tree(hint, where, self._keep), self._keep) for name, hint in hints.items()}


class _Union:
    """The projection of a union: by a value's class, that of the nearest declared type. `arms`: the members with their
    projections."""

    def __init__(self, arms: list[tuple[Node, _Projection | None]], keep: tuple[type, ...]) -> None:
        self._keep = keep
        self._classes: dict[type, _Projection | None] = {}
        self._dicts: list[tuple[frozenset[str], _Projection | None]] = []
        for node, project in arms:
            if isinstance(project, _Fields | _Model):
                self._classes[node.cls] = project
                self._dicts.append((project.names, project))
            elif _is_mapping(node):
                self._dicts.append((frozenset(), project))
            elif _is_array(node):
                self._classes |= dict.fromkeys(_SEQUENCES, project)
        self.exact: Exact = _SCALARS.copy()
        for kind, project in self._classes.items():
            self.exact |= {kind: None} if project is None else {kind: project.exact.get(kind, _never_fits)}
        if len(self._dicts) == 1 and (alone := self._dicts[0][1]) is not None:
            self.exact[dict] = alone.exact.get(dict, _never_fits)
        fields = [project for project in self._classes.values() if isinstance(project, _Fields)]
        self._only = fields[0] if len(fields) == 1 else None
        declared = [cls.__qualname__ for cls in self._classes if cls not in _SEQUENCES]
        self._declared = " or ".join(declared + ["a list"] * (list in self._classes) + ["a dict"] * (not declared))

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._of_dict(value)
        for cls in type(value).__mro__:
            if cls in self._classes:
                project = self._classes[cls]
                return value if project is None else project(value)
        return _undeclared(value, self._declared, self._keep) if self._only is None else self._only(value)

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        """Project a dict as the declared class that has most of its names; as a mapping, if no class has any of
        them."""
        if not self._dicts:
            return _undeclared(value, self._declared, self._keep)
        _, project = max(self._dicts, key=lambda one: len(one[0] & value.keys()) if one[0] else 0.5)
        return value if project is None else project(value)
