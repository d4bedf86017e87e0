"""The server that the official conformance suite drives: `python -m tests.conformance.server --port 3001`, endpoint
/mcp.

Everything the suite asks for is here or in the modules beside it (`content`: results of every kind; `questions`: what
asks the client; `tasks`: what goes on as a task), and a few tools more for what the specification says and the suite
does not look at. It is written with dragoman's public face alone.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Annotated, Any

from dragoman import serve
from dragoman.mcp import Context, Header, Server, ToolError
from dragoman.mcp.extensions.tasks import Tasks

from .content import contents
from .questions import questions
from .tasks import tasks

PAUSE = 0.05
"""Seconds between the messages of a tool that speaks while it works."""

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""Must arrive in `tools/list` as it is."""


def server(*, state_life: float = 600) -> Server:
    """The whole server. `state_life`: seconds for which a `requestState` is good."""
    app = Server("conformance", version="1.0.0", title="Conformance", state_life=state_life, extensions=[Tasks()])
    contents(app)
    questions(app)
    tasks(app)
    working(app)
    changing(app)
    headers(app)
    beyond(app)
    return app


def working(app: Server) -> None:
    """Tools that say something while they work, and one that fails."""

    @app.tool
    async def test_tool_with_logging(ctx: Context) -> str:
        """Logs three times while it works."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(text)
            await asyncio.sleep(PAUSE)
        return "Tool with logging executed successfully"

    @app.tool
    async def test_tool_with_progress(ctx: Context) -> str:
        """Reports its progress three times."""
        for done in (0, 50, 100):
            await ctx.progress(done, 100, f"Completed step {done} of 100")
            await asyncio.sleep(PAUSE)
        return "Tool with progress executed successfully"

    @app.tool
    async def test_logging_tool(ctx: Context) -> str:
        """Logs at every level that a client may have asked for."""
        for level in ("debug", "info", "warning", "error"):
            await ctx.log(level, {"said": level}, logger="conformance")
        return "Logged"

    @app.tool(inline=True)
    def test_error_handling() -> str:
        """Always fails."""
        raise ToolError("This tool intentionally returns an error for testing")

    @app.tool
    async def test_reconnection(ctx: Context) -> str:
        """Ends the stream it was called on and finishes later: the answer waits for the client to come back."""
        ctx.close_stream()
        await asyncio.sleep(2 * PAUSE)
        return "Reconnection test completed successfully"


def changing(app: Server) -> None:
    """Tools that change a list, so that subscribers are told."""

    def nothing() -> str:
        """Comes and goes."""
        return "here"

    @app.tool
    async def test_trigger_tool_change() -> str:
        """Adds a tool and takes it away again."""
        app.add_tool(nothing, name="test_passing_tool")
        app.remove_tool("test_passing_tool")
        return "The list of tools has changed"

    @app.tool
    async def test_trigger_prompt_change() -> str:
        """Adds a prompt and takes it away again."""
        app.add_prompt(nothing, name="test_passing_prompt")
        app.remove_prompt("test_passing_prompt")
        return "The list of prompts has changed"

    @app.tool
    async def test_trigger_resource_update(ctx: Context, uri: str = "test://watched-resource") -> str:
        """Says that a resource has changed."""
        ctx.notify_resource_updated(uri)
        return f"{uri} has changed"


def headers(app: Server) -> None:
    """Arguments that come in HTTP headers as well."""

    @app.tool(inline=True)
    def test_x_mcp_header(region: Annotated[str, Header("Region")]) -> str:
        """Its argument stands in Mcp-Param-Region too."""
        return region

    @app.tool(inline=True)
    def test_x_mcp_header_integer(count: Annotated[int, Header("Count")]) -> str:
        """Its argument stands in Mcp-Param-Count too."""
        return str(count)

    @app.tool(inline=True)
    def test_x_mcp_header_boolean(flag: Annotated[bool, Header("Flag")]) -> str:
        """Its argument stands in Mcp-Param-Flag too."""
        return str(flag).lower()


def beyond(app: Server) -> None:
    """For tests of our own."""
    stats = {"started": 0, "finished": 0, "cancelled": 0}

    @app.tool
    async def slow(seconds: float) -> str:
        """Wait that long; can be cancelled."""
        stats["started"] += 1
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            stats["cancelled"] += 1
            raise
        stats["finished"] += 1
        return f"waited {seconds:g} s"

    @app.tool(inline=True)
    def slow_stats() -> dict[str, int]:
        """What became of the calls of `slow`."""
        return stats

    def described(arguments: dict[str, Any]) -> str:
        return ", ".join(sorted(arguments))

    app.add_tool(
        described,
        name="json_schema_2020_12_tool",
        description="Tool with JSON Schema 2020-12 features",
        input_schema=SCHEMA_2020_12,
    )


async def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.server")
    parser.add_argument("--port", type=int, default=3001)
    parser.add_argument("--state-life", type=float, default=600, help="seconds for which a requestState is good")
    chosen = parser.parse_args()
    await serve(server(state_life=chosen.state_life), urls=[f"http://127.0.0.1:{chosen.port}/mcp"])


if __name__ == "__main__":
    asyncio.run(main())
