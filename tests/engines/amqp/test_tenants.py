"""Two tenants of one RabbitMQ, with the permissions that the page shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiormq
import pytest

from dragoman import connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.errors import LocalError
from dragoman.transports.broker.contract import Refused, Unroutable

from ..brokers import Engine
from ..tenants import PASSWORDS, pays, tenants, url_of
from ..wires import PATIENCE, calculator
from .broker_of_tenants import broker_of_tenants

EXCHANGE = "exchange=calculator"
CONTROL, MINE = "calculator.control", "dragoman.answers.mallory.x"
FANOUT: Any = {"exchange_type": "fanout", "durable": True}
TO_OTHERS: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "payroll"}

Attack = Callable[[Any, str], Awaitable[Any]]
"""What mallory tries on a channel of hers; the second argument is alice's mailbox."""
ATTACKS: dict[str, Attack] = {
    "read requests": lambda channel, box: channel.basic_consume("calculator", print),
    "read answers": lambda channel, box: channel.basic_consume(box, print),
    "get an answer": lambda channel, box: channel.basic_get(box),
    "drop another's answers": lambda channel, box: channel.queue_purge(box),
    "delete another's mailbox": lambda channel, box: channel.queue_delete(box),
    "delete the queue": lambda channel, box: channel.queue_delete("calculator"),
    "forge an answer": lambda channel, box: channel.basic_publish(b"1", exchange="", routing_key=box, wait=False),
    "call another service": lambda channel, box: channel.basic_publish(b"1", exchange="", routing_key="payroll"),
    "copies of requests": lambda channel, box: channel.queue_bind(MINE, "calculator", routing_key="calculator"),
    "copies of cancels": lambda channel, box: channel.queue_bind(MINE, CONTROL),
    "another exchange": lambda channel, box: channel.exchange_declare("mine", **FANOUT),
    "dead letters as answers": lambda channel, box: channel.queue_declare(f"{MINE}2", arguments=TO_OTHERS),
    "another's mailbox": lambda channel, box: channel.queue_declare("dragoman.answers.alice.mine"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Engine]:
    """A broker with those permissions."""
    with broker_of_tenants() as one:
        yield one


@asynccontextmanager
async def channel_of(who: str, broker: Engine) -> AsyncIterator[Any]:
    """A channel of the library's for a tenant."""
    host, port = broker.address
    connection = await aiormq.connect(f"amqp://{who}:{quote(PASSWORDS[who])}@{host}:{port}")
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def test_a_tenant_reads_and_forges_nothing(shared: Engine) -> None:
    taken: list[str] = []
    async with tenants(shared.url, "calculator", EXCHANGE) as (bank, alice, _):
        for what, attack in ATTACKS.items():
            async with channel_of("mallory", shared) as channel:
                await channel.queue_declare(MINE)
                try:
                    await attack(channel, bank.mailboxes["alice"])
                    taken.append(what)
                except aiormq.exceptions.ChannelAccessRefused:
                    pass
        assert await pays(alice, "alice") == ["alice paid"] * 5
        async with channel_of("mallory", shared) as channel:
            assert (await channel.queue_declare(MINE)).message_count == 0
            await channel.queue_delete(MINE)
    assert taken == []


async def test_an_error_names_the_missing_permission(shared: Engine) -> None:
    async with tenants(shared.url, "calculator", EXCHANGE):
        for given in ("mailbox=alice", ""):
            with pytest.raises(Broken, match=r"ACCESS_REFUSED - .*queue 'dragoman\.answers\..*user 'mallory'"):
                async with connect(
                    url_of(shared.url, "mallory", "calculator", EXCHANGE).replace("mailbox=mallory", given)
                ):
                    pass
        with pytest.raises(Broken, match=r"ACCESS_REFUSED - .*exchange 'calculator\.control'.*user 'mallory'"):
            async with connect(url_of(shared.url, "mallory", "calculator")):  # the default exchange
                pass
        url = url_of(shared.url, "mallory", "calculator", "exchange=other")
        async with connect(url, timeout=PATIENCE) as peer:
            with pytest.raises(Refused, match=r"ACCESS_REFUSED - .*exchange 'other'.*user 'mallory'"):
                await peer.call("add", [1, 2])
    with pytest.raises(LocalError, match=r"ACCESS_REFUSED - .*'payroll\S*'.*user 'worker'"):
        async with serve(calculator(), urls=url_of(shared.url, "worker", "payroll", "exchange=payroll")):
            pass


async def test_an_exchange_that_is_not_there_is_no_worker(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/not-here?exchange=not-here"
    async with connect(url, timeout=PATIENCE) as peer:
        with pytest.raises(Unroutable, match="no such queue"):
            await peer.call("add", [1, 2])
    async with serve(calculator(), urls=url), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3


@pytest.mark.parametrize("exchange", ["", "amq.direct", "dragoman.x", "a%20b"])
async def test_what_cannot_name_an_exchange(exchange: str) -> None:
    with pytest.raises(LocalError, match="cannot name an exchange"):
        async with connect(f"amqp://127.0.0.1/q?exchange={exchange}"):
            pass
