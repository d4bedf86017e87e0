"""A service that is served, with its console at an address of its own, and a client of bytes for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from dragoman import serve
from dragoman.channel import Options
from dragoman.console import Watching
from dragoman.console.endpoint import LIMITS, Console, new_secret
from dragoman.console.page import ConsolePage
from dragoman.console.recorder import Recorder
from dragoman.schemes import listen
from dragoman.serving import Serving


class Answer(Struct):
    """What came over the wire."""

    status: int
    headers: dict[str, list[str]]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == ["application/json"], self
        return msgspec.json.decode(self.body)


class Ends(Struct, eq=False):
    """What is served, and its console."""

    serving: Serving
    console: Console
    recorder: Recorder
    port: int
    secret: str

    async def send(self, raw: bytes) -> Answer:
        """Send these bytes on a connection of their own; return the answer."""
        return (await self.send_all(raw))[0]

    async def send_all(self, *requests: bytes) -> list[Answer]:
        """Send these requests on one connection, each after the answer to the one before; return the answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            found = []
            for raw in requests:
                writer.write(raw)
                found.append(await read_answer(reader, bodiless=raw.startswith(b"HEAD ")))
            return found
        finally:
            writer.close()

    def request(
        self, target: str, method: str = "GET", body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> bytes:
        """Return the bytes of a request that is in order, with other `headers`; None leaves one out."""
        lines: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.secret}"}
        if body or method == "POST":
            lines |= {"Content-Type": "application/json", "Content-Length": f"{len(body)}"}
        lines |= headers or {}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
        return f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode("latin-1") + body

    async def get(self, target: str) -> Any:
        """Return the JSON of a GET."""
        answer = await self.send(self.request(target))
        assert answer.status == 200, answer
        return answer.json

    async def post(self, target: str, *ids: str) -> dict[str, str]:
        """Return what became of each id: its error, or ""."""
        answer = await self.send(self.request(target, "POST", msgspec.json.encode({"ids": ids})))
        assert answer.status == 200, answer
        return {one["id"]: one["error"] for one in answer.json["done"]}


async def read_answer(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Answer:
    """Read an answer behind any interim ones. `bodiless`: it answers a HEAD. The body of one without a length, as of
    the feed, is left unread."""
    status = 100
    while status == 100:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
    headers: dict[str, list[str]] = {}
    for line in head[1:-2]:
        name, _, value = line.partition(": ")
        headers.setdefault(name.lower(), []).append(value)
    length = 0 if bodiless else int(headers.get("content-length", ["0"])[0])
    return Answer(status, headers, await reader.readexactly(length))


@asynccontextmanager
async def with_console(
    served: Any, urls: str | Sequence[str] = "tcp://127.0.0.1:0", *, messages: bool = False
) -> AsyncIterator[Ends]:
    """Serve it, and its console. `messages`: which keeps the messages."""
    watching, secret = Watching(messages=messages), new_secret()
    async with serve(served, urls=urls, observers=watching.observers) as serving:
        console = Console(watching.source(lambda: serving.served), secret=secret)
        async with listening(console) as port:
            yield Ends(serving, console, watching.recorder, port, secret)


@asynccontextmanager
async def listening(console: Console, options: Options | None = None, port: int = 0) -> AsyncIterator[int]:
    """Serve a console; yields its port."""
    listener = await listen(
        f"http://127.0.0.1:{port}", {"": console}, options or Options(limits=LIMITS, page=ConsolePage)
    )
    try:
        yield int(listener.url.rpartition(":")[2].rstrip("/"))
    finally:
        await listener.close()
        await console.drain(1)
        await listener.closed()
