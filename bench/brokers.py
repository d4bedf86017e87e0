"""What stands in the middle of round trips: a broker of our own on a free port, or the bus of workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.environments import Missing
from bench.referee import START_TIME, Talker, await_listening, free_port

RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The program itself: the one on the PATH may be the wrapper of the system's service, which writes where that does."""


def rabbitmq(port: int, folder: Path) -> list[str]:
    """With all its files, Erlang's cookie too, in the folder."""
    program = RABBITMQ if os.access(RABBITMQ, os.X_OK) else shutil.which("rabbitmq-server")
    if program is None:
        raise Missing("no rabbitmq-server on this machine")
    (folder / "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")
    (folder / "plugins").write_text("[].\n")
    settings = {
        "HOME": folder,
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_DIST_PORT": free_port(),
        "RABBITMQ_CONFIG_FILE": folder / "rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "RABBITMQ_MNESIA_BASE": folder / "mnesia",
        "RABBITMQ_LOG_BASE": folder / "log",
        "RABBITMQ_PID_FILE": folder / "pid",
        # its schedulers spin while they wait, on the cores that the contestants have
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items()), program]


def redis(port: int, folder: Path) -> list[str]:
    """Without its files."""
    return ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]


def mosquitto(port: int, folder: Path) -> list[str]:
    """As it comes, but for what a round trip needs: Mosquitto leaves the algorithm of Nagle on."""
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")
    return [shutil.which("mosquitto") or "/usr/sbin/mosquitto", "-c", str(config)]


def nats(port: int, folder: Path) -> list[str]:
    """With JetStream, in the folder."""
    program = shutil.which("nats-server") or "/usr/sbin/nats-server"
    return [program, "-p", str(port), "-js", "-sd", str(folder)]


@contextlib.contextmanager
def broker(command: Callable[[int, Path], Sequence[str]]) -> Iterator[int]:
    """A broker on a port of its own; `command` gets the port and a folder. Raises Missing or Failed."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as output,
    ):
        argv = list(command(port, Path(folder)))
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
            )
        except FileNotFoundError:
            raise Missing(f"no {argv[0]} on this machine") from None
        try:
            await_listening(child, ["127.0.0.1", port], output, START_TIME * 3)
            yield port
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # RabbitMQ's is a script with children; nothing here is worth keeping
            child.wait()


@contextlib.contextmanager
def bus() -> Iterator[Path]:
    """The hub of workers on one machine, and its path."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "bus"
        with Talker([sys.executable, "-m", "bench.contestants", "ours_bus", "hub", str(path)], None, {}) as hub:
            hub.ask()
            yield path
