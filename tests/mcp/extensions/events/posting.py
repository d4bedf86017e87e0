"""What plays the server of webhooks towards a receiver: messages, signed, over a raw connection."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dragoman import Service, serve
from dragoman.auth import Static
from dragoman.mcp import Server
from dragoman.mcp.extensions.events.receiver import EventReceiver
from dragoman.mcp.extensions.events.signing import sign_headers
from tests.transports.http.ends import asgi

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
SUBSCRIPTION = "sub_a3f1c8e2b0d49f7e"
NOW = 1_790_000_000
PATH = "/hooks/orders"
FACES = ("route", "server", "asgi")
"""How a receiver is served: as a route of a service, of an MCP server with a guard, and as an application of
uvicorn."""

Pairs = Sequence[tuple[str, str]]


def event(id: str = "evt_1", **members: Any) -> dict[str, Any]:
    """The body of an event."""
    found = {"eventId": id, "name": "orders.shipped", "timestamp": "2026-09-21T10:00:00Z", "data": {"order": 7}}
    return {**found, "cursor": "7", **members}


def message(
    body: Any,
    *,
    id: str | None = None,
    secret: str | Sequence[str] = SECRET,
    subscription: str = SUBSCRIPTION,
    at: int = NOW,
) -> tuple[list[tuple[str, str]], bytes]:
    """The headers and the bytes of a message. `id`: the `webhook-id`, by default that of the event."""
    text = body if isinstance(body, bytes) else msgspec.json.encode(body)
    name = id or (body.get("eventId") if isinstance(body, dict) else None) or "msg_1"
    signed = sign_headers(secret, name, at, text)
    return [("Content-Type", "application/json"), *signed.items(), ("X-MCP-Subscription-Id", subscription)], text


class Answer(msgspec.Struct):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class Poster:
    """Posts to a receiver at a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def send(self, headers: Pairs, body: bytes, *, method: str = "POST", path: str = PATH) -> Answer:
        """Send a request, and return what comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Content-Length: {len(body)}"]
            lines += ["Connection: close", *(f"{name}: {value}" for name, value in headers)]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            return read_answer(await reader.read())
        finally:
            writer.close()

    async def post(self, body: Any, **options: Any) -> Answer:
        """Send a message, and return what comes back. The options are those of `message`."""
        return await self.send(*message(body, **options))


def read_answer(text: bytes) -> Answer:
    head, _, body = text.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, body)


@asynccontextmanager
async def served(face: str, receiver: EventReceiver) -> AsyncIterator[Poster]:
    """A receiver, served in one of `FACES`."""
    if face == "asgi":
        async with asgi(receiver) as port:
            yield Poster(port)
        return
    app: Any = Service("hooks") if face == "route" else Server("hooks")
    receiver.mount(app, PATH)
    guard = Static({"token-of-ada": "ada"}) if face == "server" else None  # it is not asked about webhooks
    async with serve(app, urls="http://127.0.0.1:0/rpc", auth=guard) as serving:
        yield Poster(int(serving.urls[0].split("/")[2].rpartition(":")[2]))


class Handled(list[Any]):
    """A function for events that keeps them."""

    def __init__(self, fails: Mapping[str, BaseException] | None = None) -> None:
        self.fails = dict(fails or {})

    async def __call__(self, one: Any) -> None:
        self.append(one)
        if (failure := self.fails.pop(getattr(one, "id", ""), None)) is not None:
            raise failure

    @property
    def ids(self) -> list[str]:
        """The ids of the events, in order."""
        return [one.id for one in self]
