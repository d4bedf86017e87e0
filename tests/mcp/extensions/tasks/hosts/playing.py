"""Hosts without tasks, played: each waits for an answer as long as it likes, and calls again what its model reads.

The minutes that they wait pass at once: on a `HurryingLoop` the time goes on only while nobody has anything to do.
"""

from __future__ import annotations

import asyncio
import json
import re
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from dragoman.mcp.protocol.revisions import Revision
from tests.mcp.http_wire import BOTH, ME, body, meta, standard

T = TypeVar("T")
QUIET = 0.002
"""Seconds for which nothing has to come before the time goes on."""


class _Hurrying(selectors.DefaultSelector):
    """Waits for what comes, and otherwise lets the time of its loop go on."""

    skipped = 0.0
    pending = 0
    """What other threads do now: meanwhile the time stands still."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(QUIET)
        if not found and not self.pending:
            self.skipped += timeout
        return found


class HurryingLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits for its clock."""

    def __init__(self) -> None:
        self.hurrying = _Hurrying()
        super().__init__(self.hurrying)

    def time(self) -> float:
        return self.hurrying.skipped

    def counted(self, function: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """Return a function during which the time stands still, since another thread works for it."""

        async def counting(*arguments: Any) -> T:
            self.hurrying.pending += 1
            try:
                return await function(*arguments)
            finally:
                self.hurrying.pending -= 1

        return counting


class Wire(Protocol):
    """Carries the requests of a host."""

    async def ask(self, id: int, method: str, params: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Return the whole answer. Cancelled: the request is cancelled as the revision says."""


class Host:
    """A host whose requests end after `limit` seconds, whatever progress comes: "implementations SHOULD always enforce
    a maximum timeout, regardless of progress notifications" (basic/lifecycle, Timeouts)."""

    def __init__(self, wire: Wire, revision: Revision, limit: float, first: int = 100) -> None:
        self._wire, self._revision, self._limit = wire, revision, limit
        self._last = first
        self.waits = 0
        """The calls of `task_result`."""

    async def call(self, name: str, arguments: dict[str, Any], progress: bool) -> dict[str, Any]:
        """Return the result of a tool. Raises TimeoutError at the limit."""
        self._last += 1
        id, more = self._last, {"progressToken": self._last} if progress else {}
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if not self._revision.stateful:
            params["_meta"] = meta(self._revision.date, **more)
        elif more:
            params["_meta"] = more
        async with asyncio.timeout(self._limit):
            answer = await self._wire.ask(id, "tools/call", params, name)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        assert not found.get("isError"), found
        return found

    async def use(self, name: str, arguments: dict[str, Any], progress: bool) -> Any:
        """Call a tool, do what its result says until it is the tool's own, and return that, as the model reads it."""
        result = await self.call(name, arguments, progress)
        while (told := re.search(r"call (\w+) with (\{.*?\})", text_of(result))) is not None:
            self.waits += 1
            result = await self.call(told[1], json.loads(told[2]), progress)
        assert result["structuredContent"] == json.loads(text_of(result))
        return result["structuredContent"]


def text_of(result: dict[str, Any]) -> str:
    """The text of a result."""
    return str(result["content"][0]["text"])


class HttpWire:
    """Streamable HTTP: each request is a connection of its own."""

    def __init__(self, port: int, revision: Revision) -> None:
        self._port, self._revision = port, revision
        self._headers: dict[str, str] = {}

    async def begin(self) -> None:
        """Shake hands, where the revision has a session."""
        if self._revision.stateful:
            params = {"protocolVersion": self._revision.date, "capabilities": {}, "clientInfo": ME}
            head, _ = await self._post(body("initialize", params, 0), {})
            self._headers = {"MCP-Protocol-Version": self._revision.date}
            [self._headers["Mcp-Session-Id"]] = re.findall(r"(?i)\r\nmcp-session-id: (.*?)\r\n", head)
            await self._post(body("notifications/initialized", id=None), self._headers)

    async def ask(self, id: int, method: str, params: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Return the answer, from JSON or from a stream."""
        said = {key: value for key, value in standard(method, name).items() if value is not None}
        headers = self._headers if self._revision.stateful else said
        try:
            head, content = await self._post(body(method, params, id), headers)
        except asyncio.CancelledError:
            if self._revision.stateful:
                cancel = {"requestId": id}
                await self._post(body("notifications/cancelled", cancel, id=None), self._headers)
            raise
        if "text/event-stream" in head:
            lines = (line[6:] for line in content.splitlines() if line.startswith("data: {"))
            content = next(line for line in lines if json.loads(line).get("id") == id)
        answer: dict[str, Any] = json.loads(content)
        return answer

    async def _post(self, raw: bytes, headers: dict[str, str]) -> tuple[str, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            said = {
                "Host": f"127.0.0.1:{self._port}",
                "Accept": BOTH,
                "Content-Type": "application/json",
                "Content-Length": str(len(raw)),
                "Connection": "close",
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in (said | headers).items())
            writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + raw)
            head, _, content = (await reader.read(-1)).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b"chunked" in head.lower():
            content = _joined(content)
        return f"{head.decode()}\r\n", content.decode()


def _joined(chunks: bytes) -> bytes:
    """The content of a chunked body."""
    found = b""
    while chunks:
        size, _, chunks = chunks.partition(b"\r\n")
        length = int(size, 16)
        found, chunks = found + chunks[:length], chunks[length + 2 :]
    return found


class StdioWire:
    """The pipes of a child process."""

    def __init__(self, child: asyncio.subprocess.Process, revision: Revision) -> None:
        self._child, self._revision = child, revision
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.ensure_future(self._read())

    async def begin(self) -> None:
        """Shake hands, where the revision has a session."""
        if self._revision.stateful:
            params = {"protocolVersion": self._revision.date, "capabilities": {}, "clientInfo": ME}
            assert "result" in await self.ask(0, "initialize", params)
            self._write(body("notifications/initialized", id=None))

    async def ask(self, id: int, method: str, params: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Return the answer with this id."""
        waiting: asyncio.Future[dict[str, Any]]
        waiting = self._answers[id] = asyncio.get_running_loop().create_future()
        self._write(body(method, params, id))
        try:
            return await waiting
        except asyncio.CancelledError:
            self._write(body("notifications/cancelled", {"requestId": id}, id=None))
            raise
        finally:
            del self._answers[id]

    def _write(self, raw: bytes) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(raw + b"\n")

    async def _read(self) -> None:
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            message = json.loads(line)
            if (waiting := self._answers.get(message.get("id"))) is not None and not waiting.done():
                waiting.set_result(message)

    async def end(self) -> None:
        """End the child."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        await self._child.wait()
        await self._reading
