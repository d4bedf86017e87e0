"""Services behind `auth=` on every wire: who is let in, what each method demands, and what is refused at the start."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from dragoman import Context, Identity, LocalError, Service, connect, serve
from dragoman.access import LocalUser
from dragoman.auth.guard import TokenGuard
from dragoman.channel import Caller, Options
from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Server
from dragoman.rpc.servable import ServableService
from tests.behind import behind
from tests.transports.http.cases import Answered, answer, get, post
from tests.transports.http.ends import face, wire

from ..canary import CANARY
from .guarding import METADATA, issued, token, who

FACES = pytest.mark.parametrize("kind", ["native", "asgi"])


def notes(**options: Any) -> Service:
    api = Service("notes", **options)

    @api.method(inline=True)
    def anyone() -> str:
        return "open"

    @api.method(scopes="notes:read", inline=True)
    def read(context: Context) -> str:
        return "" if context.identity is None else context.identity.subject

    @api.method(scopes=["notes:read", "notes:write"])
    async def write(text: str, author: Identity) -> str:
        return f"{author.subject}: {text}"

    @api.method(roles=("admin", "owner"))
    def wipe() -> str:
        return "wiped"

    @api.method(allow=lambda identity, arguments: arguments is None or arguments["of"] == identity.subject)
    def own(of: str) -> str:
        return of

    @api.method(allow=lambda identity, arguments: 1 / 0 > 0)
    def broken() -> str:
        return "never"

    @api.method
    def told(perhaps: Identity | None) -> str:
        return "no one" if perhaps is None else perhaps.subject

    return api


def message(method: str, params: Any = None, id: Any = 1) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})
    ).encode()


SCOPES = ["notes:read", "notes:write"]
CALLS: list[tuple[str, str, Any, int, list[str] | None]] = [
    # caller, method, params, status, the scopes that the refusal names (None: it names none)
    ("ada", "anyone", None, 200, None),
    ("eve", "anyone", None, 200, None),
    ("ada", "read", None, 200, None),
    ("bob", "read", None, 200, None),
    ("eve", "read", None, 403, ["notes:read"]),
    ("ada", "write", ["x"], 403, SCOPES),
    ("bob", "write", ["x"], 200, None),
    ("eve", "write", ["x"], 403, SCOPES),
    ("eve", "write", [], 403, SCOPES),  # what lacks a scope is not told of its arguments
    ("ada", "wipe", None, 403, None),
    ("bob", "wipe", None, 200, None),
    ("eve", "wipe", None, 403, None),
    ("ada", "own", ["ada"], 200, None),
    ("ada", "own", {"of": "ada"}, 200, None),
    ("ada", "own", ["bob"], 403, None),
    ("eve", "own", {"of": "ada"}, 403, None),
    ("bob", "broken", None, 403, None),
    ("ada", "told", None, 200, None),
]


def guarded(api: Service | None = None, **options: Any) -> ServableService:
    served = ServableService(behind(notes() if api is None else api))
    guard = TokenGuard(issued(), **options)
    served.protect(guard)
    guard.demands(lambda: served.demanded or frozenset())
    return served


async def asked(port: int, raw: bytes) -> Answered:
    async with wire(port) as (reader, writer):
        writer.write(raw)
        return await answer(reader, to=raw.partition(b" ")[0].decode())


def bearer(name: str) -> str:
    return f"Authorization: Bearer {token(name)}\r\n"


@FACES
@pytest.mark.parametrize(
    ("caller", "method", "params", "status", "scopes"), CALLS, ids=[f"{c}-{m}-{p}" for c, m, p, _, _ in CALLS]
)
async def test_what_each_method_demands(
    kind: str, caller: str, method: str, params: Any, status: int, scopes: list[str] | None
) -> None:
    async with face(kind, {"": guarded()}, Options()) as port:
        found = await asked(port, post(message(method, params), more=bearer(caller)))
    assert found.status == status
    told = json.loads(found.body)
    if status == 200:
        assert "result" in told
        return
    assert told["error"]["code"] == -32004
    assert told["id"] == 1
    challenge = found.headers.get("www-authenticate")
    if scopes is None:
        assert challenge is None
        assert told["error"]["data"] == {"error": "access_denied"}
    else:
        assert challenge is not None
        assert f'scope="{" ".join(scopes)}"' in challenge
        assert 'error="insufficient_scope"' in challenge
        assert f'resource_metadata="{METADATA}"' in challenge
        assert told["error"]["data"] == {"error": "insufficient_scope", "scopes": scopes}
    assert CANARY not in found.body.decode()


@FACES
async def test_a_batch_is_refused_element_by_element(kind: str) -> None:
    batch = b"[%b]" % b",".join(message(name, None, id) for id, name in enumerate(("anyone", "read", "wipe")))
    async with face(kind, {"": guarded()}, Options()) as port:
        found = await asked(port, post(batch, more=bearer("eve")))
    first, second, third = sorted(json.loads(found.body), key=lambda one: one["id"])
    assert (found.status, first["result"]) == (200, "open")
    assert second["error"]["data"]["scopes"] == ["notes:read"]
    assert third["error"]["data"] == {"error": "access_denied"}


@FACES
async def test_the_description_hides_what_a_login_would_not_change(kind: str) -> None:
    async with face(kind, {"": guarded()}, Options()) as port:
        for name, hidden in (("eve", {"wipe", "broken"}), ("bob", {"broken"})):
            for raw in (post(message("rpc.discover"), more=bearer(name)), get("/openrpc.json", more=bearer(name))):
                told = json.loads((await asked(port, raw)).body)
                names = {one["name"] for one in told.get("result", told)["methods"]}
                assert names == {"anyone", "read", "write", "wipe", "own", "broken", "told"} - hidden


HTTP: list[tuple[str, bytes, int]] = [
    ("no token", post(message("anyone")), 401),
    ("two fields", post(message("anyone"), more=bearer("ada") * 2), 400),
    ("two fields of two callers", post(message("anyone"), more=bearer("ada") + bearer("bob")), 400),
    ("a folded list", post(message("anyone"), more=f"Authorization: Bearer {token('ada')}, Bearer x\r\n"), 400),
    ("in the query", post(message("anyone"), path=f"/?access_token={token('ada')}", more=bearer("ada")), 400),
    ("unknown", post(message("anyone"), more="Authorization: Bearer unknown-token\r\n"), 401),
    ("too long", post(message("anyone"), more=f"Authorization: Bearer {'x' * 16_500}\r\n"), 401),
    ("away", post(message("anyone"), more=bearer("away")), 503),
    ("broken", post(message("anyone"), more=bearer("broken")), 500),
    ("the description", get("/openrpc.json"), 401),
]


@FACES
@pytest.mark.parametrize(("name", "raw", "status"), HTTP, ids=[row[0] for row in HTTP])
async def test_http_refusals(kind: str, name: str, raw: bytes, status: int) -> None:
    async with face(kind, {"": guarded()}, Options()) as port:
        for _ in range(3):  # the head is known by then
            found = await asked(port, raw)
            assert found.status == status
            assert ("www-authenticate" in found.headers) is (status in (400, 401))
            assert ("retry-after" in found.headers) is (status == 503)
            assert CANARY not in f"{found.body!r} {found.headers}"


async def test_a_header_over_every_limit_has_a_challenge() -> None:
    async with face("native", {"": guarded()}, Options()) as port:
        found = await asked(port, post(message("anyone"), more=f"Authorization: Bearer {'x' * 60_000}\r\n"))
    assert found.status == 431
    assert METADATA in found.headers["www-authenticate"]


async def test_a_bad_token_is_answered_before_the_body_is_read() -> None:
    head = post(b"x" * 1000, more="Authorization: Bearer unknown-token\r\n")[:-1000]
    async with face("native", {"": guarded()}, Options()) as port:
        assert (await asked(port, head)).status == 401


@FACES
async def test_tokens_do_not_reach_handlers(kind: str) -> None:
    seen: list[Caller] = []
    api = Service("seeing")

    @api.method(inline=True)
    def look(context: Context) -> None:
        seen.append(context.caller)

    async with face(kind, {"": guarded(api)}, Options()) as port:
        for extra in ("", "", "X-Other: 1\r\n", "X-Other: 2\r\n", "X-Other: 3\r\n", "DPoP: x\r\n"):
            assert (await asked(port, post(message("look"), more=bearer("ada") + extra))).status == 200
    assert len(seen) == 6
    for caller in seen:
        assert caller.identity is not None
        assert "authorization" not in caller.headers
        assert CANARY not in repr(caller)
        assert "dpop" not in caller.headers


PAGE = "Origin: https://app.example\r\n"
ASKS = f"{PAGE}Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"


@FACES
async def test_pages_of_allowed_origins_may_log_in(kind: str) -> None:
    options = Options(cors=["https://app.example"])
    async with face(kind, {"": guarded()}, options) as port:
        # "a CORS preflight carries no token and is answered without one" (Fetch, 4.8)
        asks = await asked(port, b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % ASKS.encode())
        assert asks.status == 204
        assert asks.headers["access-control-allow-origin"] == "https://app.example"
        for who_, status in (("", 401), (bearer("eve"), 403), (bearer("ada"), 200)):
            found = await asked(port, post(message("read"), more=PAGE + who_))
            assert found.status == status
            assert found.headers["access-control-allow-origin"] == "https://app.example"
            assert "Origin" in found.headers["vary"]
            for name in ("WWW-Authenticate", "DPoP-Nonce"):
                assert name in found.headers["access-control-expose-headers"]


PUBLISHED = ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource")


@FACES
@pytest.mark.parametrize("path", PUBLISHED)
@pytest.mark.parametrize("more", ["", PAGE, "Origin: null\r\n", "Authorization: Bearer unknown-token\r\n"])
async def test_the_metadata_are_for_everybody(kind: str, path: str, more: str) -> None:
    async with face(kind, {"": guarded()}, Options()) as port:
        found = await asked(port, get(path, more=more))
        assert found.status == 200
        assert found.headers["access-control-allow-origin"] == "*"
        assert found.headers["cache-control"] == "public, max-age=300"
        assert json.loads(found.body)["scopes_supported"] == SCOPES
        asks = await asked(port, get(path, method="OPTIONS", more=ASKS))
        assert (asks.status, asks.headers["access-control-allow-origin"]) == (204, "*")
        assert (await asked(port, post(b"{}", path=path))).status == 405


async def test_the_metadata_are_not_made_of_the_host() -> None:
    async with face("native", {"": guarded()}, Options(hosts=["*"])) as port:
        raw = get(PUBLISHED[0]).replace(b"localhost", b"evil.example")
        assert b"evil" not in (await asked(port, raw)).body


async def test_routes_stand_behind_the_guard_unless_they_are_public() -> None:
    api = notes()

    @api.route("/inside")
    async def inside(request: Any) -> str:
        return str(request.identity.subject)

    @api.route("/outside", public=True)
    async def outside(request: Any) -> str:
        return "anyone"

    async with face("native", {"/rpc": guarded(api)}, Options()) as port:
        assert (await asked(port, get("/inside"))).status == 401
        assert (await asked(port, get("/inside", more=bearer("ada")))).body == b"ada"
        assert (await asked(port, get("/outside"))).body == b"anyone"
        assert (await asked(port, get("/live"))).status == 200


# -- other wires ----------------------------------------------------------------------------------


async def test_in_memory_callers_are_this_machines_user() -> None:
    async with serve(notes(auth=issued()), urls="memory:guarded"), connect("memory:guarded") as peer:
        assert await peer.call("anyone") == "open"
        assert (await peer.call("write", ["x"])).endswith(": x")
        assert await peer.call("wipe") == "wiped"
        assert await peer.call("told") == await peer.call("read")
        with pytest.raises(RpcError, match="Forbidden: not with these arguments"):
            await peer.call("own", ["somebody else"])


async def test_the_process_at_a_unix_socket(tmp_path: Path) -> None:
    async with serve(notes(auth=issued()), urls=f"unix:{tmp_path / 's'}"), connect(f"unix:{tmp_path / 's'}") as peer:
        assert await peer.call("wipe") == "wiped"  # it is ours


async def test_tokens_in_a_brokers_headers() -> None:
    async with (
        serve(notes(auth=issued()), urls="memory+broker:guarded"),
        connect("memory+broker:guarded") as peer,
    ):
        shown = {"authorization": f"Bearer {token('ada')}"}
        assert await peer.call("read", extra=shown) == "ada"
        with pytest.raises(RpcError, match="notes:write") as caught:
            await peer.call("write", ["x"], extra=shown)
        assert caught.value.data["scopes"] == SCOPES
        with pytest.raises(RpcError, match="show a token"):
            await peer.call("read")


START: list[tuple[str, dict[str, Any], str]] = [
    ("tcp://127.0.0.1:0", {}, "auth= cannot be kept there"),
    ("udp://127.0.0.1:0", {}, "auth= cannot be kept there"),
    ("tls://127.0.0.1:0", {}, "MutualTls"),
    ("http://127.0.0.1:0", {"guard": lambda handshake: None}, "leave one of the two out"),
    ("http://127.0.0.1:0", {"auth": issued()}, "has an auth= of its own"),
    ("http://127.0.0.1:0", {"public": ["http://127.0.0.1:1"]}, "public= names some of the URLs"),
    ("http://127.0.0.1:0", {"auth": "oauth"}, "verifier"),
]


@pytest.mark.parametrize(("url", "options", "words"), START)
async def test_what_is_refused_at_the_start(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        async with serve(notes(auth=issued()), urls=url, **options):
            pass


@pytest.mark.parametrize("url", ["http://127.0.0.1:0", "tcp://127.0.0.1:0", "ws://127.0.0.1:0", "memory+broker:bare"])
async def test_methods_that_demand_something_need_a_guard(url: str) -> None:
    with pytest.raises(LocalError, match="nothing says who is calling"):
        async with serve(notes(), urls=url):
            pass


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "http://127.0.0.1:0"])
async def test_a_url_that_is_named_public_asks_nobody(url: str) -> None:
    async with serve(notes(auth=issued()), urls=url, public=url) as serving, connect(serving.urls[0]) as peer:
        assert await peer.call("anyone") == "open"
        assert await peer.call("told") == "no one"
        for method in ("read", "wipe", "own"):
            with pytest.raises(RpcError, match="say who they are"):
                await peer.call(method, ["ada"] if method == "own" else [])


async def test_a_service_that_demands_nothing_is_served_as_ever() -> None:
    api = Service("open")
    api.method("one")(lambda: 1)
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert await peer.call("one") == 1


def test_answers_without_a_wire_have_no_rights() -> None:
    api = notes()
    assert json.loads(api.answer(message("read")) or b"")["error"]["code"] == -32004
    found = api.answer(message("read"), caller=Caller(identity=who("ada", "notes:read")))
    assert json.loads(found or b"")["result"] == "ada"


def test_including_into_what_has_no_guard() -> None:
    for outer, inner in (
        (Service("outer"), notes()),
        (Service("outer"), Service("inner", auth=issued())),
        (Server("outer"), notes()),
        (Server("outer"), Server("inner", auth=issued())),
    ):
        with pytest.raises(LocalError, match="give outer an auth= of its own"):
            outer.include(inner)
    late = Service("late")
    Service("open").include(late)
    with pytest.raises(LocalError, match="give open an auth="):
        late.method("one", scopes="a")(lambda: 1)
    Service("outer", auth=issued()).include(notes())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scopes": 'a"b'}, "is not a scope"),
        ({"scopes": ["a b"]}, "is not a scope"),
        ({"scopes": ["ü"]}, "is not a scope"),
        ({"scopes": 7}, "scopes is"),
        ({"roles": 7}, "roles is"),
        ({"allow": "yes"}, "allow is"),
    ],
)
def test_demands_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Service("x").method("one", **options)(lambda: 1)


async def test_allow_cannot_wait() -> None:
    async def allow(identity: Identity, arguments: Any) -> bool:
        return True

    with pytest.raises(LocalError, match="a plain function"):
        Service("x").method("one", allow=allow)(lambda: 1)  # type: ignore[arg-type]


def test_the_local_user_has_all_scopes_and_roles() -> None:
    access = notes().methods["wipe"].access
    assert access is not None
    assert access.refusal(Caller(identity=LocalUser(subject="me")), None) is None
    assert access.refusal(Caller(scheme="stdio"), None) is None
    assert access.refusal(Caller(scheme="tcp"), None) is not None


async def test_tls_needs_certificates() -> None:
    from dragoman.auth import MutualTls

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    verifier = MutualTls({"spiffe://example/ada": ["notes:read"]})
    with pytest.raises(LocalError, match="not asked for a certificate"):
        async with serve(notes(auth=verifier), urls="tls://127.0.0.1:0", tls=context):
            pass


@FACES
@pytest.mark.parametrize(("name", "status"), [("", 401), ("unknown", 401), ("ada", 101)])
async def test_a_websocket_shows_its_token_in_the_handshake(kind: str, name: str, status: int) -> None:
    more = bearer(name) if name else ""
    upgrade = (
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
    )
    async with face(kind, {"": guarded()}, Options()) as port:
        found = await asked(port, upgrade.encode())
    assert found.status == status
    assert ("www-authenticate" in found.headers) is (status == 401)
