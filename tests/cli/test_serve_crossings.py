"""Each option of `serve`, from the command line, the file of `--config` and the environment, through each way in which
the command starts itself again, and through SIGHUP.

The processes are run in this one, one after another: what starts a process is replaced by what notes it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import psutil
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as SigningKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dragoman import connect
from dragoman.cli import app as command_line
from dragoman.cli.options import Output, WireOptions
from dragoman.cli.serving import reload, rereading, supervise
from dragoman.cli.serving import serve as serving
from dragoman.cli.serving.rereading import Rereading, Settings
from dragoman.cli.serving.settings import TABLE, ServeOptions

from .conftest import Command
from .test_serve import until

VALUES: dict[str, Any] = {
    "target": "calculator:api",
    "urls": ["tcp://127.0.0.1:9000", "http://127.0.0.1:8000"],
    "reload": True,
    "workers": 2,
    "bus": "redis://127.0.0.1",
    "store": "memory:",
    "tasks": "memory:",
    "drain": 5.0,
    "debug": True,
    "tls-cert": "own.pem",
    "tls-key": "own.key",
    "host-allowed": ["a.example", "b.example"],
    "origin-allowed": ["https://a.example"],
    "cors": ["https://a.example", "https://b.example"],
    "trusted-proxies": ["10.0.0.0/8", "192.0.2.1"],
    "auth-issuer": ["https://login.example"],
    "auth-resource": "https://mcp.example/mcp",
    "auth-public-key": "issuer.pem",
    "auth-introspection": "https://login.example/introspect",
    "auth-client-id": "me",
    "auth-client-secret-file": "secret",
    "log-level": "error",
    "log-format": "json",
    "metrics": ":9090",
    "admin": ":9091",
    "otlp": "http://127.0.0.1:4318",
    "traces": "http://127.0.0.1:4319",
    "console": ":9092",
    "console-messages": True,
    "docs": True,
    "quiet": True,
    "no-uvloop": True,
    "framing": "content-length",
    "trace": "traffic.jsonl",
    "limit": ["calls=7", "batch_length=8"],
    "lenient": True,
    "json": True,
    "output": "ndjson",
    "color": "never",
    "verbose": True,
}
"""A value of each option that is not its default."""

APART = ("otlp", "traces")
"""Options of which one may be said, not both."""

KEY = SigningKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

Source = Literal["flag", "flag=", "file", "environment"]
Way = Literal["plain", "workers", "reload", "workers and reload"]
WAYS: dict[Way, dict[str, Any]] = {
    "plain": {},
    "workers": {"workers": 3},
    "reload": {"reload": True},
    "workers and reload": {"workers": 3, "reload": True},
}


def test_every_option_has_a_value_here() -> None:
    assert set(VALUES) == set(TABLE.types)


def _given(source: Source, options: Mapping[str, Any], folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that say so."""
    options = dict(options)
    if source == "file":
        text = "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in options.items())
        (folder / "some.toml").write_text(text)
        return ["--config", "some.toml"], {}
    if source == "environment":
        variables = {
            f"DRAGOMAN_SERVE_{name.upper().replace('-', '_')}": " ".join(value)
            if isinstance(value, list)
            else str(value)
            for name, value in options.items()
        }
        return [], variables
    words = [options.pop("target"), *options.pop("urls", [])]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            if source == "flag=":
                words.append(f"--{name}={str(one).lower() if one is True else one}")
            else:
                words += [f"--{name}"] if one is True else [f"--{name}", str(one)]
    return words, {}


class _Started(BaseException):
    """A process would have been started, instead of which this one ends."""


class Processes:
    """Runs `dragoman serve` here, and what it starts after it. `served`: what the last one would serve."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served: Settings | None = None
        self.number = 0
        self._patch = monkeypatch
        self._next: tuple[list[str], dict[str, str]] | None = None
        monkeypatch.setattr(serving, "_here", self._serve)
        monkeypatch.setattr(supervise, "run_workers", self._workers)
        monkeypatch.setattr(subprocess, "Popen", self._child)
        monkeypatch.setattr(reload, "_watchfiles", lambda: SimpleNamespace(awatch=None, PythonFilter=None))
        monkeypatch.setattr(signal, "signal", lambda number, handler: None)

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> Settings:
        """What is served in the end."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
        self._next = ["serve", *words], plain | dict(environment)
        while self._next is not None:
            assert self.number < 3, "an endless chain of processes"
            self.number += 1
            (words, environment), self._next = self._next, None
            with self._patch.context() as patch:
                patch.setattr(os, "environ", dict(environment))
                patch.setattr(sys, "argv", ["dragoman", *words])
                try:
                    assert command_line.run(words) == 0
                except _Started:
                    continue
        assert self.served is not None
        return self.served

    def _serve(self, settings: Settings, watched: object) -> int:
        self.served = settings
        return 0

    def _child(self, arguments: list[str], *, env: dict[str, str], **options: Any) -> None:
        assert arguments[:4] == [sys.executable, "-B", "-m", "dragoman"]
        self._next = arguments[4:], env
        raise _Started

    async def _workers(self, arguments: list[str], urls: object, **options: Any) -> int:
        self._next = arguments[arguments.index("dragoman") + 1 :], {**os.environ, "DRAGOMAN_WORKER": "{}"}
        return 0


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Processes:
    monkeypatch.chdir(tmp_path)
    return Processes(monkeypatch)


@pytest.mark.parametrize("source", ["flag", "flag=", "file", "environment"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("without", APART)
def test_what_is_served_is_what_was_said(
    processes: Processes, tmp_path: Path, way: Way, source: Source, without: str
) -> None:
    """Every option, wherever it is said and however the command starts itself: again once, and no more."""
    options = {k: v for k, v in VALUES.items() if k not in ("workers", "reload", without)} | WAYS[way]
    target, urls, *found = processes.run(*_given(source, options, tmp_path))
    assert (target, urls) == (VALUES["target"], tuple(VALUES["urls"]))
    said = {
        one.name.replace("_", "-"): getattr(value, one.name)
        for value in found
        for one in fields(value)  # type: ignore[arg-type]
        if one.name not in ("config", "check")
    }
    assert said == {"reload": False, "workers": None, without: None} | {
        k: v for k, v in options.items() if k not in ("target", "urls")
    }
    assert processes.number == 1 + bool(WAYS[way])


# -- SIGHUP -------------------------------------------------------------------------------------------

LIVE = {"drain", "debug", "log-level", "log-format"}
CERTIFICATE = {"tls-cert", "tls-key"}
AT_START = {"quiet", "json", "output", "color", "verbose"}
OF_SUPERVISOR = {"urls", "workers", "bus", "metrics", "admin", "no-uvloop", "reload", "quiet"}
TOGETHER: dict[str, tuple[str, ...]] = {
    "tls-key": ("tls-cert",),
    "auth-issuer": ("auth-resource",),
    "auth-resource": ("auth-issuer",),
    "auth-public-key": ("auth-issuer", "auth-resource"),
    "auth-introspection": ("auth-issuer", "auth-resource", "auth-client-id", "auth-client-secret-file"),
    "auth-client-id": ("auth-introspection", "auth-issuer", "auth-resource", "auth-client-secret-file"),
    "auth-client-secret-file": ("auth-introspection", "auth-issuer", "auth-resource", "auth-client-id"),
}
"""What an option needs beside it."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is told at SIGHUP, in a folder with what the options name."""
    monkeypatch.chdir(tmp_path)
    for name in tuple(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path("own.pem")
    certificate.private_key_pem.write_to_path("own.key")
    Path("issuer.pem").write_bytes(KEY)
    Path("secret").write_text("hush")
    found: list[str] = []
    monkeypatch.setattr(rereading, "tell", lambda text, level, **options: found.append(text))
    monkeypatch.setattr(serving.app, "config", serving.app.config)  # SIGHUP changes it, and a process has it for good
    return found


class _Live:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.options: ServeOptions | None = None

    def set(self, options: ServeOptions) -> None:
        self.options = options


def _hung_up(name: str, by: Callable[[Rereading], object], folder: Path, live: Any = None) -> None:
    """The file says something of this option since the start."""
    wanted = {one: VALUES[one] for one in (*TOGETHER.get(name, ()), name)}
    before = {"target": "other:api", **{one: wanted[one] for one in wanted if one != name and one not in CERTIFICATE}}
    words, _ = _given("file", {"target": "other:api", **wanted}, folder)
    options = ServeOptions(config="some.toml", **{k.replace("-", "_"): v for k, v in before.items() if k != "target"})
    context = None if name not in CERTIFICATE else ServeOptions(tls_cert="own.pem", tls_key="own.key").tls()
    settings = ("other:api", (), options, WireOptions(), Output())
    by(Rereading(serving.app, words, settings, context, live))


@pytest.mark.parametrize("name", VALUES)
def test_sighup_of_one_process(told: list[str], tmp_path: Path, name: str) -> None:
    """Each option is taken, or has no effect any more, or needs a restart and is named."""
    if name == "tls-cert":
        Path("own.pem").write_bytes(Path("own.key").read_bytes() + Path("own.pem").read_bytes())
    live = _Live()
    _hung_up(name, Rereading.of_server, tmp_path, live)
    if name in LIVE:
        assert told == [f"SIGHUP: changed: {name}"]
        assert live.options is not None
        assert getattr(live.options, name.replace("-", "_")) == VALUES[name]
    elif name in CERTIFICATE:
        assert told == ["SIGHUP: the certificate is read again"]
    elif name in AT_START:
        assert told == ["SIGHUP: nothing has changed"]
    else:
        assert told == [f"SIGHUP: this needs a restart: {name}"] or "auth-" in name
        assert name in told[0].partition("restart: ")[2].split(", ")


@pytest.mark.parametrize("name", VALUES)
def test_sighup_of_a_supervisor(told: list[str], tmp_path: Path, name: str) -> None:
    """Workers read all of it; what the supervisor does itself is named."""
    if name == "tls-cert":
        Path("own.pem").write_bytes(Path("own.key").read_bytes() + Path("own.pem").read_bytes())
    done: list[bool] = []
    _hung_up(name, lambda found: done.append(found.of_supervisor()), tmp_path)
    assert done == [True]
    assert told == ([f"this needs a restart: {name}"] if name in OF_SUPERVISOR else [])


# -- real processes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["flag=", "file", "environment"])
async def test_a_server_under_reload_serves_and_is_started_again_by_sighup(command: Command, source: Source) -> None:
    options = {"target": "calculator:api", "urls": ["tcp://127.0.0.1:0"], "reload": True, "json": True}
    words, environment = _given(source, options, command.folder)
    process = command.start("serve", *words, env=environment)
    assert process.stdout is not None
    for again in (False, True):
        if again:
            process.send_signal(signal.SIGHUP)
            await asyncio.to_thread(until, process.stderr, "SIGHUP: starting again")
        found = msgspec.json.decode(await asyncio.to_thread(process.stdout.readline))
        async with connect(found["urls"][0]) as peer:
            assert await peer.call("subtract", [42, 23]) == 19
        children = psutil.Process(process.pid).children(recursive=True)
        assert [one.pid for one in children] == [found["pid"]]
    process.terminate()
    assert await asyncio.to_thread(process.wait, 20) == 0
