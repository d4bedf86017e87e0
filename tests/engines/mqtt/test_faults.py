"""MQTT when something dies, as only it does: sessions, wills, the way to the broker. A broker that is not quite one is
a few bytes here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.channel import Broken, Options
from dragoman.engines.mqtt.messages import MqttMessage
from dragoman.engines.mqtt.wire import MqttAdapter
from dragoman.jsonrpc.errors import CallTimeout, LocalError, RpcError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage
from tests.engines.brokers import Engine, name
from tests.engines.wires import PATIENCE, calculator, until
from tests.engines.worker import worker

from .test_wire import listener


async def victim(url: str) -> BrokerMessage:
    """A worker that dies of the first request it gets: its socket is closed without a DISCONNECT."""
    adapter = MqttAdapter(parse(url), Options(), serving=True)
    await adapter.open()
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    await adapter.work(got.put_nowait, 1)
    async with asyncio.timeout(PATIENCE):
        message = await got.get()
    _die(adapter)
    return message


def _die(adapter: MqttAdapter) -> None:
    """What a worker's death looks like to the broker: the socket is closed without a DISCONNECT."""
    assert adapter.link is not None
    adapter.closing = True
    adapter.link._end("dead")


# -- workers --------------------------------------------------------------------------------------


async def test_what_a_killed_worker_had_goes_to_the_others(mosquitto: Engine) -> None:
    """Its will says that it is dead (MQTT 5.0, 3.1.2.5); another takes over its session, with what it had in hand and
    what the broker had put by for it."""
    url = f"{mosquitto.url}/{name()}?prefetch=2"
    api = calculator()

    @api.method
    async def work(seconds: float, ctx: Context) -> int:
        return ctx.redelivered

    async with connect(url.partition("?")[0]) as peer, worker(url) as first:
        calls = [asyncio.create_task(peer.call("work", [60], timeout=PATIENCE)) for _ in range(2)]
        await asyncio.sleep(0)
        calls += [asyncio.create_task(peer.call("add", [number, 1], timeout=PATIENCE)) for number in range(3)]
        async with listener(mosquitto.url, "marker/#") as (link, heard):  # the broker has it all when it has this
            await link.publish(MqttMessage(topic="marker/1", body=b""))
            await heard.get()
        async with serve(api, urls=[url]):
            await first.kill()
            async with asyncio.timeout(PATIENCE):
                assert await asyncio.gather(*calls) == [1, 1, 1, 2, 3]


async def test_a_worker_that_starts_after_the_will_was_published_takes_over(mosquitto: Engine) -> None:
    """No worker serves when the will is published: the broker retains it (MQTT 5.0, 3.1.2.7) for a worker that comes
    later, and that worker removes it when it is done."""
    topic = name()
    url = f"{mosquitto.url}/{topic}?prefetch=2"
    api = calculator()

    @api.method
    async def work(seconds: float, ctx: Context) -> int:
        return ctx.redelivered

    wills = f"{topic}/fallen/#"
    async with (
        connect(url.partition("?")[0]) as peer,
        worker(url) as first,
        listener(mosquitto.url, wills) as (_, heard),
    ):
        calls = [asyncio.create_task(peer.call("work", [60], timeout=PATIENCE)) for _ in range(2)]
        await asyncio.sleep(0)
        calls += [asyncio.create_task(peer.call("add", [number, 1], timeout=PATIENCE)) for number in range(3)]
        async with listener(mosquitto.url, "marker/#") as (link, marks):
            await link.publish(MqttMessage(topic="marker/1", body=b""))
            await marks.get()
        await first.kill()
        async with asyncio.timeout(PATIENCE):
            will = await heard.get()
            async with serve(api, urls=[url]):
                assert await asyncio.gather(*calls) == [1, 1, 1, 2, 3]
                claim, removed = await heard.get(), await heard.get()
    assert claim.body.split()[0] == will.body
    assert removed.body == b""
    assert await _retained(mosquitto, wills) == []


async def test_a_worker_that_comes_back_removes_its_will(mosquitto: Engine) -> None:
    """It was only cut off for a while: the others must not take over its work."""
    topic = name()
    adapter = MqttAdapter(parse(f"{mosquitto.url}/{topic}"), Options(), serving=True)
    back = asyncio.Event()
    adapter.on_state = lambda online, why: back.set() if online else None
    await adapter.open()
    await adapter.work(lambda message: None, 1)
    mine = adapter.endpoint.client
    will = MqttMessage(topic=f"{topic}/fallen/dragoman/{mine}", body=mine.encode(), retained=True)
    async with listener(mosquitto.url) as (link, _):
        await link.publish(will)
    assert await _retained(mosquitto, f"{topic}/fallen/#") == [mine.encode()]
    assert adapter.link is not None
    adapter.link._end("cut off")
    async with asyncio.timeout(PATIENCE):
        await back.wait()
    assert await _retained(mosquitto, f"{topic}/fallen/#") == []
    await adapter.close()


async def _retained(engine: Engine, filter: str) -> list[bytes]:
    """What the broker has retained at some topics."""
    async with listener(engine.url) as (link, heard):
        await link.subscribe([filter, "marker/#"], 1, retained=True)
        await link.publish(MqttMessage(topic="marker/1", body=b""))
        bodies = []
        while (message := await heard.get()).topic != "marker/1":
            bodies.append(message.body)
        return bodies


async def test_a_worker_with_a_name_comes_back_for_what_it_had(mosquitto: Engine) -> None:
    """MQTT 5.0, 4.4: "both the Client and Server MUST resend any unacknowledged PUBLISH packets"."""
    plain = f"{mosquitto.url}/{name()}"
    url = f"{plain}?client={name('worker')}"
    api = Service("again")

    @api.method
    async def count(ctx: Context) -> list[Any]:
        return [ctx.redelivered, ctx.caller.key]

    await _declare(url)
    async with connect(plain) as peer:
        call = asyncio.create_task(peer.call("count", extra={"key": "order-17"}, timeout=PATIENCE))
        assert (await victim(url)).count == 0
        async with serve(api, urls=[url]):
            assert await call == [1, "order-17"]


async def _declare(url: str) -> None:
    """Let a worker with a name be known to the broker."""
    adapter = MqttAdapter(parse(url), Options(), serving=True)
    await adapter.open()
    await adapter.work(lambda message: None, 1)
    _die(adapter)


async def test_a_broker_that_ends_in_good_order_keeps_what_a_worker_without_a_name_had(mosquitto: Engine) -> None:
    """Also at the first restart that a worker sees: Mosquitto 2.0 stores no session that began with Clean Start."""
    mosquitto.control()
    url = f"{mosquitto.url}/{name()}"
    adapter = MqttAdapter(parse(url), Options(), serving=True)
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    await adapter.open()
    await adapter.work(got.put_nowait, 1)
    async with connect(url) as peer:
        await peer.notify("mark", ["note"])
        async with asyncio.timeout(PATIENCE):
            first = await got.get()
            await mosquitto.restart()
            again = await got.get()
    assert (again.body, again.correlation) == (first.body, first.correlation)
    await adapter.close()


async def test_what_no_worker_survives_is_answered_and_set_aside(mosquitto: Engine) -> None:
    topic = name()
    url = f"{mosquitto.url}/{topic}?client={name('worker')}&deliveries=3"
    await _declare(url)
    async with connect(f"{mosquitto.url}/{topic}") as peer:
        call = asyncio.create_task(peer.call("add", [1, 2], timeout=PATIENCE))
        assert [(await victim(url)).count for _ in range(3)] == [0, 1, 2]
        async with listener(mosquitto.url, f"{topic}/dead") as (_, heard), serve(calculator(), urls=[url]):
            with pytest.raises(RpcError, match="3 deliveries"):
                await call
            assert b'"add"' in (await heard.get()).body
            assert await peer.call("add", [1, 2]) == 3


async def test_a_request_whose_deadline_has_passed_is_not_run(mosquitto: Engine) -> None:
    """The broker drops it by its Message Expiry Interval (MQTT 5.0, 3.3.2.3.3), or the worker by its deadline."""
    url = f"{mosquitto.url}/devices/{name()}?client={name()}"
    ran: list[str] = []
    api = calculator()

    @api.method
    async def mark(text: str) -> None:
        ran.append(text)

    await _declare(url)
    caller = url.partition("?")[0]
    async with connect(caller) as peer:
        with pytest.raises(CallTimeout):
            await peer.call("mark", ["late"], timeout=0.05)
        waiting = asyncio.create_task(peer.call("mark", ["in time"], timeout=PATIENCE))
        await peer.notify("mark", ["note"])
        async with serve(api, urls=[url]):
            await waiting
            assert await peer.call("add", [1, 2]) == 3
    assert sorted(ran) == ["in time", "note"]


# -- the way to it --------------------------------------------------------------------------------

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def between(talk: Talk) -> AsyncIterator[str]:
    """Something that listens in the broker's place."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def packet(reader: asyncio.StreamReader) -> bytes:
    """One packet of MQTT, whole."""
    head = await reader.readexactly(1)
    length = shift = 0
    while True:
        byte = await reader.readexactly(1)
        head += byte
        length |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return head + await reader.readexactly(length)


def through(engine: Engine, seen: list[bytes], refuse_5: bytes | None = None) -> Talk:
    """On to the real broker; `seen` gets what the client says. `refuse_5`: what it is told when it asks for MQTT 5."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await packet(reader)
        if refuse_5 is not None and first[8] == 5:  # CONNECT: 10, length, "\x00\x04MQTT", version
            writer.write(refuse_5)
            await writer.drain()
            return
        theirs, ours = await asyncio.open_connection(*engine.address)
        ours.write(first)

        async def back() -> None:
            while data := await theirs.read(65536):
                writer.write(data)

        answers = asyncio.create_task(back())
        try:
            while True:
                said = await packet(reader)
                seen.append(said)
                ours.write(said)
        finally:
            answers.cancel()
            ours.close()

    return talk


@pytest.mark.parametrize("refusal", [b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00", b""], ids=["3.1.1", "5", "closes"])
async def test_a_broker_that_knows_no_5_gets_311(refusal: bytes, mosquitto: Engine) -> None:
    """MQTT 5.0, 3.1.2.2: 0x84; MQTT 3.1.1, 3.2.2.3: 1; some just close."""
    async with between(through(mosquitto, [], refusal)) as url:
        url = f"{url}/{name()}"
        async with serve(calculator(), urls=url), connect(url) as peer:
            assert await peer.call("add", [1, 2]) == 3


@pytest.mark.parametrize("said", [b"\x20\x03\x00\x87\x00", b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_what_is_not_a_broker_or_refuses_is_said(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await packet(reader)
        writer.write(said)
        await writer.drain()

    async with between(talk) as url:
        with pytest.raises(Broken, match="Cannot connect to mqtt://"):
            async with connect(f"{url}/lamp"):
                pass
        with pytest.raises(LocalError, match="Cannot listen on mqtt://"):
            async with serve(calculator(), urls=f"{url}/lamp"):
                pass


async def test_a_peer_that_closes_while_it_comes_back_leaves_no_connection() -> None:
    """The broker dies, takes the next connection, and says nothing to its SUBSCRIBE; then the peer closes."""
    tries: list[bytes] = []
    asking, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await packet(reader)
        tries.append(b"")
        writer.write(b"\x20\x03\x00\x00\x00")  # CONNACK
        while (said := await packet(reader))[0] != 0x82:  # SUBSCRIBE
            pass
        if len(tries) == 1:
            writer.write(b"\x90\x04" + said[2:4] + b"\x00\x01")  # SUBACK
            await writer.drain()
            return  # the broker dies
        asking.set()
        try:
            while True:
                await packet(reader)
        except asyncio.IncompleteReadError:
            gone.set()

    async with between(talk) as url:
        async with asyncio.timeout(PATIENCE), connect(f"{url}/{name()}?keepalive=600"):
            await asking.wait()
        async with asyncio.timeout(PATIENCE):
            await gone.wait()


async def test_what_a_broker_forgot_is_asked_again_though_a_first_try_to_come_back_failed() -> None:
    """That try made a session, which the next one finds: it says nothing of what the broker had before."""
    published: list[bytes] = []
    tries: list[bytes] = []
    again = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await packet(reader)
        tries.append(b"")
        present = len(tries) > 2
        writer.write(bytes([0x20, 3, present, 0, 0]))  # CONNACK
        while len(tries) != 2:
            said = await packet(reader)
            if said[0] == 0x82:  # SUBSCRIBE: SUBACK
                writer.write(b"\x90\x04" + said[2:4] + b"\x00\x01")
            elif said[0] == 0x32:  # PUBLISH: PUBACK
                topic = int.from_bytes(said[3:5] if said[1] & 128 else said[2:4])
                start = (5 if said[1] & 128 else 4) + topic
                writer.write(b"\x40\x02" + said[start : start + 2])
                published.append(said)
                if len(tries) == 1:
                    await writer.drain()
                    return  # the broker dies
                again.set()

    async with between(talk) as url, connect(f"{url}/{name()}") as peer:
        call = asyncio.create_task(peer.call("add", [1, 2], timeout=PATIENCE))
        async with asyncio.timeout(PATIENCE):
            await again.wait()
        call.cancel()
    assert len(tries) == 3
    assert [b"again" in one for one in published] == [False, True]


@pytest.mark.parametrize(("acks", "order"), [("ordered", [1, 2, 3]), ("any", [3, 2, 1])])
async def test_acknowledgements_go_in_order(acks: str, order: list[int], mosquitto: Engine) -> None:
    """MQTT 5.0, 4.6: "The Client MUST send PUBACK packets in the order in which the corresponding PUBLISH packets were
    received", though the last was done first. `?acks=any` is for brokers that take them as they come."""
    seen: list[bytes] = []
    gates = [asyncio.Event() for _ in range(3)]
    began: asyncio.Queue[int] = asyncio.Queue()
    api = Service("slow")

    @api.method
    async def wait(which: int) -> None:
        began.put_nowait(which)
        await gates[which].wait()

    topic = name()
    async with (
        between(through(mosquitto, seen)) as far,
        serve(api, urls=f"{far}/{topic}?acks={acks}"),
        connect(f"{mosquitto.url}/{topic}") as peer,
    ):
        calls = []
        for which in range(3):
            calls.append(asyncio.create_task(peer.call("wait", [which])))
            await began.get()
        for which in (2, 1, 0):
            gates[which].set()
            await calls[which]
        await until(lambda: len([one for one in seen if one[0] == 0x40]) == 3)
    assert [one[3] for one in seen if one[0] == 0x40][:3] == order
