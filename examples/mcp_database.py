"""An SQLite database as resources and a tool: opened once for all callers by `lifespan`, read-only for the model.

dragoman serve mcp_database.py
dragoman read http://127.0.0.1:8000/mcp db://tables/city
dragoman tool http://127.0.0.1:8000/mcp query 'sql=select name from city where people > 20'
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman.mcp import Client, Context, ResourceNotFound, Server, ToolError

ROWS = [("Beijing", 21.9), ("Shanghai", 24.9), ("Lhasa", 0.9)]


@asynccontextmanager
async def database(server: Server) -> AsyncIterator[sqlite3.Connection]:
    "What is yielded is `ctx.state` in every handler."
    db = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        db.execute("create table city (name text, people real)")
        db.executemany("insert into city values (?, ?)", ROWS)
        db.execute("pragma query_only = on")
        yield db
    finally:
        db.close()


app = Server("cities", version="1.0.0", lifespan=database)


@app.resource("db://tables", mime_type="application/json")
def tables(ctx: Context) -> list[str]:
    "The names of the tables."
    return [name for (name,) in ctx.state.execute("select name from sqlite_master where type = 'table'")]


@app.resource("db://tables/{table}", mime_type="application/json")
def rows(table: str, ctx: Context) -> list[dict[str, Any]]:
    "All rows of a table."
    if table not in tables(ctx):  # a name cannot be a parameter of SQL: take only names that are there
        raise ResourceNotFound(f"there is no table {table}")
    return select(ctx.state, f'select * from "{table}"')


@app.tool(concurrency=1)
def query(sql: str, ctx: Context) -> list[dict[str, Any]]:
    "Run one SELECT on the table city (name, people in millions)."
    try:
        return select(ctx.state, sql)
    except sqlite3.Error as error:
        raise ToolError(f"SQLite says: {error}") from error  # the model reads this, and tries again


def select(db: sqlite3.Connection, sql: str) -> list[dict[str, Any]]:
    cursor = db.execute(sql)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(100)]


async def main() -> None:
    async with Client(app) as client:
        found = await client.call_tool("query", {"sql": "select name from city where people > 22"}, result=list)
        print(found)  # [{'name': 'Shanghai'}]
        for sql in ("select nmae from city", "delete from city"):
            try:
                await client.call_tool("query", {"sql": sql}, result=list)
            except ToolError as error:
                print(error)  # SQLite says: ...
        contents = (await client.read_resource("db://tables/city")).contents
        print(len(contents), contents[0].mime_type)  # 1 application/json


if __name__ == "__main__":
    asyncio.run(main())
