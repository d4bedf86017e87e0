"""What a far end can make happen again and again is a line and a count in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.mcp import Client
from dragoman.repeats import Repeats, _all
from tests.mcp.scripted import Message, Result, legacy, modern, notification, said
from tests.rpc.test_peer import until

LOGGER = logging.getLogger("dragoman.repeating")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def sum_up() -> None:
    """As at the end of the process."""
    for one in [*_all]:
        one.sum_up()


def test_the_first_is_a_line_and_the_rest_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    repeats = Repeats(LOGGER, clock=lambda: now)
    for number in range(30_000):
        repeats.warning("%s came", number)
    repeats.error("another of %s", "a")
    assert lines(caplog) == ["0 came", "another of a"]
    now = 61.0
    repeats.sum_up()
    assert lines(caplog)[2:] == ["29999 came (the last of 29999 more within 61 s)"]
    repeats.sum_up()
    repeats.warning("%s came", "again")
    assert len(lines(caplog)) == 3
    repeats.forget()
    repeats.warning("%s came", "anew")
    assert lines(caplog)[3:] == ["anew came"]


def test_the_next_event_after_the_period_tells_the_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    repeats = Repeats(LOGGER, clock=lambda: now)
    for number in range(3):
        repeats.warning("%s came", number)
    now = 60.0
    repeats.warning("%s came", 3)
    assert lines(caplog) == ["0 came", "3 came (the last of 3 more within 60 s)"]
    now = 120.0
    repeats.warning("%s came", 4)
    assert lines(caplog)[2:] == ["4 came"]


async def test_a_loop_tells_the_count_at_the_end_of_the_period(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats(LOGGER, period=0.01)
    while len(lines(caplog)) < 2 or "more" not in lines(caplog)[-1]:
        for number in range(10):
            repeats.warning("%s came", number)
        async with asyncio.timeout(30):
            await asyncio.sleep(0)


def test_debug_shows_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER.name):
        repeats = Repeats(LOGGER)
        for _ in range(5):
            repeats.warning("it came")
    assert [one.levelno for one in caplog.records] == [logging.WARNING, *[logging.DEBUG] * 4]


def test_what_is_not_logged_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats(LOGGER)
    for _ in range(2):
        repeats.log(logging.DEBUG, "it came")
    repeats.sum_up()
    assert lines(caplog) == []


def flood(message: Message) -> Iterable[Any]:
    """What servers may write at will."""
    if message.get("method") == "tools/list":
        bad = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "a b"}}}
        yield Result(
            {"resultType": "complete", "tools": [{"name": f"t{one}", "inputSchema": bad} for one in range(50)]}
        )
        return
    if message.get("method") != "tools/call":
        return
    token = message["params"].get("_meta", {}).get("progressToken")
    for number in range(1_000):
        yield b'{"jsonrpc":"2.0","method":5}'
        yield notification("notifications/unheard_of", number=number)
        yield notification("notifications/message", level="info", data=number)
        yield notification("notifications/progress", progressToken=token, progress=number + 1)
        yield {"jsonrpc": "2.0", "id": f"unasked-{number}", "result": {}}
    yield said("done")


@pytest.mark.parametrize("server", [modern, legacy])
async def test_a_chatty_server_does_not_flood_the_log(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*told: Any) -> None:
        raise ZeroDivisionError

    async with Client(server(flood), on_notification=fails, on_log=fails) as client:
        await client.call_tool("t", on_progress=fails)
        await client.call_tool("t", on_progress=fails)
    sum_up()
    told = lines(caplog)
    assert 2 <= len(told) <= 8, told
    assert sum("more within" in one for one in told) == len(told) // 2


async def test_a_chatty_client_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method(inline=True)
    def fine() -> int:
        return 1

    async with serve(api, urls="tcp://127.0.0.1:0") as serving:
        host, port = serving.urls[0].removeprefix("tcp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b'{"jsonrpc":"2.0","method":5}\n{"jsonrpc":"2.0","method":"nosuch"}\n[]\n' * 500)
        writer.write(b'{"jsonrpc":"2.0","method":"fine","id":7}\n')
        async with asyncio.timeout(30):
            while b'"id":7' not in await reader.readline():
                pass
        writer.close()
    sum_up()
    assert len(lines(caplog)) <= 2


async def test_a_client_that_closes_while_it_is_notified_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    api, near = Service("api"), Service("near")
    begun, closing, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @near.method
    async def heard(number: int) -> None:
        begun.set()
        await go.wait()

    @api.method
    async def chatter(ctx: Context) -> None:
        await ctx.notify("heard", [0])
        await closing.wait()
        for number in range(200):
            await ctx.notify("heard", [number])

    def dropped() -> bool:
        return any(one.getMessage().endswith("dropped: draining") for one in caplog.records)

    with caplog.at_level(logging.DEBUG, "dragoman"):
        async with serve(api, urls="tcp://127.0.0.1:0") as serving, asyncio.timeout(30):
            peer = await connect(serving.urls[0], service=near)
            await peer.notify("chatter")
            await begun.wait()
            ends = asyncio.create_task(peer.close())
            await asyncio.sleep(0)
            closing.set()
            await until(dropped)
            go.set()
            await ends
    assert lines(caplog) == []
