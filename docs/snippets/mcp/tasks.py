# [server]
import asyncio

from dragoman.mcp import Context, Server, TaskPolicy, Tasks

app = Server("lab", extensions=[Tasks("sqlite:tasks.db")])


@app.tool(task=True)
async def train(rows: int, ctx: Context) -> str:
    """Train a model."""
    for row in range(rows):
        await ctx.progress(row, rows, f"row {row}")
        await asyncio.sleep(0.1)
    return f"trained with {rows} rows"


# [/server]
# [policy]
@app.tool(task=TaskPolicy(idempotent=True, keep=24 * 3600, timeout=600))
async def index(folder: str) -> str:
    """Index a folder; may be run again from the top."""
    return f"{folder} is indexed"


# [/policy]
# [client]
from dragoman.mcp import Client, TasksClient

tasks = TasksClient()


async def main() -> None:
    async with Client(app, extensions=[tasks]) as client:
        print((await client.call_tool("train", {"rows": 3})).text)  # trained with 3 rows

        handle = await tasks.start("train", {"rows": 2})  # returns at once
        async for status in handle.follow():
            print(status.status)  # working...
            break
        print((await handle.result()).text)  # trained with 2 rows
        print((await tasks.task(handle.id).status()).status)  # completed


asyncio.run(main())
# [/client]
