"""The lifespan of a service: per event loop, as long as its users there, its state, and what lives as long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from msgspec import Struct

from dragoman import Context, Depends, LocalError, Service, connect, serve
from dragoman.jsonrpc.errors import InternalError
from dragoman.mcp import Client, Server
from tests.behind import behind


class State(Struct):
    loop: asyncio.AbstractEventLoop
    calls: int = 0


class Lives:
    """A service with a lifespan, and what became of it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

        async def life(app: Service) -> AsyncIterator[State]:
            self.seen.append(f"begin {app.name}")
            yield State(asyncio.get_running_loop())
            self.seen.append("end")

        async def pool() -> AsyncIterator[list[int]]:
            self.seen.append("pool")
            yield [1]
            self.seen.append("pool ends")

        def grown(pool: Annotated[list[int], Depends(pool, scope="lifespan")]) -> list[int]:
            self.seen.append("grown")
            return [*pool, 2]

        self.pool = pool
        self.api = api = Service("living", lifespan=life)

        @api.method
        async def waits(context: Context[State]) -> int:
            assert context.state.loop is asyncio.get_running_loop()
            context.state.calls += 1
            return context.state.calls

        @api.method
        def thread(
            context: Context[State] | None, held: Annotated[list[int], Depends(grown, scope="lifespan")]
        ) -> list[int]:
            assert context is not None
            context.state.calls += 1
            return [context.state.calls, *held]

        @api.method(inline=True)
        def quick() -> list[str]:
            return self.seen

    async def used(self) -> None:
        async with serve(self.api, urls="tcp://127.0.0.1:0") as serving:
            assert self.seen == ["begin living", "pool", "grown"], "before the first call"
            async with connect(serving.urls[0]) as peer:
                assert await peer.call("waits") == 1
                assert await peer.call("thread") == [2, 1, 2]
        assert self.seen == ["begin living", "pool", "grown", "pool ends", "end"]
        self.seen.clear()


def test_each_loop_has_its_own_one_after_the_other() -> None:
    """A second test on a new loop is what broke elsewhere."""
    lives = Lives()
    for _ in range(3):
        asyncio.run(lives.used())


async def test_it_ends_with_its_last_user() -> None:
    lives = Lives()
    async with serve(lives.api, urls="tcp://127.0.0.1:0"):
        async with serve(lives.api, urls="tcp://127.0.0.1:0"):
            assert lives.seen == ["begin living", "pool", "grown"]
        assert lives.seen == ["begin living", "pool", "grown"]
    assert lives.seen[-2:] == ["pool ends", "end"]


async def test_a_call_begins_it_where_nothing_else_did_an_inline_one_too() -> None:
    lives = Lives()
    answer = await lives.api.answer_async(b'{"jsonrpc":"2.0","method":"quick","id":1}')
    assert answer == b'{"jsonrpc":"2.0","result":["begin living","pool","grown"],"id":1}'
    life = behind(lives.api)._lifespan
    assert life is not None
    await life.stop()
    assert lives.seen[-2:] == ["pool ends", "end"]


def test_without_a_loop_it_lasts_until_the_interpreter_ends() -> None:
    script = """
from dragoman import Context, Service

async def life(app):
    print("begin")
    yield 7
    print("end")

api = Service("script", lifespan=life)

@api.method
def state(context: Context) -> int:
    return context.state

for _ in range(2):
    print(api.answer(b'{"jsonrpc":"2.0","method":"state","id":1}'))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    answer = "b'" + '{"jsonrpc":"2.0","result":7,"id":1}' + "'"
    assert done.stdout.splitlines() == ["begin", answer, answer, "end"], done.stderr


async def test_what_is_registered_later_is_opened_before_the_next_call() -> None:
    lives = Lives()

    def more() -> Iterator[int]:
        lives.seen.append("more")
        yield 5
        lives.seen.append("more ends")

    async with serve(lives.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:

        @lives.api.method
        def late(found: Annotated[int, Depends(more, scope="lifespan")]) -> int:
            return found

        assert await peer.call("late") == 5
        assert lives.seen[-1] == "more"
    assert lives.seen[-3:] == ["more ends", "pool ends", "end"]


async def test_a_fake_lives_as_long_and_the_real_one_is_not_opened() -> None:
    lives = Lives()
    with lives.api.override(lives.pool, lambda: [7]):
        async with serve(lives.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
            assert await peer.call("thread") == [1, 7, 2]
    assert "pool" not in lives.seen


async def test_one_that_fails_fails_the_start_and_is_tried_again() -> None:
    failing = [RuntimeError("no database")]
    seen: list[str] = []

    async def life(app: Service) -> AsyncIterator[int]:
        seen.append("begin")
        yield 1
        seen.append("end")

    async def fails() -> int:
        if failing:
            raise failing.pop()
        return 2

    api = Service("again", lifespan=life)

    @api.method
    async def f(found: Annotated[int, Depends(fails, scope="lifespan")]) -> int:
        return found

    with pytest.raises(RuntimeError, match="no database"):
        async with serve(api, urls="tcp://127.0.0.1:0"):
            pass  # pragma: no cover
    assert seen == ["begin", "end"], "what was open is closed"
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert await peer.call("f") == 2


async def test_a_late_one_that_fails_fails_the_call_alone() -> None:
    api = Service("late")
    failing = [RuntimeError("no database")]

    async def fails() -> int:
        if failing:
            raise failing.pop()
        return 2

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        await peer.call("rpc.discover")

        @api.method
        async def f(found: Annotated[int, Depends(fails, scope="lifespan")]) -> int:
            return found

        with pytest.raises(InternalError):
            await peer.call("f")
        assert await peer.call("f") == 2
    life = behind(api)._lifespan
    assert life is not None
    await life.stop()


async def test_who_comes_while_the_last_user_goes_gets_one_of_its_own() -> None:
    """Also where a part was added, which the one that ends does not open any more."""
    lives = Lives()
    life = behind(lives.api)._lifespan
    assert life is not None
    for added in (False, True):
        await life.start()
        if added:
            life.changed()
        comes = asyncio.ensure_future(life.start())
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(life.stop(), comes), 5)
        assert life.here() is not None
        await life.stop()
        assert life.here() is None


def test_a_loop_ends_though_a_late_one_is_being_opened() -> None:
    lives = Lives()

    async def main() -> None:
        life = behind(lives.api)._lifespan
        assert life is not None
        await life.start()
        opening = asyncio.Event()

        async def slow() -> int:
            opening.set()
            await asyncio.Event().wait()
            return 1

        @lives.api.method
        async def late(slow: Annotated[int, Depends(slow, scope="lifespan")]) -> int:
            return slow

        begun = asyncio.ensure_future(life.begin())
        await opening.wait()
        assert not begun.done()

    asyncio.run(asyncio.wait_for(main(), 5))
    assert lives.seen[-1] == "end"


async def test_one_that_fails_at_its_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def life(app: Service) -> AsyncIterator[None]:
        yield
        raise RuntimeError("not closed")

    async with serve(Service("failing", lifespan=life), urls="tcp://127.0.0.1:0"):
        pass
    assert "the lifespan of failing failed at its end" in caplog.text


def without_arguments() -> Any:
    """No app."""


def plain(app: Service) -> Iterator[None]:
    yield


async def coroutine(app: Service) -> None:
    """No yield."""


async def bare() -> AsyncIterator[None]:
    yield


REFUSED: list[tuple[Any, str]] = [
    (plain, r"write `async def plain\(app\):` with one `yield` in it"),
    (coroutine, r"write `async def coroutine\(app\):` with one `yield` in it"),
    (without_arguments, r"takes the app that it is of: write `async def without_arguments\(app\):`"),
    (bare, r"takes the app that it is of: write `async def bare\(app\):`"),
    (asynccontextmanager(bare), "takes the app that it is of"),
    (3, "lifespan is a function or another callable"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_can_be_none_is_refused_with_what_to_write(given: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Service("refuses", lifespan=given)


def test_a_service_that_opens_nothing_has_none() -> None:
    assert behind(Service("nothing"))._lifespan is None


async def test_what_is_included_brings_its_lifespan_its_state_and_its_dependencies() -> None:
    lives = Lives()
    outer = Service("outer")
    outer.include(lives.api, prefix="x.")
    server = Server("tools")
    server.include(lives.api, prefix="x_")
    async with serve(outer, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert lives.seen == ["begin living", "pool", "grown"]
        assert await peer.call("x.waits") == 1
        assert await peer.call("x.thread") == [2, 1, 2]
        with outer.override(lives.pool, lambda: [7]):
            assert await peer.call("x.thread") == [3, 1, 2], "what has begun stays"
        async with Client(server) as client:
            assert await client.call_tool("x_thread", result=list[int]) == [4, 1, 2]
            assert lives.seen.count("begin living") == 1
    assert lives.seen[-2:] == ["pool ends", "end"]
    with server.override(lives.pool, lambda: [7]):
        async with Client(server) as client:
            assert await client.call_tool("x_thread", result=list[int]) == [1, 7, 2]
    assert lives.seen.count("pool") == 1


async def test_an_inline_method_that_is_included_waits_for_its_lifespan() -> None:
    lives = Lives()
    outer = Service("outer")
    outer.include(lives.api)
    answer = await outer.answer_async(b'{"jsonrpc":"2.0","method":"quick","id":1}')
    assert answer == b'{"jsonrpc":"2.0","result":["begin living","pool","grown"],"id":1}'
    life = behind(outer)._lifespan
    assert life is not None
    await life.stop()
    assert lives.seen[-1] == "end"


async def test_an_inline_method_has_what_lives_as_long_as_its_service() -> None:
    def pool() -> list[int]:
        return [1]

    api = Service("api")

    @api.method(inline=True)
    def pooled(held: Annotated[list[int], Depends(pool, scope="lifespan")]) -> list[int]:
        return held

    async with serve(api, urls="memory:inline-life"), connect("memory:inline-life") as peer:
        assert await peer.call("pooled") == [1]
