"""Our client at third parties' servers: what comes of every feature, as `probe` has it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from dragoman.mcp import (
    CallToolResult,
    Client,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
)

from .environments import ROOT, variables
from .pairs import HANDSHAKE, Pair
from .peers import probe

EVERYTHING_NOTE = "demo://resource/dynamic/text/1"


def elicit(params: ElicitRequestParams) -> ElicitResult:
    """The user types a name; defaults fill the rest."""
    return ElicitResult(action="accept", content=dict(probe.NAME))


def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
    """The model says what it always says."""
    return CreateMessageResult(role="assistant", content=TextContent(probe.MODEL_SAYS), model="none")


async def found(pair: Pair, target: list[str]) -> dict[str, Any]:
    """Every feature at this server."""
    logs: list[Any] = []
    told = asyncio.Event()

    def log(params: LoggingMessageNotificationParams) -> None:
        data = params.data
        logs.append(data["msg"] if isinstance(data, dict) and "msg" in data else data)
        told.set()

    async with Client(
        target[0] if pair.wire != "stdio" else target,
        name="dragoman",
        revision=HANDSHAKE if pair.era == "legacy" else None,
        env=variables(),
        cwd=str(ROOT),
        on_elicit=elicit,
        on_sample=sample,
        roots=[Root(probe.ROOT)],
        on_log=log,
        stderr=lambda line: None,
    ) as client:
        features = everything(client, told) if pair.peer == "everything" else common(client, logs)
        return {"revision": client.revision.date, **await probe.probe(features)}


def text(result: CallToolResult) -> str:
    """The first text of a result that is not a failure."""
    block = result.content[0]
    assert not result.is_error, result
    assert isinstance(block, TextContent), block
    return block.text


def common(client: Client, logs: list[Any]) -> dict[str, probe.Feature]:
    """At a server that has the tools of `probe`."""

    async def listing() -> list[str]:
        return sorted(tool.name for tool in await client.list_tools())

    async def call() -> int:
        result = await client.call_tool("add", {"a": 2, "b": 3})
        structured: Any = result.structured_content
        return int(structured["result"] if isinstance(structured, dict) else structured)

    async def error() -> str:
        result = await client.call_tool("fail")
        block = result.content[0]
        assert result.is_error
        assert isinstance(block, TextContent)
        return "out of stock" if "out of stock" in block.text else block.text

    async def progress() -> list[list[Any]]:
        seen: list[list[Any]] = []
        await client.call_tool(
            "steps", {"count": probe.COUNT}, on_progress=lambda step: seen.append([step.progress, step.total])
        )
        return seen

    async def log() -> list[Any]:
        await client.set_log_level("info")
        logs.clear()
        await client.call_tool("steps", {"count": probe.COUNT})
        return list(logs)

    async def cancel() -> int:
        waiting = asyncio.ensure_future(client.call_tool("wait"))
        text(await client.call_tool("started"))
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        return int(text(await client.call_tool("stopped")))

    async def subscribe() -> str:
        async with client.subscribe(uris=[probe.NOTE]) as events:
            await client.call_tool("touch")
            event: Any = await anext(aiter(events))
            return str(event.uri)

    async def asked(tool: str) -> str:
        return text(await client.call_tool(tool))

    return {
        "list": listing,
        "call": call,
        "error": error,
        "progress": progress,
        "log": log,
        **read(client, probe.NOTE),
        "prompt": lambda: prompt(client, "greet", {"who": "Ann"}),
        "complete": lambda: completed(client, "greet", "who", "An"),
        "elicit": lambda: asked("ask_name"),
        "sample": lambda: asked("ask_model"),
        "roots": lambda: asked("ask_roots"),
        "subscribe": subscribe,
        "cancel": cancel,
    }


def read(client: Client, uri: str) -> dict[str, probe.Feature]:
    """The text of a resource."""

    async def resource() -> Any:
        return (await client.read_resource(uri)).contents[0].text

    return {"resource": resource}


async def prompt(client: Client, name: str, arguments: dict[str, str]) -> str:
    """The text of a prompt."""
    content = (await client.get_prompt(name, arguments)).messages[0].content
    assert isinstance(content, TextContent)
    return content.text


async def completed(client: Client, name: str, argument: str, value: str) -> list[str]:
    """What a prompt's argument is completed to."""
    return list((await client.complete(name, argument, value)).values)


def everything(client: Client, told: asyncio.Event) -> dict[str, probe.Feature]:
    """At server-everything, whose tools are its own: where what must be is there, what `probe` expects is given."""

    async def listing() -> Any:
        names = {tool.name for tool in await client.list_tools()}
        wanted = {"echo", "get-sum", "trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"}
        return probe.EXPECTED["list"] if wanted <= names else sorted(names)

    async def call() -> Any:
        said = text(await client.call_tool("get-sum", {"a": 2, "b": 3}))
        structured: Any = (
            await client.call_tool("get-structured-content", {"location": "New York"})
        ).structured_content
        return 5 if said.endswith(" 5.") and "temperature" in structured else (said, structured)

    async def progress() -> list[list[Any]]:
        seen: list[list[Any]] = []
        await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.3, "steps": probe.COUNT},
            on_progress=lambda step: seen.append([step.progress, step.total]),
        )
        return seen

    async def log() -> Any:
        await client.set_log_level("debug")
        told.clear()
        await client.call_tool("toggle-simulated-logging")
        await told.wait()
        await client.call_tool("toggle-simulated-logging")
        return probe.EXPECTED["log"]

    async def resource() -> Any:
        said = (await client.read_resource(EVERYTHING_NOTE)).contents[0].text
        return probe.EXPECTED["resource"] if "Resource 1" in str(said) else said

    async def prompted() -> Any:
        said = await prompt(client, "args-prompt", {"city": "Beijing"})
        return probe.EXPECTED["prompt"] if "Beijing" in said else said

    async def complete() -> Any:
        names = await completed(client, "completable-prompt", "department", "E")
        return probe.EXPECTED["complete"] if names == ["Engineering"] else names

    async def asked(tool: str, feature: str, within: str, arguments: dict[str, Any] | None = None) -> Any:
        result = await client.call_tool(tool, arguments)
        said = " ".join(block.text for block in result.content if isinstance(block, TextContent))
        return probe.EXPECTED[feature] if within in said else said

    async def subscribe() -> Any:
        async with client.subscribe(uris=[EVERYTHING_NOTE]) as events:
            await client.call_tool("toggle-subscriber-updates")
            event: Any = await anext(aiter(events))
            return probe.NOTE if event.uri == EVERYTHING_NOTE else event.uri

    async def cancel() -> Any:
        slow = {"duration": 60, "steps": 600}
        waiting = asyncio.ensure_future(client.call_tool("trigger-long-running-operation", slow, timeout=None))
        text(await client.call_tool("echo", {"message": "here"}))
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        return 1 if "here" in text(await client.call_tool("echo", {"message": "here"})) else 0

    prompt_ = {"prompt": "6 x 7?", "maxTokens": 10}
    return {
        "list": listing,
        "call": call,
        "progress": progress,
        "log": log,
        "resource": resource,
        "prompt": prompted,
        "complete": complete,
        "elicit": lambda: asked("trigger-elicitation-request", "elicit", "Name: Ann"),
        "sample": lambda: asked("trigger-sampling-request", "sample", probe.MODEL_SAYS, prompt_),
        "roots": lambda: asked("get-roots-list", "roots", probe.ROOT),
        "subscribe": subscribe,
        "cancel": cancel,
    }
