"""`serve`: which TLS context goes where."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from dragoman import LocalError, Service, connect, serve
from dragoman.bus.contract import BusLost

CA = trustme.CA()


def certificate() -> ssl.SSLContext:
    """What a server has; by its protocol it could be used by a client as well, and checks no client then."""
    with pytest.warns(DeprecationWarning, match="PROTOCOL_TLS"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS)
    CA.issue_cert("localhost").configure_cert(context)
    return context


def trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


@asynccontextmanager
async def broker() -> AsyncIterator[tuple[int, asyncio.Queue[bytes]]]:
    """Something with a certificate of an authority that no system trusts, and the first thing that it is told."""
    told: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.put_nowait(await reader.read(1_000))
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("localhost").configure_cert(context)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], told


async def test_the_certificate_for_callers_is_not_shown_to_brokers() -> None:
    """A server's context verifies no one: with it the password would go to any broker."""
    api = Service("guarded")
    async with broker() as (port, told):
        urls = ["https://localhost:0", f"rediss://user:secret@localhost:{port}/queue"]
        with pytest.raises(LocalError, match="certificate"):
            async with serve(api, urls=urls, tls=certificate()):
                pass
        assert told.empty()
        with pytest.raises(LocalError):
            async with serve(api, urls=urls, tls=certificate(), client_tls=trust()):
                pass
        assert b"secret" in await told.get()


async def test_a_bus_is_checked_by_the_client_s_context() -> None:
    api = Service("guarded")
    async with broker() as (port, told):
        bus = f"rediss://user:secret@localhost:{port}"
        with pytest.raises(BusLost, match="certificate"):
            async with serve(api, urls="tcp://localhost:0", bus=bus):
                pass
        assert told.empty()
        with pytest.raises(BusLost):
            async with serve(api, urls="tcp://localhost:0", bus=bus, client_tls=trust()):
                pass
        assert b"secret" in await told.get()


async def test_the_certificate_serves_and_the_trust_connects() -> None:
    api = Service("guarded")

    @api.method
    async def one() -> int:
        return 1

    async with serve(api, urls=["https://localhost:0", "tls://localhost:0"], tls=certificate()) as serving:
        for url in serving.urls:
            async with connect(url, tls=trust()) as peer:
                assert await peer.call("one") == 1
