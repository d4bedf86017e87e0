"""What is asked of both servers, and what each must answer: `CHECKS`, whose names stand in docs/mcp/moving.md."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from dragoman import RpcError
from dragoman.mcp import Client, ElicitRequestParams

Ask = Callable[[Client], Awaitable[Any]]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
PNG64: Final = "iVBORw0KGgo="
REFERENCE: Final = re.compile(r"reference [0-9a-f]+")


class Eras(Struct, frozen=True):
    """An answer that the two eras have each in its own way."""

    legacy: Any
    modern: Any


class Check(Struct, frozen=True):
    """One thing that both are asked: the same answer from both, or what each says."""

    ask: Ask
    same: Any = UNSET
    here: Any = UNSET
    there: Any = UNSET

    def expected(self, side: str, revision: str) -> Any:
        """What this side must answer."""
        value = self.same if self.same is not UNSET else getattr(self, side)
        if isinstance(value, Eras):
            return value.legacy if revision == LEGACY else value.modern
        return value


def plain(value: Any) -> Any:
    """As JSON has it."""
    return msgspec.to_builtins(value)


# -- what is asked


def call(name: str, /, **arguments: Any) -> Ask:
    """The value of a tool's result, however it is sent; or its first line, where it is an error."""

    async def ask(client: Client) -> Any:
        try:
            found = plain(await client.call_tool(name, arguments))
        except RpcError as error:
            return f"error {error.code}"
        text = found["content"][0].get("text", "") if found["content"] else ""
        if found.get("isError"):
            return "isError: " + REFERENCE.sub("reference ...", text).partition("\n")[0]
        value = found.get("structuredContent", text)
        return value["result"] if isinstance(value, dict) and set(value) == {"result"} else value

    return ask


def faults(name: str, *words: str, **arguments: Any) -> Ask:
    """Which of these words the text of a failure has."""

    async def ask(client: Client) -> Any:
        text = plain(await client.call_tool(name, arguments))["content"][0]["text"]
        return [word for word in words if word in text]

    return ask


def sent(name: str) -> Ask:
    """The members of a tool's result as they are sent, and whether the tool has an output schema."""

    async def ask(client: Client) -> Any:
        [tool] = [plain(tool) for tool in await client.list_tools() if tool.name == name]
        found = plain(await client.call_tool(name))
        return [[one["type"] for one in found["content"]], found.get("structuredContent"), "outputSchema" in tool]

    return ask


def blocks(name: str) -> Ask:
    """The content of a tool's result."""

    async def ask(client: Client) -> Any:
        return [
            {key: value for key, value in block.items() if key in ("type", "text", "data", "mimeType")}
            for block in plain(await client.call_tool(name))["content"]
        ]

    return ask


def schema(name: str, *, types: bool = True) -> Ask:
    """The arguments that a tool shows, without their titles; without `types`, what stands beside these."""
    left = ("title",) if types else ("title", "type")

    def bare(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: bare(inner) for key, inner in value.items() if key not in left or isinstance(inner, dict)}

    async def ask(client: Client) -> Any:
        [tool] = [tool for tool in await client.list_tools() if tool.name == name]
        return bare(plain(tool.input_schema).get("properties", {}))

    return ask


def shown(name: str, *members: str) -> Ask:
    """What a list says of a tool."""

    async def ask(client: Client) -> Any:
        [tool] = [plain(tool) for tool in await client.list_tools() if tool.name == name]
        found = {member: tool.get(member) for member in members}
        if found.get("_meta"):
            found["_meta"].pop("fastmcp", None)  # its own
        return found

    return ask


def reading(uri: str) -> Ask:
    """The text or blob of a resource, with its media type."""

    async def ask(client: Client) -> Any:
        try:
            [contents] = plain((await client.read_resource(uri)).contents)
        except RpcError as error:
            return f"error {error.code}" + (": the secret" if "secret" in error.message else "")
        return [contents.get("text", contents.get("blob")), contents.get("mimeType")]

    return ask


def prompt(name: str, /, **arguments: str) -> Ask:
    """The messages of a prompt."""

    async def ask(client: Client) -> Any:
        try:
            found = plain(await client.get_prompt(name, arguments))
        except RpcError as error:
            return f"error {error.code}"
        return [[message["role"], message["content"]["text"]] for message in found["messages"]]

    return ask


def completing(value: str, **known: str) -> Ask:
    """What is proposed for the name of the theme."""

    async def ask(client: Client) -> Any:
        return (await client.complete("theme", "name", value, known)).values

    return ask


async def listed_tools(client: Client) -> Any:
    return sorted(tool.name for tool in await client.list_tools() if tool.name.startswith(("part", "erase")))


async def listed_only(client: Client) -> Any:
    return sorted(tool.name for tool in await client.list_tools() if tool.name.startswith("only"))


async def listed_parts(client: Client) -> Any:
    resources = sorted(one.uri for one in await client.list_resources() if "part" in one.uri)
    return [*resources, *sorted(one.name for one in await client.list_prompts() if "say" in one.name)]


async def identity(client: Client) -> Any:
    server = plain(client.server)
    return [server["name"], server["version"], server["websiteUrl"], len(server["icons"]), client.instructions]


async def notifies(client: Client) -> Any:
    """Which changes of lists the server says it will tell."""
    able = plain(client.capabilities)
    return [able[kind].get("listChanged", False) for kind in ("tools", "resources", "prompts")]


async def progress(client: Client) -> Any:
    steps: list[Any] = []
    await client.call_tool("reports", on_progress=lambda step: steps.append([step.progress, step.total, step.message]))
    return steps


async def remembers(client: Client) -> Any:
    return [await call("remembers")(client) for _ in range(2)]


async def several_in_threads(client: Client) -> Any:
    return await asyncio.gather(*(call("in_thread")(client) for _ in range(3)))


def version(number: str | None, **arguments: Any) -> Ask:
    """The result of a version of the tool that has two."""

    async def ask(client: Client) -> Any:
        meta = {} if number is None else {"fastmcp": {"version": number}}
        try:
            found = plain(await client.call_tool("sum_of", arguments, meta=meta))
        except RpcError as error:
            return f"error {error.code}"
        return "isError" if found.get("isError") else found["content"][0]["text"]

    return ask


async def versions(client: Client) -> Any:
    """What a list says of them."""
    [tool] = [plain(tool) for tool in await client.list_tools() if tool.name == "sum_of"]
    told = tool["_meta"]["fastmcp"]
    return [told["version"], told["versions"], sorted(tool["inputSchema"]["properties"])]


def answer(params: ElicitRequestParams) -> dict[str, Any]:
    """What the user says to any form."""
    said = {"name": "Ada", "age": 36, "value": "low"}
    return {name: said[name] for name in plain(params.requested_schema)["properties"]}


# -- what is answered

UNASKABLE: Final = "isError: elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
NOT_FOUND: Final = Eras("error -32002", "error -32602")
LIMIT: Final = {"description": "How many", "minimum": 1, "maximum": 100, "default": 10}
TAGS: Final = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}

CHECKS: Final[dict[str, Check]] = {
    "identity": Check(identity, ["moving", "1.2.3", "https://moving.example", 1, "Ask."]),
    "arguments": Check(
        schema("search", types=False),
        {"query": {}, "limit": LIMIT, "sort": {"enum": ["new", "old"], "default": "new"}, "tags": TAGS},
    ),
    "docstrings": Check(
        schema("documented"),
        {
            "width": {"type": "integer", "description": "In pixels."},
            "height": {"type": "integer", "description": "In lines.", "default": 2},
        },
    ),
    "descriptions": Check(shown("documented", "description"), {"description": "Draw a box."}),
    "fits": Check(call("search", query="a", limit=5), "a 5 new None"),
    "models": Check(call("greet", person={"name": "Ada", "age": 36}), "Ada is 36"),
    "schemas of models": Check(
        schema("greet"),
        {
            "person": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
                "required": ["name", "age"],
            }
        },
    ),
    "converts": Check(
        call("search", query="a", limit="5"), here="isError: Invalid arguments for search:", there="a 5 new None"
    ),
    "every fault": Check(
        faults("search", "query", "limit", "sort", "errors.pydantic.dev", limit=500, sort="x"),
        here=["query", "limit", "sort"],
        there=["query", "limit", "sort", "errors.pydantic.dev"],
    ),
    "near names": Check(
        faults("search", "lmit", "did you mean 'limit'?", query="a", lmit=5),
        here=["lmit", "did you mean 'limit'?"],
        there=["lmit"],
    ),
    "faults in models": Check(faults("greet", "person.age", person={"name": "Ada", "age": -1}), ["person.age"]),
    "options": Check(
        shown("named", "title", "description", "annotations", "icons", "_meta"),
        {
            "title": "A title",
            "description": "A description",
            "annotations": {"readOnlyHint": True},
            "icons": [{"src": "https://moving.example/tool.png"}],
            "_meta": {"team": "a"},
        },
    ),
    "bound methods": Check(call("stop", hard=True), "stopped True"),
    "static methods": Check(call("start", speed=3), "started at 3"),
    "threads": Check(several_in_threads, [True, True, True]),
    "text": Check(sent("a_text"), here=[["text"], None, False], there=[["text"], {"result": "text"}, True]),
    "numbers": Check(
        sent("a_number"),
        here=Eras([["text"], {"result": 5}, True], [["text"], 5, True]),
        there=[["text"], {"result": 5}, True],
    ),
    "lists": Check(call("a_list"), [1, 2]),
    "objects": Check(sent("a_dict"), [["text"], {"a": 1}, True]),
    "models as results": Check(sent("a_model"), [["text"], {"name": "Ada", "age": 36}, True]),
    "dataclasses as results": Check(sent("a_dataclass"), [["text"], {"x": 1, "y": 2}, True]),
    "without an annotation": Check(
        sent("unannotated"), here=[["text"], None, False], there=[["text"], {"a": 1}, False]
    ),
    "none": Check(sent("nothing"), here=[[], None, False], there=[[], {"result": None}, True]),
    "bytes": Check(
        blocks("some_bytes"),
        here=[{"type": "image", "data": PNG64, "mimeType": "image/png"}],
        there=[{"type": "text", "text": PNG64}],
    ),
    "images": Check(blocks("an_image"), [{"type": "image", "data": PNG64, "mimeType": "image/png"}]),
    "mixed content": Check(
        blocks("mixed"),
        [{"type": "text", "text": "text"}, {"type": "image", "data": PNG64, "mimeType": "image/png"}],
    ),
    "whole results": Check(call("whole"), {"a": 1}),
    "own schemas": Check(
        shown("own_schema", "outputSchema"),
        {"outputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    ),
    "masking": Check(
        call("fails"),
        here="isError: fails failed (reference ...)",
        there="isError: Error calling tool 'fails': a secret of ours",
    ),
    "tool errors": Check(call("tells"), "isError: try again"),
    "time-outs": Check(
        call("late"),
        here="error -32603",
        there="isError: Error calling tool 'late': Tool 'late' execution timed out after 0.05s",
    ),
    "unknown tools": Check(call("no_such"), here="error -32602", there="isError: Unknown tool: 'no_such'"),
    "middleware": Check(call("forbidden"), "isError: not today"),
    "disabled": Check(call("erase"), here="error -32602", there="isError: Unknown tool: 'erase'"),
    "hidden dependencies": Check(schema("depends"), {"text": {"type": "string"}}),
    "dependencies": Check(call("depends", text="hi"), "hi by ada"),
    "given dependencies": Check(faults("depends", "by", text="hi", by="eve"), ["by"]),
    "once a call": Check(call("cached"), True),
    "failing clean-up": Check(
        call("commits"),
        here="isError: commits failed (reference ...)",
        there="isError: Error calling tool 'commits': the commit failed",
    ),
    "lifespans": Check(call("opened"), "yes"),
    "progress": Check(progress, [[1, 2, "half"]]),
    "state": Check(remembers, here=[1, 2], there=Eras([1, 2], [1, 1])),
    "elicitation": Check(call("asks"), here="Ada", there=Eras("Ada", UNASKABLE)),
    "a single value": Check(call("asks_text"), here="low", there=Eras("low", UNASKABLE)),
    "a choice": Check(call("asks_choice"), here="low", there=Eras("low", UNASKABLE)),
    "resources inside": Check(call("reads"), "text"),
    "text resources": Check(reading("data://text"), ["text", "text/plain"]),
    "JSON resources": Check(
        reading("data://json"), here=['{"a":1}', "application/json"], there=['{"a": 1}', "text/plain"]
    ),
    "blobs": Check(reading("data://blob"), [PNG64, "image/png"]),
    "templates": Check(reading("users://7/profile"), ["7", "text/plain"]),
    "wrong variables": Check(reading("users://x/profile"), here="error -32602", there="error -32603"),
    "wildcards": Check(reading("files://a/b.txt"), ["a/b.txt", "text/plain"]),
    "queries": Check(reading("list://x?limit=3"), ["x 3", "text/plain"]),
    "missing queries": Check(reading("list://x"), ["x 10", "text/plain"]),
    "escapes": Check(reading("files://../b"), here=NOT_FOUND, there="error -32602"),
    "encoded escapes": Check(reading("files://a/%2e%2e/b"), here=NOT_FOUND, there=["a/../b", "text/plain"]),
    "missing resources": Check(reading("none://x"), here=NOT_FOUND, there="error -32602"),
    "masking of resources": Check(reading("broken://x"), here="error -32603", there="error -32603: the secret"),
    "errors of resources": Check(reading("told://x"), "error -32603"),
    "typed prompts": Check(prompt("typed", count="5", words='["a"]'), [["user", "5 ['a']"]]),
    "wrong prompt arguments": Check(prompt("typed", count="x"), here="error -32602", there="error -32603"),
    "missing prompt arguments": Check(prompt("typed"), "error -32602"),
    "messages": Check(prompt("talk", topic="tea"), [["user", "About tea"], ["assistant", "Gladly."]]),
    "unknown prompts": Check(prompt("no_such"), "error -32602"),
    "completion": Check(completing("n"), ["nature", "night"]),
    "known arguments": Check(completing("", kind="song"), ["love"]),
    "allowlists": Check(listed_only, ["only_safe"]),
    "mounted tools": Check(listed_tools, ["part_later", "part_ping"]),
    "mounted resources": Check(listed_parts, ["part://part/x", "part_say"]),
    "mounted calls": Check(call("part_ping"), "pong"),
    "listed versions": Check(versions, ["2.0", ["2.0", "1.0"], ["numbers"]]),
    "highest version": Check(version(None, numbers=[1, 2, 3]), "6"),
    "other versions": Check(version("1.0", a=1, b=2), "3"),
    "unknown versions": Check(version("3.0", a=1, b=2), here="error -32602", there="isError"),
    "registering": Check(
        call("registering"),
        here={
            "**kwargs": "taken",
            "a name that is taken": "refused",
            "a template whose variable no parameter takes": "refused",
            "an option that does not exist": "refused",
        },
        there={
            "**kwargs": "refused",
            "a name that is taken": "taken",
            "a template whose variable no parameter takes": "refused",
            "an option that does not exist": "refused",
        },
    ),
    "list changes": Check(notifies, here=[True, True, True], there=Eras([True, True, True], [False, False, False])),
}


# -- over HTTP


class Post(Struct, frozen=True):
    """A request to a server on loopback, in the newest revision, and the status of each side's answer."""

    headers: Mapping[str, str] = {}
    path: str = "/mcp"
    method: str = "POST"
    tool: str = "a_text"
    same: int = 0
    here: int = 0
    there: int = 0

    def expected(self, side: str) -> int:
        """What this side must answer."""
        return self.same or int(getattr(self, side))

    def status(self, port: int) -> int:
        """What the server at this port answers."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": self.tool, "arguments": {}, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": self.tool,
            **self.headers,
        }
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request(self.method, self.path, body if self.method == "POST" else None, headers)
            return connection.getresponse().status
        finally:
            connection.close()


POSTS: Final[dict[str, Post]] = {
    "a call": Post(same=200),
    "a foreign Host": Post({"Host": "evil.example"}, here=421, there=200),
    "a foreign page": Post({"Origin": "https://evil.example"}, here=403, there=200),
    "headers that contradict": Post({"Mcp-Name": "another"}, same=400),
    "custom routes": Post(method="GET", path="/health", same=200),
    "routes of a part": Post(method="GET", path="/of-the-part", same=200),
    "whether it lives": Post(method="GET", path="/live", here=200, there=404),
}
"""What is asked of `here` and `there` over HTTP."""


def bearer(name: str) -> dict[str, str]:
    """The header of a caller."""
    return {"Authorization": f"Bearer token-of-{name}"}


GUARDED: Final[dict[str, Post]] = {
    "no token": Post(tool="who", same=401),
    "unknown tokens": Post(bearer("eve"), tool="who", same=401),
    "known tokens": Post(bearer("bob"), tool="who", same=200),
    "enough scopes": Post(bearer("ada"), tool="write", same=200),
    "missing scopes": Post(bearer("bob"), tool="write", here=403, there=200),  # there: "Unknown tool", in a result
    "tokens in the URL": Post(path="/mcp?access_token=token-of-bob", tool="who", here=400, there=401),
}
"""What is asked of `guarded`."""

REMOTE: Final[dict[str, Post]] = {
    "a token of no one": Post(bearer("eve"), tool="who", same=401),
    "metadata": Post(method="GET", path="/.well-known/oauth-protected-resource/mcp", same=200),
}
"""What is asked of `remote`."""
