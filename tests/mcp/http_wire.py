"""A raw HTTP client for the tests of the MCP endpoint: bytes in, bytes out, on either face."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dragoman.channel import Admitted, Denied, Guard, Handshake, Identity, Options
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.mcp.server.server import Server
from dragoman.transports.http.sse import Parser, SseEvent
from tests.behind import behind
from tests.transports.http.cases import PATIENCE, Answered, answer
from tests.transports.http.ends import face, wire

BOTH = "application/json, text/event-stream"
ME = {"name": "tester", "version": "1"}


def body(method: str, params: Any = None, id: Any = 1) -> bytes:
    """A request; `id=None`: a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        message["id"] = id
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()


def meta(version: str = R2026_07.date, capabilities: Any = None, **more: Any) -> dict[str, Any]:
    """The `_meta` of a stateless request."""
    prefix = "io.modelcontextprotocol/"
    return {
        f"{prefix}protocolVersion": version,
        f"{prefix}clientInfo": ME,
        f"{prefix}clientCapabilities": capabilities or {},
    } | more


def named_by(header: bytes) -> Guard:
    """A guard that takes the identity from this header: a subject, or a JSON array of issuer, subject, client."""

    async def guard(handshake: Handshake) -> Admitted | Denied:
        who = dict(handshake.headers).get(header)
        if who is None:
            return Admitted()
        issuer, subject, client = json.loads(who) if who.startswith(b"[") else (None, who.decode(), None)
        return Admitted(identity=Identity(subject=subject, client_id=client, issuer=issuer))

    return guard


class Events:
    """The events of one answer, as they come."""

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> None:
        self.reader, self.status, self.headers = reader, status, headers
        self.comments = 0
        self.parser = Parser(1 << 22)
        self._ready: list[SseEvent] = []
        self._over = False
        self._left = int(headers.get("content-length", -1))

    async def next(self) -> SseEvent | None:
        """The next event, None at the end of the stream."""
        async with asyncio.timeout(PATIENCE):
            while not self._ready and not self._over:
                chunk = await self._chunk()
                self.comments += chunk.count(b":\n\n")
                self._ready += [one for one in self.parser.feed(chunk) if isinstance(one, SseEvent)]
                self._over = not chunk
        return self._ready.pop(0) if self._ready else None

    async def _chunk(self) -> bytes:
        if self._left >= 0:
            left, self._left = self._left, 0
            return await self.reader.readexactly(left)
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        assert await self.reader.readline() == b"\r\n"
        return data

    async def message(self) -> Any:
        """The next event with data, as JSON; None at the end."""
        while (event := await self.next()) is not None:
            if event.data:
                return json.loads(event.data)
        return None

    async def rest(self) -> list[Any]:
        """Every message up to the end."""
        found = []
        while (message := await self.message()) is not None:
            found.append(message)
        return found


class Place:
    """Where a server listens; each request is a connection of its own unless it is a stream's."""

    def __init__(self, port: int, server: Server) -> None:
        self.port, self.server = port, server

    def head(
        self, headers: Mapping[str, str | None], length: int, *, method: str = "POST", path: str = "/mcp"
    ) -> bytes:
        """The head of a request."""
        lines = {"Host": f"127.0.0.1:{self.port}", "Accept": BOTH, "Content-Type": "application/json"}
        said = {name: value for name, value in (lines | dict(headers)).items() if value is not None}
        if method == "GET":
            said.pop("Content-Type", None)
        else:
            said["Content-Length"] = str(length)
        text = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1")

    async def ask(
        self,
        raw: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> Answered:
        """One request and its whole answer."""
        async with wire(self.port) as (reader, writer):
            raw = b"" if method == "GET" else raw
            writer.write(self.head(headers or {}, len(raw), method=method, path=path) + raw)
            return await answer(reader, to=method)

    @asynccontextmanager
    async def stream(
        self,
        raw: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> AsyncIterator[Events]:
        """One request and the events of its answer; leaving the block closes the connection."""
        async with wire(self.port) as (reader, writer):
            raw = b"" if method == "GET" else raw
            writer.write(self.head(headers or {}, len(raw), method=method, path=path) + raw)
            async with asyncio.timeout(PATIENCE):
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
            said = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            yield Events(reader, int(first.split(" ")[1]), said)

    async def call(
        self, tool: str, arguments: Any = None, *, headers: Mapping[str, str | None] | None = None, **more: Any
    ) -> Answered:
        """A stateless `tools/call`, with the headers it should have."""
        raw, said = called(tool, arguments, **more)
        return await self.ask(raw, said | dict(headers or {}))

    async def begin(self, revision: Revision = R2025_11, capabilities: Any = None) -> Sitting:
        """A session, initialized."""
        params = {"protocolVersion": revision.date, "capabilities": capabilities or {}, "clientInfo": ME}
        found = await self.ask(body("initialize", params, 0))
        assert found.status == 200, found
        sitting = Sitting(self, found.headers["mcp-session-id"], revision)
        assert (await sitting.post(body("notifications/initialized", id=None))).status == 202
        return sitting


class Sitting:
    """A session, at the client."""

    def __init__(self, place: Place, id: str, revision: Revision) -> None:
        self.place, self.id, self.revision = place, id, revision
        self.headers: dict[str, str | None] = {"Mcp-Session-Id": id}
        if revision.version_header:
            self.headers["MCP-Protocol-Version"] = revision.date

    async def post(self, raw: bytes, headers: Mapping[str, str | None] | None = None) -> Answered:
        """A POST and its whole answer."""
        return await self.place.ask(raw, self.headers | dict(headers or {}))

    def stream(self, raw: bytes, headers: Mapping[str, str | None] | None = None) -> Any:
        """A POST that is answered by a stream."""
        return self.place.stream(raw, self.headers | dict(headers or {}))

    def get(self, last: str | None = None) -> Any:
        """A GET: a new stream, or one that broke."""
        return self.place.stream(headers=self.headers | {"Last-Event-ID": last}, method="GET")

    def tool(self, name: str, id: Any = 1, token: Any = None, **arguments: Any) -> bytes:
        """A `tools/call`."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return body("tools/call", params, id)


def called(tool: str, arguments: Any = None, id: Any = 1, **said: Any) -> tuple[bytes, dict[str, str | None]]:
    """A stateless `tools/call` and its headers."""
    params = {"name": tool, "arguments": arguments or {}, "_meta": meta(**said)}
    return body("tools/call", params, id), standard("tools/call", tool)


def standard(method: str, name: str | None = None, version: str = R2026_07.date) -> dict[str, str | None]:
    """The headers of a stateless request."""
    return {"MCP-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}


@asynccontextmanager
async def served(server: Server, kind: str = "native", options: Options | None = None) -> AsyncIterator[Place]:
    """A server at /mcp, on either face."""
    async with face(kind, {"/mcp": behind(server)}, options or Options()) as port:
        yield Place(port, server)
