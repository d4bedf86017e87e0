"""RabbitMQ, the real server: what only it does. What all brokers do is in `test_every_broker`."""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import AsyncExitStack
from typing import Any

import aiormq
import pytest
from aiormq.abc import ChannelFrame

from dragoman import connect, serve
from dragoman.channel import Broken
from dragoman.engines.amqp.connection import AmqpConnection
from dragoman.engines.amqp.wire import DIRECT
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import Refused
from tests.engines.brokers import Engine, name
from tests.engines.wires import PATIENCE, SUBTRACT, calculator, too_large_is_refused, until_answered

pytestmark = pytest.mark.xdist_group("rabbitmq")


async def test_too_large_is_refused(rabbitmq: Engine) -> None:
    await too_large_is_refused(f"{rabbitmq.url}/{name()}?limit=1000", 2000, "RabbitMQ")


async def test_a_full_queue_is_said_at_once(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}?length=2"
    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url) as peer:
        calls: list[asyncio.Task[int]] = []
        done: set[asyncio.Task[int]] = set()
        while not done:  # a quorum queue tells a channel that it is full some time after it is: a burst may all get in
            calls += [asyncio.create_task(peer.call("add", [1, n])) for n in range(30)]
            done, _ = await asyncio.wait(calls, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(done.pop().exception(), Refused)
        async with serve(calculator(), urls=[url]):
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, int | Refused) for end in ends)
        assert sum(isinstance(end, int) for end in ends) >= 2


async def test_workers_that_declare_a_new_queue_at_the_same_moment_all_listen(rabbitmq: Engine) -> None:
    """RabbitMQ closes the connections of some by 541, internal error. `?heartbeat=` gives each its own."""
    url = f"{rabbitmq.url}/{name()}"
    async with AsyncExitStack() as stack:
        workers = (serve(calculator(), urls=[f"{url}?heartbeat={60 + each}"]) for each in range(12))
        await asyncio.gather(*map(stack.enter_async_context, workers))
        async with connect(url) as peer:
            assert await asyncio.gather(*(peer.call("add", [1, n]) for n in range(30))) == list(range(1, 31))


async def test_credentials_are_never_shown(
    rabbitmq: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    host, port = rabbitmq.address
    url = f"amqp://guest:sesame77@{host}:{port}/{name()}"
    with pytest.raises(Broken) as refused:
        await connect(url)
    with pytest.raises(LocalError) as unheard:
        async with serve(calculator(), urls=[url]):
            pass
    monkeypatch.setenv("DRAGOMAN_AMQP_USER", "guest")
    monkeypatch.setenv("DRAGOMAN_AMQP_PASSWORD", "sesame77")
    with pytest.raises(Broken) as from_environment:
        await connect(f"amqp://{host}:{port}/{name()}")
    monkeypatch.setenv("DRAGOMAN_AMQP_PASSWORD", "guest")
    bare = f"amqp://{host}:{port}/{name()}"
    async with serve(calculator(), urls=[bare]) as serving, connect(bare) as peer:
        assert await peer.call("add", [1, 2]) == 3
        shown = f"{serving.urls} {peer!r} {peer.caller}"
    said = f"{refused.value!r} {unheard.value!r} {from_environment.value!r} {shown} {caplog.text}"
    assert "sesame77" not in said
    assert "ACCESS_REFUSED" in str(refused.value)


async def test_answers_outlive_a_restart_as_their_mailbox_does(rabbitmq: Engine) -> None:
    """But those to a connection itself, which ends with it."""
    queue, mailbox = name(), f"dragoman.answers.{name()}"
    got: asyncio.Queue[Any] = asyncio.Queue()
    connection = AmqpConnection(parse(rabbitmq.url), vhost="", role="test")
    await connection.begin()
    async with serve(calculator(), urls=[f"{rabbitmq.url}/{queue}"]):
        await connection.queue(mailbox, own=True)
        for address, place, mode in ((mailbox, mailbox, 2), (DIRECT, DIRECT, 1)):
            await connection.consume(place, got.put_nowait, free=True)
            await connection.publish("", queue, SUBTRACT, name="x", reply_to=address, correlation="c", headers={})
            async with asyncio.timeout(PATIENCE):
                message = await got.get()
            assert (message.header.properties.delivery_mode, b'"result":19' in message.body) == (mode, True)
    await connection.close()


async def test_a_queue_that_is_otherwise_is_said(rabbitmq: Engine) -> None:
    queue = name()
    async with serve(calculator(), urls=[f"{rabbitmq.url}/{queue}?length=5"]):
        with pytest.raises(LocalError, match="inequivalent"):
            async with serve(calculator(), urls=[f"{rabbitmq.url}/{queue}?length=6"]):
                pass
        async with (
            serve(calculator(), urls=[f"{rabbitmq.url}/{queue}?declare=no"]),
            connect(f"{rabbitmq.url}/{queue}") as peer,
        ):
            assert await peer.call("add", [1, 2]) == 3


async def test_a_deleted_queue_comes_back(rabbitmq: Engine) -> None:
    """The broker cancels a consumer whose queue is taken away."""
    queue = name()
    url = f"{rabbitmq.url}/{queue}"
    async with serve(calculator(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        connection = AmqpConnection(parse(rabbitmq.url), vhost="", role="test")
        await connection.begin()
        await connection.delete(queue)
        await connection.close()
        await until_answered(peer)


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _unreadable() -> dict[str, tuple[int, bytes]]:
    """Properties that no client can decode: their flag, and their bytes."""
    text, table = _short(b"\xff\xfe"), struct.Struct("!I").pack
    deep = b"\x01kV"
    for _ in range(3_000):
        deep = b"\x01kF" + table(len(deep)) + deep
    of_headers = {
        "a header's name": text + b"S\x00\x00\x00\x01x",
        "a header's time": b"\x01tT" + b"\x80" + bytes(7),
        "headers in headers": deep,
    }
    texts = {
        name: 1 << at for name, at in {"reply to": 9, "correlation": 10, "message id": 7, "content type": 15}.items()
    }
    return (
        {name: (flag, text) for name, flag in texts.items()}
        | {name: (1 << 13, table(len(found)) + found) for name, found in of_headers.items()}
        | {"time": (1 << 6, b"\x80" + bytes(7)), "routing key": (0, b"")}
    )


@pytest.mark.parametrize("what", _unreadable())
async def test_what_cannot_be_decoded_counts_as_missing(
    rabbitmq: Engine, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """The broker hands out every byte that a publisher wrote, and again to the next worker if one loses its link."""
    queue, (flags, properties) = name(), _unreadable()[what]
    url = f"{rabbitmq.url}/{queue}"
    exchange, key = (f"{queue}.control", b"\xff\xfe") if what == "routing key" else ("", queue.encode())
    async with serve(calculator(), urls=[f"{url}?prefetch=1"]), connect(url, timeout=PATIENCE) as peer:
        connection = await aiormq.connect(f"{rabbitmq.url}/")
        channel: Any = await connection.channel(publisher_confirms=False)
        method = struct.pack("!HHH", 60, 40, 0) + _short(exchange.encode()) + _short(key) + b"\x00"
        head = struct.pack("!HHQH", 60, 0, len(SUBTRACT), flags) + properties
        frames = [
            struct.pack("!BHI", kind, channel.number, len(content)) + content + b"\xce"
            for kind, content in enumerate((method, head, SUBTRACT), 1)
        ]
        await channel.write_queue.put(ChannelFrame(payload=b"".join(frames), should_close=False))
        await channel.basic_qos(prefetch_count=1)  # the broker has it
        assert await peer.call("subtract", [42, 23]) == 19
        await connection.close()
    assert not [record for record in caplog.records if "is lost" in record.message]


async def test_a_queue_that_gives_no_answer_is_named(rabbitmq: Engine) -> None:
    """As one without a leader: the error says what is waited for."""
    rabbitmq.control()
    connection = AmqpConnection(parse(rabbitmq.url), vhost="", role="test")
    await connection.begin()
    connection._patience = 0.2
    rabbitmq.freeze()
    try:
        with pytest.raises(
            ConnectionError, match="it does not answer about the queue 'lost', which may have no leader"
        ):
            await connection.queue("lost")
    finally:
        rabbitmq.thaw()
    await connection.close()
