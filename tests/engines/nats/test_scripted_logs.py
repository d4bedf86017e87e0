"""Logs on JetStream, message by message: what each says of its log, who numbers it, and what is removed when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import open_bus
from dragoman.engines.nats import logs, store
from dragoman.engines.nats.bus import NatsStore

from .scripted import Scripted, Sent, scripted
from .test_scripted_bus import AFTER, MISSING, NOW, fault, found

LOG = "p.logs.l"


class Stream:
    """What JetStream keeps, as far as a log needs it, and the time of day."""

    def __init__(self, server: Scripted) -> None:
        self.server = server
        self.now = NOW
        self.place = 0
        self.kept: dict[int, Sent] = {}
        server.taken = self.take
        server.apis = {
            "STREAM.INFO": {},
            "STREAM.MSG.GET": self.get,
            "STREAM.PURGE": self.purge,
            "CONSUMER.CREATE": self.read,
        }
        self.overtaken: list[Sent] = []
        """Another process adds these, one before each message that comes."""

    def newest(self, subject: str) -> int:
        return max((place for place, sent in self.kept.items() if sent.subject == subject), default=0)

    def add(self, sent: Sent) -> int:
        self.place += 1
        self.kept[self.place] = sent
        return self.place

    def take(self, sent: Sent) -> Any:
        if self.overtaken:
            self.add(self.overtaken.pop(0))
        if sent.headers.get(AFTER, "") not in ("", str(self.newest(sent.subject))):
            return fault(10071)
        return {"seq": self.add(sent)}

    def get(self, sent: Sent) -> Any:
        place = self.newest(json.loads(sent.body)["last_by_subj"])
        return found(self.kept[place].body, place, **self.kept[place].headers) if place else MISSING

    def purge(self, sent: Sent) -> Any:
        asked = json.loads(sent.body)
        gone = [at for at, one in self.kept.items() if one.subject == asked["filter"] and at < asked["seq"]]
        for place in gone:
            del self.kept[place]
        return {"purged": len(gone)}

    def read(self, sent: Sent) -> Any:
        config = json.loads(sent.body)["config"]
        box, subject = config["deliver_subject"], config["filter_subject"]
        there = [at for at, one in self.kept.items() if one.subject == subject and at >= config["opt_start_seq"]]
        for left, place in zip(range(len(there) - 1, -1, -1), there, strict=True):
            one = self.kept[place]
            message = Sent(one.subject, one.body, f"$JS.ACK.p-logs.c.1.{place}.1.1700000000.{left}", one.headers)
            for link in self.server.links:
                for sid, (name, _) in link.subscriptions.items():
                    if name == box:
                        link.give(sid, message)
        return {"num_pending": len(there)}

    def says(self, *names: str) -> list[tuple[Any, ...]]:
        """The messages of the log that are kept: their place, body and these headers, as numbers."""
        return [
            (place, sent.body, *(int(sent.headers[name]) for name in names))
            for place, sent in self.kept.items()
            if sent.subject == LOG
        ]

    def asked(self, what: str) -> list[Any]:
        """The members of every such request to JetStream."""
        subject = f"$JS.API.{what}.p-logs"
        return [json.loads(sent.body) for link in self.server.links for sent in link.said(subject)]


@asynccontextmanager
async def ends(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stream, NatsStore, NatsStore]]:
    """A stream, and the stores of two processes."""
    async with scripted() as server:
        stream = Stream(server)
        for module in (store, logs):
            monkeypatch.setattr(module, "now", lambda: stream.now)
        buses: list[Any] = [await open_bus(f"{server.url}?prefix=p") for _ in range(2)]
        one, other = (bus.store for bus in buses)
        try:
            yield stream, one, other
        finally:
            for bus in buses:
                await bus.close()


def test_times_are_milliseconds_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of every process that shares a store."""
    monkeypatch.setattr("dragoman.engines.nats.store.time.time", lambda: 1_700_000_000.0005)
    assert store.now() == 1_700_000_000_000
    monkeypatch.setattr("dragoman.engines.nats.store.time.time", lambda: 1_700_000_000.25)
    assert store.now() == 1_700_000_000_250


HEADERS = ("Number", "Before", "First", "Origin")


async def test_what_each_message_says_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends(monkeypatch) as (stream, one, _):
        for body in (b"aaa", b"", b"cc"):
            await one.append("l", body, ttl=10, messages=2)
        assert stream.says(*HEADERS, AFTER, "Expires") == [
            (1, b"aaa", 1, 0, 1, 0, 0, NOW + 10_000),
            (2, b"", 2, 3, 1, 0, 1, NOW + 10_000),
            (3, b"cc", 3, 3, 2, 0, 2, NOW + 10_000),
        ]
        assert stream.asked("STREAM.MSG.GET") == []  # an end that is alone asks for nothing


@pytest.mark.parametrize(
    ("bounds", "first"),
    [
        ({"messages": 1}, 4),
        ({"messages": 3}, 2),
        ({"size": 2}, 2),
        ({"size": 1}, 3),
        ({"size": 0}, 4),
        ({"size": 2, "messages": 2}, 3),
    ],
)
async def test_what_is_out_of_bounds_stays_out(
    bounds: dict[str, int], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever appends next, and with other bounds."""
    async with ends(monkeypatch) as (stream, one, other):
        for body in (b"1", b"2", b"3"):
            await one.append("l", body, ttl=10)
        await one.append("l", b"", ttl=10, **bounds)
        await one.append("l", b"5", ttl=10)
        await other.append("l", b"6", ttl=10)
        await one.append("l", b"7", ttl=10)
        assert [sent[2] for sent in stream.says("First")] == [1, 1, 1, first, first, first, first]
        there = [b"1", b"2", b"3", b"", b"5", b"6", b"7"]
        assert await other.read("l") == list(enumerate(there, 1))[first - 1 :]


async def test_what_is_out_of_bounds_is_removed_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of its own would take twice as long."""
    async with ends(monkeypatch) as (stream, one, _):
        for number in range(1, 201):
            assert await one.append("l", b"x", ttl=10, messages=10) == number
            assert [at for at, _ in await one.read("l")] == list(range(max(1, number - 9), number + 1))
        asked = [{"filter": LOG, "seq": first} for first in (65, 129)]
        assert stream.asked("STREAM.PURGE") == asked
        assert len(stream.says()) == 200 - 128


async def test_a_log_that_is_over_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the one that knows it, for one that has to ask, and for a reader."""
    async with ends(monkeypatch) as (stream, one, other):
        for body in (b"1", b"2"):
            await one.append("l", body, ttl=10)
        stream.now += 9_999
        assert await other.read("l") == [(1, b"1"), (2, b"2")]
        stream.now += 1
        assert await other.read("l") == []
        assert await one.append("l", b"3", ttl=10) == 1
        assert stream.says(*HEADERS, AFTER) == [(3, b"3", 1, 0, 1, 2, 2)]
        assert stream.asked("STREAM.PURGE") == [{"filter": LOG, "seq": 3}]
        assert await one.append("l", b"4", ttl=10) == 2
        stream.now += 10_000
        assert await other.append("l", b"5", ttl=10) == 1
        assert stream.says(*HEADERS, AFTER) == [(5, b"5", 1, 0, 1, 4, 4)]
        assert await one.append("l", b"6", ttl=10) == 2
        assert await one.read("l") == [(1, b"5"), (2, b"6")]
        # what another log of that name has left counts for nothing
        stream.kept[1] = Sent(LOG, b"old", headers=stream.kept[5].headers | {"Origin": "0"})
        assert await other.read("l") == [(1, b"5"), (2, b"6")]


async def test_an_end_that_was_overtaken_learns_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what came since it last knew."""
    async with ends(monkeypatch) as (stream, one, other):
        await one.append("l", b"1", ttl=10)
        for body in (b"22", b"333"):
            await other.append("l", body, ttl=20)
        assert await one.append("l", b"4", ttl=30) == 4
        assert stream.says("Number", "Before", "Expires") == [
            (1, b"1", 1, 0, NOW + 10_000),
            (2, b"22", 2, 1, NOW + 20_000),
            (3, b"333", 3, 3, NOW + 20_000),
            (4, b"4", 4, 6, NOW + 30_000),
        ]
        assert [asked["config"]["opt_start_seq"] for asked in stream.asked("CONSUMER.CREATE")] == [2, 1]
        # deleted meanwhile
        assert await other.delete("l") is True
        assert await one.append("l", b"5", ttl=10) == 1
        assert stream.says(*HEADERS) == [(5, b"5", 1, 0, 1, 0)]


async def test_a_log_that_was_deleted_and_begun_again_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that knew the former keeps nothing of it: neither its bounds nor its sizes."""
    async with ends(monkeypatch) as (stream, one, other):
        for body in (b"1", b"22", b"333", b"4444"):
            await one.append("l", body, ttl=10, messages=2)
        assert await other.delete("l") is True
        assert await other.append("l", b"a", ttl=10) == 1
        assert await one.append("l", b"b", ttl=10, size=2) == 2
        assert stream.says(*HEADERS) == [(5, b"a", 1, 0, 1, 0), (6, b"b", 2, 1, 1, 0)]
        assert await one.read("l") == await other.read("l") == [(1, b"a"), (2, b"b")]


async def test_a_touch_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what the newest says, and that one alone lets the log live longer."""
    async with ends(monkeypatch) as (stream, one, other):
        for body in (b"1", b"22"):
            await one.append("l", body, ttl=10, messages=1)
        stream.overtaken.append(Sent(LOG, b"333", headers=stream.kept[2].headers | {"Number": "3", "Before": "3"}))
        assert await other.touch("l", 50) is True
        assert [sent.headers[AFTER] for sent in stream.server.last.said(LOG)] == ["2", "3"]
        touched = stream.kept[4]
        assert (touched.body, touched.headers) == (
            b"",
            {"Number": "3", "Before": "3", "First": "2", "Origin": "0", "Touch": "1", AFTER: "3", "Expires": "1050000"},
        )
        stream.now += 49_999
        assert await other.read("l") == [(2, b"22"), (3, b"333")]
        assert await other.read("l", 2) == [(3, b"333")]
        assert await one.append("l", b"4", ttl=10) == 4
        assert (stream.kept[5].headers["Before"], stream.kept[5].headers["First"]) == ("6", "2")
        assert await other.read("l") == [(2, b"22"), (3, b"333"), (4, b"4")]
        stream.now += 10_000
        assert await other.touch("l", 50) is False


async def test_reading_asks_for_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is known from the first answer."""
    async with ends(monkeypatch) as (stream, one, other):
        assert await other.read("l") == []
        for body in (b"1", b"2", b"3"):
            await one.append("l", body, ttl=10)
        for after, there in ((2, [(3, b"3")]), (3, []), (4, [])):
            assert await other.read("l", after) == there
        assert stream.asked("CONSUMER.CREATE") == []
        assert await other.read("l", 1) == [(2, b"2"), (3, b"3")]
        assert len(stream.asked("CONSUMER.CREATE")) == 1


async def test_so_many_logs_are_known_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """And read anew when it is appended to again."""
    monkeypatch.setattr(logs, "KNOWN", 2)
    async with ends(monkeypatch) as (stream, one, _):
        for log in ("l", "m", "l", "n"):
            await one.append(log, b"1", ttl=10)
        assert await one.append("l", b"3", ttl=10) == 3
        assert stream.asked("STREAM.MSG.GET") == []
        assert await one.append("m", b"2", ttl=10) == 2
        assert stream.asked("STREAM.MSG.GET") == [{"last_by_subj": "p.logs.m"}]
