# mypy: ignore-errors
"""The official Python SDK 1 as a client; see `probe` for how it is started. A URL that ends in /sse is taken for HTTP+SSE."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

import probe
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from mcp import ClientSession, StdioServerParameters, types

warnings.simplefilter("ignore")


class Heard:
    """What the server sent of its own accord."""

    def __init__(self) -> None:
        self.logs = []
        self.updated = asyncio.Queue()

    async def log(self, params) -> None:
        self.logs.append(params.data)

    async def message(self, message) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ResourceUpdatedNotification
        ):
            self.updated.put_nowait(str(message.root.params.uri))


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
        assert not result.isError, result
        return result.content[0].text

    async def listing():
        return sorted(tool.name for tool in (await client.list_tools()).tools)

    async def call():
        result = await client.call_tool("add", {"a": 2, "b": 3})
        return result.structuredContent["result"]

    async def error():
        result = await client.call_tool("fail", {})
        assert result.isError
        return "out of stock" if "out of stock" in result.content[0].text else result.content[0].text

    async def progress():
        seen = []

        async def on_progress(done, total, message) -> None:
            seen.append([done, total])

        await client.call_tool("steps", {"count": probe.COUNT}, progress_callback=on_progress)
        return seen

    async def log():
        await client.set_logging_level("info")
        heard.logs.clear()
        await text("steps", {"count": probe.COUNT})
        return list(heard.logs)

    async def cancel():
        number = client._request_id  # it keeps no other record of the id it is going to use
        waiting = asyncio.ensure_future(client.call_tool("wait", {}))
        while client._request_id == number:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await text("started")
        params = types.CancelledNotificationParams(requestId=number)
        await client.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        stopped = int(await text("stopped"))
        waiting.cancel()
        return stopped

    async def resource():
        return (await client.read_resource(AnyUrl(probe.NOTE))).contents[0].text

    async def prompt():
        return (await client.get_prompt("greet", {"who": "Ann"})).messages[0].content.text

    async def complete():
        reference = types.PromptReference(type="ref/prompt", name="greet")
        return (await client.complete(reference, {"name": "who", "value": "An"})).completion.values

    async def subscribe():
        await client.subscribe_resource(AnyUrl(probe.NOTE))
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
    async with (
        opened(target) as streams,
        ClientSession(
            streams[0],
            streams[1],
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=roots,
            logging_callback=heard.log,
            message_handler=heard.message,
        ) as client,
    ):
        hello = await client.initialize()
        probe.tell({"revision": hello.protocolVersion, **await probe.probe(features(client, heard))})


asyncio.run(main(*sys.argv[1:]))
