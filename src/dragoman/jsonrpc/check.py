"""Lists every fault of a message: what is wrong, where, and what would be right.

`decode` says in a microsecond whether a message is valid; this lists everything that is wrong with it, for people who
write the other end. Rules:

- An *error* is something that the specification forbids, or a probable mistake (a name in the wrong
  case, a member twice). A *warning* is something that it discourages, that peers disagree on, or that dragoman's
  default limits refuse.
- A message that `decode` returns as malformed has at least one error here.
- Any bytes give a list; nothing is raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from math import isinf
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..doors import public_dir
from .errors import MESSAGES, RESERVED, SERVER_RANGE, STRING_CODES
from .limits import SERVER

__all__ = ["Problem", "problems"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

COMMON_DEPTH = 128
"""Levels of nesting that nearly every peer accepts."""


class Problem(Struct, frozen=True):
    """One fault. `path`: its position ("$" is the whole message, "$.id", "$[3].error.code"); `message`: what is wrong
    and what would be right; `severity`: see the rules of the module."""

    path: str
    message: str
    severity: Literal["error", "warning"] = "error"


def problems(message: bytes | str) -> list[Problem]:
    """Every fault of one message: a request, a notification, a response or a batch. Empty if there is none."""
    found: list[Problem] = []
    text = _text(message, found)
    size = len(message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message)
    if size > SERVER.message_size:
        found.append(_too_much("$", f"the message has {size} bytes", "message_size", SERVER.message_size))
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        found.append(Problem("$", _syntax(text, error)))
    except RecursionError:
        found.append(Problem("$", "nested too deep for any decoder: flatten it"))
    else:
        found.extend(_batch(value) if isinstance(value, list) else _single(value, None))
    return found


# -- text -----------------------------------------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")


def _text(message: bytes | str, found: list[Problem]) -> str:
    """The message as text, as far as it can be decoded."""
    if isinstance(message, str):
        text = message
        if (lone := _SURROGATE.search(text)) is not None:
            found.append(Problem("$", f"character {lone.start()} is half of a surrogate pair: no UTF-8 can say it"))
    else:
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            utf_16 = message.startswith((b"\xff\xfe", b"\xfe\xff"))
            hint = "it looks like UTF-16; JSON is sent in UTF-8" if utf_16 else "JSON is sent in UTF-8"
            found.append(Problem("$", f"byte {error.start} (0x{message[error.start]:02x}) is not UTF-8: {hint}"))
            text = message.decode("utf-16" if utf_16 else "utf-8", "replace")
    if text.startswith("\ufeff"):
        found.append(Problem("$", "the text begins with a byte-order mark: leave it out"))
        text = text.lstrip("\ufeff")
    return text


def _syntax(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip(" \t\r\n"):
        return "there is no message: the text is empty"
    at = f"line {error.lineno} column {error.colno}"
    if error.msg == "Extra data":
        return f"not one JSON value: at {at} more text follows the first; send one message at a time, or a batch"
    here = text[error.pos : error.pos + 20]
    near = f", at {_quoted(here)}" if here else ", where the text ends"
    hint = ""
    if here.startswith("'"):
        hint = "; strings and names stand in double quotes"
    elif here.startswith(("/", "#")):
        hint = "; JSON has no comments"
    elif (re.match(r"[}\]]", here) and text[: error.pos].rstrip().endswith(",")) or re.match(r",\s*[}\]]", here):
        hint = "; no comma stands after the last one"  # Python 3.13 points at the comma, others behind it
    elif error.msg.startswith("Invalid control character"):
        hint = "; control characters in strings are written \\n, \\t or \\u0000"
    return f"not JSON: {error.msg[0].lower()}{error.msg[1:]} ({at}{near}){hint}"


# -- values ---------------------------------------------------------------------------------------


class _Object(Struct, frozen=True):
    """An object with all its members, also those with equal names."""

    members: list[tuple[str, Any]]


class _Number(Struct, frozen=True):
    """A number as it was written."""

    text: str

    @property
    def is_integer(self) -> bool:
        return not set(self.text) & set(".eE")


class _Constant(Struct, frozen=True):
    """NaN, Infinity or -Infinity, which JavaScript has and JSON has not."""

    name: str


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_Constant)

# A position is a chain, innermost step first, written out only when something is wrong there: ("id", (3, None)).
_Position: TypeAlias = "tuple[str | int, _Position] | None"
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def _path(position: _Position, *more: str) -> str:
    steps: list[str | int] = list(reversed(more))
    while position is not None:
        step, position = position
        steps.append(step)
    text = ["$"]
    for step in reversed(steps):
        if isinstance(step, int):
            text.append(f"[{step}]")
        else:
            text.append(f".{step}" if _NAME.fullmatch(step) else f"[{_quoted(step)}]")
    return "".join(text)


def _quoted(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:57] + "...")


def _what(value: Any) -> str:
    """A value described for the end of a sentence: "not ..."."""
    match value:
        case None | True | False:
            return json.dumps(value)
        case str():
            return f"the string {_quoted(value)}"
        case _Number():
            return f"the number {_short(value.text)}"
        case _Constant():
            return value.name
        case list():
            return "an array"
        case _:
            return "an object"


def _short(digits: str) -> str:
    return digits if len(digits) <= 24 else f"{digits[:20]}... ({len(digits)} characters)"


def _values(value: Any, position: _Position) -> Iterator[Problem]:
    """The faults of any JSON value: text, numbers, names and nesting."""
    deep = False
    stack: list[tuple[Any, _Position, int]] = [(value, position, 2 if position else 1)]
    while stack:
        value, position, depth = stack.pop()
        if isinstance(value, str):
            yield from _string(value, position, "the string")
        elif isinstance(value, _Number):
            if isinf(float(value.text)):
                yield Problem(
                    _path(position), f"the number {_short(value.text)} is larger than a double holds (1.8e308)"
                )
        elif isinstance(value, _Constant):
            yield Problem(_path(position), f"{value.name} is not JSON: send null, a string or a finite number")
        elif isinstance(value, list | _Object):
            if depth > SERVER.depth:
                wrong = (
                    f"nested more than {SERVER.depth} levels deep: flatten it; a dragoman server takes {SERVER.depth}"
                )
                yield Problem("$", f"{wrong} unless depth is set")
                return
            if depth > COMMON_DEPTH and not deep:
                deep = True
                wrong = f"nested more than {COMMON_DEPTH} levels deep, which not every peer takes"
                yield Problem(_path(position), wrong, "warning")
            if isinstance(value, list):
                steps: Iterable[tuple[str | int, Any]] = enumerate(value)
            else:
                yield from _names(value, position)
                steps = value.members
            stack.extend(reversed([(inner, (step, position), depth + 1) for step, inner in steps]))


def _string(text: str, position: _Position, what: str) -> Iterator[Problem]:
    if not text.isascii() and (lone := _SURROGATE.search(text)) is not None:
        wrong = f"{what} has an unpaired surrogate, \\u{ord(lone[0]):04x}: no text holds half a character"
        yield Problem(_path(position), wrong)


def _names(value: _Object, position: _Position) -> Iterator[Problem]:
    """Member names that occur more than once, or are not valid text."""
    seen: dict[str, list[Any]] = {}
    for name, inner in value.members:
        seen.setdefault(name, []).append(inner)
    for name, values in seen.items():
        yield from _string(name, (name, position), "the name")
        if len(values) > 1:
            shown = " and ".join(map(_what, values[:3])) + (" ..." if len(values) > 3 else "")
            wrong = f"the member {_quoted(name)} stands {len(values)} times, as {shown}"
            yield Problem(_path((name, position)), f"{wrong}: peers differ in which they take (dragoman the last)")


# -- messages -------------------------------------------------------------------------------------

_REQUEST = ("jsonrpc", "method", "params", "id")
_RESPONSE = ("jsonrpc", "result", "error", "id")
_ERROR = ("code", "message", "data")


def _batch(value: list[Any]) -> Iterator[Problem]:
    if not value:
        yield Problem("$", "an empty array is not a batch: put at least one message into it")
    if len(value) > SERVER.batch_length:
        yield _too_much("$", f"the batch has {len(value)} elements", "batch_length", SERVER.batch_length)
    first: dict[object, int] = {}
    for index, element in enumerate(value):
        position = (index, None)
        if isinstance(element, list):
            yield Problem(_path(position), "a batch cannot stand in a batch: put its messages into the outer one")
            yield from _values(element, position)
            continue
        yield from _single(element, position)
        key = _identity(element)
        if key is not None and (other := first.setdefault(key, index)) != index:
            wrong = f"the same id as in $[{other}], so their answers cannot be told apart: give each its own"
            yield Problem(_path(position, "id"), wrong)


def _identity(element: Any) -> object:
    """The key by which two elements of a batch are the same call, or answers to the same call; None without one."""
    members = dict(element.members) if isinstance(element, _Object) else {}
    identity = members.get("id", ...)
    is_call = "method" in members
    match identity:
        case str():
            return is_call, identity
        case _Number():
            return is_call, float(identity.text) if len(identity.text) < 16 else identity
        case None if is_call:
            return is_call, None
    return None


def _single(value: Any, position: _Position) -> Iterator[Problem]:
    """The faults of one message that is not a batch."""
    yield from _values(value, position)
    if not isinstance(value, _Object):
        what = "an element of a batch" if position else "a message"
        array = "" if position else " or an array of objects"
        yield Problem(_path(position), f"{what} is an object{array}, not {_what(value)}")
        return
    members = dict(value.members)
    meant = _meant(members, (*_REQUEST, "result", "error"))
    yield from _version(members, position, meant)
    answers = [name for name in ("result", "error") if name in members or name in meant.values()]
    is_call = "method" in members or "method" in meant.values()
    if is_call and answers:
        wrong = f"has method and {' and '.join(answers)}: a message is a request or a response, not both"
        yield Problem(_path(position), wrong)
    elif not is_call and not answers:
        yield Problem(
            _path(position), 'has no method, result or error: a request needs "method", a response one of the others'
        )
    if answers:
        yield from _response(members, position, meant)
    if is_call:
        yield from _call(members, position)
    known = {*(_RESPONSE if answers or not is_call else ()), *(_REQUEST if is_call or not answers else ())}
    kind = "a response" if answers else "a request" if is_call else "a message"
    yield from _surplus(members, position, meant, known, kind)


def _meant(members: dict[str, Any], known: Iterable[str]) -> dict[str, str]:
    """Member names that differ from a missing one of ours only in case or a separator: {"Method": "method"}."""
    plain = {re.sub("[-_ ]", "", name).lower(): name for name in members}
    return {plain[name]: name for name in known if name not in members and name in plain}


def _surplus(
    members: dict[str, Any], position: _Position, meant: dict[str, str], known: set[str], what: str
) -> Iterator[Problem]:
    for name in members:
        if name in meant:
            wrong = f"names are case-sensitive: did you mean {_quoted(meant[name])}, not {_quoted(name)}?"
            yield Problem(_path(position, name), wrong)
        elif name not in known:
            yield Problem(_path(position, name), f"{what} has no member {_quoted(name)}; it is ignored", "warning")


def _version(members: dict[str, Any], position: _Position, meant: dict[str, str]) -> Iterator[Problem]:
    if "jsonrpc" in meant.values():
        return
    if "jsonrpc" not in members:
        hint = ""
        if isinstance(members.get("params"), list) or {"result", "error", "id"} <= members.keys():
            hint = " (JSON-RPC 1.0 has none: the option accept_v1 takes it)"
        yield Problem(_path(position, "jsonrpc"), f'jsonrpc is missing: it must be the string "2.0"{hint}')
    elif members["jsonrpc"] != "2.0":
        yield Problem(_path(position, "jsonrpc"), f'jsonrpc must be the string "2.0", not {_what(members["jsonrpc"])}')


def _call(members: dict[str, Any], position: _Position) -> Iterator[Problem]:
    if "method" in members:
        yield from _method(members["method"], position)
    if "params" in members and not isinstance(members["params"], list | _Object):
        params = members["params"]
        hint = "leave it out when there are none" if params is None else "put a single argument into an array"
        yield Problem(_path(position, "params"), f"params must be an array or an object, not {_what(params)}; {hint}")
    if "id" in members:
        yield from _id(members["id"], position)
        if members["id"] is None:
            wrong = "an id of null is discouraged: give a number or a string, or leave id out for a notification"
            yield Problem(_path(position, "id"), wrong, "warning")


def _method(method: Any, position: _Position) -> Iterator[Problem]:
    path = _path(position, "method")
    if not isinstance(method, str):
        yield Problem(path, f"method must be a string, not {_what(method)}")
    elif not method:
        yield Problem(path, "method is an empty string, and hardly any peer has a method of that name", "warning")
    elif len(method) > SERVER.method_length:
        yield _too_much(path, f"the name has {len(method)} characters", "method_length", SERVER.method_length)
    elif method.startswith("rpc.") and method != "rpc.discover":
        wrong = f"{_quoted(method)}: names that begin with rpc. are reserved for the protocol's own extensions"
        yield Problem(path, wrong, "warning")


def _id(identity: Any, position: _Position) -> Iterator[Problem]:
    """The faults of an id, in requests and responses alike."""
    path = _path(position, "id")
    match identity:
        case None | _Constant():
            return
        case str() | _Number():
            text = identity if isinstance(identity, str) else identity.text
            if len(text) > SERVER.id_length:
                yield _too_much(path, f"the id has {len(text)} characters", "id_length", SERVER.id_length)
            if isinstance(identity, _Number) and not identity.is_integer:
                wrong = f"the id {_short(text)} is written as a fraction, which not every peer gives back alike"
                yield Problem(path, f"{wrong}: use integers or strings", "warning")
        case _:
            yield Problem(path, f"id must be a string, a number or null, not {_what(identity)}")


def _response(members: dict[str, Any], position: _Position, meant: dict[str, str]) -> Iterator[Problem]:
    if "result" in members and "error" in members:
        hint = (
            " (JSON-RPC 1.0 has both: the option accept_v1 takes it)"
            if None in (members["result"], members["error"])
            else ""
        )
        wrong = f"has result and error: a response has exactly one of them, leave the other out{hint}"
        yield Problem(_path(position), wrong)
    if "id" in members:
        yield from _id(members["id"], position)
        if members["id"] is None and "error" not in members:
            wrong = (
                "a result with id null belongs to no call; null is for errors of requests whose id could not be read"
            )
            yield Problem(_path(position, "id"), wrong, "warning")
    elif "id" not in meant.values():
        wrong = "id is missing: a response has the id of its request, or null in an error when that could not be read"
        yield Problem(_path(position, "id"), wrong)
    if "error" in members and not ("result" in members and members["error"] is None):
        yield from _error(members["error"], position)


def _error(error: Any, position: _Position) -> Iterator[Problem]:
    position = ("error", position)
    if not isinstance(error, _Object):
        yield Problem(_path(position), f"error must be an object with code and message, not {_what(error)}")
        return
    members = dict(error.members)
    meant = _meant(members, _ERROR)
    if "code" in members:
        yield from _code(members["code"], _path(position, "code"))
    elif "code" not in meant.values():
        yield Problem(_path(position, "code"), "code is missing: an error has an integer for a code")
    if "message" not in members:
        if "message" not in meant.values():
            yield Problem(_path(position, "message"), "message is missing: an error has a short sentence for a message")
    elif not isinstance(members["message"], str):
        yield Problem(_path(position, "message"), f"message must be a string, not {_what(members['message'])}")
    yield from _surplus(members, position, meant, set(_ERROR), "an error")


def _code(code: Any, path: str) -> Iterator[Problem]:
    if isinstance(code, str):
        number = STRING_CODES.get(code)
        hint = f" ({number} is meant; the option string_codes takes it)" if number is not None else ""
        yield Problem(path, f"code must be an integer, not the string {_quoted(code)}{hint}")
    elif not isinstance(code, _Number) or not code.is_integer:
        yield Problem(path, f"code must be an integer, not {_what(code)}")
    elif len(code.text) < 20:
        number = int(code.text)
        if number in RESERVED and number not in SERVER_RANGE and number not in MESSAGES:
            wrong = f"code {number} is reserved by the specification, which gives it no meaning yet"
            yield Problem(path, f"{wrong}: take one outside -32768..-32000", "warning")
    else:
        yield Problem(path, f"code {_short(code.text)} is larger than an integer of 64 bits: take a small one")


def _too_much(path: str, wrong: str, limit: str, allowed: int) -> Problem:
    return Problem(path, f"{wrong}; a dragoman server takes {allowed} unless {limit} is set", "warning")
