"""Round trips over NATS."""

from __future__ import annotations

import shutil

from bench.brokers import broker, round_trips
from bench.environments import Missing
from bench.figures import Figure, Row
from bench.referee import Failed, Referee


def nats(referee: Referee) -> list[Row]:
    """A queue group, and a work queue on JetStream, beside the bare library."""
    program = shutil.which("nats-server") or "/usr/sbin/nats-server"
    rows = []
    for key, title, tail, calls in (
        ("nats", "NATS", "", 20_000),
        ("nats-stream", "NATS JetStream", "?stream={name}", 8_000),
    ):

        def place(name: str, port: int, tail: str = tail, key: str = key) -> str:
            return f"nats://127.0.0.1:{port}/{key}-{name}{tail.format(name=name)}"

        try:
            with broker(lambda port, folder: [program, "-p", str(port), "-js", "-sd", str(folder)]) as port:
                url = lambda name, port=port, place=place: place(name, port)  # noqa: E731
                rows += round_trips(referee, key, title, "bench.limits.nats", url, calls)
        except (Missing, Failed) as why:
            rows.append(Row(key, title, "us", Figure("dragoman", missing=str(why))))
    return rows
