"""`redis://` against a Redis that does what a test says: how outages, refusals and full queues are told, and what goes
over the wire then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.channel import Options
from dragoman.engines.redis.wire import RedisAdapter, adapter_at
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage, NotTaken, Refused, Unroutable

from .scripted import Scripted, bulk, scripted

MESSAGE = BrokerMessage(body=b"{}", reply_to="q:to:me", correlation="c")


class Ends:
    """An adapter on a scripted server, what it told, and what it took."""

    def __init__(self, server: Scripted, adapter: RedisAdapter) -> None:
        self.server, self.adapter = server, adapter
        self.states: list[tuple[bool, str]] = []
        self.came: list[BrokerMessage] = []
        adapter.on_state = self.state

    def state(self, alive: bool, why: str) -> None:
        self.states.append((alive, why))
        self.server.changed.set()

    def take(self, message: BrokerMessage) -> None:
        self.came.append(message)
        self.server.changed.set()

    @property
    def alive(self) -> list[bool]:
        """What was told, without the tries that failed."""
        told = [alive for alive, _ in self.states]
        return [one for at, one in enumerate(told) if at == 0 or one != told[at - 1]]


@asynccontextmanager
async def ends(query: str = "", **replies: Any) -> AsyncIterator[Ends]:
    async with scripted() as server:
        server.replies |= replies
        one = Ends(server, adapter_at(parse(f"{server.url}/q{query}"), Options()))
        await one.adapter.open()
        try:
            yield one
        finally:
            await one.adapter.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr("dragoman.engines.redis.connection.PAUSES", (0.0, 0.0))


# -- what it knows of the server ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "limit"),
    [
        (bulk(["proto-max-bulk-len", "1048576"]), 1_048_576),
        (bulk([]), 536_870_912),
        (b"-NOPERM this user has no permissions\r\n", 536_870_912),
    ],
)
async def test_the_longest_message_is_what_the_server_says(reply: bytes, limit: int) -> None:
    async with ends(CONFIG=reply) as one:
        assert one.adapter.limit == limit
        assert one.adapter.durable is True


# -- outages --------------------------------------------------------------------------------------


async def test_the_loss_of_any_connection_is_told_once_and_its_return_when_all_are_back() -> None:
    async with ends() as one:
        await one.adapter.mailbox(one.take)
        await one.server.until(lambda: one.server.sent("XREAD"))
        await one.adapter.receive_control(one.take)
        for name in ("XREAD", "SUBSCRIBE", "CONFIG"):
            one.states.clear()
            one.server.over(name).cut()
            await one.server.until(lambda: one.states and one.states[-1][0])
            assert one.alive == [False, True], name
            assert one.states[0][1]
        # two at once: it is back when both are
        one.states.clear()
        before = len(one.server.sent("PEXPIRE"))
        one.server.replies["PEXPIRE"] = None
        box, connection = one.server.over("XREAD"), one.server.links[0]
        box.cut()
        await one.server.until(lambda: len(one.server.sent("PEXPIRE")) > before)
        assert one.alive == [False]
        connection.cut()
        await connection.ended.wait()
        await one.server.until(lambda: one.adapter.connection.alive)
        assert one.alive == [False]
        one.server.replies["PEXPIRE"] = bulk(1)
        one.server.over("PEXPIRE").cut()
        await one.server.until(lambda: one.states[-1][0])
        assert one.alive == [False, True]


async def test_a_mailbox_that_is_not_there_any_more_ends_the_calls_in_flight() -> None:
    async with ends(PEXPIRE=bulk(0)) as one:
        await one.adapter.mailbox(one.take)
        await one.server.until(lambda: one.server.sent("XREAD"))
        assert one.states == []  # it was made for the first time
        one.server.over("XREAD").cut()
        await one.server.until(lambda: one.states and one.states[-1][0])
        assert (False, "it has lost what it held") in one.states
        assert one.adapter.durable is True


async def test_nothing_is_told_after_the_end() -> None:
    async with ends() as one:
        await one.adapter.mailbox(one.take)
        await one.adapter.close()
        assert one.server.sent("DEL") == [[one.adapter._mailbox]]
        await one.adapter.close()
        assert one.states == []
        assert len(one.server.sent("DEL")) == 1


# -- requests -------------------------------------------------------------------------------------


async def test_what_becomes_of_a_request() -> None:
    sizes = iter([bulk(1), bulk(-50), bulk(0), b"-OOM command not allowed\r\n"])
    async with ends("?max=50", REQUEST=lambda words: next(sizes)) as one:
        await one.adapter.request(MESSAGE, None)
        with pytest.raises(Refused, match="is full: it holds 50 requests"):
            await one.adapter.request(MESSAGE, None)
        with pytest.raises(Unroutable, match="there is no such stream"):
            await one.adapter.request(MESSAGE, None)
        with pytest.raises(Refused, match="does not take it"):
            await one.adapter.request(MESSAGE, None)
        first = one.server.sent("REQUEST")[0]
        assert first[1:4] == ["1", "q", "50"]
        assert first[4:] == ['{"to":"q:to:me","id":"c"}', "{}"]


async def test_after_an_outage_a_missing_queue_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends(REQUEST=bulk(0)) as one:
        one.server.over("CONFIG").cut()
        await one.server.until(lambda: one.states and one.states[-1][0])
        with pytest.raises(NotTaken, match="not there again yet"):
            await one.adapter.request(MESSAGE, None)
        monkeypatch.setattr("dragoman.net.reconnect.RECONNECT_GRACE", 0.0)
        with pytest.raises(Unroutable):
            await one.adapter.request(MESSAGE, None)


async def test_a_request_that_may_be_there_is_sent_again_with_its_mark_and_of_so_many_alone() -> None:
    async with ends("?max=2", REQUEST=None) as one:
        for correlation in ("a", "b", "c"):
            sending = asyncio.ensure_future(
                one.adapter.request(BrokerMessage(body=b"{}", correlation=correlation), None)
            )
            await one.server.until(lambda: "REQUEST" in one.server.links[-1].names)
            one.states.clear()
            one.server.over("REQUEST").cut()
            with pytest.raises(ConnectionError):
                await sending
            with pytest.raises(NotTaken, match="is away"):
                await one.adapter.request(MESSAGE, None)
            await one.server.until(lambda: one.states and one.states[-1][0])
        one.server.replies["REQUEST"] = bulk(1)
        for correlation in ("a", "b", "c", "a"):
            await one.adapter.request(BrokerMessage(body=b"{}", correlation=correlation), None)
        again = one.server.sent("AGAIN")
        assert [words[4:7] for words in again] == [
            ['{"id":"a","count":1}', "{}", '"id":"a"'],
            ['{"id":"b","count":1}', "{}", '"id":"b"'],
        ]
        assert all(int(words[7]) >= 1_000 for words in again)
        assert [words[4] for words in one.server.sent("REQUEST")[3:]] == ['{"id":"c"}', '{"id":"a"}']


# -- answers --------------------------------------------------------------------------------------


async def test_answers_are_read_from_the_last_on_and_trimmed_together() -> None:
    entries = [[f"{n}-{n}", ["head", '{"id":"c"}', "body", str(n)]] for n in range(1, 65)]
    parts = [entries[:31], entries[31:32], entries[32:63], None, None]

    def read(words: list[str]) -> bytes | None:
        part = parts.pop(0) if parts else "none"
        return None if part == "none" else bulk(None) if part is None else bulk([["q:to:me", part]])

    async with ends(XREAD=read) as one:
        box = await one.adapter.mailbox(one.take)
        await one.server.until(lambda: len(one.server.sent("XREAD")) == 6)
        assert [message.body for message in one.came] == [b"%d" % n for n in range(1, 64)]
        assert [words[-1] for words in one.server.sent("XREAD")] == [
            "0-0",
            "31-31",
            "32-32",
            "63-63",
            "63-63",
            "63-63",
        ]
        # at 32, and in the first pause
        assert one.server.sent("XTRIM") == [[box, "MINID", "32-33"], [box, "MINID", "63-64"]]
        assert [words for words in one.server.seen if words[0] == "PEXPIRE" and words[1] == box]


async def test_what_is_no_message_in_the_mailbox_is_left_out() -> None:
    entries = [["1-1", ["head", "no JSON", "body", "x"]], ["2-2", ["head", '{"id":"c"}', "body", "2"]]]
    parts = [bulk([["q:to:me", entries]])]
    async with ends(XREAD=lambda words: parts.pop() if parts else None) as one:
        await one.adapter.mailbox(one.take)
        await one.server.until(lambda: len(one.server.sent("XREAD")) == 2)
        assert [message.body for message in one.came] == [b"2"]


async def test_an_answer_whose_mailbox_is_gone_or_that_is_refused_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    replies = iter([bulk("1-0"), b"$-1\r\n", b"-OOM command not allowed\r\n"])
    async with ends(XADD=lambda words: next(replies)) as one:
        for _ in range(3):
            await one.adapter.answer("q:to:me", MESSAGE)
        assert one.server.sent("XADD")[0] == [
            *("q:to:me", "NOMKSTREAM", "*", "head", '{"to":"q:to:me","id":"c"}', "body", "{}"),
        ]
    assert "the mailbox of an answer is gone" in caplog.text
    assert "Redis does not take answers" in caplog.text


async def test_a_broadcast_that_is_refused() -> None:
    async with ends(PUBLISH=b"-NOPERM no\r\n") as one:
        with pytest.raises(Refused, match="does not take it"):
            await one.adapter.send_control(MESSAGE)
