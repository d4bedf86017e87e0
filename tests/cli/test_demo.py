"""`dragoman demo` runs by itself, on every wire."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from dragoman import connect
from dragoman.cli.rounds import Exchanged, Round, mistakes, play, rounds

from .conftest import Command


def test_demo_as_json(command: Command) -> None:
    done = command.run("demo", "--json")
    assert (done.status, done.err) == (0, "")
    found = done.json
    assert found["fine"] is True
    assert [row["wire"] for row in found["rounds"]] == [row.wire for row in rounds(Path("/"))]
    for row in found["rounds"]:
        if row["wire"] == "tls" and shutil.which("openssl") is None:
            assert row["state"] == "skipped"
            continue
        assert row["state"] == "fine", row
        assert row["median_ms"] > 0
        assert (row["called_back"] is None) is (row["wire"] in ("udp", "http"))
    assert [call["fine"] for call in found["wrong_calls"]] == [True] * 4


def test_demo_as_text(command: Command) -> None:
    done = command.run("demo")
    assert (done.status, done.err) == (0, "")
    assert "\x1b" not in done.out
    for row in rounds(Path("/")):
        assert row.wire in done.out
    assert '→ {"jsonrpc": "2.0", "method": "substract"' in done.out
    assert '"code":-32602' in done.out
    assert 'then "done"' in done.out


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
    async with connect([sys.executable, "-m", "dragoman.cli.calculator"]) as peer:
        assert await peer.call("slow", [0.01, 2], on_progress=told.append) == "done"
        assert await asyncio.wait_for(peer.call("get_data"), 10) == ["hello", 5]
    assert [value["percentage"] for value in told] == [0, 50]
