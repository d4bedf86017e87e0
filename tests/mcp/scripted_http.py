"""An HTTP server for tests that says exactly what the test wants, byte by byte, and sees exactly what came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dragoman.transports.http.sse import event

PATIENCE = 20.0


class Seen:
    """One request as the server read it."""

    def __init__(self, head: bytes, body: bytes, connection: int) -> None:
        line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in lines)}
        self.body = body
        self.connection = connection

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> Any:
        return self.message["id"]


class Talk:
    """What the server says back to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def say(
        self,
        body: Any = None,
        status: str = "200 OK",
        *,
        kind: str | None = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """A whole reply; what is not bytes goes out as JSON."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\n"
        head += f"Content-Type: {kind}\r\n" if kind and raw else ""
        head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self.raw(head.encode() + b"\r\n" + raw)

    def result(self, seen: Seen, result: Any = None, headers: Mapping[str, str] | None = None) -> None:
        self.say(answer(seen.id, result), headers=headers)

    def stream(self, headers: Mapping[str, str] | None = None) -> None:
        """The head of an event stream."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{lines}\r\n"
        self.raw(head.encode())

    def event(
        self, message: Any = b"", id: str | None = None, kind: str | None = None, retry: int | None = None
    ) -> None:
        """One event; what is not bytes goes out as JSON."""
        self.chunk(event(message if isinstance(message, bytes) else json.dumps(message).encode(), id, kind, retry))

    def chunk(self, data: bytes) -> None:
        self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """The proper end of a stream."""
        self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection, whatever is missing."""
        self.writer.close()


def answer(id: Any, result: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error(code: int, message: str, **more: Any) -> dict[str, Any]:
    """An error; `id=...` gives it an id."""
    return {"jsonrpc": "2.0", **more, "error": {"code": code, "message": message}}


Script = Callable[[Seen, Talk], Awaitable[None]]


class Scripted:
    """A server with a script for every request; `arrivals` has them in order, `gone` those whose caller hung up."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.arrivals: asyncio.Queue[Seen] = asyncio.Queue()
        self.gone: asyncio.Queue[Seen] = asyncio.Queue()
        self.seen: list[Seen] = []
        self.port = 0
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def next(self) -> Seen:
        async with asyncio.timeout(PATIENCE):
            return await self.arrivals.get()

    async def left(self) -> Seen:
        """The next request whose caller hung up before the script was through."""
        async with asyncio.timeout(PATIENCE):
            return await self.gone.get()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        first = b""
        try:
            while True:
                head = first + await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"content-length: ")
                length = int(lines[1].split(b"\r\n")[0]) if len(lines) > 1 else 0
                seen = Seen(head, await reader.readexactly(length), number)
                self.seen.append(seen)
                self.arrivals.put_nowait(seen)
                first = await self._answer(seen, reader, writer)
                if not first:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # a cancelled one is an error to the streams of Python 3.11
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Follow the script; the first byte of the next request, b"" where there is none."""
        answering = asyncio.ensure_future(self.script(seen, Talk(writer)))
        watching = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.gone.put_nowait(seen)
                return b""
            answering.result()
            return b"" if writer.is_closing() else await watching
        finally:
            answering.cancel()
            watching.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Scripted]:
    server = Scripted(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


async def forever() -> None:
    """Until the task that waits is cancelled."""
    await asyncio.get_running_loop().create_future()
