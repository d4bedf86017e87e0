"""Questions whose client has gone: they end once they cannot be answered any more, and give way to others before."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server
from tests.behind import behind
from tests.transports.ends import until

from ..http_tools import City, Stage, tools
from ..http_wire import Sitting, body
from ..replicas import KINDS, Ring, sessions

ASKS: dict[str, Any] = {"elicitation": {}}
SOON = HttpOptions(resume=0.05)
LATE = HttpOptions(resume=3_600.0)


def asking(**more: Any) -> tuple[Server, Stage]:
    """Tools that ask, in every way."""
    server, stage = tools(**more)

    @server.tool
    async def book(ctx: Context) -> str:
        return str(await ctx.elicit("where?", City))

    @server.tool
    def book_in_thread(ctx: Context) -> str:
        return str(ctx.elicit("where?", City))

    @server.tool
    async def keeps_on(ctx: Context) -> str:
        """It does not let itself be cancelled."""
        try:
            return str(await ctx.elicit("where?", City))
        except asyncio.CancelledError:
            await stage.go.wait()
            return "late"

    return server, stage


async def asked(sitting: Sitting, tool: str = "book", id: Any = 2) -> Any:
    """Call a tool that asks, and go once the question is there. Gives it, and the id of its event."""
    async with sitting.stream(sitting.tool(tool, id)) as events:
        while True:
            event = await events.next()
            assert event is not None
            if event.data:
                return json.loads(event.data), event.id


def answered(question: Any) -> bytes:
    result = {"action": "accept", "content": {"city": "Rome"}}
    return json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode()


def in_flight(place: Ring) -> int:
    return sum(behind(one).call_limit.in_flight for one in place.servers)


@KINDS
@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
@pytest.mark.parametrize("tool", ["book", "book_in_thread", "keeps_on"])
async def test_it_ends_when_its_stream_can_no_longer_be_resumed(
    kind: str, tool: str, revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="dragoman.mcp")
    async with sessions(kind, make=asking, http=SOON) as place:
        sitting = place.at(0, await place.begin(revision, ASKS))
        question, id = await asked(sitting, tool)
        await until(lambda: not in_flight(place))
        async with sitting.get(id) as again:
            found = await again.rest() if again.status == 200 else []
        assert not any("result" in one or "error" in one for one in found if isinstance(one, dict))
        assert (await sitting.post(answered(question))).status == 202  # it comes too late, and harms nothing
        assert (await sitting.post(body("ping", id=3))).status == 200
        place.stages[0].go.set()
        hosts = [behind(server).host for server in place.servers]
        await until(lambda: not any(host.runs for host in hosts))
    assert "elicitation/create cannot be answered any more" in caplog.text
    assert not [one for one in caplog.records if one.levelno > 10]


@KINDS
async def test_who_returns_in_time_is_still_asked(kind: str) -> None:
    async with sessions(kind, make=asking, http=LATE) as place:
        sitting = place.at(0, await place.begin(R2025_11, ASKS))
        question, id = await asked(sitting)
        async with sitting.get(id) as again:
            assert again.status == 200
            assert (await sitting.post(answered(question))).status == 202
            message = await again.message()
            assert "Rome" in message["result"]["content"][0]["text"]


@KINDS
async def test_who_reads_is_waited_for(kind: str) -> None:
    """However long a stream that broke can be resumed."""
    async with sessions(kind, make=asking, http=SOON) as place:
        stays, goes = [place.at(0, await place.begin(R2025_11, ASKS)) for _ in range(2)]
        async with stays.stream(stays.tool("book", 2)) as events:
            question = None
            while question is None:
                event = await events.next()
                assert event is not None
                question = json.loads(event.data) if event.data else None
            for number in range(3):
                await asked(goes, id=number)
                await until(lambda: in_flight(place) == 1)
            assert (await stays.post(answered(question))).status == 202
            message = await events.message()
            assert "Rome" in message["result"]["content"][0]["text"]


async def test_on_replicas_a_reader_at_another_one_is_waited_for() -> None:
    async with sessions("replica", make=asking, http=SOON) as place:
        began = await place.begin(R2025_11, ASKS)
        here, there = place.at(0, began), place.at(1, began)
        async with here.stream(here.tool("book", 2)) as events:
            question = None
            while question is None:
                event = await events.next()
                assert event is not None
                question, id = (json.loads(event.data) if event.data else None), event.id
            async with there.get(id) as again:
                assert again.status == 200
                assert await events.next() is None  # it is read there from now on
                other = place.at(0, await place.begin(R2025_11, ASKS))
                for number in range(3):
                    await asked(other, id=number)
                    await until(lambda: in_flight(place) == 1)
                assert (await here.post(answered(question))).status == 202
                message = await again.message()
                assert "Rome" in message["result"]["content"][0]["text"]


@KINDS
@pytest.mark.parametrize("tool", ["book", "keeps_on"])
async def test_it_gives_way_to_a_call_for_which_there_is_no_slot(kind: str, tool: str) -> None:
    """The one that has waited longest, before its time; while all slots are wanted by those who are there, the next is
    refused as ever."""
    async with sessions(kind, make=asking, http=LATE) as place:
        server = place.places[0].server
        behind(server).restrict(server.limits.but(calls=3))
        for number in range(5):  # more than there are slots
            sitting = place.at(0, await place.begin(R2025_11, ASKS))
            await asked(sitting, tool, number)
        assert behind(server).call_limit.in_flight == 3
        here = place.at(0, await place.begin(R2025_11, ASKS))
        assert (await here.post(here.tool("add", 7, a=1, b=1))).status == 200
        calls = [asyncio.create_task(here.post(here.tool("slow", number))) for number in range(10, 13)]
        await until(lambda: sum(stage.slow for stage in place.stages) == 3)
        assert (await here.post(here.tool("slow", 20))).status == 503
        for stage in place.stages:
            stage.go.set()
        assert [found.status for found in await asyncio.gather(*calls)] == [200, 200, 200]
        await until(lambda: not behind(server).host.runs)


async def test_a_question_on_the_home_stream_ends_when_the_session_has_had_no_stream() -> None:
    """A caller that takes no stream is asked on its session's."""
    async with sessions("memory", make=asking, http=SOON) as place:
        sitting = await place.begin(R2025_11, ASKS)
        found = await sitting.post(sitting.tool("book"), {"Accept": "application/json"})
        assert found.status in (200, 406)
        await until(lambda: not in_flight(place))
        assert (await sitting.post(body("ping", id=3))).status == 200
