"""The steps at a socket: the name, the connection, TLS, and what comes back for one request on a stream."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from ipaddress import ip_address

from ...jsonrpc.framing import FramingName, framing
from ...jsonrpc.limits import CLIENT
from ...net.sockets import reason_of
from ...net.urls import Url
from ..advice import speaks_tls, with_tls
from ..options import Access
from .naming import Heard, of_bytes, of_connection, silent
from .record import Fault, Faulty, Record

LOOK = 1.5
"""Seconds that a socket has for each step, the answer included; `--timeout` makes it less."""
ID = b"1"
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
"""MCP allows it at any time; every other server knows that there is no such method."""


def patience(access: Access) -> float:
    """Seconds that one step may take."""
    return min(access.seconds() or LOOK, LOOK)


async def look_up(url: Url, record: Record) -> None:
    """The step that resolves the host's name."""
    with record.step("dns") as step:
        host = url.host or "localhost"
        with contextlib.suppress(ValueError):
            ip_address(host)
            step.said = "an address, no name"
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, url.port)
        except (OSError, UnicodeError) as error:
            raise Faulty(of_connection(error, url)) from None
        step.said = ", ".join(dict.fromkeys(str(row[4][0]) for row in found))


async def connect(url: Url, access: Access, record: Record) -> None:
    """The steps that open a connection, and a TLS session where the scheme has one; it is closed again."""
    limit = patience(access)
    with record.step("unix" if url.scheme == "unix" else "tcp") as step:
        try:
            _, writer = await asyncio.wait_for(_open(url, None), limit)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            raise Faulty(of_connection(error, url)) from None
        writer.transport.abort()
        step.said = f"connected to {url.address}"
    if not url.tls:
        return
    with record.step("tls") as step:
        try:
            _, writer = await asyncio.wait_for(_open(url, access.tls() or ssl.create_default_context()), limit)
        except (OSError, UnicodeError) as error:
            raise Faulty(of_connection(error, url)) from None
        step.said = str(writer.get_extra_info("ssl_object").version())
        writer.transport.abort()


async def _open(url: Url, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if url.scheme == "unix":
        return await asyncio.open_unix_connection(url.path)
    return await asyncio.open_connection(url.host or "localhost", url.port, ssl=tls)


async def answer(url: Url, access: Access, framing_name: FramingName | None, record: Record) -> None:
    """The step that sends one request on a stream and looks at what comes back."""
    with record.step("answer") as step:
        heard = await _asked(url, access, framing_name)
        if not heard.answered:
            raise Faulty(await _named(heard, url, access, framing_name))
        step.said = "answers JSON-RPC"


async def _asked(url: Url, access: Access, framing_name: FramingName | None) -> Heard:
    """What comes for one request, until the answer, the end, or the end of our patience."""
    tls = (access.tls() or ssl.create_default_context()) if url.tls else None
    heard = Heard(framing_name, ID)
    try:
        reader, writer = await asyncio.wait_for(_open(url, tls), patience(access))
    except OSError as error:
        raise Faulty(of_connection(error, url)) from None
    try:
        writer.write(framing(framing_name or "newline", CLIENT).wrap(REQUEST))
        async with asyncio.timeout(patience(access)):
            await listen(reader, heard)
    except TimeoutError:
        pass
    except OSError as error:
        if not heard.raw:
            if reason_of(error) == "certificate_wanted":
                raise Faulty(of_connection(error, url)) from None
            heard.end()
    finally:
        writer.transport.abort()
    return heard


async def listen(reader: asyncio.StreamReader, heard: Heard, begun: Callable[[], None] | None = None) -> None:
    """Read until the answer has come, or the far end has finished. `begun` is called once something has come."""
    while not heard.settled and (data := await reader.read(65536)):
        if not heard.raw and begun is not None:
            begun()
        heard.feed(data)
    if not heard.settled:
        heard.end()


async def _named(heard: Heard, url: Url, access: Access, framing_name: FramingName | None) -> Fault:
    """The fault of a far end that did not answer, which may need another look."""
    place = url.shown
    fault = of_bytes(heard, url.scheme, place, framing_name == "content-length")
    if fault is not None:
        return fault
    if url.scheme == "tcp" and await speaks_tls(url):
        return Fault(
            "other_protocol",
            f"{place}: it speaks TLS",
            f"write {with_tls(url.scheme)}:// for {url.scheme}://",
        )
    if framing_name is None:
        other = await _asked(url, access, "content-length")
        if other.answered:
            return by_content_length(place)
    if heard.ended:
        mend = "look into the server's log; it may ask for a certificate (--cert FILE), or speak another protocol"
        return Fault("hung_up", f"{place} closes the connection without an answer", mend, False)
    return silent(place)


def by_content_length(place: str) -> Fault:
    """The fault of a far end that reads Content-Length headers and got lines."""
    what = f"{place} reads and sends Content-Length headers, not lines"
    return Fault("framing", what, "give --framing content-length")
