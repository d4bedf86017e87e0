"""Whom a change of a list is told: those who may see what changed, and no others, in sessions, by listeners and on
replicas alike. Each step ends with a change that everyone is told, so that what is not told is known to be missing."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from dragoman.channel import Caller, Identity
from dragoman.mcp.client.client import Client
from dragoman.mcp.protocol.revisions import R2025_03, R2025_11, R2026_07, Revision
from dragoman.mcp.server.server import Server
from dragoman.mcp.session import changes
from dragoman.mcp.session.changes import ChangeEvent, Changes
from tests.behind import behind

from ..http_tools import Stage
from ..http_wire import body, named_by
from ..replicas import Ring, ring, settled

eras = pytest.mark.parametrize("revision", [R2025_03, R2025_11, R2026_07], ids=lambda one: one.date)
WHO = ("ada", "bob", "eve")


def owned(caller: Caller) -> bool:
    """Ada's alone; for eve it raises, which says no."""
    if caller.identity is not None and caller.identity.subject == "eve":
        raise RuntimeError("what decides may fail")
    return caller.identity is not None and caller.identity.subject == "ada"


def desk(**more: Any) -> tuple[Server, Stage]:
    """A server with something for ada alone, and something for all."""
    inner = Server("inner")
    inner.add_tool(lambda: "hers", name="audit", tags={"admin"}, visible=owned)
    server = Server("desk", tools=True, prompts=True, resources=True, **more)
    server.include(inner, namespace="x")
    server.add_tool(lambda: "hers", name="hers", tags={"admin"}, visible=owned)
    server.add_tool(lambda: "all", name="all", tags={"plain"})
    server.add_tool(lambda: "1", name="sum", version="1")
    server.add_tool(lambda: "2", name="sum", version="2", visible=owned)
    server.add_tool(lambda: "hers", name="allowed", allow=lambda identity, arguments: identity.subject == "ada")
    server.add_tool(lambda: "", name="scoped", scopes="desk")
    server.add_resource(lambda: "hers", "desk://hers", visible=owned)
    server.add_resource(lambda id: "hers", "desk://hers/{id}", visible=owned)
    server.add_prompt(lambda: "hers", name="hers", visible=owned)
    return server, Stage()


class Told:
    """What each of several clients is told."""

    def __init__(self, streams: dict[str, Any], servers: list[Server]) -> None:
        self._streams, self._servers, self._marks = streams, servers, itertools.count()

    async def of(self, *steps: Callable[[], object], at: int = 0) -> dict[str, list[str]]:
        """Whom these steps at one server are told, by name: the kinds of lists."""
        for step in steps:
            step()
        mark = f"desk://mark/{next(self._marks)}"
        self._servers[at].notify_resource_updated(mark)
        found: dict[str, list[str]] = {}
        for who, stream in self._streams.items():
            told = []
            while (one := await anext(stream)).uri != mark:
                told.append(one.kind)
            if told:
                found[who] = told
        return found


MARKS = [f"desk://mark/{number}" for number in range(20)]


@asynccontextmanager
async def telling(two: Ring, revision: Revision) -> AsyncIterator[Told]:
    """A client of each name at each replica, which is told of everything."""
    async with AsyncExitStack() as stack:
        streams = {}
        for server in two.servers:
            server.add_resource(lambda number: number, "desk://mark/{number}")
        for (at, place), who in itertools.product(enumerate(two.places), WHO):
            url = f"http://127.0.0.1:{place.port}/mcp"
            client = await stack.enter_async_context(Client(url, headers={"x-user": who}, revision=revision))
            events = client.subscribe(MARKS, tools=True, prompts=True, resources=True)
            streams[f"{who}{at}"] = await stack.enter_async_context(events)
        yield Told(streams, two.servers)


def each(count: int, names: Sequence[str], *kinds: str) -> dict[str, list[str]]:
    """These at each replica, told of these kinds."""
    return {f"{name}{at}": [*kinds] for at in range(count) for name in names}


@eras
@pytest.mark.parametrize("count", [1, 2], ids=["alone", "replicas"])
async def test_those_are_told_who_may_see_what_changed(revision: Revision, count: int) -> None:
    async with ring(count, make=desk, guard=named_by(b"x-user")) as places, telling(places, revision) as told:
        app = places.servers[0]
        hers = each(count, ["ada"], "tools")
        every = each(count, WHO, "tools")
        for named, whom in (
            ({"kind": "tool", "key": "hers"}, hers),
            ({"kind": "tool", "key": "x_audit"}, hers),
            ({"tag": "admin"}, hers),
            ({"kind": "tool", "key": "allowed"}, hers),
            ({"kind": "tool", "key": "scoped"}, every),
            ({"kind": "tool", "key": "sum", "version": "2"}, hers),
            ({"kind": "tool", "key": "sum", "version": "1"}, every),
            ({"kind": "tool"}, every),
        ):
            for switch in (app.disable, app.enable):
                assert await told.of(partial(switch, **named)) == whom  # type: ignore[arg-type]
        assert await told.of(
            lambda: app.remove_resource("desk://hers"),
            lambda: app.remove_resource("desk://hers/{id}"),
            lambda: app.remove_prompt("hers"),
        ) == each(count, ["ada"], "resources", "prompts")


@eras
@pytest.mark.parametrize("count", [1, 2], ids=["alone", "replicas"])
async def test_what_changes_no_list_is_told_no_one(revision: Revision, count: int) -> None:
    async with ring(count, make=desk, guard=named_by(b"x-user")) as places, telling(places, revision) as told:
        app = places.servers[0]
        assert await told.of(lambda: app.disable("tool", "all")) == each(count, WHO, "tools")
        assert await told.of(lambda: app.disable("tool", "all"), lambda: app.disable(tag="plain")) == {}
        assert await told.of(lambda: app.enable("tool", "all"), lambda: app.disable(tag="nothing has it")) == (
            each(count, WHO, "tools")
        )
        app.disable(tag="late")
        assert await told.of(lambda: app.add_tool(lambda: "", name="late", tags={"late"})) == {}
        assert await told.of(lambda: app.remove_tool("late")) == {}
        assert await told.of(lambda: app.use(lambda call, next: next(call))) == {}


@eras
async def test_what_changes_together_is_told_once_and_for_everyone_if_one_change_is(revision: Revision) -> None:
    async with ring(2, make=desk, guard=named_by(b"x-user")) as two, telling(two, revision) as told:
        app = two.servers[0]
        many = [lambda name=f"hers{number}": app.add_tool(lambda: "", name=name, visible=owned) for number in range(9)]
        found = await told.of(*many)
        # the other replica has no such tools, and its lists have not changed
        assert found == {"ada0": ["tools"]}
        several = [lambda: app.disable("tool", "hers"), lambda: app.disable("tool", "all"), *many_removed(app)]
        assert await told.of(*several) == each(2, WHO, "tools")


def many_removed(app: Server) -> list[Callable[[], object]]:
    return [lambda name=f"hers{number}": app.remove_tool(name) for number in range(9)]  # type: ignore[misc]


@eras
async def test_what_another_replica_removed_before_is_told_to_those_who_saw_it(revision: Revision) -> None:
    async with ring(2, make=desk, guard=named_by(b"x-user")) as two, telling(two, revision) as told:
        for at in (1, 0):
            removing = partial(two.servers[at].remove_tool, "hers")
            assert await told.of(removing, at=at) == each(2, ["ada"], "tools")


async def test_a_session_that_moves_is_told_what_it_missed_if_it_may_see_it() -> None:
    """No replica held the session when the change came."""
    async with ring(2, make=desk, guard=named_by(b"x-user")) as two:
        begun = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        sessions = {}
        for who in ("bob", "ada"):
            first = await two.ask(body("initialize", begun, 0), {"X-User": who})
            sessions[who] = {"Mcp-Session-Id": first.headers["mcp-session-id"], "X-User": who}
            noted = await two.ask(body("notifications/initialized", id=None), sessions[who])
            assert noted.status == 202
        for server in two.servers:
            for peer in tuple(behind(server).host.peers):
                held: Any = peer._channel
                held.end(ConnectionError("not used here"))
        two.servers[1].disable("tool", "hers")
        await settled()
        two.servers[1].disable("prompt", "hers")
        two.servers[1].add_prompt(lambda: "all", name="all")
        await settled()
        found = {}
        for who, headers in sessions.items():
            async with two.places[0].stream(headers=headers, method="GET") as home:
                told: list[str] = []
                while not told or told[-1] != "notifications/prompts/list_changed":
                    told.append((await home.message())["method"])
                found[who] = told
        assert found["bob"] == ["notifications/prompts/list_changed"]
        assert found["ada"] == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]


async def test_lists_that_depend_on_the_caller_are_private() -> None:
    server = Server("desk", cache_scope="public", ttl=60)
    server.add_tool(lambda: "1", name="sum", version="1")
    scopes = []
    for step in (
        lambda: None,
        lambda: server.add_tool(lambda: "2", name="sum", version="2", visible=owned),
        lambda: server.remove_tool("sum", version="2"),
    ):
        step()
        for subject in WHO[:2]:
            caller = Caller(identity=Identity(subject=subject))
            page = bytes(behind(server).catalog.page("tools", R2026_07, caller))
            scopes.append(page.partition(b'"cacheScope":"')[2].partition(b'"')[0].decode())
    assert scopes == ["public"] * 2 + ["private"] * 2 + ["public"] * 2


def test_an_event_names_each_who_may_see_once_and_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "NAMED", 2)
    several = Changes()
    for number in range(5):
        several.add("tools", "", ("tool", str(number), ""), lambda caller, number=number: number == 0)  # type: ignore[misc]
        several.add("tools", "", ("tool", str(number), ""), owned)
        several.add("prompts", "", ("prompt", str(number), ""), owned)
    several.add("prompts", "", ("prompt", "all", ""), None)
    several.add("prompts", "", ("prompt", "late", ""), owned)
    several.add("updated", "desk://hers")
    (tools, those), (prompts, everyone), (updated, _) = several.events()
    assert isinstance(tools, ChangeEvent)
    assert len(tools.entries) == len(those) == 6
    assert [len(part.entries) for part in tools.parts()] == [2, 2, 2]
    assert [entry for part in tools.parts() for entry in part.entries] == list(tools.entries)
    assert (prompts, everyone) == (ChangeEvent("prompts"), ())
    assert list(prompts.parts()) == [prompts]
    assert updated == ChangeEvent("updated", "desk://hers")


def test_what_was_removed_long_ago_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.server.registry.GONE", 2)
    server = Server("desk")
    ada = Caller(identity=Identity(subject="ada"))
    for name in "abc":
        server.add_tool(lambda: "", name=name, visible=owned)
        server.remove_tool(name)
    shown = [behind(server).catalog.shows([("tool", name, "")], ada) for name in "abc"]
    assert shown == [False, True, True]
    assert not behind(server).catalog.shows([("tool", "c", ""), ("of a later release", "c", "")], Caller())
