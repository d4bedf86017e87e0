"""Finds every fault of a value at once, where msgspec stops at the first; and accepts 1.0 as 1.

Rules:

- Nothing here runs while values fit: it works on JSON that was decoded because it did not fit its type.
- The work is linear in the text: msgspec checks parts that fit; at most `MOST` faults are searched,
  and after reading the text `_AGAIN` times, or `_DEEPEST` levels down, msgspec's own message is used.
- `received` is the value that came, its JSON shortened to `SHOWN` characters; a missing value has none.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from itertools import repeat
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType, ValidationError

from ...jsonrpc.options import nearest_name
from .hooks import decode_hook
from .tree import Node, Shape, generic

MOST = 100
SHOWN = 200
_AGAIN = 8
_DEEPEST = 32
_PIECE = 256
_NAME = 64
"""Longest name that is compared with others, and shown whole."""


class ValueFault(Struct, frozen=True, omit_defaults=True):
    """One fault, as it stands in `error.data.errors`."""

    field: str
    message: str
    received: Any | UnsetType = UNSET


def fault(field: str, message: str, received: Any = UNSET) -> ValueFault:
    """A fault; `received` is shortened."""
    if received is not UNSET:
        text = msgspec.json.encode(received)
        if len(text) > SHOWN:
            received = text[: SHOWN - 3].decode("utf-8", "ignore") + "..."
    return ValueFault(field, message, received)


def find(value: Any, node: Node, field: str, error: Exception | None = None) -> list[ValueFault]:
    """Every fault of decoded JSON against an annotation, by its tree; empty when it fits.

    `error`: msgspec's error for it, where it has been decoded already: what a class does when it is made is not done
    anew."""
    search = _Search([], _AGAIN * len(msgspec.json.encode(value)) + 65_536)
    _examine(value, node, field, search, 0, error)
    return search.found[:MOST]


def surplus(name: str, known: Iterable[str], path: str = "") -> str:
    """The message for an unknown name."""
    near = nearest_name(name, known) if len(name) <= _NAME else ""
    what = "field" if path else "argument"
    return f"Unknown {what}; did you mean {near!r}?" if near else f"Unknown {what}"


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
# as texts: they are compiled at the first fault
_TYPES = r"`([^`]*)`"
_PLACE = r"(?s)^(.*?)(?: - at `key` in `([^`]*)`| - at `([^`]*)`)?$"


def words(message: str) -> tuple[str, str]:
    """A message of msgspec's in plain text, and the path that it names below the value ("" for the value itself)."""
    if message.startswith("unhashable type"):
        return "Arrays and objects cannot be items of a set", ""
    match = re.match(_PLACE, message)
    text, at = (match[1], match[2] or match[3] or "") if match else (message, "")
    expected, got, received = text.partition(", got ")
    if got:
        text = f"{_typed(expected)}, got {_typed(received).replace('true or false', 'a boolean')}"
    elif text.startswith("Object missing required field"):
        text = "Missing " + text.removeprefix("Object missing required ").replace("`", "")
    else:
        text = _typed(text)
    return text.replace("an integer that's a multiple", "a multiple"), at.removeprefix("$")


def _typed(text: str) -> str:
    return re.sub(_TYPES, lambda m: " or ".join(_WORDS.get(part, part) for part in m[1].split(" | ")), text)


# -- finding --------------------------------------------------------------------------------------


class _Search(Struct):
    """The faults found so far, and the bytes that may still be read."""

    found: list[ValueFault]
    budget: int

    def add(self, field: str, message: str, received: Any = UNSET) -> None:
        self.found.append(fault(field, message, received))

    def failure(self, value: Any, hint: Any) -> Exception | None:
        """What msgspec says to a value; None when it fits."""
        text = msgspec.json.encode(value)
        self.budget -= len(text)
        try:
            msgspec.json.decode(text, type=hint, dec_hook=decode_hook)
        except (ValidationError, TypeError, RecursionError) as error:
            return error
        return None

    @property
    def over(self) -> bool:
        return len(self.found) >= MOST


def _examine(value: Any, node: Node, path: str, search: _Search, depth: int, error: Exception | None = None) -> None:
    """Add the faults of one value. `error`: msgspec's error for it, where it has been decoded already."""
    if search.over or (error := error or search.failure(value, node.check)) is None:
        return
    before = len(search.found)
    if depth < _DEEPEST and search.budget > 0:
        _descend(value, node, path, search, depth + 1)
    if len(search.found) > before:
        return
    if isinstance(error, RecursionError):
        search.add(path, "Nested too deep")
        return
    text, at = words(str(error))
    if not at and (choices := _choices(node)):
        text = f"Expected {choices}"
    search.add(f"{path}{at}" if path else at.removeprefix("."), text, UNSET if at else value)


def _descend(value: Any, node: Node, path: str, search: _Search, depth: int) -> None:
    """Add the faults of what is inside of one value that does not fit."""
    before = len(search.found)
    if node.kind == "union":
        _member_of(value, node, path, search, depth)
    elif node.kind == "model":
        _model(value, node.check, path, search)
    elif node.kind == "fields":
        _object(value, node.shape, path, search, depth)
    elif node.kind == "members" and isinstance(value, dict):
        _members(value, node, path, search, depth)
    elif node.kind == "positions" and isinstance(value, list) and len(value) == len(node.parts):
        for index, (item, part) in enumerate(zip(value, node.parts, strict=True)):
            _examine(item, part, f"{path}[{index}]", search, depth)
    elif node.kind == "items" and isinstance(value, list):
        _items(value, node.parts[0], path, search, depth)
    if node.metas and len(search.found) > before and isinstance(value, list | dict):
        container = list[Any] if isinstance(value, list) else dict[str, Any]
        if (error := search.failure(value, Annotated[(container, *node.metas)])) is not None:
            search.add(path, words(str(error))[0], value)


def _member_of(value: Any, union: Node, path: str, search: _Search, depth: int) -> None:
    models = [part for part in union.parts if part.kind == "model"]
    if models and (union.adapted or len(models) == 1):
        # pydantic lists what is wrong with each member; so does one that is the only one but None
        _model(value, union.check if union.adapted else models[0].check, path, search)
        if search.found:
            return
    if not isinstance(value, list | dict):
        return
    members: list[list[ValueFault]] = []
    for part in union.parts:
        if _meant(part, value):
            inner = _Search([], search.budget)
            _descend(value, part, path, inner, depth)
            search.budget = inner.budget
            if inner.found:
                members.append(inner.found)
    likeliest: list[ValueFault] = min(members, key=lambda faults: _unlikely(faults, path), default=[])
    search.found += likeliest


def _unlikely(faults: list[ValueFault], path: str) -> tuple[bool, int, int]:
    """How unlikely it is that a value at a path was meant as the member of a union that has these faults: the value
    itself does not fit (an array where an object is wanted), then by what is missing, then by the number of faults."""
    return (
        any(one.field == path for one in faults),
        sum(one.received is UNSET for one in faults),
        len(faults),
    )


def _items(value: list[Any], inner: Node, path: str, search: _Search, depth: int) -> None:
    for start in range(0, len(value), _PIECE):
        piece = value[start : start + _PIECE]
        if search.over:
            return
        if search.failure(piece, generic(list, inner.check)) is not None:
            for index, item in enumerate(piece, start):
                _examine(item, inner, f"{path}[{index}]", search, depth)


def _members(value: dict[str, Any], node: Node, path: str, search: _Search, depth: int) -> None:
    key, inner = node.parts
    names, whole = list(value), generic(dict, (key.check, inner.check))
    for start in range(0, len(names), _PIECE):
        piece = {name: value[name] for name in names[start : start + _PIECE]}
        if search.over:
            return
        if search.failure(piece, whole) is None:
            continue
        for name, item in piece.items():
            if (error := search.failure({name: None}, generic(dict, (key.check, Any)))) is not None:
                search.add(below(path, name), f"The name does not fit: {words(str(error))[0]}", name)
            _examine(item, inner, below(path, name), search, depth)


def _object(value: Any, shape: Shape, path: str, search: _Search, depth: int) -> None:
    if shape.array:
        for index, (part, item) in enumerate(zip(shape.parts, value if isinstance(value, list) else (), strict=False)):
            _examine(item, part.node, f"{path}[{index}]", search, depth)
        return
    if not isinstance(value, dict):
        return
    for part in shape.parts:
        if part.name in value:
            _examine(value[part.name], part.node, below(path, part.name), search, depth)
        elif part.required:
            search.add(below(path, part.name), "Missing field")
    if shape.closed:
        known = [part.name for part in shape.parts]
        for name in value:
            if name not in known and name != shape.tag_field and not search.over:
                search.add(below(path, name), surplus(name, known, path), value[name])


def _model(value: Any, hint: Any, path: str, search: _Search) -> None:
    """pydantic's own list; of a union that of the likeliest member."""
    listed = getattr(getattr(search.failure(value, hint), "__cause__", None), "errors", None)
    if not callable(listed):
        return
    members: dict[tuple[str, ...], list[ValueFault]] = {}
    for entry in listed(include_url=False, include_context=False, include_input=False):
        found, at, names = _walked(value, entry["loc"], path, entry["type"] == "missing")
        missing = entry["type"] == "missing"
        one = fault(at, "Missing field") if missing else fault(at, entry["msg"], found)
        members.setdefault(names, []).append(one)
    search.found += min(members.values(), key=lambda faults: _unlikely(faults, path), default=[])[:MOST]


def _walked(value: Any, loc: tuple[Any, ...], path: str, missing: bool) -> tuple[Any, str, tuple[str, ...]]:
    """The value at the location that pydantic names, its path, and what in the location names members of unions at the
    top."""
    names: list[str] = []
    for index, part in enumerate(loc):
        if isinstance(part, int) and isinstance(value, list) and part < len(value):
            value, path = value[part], f"{path}[{part}]"
        elif isinstance(value, dict) and part in value:
            value, path = value[part], below(path, str(part))
        elif missing and index == len(loc) - 1:
            path = below(path, str(part))
        elif index == len(names):
            names.append(str(part))
    return value, path, tuple(names)


# -- members of unions ----------------------------------------------------------------------------


def _meant(part: Node, value: list[Any] | dict[str, Any]) -> bool:
    """Whether a value may be meant as this member of a union, by its JSON type and its tag."""
    array = isinstance(value, list)
    if part.kind == "fields":
        shape = part.shape
        return shape.array is array and (shape.tag is None or shape.tag == _tag(value, shape.tag_field))
    return array if part.kind in ("items", "positions") else not array and part.kind in ("members", "model")


def _tag(value: list[Any] | dict[str, Any], name: str | None) -> Any:
    if isinstance(value, dict):
        return value.get(name or "")
    return value[0] if value else None


def _choices(node: Node) -> str:
    """The values of a Literal or Enum in words; "" for other types and for long lists."""
    hint = get_args(node.check)[0] if get_origin(node.check) is Annotated else node.check
    values: list[Any] = []
    if get_origin(hint) is Literal:
        values = list(get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag):
        values = [member.value for member in hint]
    if not values or len(values) > 20:
        return ""
    texts = [msgspec.json.encode(value).decode() for value in values]
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


# -- integral floats ------------------------------------------------------------------------------

_FRACTION = re.compile(rb"[0-9][.eE]")


def integral(value: Any, node: Node) -> Any:
    """The value with 1.0 made 1 where its annotation wants an integer (as our schema promises).

    Arrays and objects in it are changed in place. They may be nested as deep as a message may, which is deeper than
    calls of Python functions in each other may go: so there is a list of what is left, and no recursion.
    """
    if not node.integers:
        return value
    if not isinstance(value, list | dict):
        return _integer(value, node)
    left: list[tuple[Any, Node]] = [(value, node)]
    while left:
        container, node = left.pop()
        for key, part in _integers_in(container, node):
            item = container[key]
            if isinstance(item, list | dict):
                left.append((item, part))
            else:
                container[key] = _integer(item, part)
    return value


def has_fractions(text: Any) -> bool:
    """Whether this JSON text may hold a number like 1.0 at all; quick."""
    return _FRACTION.search(text) is not None


def _without_adapter(node: Node) -> Node:
    while node.kind == "model" and node.parts:
        (node,) = node.parts
    return node


def _integer(value: Any, node: Node) -> Any:
    node = _without_adapter(node)
    if type(value) is not float or not value.is_integer():
        return value
    if node.kind == "union":  # where floats are welcome, 1.0 stays
        whole = any(part.kind == "leaf" and part.integers for part in node.parts)
        return int(value) if whole and not any(part.floats for part in node.parts) else value
    return int(value) if node.kind == "leaf" else value


def _integers_in(value: list[Any] | dict[str, Any], node: Node) -> Iterable[tuple[Any, Node]]:
    """The keys of an array or object below which there may be integers, with the nodes of what is there."""
    node = _without_adapter(node)
    if node.kind == "union":
        meant = [part for part in node.parts if _meant(part, value)]
        if not node.adapted and len(meant) > 1:  # nothing distinguishes them; an adapter tries them all
            return ()
        return {key: part for one in reversed(meant) for key, part in _integers_in(value, one)}.items()
    found: Iterable[tuple[Any, Node]] = ()
    if isinstance(value, list):
        if node.kind == "items":
            found = zip(range(len(value)), repeat(node.parts[0]))
        elif node.kind == "positions":
            found = zip(range(len(value)), node.parts, strict=False)
        elif node.kind == "fields" and node.shape.array:
            found = zip(range(len(value)), (part.node for part in node.shape.parts), strict=False)
    elif node.kind == "members":
        found = zip(value, repeat(node.parts[1]))
    elif node.kind == "fields" and not node.shape.array:
        found = ((part.name, part.node) for part in node.shape.parts if part.name in value)
    return (pair for pair in found if pair[1].integers)
