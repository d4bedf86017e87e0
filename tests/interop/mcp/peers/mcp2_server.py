# mypy: ignore-errors
"""The official Python SDK 2 as a server: `python mcp2_server.py stdio | http PORT`."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import mcp.types as types
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel
from tools import NOTE, add_tools

warnings.simplefilter("ignore")
app = MCPServer("sdk2", version="1.0.0")
add_tools(app, Context, ToolError)


class Name(BaseModel):
    name: str


def which_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def which_answer() -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text="6 x 7?"))], max_tokens=10)


def which_roots() -> ListRoots:
    return ListRoots()


@app.tool()
async def ask_name(answer: Annotated[Name, Resolve(which_name)]) -> str:
    return f"Hello, {answer.name}!"


@app.tool()
async def ask_model(answer: Annotated[CreateMessageResult, Resolve(which_answer)]) -> str:
    return f"Model: {answer.content.text}"


@app.tool()
async def ask_roots(answer: Annotated[ListRootsResult, Resolve(which_roots)]) -> str:
    return "Roots: " + ", ".join(str(root.uri) for root in answer.roots)


@app.tool()
async def touch(ctx: Context) -> str:
    if ctx.protocol_version >= "2026":
        await ctx.notify_resource_updated(NOTE)
    else:
        await ctx.session.send_resource_updated(NOTE)
    return "touched"


async def nothing(ctx, params) -> types.EmptyResult:
    return types.EmptyResult()


# The server class has no public way to take these two; its own conformance server does it like this.
app._lowlevel_server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
app._lowlevel_server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)

if sys.argv[1] == "http":
    app.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
else:
    app.run("stdio")
