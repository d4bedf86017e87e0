"""The stateful era over HTTP: sessions, versions and refusals (basic/transports of 2025-03-26 to 2025-11-25)."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dragoman.channel import Admitted, Handshake, Identity, Options
from dragoman.mcp.http.authorization import Expiry
from dragoman.mcp.http.readers import HttpReader
from dragoman.mcp.protocol.revisions import NEWEST_STATEFUL, R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, Revision
from dragoman.mcp.session.session import Session
from tests.behind import behind
from tests.transports.ends import until
from tests.transports.http.ends import wire

from ..http_tools import Stage, tools
from ..http_wire import ME, Place, body, called, meta, named_by, served, standard
from ..replicas import KEYS, KINDS, kept, sessions

STATEFUL = [R2024_11, R2025_03, R2025_06, R2025_11]


def error(raw: bytes) -> Any:
    return json.loads(raw)["error"]


def text(raw: bytes) -> str:
    found: str = json.loads(raw)["result"]["content"][0]["text"]
    return found


def initialize(version: str = R2025_11.date) -> bytes:
    return body("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": ME}, 0)


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
async def test_a_session(both: tuple[Place, Stage], revision: Revision) -> None:
    """From `initialize` to DELETE ("Session Management")."""
    place, _ = both
    found = await place.ask(initialize(revision.date))
    assert json.loads(found.body)["result"]["protocolVersion"] == revision.date
    # "The session ID MUST only contain visible ASCII characters (ranging from 0x21 to 0x7E)"; 128 bits and more
    assert re.fullmatch(r"[!-~]{22,}", found.headers["mcp-session-id"])
    sitting = await place.begin(revision)
    called = await sitting.post(sitting.tool("add", a=2, b=3))
    assert (called.status, called.headers["content-type"], text(called.body)) == (200, "application/json", "5")
    ended = await place.ask(b"", sitting.headers, method="DELETE")
    assert (ended.status, ended.body) == (204, b"")
    # "it MUST respond to requests containing that session ID with HTTP 404 Not Found"
    for method in ("POST", "GET", "DELETE"):
        after = await place.ask(sitting.tool("add", a=2, b=3), sitting.headers, method=method)
        assert after.status == 404
        assert error(after.body)["code"] == -32600


async def test_both_eras_at_once(both: tuple[Place, Stage]) -> None:
    """ "A dual-era server MAY serve both eras concurrently on the same endpoint" (2026's basic/versioning)."""
    place, _ = both
    sitting = await place.begin()
    raw, headers = called("add", {"a": 1, "b": 1})
    async with wire(place.port) as (reader, writer):
        from tests.transports.http.cases import answer

        for _ in range(3):
            for said, message in ((headers, raw), (sitting.headers, sitting.tool("add", a=1, b=1))):
                writer.write(place.head(said, len(message)) + message)
                assert text((await answer(reader)).body) == "2"


async def test_ids_of_sessions_differ(there: tuple[Place, Stage]) -> None:
    assert len({(await there[0].begin()).id for _ in range(20)}) == 20


async def test_an_unknown_version_is_answered_with_our_newest(there: tuple[Place, Stage]) -> None:
    """ "This SHOULD be the latest version supported by the server" (basic/lifecycle, "Version Negotiation")."""
    found = await there[0].ask(initialize("2025-01-07"))
    assert json.loads(found.body)["result"]["protocolVersion"] == NEWEST_STATEFUL.date


@pytest.mark.parametrize(
    "raw",
    [
        body("initialize", {"protocolVersion": R2025_11.date}, 0),
        body("initialize", None, 0),
        json.dumps({"jsonrpc": "2.0", "id": None, "method": "initialize", "params": {}}).encode(),
        body("initialize", [], 0),
    ],
)
async def test_a_refused_initialize_makes_no_session(there: tuple[Place, Stage], raw: bytes) -> None:
    place, _ = there
    found = await place.ask(raw)
    assert found.status in (200, 400)
    assert error(found.body)["code"] in (-32600, -32602)
    assert "mcp-session-id" not in found.headers
    assert not behind(place.server).host.peers


async def test_initialize_in_a_session_begins_another_and_the_session_lives(there: tuple[Place, Stage]) -> None:
    sitting = await there[0].begin()
    found = await sitting.post(initialize())
    assert found.status == 200
    assert found.headers["mcp-session-id"] != sitting.id
    assert (await sitting.post(sitting.tool("add", a=1, b=1))).status == 200


async def test_without_a_session(both: tuple[Place, Stage]) -> None:
    """ "SHOULD respond to requests without an `MCP-Session-Id` header with HTTP 400 Bad Request"."""
    place, _ = both
    for raw in (body("tools/list"), body("notifications/initialized", id=None), body("ping")):
        assert (await place.ask(raw, {"MCP-Protocol-Version": R2025_11.date})).status == 400
        assert (await place.ask(raw)).status == 400
    assert (await place.ask(b"", method="GET")).status == 400
    assert (await place.ask(b"", method="DELETE")).status == 400


@pytest.mark.parametrize("revision", [R2025_03, R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_session_that_is_missing_is_an_error_with_the_id_of_the_request(
    there: tuple[Place, Stage], revision: Revision
) -> None:
    """ "Error responses MUST include the same ID as the request they correspond to" (basic)."""
    none = None if revision.null_error_id else "none"
    for raw, id in ((body("ping", id=7), 7), (body("notifications/initialized", id=None), none)):
        for more, status in (({}, 400), ({"Mcp-Session-Id": "made-up"}, 404)):
            found = await there[0].ask(raw, {"MCP-Protocol-Version": revision.date, **more})
            assert (found.status, json.loads(found.body).get("id", "none")) == (status, id)
            assert "retry-after" not in found.headers


async def test_a_version_that_is_not_spoken_in_a_session_is_an_error_with_the_id(there: tuple[Place, Stage]) -> None:
    sitting = await there[0].begin()
    found = await there[0].ask(body("ping", id=7), sitting.headers | {"MCP-Protocol-Version": "2025-01-07"})
    assert (found.status, json.loads(found.body)["id"]) == (400, 7)


async def test_a_stream_of_events_is_what_a_get_without_accept_gets(there: tuple[Place, Stage]) -> None:
    sitting = await there[0].begin()
    headers = sitting.headers | {"Accept": None}
    async with there[0].stream(headers=headers, method="GET") as home:
        assert (home.status, home.headers["content-type"]) == (200, "text/event-stream")
        # "servers SHOULD include the `X-Accel-Buffering: no` header" (2026's basic/transports/streamable-http)
        assert (home.headers["cache-control"], home.headers["x-accel-buffering"]) == ("no-store", "no")


async def test_an_unknown_session(there: tuple[Place, Stage]) -> None:
    found = await there[0].ask(body("tools/list"), {"Mcp-Session-Id": "made-up"})
    assert found.status == 404
    found = await there[0].ask(initialize(), {"Mcp-Session-Id": "made-up"})
    assert found.status == 404


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (None, 200),
        (R2025_11.date, 200),
        (R2025_06.date, 200),
        ("2025-01-07", 400),
        ("nonsense", 400),
        ("", 400),
    ],
)
async def test_the_version_header(there: tuple[Place, Stage], version: str | None, status: int) -> None:
    """ "If the server receives a request with an invalid or unsupported `MCP-Protocol-Version`, it MUST respond with
    `400 Bad Request`"; without one it relies "on the protocol version negotiated during initialization"."""
    sitting = await there[0].begin()
    for raw in (body("tools/list"), body("notifications/roots/list_changed", id=None)):
        found = await sitting.post(raw, {"MCP-Protocol-Version": version})
        assert found.status == (status if status == 400 or b'"id"' in raw else 202)
    for method in ("GET", "DELETE"):
        if status == 400:
            headers = sitting.headers | {"MCP-Protocol-Version": version}
            assert (await there[0].ask(b"", headers, method=method)).status == 400


async def test_a_modern_body_in_a_session_is_a_mismatch(there: tuple[Place, Stage]) -> None:
    from ..http_wire import meta

    sitting = await there[0].begin()
    found = await sitting.post(body("tools/list", {"_meta": meta(R2026_07.date)}))
    assert (found.status, error(found.body)["code"]) == (400, -32020)


async def test_notifications_and_responses_are_202(both: tuple[Place, Stage]) -> None:
    """ "the server MUST return HTTP status code 202 Accepted with no body"."""
    sitting = await both[0].begin()
    for raw in (
        body("notifications/roots/list_changed", id=None),
        body("notifications/unheard/of", id=None),
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"no"}}',
    ):
        found = await sitting.post(raw)
        assert (found.status, found.body) == (202, b"")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", -32700),
        (b'"x"', -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":2}', -32600),
    ],
)
@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
async def test_what_is_not_a_message(there: tuple[Place, Stage], raw: bytes, code: int, revision: Revision) -> None:
    """ "If the server cannot accept the input, it MUST return an HTTP error status code". An error whose id could not
    be read has none, and null in the revisions that knew no error without."""
    sitting = await there[0].begin(revision)
    found = await sitting.post(raw)
    assert (found.status, error(found.body)["code"]) == (400, code)
    if b'"id"' not in raw:
        told = json.loads(found.body)
        assert told.get("id", "none") is None if revision.null_error_id else "id" not in told


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
async def test_batches(both: tuple[Place, Stage], revision: Revision) -> None:
    """2025-03-26 alone: "MUST support receiving JSON-RPC batches" (basic/index)."""
    sitting = await both[0].begin(revision)
    note = body("notifications/roots/list_changed", id=None)
    raw = b"[" + b",".join([sitting.tool("add", 1, a=1, b=1), note, sitting.tool("add", "x", a=2, b=2)]) + b"]"
    found = await sitting.post(raw)
    if not revision.batches:
        assert (found.status, error(found.body)["code"]) == (400, -32600)
        return
    assert found.status == 200
    assert [(one["id"], one["result"]["content"][0]["text"]) for one in json.loads(found.body)] == [
        (1, "2"),
        ("x", "4"),
    ]
    found = await sitting.post(b"[" + note + b',{"jsonrpc":"2.0","id":4,"result":{}}]')
    assert (found.status, found.body) == (202, b"")
    # "The initialize request MUST NOT be part of a JSON-RPC batch" (basic/lifecycle)
    (only,) = json.loads((await sitting.post(b"[" + initialize() + b"]")).body)
    assert only["error"]["code"] == -32600
    found = await both[0].ask(b"[" + initialize() + b"]")
    assert found.status == 400


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Content-Type": "text/plain"}, 415),
        ("POST", {"Accept": "text/html"}, 406),
        ("GET", {"Accept": "application/json"}, 406),
        ("PUT", {}, 405),
    ],
)
async def test_content_negotiation(
    there: tuple[Place, Stage], method: str, headers: dict[str, str | None], status: int
) -> None:
    sitting = await there[0].begin()
    found = await there[0].ask(sitting.tool("add", a=1, b=1), sitting.headers | headers, method=method)
    assert found.status == status
    assert error(found.body)["code"] == -32600


async def test_a_session_is_its_principals_alone() -> None:
    """Sessions are "bound to the principal": for any other caller there is none."""
    server, _ = tools()
    async with served(server, options=Options(guard=named_by(b"authorization"))) as place:
        found = await place.ask(initialize(), {"Authorization": "alice"})
        id = found.headers["mcp-session-id"]
        for who, status in (("alice", 200), ("mallory", 404), (None, 404)):
            for method in ("POST", "GET", "DELETE"):
                if status == 200 and method != "POST":
                    continue
                headers = {"Mcp-Session-Id": id, "Authorization": who}
                assert (await place.ask(body("ping"), headers, method=method)).status == status


OWNER = ["https://one", "ann", "app"]
OTHERS = [
    ["https://two", "ann", "app"],
    [None, "ann", "app"],
    ["https://one", "ann", "other"],
    ["https://one", "ann", None],
    ["https://one", "ann", ""],
    ["https://one", "bob", "app"],
    # what any way of joining the three with a separator could take for the owner
    ["https://one ann", "", "app"],
    ["https://one", "ann app", None],
    ["https://one,ann", "app", None],
    ['https://one","ann', "app", None],
    ['https://one","ann","app', "", None],
    ["", "https://oneannapp", ""],
    [None, '["https://one","ann","app"]', None],
]


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "replica"])
async def test_sessions_and_sealed_states_are_bound_to_issuer_subject_and_client(shared: bool) -> None:
    """A subject is unique per issuer alone, and a client acts for itself (basic/security_best_practices, "Session
    Hijacking")."""
    server, _ = tools(keys=KEYS)
    async with kept(server, shared), served(server, options=Options(guard=named_by(b"x-user"))) as place:
        mine = {"X-User": json.dumps(OWNER)}
        id = (await place.ask(initialize(), mine)).headers["mcp-session-id"]
        request = {"name": "ask", "arguments": {}, "_meta": meta(capabilities={"elicitation": {}})}
        headers = standard("tools/call", "ask")
        first = json.loads((await place.ask(body("tools/call", request), headers | mine)).body)["result"]
        answers = {key: {"action": "accept", "content": {"city": "Ulm"}} for key in first["inputRequests"]}
        raw = body("tools/call", request | {"inputResponses": answers, "requestState": first["requestState"]})
        for who in (*OTHERS, OWNER):
            them = {"X-User": json.dumps(who)}
            for method in ("GET", "DELETE", "POST") if who != OWNER else ("POST",):
                found = await place.ask(body("ping"), {"Mcp-Session-Id": id} | them, method=method)
                assert found.status == (200 if who == OWNER else 404), who
            told = json.loads((await place.ask(raw, headers | them)).body)
            if who == OWNER:
                assert told["result"]["content"][0]["text"] == "Ulm"
            else:
                assert told["error"]["data"]["reason"] == "foreign", who


def kept_one(place: Place) -> Any:
    """The one session of a server."""
    (peer,) = behind(place.server).host.peers
    return peer._channel


async def test_an_idle_session_ends() -> None:
    server, _ = tools()
    async with served(server) as place:
        sitting = await place.begin()
        table = kept_one(place).table
        table.options = msgspec.structs.replace(table.options, session_idle=0.05)  # it could not begin in less
        behind(server).host.clock.set(table, 0.05)
        await until(lambda: not behind(place.server).host.peers)
        assert (await sitting.post(body("ping"))).status == 404


async def test_a_session_at_work_is_not_idle() -> None:
    server, stage = tools()
    async with served(server) as place:
        sitting = await place.begin()
        call = asyncio.create_task(sitting.post(sitting.tool("slow")))
        await stage.started.wait()
        session = kept_one(place)
        for _ in range(3):  # several times its idle time
            session.used = float("-inf")
            session.table.expired()
        stage.go.set()
        assert text((await call).body) == "done"
        session.used = float("-inf")
        session.table.expired()
        assert (await sitting.post(body("ping"))).status == 404


async def test_a_batch_to_which_nothing_is_owed_leaves_the_session_at_rest(there: tuple[Place, Stage]) -> None:
    place, _ = there
    sitting = await place.begin(R2025_03)
    assert (await sitting.post(b"[" + body("notifications/roots/list_changed", id=None) + b"]")).status == 202
    assert not kept_one(place).busy


async def test_deleting_a_session_ends_its_calls_and_streams(both: tuple[Place, Stage]) -> None:
    place, stage = both
    sitting = await place.begin()
    call = asyncio.create_task(sitting.post(sitting.tool("slow")))
    async with sitting.get() as home:
        await stage.started.wait()
        assert (await place.ask(b"", sitting.headers, method="DELETE")).status == 204
        assert await home.message() is None
    found = await call
    # 404 means that nothing was run, and clients repeat the call in a new session
    assert (found.status, json.loads(found.body)["id"]) == (200, 1)
    assert error(found.body) == {"code": -32603, "message": "The session ended before the call was done"}
    await stage.cancelled.wait()
    await until(lambda: not behind(place.server).call_limit.in_flight)


async def test_cancelling_a_call(both: tuple[Place, Stage]) -> None:
    """ "To cancel, the client SHOULD explicitly send an MCP `CancelledNotification`"; no response follows
    (basic/utilities/cancellation)."""
    place, stage = both
    sitting = await place.begin()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(sitting.post(sitting.tool("slow", id="c")))
        await stage.started.wait()
        assert (await sitting.post(body("notifications/cancelled", {"requestId": "c"}, id=None))).status == 202
        await stage.cancelled.wait()
    found = call.result()
    assert (found.status, found.headers["content-type"], found.body) == (200, "text/event-stream", b"")


async def test_a_stream_whose_call_is_cancelled_ends_without_an_event(there: tuple[Place, Stage]) -> None:
    place, stage = there
    sitting = await place.begin()
    async with sitting.stream(sitting.tool("talk_and_wait", "c", "t")) as events:
        await events.message()
        await stage.started.wait()
        assert (await sitting.post(body("notifications/cancelled", {"requestId": "c"}, id=None))).status == 202
        assert await events.next() is None


async def test_going_away_does_not_cancel(both: tuple[Place, Stage]) -> None:
    """ "Disconnection SHOULD NOT be interpreted as the client cancelling its request"."""
    place, stage = both
    sitting = await place.begin()
    raw = sitting.tool("slow")
    async with wire(place.port) as (_, writer):
        writer.write(place.head(sitting.headers, len(raw)) + raw)
        await stage.started.wait()
        writer.transport.abort()
    assert (await sitting.post(body("ping", id=2))).status == 200
    assert not stage.cancelled.is_set()
    assert behind(place.server).call_limit.in_flight == 1
    stage.go.set()
    await until(lambda: not behind(place.server).call_limit.in_flight)
    assert not stage.cancelled.is_set()


async def test_draining_ends_sessions() -> None:
    server, _ = tools()
    async with served(server) as place:
        sitting = await place.begin()
        async with sitting.get() as home:
            await behind(server).drain(0)
            assert await home.message() is None
        assert not behind(server).host.peers


@KINDS
async def test_a_fault_of_ours_is_the_answer_to_its_request(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(*args: object) -> None:
        raise RuntimeError("a fault of ours")

    async with sessions(kind) as place:
        sitting = await place.begin()
        with monkeypatch.context() as patch:
            patch.setattr(Session, "request", faulty)
            found = await sitting.post(sitting.tool("add", 7, a=2, b=3))
        assert (found.status, json.loads(found.body)["id"], error(found.body)["code"]) == (500, 7, -32603)
        assert "a fault of ours" not in found.body.decode()
        assert "a fault of ours" in caplog.text
        assert text((await sitting.post(sitting.tool("add", 8, a=2, b=3))).body) == "5"


async def for_an_hour(handshake: Handshake) -> Admitted:
    return Admitted(identity=Identity(subject="ada", expires_at=time.time() + 3600))


REFUSED: dict[str, tuple[str, Mapping[str, str | None], int]] = {
    "an event that is none": ("GET", {"Last-Event-ID": "zzz"}, 400),
    "an event of no stream": ("GET", {"Last-Event-ID": "ffff-1"}, 400),
    "no such session": ("GET", {"Mcp-Session-Id": "x"}, 404),
    "no session": ("GET", {"Mcp-Session-Id": None}, 400),
    "another version": ("GET", {"MCP-Protocol-Version": "1999-01-01"}, 400),
    "no stream accepted": ("GET", {"Accept": "application/json"}, 406),
    "a DELETE of no session": ("DELETE", {"Mcp-Session-Id": "x"}, 404),
    "a POST to no session": ("POST", {"Mcp-Session-Id": "x"}, 404),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_request_leaves_nothing_behind(case: str) -> None:
    """What ends a standing stream with its token is made when the stream begins."""
    method, headers, status = REFUSED[case]
    server, _ = tools()
    async with served(server, options=Options(guard=for_an_hour)) as place:
        sitting = await place.begin()
        for _ in range(5):
            found = await place.ask(body("ping"), sitting.headers | dict(headers), method=method)
            assert found.status == status
        gc.collect()
        held = [one for one in gc.get_objects() if type(one) in (Expiry, HttpReader)]
        assert held == []


async def test_a_standing_stream_that_ends_leaves_nothing_behind() -> None:
    server, _ = tools()
    async with served(server, options=Options(guard=for_an_hour)) as place:
        sitting = await place.begin()
        async with sitting.get() as home:
            assert home.status == 200
            assert [one for one in gc.get_objects() if type(one) is Expiry]
        (session,) = [one._channel for one in behind(server).host.peers]
        await until(lambda: not session.readers)
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one) in (Expiry, HttpReader)]
