"""Lists that depend on the caller: who is asked how often, what is kept, and for how long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Server
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, REVISIONS, Revision
from tests.behind import behind

from ..calling import calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)


def caller(name: str, **claims: Any) -> Caller:
    return Caller(identity=Identity(subject=name, claims=claims))


def page(server: Server, who: Caller, revision: Revision = R2026_07, cursor: Any = UNSET) -> Any:
    return behind(server).catalog.page("tools", revision, who, cursor)


def names(server: Server, who: Caller, revision: Revision = R2026_07) -> list[str]:
    """The tools of all pages."""
    found: list[str] = []
    cursor: Any = UNSET
    while True:
        one = msgspec.json.decode(page(server, who, revision, cursor))
        found += [tool["name"] for tool in one["tools"]]
        if "nextCursor" not in one:
            return found
        cursor = one["nextCursor"]


class Asked:
    """Functions that decide by a caller's name, and how often each was called."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}

    def only(self, *who: str) -> Callable[[Caller], bool]:
        key = "".join(who)
        self.times[key] = 0

        def visible(caller: Caller) -> bool:
            self.times[key] += 1
            return caller.identity is not None and caller.identity.subject in who

        return visible

    def taken(self) -> dict[str, int]:
        found = self.times.copy()
        self.times = dict.fromkeys(found, 0)
        return found


@every
async def test_each_function_that_decides_is_called_once_for_a_page(revision: Revision) -> None:
    asked = Asked()
    ada, both, eve = asked.only("ada"), asked.only("ada", "bob"), asked.only("eve")
    server = Server("desk", page_size=4)
    for number in range(8):
        server.add_tool(lambda: "", name=f"all{number}")
        server.add_tool(lambda: "", name=f"ada{number}", visible=ada)
        server.add_tool(lambda: "", name=f"both{number}", visible=both, version="1")
        server.add_tool(lambda: "", name=f"both{number}", visible=ada, version="2")
    server.add_tool(lambda: "", name="off", visible=eve)
    server.disable("tool", "off")
    page(server, caller("ada"), revision)
    assert asked.taken() == {"ada": 1, "adabob": 1, "eve": 0}
    for who, count in (("ada", 24), ("bob", 16), ("eve", 8), ("ada", 24)):
        asked.taken()
        assert len(names(server, caller(who), revision)) == count
        assert asked.taken() == {"ada": -(-count // 4), "adabob": -(-count // 4), "eve": 0}


async def test_demands_that_are_the_same_are_asked_once() -> None:
    times = []

    def allow(identity: Identity, arguments: Any) -> bool:
        times.append(identity.subject)
        return identity.subject == "ada"

    class Rule:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, caller: Caller) -> bool:
            return caller.identity is not None and caller.identity.subject == self.name

        def method(self, caller: Caller) -> bool:
            times.append(self.name)
            return self(caller)

    server, eve = Server("desk"), Rule("eve")
    for number in range(5):
        server.add_tool(lambda: "", name=f"allow{number}", allow=allow)
        server.add_tool(lambda: "", name=f"roles{number}", roles={"admin"})
        server.add_tool(lambda: "", name=f"eve{number}", visible=eve.method)
    for name in ("ada", "bob"):  # equal, but not the same
        server.add_tool(lambda: "", name=f"rule of {name}", visible=Rule(name))
    assert len(names(server, caller("ada"))) == 6
    assert len(names(server, caller("bob"))) == 1
    assert sorted(times) == ["ada", "bob", "eve", "eve"]
    assert len(names(server, Caller(identity=Identity(subject="x", roles=frozenset({"admin"}))))) == 5


async def test_callers_for_whom_all_decide_alike_share_the_pages() -> None:
    asked = Asked()
    server = Server("desk", page_size=1, ttl=60, cache_scope="public")
    server.add_tool(lambda: "", name="all")
    server.add_tool(lambda: "", name="hers", visible=asked.only("ada", "eve"))
    first = page(server, caller("ada"))
    assert b'"cacheScope":"private"' in bytes(first)
    assert page(server, caller("eve")) is first
    assert page(server, caller("bob")) is not first
    assert page(server, caller("ada"), R2025_11) is not first
    cursor = msgspec.json.decode(first)["nextCursor"]
    assert page(server, caller("ada"), cursor=cursor) is page(server, caller("eve"), cursor=cursor)
    for change in (
        lambda: server.disable("tool", "all"),
        lambda: server.enable("tool", "all"),
        lambda: server.add_tool(lambda: "", name="late"),
        lambda: server.remove_tool("late"),
    ):
        before = page(server, caller("ada"))
        change()
        assert page(server, caller("ada")) is not before


async def test_a_decision_may_change_at_any_time() -> None:
    admins = {"ada"}
    server = Server("desk")
    server.add_tool(lambda: "", name="hers", visible=lambda caller: getattr(caller.identity, "subject", "") in admins)
    assert names(server, caller("bob")) == []
    admins.add("bob")
    assert names(server, caller("bob")) == ["hers"]
    admins.clear()
    assert names(server, caller("bob")) == names(server, caller("ada")) == []


async def test_only_so_many_sequences_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.server.listing.SEQUENCES", 2)
    server = Server("desk")
    for name in ("ada", "bob", "eve"):
        server.add_tool(lambda: "", name=name, visible=Asked().only(name))
    kept = {name: page(server, caller(name)) for name in ("ada", "bob")}
    assert page(server, caller("ada")) is kept["ada"]
    page(server, caller("eve"))  # drops what was least recently used
    assert page(server, caller("ada")) is kept["ada"]
    assert page(server, caller("bob")) is not kept["bob"]


async def test_only_so_many_bytes_of_pages_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.server.listing.SEQUENCE_BYTES", 3_000)
    server = Server("desk")
    for name in ("ada", "bob", "eve"):
        server.add_tool(lambda: "", name=name, description="d" * 2_000, visible=Asked().only(name))
    ada = page(server, caller("ada"))
    bob = page(server, caller("bob"))
    assert page(server, caller("ada")) is ada
    page(server, caller("eve"))
    assert page(server, caller("ada")) is ada
    assert page(server, caller("bob")) is not bob
    everyone = Server("open")
    for number in range(4):
        everyone.add_tool(lambda: "", name=f"t{number}", description="d" * 2_000)
    assert page(everyone, Caller()) is page(everyone, Caller()), "the sequence in use is kept whole"


async def test_only_so_many_texts_of_an_entry_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.server.listing.TEXTS", 4)
    server = Server("desk")
    server.add_tool(lambda: "", name="t", version="9")
    for number, who in enumerate("abcdefgh"):  # each sees another set of the older versions
        server.add_tool(lambda: "", name="t", version=str(number), visible=Asked().only(who))
    for who in "abcdefgh":
        (tool,) = msgspec.json.decode(page(server, caller(who)))["tools"]
        assert tool["_meta"]["fastmcp"]["versions"] == ["9", str("abcdefgh".index(who))]
        assert all(len(one.texts) <= 4 for one in behind(server).catalog.everything())


@every
async def test_a_function_that_raises_fails_the_list(revision: Revision) -> None:
    def raises(caller: Caller) -> bool:
        raise RuntimeError("what decides may fail")

    server = Server("desk")
    server.add_tool(lambda: "", name="all")
    server.add_tool(lambda: "", name="odd", visible=raises)
    async with calling(server, revision) as calls:
        assert (await calls.error("tools/list"))["code"] == -32603
        server.disable("tool", "odd")
        assert [*await calls.tools()] == ["all"]


@pytest.mark.parametrize("change", ["switch", "add", "list", "remove"])
async def test_a_function_may_change_and_list_what_it_decides_about(change: str) -> None:
    """It is called without the lock of the list."""
    server = Server("desk")
    began, others = threading.Event(), []

    def visible(caller: Caller) -> bool:
        if caller.identity is not None and not began.is_set():
            began.set()
            if change == "switch":
                server.disable("tool", "all")
            elif change == "add":
                server.add_tool(lambda: "", name="late")
            elif change == "remove":
                server.remove_tool("all")
            others.append(names(server, Caller()))
        return True

    server.add_tool(lambda: "", name="all")
    server.add_tool(lambda: "", name="hers", visible=visible)
    found = await asyncio.wait_for(asyncio.to_thread(names, server, caller("ada")), 20)
    assert found == ["all", "hers"], "the list as it was when the request came"
    now = {"switch": ["hers"], "add": ["all", "hers", "late"], "list": ["all", "hers"], "remove": ["hers"]}[change]
    assert others == [now]
    assert names(server, caller("ada")) == now


async def test_threads_list_while_entries_come_and_go() -> None:
    asked = Asked()
    hers = asked.only("ada")
    server = Server("desk", page_size=3)
    for number in range(20):
        server.add_tool(lambda: "", name=f"t{number}", visible=hers if number % 2 else None)
    done = threading.Event()

    def changes() -> None:
        for number in range(200):
            server.add_tool(lambda: "", name=f"late{number}", visible=hers)
            server.disable("tool", "t0")
            server.remove_tool(f"late{number}")
            server.enable("tool", "t0")
        done.set()

    def lists(who: str, least: int) -> None:
        while not done.is_set():
            found = [one for one in names(server, caller(who)) if not one.startswith("late")]
            assert least - 1 <= len(found) <= least
            assert len(set(found)) == len(found)

    await asyncio.gather(
        asyncio.to_thread(changes), asyncio.to_thread(lists, "ada", 20), asyncio.to_thread(lists, "bob", 10)
    )


async def test_a_cursor_stays_valid_for_others_and_after_changes() -> None:
    asked = Asked()
    server = Server("desk", page_size=2)
    for number in range(6):
        server.add_tool(lambda: "", name=f"t{number}", visible=asked.only("ada") if number in (0, 3) else None)
    cursor = msgspec.json.decode(page(server, caller("ada")))["nextCursor"]
    assert [one["name"] for one in msgspec.json.decode(page(server, caller("bob"), cursor=cursor))["tools"]] == [
        "t2",
        "t4",
    ]
    server.remove_tool("t1")
    found = msgspec.json.decode(page(server, caller("ada"), cursor=cursor))["tools"]
    assert [one["name"] for one in found] == ["t2", "t3"]
    with pytest.raises(LocalError):
        server.add_tool(lambda: "", name="t2")
