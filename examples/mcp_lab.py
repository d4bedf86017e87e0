import asyncio

from dragoman.mcp import Context, Server, TaskPolicy, Tasks

app = Server("lab", version="1.0.0", extensions=[Tasks()])


@app.tool(task=TaskPolicy(idempotent=True))
async def train(rows: int, ctx: Context) -> str:
    "Train a model."
    for row in range(rows):
        await ctx.progress(row, rows)
        await asyncio.sleep(1)
    return f"a model of {rows} rows"
