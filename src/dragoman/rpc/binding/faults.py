"""Finds every fault of a value, where msgspec stops at the first; and accepts 1.0 as 1.

Rules:

- Nothing here runs while values fit: it works on JSON that was decoded because it did not fit its type.
- The work is linear in the length of the text: msgspec checks the parts that fit. At most `MOST` faults are searched.
  After reading the text `_AGAIN` times, and `_DEEPEST` levels down, msgspec's own message is used.
- `received` is the value that was received; if its JSON text has more than `SHOWN` bytes, it is the shortened text. A
  missing value has none.
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
"""How many faults are reported at most."""
SHOWN = 200
"""How many bytes of a wrong value's JSON text are shown at most."""
_AGAIN = 8
"""How often the text may be read to find faults, in all."""
_DEEPEST = 32
"""How many levels down faults are searched."""
_PIECE = 256
"""How many items or members are checked at once, before they are checked one by one."""
_NAME = 64
"""How many characters a name may have to be compared with others, and to be shown unshortened."""


class ValueFault(Struct, frozen=True, omit_defaults=True):
    """One fault, as it is reported in `error.data.errors`. `field`: the path of the value; `received`: the value, or
    its shortened JSON text."""

    field: str
    message: str
    received: Any | UnsetType = UNSET


def fault(field: str, message: str, received: Any = UNSET) -> ValueFault:
    """Return a fault; a long `received` is shortened."""
    if received is not UNSET:
        text = msgspec.json.encode(received)
        if len(text) > SHOWN:
            received = text[: SHOWN - 3].decode("utf-8", "ignore") + "..."
    return ValueFault(field, message, received)


def find(value: Any, node: Node, field: str, error: Exception | None = None) -> list[ValueFault]:
    """Return every fault of a decoded JSON value for an annotation (its tree); an empty list if it fits.

    `field`: the path of the value. `error`: msgspec's error, if the value has been decoded already, so that the code of
    its classes does not run again."""
    search = _Search([], _AGAIN * len(msgspec.json.encode(value)) + 65_536)
    _examine(value, node, field, search, 0, error)
    return search.found[:MOST]


def surplus(name: str, known: Iterable[str], path: str = "") -> str:
    """Return the message for an unknown name. `known`: the names that there are; `path`: where the unknown one is, ""
    for an argument."""
    near = nearest_name(name, known) if len(name) <= _NAME else ""
    what = "field" if path else "argument"
    return f"Unknown {what}; did you mean {near!r}?" if near else f"Unknown {what}"


def below(path: str, name: str) -> str:
    """Return the path of a member of the object at `path`."""
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
# as texts, since they are only compiled when there is a fault
_TYPES = r"`([^`]*)`"
_PATH = r"(?s)^(.*?)(?: - at `key` in `([^`]*)`| - at `([^`]*)`)?$"


def words(message: str) -> tuple[str, str]:
    """Return a message of msgspec in plain words, and the path that it names, from the value down ("" for the value
    itself)."""
    if message.startswith("unhashable type"):
        return "Arrays and objects cannot be items of a set", ""
    match = re.match(_PATH, message)
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
        """Add a fault."""
        self.found.append(fault(field, message, received))

    def failure(self, value: Any, hint: Any) -> Exception | None:
        """Return the error that msgspec raises for a value of this type; None if the value fits."""
        text = msgspec.json.encode(value)
        self.budget -= len(text)
        try:
            msgspec.json.decode(text, type=hint, dec_hook=decode_hook)
        except (ValidationError, TypeError, RecursionError) as error:
            return error
        return None

    @property
    def over(self) -> bool:
        """Whether enough faults have been found."""
        return len(self.found) >= MOST


def _examine(value: Any, node: Node, path: str, search: _Search, depth: int, error: Exception | None = None) -> None:
    """Add the faults of one value to the search. `error`: msgspec's error, if the value has been decoded already."""
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
    """Add the faults of the parts of a value that does not fit."""
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
        # pydantic lists the faults for each member of the union; also if one model is the only member beside None
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
    """Return how unlikely it is that a value at a path was meant as the member of a union for which it has these
    faults: as a key to sort by. Most unlikely is one that the value itself does not fit (an array where an object is
    expected); then one with many missing fields; then one with many faults."""
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
    """Add the faults that pydantic lists; of a union, those of the likeliest member."""
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
    """Return the value at a location that pydantic names (`loc`), its path, and those parts of the location that name a
    member of a union, as long as no part of the value comes before them. `missing`: the last part is a missing
    field."""
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
    """Return whether a value may be meant as this member of a union, judging by its JSON type and its tag."""
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
    """Return the values of a Literal or an Enum, for a message; "" for other types and for more than 20 values."""
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
    """Return the value with 1 instead of 1.0 where its annotation wants an integer, since 1.0 is one in JSON Schema.

    Arrays and objects in it are changed in place. They may be nested as deep as a message may, which is deeper than
    Python functions can call each other: so this keeps a list of what is left to do, and does not recurse.
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
    """Return whether this JSON text may contain a number like 1.0; a fast test that may be wrongly True."""
    return _FRACTION.search(text) is not None


def _without_adapter(node: Node) -> Node:
    while node.kind == "model" and node.parts:
        (node,) = node.parts
    return node


def _integer(value: Any, node: Node) -> Any:
    node = _without_adapter(node)
    if type(value) is not float or not value.is_integer():
        return value
    if node.kind == "union":  # if a float fits too, 1.0 stays
        whole = any(part.kind == "leaf" and part.integers for part in node.parts)
        return int(value) if whole and not any(part.floats for part in node.parts) else value
    return int(value) if node.kind == "leaf" else value


def _integers_in(value: list[Any] | dict[str, Any], node: Node) -> Iterable[tuple[Any, Node]]:
    """Return the keys (or indexes) of an array or object under which there may be integers, each with the node of its
    value."""
    node = _without_adapter(node)
    if node.kind == "union":
        meant = [part for part in node.parts if _meant(part, value)]
        if not node.adapted and len(meant) > 1:  # they cannot be distinguished here; an adapter tries them all
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
