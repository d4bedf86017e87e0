"""What a function depends on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from dragoman import Context, Depends, Service
from dragoman.mcp import Server


class Database:
    def get(self, key: str) -> str:
        return key


def connect() -> Database:
    return Database()


def session(database: Annotated[Database, Depends(connect, scope="lifespan")]) -> Iterator[Database]:
    yield database


async def tenant(ctx: Context) -> AsyncIterator[str]:
    yield ctx.headers.get("x-tenant", "")


api = Service("api")
app = Server("app")


@api.method
@app.tool
async def find(key: str, database: Annotated[Database, Depends(session)], who: str = Depends(tenant)) -> str:
    return database.get(key) + who


with api.override(connect, lambda: Database()):
    found = api.answer(b"{}")


def wrong(
    one: str = Depends("connect"),  # wrong: a function
    two: str = Depends(connect, scope="request"),  # wrong: there are two scopes
    three: str = Depends(connect, cached=True),  # wrong: no such option
) -> None: ...


async def used() -> None:
    text: int = await find("a", Database(), "b")  # wrong: text
    await find(1, Database(), "b")  # wrong: a key is text
    print(text)
