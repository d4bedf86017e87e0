"""A server of events that is killed: `python -m tests.chaos.event_server FILE PORT LEASE`. It prints its URL. Its tool
`step` emits an event, and answers once that is kept."""

from __future__ import annotations

import asyncio
import sys

from msgspec import Struct

from dragoman import serve
from dragoman.auth import Static
from dragoman.events import outbox
from dragoman.mcp import Server
from dragoman.mcp.extensions.events import EventLimits, Events, delivery

from .servers import TOKEN, end_with_parent

WEEK = 7 * 86_400.0
"""Seconds for which everything is kept: a run may be stopped for days."""
LIMITS = EventLimits(
    events=10_000_000,
    events_size=1 << 30,
    events_age=WEEK,
    ttl_most=WEEK,
    verifications=1_000,
    verifications_each=1_000,
)
RETRIES = (0.2,) * 50
"""A receiver that refuses an event now and then gets it soon again."""


class Stepped(Struct):
    """A lane is one step further."""

    lane: str
    number: int


def make(path: str) -> Server:
    """A server with one event type, which is filtered by its lane."""
    events = Events(
        store=f"sqlite:{path}", allow_private=["127.0.0.1/32"], limits=LIMITS, retries=RETRIES, poll_again=0.01
    )
    events.event(filters=["lane"])(Stepped)
    app = Server("stairs", version="1", extensions=[events])

    @app.tool
    async def step(lane: str, number: int) -> str:
        """Emit an event; the same one again is the same event."""
        return await events.emit(Stepped(lane, number), id=f"{lane}.{number}")

    return app


async def main(path: str, port: str, lease: str) -> None:
    outbox.LEASE = delivery.LEASE = float(lease)  # type: ignore[misc, attr-defined]  # another takes over soon
    async with serve(make(path), urls=f"http://127.0.0.1:{port}/mcp", auth=Static({TOKEN: "ada"})) as serving:
        print(serving.urls[0], flush=True)
        await serving.ended()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(*sys.argv[1:]))
