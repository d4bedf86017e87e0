"""Logs of `nats://` against a JetStream that does what a test says: what comes between two requests, and what is
delivered before the answer to the request for it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import Store, open_bus

from .scripted import Scripted, Sent, scripted

OVERTAKEN = {"error": {"err_code": 10071}}
"""The newest message is another one."""
SIZES = {"Number": "1", "Before": "0", "First": "1", "Origin": "0", "Expires": "99999999999999"}
END = SIZES | {"Number": "2", "Touch": "1"}


def held(position: int, **headers: str) -> dict[str, Any]:
    """The newest message of a subject, without a body."""
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return {"message": {"seq": position, "hdrs": base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()}}


def one_by_one(*answers: Any) -> Callable[[Sent], Any]:
    """One answer after the other."""
    left = iter(answers)
    return lambda sent: next(left)


@asynccontextmanager
async def ends(newest: Any) -> AsyncIterator[tuple[Scripted, Store]]:
    async with scripted() as server:
        server.apis = {"STREAM.INFO": {}, "STREAM.MSG.GET": newest}
        server.taken = lambda sent: {"seq": 1}
        bus = await open_bus(server.url)
        assert bus.store is not None
        try:
            yield server, bus.store
        finally:
            await bus.close()


async def test_a_log_that_was_deleted_meanwhile_begins_anew() -> None:
    """It is gone, or another has begun one whose time is over."""
    async with ends({}) as (server, store):
        assert await store.append("log", b"1", ttl=9) == 1
        server.taken = one_by_one(OVERTAKEN, {"seq": 7})
        assert await store.append("log", b"2", ttl=9) == 1
        server.taken = one_by_one(OVERTAKEN, {"seq": 9}, {"seq": 10})
        server.apis |= {"STREAM.MSG.GET": held(8, **SIZES | {"Expires": "1"}), "STREAM.PURGE": {"purged": 2}}
        assert await store.append("log", b"3", ttl=9) == 1
        assert await store.append("log", b"4", ttl=9) == 2
        told = [(sent.headers["Number"], sent.headers["Origin"]) for sent in server.last.said("dragoman.logs.log")]
        assert told == [("1", "0"), ("2", "0"), ("1", "0"), ("2", "0"), ("1", "8"), ("2", "8")]


ACKS = {
    "old": "$JS.ACK.dragoman-logs.consumer.1.{position}.{position}.1700000000.{pending}",
    "new": "$JS.ACK.domain.account.dragoman-logs.consumer.1.{position}.{position}.1700000000.{pending}.random",
}


def delivered(server: Scripted, ack: str, position: int) -> None:
    """A message of a log of two, to the subscription that was made last."""
    sid = list(server.last.subscriptions)[-1]
    reply = ack.format(position=position, pending=2 - position)
    server.last.give(sid, Sent("dragoman.logs.log", b"%d" % position, reply, SIZES | {"Number": str(position)}))


@pytest.mark.parametrize("early", [0, 1, 2])
@pytest.mark.parametrize("ack", ACKS)
async def test_a_log_is_read_to_its_end_and_no_further(ack: str, early: int) -> None:
    """Whether its messages come before the answer to the request for them, or behind it."""

    def create(sent: Sent) -> Any:
        for position in (1, 2):
            if position <= early:
                delivered(server, ACKS[ack], position)
            else:
                asyncio.get_running_loop().call_soon(delivered, server, ACKS[ack], position)
        return {"num_pending": 2 - early}

    async with ends(held(3, **END)) as (server, store):
        there = set(server.last.subscriptions)
        server.apis["CONSUMER.CREATE"] = create
        assert await store.read("log") == [(1, b"1"), (2, b"2")]
        await server.until(lambda: set(server.last.subscriptions) == there)
        server.apis["CONSUMER.CREATE"] = {"num_pending": 0}  # it was deleted meanwhile
        assert await store.read("log") == []
        await server.until(lambda: set(server.last.subscriptions) == there)
