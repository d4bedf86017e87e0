"""Arguments as hosts of language models send them: as text, null for what is absent, and some that are unknown.

Nothing here runs while arguments fit. What does not fit is read once more: the faults name the positions. Where there
is text at one of them whose JSON is no text (`"3"`, `"true"`, `"[1, 2]"`), that is put there; null at one is taken
away. So text stays text, and null stays null, where a schema takes it, however the schema was made: annotations,
pydantic or JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw

from ...jsonrpc.codec import first_byte
from ...jsonrpc.errors import InvalidParams
from ...jsonrpc.leniency import STRICT, Leniency
from ...jsonrpc.scanner import too_deep
from .binding import Binding
from .decoder import Params

T = TypeVar("T")

ROUNDS: Final = 8
"""How often arguments are read again: text within text within text is one each, and so are the faults beyond those that
one reading finds."""
AGAIN: Final = 2**20
"""Bytes of arguments that are read again in all, after the first time: a large message must not cost eight of them."""
_ARRAY: Final = ord("[")
_STEP: Final = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_value = msgspec.json.Decoder().decode
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError)


def bind_loosely(
    handler: Any, params: Params, context: Any, error: Exception, lenient: Leniency, depth: int
) -> tuple[Any, ...]:
    """The arguments of a call, by name or by position, that `handler.arguments` refused with `error`, as the options
    allow. `depth`: the limit of that name. Raises `error`, or what a later reading found; for a handler of another
    protocol, which is no `Binding`, `error`."""
    if lenient is STRICT or params is UNSET or not isinstance(handler, Binding):
        raise error
    positions = [p.name for p in handler.parameters if p.kind in ("positional", "either")]
    again = handler.arguments
    known = names_of(handler)
    return read_loosely(params, error, lambda raw: again(raw, context), lenient, known, depth - 1, positions)


def names_of(binding: Binding) -> frozenset[str] | None:
    """The names of all arguments that may be given by name; None where any name may be."""
    if any(p.kind == "members" for p in binding.parameters):
        return None
    return frozenset(p.name for p in binding.parameters if p.kind in ("either", "named"))


def read_loosely(
    given: Raw,
    error: Exception,
    read: Callable[[Raw], T],
    lenient: Leniency,
    known: Collection[str] | None,
    depth: int,
    positions: Sequence[str] = (),
) -> T:
    """What `read` makes of arguments that it refused with `error`, as the options allow. `known`: the names of all
    arguments, None where any name may be; `depth`: the most levels of arrays and objects in them, with what is in their
    text; `positions`: the names of those that an array begins with. Raises `error`, or what a later reading found."""
    faults = _faults(error)
    if not faults:
        raise error
    named = first_byte(given) != _ARRAY
    try:
        members = _members(given) if named else _by_position(_items(given), positions)
    except _UNREADABLE:
        raise error from None
    first, amended, changed, readable = error, set[str](), False, AGAIN
    values: dict[str, Any] = {}
    if lenient.unknown_arguments and known is not None and named:
        kept = {name: value for name, value in members.items() if name in known}
        changed, members = len(kept) < len(members), kept
    for _ in range(ROUNDS):
        try:
            found = _amend(members, values, faults, lenient, named, depth)
        except RecursionError:
            raise first from None
        amended |= found
        if not (found or changed) or readable < 0:
            break
        readable -= len(given)
        text = _encode(members if named else [*members.values()])
        if too_deep(text, depth):
            raise first
        try:
            return read(Raw(text))
        except InvalidParams as again:
            error, faults, changed = again, _faults(again), False
    # what came is reported, and not what stood in its text, where that does not fit either
    raise first if amended.intersection(faults) else error


def _by_position(items: list[Raw], positions: Sequence[str]) -> dict[str, Raw]:
    """The items of an array, in their order, by the names that faults have for them."""
    names = [*positions[: len(items)], *(f"[{at}]" for at in range(len(positions), len(items)))]
    return dict(zip(names, items, strict=True))


def _faults(error: Exception) -> list[str]:
    """Return the paths of the faults that an error lists."""
    data = error.data if isinstance(error, InvalidParams) else None
    listed = data.get("errors") if isinstance(data, dict) else None
    return [one["field"] for one in listed if one.get("field")] if isinstance(listed, list) else []


def _amend(
    members: dict[str, Raw], values: dict[str, Any], faults: list[str], lenient: Leniency, named: bool, depth: int
) -> set[str]:
    """Amend what is at the paths of faults, and return those where something is another now. `values`: the members
    that were decoded, each once for all its faults; UNSET for one that cannot be."""
    changed, amended = set[str](), set[str]()
    for field in faults:
        name, *steps = [*_steps(field)] or [""]
        if isinstance(name, int):
            name = f"[{name}]"
        if name not in members:
            continue
        absent = lenient.null_params and (named or bool(steps))  # an item that is taken away would move the others
        try:
            if name not in values:
                values[name] = UNSET
                values[name] = _value(members[name])
            root = {name: values[name]}
            if _amend_value(root, [name, *steps], lenient.text_arguments, absent, depth):
                values[name] = root.get(name, UNSET)
                changed.add(name)
                amended.add(field)
        except _UNREADABLE:
            continue
    for name in changed:
        if values[name] is UNSET:
            del members[name]
        else:
            members[name] = Raw(_encode(values[name]))
    return amended


def _amend_value(inside: Any, steps: list[str | int], texts: bool, absent: bool, depth: int) -> bool:
    """Replace the text at this path by the JSON value that it holds, or take away the null there; False if there is
    neither, or the text is nested deeper than all arguments may be."""
    *way, last = steps
    try:
        for step in way:
            inside = inside[step]
        value = inside[last]
    except (KeyError, IndexError, TypeError):
        return False
    if value is None and absent and isinstance(inside, dict):
        del inside[last]
        return True
    if not texts or not isinstance(value, str) or not isinstance(inside, list | dict):
        return False
    # the limit bounds the message, in which brackets in text are none
    if too_deep(value.encode(), depth):
        return False
    meant = _value(value)
    if isinstance(meant, str):
        return False
    inside[last] = meant  # type: ignore[index]
    return True


def _steps(field: str) -> Iterator[str | int]:
    """The steps of a fault's path, as `faults.below` writes it."""
    for found in _STEP.finditer(field):
        name, index, quoted = found.groups()
        yield name if name is not None else int(index) if index is not None else msgspec.json.decode(quoted, type=str)
