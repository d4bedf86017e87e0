"""Accepts arguments as hosts of language models send them: numbers, arrays and so on as text, null for absent ones, and
unknown ones.

Nothing here runs while arguments fit. Arguments that do not fit are amended and read again. The faults say where: text
there that is the JSON of another type (`"3"`, `"true"`, `"[1, 2]"`) is replaced by its value; a null there is removed.
So text stays text and null stays null wherever they fit, no matter whether annotations, pydantic or a JSON Schema say
what fits."""

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
"""How often arguments may be read again. Text within text within text takes one reading each, and more faults than one
reading finds take further ones."""
AGAIN: Final = 2**20
"""Once so many bytes of arguments have been read again, they are not read once more: a large message must not cost
eight readings."""
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
    """Return the arguments of a call whose params `handler.arguments` refused with `error`, after amending them as the
    options allow. `depth`: the limit of that name. Raises `error`, or the error of a later reading; for a handler that
    is no `Binding`, because it is another protocol's, always `error`."""
    if lenient is STRICT or params is UNSET or not isinstance(handler, Binding):
        raise error
    positions = [p.name for p in handler.parameters if p.kind in ("positional", "either")]
    again = handler.arguments
    known = names_of(handler)
    return read_loosely(params, error, lambda raw: again(raw, context), lenient, known, depth - 1, positions)


def names_of(binding: Binding) -> frozenset[str] | None:
    """Return the names of all arguments that may be given by name; None if any name may be given."""
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
    """Return what `read` returns for arguments that it refused with `error`, after amending them as the options allow.
    `known`: the names of all arguments, None if any name may be given; `depth`: how many levels of arrays and objects
    they may have, including those in their text; `positions`: the names of the arguments with which an array begins.
    Raises `error`, or the error of a later reading."""
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
    # if the value in a text does not fit either, the fault of the text itself is reported
    raise first if amended.intersection(faults) else error


def _by_position(items: list[Raw], positions: Sequence[str]) -> dict[str, Raw]:
    """Return the items of an array, in their order, by the paths that faults have for them."""
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
    """Amend the values at the paths of faults, and return the paths where a value was changed. `values`: the members
    decoded so far, so that each is decoded once for all its faults; UNSET for one that cannot be decoded. `named`: the
    arguments were given by name; `depth`: as for `read_loosely`."""
    changed, amended = set[str](), set[str]()
    for field in faults:
        name, *steps = [*_steps(field)] or [""]
        if isinstance(name, int):
            name = f"[{name}]"
        if name not in members:
            continue
        absent = lenient.null_params and (named or bool(steps))  # removing an item of an array would move the others
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
    """Replace the text at this path by the value whose JSON it is, or remove the null there; return whether that was
    done. It is not if there is neither, or if the value in the text has more levels than `depth`."""
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
    # the limit has been checked of the message, where brackets in text do not count
    if too_deep(value.encode(), depth):
        return False
    meant = _value(value)
    if isinstance(meant, str):
        return False
    inside[last] = meant  # type: ignore[index]
    return True


def _steps(field: str) -> Iterator[str | int]:
    """Yield the steps of a fault's path, which `faults.below` wrote: names and indexes."""
    for found in _STEP.finditer(field):
        name, index, quoted = found.groups()
        yield name if name is not None else int(index) if index is not None else msgspec.json.decode(quoted, type=str)
