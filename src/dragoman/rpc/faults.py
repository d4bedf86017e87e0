"""Every fault of a value at once, in words, where msgspec stops at the first; and 1.0 where 1 is meant.

Rules:

- Nothing here runs while values fit: it works on what `msgspec.json.decode` made of text that did not.
- The work is linear in the text: what fits is left to msgspec, in pieces; at most `MOST` faults are looked
  for, and when the text was read `_AGAIN` times over, or `_DEEPEST` levels down, msgspec's words must do.
- `received` is the value that came, its JSON shortened to `SHOWN` characters; what is missing has none.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType, ValidationError
from msgspec import inspect as mi

from .annotations import UNION, Field, fields_of, has_fields, is_model
from .hooks import decode_hook

MOST = 100
SHOWN = 200
_AGAIN = 8
_DEEPEST = 32
_PIECE = 256
_NAME = 64
"""Longest name that is compared with others, and shown whole."""

Fix: TypeAlias = Callable[[Any], Any]


class Fault(Struct, frozen=True, omit_defaults=True):
    """One fault, as it stands in `error.data.errors`."""

    field: str
    message: str
    received: Any | UnsetType = UNSET


def fault(field: str, message: str, received: Any = UNSET) -> Fault:
    """A fault; `received` is shortened."""
    if received is not UNSET:
        text = msgspec.json.encode(received)
        if len(text) > SHOWN:
            received = text[: SHOWN - 3].decode("utf-8", "ignore") + "..."
    return Fault(field, message, received)


def find(value: Any, hint: Any, field: str) -> list[Fault]:
    """Every fault of decoded JSON against an annotation (translated, see `annotations`); none when it fits."""
    search = _Search([], _AGAIN * len(msgspec.json.encode(value)) + 65_536)
    _examine(value, hint, field, search, 0)
    return search.found[:MOST]


def surplus(name: str, known: Iterable[str], path: str = "") -> str:
    """The message for a name that is not known."""
    near = get_close_matches(name, list(known), n=1) if len(name) <= _NAME else []
    what = "field" if path else "argument"
    return f"Unknown {what}; did you mean {near[0]!r}?" if near else f"Unknown {what}"


def below(path: str, name: str) -> str:
    """The path of a member."""
    name = name if len(name) <= _NAME else name[: _NAME - 3] + "..."
    if name.isidentifier() or name.replace("-", "_").replace("$", "_").isidentifier():
        return f"{path}.{name}" if path else name
    quoted = msgspec.json.encode(name).decode()
    return f"{path}[{quoted}]"


# -- words ----------------------------------------------------------------------------------------

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
    "bytes": "a base64 string",
    "datetime": "a date and time (RFC 3339)",
    "date": "a date (RFC 3339)",
    "time": "a time (RFC 3339)",
    "timedelta": "a duration (ISO 8601)",
    "duration": "a duration (ISO 8601)",
    "uuid": "a UUID",
    "decimal": "a decimal number",
}
_TYPES = re.compile(r"`([^`]*)`")
_PLACE = re.compile(r"^(.*?)(?: - at `key` in `([^`]*)`| - at `([^`]*)`)?$", re.DOTALL)


def words(message: str) -> tuple[str, str]:
    """A message of msgspec's in plain words, and the path it names below the value ("" for the value itself)."""
    match = _PLACE.match(message)
    text, place = (match[1], match[2] or match[3] or "") if match else (message, "")
    expected, got, received = text.partition(", got ")
    if got:
        text = f"{_typed(expected)}, got {_typed(received).replace('true or false', 'a boolean')}"
    elif text.startswith("Object missing required field"):
        text = "Missing " + text.removeprefix("Object missing required ").replace("`", "")
    else:
        text = _typed(text)
    return text.replace("an integer that's a multiple", "a multiple"), place.removeprefix("$")


def _typed(text: str) -> str:
    return _TYPES.sub(lambda m: " or ".join(_WORDS.get(part, part) for part in m[1].split(" | ")), text)


# -- finding --------------------------------------------------------------------------------------


class _Search(Struct):
    """What was found, and how many bytes may still be read for more."""

    found: list[Fault]
    budget: int

    def add(self, field: str, message: str, received: Any = UNSET) -> None:
        self.found.append(fault(field, message, received))

    def failure(self, value: Any, hint: Any) -> Exception | None:
        """What msgspec says to a value; None when it fits."""
        text = msgspec.json.encode(value)
        self.budget -= len(text)
        try:
            msgspec.json.decode(text, type=hint, dec_hook=decode_hook)
        except (ValidationError, RecursionError) as error:
            return error
        return None

    @property
    def over(self) -> bool:
        return len(self.found) >= MOST


def _examine(value: Any, hint: Any, path: str, search: _Search, depth: int) -> None:
    """Add the faults of one value."""
    if search.over or (error := search.failure(value, hint)) is None:
        return
    before = len(search.found)
    if depth < _DEEPEST and search.budget > 0:
        _descend(value, hint, path, search, depth + 1)
    if len(search.found) > before:
        return
    if isinstance(error, RecursionError):
        search.add(path, "Nested too deep")
        return
    text, place = words(str(error))
    if not place and (choices := _choices(hint)):
        text = f"Expected {choices}"
    search.add(f"{path}{place}" if path else place.removeprefix("."), text, UNSET if place else value)


def _descend(value: Any, hint: Any, path: str, search: _Search, depth: int) -> None:
    """Add the faults of what is inside of one value that does not fit."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *metas = get_args(hint)
        before = len(search.found)
        _descend(value, inner, path, search, depth)
        container = list[Any] if isinstance(value, list) else dict[str, Any] if isinstance(value, dict) else None
        if (
            len(search.found) > before
            and container
            and (error := search.failure(value, Annotated[(container, *metas)])) is not None
        ):
            search.add(path, words(str(error))[0], value)
    elif origin in UNION:
        model = next((member for member in get_args(hint) if is_model(member)), None)  # the only one but None
        if model is not None:
            _model(value, model, path, search)
        elif isinstance(value, list | dict) and (member := _member(hint, value)) is not None:
            _descend(value, member, path, search, depth)
    elif is_model(hint):
        _model(value, hint, path, search)
    elif has_fields(origin or hint):
        _object(value, hint, path, search, depth)
    elif isinstance(value, dict) and len(args := get_args(hint)) == 2 and _is_mapping(origin):
        _members(value, args, path, search, depth)
    elif isinstance(value, list) and origin is tuple and get_args(hint)[-1:] != (...,):
        args = get_args(hint)
        if len(args) == len(value):
            for index, (item, arg) in enumerate(zip(value, args, strict=True)):
                _examine(item, arg, f"{path}[{index}]", search, depth)
    elif isinstance(value, list) and get_args(hint) and not _is_mapping(origin) and origin is not Literal:
        _items(value, get_args(hint)[0], path, search, depth)


def _items(value: list[Any], hint: Any, path: str, search: _Search, depth: int) -> None:
    for start in range(0, len(value), _PIECE):
        piece = value[start : start + _PIECE]
        if search.over:
            return
        if search.failure(piece, _generic(list, hint)) is not None:
            for index, item in enumerate(piece, start):
                _examine(item, hint, f"{path}[{index}]", search, depth)


def _members(value: dict[str, Any], hints: tuple[Any, ...], path: str, search: _Search, depth: int) -> None:
    names, whole = list(value), _generic(dict, hints)
    for start in range(0, len(names), _PIECE):
        piece = {name: value[name] for name in names[start : start + _PIECE]}
        if search.over:
            return
        if search.failure(piece, whole) is None:
            continue
        for name, item in piece.items():
            if (error := search.failure({name: None}, _generic(dict, (hints[0], Any)))) is not None:
                search.add(below(path, name), f"The name does not fit: {words(str(error))[0]}", name)
            _examine(item, hints[1], below(path, name), search, depth)


def _generic(origin: Any, args: Any) -> Any:
    return origin[args]


def _object(value: Any, hint: Any, path: str, search: _Search, depth: int) -> None:
    shape = _shape(hint)
    if shape.array:
        for index, (part, item) in enumerate(zip(shape.fields, value if isinstance(value, list) else (), strict=False)):
            _examine(item, part.hint, f"{path}[{index}]", search, depth)
        return
    if not isinstance(value, dict):
        return
    for part in shape.fields:
        if part.name in value:
            _examine(value[part.name], part.hint, below(path, part.name), search, depth)
        elif part.required:
            search.add(below(path, part.name), "Missing field")
    if shape.closed:
        known = [part.name for part in shape.fields]
        for name in value:
            if name not in known and name != shape.tag_field and not search.over:
                search.add(below(path, name), surplus(name, known, path), value[name])


def _model(value: Any, hint: Any, path: str, search: _Search) -> None:
    """pydantic's own list."""
    listed = getattr(getattr(search.failure(value, hint), "__cause__", None), "errors", None)
    for entry in listed(include_url=False, include_context=False)[:MOST] if callable(listed) else ():
        place = path
        for part in entry["loc"]:
            place = f"{place}[{part}]" if isinstance(part, int) else below(place, str(part))
        if entry["type"] == "missing":
            search.add(place, "Missing field")
        else:
            search.add(place, entry["msg"], entry["input"])


# -- shapes ---------------------------------------------------------------------------------------


class _Shape(Struct, frozen=True):
    """A class with fields, as JSON shows it. `array`: as an array; `closed`: unknown fields are refused."""

    fields: tuple[Field, ...]
    array: bool
    closed: bool
    tag: Any
    tag_field: str | None


Hint = TypeVar("Hint", bound=Callable[..., Any])


def _kept(function: Hint) -> Hint:
    """Keep answers for each annotation; some have metadata that cannot be hashed."""
    known = functools.lru_cache(1024)(function)

    def call(*args: Any) -> Any:
        try:
            return known(*args)
        except TypeError:
            return function(*args)

    return cast(Hint, call)


@_kept
def _shape(hint: Any) -> _Shape:
    info: Any = mi.type_info(hint)
    return _Shape(
        fields_of(hint),
        isinstance(info, mi.NamedTupleType) or getattr(info, "array_like", False),
        getattr(info, "forbid_unknown_fields", False),
        getattr(info, "tag", None),
        getattr(info, "tag_field", None),
    )


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


@_kept
def _structures(hint: Any) -> tuple[tuple[Any, bool, Any, str | None], ...]:
    """The members of a union that are arrays or objects: each with whether it is an array, its tag, its tag's name."""
    found: list[tuple[Any, bool, Any, str | None]] = []
    for member in get_args(hint):
        bare = _bare(member)
        origin: Any = get_origin(bare) or bare
        if has_fields(origin):
            shape = _shape(bare)
            found.append((member, shape.array, shape.tag, shape.tag_field))
        elif is_model(origin) or _is_mapping(origin):
            found.append((member, False, None, None))
        elif isinstance(origin, type) and get_args(bare) and origin is not Literal:
            found.append((member, True, None, None))
    return tuple(found)


def _member(hint: Any, value: list[Any] | dict[str, Any]) -> Any:
    """The member of a union that an array or an object is meant for; None where nothing tells."""
    meant = []
    for member, array, tag, tag_field in _structures(hint):
        if array is isinstance(value, list) and (tag is None or tag == _tag(value, tag_field)):
            meant.append(member)
    return meant[0] if len(meant) == 1 else None


def _tag(value: list[Any] | dict[str, Any], name: str | None) -> Any:
    if isinstance(value, dict):
        return value.get(name or "")
    return value[0] if value else None


def _choices(hint: Any) -> str:
    """The values of a Literal or Enum in words; "" for other types and for long lists."""
    if get_origin(hint) is Annotated:
        return _choices(get_args(hint)[0])
    values: list[Any] = []
    if get_origin(hint) is Literal:
        values = list(get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = [member.value for member in hint]
    if not values or len(values) > 20:
        return ""
    texts = [msgspec.json.encode(value).decode() for value in values]
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


# -- integral floats ------------------------------------------------------------------------------

_FRACTION = re.compile(rb"[0-9][.eE]")


def integral(value: Any, hint: Any) -> Any:
    """The value with 1.0 made 1 where the annotation wants an integer (as our schema promises).

    Arrays and objects in it are changed in place.
    """
    fix = _fix(hint, ())
    return value if fix is None else fix(value)


def has_fractions(text: Any) -> bool:
    """Whether this JSON text may hold a number like 1.0 at all; quick."""
    return _FRACTION.search(text) is not None


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


@_kept
def _fix(hint: Any, inside: tuple[Any, ...]) -> Fix | None:
    """What makes floats integers in values of this annotation; None where there is nothing to make."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is int or (isinstance(hint, type) and issubclass(hint, enum.Enum) and _integers(m.value for m in hint)):
        return _whole
    if origin is Literal:
        return _whole if _integers(args) else None
    if origin is Annotated:
        return _fix(args[0], inside)
    if origin in UNION:
        return _fix_union(hint, inside)
    if has_fields(origin or hint):
        return _fix_object(hint, inside)
    if _is_mapping(origin) and len(args) == 2:
        return _fix_values(_fix(args[1], inside))
    if origin is tuple and args[-1:] != (...,):
        return _fix_each([_fix(arg, inside) for arg in args])
    if isinstance(origin, type) and args:
        return _fix_items(_fix(args[0], inside))
    return None


def _integers(values: Iterable[Any]) -> bool:
    return any(type(value) is int for value in values)


def _fix_items(inner: Fix | None) -> Fix | None:
    return inner and (lambda value: [inner(item) for item in value] if isinstance(value, list) else value)


def _fix_values(inner: Fix | None) -> Fix | None:
    return inner and (lambda value: {k: inner(v) for k, v in value.items()} if isinstance(value, dict) else value)


def _fix_each(inner: list[Fix | None]) -> Fix | None:
    def fixed(value: Any) -> Any:
        if isinstance(value, list):
            for index, fix in enumerate(inner[: len(value)]):
                if fix is not None:
                    value[index] = fix(value[index])
        return value

    return fixed if any(inner) else None


def _fix_union(hint: Any, inside: tuple[Any, ...]) -> Fix | None:
    fixes = [_fix(member, inside) for member in get_args(hint)]
    # where floats are welcome, 1.0 stays
    simple = _whole in fixes and not any(_bare(member) is float for member in get_args(hint))
    deep = any(fix is not None and fix is not _whole for fix in fixes)

    def fixed(value: Any) -> Any:
        if isinstance(value, list | dict):
            member = _member(hint, value) if deep else None
            fix = None if member is None else _fix(member, ())
            return value if fix is None else fix(value)
        return _whole(value) if simple else value

    return fixed if simple or deep else None


def _fix_object(hint: Any, inside: tuple[Any, ...]) -> Fix | None:
    if hint in inside:  # it refers to itself: found out when a value comes
        return lambda value: integral(value, hint)
    shape = _shape(hint)
    fixes = [_fix(part.hint, (*inside, hint)) for part in shape.fields]
    if shape.array:
        return _fix_each(fixes)
    wanted = [(part.name, fix) for part, fix in zip(shape.fields, fixes, strict=True) if fix is not None]

    def fixed(value: Any) -> Any:
        if isinstance(value, dict):
            for name, fix in wanted:
                if name in value:
                    value[name] = fix(value[name])
        return value

    return fixed if wanted else None
