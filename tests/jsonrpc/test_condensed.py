"""The short text beside the whole one: the members of both are the same parts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dragoman.jsonrpc import condensed as module
from dragoman.jsonrpc.condensed import LONG, QUOTES, Condensed, condensed

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
def test_a_member_of_the_short_text_has_its_place_in_the_whole_one(before: Any, value: Any, behind: Any) -> None:
    raw = json.dumps({"name": before, "arguments": value, "_meta": behind}).encode()
    found = condensed(raw)
    if found is None:
        return
    json.loads(found.text)
    assert len(found.text) < len(raw) + 32 * raw.count(b'"')
    place = found.place(members(found.text)["arguments"])
    if place is not None:
        assert raw[place] == bytes(members(raw)["arguments"])
    elif not any(len(piece) >= LENGTHY for piece in (json.dumps(before), json.dumps(behind))):
        pytest.fail("all long strings are in the arguments")


@pytest.mark.parametrize("text", ["plain text", 'quotes " and \\ more', "\\" * 9, '\\" \\\\" "', "é ü \U0001f600"])
def test_a_long_string_is_cut_whatever_is_in_it(text: str) -> None:
    raw = json.dumps({"a": {"b": text * 40}, "c": 1}).encode()
    found = condensed(raw)
    if text == "\\" * 9:
        assert found is None  # so many backslashes are not counted
        return
    assert found is not None
    assert len(found.text) < 80
    place = found.place(members(found.text)["a"])
    assert place is not None
    assert json.loads(raw[place]) == {"b": text * 40}


def test_a_long_name_is_cut_too() -> None:
    raw = b'{"' + b"n" * 30 + b'":1,"a":2}'
    assert len(short(raw).text) == len(raw) - 30 + 32
    assert short(raw).place(Raw(b"2")) is None


def test_a_string_elsewhere_has_no_place_in_the_member() -> None:
    raw = json.dumps({"name": "x" * 50, "arguments": {"text": "y" * 50}}).encode()
    found = short(raw)
    assert found.place(members(found.text)["arguments"]) is None


def test_without_long_strings_there_is_nothing_to_win() -> None:
    assert condensed(b'{"a":"short","b":[1,2,3]}') is None
    assert condensed(b"[1,2,3]") is None


def test_only_so_many_quotes_are_looked_at() -> None:
    many, long = b'"a",' * QUOTES, b'"' + b"x" * 50 + b'"'
    assert condensed(b"[" + many + long + b"]") is None
    assert condensed(b'["' + rb"\"" * QUOTES + b'"]') is None
    found = short(b"[" + long + b"," + many + long + b"]")
    assert found.text.count(long) == 1


def test_what_is_long_is_long() -> None:
    assert LONG == 64 * 1024
