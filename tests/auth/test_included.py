"""What is included keeps the guard that it had alone: its scopes are demanded there, and its callers are the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman import Caller, LocalError, Service
from dragoman.auth import Static
from dragoman.auth.guard import TokenGuard
from dragoman.channel import Identity
from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Server
from dragoman.mcp.protocol.params import CompleteResult, GetPromptResult, ReadResourceResult
from dragoman.mcp.server.calling import request
from tests.behind import behind

from .guarding import Issued

STAFF = Static({"staff-token": Identity(subject="ada", scopes=frozenset({"payroll"}))})
GUESTS = Static({"guest-token": Identity(subject="eve")})
ADA, EVE = (
    Caller(scheme="tcp", identity=Identity(subject=name, scopes=frozenset(scopes)))
    for name, scopes in (("ada", ("payroll", "sums")), ("eve", ("sums",)))
)


def payroll(auth: Any) -> Server:
    server = Server("payroll", auth=auth)

    @server.tool
    def salaries() -> str:
        return "salaries"

    @server.tool(scopes="sums")
    def total() -> str:
        return "total"

    @server.resource("pay://slips/{name}")
    def slip(name: str) -> str:
        return name

    @server.completion("pay://slips/{name}", "name")
    def names(typed: str) -> list[str]:
        return [typed]

    @server.prompt
    def ask(about: str) -> str:
        return about

    service = Service("ledger", auth=auth)

    @service.method
    def add(a: int) -> int:
        return a

    server.include(service, namespace="ledger")
    return server


CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("tools/call", {"name": "in_salaries"}, Any),
    ("tools/call", {"name": "in_total"}, Any),
    ("tools/call", {"name": "in_ledger_add", "arguments": {"a": 1}}, Any),
    ("tools/call", {"name": "in_late"}, Any),
    ("resources/read", {"uri": "pay://in/slips/ada"}, ReadResourceResult),
    ("prompts/get", {"name": "in_ask", "arguments": {"about": "x"}}, GetPromptResult),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "pay://in/slips/{name}"}, "argument": {"name": "name", "value": "a"}},
        CompleteResult,
    ),
]


@pytest.mark.parametrize(("method", "params", "result"), CALLS)
@pytest.mark.parametrize("deep", [False, True])
async def test_the_scopes_of_an_included_server_are_demanded(
    method: str, params: dict[str, Any], result: Any, deep: bool
) -> None:
    inner = payroll(TokenGuard(STAFF, scopes="payroll"))
    outer = Server("outer", auth=STAFF)
    outer.include(inner, namespace="in")
    if deep:
        top = Server("top", auth=[STAFF])
        top.include(outer)
        outer = top

    @inner.tool
    def late() -> str:
        return "late"

    @inner.use
    async def after(call: Any, next: Any) -> Any:  # its entries are made again
        return await next(call)

    @outer.tool
    def open_to_all() -> str:
        return "open"

    core = behind(outer)
    await request(core, method, params, ADA, result)
    with pytest.raises(RpcError, match=r"needs the scopes .*payroll"):
        await request(core, method, params, EVE, result)
    assert (await outer.call_tool("open_to_all", caller=EVE)).text == "open"
    assert "payroll" in (core.demanded or ())


def test_the_scopes_of_an_included_service_are_demanded() -> None:
    inner, outer = Service("inner", auth=TokenGuard(STAFF, scopes="payroll")), Service("outer", auth=STAFF)
    outer.include(inner, namespace="in")

    @inner.method
    def add(a: int) -> int:
        return a

    @inner.method(scopes="sums", inline=True)
    def both(a: int) -> int:
        return a

    for name in ("in.add", "in.both"):
        message = msgspec.json.encode({"jsonrpc": "2.0", "method": name, "params": [1], "id": 1})
        assert msgspec.json.decode(outer.answer(message, caller=ADA) or b"")["result"] == 1
        assert "payroll" in msgspec.json.decode(outer.answer(message, caller=EVE) or b"")["error"]["data"]["scopes"]


def of(*issuers: str) -> Issued:
    verifier = Issued({})
    verifier.issuers = issuers
    return verifier


ONE, OTHER, BOTH = of("https://a"), of("https://b"), of("https://a", "https://b")
INCLUDED: list[tuple[Any, Any, str]] = [
    # the outer's, the inner's, why it is not included
    (STAFF, STAFF, ""),
    (STAFF, None, ""),
    (STAFF, TokenGuard(STAFF), ""),
    (TokenGuard(STAFF, scopes="a"), [GUESTS, STAFF], ""),
    ([STAFF, GUESTS], STAFF, "a Static of its own"),
    (GUESTS, STAFF, "a Static of its own"),
    (GUESTS, TokenGuard(STAFF, scopes="payroll"), "a Static of its own"),
    (ONE, of("https://a"), ""),
    (ONE, BOTH, ""),
    (BOTH, ONE, "https://b"),
    (ONE, OTHER, "https://a"),
    (STAFF, ONE, "a Static of its own"),
    (None, STAFF, "has no auth="),
]


@pytest.mark.parametrize(("outer", "inner", "why"), INCLUDED)
@pytest.mark.parametrize("kind", [Server, Service])
@pytest.mark.parametrize("inside", [Server, Service])
def test_callers_of_another_issuer(kind: Any, inside: Any, outer: Any, inner: Any, why: str) -> None:
    if kind is Service and inside is Server:
        return
    around, within = kind("outer", auth=outer), inside("inner", auth=inner)
    if why:
        with pytest.raises(LocalError, match=f"outer cannot include inner: .*{why}"):
            around.include(within)
        assert not behind(around)._included
    else:
        around.include(within)
