"""Expressions and their types: each `reveal_type` stands with the type that mypy and basedpyright must say, in the
table of `test_programs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from dragoman import Context, Depends, Peer, Service, connect, sync
from dragoman import mcp as m
from dragoman.mcp.client.blocking import connect as connect_blocking

if TYPE_CHECKING:
    from typing import reveal_type


@dataclass
class Table:
    guests: int


class Database:
    def get(self, key: str) -> str:
        return key


@dataclass
class AppState:
    database: Database


def connect_database() -> Database:
    return Database()


def open_session(database: Annotated[Database, Depends(connect_database)]) -> Iterator[Database]:
    yield database


api = Service("api")


@api.method
async def add(a: int, b: int) -> int:
    return a + b


@api.method
def look(key: str, ctx: Context[AppState], database: Annotated[Database, Depends(connect_database)]) -> str:
    reveal_type(ctx.state)
    reveal_type(database.get(key))
    reveal_type(ctx.time_left)
    reveal_type(ctx.caller.identity)
    reveal_type(ctx.cancelled)
    return ctx.state.database.get(key)


@api.method("rename", inline=True)
def rename_row(key: str, session: Database = Depends(open_session, scope="call")) -> None:  # noqa: B008
    reveal_type(session)


@api.method(name="store")
async def store_row(key: str, ctx: Context) -> None:
    reveal_type(ctx.state)
    reveal_type(await ctx.progress(1))
    reveal_type(ctx.store)


server = m.Server("shop")


@server.tool
async def book(day: str, ctx: m.Context[AppState]) -> str:
    reveal_type(ctx.state.database)
    reveal_type(await ctx.elicit(f"A table for {day}?", Table))
    reveal_type((await ctx.elicit("Guests?", Table)).content)
    reveal_type(await ctx.elicit_url("Pay", "https://pay.example"))
    reveal_type(await ctx.sample("A line, please."))
    reveal_type((await ctx.sample(["One", "Two"])).text)
    reveal_type(await ctx.roots())
    reveal_type(await ctx.ask(m.Elicit("Name?", Table), m.Sample(messages="Hello"), m.Roots()))
    reveal_type(await ctx.ask(m.Sample(messages="Hello"), m.ElicitUrl("Pay", "https://pay.example")))
    reveal_type((await ctx.ask(m.Roots()))[0][0].uri)
    reveal_type(await ctx.elicit("Any?", {"type": "object", "properties": {}}))
    reveal_type((await ctx.elicit("Guests?", Table)).accepted)
    reveal_type(ctx.identity)
    reveal_type(ctx.client)
    reveal_type(ctx.capabilities.sampling)
    reveal_type(ctx.revision)
    reveal_type(await ctx.progress(1, 2, "half"))
    reveal_type(await ctx.info("booked"))
    return day


@server.tool(title="Pay")
async def pay(amount: int, database: Annotated[Database, Depends(connect_database)]) -> m.CallToolResult:
    reveal_type(database)
    return m.CallToolResult(content=[m.TextContent("paid")])


@server.resource("note://{name}")
def note(name: str) -> str:
    return name


@server.prompt
def greet(name: str) -> list[m.PromptMessage]:
    return [m.PromptMessage("user", m.TextContent(name))]


@server.tool
def book_in_thread(day: str, ctx: m.Context) -> str:
    reveal_type(ctx.elicit(f"A table for {day}?", Table).content)
    reveal_type(ctx.sample("A line, please.").text)
    reveal_type(ctx.elicit_url("Pay", "https://pay.example").accepted)
    reveal_type(ctx.roots()[0].uri)
    reveal_type(ctx.ask(m.Elicit("Name?", Table))[0].content)
    return day


class Calculator(Protocol):
    async def add(self, a: int, b: int) -> int: ...


class BlockingCalculator(Protocol):
    def add(self, a: int, b: int) -> int: ...


async def use(url: str) -> None:
    async with connect(url) as peer:
        reveal_type(peer)
        reveal_type(await peer.call("add", {"a": 1, "b": 2}, result=int))
        reveal_type(await peer.call("add", [1, 2], result=list[Table]))
        reveal_type(await peer.call("add", [1, 2]))
        reveal_type(await peer.proxy(Calculator).add(1, 2))
        reveal_type(peer.proxy(Calculator, prefix="math."))
        reveal_type(peer.proxy().math)
        reveal_type(await peer.notify("seen"))
        async with peer.batch() as batch:
            total = batch.call("add", [1, 2], result=int)
            reveal_type(total)
        reveal_type(await total)
        async for note in peer.notifications("changed"):
            reveal_type(note.method)


async def ask_server(url: str) -> None:
    async with m.Client(url) as client:
        reveal_type(client)
        reveal_type(await client.call_tool("book", {"day": "Monday"}))
        reveal_type(await client.call_tool("book", {"day": "Monday"}, result=Table))
        reveal_type((await client.list_tools())[0].input_schema)
        reveal_type((await client.read_resource("note://a")).contents[0].text)
        reveal_type((await client.get_prompt("greet", {"name": "Ann"})).messages[0].content)
        reveal_type((await client.complete("greet", "name", "A")).values)
        reveal_type(client.capabilities.tools)
        async with client.subscribe(tools=True) as changes:
            async for change in changes:
                reveal_type(change)


def use_blocking(url: str) -> None:
    with sync.connect(url) as peer:
        reveal_type(peer)
        reveal_type(peer.call("add", [1, 2], result=int))
        reveal_type(peer.proxy(BlockingCalculator).add(1, 2))
        with peer.batch() as batch:
            answer = batch.call("add", [1, 2], result=int)
        reveal_type(answer.result())
    with connect_blocking(url) as client:
        reveal_type(client)
        reveal_type(client.call_tool("book", result=Table))


def own(peer: Peer) -> None:
    reveal_type(peer.closed)
    reveal_type(add)

    reveal_type(store_row)
    reveal_type(book)
    reveal_type(pay)
    reveal_type(note)
    reveal_type(greet)
    reveal_type(api.answer(b""))
    reveal_type(api.override(connect_database, Database))
