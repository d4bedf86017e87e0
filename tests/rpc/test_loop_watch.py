"""A function that holds up the loop of a server is named in the log, once."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import Service, connect, serve
from dragoman.mcp import Client, Server
from dragoman.rpc import loop_watch

from .test_peer import until

LONG = 20.0
"""Seconds after which a test has failed."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(loop_watch, "LOOK", 0.02)
    monkeypatch.setattr(loop_watch, "PATIENCE", 0.1)
    caplog.set_level(logging.WARNING, "dragoman")


@pytest.fixture
def hold(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    """Holds up its thread until a warning came; returns whether one did."""

    def hold() -> bool:
        before, until = len(caplog.records), time.monotonic() + LONG
        while len(caplog.records) == before and time.monotonic() < until:
            time.sleep(0.01)
        return len(caplog.records) > before

    return hold


async def test_functions_of_a_service_are_named(hold: Callable[[], bool], caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method
    async def report() -> bool:
        return hold()

    @api.method(inline=True)
    def total() -> bool:
        return hold()

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0], timeout=LONG) as peer:
        assert await peer.call("report")
        assert await peer.call("total")
    for record, name in zip(caplog.records, ("report", "total"), strict=True):
        assert f".{name} ({__file__}:" in record.getMessage()
        assert "has held up the event loop for more than 0.1 s, and with it every other call" in record.getMessage()
        assert "await what waits" in record.getMessage()
        assert "`def` and without inline=True" in record.getMessage()


async def test_a_tool_is_named(hold: Callable[[], bool], caplog: pytest.LogCaptureFixture) -> None:
    app = Server("app")

    @app.tool
    async def report() -> bool:
        return hold()

    async with serve(app, urls="http://127.0.0.1:0") as serving, Client(serving.urls[0], timeout=LONG) as client:
        assert (await client.call_tool("report")).structured_content is True
    assert ".report (" in caplog.text


async def test_a_function_is_named_once_and_a_thread_of_its_own_holds_up_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[Any]()
    look_at = loop_watch._look_at

    def counted(one: Any, stood: bool) -> None:
        look_at(one, stood)
        looks.append(one)

    monkeypatch.setattr(loop_watch, "_look_at", counted)
    api = Service("api")

    def wait() -> None:
        enough, until = len(looks) + 20, time.monotonic() + LONG
        while len(looks) < enough and time.monotonic() < until:
            time.sleep(0.01)

    @api.method
    async def again() -> None:
        wait()

    @api.method
    def beside() -> None:
        wait()

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0], timeout=LONG) as peer:
        await peer.call("beside")
        await peer.call("again")
        await peer.call("again")
    assert ".beside (" not in caplog.text
    assert caplog.text.count(".again (") == 1


async def test_the_thread_ends_with_the_last_server() -> None:
    def runs() -> bool:
        return any(thread.name == "dragoman-loop-watch" for thread in threading.enumerate())

    async with serve(Service("a"), urls="tcp://127.0.0.1:0"), serve(Service("b"), urls="tcp://127.0.0.1:0"):
        assert runs()
    await until(lambda: not runs())
    async with serve(Service("a"), urls="tcp://127.0.0.1:0"):
        assert runs()


@pytest.mark.parametrize("since", [None, 0.0], ids=["idle", "owing a sign"])
def test_a_loop_that_is_closed_is_watched_no_more(since: float | None, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    one = loop_watch._Watched(loop, threading.get_ident(), since=since)
    loop_watch._watched.add(one)
    loop_watch._look_at(one, stood=False)
    assert one not in loop_watch._watched
    assert caplog.text == ""


def test_what_a_thread_does_between_two_runs_of_its_loop_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    try:
        one = loop_watch._Watched(loop, threading.get_ident(), since=0.0)
        loop_watch._look_at(one, stood=False)
        assert caplog.text == ""
        assert one.since is None
    finally:
        loop.close()


async def test_a_sign_that_comes_during_the_warning_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that has ended its function owes nothing, or later functions would be blamed for it."""
    one = loop_watch._Watched(asyncio.get_running_loop(), threading.get_ident(), since=time.monotonic() - LONG)
    monkeypatch.setattr(loop_watch, "_warn", lambda held_up: held_up.sign())
    loop_watch._look_at(one, stood=False)
    assert one.since is None


async def test_the_function_is_the_first_that_the_loop_called() -> None:
    assert loop_watch.blocking_function(None) is None
    found = loop_watch.blocking_function(sys._getframe())
    assert found is not None
    assert found.f_code.co_name == "test_the_function_is_the_first_that_the_loop_called"


async def test_an_import_of_dragoman_is_nobodys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is slow to import is named only where a function of users' imports it."""
    (tmp_path / "slow_library.py").write_text(
        "import sys\nfrom dragoman.rpc import loop_watch\n"
        "def look():\n    return loop_watch.blocking_function(sys._getframe(1))\nfound = look()\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    loop = asyncio.get_running_loop()
    found: list[Any] = []
    ours: dict[str, Any] = {"__name__": "dragoman.engines.slow", "found": found}
    exec("def begin():\n    import slow_library\n    found.append(slow_library.found)\n", ours)

    def handler() -> None:
        sys.modules.pop("slow_library")
        found.append(importlib.import_module("slow_library").found)

    done = asyncio.Event()
    for each in (ours["begin"], handler, done.set):
        loop.call_soon(each)
    await done.wait()
    assert found[0] is None
    assert found[1].f_code.co_name == "handler"
