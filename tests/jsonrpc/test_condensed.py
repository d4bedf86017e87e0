"""The short text beside the whole one: the members of both are the same parts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from dragoman.jsonrpc import codec
from dragoman.jsonrpc import condensed as module
from dragoman.jsonrpc.codec import decode
from dragoman.jsonrpc.condensed import LONG, QUOTES, Condensed, condensed
from dragoman.jsonrpc.limits import Limits
from dragoman.jsonrpc.messages import Malformed

LENGTHY = 12
WORDS = st.text('"\\ab{}[]:,\n', max_size=40)
VALUES = st.recursive(
    st.none() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True, scope="module")
def lengthy() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONG", LENGTHY)
        yield


def members(text: bytes) -> dict[str, Raw]:
    return msgspec.json.decode(text, type=dict[str, Raw])


def short(raw: bytes) -> Condensed:
    found = condensed(raw)
    assert found is not None
    return found


@given(VALUES, VALUES, VALUES)
def test_a_member_of_the_short_text_is_that_of_the_whole_one(before: Any, value: Any, behind: Any) -> None:
    raw = json.dumps({"name": before, "arguments": value, "_meta": behind}).encode()
    found = condensed(raw)
    if found is None:
        return
    assert found.raw == Raw(raw)
    assert len(found.text) < len(raw) + 35 * raw.count(b'"')
    part = found.member(members(found.text)["arguments"])
    if part is not None:
        assert part.raw == members(raw)["arguments"]
        assert filled(json.loads(part.text), part.strings) == value
    elif not any(len(piece) >= LENGTHY for piece in (json.dumps(before), json.dumps(behind))):
        pytest.fail("all long strings are in the arguments")


def filled(value: Any, strings: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [filled(one, strings) for one in value]
    if isinstance(value, dict):
        return {filled(name, strings): filled(one, strings) for name, one in value.items()}
    return strings.get(value, value) if isinstance(value, str) else value


@given(VALUES, VALUES, WORDS)
def test_a_long_message_reads_as_it_does_without_the_short_text(id: Any, inner: Any, word: str) -> None:
    for message in (
        {"jsonrpc": "2.0", "method": "m", "params": {"a": inner, "b": word}, "id": id},
        {"jsonrpc": "2.0", "method": word, "params": [word, inner]},
        {"jsonrpc": "2.0", "result": inner, "id": 1},
        {"jsonrpc": "2.0", "method": "m", "params": [1], "result": [word * 3], "id": 1},
        {"jsonrpc": "2.0", "error": {"code": 1, "message": word, "data": inner}, "id": 1},
        [inner, word],
    ):
        raw = json.dumps(message).encode()
        with pytest.MonkeyPatch.context() as patch:
            plain = decode(raw)
            patch.setattr(codec, "LONG", LENGTHY)
            assert decode(raw) == plain


@pytest.mark.parametrize(
    "string",
    [b"\xff", b"\x01", b"\n", rb"\q", rb"\ud800", rb"\u12"],
    ids=["not UTF-8", "a control character", "a line's end", "an escape that is none", "half a pair", "half an escape"],
)
def test_a_long_string_that_is_none_makes_the_message_none(string: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LONG", LENGTHY)
    long = b"x" * 20 + string + b"y" * 20
    message = decode(b'{"jsonrpc":"2.0","method":"m","params":["' + long + b'"],"id":1}')
    assert isinstance(message, Malformed)
    assert message.kind == "parse"
    assert condensed(b'["' + long + b'"]') is None


def test_depth_and_numbers_beside_a_long_string_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LONG", LENGTHY)
    long, limits = b'"' + b"[1" * 200 + b'"', Limits(depth=20)

    def params(text: bytes) -> str:
        message = decode(b'{"jsonrpc":"2.0","method":"m","params":[' + long + b"," + text + b'],"id":1}', limits=limits)
        return message.kind if isinstance(message, Malformed) else ""

    assert params(b"1") == ""
    assert params(b"[" * 30 + b"]" * 30) == "too_large"
    assert params(b"1" * 400) == "parse"


@pytest.mark.parametrize("text", ["plain text", 'quotes " and \\ more', "\\" * 9, '\\" \\\\" "', "é ü \U0001f600"])
def test_a_long_string_is_cut_whatever_is_in_it(text: str) -> None:
    raw = json.dumps({"a": {"b": text * 40}, "c": 1}).encode()
    found = condensed(raw)
    if text == "\\" * 9:
        assert found is None  # so many backslashes are not counted
        return
    assert found is not None
    assert len(found.text) < 80
    assert list(found.strings.values()) == [text * 40]
    part = found.member(members(found.text)["a"])
    assert part is not None
    assert json.loads(bytes(part.raw)) == {"b": text * 40}


def test_a_long_name_is_cut_too() -> None:
    raw = b'{"' + b"n" * 30 + b'":1,"a":2}'
    assert len(short(raw).text) == len(raw) - 30 + 33
    assert short(raw).member(Raw(b"2")) is None


def test_a_string_elsewhere_is_not_in_the_member() -> None:
    raw = json.dumps({"name": "x" * 50, "arguments": {"text": "y" * 50}}).encode()
    found = short(raw)
    assert found.member(members(found.text)["arguments"]) is None
    assert found.member(UNSET) is None


def test_the_values_are_there_only_if_every_long_string_is_one() -> None:
    def values(raw: bytes) -> tuple[Any, ...] | None:
        return short(raw).values(lambda text: tuple(msgspec.json.decode(text, type=dict[str, Any]).values()))

    long, other = "x" * 30, "y" * 40
    assert values(json.dumps({"a": long, "n": 1, "b": other}).encode()) == (long, 1, other)
    assert values(json.dumps({"a": [long]}).encode()) is None
    assert values(json.dumps({"a": long, long: 2}).encode()) is None
    assert values(f'{{"a":"{long}","a":"{other}"}}'.encode()) is None
    assert values(json.dumps([long]).encode()) is None


def test_without_long_strings_there_is_nothing_to_win() -> None:
    assert condensed(b'{"a":"short","b":[1,2,3]}') is None
    assert condensed(b"[1,2,3]") is None


def test_a_text_that_ends_within_a_string_is_left_to_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LONG", LENGTHY)
    raw = b'{"jsonrpc":"2.0","method":"m","params":["' + b"x" * 50 + b'","y'
    assert condensed(raw) is None
    message = decode(raw)
    assert isinstance(message, Malformed)
    assert message.kind == "parse"


def test_only_so_many_quotes_are_looked_at() -> None:
    many, long = b'"a",' * QUOTES, b'"' + b"x" * 50 + b'"'
    assert condensed(b"[" + many + long + b"]") is None
    assert condensed(b'["' + rb"\"" * QUOTES + b'"]') is None
    found = short(b"[" + long + b"," + many + long + b"]")
    assert found.text.count(long) == 1


def test_what_is_long_is_long() -> None:
    assert LONG == 64 * 1024
