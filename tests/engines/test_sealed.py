"""Every engine as a bus with seals: the contract holds, and two tenants who share the engine, with two secrets and the
same names, neither read, forge nor move what is the other's."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.bus import Bus, open_bus
from dragoman.bus.hub import open_hub
from dragoman.bus.memory import MemoryBus
from dragoman.bus.sealed import OLD, SealedBus
from dragoman.channel import Admitted, Handshake, Identity
from dragoman.mcp.protocol.revisions import R2025_11
from dragoman.observer import Measured
from dragoman.store.calls import owner_of
from dragoman.telemetry import Metrics
from tests.behind import behind
from tests.bus import table
from tests.engines.brokers import Engine
from tests.mcp.http_wire import ME, body, named_by
from tests.mcp.replicas import Ring, ring

ONE, TWO, THREE = (b"the-secret-of-tenant-%d" % number for number in (1, 2, 3))
SIZED = (table.a_log_keeps_the_newest, table.a_log_has_a_limit_where_none_is_given)
"""Those that count bytes: a seal has some too."""
COUNTED = table.what_it_carries_is_counted
"""There is one count more."""


STORES = ("memory", "unix", "redis", "nats")
BUSES = (*STORES, "rabbitmq")
of_stores = pytest.mark.parametrize("url", STORES, indirect=True)
"""Of the engines that store something."""


@pytest.fixture(params=BUSES)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A bus of each engine."""
    if request.param == "memory":
        yield f"memory:{uuid.uuid4()}"
    elif request.param == "unix":
        hub = await open_hub(str(tmp_path / "bus"))
        yield f"unix:{tmp_path}/bus"
        await hub.close()
    else:
        yield request.getfixturevalue(request.param).url


@pytest.fixture
async def three(url: str) -> AsyncIterator[tuple[Bus, SealedBus, SealedBus]]:
    """A bare end, and one of each tenant's."""
    async with AsyncExitStack() as stack:
        ends: list[Bus] = []
        for _ in range(3):
            ends.append(await open_bus(url))
            stack.push_async_callback(ends[-1].close)
        yield ends[0], SealedBus(ends[1], [ONE]), SealedBus(ends[2], [TWO])


def passed_over(bus: Bus) -> float:
    assert isinstance(bus, Measured)
    return bus.measures()["bus_unverified_total"]


@pytest.mark.parametrize("case", [case for case in table.BUS if case is not COUNTED], ids=table.name)
async def test_the_contract_of_a_bus(case: table.Case, url: str) -> None:
    await case(lambda: sealed(url))


@of_stores
@pytest.mark.parametrize("case", [case for case in table.STORE if case not in SIZED], ids=table.name)
async def test_the_contract_of_a_store(case: table.Case, url: str) -> None:
    await case(lambda: sealed(url))


async def sealed(url: str) -> Bus:
    return SealedBus(await open_bus(url), [ONE])


async def test_what_it_carries_is_counted(url: str) -> None:
    async with table.ends(lambda: sealed(url), 1) as (bus,):
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await bus.subscribe(topic := table.fresh("topic"), heard.put_nowait)
        await bus.publish(topic, b"1")
        assert await table.take(heard, 1) == [b"1"]
        assert isinstance(bus, Measured)
        measured = bus.measures()
        assert (measured["bus_published_total"], measured["bus_received_total"]) == (1, 1)
        assert measured["bus_unverified_total"] == 0


async def test_messages_of_two_tenants(three: tuple[Bus, SealedBus, SealedBus]) -> None:
    bare, one, two = three
    topic, other = table.fresh("topic"), table.fresh("topic")
    heard: dict[str, asyncio.Queue[bytes]] = {name: asyncio.Queue() for name in ("bare", "one", "two", "elsewhere")}
    await bare.subscribe(topic, heard["bare"].put_nowait)
    await one.subscribe(topic, heard["one"].put_nowait)
    await two.subscribe(topic, heard["two"].put_nowait)
    await one.subscribe(other, heard["elsewhere"].put_nowait)
    for message in (b"first", b"second"):
        await one.publish(topic, message)
    first, second = await table.take(heard["bare"], 2)
    assert await table.take(heard["one"], 2) == [b"first", b"second"]
    for forged in (b"", b"first", first, second, first[:-1] + b"!", b"\x00" + first, first[:20]):
        await bare.publish(topic, forged)  # doubled, changed, cut
        await bare.publish(other, forged)  # moved
    await two.publish(topic, b"of the second tenant")
    assert await table.take(heard["two"], 1) == [b"of the second tenant"]
    await one.publish(topic, b"last")
    await one.publish(other, b"last")
    assert await table.take(heard["one"], 1) == [b"last"]
    assert await table.take(heard["elsewhere"], 1) == [b"last"]
    assert heard["two"].empty()
    assert passed_over(one) == 7 + 7 + 1


async def test_messages_in_another_order_and_late_ones(three: tuple[Bus, SealedBus, SealedBus]) -> None:
    bare, one, _ = three
    topic, captured = table.fresh("topic"), asyncio.Queue[bytes]()
    watching = await bare.subscribe(topic, captured.put_nowait)
    for message in (b"first", b"second"):
        await one.publish(topic, message)
    first, second = await table.take(captured, 2)
    await watching.close()
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    now = 0
    late = SealedBus(one.inner, [ONE], clock=lambda: now)
    await late.subscribe(topic, heard.put_nowait)
    for message in (second, first):
        await bare.publish(topic, message)
    await one.publish(topic, b"third")
    assert await table.take(heard, 2) == [b"second", b"third"]
    now = int.from_bytes(second[17:25], "big") + int(OLD * 1e9) + 10**9 * 1_000
    await bare.publish(topic, second)
    await SealedBus(bare, [ONE], clock=lambda: now).publish(topic, b"in time")
    assert await table.take(heard, 1) == [b"in time"]


@of_stores
async def test_records_of_two_tenants(three: tuple[Bus, SealedBus, SealedBus]) -> None:
    bare, one, two = (end.store for end in three)
    assert bare is not None
    assert one is not None
    assert two is not None
    key, elsewhere, log, other = (table.fresh(what) for what in ("key", "key", "log", "log"))
    await one.put(key, b"1", ttl=table.LONG)
    for number in (1, 2):
        assert await one.append(log, b"%d" % number, ttl=table.LONG) == number
    # it reads nothing of the other's
    assert await two.get(key) is None
    assert await two.read(log) == []
    # what is moved, doubled, in another order, or of its own making is nothing to the other
    kept = await bare.get(key)
    assert kept is not None
    await bare.put(elsewhere, kept, ttl=table.LONG)
    assert await one.get(elsewhere) is None
    (_, first), (_, second) = await bare.read(log)
    for forged in (first, second, kept, b"", b"3"):
        await bare.append(log, forged, ttl=table.LONG)
        await bare.append(other, forged, ttl=table.LONG)
    assert await two.append(log, b"of the second tenant", ttl=table.LONG) == 8
    assert await one.read(log) == [(1, b"1"), (2, b"2")]
    assert await two.read(log) == [(8, b"of the second tenant")]
    assert await one.read(other) == []
    for forged in (b"", b"1", first, kept[:-1] + b"2"):
        await bare.put(key, forged, ttl=table.LONG)
        assert await one.get(key) is None
    # and it keeps nothing out
    assert await one.append(log, b"3", ttl=table.LONG) == 9
    assert (await one.read(log, 2)) == [(9, b"3")]
    assert await one.put_new(key, b"anew", ttl=table.LONG) is True
    assert await one.put_new(key, b"again", ttl=table.LONG) is False
    assert await one.get(key) == b"anew"
    for name in (key, elsewhere, log, other):
        await bare.delete(name)


async def test_a_new_secret(three: tuple[Bus, SealedBus, SealedBus]) -> None:
    """The first one seals, every one opens."""
    bare, old, _ = three
    new, after = SealedBus(bare, [THREE, ONE]), SealedBus(bare, [THREE])
    topic, heard = table.fresh("topic"), asyncio.Queue[bytes]()
    await new.subscribe(topic, heard.put_nowait)
    await old.publish(topic, b"old")
    assert await table.take(heard, 1) == [b"old"]
    if bare.store is None or old.store is None or new.store is None or after.store is None:
        return
    key, log = table.fresh("key"), table.fresh("log")
    await old.store.put(key, b"old", ttl=table.LONG)
    await old.store.append(log, b"old", ttl=table.LONG)
    assert await new.store.get(key) == b"old"
    assert await new.store.append(log, b"new", ttl=table.LONG) == 2
    assert await new.store.read(log) == [(1, b"old"), (2, b"new")]
    assert await after.store.read(log) == [(2, b"new")]
    assert await after.store.get(key) is None
    for name in (key, log):
        await bare.store.delete(name)


async def test_what_does_not_verify_is_told_once(
    three: tuple[Bus, SealedBus, SealedBus], caplog: pytest.LogCaptureFixture
) -> None:
    bare, one, _ = three
    topic, heard = table.fresh("topic"), asyncio.Queue[bytes]()
    await one.subscribe(topic, heard.put_nowait)
    for _ in range(20):
        await bare.publish(topic, b"forged")
    await one.publish(topic, b"own")
    assert await table.take(heard, 1) == [b"own"]
    assert passed_over(one) == 20
    told = [one for one in caplog.records if one.name == "dragoman.bus" and one.levelname == "WARNING"]
    assert len(told) == 1
    assert "DRAGOMAN_SECRET" in told[0].message


# -- what is served -------------------------------------------------------------------------------


@pytest.fixture
async def tenants(url: str) -> AsyncIterator[tuple[Ring, Ring, Bus]]:
    """Two replicas of each tenant's, of one name, on one engine; and a bare end."""
    guard = named_by(b"x-user")
    async with (
        ring(2, join=lambda: open_bus(url), keys=[ONE], guard=guard) as one,
        ring(2, join=lambda: open_bus(url), keys=[TWO], guard=guard) as two,
        table.ends(lambda: open_bus(url), 1) as (bare,),
    ):
        yield one, two, bare


@of_stores
async def test_sessions_of_two_tenants(tenants: tuple[Ring, Ring, Bus]) -> None:
    one, two, bare = tenants
    params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
    begun = await one.places[0].ask(body("initialize", params, 0), {"X-User": "alice"})
    id = begun.headers["mcp-session-id"]
    alice, mallory = ({"Mcp-Session-Id": id, "X-User": name} for name in ("alice", "mallory"))
    for place in two.places:
        assert (await place.ask(body("ping"), alice)).status == 404
    shared: Any = behind(one.servers[1]).shared
    key = shared.key("session", id)
    [(_, whole)] = await shared.read(key)
    forged = json.dumps(json.loads(whole) | {"principal": "mallory"}).encode()
    assert bare.store is not None
    for record in (forged, b"x", await raw(bare, key)):
        await bare.store.append(key, record, ttl=60)
    for place in one.places:
        assert (await place.ask(body("ping"), mallory)).status == 404
        assert (await place.ask(body("ping"), alice)).status == 200


async def raw(bare: Bus, log: str) -> bytes:
    """The first message of a log, as it is written."""
    assert bare.store is not None
    return (await bare.store.read(log))[0][1]


async def test_what_serve_shares_is_sealed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With the secret of the environment: what functions keep, and what the program does with the bus itself."""
    monkeypatch.setenv("DRAGOMAN_SECRET", ONE.decode())
    url, metrics, service = f"memory:{uuid.uuid4()}", Metrics(), Service("kept")

    @service.method
    async def keep(ctx: Context) -> None:
        await ctx.store.set("key", "value")

    async def guard(handshake: Handshake) -> Admitted:
        return Admitted(identity=Identity(subject="ann"))

    bare = MemoryBus(url.partition(":")[2])
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await bare.subscribe("topic", heard.put_nowait)
    async with serve(
        service, urls="http://127.0.0.1:0", bus=url, store="bus", guard=guard, observers=[metrics]
    ) as serving:
        async with connect(serving.urls[0]) as peer:
            await peer.call("keep")
        assert serving.bus is not None
        await serving.bus.publish("topic", b"news")
        assert await table.take(heard, 1) != [b"news"]
        await serving.bus.subscribe("topic", heard.put_nowait)
        await bare.publish("topic", b"forged")
        assert await table.take(heard, 1) == [b"forged"]  # at the bare end alone
        assert b'dragoman_bus_unverified_total{bus="memory"} 1' in metrics.text()
        owner = owner_of("kept", Identity(subject="ann"), "")
        kept: Any = bare.store
        document = await kept.get(f"dragoman.state.{owner}")
        assert await serving.bus.store.get(f"dragoman.state.{owner}") == document[17:]  # type: ignore[union-attr]
        assert b'"value"' in document
        assert document[:1] == b"\x01"
    await bare.close()
    assert "is not sealed" not in caplog.text.replace("is not sealed by this secret", "")


async def test_a_bus_without_a_secret_says_so(
    redis: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DRAGOMAN_SECRET", raising=False)
    for url, told in ((f"memory:{uuid.uuid4()}", 0), (redis.url, 1)):
        async with serve(Service("kept"), urls="http://127.0.0.1:0", bus=url, store="bus"):
            pass
        assert len([one for one in caplog.records if "what goes over the bus is not sealed" in one.message]) == told
