"""The public attributes of the classes that the documentation's namespaces export: what an editor completes and
`dir` shows is the API alone.

`public_attributes.txt` is the table of them; a name in it is a promise, and the reference describes it
(`test_docstrings`). `python -m tests.test_public_attributes` writes the table: read it before it is committed.

An attribute is in the table if the class has it, or assigns it to its instances. Of a `Struct`, whose fields are its
options, and of what is an exception, only what is added is listed.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import dragoman
from dragoman import Peer, Service, connect, mcp, serve
from dragoman.mcp import Client, Server

from .test_docstrings import attributes_of, ours
from .test_public_names import DOCUMENTED

TABLE = Path(__file__).with_name("public_attributes.txt")


def exported() -> dict[str, type]:
    """The exported classes of ours by the first name that the documentation has for them."""
    found: dict[type, str] = {}
    for module in DOCUMENTED:
        door = importlib.import_module(module)
        for name in door.__all__:
            value = getattr(door, name)
            if isinstance(value, type) and value.__module__.startswith("dragoman."):
                found.setdefault(value, f"{module}.{name}")
    return {name: kind for kind, name in found.items()}


def public(names: set[str]) -> set[str]:
    """Those of these names that are public."""
    return {name for name in names if not name.startswith("_")}


def shown(kind: type) -> set[str]:
    """The public attributes that a class adds to what it has from Python and msgspec."""
    inherited = {name for one in kind.__mro__ if not one.__module__.startswith("dragoman.") for name in dir(one)}
    fields = set(getattr(kind, "__struct_fields__", ()))
    found = {*dir(kind), *(name for one in ours(kind) for name in attributes_of(one))}
    return public(found - inherited - fields)


def table() -> dict[str, set[str]]:
    """What stands in the file."""
    lines = (line.partition(":") for line in TABLE.read_text("utf-8").splitlines())
    return {name: set(names.split()) for name, _, names in lines}


def test_the_attributes_of_exported_classes_are_those_of_the_table() -> None:
    assert {name: shown(kind) for name, kind in exported().items()} == table()


@pytest.mark.parametrize(
    ("name", "instance"),
    [
        ("dragoman.Service", Service("api")),
        ("dragoman.mcp.Server", Server("app")),
        ("dragoman.mcp.Client", Client("memory:app")),
    ],
)
def test_what_users_make_shows_the_same(name: str, instance: object) -> None:
    assert public(set(dir(instance))) == table()[name]


async def test_so_do_peers_on_both_ends_and_contexts() -> None:
    seen: dict[str, set[str]] = {}
    api, app = Service("api"), Server("app")

    @api.method
    async def look(ctx: dragoman.Context) -> None:
        seen["dragoman.Context"] = public(set(dir(ctx)))
        seen["far"] = public(set(dir(ctx.peer)))
        assert isinstance(ctx.peer, Peer)

    @app.tool
    async def look_too(ctx: mcp.Context) -> None:
        """Look."""
        seen["dragoman.mcp.Context"] = public(set(dir(ctx)))

    async with serve(api, urls="memory:attributes"), connect("memory:attributes") as peer:
        assert isinstance(peer, Peer)
        await peer.call("look")
        seen["dragoman.Peer"] = public(set(dir(peer)))
    await app.call_tool("look_too")
    expected = table()
    assert seen.pop("far") == expected["dragoman.Peer"]
    assert seen == {name: expected[name] for name in ("dragoman.Context", "dragoman.Peer", "dragoman.mcp.Context")}


def main() -> None:
    """Write the table."""
    lines = [f"{name}: {' '.join(sorted(shown(kind)))}".rstrip() for name, kind in sorted(exported().items())]
    TABLE.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
