"""Receives the answer of an authorization server on loopback (RFC 8252 section 7.3).

The listener is bound before the browser is sent away, and accepts one answer, the one with the expected `state`.
Anything else is refused and changes nothing, so that no page or program can end or answer a login that it did not
begin.
"""

from __future__ import annotations

import asyncio
import logging

from ..urls import split
from .code import fields_of, same_state
from .errors import LoginFailed

log: logging.Logger = logging.getLogger(__name__)

PATH = "/callback"
HEAD_TIMEOUT = 10.0
"""Seconds for a browser to send its request."""
LARGEST_HEAD = 32 * 1024
MOST_AT_ONCE = 16
"""Open connections that have not sent a request yet: browsers open a few ahead of need. A further one ends the oldest,
so that a program with many silent ones does not keep the browser out."""
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>dragoman</title>
<body style="font-family:system-ui;margin:4rem auto;max-width:34rem"><h1>{title}</h1><p>{text}</p></body></html>"""
_DONE = _PAGE.format(title="The answer has come", text="You can close this window and go back to the program.")
_WRONG = _PAGE.format(title="Not the answer that is waited for", text="Nothing was changed. Go back to the program.")
_HEADERS = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\nconnection: close\r\n"
)


class CallbackListener:
    """Listens on 127.0.0.1, and on ::1 with the same port where there is one."""

    def __init__(self) -> None:
        self.port: int = 0
        self._servers: list[asyncio.Server] = []
        self._state: str | None = None
        self._answer: asyncio.Future[str] | None = None
        self._silent: dict[asyncio.StreamWriter, None] = {}

    async def open(self, port: int, exact: bool) -> str:
        """Bind to the port, or to a free one where it is in use, and return the redirect URI. `exact`: raise
        LoginFailed where it is in use."""
        try:
            server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=LARGEST_HEAD)
        except OSError as error:
            if exact or not port:
                raise LoginFailed(f"cannot listen on 127.0.0.1:{port} for the answer: {error.strerror}") from error
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LARGEST_HEAD)
        self.port = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        try:  # "localhost" may be ::1
            self._servers.append(await asyncio.start_server(self._serve, "::1", self.port, limit=LARGEST_HEAD))
        except OSError:
            log.debug("no listener on [::1]:%d", self.port)
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def answer(self, state: str) -> str:
        """Return the query of the answer with this state."""
        self._answer = asyncio.get_running_loop().create_future()
        self._state = state
        try:
            return await self._answer
        finally:
            self._state = None

    async def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent[writer] = None
        if len(self._silent) > MOST_AT_ONCE:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                status, page = self._answer_request(head.decode("latin-1"))
                body = page.encode()
                writer.write(f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a connection to the callback listener sent no request")
        finally:
            self._silent.pop(writer, None)
            writer.close()

    def _answer_request(self, head: str) -> tuple[str, str]:
        """Return status and page for a request; keep its query if it is the expected answer."""
        first, _, rest = head.partition("\r\n")
        hosts = [line.partition(":")[2].strip().lower() for line in rest.split("\r\n") if line[:5].lower() == "host:"]
        ours = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        method, _, target = first.partition(" ")
        parts = split(target.rpartition(" ")[0])
        # a page that was rebound to this address comes with its own name
        if parts is None or len(hosts) != 1 or hosts[0] not in ours:
            return "400 Bad Request", _WRONG
        if parts.path != PATH:
            return "404 Not Found", _WRONG
        if method != "GET":
            return "405 Method Not Allowed", _WRONG
        try:
            state = fields_of(parts.query).get("state")
        except LoginFailed:
            return "400 Bad Request", _WRONG
        waiting = self._answer
        if waiting is None or waiting.done() or self._state is None or not same_state(self._state, state):
            return "400 Bad Request", _WRONG
        waiting.set_result(parts.query)
        return "200 OK", _DONE
