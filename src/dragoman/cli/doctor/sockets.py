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
from ...system.unix_sockets import open_unix
from ..advice import speaks_tls, with_tls
from ..faults import ReplyReader, diagnose_bytes, diagnose_connection, diagnose_silence, diagnose_slowness, is_whole
from ..options import AccessOptions
from .record import Diagnosis, Examination, FaultFound, Patience

ID = b"1"
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
"""MCP allows it at any time; every other server knows that there is no such method."""


async def look_up(url: Url, record: Examination) -> None:
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
            raise FaultFound(diagnose_connection(error, url)) from None
        step.said = ", ".join(dict.fromkeys(str(row[4][0]) for row in found))


async def connect(url: Url, access: AccessOptions, record: Examination, patience: Patience) -> None:
    """The steps that open a connection, and a TLS session where the scheme has one; it is closed again."""
    with record.step("unix" if url.scheme == "unix" else "tcp") as step:
        try:
            _, writer = await asyncio.wait_for(_open(url, None), patience.left)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            raise FaultFound(diagnose_path(url) or diagnose_connection(error, url)) from None
        writer.transport.abort()
        step.said = f"connected to {url.address}"
    if not url.tls:
        return
    with record.step("tls") as step:
        try:
            _, writer = await asyncio.wait_for(_open(url, access.tls() or ssl.create_default_context()), patience.left)
        except TimeoutError:
            raise FaultFound(await _no_handshake(url, patience, no_tls_answer(url, patience))) from None
        except (OSError, UnicodeError) as error:
            fault = diagnose_connection(error, url)
            if fault.kind in ("reset", "hung_up", "other", "tls"):
                fault = await _no_handshake(url, patience, fault)
            raise FaultFound(fault) from None
        step.said = str(writer.get_extra_info("ssl_object").version())
        writer.transport.abort()


def no_tls_answer(url: Url, patience: Patience) -> Diagnosis:
    """A far end that takes a connection and answers nothing to the beginning of TLS."""
    found = diagnose_silence(url.shown, patience.total, request="the beginning of TLS")
    return Diagnosis(found.kind, found.what, f"if it does not speak TLS, write {url.plain}://; {found.fix}", False)


async def _no_handshake(url: Url, patience: Patience, otherwise: Diagnosis) -> Diagnosis:
    """The fault of a far end with which no TLS came about: it answers without, or `otherwise`."""
    if await find_framing(url, None, patience) is None:
        return otherwise
    what = f"{url.shown} speaks no TLS: it answers lines without"
    return Diagnosis("not_tls", what, f"write tcp:// for {url.scheme}://, or give the server a certificate")


async def find_framing(url: Url, tls: ssl.SSLContext | None, patience: Patience) -> FramingName | None:
    """How what listens at a URL's host and port separates messages on a stream; None where it answers none."""
    ways: tuple[FramingName, ...] = ("newline", "content-length")
    looks = (_exchange(url, tls, way, patience.look) for way in ways)
    found = await asyncio.gather(*looks, return_exceptions=True)
    return next(
        (way for way, reply in zip(ways, found, strict=True) if isinstance(reply, ReplyReader) and reply.answered), None
    )


def diagnose_path(url: Url) -> Diagnosis | None:
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
    fix = "name the socket of the server; one that serves there makes its own: dragoman serve ... unix:PATH"
    return Diagnosis("no_socket", f"{url.path} is {kind}, not a socket", fix, False)


async def _open(url: Url, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if url.scheme == "unix":
        return await open_unix(url.path)
    return await asyncio.open_connection(url.host or "localhost", url.port, ssl=tls)


async def answer(
    url: Url, access: AccessOptions, framing_name: FramingName | None, record: Examination, patience: Patience
) -> None:
    """The step that sends one request on a stream and looks at what comes back."""
    with record.step("answer") as step:
        reply = await _request(url, access, framing_name, patience)
        if not reply.answered:
            raise FaultFound(await _diagnose(reply, url, access, framing_name, patience))
        step.said = "answers JSON-RPC"


async def _request(
    url: Url, access: AccessOptions, framing_name: FramingName | None, patience: Patience
) -> ReplyReader:
    """What comes for one request, until the answer, the end, or the end of our patience. Raises FaultFound."""
    tls = (access.tls() or ssl.create_default_context()) if url.tls else None
    try:
        return await _exchange(url, tls, framing_name, patience.left, patience.look)
    except OSError as error:
        raise FaultFound(diagnose_connection(error, url)) from None


async def _exchange(
    url: Url, tls: ssl.SSLContext | None, framing_name: FramingName | None, seconds: float, look: float = 0.0
) -> ReplyReader:
    """What comes for one request within these seconds; once noise has come, within `look`. Raises OSError."""
    reply = ReplyReader(framing_name, ID)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    reader, writer = await asyncio.wait_for(_open(url, tls), seconds)
    try:
        writer.write(framing(framing_name or "newline", CLIENT).wrap(REQUEST))
        async with asyncio.timeout_at(end) as limit:
            await listen(reader, reply, lambda: None if reply.calm else limit.reschedule(min(end, loop.time() + look)))
    except TimeoutError:
        pass
    except OSError as error:
        if not reply.raw:
            if reason_of(error) == "certificate_wanted":
                raise
            reply.end()
    finally:
        writer.transport.abort()
    return reply


async def listen(reader: asyncio.StreamReader, reply: ReplyReader, more: Callable[[], None] | None = None) -> None:
    """Read until the answer has come, or the far end has finished. `more` is called whenever something has come."""
    while not reply.settled and (data := await reader.read(65536)):
        reply.feed(data)
        if more is not None:
            more()
    if not reply.settled:
        reply.end()


async def _diagnose(
    reply: ReplyReader, url: Url, access: AccessOptions, framing_name: FramingName | None, patience: Patience
) -> Diagnosis:
    """The fault of a far end that did not answer, which may need another look."""
    where = url.shown
    if reply.calm and not reply.ended and not reply.echoed and (reply.messages or not is_whole(reply.raw)):
        return diagnose_silence(where, patience.total, f"so far came {excerpt(reply.raw)}")
    fault = diagnose_bytes(reply, url.scheme, where, framing_name == "content-length")
    if fault is not None:
        return fault
    tls = (access.tls() or ssl.create_default_context()) if url.tls else None
    speaks, way = await asyncio.gather(
        speaks_tls(url, patience.look) if url.scheme == "tcp" else nothing(),
        find_framing(url, tls, patience) if framing_name in (None, "content-length") else nothing(),
    )
    if speaks:
        fix = f"write {with_tls(url.scheme)}:// for {url.scheme}://"
        return Diagnosis("other_protocol", f"{where}: it speaks TLS", fix)
    if framing_name is None and way == "content-length":
        return wants_content_length(where)
    if way == "newline":
        return wants_lines(where) if framing_name == "content-length" else diagnose_slowness(where, patience.total)
    if reply.ended:
        fix = "look into the server's log; it may ask for a certificate (--cert FILE), or speak another protocol"
        return Diagnosis("hung_up", f"{where} closes the connection without an answer", fix, False)
    return diagnose_silence(where, patience.total)


async def nothing() -> None:
    """Stands in for a look that is not needed."""


def wants_content_length(where: str) -> Diagnosis:
    """The fault of a far end that reads Content-Length headers and got lines."""
    what = f"{where} reads and sends Content-Length headers, not lines"
    return Diagnosis("framing", what, "give --framing content-length")


def wants_lines(where: str) -> Diagnosis:
    """The fault of a far end that reads lines and got Content-Length headers."""
    what = f"{where} reads and sends lines, not Content-Length headers"
    return Diagnosis("framing", what, "leave --framing content-length out: it separates messages by lines")
