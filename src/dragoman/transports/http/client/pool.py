"""Requests over HTTP/1.1 to one server, and their replies. The parser is httptools (llhttp).

Rules:

- Connections are kept alive and reused, one request at a time each; the caller (`posts`) bounds their number.
  A connection that was idle for `KEEPALIVE` is not reused, because servers close idle ones and a POST could be lost.
- A POST is never repeated, and a redirect never followed: only the caller knows whether a request may run twice. A GET
  or a DELETE goes out once more where a connection that was kept open is closed instead of answering; a POST fails,
  with "connection refused" where the server does not exist any more.
- A failure is `Broken`; a reply that is not HTTP or is too large is `BadAnswer`, both in one line that is safe to
  print.
- No cookies, no proxy or netrc from the environment; compression is not requested, but gzip and deflate are understood.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from urllib.parse import quote

from ....channel import Broken, Options
from ....jsonrpc.errors import LocalError
from ....net.fields import FRAMING, NAME, VALUE, fields
from ....net.scheme import SCHEMES
from ....net.sockets import cannot_dial, open_connection
from ....net.urls import Url, printable
from .connection import ClientConnection, ClientReply

CONNECT_TIMEOUT = 10.0
"""Seconds to connect, TLS included."""
KEEPALIVE = 15.0
"""Seconds that a connection may be idle and still be reused."""


class Pool:
    """The connections to one server (http: or https:). Made inside the event loop; connects for the first request."""

    __slots__ = (
        "_address",
        "_emptied",
        "_headers",
        "_idle",
        "_kind",
        "_limit",
        "_lines",
        "_live",
        "_loop",
        "_spoken",
        "_sweeping",
        "_target",
        "_tls",
        "_where",
    )

    def __init__(self, where: Url, options: Options, accept: str, *, address: str | None = None) -> None:
        """`accept`: the media types that are understood. `options`: limits, tls, headers, auth. `address`: the IP
        address to connect to, without resolving the host's name again; certificates are checked for the name.
        LocalError for what `fields` refuses, and for other schemes."""
        if where.plain != "http":
            raise LocalError(f"{where}: this wire takes http:// and https://")
        headers = {"host": _host(where), "content-type": "application/json", "accept": accept, "user-agent": "dragoman"}
        headers |= fields(where, options)  # the user's own replace ours
        self._where = where
        self._address = address or ""
        self._loop = asyncio.get_running_loop()
        self._target = _target(where.target)
        self._limit = options.limits.header_size
        self._tls: ssl.SSLContext | None = options.client_tls
        self._kind = b"content-type: %b\r\n" % headers.pop("content-type").encode()
        self._headers = headers
        self._lines = _lines(headers)
        self._spoken = False  # a reply has come: the server speaks HTTP
        self._live: set[ClientConnection] = set()
        self._idle: list[tuple[float, ClientConnection]] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    async def ask(
        self,
        method: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        target: str | None = None,
        timeout: float | None = None,
    ) -> ClientReply:
        """Send a request; returns when the head of its reply has come. `close` the reply, or read it to the end.

        `headers` override the pool's. `target`: path and query at the same origin, default the URL's own.
        `timeout`: seconds from when there is a connection to the end of the body. Raises Broken, BadAnswer.
        """
        head = self._head(method, self._target if target is None else _target(target), body, headers)
        connection = self._idle_connection()
        if connection is None:
            reply = await (await self._connect()).ask(head, body or b"", timeout)
        else:
            try:
                reply = await connection.ask(head, body or b"", timeout)
            except Broken as why:
                if why.reason != "hung_up":
                    raise
                # the far end closed what it had kept open: is it there at all?
                connection = await self._connect()
                if method == "POST":
                    connection.abort()
                    raise
                reply = await connection.ask(head, body or b"", timeout)
        self._spoken = True
        return reply

    def _head(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None) -> bytes:
        lines = self._lines
        kind = self._kind
        if headers:
            for name, value in headers.items():
                if not (NAME.fullmatch(name) and VALUE.fullmatch(value)):
                    raise Broken(
                        f"the header {printable(name)} has characters that no header may have: nothing was sent"
                    )
                if name in FRAMING:
                    raise Broken(f"the header {name} is for the wire to say: nothing was sent")
            if "content-type" in headers:
                kind = b""
            if self._headers.keys().isdisjoint(headers):
                lines += _lines(headers)
            else:
                lines = _lines(self._headers | dict(headers))
        start = b"%b %b HTTP/1.1\r\n" % (method.encode(), target.encode())
        if body is None:
            return b"%b%b\r\n" % (start, lines)
        return b"%b%b%bcontent-length: %d\r\n\r\n" % (start, lines, kind, len(body))

    # -- connections ------------------------------------------------------------------------------

    def _idle_connection(self) -> ClientConnection | None:
        """Take the idle connection that was used last, so that few stay open if few are needed; None without one."""
        while self._idle:
            since, connection = self._idle.pop()
            if connection.usable and self._loop.time() - since < KEEPALIVE:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> ClientConnection:
        where = self._where
        if where.tls and self._tls is None:
            self._tls = ssl.create_default_context()  # once: it is slow to make
        make = lambda: ClientConnection(  # noqa: E731
            where.address, self._limit, self._free, self._lost, unknown=not self._spoken
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                _, connection = await open_connection(make, where, self._tls, self._address)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            raise cannot_dial(where, error) from error
        self._live.add(connection)
        return connection

    def _free(self, connection: ClientConnection) -> None:
        """Keep a connection that can be reused."""
        if self._emptied is not None:
            connection.abort()
            return
        self._idle.append((self._loop.time(), connection))
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(KEEPALIVE, self._sweep)

    def _lost(self, connection: ClientConnection) -> None:
        """Forget a connection that has ended."""
        self._live.discard(connection)
        if self._emptied is not None and not self._live and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        """Close connections that were idle for long."""
        old = self._loop.time() - KEEPALIVE
        kept = []
        for since, connection in self._idle:
            if since <= old or not connection.usable:
                connection.abort()
            else:
                kept.append((since, connection))
        self._idle = kept
        self._sweeping = self._loop.call_at(kept[0][0] + KEEPALIVE, self._sweep) if kept else None

    async def close(self) -> None:
        """Close every connection; returns when they are released."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        if self._emptied is None:
            self._emptied = self._loop.create_future()
            for connection in list(self._live):
                connection.abort()
            if not self._live:
                self._emptied.set_result(None)
        await asyncio.shield(self._emptied)


def _host(where: Url) -> str:
    host = f"[{where.host}]" if ":" in where.host else where.host or "localhost"
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise LocalError(f"{where}: {printable(where.host)!r} is not a name of a host") from None
    return host if where.port == SCHEMES[where.scheme].port else f"{host}:{where.port}"


def _target(target: str) -> str:
    """Path and query in the form of the wire: escaped characters stay as they are."""
    return target if _PLAIN.fullmatch(target) else quote(target, safe="/?:@!$&'()*+,;=%~")


_PLAIN = re.compile(r"[A-Za-z0-9/?:@!$&'()*+,;=%~._\-]+")


def _lines(headers: Mapping[str, str]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("utf-8", "surrogateescape")
