"""`dragoman demo` runs by itself, on every wire."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from dragoman import connect
from dragoman.cli.demo.brokers import BROKERS, broker_rounds, play_over
from dragoman.cli.demo.rounds import Exchanged, Round, mistakes, play, rounds
from tests.engines.brokers import Engine
from tests.ports import free_port

from .conftest import Command


def test_demo_as_json(command: Command) -> None:
    done = command.run("demo", "--json")
    assert (done.status, done.err) == (0, "")
    found = done.json
    assert found["fine"] is True
    assert [row["wire"] for row in found["rounds"]] == [row.wire for row in rounds(Path("/"))]
    for row in found["rounds"]:
        lacking = {"tls": shutil.which("openssl") is None, "unix socket": not hasattr(socket, "AF_UNIX")}
        if lacking.get(row["wire"]):
            assert row["state"] == "skipped"
            continue
        assert row["state"] == "fine", row
        assert row["median_ms"] > 0
        assert (row["called_back"] is None) is (row["wire"] in ("udp", "http"))
    assert [call["fine"] for call in found["wrong_calls"]] == [True] * 4
    assert [(era["fine"], len(era["messages"])) for era in found["mcp"]] == [(True, 5), (True, 2)]


def test_demo_as_text(command: Command) -> None:
    done = command.run("demo")
    assert (done.status, done.err) == (0, "")
    assert "\x1b" not in done.out
    for row in rounds(Path("/")):
        assert row.wire in done.out
    assert '→ {"jsonrpc": "2.0", "method": "substract"' in done.out
    assert '"code":-32602' in done.out
    assert 'then "done"' in done.out
    assert '"method":"initialize"' in done.out
    assert '"resultType":"complete"' in done.out
    assert done.out.rstrip().endswith("http://127.0.0.1:8000/docs")


async def test_a_wire_that_fails_says_so() -> None:
    row = Round(wire="tcp", url="tcp://127.0.0.1:0", method="sum", params=[1], expected=2.0, duplex=True)
    await play(row, Path("/"), lambda: None)
    assert (row.state, row.note) == ("failed", "sum answered 1.0, not 2.0")
    row = Round(wire="tcp", url="tcp://256.0.0.1:0", method="sum", params=[1], expected=1.0, duplex=True)
    await play(row, Path("/"), lambda: None)
    assert row.state == "failed"
    assert row.note


async def test_a_wire_this_machine_lacks_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    row = next(row for row in rounds(tmp_path) if row.wire == "tls")
    await play(row, tmp_path, lambda: None)
    assert (row.state, row.note) == ("skipped", "there is no openssl command to make a certificate with")


def test_a_wrong_call_must_get_its_error() -> None:
    assert not Exchanged(what="x", sent=b"", code=7, received=b'{"error":{"code":8}}').fine
    assert not Exchanged(what="x", sent=b"", code=7, received=b"").fine
    assert not Exchanged(what="x", sent=b"", code=7, received=b'{"result":1}').fine
    assert Exchanged(what="x", sent=b"", code=7, received=b'{"error":{"code":7}}').fine
    assert len({each.code for each in mistakes()}) == 4


async def test_the_calculator_as_a_child() -> None:
    told: list[dict[str, int]] = []
    async with connect([sys.executable, "-m", "dragoman.cli.demo.calculator"]) as peer:
        assert await peer.call("slow", [0.01, 2], on_progress=told.append) == "done"
        assert await asyncio.wait_for(peer.call("get_data"), 10) == ["hello", 5]
    assert [value["percentage"] for value in told] == [0, 50]


async def test_a_broker_is_started_and_ended(tmp_path: Path) -> None:
    for broker in BROKERS:
        if not broker.program:
            continue
        absent = msgspec.structs.replace(broker, port=free_port())
        row = next(row for row in broker_rounds() if row.wire == broker.name)
        await play_over(absent, row, tmp_path, lambda: None)
        if shutil.which(broker.program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            assert row.state == "skipped"
            continue
        assert (row.state, row.answer, row.note) == ("fine", 19, "")
        assert row.median is not None
        assert row.promise in ("at least once", "at most once")
        port = urlsplit(row.url).port
        assert port != absent.port
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_broker_that_runs_is_taken(tmp_path: Path, redis: Engine) -> None:
    broker = next(one for one in BROKERS if one.scheme == "redis")
    here = msgspec.structs.replace(broker, port=redis.address[1], program="")
    row = next(row for row in broker_rounds() if row.wire == broker.name)
    await play_over(here, row, tmp_path, lambda: None)
    assert (row.state, urlsplit(row.url).port) == ("fine", redis.address[1])


async def test_a_broker_that_is_missing_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    for broker, row in zip(BROKERS, broker_rounds(), strict=True):
        absent = msgspec.structs.replace(broker, port=free_port(), program="")
        await play_over(absent, row, tmp_path, lambda: None)
        assert row.state == "skipped"
        assert row.note == f"no broker answers at 127.0.0.1:{absent.port}; {broker.get}"


async def test_something_else_at_the_port_is_not_a_broker(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-NOAUTH Authentication required.\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.release()

    gone = asyncio.Semaphore(0)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for broker, row in zip(BROKERS, broker_rounds(), strict=True):
            await play_over(msgspec.structs.replace(broker, port=port, program=""), row, tmp_path, lambda: None)
            assert row.state == "skipped"
            await gone.acquire()


def test_demo_over_brokers(command: Command) -> None:
    done = command.run("demo", "--brokers", "--json")
    assert (done.status, done.err) == (0, "")
    rows = {row["wire"]: row for row in done.json["rounds"]}
    for broker in BROKERS:
        row = rows[broker.name]
        assert row["promise"] == broker.promise
        if row["state"] == "skipped":
            assert broker.get in row["note"]
            assert (row["answer"], row["median_ms"]) == (None, None)
        else:
            assert (row["state"], row["answer"], row["called_back"]) == ("fine", 19, None)
            assert isinstance(row["median_ms"], float)
