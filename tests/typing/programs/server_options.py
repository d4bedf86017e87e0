"""The options of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dragoman import Limits, Service
from dragoman.mcp import NEWEST, REVISIONS, Context, HttpOptions, Icon, Server


@asynccontextmanager
async def opened(server: Server) -> AsyncGenerator[int, None]:
    yield 3


app = Server(
    "app",
    version="1.0.0",
    icons=[Icon("https://a.example/icon.png")],
    lifespan=opened,
    page_size=50,
    ttl=30,
    cache_scope="public",
    keys=["new", "old"],
    revisions=[NEWEST, REVISIONS["2025-11-25"]],
    http=HttpOptions(sessions=10, session_idle=60),
    limits=Limits(depth=10),
    argument_errors="revision",
)


@app.tool
def state(ctx: Context[int]) -> int:
    return ctx.state + 1


app.include(Service("methods"), namespace="rpc")
app.run(transport="http", port=8000)

Server("a", page_size="50")  # wrong: a number
Server("a", cache_scope="shared")  # wrong: none of the two
Server("a", revisions=["2025-11-25"])  # wrong: records
Server("a", keys=3)  # wrong: text or bytes
Server("a", http={"sessions": 10})  # wrong: HttpOptions
Server("a", http=HttpOptions(sessions="10"))  # wrong: a number
Server("a", log=True)  # wrong: misspelt
Server("a", icons=["icon.png"])  # wrong: Icons
Server("a", auth=True)  # wrong: a verifier
