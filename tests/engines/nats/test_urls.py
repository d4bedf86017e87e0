"""Which subject a URL of NATS names, which words its query may have, and what a request says, without a server."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec import Struct

from dragoman.channel import Options
from dragoman.engines.nats.adapter import message_of
from dragoman.engines.nats.connection import Message
from dragoman.engines.nats.wire import adapter_at, subject_of
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage, unsettled


@pytest.mark.parametrize(
    ("path", "subject"),
    [("/a", "a"), ("/a/b/c", "a.b.c"), ("/a.b", "a.b"), ("?subject=a", "a"), ("?subject=a.b", "a.b")],
)
def test_the_subject_of_a_url(path: str, subject: str) -> None:
    assert subject_of(parse(f"nats://host{path}")) == subject


@pytest.mark.parametrize("path", ["/a/b?subject=c", "/a/?subject=c", "", "/", "/*", "/a.>", "/$JS.API", "/_INBOX.a"])
def test_urls_without_one_subject(path: str) -> None:
    with pytest.raises(LocalError):
        subject_of(parse(f"nats://host{path}"))


@pytest.mark.parametrize(
    ("query", "address", "may"),
    [
        ("", "_INBOX.a", True),
        ("", "answers.a", False),
        ("?reply_to=answers.*", "answers.a", True),
        ("?reply_to=answers.*", "_INBOX.a", True),
        ("?reply_to=answers.*", "orders.a", False),
        ("?reply_to=*", "a b", False),
        ("?reply_to=*", "a.>", False),
        ("?reply_to=*", "a.*", False),
        ("?reply_to=*", "", False),
    ],
)
async def test_where_answers_may_go(query: str, address: str, may: bool) -> None:
    adapter = adapter_at(parse(f"nats://host/a{query}"), Options())
    assert bool(adapter.answerable(BrokerMessage(body=b"", reply_to=address))) is may


@pytest.mark.parametrize("query", ["replyto=x", "group=a.b", "group=", "reply_to="])
def test_queries_that_make_no_sense(query: str) -> None:
    with pytest.raises(LocalError):
        adapter_at(parse(f"nats://host/a?{query}"), Options())


class Delivered(Struct):
    """A message as the library has it."""

    reply: str = ""
    headers: dict[str, str] | None = None
    subject: str = "a"
    data: bytes = b"{}"


@pytest.mark.parametrize(
    ("message", "to", "correlation", "headers"),
    [
        (Delivered(), "", "", {}),
        (Delivered("_INBOX.a.7"), "_INBOX.a", "7", {"key": "7"}),
        (Delivered("_INBOX.a.7", {"key": "mine", "x": "y"}), "_INBOX.a", "7", {"key": "mine", "x": "y"}),
        (Delivered("_INBOX.a.7", {"x": "y"}), "_INBOX.a", "7", {"x": "y", "key": "7"}),
        (Delivered("bare"), "bare", "", {}),
    ],
)
def test_what_a_request_says(message: Delivered, to: str, correlation: str, headers: dict[str, str]) -> None:
    found = message_of(cast(Message, message), unsettled)
    assert (found.reply_to, found.correlation, found.headers, found.body) == (to, correlation, headers, b"{}")
