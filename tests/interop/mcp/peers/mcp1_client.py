# mypy: ignore-errors
"""The official Python SDK 1 as a client; see `probe` for how it is started. A URL that ends in /sse is taken for
HTTP+SSE."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

import probe
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from official import Heard, features, text
from pydantic import AnyUrl

from mcp import ClientSession, StdioServerParameters, types

warnings.simplefilter("ignore")


async def cancel(client):
    """It sends no cancelling by itself: a user has to, by the id that it is going to use and keeps no record of."""
    number = client._request_id
    waiting = asyncio.ensure_future(client.call_tool("wait", {}))
    while client._request_id == number:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await text(client, "started")
    params = types.CancelledNotificationParams(requestId=number)
    await client.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
    stopped = int(await text(client, "stopped"))
    waiting.cancel()
    return stopped


def opened(target):
    """The streams of a target."""
    if target[0].endswith("/sse"):
        return sse_client(target[0])
    if target[0].startswith("http"):
        return streamable_http_client(target[0])
    command = StdioServerParameters(command=target[0], args=list(target[1:]), env=dict(os.environ), cwd=os.getcwd())
    return stdio_client(command)


async def main(era: str, *target: str) -> None:
    heard = Heard()
    async with opened(target) as (reading, writing, *_), ClientSession(reading, writing, **heard.callbacks) as client:
        hello = await client.initialize()
        tried = features(client, heard, note=AnyUrl(probe.NOTE), modern=False) | {"cancel": lambda: cancel(client)}
        probe.tell({"revision": hello.protocolVersion, **await probe.probe(tried)})


asyncio.run(main(*sys.argv[1:]))
