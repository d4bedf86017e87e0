"""Dependencies: what they give, in which order they end, what is refused, and what a test puts in their place."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import msgspec
import pytest

from dragoman import Context, Depends, LocalError, RpcError, Service, connect, serve
from dragoman.jsonrpc.errors import InternalError, InvalidParams

seen: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def number() -> int:
    seen.append("number")
    return 40


async def awaited() -> int:
    seen.append("awaited")
    return 41


def opened() -> Iterator[int]:
    seen.append("opened")
    try:
        yield 42
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        seen.append("closed")


async def opened_async() -> AsyncIterator[int]:
    seen.append("opened async")
    try:
        yield 43
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        seen.append("closed async")


@contextlib.contextmanager
def managed() -> Iterator[int]:
    seen.append("opened")
    yield 42
    seen.append("closed")


class Settings:
    def __init__(self) -> None:
        self.answer = 44


KINDS: list[tuple[Callable[..., Any], int, list[str]]] = [
    (number, 40, ["number"]),
    (awaited, 41, ["awaited"]),
    (opened, 42, ["opened", "closed"]),
    (opened_async, 43, ["opened async", "closed async"]),
    (managed, 42, ["opened", "closed"]),
    (functools.partial(lambda least: least, least=45), 45, []),
]


def call(api: Service, method: str = "f", params: Any = ()) -> Any:
    """The result of a call through `answer`; its error is raised."""
    message = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
    answer = msgspec.json.decode(api.answer(msgspec.json.encode(message)) or b"")
    if "error" in answer:
        raise RpcError.of(answer["error"]["code"], answer["error"]["message"], answer["error"].get("data"))
    return answer["result"]


@pytest.mark.parametrize(("function", "value", "steps"), KINDS)
@pytest.mark.parametrize("as_default", [False, True])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_each_kind_of_function_gives_a_value(
    function: Callable[..., Any], value: int, steps: list[str], as_default: bool, kind: str
) -> None:
    api = Service("kinds")

    def plain(a: int, found: int = Depends(function)) -> list[int]:
        return [a, found]

    async def asynchronous(a: int, found: int = Depends(function)) -> list[int]:
        return [a, found]

    def annotated(a: int, found: Annotated[int, Depends(function)]) -> list[int]:
        return [a, found]

    async def asynchronous_annotated(a: int, found: Annotated[int, Depends(function)]) -> list[int]:
        return [a, found]

    ways: dict[tuple[bool, str], Callable[..., Any]] = {
        (True, "async"): asynchronous,
        (True, "thread"): plain,
        (False, "thread"): annotated,
        (False, "async"): asynchronous_annotated,
    }
    api.method("f")(ways[as_default, kind])
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert await peer.call("f", [1]) == [1, value]
        assert await peer.call("f", {"a": 2}) == [2, value]
    assert seen == steps * 2


@pytest.mark.parametrize("function", [number, awaited, opened, opened_async, Settings])
def test_without_a_loop_they_run_too(function: Callable[..., Any]) -> None:
    api = Service("bytes")

    @api.method
    def f(found: Annotated[Any, Depends(function)]) -> int:
        return int(getattr(found, "answer", 0) or found)

    assert call(api) in range(40, 45)


def test_an_inline_method_has_plain_ones_and_refuses_what_it_would_wait_for() -> None:
    api = Service("inline")

    @api.method(inline=True)
    def f(a: int, found: Annotated[int, Depends(opened)]) -> int:
        seen.append("f")
        return a + found

    assert call(api, params=[1]) == 43
    assert seen == ["opened", "f", "closed"]

    def g(found: Annotated[int, Depends(awaited)]) -> int:
        return found

    with pytest.raises(LocalError, match="an inline function runs in place and cannot wait for an async one"):
        api.method(inline=True)(g)


# -- order, cache, clean-up -----------------------------------------------------------------------


def twice(first: Annotated[int, Depends(opened)], second: int = Depends(opened)) -> Iterator[int]:
    seen.append("twice")
    yield first + second
    seen.append("twice is over")


def test_one_function_runs_once_in_a_call_and_the_last_that_began_ends_first() -> None:
    api = Service("order")

    @api.method
    def f(
        a: Annotated[int, Depends(opened)], both: Annotated[int, Depends(twice)], b: int = Depends(opened)
    ) -> list[int]:
        seen.append("f")
        return [a, both, b]

    assert call(api) == [42, 84, 42]
    assert seen == ["opened", "twice", "f", "twice is over", "closed"]


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_clean_up_comes_before_the_answer_and_fails_the_call(asynchronous: bool) -> None:
    api = Service("commits")

    class Conflict(RpcError):
        code = 409
        message = "Conflict"

    def transaction() -> Iterator[None]:
        yield
        seen.append("commit")
        raise Conflict

    if asynchronous:

        @api.method("f", errors=[Conflict])
        async def f(t: Annotated[None, Depends(transaction)], outer: Annotated[int, Depends(opened_async)]) -> int:
            return 1
    else:

        @api.method("f", errors=[Conflict])
        def g(t: Annotated[None, Depends(transaction)], outer: Annotated[int, Depends(opened_async)]) -> int:
            return 1

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        with pytest.raises(RpcError, match="Conflict"):
            await peer.call("f")
        assert seen == ["opened async", "closed async", "commit"]


def test_a_generator_sees_the_error_may_turn_it_into_another_and_cannot_hide_it() -> None:
    api = Service("errors")

    def hides() -> Iterator[int]:
        with contextlib.suppress(ValueError):
            yield 1

    def translates(inner: Annotated[int, Depends(hides)]) -> Iterator[int]:
        try:
            yield inner
        except ValueError as error:
            raise RpcError.of(7, "translated") from error

    @api.method
    def hidden(a: Annotated[int, Depends(hides)]) -> int:
        raise ValueError

    @api.method
    def translated(a: Annotated[int, Depends(translates)]) -> int:
        raise ValueError

    with pytest.raises(InternalError):
        call(api, "hidden")
    with pytest.raises(RpcError, match="translated"):
        call(api, "translated")


async def test_what_was_opened_is_closed_in_order_though_the_clean_up_of_another_is_cancelled() -> None:
    api, may = Service("api"), threading.Event()
    begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    closing, loop = asyncio.Event(), asyncio.get_running_loop()

    def slow() -> Iterator[int]:
        try:
            yield 1
        finally:
            loop.call_soon_threadsafe(closing.set)
            may.wait()

    @api.method
    async def use(
        first: Annotated[int, Depends(opened_async)],
        second: Annotated[int, Depends(opened)],
        third: Annotated[int, Depends(slow)],
    ) -> None:
        begun.set_result(asyncio.current_task())
        await asyncio.Event().wait()

    asked = asyncio.ensure_future(api.answer_async(b'{"jsonrpc":"2.0","method":"use","id":1}'))
    task = await begun
    task.cancel()
    await closing.wait()
    task.cancel()
    await asked
    may.set()
    assert seen[2:] == ["CancelledError", "closed", "CancelledError", "closed async"]


def test_what_was_opened_is_closed_when_a_later_one_fails() -> None:
    api = Service("later")

    def fails(inner: Annotated[int, Depends(opened)]) -> int:
        raise ValueError

    @api.method
    def f(a: Annotated[int, Depends(fails)]) -> int:
        return a

    with pytest.raises(InternalError):
        call(api)
    assert seen == ["opened", "ValueError", "closed"]


def never() -> Iterator[int]:
    yield from ()


def often() -> Iterator[int]:
    yield 1
    yield 2


async def never_async() -> AsyncIterator[int]:
    for one in list[int]():
        yield one


async def often_async() -> AsyncIterator[int]:
    yield 1
    yield 2


@pytest.mark.parametrize("function", [never, often, never_async, often_async])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_generator_yields_once(function: Callable[..., Any], asynchronous: bool) -> None:
    api = Service("once", debug=True)

    async def waits(a: Annotated[int, Depends(function)]) -> int:
        return a

    def plain(a: Annotated[int, Depends(function)]) -> int:
        return a

    api.method("f")(waits if asynchronous else plain)
    with pytest.raises(InternalError) as failed:
        call(api)
    assert "yields" in str(failed.value.data)


async def test_where_they_run() -> None:
    api = Service("threads")
    here = threading.get_ident()

    def thread() -> int:
        return threading.get_ident()

    @api.method
    async def waits(
        away: Annotated[int, Depends(thread)], near: Annotated[int, Depends(functools.partial(thread), inline=True)]
    ) -> list[bool]:
        return [away == here, near == here]

    @api.method
    def plain(away: Annotated[int, Depends(thread)]) -> bool:
        return away == threading.get_ident()

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert await peer.call("waits") == [False, True]
        assert await peer.call("plain") is True


def test_a_dependency_may_take_the_context() -> None:
    api = Service("context")

    def name(context: Context) -> str:
        return context.method

    @api.method
    def f(found: Annotated[str, Depends(name)], *, context: Context) -> list[str]:
        return [found, context.method]

    assert call(api) == ["f", "f"]


# -- it is not an argument -----------------------------------------------------------------------


def test_it_is_in_no_schema_and_no_caller_can_give_it() -> None:
    api = Service("schema")

    @api.method
    def f(a: int, found: Annotated[int, Depends(number)], *more: int, b: int = 0, other: int = Depends(opened)) -> Any:
        return [a, found, more, b, other]

    @api.method
    def g(found: Annotated[int, Depends(number)], **members: int) -> Any:
        return [found, members]

    names = [one["name"] for one in api.openrpc()["methods"][0]["params"]]
    assert "found" not in names
    assert "other" not in names
    assert call(api, "f", [1, 2, 3]) == [1, 40, [2, 3], 0, 42]
    assert call(api, "f", {"a": 1, "b": 2}) == [1, 40, [], 2, 42]
    assert call(api, "g", {"x": 1}) == [40, {"x": 1}]
    for method in "fg":
        with pytest.raises(InvalidParams) as refused:
            call(api, method, {"a": 1, "found": 2})
        assert [one["field"] for one in refused.value.data["errors"]] == ["found"]


# -- what is refused ------------------------------------------------------------------------------


def needs(url: str) -> str:
    return url


def with_default(url: str = "sqlite://") -> str:
    return url


def narrow(a: Annotated[int, Depends(number)]) -> int:
    return a


def of_a_call(context: Context) -> str:
    return context.method


def chases(a: Annotated[int, Depends(tail)]) -> int:
    return a


def tail(a: Annotated[int, Depends(chases)]) -> int:
    return a


REFUSED = [
    (Depends(needs), r"needs\(\)\), parameter 'url': it is neither a dependency nor a context"),
    (Depends(with_default), "write Annotated.*or functools.partial with a value for it"),
    (Depends(narrow, scope="lifespan"), 'scope="lifespan" and lives longer than a call'),
    (Depends(of_a_call, scope="lifespan"), "is outside of calls: no context"),
    (Depends(chases), r"it depends on itself: chases\(\) -> tail\(\) -> chases\(\)"),
    (Depends, r"write Depends\(f\), with the function that gives the value"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_cannot_be_is_refused_at_registration(given: Any, words: str) -> None:
    api = Service("refuses")

    def f(a: Annotated[Any, given]) -> None:
        """Never called."""

    with pytest.raises(LocalError, match=words):
        api.method(f)
    assert not api.methods


def test_wrong_uses_of_depends_are_refused() -> None:
    with pytest.raises(LocalError, match="Depends: function is a function"):
        Depends(3)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="Depends: scope is 'call' or 'lifespan'"):
        Depends(number, scope="request")  # type: ignore[arg-type]
    api = Service("refuses")

    def two(a: Annotated[int, Depends(number), Depends(opened)]) -> None:
        """Never called."""

    def many(*a: Annotated[int, Depends(number)]) -> None:
        """Never called."""

    with pytest.raises(LocalError, match="two Depends"):
        api.method(two)
    with pytest.raises(LocalError, match="a dependency is one value"):
        api.method(many)


# -- in tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fake", [lambda: 1, awaited, opened_async, narrow])
async def test_another_function_in_its_place(fake: Callable[..., Any]) -> None:
    api = Service("fakes")

    @api.method
    def plain(a: Annotated[int, Depends(twice)]) -> int:
        return a

    @api.method
    async def waits(a: Annotated[int, Depends(twice)]) -> int:
        return a

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert [await peer.call("plain"), await peer.call("waits")] == [84, 84]
        with api.override(opened, fake):
            found = {await peer.call("plain"), await peer.call("waits")}
            assert len(found) == 1
            assert found < {2, 80, 82, 86}
            with api.override(twice, lambda: 3):
                assert await peer.call("plain") == 3
            assert {await peer.call("plain")} == found
        assert await peer.call("plain") == 84


def test_an_override_that_cannot_be_changes_nothing() -> None:
    api = Service("fakes")

    @api.method(inline=True)
    def f(a: Annotated[int, Depends(number)]) -> int:
        return a

    for fake, words in ((awaited, "cannot wait"), (needs, "neither a dependency"), (narrow, "depends on itself")):
        with pytest.raises(LocalError, match=words), api.override(number, fake):
            pass  # pragma: no cover
        assert call(api) == 40
    with pytest.raises(LocalError, match=r"nothing here depends on opened\(\)"):
        api.override(opened, number)


def test_what_is_registered_within_the_block_has_the_fake_too() -> None:
    api = Service("fakes")

    @api.method
    def f(a: Annotated[int, Depends(number)]) -> int:
        return a

    with api.override(number, lambda: 1):

        @api.method
        def g(a: Annotated[int, Depends(number)]) -> int:
            return a

        assert call(api, "g") == 1
    assert call(api, "g") == 40
