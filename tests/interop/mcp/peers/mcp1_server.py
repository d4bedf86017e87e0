# mypy: ignore-errors
"""The official Python SDK 1 as a server: `python mcp1_server.py stdio | http PORT | sse PORT`."""

from __future__ import annotations

import sys
import warnings

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel
from tools import NOTE, add_tools

warnings.simplefilter("ignore")
options = {"host": "127.0.0.1", "port": int(sys.argv[2])} if len(sys.argv) > 2 else {}
app = FastMCP("sdk1", **options)
add_tools(app, Context, ToolError)


class Name(BaseModel):
    name: str


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


# The server class has no public way to take these two; the SDK's own examples do it like this.
@app._mcp_server.subscribe_resource()
async def subscribe(uri) -> None:
    return None


@app._mcp_server.set_logging_level()
async def set_level(level) -> None:
    return None


app.run({"http": "streamable-http"}.get(sys.argv[1], sys.argv[1]))
