"""The members that extensions add to the descriptions of entries in lists (`ServerExtension.listed`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import Raw

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.extension import Extension
from dragoman.mcp.protocol.revisions import R2024_11, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.server.extending.extension import ServerExtension, ServerExtensions
from dragoman.mcp.server.listing import DEPTH, Entry
from tests.behind import behind

from ..calling import calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
Adds = Callable[[Entry, Revision], Mapping[str, Any]]


def adding(name: str, adds: Adds) -> ServerExtension:
    """An extension that adds members."""

    class Adding(ServerExtension):
        declares = Extension(name=f"com.example/{name}")

        def listed(self, entry: Entry, revision: Revision) -> Mapping[str, Any]:
            return adds(entry, revision)

    return Adding()


class Silent(ServerExtension):
    declares = Extension(name="com.example/silent")


@every
async def test_members_are_added_to_every_kind_of_entry(revision: Revision) -> None:
    called: list[tuple[str, str]] = []

    def adds(entry: Entry, where: Revision) -> Mapping[str, Any]:
        called.append((entry.key, where.date))
        if where is R2025_11 and entry.kind == "tool":
            return {"execution": {"taskSupport": "optional"}}
        return {"x-kind": entry.kind, "_meta": {"com.example/k": [entry.known.name]}} if where is not R2024_11 else {}

    server = Server("x", extensions=[adding("a", adds), Silent(), adding("b", lambda *_: {"_meta": {"b": 1}, "y": 2})])
    server.add_tool(lambda: "", name="t", meta={"own": {"n": 1}})
    server.add_tool(lambda: "", name="t2", version="2")
    server.add_resource(lambda: "", "a://b", name="r")
    server.add_resource(lambda c: "", "a://{c}", name="m")
    server.add_prompt(lambda: "", name="p")
    behind(server).catalog.add_foreign("tool", Raw(b'{"name":"far","inputSchema":{"type":"object"},"x":1.0}'), print)
    keys = ["t", "t2", "a://b", "a://{c}", "p", "far"]
    assert sorted(called) == sorted((key, one.date) for key in keys for one in REVISIONS.values())
    called.clear()
    async with calling(server, revision) as calls:
        found: list[dict[str, Any]] = []
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            for _ in range(2):
                page = await calls.result(method)
            found += next(many for many in page.values() if isinstance(many, list))
    server.disable("tool", "t")
    server.enable("tool", "t")
    assert called == [], "each was asked once, when it was registered"
    assert [one["name"] for one in found] == ["t", "t2", "far", "r", "m", "p"]
    kinds = ["tool"] * 3 + ["resource", "template", "prompt"]
    for one, kind in zip(found, kinds, strict=True):
        assert one["y"] == 2
        assert one["_meta"]["b"] == 1
        if revision is R2024_11:
            assert "x-kind" not in one
        elif revision is R2025_11 and kind == "tool":
            assert one["execution"] == {"taskSupport": "optional"}
        else:
            assert (one["x-kind"], one["_meta"]["com.example/k"]) == (kind, [one["name"]])
    modern = revision.date >= "2025-06-18"
    assert found[0]["_meta"].get("own") == ({"n": 1} if modern else None)
    assert found[1]["_meta"].get("fastmcp") == ({"version": "2", "versions": ["2"]} if modern else None)
    assert found[2]["x"] == 1


async def test_the_rest_of_a_description_stays_as_it_is() -> None:
    """Also the order of its members, and what a foreign one has."""
    server = Server("x", extensions=[adding("a", lambda *_: {"z": 1, "_meta": {"b": {"c": 1.0}}})])
    text = b'{"x":1.0,"name":"t","_meta":{"k":1e2},"inputSchema":{"type":"object","default":{"a":1.00}}}'
    behind(server).catalog.add_foreign("tool", Raw(text), print)
    async with Client(server) as client:
        (listed,) = await client.list_raw("tools/list")
    assert bytes(listed) == (
        b'{"x":1.0,"name":"t","_meta":{"k":1e2,"b":{"c":1.0}},"inputSchema":{"type":"object","default":{"a":1.00}},"z":1}'
    )


async def test_versions_and_namespaces_ask_once_too() -> None:
    called: list[tuple[str, str]] = []

    def adds(entry: Entry, where: Revision) -> Mapping[str, Any]:
        if where is R2026_07:
            called.append((entry.key, entry.version))
        return {"x-version": entry.version}

    inner, server = Server("inner"), Server("x", extensions=[adding("a", adds)])
    server.include(inner, namespace="n")
    for version in ("1", "2", "3"):
        server.add_tool(lambda: "", name="t", version=version)
    inner.add_tool(lambda: "", name="t")
    async with Client(server) as client:
        await client.list_tools()
        server.remove_tool("t", version="3")
        tools = {one["name"]: one for one in map(json.loads, map(bytes, await client.list_raw("tools/list")))}
    assert called == [("t", "1"), ("t", "2"), ("t", "3"), ("n_t", "")]
    assert (tools["t"]["x-version"], tools["n_t"]["x-version"]) == ("2", "")
    assert tools["t"]["_meta"]["fastmcp"]["versions"] == ["2", "1"]


def deep(levels: int) -> Any:
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("adds", "why"),
    [
        (lambda entry, revision: {"name": "other"}, "has 'name' of the entry already: the extension com.example/a"),
        (lambda entry, revision: {"_meta": {"own": 1}}, "`_meta` has 'own' of the entry already"),
        (lambda entry, revision: {"_meta": {"b": 1}}, "`_meta` has 'b' of com.example/a already.*com.example/b"),
        (lambda entry, revision: {"y": 1}, "has 'y' of com.example/a already.*com.example/b"),
        (lambda entry, revision: {"title": "t"} if revision.date > "2025-06" else {"inputSchema": 1}, "inputSchema"),
        (lambda entry, revision: {"execution": 7} if revision is R2025_11 else {}, "it cannot be listed so"),
        (lambda entry, revision: {"x": object}, "cannot be put into JSON"),
        (lambda entry, revision: {"x": deep(DEPTH)}, "nested more than"),
        (lambda entry, revision: None, "returns the members to add"),
        (lambda entry, revision: {"_meta": 7}, "returns the members to add"),
    ],
)
def test_members_that_cannot_be_added(adds: Adds, why: str) -> None:
    both = adding("b", lambda *_: {"y": 2, "_meta": {"b": 1}})
    server = Server("x", extensions=[adding("a", adds), both])
    with pytest.raises(LocalError, match=why):
        server.add_tool(lambda: "", name="t", meta={"own": 1})
    assert not behind(server).catalog.has("tools")


def test_extensions_that_add_nothing_are_not_asked() -> None:
    assert ServerExtensions([Silent()]).listing == ()
    server = Server("x", extensions=[Silent()])
    server.add_tool(lambda: "", name="t")
    (entry,) = behind(server).catalog.entries("tools")
    assert entry.added == {}
