"""A protected server in a few lines: JSON-RPC and MCP over HTTP/1.1 whose tokens `issuer` issued."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.auth.testing import LocalIssuer


class Protected:
    """Answers each call with its params. `takes(token)`: whether a token is good. It runs on a thread of its own."""

    def __init__(self, issuer: LocalIssuer, takes: Callable[[str], bool]) -> None:
        self.issuer = issuer
        self.takes = takes
        self.tokens: list[str | None] = []
        self.delay = 0.0
        self.scope = ""
        self.takes_none = False
        """Whether no token is needed."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Protected:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._end is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.url = f"{self.origin}/mcp"
        self._started.set()
        await self._end.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = dict(line.lower().partition(": ")[::2] for line in head.split("\r\n")[1:])
                body = await reader.readexactly(int(lines.get("content-length", "0")))
                fields = [line for line in head.split("\r\n") if line.lower().startswith("authorization: ")]
                status, headers, content = await self._answered(head.split(" ")[1], fields, body)
                raw = msgspec.json.encode(content)
                lines_out = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{lines_out}"
                    f"content-length: {len(raw)}\r\n\r\n".encode()
                    + raw
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answered(self, path: str, fields: list[str], body: bytes) -> tuple[int, dict[str, str], Any]:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return 200, {}, {"resource": self.url, "authorization_servers": [self.issuer.url]}
        token = fields[0].partition(" ")[2].partition(" ")[2] if fields else None
        self.tokens.append(token)
        if not self.takes_none and (token is None or not self.takes(token)):
            metadata = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{metadata}"' + (f', scope="{self.scope}"' if self.scope else "")
            return 401, {"www-authenticate": challenge}, {}
        await asyncio.sleep(self.delay)
        call = msgspec.json.decode(body)
        return 200, {}, {"jsonrpc": "2.0", "id": call["id"], "result": call.get("params", 0)}
