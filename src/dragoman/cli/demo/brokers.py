"""The brokers of `dragoman demo --brokers`: found at their usual ports, or started for one round.

Rules:

- A broker that answers at its default port on this machine and asks for no password is used as it is.
- Otherwise its program is started on a free port, in the demo's own folder, and ended after the round. RabbitMQ is not
  started, because that is slow.
- A broker that neither runs nor can be started is skipped, and the output says how to get it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from msgspec import Struct

from ...system.programs import search_path
from ...system.sockets import user_id
from .rounds import Round, play

BOOT = 10.0
"""Seconds that a program may take until it answers."""
NAME = "dragoman-demo"
"""The name of the queue, topic, subject or stream."""
SBIN = ("/usr/sbin", "/usr/local/sbin")
"""Folders where servers are installed that a user's PATH may lack."""


class Broker(Struct, frozen=True, kw_only=True):
    """A broker, and how to start it."""

    name: str
    scheme: str
    port: int
    promise: str
    program: str
    """The program to start; empty if it must already run."""
    get: str
    hello: bytes
    """The first bytes that a client sends."""
    welcome: bytes
    """How the answer begins if the broker admits us."""
    unless: bytes = b"\x00never"
    """Bytes in the answer if it does not."""


BROKERS = (
    Broker(
        name="RabbitMQ",
        scheme="amqp",
        port=5672,
        promise="at least once",
        program="",
        get="apt install rabbitmq-server, or docker run -p 5672:5672 rabbitmq",
        hello=b"AMQP\x00\x00\x09\x01",
        welcome=b"\x01\x00\x00",
    ),
    Broker(
        name="MQTT",
        scheme="mqtt",
        port=1883,
        promise="at least once",
        program="mosquitto",
        get="apt install mosquitto, or docker run -p 1883:1883 eclipse-mosquitto mosquitto -c /mosquitto-no-auth.conf",
        hello=b"\x10\x10\x00\x04MQTT\x04\x02\x00\x05\x00\x04demo",
        welcome=b"\x20\x02\x00\x00",
    ),
    Broker(
        name="NATS",
        scheme="nats",
        port=4222,
        promise="at most once",
        program="nats-server",
        get="apt install nats-server, or docker run -p 4222:4222 nats",
        hello=b"",
        welcome=b"INFO ",
        unless=b'"auth_required":true',
    ),
    Broker(
        name="Redis",
        scheme="redis",
        port=6379,
        promise="at least once",
        program="redis-server",
        get="apt install redis-server, or docker run -p 6379:6379 redis",
        hello=b"PING\r\n",
        welcome=b"+PONG",
    ),
)


def broker_rounds() -> list[Round]:
    """A round for each broker, in the order in which they are shown."""
    return [
        Round(
            wire=broker.name,
            url=f"{broker.scheme}://127.0.0.1:{broker.port}/{NAME}",
            method="subtract",
            params=[42, 23],
            expected=19,
            duplex=False,
            promise=broker.promise,
        )
        for broker in BROKERS
    ]


async def play_over(broker: Broker, row: Round, folder: Path, changed: Callable[[], None]) -> None:
    """Play one round over a broker that is found or started; skipped if there is none, with how to get one."""
    row.state = "running"
    changed()
    async with _running(broker, folder) as port:
        if port:
            row.url = f"{broker.scheme}://127.0.0.1:{port}/{NAME}"
            await play(row, folder, changed)
        else:
            row.state, row.note = "skipped", f"no broker answers at 127.0.0.1:{broker.port}; {broker.get}"
    changed()


@contextlib.asynccontextmanager
async def _running(broker: Broker, folder: Path) -> AsyncIterator[int]:
    """The port at which the broker answers; 0 if there is none."""
    if await _answers(broker, broker.port):
        yield broker.port
        return
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN])
    program = search_path(broker.program, path) if broker.program else None
    if program is None:
        yield 0
        return
    directory = folder / broker.scheme
    directory.mkdir(exist_ok=True)
    port = _free_port()
    nowhere = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        program, *_words(broker, directory, port), cwd=directory, stdin=nowhere, stdout=nowhere, stderr=nowhere
    )
    try:
        yield port if await _up(broker, process, port) else 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _words(broker: Broker, directory: Path, port: int) -> list[str]:
    """The arguments that make the program use `directory` and `port`."""
    if broker.program == "mosquitto":
        user = "user root\n" if user_id() == 0 else ""  # otherwise it becomes a user that may not read this folder
        settings = directory / "mosquitto.conf"
        options = "allow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\n"
        settings.write_text(f"{user}listener {port} 127.0.0.1\n{options}")
        return ["-c", str(settings)]
    if broker.program == "nats-server":
        return ["-a", "127.0.0.1", "-p", str(port)]
    return ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", ""]


async def _up(broker: Broker, process: asyncio.subprocess.Process, port: int) -> bool:
    """Wait until the broker answers; False when it ends, or takes too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BOOT):
            while process.returncode is None:
                if await _answers(broker, port):
                    return True
                await asyncio.sleep(0.05)
    return False


async def _answers(broker: Broker, port: int) -> bool:
    """Whether such a broker runs there and admits us."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(broker.hello)
                said = await reader.read(4096)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except OSError:
        return False
    return said.startswith(broker.welcome) and broker.unless not in said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
