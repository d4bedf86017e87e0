# mypy: ignore-errors
"""A host on the official Python SDK 1; see `asked`."""

from __future__ import annotations

import asyncio
import os
import warnings
from datetime import timedelta

from asked import tell, words
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from mcp import ClientSession, StdioServerParameters

warnings.simplefilter("ignore")


async def main() -> None:
    _, limit, seconds, count, target = words()
    if target[0].startswith("http"):
        opened = streamable_http_client(target[0])
    else:
        command = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ), cwd=os.getcwd())
        opened = stdio_client(command)
    async with opened as (reading, writing, *_), ClientSession(reading, writing) as client:
        await client.initialize()
        await client.list_tools()  # results are checked against the schemas that are listed

        async def call(name, arguments, progress):
            async def on_progress(done, total, message) -> None:
                progress.append(done)

            result = await client.call_tool(name, arguments, timedelta(seconds=limit), on_progress)
            assert not result.isError, result
            return result.content[0].text, result.structuredContent

        await tell(call, seconds, count)


asyncio.run(main())
