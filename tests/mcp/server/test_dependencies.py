"""Dependencies of tools, resources, prompts and completions; the testing recipe of the docs, test after test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from msgspec import Struct

from dragoman import Context as RpcContext
from dragoman import Depends, LocalError
from dragoman.mcp import Client, Context, Server, ToolError
from dragoman.mcp.protocol import revisions as r

EVERY = pytest.mark.parametrize("revision", list(r.REVISIONS), ids=str)


class State(Struct):
    loop: asyncio.AbstractEventLoop


class Shop:
    """A server with a lifespan, dependencies of both scopes, and what became of them."""

    def __init__(self) -> None:
        self.seen = seen = list[str]()

        async def life(app: Server) -> AsyncIterator[State]:
            seen.append(f"begin {app.name}")
            yield State(asyncio.get_running_loop())
            seen.append("end")

        def database() -> Iterator[str]:
            seen.append("database")
            yield "db"
            seen.append("database ends")

        async def session(ctx: Context, base: Annotated[str, Depends(database, scope="lifespan")]) -> Any:
            seen.append("session")
            try:
                yield f"{base}:{ctx._admitted.method}"
            finally:
                seen.append("session ends")

        self.database, self.session = database, session
        self.app = app = Server("shop", lifespan=life)

        @app.tool
        async def waits(a: int, ctx: Context[State], found: Annotated[str, Depends(session)]) -> str:
            assert ctx.state.loop is asyncio.get_running_loop()
            return f"{a} {found}"

        @app.tool
        def thread(a: int, found: Annotated[str, Depends(session)]) -> str:
            if a < 0:
                raise ToolError("a is below 0")
            return f"{a} {found}"

        @app.resource("shop://{name}")
        def read(name: str, found: str = Depends(session)) -> str:
            return f"{name} {found}"

        @app.prompt
        def prompt(name: str, found: Annotated[str, Depends(session)]) -> str:
            return f"{name} {found}"

        @app.completion("prompt", "name")
        async def names(typed: str, found: Annotated[str, Depends(session)]) -> list[str]:
            return [typed + found]


@EVERY
async def test_every_kind_of_function_has_them(revision: str) -> None:
    shop = Shop()
    async with Client(shop.app, revision=revision) as client:
        assert shop.seen == ["begin shop", "database"]
        assert await client.call_tool("waits", {"a": 1}, result=str) == "1 db:tools/call"
        assert await client.call_tool("thread", {"a": 2}, result=str) == "2 db:tools/call"
        assert (await client.read_resource("shop://x")).contents[0].text == "x db:resources/read"
        assert "n db:prompts/get" in str((await client.get_prompt("prompt", {"name": "n"})).messages)
        failed = await client.call_tool("thread", {"a": -1})
        assert failed.is_error
    assert shop.seen == ["begin shop", "database", *(["session", "session ends"] * 5), "database ends", "end"]


async def test_they_are_in_no_schema_and_no_model_can_give_them() -> None:
    shop = Shop()
    async with Client(shop.app) as client:
        tools = await client.list_tools()
        assert [list(tool.input_schema["properties"]) for tool in tools] == [["a"], ["a"]]
        prompts = await client.list_prompts()
        assert [one.name for one in prompts[0].arguments or ()] == ["name"]
        refused = await client.call_tool("thread", {"a": 1, "found": "mine"})
        assert refused.is_error
        assert "session" not in shop.seen


def test_the_recipe_for_tests_holds_for_one_test_after_the_other() -> None:
    """Each test has a loop of its own; the server is one for the whole module."""
    shop = Shop()

    async def one_test() -> None:
        async with Client(shop.app) as client:
            with shop.app.override(shop.session, lambda: "fake"):
                assert await client.call_tool("waits", {"a": 1}, result=str) == "1 fake"
            assert await client.call_tool("thread", {"a": 1}, result=str) == "1 db:tools/call"

    for _ in range(3):
        asyncio.run(one_test())
        assert shop.seen == ["begin shop", "database", "session", "session ends", "database ends", "end"]
        shop.seen.clear()


async def test_a_clean_up_that_fails_is_an_error_of_the_tool() -> None:
    app = Server("commits")

    def transaction() -> Iterator[None]:
        yield
        raise ToolError("the money was not moved")

    @app.tool
    def pay(amount: int, t: Annotated[None, Depends(transaction)]) -> str:
        return "paid"

    async with Client(app) as client:
        failed = await client.call_tool("pay", {"amount": 1})
        assert failed.is_error
        assert "the money was not moved" in str(failed.content)


def test_what_cannot_be_is_refused_with_the_name_of_the_tool() -> None:
    app = Server("refuses")

    def other(ctx: RpcContext) -> int:
        return 1

    async def waits() -> int:
        return 1

    def tool(found: Annotated[int, Depends(other)]) -> int:
        return found

    def quick(found: Annotated[int, Depends(waits)]) -> int:
        return found

    with pytest.raises(LocalError, match=r"here it is the one of `from dragoman\.mcp import Context`"):
        app.add_tool(tool)
    with pytest.raises(LocalError, match=r"quick\(\), Depends\(.*waits\(\)\): an inline function runs in place"):
        app.add_tool(quick, inline=True)
