"""`mcp-webhook-events`, which was proven against ChatGPT, on the official SDK's server: it lists and subscribes for our
client, and posts to our receiver."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_webhook_events import EventDefinition, McpEvents, SafeHttp

from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client
from dragoman.mcp.extensions.events.client import EventsClient
from dragoman.mcp.extensions.events.receiver import EventReceiver
from dragoman.mcp.extensions.events.signing import new_secret
from mcp.server import MCPServer
from tests.ports import free_port
from tests.transports.http.ends import asgi

from .posting import FACES, PATH, Handled, served

NAME = "orders.shipped"
SCHEMA = {"type": "object", "properties": {"carrier": {"type": "string"}}}


class Peer:
    """The official server with that package, and how to call the package from here: it blocks."""

    def __init__(self, folder: Path) -> None:
        self.server: Any = MCPServer("peer")
        definition = EventDefinition(
            name=NAME, description="An order has left.", input_schema=SCHEMA, payload_schema={"type": "object"}
        )
        self.events: Any = McpEvents(
            self.server, str(folder / "events.sqlite3"), [definition], http=SafeHttp(allow_insecure_for_tests=True)
        )
        self.events.install()

    async def post(self, **data: str) -> None:
        """Publish an event, and post what is due."""
        await asyncio.to_thread(self.events.publish, NAME, data)
        await asyncio.to_thread(self.events.deliver_pending)

    @asynccontextmanager
    async def client(self, events: EventsClient) -> AsyncIterator[Client]:
        """A client of the server, over uvicorn."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            async with (
                asgi(self.server.streamable_http_app(stateless_http=True, json_response=True)) as port,
                Client(f"http://127.0.0.1:{port}/mcp", extensions=[events]) as client,
            ):
                yield client


@pytest.mark.parametrize("face", FACES)
async def test_our_client_and_our_receiver(face: str, tmp_path: Path) -> None:
    peer, events, handled = Peer(tmp_path), EventsClient(), Handled()
    receiver = EventReceiver(handled)
    async with served(face, receiver) as poster, peer.client(events) as client:
        assert not client.revision.stateful
        [kind] = await events.list()
        assert (kind.name, kind.delivery) == (NAME, ["webhook"])
        url = f"http://127.0.0.1:{poster.port}{PATH}"
        found = await events.subscribe(NAME, {"carrier": "DHL"}, url=url, receiver=receiver, ttl=7200)
        await peer.post(carrier="DHL", order="1")
        await peer.post(carrier="UPS", order="2")
        assert [(one.data, one.subscription) for one in handled] == [({"carrier": "DHL", "order": "1"}, found.id)]
        await found.replace_secret()
        await peer.post(carrier="DHL", order="3")
        assert handled[-1].data["order"] == "3"
        await found.unsubscribe()
        await peer.post(carrier="DHL", order="4")
        assert len(handled) == 2
        assert (await poster.send([], b"")).status == 401


async def test_its_errors_are_ours(tmp_path: Path) -> None:
    peer, events, receiver = Peer(tmp_path), EventsClient(), EventReceiver()
    async with served("asgi", EventReceiver()) as poster, peer.client(events):
        reasons = []
        for url in (f"http://127.0.0.1:{poster.port}/hooks", f"http://127.0.0.1:{free_port()}/hooks"):
            with pytest.raises(RpcError) as caught:
                await events.subscribe(NAME, url=url, receiver=receiver)
            assert caught.value.code == -32015
            reasons.append(caught.value.data["reason"])
    assert reasons == ["challenge_failed", "connection_failed"]


async def test_what_it_posts_is_not_accepted_by_another_secret(tmp_path: Path) -> None:
    peer, handled = Peer(tmp_path), Handled()
    receiver = EventReceiver(handled)
    one = receiver.begin(secret := new_secret())
    async with served("asgi", receiver) as poster:
        delivery = {"mode": "webhook", "url": f"http://127.0.0.1:{poster.port}/hooks", "secret": secret}
        params = {"name": NAME, "arguments": {}, "delivery": delivery}
        found = await asyncio.to_thread(peer.events.subscribe, "ada", params)
        one.end()
        receiver.begin(new_secret()).bind(found["id"])
        await peer.post(order="1")
    assert not handled
