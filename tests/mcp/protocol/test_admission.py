"""Which messages are admitted, and under which revision: `admission.admit`, value in, value out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.jsonrpc.errors import InvalidParams, RpcError
from dragoman.jsonrpc.messages import Notification, Request
from dragoman.mcp.protocol import revisions as r
from dragoman.mcp.protocol.admission import EVERYTHING, SessionState, admit, begun, negotiated, offer
from dragoman.mcp.protocol.methods import METHODS, UNSUPPORTED_VERSION
from dragoman.mcp.protocol.params import CallToolRequestParams
from dragoman.mcp.protocol.types import ClientCapabilities, Implementation

STATEFUL = [one for one in r.REVISIONS.values() if one.stateful]
WHO = {"name": "tester", "version": "1"}
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": r.NEWEST.date,
    "io.modelcontextprotocol/clientInfo": WHO,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def request(method: str, params: Any = None, **meta: Any) -> Request:
    found = dict(params or {}) | ({"_meta": meta["meta"]} if "meta" in meta else {})
    return Request(method, msgspec.Raw(msgspec.json.encode(found)), 1)


def session(revision: r.Revision) -> SessionState:
    return SessionState(revision, Implementation("tester", "1"), ClientCapabilities())


def refused(message: Request, among: Any = EVERYTHING, **more: Any) -> RpcError:
    with pytest.raises(RpcError) as found:
        admit(message, None, among, **more)
    return found.value


def test_an_envelope_is_enough() -> None:
    """2026-07-28 basic/index, `_meta`: every request supplies its own context."""
    found = admit(request("tools/call", {"name": "add", "arguments": {"a": 1}}, meta=ENVELOPE), None, EVERYTHING)
    assert found is not None
    assert found.revision is r.R2026_07
    assert found.client == Implementation("tester", "1")
    assert found.capabilities.elicitation is not msgspec.UNSET
    assert found.session is None
    assert found.token is None
    assert bytes(found.params.arguments) == b'{"a":1}'


def test_the_client_need_not_give_its_name() -> None:
    meta = {key: value for key, value in ENVELOPE.items() if not key.endswith("clientInfo")}
    found = admit(request("tools/list", meta=meta), None, EVERYTHING)
    assert found is not None
    assert found.client is None


@pytest.mark.parametrize("lacking", ["protocolVersion", "clientCapabilities"])
def test_an_envelope_that_lacks_something_is_refused(lacking: str) -> None:
    """2026-07-28 basic/index: "A request missing any required field is malformed; the server MUST reject it with
    JSON-RPC error code `-32602`"."""
    meta = {key: value for key, value in ENVELOPE.items() if not key.endswith(lacking)}
    error = refused(request("tools/list", meta=meta))
    assert error.code == -32602
    assert error.data["missing"] == [f"_meta.io.modelcontextprotocol/{lacking}"]


@pytest.mark.parametrize("params", [{}, {"_meta": {}}])
def test_neither_envelope_nor_session(params: Any) -> None:
    error = refused(request("tools/list", params))
    assert error.code == -32602
    assert len(error.data["missing"]) == 2
    assert "initialize" in str(error)


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "", "2026-07-29"])
def test_a_revision_that_is_not_offered(version: str) -> None:
    """2026-07-28 basic/versioning: "it MUST respond with an UnsupportedProtocolVersionError listing the versions it
    does support"."""
    error = refused(
        request("tools/list", meta=ENVELOPE | {"io.modelcontextprotocol/protocolVersion": version}),
    )
    assert error.code == UNSUPPORTED_VERSION
    assert error.data == {"supported": [*reversed(r.REVISIONS)], "requested": version}


def test_an_unknown_log_level_is_refused() -> None:
    """2026-07-28 server/utilities/logging, "Error Handling": Invalid log level: -32602."""
    error = refused(request("tools/list", meta=ENVELOPE | {"io.modelcontextprotocol/logLevel": "loud"}))
    assert error.code == -32602
    assert "'loud'" in error.message
    assert "emergency" in error.message


@pytest.mark.parametrize("method", [row.name for row in METHODS.values() if not row.within(r.R2026_07)])
def test_a_method_that_the_revision_has_lost(method: str) -> None:
    """2026-07-28 changelog: `initialize`, `ping`, `logging/setLevel`, `resources/subscribe` and others are gone."""
    params = {"level": "info", "uri": "a:b", "protocolVersion": "1", "capabilities": {}, "clientInfo": WHO}
    assert admit(request(method, params, meta=ENVELOPE), None, EVERYTHING) is None
    assert admit(request(method, {}, meta=ENVELOPE), None, EVERYTHING) is None, "whatever is in its params"


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
@pytest.mark.parametrize("row", METHODS.values(), ids=lambda row: row.name)
def test_a_session_has_the_methods_of_its_revision(revision: r.Revision, row: Any) -> None:
    params = {
        "level": "info",
        "uri": "a:b",
        "protocolVersion": revision.date,
        "capabilities": {},
        "clientInfo": WHO,
        "name": "it",
        "ref": {"type": "ref/prompt", "name": "it"},
        "argument": {"name": "a", "value": ""},
        "notifications": {},
        "progressToken": 1,
        "progress": 1,
    }
    asked = request(row.name, params)
    message = Notification(asked.method, asked.params) if row.result is None else asked
    found = admit(message, session(revision), EVERYTHING)
    assert (found is not None) == (row.within(revision) and row.direction != "server")
    if found is not None:
        assert found.revision is revision


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
def test_initialize_is_answered_with_what_was_asked(revision: r.Revision) -> None:
    """basic/lifecycle of every stateful revision, "Version Negotiation": "it MUST respond with the same version"."""
    params = {"protocolVersion": revision.date, "capabilities": {}, "clientInfo": WHO}
    found = admit(request("initialize", params), None, EVERYTHING)
    assert found is not None
    assert found.revision is revision
    assert begun(found).revision is revision


@pytest.mark.parametrize("version", ["2025-01-07", "2026-07-28", "x", ""])
def test_initialize_with_a_revision_we_do_not_know(version: str) -> None:
    """basic/lifecycle: "Otherwise, the server MUST respond with another protocol version it supports. This SHOULD be
    the latest version supported by the server." """
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": WHO}
    found = admit(request("initialize", params), None, EVERYTHING)
    assert found is not None
    assert found.revision is r.NEWEST_STATEFUL
    older = offer([r.R2024_11, r.R2025_03])
    assert negotiated(found.params, older) is r.R2025_03


def test_a_stateless_server_takes_no_initialize() -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": WHO}
    error = refused(request("initialize", params), offer([r.R2026_07]))
    assert error.code == -32602
    assert "initialize` must come" not in error.message


def test_ping_may_come_before_initialize_on_a_channel() -> None:
    """basic/lifecycle: no requests "other than pings before the server has responded to the `initialize` request"."""
    assert admit(request("ping"), None, EVERYTHING) is not None
    assert refused(request("ping"), channel=False).code == -32602
    assert refused(request("ping"), offer([r.R2026_07])).code == -32602


def test_every_fault_of_the_params_is_told() -> None:
    error = refused(request("tools/call", {"name": 7, "_meta": 3, "requestState": []}))
    assert isinstance(error, InvalidParams)
    assert [fault["field"] for fault in error.data["errors"]] == ["name", "requestState", "_meta"]
    error = refused(request("resources/read", {}))
    assert error.data["errors"] == [{"field": "uri", "message": "is missing"}]
    error = refused(Request("tools/list", msgspec.Raw(b"[1]"), 1))
    assert "takes an object" in error.message


def test_a_modern_request_in_a_session_is_stateless() -> None:
    """2026-07-28 basic/versioning: "A request carrying modern per-request `_meta` is served statelessly"."""
    found = admit(request("tools/list", meta=ENVELOPE), session(r.R2024_11), EVERYTHING)
    assert found is not None
    assert found.revision is r.R2026_07
    assert found.session is None


def test_unknown_methods_and_those_of_clients_are_not_found() -> None:
    for method in ("tools/remove", "sampling/createMessage", "", "rpc.discover"):
        assert admit(request(method, meta=ENVELOPE), None, EVERYTHING) is None


def test_a_notification_out_of_nowhere_is_ignored() -> None:
    assert admit(Notification("notifications/initialized"), None, EVERYTHING) is None


@pytest.mark.parametrize("token", ["a", 7, 0, ""])
def test_the_progress_token_is_taken_as_it_came(token: Any) -> None:
    found = admit(request("tools/list", meta=ENVELOPE | {"progressToken": token}), None, EVERYTHING)
    assert found is not None
    assert found.token == token
    assert type(found.token) is type(token)


def test_a_wrong_value_is_shown_whole_while_it_is_short() -> None:
    """`received` repeats 200 bytes of JSON at most."""
    whole = ["x" * 196]
    error = refused(request("tools/call", {"name": whole}))
    assert msgspec.json.decode(msgspec.json.encode(error.data))["errors"][0]["received"] == whole
    error = refused(request("tools/call", {"name": ["x" * 197]}))
    assert error.data["errors"][0]["received"] == '["' + "x" * 197 + '"...'
    error = refused(request("tools/call", {"name": ["x", "汉" * 100]}))
    assert error.data["errors"][0]["received"] == '["x","' + "汉" * 64 + "...", "cut between letters"


def test_a_fault_that_no_single_member_has_is_told_in_words() -> None:
    """Of two members with one name the last counts, and the decoder has met the first."""
    error = refused(Request("tools/call", msgspec.Raw(b'{"name":7,"name":"add"}'), 1))
    assert "`$.name`" in error.message
    assert error.data is None


def test_an_initialize_has_the_principal_of_its_caller() -> None:
    params = {"protocolVersion": r.R2025_11.date, "capabilities": {}, "clientInfo": WHO}
    found = admit(request("initialize", params), None, EVERYTHING, principal="ann")
    assert found is not None
    assert found.principal == "ann"


LENGTHY = 'some words, \\ "and" more ' * 4_000
PLAIN = "words " * 20_000


@pytest.mark.parametrize(
    "params",
    [
        {"name": "add", "arguments": {"text": LENGTHY}},
        {"name": "add", "arguments": {"text": PLAIN, "more": [1, {"a": PLAIN}]}},
        {"name": PLAIN, "arguments": {"text": PLAIN}},
        {"name": PLAIN, "arguments": {"a": 1}},
        {"name": PLAIN},
        {"name": "add", "arguments": {"a": 1}, "inputResponses": {"a": PLAIN}},
        {"name": "add", "arguments": [PLAIN]},
        {"name": "add", "arguments": PLAIN},
        {"name": "add", "arguments": {"a": list(range(20_000))}},
        {PLAIN: 1, "name": "add", "arguments": {PLAIN: PLAIN}},
    ],
)
def test_long_params_are_read_as_short_ones_are(params: Any) -> None:
    message = request("tools/call", params, meta=ENVELOPE)
    found = admit(message, None, EVERYTHING)
    assert found is not None
    assert found.params == msgspec.json.decode(message.params, type=CallToolRequestParams)
    assert bytes(found.params.arguments or b"null") == msgspec.json.encode(params.get("arguments"))


def test_of_long_params_the_faults_are_told_as_they_came() -> None:
    error = refused(request("tools/call", {"arguments": {"text": PLAIN}, "name": 5}, meta=ENVELOPE))
    assert error.data["errors"] == [
        {"field": "name", "message": "Expected `str`, got `int`", "received": msgspec.Raw(b"5")}
    ]
