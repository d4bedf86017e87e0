"""Heads, their fields as text, and the fields that a refusal adds, as values."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.jsonrpc.errors import Refusal
from dragoman.transports.http.messages import JSON_LINES, LENGTHS, STATUSES, CommonLines, Head, collect, retry_after

FIELDS = [(b"host", b"a"), (b"content-length", b"5"), (b"authorization", b"Bearer x"), (b"dpop", b"y")]


def head(**more: Any) -> Head:
    return Head(headers=dict(FIELDS), fields=FIELDS, **more)


def test_the_head_of_an_ordinary_answer() -> None:
    assert JSON_LINES.ok % (2, b"{}") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert tuple(JSON_LINES) == (("Content-Type", "application/json"),)
    several = CommonLines(("A", "100%d"), ("B", "\xe4"))
    assert several.ok % (1, b"x") == b"HTTP/1.1 200 OK\r\nA: 100%d\r\nB: \xe4\r\nContent-Length: 1\r\n\r\nx"


def test_the_statuses_of_refusals() -> None:
    assert STATUSES == {"busy": 503, "draining": 503, "rate_limited": 429, "too_large": 413, "forbidden": 403}


@pytest.mark.parametrize(
    ("refusal", "lines"),
    [
        (Refusal("busy", "Busy"), (("Retry-After", "1"),)),
        (Refusal("busy", "Busy", {"retry_after": 0.2}), (("Retry-After", "1"),)),
        (Refusal("rate_limited", "Busy", {"retry_after": 2.4}), (("Retry-After", "3"),)),
        (Refusal("draining", "Draining", {"retry_after": "soon"}), (("Retry-After", "1"),)),
        (Refusal("too_large", "Too large", {"retry_after": 2}), ()),
        (Refusal("forbidden", "No", {"retry_after": 2}), ()),
        (Refusal("forbidden", "No", challenge="Bearer x"), (("WWW-Authenticate", "Bearer x"),)),
    ],
)
def test_when_to_come_back_or_with_what(refusal: Refusal, lines: Any) -> None:
    assert retry_after(refusal) == lines


def test_a_head_that_comes_again_has_the_length_of_its_own_body() -> None:
    one = head(length=5)
    texts = one.header_texts()
    assert texts == {"host": "a", "content-length": "5", "authorization": "Bearer x", "dpop": "y"}
    assert one.header_texts() is texts, "made once"
    assert one.header_texts(5) is texts
    assert one.sized == {}
    assert one.header_texts(7) == texts | {"content-length": "7"}
    assert one.header_texts(7) is one.header_texts(7)
    assert one.sent(5) is FIELDS
    assert one.sent(7) == [(name, b"7" if name == b"content-length" else value) for name, value in FIELDS]


def test_a_head_without_a_length_has_none() -> None:
    chunked = Head(headers={b"host": b"a"}, fields=FIELDS[:1])
    assert chunked.header_texts(7) is chunked.header_texts() == {"host": "a"}
    assert chunked.sent(7) is chunked.fields


def test_the_lengths_that_a_head_keeps_are_bounded() -> None:
    one = head(length=5)
    first = one.header_texts(100)
    for length in range(101, 100 + LENGTHS):
        one.header_texts(length)
    assert len(one.sized) == LENGTHS
    assert one.header_texts(100) is first
    assert one.header_texts(1)["content-length"] == "1"
    assert list(one.sized) == [1]


def test_secrets_that_a_guard_of_tokens_has_read_are_not_shown() -> None:
    protection: Any = object()
    assert head().shown == dict(FIELDS)
    assert head(protection=protection).shown == {b"host": b"a", b"content-length": b"5"}
    assert head(protection=protection).header_texts() == {"host": "a", "content-length": "5"}


@pytest.mark.parametrize(
    ("endpoint", "route", "speaks"),
    [(None, False, False), (None, True, False), (print, False, True), (print, True, False)],
)
def test_an_endpoint_that_is_no_route_speaks_json_rpc(endpoint: Any, route: bool, speaks: bool) -> None:
    assert Head(endpoint=endpoint, route=route).speaks_rpc is speaks


def test_fields_of_one_name_are_one_field() -> None:
    assert collect([(b"A", b" 1 "), (b"b", b"2"), (b"a", b"3")]) == {b"a": b"1, 3", b"b": b"2"}


def test_a_head_of_which_nothing_is_known_gets_a_whole_answer() -> None:
    """The short way of an answer is for heads that were looked at."""
    unknown = Head()
    assert (unknown.plain, unknown.keep, unknown.public, unknown.guarded) == (False, True, False, False)
