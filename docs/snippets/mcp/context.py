# [progress]
import asyncio

from dragoman.mcp import Context, Server

app = Server("press", version="1.0.0")


@app.tool
async def print_pages(pages: int, ctx: Context) -> str:
    for page in range(pages):
        await ctx.progress(page + 1, pages, f"page {page + 1}")
        await ctx.info({"page": page + 1})
        await asyncio.sleep(0.01)
    return "printed"


@app.tool
def bind(pages: int, ctx: Context) -> str:  # a plain function: the same names block
    for page in range(pages):
        if ctx.cancelled:  # a thread cannot be stopped: look yourself
            return "stopped"
        ctx.progress(page + 1, pages)
    return "bound"


# [/progress]
# [lifespan]
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Machine:
    pages = 0


@asynccontextmanager
async def machine(server: Server) -> AsyncIterator[Machine]:
    yield Machine()  # opened once, before the first call; closed when the server has drained


counting = Server("counting", version="1.0.0", lifespan=machine)


@counting.tool(inline=True)
def count(pages: int, ctx: Context) -> int:
    ctx.state.pages += pages
    return ctx.state.pages


# [/lifespan]
# [caller]
@counting.tool(inline=True)
def who(ctx: Context) -> str:
    name = ctx.client.name if ctx.client is not None else "somebody"
    return f"{name} speaks {ctx.revision.date}"


# [/caller]
# [watching]
from dragoman.mcp import Client, ProgressNotificationParams


async def main() -> None:
    def progress(step: ProgressNotificationParams) -> None:
        print(step.progress, step.total, step.message)  # 1 3 page 1

    async with Client(app, on_log=lambda entry: print(entry.level, entry.data)) as client:
        await client.set_log_level("info")
        print(await client.call_tool("print_pages", {"pages": 3}, result=str, on_progress=progress))  # printed


# [/watching]
asyncio.run(main())


async def rest() -> None:
    async with Client(app) as client:
        assert await client.call_tool("bind", {"pages": 2}, result=str) == "bound"
    async with Client(counting, name="me") as client:
        assert await client.call_tool("count", {"pages": 2}, result=int) == 2
        assert await client.call_tool("count", {"pages": 3}, result=int) == 5
        assert (await client.call_tool("who", result=str)).startswith("me speaks ")


asyncio.run(rest())
