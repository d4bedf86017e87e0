"""hypothesis strategies: JSON values, messages, and bytes that are nearly messages."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET

from dragoman.jsonrpc.messages import Batch, ErrorObject, Failure, Message, Notification, Request, Result, Single

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
integers = st.integers() | st.integers(-(10**40), 10**40)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
arrays = st.lists(values, max_size=4)
params = st.just(UNSET) | arrays | st.dictionaries(texts, values, max_size=4)
ids = integers | texts
codes = st.integers(-(2**31), 2**31) | st.sampled_from([-32700, -32600, -32601, -32602, -32603, -32000])
errors = st.builds(ErrorObject, code=codes, message=texts, data=st.just(UNSET) | values)

requests = st.builds(Request, method=texts, params=params, id=ids)
notifications = st.builds(Notification, method=texts, params=params)
results = st.builds(Result, result=values, id=ids)
failures = st.builds(Failure, error=errors, id=ids | st.none())
singles: st.SearchStrategy[Single] = requests | notifications | results | failures


def distinct(message: Single) -> Any:
    """What must differ between the messages of one batch."""
    match message:
        case Request(_, _, id):
            return ("call", type(id), id)
        case Result(_, id) | Failure(_, id) if id is not None:
            return ("answer", type(id), id)
    return id_of(message)


def id_of(message: object) -> int:
    """The identity of the object, for messages that may stand in a batch any number of times."""
    return id(message)


batches = st.lists(singles, min_size=1, max_size=5, unique_by=distinct).map(lambda many: Batch(tuple(many)))
messages: st.SearchStrategy[Message] = singles | batches


def plain(message: Any) -> Any:
    """A message whose Raw parts are turned into objects, for comparisons."""
    if isinstance(message, msgspec.Raw):
        return msgspec.json.decode(message)
    if isinstance(message, msgspec.Struct):
        fields = {name: plain(getattr(message, name)) for name in message.__struct_fields__}
        return (type(message), fields)
    if isinstance(message, tuple):
        return [plain(element) for element in message]
    return message


# Bytes that are nearly messages: members drawn from what is right and what is wrong.
_WORDS = [
    '"2.0"', "2.0", '"1.0"', "null", "1", "1.0", "-0", "1e400", '"x"', '"rpc.x"', "true", "[]", "{}", "[1]", "NaN",
    '"\\ud800"', '{"code":1,"message":"m"}', '{"code":"INVALID_PARAMS","message":2,"data":[]}', '{"Code":1}', "[[[]]]",
    "9" * 400, '"' + "i" * 1_100 + '"', '{"a":1,"a":2}', "-32600.0", '{"code":-32768,"message":""}',
]  # fmt: skip
_NAMES = ["jsonrpc", "method", "params", "id", "result", "error", "Method", "ID", "extra", "json-rpc", "\\u0069d"]
_members = st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_WORDS)), max_size=6)
_objects = _members.map(lambda pairs: "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}")
_elements = _objects | st.sampled_from(_WORDS)
_texts = _elements | st.lists(_elements, max_size=4).map(lambda many: "[" + ",".join(many) + "]")


def _damaged(text: str, at: int, junk: bytes) -> bytes:
    raw = text.encode()
    at %= len(raw) + 1
    return raw[:at] + junk + raw[at:]


_junk = st.sampled_from([b"", b"", b"", b"\xff", b"\xef\xbb\xbf", b",", b"}", b" ", b"\n", b"\x00", b"\xed\xa0\x80"])
nearly: st.SearchStrategy[bytes] = st.builds(_damaged, _texts, st.integers(0, 200), _junk) | st.binary(max_size=40)
