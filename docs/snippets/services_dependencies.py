# [depends]
import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from dragoman import Context, Depends, Service, connect, serve

api = Service("notes")


def connection() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:")  # opened for this call
    try:
        yield db
        db.commit()  # before the answer leaves; if it fails, the call fails
    finally:
        db.close()


def author(context: Context) -> str:
    return context.headers.get("x-author", "anonymous")


@api.method
def add(text: str, db: Annotated[sqlite3.Connection, Depends(connection)], by: str = Depends(author)) -> str:
    db.execute("create table note (text, author)")
    db.execute("insert into note values (?, ?)", (text, by))
    return f"{text} by {by}"


# [/depends]
# [override]
def test_add() -> None:
    with api.override(author, lambda: "ada"):
        answer = api.answer(b'{"jsonrpc":"2.0","method":"add","params":["hello"],"id":1}')
    assert answer == b'{"jsonrpc":"2.0","result":"hello by ada","id":1}'


# [/override]
test_add()


# [lifespan]
class Pool:
    taken = 0


async def pool(app: Service) -> AsyncIterator[Pool]:
    yield Pool()  # opened before the first call, closed after the last


counting = Service("counting", lifespan=pool)


@counting.method
async def take(context: Context[Pool]) -> int:
    context.state.taken += 1
    return context.state.taken


async def main() -> None:
    async with serve(counting, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        print(await peer.call("take"), await peer.call("take"))  # 1 2


asyncio.run(main())
# [/lifespan]
