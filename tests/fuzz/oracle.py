"""What must be answered, worked out from the specification a second time with the standard library alone.

`expected(message)` gives the answers that are right, `fault(answer, expected)` what is wrong with the one that came.
It shares no code with dragoman, so that both must be wrong in the same way for a fault to pass.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

PARSE, INVALID, UNKNOWN, PARAMS, INTERNAL, TOO_LARGE = -32700, -32600, -32601, -32602, -32603, -32003
METHODS = {
    "subtract": {PARAMS, INTERNAL},
    "get_data": {PARAMS},
    "echo": {PARAMS, INTERNAL},
    "fail": {PARAMS, INTERNAL},
    "unencodable": {PARAMS, INTERNAL},
    "sum": {PARAMS, INTERNAL},
    "divide": {PARAMS, 1001},
    "update": {PARAMS},
    "later": {PARAMS, INTERNAL},
    "in_thread": {PARAMS, INTERNAL},
    "rpc.discover": {PARAMS},
}
"""The methods of `service`, and the errors that calling them may end in."""
NEVER_FINE = ("fail", "unencodable")
ID_LENGTH, METHOD_LENGTH, BATCH_LENGTH, DEPTH = 1024, 256, 1000, 128
DEEPEST = 512
LARGEST = 2**63
ANY = object()


class Unread(dict[str, Any]):
    """A request with what no decoder can hold in a member that is not used: one that a later member of the same name
    replaces, or a `result` or `error` beside a method."""


class Number(Struct, frozen=True):
    """A JSON number by its text."""

    text: str


class Owed(Struct, frozen=True):
    """One answer that is owed."""

    id: Any
    codes: frozenset[int] = frozenset()
    """The errors it may be."""
    fine: bool = False
    """May it be a result?"""
    value: Any = ANY
    """The result's value, where it is known."""
    twice: bool = False
    """Is a call with this id in flight already, perhaps? Then it may be refused, without an id."""
    unread: bool = False
    """Has it a number that no decoder can hold where a decoder need not look? Then it may be refused, without an id."""


Expected = list[Any]
"""The alternatives: None (nothing is owed), an Owed, a list of them (a batch), or ANY."""


class Wrong(ValueError):
    """This is not JSON, or none of ours."""


class Bad:
    """A value that is grammatical JSON and that no decoder can hold: the fault of the one message that it is part
    of."""


BAD = Bad()
LOST = Bad()
"""The same, of what looks like a response or a notification: refused where its numbers are read, else without an
answer, as all of these."""


# -- reading --------------------------------------------------------------------------------------


def parse(raw: bytes) -> Any:
    """JSON text with its numbers as text, BAD for what holds a value that no decoder can hold. Wrong for what is no
    JSON; RecursionError beyond Python's depth."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Wrong(str(error)) from None
    if text.startswith("\ufeff"):
        raise Wrong("byte-order mark")
    try:
        value = json.loads(
            text, parse_int=_number, parse_float=_number, parse_constant=_constant, object_pairs_hook=_members
        )
    except json.JSONDecodeError as error:
        raise Wrong(str(error)) from None
    return value if isinstance(value, list) or value is LOST else _whole(value)


def _number(text: str) -> Any:
    return BAD if math.isinf(float(text)) else Number(text)


def _constant(name: str) -> NoReturn:
    raise Wrong(name)


def _members(pairs: list[tuple[str, Any]]) -> Any:
    """An object. Of two members with one name the last counts, but all of them are text that must be right."""
    found = dict(pairs)
    bad = [name for name, value in pairs if BAD in (_whole(name), _whole(value)) or isinstance(value, Unread)]
    if bad:
        used = [found[name] for name in bad if isinstance(name, str) and name not in ("result", "error")]
        whole = not any(BAD is _whole(one) or isinstance(one, Unread) for one in [*bad, *used])
        if whole and "method" in found and "id" in found:
            return Unread(found)
        response = "method" not in found and ("result" in found or "error" in found)
        return LOST if response or ("method" in found and "id" not in found) else BAD
    return found


def _whole(value: Any) -> Any:
    """The value, or BAD for an unpaired surrogate or what is bad within; objects were looked at already."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Bad) or (isinstance(one, Unread) and one is not value):
            return BAD
        if isinstance(one, str) and any("\ud800" <= letter <= "\udfff" for letter in one):
            return BAD
        if isinstance(one, list):
            left += one
    return value


def levels(raw: bytes) -> int:
    """How deep it is nested; brackets in strings do not count."""
    depth = deepest = 0
    quoted = escaped = False
    for byte in raw:
        if quoted:
            quoted = escaped or byte != 34
            escaped = byte == 92 and not escaped
        elif byte == 34:
            quoted = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


# -- what is owed ---------------------------------------------------------------------------------


NO_JSON = Owed(None, frozenset({PARSE}))
NO_REQUEST = Owed(None, frozenset({INVALID}))


def expected(raw: bytes) -> Expected:
    """The right answers to one message."""
    depth = levels(raw)
    if raw.lstrip(b" \t\r\n").startswith(b"["):  # each element of a batch has the whole limit
        depth -= 1
    if depth > DEEPEST:
        return [ANY]
    try:
        value = parse(raw)
    except Wrong:  # how deep it is nested depends on where its strings begin, which is not said of what is not JSON
        return [NO_JSON] if raw.count(b"[") + raw.count(b"{") <= DEEPEST else [ANY]
    except RecursionError:
        return [ANY]
    if value is LOST:
        return [None, NO_JSON]
    if depth > DEPTH:
        return [*_owed(value, compared=False), NO_JSON]
    return _owed(value, compared=True)


def _owed(value: Any, *, compared: bool) -> Expected:
    if not isinstance(value, list):
        return [_element(value, compared)]
    if not value:
        return [NO_REQUEST]
    if len(value) > BATCH_LENGTH:
        return [Owed(None, frozenset({TOO_LARGE}))]
    owed = [one for element in value if (one := _element(element, compared)) is not None]
    return [owed or None]


def together(rights: list[Expected]) -> list[Expected]:
    """The same for messages that are sent together on one channel, where an id may be in flight when it comes again."""
    seen: list[Any] = []

    def marked(one: Any) -> Any:
        if isinstance(one, list):
            return [marked(element) for element in one]
        if not isinstance(one, Owed):
            return one
        id = float(one.id.text) if isinstance(one.id, Number) else one.id  # 1 and 1.0 are one id
        twice = id in seen
        seen.append(id)
        return replace(one, twice=twice)

    return [[marked(one) for one in right] for right in rights]


def _element(value: Any, compared: bool) -> Owed | None:
    if _whole(value) is BAD:
        return NO_JSON
    if isinstance(value, Unread):
        owed = _element(dict(value), compared)
        return NO_REQUEST if owed is None else replace(owed, unread=True)
    if not isinstance(value, dict):
        return NO_REQUEST
    if "method" not in value and ("result" in value or "error" in value):
        return None
    id = value.get("id", ANY)
    if isinstance(id, bool | list | dict):
        return NO_REQUEST
    if isinstance(id, str | Number) and len(id if isinstance(id, str) else id.text) > ID_LENGTH:
        return Owed(None, frozenset({TOO_LARGE}))
    echoed = None if id is ANY else id
    method, params = value.get("method"), value.get("params", ANY)
    if value.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return Owed(echoed, frozenset({INVALID}))
    if params is not ANY and not isinstance(params, list | dict):
        return Owed(echoed, frozenset({INVALID}))
    if id is ANY:
        return None
    if len(method) > METHOD_LENGTH:
        return Owed(echoed, frozenset({TOO_LARGE}))
    if method not in METHODS:
        return Owed(echoed, frozenset({UNKNOWN}))
    if compared and (owed := _known(echoed, method, params)) is not None:
        return owed
    return Owed(echoed, frozenset(METHODS[method]), fine=method not in NEVER_FINE)


def _known(id: Any, method: str, params: Any) -> Owed | None:
    """The very result that is owed for a good request of a known method, where it is plain."""
    if method == "get_data" and params in (ANY, [], {}):
        return Owed(id, fine=True, value=["hello", Number("5")])
    if method == "subtract" and (numbers := _small(params)) is not None and len(numbers) == 2:
        return Owed(id, fine=True, value=Number(str(numbers[0] - numbers[1])))
    if method == "sum" and (numbers := _small(params)) is not None:
        return Owed(id, fine=True, value=Number(str(sum(numbers))))
    if method == "echo" and params is not ANY and params and _plain(params):
        return Owed(id, fine=True, value=params)
    return None


def _small(params: Any) -> list[int] | None:
    if not isinstance(params, list):
        return None
    texts = [one.text for one in params if isinstance(one, Number)]
    if len(texts) != len(params) or not all(text.lstrip("-").isdigit() and len(text) < 10 for text in texts):
        return None
    return [int(text) for text in texts]


def _plain(value: Any) -> bool:
    """Does Python hold every number in it as it is written?"""
    if isinstance(value, Number):
        return not value.text.lstrip("-").isdigit() or abs(int(value.text)) < LARGEST
    if isinstance(value, list):
        return all(map(_plain, value))
    return all(map(_plain, value.values())) if isinstance(value, dict) else True


def matched(answers: list[bytes], rights: list[Expected]) -> str | None:
    """What is wrong with the answers to several messages, in whatever order they came, or None."""
    left = list(answers)
    missing = []
    for right in rights:
        fitting = next((one for one in left if fault(one, right) is None), None)
        if fitting is not None:
            left.remove(fitting)
        elif fault(None, right) is not None:
            missing.append(right)
    if not left and not missing:
        return None
    if len(rights) <= 6 and _arranged(answers, rights):
        return None
    if len(missing) == len(left) == 1:
        return fault(left[0], missing[0])
    return f"owed and missing: {_shown(missing)}; came and not owed: {_shown(left)}"


def _arranged(answers: list[bytes], rights: list[Expected]) -> bool:
    """Is there any way in which the answers fit?"""
    if not rights:
        return not answers
    first, *rest = rights
    if fault(None, first) is None and _arranged(answers, rest):
        return True
    fitting = (at for at, one in enumerate(answers) if fault(one, first) is None)
    return any(_arranged(answers[:at] + answers[at + 1 :], rest) for at in fitting)


# -- what came ------------------------------------------------------------------------------------


def fault(answer: bytes | None, right: Expected) -> str | None:
    """What is wrong with an answer, or None."""
    value: Any = None
    if answer is not None:
        try:
            value = parse(answer)
            if value is BAD or (isinstance(value, list) and BAD in map(_whole, value)):
                return "the answer holds what no decoder can hold"
        except (Wrong, RecursionError) as error:
            if ANY in right or isinstance(error, RecursionError):
                return None
            return f"the answer is not JSON: {error}"
        if (bad := senseless(value)) is not None:
            return bad
    found = [_difference(value, one) for one in right]
    return None if None in found else "; or ".join(str(one) for one in found)


def senseless(value: Any) -> str | None:
    """Why this is not an answer by the letter of the specification (section 5), or None."""
    if isinstance(value, list):
        if not value:
            return "an empty batch"
        return next((bad for one in value if (bad := senseless(one)) is not None or isinstance(one, list)), None)
    if not isinstance(value, dict):
        return f"{value!r} is not an answer"
    if value.get("jsonrpc") != "2.0":
        return "jsonrpc is not 2.0"
    if "id" not in value or not (value["id"] is None or isinstance(value["id"], str | Number)):
        return "the id is missing, or is none"
    if ("result" in value) == ("error" in value):
        return "not exactly one of result and error"
    if surplus := value.keys() - {"jsonrpc", "id", "result", "error"}:
        return f"surplus members {surplus}"
    if "result" in value:
        return None
    error = value["error"]
    if not isinstance(error, dict) or error.keys() - {"code", "message", "data"}:
        return "the error is not an error object"
    code = error.get("code")
    if not isinstance(code, Number) or not code.text.lstrip("-").isdigit() or not isinstance(error.get("message"), str):
        return "the error has no code that is an integer, or no message"
    return None


def _difference(value: Any, right: Any) -> str | None:
    if right is ANY:
        return None
    if right is None:
        return None if value is None else f"nothing is owed, there came {_shown(value)}"
    if value is None:
        return f"there is no answer, owed is {_shown(right)}"
    if isinstance(right, list):
        if not isinstance(value, list) or len(value) != len(right):
            return f"owed is a batch of {len(right)}, there came {_shown(value)}"
        pairs = zip(value, right, strict=True)
        return next((f"element {n}: {bad}" for n, pair in enumerate(pairs) if (bad := _difference(*pair))), None)
    if isinstance(value, list):
        return f"owed is {_shown(right)}, there came a batch"
    if right.twice and _difference(value, NO_REQUEST) is None:
        return None
    if right.unread and _difference(value, NO_JSON) is None:
        return None
    if value["id"] != right.id:
        return f"the id should be {right.id!r}, is {value['id']!r}"
    if "error" in value:
        code = int(value["error"]["code"].text)
        return None if code in right.codes else f"error {code}, owed is {_shown(right)}"
    if not right.fine:
        return f"a result, owed is {_shown(right)}"
    if right.value is ANY or _same(value["result"], right.value):
        return None
    return f"the result is {_shown(value['result'])}, owed is {_shown(right.value)}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Number) and isinstance(other, Number):
        return float(one.text) == float(other.text)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:297] + "..."
