"""Streams of a session: what is said on which, resuming, polling (basic/transports, 2025-03-26 to 2025-11-25)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2025_03, R2025_06, R2025_11, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.session.log import MemoryLog
from tests.behind import behind
from tests.transports.ends import until
from tests.transports.http.ends import reading, wire

from ..http_tools import Stage, tools
from ..http_wire import Events, Place, body, served
from ..replicas import settled

RESUMABLE = [R2025_03, R2025_06, R2025_11]


def text(message: Any) -> str:
    found: str = message["result"]["content"][0]["text"]
    return found


@pytest.mark.parametrize("revision", RESUMABLE, ids=lambda one: one.date)
async def test_what_a_call_says_goes_to_its_own_stream(both: tuple[Place, Stage], revision: Revision) -> None:
    place, _ = both
    sitting = await place.begin(revision)
    async with sitting.get() as home, sitting.stream(sitting.tool("talk", 5, "t", times=2)) as events:
        assert events.headers["content-type"] == "text/event-stream"
        first = await events.next()
        assert first is not None
        if revision.primed:
            # "The server SHOULD immediately send an SSE event consisting of an event ID and an empty `data` field"
            assert (first.data, first.id != "") == (b"", True)
            assert events.parser.retry == behind(place.server).options.retry
            first = await events.next()
            assert first is not None
        assert json.loads(first.data)["params"] == {"progressToken": "t", "progress": 1, "total": 2}
        ids = [first.id]
        while (event := await events.next()) is not None:
            ids.append(event.id)
            last = json.loads(event.data)
        assert text(last) == "said"
        assert len(set(ids)) == 3  # "the ID MUST be globally unique across all streams within that session"
        # "MUST NOT broadcast the same message across multiple streams": the home stream has nothing of it
        await place.ask(b"", sitting.headers, method="DELETE")
        assert await home.message() is None


@pytest.mark.parametrize("revision", RESUMABLE, ids=lambda one: one.date)
async def test_an_answer_at_once_is_a_stream_that_can_be_resumed(both: tuple[Place, Stage], revision: Revision) -> None:
    """It leaves in one piece, with the events that it would have had otherwise."""
    place, _ = both
    sitting = await place.begin(revision)
    only_streams = {"Accept": "text/event-stream"}
    async with sitting.stream(sitting.tool("add", 5, a=1, b=2), only_streams) as events:
        found = [event async for event in every(events)]
    assert [event.data == b"" for event in found] == ([True, False] if revision.primed else [False])
    answer = json.loads(found[-1].data)
    assert (answer["id"], text(answer)) == (5, "3")
    assert len({event.id for event in found} - {""}) == len(found)
    if revision.primed:
        assert events.parser.retry == behind(place.server).options.retry
        async with sitting.get(found[0].id) as again:
            assert [json.loads(event.data) async for event in every(again) if event.data] == [answer]


async def every(events: Events) -> AsyncIterator[Any]:
    """The events of a stream to its end."""
    while (event := await events.next()) is not None:
        yield event


async def test_a_question_comes_on_the_calls_stream_and_its_answer_by_another_post(both: tuple[Place, Stage]) -> None:
    place, _ = both
    sitting = await place.begin(capabilities={"elicitation": {}})
    async with sitting.stream(sitting.tool("ask")) as events:
        question = await events.message()
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"city": "Ulm"}}}
        assert (await sitting.post(json.dumps(answer).encode())).status == 202
        assert text(await events.message()) == "Ulm"
        assert (
            await events.message() is None
        )  # "After the JSON-RPC response has been sent, the server SHOULD terminate"


async def test_an_answer_that_cannot_be_read_fails_its_question_at_once(both: tuple[Place, Stage]) -> None:
    place, _ = both
    sitting = await place.begin(capabilities={"elicitation": {}})
    async with sitting.stream(sitting.tool("ask")) as events:
        id = (await events.message())["id"]
        refused = await sitting.post(b'{"jsonrpc":"2.0","id":%d,"result":{"action":%b}}' % (id, b"9" * 400))
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (400, -32700)
        answer = await events.message()
        assert (answer["id"], answer["result"]["isError"]) == (1, True)


async def test_unrelated_messages_go_to_the_home_stream(both: tuple[Place, Stage]) -> None:
    place, _ = both
    sitting = await place.begin()
    async with sitting.get() as home:
        assert (await home.next()).data == b""  # primed
        place.server.remove_tool("add")
        assert (await home.message())["method"] == "notifications/tools/list_changed"


async def test_what_comes_while_no_stream_is_open_waits(there: tuple[Place, Stage]) -> None:
    place, _ = there
    sitting = await place.begin()
    place.server.remove_tool("add")
    await settled()
    async with sitting.get() as home:
        assert (await home.message())["method"] == "notifications/tools/list_changed"


async def test_each_message_on_one_stream_only(there: tuple[Place, Stage]) -> None:
    """ "The server MUST send each of its JSON-RPC messages on only one of the connected streams"."""
    place, _ = there
    sitting = await place.begin()
    async with sitting.get() as older, sitting.get() as newer:
        await older.next()
        await newer.next()
        place.server.remove_tool("add")
        assert (await newer.message())["method"] == "notifications/tools/list_changed"
        await place.ask(b"", sitting.headers, method="DELETE")
        assert await older.rest() == await newer.rest() == []


@pytest.mark.parametrize("revision", RESUMABLE, ids=lambda one: one.date)
async def test_a_broken_stream_is_resumed(both: tuple[Place, Stage], revision: Revision) -> None:
    """ "replay messages that would have been sent after the last event ID, on the stream that was disconnected"."""
    place, stage = both
    sitting = await place.begin(revision)
    async with sitting.stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        assert (await events.message())["params"]["progress"] == 1
        last = events.parser.last_id
    stage.go.set()
    async with sitting.get(last) as again:
        second, answer = await again.rest()
        assert (second["params"]["progress"], text(answer)) == (2, "said")
        assert again.headers["content-type"] == "text/event-stream"
    async with sitting.get(last) as again:  # it can be taken up more than once
        assert len(await again.rest()) == 2
    async with sitting.get(again.parser.last_id) as again:
        assert await again.rest() == []
    assert not stage.cancelled.is_set()


async def test_a_stream_that_goes_on_is_resumed_live(both: tuple[Place, Stage]) -> None:
    place, stage = both
    sitting = await place.begin()
    async with sitting.stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last = events.parser.last_id
    async with sitting.get(last) as again:
        stage.go.set()
        assert [text(one) for one in (await again.rest())[1:]] == ["said"]


async def test_resuming_takes_the_stream_from_its_reader(there: tuple[Place, Stage]) -> None:
    place, stage = there
    sitting = await place.begin()
    async with sitting.stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        async with sitting.get(events.parser.last_id) as again:
            assert await events.message() is None
            stage.go.set()
            assert len(await again.rest()) == 2


async def test_a_home_stream_is_resumed(there: tuple[Place, Stage]) -> None:
    """ "This mechanism applies regardless of how the original stream was initiated (via POST or GET)"."""
    place, _ = there
    sitting = await place.begin()
    async with sitting.get() as home:
        await home.next()
        last = home.parser.last_id
        place.server.remove_tool("add")
        assert (await home.message())["method"] == "notifications/tools/list_changed"
    async with sitting.get(last) as again:
        assert (await again.message())["method"] == "notifications/tools/list_changed"
        place.server.remove_tool("talk")
        assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_a_stream_is_resumed_in_its_own_session_alone(there: tuple[Place, Stage]) -> None:
    """ "The server MUST NOT replay messages that would have been delivered on a different stream"."""
    place, stage = there
    mine, other = await place.begin(), await place.begin()
    async with mine.stream(mine.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last = events.parser.last_id
    found = await place.ask(b"", other.headers | {"Last-Event-ID": last}, method="GET")
    assert found.status == 400
    stage.go.set()


@pytest.mark.parametrize("event", ["1", "9-9", "1-99", "x-1", "1-x", "-1-1", "1-1-1", "²-1", "1" * 40 + "-0"])
async def test_ids_of_no_event(there: tuple[Place, Stage], event: str) -> None:
    place, _ = there
    sitting = await place.begin()
    async with sitting.stream(sitting.tool("talk", 3, "t")) as events:
        await events.rest()
    found = await place.ask(b"", sitting.headers | {"Last-Event-ID": event}, method="GET")
    assert (found.status, json.loads(found.body)["error"]["code"]) == (400, -32600)


async def test_polling(both: tuple[Place, Stage]) -> None:
    """ "the server MAY close the connection (without terminating the SSE stream) at any time", with a `retry` field
    before; "The client SHOULD then poll the SSE stream by attempting to reconnect"."""
    place, stage = both
    sitting = await place.begin()
    async with sitting.stream(sitting.tool("poll", 8)) as events:
        assert await events.rest() == []
        last = events.parser.last_id
        assert last
        assert events.parser.retry == behind(place.server).options.retry
    stage.go.set()
    async with sitting.get(last) as again:
        (answer,) = await again.rest()
        assert (answer["id"], text(answer)) == (8, "closed: True")


async def test_polling_for_the_rest_after_so_many_seconds() -> None:
    """What was said before and what comes after are one stream; `retry` is in milliseconds on the wire."""
    server, stage = tools()

    @server.tool
    async def talk_and_poll(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.close_stream(2.5)
        await stage.go.wait()
        return "rest"

    async with served(server) as place:
        sitting = await place.begin()
        async with sitting.stream(sitting.tool("talk_and_poll", 8, "t")) as events:
            assert (await events.message())["method"] == "notifications/progress"
            first = events.parser.last_id
            assert await events.rest() == []
            last, retry = events.parser.last_id, events.parser.retry
        assert retry == 2500
        stage.go.set()
        for id in (last, first):
            async with sitting.get(id) as again:
                assert text(await again.message()) == "rest"
                assert await again.rest() == []


async def test_revisions_that_do_not_poll(there: tuple[Place, Stage]) -> None:
    place, stage = there
    sitting = await place.begin(R2025_06)
    stage.go.set()
    found = await sitting.post(sitting.tool("poll", 8))
    assert text(json.loads(found.body)) == "closed: False"


async def test_streams_always_where_json_is_not_preferred() -> None:
    server, stage = tools(http=HttpOptions(json=False))
    async with served(server) as place:
        sitting = await place.begin()
        async with sitting.stream(sitting.tool("add", 4, a=1, b=2)) as events:
            assert events.headers["content-type"] == "text/event-stream"
            assert (await events.next()).data == b""
            assert text(await events.message()) == "3"
            last = events.parser.last_id
            assert await events.message() is None
        async with sitting.get(last.partition("-")[0] + "-0") as again:
            assert [text(one) for one in await again.rest()] == ["3"]
        async with sitting.stream(sitting.tool("slow", 5)) as events:
            assert (await events.next()).data == b""  # before anything else, so that the client can resume
            stage.go.set()
            assert text(await events.message()) == "done"


async def test_an_accept_of_json_alone(there: tuple[Place, Stage]) -> None:
    """A caller that takes no stream gets JSON; what its call says goes to the home stream."""
    place, _ = there
    sitting = await place.begin()
    async with sitting.get() as home:
        await home.next()
        found = await sitting.post(sitting.tool("talk", 5, "t", times=1), {"Accept": "application/json"})
        assert text(json.loads(found.body)) == "said"
        assert (await home.message())["params"]["progress"] == 1


async def test_keep_alive_of_the_home_stream() -> None:
    server, _ = tools(http=HttpOptions(keep_alive=0.02))
    async with served(server) as place:
        sitting = await place.begin()
        async with sitting.get() as home:
            reading = asyncio.create_task(home.message())
            await until(lambda: home.comments >= 2)
            await place.ask(b"", sitting.headers, method="DELETE")
            assert await reading is None


async def test_calls_in_a_session_run_side_by_side(both: tuple[Place, Stage]) -> None:
    place, stage = both
    sitting = await place.begin()
    slow = asyncio.create_task(sitting.post(sitting.tool("slow", 1)))
    await stage.started.wait()
    assert (await sitting.post(body("ping", id=2))).status == 200
    again = json.loads((await sitting.post(sitting.tool("add", 1, a=1, b=1))).body)  # the id is in flight
    assert again["error"]["code"] == -32600
    assert again["error"]["data"]["id"] == 1
    assert "id" not in again  # with the id it would settle the first call, and null is not an id in this revision
    stage.go.set()
    assert text(json.loads((await slow).body)) == "done"


# -- the log --------------------------------------------------------------------------------------

NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":%d}'


async def since(log: MemoryLog, number: int) -> list[tuple[int, bytes]]:
    return [(one.number, one.message) for one in await log.read(number)]


async def test_a_log_is_addressable() -> None:
    log = MemoryLog(10, 10_000)
    assert [log.append(NOTE % n) for n in range(3)] == [1, 2, 3]
    assert await since(log, 0) == [(n + 1, NOTE % n) for n in range(3)]
    assert await since(log, 2) == [(3, NOTE % 2)]
    assert await since(log, 3) == await since(log, 9) == []


async def test_a_full_log_drops_notifications_first() -> None:
    log = MemoryLog(3, 10_000)
    question = b'{"jsonrpc":"2.0","method":"elicitation/create","id":1}'
    for message in (question, NOTE % 1, NOTE % 2, NOTE % 3):
        log.append(message)
    assert [position for position, _ in await since(log, 0)] == [1, 3, 4]
    assert log.dropped == 1


async def test_a_log_keeps_its_newest_whatever_its_size() -> None:
    log = MemoryLog(10, 100)
    log.append(NOTE % 1)
    answer = b'{"jsonrpc":"2.0","result":"' + b"x" * 1000 + b'","id":1}'
    log.append(answer)
    assert await since(log, 0) == [(2, answer)]
    log.append(NOTE % 2)  # of what is not a notification, the oldest goes only for want of one
    assert [position for position, _ in await since(log, 0)] == [3]


async def test_a_slow_reader_loses_progress_and_no_answer() -> None:
    """What is unsent is bounded; of it the answer always stays."""
    server, _ = tools(http=HttpOptions(log_messages=20))

    @server.tool
    async def flood(ctx: Context) -> str:
        for step in range(2_000):
            await ctx.progress(step + 1, message="x" * 2_000)
        return "done"

    async with served(server) as place:
        sitting = await place.begin()
        async with wire(place.port, narrow=True) as (reader, writer):
            raw = sitting.tool("flood", 3, "t")
            writer.write(place.head(sitting.headers, len(raw)) + raw)
            await reader.readuntil(b"\r\n\r\n")
            reading(writer, False)
            await until(lambda: not behind(server).call_limit.in_flight)
            reading(writer, True)
            events = Events(reader, 200, {})
            *progress, last = await events.rest()
            assert text(last) == "done"
            assert 20 <= len(progress) < 2_000
            assert [one["params"]["progress"] for one in progress] == sorted(
                {one["params"]["progress"] for one in progress}
            )


async def test_a_plain_function_may_let_go_of_its_stream(both: tuple[Place, Stage]) -> None:
    place, _ = both

    @place.server.tool
    def poll_in_a_thread(ctx: Context) -> str:
        return f"closed: {bool(ctx.close_stream(0.01))}"

    sitting = await place.begin()
    async with sitting.stream(sitting.tool("poll_in_a_thread", 8)) as events:
        found = await events.rest()
        last = events.parser.last_id
        assert last
    if not found:
        async with sitting.get(last) as again:
            found = await again.rest()
    assert [text(one) for one in found] == ["closed: True"]


# -- answers over the limit -----------------------------------------------------------------------


@pytest.fixture(params=["native", "asgi"])
async def narrow(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Place, Stage]]:
    """A server whose answers are short, and that has a tool whose answer is not."""
    server, stage = tools(limits=SERVER.but(response_size=10_000))

    @server.tool
    async def long(ctx: Context, first: bool, wait: bool = False) -> str:
        if first:
            await ctx.progress(1)
        if wait:
            await stage.go.wait()
        return "x" * 20_000

    async with served(server, request.param) as place:
        yield place, stage


def too_large(message: Any) -> bool:
    """Whether it is the error that names the limit."""
    found = message["error"]
    assert (found["data"]["limit"], found["data"]["allowed"]) == ("response_size", 10_000)
    return bool(found["code"] == -32600 and message["id"] == 3)


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json", "text/event-stream"])
@pytest.mark.parametrize("first", [True, False], ids=["stream", "at once"])
@pytest.mark.parametrize("revision", RESUMABLE, ids=lambda one: one.date)
async def test_an_answer_over_the_limit_is_an_error_that_names_it(
    narrow: tuple[Place, Stage], revision: Revision, first: bool, accept: str
) -> None:
    place, _ = narrow
    sitting = await place.begin(revision)
    async with sitting.stream(sitting.tool("long", 3, "t", first=first), {"Accept": accept}) as events:
        if events.headers["content-type"] == "application/json":
            assert too_large(json.loads(await events.reader.readexactly(int(events.headers["content-length"]))))
        else:
            *told, answer = await events.rest()
            assert too_large(answer)
            assert len(told) == first
    after = await sitting.post(sitting.tool("add", 4, a=1, b=2))
    assert after.status == 200
    assert b'"3"' in after.body


async def test_a_client_that_resumes_for_an_answer_over_the_limit_is_told(narrow: tuple[Place, Stage]) -> None:
    place, stage = narrow
    sitting = await place.begin()
    async with sitting.stream(sitting.tool("long", 3, "t", first=True, wait=True)) as events:
        await events.message()
        last = events.parser.last_id
    stage.go.set()
    await until(lambda: not behind(place.server).call_limit.in_flight)
    async with sitting.get(last) as again:
        (answer,) = await again.rest()
        assert too_large(answer)
