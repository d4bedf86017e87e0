"""`serve`: which TLS context goes where, and whom observers are told of."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from dragoman import Limits, LocalError, Service, connect, serve
from dragoman.bus.contract import BusLost
from dragoman.mcp import Client, Server
from dragoman.observer import Observation, Observer, Rejection
from tests.servable import Idle

CA = trustme.CA()


def certificate() -> ssl.SSLContext:
    """What a server has; by its protocol it could be used by a client as well, and checks no client then."""
    with pytest.warns(DeprecationWarning, match="PROTOCOL_TLS"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS)
    CA.issue_cert("localhost").configure_cert(context)
    return context


def trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


@asynccontextmanager
async def broker() -> AsyncIterator[tuple[int, asyncio.Queue[bytes]]]:
    """Something with a certificate of an authority that no system trusts, and the first thing that it is told."""
    told: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.put_nowait(await reader.read(1_000))
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("localhost").configure_cert(context)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], told


async def test_the_certificate_for_callers_is_not_shown_to_brokers() -> None:
    """A server's context verifies no one: with it the password would go to any broker."""
    api = Service("guarded")
    async with broker() as (port, told):
        urls = ["https://localhost:0", f"rediss://user:secret@localhost:{port}/queue"]
        with pytest.raises(LocalError, match="certificate"):
            async with serve(api, urls=urls, tls=certificate()):
                pass
        assert told.empty()
        with pytest.raises(LocalError):
            async with serve(api, urls=urls, tls=certificate(), client_tls=trust()):
                pass
        assert b"secret" in await told.get()


async def test_a_bus_is_checked_by_the_client_s_context() -> None:
    api = Service("guarded")
    async with broker() as (port, told):
        bus = f"rediss://user:secret@localhost:{port}"
        with pytest.raises(BusLost, match="certificate"):
            async with serve(api, urls="tcp://localhost:0", bus=bus):
                pass
        assert told.empty()
        with pytest.raises(BusLost):
            async with serve(api, urls="tcp://localhost:0", bus=bus, client_tls=trust()):
                pass
        assert b"secret" in await told.get()


async def test_the_certificate_serves_and_the_trust_connects() -> None:
    api = Service("guarded")

    @api.method
    async def one() -> int:
        return 1

    async with serve(api, urls=["https://localhost:0", "tls://localhost:0"], tls=certificate()) as serving:
        for url in serving.urls:
            async with connect(url, tls=trust()) as peer:
                assert await peer.call("one") == 1


class Counting(Observer):
    """Counts what came in."""

    def __init__(self) -> None:
        self.count = 0

    def came_in(self, seen: Observation) -> None:
        self.count += 1

    def started(self, seen: Observation) -> None: ...
    def ended(self, seen: Observation) -> None: ...
    def outbound(self, seen: Observation) -> None: ...
    def rejected(self, seen: Rejection) -> None: ...


ENDS = ["a b -0", "a b -1", "a b -0 -1", "a a -0", "a a -0 -0", "a b a -0", "a b a -2 -1 -0", "a restrict b -0 -1"]
"""Registrations and, by their number, ends."""


@pytest.mark.parametrize("steps", ENDS)
@pytest.mark.parametrize("kind", ["service", "server"])
async def test_an_observer_of_a_serving_is_told_until_its_end(kind: str, steps: str) -> None:
    """Once for each registration that has not ended; a second end of one ends no other."""
    api: Any = Service("seen") if kind == "service" else Server("seen")
    register = api.method if kind == "service" else api.tool
    register(name="hi")(lambda: 1)
    url = f"memory:observed-{kind}"
    async with serve(api, urls=url) as serving:
        observers = {"a": Counting(), "b": Counting()}
        ends: list[Callable[[], None]] = []
        live: dict[int, str] = {}
        for step in steps.split():
            if step == "restrict":
                for served in serving.served.values():
                    served.restrict(Limits(calls=7))
            elif step in observers:
                live[len(ends)] = step
                ends.append(serving.observe(observers[step]))
            else:
                number = int(step[1:])
                ends[number]()
                live.pop(number, None)
            before = {name: one.count for name, one in observers.items()}
            if kind == "service":
                async with connect(url) as peer:
                    await peer.call("hi")
            else:
                async with Client(url) as client:
                    await client.call_tool("hi")
            told = {name: one.count - before[name] for name, one in observers.items()}
            registered = {name: list(live.values()).count(name) for name in observers}
            each = {told[name] / registered[name] for name in observers if registered[name]}
            assert len(each) <= 1
            assert all(told[name] == 0 for name in observers if not registered[name])
            assert all(count > 0 for count in each)


class Stubborn(Idle):
    """Its drain fails."""

    name = "stubborn"

    async def drain(self, timeout: float) -> None:
        raise RuntimeError("not now")


async def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    """The other is drained: its call in flight is answered, and its lifespan ends."""
    gate, began, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Service) -> AsyncIterator[None]:
        yield
        ended.set()

    api = Service("other", lifespan=lifespan)

    @api.method
    async def hold() -> str:
        began.set()
        await gate.wait()
        return "held"

    serving = serve({"/a": Stubborn(), "/b": api}, urls="ws://127.0.0.1:0")
    await serving.__aenter__()
    async with connect(f"{serving.urls[0]}/b") as peer:
        held = asyncio.create_task(peer.call("hold"))
        await began.wait()
        closing = asyncio.create_task(serving.close())
        gate.set()
        assert await held == "held"
        with pytest.raises(RuntimeError, match="not now"):
            await closing
    assert ended.is_set()
    with pytest.raises(ConnectionError):
        await connect(f"{serving.urls[0]}/b")
