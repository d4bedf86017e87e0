# mypy: ignore-errors
"""The official Python SDK 2 as a client; see `probe` for how it is started."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

import anyio
import probe
from mcp.client.stdio import StdioServerParameters
from official import Heard, features, text

from mcp import Client

warnings.simplefilter("ignore")


async def cancel(client):
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "wait", {})
        await text(client, "started")
        group.cancel_scope.cancel()
    return int(await text(client, "stopped"))


async def main(era: str, *target: str) -> None:
    heard = Heard()
    place = target[0]
    if not place.startswith("http"):
        place = StdioServerParameters(command=place, args=list(target[1:]), env=dict(os.environ), cwd=os.getcwd())
    async with Client(place, mode=era, log_level="info", **heard.callbacks) as client:
        modern = client.protocol_version >= "2026"
        tried = features(client, heard, note=probe.NOTE, modern=modern) | {"cancel": lambda: cancel(client)}
        probe.tell({"revision": client.protocol_version, **await probe.probe(tried)})


asyncio.run(main(*sys.argv[1:]))
