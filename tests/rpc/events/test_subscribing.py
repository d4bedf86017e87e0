"""Peers of a service subscribe to events: both ends, over every wire that carries them, and as bytes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from dragoman import (
    BadAnswer,
    CallTimeout,
    Context,
    Identity,
    InvalidParams,
    LocalError,
    RpcError,
    Service,
    connect,
    serve,
    sync,
)
from dragoman.auth import Static
from dragoman.channel import ChannelError
from dragoman.events import EventLimits, EventPublisher
from dragoman.events.publisher import SCANNED
from dragoman.jsonrpc.errors import InvalidRequest
from dragoman.mcp import Server
from dragoman.mcp.extensions.events import Events
from dragoman.rpc import event_subscription as client
from dragoman.rpc.event_subscription import EventSubscription
from tests.engines.wires import until
from tests.ports import free_port

PATIENCE = 20.0


class OrderShipped(Struct):
    """An order has left the house."""

    order: str
    carrier: str = "DHL"


def shop(**options: Any) -> tuple[Service, EventPublisher]:
    """A service with one event type, `order_shipped`, which is filtered by its carrier."""
    events = EventPublisher(**options)
    events.event(filters=["carrier"])(OrderShipped)
    return Service("shop", events=events), events


async def take(found: EventSubscription[Any], count: int) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        return [await anext(found) for _ in range(count)]


def orders(taken: list[Any]) -> list[str]:
    return [one.data["order"] for one in taken]


BOTH_WAYS = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/rpc", "unix:{folder}/s", "memory:events")


@pytest.mark.parametrize("url", BOTH_WAYS, ids=lambda url: url.partition(":")[0])
async def test_on_every_wire_that_carries_messages_back(url: str, tmp_path: Path) -> None:
    api, events = shop()
    async with serve(api, urls=url.format(folder=tmp_path)) as serving, connect(serving.urls[0]) as peer:
        async with peer.subscribe("order_shipped", {"carrier": "UPS"}, result=OrderShipped) as found:
            id = await events.emit(OrderShipped("1", "UPS"), timestamp=7.5)
            await events.emit(OrderShipped("2", "DHL"))
            await events.emit(OrderShipped("3", "UPS"))
            first, second = await take(found, 2)
            assert (first.id, first.name, first.timestamp) == (id, "order_shipped", 7.5)
            assert [first.data, second.data] == [OrderShipped("1", "UPS"), OrderShipped("3", "UPS")]
            assert first.cursor < second.cursor
            assert events.measures()["event_streams"] == 1
        await until(lambda: not events.streams)
        assert await peer.call("events.list") == [
            {
                "name": "order_shipped",
                "description": "An order has left the house.",
                "arguments": dict(events.types["order_shipped"].input_schema),
                "data": dict(events.types["order_shipped"].payload_schema),
            }
        ]


@pytest.mark.parametrize("url", ["http://127.0.0.1:0/rpc", "udp://127.0.0.1:0", "memory+broker:events"])
async def test_a_wire_without_a_connection(url: str) -> None:
    api, events = shop()
    async with serve(api, urls=url) as serving, connect(serving.urls[0]) as peer:
        with pytest.raises(InvalidRequest, match="a connection in both directions"):
            await anext(peer.subscribe("order_shipped"))
    assert not events.streams


class Raw:
    """A peer that is bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, message: Mapping[str, Any]) -> None:
        self.writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            found: dict[str, Any] = json.loads(await self.reader.readline())
        return found


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Raw]:
    host, _, port = url.partition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


async def test_the_bytes() -> None:
    api, events = shop()
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, raw(serving.urls[0]) as peer:
        peer.say({"id": 1, "method": "events.subscribe", "params": {"name": "order_shipped", "subscription": "mine"}})
        active = await peer.hear()
        cursor = active["params"]["cursor"]
        assert active == {
            "jsonrpc": "2.0",
            "method": "events.active",
            "params": {"subscription": "mine", "cursor": cursor},
        }
        await events.emit(OrderShipped("1"), id="evt_1", timestamp=1.0)
        found = await peer.hear()
        assert found["params"].pop("cursor") > cursor
        data = {"order": "1", "carrier": "DHL"}
        assert found == {
            "jsonrpc": "2.0",
            "method": "events.event",
            "params": {"subscription": "mine", "id": "evt_1", "name": "order_shipped", "timestamp": 1.0, "data": data},
        }
        peer.say({"method": "$/cancelRequest", "params": {"id": 1}})
        assert (await peer.hear())["error"]["code"] == -32800
        await until(lambda: not events.streams)
        peer.say({"id": 2, "method": "events.subscribe", "params": {"name": "order_shipped", "subscription": "2"}})
        await peer.hear()
        peer.writer.close()  # a connection that ends
        await until(lambda: not events.streams)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "order_lost"}, "no event type 'order_lost'"),
        ({"name": "order_shipped", "arguments": {"weight": 1}}, "unknown field `weight`"),
        ({"name": "order_shipped", "arguments": {"carrier": "x" * 20_000}}, "16384 are allowed"),
        ({"name": "order_shipped", "subscription": "x" * 33}, "subscription"),
        ({"name": "order_shipped", "subscription": "a b"}, "subscription"),
        ({"name": "order_shipped", "max_age": -1}, "max_age"),
    ],
)
async def test_what_is_refused(params: dict[str, Any], words: str) -> None:
    api, events = shop()
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        with pytest.raises(InvalidParams, match=words):
            await peer.call("events.subscribe", {"subscription": "1", **params})
        assert not events.streams


async def test_bounds() -> None:
    api, events = shop(limits=EventLimits(streams_each=2))
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        async with peer.subscribe("order_shipped"), peer.subscribe("order_shipped"):
            with pytest.raises(RpcError, match="2 subscriptions are allowed") as refused:
                await peer.call("events.subscribe", {"name": "order_shipped", "subscription": "3"})
            assert refused.value.data["limit"] == "streams_each"
        await until(lambda: not events.streams)
        async with peer.subscribe("order_shipped"):
            pass


async def test_who_may() -> None:
    allowed = ["ada"]

    def allow(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
        return identity.subject in allowed

    events = EventPublisher()
    events.event("for.ada", allow=allow)(OrderShipped)
    api = Service("shop", events=events, auth=Static({"token-of-ada": "ada", "token-of-bob": "bob"}))
    async with serve(api, urls="ws://127.0.0.1:0/rpc") as serving:
        async with connect(serving.urls[0], auth="token-of-bob") as peer:
            assert await peer.call("events.list") == []
            with pytest.raises(InvalidParams, match="no event type"):  # it is hidden from him
                await anext(peer.subscribe("for.ada"))
        async with connect(serving.urls[0], auth="token-of-ada") as peer, peer.subscribe("for.ada") as found:
            await events.emit(OrderShipped("1"))
            assert orders(await take(found, 1)) == ["1"]
            allowed.clear()
            await events.emit(OrderShipped("2"))
            with pytest.raises(RpcError, match="Forbidden"):
                await take(found, 1)


async def test_rights_that_end_among_events_that_wait() -> None:
    asked = 0

    def allow(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
        nonlocal asked
        asked += arguments is not None
        return asked <= 20

    events = EventPublisher()
    events.event("waiting", allow=allow)(OrderShipped)
    api = Service("shop", events=events, auth=Static({"token-of-ada": "ada"}))
    async with serve(api, urls="ws://127.0.0.1:0/rpc") as serving:
        for number in range(50):  # they are of one batch
            await events.emit(OrderShipped(str(number)))
        cursor = events.cursor(events.types["waiting"], 0)
        got = []
        async with connect(serving.urls[0], auth="token-of-ada") as peer:
            found = peer.subscribe("waiting", cursor=cursor)

            async def read() -> None:
                async for event in found:
                    got.append(event)

            with pytest.raises(RpcError, match="Forbidden"):
                await read()
    assert 0 < len(got) < 20


async def test_who_is_far_behind_does_not_hold_up_the_others() -> None:
    _, events = shop()
    definition = events.types["order_shipped"]
    async with events.open() as site:
        for number in range(3 * SCANNED):
            await events.emit(OrderShipped(str(number)))
        await events.emit(OrderShipped("last", "UPS"))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        working = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
        chosen = definition.arguments_of({"carrier": "UPS"}, 100)
        with events.stream(site, "") as changed:
            following = events.follow(definition, chosen, 0, site, changed, 25.0)
            async for batch in following:
                assert len(batch.events) == 1
                break
        assert turns - before >= 3
        working.cancel()


async def test_large_events_are_not_read_to_be_thrown_away() -> None:
    _, events = shop()
    for _ in range(30):
        await events.emit(OrderShipped("x" * 200_000))
    page = events.box().read("order_shipped", 0)
    assert [one.number for one in page] == [1, 2, 3, 4, 5]
    await events.close()


@asynccontextmanager
async def far_end(answer: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]) -> AsyncIterator[str]:
    """A far end that answers each call with these messages; yields its URL."""

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            for message in answer(json.loads(line)):
                writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        writer.close()

    async with await asyncio.start_server(work, "127.0.0.1", 0) as server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("end", "raised"),
    [
        ({"result": None}, CallTimeout),
        ({"error": {"code": -32000, "message": "Busy"}}, RpcError),
        ({"error": {"code": -32001, "message": "Draining"}}, RpcError),
    ],
    ids=["answered", "busy", "draining"],
)
@pytest.mark.parametrize("accepts", [True, False])
async def test_a_far_end_that_ends_it_at_once_is_asked_seldom_and_given_up(
    end: Mapping[str, Any], raised: type[Exception], accepts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GIVE_UP", 0.0)
    asked = 0

    def answer(call: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        nonlocal asked
        if call.get("method") == "events.subscribe":
            asked += 1
            if accepts:
                params = {"subscription": call["params"]["subscription"], "cursor": "1"}
                yield {"method": "events.active", "params": params}
            yield {"id": call["id"], **end}

    async with far_end(answer) as url, connect(url) as peer, asyncio.timeout(PATIENCE):
        with pytest.raises(raised):
            await anext(peer.subscribe("order_shipped"))
    assert asked == 2


async def test_a_reader_goes_on_at_its_cursor() -> None:
    api, events = shop()
    async with serve(api, urls="memory:cursor") as serving, connect(serving.urls[0]) as peer:
        async with peer.subscribe("order_shipped") as found:
            for number in range(5):
                await events.emit(OrderShipped(str(number)))
            assert orders(await take(found, 3)) == ["0", "1", "2"]
            cursor = found.cursor  # what it works on, 2, is not done
        async with peer.subscribe("order_shipped", cursor=cursor) as found:
            assert orders(await take(found, 3)) == ["2", "3", "4"]
        async with peer.subscribe("order_shipped", cursor="nobody's") as found:
            assert found.gaps == 1


async def test_what_is_not_kept_any_more_is_a_gap() -> None:
    api, events = shop(limits=EventLimits(events=3))
    async with serve(api, urls="memory:gap") as serving, connect(serving.urls[0]) as peer:
        async with peer.subscribe("order_shipped") as found:
            cursor = found.cursor
        for number in range(10):
            await events.emit(OrderShipped(str(number)))
        async with peer.subscribe("order_shipped", cursor=cursor) as found:
            assert orders(await take(found, 3)) == ["7", "8", "9"]
            assert found.gaps == 1


async def test_an_outage_loses_and_repeats_nothing(tmp_path: Path) -> None:
    url, store = f"tcp://127.0.0.1:{free_port()}", f"sqlite:{tmp_path}/events.db"
    first, second = shop(store=store), shop(store=store)
    async with serve(first[0], urls=url):
        peer = await connect(url, reconnect=True)
        found = await peer.subscribe("order_shipped").__aenter__()
        await first[1].emit(OrderShipped("1"))
        assert orders(await take(found, 1)) == ["1"]
        reading = asyncio.ensure_future(take(found, 3))
    await second[1].emit(OrderShipped("2"))  # while nobody serves
    await second[1].close()
    async with serve(second[0], urls=url):
        await second[1].emit(OrderShipped("3"))
        await second[1].emit(OrderShipped("4"))
        assert orders(await reading) == ["2", "3", "4"]
        await found.close()
        await peer.close()


async def test_without_reconnecting_the_end_of_the_channel_is_raised() -> None:
    api, _ = shop()
    async with serve(api, urls="tcp://127.0.0.1:0") as serving:
        peer = await connect(serving.urls[0])
        found = await peer.subscribe("order_shipped").__aenter__()
        reading = asyncio.ensure_future(take(found, 1))
    with pytest.raises((ChannelError, RpcError)):  # that it drains, or the end
        await reading
    await peer.close()


@pytest.mark.parametrize("bound", ["WAITING", "WAITING_SIZE"])
async def test_a_reader_that_is_far_behind_holds_little(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, bound, {"WAITING": 5, "WAITING_SIZE": 200}[bound])
    api, events = shop()
    async with (
        serve(api, urls="tcp://127.0.0.1:0") as serving,
        connect(serving.urls[0]) as peer,
        peer.subscribe("order_shipped") as found,
    ):
        for number in range(50):
            await events.emit(OrderShipped(str(number)))
        await until(lambda: not events.streams)  # its call was cancelled
        assert orders(await take(found, 50)) == [str(number) for number in range(50)]


async def test_a_peer_that_does_not_read_holds_no_memory_here() -> None:
    api, events = shop()
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, raw(serving.urls[0]) as peer:
        peer.say({"id": 1, "method": "events.subscribe", "params": {"name": "order_shipped", "subscription": "1"}})
        await peer.hear()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        ids = [await events.emit(OrderShipped("x" * 200_000)) for _ in range(100)]
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        found: list[str] = []
        while len(found) < len(ids):
            async with asyncio.timeout(PATIENCE):
                length = await peer.reader.readuntil(b'"id":"')
                assert length
                found.append((await peer.reader.readuntil(b'"'))[:-1].decode())
        assert found == ids


async def test_what_does_not_fit_its_type() -> None:
    class Other(Struct):
        weight: int

    api, events = shop()
    async with serve(api, urls="memory:other") as serving, connect(serving.urls[0]) as peer:
        async with peer.subscribe("order_shipped", result=Other) as found:
            await events.emit(OrderShipped("1"))
            with pytest.raises(BadAnswer, match="does not fit"):
                await take(found, 1)
        with pytest.raises(LocalError, match="max_age"):
            peer.subscribe("order_shipped", max_age="long")  # type: ignore[call-overload]


async def test_a_far_end_that_sends_an_event_before_the_subscription_is_active() -> None:
    api = Service("hasty")

    @api.method("events.subscribe", timeout=None)
    async def subscribe(name: str, subscription: str, context: Context) -> None:
        assert context.peer is not None
        event = {"subscription": subscription, "id": "1", "name": name, "timestamp": 1.0, "data": {}}
        await context.peer.notify("events.event", event)
        await asyncio.Event().wait()

    async with serve(api, urls="memory:hasty") as serving, connect(serving.urls[0]) as peer:
        with pytest.raises(BadAnswer, match="came before"):
            await take(peer.subscribe("order_shipped"), 1)


async def test_two_readers_of_one_peer_are_told_apart_and_one_is_closed_by_another_task() -> None:
    api, events = shop()
    async with (
        serve(api, urls="memory:two") as serving,
        connect(serving.urls[0]) as peer,
        peer.subscribe("order_shipped", {"carrier": "A"}) as one,
        peer.subscribe("order_shipped", {"carrier": "B"}) as other,
    ):
        for number, carrier in enumerate("ABAB"):
            await events.emit(OrderShipped(str(number), carrier))
        assert orders(await take(one, 2)) == ["0", "2"]
        assert orders(await take(other, 2)) == ["1", "3"]
        waiting = asyncio.ensure_future(_all(one))
        await asyncio.sleep(0)
        await one.close()
        assert await waiting == []


async def _all(found: EventSubscription[Any]) -> list[Any]:
    return [event async for event in found]


async def test_a_service_that_is_included_brings_its_events() -> None:
    inner, events = shop()
    outer = Service("outer")
    outer.include(inner)
    async with (
        serve(outer, urls="memory:outer") as serving,
        connect(serving.urls[0]) as peer,
        peer.subscribe("order_shipped") as found,
    ):
        await events.emit(OrderShipped("1"))
        assert orders(await take(found, 1)) == ["1"]


def test_what_is_no_publisher() -> None:
    with pytest.raises(LocalError, match="the `publisher` of an Events"):
        Service("shop", events=Events())  # type: ignore[arg-type]


async def test_one_emit_reaches_peers_and_clients_of_mcp() -> None:
    from tests.mcp.extensions.events.receiving import following

    events = Events()
    events.event(filters=["carrier"])(OrderShipped)
    app, api = Server("shop", extensions=[events]), Service("shop", events=events.publisher)
    async with serve(api, urls="memory:emit") as serving, connect(serving.urls[0]) as peer, following(app) as mcp:
        here = msgspec.json.decode(await mcp.request_raw("events/poll", {"name": "order_shipped"}))
        async with peer.subscribe("order_shipped") as found:
            id = await events.emit(OrderShipped("1"))
            assert [one.id for one in await take(found, 1)] == [id]
        polled = await mcp.request_raw("events/poll", {"name": "order_shipped", "cursor": here["cursor"]})
        assert [one["eventId"] for one in msgspec.json.decode(polled)["events"]] == [id]


async def test_a_server_subscribes_at_its_caller() -> None:
    api, events = shop()
    other = Service("other")

    @other.method
    async def follow(ctx: Context[Any]) -> list[str]:
        assert ctx.peer is not None
        async with ctx.peer.subscribe("order_shipped") as found:
            await events.emit(OrderShipped("1"))
            return orders(await take(found, 1))

    async with serve(other, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0], service=api) as peer:
        assert await peer.call("follow") == ["1"]
    await until(lambda: not events.streams)


async def test_a_program_that_blocks() -> None:
    api, events = shop()

    def read(url: str) -> list[str]:
        with (
            sync.connect(url) as peer,
            peer.subscribe("order_shipped", {"carrier": "DHL"}, result=OrderShipped) as found,
        ):
            for number in range(3):
                events.emit_soon(OrderShipped(str(number))).result()
            got = [next(found).data.order for _ in range(3)]
            assert found.cursor is not None
            closing = threading.Timer(0.0, found.close)
            closing.start()
            assert list(found) == []
            closing.join()
        return got

    async with serve(api, urls="tcp://127.0.0.1:0") as serving:
        assert await asyncio.to_thread(read, serving.urls[0]) == ["0", "1", "2"]
