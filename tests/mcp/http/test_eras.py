"""Which era a POST belongs to, and that no message of the newest revision runs without the headers that repeat it.

2026-07-28, basic/transports/streamable-http, Server Validation: "Servers that process the request body MUST reject
requests where the values specified in the headers do not match the corresponding values in the request body": what
routes by header must not be shown one thing, and the server another.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import NEWEST, R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, Revision
from tests.behind import behind

from ..http_tools import Stage, tools
from ..http_wire import ME, Place, Sitting, body, served, standard
from ..replicas import KINDS, sessions

NAME = "io.modelcontextprotocol/protocolVersion"

SPELLED: list[tuple[str, str, str]] = [
    ("plain", "_meta", NAME),
    ("a slash", "_meta", NAME.replace("/", "\\/")),
    ("a letter", "_meta", NAME.replace("v", "\\u0076").replace("V", "\\u0056")),
    ("all of it", "".join(f"\\u{ord(one):04x}" for one in "_meta"), "".join(f"\\u{ord(one):04x}" for one in NAME)),
    ("the member", "\\u005fmeta", NAME),
    ("twice", '_meta":{},"_meta', NAME),
]
spelled = pytest.mark.parametrize(("member", "key"), [one[1:] for one in SPELLED], ids=[one[0] for one in SPELLED])


def smuggled(member: str, key: str, id: Any = 1) -> bytes:
    """A `tools/call` of 2026-07-28 whose `_meta` is spelled so."""
    said = f'{{"{key}":"{NEWEST.date}","io.modelcontextprotocol/clientCapabilities":{{}}}}'
    call = f'"name":"add","arguments":{{"a":1,"b":2}},"{member}":{said}'
    return f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"method":"tools/call","params":{{{call}}}}}'.encode()


@KINDS
@spelled
async def test_a_modern_request_runs_by_its_own_headers_alone(kind: str, member: str, key: str) -> None:
    raw = smuggled(member, key)
    async with sessions(kind) as place:
        sitting: Sitting = await place.begin()
        old: dict[str, str | None] = {"MCP-Protocol-Version": R2025_11.date}
        for headers in ({}, old, {"Mcp-Method": "ping"}, {"MCP-Protocol-Version": "1900-01-01"}):
            for session in ({}, {"Mcp-Session-Id": sitting.id}):
                found = await place.ask(raw, headers | session)
                assert (found.status, json.loads(found.body)["error"]["code"]) == (400, -32020), (headers, session)
                assert json.loads(found.body)["id"] == 1
        # its own headers must say the same
        found = await place.ask(raw, standard("tools/call", "other"))
        assert (found.status, json.loads(found.body)["error"]["code"]) == (400, -32020)
        assert sum(stage.runs for stage in place.stages) == 0
        assert (await place.ask(raw, standard("tools/call", "add"))).status == 200
        assert sum(stage.runs for stage in place.stages) == 1


@KINDS
@spelled
async def test_no_batch_carries_a_modern_request(kind: str, member: str, key: str) -> None:
    async with sessions(kind) as place:
        sitting: Sitting = await place.begin(R2025_03)
        found = await sitting.post(b"[" + smuggled(member, key, 1) + b"," + sitting.tool("add", 2, a=1, b=1) + b"]")
        refused, done = json.loads(found.body)
        assert (refused["id"], refused["error"]["code"]) == (1, -32020)
        assert (done["id"], done["result"]["content"][0]["text"]) == (2, "2")
        assert sum(stage.runs for stage in place.stages) == 1


@spelled
async def test_nor_does_the_oldest_wire(member: str, key: str) -> None:
    server, stage = tools(http=HttpOptions(sse_2024=True))
    async with served(server) as place, place.stream(method="GET", path="/sse") as events:
        where = await events.next()
        assert where is not None
        found = await place.ask(smuggled(member, key), path="/" + where.data.decode())
        assert found.status == 202
        assert (await events.message())["error"]["code"] == -32020
        assert stage.runs == 0


@pytest.mark.parametrize("revision", [R2024_11, R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_session_s_own_requests_need_no_such_headers(there: tuple[Place, Stage], revision: Revision) -> None:
    """ "Servers [...] that need to interoperate with counterparts speaking those protocol versions implement the
    behavior described in the corresponding revision": `Mcp-Method` and `Mcp-Name` mean nothing there."""
    sitting = await there[0].begin(revision)
    said = {"name": "add", "arguments": {"a": 1, "b": 1}, "_meta": {"progressToken": 1, "other/member": "x\\/y"}}
    for headers in ({}, {"Mcp-Method": "ping", "Mcp-Name": "other"}):
        assert (await sitting.post(body("tools/call", said), headers)).status == 200


# -- what each era gets that is not spoken here ---------------------------------------------------


async def test_a_server_of_the_newest_revision_alone() -> None:
    """ "A server that does not support such clients MUST reject a request without the header", "SHOULD name the
    protocol versions it supports in any error it returns to an `initialize`" (basic/versioning)."""
    server, stage = tools(revisions=[R2026_07])
    async with served(server) as place:
        for id in (1, None):  # None: a notification
            found = await place.ask(body("tools/list", id=id))
            assert (found.status, json.loads(found.body)["error"]["code"]) == (400, -32020)
            assert json.loads(found.body).get("id") == id
        asked = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
        unreadable: list[Any] = [asked, asked | {"_meta": {NAME: 5}}, asked | {"_meta": [NAME]}]
        for params in unreadable:
            found = await place.ask(body("initialize", params))
            told = json.loads(found.body)["error"]
            assert (found.status, told["code"], told["message"]) == (400, -32022, "Unsupported protocol version")
            assert told["data"] == {"supported": [R2026_07.date], "requested": R2025_11.date}
        assert (await place.ask(smuggled("_meta", NAME))).status == 400
        assert stage.runs == 0


@pytest.mark.parametrize(
    "params", [{"_meta": {NAME: 5}}, {"_meta": [NAME]}, {"_meta": NAME}, [NAME], {"_meta": {NAME: None}}]
)
async def test_an_initialize_whose_meta_cannot_be_read(there: tuple[Place, Stage], params: Any) -> None:
    place, _ = there
    found = await place.ask(body("initialize", params))
    assert (found.status, json.loads(found.body)["error"]["code"]) == (200, -32602)
    assert not behind(place.server).host.peers


async def test_an_unknown_version_is_refused_in_the_words_of_a_server_that_has_sessions(
    there: tuple[Place, Stage],
) -> None:
    sitting = await there[0].begin()
    found = await sitting.post(body("ping"), {"MCP-Protocol-Version": "2099-01-01"})
    assert (found.status, json.loads(found.body)["error"]["message"]) == (400, "Unsupported protocol version")


async def test_methods_of_sessions_under_a_modern_header(there: tuple[Place, Stage]) -> None:
    """Without `_meta` an `initialize` or a `ping` would be an old one: the header says that it is not."""
    for method in ("initialize", "ping", "logging/setLevel"):
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME, "level": "info"}
        found = await there[0].ask(body(method, params), standard(method))
        assert (found.status, json.loads(found.body)["error"]["code"]) == (404, -32601)
        assert "mcp-session-id" not in found.headers
