"""A worker against a Redis that does what a test says: what it reads, settles, keeps and takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.engines.redis import worker
from dragoman.net.reconnect import RECONNECT_GRACE
from tests.engines.waits import Waits
from tests.engines.wires import PATIENCE

from .scripted import Scripted, bulk
from .test_scripted import Ends, ends


def entry(number: int, **head: str) -> list[Any]:
    said = "".join(f'"{name}":"{text}",' for name, text in head.items())
    return [f"{number}-1", ["head", f'{{{said}"id":"c{number}"}}', "body", str(number)]]


class Reads:
    """Blocking reads: `parts` are found, one by each; then they wait until they are ended."""

    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)
        self.server: Scripted | None = None
        self.waiting = False
        self.deaf = 0
        """So many words that shall end a read come to nothing."""

    def read(self, words: list[str]) -> bytes | None:
        self.waiting = not self.parts
        return None if self.waiting else self.found(self.parts.pop(0))

    def found(self, part: Any) -> bytes:
        return part if isinstance(part, bytes) else bulk([["q", part]])

    def give(self, part: Any) -> None:
        """To the read that waits."""
        assert self.server is not None
        self.waiting = False
        self.server.over("XREADGROUP").writer.write(self.found(part))

    def client(self, words: list[str]) -> bytes:
        if words[1] == "ID":
            return bulk(7)
        if self.deaf:
            self.deaf -= 1
        elif self.waiting:
            self.give(bulk(None))
        return bulk(1)


@asynccontextmanager
async def working(*parts: Any, query: str = "", prefetch: int = 9, **replies: Any) -> AsyncIterator[tuple[Ends, Reads]]:
    """A worker that has begun."""
    reads = Reads(*parts)
    async with ends(query, XREADGROUP=reads.read, CLIENT=reads.client, **replies) as one:
        reads.server = one.server
        await one.adapter.work(one.take, prefetch)
        yield one, reads


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr("dragoman.engines.redis.connection.PAUSES", (0.0, 0.0))


def counts(one: Ends) -> list[str]:
    """How many entries each read asked for."""
    return [words[4] for words in one.server.sent("XREADGROUP")]


# -- in --------------------------------------------------------------------------------------------


async def test_it_reads_no_more_than_it_has_slots_for() -> None:
    async with working([entry(1), entry(2)], prefetch=2) as (one, _):
        await one.server.until(lambda: len(one.came) == 2)
        await one.server.until(lambda: one.server.sent("KEEP"))
        assert counts(one) == ["2"]
        one.came[0].settle("answered")
        await one.server.until(lambda: len(counts(one)) == 2)
        assert counts(one) == ["2", "1"]
        first, me = one.server.sent("XREADGROUP")[0], one.server.sent("KEEP")[0][4]
        assert first == ["GROUP", "workers", me, "COUNT", "2", "BLOCK", "2000", "STREAMS", "q", ">"]


async def test_nor_more_than_others_could_run_now() -> None:
    async with working(prefetch=1_000) as (one, _):
        await one.server.until(lambda: one.server.sent("XREADGROUP"))
        assert counts(one) == ["64"]


async def test_what_was_settled_and_perhaps_not_acknowledged_is_not_taken_again() -> None:
    """Nor what is held."""
    async with working([entry(1), entry(2)], XACK=None, XDEL=None) as (one, reads):
        await one.server.until(lambda: len(one.came) == 2)
        one.came[0].settle("answered")
        await one.server.until(lambda: one.server.sent("XACK"))
        assert one.server.sent("XACK") == [["q", "workers", "1-1"]]
        await one.server.until(lambda: reads.waiting)
        reads.give([entry(1), entry(2), entry(3)])
        await one.server.until(lambda: len(one.came) == 3)
        assert [message.body for message in one.came] == [b"1", b"2", b"3"]
        one.server.replies |= {"XACK": bulk(1), "XDEL": bulk(1)}
        one.server.over("XACK").cut()
        await one.server.until(lambda: len(one.server.sent("XACK")) == 2)
        assert one.server.sent("XACK")[1] == ["q", "workers", "1-1"]


@pytest.mark.parametrize("head", [b"no JSON", b'{"id":"\xff"}', b'{"headers":{"\xff":""}}'], ids=ascii)
async def test_what_is_not_a_message_is_set_aside(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with working([["1-1", ["head", head, "body", "x"]], entry(2)]) as (one, _):
        await one.server.until(lambda: one.server.sent("REJECT"))
        assert [words[2:] for words in one.server.sent("REJECT")] == [["q", "q:dead", "workers", "1-1", "10000"]]
        assert [message.body for message in one.came] == [b"2"]
    assert "q: entry 1-1 is not a message; it is set aside" in caplog.text


@pytest.mark.parametrize("fault", ["NOGROUP no such group", "UNBLOCKED the stream is gone"])
async def test_a_group_that_is_gone_is_made_again(fault: str) -> None:
    """By whichever notices: the reading, or the sign of life."""
    faults = [f"-{fault}\r\n".encode()]
    async with working(faults[0]) as (one, _):
        await one.server.until(lambda: len(one.server.sent("XREADGROUP")) == 2)
        assert one.server.sent("XGROUP") == [["CREATE", "q", "workers", "0", "MKSTREAM"]] * 2
    nothing = bulk(["0-0", [], []])
    async with working(query="?idle=1", TAKE_OVER=lambda words: faults.pop() if faults else nothing) as (one, _):
        await one.server.until(lambda: len(one.server.sent("TAKE_OVER")) == 2)
        assert len(one.server.sent("XGROUP")) == 2


# -- out -------------------------------------------------------------------------------------------


async def test_how_each_delivery_ends() -> None:
    """What was given back did not begin, and what is held at the end did: that counts as a delivery."""
    async with working([entry(n) for n in range(1, 6)]) as (one, _):
        await one.server.until(lambda: len(one.came) == 5)
        for message, outcome in zip(one.came, ("answered", "nothing_owed", "retry", "reject"), strict=False):
            message.settle(outcome)  # type: ignore[arg-type]
            message.settle("retry")  # once is enough
        await one.server.until(lambda: one.server.sent("XDEL") and one.server.sent("REJECT"))
        assert one.server.sent("XACK") == [["q", "workers", "1-1", "2-1"]]
        assert one.server.sent("XDEL") == [["q", "1-1", "2-1"]]
        assert [words[5:] for words in one.server.sent("REQUEUE")] == [["3-1", '{"id":"c3"}']]
        assert [words[5] for words in one.server.sent("REJECT")] == ["4-1"]
    assert [words[5:] for words in one.server.sent("REQUEUE")][1:] == [["5-1", '{"id":"c5","count":1}']]
    assert len(one.server.sent("LEAVE")) == 1


async def test_a_read_that_waits_is_ended_until_it_has_ended() -> None:
    """The first word may come before the read does."""
    async with working() as (one, reads):
        await one.server.until(lambda: reads.waiting)
        reads.deaf = 1
        async with asyncio.timeout(PATIENCE):
            await one.adapter.pause()
        assert [words for words in one.server.sent("CLIENT") if words[0] == "UNBLOCK"] == [["UNBLOCK", "7"]] * 2
        await one.adapter.pause()
        assert len(one.server.sent("XREADGROUP")) == 1


async def test_what_is_refused_is_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second, with a warning; a group that is there already is not a fault."""
    pauses = list[float]()

    class Clock(Waits):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(0 if seconds == 1 else seconds)

    monkeypatch.setattr(worker, "asyncio", Clock())
    async with working(b"-NOPERM no\r\n", XGROUP=b"-BUSYGROUP it is there\r\n") as (one, _):
        await one.server.until(lambda: len(one.server.sent("XREADGROUP")) == 2)
        assert 1 in pauses
    assert "Redis says no: " in caplog.text


# -- who lives -------------------------------------------------------------------------------------


async def test_what_it_says_of_itself_and_takes_from_the_silent() -> None:
    """The cursor goes on; what is taken over was delivered before."""
    found = [bulk(["5-0", [entry(1)], [2]]), bulk(["0-0", [], []])]
    nothing = bulk(["0-0", [], []])
    async with working(query="?idle=1", TAKE_OVER=lambda words: found.pop(0) if found else nothing) as (one, _):
        await one.server.until(lambda: len(one.server.sent("TAKE_OVER")) == 3)
        words = [words[4:] for words in one.server.sent("TAKE_OVER")]
        me = words[0][0]
        assert words == [[me, "1000", "0-0", "9"], [me, "1000", "5-0", "8"], [me, "1000", "0-0", "8"]]
        assert [(message.body, message.count) for message in one.came] == [(b"1", 2)]
        assert one.server.sent("KEEP")[0][3:] == ["workers", me, "1-1"]


async def test_what_went_to_another_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async with working([entry(1), entry(2)], query="?idle=1", KEEP=bulk(["1-1"])) as (one, _):
        await one.server.until(lambda: one.server.sent("KEEP"))
        await one.server.until(lambda: len(one.server.sent("TAKE_OVER")) == 2)
    assert "q: 1 entries went to another worker while they were at work here" in caplog.text


async def test_after_an_outage_others_have_time_to_come_back() -> None:
    """They could not say that they live. And what was sent to us and lost on the way is fetched, as a delivery more."""
    recovered = [
        bulk(["9-1", [entry(1)], [1]]),
        bulk(["", [], []]),
    ]
    async with working(query="?idle=300", RECOVER=lambda words: recovered.pop(0)) as (one, _):
        await one.server.until(lambda: one.server.sent("TAKE_OVER") and one.server.sent("XREADGROUP"))
        assert one.server.sent("TAKE_OVER")[0][5] == "300000"
        one.server.replies["KEEP"] = None
        for link in list(one.server.links):
            link.cut()
        await one.server.until(lambda: len(one.server.sent("XREADGROUP")) == 2)
        assert not recovered
        assert [words[5:] for words in one.server.sent("RECOVER")] == [["-", "64"], ["9-2", "64"]]
        assert [(message.body, message.count) for message in one.came] == [(b"1", 1)]
        assert one.adapter.connection.keeper.gap > 0
        assert one.adapter._worker is not None
        await one.adapter._worker._take_over(b"0-0", 1)
        assert int(one.server.sent("TAKE_OVER")[-1][5]) > 305_000
        one.adapter.connection.keeper.since -= RECONNECT_GRACE
        await one.adapter._worker._take_over(b"0-0", 1)
        assert one.server.sent("TAKE_OVER")[-1][5] == "300000"
        one.server.replies["KEEP"] = bulk([])
