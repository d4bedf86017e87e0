"""The adapter of RabbitMQ without a server: what a URL makes of it, and what a delivery says."""

from __future__ import annotations

import errno
from typing import Any

import aiormq
import pytest
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from dragoman.channel import Options
from dragoman.engines.amqp.connection import describe_fault
from dragoman.engines.amqp.wire import AmqpAdapter, _read
from dragoman.net.urls import parse


@pytest.mark.parametrize(
    ("query", "limit", "direct"),
    [
        ("", 16_777_216, False),
        ("?reply=queue", 16_777_216, False),
        ("?reply=direct&limit=5", 5, True),
    ],
)
async def test_what_a_url_says(query: str, limit: int, direct: bool) -> None:
    """Answers that go to the connection itself end with it."""
    adapter = AmqpAdapter(parse(f"amqp://host/queue{query}"), Options())
    assert (adapter.limit, adapter.direct, adapter.durable) == (limit, direct, not direct)


@pytest.mark.parametrize(
    ("headers", "redelivered", "count"),
    [
        (None, False, 0),
        (None, True, 1),  # a classic queue does not count
        ({}, True, 1),
        ({"x-delivery-count": 0}, False, 0),
        ({"x-delivery-count": 3}, True, 3),
        ({"x-delivery-count": 3, "delivered": "2"}, True, 5),
        ({"x-delivery-count": "3"}, False, 0),
        ({"x-delivery-count": True}, False, 0),
        ({"x-delivery-count": None}, True, 1),
        ({"delivered": "2"}, False, 2),
        ({"delivered": "-2"}, False, 0),
        ({"delivered": 2}, False, 0),
    ],
)
def test_how_often_a_request_was_delivered(headers: Any, redelivered: bool, count: int) -> None:
    properties = Basic.Properties(headers=headers, reply_to="dragoman.answers.x", correlation_id="c")
    message = DeliveredMessage(
        delivery=Basic.Deliver("tag", 1, redelivered, "", "queue"),
        header=ContentHeader(properties=properties, body_size=2),
        body=b"{}",
        channel=None,  # type: ignore[arg-type]  # nothing is asked of it here
    )
    found = _read(message)
    assert (found.count, found.reply_to, found.correlation, found.body) == (count, "dragoman.answers.x", "c", b"{}")
    assert all(type(value) is str for value in found.headers.values())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (aiormq.exceptions.ConnectionClosed(320, "CONNECTION_FORCED - it ends"), "CONNECTION_FORCED - it ends"),
        (aiormq.exceptions.ConnectionInternalError("INTERNAL_ERROR"), "INTERNAL_ERROR"),
        (aiormq.exceptions.AMQPError(), "AMQPError"),
        (OSError(errno.ECONNREFUSED, "Connect call failed"), "connection refused"),
    ],
)
def test_what_a_fault_says(fault: Exception, words: str) -> None:
    assert describe_fault(fault) == words
