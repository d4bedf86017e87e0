"""Real brokers for the tests: each is started on a free port in a folder of its own, or named by an environment
variable.

`DRAGOMAN_TEST_AMQP`, `DRAGOMAN_TEST_MQTT`, `DRAGOMAN_TEST_NATS`, `DRAGOMAN_TEST_REDIS` hold the URL of one that
runs already; such a one is never stopped, so that tests which need that are skipped (`engine.control()`). Where
neither the variable nor the program is there, the test is skipped with the reason; with `CI=true` that fails.

    async def test_it(rabbitmq: Engine) -> None:     # one for the whole run of the tests: use names of your own
        await rabbitmq.restart()
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest

from dragoman.transports.broker import memory as broker_memory
from tests.ports import free_port
from tests.skips import missing

from .orphans import Watcher

BOOT = 90.0
"""Seconds that a broker may take until it answers."""
_GREETINGS: dict[str, tuple[bytes, bytes]] = {
    "amqp": (b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"),  # Connection.Start
    "mqtt": (b"\x10\x13\x00\x04MQTT\x05\x02\x00\x05\x00\x00\x06engine", b"\x20"),  # CONNECT, CONNACK
    "nats": (b"", b"INFO "),
    "redis": (b"PING\r\n", b"+PONG"),
}


class Engine:
    """One broker. `url` has no path: add what the test wants, e.g. `f"{engine.url}/{name()}"`."""

    def __init__(
        self, scheme: str, url: str, command: list[str], env: dict[str, str], folder: Path | None, *, keep: bool = False
    ) -> None:
        self.scheme = scheme
        self.url = url
        self._command = command
        self._env = env
        self._folder = folder
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Watcher | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.partition("://")[2].rpartition("@")[2].rpartition(":")
        return host, int(port)

    def control(self) -> None:
        """Skip the test when this broker is not ours to stop."""
        if not self._command:
            pytest.skip(f"{self.scheme}: the broker of DRAGOMAN_TEST_{self.scheme.upper()} is not ours to stop")

    async def start(self) -> None:
        """Start it again, with what it had stored; returns when it answers."""
        await asyncio.to_thread(self.begin)

    async def stop(self) -> None:
        """End it in good order."""
        self.control()
        await asyncio.to_thread(self.end, signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it, as when the power fails."""
        self.control()
        await asyncio.to_thread(self.end, signal.SIGKILL)

    async def restart(self, *, hard: bool = False) -> None:
        """Stop (or kill) and start."""
        await (self.kill() if hard else self.stop())
        await self.start()

    async def empty(self) -> None:
        """Kill it and start it again without anything that it had."""
        await self.kill()
        assert self._folder is not None
        for one in self._folder.iterdir():
            if one.is_dir():
                await asyncio.to_thread(shutil.rmtree, one)
            elif one.suffix not in (".conf", ".log"):
                one.unlink()
        await self.start()

    def stored(self) -> bytes | None:
        """What a broker that was killed finds when it starts again. None where that is all that it had confirmed:
        Mosquitto confirms before it saves, and does not save at all for a message that a connected client has and has
        not acknowledged, until something else changes (2.0: `db__message_insert`)."""
        if self.scheme != "mqtt" or self._folder is None:
            return None
        file = self._folder / "mosquitto.db"
        return file.read_bytes() if file.exists() else b""

    def freeze(self) -> None:
        """Let it hang with its sockets open: its clients hear nothing, not even an end."""
        self.control()
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        until = time.monotonic() + BOOT
        while not _stopped(self._process.pid):  # its threads stop one after the other, and one of them could answer
            assert time.monotonic() < until, "it does not stop"
            time.sleep(0.001)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def begin(self) -> None:
        """The blocking `start`."""
        if self._process is not None:
            return
        assert self._folder is not None
        with (self._folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | self._env,
                cwd=self._folder,
                start_new_session=True,
            )
        self._watcher = Watcher(self._process.pid, None if self._keep else self._folder)
        until = time.monotonic() + BOOT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self._folder / "output.log").read_text(errors="replace")[-2000:]
                self.end(signal.SIGKILL)
                raise RuntimeError(f"{self.scheme}: {self._command[0]} did not start: {said}")
            time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        """The blocking `stop` and `kill`."""
        process, self._process = self._process, None
        if process is None:
            return
        assert self._watcher is not None
        self._watcher.stop()
        for one in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, one)
            except ProcessLookupError:
                break
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                continue
            if _gone(process.pid, 15):
                break
        process.wait()
        _gone(process.pid, 15)

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, which)

    def _answers(self) -> bool:
        say, hear = _GREETINGS[self.scheme]
        try:
            with socket.create_connection(self.address, 2) as there:
                there.settimeout(2)
                there.sendall(say)
                return there.recv(len(hear)).startswith(hear)
        except OSError:
            return False


def _stopped(group: int) -> bool:
    """Whether every thread of a group of processes has stopped."""
    for one in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, psutil.NoSuchProcess):
            if os.getpgid(one.pid) == group:
                for thread in Path(f"/proc/{one.pid}/task").iterdir():
                    if (thread / "stat").read_text().rpartition(") ")[2][0] not in "TZX":
                        return False
    return True


class MemoryEngine:
    """The broker in memory with the face of an `Engine`. It is another one in every test, that of the test's loop."""

    scheme = "memory+broker"
    url = "memory+broker:"

    def control(self) -> None:
        """It is always ours to stop."""

    async def start(self) -> None:
        broker_memory.broker().start()

    async def stop(self) -> None:
        broker_memory.broker().stop()

    async def kill(self) -> None:
        broker_memory.broker().stop("it was killed")

    async def restart(self, *, hard: bool = False) -> None:
        await (self.kill() if hard else self.stop())
        await asyncio.sleep(0)
        await self.start()


def _gone(group: int, patience: float) -> bool:
    """Wait until no process of a group lives."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def name(prefix: str = "calculator") -> str:
    """An address that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def _found(program: str, *places: str) -> str | None:
    return next((place for place in places if os.access(place, os.X_OK)), None) or shutil.which(program)


Recipe = Callable[[str, Path, int], tuple[list[str], dict[str, str], str]]
"""Program, folder, port -> the command, its environment, and user:password@ for the URL."""


@contextmanager
def engine(scheme: str, program: str, recipe: Recipe, *places: str, folder: Path | None = None) -> Iterator[Engine]:
    """A broker that runs, for the length of the block. `folder`: keeps what it stores after that."""
    variable = f"DRAGOMAN_TEST_{scheme.upper()}"
    if url := os.environ.get(variable):
        yield Engine(scheme, url.rstrip("/"), [], {}, None)
        return
    if sys.platform == "win32":
        pytest.skip(f"brokers are started on POSIX systems alone, and {variable} names none that runs")
    path = _found(program, *places)
    if path is None:
        missing(f"no {program} on this machine, and {variable} names no broker that runs")
        return
    where: AbstractContextManager[str] = (
        tempfile.TemporaryDirectory(prefix=f"dragoman-{scheme}-", ignore_cleanup_errors=True)
        if folder is None
        else contextlib.nullcontext(str(folder))
    )
    with where as name:
        place, port = Path(name), free_port()
        command, env, who = recipe(path, place, port)
        one = Engine(scheme, f"{scheme}://{who}127.0.0.1:{port}", command, env, place, keep=folder is not None)
        one.begin()
        try:
            yield one
        finally:
            one.end(signal.SIGKILL)


# -- how each is started --------------------------------------------------------------------------


def rabbitmq_recipe(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
    (folder / "rabbitmq.conf").write_text(
        "loopback_users = none\nlog.console = true\nlog.console.level = info\nlog.file = false\nvm_memory_high_watermark.absolute = 2GB\n"
        "disk_free_limit.absolute = 1MB\n"
    )
    (folder / "plugins").write_text("[].\n")
    env = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    }
    return [program], env, "guest:guest@"


def _mosquitto(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
    user = "user root\n" if os.getuid() == 0 else ""
    (folder / "mosquitto.conf").write_text(
        f"{user}listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\nset_tcp_nodelay true\n"
        "max_queued_messages 0\n"  # by default it confirms, and drops, what is above 1,000 for one worker
    )
    return [program, "-c", str(folder / "mosquitto.conf")], {}, ""


def _nats(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
    return [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)], {}, ""


def _redis(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    return [*command, "--save", "", "--appendonly", "yes", "--appendfsync", "always"], {}, ""


def started(name: str, folder: Path | None = None) -> AbstractContextManager[Engine]:
    """The broker of the fixture of that name, for programs that are not tests. `folder`: where Redis keeps what it
    stores, also after the block."""
    if (
        name == "rabbitmq"
    ):  # the program itself, not the wrapper of the system's service, which writes where the service does
        return engine("amqp", "rabbitmq-server", rabbitmq_recipe, "/usr/lib/rabbitmq/bin/rabbitmq-server")
    if name == "mosquitto":
        return engine("mqtt", "mosquitto", _mosquitto, "/usr/sbin/mosquitto")
    if name == "nats":
        return engine("nats", "nats-server", _nats, "/usr/sbin/nats-server")
    return engine("redis", "redis-server", _redis, folder=folder)


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Engine]:
    with started("rabbitmq") as one:
        yield one


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Engine]:
    with started("mosquitto") as one:
        yield one


@pytest.fixture(scope="session")
def nats() -> Iterator[Engine]:
    """NATS with JetStream."""
    with started("nats") as one:
        yield one


@pytest.fixture(scope="session")
def redis() -> Iterator[Engine]:
    with started("redis") as one:
        yield one


@pytest.fixture
def memory() -> MemoryEngine:
    return MemoryEngine()
