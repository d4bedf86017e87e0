"""Our client logs in for the protected servers of the official SDK and of FastMCP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.auth import Login, MemoryStore
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Client
from tests.interop.mcp import environments
from tests.ports import free_port
from tests.skips import missing

from .test_whole import User, text

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with LocalIssuer() as running:
        yield running


async def listening(port: int, child: asyncio.subprocess.Process) -> None:
    """Until the child takes connections. Fails if it ends before."""
    async with asyncio.timeout(60):
        while True:
            assert child.returncode is None, "the server has ended"
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("peer", "kind"), [("mcp2", "sdk"), ("fastmcp", "fastmcp")])
async def test_our_client_logs_in_for_a_protected_server_of_others(issuer: LocalIssuer, peer: str, kind: str) -> None:
    try:
        program = await asyncio.to_thread(environments.program, peer)
    except environments.Missing as why:
        missing(str(why))
    port, user = free_port(), User()
    argv = (*program, str(HERE / "protected.py"), kind, str(port), issuer.url)
    child = await asyncio.create_subprocess_exec(*argv, env=environments.variables())
    try:
        await listening(port, child)
        url = f"http://127.0.0.1:{port}/mcp"
        async with Client(url, auth=Login(on_url=user, store=MemoryStore())) as client:
            assert text(await client.call_tool("read")) == "read"
            assert len(user.windows) == 1
            assert text(await client.call_tool("read")) == "read"
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()
