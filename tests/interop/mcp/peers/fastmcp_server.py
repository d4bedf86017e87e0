# mypy: ignore-errors
"""FastMCP as a server: `python fastmcp_server.py stdio | http PORT`."""

from __future__ import annotations

import sys
import warnings

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import (
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
from tools import NOTE, add_tools

warnings.simplefilter("ignore")
app = FastMCP("fastmcp")
add_tools(app, Context, ToolError)
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Name(BaseModel):
    name: str


def modern(ctx: Context) -> bool:
    return ctx.request_context.protocol_version >= "2026"


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


if sys.argv[1] == "http":
    app.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    app.run("stdio", show_banner=False)
