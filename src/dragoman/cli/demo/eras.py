"""The MCP part of the demo: one tool, called once in each era over a bare TCP socket, message by message."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from msgspec import Struct, field

from ...mcp import Server
from ...mcp.protocol.revisions import NEWEST, NEWEST_STATEFUL, Revision
from ...serving import serve
from ..exit_status import ending_of
from .calculator import subtract

PATIENCE = 30.0
"""Seconds for one era: the machine may be busy."""
META = "io.modelcontextprotocol/"
ME = {"name": "demo", "version": "1"}

app: Server = Server("calculator", version="1.0.0")
app.add_tool(subtract, inline=True)


class Era(Struct, kw_only=True):
    """A tool call in one era: the messages in both directions, each with its arrow, and whether the result was 19."""

    revision: str
    what: str
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    fine: bool = False
    note: str = ""
    """The reason if it failed."""


async def eras() -> list[Era]:
    """Call `subtract` in the newest stateful revision and in the newest revision, on one server."""
    async with serve(app, urls=["tcp://127.0.0.1:0"]) as serving:
        host, _, port = serving.urls[0].removeprefix("tcp://").rpartition(":")
        return [await _call_tool(revision, host, int(port)) for revision in (NEWEST_STATEFUL, NEWEST)]


async def _call_tool(revision: Revision, host: str, port: int) -> Era:
    how = "the client introduces itself, then calls" if revision.stateful else "every request describes its client"
    era = Era(revision=revision.date, what=how)
    try:
        async with asyncio.timeout(PATIENCE):
            await _exchange(era, _script(revision), host, port)
        era.fine = msgspec.json.decode(era.messages[-1][1])["result"]["content"] == [{"type": "text", "text": "19"}]
        era.note = "" if era.fine else "the answer is not 19"
    except Exception as fault:
        era.note = ending_of(fault).text or type(fault).__name__
    return era


async def _exchange(era: Era, script: list[dict[str, Any]], host: str, port: int) -> None:
    """Send the messages, one per line, and record them and the lines that come back."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        for message in script:
            raw = msgspec.json.encode(message)
            era.messages.append(("→", raw))
            writer.write(raw + b"\n")
            if "id" in message:
                era.messages.append(("←", (await reader.readline()).rstrip(b"\n")))
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _script(revision: Revision) -> list[dict[str, Any]]:
    """The messages that a client sends, in order."""
    call: dict[str, Any] = {"name": "subtract", "arguments": {"minuend": 42, "subtrahend": 23}}
    if not revision.stateful:
        said = {META + "protocolVersion": revision.date, META + "clientInfo": ME, META + "clientCapabilities": {}}
        return [_request(1, "tools/call", call | {"_meta": said})]
    hello = {"protocolVersion": revision.date, "capabilities": {}, "clientInfo": ME}
    return [
        _request(1, "initialize", hello),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _request(2, "tools/call", call),
    ]


def _request(id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
