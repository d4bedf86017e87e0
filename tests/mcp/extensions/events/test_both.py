"""Our client and our receiver with our server, over HTTP, in every mode and in both eras; the server restarts in
between."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from dragoman import serve
from dragoman.auth import Static
from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client, Server
from dragoman.mcp.extensions.events import Events, listening, subscribing
from dragoman.mcp.extensions.events.client import EventsClient
from dragoman.mcp.extensions.events.receiver import EventReceiver
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from tests.mcp.calling import client_of
from tests.ports import free_port

from .posting import FACES, Handled, served
from .receiving import LOOPBACK, PATIENCE, OrderShipped, settle

NAME = "order_shipped"
TOKEN = "token-of-ada"
eras = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)


async def take(found: listening.Listening, count: int) -> list[str]:
    """The next orders, none of which is long in coming."""
    got = []
    for _ in range(count):
        async with asyncio.timeout(PATIENCE):
            got.append((await anext(found)).read(OrderShipped).order)
    return got


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (listening, subscribing):
        monkeypatch.setattr(module, "PAUSES", (0.01, 0.05))


class Shop:
    """A server of events at a port, which can be served, ended and served again."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.port = free_port()
        self.store = f"sqlite:{folder / 'events'}"
        self.options = {"allow_private": LOOPBACK, "keys": "k" * 32, "poll_again": 0.01, **options}
        self.events = Events(store=self.store, **self.options)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        self.events = events = Events(store=self.store, **self.options)
        events.event(filters=["carrier"])(OrderShipped)
        app = Server("shop", extensions=[events])
        async with serve(app, urls=self.url, auth=Static({TOKEN: "ada"})):
            yield

    async def ship(self, *orders: str, carrier: str = "DHL") -> list[str]:
        """Emit events; return their ids."""
        return [await self.events.emit(OrderShipped(one, carrier)) for one in orders]

    def client(self, events: EventsClient, revision: Revision) -> Client:
        return Client(self.url, revision=revision, extensions=[events], headers={"Authorization": f"Bearer {TOKEN}"})


@eras
async def test_what_is_listed(tmp_path: Path, revision: Revision) -> None:
    shop, events = Shop(tmp_path), EventsClient()
    async with shop.served(), shop.client(events, revision):
        [one] = await events.list()
    assert (one.name, set(one.delivery)) == (NAME, {"poll", "push", "webhook"})


@eras
@pytest.mark.parametrize("mode", ["push", "poll"])
async def test_listening_over_a_restart(tmp_path: Path, revision: Revision, mode: Literal["push", "poll"]) -> None:
    shop, events = Shop(tmp_path), EventsClient(min_poll=0.001)
    got: list[str] = []
    begun = asyncio.Event()

    async def follow() -> None:
        async with events.listen(NAME, {"carrier": "DHL"}, mode=mode) as found:
            async for one in found:
                begun.set()
                assert not one.truncated
                assert one.read(OrderShipped).carrier == "DHL"
                got.append(one.read(OrderShipped).order)

    async with asyncio.timeout(20):
        async with shop.served(), shop.client(events, revision):
            following = asyncio.create_task(follow())
            while not begun.is_set():  # it begins when the first poll or stream has come
                await shop.ship("first")
                await asyncio.sleep(0.01)
            await shop.ship("1", "2")
            await shop.ship("other", carrier="UPS")
            await settle(lambda: got[-2:] == ["1", "2"])
            following.cancel()
            await asyncio.wait([following])
        assert set(got[:-2]) == {"first"}


@eras
@pytest.mark.parametrize("mode", ["push", "poll"])
async def test_one_listening_survives_a_restart(tmp_path: Path, revision: Revision, mode: Any) -> None:
    shop, events = Shop(tmp_path), EventsClient(min_poll=0.001)
    got: list[str] = []

    async def follow(cursor: str | None) -> None:
        async with events.listen(NAME, mode=mode, cursor=cursor) as found:
            async for one in found:
                assert not one.truncated
                got.append(one.read(OrderShipped).order)

    async with asyncio.timeout(30):
        async with shop.served():
            first = await first_position(shop, revision)
        client = shop.client(events, revision)
        async with shop.served():
            await client.__aenter__()
            following = asyncio.create_task(follow(first))
            await shop.ship("1", "2")
            await settle(lambda: got == ["1", "2"])
        # away: what happens meanwhile is kept
        shop.events = Events(store=shop.store, **shop.options)
        shop.events.event(filters=["carrier"])(OrderShipped)
        await shop.ship("3")
        await shop.events.close()
        async with shop.served():
            await shop.ship("4")
            await settle(lambda: len(got) >= 4 or following.done())
            if following.done():
                following.result()
            assert got == ["1", "2", "3", "4"]
            following.cancel()
            await asyncio.wait([following])
            await client.close()


async def first_position(shop: Shop, revision: Revision) -> str:
    """A position before all events."""
    events = EventsClient(min_poll=0.001)
    async with shop.client(events, revision) as client:
        found = await client.request("events/poll", {"name": NAME})
        assert isinstance(found.cursor, str)
        return found.cursor


@eras
@pytest.mark.parametrize("face", FACES)
async def test_a_webhook_over_a_restart(
    tmp_path: Path, revision: Revision, face: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shop, events, handled = Shop(tmp_path), EventsClient(), Handled()
    receiver = EventReceiver(handled)
    async with asyncio.timeout(30), served(face, receiver) as poster:
        url = f"http://127.0.0.1:{poster.port}/hooks/orders"
        async with shop.served(), shop.client(events, revision):
            found = await events.subscribe(NAME, {"carrier": "DHL"}, url=url, receiver=receiver)
            ids = await shop.ship("1", "2")
            await shop.ship("other", carrier="UPS")
            await settle(lambda: len(handled) == 2)
            assert handled.ids == ids
            assert {one.subscription for one in handled} == {found.id}
            await settle(lambda: found.cursor == handled[1].cursor)
            await found.replace_secret()
            ids += await shop.ship("3")
            await settle(lambda: len(handled) == 3)
            assert found.status is not None
            assert found.status.active
        async with shop.served():
            ids += await shop.ship("4")  # the subscription is there yet, and so is the receiver
            await settle(lambda: len(handled) == 4)
            async with shop.client(again := EventsClient(), revision):
                same = await again.subscribe(
                    NAME, {"carrier": "DHL"}, url=url, receiver=receiver, cursor=found.cursor, ttl=600
                )
                assert same.id == found.id
                async with same:
                    ids += await shop.ship("5")
                    await settle(lambda: len(handled) == 5)
                assert same.ended.is_set()
                await shop.ship("6")
                await again.list()
        assert handled.ids == ids
    secrets = re.findall("whsec_", caplog.text)
    assert not secrets


@eras
async def test_a_receiver_that_is_not_there(tmp_path: Path, revision: Revision) -> None:
    shop, events, receiver = Shop(tmp_path), EventsClient(), EventReceiver()
    async with shop.served(), shop.client(events, revision):
        with pytest.raises(RpcError) as caught:
            await events.subscribe(NAME, url=f"http://127.0.0.1:{free_port()}/hooks", receiver=receiver)
    assert caught.value.code == -32015
    assert caught.value.data == {"reason": "connection_refused"}
    assert repr(receiver) == "<EventReceiver of 0 subscriptions>"


async def test_a_receiver_that_did_not_begin_it(tmp_path: Path) -> None:
    """Who subscribes another's address gets no events to it."""
    shop, events = Shop(tmp_path), EventsClient()
    async with served("asgi", EventReceiver(Handled())) as poster, shop.served(), shop.client(events, R2026_07):
        with pytest.raises(RpcError) as caught:
            await events.subscribe(NAME, url=f"http://127.0.0.1:{poster.port}/hooks", receiver=EventReceiver())
    assert (caught.value.code, caught.value.data) == (-32015, {"reason": "http_4xx"})


@eras
@pytest.mark.parametrize("mode", ["push", "poll"])
async def test_a_burst_loses_nothing(
    tmp_path: Path, revision: Revision, mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """More than a stream keeps, and more than calls may wait on a channel."""
    shop, events = Shop(tmp_path), EventsClient(min_poll=0.001)
    orders = [str(number) for number in range(3_000)]
    async with shop.served(), shop.client(events, revision):
        start = await first_position(shop, revision)
        await asyncio.gather(*[shop.ship(one) for one in orders])
        async with events.listen(NAME, mode=mode, cursor=start) as found:
            got = await take(found, len(orders))
        assert sorted(got, key=int) == orders
        assert found.gaps == 0
    assert "dropped" not in caplog.text


@eras
@pytest.mark.parametrize("mode", ["push", "poll"])
@pytest.mark.parametrize("wire", ["memory", "tcp://127.0.0.1:0", "ws://127.0.0.1:0/mcp", "unix"])
async def test_every_wire(wire: str, mode: Any, revision: Revision, tmp_path: Path) -> None:
    events, shop = EventsClient(min_poll=0.001), Events(poll_again=0.01)
    shop.event(OrderShipped)
    app = Server("shop", extensions=[shop])
    url = f"unix:{tmp_path / 's'}" if wire == "unix" else wire
    orders = [str(number) for number in range(1_500)]
    async with client_of(app, url, revision=revision, extensions=[events]) as client:
        start = (await client.request("events/poll", {"name": NAME})).cursor
        await asyncio.gather(*[shop.emit(OrderShipped(one)) for one in orders])
        async with events.listen(NAME, mode=mode, cursor=start) as found:
            got = await take(found, len(orders))
            for one in ("a", "b"):
                await shop.emit(OrderShipped(one))
            got += await take(found, 2)
    assert sorted(got[:-2], key=int) == orders
    assert got[-2:] == ["a", "b"]
    assert found.gaps == 0
