"""Who may call what over HTTP, in every revision: scopes, roles and `allow`, batches, lists, streams that stand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from dragoman import Identity, Service
from dragoman.auth import TokenRefused
from dragoman.auth.challenge import parse_challenges
from dragoman.auth.guard import TokenGuard
from dragoman.channel import Handshake, Options
from dragoman.mcp import HttpOptions, Server
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, Revision
from tests.auth.guarding import METADATA, Issued, issued, token, who
from tests.behind import behind
from tests.mcp.http_wire import ME, Place, Sitting, body, called, meta, standard
from tests.transports.ends import until as settled
from tests.transports.http.cases import Answered
from tests.transports.http.ends import face

STATEFUL = (R2025_03, R2025_06, R2025_11)
REVISIONS = pytest.mark.parametrize("revision", [*STATEFUL, R2026_07], ids=lambda one: one.date)


def notes(*, sse_2024: bool = False) -> Server:
    app = Server("notes", auth=issued(), http=HttpOptions(keep_alive=60, sse_2024=sse_2024))

    @app.tool(scopes="notes:read")
    def read() -> str:
        return "read"

    @app.tool(scopes="notes:read notes:write")
    async def write(author: Identity, text: str = "") -> str:
        return author.subject

    @app.tool(roles="admin")
    def wipe() -> str:
        return "wiped"

    @app.tool(allow=lambda identity, arguments: arguments is None or arguments["of"] == identity.subject)
    def own(of: str) -> str:
        return of

    @app.tool
    def anyone() -> str:
        return "anyone"

    @app.resource("note://open")
    def opened() -> str:
        return "open"

    @app.resource("note://secret", scopes="notes:write")
    def secret() -> str:
        return "secret"

    @app.resource("note://of/{name}", roles="admin")
    def of(name: str) -> str:
        return name

    @app.prompt(scopes="notes:write")
    def ask(topic: str) -> str:
        return topic

    @app.completion("ask", "topic")
    def topics(typed: str) -> list[str]:
        return ["all"]

    ledger = Service("ledger")

    @ledger.method(
        name="own", allow=lambda identity, arguments: arguments is None or arguments["of"] == identity.subject
    )
    def its_own(of: str) -> str:
        return of

    @ledger.method(name="sum", scopes="notes:write")
    def total() -> int:
        return 3

    app.include(ledger, namespace="ledger")
    return app


class As(Place):
    """A caller with a token."""

    def __init__(self, port: int, server: Server, name: str) -> None:
        super().__init__(port, server)
        self.name = name

    def head(
        self, headers: Mapping[str, str | None], length: int, *, method: str = "POST", path: str = "/mcp"
    ) -> bytes:
        shown = {"Authorization": f"Bearer {token(self.name)}"}
        return super().head(shown | dict(headers), length, method=method, path=path)


@asynccontextmanager
async def served(
    kind: str = "native", *, sse_2024: bool = False, verifier: Issued | None = None, **more: Identity
) -> AsyncIterator[tuple[int, Server]]:
    app = notes(sse_2024=sse_2024)
    guard = TokenGuard(issued(**more) if verifier is None else verifier)
    behind(app).protect(guard)
    guard.demands(lambda: behind(app).demanded or frozenset())
    async with face(kind, {"/mcp": behind(app)}, Options()) as port:
        yield port, app


async def asked(place: Place, revision: Revision, method: str, params: dict[str, Any]) -> Answered:
    """One request in a revision."""
    if revision.stateful:
        sitting = await place.begin(revision)
        return await sitting.post(body(method, params))
    named = params.get("name") or params.get("uri")
    headers = {"MCP-Protocol-Version": revision.date, "Mcp-Method": method} | ({"Mcp-Name": named} if named else {})
    return await place.ask(body(method, params | {"_meta": meta()}), headers)


def tool(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


READ = ("resources/read", {"uri": "note://secret"})
PROMPT = ("prompts/get", {"name": "ask", "arguments": {"topic": "x"}})
COMPLETE = (
    "completion/complete",
    {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "topic", "value": "x"}},
)
FORBIDDEN: list[tuple[str, tuple[str, dict[str, Any]], str]] = [
    # caller, call, the scopes that it needs ("": a new login would not help)
    ("eve", tool("read"), "notes:read"),
    ("eve", tool("write"), "notes:read notes:write"),
    ("ada", tool("write"), "notes:read notes:write"),
    ("ada", tool("write", wrong=1), "notes:read notes:write"),
    ("ada", tool("wipe"), ""),
    ("ada", tool("own", of="bob"), ""),
    ("ada", READ, "notes:write"),
    ("eve", READ, "notes:write"),
    ("ada", ("resources/read", {"uri": "Note://%73ecret"}), "notes:write"),
    ("ada", ("resources/read", {"uri": "note://of/bob"}), ""),
    ("ada", ("resources/read", {"uri": "note://%6ff/bob"}), ""),
    ("ada", tool("ledger_own", of="bob"), ""),
    ("ada", tool("ledger_sum"), "notes:write"),
    ("ada", PROMPT, "notes:write"),
    ("ada", COMPLETE, "notes:write"),
]
GRANTED = {"ada": {"notes:read"}, "eve": set[str]()}


FACES = pytest.mark.parametrize("kind", ["native", "asgi"])
UNKNOWN = [
    tool("wipe"),
    tool("own", of="ada"),
    tool("anyone"),
    tool("none"),
    ("resources/read", {"uri": "note://of/x"}),
]


async def denied(place: Place, method: str, params: dict[str, Any], headers: Mapping[str, str] = {}) -> Answered:
    """A stateless request of nobody, of whom the door asks for a token."""
    standing = standard(method, params.get("name") or params.get("uri"))
    return await place.ask(body(method, params | {"_meta": meta()}), standing | dict(headers))


def named(found: Answered) -> str | None:
    [challenge] = parse_challenges(found.headers["www-authenticate"])
    return challenge.params.get("scope")


@FACES
async def test_a_challenge_at_the_door_names_what_the_call_needs(kind: str) -> None:
    """RFC 6750 section 3: it is "the required scope of the access token for accessing the requested resource"."""
    async with served(kind) as (port, app):
        place = Place(port, app)
        for _, (method, params), scopes in FORBIDDEN:
            for _ in range(2):  # the second time the head is known
                found = await denied(place, method, params)
                assert found.status == 401
                assert named(found) == (scopes if scopes and method != "completion/complete" else None)
        # what is hidden from strangers, what needs nothing and what there is not are answered alike
        answers = [await denied(place, *call) for call in UNKNOWN]
        assert len({(one.body, one.headers["www-authenticate"]) for one in answers}) == 1
        # a token that is refused, too
        wrong = await denied(place, *tool("read"), {"Authorization": "Bearer no-such-token"})
        assert named(wrong) == "notes:read"
        for odd in ("=?base64?###?=", "\xff", "write, read"):
            assert named(await denied(place, *tool("read"), {"Mcp-Name": odd})) is None
        app.remove_tool("read")
        assert named(await denied(place, *tool("read"))) is None


async def test_what_a_head_says_is_believed_for_a_challenge_alone() -> None:
    """A head may name another tool than its body does: then the call is refused, whoever makes it."""
    async with served() as (port, app):
        call = tool("write")
        other = {"Mcp-Name": "read"}
        assert named(await denied(Place(port, app), *call, other)) == "notes:read"
        ada = await denied(As(port, app, "ada"), *call, other)
        assert (ada.status, "www-authenticate" in ada.headers) == (400, False)
        assert "Mcp-Name header value 'read' does not match" in json.loads(ada.body)["error"]["message"]
        # and where both agree the challenge is that of the body's tool
        assert named(await denied(As(port, app, "ada"), *call)) == "notes:read notes:write"


async def test_a_scope_that_all_calls_need_is_named_with_the_others() -> None:
    app = notes()
    guard = TokenGuard(issued(), scopes="mcp")
    behind(app).protect(guard)
    async with face("native", {"/mcp": behind(app)}, Options()) as port:
        for place, status in ((Place(port, app), 401), (As(port, app, "ada"), 403)):
            found = await denied(place, *tool("write"))
            assert (found.status, named(found)) == (status, "mcp notes:read notes:write")


async def test_a_stranger_has_no_long_name_looked_up() -> None:
    """A refusal must cost no more than its request, and to compare a URI as long as a head may be takes a thousand
    times as long."""
    async with served() as (port, app):
        app.resource("doc://{name}", scopes="docs")(lambda name: name)
        for length, scopes in ((256, "docs"), (257, None), (4_000, None)):
            uri = "doc://".ljust(length, "{")
            found = await denied(Place(port, app), "resources/read", {"uri": uri})
            assert (found.status, named(found)) == (401, scopes)


@REVISIONS
@pytest.mark.parametrize(("name", "call", "scopes"), FORBIDDEN, ids=[f"{n}-{c[1]}" for n, c, _ in FORBIDDEN])
async def test_a_forbidden_call_is_403(
    revision: Revision, name: str, call: tuple[str, dict[str, Any]], scopes: str
) -> None:
    async with served() as (port, app):
        found = await asked(As(port, app, name), revision, *call)
    assert found.status == 403
    assert found.headers["content-type"] == "application/json"  # and no stream
    told = json.loads(found.body)
    assert told["error"]["code"] == -32600
    assert told["id"] == 1
    if not scopes:
        assert "www-authenticate" not in found.headers
        return
    [challenge] = parse_challenges(found.headers["www-authenticate"])
    assert challenge.params["error"] == "insufficient_scope"
    assert challenge.params["resource_metadata"] == METADATA
    # clients of older revisions ask for what they are told, and for nothing else
    assert set(challenge.scopes) == set(scopes.split()) | (GRANTED[name] if revision.stateful else set())
    assert told["error"]["data"]["scopes"] == scopes.split()


ALLOWED: list[tuple[str, tuple[str, dict[str, Any]]]] = [
    ("ada", tool("read")),
    ("bob", tool("write")),
    ("bob", tool("wipe")),
    ("ada", tool("own", of="ada")),
    ("ada", tool("ledger_own", of="ada")),
    ("bob", tool("ledger_sum")),
    ("eve", tool("anyone")),
    ("bob", READ),
    ("bob", PROMPT),
    ("bob", COMPLETE),
    ("eve", ("resources/read", {"uri": "note://open"})),
]


@REVISIONS
@pytest.mark.parametrize(("name", "call"), ALLOWED, ids=[f"{n}-{c[1]}" for n, c in ALLOWED])
async def test_what_is_allowed_is_answered(revision: Revision, name: str, call: tuple[str, dict[str, Any]]) -> None:
    async with served() as (port, app):
        found = await asked(As(port, app, name), revision, *call)
    assert found.status == 200
    assert b'"result"' in found.body


@REVISIONS
async def test_arguments_that_do_not_fit_end_the_call_in_the_error_that_says_so(revision: Revision) -> None:
    async with served() as (port, app):
        found = await asked(As(port, app, "ada"), revision, *tool("own", of=1))
    assert found.status == 200
    assert b"Expected a string" in found.body


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_nobody_is_401_before_anything(kind: str) -> None:
    async with served(kind) as (port, app):
        place = Place(port, app)
        for raw, headers in (called("read"), (body("initialize", {}, 0), {}), (b"not JSON", {})):
            found = await place.ask(raw, headers)
            assert found.status == 401
            assert METADATA in found.headers["www-authenticate"]
        assert (await place.ask(method="GET")).status == 401
        assert (await place.ask(method="DELETE")).status == 401


@REVISIONS
async def test_lists_hide_what_a_login_would_not_change(revision: Revision) -> None:
    async with served() as (port, app):
        for name, tools, templates in (
            ("eve", ["anyone", "ledger_own", "ledger_sum", "own", "read", "write"], []),
            ("bob", ["anyone", "ledger_own", "ledger_sum", "own", "read", "wipe", "write"], ["note://of/{name}"]),
        ):
            place = As(port, app, name)
            found = json.loads((await asked(place, revision, "tools/list", {})).body)["result"]
            assert sorted(one["name"] for one in found["tools"]) == tools
            if not revision.stateful:
                assert found["cacheScope"] == "private"
            found = json.loads((await asked(place, revision, "resources/templates/list", {})).body)["result"]
            assert [one["uriTemplate"] for one in found["resourceTemplates"]] == templates
            found = json.loads((await asked(place, revision, "resources/list", {})).body)["result"]
            assert [one["uri"] for one in found["resources"]] == ["note://open", "note://secret"]


ran: list[str] = []


async def test_a_batch_with_a_forbidden_call_is_refused_whole() -> None:
    async with served() as (port, app):

        @app.tool
        def mark() -> str:
            ran.append("marked")
            return "marked"

        sitting = await As(port, app, "ada").begin(R2025_03)
        batch = [tool("mark"), tool("write"), tool("read")]
        raw = b"[%b]" % b",".join(body(method, params, id) for id, (method, params) in enumerate(batch))
        found = await sitting.post(raw)
        assert found.status == 403
        [challenge] = parse_challenges(found.headers["www-authenticate"])
        assert challenge.scopes == ("notes:read", "notes:write")
        assert ran == []
        raw = b"[%b]" % b",".join(body(method, params, id) for id, (method, params) in enumerate(batch[:1]))
        assert (await sitting.post(raw)).status == 200
        assert ran == ["marked"]


async def test_each_request_of_a_session_has_the_rights_of_its_own_token() -> None:
    # a step-up changes the token, and neither the caller nor its session
    async with served(ada2=who("ada", "notes:read", "notes:write")) as (port, app):
        sitting = await As(port, app, "ada").begin(R2025_11)
        assert (await sitting.post(body(*tool("write")))).status == 403
        stepped = Sitting(As(port, app, "ada2"), sitting.id, R2025_11)
        assert (await stepped.post(body(*tool("write")))).status == 200
        assert (await sitting.post(body(*tool("write")))).status == 403
        other = Sitting(As(port, app, "bob"), sitting.id, R2025_11)
        assert (await other.post(body(*tool("read")))).status == 404


async def test_a_subscription_demands_what_reading_does() -> None:
    async with served() as (port, app):
        sitting = await As(port, app, "ada").begin(R2025_11)
        found = await sitting.post(body("resources/subscribe", {"uri": "note://secret"}))
        assert found.status == 403
        assert (await sitting.post(body("resources/subscribe", {"uri": "note://open"}))).status == 200
        # a role is not a matter of scopes: nothing is asked for
        found = await sitting.post(body("resources/subscribe", {"uri": "note://of/bob"}))
        assert (found.status, "www-authenticate" in found.headers) == (403, False)
        admin = await As(port, app, "bob").begin(R2025_11)
        assert (await admin.post(body("resources/subscribe", {"uri": "note://of/bob"}))).status == 200
        wanted = {"notifications": {"resourceSubscriptions": ["note://open", "note://secret"]}}
        found = await asked(As(port, app, "ada"), R2026_07, "subscriptions/listen", wanted)
        assert found.status == 403
        assert parse_challenges(found.headers["www-authenticate"])[0].scopes == ("notes:write",)


class Brief(Issued):
    """The token "brief" expires two seconds after `begin`, when all else stands."""

    ends: float | None = None

    def begin(self) -> float:
        self.ends = time.time() + 2
        return self.ends

    def known(self, token: bytes) -> Identity | None:
        found = super().known(token)
        if found is None or self.ends is None or not token.endswith(b"brief"):
            return found
        return None if time.time() >= self.ends else structs.replace(found, expires_at=self.ends)

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        if (found := self.known(token.encode())) is None:
            raise TokenRefused("The token has expired")
        return found


async def test_standing_streams_end_with_the_token() -> None:
    verifier = Brief({token("brief"): who("brief", "notes:read")})
    async with served(verifier=verifier) as (port, app):
        place = As(port, app, "brief")
        sitting = await place.begin(R2025_11)
        ends = verifier.begin()
        raw = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": meta()})
        headers = {"MCP-Protocol-Version": R2026_07.date, "Mcp-Method": "subscriptions/listen"}
        async with sitting.get() as stream, place.stream(raw, headers) as listening:
            assert (stream.status, listening.status) == (200, 200)
            await asyncio.gather(stream.rest(), listening.rest())  # both end
            assert time.time() >= ends
        found = await sitting.post(body(*tool("read")))
        assert found.status == 401
        assert "invalid_token" in found.headers["www-authenticate"]


async def test_the_stream_of_http_and_sse_answers_what_runs_and_ends() -> None:
    begun, over = asyncio.Event(), asyncio.Event()
    verifier = Brief({token("brief"): who("brief"), token("later"): who("brief")})
    async with served(sse_2024=True, verifier=verifier) as (port, app):
        verifier.begin()

        @app.tool
        async def slow() -> str:
            begun.set()
            await over.wait()
            return "done"

        place, later = As(port, app, "brief"), As(port, app, "later")
        async with place.stream(method="GET", path="/sse") as events:
            event = await events.next()
            assert event is not None
            path = "/" + event.data.decode()
            params = {"protocolVersion": R2024_11.date, "capabilities": {}, "clientInfo": ME}
            assert (await place.ask(body("initialize", params, 0), path=path)).status == 202
            assert (await events.message())["id"] == 0
            assert (await place.ask(body(*tool("slow"), 1), path=path)).status == 202
            await begun.wait()
            (peer,) = behind(app).host.peers
            await settled(lambda: peer.lapsed)
            assert (await place.ask(body(*tool("slow"), 2), path=path)).status == 401
            # another token of the same caller does not renew the stream
            assert (await later.ask(body(*tool("slow"), 3), path=path)).status == 202
            refused = await events.message()
            assert (refused["id"], refused["error"]["data"]) == (3, {"error": "invalid_token"})
            over.set()
            answered = await events.message()
            assert (answered["id"], answered["result"]["content"][0]["text"]) == (1, "done")
            assert await events.next() is None


async def test_a_call_that_began_with_a_valid_token_finishes() -> None:
    verifier = Brief({token("brief"): who("brief")})
    async with served(verifier=verifier) as (port, app):
        ends = verifier.begin()

        @app.tool
        async def slow() -> str:
            await asyncio.sleep(ends - time.time() + 0.1)
            return "done"

        raw, headers = called("slow")
        assert b"done" in (await As(port, app, "brief").ask(raw, headers)).body
