"""What a server MUST and SHOULD do, sentence by sentence, in every revision that says so; bytes in, bytes out.

Each test opens with its page and the words. What other tests hold already is not repeated here.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import serve
from dragoman.mcp import Context, Image, Server
from dragoman.mcp.protocol.methods import METHODS
from dragoman.mcp.protocol.revisions import NEWEST, R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.transports.memory import pair
from tests.behind import behind

from ..asking_server import EVERY, Wire, meta
from ..http_tools import City

ALL = list(REVISIONS.values())
STATEFUL = [one for one in ALL if one.stateful]
PREFIX = "io.modelcontextprotocol/"
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ODD_TEXT = "one\ntwo\r\nthree\u2028four\u0085five \U0001f40e \u4f60\u597d \0"


def server(**options: Any) -> Server:
    """Something of every kind."""
    made = Server("must", version="1", page_size=2, **options)

    @made.tool
    async def say(text: str = ODD_TEXT) -> str:
        return text

    @made.tool("Say")
    async def say_loudly() -> str:
        return "LOUD"

    @made.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @made.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.error("at work")
        return "worked"

    @made.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Which city?", City)).action)

    for number in range(5):
        made.add_resource(lambda: PIXEL, f"test://{number}", name=f"r{number}", mime_type="image/png")
        made.add_prompt(_greet, name=f"p{number}")

    @made.resource("test://fails")
    def fails() -> str:
        raise RuntimeError("the password is 1234")

    @made.resource("test://item/{id}")
    def item(id: str) -> str:
        return id

    @made.resource("test://other/{id}")
    def other(id: str) -> str:
        return id

    @made.resource("test://third/{id}")
    def third(id: str) -> str:
        return id

    @made.completion("p0", "who")
    def who(typed: str) -> list[str]:
        return [f"{typed}{number}" for number in range(250)]

    return made


def _greet(who: str) -> list[Any]:
    """Greet a person."""
    return [f"Hello, {who}", Image(PIXEL)]


class Client:
    """One channel, as messages."""

    def __init__(self, revision: Revision, made: Server) -> None:
        self.revision = revision
        near, far = pair()
        behind(made).attach(far)
        self.near = near
        self.wire = Wire(near)

    def message(self, method: str, params: Any = None, *, id: Any = 1, capabilities: Any = None) -> dict[str, Any]:
        if not self.revision.stateful:
            params = {"_meta": meta(capabilities or {}, self.revision)} | (params or {})
        found = {"id": id, "method": method} | ({} if params is None else {"params": params})
        return {name: value for name, value in found.items() if name != "id" or value is not None}

    async def ask(self, method: str, params: Any = None, *, id: Any = 1, capabilities: Any = None) -> Any:
        self.wire.send(self.message(method, params, id=id, capabilities=capabilities))
        while "method" in (answer := await self.wire.next()):
            pass
        return answer

    async def begin(self, capabilities: Any = None) -> None:
        params = {
            "protocolVersion": self.revision.date,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        assert "result" in await self.ask("initialize", params, id="begin")
        self.wire.send({"method": "notifications/initialized"})

    async def quiet(self) -> None:
        assert await self.wire.quiet()


async def connected(revision: Revision, made: Server | None = None) -> Client:
    client = Client(revision, server() if made is None else made)
    if revision.stateful:
        await client.begin()
    return client


@pytest.fixture(params=ALL, ids=[one.date for one in ALL])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of each revision, its handshake done."""
    found = await connected(request.param)
    yield found
    await found.near.close()


@pytest.fixture
async def newest() -> AsyncIterator[Client]:
    """A client of the stateless era."""
    found = await connected(R2026_07)
    yield found
    await found.near.close()


# -- basic/index: messages ------------------------------------------------------------------------

IDS: list[Any] = [0, -1, 1, "1", "", "\u00fc \"'\\", "x" * 200, 2**53 - 1, -(2**63), 2**63]


@pytest.mark.parametrize("id", IDS, ids=str)
async def test_an_answer_has_the_id_of_its_request(client: Client, id: Any) -> None:
    """basic/index: "Result responses MUST include the same ID as the request they correspond to", "Error responses MUST
    include the same ID as the request", "an `error` field with a `code` and `message`", "Error codes MUST be
    integers"."""
    answer = await client.ask("tools/list", id=id)
    assert (answer["id"], type(answer["id"])) == (id, type(id))
    assert "result" in answer
    assert "error" not in answer
    for method, params in (("no/such", None), ("tools/call", {"name": "none"}), ("tools/call", {"name": 1})):
        answer = await client.ask(method, params, id=id)
        assert (answer["id"], type(answer["id"])) == (id, type(id))
        assert "result" not in answer
        assert type(answer["error"]["code"]) is int
        assert type(answer["error"]["message"]) is str


@pytest.mark.parametrize("id", ["null", "1.5", "true", "[]", "{}", "1e400", '"\\ud800"'])
async def test_an_id_is_a_string_or_an_integer(client: Client, id: str) -> None:
    """basic/index: "Requests MUST include a string or integer ID", "the ID MUST NOT be `null`"."""
    message = client.message("tools/list", id="ID")
    client.near.send(json.dumps({"jsonrpc": "2.0"} | message).replace('"ID"', id).encode())
    answer = await client.wire.next()
    assert answer["error"]["code"] in (-32600, -32700)
    # where it could not be read the id is left out from 2025-11-25 on, and null before
    assert answer.get("id", "none") in ((None, 1.5) if client.revision.null_error_id else ("none",))


NOTIFICATIONS: list[tuple[str, Any]] = [
    ("tools/list", None),
    ("tools/call", {"name": "say"}),
    ("no/such", None),
    ("notifications/none", {"a": 1}),
    ("notifications/initialized", [1]),
    ("notifications/cancelled", {}),
    ("notifications/roots/list_changed", {"_meta": 1}),
    ("initialize", {"protocolVersion": 1}),
    ("ping", None),
]


async def test_a_notification_is_never_answered(client: Client) -> None:
    """basic/index: "The receiver MUST NOT send a response"."""
    for method, params in NOTIFICATIONS:
        message = {"method": method} | ({} if params is None else {"params": params})
        client.wire.send(message)
        client.wire.send(client.message(method, params if isinstance(params, dict) else None, id=None))
    await client.quiet()


async def test_a_notification_with_an_id_is_not_a_request(client: Client) -> None:
    """basic/index: "Notifications MUST NOT include an ID"; and a result is an object, which these have not."""
    for method in ("initialized", "cancelled", "progress", "roots/list_changed", "none"):
        answer = await client.ask(f"notifications/{method}")
        assert answer["error"]["code"] == -32601, method


async def test_a_response_is_never_answered(client: Client) -> None:
    """basic/patterns: "clients do not send JSON-RPC responses"; JSON-RPC 2.0: there is none to a response."""
    for raw in (
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0","id":"x","error":{"code":"1"}}',
        b'{"jsonrpc":"2.0","id":7,"result":1,"error":2}',
    ):
        client.near.send(raw)
    await client.quiet()


RESULTS: list[tuple[str, Any]] = [
    ("server/discover", None),
    ("tools/list", None),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "add", "arguments": {}}),
    ("resources/list", None),
    ("resources/templates/list", None),
    ("resources/read", {"uri": "test://1"}),
    ("prompts/list", None),
    ("prompts/get", {"name": "p1", "arguments": {"who": "you"}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p0"}, "argument": {"name": "who", "value": "x"}}),
    ("ping", None),
]


@pytest.mark.parametrize(("method", "params"), RESULTS, ids=lambda one: str(one)[:40])
async def test_results_have_their_type_and_the_servers_name(client: Client, method: str, params: Any) -> None:
    """basic/index: "The `result` MUST include a `resultType` field", "Servers SHOULD include
    `io.modelcontextprotocol/serverInfo` in every result's `_meta`"; older revisions know neither.
    server/utilities/caching: "Servers MUST include caching hints", "MUST provide a `ttlMs` value that is `>= 0`"."""
    if not METHODS[method].within(client.revision):
        assert (await client.ask(method, params))["error"]["code"] == -32601
        return
    answer = await client.ask(method, params)
    result = answer["result"]
    if client.revision.stateful:
        assert not {"resultType", "ttlMs", "cacheScope"} & result.keys()
        return
    assert result["resultType"] == "complete"
    assert result["_meta"][f"{PREFIX}serverInfo"] == {"name": "must", "version": "1"}
    hints = {name: result[name] for name in ("ttlMs", "cacheScope") if name in result}
    assert hints == ({"ttlMs": 0, "cacheScope": "private"} if METHODS[method].cacheable else {})


async def test_messages_are_lines_of_utf_8() -> None:
    """basic/transports/stdio: "Messages are delimited by newlines, and MUST NOT contain embedded newlines";
    basic/transports: "JSON-RPC messages MUST be UTF-8 encoded"."""
    async with serve(server(), urls=["tcp://127.0.0.1:0"]) as serving:
        port = int(serving.urls[0].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            params = {"name": "say", "_meta": meta({})}
            lines = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}]
            lines.append(lines[0] | {"id": 2, "params": params | {"arguments": {"text": 5}}})
            writer.write(
                b"".join(json.dumps(line).encode() + end for line, end in zip(lines, (b"\n", b"\r\n"), strict=True))
            )
            answers = [json.loads((await asyncio.wait_for(reader.readline(), 10)).decode()) for _ in lines]
            found = {answer["id"]: answer["result"] for answer in answers}
            assert found[1]["content"] == [{"type": "text", "text": ODD_TEXT}]
            assert found[2]["isError"] is True
            writer.write(b'{"jsonrpc":"2.0","id":3,"method":"\xff"}\n')
            assert json.loads(await asyncio.wait_for(reader.readline(), 10))["error"]["code"] == -32700
        finally:
            writer.close()
            await writer.wait_closed()


# -- basic/index and basic/versioning: the stateless envelope ---------------------------------------

FUTURE = "2099-01-01"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("tools/list", {"cursor": {"page": 2}}),
        ("tools/call", {"tool": {"id": 7}}),
        ("tools/of/the/future", {}),
        ("initialize", {}),
        ("ping", {}),
    ],
)
@pytest.mark.parametrize("version", [FUTURE, R2025_11.date, "", "2026-07-28 "])
async def test_a_version_that_is_not_spoken_is_told_so_first(
    newest: Client, method: str, params: Any, version: str
) -> None:
    """basic/versioning: "it MUST respond with an `UnsupportedProtocolVersionError` listing the versions it does
    support", whatever else that version may mean by its methods, params and capabilities."""
    future = {f"{PREFIX}protocolVersion": version, f"{PREFIX}clientCapabilities": ["of the future"]}
    for envelope in (future, meta({}) | {f"{PREFIX}protocolVersion": version}):
        error = (await newest.ask(method, params | {"_meta": envelope}))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": [*reversed(REVISIONS)], "requested": version}
        newest.wire.send({"method": method, "params": params | {"_meta": envelope}})
    await newest.quiet()


@pytest.mark.parametrize("lacks", [f"{PREFIX}protocolVersion", f"{PREFIX}clientCapabilities"])
async def test_an_envelope_is_whole(newest: Client, lacks: str) -> None:
    """basic/index: "A request missing any required field is malformed; the server MUST reject it with JSON-RPC error
    code `-32602`"."""
    envelope = {name: value for name, value in meta({}).items() if name != lacks}
    error = (await newest.ask("tools/list", {"_meta": envelope}))["error"]
    assert error["code"] == -32602
    assert lacks in error["message"]


async def test_nothing_is_remembered_of_earlier_requests(newest: Client) -> None:
    """basic/index: "Servers MUST NOT rely on prior requests over the same connection to establish context"."""
    asked = await newest.ask("tools/call", {"name": "ask"}, capabilities=EVERY)
    assert asked["result"]["resultType"] == "input_required"
    # "the server MUST return a `MissingRequiredClientCapabilityError` (`-32021`)"
    refused = await newest.ask("tools/call", {"name": "ask"})
    assert refused["error"]["code"] == -32021
    assert refused["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    level = {f"{PREFIX}logLevel": "debug", "progressToken": "t"}
    newest.wire.send(newest.message("tools/call", {"name": "work", "_meta": meta({}) | level}))
    assert [(await newest.wire.next()).get("method") for _ in range(3)] == [
        "notifications/progress",
        "notifications/message",
        None,
    ]
    # "The server MUST NOT emit `notifications/message` for a request that does not include this field"
    newest.wire.send(newest.message("tools/call", {"name": "work"}, id=2))
    assert (await newest.wire.next())["id"] == 2
    await newest.quiet()


async def test_the_server_asks_nothing_by_itself(newest: Client) -> None:
    """basic/patterns: "Servers MUST NOT initiate JSON-RPC requests"."""
    newest.wire.send(newest.message("tools/call", {"name": "ask"}, capabilities=EVERY))
    assert (await newest.wire.next())["result"]["inputRequests"]
    await newest.quiet()


# -- basic/lifecycle --------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
async def test_the_handshake_comes_first(revision: Revision) -> None:
    """basic/lifecycle: "The initialization phase MUST be the first interaction between client and server", pings
    apart; a second one begins anew."""
    client = Client(revision, server())
    assert (await client.ask("tools/list"))["error"]["code"] == -32602
    assert (await client.ask("ping"))["result"] == {}
    await client.begin()
    other = next(one for one in STATEFUL if one is not revision)
    params = {"protocolVersion": other.date, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    assert (await client.ask("initialize", params))["result"]["protocolVersion"] == other.date
    assert "tools" in (await client.ask("tools/list"))["result"]
    await client.near.close()


async def test_a_server_without_the_old_era_names_its_versions() -> None:
    """basic/versioning: "SHOULD name the protocol versions it supports in any error it returns to an `initialize`
    request, on any transport"."""
    client = Client(R2025_11, server(revisions=[NEWEST]))
    params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    error = (await client.ask("initialize", params))["error"]
    assert error["data"]["supported"] == [NEWEST.date]
    await client.near.close()


async def test_a_batch_is_for_the_revision_that_has_it() -> None:
    """2025-03-26's basic: "Implementations MUST support receiving JSON-RPC batches"; no other revision has them."""
    for revision in ALL:
        client = await connected(revision)
        batch = [client.message("tools/list", id=one) for one in ("a", "b")]
        client.near.send(json.dumps([{"jsonrpc": "2.0"} | one for one in batch]).encode())
        answer = await client.wire.next()
        if revision is R2025_03:
            assert [one["id"] for one in answer] == ["a", "b"]
        else:
            assert answer["error"]["code"] == -32600
        await client.near.close()


# -- cancellation -----------------------------------------------------------------------------------

CANCELS: list[Any] = [
    None,
    {},
    [],
    {"requestId": None},
    {"requestId": []},
    {"requestId": "never"},
    {"requestId": 1.0},
    {"requestId": 1},
    {"requestId": "1", "reason": 7},
    {"id": 1},
]


async def test_a_cancellation_of_nothing_is_ignored(client: Client) -> None:
    """basic/utilities/cancellation: "Invalid cancellation notifications SHOULD be ignored: unknown request IDs, already
    completed requests, malformed notifications"."""
    assert "result" in await client.ask("tools/list", id=1)
    for params in CANCELS:
        client.wire.send({"method": "notifications/cancelled"} | ({} if params is None else {"params": params}))
    await client.quiet()
    assert "result" in await client.ask("tools/list", id=1)


# -- progress and logging -----------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["t", "", 7, 0, -1, 2**63])
async def test_progress_bears_the_token_that_was_given(client: Client, token: Any) -> None:
    """basic/utilities/progress: "Progress notifications MUST only reference tokens that were provided in an active
    request", "Progress tokens MUST be a string or integer value"."""
    envelope = meta({}) if not client.revision.stateful else {}
    client.wire.send(client.message("tools/call", {"name": "work", "_meta": envelope | {"progressToken": token}}))
    told = [await client.wire.next()]
    while "method" in told[-1]:
        told.append(await client.wire.next())
    tokens = [one["params"]["progressToken"] for one in told if one.get("method") == "notifications/progress"]
    assert [(one, type(one)) for one in tokens] == [(token, type(token))]
    client.wire.send(client.message("tools/call", {"name": "work"}, id=2))
    while "method" in (one := await client.wire.next()):
        assert one["method"] != "notifications/progress"


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
async def test_an_unknown_log_level_is_invalid_params(revision: Revision) -> None:
    """server/utilities/logging: "Invalid log level: `-32602`"."""
    client = await connected(revision)
    for level in ("loud", "", 7, None):
        assert (await client.ask("logging/setLevel", {"level": level}))["error"]["code"] == -32602
    assert (await client.ask("logging/setLevel", {"level": "emergency"}))["result"] == {}
    client.wire.send(client.message("tools/call", {"name": "work"}))
    assert "result" in await client.wire.next()
    await client.near.close()


# -- features -------------------------------------------------------------------------------------


async def test_what_is_there_is_declared(client: Client) -> None:
    """server/tools, resources, prompts, completion, logging: "Servers that support [it] MUST declare the
    capability"."""
    if client.revision.stateful:
        begun = Client(client.revision, server())
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": client.revision.date, "capabilities": {}, "clientInfo": info}
        result = (await begun.ask("initialize", params))["result"]
    else:
        result = (await client.ask("server/discover"))["result"]
    expected: dict[str, Any] = {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
    }
    if client.revision.order >= R2025_03.order:
        expected["completions"] = {}
    assert result["capabilities"] == expected


LISTS = {
    "tools/list": ("tools", 5),
    "resources/list": ("resources", 6),
    "resources/templates/list": ("resourceTemplates", 3),
    "prompts/list": ("prompts", 5),
}


@pytest.mark.parametrize("method", LISTS)
async def test_lists_are_whole_stable_and_of_one_scope(client: Client, method: str) -> None:
    """server/utilities/pagination; server/tools: "Servers SHOULD return tools in a deterministic order";
    server/utilities/caching: "Servers MUST apply the same `cacheScope` to all response pages"."""
    member, count = LISTS[method]
    runs = []
    for _ in range(2):
        found: list[Any] = []
        scopes: set[Any] = set()
        params: dict[str, Any] = {}
        while True:
            result = (await client.ask(method, params))["result"]
            assert len(result[member]) <= 2
            found += [one.get("uri", one["name"]) for one in result[member]]
            scopes.add(result.get("cacheScope"))
            if "nextCursor" not in result:
                break
            assert type(result["nextCursor"]) is str
            params = {"cursor": result["nextCursor"]}
        assert scopes == {None if client.revision.stateful else "private"}
        runs.append(found)
    assert len(runs[0]) == count == len(set(runs[0]))
    assert runs[0] == runs[1]
    # "Invalid cursors SHOULD result in an error with code -32602"
    for cursor in ("", "x", "dG9vbHMuOTk5", "\ud83d\udc0e", "A" * 10_000):
        assert (await client.ask(method, {"cursor": cursor}))["error"]["code"] == -32602


async def test_names_of_tools_are_case_sensitive(client: Client) -> None:
    """server/tools: "Tool names SHOULD be considered case-sensitive"."""
    said = [(await client.ask("tools/call", {"name": name})) for name in ("say", "Say", "SAY")]
    assert said[0]["result"]["content"][0]["text"] == ODD_TEXT
    assert said[1]["result"]["content"][0]["text"] == "LOUD"
    assert said[2]["error"]["code"] == -32602


async def test_binary_data_is_base64_with_its_media_type(client: Client) -> None:
    """server/resources: "Binary data MUST be properly encoded"; server/prompts: "The image data MUST be base64-encoded
    and include a valid MIME type"."""
    (content,) = (await client.ask("resources/read", {"uri": "test://3"}))["result"]["contents"]
    assert b64decode(content["blob"], validate=True) == PIXEL
    assert (content["uri"], content["mimeType"]) == ("test://3", "image/png")
    prompt = (await client.ask("prompts/get", {"name": "p2", "arguments": {"who": "you"}}))["result"]
    image = prompt["messages"][1]["content"]
    assert b64decode(image["data"], validate=True) == PIXEL
    assert (image["type"], image["mimeType"]) == ("image", "image/png")


COMPLETE = "completion/complete"
FAILURES: list[tuple[str, Any, int | None]] = [
    ("tools/call", {"name": "none"}, -32602),
    ("tools/call", {}, -32602),
    ("tools/call", {"name": "add", "arguments": []}, -32602),
    ("prompts/get", {"name": "none"}, -32602),
    ("prompts/get", {"name": "p1"}, -32602),
    ("prompts/get", {"name": "p1", "arguments": {"who": 7}}, -32602),
    ("prompts/get", {"name": "p1", "arguments": {"who": "x", "why": "y"}}, -32602),
    ("resources/read", {"uri": "test://none"}, None),
    ("resources/read", {"uri": "test://item/../etc"}, None),
    ("resources/read", {"uri": "test://item/%2e%2e"}, None),
    ("resources/read", {"uri": ""}, None),
    ("resources/read", {"uri": "test://fails"}, -32603),
    (COMPLETE, {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}}, -32602),
    (COMPLETE, {"ref": {"type": "ref/prompt", "name": "p0"}, "argument": {"name": "a", "value": ""}}, -32602),
    (COMPLETE, {"ref": {"type": "ref/none", "name": "p0"}, "argument": {"name": "who", "value": ""}}, -32602),
    (COMPLETE, {"ref": {"type": "ref/resource", "uri": "test://no"}, "argument": {"name": "a", "value": ""}}, -32602),
]


@pytest.mark.parametrize(("method", "params", "code"), FAILURES, ids=lambda one: str(one)[:60])
async def test_common_failures_have_their_codes(client: Client, method: str, params: Any, code: int | None) -> None:
    """server/prompts, resources, tools and completion: "Servers SHOULD return standard JSON-RPC errors for common
    failure cases"; server/resources: "If the requested resource does not exist, servers MUST return [...] `-32602`"
    (2026), `-32002` before; "Servers SHOULD return `-32603` for internal errors", which say nothing of the inside."""
    error = (await client.ask(method, params))["error"]
    assert error["code"] == (client.revision.missing_resource if code is None else code)
    assert "1234" not in str(error)


async def test_completions_are_at_most_a_hundred(client: Client) -> None:
    """server/utilities/completion: "Maximum 100 items per response", "Boolean indicating if additional results
    exist"."""
    params = {"ref": {"type": "ref/prompt", "name": "p0"}, "argument": {"name": "who", "value": "x"}}
    found = (await client.ask(COMPLETE, params))["result"]["completion"]
    assert len(found["values"]) == 100
    assert (found["total"], found["hasMore"]) == (250, True)


@pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)
async def test_a_change_of_a_list_is_told(revision: Revision) -> None:
    """server/tools, resources, prompts: "When the list of available tools changes, servers that declared the
    `listChanged` capability SHOULD send a notification"."""
    made = server()
    client = await connected(revision, made)
    if not revision.stateful:
        wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        client.wire.send(client.message("subscriptions/listen", {"notifications": wanted}, id="listen"))
        assert (await client.wire.next())["method"] == "notifications/subscriptions/acknowledged"
    else:
        await client.ask("ping")
    made.disable("tool", "add")
    assert (await client.wire.next())["method"] == "notifications/tools/list_changed"
    made.remove_prompt("p1")
    assert (await client.wire.next())["method"] == "notifications/prompts/list_changed"
    made.remove_resource("test://item/{id}")
    assert (await client.wire.next())["method"] == "notifications/resources/list_changed"
    made.disable("tool", "add")  # it is already
    await client.quiet()
    assert (await client.ask("tools/call", {"name": "add"}))["error"]["code"] == -32602
    await client.near.close()
