"""The admission of a channel expires: what runs is finished, nothing new is begun, then the channel is closed. On every
wire that carries who is calling, and on both faces of HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close, CloseCode

from dragoman import Service, http_app, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity
from dragoman.jsonrpc.limits import Limits
from dragoman.mcp import Server
from dragoman.rpc.peer import Peer
from tests.behind import behind

from .ends import PATIENCE, until
from .http.ends import asgi

KINDS = ["tcp", "tls", "unix", "ws", "asgi"]
LAPSED = {
    "code": -32004,
    "message": "Forbidden: the admission has expired, connect anew",
    "data": {"error": "invalid_token"},
}
OVER = "The admission has expired"


class Far:
    """The far end of a channel, line by line or message by message."""

    def __init__(self, send: Callable[[str], Any], receive: Callable[[], Any]) -> None:
        self._send, self._receive = send, receive

    async def ask(self, method: str, id: Any, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method} | ({} if id is None else {"id": id})
        await self._send(json.dumps(message | ({"params": params} if params else {})))

    async def told(self) -> Any:
        """The next message; how the channel ended after the last."""
        async with asyncio.timeout(PATIENCE):
            return await self._receive()


class Guarded:
    """A served object, its guard, and the peers of its channels."""

    def __init__(self, served: Any, **limits: Any) -> None:
        self.served, self.limits = served, Limits(**limits)
        self.begun, self.go, self.lasts = asyncio.Event(), asyncio.Event(), 1.5
        self.peers: set[Peer] = set()

    async def guard(self, handshake: Handshake) -> Admitted | Denied:
        return Admitted(identity=Identity(subject="ada"), expires=time.time() + self.lasts)

    async def lapsed(self) -> Peer:
        """The one peer, once its admission has expired."""
        await until(lambda: any(behind(peer).lapsed for peer in self.peers))
        (peer,) = self.peers
        return peer

    @asynccontextmanager
    async def far(self, kind: str, folder: Path) -> AsyncIterator[Far]:
        if kind == "asgi":
            app: Any = http_app(self.served, guard=self.guard, limits=self.limits)
            self.peers = _host(app.served[0]).peers
            async with asgi(app) as port, _websocket(f"ws://127.0.0.1:{port}/") as far:
                yield far
            return
        own, theirs = _contexts() if kind == "tls" else (None, None)
        url = f"unix:{folder}/s" if kind == "unix" else f"{kind}://127.0.0.1:0"
        async with serve(self.served, urls=url, guard=self.guard, limits=self.limits, tls=own) as serving:
            self.peers = _host(serving.served[""]).peers
            if kind == "ws":
                async with _websocket(serving.urls[0]) as far:
                    yield far
                return
            if kind == "unix":
                reader, writer = await asyncio.open_unix_connection(f"{folder}/s")
            else:
                port = int(serving.urls[0].rpartition(":")[2])
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=theirs)

            async def send(text: str) -> None:
                writer.write(text.encode() + b"\n")

            async def receive() -> Any:
                line = await reader.readline()
                return json.loads(line) if line else "the end"

            yield Far(send, receive)
            writer.close()


def _host(served: Any) -> Any:
    return getattr(served, "host", None) or served.runner


@asynccontextmanager
async def _websocket(url: str) -> AsyncIterator[Far]:
    async with ws_connect(url, proxy=None) as socket:

        async def receive() -> Any:
            try:
                return json.loads(await socket.recv())
            except ConnectionClosed as ended:
                return ended.rcvd

        yield Far(socket.send, receive)


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(own)
    theirs = ssl.create_default_context()
    authority.configure_trust(theirs)
    return own, theirs


async def ended(far: Far, kind: str) -> None:
    """The channel ends, and says why in its wire's way."""
    if kind in ("ws", "asgi"):
        assert await far.told() == Close(CloseCode.POLICY_VIOLATION, OVER)
        return
    last = await far.told()
    assert (last["id"], last["error"]["message"], last["error"]["data"]) == (None, OVER, {"status": 401})
    assert await far.told() == "the end"


def holding(guarded: Callable[[], Guarded]) -> Service:
    """A service with a method that waits until it is let go, one that is quick, and a plain one."""
    api = Service("holding")

    @api.method(timeout=None)
    async def hold() -> str:
        guarded().begun.set()
        await guarded().go.wait()
        return "held"

    @api.method(inline=True)
    def quick() -> str:
        return "quick"

    @api.method
    async def note() -> None:
        raise AssertionError("a notification of an expired caller was taken")

    return api


def of_holding(**limits: Any) -> Guarded:
    found: list[Guarded] = []
    found.append(Guarded(holding(lambda: found[0]), **limits))
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_runs_is_finished_and_nothing_is_begun(kind: str, tmp_path: Path) -> None:
    guarded = of_holding()
    async with guarded.far(kind, tmp_path) as far:
        await far.ask("hold", 1)
        await guarded.begun.wait()
        peer = await guarded.lapsed()
        await far.ask("quick", 2)
        await far.ask("hold", 3)
        await far.ask("note", None)
        assert [await far.told() for _ in range(2)] == [{"jsonrpc": "2.0", "error": LAPSED, "id": id} for id in (2, 3)]
        assert not peer.closed
        guarded.go.set()
        assert await far.told() == {"jsonrpc": "2.0", "result": "held", "id": 1}
        await ended(far, kind)
        await until(lambda: not guarded.peers)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_takes_too_long_is_refused(kind: str, tmp_path: Path) -> None:
    guarded = of_holding(drain_timeout=0.1)
    async with guarded.far(kind, tmp_path) as far:
        await far.ask("hold", 1)
        assert await far.told() == {"jsonrpc": "2.0", "error": LAPSED, "id": 1}
        await ended(far, kind)
        await until(lambda: not guarded.peers)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_idle_channel_is_closed_at_once(kind: str, tmp_path: Path) -> None:
    guarded = of_holding()
    guarded.lasts = 0.2
    async with guarded.far(kind, tmp_path) as far:
        await ended(far, kind)
        await until(lambda: not guarded.peers)


async def test_a_far_end_that_goes_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    guarded = of_holding()
    async with guarded.far("tcp", tmp_path) as far:
        await far.ask("hold", 1)
        await guarded.begun.wait()
        await guarded.lapsed()
    await until(lambda: not guarded.peers)


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_who_may_not_call_is_told_nothing_either(kind: str, tmp_path: Path) -> None:
    app = Server("watched")
    guarded = Guarded(app)

    @app.tool(timeout=None)
    async def hold() -> str:
        guarded.begun.set()
        await guarded.go.wait()
        return "held"

    async with guarded.far(kind, tmp_path) as far:
        who = {"name": "far", "version": "1"}
        await far.ask("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo=who)
        assert (await far.told())["id"] == 0
        await far.ask("notifications/initialized", None)
        await far.ask("tools/call", 1, name="hold", arguments={})
        await guarded.begun.wait()
        app.add_tool(lambda: "new", name="first")
        assert (await far.told())["method"] == "notifications/tools/list_changed"
        await guarded.lapsed()
        app.add_tool(lambda: "new", name="second")
        await far.ask("tools/list", 2)
        refused = await far.told()
        assert (refused["id"], refused["error"]["data"]) == (2, {"error": "invalid_token"})
        guarded.go.set()
        assert (await far.told())["id"] == 1
        await ended(far, kind)
