"""Annotations as msgspec takes them: what it would ignore is translated, what it cannot do is refused at once.

Rules:

- Constraints of `annotated_types` become `msgspec.Meta`, however deep. In the fields of a class msgspec
  would still ignore them, and the class is the user's: so a *twin* is made of it, a Struct of the same
  JSON shape with the constraints, and what comes is decoded into the twin first, then into the class.
- `annotated_types`, attrs and pydantic are recognised by name and attribute, never imported.
- pydantic models are decoded, encoded and described by pydantic (msgspec's hooks).
- Whatever remains that no JSON can be decoded to is a `LocalError` that says what would be right.
"""

from __future__ import annotations

import collections.abc
import re
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    LiteralString,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, Meta, Struct
from msgspec import inspect as mi

from ..jsonrpc.errors import LocalError

UNION = (Union, types.UnionType)
_WRAPPERS = ("Final", "Required", "NotRequired", "ReadOnly")
"""Names, as typing_extensions has some of its own."""
_LISTS = (collections.abc.Iterable, collections.abc.Container, collections.abc.Reversible)
"""What is read as a list, beside what msgspec itself reads so."""


class Annotation(Struct, frozen=True):
    """An annotation, translated.

    `type` is what is decoded into and `check` the same with every constraint; `twice` says that
    `check` must be decoded before `type`. `opaque`: a part stays `msgspec.Raw`, so its numbers are unread.
    """

    type: Any
    check: Any
    twice: bool = False
    opaque: bool = False
    description: str = ""


class Field(Struct, frozen=True):
    """One field of a class with fields. `name` as in JSON; `hint` as the class declares it."""

    name: str
    hint: Any
    required: bool
    default: Any
    factory: Any


ANY = Annotation(Any, Any)
_KNOWN = {kind: Annotation(kind, kind) for kind in (str, int, float, bool, dict, list, type(None))}
"""Nothing to find out about."""


def translate(hint: Any, where: str) -> Annotation:
    """The annotation of what comes in. LocalError, opening with `where`, for what cannot be decoded."""
    if hint is Any or hint is object:
        return ANY
    if isinstance(hint, type) and hint in _KNOWN:
        return _KNOWN[hint]
    seen = _Walk(where, {}, []).walk(hint)
    custom, opaque = _leaves(seen.check if seen.twinned else seen.type, where)
    for cls in custom:
        if not is_model(cls):
            raise LocalError(
                f"{where}: JSON cannot be decoded to {cls.__qualname__}; use a msgspec Struct, a dataclass, a TypedDict, "
                "a pydantic model or a built-in type"
            )
    return Annotation(seen.type, seen.check, seen.twinned, opaque, _described(hint))


def translate_result(hint: Any, where: str) -> Annotation:
    """The annotation of what goes out: anything msgspec encodes, also unions that could not be decoded."""
    if getattr(hint, "__name__", "") in ("NoReturn", "Never"):
        return ANY
    try:
        return translate(hint, where)
    except LocalError:
        if any(not is_model(cls) for cls in _foreign(hint)):
            raise
        return Annotation(Any, hint, description=_described(hint))


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


# -- the walk -------------------------------------------------------------------------------------


class _Seen(Struct, frozen=True):
    """A translated hint. `translated`: it held foreign constraints; `twinned`: a class in it got a twin."""

    type: Any
    check: Any
    translated: bool = False
    twinned: bool = False


class _Walk(Struct):
    """One walk through one annotation. `stack`: the classes and aliases we are inside of."""

    where: str
    variables: dict[Any, Any]
    stack: list[Any]

    def walk(self, hint: Any) -> _Seen:
        if hint is object:
            return _Seen(Any, Any)
        if hint is LiteralString:
            return _Seen(str, str)
        if isinstance(hint, TypeVar):
            bound = self.variables.get(hint, hint)
            return _Seen(hint, hint) if bound is hint else self.walk(bound)
        if hasattr(hint, "__supertype__"):  # NewType
            return self.walk(hint.__supertype__)
        origin = get_origin(hint)
        if type(origin or hint).__name__ == "TypeAliasType":
            return self._alias(hint, origin)
        if origin is Annotated:
            return self._annotated(hint)
        if origin is Literal or (origin is None and not isinstance(hint, type)):
            return _Seen(hint, hint)
        if (inner := _unwrapped(hint)) is not hint:
            return self.walk(inner)
        if hint in _LISTS:
            return _Seen(list, list)
        if has_fields(origin or hint):
            return self._fields(hint, origin)
        if origin is None or not get_args(hint):
            return _Seen(hint, hint)
        return self._generic(origin, get_args(hint))

    def _alias(self, hint: Any, origin: Any) -> _Seen:
        if hint in self.stack:
            raise LocalError(f"{self.where}: the alias {hint} refers to itself; use Any for the inner part")
        self.stack.append(hint)
        value = (origin or hint).__value__
        seen = self.walk(value[get_args(hint)] if origin else value)
        self.stack.pop()
        return seen

    def _generic(self, origin: Any, args: tuple[Any, ...]) -> _Seen:
        parts = [_Seen(arg, arg) if arg is Ellipsis else self.walk(arg) for arg in args]

        def rebuilt(args: tuple[Any, ...]) -> Any:
            if origin in UNION:
                return Union[args]  # noqa: UP007
            return (list if origin in _LISTS else origin)[args]

        return _Seen(
            rebuilt(tuple(p.type for p in parts)),
            rebuilt(tuple(p.check for p in parts)),
            any(p.translated for p in parts),
            any(p.twinned for p in parts),
        )

    def _annotated(self, hint: Any) -> _Seen:
        inner, *extras = get_args(hint)
        seen = self.walk(inner)
        metas = [extra for extra in extras if isinstance(extra, Meta)]
        foreign = [pair for extra in extras for pair in _constraints(extra, self.where)]
        if foreign:
            try:
                metas = _merged(metas, foreign)
            except (TypeError, ValueError) as error:
                raise LocalError(f"{self.where}: {hint}: {error}") from error
        if not metas:
            return seen
        return _Seen(_with(seen.type, metas), _with(seen.check, metas), bool(foreign) or seen.translated, seen.twinned)

    def _fields(self, hint: Any, origin: Any) -> _Seen:
        cls = origin or hint
        if hasattr(cls, "__pydantic_validator__"):
            raise LocalError(
                f"{self.where}: {cls.__qualname__} is a pydantic dataclass, whose rules would not run; "
                "make it a pydantic BaseModel or a plain dataclass"
            )
        args = get_args(hint)
        if hint in self.stack:
            return _Seen(hint, hint)
        outer, self.variables = self.variables, dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
        self.stack.append(hint)
        fields = [(field, self.walk(field.hint)) for field in fields_of(hint, self.where)]
        self.stack.pop()
        self.variables = outer
        if not any(seen.translated or seen.twinned for _, seen in fields):
            return _Seen(hint, hint)
        if any(part == hint for field, _ in fields for part in _parts(field.hint)):
            raise LocalError(
                f"{self.where}: {cls.__qualname__} refers to itself and has constraints of annotated_types; "
                "write them as msgspec.Meta"
            )
        if hint not in _TWINS:
            _TWINS[hint] = _twin(hint, cls, fields)
        return _Seen(hint, _TWINS[hint], False, True)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for arg in get_args(hint):
        yield from _parts(arg)


def _with(hint: Any, metas: list[Meta]) -> Any:
    """`Annotated[hint, *metas]`; into a union, on the members that can take them (msgspec refuses the others)."""
    if get_origin(hint) not in UNION:
        return Annotated[(hint, *metas)]
    members: list[Any] = []
    for member in get_args(hint):
        constrained: Any = Annotated[(member, *metas)]
        try:
            msgspec.json.Decoder(constrained)
        except (TypeError, ValueError):
            members.append(member)
        else:
            members.append(member if member is type(None) else constrained)
    if tuple(members) == get_args(hint):
        return Annotated[(hint, *metas)]  # fits none of them: msgspec says so
    return Union[tuple(members)]  # noqa: UP007


_TWINS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""One twin for each class, so that a schema names it once."""


def _twin(hint: Any, cls: Any, fields: list[tuple[Field, _Seen]]) -> Any:
    """A Struct with the JSON shape of `cls` and the constraints of its fields."""
    info: Any = mi.type_info(hint)
    members: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for index, (field, seen) in enumerate(fields):
        if field.required:
            members.append((f"f{index}", seen.check))
        elif field.factory is not NODEFAULT:
            members.append((f"f{index}", seen.check, msgspec.field(default_factory=field.factory)))
        elif field.default is not NODEFAULT:
            members.append((f"f{index}", seen.check, _default(field.default)))
        else:  # a key of a TypedDict that may be absent
            members.append((f"f{index}", Union[seen.check, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
    return msgspec.defstruct(
        re.sub(r"\W+", "_", "_".join([cls.__name__, *(getattr(arg, "__name__", str(arg)) for arg in get_args(hint))])),
        members,
        rename={f"f{index}": field.name for index, (field, _) in enumerate(fields)},
        kw_only=not getattr(info, "array_like", False) and not isinstance(info, mi.NamedTupleType),
        array_like=getattr(info, "array_like", False) or isinstance(info, mi.NamedTupleType),
        forbid_unknown_fields=getattr(info, "forbid_unknown_fields", False),
        tag=getattr(info, "tag", None),
        tag_field=getattr(info, "tag_field", None),
        module=cls.__module__,
        namespace={"__doc__": None if (cls.__doc__ or "").startswith(f"{cls.__name__}(") else cls.__doc__},
    )


def _default(value: Any) -> Any:
    return (
        value if isinstance(value, str | bytes | int | float | None) else msgspec.field(default_factory=lambda: value)
    )


# -- classes with fields --------------------------------------------------------------------------


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
        info: Any = mi.type_info(hint)
        if issubclass(cls, Struct):
            hints = {field.name: field.type for field in msgspec.structs.fields(hint)}
        else:
            hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise LocalError(
            f"{where}: a field of {cls.__qualname__} names {error.name!r}, which its module does not know; "
            "define or import it at module level"
        ) from error
    except Exception as error:
        raise LocalError(f"{where}: {_plain(error)}{_remedy(str(error))}") from error
    order = list(hints)
    keyed = isinstance(info, mi.TypedDictType)  # msgspec sorts its keys
    return tuple(
        Field(
            getattr(f, "encode_name", f.name),
            _unwrapped(hints.get(f.name, Any)),
            f.required,
            getattr(f, "default", NODEFAULT),
            getattr(f, "default_factory", NODEFAULT),
        )
        for f in (sorted(info.fields, key=lambda f: order.index(f.name)) if keyed else info.fields)
        if get_origin(hints.get(f.name)) is not ClassVar
    )


def _unwrapped(hint: Any) -> Any:
    while getattr(get_origin(hint), "_name", "") in _WRAPPERS:
        hint = get_args(hint)[0]
    return hint


def _leaves(hint: Any, where: str) -> tuple[list[Any], bool]:
    """Classes that msgspec does not know, and whether any part stays raw. LocalError for what it cannot decode."""
    try:
        root = mi.type_info(hint)
    except NameError as error:
        raise LocalError(
            f"{where}: {error.name!r} is not known where {hint} is defined; import it at module level"
        ) from error
    except Exception as error:
        raise LocalError(f"{where}: {_plain(error)}{_remedy(str(error))}") from error
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

_REMEDIES = (
    ("must be tagged", "give each class a tag: class A(Struct, tag=True)"),
    ("dict-like", "give one object type, or Structs with tags: class A(Struct, tag=True)"),
    ("array-like", "give one array type"),
    ("custom type", "give one type, or a pydantic model that is the union"),
    ("str-like", "give one type that is text in JSON, and convert in the function"),
    ("int-like", "give one type that is a number in JSON, and convert in the function"),
)


def _remedy(text: str) -> str:
    return next((f"; {words}" for key, words in _REMEDIES if key in text), "")


def _plain(error: Exception) -> str:
    return str(error) or type(error).__name__


# -- foreign constraints --------------------------------------------------------------------------

_KEYS = {"Gt": "gt", "Ge": "ge", "Lt": "lt", "Le": "le", "MultipleOf": "multiple_of", "MinLen": "min_length"}
_KEYS |= {"MaxLen": "max_length"}
_UNSAID = ("Unit", "DocInfo", "GroupedMetadata")
"""Members of annotated_types that constrain nothing."""


def _constraints(extra: Any, where: str) -> Iterable[tuple[str, Any]]:
    """`msgspec.Meta` arguments for one member of `Annotated`; nothing for what is no constraint."""
    if isinstance(extra, slice):  # an old spelling of Len
        if extra.start:
            yield "min_length", extra.start
        if extra.stop is not None:
            yield "max_length", extra.stop
        return
    kinds = [kind for kind in type(extra).__mro__ if kind.__module__.partition(".")[0] == "annotated_types"]
    if type(extra).__name__ == "FieldInfo" and getattr(extra, "metadata", None):
        raise LocalError(
            f"{where}: pydantic's Field is not read outside models; use annotated_types (Gt, Len, ...) or msgspec.Meta"
        )
    if not kinds or any(kind.__name__ == "DocInfo" for kind in kinds):
        return
    if getattr(extra, "__is_annotated_types_grouped_metadata__", False):
        for part in extra:
            yield from _constraints(part, where)
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


_TOLD = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_SAID = ("title", "description", "examples", "extra_json_schema", "extra")


def _merged(metas: list[Meta], foreign: list[tuple[str, Any]]) -> list[Meta]:
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


def _described(hint: Any) -> str:
    """The description in an `Annotated`: Doc("..."), doc("..."), msgspec.Meta(description=...), Field(...) or a string."""
    if get_origin(hint) is not Annotated:
        return ""
    for extra in get_args(hint)[1:]:
        text = extra if isinstance(extra, str) else None
        for name in ("documentation", "description"):
            text = text or getattr(extra, name, None)
        if isinstance(text, str):
            return text
    return ""


def is_model(cls: Any) -> bool:
    """Whether it is a pydantic model, told without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__") and not has_fields(cls)
