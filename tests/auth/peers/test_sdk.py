"""The official SDKs' clients log in at our authorization server, for our server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.channel import Identity
from dragoman.mcp import Server
from tests.interop.mcp import environments
from tests.ports import free_port
from tests.skips import missing

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with LocalIssuer() as running:
        yield running


@pytest.mark.parametrize(("peer", "script"), [("mcp2", "sdk.py"), ("ts2", "sdk.mjs")])
async def test_an_official_client_logs_in_and_steps_up(issuer: LocalIssuer, peer: str, script: str) -> None:
    try:
        program = await asyncio.to_thread(environments.program, peer)
    except environments.Missing as why:
        missing(str(why))
    url = f"http://127.0.0.1:{free_port()}/mcp"
    app = Server("notes", auth=Bearer(issuer.url, resource=url))

    @app.tool(scopes="notes:read")
    async def read(who: Identity) -> str:
        return f"read by {who.subject}"

    @app.tool(scopes="notes:write")
    async def write(who: Identity) -> str:
        return f"written by {who.subject}"

    async with serve(app, urls=url):
        child = await asyncio.create_subprocess_exec(
            *(*program, str(HERE / script), url, "read", "write"),
            env=environments.variables(),
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, _ = await child.communicate()
    assert child.returncode == 0
    found = json.loads(out)
    assert found["said"] == ["read by alice", "written by alice"]
    assert found["asked"] >= 1
    assert found["issuers"] == [[issuer.url]] * found["asked"]
