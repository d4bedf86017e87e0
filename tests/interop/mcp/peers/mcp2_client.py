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

from mcp import Client, types

warnings.simplefilter("ignore")


class Heard:
    """What the server sent of its own accord."""

    def __init__(self) -> None:
        self.logs = []
        self.updated = asyncio.Queue()

    async def log(self, params) -> None:
        data = params.data
        self.logs.append(data["msg"] if isinstance(data, dict) else data)

    async def message(self, message) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.put_nowait(str(message.params.uri))


async def elicit(context, params):
    return types.ElicitResult(action="accept", content=probe.NAME)


async def sample(context, params):
    content = types.TextContent(type="text", text=probe.MODEL_SAYS)
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri=probe.ROOT)])


def features(client, heard: Heard):
    async def text(name, arguments=None, **options):
        result = await client.call_tool(name, arguments or {}, **options)
        assert not result.is_error, result
        return result.content[0].text

    async def listing():
        return sorted(tool.name for tool in (await client.list_tools()).tools)

    async def call():
        result = await client.call_tool("add", {"a": 2, "b": 3})
        structured = result.structured_content
        return structured["result"] if isinstance(structured, dict) else structured

    async def error():
        result = await client.call_tool("fail", {})
        assert result.is_error
        return "out of stock" if "out of stock" in result.content[0].text else result.content[0].text

    async def progress():
        seen = []

        async def on_progress(done, total, message) -> None:
            seen.append([done, total])

        await client.call_tool("steps", {"count": probe.COUNT}, progress_callback=on_progress)
        return seen

    async def log():
        if client.protocol_version < "2026":
            await client.set_logging_level("info")
        heard.logs.clear()
        await text("steps", {"count": probe.COUNT})
        return list(heard.logs)

    async def cancel():
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await text("started")
            group.cancel_scope.cancel()
        return int(await text("stopped"))

    async def resource():
        return (await client.read_resource(probe.NOTE)).contents[0].text

    async def prompt():
        return (await client.get_prompt("greet", {"who": "Ann"})).messages[0].content.text

    async def complete():
        reference = types.PromptReference(type="ref/prompt", name="greet")
        return (await client.complete(reference, {"name": "who", "value": "An"})).completion.values

    async def subscribe():
        if client.protocol_version >= "2026":
            async with client.listen(resource_subscriptions=[probe.NOTE]) as events:
                await text("touch")
                return (await anext(aiter(events))).uri
        await client.subscribe_resource(probe.NOTE)
        await text("touch")
        return await heard.updated.get()

    return {
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


async def main(era: str, *target: str) -> None:
    heard = Heard()
    place = target[0]
    if not place.startswith("http"):
        place = StdioServerParameters(command=place, args=list(target[1:]), env=dict(os.environ), cwd=os.getcwd())
    async with Client(
        place,
        mode=era,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
        logging_callback=heard.log,
        message_handler=heard.message,
        log_level="info",
    ) as client:
        probe.tell({"revision": client.protocol_version, **await probe.probe(features(client, heard))})


asyncio.run(main(*sys.argv[1:]))
