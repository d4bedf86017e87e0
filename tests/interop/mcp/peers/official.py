# mypy: ignore-errors
"""What a client does alike on both official Python SDKs. They spell attributes differently, so results are read as
sent."""

from __future__ import annotations

import asyncio

import probe

from mcp import types


class Heard:
    """What the server sent of its own accord."""

    def __init__(self) -> None:
        self.logs = []
        self.updated = asyncio.Queue()

    async def log(self, params) -> None:
        data = params.data
        self.logs.append(data["msg"] if isinstance(data, dict) else data)

    async def message(self, message) -> None:
        told = getattr(message, "root", message)  # SDK 1 wraps what it was told
        if isinstance(told, types.ResourceUpdatedNotification):
            self.updated.put_nowait(str(told.params.uri))

    @property
    def callbacks(self):
        """What a client is made with: it types a name, its model says what it always says, and it listens."""
        return {
            "elicitation_callback": elicit,
            "sampling_callback": sample,
            "list_roots_callback": roots,
            "logging_callback": self.log,
            "message_handler": self.message,
        }


async def elicit(context, params):
    return types.ElicitResult(action="accept", content=probe.NAME)


async def sample(context, params):
    content = types.TextContent(type="text", text=probe.MODEL_SAYS)
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri=probe.ROOT)])


async def call(client, name, arguments=None, **options):
    """The result of a tool, with the names that it was sent under."""
    return (await client.call_tool(name, arguments or {}, **options)).model_dump(by_alias=True)


async def text(client, name, arguments=None):
    """The text of a result that is not a failure."""
    result = await call(client, name, arguments)
    assert not result["isError"], result
    return result["content"][0]["text"]


def features(client, heard: Heard, *, note, modern):
    """All but `cancel`. `note`: the resource's URI as this SDK takes it; `modern`: whether this is the stateless
    era."""

    async def listing():
        return sorted(tool.name for tool in (await client.list_tools()).tools)

    async def add():
        structured = (await call(client, "add", {"a": 2, "b": 3}))["structuredContent"]
        return structured["result"] if isinstance(structured, dict) else structured

    async def error():
        result = await call(client, "fail")
        assert result["isError"]
        said = result["content"][0]["text"]
        return "out of stock" if "out of stock" in said else said

    async def progress():
        seen = []

        async def on_progress(done, total, message) -> None:
            seen.append([done, total])

        await call(client, "steps", {"count": probe.COUNT}, progress_callback=on_progress)
        return seen

    async def log():
        if not modern:
            await client.set_logging_level("info")
        heard.logs.clear()
        await text(client, "steps", {"count": probe.COUNT})
        return list(heard.logs)

    async def resource():
        return (await client.read_resource(note)).contents[0].text

    async def prompt():
        return (await client.get_prompt("greet", {"who": "Ann"})).messages[0].content.text

    async def complete():
        reference = types.PromptReference(type="ref/prompt", name="greet")
        return (await client.complete(reference, {"name": "who", "value": "An"})).completion.values

    async def subscribe():
        if modern:
            async with client.listen(resource_subscriptions=[note]) as events:
                await text(client, "touch")
                return (await anext(aiter(events))).uri
        await client.subscribe_resource(note)
        await text(client, "touch")
        return await heard.updated.get()

    return {
        "list": listing,
        "call": add,
        "error": error,
        "progress": progress,
        "log": log,
        "resource": resource,
        "prompt": prompt,
        "complete": complete,
        "elicit": lambda: text(client, "ask_name"),
        "sample": lambda: text(client, "ask_model"),
        "roots": lambda: text(client, "ask_roots"),
        "subscribe": subscribe,
    }
