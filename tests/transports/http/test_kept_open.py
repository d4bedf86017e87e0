"""A far end that closes a connection which it had kept open, in place of the answer to the second request on it."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.channel import Broken, Options
from dragoman.jsonrpc.limits import CLIENT
from dragoman.net.urls import parse
from dragoman.transports.http.client.pool import Pool

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@pytest.mark.parametrize("stays", [True, False])
async def test_the_second_request(method: str, stays: bool) -> None:
    seen: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        if await reader.read(1):  # of the second request
            if not stays:
                server.close()
            writer.transport.abort()
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    pool = Pool(parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), Options(limits=CLIENT), "*/*")
    try:
        await (await pool.ask("GET")).body(10)
        if method != "POST" and stays:
            assert await (await pool.ask(method)).body(10) == b"ok"
            assert len(seen) == 2
        else:
            with pytest.raises(Broken) as caught:
                await pool.ask(method, b"{}" if method == "POST" else None)
            assert caught.value.reason == ("hung_up" if stays else "refused")
            assert len(seen) == 1
    finally:
        await pool.close()
        server.close()
