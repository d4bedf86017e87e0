"""What every broker does alike when something breaks: workers that die; a broker that restarts, hangs, or is away."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.channel import Broken
from dragoman.engines.amqp.connection import AmqpConnection
from dragoman.engines.nats.stream import Puller
from dragoman.engines.redis import connection
from dragoman.jsonrpc.errors import CallTimeout
from dragoman.transports.broker import channel as broker_channel
from dragoman.transports.broker.contract import BrokerMessage

from .brokers import Engine
from .wires import (
    AMQP,
    DURABLE,
    MAIN,
    PATIENCE,
    REAL,
    REDIS,
    STREAM,
    YOUNG,
    Wire,
    adapter,
    calculator,
    over,
    plus,
    until,
)
from .worker import Done, service, worker

CALLERS = 16


@asynccontextmanager
async def calling(caller: Callable[[int, asyncio.Event], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Some callers for the length of the block: told to stop when it ends well, cancelled when it does not."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for who in range(CALLERS):
            group.create_task(caller(who, stop))
        yield
        stop.set()


async def old_enough(wire: Wire) -> None:
    """A queue of RabbitMQ must be on disk before the broker is killed."""
    if wire.engine == "rabbitmq":
        await asyncio.sleep(YOUNG)


# -- workers --------------------------------------------------------------------------------------


@over(AMQP, STREAM, REDIS)
async def test_a_killed_worker_loses_nothing(wire: Wire, url: str) -> None:
    url = plus(url, wire.quick)
    api = Service("other")

    @api.method
    async def hold(ctx: Context) -> int:
        return ctx.redelivered

    async with asyncio.timeout(PATIENCE), worker(url) as first, connect(url, timeout=PATIENCE) as peer:
        calls = [asyncio.create_task(peer.call("hold")) for _ in range(5)]
        await first.held(5)
        await first.kill()
        async with serve(api, urls=[url]):
            # the least: a stream gives out again what a worker that the machine held up had no time to report
            assert min(await asyncio.gather(*calls)) >= 1


@over(AMQP, STREAM)
async def test_a_worker_that_dies_while_it_gives_back_leaves_two_that_are_marked(
    wire: Wire, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has published the copy and not acknowledged the request."""
    url = plus(url, wire.quick)
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE), adapter(url, serving=True) as last:
        async with adapter(url, serving=True) as first:
            await first.work(got.put_nowait, 1)
            await first.request(BrokerMessage(body=b"?", correlation="1", headers={"key": "1", "deadline": "9"}), None)
            message = await got.get()
            await first.pause()
            monkeypatch.setattr(AmqpConnection, "settle", lambda *_: None)
            monkeypatch.setattr(Puller, "_acknowledge", lambda *_: None)
            message.settle("retry")
        monkeypatch.undo()
        await last.work(got.put_nowait, 2)
        both = [await got.get() for _ in range(2)]
        for one in both:
            one.settle("nothing_owed")
    assert sorted((one.count, one.headers.get("again", "0")) for one in both) == [(0, "1"), (1, "0")]
    assert {(one.body, one.correlation, one.headers["key"], one.headers["deadline"]) for one in both} == {
        (b"?", "1", "1", "9")
    }


@over(AMQP, STREAM, REDIS)
async def test_workers_are_killed_under_load(wire: Wire, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every call ends in its answer, some of them are marked, and all workers had their share."""
    url = plus(url, wire.quick, "deliveries=50")
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(url)) for _ in range(2)]
        peer = await stack.enter_async_context(connect(url, timeout=PATIENCE))
        ended: list[Done] = []
        calls = kills = 0

        async def caller(who: int, stop: asyncio.Event) -> None:
            nonlocal calls
            while not stop.is_set():
                calls += 1
                ended.append(await peer.call("work", [0.02], result=Done))

        async with calling(caller):
            for kills in range(6):
                seen = len(ended)
                await until(lambda: len(ended) >= seen + 40)  # noqa: B023
                await workers[kills % 2].kill()
                workers[kills % 2] = await stack.enter_async_context(worker(url))
    marked = sum(done.redelivered > 0 for done in ended)
    with capsys.disabled():
        print(
            f"\n{wire.name}, {kills + 1} workers killed: {calls} calls, {len(ended)} answered, {marked} of them marked"
        )
    assert len(ended) == calls
    assert marked > 0
    assert len({done.pid for done in ended}) > 2


@over(STREAM, REDIS)
async def test_a_busy_worker_keeps_what_it_has(wire: Wire, url: str) -> None:
    """More than twice the time after which a silent worker's go to others, in one handler."""
    url, runs = plus(url, wire.quick), list[int]()
    api = Service("slow")

    @api.method
    async def slow(ctx: Context) -> str:
        runs.append(ctx.redelivered)
        await asyncio.sleep(4.5)
        return "done"

    async with serve(api, urls=url), serve(api, urls=url), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("slow") == "done"
    assert runs == [0]


# -- the broker -----------------------------------------------------------------------------------


@MAIN
async def test_restarts_under_load(wire: Wire, engine: Engine, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Some soft, some hard. Every call ends as the row says it may, soon all is at work again, and what runs twice is
    marked, or was under way when the broker went."""
    engine.control()
    url = plus(url, "deliveries=50")
    ends: collections.Counter[str] = collections.Counter()
    runs: collections.Counter[str] = collections.Counter()
    unmarked: collections.Counter[str] = collections.Counter()
    back: list[float] = []
    loop = asyncio.get_running_loop()
    here: list[collections.Counter[str]] = []

    def counter() -> Service:
        """A worker that counts what it runs."""
        api, mine = Service("counter"), collections.Counter[str]()
        here.append(mine)

        @api.method
        async def count(what: str, ctx: Context) -> str:
            runs[what] += 1
            mine[what] += 1
            unmarked[what] += not ctx.redelivered
            await asyncio.sleep(0.005)
            return what

        return api

    timeout = 10 if "CallTimeout" in wire.ends else PATIENCE
    async with serve(counter(), urls=url), serve(counter(), urls=url), connect(url, timeout=timeout) as peer:

        async def caller(who: int, stop: asyncio.Event) -> None:
            n = 0
            while not stop.is_set():
                n += 1
                try:
                    assert await peer.call("count", [f"{who}-{n}"]) == f"{who}-{n}"
                    ends["answered"] += 1
                except (Broken, CallTimeout) as fault:
                    ends[type(fault).__name__] += 1

        await old_enough(wire)
        async with calling(caller):
            for turn in range(wire.restarts):
                before = ends["answered"]
                await until(lambda: ends["answered"] >= before + 100)  # noqa: B023
                await engine.restart(hard=turn % 2 == 1)
                since, before = loop.time(), ends["answered"]
                await until(lambda: ends["answered"] >= before + 50)  # noqa: B023
                back.append(loop.time() - since)
    twice = sum(times > 1 for times in runs.values())
    blind = sum(times > 1 for times in unmarked.values())
    with capsys.disabled():
        print(
            f"\n{wire.name}, {wire.restarts} restarts: {dict(ends)}; {twice} of {len(runs)} run twice, {blind} of these "
            f"unmarked; at work again after {max(back):.1f} s at most"
        )
    assert set(ends) <= wire.ends
    if not wire.durable:
        assert twice == 0
    if wire is AMQP:  # what comes back to the worker that ran it is answered from what it keeps, and not run again
        assert [what for mine in here for what, times in mine.items() if times > 1] == []
    if wire is STREAM:
        assert blind == 0


@DURABLE
async def test_a_call_outlives_a_restart(wire: Wire, engine: Engine, url: str) -> None:
    """One at work, one made while the broker is away: both are answered, and each has run once."""
    engine.control()
    began, gate, ran = asyncio.Event(), asyncio.Event(), list[str]()
    api = Service("patient")

    @api.method
    async def wait(who: str) -> str:
        ran.append(who)
        began.set()
        await gate.wait()
        return who

    async with serve(api, urls=url), connect(url, timeout=PATIENCE) as peer:
        first = asyncio.create_task(peer.call("wait", ["first"]))
        await began.wait()
        await old_enough(wire)
        await (engine.kill() if wire.hard else engine.stop())
        second = asyncio.create_task(peer.call("wait", ["second"]))
        gate.set()
        await asyncio.sleep(0)
        await engine.start()
        assert (await first, await second) == ("first", "second")
    assert ran == ["first", "second"]


@MAIN
async def test_calls_to_a_broker_that_is_away_end_in_their_time_or_wait_for_it(
    wire: Wire, engine: Engine, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log tells of the outage: once for each end, whatever is tried meanwhile, and of its end."""
    engine.control()
    caplog.set_level(logging.INFO)
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        await old_enough(wire)
        await engine.kill()
        calls = [asyncio.create_task(peer.call("add", [n, 1])) for n in range(10)]
        try:
            with pytest.raises(CallTimeout):
                await peer.call("add", [1, 2], timeout=1.0)
        finally:
            await engine.start()
        assert await asyncio.gather(*calls) == list(range(1, 11))
        assert await peer.call("add", [1, 2]) == 3

        def back() -> int:
            return len([record for record in caplog.records if record.message.endswith(" is back")])

        await until(lambda: back() >= 2)  # of several connections the one that carries calls may be the first back
    told = [record for record in caplog.records if "is lost, coming back: " in record.message]
    assert [record.levelno for record in told] == [logging.WARNING] * 2, caplog.text
    assert back() == 2


@REAL
async def test_a_broker_that_hangs_is_noticed(
    wire: Wire, engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open: the sockets are there, without an answer. Calls end in their deadline; when the broker is back they
    go on, where it keeps them."""
    engine.control()
    monkeypatch.setattr(connection, "PATIENCE", 2.5)
    url = plus(url, wire.quick)
    states: asyncio.Queue[bool] = asyncio.Queue()
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer, adapter(url) as one:
        one.on_state = lambda online, why: states.put_nowait(online)
        await one.mailbox(lambda message: message.settle("answered"))
        assert await peer.call("add", [1, 2]) == 3
        engine.freeze()
        try:
            with pytest.raises(CallTimeout):
                await peer.call("add", [1, 2], timeout=0.5)
            waiting = asyncio.create_task(peer.call("add", [2, 2]))
            async with asyncio.timeout(PATIENCE):
                assert await states.get() is False
                with pytest.raises(ConnectionError):
                    await one.request(BrokerMessage(body=b"x"), None)
                if not wire.durable:
                    with pytest.raises(Broken, match="lost"):
                        await waiting
            assert waiting.done() is not wire.durable
        finally:
            engine.thaw()
        async with asyncio.timeout(PATIENCE):
            while not await states.get():
                pass
        if wire.durable:
            assert await waiting == 4
        assert await peer.call("add", [1, 2]) == 3


@MAIN
async def test_closing_while_the_broker_is_away(wire: Wire, engine: Engine, url: str) -> None:
    engine.control()
    try:
        async with asyncio.timeout(PATIENCE):
            async with serve(service(), urls=[url]), connect(url) as peer:
                assert await peer.call("add", [1, 2]) == 3
                await old_enough(wire)
                await engine.kill()
    finally:
        await engine.start()


@over(AMQP, REDIS)
async def test_what_the_broker_does_not_confirm_is_told(
    wire: Wire, engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is there, as far as one can see, and calls wait: once in the log, however long they do."""
    engine.control()
    monkeypatch.setattr(broker_channel, "UNCONFIRMED", 0.1)
    async with serve(calculator(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        engine.freeze()
        try:
            calls = [asyncio.create_task(peer.call("add", [n, 1])) for n in range(3)]
            with pytest.raises(CallTimeout):
                await peer.call("add", [1, 2], timeout=0.6)
        finally:
            engine.thaw()
        assert await asyncio.gather(*calls) == [1, 2, 3]
    (told,) = [record for record in caplog.records if "does not confirm" in record.message]
    assert told.levelno == logging.WARNING
    assert "messages wait, the first for " in told.message
