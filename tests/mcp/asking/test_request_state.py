"""Sealed state (2026-07-28, basic/patterns/mrtr, "Server Requirements (Basic Workflow)")."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from msgspec import UNSET, Raw

from dragoman import InternalError, InvalidParams, LocalError, serve
from dragoman.allowance import Owner
from dragoman.bus.memory import MemoryBus
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp.asking.request_state import KnownAnswer, NoncesHere, SealError, StateSeal, digest_of
from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server
from tests.behind import behind

from ..http_tools import City, tools
from ..http_wire import body, meta, served, standard

HERE = Owner("192.0.2.1")
OLD, NEW = "the-old-key-long-enough", "the-new-key-long-enough"
REQUEST = digest_of("tools/call", Raw(b'{"name": "buy", "arguments": {"a": 1, "b": [2, {"x": 1, "y": 2}]}}'))


class Wall:
    """A clock of our own."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def sealed(seal: StateSeal, principal: str | None = "ann", **more: Any) -> str:
    known = {"one": KnownAnswer("d1", Raw(b'{"action":"accept"}'))}
    return seal.seal(REQUEST, principal, digests={"two": "d2"}, known=known, **more)


def reason(seal: StateSeal, text: str, request: str = REQUEST, principal: str | None = "ann") -> str:
    with pytest.raises(SealError) as caught:
        seal.open(text, request, principal)
    assert isinstance(caught.value, InvalidParams)
    assert caught.value.code == -32602
    data = caught.value.data
    assert isinstance(data, dict)
    return str(data["reason"])


def test_what_is_sealed_comes_out() -> None:
    seal = StateSeal(NEW)
    state = seal.open(sealed(seal), REQUEST, "ann")
    assert state.digests == {"two": "d2"}
    assert bytes(state.known["one"].answer) == b'{"action":"accept"}'
    assert not state.once


def test_no_two_are_equal() -> None:
    seal = StateSeal(NEW)
    assert sealed(seal) != sealed(seal)


@pytest.mark.parametrize("extra", ["-TAMPERED", "A", "!", "=", " ", "\n", ".", "é"])
def test_what_is_added_to_it_is_found(extra: str) -> None:
    """ "MUST reject state that fails verification"."""
    seal = StateSeal(NEW)
    assert reason(seal, sealed(seal) + extra) == "tampered"


def test_every_changed_letter_is_found() -> None:
    """ "MUST reject state that fails verification": the last letter too, whose spare bits decode alike."""
    seal = StateSeal(NEW)
    text = sealed(seal)
    for at in range(len(text)):
        for letter in "AB-_z":
            if text[at] != letter:
                assert reason(seal, text[:at] + letter + text[at + 1 :]) == "tampered"


@pytest.mark.parametrize("text", ["", ".", "..", "eyJ9", "x" * 100, "a.b", ".eJw.aa", "x" * 300_000])
def test_nonsense_is_found(text: str) -> None:
    assert reason(StateSeal(NEW), text) == "tampered"


def test_a_principal_s_own() -> None:
    """ "the authenticated principal, rejecting state presented by a different principal"."""
    seal = StateSeal(NEW)
    assert reason(seal, sealed(seal), principal="bob") == "foreign"
    assert reason(seal, sealed(seal), principal=None) == "foreign"
    assert reason(seal, sealed(seal, None), principal="ann") == "foreign"


def test_its_life() -> None:
    """ "a short expiry (TTL), rejecting state presented after it lapses"."""
    wall = Wall()
    seal = StateSeal(NEW, 600, clock=wall)
    text = sealed(seal)
    wall.now += 599
    seal.open(text, REQUEST, "ann")
    wall.now += 1
    assert reason(seal, text) == "expired"


def test_its_request() -> None:
    """ "an identifier for the originating request [...], rejecting state presented on a request that does not
    match"."""
    seal = StateSeal(NEW)
    other = digest_of("tools/call", Raw(b'{"name": "sell", "arguments": {"a": 1, "b": [2, {"x": 1, "y": 2}]}}'))
    assert reason(seal, sealed(seal), request=other) == "mismatched"


def test_a_request_is_the_same_whatever_the_order_and_the_try() -> None:
    again = (
        b'{"_meta": {"x": 1}, "arguments": {"b": [2, {"y": 2, "x": 1}], "a": 1}, "requestState": "s",'
        b' "inputResponses": {}, "name": "buy"}'
    )
    assert digest_of("tools/call", Raw(again)) == REQUEST
    assert digest_of("prompts/get", Raw(again)) != REQUEST
    assert digest_of("prompts/get", UNSET) == digest_of("prompts/get", Raw(b"{}"))
    swapped = again.replace(b'[2, {"y": 2, "x": 1}]', b'[{"y": 2, "x": 1}, 2]')
    assert digest_of("tools/call", Raw(swapped)) != REQUEST


def test_a_number_that_no_double_holds_is_the_caller_s_fault() -> None:
    """Where nothing else reads it; an answer's is told where the answer is read."""
    with pytest.raises(InvalidParams, match="out of range"):
        digest_of("tools/call", Raw(b'{"name": "buy", "more": [1e999]}'))
    assert digest_of("tools/call", Raw(b'{"_meta": 1e999, "inputResponses": {"q": 1e999}}')) == digest_of(
        "tools/call", UNSET
    )


def test_keys_rotate() -> None:
    old, both, new = StateSeal([OLD]), StateSeal([NEW, OLD]), StateSeal([NEW])
    both.open(sealed(old), REQUEST, "ann")
    new.open(sealed(both), REQUEST, "ann")
    assert reason(new, sealed(old)) == "tampered"


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET", f"{NEW.replace(' ', '')}, {OLD.replace(' ', '')}\n")
    StateSeal(NEW).open(sealed(StateSeal()), REQUEST, "ann")
    StateSeal().open(sealed(StateSeal(OLD)), REQUEST, "ann")


def test_without_keys_each_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_SECRET", raising=False)
    one, other = StateSeal(), StateSeal()
    one.open(sealed(one), REQUEST, "ann")
    assert reason(other, sealed(one)) == "tampered"


def test_another_server_s_is_refused_under_the_same_key() -> None:
    assert reason(StateSeal(NEW, audience="b"), sealed(StateSeal(NEW, audience="a"))) == "tampered"


@pytest.mark.parametrize("keys", [["short"], [NEW.encode(), b"short"], " , ", []])
def test_weak_keys_are_refused(keys: Any) -> None:
    with pytest.raises(LocalError, match="key"):
        StateSeal(keys)


def test_a_life_is_above_nothing() -> None:
    with pytest.raises(LocalError, match="seconds"):
        StateSeal(NEW, 0)


def test_it_is_bounded() -> None:
    seal = StateSeal(NEW, size=2_000)
    noise = bytes(range(33, 127)).replace(b'"', b"").replace(b"\\", b"").hex().encode()
    import random

    pieces = [bytes(random.Random(n).choices(noise, k=100)) for n in range(40)]
    with pytest.raises(LocalError, match="2000 are allowed"):
        seal.seal(
            REQUEST,
            None,
            digests={},
            known={str(n): KnownAnswer("d", Raw(b'"%s"' % one)) for n, one in enumerate(pieces)},
        )


def test_its_bound_holds_for_the_open_state() -> None:
    """A state is compressed where that helps, and would open to a thousand times its text."""
    seal = StateSeal(NEW, size=2_000)
    with pytest.raises(LocalError, match=r"a state of 1[0-9]{5} bytes, and 2000 are allowed"):
        seal.seal(REQUEST, None, digests={}, known={"a": KnownAnswer("d", Raw(b'"%b"' % (b"a" * 100_000)))})
    fits = seal.seal(REQUEST, None, digests={}, known={"a": KnownAnswer("d", Raw(b'"%b"' % (b"a" * 1_800)))})
    assert len(fits) < 400
    assert len(seal.open(fits, REQUEST, None).known["a"].answer) == 1_802
    longer = StateSeal(NEW).seal(
        REQUEST, None, digests={}, known={"a": KnownAnswer("d", Raw(b'"%b"' % (b"a" * 100_000)))}
    )
    assert len(longer) < 2_000
    assert reason(seal, longer, principal=None) == "tampered"


@pytest.mark.parametrize("length", [1_000, 100_000])
async def test_it_is_opened_once_a_call(length: int) -> None:
    """By the router before its handler runs, and by what the handler asks: one opening for both."""
    server = Server("asks", keys=OLD)

    @server.tool
    async def two(ctx: Context) -> str:
        first = await ctx.elicit("one?", City)
        return f"{first} {await ctx.elicit('two?', City)}"

    looks: list[float] = []  # at the clock: one for each state that is opened, and one for each that is sealed

    def clock() -> float:
        looks.append(1.0)
        return 1.0

    behind(server).seal.clock = clock
    said = meta(capabilities={"elicitation": {"form": {}}})
    params: dict[str, Any] = {"name": "two", "arguments": {}, "_meta": said}
    headers = standard("tools/call", "two")
    async with served(server) as place:
        for step in range(3):
            found = json.loads((await place.ask(body("tools/call", params), headers)).body)["result"]
            assert len(looks) == (1, 3, 4)[step]
            if step == 2:
                assert found["content"][0]["text"].count("x" * length) == 2
                break
            (key,) = found["inputRequests"]
            answer = {"action": "accept", "content": {"city": "x" * length}}
            params |= {"requestState": found["requestState"], "inputResponses": {key: answer}}


def test_once() -> None:
    """ "Servers for which a given `requestState` must be consumed at most once MUST enforce that invariant"."""
    seal = StateSeal(NEW)
    state = seal.open(sealed(seal, once=True), REQUEST, "ann")
    seal.use(state, HERE)
    with pytest.raises(SealError) as caught:
        seal.use(state, HERE)
    assert caught.value.data == {"reason": "used"}
    often = seal.open(sealed(seal), REQUEST, "ann")
    seal.use(often, HERE)
    seal.use(often, HERE)


def test_used_states_are_remembered_until_they_expire_and_each_owner_has_its_share() -> None:
    wall = Wall()
    nonces = NoncesHere(4, life=20, clock=wall)
    ann = Owner("ann", known=True)
    assert nonces.take("a", wall.now + 10, HERE)
    assert not nonces.take("a", wall.now + 10, HERE)
    assert not nonces.take("a", wall.now + 10, ann), "by another one too"
    assert nonces.take("b", wall.now + 20, HERE)
    with pytest.raises(InternalError, match="Busy") as told:
        nonces.take("c", wall.now + 20, HERE)
    assert told.value.data == {"retry_after": 40}
    with pytest.raises(InternalError, match="Busy"):
        nonces.allow(HERE)
    assert nonces.take("d", wall.now + 20, ann), "another one is served"
    wall.now += 10
    assert not nonces.take("b", wall.now + 20, HERE)
    wall.now += 30
    nonces.allow(HERE)
    assert nonces.take("e", wall.now + 20, HERE)


def test_the_library_is_imported_when_a_state_is_sealed_and_named_when_it_is_missing() -> None:
    code = (
        "import sys; from dragoman.mcp.asking.request_state import StateSeal; from dragoman import LocalError\n"
        "seal = StateSeal('a-key-that-is-long-enough'); assert 'itsdangerous' not in sys.modules\n"
        "sys.modules['itsdangerous'] = None\n"
        "try: seal.seal('r', None, digests={}, known={})\n"
        "except LocalError as error: assert 'dragoman[mcp]' in str(error)\n"
        "else: raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
async def test_a_call_that_is_refused_uses_no_state_up(shared: bool) -> None:
    """At most once is said of what was processed (basic/patterns/mrtr): a busy server has processed nothing."""
    server, stage = tools(once=True, limits=SERVER.but(calls=1), keys=[OLD])
    bus = MemoryBus("once")
    if shared:
        await behind(server).join(bus)
    async with serve(server, urls=["tcp://127.0.0.1:0"]) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(serving.urls[0].rpartition(":")[2]))

        async def ask(name: str, **more: Any) -> Any:
            params = {"name": name, "arguments": {}, "_meta": meta(capabilities={"elicitation": {}}), **more}
            writer.write(body("tools/call", params, name) + b"\n")
            return json.loads(await asyncio.wait_for(reader.readline(), 20))

        first = (await ask("ask"))["result"]
        answers = {key: {"action": "accept", "content": {"city": "Ulm"}} for key in first["inputRequests"]}
        again = {"inputResponses": answers, "requestState": first["requestState"]}
        slow = body("tools/call", {"name": "slow", "arguments": {}, "_meta": meta()}, "slow")
        writer.write(slow + b"\n")
        await stage.started.wait()
        assert (await ask("ask", **again))["error"]["data"]["limit"] == "calls"
        stage.go.set()
        assert json.loads(await asyncio.wait_for(reader.readline(), 20))["id"] == "slow"
        assert (await ask("ask", **again))["result"]["content"][0]["text"] == "Ulm"
        assert (await ask("ask", **again))["error"]["data"]["reason"] == "used"
        writer.close()
    await bus.close()


async def test_a_state_is_its_servers_alone() -> None:
    """Two servers that have one key, and one tool each of the same name."""

    def made(name: str) -> Server:
        server = Server(name, version="1", keys=[OLD])

        @server.tool
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Which city?", City)
            return str(answer.content)

        return server

    async with served(made("one")) as one, served(made("other")) as other:
        asks: dict[str, Any] = {"elicitation": {}}
        first = json.loads((await one.call("ask", capabilities=asks)).body)["result"]
        answers = {key: {"action": "accept", "content": {"city": "Ulm"}} for key in first["inputRequests"]}
        again = {"inputResponses": answers, "requestState": first["requestState"]}
        raw = body("tools/call", {"name": "ask", "arguments": {}, "_meta": meta(capabilities=asks), **again})
        headers = standard("tools/call", "ask")
        assert json.loads((await other.ask(raw, headers)).body)["error"]["code"] == -32602
        assert "Ulm" in str(json.loads((await one.ask(raw, headers)).body)["result"]["content"])
