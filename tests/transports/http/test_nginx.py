"""The file of docs/wires/http.md in a real nginx: the caller is nginx's caller, whatever that says of itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import connect, serve
from tests.mcp.session.test_replica_nginx import nginx, ready
from tests.ports import free_port

from .cases import post
from .test_behind_proxies import SAID, exchanged, result, telling

FILE = Path(__file__).parents[3] / "docs/snippets/wires/behind_nginx.conf"


@asynccontextmanager
async def proxied(folder: Path, port: int) -> AsyncIterator[int]:
    """nginx before a server at this port; gives its own."""
    mine = free_port()
    text = (
        FILE.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("127.0.0.1:8080", f"127.0.0.1:{mine}")
    )
    (folder / "nginx.conf").write_text(text)
    process = await asyncio.create_subprocess_exec(nginx(), "-p", str(folder), "-c", "nginx.conf")
    try:
        await ready(mine)
        yield mine
    finally:
        process.terminate()
        await process.wait()


FORGED = (
    "X-Forwarded-For: 198.51.100.66\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\n"
    "Forwarded: for=198.51.100.66;proto=https;host=evil.example\r\n"
)


@pytest.mark.parametrize("more", ["", FORGED])
@pytest.mark.parametrize("trusted", [["127.0.0.1"], []])
async def test_nginx_tells_who_calls(tmp_path: Path, trusted: list[str], more: str) -> None:
    async with serve(telling(), urls="http://127.0.0.1:0", trusted_proxies=trusted) as serving:
        port = int(serving.urls[0].rpartition(":")[2])
        async with proxied(tmp_path, port) as front:
            # nginx's caller comes from another address of loopback, which is not trusted
            host = f"127.0.0.1:{front}"
            found = [
                result(one) for one in await exchanged(front, *[post(SAID, more=more, host=host)] * 3, here="127.0.0.3")
            ]
            for told in found:
                assert told["owner"] == ("127.0.0.3" if trusted else "127.0.0.1"), json.dumps(told)
                assert (told["scheme"], told["tls"]) == ("http", False)
                assert told["host"] == (host if trusted else f"127.0.0.1:{port}")


async def test_our_client_calls_through_nginx(tmp_path: Path) -> None:
    async with (
        serve(telling(), urls="http://127.0.0.1:0", trusted_proxies=["127.0.0.0/8"]) as serving,
        proxied(tmp_path, int(serving.urls[0].rpartition(":")[2])) as front,
        connect(f"http://127.0.0.1:{front}") as peer,
    ):
        told = await peer.call("said", result=dict)
    assert told["host"] == f"127.0.0.1:{front}"
    assert told["owner"] == "127.0.0.1"  # all hops are trusted: the first one called


async def test_a_websocket_goes_through_nginx(tmp_path: Path) -> None:
    async with (
        serve(telling(), urls="http://127.0.0.1:0", trusted_proxies=["127.0.0.0/8"]) as serving,
        proxied(tmp_path, int(serving.urls[0].rpartition(":")[2])) as front,
        connect(f"ws://127.0.0.1:{front}") as peer,
    ):
        told = await peer.call("said", result=dict)
    assert told["host"] == f"127.0.0.1:{front}"
