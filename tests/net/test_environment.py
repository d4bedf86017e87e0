"""What a child process gets of our environment, from every way to start it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman import ChannelError, RpcError, connect, sync
from dragoman.mcp import Client
from dragoman.net.environment import child_environment

HOME = "USERPROFILE" if sys.platform == "win32" else "HOME"
OURS = {
    "PATH": "/bin",
    HOME: "/home/me",
    "LANG": "C.UTF-8",
    "AWS_SECRET_ACCESS_KEY": "key",
    "DRAGOMAN_SECRET": "seal",
    "DRAGOMAN_BEARER": "token",
}
SHORT = {"PATH": "/bin", HOME: "/home/me", "LANG": "C.UTF-8"}
WIDE = SHORT | {"AWS_SECRET_ACCESS_KEY": "key"}


@pytest.mark.parametrize(
    ("ours", "given", "inherit", "expected"),
    [
        (OURS, None, False, SHORT),
        (OURS, {}, False, SHORT),
        (OURS, {"TOKEN": "t"}, False, SHORT | {"TOKEN": "t"}),
        (OURS, {"PATH": "/opt"}, False, SHORT | {"PATH": "/opt"}),
        (OURS, {"DRAGOMAN_SECRET": "its own"}, False, SHORT | {"DRAGOMAN_SECRET": "its own"}),
        (OURS, None, True, WIDE),
        (
            OURS,
            {HOME: "/tmp", "DRAGOMAN_BEARER": "its own"},
            True,
            WIDE | {HOME: "/tmp", "DRAGOMAN_BEARER": "its own"},
        ),
        (OURS | {"SHELL": "() { :; }"}, None, False, SHORT),
        (OURS | {"path": "/lower"}, None, False, SHORT),
        ({}, None, False, {}),
    ],
)
def test_what_is_passed(
    ours: Mapping[str, str], given: Mapping[str, str] | None, inherit: bool, expected: Mapping[str, str]
) -> None:
    assert child_environment(given, inherit, ours) == expected


PROGRAM = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
FAILURES = (ChannelError, RpcError)


async def by_connect(command: list[str], options: Mapping[str, Any]) -> None:
    async with connect(command, timeout=20, **options) as peer:
        await peer.call("anything")


async def by_client(command: list[str], options: Mapping[str, Any]) -> None:
    async with Client(command, timeout=20, **options):
        pass


def blocking(command: list[str], options: Mapping[str, Any]) -> None:
    with sync.connect(command, timeout=20, **options) as peer:
        peer.call("anything")


def words_of(options: Mapping[str, Any]) -> list[str]:
    """The options as the command takes them."""
    given = [word for name, value in options.get("env", {}).items() for word in ("--env", f"{name}={value}")]
    return given + (["--env-inherit"] if options.get("env_inherit") else [])


def line_of(command: list[str]) -> str:
    """The command as one text, in the manner of the system."""
    return subprocess.list2cmdline(command) if sys.platform == "win32" else shlex.join(command)


def dragoman(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "dragoman", *words, "--timeout", "20"], capture_output=True, check=False)


def by_call(command: list[str], options: Mapping[str, Any]) -> None:
    dragoman(["call", line_of(command), "anything", *words_of(options)])


def by_tools(command: list[str], options: Mapping[str, Any]) -> None:
    dragoman(["tools", *words_of(options), line_of(command)])


def by_host(command: list[str], options: Mapping[str, Any]) -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"it": {"command": command[0], "args": command[1:]}}}))
    dragoman(["tools", "--config", "it", *words_of(options)])


def by_doctor(command: list[str], options: Mapping[str, Any]) -> None:
    dragoman(["doctor", line_of(command), *words_of(options)])


@pytest.mark.parametrize("way", [by_connect, by_client, blocking, by_call, by_tools, by_host, by_doctor])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SHORT),
        ({"env": {"AWS_SECRET_ACCESS_KEY": "for it"}}, SHORT | {"AWS_SECRET_ACCESS_KEY": "for it"}),
        ({"env_inherit": True}, WIDE),
    ],
)
async def test_whoever_starts_it(
    way: Callable[..., Any],
    options: Mapping[str, Any],
    expected: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)
    for name, value in OURS.items():
        monkeypatch.setenv(name, value)
    heard = tmp_path / "heard.json"
    command = [sys.executable, "-c", PROGRAM, str(heard)]
    with contextlib.suppress(*FAILURES):
        ways = way(command, options)
        if ways is not None:
            await ways
    found = json.loads(heard.read_text())
    known = set(OURS)
    assert {name: value for name, value in found.items() if name in known} == expected
