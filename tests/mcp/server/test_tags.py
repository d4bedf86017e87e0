"""Tags: what has a disabled one is in no list and unknown in calls, also in a server around its own."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Service
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Server, tool
from dragoman.mcp.protocol.revisions import REVISIONS, Revision

from ..calling import calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
LISTS = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}


def bank() -> Server:
    server = Server("bank")
    for tags, name in ((set[str](), "open"), ({"admin"}, "erase"), ({"admin", "slow"}, "audit")):
        server.add_tool(lambda name=name: name, name=name, tags=tags)
        server.add_prompt(lambda: "text", name=name, tags=tags)
        server.add_resource(lambda: "text", f"bank://{name}", tags=tags)
        server.add_resource(lambda key: key, f"bank://{name}/{{key}}", tags=tags)
    return server


async def seen(server: Server, revision: Revision) -> dict[str, list[str]]:
    """What each list shows, by the last word of its names."""
    found = {}
    async with calling(server, revision) as calls:
        for member, key in LISTS.items():
            method = "resources/templates/list" if member == "resourceTemplates" else f"{member}/list"
            names = [one[key] for one in (await calls.result(method))[member]]
            found[member] = [word for name in names for word in ("open", "erase", "audit", "late") if word in name]
    return found


@every
@pytest.mark.parametrize("around", [False, True])
async def test_what_has_a_disabled_tag_is_there_no_more_of_any_kind(revision: Revision, around: bool) -> None:
    inner, outer = bank(), Server("outer")
    outer.include(inner, namespace="x")
    asked = outer if around else inner
    everything = ["open", "erase", "audit"]
    inner.disable(tag="admin")
    assert await seen(asked, revision) == {key: ["open"] for key in LISTS}
    inner.disable(tag="slow")
    inner.enable(tag="admin")
    assert await seen(asked, revision) == {key: ["open", "erase"] for key in LISTS}
    inner.enable(tag="slow")
    assert await seen(asked, revision) == dict.fromkeys(LISTS, everything)


async def test_a_disabled_tool_is_as_unknown_as_one_that_never_was() -> None:
    def failure(server: Server) -> Any:
        return server.call_tool("erase", {})

    with_it, without = bank(), bank()
    with_it.disable(tag="admin")
    without.remove_tool("erase")
    without.remove_prompt("erase")  # which else is proposed in its place
    said = []
    for server in (with_it, without):
        with pytest.raises(Exception, match="Unknown tool: erase") as raised:
            await failure(server)
        said.append((type(raised.value), str(raised.value)))
    assert said[0] == said[1]


@every
async def test_what_comes_later_with_a_disabled_tag_is_not_there(revision: Revision) -> None:
    inner, outer = bank(), Server("outer")
    outer.disable(tag="admin")
    outer.include(inner)
    inner.add_tool(lambda: "", name="late", tags={"admin"})
    inner.disable("tool", "erase")
    inner.enable("tool", "erase")  # there, but not around it
    assert (await seen(outer, revision))["tools"] == ["open"]
    assert (await seen(inner, revision))["tools"] == ["open", "erase", "audit", "late"]
    outer.enable("tool", "erase")
    assert (await seen(outer, revision))["tools"] == ["open", "erase"]


@pytest.mark.parametrize(
    ("given", "tag"),
    [((), None), (("tool",), "admin"), (("tool", "erase"), "admin"), ((), 5), ((5,), None), ((None, "erase"), None)],
    ids=repr,
)
def test_a_switch_names_an_entry_or_a_tag(given: Any, tag: Any) -> None:
    server = bank()
    for call in ("enable", "disable"):
        with pytest.raises(LocalError, match=rf'{call}\("tool", "erase"\), or a tag, {call}\(tag="admin"\)'):
            getattr(server, call)(*given, tag=tag)


def test_tags_are_several_words() -> None:
    with pytest.raises(LocalError, match="tags"):
        Server("bank").add_tool(lambda: "", name="erase", tags="admin")


@every
@pytest.mark.parametrize("around", [False, True])
async def test_a_kind_is_disabled_with_what_comes_later_of_it(revision: Revision, around: bool) -> None:
    inner, outer = bank(), Server("outer")
    outer.include(inner, namespace="x")
    asked = outer if around else inner
    everything = ["open", "erase", "audit"]
    inner.disable("prompt")
    inner.disable("resource")
    inner.add_prompt(lambda: "text", name="late")
    assert await seen(asked, revision) == {
        "tools": everything,
        "prompts": [],
        "resources": [],
        "resourceTemplates": [],
    }
    inner.disable(tag="slow")
    inner.enable("prompt")
    assert (await seen(asked, revision))["prompts"] == ["open", "erase", "late"]


@every
async def test_what_a_server_disabled_no_included_server_enables(revision: Revision) -> None:
    inner, outer = bank(), Server("outer")
    outer.include(inner)
    outer.disable("tool", "erase")
    inner.disable("tool", "erase")
    inner.enable("tool", "erase")
    assert (await seen(outer, revision))["tools"] == ["open", "audit"]
    inner.disable("tool", "audit")
    outer.enable("tool", "audit")  # nor a server what an included server disabled
    assert (await seen(outer, revision))["tools"] == ["open"]
    inner.enable("tool", "audit")
    outer.enable("tool", "erase")
    assert (await seen(outer, revision))["tools"] == ["open", "erase", "audit"]


@every
async def test_what_is_included_gets_tags(revision: Revision) -> None:
    class Clerk:
        @tool(tags={"slow"})
        def audit(self) -> str:
            return ""

    service, outer = Service("counter"), Server("outer")
    service.method("open", tags={"admin"})(lambda: "")
    service.method("erase")(lambda: "")
    outer.include(service, tags={"late"})
    outer.include(Clerk(), tags={"late"})
    service.method("late", tags={"admin"})(lambda: "")
    everything = ["open", "erase", "audit", "late"]
    assert (await seen(outer, revision))["tools"] == everything
    outer.disable(tag="late")
    assert (await seen(outer, revision))["tools"] == []
    outer.enable(tag="late")
    outer.disable(tag="admin")
    assert (await seen(outer, revision))["tools"] == ["erase", "audit"]
    outer.enable(tag="admin")
    service.disable(tag="admin")
    outer.disable(tag="slow")
    assert (await seen(outer, revision))["tools"] == ["erase"]
    around = Server("around")
    around.include(outer, tags=["all"])
    assert (await seen(around, revision))["tools"] == ["erase"]
    service.enable(tag="admin")
    assert (await seen(around, revision))["tools"] == ["open", "erase", "late"]
    around.disable(tag="all")
    assert (await seen(around, revision))["tools"] == []


def test_the_tags_of_what_is_included_are_several_words() -> None:
    for app in (Server("outer"), Service("outer")):
        with pytest.raises(LocalError, match="tags"):
            app.include(Service("inner"), tags="admin")


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(LocalError, match=r"there is no kind 'prompts'.*prompt"):
        bank().disable("prompts")  # type: ignore[arg-type]
