# mypy: ignore-errors
"""A host on the official Python SDK 2; see `asked`."""

from __future__ import annotations

import asyncio
import os
import warnings

from asked import tell, words
from mcp.client.stdio import StdioServerParameters

from mcp import Client

warnings.simplefilter("ignore")


async def main() -> None:
    era, limit, seconds, count, target = words()
    place = target[0]
    if not place.startswith("http"):
        place = StdioServerParameters(command=place, args=target[1:], env=dict(os.environ), cwd=os.getcwd())
    async with Client(place, mode=era) as client:
        await client.list_tools()  # results are checked against the schemas that are listed

        async def call(name, arguments, progress):
            async def on_progress(done, total, message) -> None:
                progress.append(done)

            result = await client.call_tool(name, arguments, limit, on_progress)
            assert not result.is_error, result
            return result.content[0].text, result.structured_content

        await tell(call, seconds, count)


asyncio.run(main())
