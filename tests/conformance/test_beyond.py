"""What the specification says and the suite does not look at, of the suite's own server: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman import serve

from .content import PNG, WAV
from .server import SCHEMA_2020_12, server

PATIENCE = 20.0
NEW, OLD = "2026-07-28", "2025-11-25"
KEY = "io.modelcontextprotocol/"
Headers = dict[str, str | bytes]
TAKES = {"test_elicitation": ["message"], "test_sampling": ["prompt"]}


@dataclass
class Answered:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def messages(self) -> list[Any]:
        """What it carries, of a stream too."""
        if "event-stream" not in self.headers.get("content-type", ""):
            return [json.loads(self.body)]
        lines = self.body.decode().splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]

    @property
    def result(self) -> Any:
        """Of the last message."""
        return self.messages[-1]["result"]

    @property
    def error(self) -> Any:
        """Of the last message."""
        return self.messages[-1]["error"]


class Wire:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.host = url.split("/")[2]
        self.port = int(self.host.rsplit(":", 1)[1])

    async def send(self, method: str, headers: Headers, body: bytes = b"") -> Answered:
        """One request, its head as given."""
        given: Headers = {"Host": self.host, "Connection": "close"}
        given["Content-Length"] = str(len(body))
        given |= headers
        lines = [
            name.encode() + b": " + (value if isinstance(value, bytes) else value.encode())
            for name, value in given.items()
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{method} /mcp HTTP/1.1\r\n".encode() + b"\r\n".join(lines) + b"\r\n\r\n" + body)
        async with asyncio.timeout(PATIENCE):
            raw = await reader.read()
        writer.close()
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *others = head.decode().split("\r\n")
        said = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in others)}
        return Answered(int(first.split()[1]), said, unchunked(rest) if "transfer-encoding" in said else rest)

    async def post(self, message: Any, headers: Headers) -> Answered:
        """A message."""
        both: Headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return await self.send("POST", both | headers, json.dumps(message).encode())

    async def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        capabilities: dict[str, Any] | None = None,
        id: Any = 1,
        **headers: str | bytes,
    ) -> Answered:
        """A request of the stateless era. `headers` with _ for - replace those that belong to it."""
        meta = {f"{KEY}protocolVersion": NEW, f"{KEY}clientCapabilities": capabilities or {}}
        given: Headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": method}
        name = (params or {}).get("name") or (params or {}).get("uri")
        if name:
            given["Mcp-Name"] = name
        given |= {key.replace("_", "-"): value for key, value in headers.items()}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta, **(params or {})}}
        return await self.post(message, given)

    async def tool(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Answered:
        """`tools/call`."""
        return await self.call("tools/call", {"name": name, "arguments": arguments or {}}, **options)

    async def session(self, revision: str = OLD, capabilities: dict[str, Any] | None = None) -> Headers:
        """Begin a session: the headers that belong to it."""
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        hello = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, {})
        assert hello.status == 200
        headers: Headers = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
        if revision >= "2025-06-18":
            headers["MCP-Protocol-Version"] = revision
        told = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        assert told.status == 202
        return headers


def unchunked(body: bytes) -> bytes:
    """The bytes of a chunked body."""
    out = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        out, body = out + rest[:length], rest[length + 2 :]
        if not length:
            break
    return out


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """The suite's server."""
    async with serve(server(), urls=["http://127.0.0.1:0/mcp"]) as serving:
        yield Wire(serving.urls[0])


# -- content: the suite hardly looks at it


async def test_every_kind_of_content(wire: Wire) -> None:
    async def content(name: str) -> Any:
        return (await wire.tool(name)).result["content"]

    picture = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    assert await content("test_simple_text") == [
        {"type": "text", "text": "This is a simple text response for testing."}
    ]
    assert await content("test_image_content") == [picture]
    assert await content("test_audio_content") == [
        {"type": "audio", "data": base64.b64encode(WAV).decode(), "mimeType": "audio/wav"}
    ]
    resource = {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    }
    assert await content("test_embedded_resource") == [{"type": "resource", "resource": resource}]
    first, second, third = await content("test_multiple_content_types")
    assert (first["type"], second) == ("text", picture)
    assert third["resource"]["uri"] == "test://mixed-content-resource"
    assert json.loads(third["resource"]["text"]) == {"test": "data", "value": 123}


async def test_a_schema_of_ones_own_is_listed_as_it_is(wire: Wire) -> None:
    tools = (await wire.call("tools/list")).result["tools"]
    listed = {tool["name"]: tool for tool in tools}
    assert listed["json_schema_2020_12_tool"]["inputSchema"] == SCHEMA_2020_12
    assert listed["test_x_mcp_header"]["inputSchema"]["properties"]["region"]["x-mcp-header"] == "Region"
    assert all(tool["description"] for tool in tools)


async def test_resources_and_templates(wire: Wire) -> None:
    text = (await wire.call("resources/read", {"uri": "test://static-text"})).result["contents"]
    assert text == [
        {
            "uri": "test://static-text",
            "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }
    ]
    data = (await wire.call("resources/read", {"uri": "test://template/123/data"})).result["contents"][0]
    assert json.loads(data["text"]) == {"id": "123", "templateTest": True, "data": "Data for ID: 123"}


# -- server/tools, server/utilities/pagination


async def test_an_unknown_tool_is_a_protocol_error(wire: Wire) -> None:
    assert (await wire.tool("no_such_tool")).error["code"] == -32602
    headers = await wire.session()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no_such_tool"}}
    assert (await wire.post(message, headers)).error["code"] == -32602


async def test_a_garbage_cursor_is_invalid_params(wire: Wire) -> None:
    for method in ("tools/list", "resources/list", "prompts/list"):
        assert (await wire.call(method, {"cursor": "garbage"})).error["code"] == -32602


# -- basic/transports/streamable-http


async def test_a_legacy_version_header_over_a_modern_body_is_a_mismatch(wire: Wire) -> None:
    answered = await wire.call("tools/list", MCP_Protocol_Version=OLD)
    assert (answered.status, answered.error["code"]) == (400, -32020)


async def test_raw_bytes_in_the_name_header_are_refused(wire: Wire) -> None:
    answered = await wire.tool("test_simple_text", Mcp_Name="tést".encode())
    assert answered.status == 400


@pytest.mark.parametrize(
    ("tool", "arguments", "header", "right", "wrong"),
    [
        ("test_x_mcp_header", {"region": "cn-north"}, "Mcp_Param_Region", "cn-north", "cn-south"),
        ("test_x_mcp_header_integer", {"count": 42}, "Mcp_Param_Count", "42", "43"),
        ("test_x_mcp_header_boolean", {"flag": True}, "Mcp_Param_Flag", "true", "false"),
    ],
)
async def test_arguments_in_headers(
    tool: str, arguments: dict[str, Any], header: str, right: str, wrong: str, wire: Wire
) -> None:
    fits = await wire.tool(tool, arguments, **{header: right})
    assert fits.result["content"][0]["text"] == right
    differs = await wire.tool(tool, arguments, **{header: wrong})
    assert (differs.status, differs.error["code"]) == (400, -32020)
    missing = await wire.tool(tool, arguments)
    assert (missing.status, missing.error["code"]) == (400, -32020)


@pytest.mark.parametrize("id", [None, 1.5, True, [1], {}])
async def test_such_an_id_is_not_a_notification(id: Any, wire: Wire) -> None:
    """basic: "the ID MUST NOT be null", a string or an integer."""
    answered = await wire.call("tools/list", id=id)
    assert (answered.status, answered.error["code"]) == (400, -32600)


async def test_a_bad_origin_is_refused_even_when_the_host_is_good(wire: Wire) -> None:
    answered = await wire.call("tools/list", Origin="http://evil.example.com")
    assert answered.status == 403
    evil = await wire.call("tools/list", Host="evil.example.com")
    assert evil.status in (403, 421)


async def test_batches_of_the_revision_that_has_them(wire: Wire) -> None:
    """2025-03-26, basic/transports: the body may be an array of requests."""
    headers = await wire.session("2025-03-26")
    batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2)]
    answered = await wire.post(batch, headers)
    said = [one for message in answered.messages for one in (message if isinstance(message, list) else [message])]
    assert {one["id"] for one in said} == {1, 2}
    later = await wire.session(OLD)
    refused = await wire.post(batch, later)
    assert (refused.status, refused.error["code"]) == (400, -32600)


async def test_a_stream_is_resumed_only_within_its_session(wire: Wire) -> None:
    owner, stranger = await wire.session(), await wire.session()
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "test_reconnection"}}
    first = await wire.post(message, owner)
    last = [line[3:].strip() for line in first.body.decode().splitlines() if line.startswith("id:")][-1]
    assert not any("result" in one for one in first.messages)
    foreign = await wire.send("GET", stranger | {"Accept": "text/event-stream", "Last-Event-ID": last})
    assert foreign.status in (400, 404)
    again = await wire.send("GET", owner | {"Accept": "text/event-stream", "Last-Event-ID": last})
    assert again.result["content"][0]["text"].startswith("Reconnection")


# -- basic/patterns/mrtr


async def test_questions_are_only_sent_to_clients_that_declared_it(wire: Wire) -> None:
    for tool in ("test_missing_capability", "test_input_required_result_elicitation"):
        answered = await wire.tool(tool)
        assert (answered.status, answered.error["code"]) == (400, -32021)
    asked = await wire.tool("test_input_required_result_capabilities", capabilities={"sampling": {}})
    assert [one["method"] for one in asked.result["inputRequests"].values()] == ["sampling/createMessage"]


@pytest.mark.parametrize("revision", ["2025-06-18", OLD])
async def test_a_session_asks_only_what_its_client_declared(revision: str, wire: Wire) -> None:
    """2025-11-25, basic/lifecycle: "both parties MUST [...] only use capabilities that were successfully
    negotiated"."""
    declared: list[tuple[dict[str, Any], str]] = [
        ({"sampling": {}}, "test_elicitation"),
        ({"elicitation": {}}, "test_sampling"),
        ({}, "test_elicitation"),
    ]
    for capabilities, tool in declared:
        headers = await wire.session(revision, capabilities)
        arguments = {"message": "?", "prompt": "?"}
        params = {"name": tool, "arguments": {key: arguments[key] for key in TAKES[tool]}}
        answered = await wire.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)
        assert [one.get("method") for one in answered.messages] == [None]
        assert "error" in answered.messages[0] or answered.result["isError"]


@pytest.mark.parametrize("id", [None, 1.5])
async def test_such_an_id_is_not_a_notification_in_a_session_either(id: Any, wire: Wire) -> None:
    headers = await wire.session()
    answered = await wire.post({"jsonrpc": "2.0", "id": id, "method": "tools/list"}, headers)
    assert (answered.status, answered.error["code"]) == (400, -32600)


async def test_a_garbage_cursor_is_invalid_params_in_a_session_too(wire: Wire) -> None:
    headers = await wire.session()
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"cursor": "garbage"}}
        assert (await wire.post(message, headers)).error["code"] == -32602


async def test_a_state_is_good_for_its_own_request_and_its_time() -> None:
    async with serve(server(state_life=1e-9), urls=["http://127.0.0.1:0/mcp"]) as serving:
        wire = Wire(serving.urls[0])
        can: dict[str, Any] = {"elicitation": {}}
        first = await wire.tool("test_input_required_result_multi_round", capabilities=can)
        state = first.result["requestState"]
        answers = {"step1": {"action": "accept", "content": {"name": "Ann"}}}
        late = {
            "name": "test_input_required_result_multi_round",
            "arguments": {},
            "inputResponses": answers,
            "requestState": state,
        }
        assert "error" in (await wire.call("tools/call", late, capabilities=can)).messages[-1]
    async with serve(server(), urls=["http://127.0.0.1:0/mcp"]) as serving:
        wire = Wire(serving.urls[0])
        state = (await wire.tool("test_input_required_result_request_state", capabilities=can)).result["requestState"]
        foreign = {"name": "test_input_required_result_tampered_state", "arguments": {}, "requestState": state}
        assert "error" in (await wire.call("tools/call", foreign, capabilities=can)).messages[-1]


# -- basic/patterns/cancellation: "closing the response stream is the cancellation signal"


async def test_hanging_up_cancels(wire: Wire) -> None:
    meta = {f"{KEY}protocolVersion": NEW, f"{KEY}clientCapabilities": {}}
    params = {"_meta": meta, "name": "slow", "arguments": {"seconds": 60}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {wire.host}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {NEW}\r\nMcp-Method: tools/call\r\n"
        f"Mcp-Name: slow\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def stats() -> Any:
        return (await wire.tool("slow_stats")).result["structuredContent"]

    _, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    writer.write(head.encode() + body)
    async with asyncio.timeout(PATIENCE):
        while not (await stats())["started"]:
            pass
        writer.transport.abort()
        while not (await stats())["cancelled"]:
            pass
    assert await stats() == {"started": 1, "finished": 0, "cancelled": 1}
