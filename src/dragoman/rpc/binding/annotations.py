"""Compiles annotations for msgspec: translates what it would ignore, and refuses at once what it cannot do.

Rules:

- Constraints of `annotated_types` become `msgspec.Meta`, at any depth. In the fields of a class msgspec
  would still ignore them, and the class is the user's. So a *twin* of it is made, a Struct of the same
  JSON shape with the constraints; JSON is decoded into the twin first, then into the class.
- `annotated_types`, attrs and pydantic are recognised by name and attribute, never imported.
- pydantic models are decoded, encoded and described by pydantic (msgspec's hooks).
- An annotation to which JSON cannot be decoded is a `LocalError` that says what would be right.
"""

from __future__ import annotations

import collections.abc
import datetime
import functools
import re
import weakref
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Annotated, Any, Literal, LiteralString, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct
from msgspec import inspect as mi
from msgspec.structs import replace

from ...jsonrpc.errors import LocalError
from .constraints import constraints, described, merged
from .tree import (
    UNION,
    Field,
    Kind,
    Node,
    Part,
    fields_of,
    has_fields,
    is_model,
    leaf,
    reason,
    shape_of,
    unwrapped,
)

_LISTS = (collections.abc.Iterable, collections.abc.Container, collections.abc.Reversible)
"""Types that are read as a list, besides those that msgspec reads so."""


class Annotation(Struct, frozen=True):
    """A compiled annotation. `opaque`: a part stays `msgspec.Raw`, so its numbers are not checked."""

    tree: Node
    opaque: bool = False
    description: str = ""

    @property
    def type(self) -> Any:
        """The type to decode into."""
        return self.tree.type

    @property
    def shown(self) -> Any:
        """The type for the JSON Schema."""
        return self.tree.shown


ANY = Annotation(leaf(Any))
_KNOWN = {kind: Annotation(leaf(kind)) for kind in (str, int, float, bool, dict, list, type(None))}
"""Types that need no translation."""


def translate(hint: Any, where: str) -> Annotation:
    """The annotation of a parameter. Raises LocalError, beginning with `where`, if JSON cannot be decoded to it."""
    if hint is Any or hint is object:
        return ANY
    if isinstance(hint, type) and hint in _KNOWN:
        return _KNOWN[hint]
    try:
        return _translated(hint)
    except (LocalError, TypeError):  # TypeError: metadata that cannot be hashed
        return _checked(_Growth(where, {}, {}, False).grow(hint), hint, where)


@functools.lru_cache(1024)
def _translated(hint: Any) -> Annotation:
    return _checked(_Growth("", {}, {}, False).grow(hint), hint, "")


def translate_result(hint: Any, where: str) -> Annotation:
    """The annotation of what goes out: anything msgspec encodes, also unions that could not be decoded."""
    tree = result_tree(hint, where)
    try:
        return _checked(tree, hint, where)
    except LocalError:
        if any(not is_model(cls) and not issubclass(cls, PathLike) for cls in _foreign(hint)):
            raise
        return Annotation(tree, description=described(hint))


def result_tree(hint: Any, where: str, kept: tuple[type, ...] = ()) -> Node:
    """The tree of what goes out, where a path is its text and private fields are none. `kept`: classes that are leaves.

    LocalError, opening with `where`, for names that cannot be resolved.
    """
    if getattr(hint, "__name__", "") in ("NoReturn", "Never"):
        return ANY.tree
    try:
        return _result_tree(hint, kept)
    except (LocalError, TypeError):
        return _Growth(where, {}, {}, True, kept).grow(hint)


@functools.lru_cache(1024)
def _result_tree(hint: Any, kept: tuple[type, ...]) -> Node:
    return _Growth("", {}, {}, True, kept).grow(hint)


def _checked(tree: Node, hint: Any, where: str) -> Annotation:
    """The annotation of a tree, all of which can be decoded."""
    custom, opaque = _leaves(tree.check if tree.twinned else tree.type, where)
    for cls in custom:
        if not is_model(cls):
            raise LocalError(
                f"{where}: JSON cannot be decoded to {cls.__qualname__}; use a msgspec Struct, a dataclass, a TypedDict, "
                "a pydantic model or a built-in type"
            )
    return Annotation(tree, opaque, described(hint))


def _foreign(hint: Any) -> Iterator[Any]:
    """Classes in `hint` that msgspec has no JSON for."""
    for arg in get_args(hint):
        if arg is not Ellipsis and get_origin(hint) is not Literal:
            yield from _foreign(arg)
    if isinstance(hint, type) and get_origin(hint) is None:
        try:
            yield from _leaves(hint, "")[0]
        except LocalError:
            yield hint


# -- growing the tree -----------------------------------------------------------------------------


class _Growth(Struct):
    """The tree of one annotation, while it grows. `inside`: the classes and aliases we are in, with their nodes."""

    where: str
    variables: dict[Any, Any]
    inside: dict[Any, Node | None]
    result: bool
    kept: tuple[type, ...] = ()

    def grow(self, hint: Any) -> Node:
        if hint is object:
            return leaf(Any)
        if hint is LiteralString:
            return leaf(str)
        if isinstance(hint, TypeVar):
            bound = self.variables.get(hint, hint)
            return leaf(hint) if bound is hint else self.grow(bound)
        if hasattr(hint, "__supertype__"):  # NewType
            return self.grow(hint.__supertype__)
        origin, args = get_origin(hint), get_args(hint)
        if type(origin or hint).__name__ == "TypeAliasType":
            return self._alias(hint, origin)
        if origin is Annotated:
            return self._annotated(hint)
        if origin is Literal or (origin is None and not isinstance(hint, type)):
            return leaf(hint)
        if (inner := unwrapped(hint)) is not hint:
            return self.grow(inner)
        cls = origin or hint
        if self.kept and isinstance(cls, type) and issubclass(cls, self.kept):
            return leaf(hint)
        if hint in _LISTS:
            return leaf(list)
        if has_fields(cls):
            return self._fields(hint, cls, args)
        if is_model(cls):
            return Node("model", hint, hint, hint, cls)
        return self._generic(origin, args) if origin is not None and args else self._leaf(hint)

    def _leaf(self, hint: Any) -> Node:
        if self.result and isinstance(hint, type) and issubclass(hint, PathLike):
            return leaf(str, translated=True)
        node = leaf(hint)
        if node.cls in _TIMES:
            example, form = _TIMES[node.cls]
            # what goes out may have no offset, which the format demands
            more = None if self.result else {"format": form}
            node.shown = Annotated[hint, Meta(examples=[example], extra_json_schema=more)]
        return node

    def _alias(self, hint: Any, origin: Any) -> Node:
        if hint in self.inside:
            raise LocalError(f"{self.where}: the alias {hint} refers to itself; use Any for the inner part")
        self.inside[hint] = None
        value = (origin or hint).__value__
        node = self.grow(value[get_args(hint)] if origin else value)
        del self.inside[hint]
        return node

    def _generic(self, origin: Any, args: tuple[Any, ...]) -> Node:
        parts = tuple(leaf(arg) if arg is Ellipsis else self.grow(arg) for arg in args)

        def rebuilt(args: tuple[Any, ...]) -> Any:
            if origin in UNION:
                return Union[args]  # noqa: UP007
            return (list if origin in _LISTS else origin)[args]

        kind: Kind = "items"
        if origin in UNION:
            kind = "union"
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            kind = "members" if len(parts) == 2 else "leaf"
        elif origin is tuple and args[-1] is not Ellipsis:
            kind = "places"
        return Node(
            kind,
            rebuilt(tuple(p.type for p in parts)),
            rebuilt(tuple(p.check for p in parts)),
            rebuilt(tuple(p.shown for p in parts)),
            None if origin in UNION else origin,
            parts[:1] if kind == "items" else parts,
            translated=any(p.translated for p in parts),
            twinned=any(p.twinned for p in parts),
            integers=any(p.integers for p in parts),
        )

    def _annotated(self, hint: Any) -> Node:
        inner, *extras = get_args(hint)
        node = self.grow(inner)
        metas = [extra for extra in extras if isinstance(extra, Meta)]
        try:
            foreign = [pair for extra in extras for pair in constraints(extra, self.where)]
        except LocalError:
            if not self.result:
                raise
            foreign = []  # what goes out was made by the function, and is not held to its constraints
        if foreign:
            try:
                metas = merged(metas, foreign)
            except (TypeError, ValueError) as error:
                raise LocalError(f"{self.where}: {hint}: {error}") from error
        if not metas:
            return node
        found = _constrained(node, metas)
        found.translated = bool(foreign) or node.translated
        return found

    def _fields(self, hint: Any, cls: Any, args: tuple[Any, ...]) -> Node:
        if hasattr(cls, "__pydantic_validator__") and not self.result:
            raise LocalError(
                f"{self.where}: {cls.__qualname__} is a pydantic dataclass, whose rules would not run; "
                "make it a pydantic BaseModel or a plain dataclass"
            )
        if (open := self.inside.get(hint)) is not None:
            open.integers = True  # it may turn out so
            return open
        node = self.inside[hint] = Node("fields", hint, hint, hint, cls)
        outer, self.variables = self.variables, dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
        every = fields_of(hint, self.where)
        fields = [field for field in every if not (self.result and field.private)]
        nodes = [self.grow(field.hint) for field in fields]
        self.variables = outer
        del self.inside[hint]
        parts = tuple(Part(f.attribute, f.name, f.required, one) for f, one in zip(fields, nodes, strict=True))
        node.fields = shape_of(hint, parts, len(fields) < len(every))
        node.integers = node.integers or any(one.integers for one in nodes)
        self._twinned(node, fields, any(one.translated or one.twinned for one in nodes))
        return node

    def _twinned(self, node: Node, fields: list[Field], constrained: bool) -> None:
        """Give a node the twins that it needs: one with the constraints, one with all that the schema tells."""
        assert node.fields is not None
        nodes = [part.node for part in node.fields.parts]
        constrained = constrained or node.fields.private
        told = any(one.shown is not one.check for one in nodes)
        if not constrained and not told:
            return
        if any(part == node.type for field in fields for part in _parts(field.hint)):
            if constrained and not self.result:
                raise LocalError(
                    f"{self.where}: {node.cls.__qualname__} refers to itself and has constraints of annotated_types; "
                    "write them as msgspec.Meta"
                )
            return
        hint = node.type
        if constrained:
            node.twinned = True
            node.check = node.shown = _twin(hint, "check", self.result, fields, [one.check for one in nodes])
        if told:
            node.shown = _twin(hint, "shown", self.result, fields, [one.shown for one in nodes])


_TIMES: dict[Any, tuple[str, str]] = {
    datetime.datetime: ("2026-11-22T13:05:00Z", "date-time"),
    datetime.time: ("13:05:00Z", "time"),
}
"""What msgspec's schema tells nothing of but that it is a string: an example, and the format of what comes in."""


def _constrained(node: Node, metas: list[Meta]) -> Node:
    """The node with constraints; of a union, on the members that can take them (msgspec refuses the others)."""
    if node.kind == "union":
        parts = tuple(_constrained(part, metas) if _takes(part.check, metas) else part for part in node.parts)
        if any(a is not b for a, b in zip(parts, node.parts, strict=True)):
            return replace(
                node,
                type=Union[tuple(part.type for part in parts)],  # noqa: UP007
                check=Union[tuple(part.check for part in parts)],  # noqa: UP007
                shown=Union[tuple(part.shown for part in parts)],  # noqa: UP007
                parts=parts,
            )  # else it fits none of them: msgspec says so
    return replace(
        node,
        type=Annotated[(node.type, *metas)],
        check=Annotated[(node.check, *metas)],
        shown=Annotated[(node.shown, *metas)],
        metas=(*node.metas, *metas),
        of=node.of or (node if node.kind == "fields" else None),
    )


def _takes(hint: Any, metas: list[Meta]) -> bool:
    if hint is type(None):
        return False
    constrained: Any = Annotated[(hint, *metas)]
    try:
        msgspec.json.Decoder(constrained)
    except (TypeError, ValueError):
        return False
    return True


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for arg in get_args(hint):
        yield from _parts(arg)


_TWINS: dict[tuple[str, bool], weakref.WeakKeyDictionary[Any, Any]] = {}
"""Of each kind one twin for each class, so that a schema names it once."""


def _twin(hint: Any, kind: str, result: bool, fields: list[Field], hints: list[Any]) -> Any:
    """A Struct with the JSON shape of a class, whose fields have these annotations."""
    known = _TWINS.setdefault((kind, result), weakref.WeakKeyDictionary())
    if hint not in known:
        known[hint] = _made_twin(hint, get_origin(hint) or hint, fields, hints)
    return known[hint]


def _made_twin(hint: Any, cls: Any, fields: list[Field], hints: list[Any]) -> Any:
    info: Any = mi.type_info(hint)
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
        kw_only=not getattr(info, "array_like", False) and not isinstance(info, mi.NamedTupleType),
        array_like=getattr(info, "array_like", False) or isinstance(info, mi.NamedTupleType),
        forbid_unknown_fields=getattr(info, "forbid_unknown_fields", False),
        tag=getattr(info, "tag", None),
        tag_field=getattr(info, "tag_field", None),
        module=cls.__module__,
        namespace={"__doc__": None if (cls.__doc__ or "").startswith(f"{cls.__name__}(") else cls.__doc__},
    )


def _default(value: Any) -> Any:
    shared = isinstance(value, list | dict | set | bytearray) or has_fields(type(value)) or is_model(type(value))
    return msgspec.field(default_factory=lambda: value) if shared else value


def _leaves(hint: Any, where: str) -> tuple[list[Any], bool]:
    """Classes that msgspec does not know, and whether any part stays raw. LocalError for what it cannot decode."""
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
        if isinstance(node, mi.DictType) and isinstance(node.key_type, _NO_NAMES):
            raise LocalError(
                f"{where}: the names of a JSON object are text, which cannot be decoded to the keys of {hint}"
            )
        for part in ("type", "item_type", "key_type", "value_type"):
            if isinstance(inner := getattr(node, part, None), mi.Type):
                todo.append(inner)
        todo.extend(getattr(node, "item_types", ()))
        todo.extend(getattr(node, "types", ()))
        todo.extend(field.type for field in getattr(node, "fields", ()))
    return custom, opaque


_NO_NAMES = (
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
