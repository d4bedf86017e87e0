# mypy: ignore-errors
"""FastMCP as a client; see `probe` for how it is started."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

import anyio
import mcp_types
import probe
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

warnings.simplefilter("ignore")


class Heard:
    """What the server sent of its own accord."""

    def __init__(self) -> None:
        self.logs = []
        self.progress = []
        self.updated = asyncio.Queue()

    async def log(self, message) -> None:
        self.logs.append(message.data.get("msg", message.data) if isinstance(message.data, dict) else message.data)

    async def step(self, done, total, message) -> None:
        self.progress.append([done, total])

    async def message(self, message) -> None:
        if isinstance(message, mcp_types.ResourceUpdatedNotification):
            self.updated.put_nowait(str(message.params.uri))


async def elicit(message, response_type, params, context):
    return probe.NAME


async def sample(messages, params, context):
    return probe.MODEL_SAYS


def features(client, heard: Heard):
    async def text(name, arguments=None, **options):
        return (await client.call_tool(name, arguments or {}, **options)).content[0].text

    async def listing():
        return sorted(tool.name for tool in await client.list_tools())

    async def call():
        result = await client.call_tool("add", {"a": 2, "b": 3})
        structured = result.structured_content
        return structured["result"] if isinstance(structured, dict) else structured

    async def error():
        result = await client.call_tool("fail", {}, raise_on_error=False)
        assert result.is_error
        return "out of stock" if "out of stock" in result.content[0].text else result.content[0].text

    async def progress():
        heard.progress.clear()
        await client.call_tool("steps", {"count": probe.COUNT}, progress_handler=heard.step)
        return list(heard.progress)

    async def log():
        if client.protocol_version < "2026":
            await client.set_logging_level("info")
        heard.logs.clear()
        meta = {"io.modelcontextprotocol/logLevel": "info"} if client.protocol_version >= "2026" else None
        await text("steps", {"count": probe.COUNT}, meta=meta)
        return list(heard.logs)

    async def cancel():
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await text("started")
            group.cancel_scope.cancel()
        return int(await text("stopped"))

    async def resource():
        return (await client.read_resource(probe.NOTE))[0].text

    async def prompt():
        return (await client.get_prompt("greet", {"who": "Ann"})).messages[0].content.text

    async def complete():
        reference = mcp_types.PromptReference(type="ref/prompt", name="greet")
        return (await client.complete(reference, {"name": "who", "value": "An"})).values

    async def subscribe():
        await client.session.subscribe_resource(probe.NOTE)
        await text("touch")
        return await heard.updated.get()

    found = {
        "list": listing,
        "call": call,
        "error": error,
        "progress": progress,
        "log": log,
        "resource": resource,
        "prompt": prompt,
        "complete": complete,
        "elicit": lambda: text("ask_name"),
        "sample": lambda: text("ask_model"),
        "roots": lambda: text("ask_roots"),
        "subscribe": subscribe,
        "cancel": cancel,
    }
    if client.protocol_version >= "2026":
        del found["subscribe"]  # it has no subscriptions/listen of its own
    return found


async def main(era: str, *target: str) -> None:
    heard = Heard()
    place = target[0]
    if not place.startswith("http"):
        place = StdioTransport(place, list(target[1:]), env=dict(os.environ), cwd=os.getcwd())
    async with Client(
        place,
        mode=era,
        elicitation_handler=elicit,
        sampling_handler=sample,
        roots=[probe.ROOT],
        log_handler=heard.log,
        message_handler=heard.message,
    ) as client:
        probe.tell({"revision": client.protocol_version, **await probe.probe(features(client, heard))})


asyncio.run(main(*sys.argv[1:]))
