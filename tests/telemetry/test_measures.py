"""What metrics read when they are asked: served objects, sessions and streams, brokers, the bus."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from dragoman import RpcError, Service, connect, http_app, serve
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Admitted, Denied, Handshake
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07
from dragoman.net.urls import parse
from dragoman.observer import ReadsMeasures
from dragoman.telemetry import AccessLog, Metrics
from dragoman.telemetry.instruments import INSTRUMENTS, PREFIX
from dragoman.transports.broker.contract import BrokerMessage
from dragoman.transports.broker.memory import MemoryAdapter
from tests.behind import behind
from tests.engines.brokers import name
from tests.engines.wires import until

from .prometheus import parsed


def now(metrics: Metrics, *wanted: str, **labels: str) -> tuple[float, ...]:
    """Samples of these names, whose labels are these. All families are in the table, with their labels."""
    for family in metrics.snapshot():
        one = INSTRUMENTS[family.name.removeprefix(PREFIX)]
        assert (family.kind, family.help) == (one.kind, one.help)
        labelled = [[name for name, _ in sample.labels if name not in one.of_mcp] for sample in family.samples]
        assert all(tuple(names) == one.labels for names in labelled), family.name
    found = parsed(metrics.text())
    return tuple(found[f"{PREFIX}{one}", frozenset(labels.items())] for one in wanted)


def api(hold: asyncio.Event | None = None) -> Service:
    made = Service("calculator")

    @made.method(concurrency=1)
    async def add(a: int, b: int) -> int:
        if hold is not None:
            await hold.wait()
        return a + b

    return made


async def test_calls_that_wait_for_a_slot() -> None:
    hold, metrics = asyncio.Event(), Metrics()
    async with (
        serve(api(hold), urls="tcp://127.0.0.1:0", observers=[metrics]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        calls = [asyncio.create_task(peer.call("add", [1, one])) for one in range(3)]
        await until(lambda: now(metrics, "calls_waiting", service="calculator") == (2,))
        assert now(metrics, "channels", "calls_in_flight", service="calculator") == (1, 3)
        hold.set()
        assert await asyncio.gather(*calls) == [1, 2, 3]
        assert now(metrics, "calls_waiting", service="calculator") == (0,)


# -- brokers

ADD = b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'
SETTLED = ("answered", "unanswered", "requeued", "rejected", "refused")
MESSAGES: list[tuple[str, dict[str, Any], tuple[int, int, str]]] = [
    ("a call", {"reply_to": "MAILBOX", "correlation": "c"}, (1, 0, "answered")),
    ("a call that was sent before", {"reply_to": "MAILBOX", "headers": {"again": "1"}}, (1, 1, "answered")),
    ("a notification", {"body": b'{"jsonrpc":"2.0","method":"add","params":[1,2]}'}, (1, 0, "unanswered")),
    ("after its deadline", {"reply_to": "MAILBOX", "headers": {"deadline": "1"}}, (1, 0, "unanswered")),
    ("no message, and no address", {"body": b"{"}, (1, 0, "rejected")),
    ("an address that is not a mailbox", {"reply_to": "elsewhere"}, (1, 0, "rejected refused")),
    ("a caller that is denied", {"reply_to": "MAILBOX", "headers": {"who": "stranger"}}, (1, 0, "answered refused")),
]


@pytest.mark.parametrize(("sent", "expected"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES])
async def test_how_deliveries_are_settled(sent: dict[str, Any], expected: tuple[int, int, str]) -> None:
    async def guard(handshake: Handshake) -> Admitted | Denied:
        stranger = any(key == b"who" for key, _ in handshake.headers)
        return Denied(reason="no") if stranger else Admitted()

    url, metrics = f"memory+broker:{name()}", Metrics()
    labels = {"service": "calculator", "wire": "memory+broker"}
    async with serve(api(), urls=url, observers=[metrics], guard=guard):
        one = MemoryAdapter(parse(url))
        mailbox = await one.mailbox(lambda message: None)
        if sent.get("reply_to") == "MAILBOX":
            sent = sent | {"reply_to": mailbox}
        await one.request(BrokerMessage(**({"body": ADD} | sent)), None)
        counts = [f"deliveries_{outcome}_total" for outcome in SETTLED]
        settled = tuple(float(outcome in expected[2].split()) for outcome in SETTLED)
        await until(lambda: now(metrics, *counts, **labels) == settled)
        assert now(metrics, "deliveries_total", "redeliveries_total", **labels) == expected[:2]
        assert now(metrics, "deliveries_unsettled", "broker_connected", **labels) == (0, 1)


async def test_deliveries_for_which_there_is_no_slot_and_a_broker_that_is_lost() -> None:
    url, metrics, hold = f"memory+broker:{name()}", Metrics(), asyncio.Event()
    labels = {"service": "calculator", "wire": "memory+broker"}
    limits = api().limits.but(calls=1)
    async with (
        serve(api(hold), urls=f"{url}?prefetch=5", observers=[metrics], limits=limits) as serving,
        connect(url) as peer,
    ):
        calls = [asyncio.create_task(peer.call("add", [1, one])) for one in range(3)]
        gauges = ("deliveries_unsettled", "deliveries_waiting")
        await until(lambda: now(metrics, *gauges, **labels) == (3, 2))
        (listener,) = serving._listeners
        listener.adapter.on_state(False, "gone")  # type: ignore[attr-defined]
        listener.adapter.on_state(False, "still gone")  # type: ignore[attr-defined]
        assert now(metrics, "broker_connected", "broker_outages_total", **labels) == (0, 1)
        listener.adapter.on_state(True, "")  # type: ignore[attr-defined]
        assert now(metrics, "broker_connected", "broker_outages_total", **labels) == (1, 1)
        hold.set()
        assert await asyncio.gather(*calls) == [1, 2, 3]
        await until(lambda: now(metrics, *gauges, **labels) == (0, 0))


# -- MCP


def notes() -> Server:
    made = Server("notes")

    @made.resource("note://one")
    async def one() -> str:
        return "one"

    return made


async def test_sessions_streams_and_subscribers() -> None:
    metrics, server = Metrics(), notes()
    names = ("sessions", "streams", "subscribers", "channels")

    def state() -> tuple[float, ...]:
        return now(metrics, *names, service="notes")

    async with serve(server, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving:
        assert state() == (0, 0, 0, 0)
        async with Client(serving.urls[0], revision=R2025_11.date) as client:
            await client.read_resource("note://one")
            await until(lambda: state() == (1, 1, 1, 0))  # its stream for messages outside calls
        await until(lambda: state() == (0, 0, 0, 0))
        async with (
            Client(serving.urls[0], revision=R2026_07.date) as client,
            client.subscribe(uris=["note://one"]),
        ):
            await until(lambda: state() == (0, 0, 1, 0))


async def test_a_session_that_has_ended_is_no_subscriber_before_it_is_collected_as_garbage() -> None:
    metrics, server = Metrics(), notes()
    gc.disable()
    try:
        async with serve(server, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving:
            async with Client(serving.urls[0], revision=R2025_11.date) as client:
                await client.ping()
                await until(lambda: now(metrics, "sessions", "subscribers", service="notes") == (1, 1))
            await until(lambda: now(metrics, "sessions", service="notes") == (0,))
            assert now(metrics, "subscribers", service="notes") == (0,)
    finally:
        gc.enable()


async def test_a_stream_whose_reader_takes_nothing() -> None:
    metrics, server = Metrics(), notes()
    async with (
        serve(server, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving,
        Client(serving.urls[0], revision=R2025_11.date) as client,
    ):
        await client.ping()
        await until(lambda: now(metrics, "streams", service="notes") == (1,))
        (peer,) = behind(server).host.peers
        (cursor,) = peer._channel.readers
        cursor.active = False  # as while another reader is the current one
        for _ in range(3):
            await peer.notify("notifications/message", {"level": "error", "data": "x"})
        assert now(metrics, "stream_lag", service="notes") == (3,)
        cursor.active = True
        cursor.wake()
        await until(lambda: now(metrics, "stream_lag", service="notes") == (0,))


async def test_how_far_subscribers_are_behind() -> None:
    metrics, server = Metrics(), notes()
    taken = False
    lag = ("subscriber_lag", "subscriber_waits_total", "subscriber_drops_total")
    async with (
        serve(server, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving,
        Client(serving.urls[0], revision=R2026_07.date) as client,
        client.subscribe(uris=["note://one"]),
    ):
        await until(lambda: now(metrics, "subscribers", service="notes") == (1,))
        (listener,) = behind(server).subscriptions._listeners
        send: Callable[[Any], bool] = listener.reader.send
        listener.reader.send = lambda event: taken and send(event)
        server.notify_resource_updated("note://one")
        await until(lambda: now(metrics, *lag, service="notes") == (1, 1, 0))
        taken = True
        await until(lambda: now(metrics, *lag, service="notes") == (0, 1, 0))


# -- the bus


async def test_the_messages_and_outages_of_a_bus() -> None:
    metrics, bus = Metrics(), MemoryBus(name())
    names = ("connected", "published_total", "received_total", "dropped_total", "outages_total")

    def state() -> tuple[float, ...]:
        return now(metrics, *(f"bus_{one}" for one in names), bus="memory")

    async with serve(api(), urls=f"memory:{name()}", observers=[metrics], bus=bus):
        assert state() == (1, 0, 0, 0, 0)
        got: list[bytes] = []
        for _ in range(2):
            await bus.subscribe("topic", got.append)
        await bus.publish("topic", b"m")
        await until(lambda: len(got) == 2)
        assert state() == (1, 1, 2, 0, 0)
        bus.disconnect()
        assert state() == (0, 1, 2, 0, 1)
        bus.connect_again()
        assert state() == (1, 1, 2, 0, 1)
    await bus.close()


async def test_the_bus_of_an_asgi_application() -> None:
    metrics, bus = Metrics(), MemoryBus(name())
    app = http_app(api(), observers=[metrics], bus=bus)
    assert "dragoman_bus_connected" not in metrics.text().decode()
    told: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan"}, told.get, said.put))
    for moment, connected in (("startup", 1), ("shutdown", 1)):
        told.put_nowait({"type": f"lifespan.{moment}"})
        assert await said.get() == {"type": f"lifespan.{moment}.complete"}
        assert now(metrics, "bus_connected", bus="memory") == (connected,)
    await life
    await bus.close()
    assert now(metrics, "bus_connected", bus="memory") == (0,)


# -- their beginning and end


async def test_counters_stay_when_the_serving_ends_and_gauges_do_not() -> None:
    metrics = Metrics()
    labels = {"service": "calculator", "wire": "memory+broker"}
    for round in range(1, 3):
        url = f"memory+broker:{name()}"
        async with serve(api(), urls=url, observers=[metrics]), connect(url) as peer:
            assert await peer.call("add", [1, 2]) == 3
            await until(lambda: now(metrics, "deliveries_unsettled", **labels) == (0,))
        assert now(metrics, "deliveries_total", **labels) == (round,)
        assert "dragoman_broker_connected" not in metrics.text().decode()


async def test_what_two_wires_serve_is_added_up() -> None:
    metrics = Metrics()
    urls = [f"memory+broker:{name()}" for _ in range(2)]
    async with serve(api(), urls=urls, observers=[metrics]):
        assert now(metrics, "broker_connected", service="calculator", wire="memory+broker") == (2,)


async def test_what_a_program_adds_of_its_own() -> None:
    metrics = Metrics()
    end = metrics.read_measures(lambda: {"cache_hits_total": 3, "cache_size": 2}, cache="prices")
    found = parsed(metrics.text())
    labels = frozenset({("cache", "prices")})
    assert found["dragoman_cache_hits_total", labels] == 3
    assert found["dragoman_cache_size", labels] == 2
    end()
    end()
    assert ("dragoman_cache_size", labels) not in parsed(metrics.text())
    assert parsed(metrics.text())["dragoman_cache_hits_total", labels] == 3


def test_what_cannot_be_read_hides_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> dict[str, float]:
        raise OSError("away")

    metrics = Metrics()
    end = metrics.read_measures(broken, cache="prices")
    metrics.read_measures(lambda: {"cache_size": 2}, cache="names")
    assert parsed(metrics.text())["dragoman_cache_size", frozenset({("cache", "names")})] == 2
    assert "the measures of prices could not be read" in caplog.text
    end()


async def test_durations_are_kept_apart_by_outcome_and_code() -> None:
    metrics = Metrics()
    async with (
        serve(api(), urls="tcp://127.0.0.1:0", observers=[metrics]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        await peer.call("add", [1, 2])
        for method, params in (("add", ["x", 1]), ("nothing", [])):
            with pytest.raises(RpcError):
                await peer.call(method, params)
    found = {(one.method, one.outcome, one.code): sum(one.buckets) for one in metrics.durations()}
    assert found == {("add", "result", ""): 1, ("add", "error", "-32602"): 1, ("unknown", "error", "-32601"): 1}


def test_only_metrics_read() -> None:
    assert isinstance(Metrics(), ReadsMeasures)
    assert not isinstance(AccessLog(), ReadsMeasures)
