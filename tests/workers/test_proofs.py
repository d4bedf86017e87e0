"""DPoP proofs with several workers: one that a worker took is refused by the others."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

from dragoman.auth.dpop import proof
from dragoman.auth.jose import Key, new_key, thumbprint
from dragoman.auth.testing import LocalIssuer
from tests.transports.http.cases import Answered, answer
from tests.transports.http.ends import wire

from .conftest import PATIENCE, Starter

RESOURCE = "https://mcp.example/"
SERVICE = """\
import os
from dragoman import Service
from dragoman.auth import Bearer

api = Service("bound", auth=Bearer(os.environ["ISSUER"], resource="https://mcp.example/", dpop="required"))


@api.method(inline=True)
def pid() -> int:
    return os.getpid()
"""
CALL = b'{"jsonrpc":"2.0","method":"pid","id":1}'


class Caller:
    """One connection to one worker."""

    def __init__(self, ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], token: str) -> None:
        self._reader, self._writer = ends
        self._token = token

    async def ask(self, shown: str) -> Answered:
        """The answer to a call with this proof."""
        lines = f"Authorization: DPoP {self._token}\r\nDPoP: {shown}\r\nContent-Type: application/json\r\n"
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}Content-Length: {len(CALL)}\r\n\r\n"
        self._writer.write(head.encode() + CALL)
        return await answer(self._reader)


def made(key: Key, token: str) -> str:
    return proof(key, "POST", RESOURCE, token=token)


async def test_a_proof_is_good_once_among_all_workers(starter: Starter) -> None:
    starter.file.write_text(SERVICE)
    key = new_key("ES256")
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        token = issuer.token("ada", resource=RESOURCE, claims={"cnf": {"jkt": thumbprint(key.public_jwk())}})
        run = await starter.serve("http://127.0.0.1:0/", env={"ISSUER": issuer.url})
        port = int(run.urls[0].rstrip("/").rpartition(":")[2])
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
            found: dict[int, Caller] = {}
            while len(found) < 2:
                caller = Caller(await stack.enter_async_context(wire(port)), token)
                first = await caller.ask(made(key, token))
                assert first.status == 200, first.body
                found.setdefault(json.loads(first.body)["result"], caller)
            assert set(found) == set(run.pids.values())
            one, other = found.values()
            for here, there in ((one, other), (other, one)):
                once = made(key, token)
                assert (await here.ask(once)).status == 200
                for again in (there, here):
                    refused = await again.ask(once)
                    assert refused.status == 401
                    assert "invalid_dpop_proof" in refused.headers["www-authenticate"]
                    assert "used before" in refused.headers["www-authenticate"]
                assert (await there.ask(made(key, token))).status == 200
