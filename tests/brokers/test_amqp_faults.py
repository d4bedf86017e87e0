"""RabbitMQ when things break: workers that die, a broker that restarts, hangs, or is away for a while."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dragoman import Service, connect, serve
from dragoman.jsonrpc.errors import CallTimeout

from .engines import Engine, name
from .worker import Done, service, worker

PATIENCE = 60.0
YOUNG = 1.5
"""Seconds after which RabbitMQ has a new quorum queue on disk: one that is killed before has no leader ever after."""


async def until(done: Callable[[], bool]) -> None:
    """Let the loop run until `done()`; for what no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def calling(caller: Callable[[int, asyncio.Event], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Twenty callers for the length of the block: told to stop when it ends well, cancelled when it does not."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for who in range(20):
            group.create_task(caller(who, stop))
        yield
        stop.set()


async def test_a_killed_worker_s_calls_are_done_by_another_and_marked(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}?deliveries=20"
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
            for n in range(6):
                victim = workers[n % 2]
                seen = len(ended)
                await until(lambda: len(ended) >= seen + 40)  # noqa: B023
                await victim.kill()
                kills += 1
                workers[n % 2] = await stack.enter_async_context(worker(url))
    marked = sum(done.redelivered > 0 for done in ended)
    print(f"\n{kills} workers killed; {calls} calls, {len(ended)} answered, {marked} of them marked as redelivered")
    assert len(ended) == calls
    assert marked > 0
    assert len({done.pid for done in ended}) > 2


@pytest.mark.parametrize("hard", [False, True])
async def test_the_broker_restarts_under_load(rabbitmq: Engine, hard: bool) -> None:
    rabbitmq.control()
    url = f"{rabbitmq.url}/{name()}?deliveries=50"
    runs: collections.Counter[str] = collections.Counter()
    api = Service("counter")

    @api.method
    async def count(what: str) -> str:
        await asyncio.sleep(0.01)
        runs[what] += 1
        return what

    async with serve(api, urls=[url]), connect(url, timeout=PATIENCE) as peer:
        ended: collections.Counter[str] = collections.Counter()

        async def caller(who: int, stop: asyncio.Event) -> None:
            n = 0
            while not stop.is_set():
                what = f"{who}-{n}"
                n += 1
                try:
                    assert await peer.call("count", [what]) == what
                    ended["answered"] += 1
                except (CallTimeout, ConnectionError) as fault:
                    ended[type(fault).__name__] += 1

        back = []
        await asyncio.sleep(YOUNG)
        async with calling(caller):
            for _ in range(2):
                before = ended["answered"]
                await until(lambda: ended["answered"] >= before + 100)  # noqa: B023
                await rabbitmq.restart(hard=hard)
                there = time.monotonic()
                before = ended["answered"]
                await until(lambda: ended["answered"] >= before + 50)  # noqa: B023
                back.append(time.monotonic() - there)
    twice = sum(times > 1 for times in runs.values())
    print(f"\n2 restarts; {dict(ended)}; {twice} of {len(runs)} run twice; calls went on after {max(back):.1f} s")
    assert set(ended) == {"answered"}
    assert twice <= 20  # what ran while the broker went, at most: its answer is kept and not run again


async def test_calls_made_while_the_broker_is_away_are_sent_when_it_is_back(rabbitmq: Engine) -> None:
    rabbitmq.control()
    url = f"{rabbitmq.url}/{name()}"
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        await asyncio.sleep(YOUNG)
        await rabbitmq.kill()
        calls = [asyncio.create_task(peer.call("add", [n, 1])) for n in range(10)]
        with pytest.raises(CallTimeout):
            await peer.call("add", [1, 2], timeout=0.1)
        await rabbitmq.start()
        assert await asyncio.gather(*calls) == list(range(1, 11))


async def test_a_call_in_flight_outlives_a_restart_of_the_broker(rabbitmq: Engine) -> None:
    rabbitmq.control()
    url = f"{rabbitmq.url}/{name()}"
    begun, go = asyncio.Event(), asyncio.Event()
    runs = 0
    api = Service("slow")

    @api.method
    async def work() -> int:
        nonlocal runs
        runs += 1
        begun.set()
        await go.wait()
        return runs

    async with serve(api, urls=[url]), connect(url, timeout=PATIENCE) as peer:
        call = asyncio.create_task(peer.call("work"))
        await begun.wait()
        await rabbitmq.restart()
        go.set()
        assert await call == 1
    assert runs == 1  # it came again while it ran, and was not run again


async def test_a_broker_that_hangs_is_noticed(rabbitmq: Engine) -> None:
    """Half-open: the sockets are there, nobody answers. Calls end in their deadline; when the broker is back they go on."""
    rabbitmq.control()
    url = f"{rabbitmq.url}/{name()}?heartbeat=2"
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        rabbitmq.freeze()
        try:
            with pytest.raises(CallTimeout):
                await peer.call("add", [1, 2], timeout=0.5)
            waiting = asyncio.create_task(peer.call("add", [2, 2]))
            await asyncio.wait(
                [waiting], timeout=4
            )  # longer than the heartbeat: both ends have given up the connection
            assert not waiting.done()
        finally:
            rabbitmq.thaw()
        assert await waiting == 4


async def test_closing_while_the_broker_is_away(rabbitmq: Engine) -> None:
    rabbitmq.control()
    url = f"{rabbitmq.url}/{name()}"
    try:
        async with asyncio.timeout(PATIENCE):
            async with serve(service(), urls=[url]), connect(url) as peer:
                assert await peer.call("add", [1, 2]) == 3
                await asyncio.sleep(YOUNG)
                await rabbitmq.kill()
    finally:
        await rabbitmq.start()


async def test_a_deleted_queue_comes_back(rabbitmq: Engine) -> None:
    """The broker cancels a consumer whose queue is taken away."""
    queue = name()
    url = f"{rabbitmq.url}/{queue}"
    from dragoman.bus.amqp import Line
    from dragoman.transports.urls import parse

    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        line = Line(parse(rabbitmq.url), vhost="")
        await line.begin()
        await line.delete(queue)
        await line.close()
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    assert await peer.call("add", [1, 2]) == 3
                    break
                except ConnectionError:  # Unroutable, until the worker has made its queue again
                    await asyncio.sleep(0.05)
