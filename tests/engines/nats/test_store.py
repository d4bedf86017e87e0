"""The store of `nats://` message by message: what it writes into its streams and asks JetStream for, which other
versions read and other clients see, and what it makes of JetStream's refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import nats as library
import pytest

from dragoman.bus import open_bus
from dragoman.engines.nats import logs
from dragoman.engines.nats import store as streams
from dragoman.engines.nats.bus import NatsBus, NatsStore
from tests.bus import table
from tests.engines.brokers import Engine

Said: TypeAlias = tuple[str, dict[str, str] | None, Any]
"""Subject, headers, and the body; of a request the members of its JSON."""

BEGIN = 1_700_000_000
AFTER, SIZES = "Nats-Expected-Last-Subject-Sequence", ("Number", "Before", "First", "Origin")


class Clock:
    """A time of day that stands until it is moved."""

    now = float(BEGIN)

    def time(self) -> float:
        return self.now


class Ends:
    """A store of its own on a real server, and what another client hears of it."""

    def __init__(self, bus: NatsBus, prefix: str, raw: Any, heard: Any) -> None:
        assert isinstance(bus.store, NatsStore)
        self.store, self.prefix, self._raw, self._heard = bus.store, prefix, raw, heard

    async def said(self) -> list[Said]:
        """What was said since the last time: the server passes on what was confirmed before it passes on our mark."""
        await self._raw.publish(mark := f"{self.prefix}.mark")
        found: list[Said] = []
        while (one := await self._heard.next_msg(timeout=table.PATIENCE)).subject != mark:
            ours = self.prefix in one.subject and not one.subject.startswith("$JS.EVENT.")
            if ours and not one.reply.startswith("$JS.ACK."):  # not what is delivered
                found.append(self._plain(one))
        return found

    def _plain(self, message: Any) -> Said:
        subject = message.subject.replace(self.prefix, "p")
        if not subject.startswith("$JS.API."):
            return subject, message.headers, message.data
        asked = json.loads(message.data.replace(self.prefix.encode(), b"p") or b"{}")
        asked.get("config", {}).pop("deliver_subject", None)
        return subject.removeprefix("$JS.API."), message.headers, asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(streams, "time", one)
    return one


@asynccontextmanager
async def ends(nats: Engine) -> AsyncIterator[Ends]:
    raw = await library.connect(nats.url)
    heard = await raw.subscribe(">")
    prefix = table.fresh("p").replace(".", "-")
    try:
        async with table.opened(f"{nats.url}?prefix={prefix}", NatsBus) as bus:
            yield Ends(bus, prefix, raw, heard)
    finally:
        await raw.close()


def entry(sizes: tuple[int, int, int, int], body: bytes, after: int, seconds: float, **more: str) -> Said:
    """A message of the log "log" that lives until so many seconds after the beginning."""
    headers = dict(zip(SIZES, map(str, sizes), strict=True)) | more
    return "p.logs.log", headers | {"Expires": str(round((BEGIN + seconds) * 1000)), AFTER: str(after)}, body


def value(body: bytes, seconds: float, **more: str) -> Said:
    """A value of the key "key"."""
    return "$KV.p.key", {"Expires": str(round((BEGIN + seconds) * 1000))} | more, body


def last(subject: str, stream: str) -> Said:
    return f"STREAM.MSG.GET.{stream}", None, {"last_by_subj": subject}


def read(subject: str, stream: str, **what: Any) -> Said:
    config = {"filter_subject": subject, "ack_policy": "none", "mem_storage": True, "num_replicas": 1}
    config |= {"inactive_threshold": 10_000_000_000} | what
    return f"CONSUMER.CREATE.{stream}", None, {"stream_name": stream, "config": config}


def purged(subject: str, stream: str, upto: int) -> Said:
    return f"STREAM.PURGE.{stream}", None, {"filter": subject, "seq": upto + 1}


def made(stream: str, subjects: str, each: int) -> list[Said]:
    limits = {"retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": each}
    kept = {"discard": "new", "storage": "file", "num_replicas": 1, "allow_rollup_hdrs": True, "deny_delete": True}
    config = {"name": stream, "subjects": [subjects], **limits, **kept}
    return [(f"STREAM.INFO.{stream}", None, {}), (f"STREAM.CREATE.{stream}", None, config)]


KEY, LOG = last("$KV.p.key", "KV_p"), last("p.logs.log", "p-logs")
NO_VALUE = last("$KV.p.log", "KV_p")


def read_from(start: int) -> Said:
    return read("p.logs.log", "p-logs", deliver_policy="by_start_sequence", opt_start_seq=start)


Step: TypeAlias = tuple[float, Callable[[NatsStore], Awaitable[Any]], Any, list[Said]]
"""Seconds after the beginning, a call, its result, and what is said."""

A_VALUE: list[Step] = [
    (0, lambda it: it.put("key", b"1"), None, [("$KV.p.key", None, b"1")]),
    (0, lambda it: it.put("key", b"2", ttl=1.5), None, [value(b"2", 1.5)]),
    (0, lambda it: it.put("key", b"3", ttl=0.0001), None, [value(b"3", 0.001)]),
    (0, lambda it: it.get("key"), b"3", [KEY]),
    (0.001, lambda it: it.get("key"), None, [KEY]),
    (0.001, lambda it: it.touch("key", 9), False, [KEY, last("p.logs.key", "p-logs")]),
    (1, lambda it: it.put_new("key", b"4", ttl=1), True, [value(b"4", 2, **{AFTER: "0"}), KEY, value(b"4", 2, **{AFTER: "3"})]),
    (1, lambda it: it.put_new("key", b"5", ttl=1), False, [value(b"5", 2, **{AFTER: "0"}), KEY]),
    (1, lambda it: it.touch("key", 2), True, [KEY, value(b"4", 3, **{AFTER: "4"})]),
    (2, lambda it: it.delete("key"), True, [KEY, purged("$KV.p.key", "KV_p", 5)]),
    (2, lambda it: it.put_new("key", b"6", ttl=1), True, [value(b"6", 3, **{AFTER: "0"})]),
    (3, lambda it: it.delete("key"), False, [KEY, purged("$KV.p.key", "KV_p", 6), last("p.logs.key", "p-logs")]),
]  # fmt: skip

A_LOG: list[Step] = [
    (0, lambda it: it.append("log", b"1", ttl=10), 1, [entry((1, 0, 1, 0), b"1", 0, 10)]),
    (1, lambda it: it.append("log", b"22", ttl=10), 2, [entry((2, 1, 1, 0), b"22", 1, 11)]),
    (1, lambda it: it.append("log", b"333", ttl=10, messages=2), 3, [entry((3, 3, 2, 0), b"333", 2, 11)]),
    # the newest is there with what tells of it; what is older is read
    (1, lambda it: it.read("log", 3), [], [LOG]),
    (1, lambda it: it.read("log", 2), [(3, b"333")], [LOG]),
    (1, lambda it: it.read("log"), [(2, b"22"), (3, b"333")], [LOG, read_from(1)]),
    (2, lambda it: it.touch("log", 20), True, [NO_VALUE, LOG, entry((3, 3, 2, 0), b"", 3, 22, Touch="1")]),
    (2, lambda it: it.read("log", 3), [], [LOG]),
    (2, lambda it: it.read("log", 2), [(3, b"333")], [LOG, read_from(1)]),
    # touched by another, for all that it knows: it looks at what is new since
    (2, lambda it: it.append("log", b"4", ttl=10, size=9), 4,
     [entry((4, 6, 2, 0), b"4", 3, 12), LOG, read_from(4), entry((4, 6, 2, 0), b"4", 4, 12)]),
    # what fits to the byte stays
    (2, lambda it: it.append("log", b"55555", ttl=10, size=11), 5, [entry((5, 7, 2, 0), b"55555", 5, 12)]),
    (2, lambda it: it.append("log", b"6", ttl=10, size=10), 6, [entry((6, 12, 3, 0), b"6", 6, 12)]),
    # its time is over: what is written next is another log
    (12, lambda it: it.read("log"), [], [LOG]),
    (12, lambda it: it.append("log", b"7", ttl=10), 1,
     [entry((1, 0, 1, 7), b"7", 7, 22), purged("p.logs.log", "p-logs", 7)]),
    (12, lambda it: it.append("log", b"8", ttl=10), 2, [entry((2, 1, 1, 7), b"8", 8, 22)]),
    (12, lambda it: it.read("log"), [(1, b"7"), (2, b"8")], [LOG, read_from(8)]),
    (12, lambda it: it.delete("log"), True, [NO_VALUE, LOG, purged("p.logs.log", "p-logs", 9)]),
    (12, lambda it: it.append("log", b"9", ttl=10), 1, [entry((1, 0, 1, 0), b"9", 0, 22)]),
]  # fmt: skip


@pytest.mark.parametrize("steps", [A_VALUE, A_LOG], ids=["a value", "a log"])
async def test_what_is_said(steps: list[Step], nats: Engine, clock: Clock) -> None:
    async with ends(nats) as one:
        assert await one.said() == [*made("KV_p", "$KV.p.>", 1), *made("p-logs", "p.logs.>", -1)]
        for seconds, call, result, said in steps:
            clock.now = BEGIN + seconds
            assert await call(one.store) == result
            assert await one.said() == said


async def test_what_a_log_does_not_keep_is_deleted_now_and_then(nats: Engine) -> None:
    """Not each message singly; what counts stays."""
    async with ends(nats) as one:
        await one.said()
        asked: list[Said] = []
        for number in range(1, 201):
            await one.store.append("log", b"%d" % number, ttl=table.LONG, messages=3)
            if number > 3:
                kept = [(n, b"%d" % n) for n in (number - 2, number - 1, number)]
                assert await one.store.read("log") == kept
            asked += [said for said in await one.said() if "PURGE" in said[0]]
        assert asked == [purged("p.logs.log", "p-logs", upto) for upto in (64, 128, 192)]


async def test_what_another_has_left_out_is_left_out(nats: Engine) -> None:
    """Its bounds are in its newest message, and what is beyond them does not come back."""
    async with ends(nats) as one:
        other = await open_bus(f"{nats.url}?prefix={one.prefix}")
        assert other.store is not None
        for _ in range(2):
            await one.store.append("log", b"1", ttl=table.LONG)
        for _ in range(4):
            await other.store.append("log", b"1", ttl=table.LONG, messages=2)
        await one.said()
        assert await one.store.append("log", b"1", ttl=table.LONG) == 7
        assert [headers["First"] for _, headers, _ in await one.said() if headers] == ["1", "5"]
        await other.close()


async def test_the_log_that_was_written_last_is_the_one_that_stays_known(
    nats: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "KNOWN", 1)
    async with ends(nats) as one:
        await one.store.append("log", b"1", ttl=table.LONG)
        await one.store.append("key", b"1", ttl=table.LONG)
        await one.said()
        await one.store.append("key", b"2", ttl=table.LONG)
        assert [subject for subject, _, _ in await one.said()] == ["p.logs.key"]
        await one.store.append("log", b"2", ttl=table.LONG)
        assert [subject for subject, _, _ in await one.said()] == [
            "p.logs.log", "STREAM.MSG.GET.p-logs", "CONSUMER.CREATE.p-logs", "p.logs.log",
        ]  # fmt: skip


async def test_sweeping_looks_at_the_newest_of_each_and_once_in_a_while(nats: Engine, clock: Clock) -> None:
    async with ends(nats) as one:
        await one.store.put("key", b"1", ttl=10)
        await one.store.append("log", b"1", ttl=20)
        await one.said()
        newest = {"deliver_policy": "last_per_subject", "headers_only": True}
        both = [read("$KV.p.>", "KV_p", **newest), read("p.logs.>", "p-logs", **newest)]
        looked = [subject for subject, _, _ in both]
        clock.now = BEGIN + 10
        await one.store.sweep()
        marks, *said = await one.said()
        assert marks == ("$KV.p.sweep", {"Expires": str((BEGIN + 70) * 1000), AFTER: "0"}, b"")
        assert said == [both[0], purged("$KV.p.key", "KV_p", 1), both[1]]
        clock.now = BEGIN + 69
        await one.store.sweep()
        assert [subject for subject, _, _ in await one.said()] == ["$KV.p.sweep", "STREAM.MSG.GET.KV_p"]
        clock.now = BEGIN + 70
        await one.store.sweep()
        said = await one.said()
        assert [subject for subject, _, _ in said] == [
            "$KV.p.sweep", "STREAM.MSG.GET.KV_p", "$KV.p.sweep", *looked, "STREAM.PURGE.p-logs",
        ]  # fmt: skip
        assert said[-1] == purged("p.logs.log", "p-logs", 1)
