"""The steps at a socket: the name, the connection, TLS, and what comes back for one request on a stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import stat
from collections.abc import Callable
from ipaddress import ip_address

from ...jsonrpc.framing import FramingName, framing
from ...jsonrpc.limits import CLIENT
from ...net.replies import excerpt
from ...net.sockets import reason_of
from ...net.urls import Url
from ..advice import speaks_tls, with_tls
from ..faults import Heard, of_bytes, of_connection, silent, slow, whole
from ..options import Access
from .record import Fault, Faulty, Patience, Record

ID = b"1"
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
"""MCP allows it at any time; every other server knows that there is no such method."""


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


async def connect(url: Url, access: Access, record: Record, patience: Patience) -> None:
    """The steps that open a connection, and a TLS session where the scheme has one; it is closed again."""
    with record.step("unix" if url.scheme == "unix" else "tcp") as step:
        try:
            _, writer = await asyncio.wait_for(_open(url, None), patience.left)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            raise Faulty(at_path(url) or of_connection(error, url)) from None
        writer.transport.abort()
        step.said = f"connected to {url.address}"
    if not url.tls:
        return
    with record.step("tls") as step:
        try:
            _, writer = await asyncio.wait_for(_open(url, access.tls() or ssl.create_default_context()), patience.left)
        except TimeoutError:
            raise Faulty(await _no_handshake(url, patience, silent_tls(url, patience))) from None
        except (OSError, UnicodeError) as error:
            fault = of_connection(error, url)
            if fault.kind in ("reset", "hung_up", "other", "tls"):
                fault = await _no_handshake(url, patience, fault)
            raise Faulty(fault) from None
        step.said = str(writer.get_extra_info("ssl_object").version())
        writer.transport.abort()


def silent_tls(url: Url, patience: Patience) -> Fault:
    """A far end that takes a connection and answers nothing to the beginning of TLS."""
    found = silent(url.shown, patience.total, request="the beginning of TLS")
    return Fault(found.kind, found.what, f"if it does not speak TLS, write {url.plain}://; {found.mend}", False)


async def _no_handshake(url: Url, patience: Patience, otherwise: Fault) -> Fault:
    """The fault of a far end with which no TLS came about: it answers without, or `otherwise`."""
    if await lines_at(url, None, patience) is None:
        return otherwise
    what = f"{url.shown} speaks no TLS: it answers lines without"
    return Fault("not_tls", what, f"write tcp:// for {url.scheme}://, or give the server a certificate")


async def lines_at(url: Url, tls: ssl.SSLContext | None, patience: Patience) -> FramingName | None:
    """How what listens at a URL's host and port separates messages on a stream; None where it answers none."""
    ways: tuple[FramingName, ...] = ("newline", "content-length")
    looks = (_heard(url, tls, way, patience.look) for way in ways)
    found = await asyncio.gather(*looks, return_exceptions=True)
    return next(
        (way for way, heard in zip(ways, found, strict=True) if isinstance(heard, Heard) and heard.answered), None
    )


def at_path(url: Url) -> Fault | None:
    """What is wrong with the path of a Unix socket; None where a socket is there."""
    if url.scheme != "unix":
        return None
    try:
        mode = os.stat(url.path).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    kind = "a folder" if stat.S_ISDIR(mode) else "a plain file" if stat.S_ISREG(mode) else "no socket"
    mend = "name the socket of the server; one that serves there makes its own: dragoman serve ... unix:PATH"
    return Fault("no_socket", f"{url.path} is {kind}, not a socket", mend, False)


async def _open(url: Url, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if url.scheme == "unix":
        return await asyncio.open_unix_connection(url.path)
    return await asyncio.open_connection(url.host or "localhost", url.port, ssl=tls)


async def answer(
    url: Url, access: Access, framing_name: FramingName | None, record: Record, patience: Patience
) -> None:
    """The step that sends one request on a stream and looks at what comes back."""
    with record.step("answer") as step:
        heard = await _asked(url, access, framing_name, patience)
        if not heard.answered:
            raise Faulty(await _named(heard, url, access, framing_name, patience))
        step.said = "answers JSON-RPC"


async def _asked(url: Url, access: Access, framing_name: FramingName | None, patience: Patience) -> Heard:
    """What comes for one request, until the answer, the end, or the end of our patience. Raises Faulty."""
    tls = (access.tls() or ssl.create_default_context()) if url.tls else None
    try:
        return await _heard(url, tls, framing_name, patience.left, patience.look)
    except OSError as error:
        raise Faulty(of_connection(error, url)) from None


async def _heard(
    url: Url, tls: ssl.SSLContext | None, framing_name: FramingName | None, seconds: float, look: float = 0.0
) -> Heard:
    """What comes for one request within these seconds; once noise has come, within `look`. Raises OSError."""
    heard = Heard(framing_name, ID)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    reader, writer = await asyncio.wait_for(_open(url, tls), seconds)
    try:
        writer.write(framing(framing_name or "newline", CLIENT).wrap(REQUEST))
        async with asyncio.timeout_at(end) as limit:
            await listen(reader, heard, lambda: None if heard.calm else limit.reschedule(min(end, loop.time() + look)))
    except TimeoutError:
        pass
    except OSError as error:
        if not heard.raw:
            if reason_of(error) == "certificate_wanted":
                raise
            heard.end()
    finally:
        writer.transport.abort()
    return heard


async def listen(reader: asyncio.StreamReader, heard: Heard, more: Callable[[], None] | None = None) -> None:
    """Read until the answer has come, or the far end has finished. `more` is called whenever something has come."""
    while not heard.settled and (data := await reader.read(65536)):
        heard.feed(data)
        if more is not None:
            more()
    if not heard.settled:
        heard.end()


async def _named(heard: Heard, url: Url, access: Access, framing_name: FramingName | None, patience: Patience) -> Fault:
    """The fault of a far end that did not answer, which may need another look."""
    place = url.shown
    if heard.calm and not heard.ended and not heard.echoed and (heard.messages or not whole(heard.raw)):
        return silent(place, patience.total, f"so far came {excerpt(heard.raw)}")
    fault = of_bytes(heard, url.scheme, place, framing_name == "content-length")
    if fault is not None:
        return fault
    tls = (access.tls() or ssl.create_default_context()) if url.tls else None
    speaks, way = await asyncio.gather(
        speaks_tls(url, patience.look) if url.scheme == "tcp" else nothing(),
        lines_at(url, tls, patience) if framing_name in (None, "content-length") else nothing(),
    )
    if speaks:
        mend = f"write {with_tls(url.scheme)}:// for {url.scheme}://"
        return Fault("other_protocol", f"{place}: it speaks TLS", mend)
    if framing_name is None and way == "content-length":
        return by_content_length(place)
    if way == "newline":
        return by_lines(place) if framing_name == "content-length" else slow(place, patience.total)
    if heard.ended:
        mend = "look into the server's log; it may ask for a certificate (--cert FILE), or speak another protocol"
        return Fault("hung_up", f"{place} closes the connection without an answer", mend, False)
    return silent(place, patience.total)


async def nothing() -> None:
    """In the place of a look that is not needed."""


def by_content_length(place: str) -> Fault:
    """The fault of a far end that reads Content-Length headers and got lines."""
    what = f"{place} reads and sends Content-Length headers, not lines"
    return Fault("framing", what, "give --framing content-length")


def by_lines(place: str) -> Fault:
    """The fault of a far end that reads lines and got Content-Length headers."""
    what = f"{place} reads and sends lines, not Content-Length headers"
    return Fault("framing", what, "leave --framing content-length out: it separates messages by lines")
