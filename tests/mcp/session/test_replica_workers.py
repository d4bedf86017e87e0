"""Workers of one machine that share a port: their sessions are everybody's, and one that is killed takes only its
calls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, Revision
from tests.ports import free_port
from tests.transports.http.cases import Answered

from ..http_wire import Place, Sitting
from ..replicas import accepted, text
from .test_replica_nginx import EXAMPLE, ready

ASKS: dict[str, Any] = {"elicitation": {}}


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[Place]:
    """The example, served by so many."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    env = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", "serve", "notes.py", url, "--quiet", "--workers", str(count)),
        cwd=EXAMPLE,
        env=env,
    )
    try:
        await ready(port)
        place: Any = Place(port, None)  # type: ignore[arg-type]
        yield place
    finally:
        process.terminate()
        await process.wait()


async def where(sitting: Sitting) -> int:
    """The worker that answered."""
    found: Answered = await sitting.post(sitting.tool("where"))
    assert found.status == 200, found
    return int(text(json.loads(found.body)))


async def spread(sitting: Sitting, count: int, but: int = 0) -> set[int]:
    """Ask, many at once, until so many workers have answered, or it takes too long."""
    found: set[int] = set()
    for _ in range(50):
        answers = await asyncio.gather(*(where(sitting) for _ in range(20)), return_exceptions=True)
        for one in answers:
            if isinstance(one, int):
                found.add(one)
            else:  # it was on its way to one that died
                assert isinstance(one, ConnectionError | asyncio.IncompleteReadError), one
        if len(found - {but}) >= count:
            break
        await asyncio.sleep(0.05)
    return found - {but}


@pytest.mark.slow
@pytest.mark.parametrize("revision", [R2025_11], ids=lambda one: one.date)
async def test_workers_share_sessions(revision: Revision) -> None:
    async with workers(3) as place:
        sitting = await place.begin(revision, ASKS)
        pids = await spread(sitting, 3)
        assert len(pids) == 3
        if revision.order >= R2025_06.order:
            for number in range(6):
                async with sitting.stream(sitting.tool("approve", number, what="it")) as events:
                    question = await events.message()
                    assert (await sitting.post(accepted(question["id"], ok=True))).status == 202
                    assert text(await events.message()) == "done"
        async with sitting.stream(sitting.tool("count", 9, "t", to=3, pause=0.2)) as events:
            await events.message()
            last = events.parser.last_id
        async with sitting.get(last) as again:
            assert text((await again.rest())[-1]) == "3"
        killed = await where(sitting)
        os.kill(killed, signal.SIGKILL)
        assert len(await spread(sitting, 3, but=killed)) == 3  # the session lives on, at the new worker too
        assert (await place.ask(b"", sitting.headers, method="DELETE")).status == 204
        for _ in range(9):
            assert (await sitting.post(sitting.tool("where"))).status == 404
