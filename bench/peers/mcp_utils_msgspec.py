# mypy: ignore-errors
"""mcp-utils-msgspec: `tools/call` of 2026-07-28 in process. It is blocking and has no wire of its own."""

import msgspec
from mcp_utils.core import MCPServer

from bench.mcp_load import big, body
from bench.worker import offer

mcp = MCPServer(name="bench", version="1.0.0")


@mcp.tool()
def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


@mcp.tool()
def echo(text: str) -> str:
    return text


decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
CALLS = {"single": body("2026", "tools/call", "subtract", 1).encode(), "big": big().encode()}

if __name__ == "__main__":
    offer({name: lambda raw=raw: encode(mcp.handle_message(decode(raw))) for name, raw in CALLS.items()})
