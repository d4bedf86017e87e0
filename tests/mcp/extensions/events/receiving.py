"""What the tests of the server's half share: receivers of webhooks on loopback, a clock that is moved by hand, a shop
with events."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from standardwebhooks.webhooks import Webhook

from dragoman.mcp import Client, Server
from dragoman.mcp.extensions.events import Clock, Events
from dragoman.mcp.extensions.events import model as m

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode()
LOOPBACK = ("127.0.0.1/32",)
PATIENCE = 20.0
"""Seconds for what needs no time: a machine may be busy."""


class MovedClock(Clock):
    """A clock that goes on when a test moves it."""

    def __init__(self) -> None:
        self.time = float(int(time.time()))
        self._waiting: list[list[Any]] = []
        """Until when is waited for what."""

    def now(self) -> float:
        return self.time

    async def wait(self, changed: asyncio.Event, seconds: float | None) -> None:
        if seconds is not None and seconds <= 0:
            await asyncio.sleep(0)
            return
        entry = [self.time + (seconds or 1e12), changed]
        self._waiting.append(entry)
        try:
            await changed.wait()
        finally:
            self._waiting.remove(entry)

    @property
    def at_rest(self) -> bool:
        """Whether somebody waits, and nobody has anything to do at this time."""
        return bool(self._waiting) and all(until > self.time and not one.is_set() for until, one in self._waiting)

    def set_back(self, seconds: float) -> None:
        """Show an earlier time: what waits for some seconds waits no longer for that."""
        self.time -= seconds
        for entry in self._waiting:
            entry[0] -= seconds

    def move(self, seconds: float) -> None:
        self.time += seconds
        for until, changed in self._waiting:
            if until <= self.time:
                changed.set()


class Posted(Struct):
    """One request that a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def is_verification(self) -> bool:
        return bool(self.message.get("type") == "verification")

    def is_signed_by(self, *secrets: str) -> bool:
        """Whether it has one signature of each of these secrets, as the public library makes them, and no others."""
        at = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), UTC)
        ids, text = self.headers["webhook-id"], self.body.decode()
        return self.headers["webhook-signature"].split(" ") == [Webhook(one).sign(ids, at, text) for one in secrets]


def reply(status: int, body: bytes = b"", *more: str) -> bytes:
    """An answer of HTTP."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *more]
    return "\r\n".join([*lines, "", ""]).encode() + body


def echo(posted: Posted) -> bytes:
    """Return the challenge; accept an event."""
    if posted.is_verification:
        return reply(200, json.dumps({"challenge": posted.message["challenge"]}).encode())
    return reply(204)


Behaviour = Callable[[Posted], bytes | None]
"""The raw answer to a request; None: none at all."""


class Receiver:
    """A receiver of webhooks. `behave`: what it does; it can be changed at any time."""

    def __init__(self, behave: Behaviour = echo) -> None:
        self.behave = behave
        self.posted: list[Posted] = []
        self.events: list[Posted] = []
        """Those that are no challenges."""
        self.open = 0
        self.most_open = 0
        self.port = 0
        self._more = asyncio.Condition()
        self.released = asyncio.Event()
        """Those that get no answer are closed then."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    @property
    def ids(self) -> list[str]:
        return [one.message["eventId"] for one in self.events if "eventId" in one.message]

    async def have(self, count: int) -> list[Posted]:
        """Wait until it has got so many messages that are no challenges; return them."""
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(lambda: len(self.events) >= count)
        return self.events

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                posted = Posted(first.split(" ")[1], headers, body)
                answer = self.behave(posted)
                self.posted.append(posted)
                if not posted.is_verification:
                    self.events.append(posted)
                async with self._more:
                    self._more.notify_all()
                if answer is None:
                    await self.released.wait()
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def receiving(behave: Behaviour = echo, port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver(behave)
    server = await asyncio.start_server(receiver._serve, "127.0.0.1", port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.close()


class OrderShipped(Struct):
    """An order has left the house."""

    order: str
    carrier: str = "DHL"


def shop(**options: Any) -> tuple[Server, Events]:
    """A server with one event type, `order_shipped`, which is filtered by its carrier."""
    events = Events(**({"allow_private": LOOPBACK} | options))
    events.event(filters=["carrier"])(OrderShipped)
    return Server("shop", extensions=[events]), events


@asynccontextmanager
async def following(app: Server, *, declared: bool = True) -> AsyncIterator[Client]:
    """A client of the server in memory; `declared`: it has declared the extension."""
    rows = m.DECLARED if declared else undeclared()
    async with Client(app, extensions=[rows]) as client:
        yield client


def undeclared() -> Any:
    """The methods, for a client that declares another extension."""
    from dragoman.mcp import Extension

    return Extension(name="com.example/other", methods=m.ROWS)


def subscribe_params(receiver: Receiver | str, secret: str = SECRET, **more: Any) -> m.SubscribeEventsParams:
    url = receiver if isinstance(receiver, str) else receiver.url
    return m.SubscribeEventsParams(name="order_shipped", delivery=m.Delivery(url=url, secret=secret), **more)


async def subscribe(
    client: Client, receiver: Receiver | str, secret: str = SECRET, **more: Any
) -> m.SubscribeEventsResult:
    found: m.SubscribeEventsResult = await client.request(
        "events/subscribe", subscribe_params(receiver, secret, **more)
    )
    return found


async def settle(until: Callable[[], bool]) -> None:
    """Let others run until something is so that nothing tells of."""
    async with asyncio.timeout(PATIENCE):
        while not until():  # noqa: ASYNC110  (nothing tells of it)
            await asyncio.sleep(0.002)
