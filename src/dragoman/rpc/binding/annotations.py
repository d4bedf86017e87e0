"""Compiles annotations for msgspec: translates what msgspec would ignore, and refuses, at registration, what it cannot
decode.

Rules:

- Constraints of `annotated_types` become `msgspec.Meta`, at any depth. In the fields of a class msgspec
  would still ignore them, and the class is the user's. So a *twin* of it is made, a Struct of the same
  JSON shape with the constraints; JSON is decoded into the twin first, then into the class.
- `annotated_types`, attrs and pydantic are recognised by name and attribute, never imported here.
- pydantic models are decoded, encoded and described by pydantic (msgspec's hooks). An adapter decodes annotations that
  use more of pydantic (`by_pydantic`), and unions whose members msgspec cannot distinguish (`choices`).
- An annotation to which JSON cannot be decoded raises a `LocalError` that says what would be right.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import enum
import functools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, LiteralString, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from ...jsonrpc.errors import LocalError
from .adapters import adapter_of, format_of, is_text, marker
from .by_pydantic import (
    is_field,
    is_foreign,
    needs_pydantic,
    refuse_serializer,
    spread_inner,
    type_adapter,
)
from .choices import built, checked, choice, outgoing, whole
from .constraints import (
    CHECKS,
    COMPARED,
    COMPARISONS,
    DESCRIBED,
    FINITE,
    FINITE_IF_DECIMAL,
    FINITE_NAMES,
    Test,
    comparison,
    constraints,
    described,
    merged,
    predicate,
    text_of,
)
from .decodable import leaves
from .tree import (
    UNION,
    Field,
    Kind,
    Node,
    TreePart,
    fields_of,
    has_fields,
    is_model,
    leaf,
    shape_of,
    unwrapped,
    writable,
)
from .twins import twin

_LISTS = (collections.abc.Iterable, collections.abc.Container, collections.abc.Reversible)
"""Types that are decoded to a list, besides those that msgspec itself decodes to one."""


class Annotation(Struct, frozen=True):
    """A compiled annotation. `opaque`: a part of its values stays `msgspec.Raw`, so numbers in it are not checked.
    `description`: the text for readers that the annotation has; "" for none."""

    tree: Node
    opaque: bool = False
    description: str = ""

    @property
    def type(self) -> Any:
        """The type that JSON is decoded to."""
        return self.tree.type

    @property
    def shown(self) -> Any:
        """The type of which msgspec makes the JSON Schema."""
        return self.tree.shown


ANY = Annotation(leaf(Any))
_KNOWN = {kind: Annotation(leaf(kind)) for kind in (str, int, float, bool, dict, list, type(None))}
"""Types that need no translation."""


def translate(hint: Any, where: str) -> Annotation:
    """Compile the annotation of a parameter. Raises LocalError, whose text begins with `where`, if JSON cannot be
    decoded to it."""
    if hint is Any or hint is object:
        return ANY
    if isinstance(hint, type) and hint in _KNOWN:
        return _KNOWN[hint]
    try:
        # A | B and B | A are equal, and which comes first may matter
        return _translated(hint, "" if isinstance(hint, type) else repr(hint))
    except (LocalError, TypeError):  # TypeError: metadata that cannot be hashed
        return _checked(_TreeBuilder(where, {}, {}, False).grow(hint), hint, where)


@functools.lru_cache(1024)
def _translated(hint: Any, written: str) -> Annotation:
    return _checked(_TreeBuilder("", {}, {}, False).grow(hint), hint, "")


def translate_result(hint: Any, where: str) -> Annotation:
    """Compile the annotation of a result: anything that msgspec encodes, also unions that it could not decode. Raises
    LocalError, whose text begins with `where`, if its values have no JSON."""
    tree = result_tree(hint, where)
    try:
        return _checked(tree, hint, where)
    except LocalError:
        if any(not (is_model(cls) or is_text(cls) or is_foreign(cls)) for cls in _foreign(hint)):
            raise
        return Annotation(tree, description=described(hint))


def result_tree(hint: Any, where: str, kept: tuple[type, ...] = ()) -> Node:
    """Return the tree of a result's annotation, in which paths are text and private fields are left out. `kept`:
    classes that become leaves, whatever fields they have.

    Raises LocalError, whose text begins with `where`, for names that cannot be resolved.
    """
    if getattr(hint, "__name__", "") in ("NoReturn", "Never"):
        return ANY.tree
    try:
        return _result_tree(hint, kept)
    except (LocalError, TypeError):
        return _TreeBuilder(where, {}, {}, True, kept).grow(hint)


@functools.lru_cache(1024)
def _result_tree(hint: Any, kept: tuple[type, ...]) -> Node:
    return _TreeBuilder("", {}, {}, True, kept).grow(hint)


def _checked(tree: Node, hint: Any, where: str) -> Annotation:
    """Return the annotation of a tree. Raises LocalError if JSON cannot be decoded to a part of it."""
    custom, opaque = leaves(tree.check if tree.twinned else tree.type, where)
    for cls in custom:
        if not is_model(cls) and adapter_of(cls) is None:
            raise LocalError(
                f"{where}: JSON cannot be decoded to {cls.__qualname__}; use a msgspec Struct, a dataclass, a TypedDict, "
                "a pydantic model or a built-in type"
            )
    return Annotation(tree, opaque, described(hint))


def _foreign(hint: Any) -> Iterator[Any]:
    """Yield the classes in `hint` that msgspec has no JSON for."""
    for arg in get_args(hint):
        if arg is not Ellipsis and get_origin(hint) is not Literal:
            yield from _foreign(arg)
    if isinstance(hint, type) and get_origin(hint) is None:
        try:
            yield from leaves(hint, "")[0]
        except LocalError:
            yield hint


def _tested(node: Node, test: Test) -> Node:
    """Return a node for the values of `node` that satisfy a predicate. `test`: the predicate and its words for fault
    messages."""
    made = checked(node, *test)
    return Node("model", made, made, made, parts=(node,), adapted=True, integers=node.integers)


def _is_decimal(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, decimal.Decimal)


def _innermost(node: Node) -> Node:
    """Return the node inside of those that `_tested` made around it."""
    while node.kind == "model" and node.adapted and len(node.parts) == 1:
        (node,) = node.parts
    return node


# -- building the tree ----------------------------------------------------------------------------


class _TreeBuilder(Struct):
    """Builds the tree of one annotation. `variables`: the arguments of the type variables of the class that is being
    built; `inside`: the classes and aliases that are being built, with their nodes (None for aliases); `result`: it is
    the annotation of a result; `kept`: classes that become leaves."""

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
            found = self.variables.get(hint, hint)
            if isinstance(found, TypeVar):  # a class that is used without its arguments
                found = found.__bound__
            return leaf(hint) if found is None else self.grow(found)
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
            return self._fields(hint, cls, args) if (plain := writable(cls)) is cls else self.grow(plain)
        if is_model(cls):
            return Node("model", hint, hint, hint, cls)
        if is_foreign(cls):
            return self._by_pydantic(hint)
        if not args or not (isinstance(origin, type) or origin in UNION):  # TypeGuard and its like: msgspec says so
            return self._leaf(hint)
        return self._generic(origin, args)

    def _by_pydantic(self, hint: Any, inner: Node | None = None) -> Node:
        """Return a node that pydantic decodes. `inner`: the node of the same annotation without what only pydantic can
        honour; None if only pydantic knows the type."""
        made = marker(type_adapter(hint, self.where))
        if self.result:
            node = leaf(hint)
            node.shown = made
            return node
        parts = () if inner is None else (inner,)
        return Node("model", made, made, made, parts=parts, adapted=True, integers=any(p.integers for p in parts))

    def _leaf(self, hint: Any) -> Node:
        if is_text(hint):
            if not self.result:
                return leaf(hint)
            node = leaf(str, translated=True)
            node.shown = Annotated[str, Meta(extra_json_schema={"format": format_of(hint)})]
            return node
        node = leaf(hint)
        if _is_decimal(hint):
            return node if self.result else _tested(node, FINITE)
        if isinstance(hint, type) and issubclass(hint, enum.Flag):
            node.shown = int  # any of its members together
        if node.cls in _TIMES:
            example, form = _TIMES[node.cls]
            # a result may have no UTC offset, which the format demands
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
        if self.result:
            return self._generic_of(origin, args, parts)
        # msgspec decides which member of a union a value is, and which names an object may have
        names = isinstance(origin, type) and issubclass(origin, Mapping)
        alone = [(origin in UNION or (names and index == 0)) and _is_decimal(arg) for index, arg in enumerate(args)]
        if not any(alone):
            return self._generic_of(origin, args, parts)
        bare = tuple(leaf(arg) if one else part for arg, part, one in zip(args, parts, alone, strict=True))
        return _tested(self._generic_of(origin, args, bare), FINITE_NAMES if names else FINITE_IF_DECIMAL)

    def _generic_of(self, origin: Any, args: tuple[Any, ...], parts: tuple[Node, ...]) -> Node:
        def rebuilt(args: tuple[Any, ...]) -> Any:
            if origin in UNION:
                return Union[args]  # noqa: UP007
            return (list if origin in _LISTS else origin)[args]

        kind: Kind = "items"
        if origin in UNION:
            kind = "union"
            if not self.result and (union := self._choice(origin, args, parts)) is not None:
                return union
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            kind = "members" if len(parts) == 2 else "leaf"
        elif origin is tuple and args[-1] is not Ellipsis:
            kind = "positions"
        shown = rebuilt(tuple(p.shown for p in parts))
        if self.result and kind == "union" and not _decodable(tuple(p.shown for p in parts)):
            shown = outgoing(parts)
        if kind == "union":  # an alias of a union in a union
            parts = tuple(one for p in parts for one in (p.parts if p.kind == "union" and not p.adapted else (p,)))
        return Node(
            kind,
            rebuilt(tuple(p.type for p in parts)),
            rebuilt(tuple(p.check for p in parts)),
            shown,
            None if origin in UNION else origin,
            parts[:1] if kind == "items" else parts,
            translated=any(p.translated for p in parts),
            twinned=any(p.twinned for p in parts),
            integers=any(p.integers for p in parts),
            adapted=any(p.adapted for p in parts),
        )

    def _choice(self, origin: Any, args: tuple[Any, ...], parts: tuple[Node, ...]) -> Node | None:
        """Return the node of a union that msgspec cannot decode; None if msgspec can."""
        decodable = _decodable(tuple(p.type for p in parts)) and _decodable(tuple(p.check for p in parts))
        if decodable:
            return None
        made = None
        if any(_has_model(part) for part in parts):
            try:
                made = marker(type_adapter(Union[args], self.where))  # noqa: UP007
            except LocalError:
                made = None  # a class in it that pydantic does not know
        made = choice(parts) if made is None else made
        return Node(
            "union",
            made,
            made,
            made,
            parts=parts,
            translated=any(p.translated for p in parts),
            integers=any(p.integers for p in parts),
            adapted=True,
        )

    def _annotated(self, hint: Any) -> Node:
        inner, *given = get_args(hint)
        extras = [one for e in given for one in (spread_inner(e, self.where) if is_field(e) else [e])]
        if self.result:
            for extra in extras:
                refuse_serializer(extra, self.where)
        elif any(needs_pydantic(extra) for extra in extras):
            return self._by_pydantic(Annotated[(inner, *extras)], self._plain(inner))
        node = self.grow(inner)
        metas = [extra for extra in extras if isinstance(extra, Meta)]
        tests = [] if self.result else [test for extra in extras if (test := predicate(extra))]
        try:
            foreign = [pair for extra in extras if not predicate(extra) for pair in constraints(extra, self.where)]
            if _innermost(node).cls in COMPARED:
                tests += [] if self.result else [comparison(*pair) for pair in foreign if pair[0] in COMPARISONS]
                foreign = [pair for pair in foreign if pair[0] not in COMPARISONS]
        except LocalError:
            if not self.result:
                raise
            foreign = []  # a result was made by the function itself, and its constraints are not checked
        if foreign or len(metas) > 1:
            try:
                metas = merged(metas, foreign)
            except (TypeError, ValueError) as error:
                raise LocalError(f"{self.where}: {hint}: {error}") from error
        if metas:
            found = _constrained(node, metas)
            found.translated = bool(foreign) or node.translated
            node = found
        elif text := next(filter(None, map(text_of, extras)), ""):
            node = replace(node, shown=Annotated[node.shown, Meta(description=text)], of=_fields_node(node))
        for test in tests:
            node = _tested(node, test)
        return node

    def _plain(self, inner: Any) -> Node | None:
        """Return the node of a type without pydantic's metadata; None if only pydantic knows the type."""
        try:
            return self.grow(inner)
        except LocalError:
            return None

    def _fields(self, hint: Any, cls: Any, args: tuple[Any, ...]) -> Node:
        if hasattr(cls, "__pydantic_validator__") and not self.result:
            return self._by_pydantic(hint)  # a pydantic dataclass, whose validators must run
        if (open := self.inside.get(hint)) is not None:
            open.integers = True  # whether it has integers is not known yet
            return open
        node = self.inside[hint] = Node("fields", hint, hint, hint, cls)
        outer, self.variables = self.variables, dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
        every = fields_of(hint, self.where)
        for field in every:
            if is_field(field.default):
                raise LocalError(
                    f"{self.where}: {cls.__qualname__}.{field.attribute} = Field(...) is read in pydantic's classes alone; "
                    f"write {field.attribute}: Annotated[..., Field(...)] and the default after =, or a pydantic model"
                )
        fields = [field for field in every if not (self.result and field.private)]
        nodes = [self.grow(field.hint) for field in fields]
        self.variables = outer
        del self.inside[hint]
        parts = tuple(TreePart(f.attribute, f.name, f.required, one) for f, one in zip(fields, nodes, strict=True))
        node.fields = shape_of(hint, parts, len(fields) < len(every))
        node.integers = node.integers or any(one.integers for one in nodes)
        self._twinned(node, fields, any(one.translated or one.twinned for one in nodes))
        return node

    def _twinned(self, node: Node, fields: list[Field], constrained: bool) -> None:
        """Give a node the twins that it needs: one with the constraints, to check values; one with all that the schema
        says, to describe them. Raises LocalError if the class refers to itself and would need a twin to be decoded."""
        assert node.fields is not None
        nodes = [part.node for part in node.fields.parts]
        constrained = constrained or node.fields.private
        adapted = any(one.adapted for one in nodes) and not self.result
        described = adapted or any(one.shown is not one.check for one in nodes)
        if not constrained and not described:
            return
        if any(part == node.type for field in fields for part in _parts(field.hint)):
            if (constrained or adapted) and not self.result:
                what = "types that msgspec cannot decode" if adapted else "constraints of annotated_types"
                instead = "make it a pydantic model" if adapted else "write them as msgspec.Meta"
                raise LocalError(f"{self.where}: {node.cls.__qualname__} refers to itself and has {what}; {instead}")
            return
        hint = node.type
        if described:
            node.shown = twin(hint, "shown", self.result, fields, [one.shown for one in nodes])
        if adapted:
            hints = [whole(one) if one.twinned else one.type for one in nodes]
            node.type = node.check = built(hint, fields, twin(hint, "read", self.result, fields, hints), node.shown)
            node.adapted = True
        elif constrained:
            node.twinned = True
            node.check = twin(hint, "check", self.result, fields, [one.check for one in nodes])
            node.shown = node.shown if described else node.check


_TIMES: dict[Any, tuple[str, str]] = {
    datetime.datetime: ("2026-11-22T13:05:00Z", "date-time"),
    datetime.time: ("13:05:00Z", "time"),
}
"""Types that msgspec's schema describes only as a string: an example, and the format of received values."""


def _decodable(hints: tuple[Any, ...]) -> bool:
    """Return whether msgspec can decode the union of these types, whose members it must be able to distinguish."""
    if sum(hint is not type(None) for hint in hints) < 2:
        return True
    try:
        msgspec.json.Decoder(Union[hints])  # noqa: UP007
    except (TypeError, ValueError):
        return False
    except NameError:
        return True  # it is reported with its name later
    return True


def _has_model(node: Node) -> bool:
    """Return whether pydantic decodes a part of this node."""
    return node.kind == "model" or any(_has_model(part) for part in node.parts)


def _fields_node(node: Node) -> Node | None:
    return node.of or (node if node.kind == "fields" else None)


def _constrained(node: Node, metas: list[Meta]) -> Node:
    """Return the node with these constraints. Those of a union are put on the members that can have them, since msgspec
    refuses them on the others."""
    if node.kind == "union":
        described, checks = _only_words(metas, DESCRIBED), _only_words(metas, CHECKS)
        parts = node.parts
        if checks:
            parts = tuple(_constrained(part, checks) if _can_have(part.check, checks) else part for part in parts)
        changed = any(a is not b for a, b in zip(parts, node.parts, strict=True))
        if changed or not checks:
            kind, check, shown = node.type, node.check, node.shown
            if changed and node.adapted:
                kind = check = shown = choice(parts)
            elif changed:
                kind = Union[tuple(part.type for part in parts)]  # noqa: UP007
                check = Union[tuple(part.check for part in parts)]  # noqa: UP007
                shown = Union[tuple(part.shown for part in parts)]  # noqa: UP007
            if described:
                shown = Annotated[(shown, *described)]
            return replace(node, type=kind, check=check, shown=shown, parts=parts)
        # else no member can have them: msgspec reports it
    return replace(
        node,
        type=Annotated[(node.type, *metas)],
        check=Annotated[(node.check, *metas)],
        shown=Annotated[(node.shown, *metas)],
        metas=(*node.metas, *metas),
        of=_fields_node(node),
    )


def _only_words(metas: list[Meta], words: tuple[str, ...]) -> list[Meta]:
    """Return metas with only these attributes of the given ones; those that would be empty are left out."""
    found = [{word: value for word in words if (value := getattr(meta, word)) is not None} for meta in metas]
    return [Meta(**kept) for kept in found if kept]


def _can_have(hint: Any, metas: list[Meta]) -> bool:
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
