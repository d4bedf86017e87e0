"""Channels, sessions, subscriptions and streams: each once, with what waits for them, and how one is ended."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dragoman import RpcError, Service, connect
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.revisions import REVISIONS

from ..engines.wires import until
from .ends import with_console


def api() -> Service:
    made = Service("s")

    @made.method
    async def wait() -> None:
        await asyncio.sleep(600)

    return made


async def test_a_channel_is_listed_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    async with (
        with_console(api()) as ends,
        connect(ends.serving.urls[0]) as peer,
        connect(ends.serving.urls[0]) as other,
    ):
        call = asyncio.ensure_future(peer.call("wait"))
        await until(lambda: len(ends.recorder.board) == 1)
        found = (await ends.get("/api/connections"))["connections"]
        assert [(one["kind"], one["service"], one["wire"]) for one in found] == [("channel", "s", "tcp")] * 2
        assert all(0 <= one["age"] < 300 for one in found)
        (busy,) = [one for one in found if one.get("in_flight")]
        assert busy["in_flight"] == 1
        assert await ends.post("/api/end", busy["id"], "4711") == {
            busy["id"]: "",
            "4711": "no connection 4711 is open that can be ended by itself",
        }
        with pytest.raises(RpcError, match="the peer closed before the call was done"):
            await call
        assert not other.closed
        assert len((await ends.get("/api/connections"))["connections"]) == 1
        (said,) = [one.getMessage() for one in caplog.records if one.name == "dragoman.audit"]
        assert said.startswith(f"ended id={busy['id']} kind=channel service=s wire=tcp remote=127.0.0.1:")
        assert "by=the console's secret at" in said


@pytest.mark.parametrize("revision", [one for one in REVISIONS if REVISIONS[one].stateful])
async def test_a_session_is_listed_once(revision: str) -> None:
    app = Server("app")
    async with (
        with_console(app, "http://127.0.0.1:0/mcp") as ends,
        Client(ends.serving.urls[0], revision=revision, name="desk", version="7") as client,
    ):
        await client.list_tools()

        async def sessions() -> list[str]:
            found = (await ends.get("/api/connections"))["connections"]
            for one in found:
                if one["kind"] == "session":
                    assert (one["client"], one["about"]) == ("desk 7", revision)
                    assert 0 <= one["age"] < 300
            return [one["id"] for one in found if one["kind"] != "stream"]

        (id,) = await sessions()
        assert await ends.post("/api/end", id) == {id: ""}
        while id in await sessions():
            pass


async def test_a_subscription_is_listed_and_ended() -> None:
    app = Server("app")

    @app.tool
    async def one() -> str:
        return ""

    async with (
        with_console(app, "http://127.0.0.1:0/mcp") as ends,
        Client(ends.serving.urls[0], revision="2026-07-28") as client,
        client.subscribe(tools=True) as changes,
    ):
        found = (await ends.get("/api/connections"))["connections"]
        (subscription,) = [one for one in found if one["kind"] == "subscription"]
        assert (subscription["service"], subscription["about"]) == ("app", "toolsListChanged")
        assert await ends.post("/api/end", subscription["id"]) == {subscription["id"]: ""}
        assert [one async for one in changes] == []  # the server has ended it


async def test_catalogs_and_machines() -> None:
    app, plain = Server("app"), api()

    @app.tool
    async def look(city: str) -> str:
        "See a city."
        return city

    async with with_console({"/mcp": app, "/": plain}, "http://127.0.0.1:0") as ends:
        offered = await ends.get("/api/services")
        assert offered["may"] == ["console:view", "console:try", "console:stop"]
        assert offered["services"] == [
            {"path": "/mcp", "name": "app", "kind": "mcp"},
            {"path": "/", "name": plain.name, "kind": "jsonrpc"},
        ]
        found = await ends.get("/api/catalog")
        by_kind = {one["kind"]: one for one in found["served"]}
        assert [one["name"] for one in by_kind["service"]["openrpc"]["methods"]] == ["wait"]
        (tool,) = [one["listed"] for one in by_kind["mcp"]["entries"] if one["kind"] == "tool"]
        assert (tool["name"], tool["description"]) == ("look", "See a city.")
        (machine,) = (await ends.get("/api/machine"))["processes"]
        assert machine["pid"] > 0
        assert machine["process"]["open_fds"] > 3
        assert machine["tasks"] >= 1
