"""One service on several event loops: frameworks answer each request on a loop of its thread. What is bound to a loop
is kept for each, and what cannot be on two is refused in words."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dragoman import LocalError, Service, serve
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.runner import Runner
from dragoman.rpc.thread_pool import ThreadPool

CALL = b'{"jsonrpc":"2.0","method":"plain","id":1}'
ANSWER = b'{"jsonrpc":"2.0","result":1,"id":1}'
THREADS = 4


def waiting() -> Service:
    """A service whose middleware waits until calls of all threads are in it."""
    gate = threading.Barrier(THREADS)

    async def meet(call: Any, next: Any) -> Any:
        await asyncio.to_thread(gate.wait, 30)
        return await next(call)

    api = Service("it", middleware=[meet])

    @api.method
    def plain() -> int:
        return 1

    return api


def test_answers_on_loops_of_several_threads_at_once() -> None:
    api = waiting()

    def thread(_: int) -> list[bytes | None]:
        async def main() -> list[bytes | None]:
            return [await api.answer_async(CALL) for _ in range(5)]

        return asyncio.run(main())

    with ThreadPoolExecutor(THREADS) as threads:
        answers = [answer for some in threads.map(thread, range(THREADS)) for answer in some]
    assert answers == [ANSWER] * 5 * THREADS


def test_what_is_kept_for_a_loop_goes_when_it_is_closed() -> None:
    api = Service("it")
    api.method(name="plain")(lambda: 1)
    for _ in range(50):
        assert asyncio.run(api.answer_async(CALL)) == ANSWER
    assert len(api._runners) == 1


def test_a_runner_whose_calls_run_on_another_loop_is_refused() -> None:
    api = waiting()
    runner, begun = Runner(api), threading.Event()

    async def first() -> bytes | None:
        answer = asyncio.ensure_future(runner.answer(CALL))
        while not runner.runs:  # noqa: ASYNC110 - the call begins in one of the next turns
            await asyncio.sleep(0)
        begun.set()
        return await answer

    async def second() -> None:
        with pytest.raises(LocalError, match="it is served on another event loop, in another thread"):
            await runner.answer(CALL)

    async def others() -> None:
        await asyncio.gather(*(api.answer_async(CALL) for _ in range(THREADS - 1)))

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(asyncio.run, first())
        assert begun.wait(30)
        threads.submit(asyncio.run, second()).result(30)
        threads.submit(asyncio.run, others()).result(30)
        assert one.result(30) == ANSWER


@pytest.mark.parametrize("lives", [False, True])
def test_a_concurrency_holds_while_the_lifespan_begins(lives: bool) -> None:
    at_once: list[int] = [0, 0]

    async def life(app: Service) -> AsyncIterator[None]:
        for _ in range(5):
            await asyncio.sleep(0)
        yield None

    api = Service("it", lifespan=life if lives else None)

    @api.method(concurrency=1)
    async def plain() -> int:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0)
        at_once[0] -= 1
        return 1

    @api.method(concurrency=1, queue=1)
    async def queued() -> int:
        return await plain()

    async def main() -> tuple[list[bytes | None], list[bytes | None]]:
        some = await asyncio.gather(*(api.answer_async(CALL) for _ in range(5)))
        return some, await asyncio.gather(*(api.answer_async(CALL.replace(b"plain", b"queued")) for _ in range(5)))

    answers, others = asyncio.run(main())
    assert answers == [ANSWER] * 5
    assert at_once == [0, 1]
    assert sum(b'"limit":"concurrency of queued"' in (one or b"") for one in others) == 3


@pytest.mark.parametrize("limits", [None, Limits(calls=10)])
async def test_middleware_that_comes_while_it_is_served_surrounds_methods_and_routes(limits: Limits | None) -> None:
    api, seen = Service("it"), []

    @api.method
    async def plain() -> int:
        return 1

    @api.route("/route")
    async def route(request: Any) -> str:
        return "ok"

    async def noted(call: Any, next: Any) -> Any:
        seen.append(call.method)
        return await next(call)

    async with serve(api, urls=["http://127.0.0.1:0"], limits=limits) as serving:
        api.use(noted)
        host, port = serving.urls[0].removeprefix("http://").rstrip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /route HTTP/1.1\r\nhost: %b\r\n\r\n" % host.encode())
        assert b" 200 " in await reader.readline()
        head = b"POST / HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % (host.encode(), len(CALL)) + CALL)
        await reader.readuntil(ANSWER)
        writer.close()
    assert seen == ["GET /route", "plain"]


def test_a_closed_loop_takes_nothing_however_often_it_is_told() -> None:
    loop = asyncio.new_event_loop()
    pool = ThreadPool(loop, 1, "it")
    loop.close()
    assert [pool.call_soon(print) for _ in range(3)] == [False] * 3
    assert not pool._queue.callbacks
