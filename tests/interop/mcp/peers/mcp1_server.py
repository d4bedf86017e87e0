# mypy: ignore-errors
"""The official Python SDK 1 as a server: `python mcp1_server.py stdio | http PORT | sse PORT`."""

from __future__ import annotations

import asyncio
import sys
import warnings

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import Completion, SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

warnings.simplefilter("ignore")
options = {"host": "127.0.0.1", "port": int(sys.argv[2])} if len(sys.argv) > 2 else {}
app = FastMCP("sdk1", **options)
running = asyncio.Event()
stops = []
NOTE = "note://today"
PAUSE = 0.02  # seconds: a client may lose progress that comes together with the answer


class Name(BaseModel):
    name: str


@app.tool()
def add(a: int, b: int) -> int:
    return a + b


@app.tool()
def fail() -> str:
    raise ValueError("out of stock")


@app.tool()
async def steps(count: int, ctx: Context) -> str:
    for n in range(count):
        await ctx.report_progress(n + 1, count)
        await ctx.info(f"step {n + 1}")
        await asyncio.sleep(PAUSE)
    return "done"


@app.tool()
async def wait() -> str:
    running.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        stops.append(True)
        raise
    return "waited"


@app.tool()
async def started() -> str:
    await running.wait()
    return "yes"


@app.tool()
async def stopped() -> str:
    for _ in range(100):
        if stops:
            break
        await asyncio.sleep(0.05)
    return str(len(stops))


@app.tool()
async def ask_name(ctx: Context) -> str:
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name}!"


@app.tool()
async def ask_model(ctx: Context) -> str:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text="6 x 7?"))]
    answer = await ctx.session.create_message(messages, max_tokens=10, related_request_id=ctx.request_id)
    return f"Model: {answer.content.text}"


@app.tool()
async def ask_roots(ctx: Context) -> str:
    answer = await ctx.session.list_roots()
    return "Roots: " + ", ".join(str(root.uri) for root in answer.roots)


@app.tool()
async def touch(ctx: Context) -> str:
    await ctx.session.send_resource_updated(AnyUrl(NOTE))
    return "touched"


@app.resource(NOTE)
def note() -> str:
    return "Buy milk"


@app.prompt()
def greet(who: str) -> str:
    return f"Greet {who}"


@app.completion()
async def complete(ref, argument, context) -> Completion:
    return Completion(values=[name for name in ("Ann", "Anton", "Bob") if name.startswith(argument.value)])


# The server class has no public way to take these two; the SDK's own examples do it like this.
@app._mcp_server.subscribe_resource()
async def subscribe(uri) -> None:
    return None


@app._mcp_server.set_logging_level()
async def set_level(level) -> None:
    return None


app.run({"http": "streamable-http"}.get(sys.argv[1], sys.argv[1]))
