"""Round trips over RabbitMQ."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench.brokers import broker, round_trips
from bench.environments import Missing
from bench.figures import Figure, Row
from bench.referee import Contestant, Failed, Referee, free_port

PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The program itself: the one on the PATH may be the wrapper of the system's service, which writes where that does."""
PATIENCE = 60.0
"""Seconds that it may take to start."""


def _rabbitmq(port: int, folder: Path) -> list[str]:
    """With all its files, Erlang's cookie too, in the folder."""
    program = PROGRAM if os.access(PROGRAM, os.X_OK) else shutil.which("rabbitmq-server")
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


def amqp(referee: Referee) -> list[Row]:
    """A quorum queue, confirms and a mailbox, beside aio-pika doing the same, and pjrpc as it comes."""
    program = ["-m", "bench.peers.pjrpc_amqp"]
    peers = [
        Contestant("pjrpc", program, 300, peer="pjrpc"),  # a queue a call, which it never takes away
        Contestant("pjrpc with a result queue", [*program, "results"], 1_000, peer="pjrpc"),
    ]
    try:
        with broker(_rabbitmq, PATIENCE) as port:
            return round_trips(
                referee,
                "amqp",
                "RabbitMQ",
                "bench.limits.amqp",
                lambda name: f"amqp://guest:guest@127.0.0.1:{port}/{name}",
                4_000,
                environment="aio-pika",
                peers=peers,
            )
    except (Missing, Failed) as why:
        return [Row("amqp", "RabbitMQ", "us", Figure("dragoman", missing=str(why)))]
