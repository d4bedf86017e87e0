# mypy: ignore-errors
"""mcp-utils-msgspec: `tools/call` of 2026-07-28 in process. It is blocking and has no wire of its own."""

import msgspec
from mcp_utils.core import MCPServer

from bench.messages import big, body
from bench.worker import measure

mcp = MCPServer(name="bench", version="1.0.0")


@mcp.tool()
def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


@mcp.tool()
def echo(text: str) -> str:
    return text


def process(tool: str) -> None:
    raw = (big() if tool == "echo" else body("2026", "tools/call", tool, 1)).encode()
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    measure(lambda: encode(mcp.handle_message(decode(raw))))
