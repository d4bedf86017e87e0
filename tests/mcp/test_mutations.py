"""Thousands of messages with one wrong thing in their params, over TCP, stdio and HTTP.

Every request has exactly one answer, with its id; a caller's fault is never the server's (-32603); the channel lives.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import dragoman
from dragoman.mcp.protocol.revisions import REVISIONS, Revision
from tests.transports.http.cases import PATIENCE, answer

from .http_wire import ME, body, meta, served, standard
from .mutated import Case, corpus, server

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
AT_ONCE = 32
"""Messages that are sent before their answers are read."""
CONNECTIONS = 8
"""Clients that send over HTTP at the same time, each one message after the other."""
FIRST_ID = 1_000
"""No member of a message's params has as great a value, so that `notifications/cancelled` names no call of ours."""


def cases(revision: Revision) -> list[Case]:
    return [one for one in corpus() if one.revision is revision]


def batched(found: Sequence[Case]) -> Iterator[Sequence[Case]]:
    return (found[start : start + AT_ONCE] for start in range(0, len(found), AT_ONCE))


def answered(message: Any) -> Any:
    """The id of the request that a message settles: its answer, or a subscription's first word."""
    if message.get("method") == ACKNOWLEDGED:
        return message["params"]["_meta"][SUBSCRIPTION]
    return message.get("id")


def unfair(case: Case, message: Any) -> str:
    """Why this is not an answer to a caller's fault, or nothing."""
    error = message.get("error")
    if error is not None and (error["code"] == -32603 or not error["message"]):
        return f"{case.revision.date} {case.method}, {case.what}: {error}"
    return ""


def test_the_corpus_is_large_and_the_same_each_time() -> None:
    assert len(corpus()) >= 5_000
    assert len({(one.revision.date, one.method, one.what) for one in corpus()}) == len(corpus())
    corpus.cache_clear()
    first = corpus()
    corpus.cache_clear()
    assert corpus() == first


# -- streams --------------------------------------------------------------------------------------


class Lines:
    """One end of a stream of JSON lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: Any, revision: Revision) -> None:
        self.reader, self.writer, self.revision = reader, writer, revision
        self.last = FIRST_ID

    async def ask(self, method: str, params: Any) -> Any:
        self.last += 1
        self.writer.write(body(method, params, self.last) + b"\n")
        while True:
            message = json.loads(await self.reader.readline())
            if message.get("id") == self.last:
                return message

    async def begin(self) -> None:
        if self.revision.stateful:
            hello = {"protocolVersion": self.revision.date, "capabilities": {}, "clientInfo": ME}
            assert "result" in await self.ask("initialize", hello)
            self.writer.write(body("notifications/initialized", id=None) + b"\n")

    async def ping(self) -> None:
        """The channel lives: whatever is asked is answered."""
        method, params = ("ping", {}) if self.revision.stateful else ("server/discover", {"_meta": meta()})
        assert "result" in await self.ask(method, params)

    async def try_all(self, found: Sequence[Case]) -> list[str]:
        """Send them; what is wrong with the answers."""
        sent: dict[int, Case] = {}
        nameless = 0
        for case in found:
            self.last += 1
            if case.request:
                sent[self.last] = case
            elif case.params[0] not in b"{[":
                nameless += 1  # no notification: "Invalid Request" (JSON-RPC 2.0, section 7)
            self.writer.write(case.message(self.last) + b"\n")
        wrong: list[str] = []
        waiting = set(sent)
        while waiting or nameless:
            message = json.loads(await self.reader.readline() or b"null")
            id = None if message is None else answered(message)
            if nameless and message and id is None and message.get("error", {}).get("code") == -32600:
                nameless -= 1
                continue
            if message is None or (id not in waiting and "method" not in message):
                return [*wrong, f"{message!s:.300} where {len(waiting)} wait, {found[0].what} the first"]
            if id in waiting:
                waiting.discard(id)
                wrong += filter(None, [unfair(sent[id], message)])
                if "method" in message:  # a subscription, which would last
                    self.writer.write(body("notifications/cancelled", {"requestId": id}, None) + b"\n")
        await self.ping()
        return wrong


@asynccontextmanager
async def over_tcp(revision: Revision) -> AsyncIterator[Lines]:
    async with dragoman.serve(server(), urls=["tcp://127.0.0.1:0"]) as serving:
        port = int(serving.urls[0].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        try:
            yield Lines(reader, writer, revision)
        finally:
            writer.close()


@asynccontextmanager
async def over_stdio(revision: Revision) -> AsyncIterator[Lines]:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mcp.mutated", stdin=pipe, stdout=pipe, limit=1 << 22
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield Lines(child.stdout, child.stdin, revision)
        child.stdin.close()
        assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
@pytest.mark.parametrize("wire", [over_tcp, over_stdio], ids=["tcp", "stdio"])
async def test_every_mutation_is_answered_once_on_a_stream(wire: Any, revision: Revision) -> None:
    wrong: list[str] = []
    async with asyncio.timeout(2 * PATIENCE), wire(revision) as lines:
        await lines.begin()
        for found in batched(cases(revision)):
            wrong += await lines.try_all(found)
    assert not wrong, "\n".join(wrong[:20])


# -- HTTP -----------------------------------------------------------------------------------------


class Posts:
    """POSTs of one client, one after the other on one connection."""

    def __init__(self, place: Any, revision: Revision, session: dict[str, str | None]) -> None:
        self.place, self.revision, self.session = place, revision, session
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.reader = self.writer = None

    async def send(self, raw: bytes, headers: dict[str, str | None]) -> asyncio.StreamReader:
        if self.writer is None or self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.place.port, limit=1 << 22)
        self.writer.write(self.place.head(headers, len(raw)) + raw)
        return self.reader

    def headers(self, case: Case) -> dict[str, str | None]:
        if self.revision.stateful:
            # what is not an `initialize` does not open one
            return {} if case.method == "initialize" and case.params[0] in b"{[" else self.session
        return standard(case.method, case.name)

    async def attempt(self, case: Case, id: int) -> str:
        """What is wrong with the answer to it."""
        reader = await self.send(case.message(id), self.headers(case))
        if case.method == "subscriptions/listen":
            return await self._listen(case, id, reader)
        found = await answer(reader)
        if not case.request:
            return "" if found.status in (202, 400, 404) else f"{case.method}, {case.what}: {found}"
        text = found.body
        if found.headers.get("content-type") == "text/event-stream":
            text = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: {")][-1]
        return self._judged(case, id, found.status, json.loads(text))

    def _judged(self, case: Case, id: int, status: int, message: Any) -> str:
        if answered(message) != id or status not in (200, 400, 404):
            return f"{self.revision.date} {case.method}, {case.what}: {status} {message}"
        return unfair(case, message)

    async def _listen(self, case: Case, id: int, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ")[1])
        if "text/event-stream" not in head:
            size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return self._judged(case, id, status, json.loads(await reader.readexactly(size)))
        text = (await reader.readuntil(b"\n\n")).partition(b"data: ")[2]
        await self.close()
        return self._judged(case, id, status, json.loads(text))


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
async def test_every_mutation_is_answered_once_over_http(revision: Revision) -> None:
    wrong: list[str] = []
    async with served(server()) as place:
        session = (await place.begin(revision)).headers if revision.stateful else {}
        left = enumerate(cases(revision), FIRST_ID)

        async def attempt_all() -> None:
            posts = Posts(place, revision, session)
            for id, case in left:
                async with asyncio.timeout(PATIENCE):
                    wrong.extend(filter(None, [await posts.attempt(case, id)]))
            await posts.close()

        await asyncio.gather(*[attempt_all() for _ in range(CONNECTIONS)])
        posts = Posts(place, revision, session)
        method, params = ("ping", {}) if revision.stateful else ("server/discover", {"_meta": meta()})
        alive = await answer(await posts.send(body(method, params), session or standard(method)))
        assert alive.status == 200
        assert b'"result"' in alive.body
        await posts.close()
    assert not wrong, "\n".join(wrong[:20])
