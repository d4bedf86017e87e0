# mypy: ignore-errors
"""FastMCP as a server: `python fastmcp_server.py stdio | http PORT`."""

from __future__ import annotations

import asyncio
import sys
import warnings

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import (
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

warnings.simplefilter("ignore")
app = FastMCP("fastmcp")
running = asyncio.Event()
stops = []
NOTE = "note://today"
PAUSE = 0.02  # seconds: a client may lose progress that comes together with the answer
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Name(BaseModel):
    name: str


def modern(ctx: Context) -> bool:
    return ctx.request_context.protocol_version >= "2026"


@app.tool
def add(a: int, b: int) -> int:
    return a + b


@app.tool
def fail() -> str:
    raise ToolError("out of stock")


@app.tool
async def steps(count: int, ctx: Context) -> str:
    for n in range(count):
        await ctx.report_progress(n + 1, count)
        await ctx.info(f"step {n + 1}")
        await asyncio.sleep(PAUSE)
    return "done"


@app.tool
async def wait() -> str:
    running.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        stops.append(True)
        raise
    return "waited"


@app.tool
async def started() -> str:
    await running.wait()
    return "yes"


@app.tool
async def stopped() -> str:
    for _ in range(100):
        if stops:
            break
        await asyncio.sleep(0.05)
    return str(len(stops))


@app.tool
async def ask_name(ctx: Context) -> str | InputRequiredResult:
    if not modern(ctx):
        answer = await ctx.elicit("What is your name?", Name)
        return f"Hello, {answer.data.name}!"
    if ctx.input_responses and "name" in ctx.input_responses:
        return f"Hello, {ctx.input_responses['name'].content['name']}!"
    params = ElicitRequestFormParams(message="What is your name?", requested_schema=NAME)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)})


@app.tool
async def ask_model(ctx: Context) -> str | InputRequiredResult:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text="6 x 7?"))]
    if not modern(ctx):
        answer = await ctx.session.create_message(messages, max_tokens=10, related_request_id=ctx.request_id)
        return f"Model: {answer.content.text}"
    if ctx.input_responses and "answer" in ctx.input_responses:
        return f"Model: {ctx.input_responses['answer'].content.text}"
    params = CreateMessageRequestParams(messages=messages, max_tokens=10)
    return InputRequiredResult(input_requests={"answer": CreateMessageRequest(params=params)})


@app.tool
async def ask_roots(ctx: Context) -> str | InputRequiredResult:
    if not modern(ctx):
        roots = (await ctx.session.list_roots()).roots
    elif ctx.input_responses and "roots" in ctx.input_responses:
        roots = ctx.input_responses["roots"].roots
    else:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})
    return "Roots: " + ", ".join(str(root.uri) for root in roots)


@app.tool
async def touch(ctx: Context) -> str:
    await ctx.session.send_resource_updated(NOTE)
    return "touched"


@app.resource(NOTE)
def note() -> str:
    return "Buy milk"


@app.prompt
def greet(who: str) -> str:
    return f"Greet {who}"


if hasattr(app, "completion"):

    @app.completion
    async def complete(ref, argument, context) -> Completion:
        return Completion(values=[name for name in ("Ann", "Anton", "Bob") if name.startswith(argument.value)])


if sys.argv[1] == "http":
    app.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    app.run("stdio", show_banner=False)
