"""The blocking client of MCP."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.mcp import CallToolResult
from dragoman.mcp.client import blocking


@dataclass
class Weather:
    degrees: float


with blocking.connect("http://127.0.0.1:8000/mcp", timeout=3, headers={"x-tenant": "a"}) as client:
    whole: CallToolResult = client.call_tool("forecast", {"city": "Beijing"})
    degrees: float = client.call_tool("forecast", {"city": "Beijing"}, result=Weather).degrees
    names = [tool.name for tool in client.list_tools()]
    with client.subscribe(tools=True) as changes:
        for change in changes:
            print(change.kind, change.uri)

blocking.connect("http://a.example/mcp", timeout="3")  # wrong: seconds are a number
blocking.connect("http://a.example/mcp", retries=3)  # wrong: no such option
name: str = client.call_tool("forecast", result=Weather)  # wrong: a Weather
client.call_tool(tool="forecast")  # wrong: it is called name
client.subscribe("note://a", tool=True)  # wrong: misspelt


async def mistaken() -> None:
    await client.ping()  # wrong: it blocks
    async with client:  # wrong: with
        pass
