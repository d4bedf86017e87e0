"""Worker threads: order, bounds, what is given up, and how they end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dragoman.rpc.thread_pool import ThreadPool


@pytest.fixture
async def pool() -> AsyncIterator[ThreadPool]:
    made = ThreadPool(asyncio.get_running_loop(), 2, "test")
    yield made
    made.close()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it did not come about")


def threads(name: str) -> int:
    return sum(thread.name.startswith(f"{name}_") for thread in threading.enumerate())


async def test_work_that_blocks_delays_nothing_behind_it(pool: ThreadPool) -> None:
    gate = threading.Event()
    blocked = pool.submit(gate.wait, ())
    rest = [pool.submit(str, (n,)) for n in range(100)]
    assert await asyncio.gather(*(work.future for work in rest)) == [str(n) for n in range(100)]
    assert not blocked.future.done()
    gate.set()
    assert await blocked.future is True


async def test_no_more_threads_than_allowed_and_none_without_work(pool: ThreadPool) -> None:
    await until(lambda: threads("test") == 0)  # those of other pools end by themselves
    gate, begun = threading.Event(), []

    def hold(n: int) -> None:
        begun.append(n)
        gate.wait()

    held = [pool.submit(hold, (n,)) for n in range(3)]
    await until(lambda: len(begun) == 2)
    assert threads("test") == 2
    gate.set()
    await asyncio.gather(*(work.future for work in held))
    assert begun == [0, 1, 2]


async def test_what_a_thread_tells_comes_before_the_end_of_its_work(pool: ThreadPool) -> None:
    for _ in range(200):
        heard: list[Any] = []

        def work(heard: list[Any] = heard) -> str:
            for step in range(3):
                assert pool.call_soon(heard.append, step)
            return "end"

        heard.append(await pool.submit(work, ()).future)
        assert heard == [0, 1, 2, "end"]


def test_the_loop_is_woken_once_for_all_that_is_ready() -> None:
    class Counting(asyncio.SelectorEventLoop):
        woken = 0

        def call_soon_threadsafe(self, callback: Any, *arguments: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
            self.woken += 1
            return super().call_soon_threadsafe(callback, *arguments, context=context)

    async def main(loop: Counting) -> None:
        pool = ThreadPool(loop, 2, "counted")
        done = threading.Semaphore(0)
        works = [pool.submit(done.release, ()) for _ in range(50)]
        for _ in range(50):  # the loop stands still meanwhile
            done.acquire()
        await asyncio.gather(*(work.future for work in works))
        assert loop.woken <= 4
        pool.close()

    with asyncio.Runner(loop_factory=Counting) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Counting)
        runner.run(main(loop))


async def test_work_given_up_before_it_began_never_runs(pool: ThreadPool) -> None:
    gate = threading.Event()
    ran: list[int] = []
    returned: list[int] = []
    held = [pool.submit(gate.wait, ()) for _ in range(2)]
    work = pool.submit(ran.append, (1,))
    work.future.cancel()
    assert not work.abandon(lambda: returned.append(1))
    gate.set()
    await asyncio.gather(*(one.future for one in held))
    await pool.submit(str, ()).future
    assert (ran, returned) == ([], [])


async def test_work_given_up_while_it_runs_reports_its_return(pool: ThreadPool) -> None:
    gate, begun, returned = threading.Event(), threading.Event(), []

    def hold() -> None:
        begun.set()
        gate.wait()
        raise ValueError("never seen")

    work = pool.submit(hold, ())
    assert begun.wait(10)
    work.future.cancel()
    assert work.abandon(lambda: returned.append(1))
    await pool.submit(str, ()).future
    assert returned == []
    gate.set()
    await until(lambda: returned == [1])


async def test_work_that_is_settled_cannot_be_given_up(pool: ThreadPool) -> None:
    work = pool.submit(int, ("x",))
    await until(work.future.done)
    assert not work.abandon(lambda: pytest.fail("it had returned before"))


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit])
async def test_what_a_future_cannot_carry_is_named(pool: ThreadPool, kind: type[BaseException]) -> None:
    def work() -> None:
        raise kind

    with pytest.raises(RuntimeError, match=f"raised {kind.__name__}"):
        await pool.submit(work, ()).future


async def test_each_function_sees_the_context_it_was_submitted_in(pool: ThreadPool) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    works = []
    for value in (1, 2):
        variable.set(value)
        works.append(pool.submit(variable.get, ()))
    assert [await work.future for work in works] == [1, 2]


async def test_a_callback_that_fails_takes_no_other_with_it(pool: ThreadPool) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

    def work() -> None:
        pool.call_soon(int, "x")

    await pool.submit(work, ()).future
    assert [type(one["exception"]) for one in told] == [ValueError]


async def test_closing_cancels_what_waits_and_ends_the_threads() -> None:
    pool = ThreadPool(asyncio.get_running_loop(), 1, "closed")
    gate = threading.Event()
    running, waiting = pool.submit(gate.wait, ()), pool.submit(str, ())
    await until(lambda: threads("closed") == 1)
    pool.close()
    assert waiting.future.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(str, ())
    gate.set()
    assert await running.future is True
    await until(lambda: threads("closed") == 0)


async def test_the_threads_of_a_forgotten_pool_end() -> None:
    pool = ThreadPool(asyncio.get_running_loop(), 2, "forgotten")
    await pool.submit(str, ()).future
    assert threads("forgotten") == 1
    del pool
    gc.collect()
    await until(lambda: threads("forgotten") == 0)


async def test_a_system_without_threads_is_an_error_and_leaves_nothing_behind(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="new thread"):
            pool.submit(str, (1,))
    assert await pool.submit(str, (2,)).future == "2"
    gate = threading.Event()
    held = pool.submit(gate.wait, ())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        later = pool.submit(str, (3,))  # the one thread comes to it
        gate.set()
        assert (await later.future, await held.future) == ("3", True)


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    begun, gate, heard = threading.Event(), threading.Event(), []

    async def main() -> ThreadPool:
        pool = ThreadPool(asyncio.get_running_loop(), 1, "late")

        def work() -> None:
            begun.set()
            gate.wait()
            heard.append(pool.call_soon(print))

        pool.submit(work, ()).future.cancel()
        assert await asyncio.to_thread(begun.wait, 10)
        return pool

    pool = asyncio.run(main())
    gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("late_"):
            pool.close()
            thread.join(10)
    assert heard == [False]


def test_at_exit_what_has_begun_returns_and_what_waits_never_begins() -> None:
    script = """
import asyncio, threading, time
from dragoman.rpc.thread_pool import ThreadPool

begun = threading.Event()

def work():
    begun.set()
    time.sleep(0.2)
    print("returned")

async def main():
    global pool
    pool = ThreadPool(asyncio.get_running_loop(), 1, "exit")
    pool.submit(work, ())
    pool.submit(print, ("begun",))
    begun.wait()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("returned\n", "")
