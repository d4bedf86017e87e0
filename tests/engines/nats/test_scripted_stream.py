"""`nats://...?stream=` against a JetStream that does what a test says: what is asked for, settled, given back and
said."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.channel import Options
from dragoman.engines.nats import connection, stream
from dragoman.engines.nats.stream import StreamAdapter
from dragoman.engines.nats.wire import adapter_at
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage, NotTaken, Refused, Unroutable
from tests.engines.wires import PATIENCE, until

from .scripted import Scripted, Sent, scripted

MESSAGE = BrokerMessage(body=b"{}", reply_to="_INBOX.me", correlation="c", headers={"key": "k"})
NEXT = "$JS.API.CONSUMER.MSG.NEXT.work.workers_q"


class Ends:
    """An adapter on a scripted server, and what it took."""

    def __init__(self, server: Scripted, query: str) -> None:
        self.server = server
        adapter = adapter_at(parse(f"{server.url}/q?stream=work{query}"), Options())
        assert isinstance(adapter, StreamAdapter)
        self.adapter = adapter
        self.states: list[bool] = []
        self.came: list[BrokerMessage] = []
        self.adapter.on_state = self.state
        self.acks: list[tuple[str, bytes]] = []

    def state(self, up: bool, why: str) -> None:
        self.states.append(up)
        self.server.changed.set()

    def take(self, message: BrokerMessage) -> None:
        self.came.append(message)
        self.server.changed.set()

    def asked(self) -> list[dict[str, Any]]:
        """The requests for requests."""
        return [json.loads(sent.body) for sent in self.server.last.said(NEXT)]

    @property
    def box(self) -> str:
        return self.server.last.said(NEXT)[-1].reply

    def give(self, position: int, body: bytes = b"{}", *, count: int = 1, long: bool = False, **headers: str) -> str:
        """Deliver a request; returns the subject of its acknowledgement."""
        domain = "$JS.ACK.domain.account" if long else "$JS.ACK"
        to = f"{domain}.work.workers_q.{count}.{position}.{position}.1700000000.0" + (".random" if long else "")
        self.server.publish(Sent(self.box, body, to, {name.replace("_", "-"): text for name, text in headers.items()}))
        return to

    def said(self, to: str) -> list[bytes]:
        """What was said of a delivery."""
        return [sent.body for sent in self.server.last.said(to) if sent.body != b"+WPI"]

    async def settled(self, to: str, word: bytes) -> None:
        await self.server.until(lambda: self.said(to))
        assert self.said(to) == [word]


@asynccontextmanager
async def ends(query: str = "", *, prefetch: int = 4, work: bool = True, **apis: Any) -> AsyncIterator[Ends]:
    async with scripted() as server:
        server.apis = {
            "STREAM.NAMES": lambda sent: {"streams": ["work-dead" if b".dead" in sent.body else "work"]},
            "CONSUMER.DURABLE": {},
            "STREAM.INFO": {"state": {"last_seq": 7}},
        } | {name.replace("_", "."): answer for name, answer in apis.items()}
        server.taken = lambda sent: {"seq": 1}
        one = Ends(server, query)
        await one.adapter.open()
        try:
            if work:
                await one.adapter.receive_control(one.take)
                await one.adapter.work(one.take, prefetch)
                await server.until(one.asked)
            yield one
        finally:
            await one.adapter.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr(connection, "PAUSES", (0.001, 0.001))


# -- what is there ---------------------------------------------------------------------------------


async def test_what_a_worker_makes() -> None:
    made: list[Sent] = []

    def create(sent: Sent) -> dict[str, Any]:
        made.append(sent)
        return {}

    apis: dict[str, Any] = {"STREAM.NAMES": {"streams": None}, "STREAM.CREATE": create, "CONSUMER.DURABLE": create}
    async with ends("&wait=6&max=5&replicas=3", **apis):
        pass
    requests, dead, consumer = (json.loads(sent.body) for sent in made)
    assert (requests["name"], requests["subjects"], requests["max_msgs"]) == ("work", ["q"], 5)
    assert (requests["retention"], requests["discard"], requests["num_replicas"]) == ("workqueue", "new", 3)
    assert (dead["name"], dead["subjects"], dead["max_msgs"]) == ("work-dead", ["q.dead"], 10_000)
    assert consumer["config"]["durable_name"] == "workers_q"
    assert consumer["config"]["ack_wait"] == 6_000_000_000
    assert made[2].subject == "$JS.API.CONSUMER.DURABLE.CREATE.work.workers_q"


async def test_a_subject_of_another_stream_and_an_error_are_said() -> None:
    async with ends(work=False, STREAM_NAMES={"streams": ["other"]}) as one:
        with pytest.raises(LocalError, match="the subject q belongs to the stream other, not to work"):
            await one.adapter.work(one.take, 1)
    async with ends(work=False, CONSUMER_DURABLE={"error": {"description": "no room"}}) as one:
        with pytest.raises(ConnectionError, match="JetStream says: no room"):
            await one.adapter.work(one.take, 1)


# -- requests in -----------------------------------------------------------------------------------


async def test_it_asks_for_as_many_as_it_has_slots_for() -> None:
    """And for more when a quarter of that is left to come; each question has an answer address of its own."""
    async with ends(prefetch=4) as one:
        assert one.asked() == [{"batch": 4, "expires": 5_000_000_000, "idle_heartbeat": 1_000_000_000}]
        first = one.box
        tos = [one.give(position) for position in (1, 2)]
        await one.server.until(lambda: len(one.came) == 2)
        for message in one.came:
            message.settle("answered")
        for to in tos:
            await one.settled(to, b"+ACK")
        assert len(one.asked()) == 1  # two are to come
        one.give(3)
        await one.server.until(lambda: len(one.asked()) == 2)
        assert one.asked()[1]["batch"] == 2
        assert one.box != first
        one.give(4)
        one.give(5)
        one.give(6)
        await one.server.until(lambda: len(one.came) == 6)
        one.give(6)  # what is held is not taken twice
        one.came[3].settle("nothing_owed")
        await one.server.until(lambda: len(one.asked()) == 3)
        assert (one.asked()[2]["batch"], len(one.came)) == (1, 6)


async def test_what_a_status_says_is_no_longer_asked_for() -> None:
    async with ends("&wait=1", prefetch=8) as one:
        assert one.asked()[0] == {"batch": 8, "expires": 500_000_000, "idle_heartbeat": 166_666_667}

        def status(code: str, **headers: str) -> None:
            one.server.publish(
                Sent(one.box, b"", "", {name.replace("_", "-"): text for name, text in headers.items()}), code
            )

        status("100 Idle Heartbeat")
        status("408 Request Timeout", Nats_Pending_Messages="8")
        await one.server.until(lambda: len(one.asked()) == 2)
        assert one.asked()[1]["batch"] == 8
        one.give(1)
        status("408 Request Timeout", Nats_Pending_Messages="6")
        await one.server.until(lambda: len(one.asked()) == 3)
        assert one.asked()[2]["batch"] == 6  # one is held, one is to come
        status("404 No Messages")
        await one.server.until(lambda: len(one.asked()) == 4)
        assert one.asked()[3]["batch"] == 7


@pytest.mark.parametrize("code", ["503 No Responders", "409 Consumer Deleted"])
async def test_a_consumer_that_is_gone_is_made_again(code: str) -> None:
    async with ends() as one:
        made = "$JS.API.CONSUMER.DURABLE.CREATE.work.workers_q"
        assert len(one.server.last.said(made)) == 1
        number, _, words = code.partition(" ")
        one.server.publish(Sent(one.box, b"", "", {"Description": words}), number)
        await one.server.until(lambda: len(one.asked()) == 2)
        assert len(one.server.last.said(made)) == 2
        one.server.publish(Sent(one.box, b"", "", {"Description": "Exceeded MaxWaiting"}), "409")
        await one.server.until(lambda: len(one.asked()) == 3)
        assert len(one.server.last.said(made)) == 2


async def test_what_a_request_says() -> None:
    async with ends(prefetch=8) as one:
        one.give(1, b"1", reply_to="_INBOX.me", correlation="c", Nats_Msg_Id="c", a="b")
        one.give(2, b"2", count=3, long=True, key="k", correlation="d")
        one.give(3, b"3", count=2, delivered="4")
        await one.server.until(lambda: len(one.came) == 3)
        assert [(came.body, came.reply_to, came.correlation, came.headers, came.count) for came in one.came] == [
            (b"1", "_INBOX.me", "c", {"a": "b", "key": "c"}, 0),
            (b"2", "", "d", {"key": "k"}, 2),
            (b"3", "", "", {"delivered": "4"}, 5),
        ]


async def test_what_was_there_before_a_server_began_may_have_been_delivered() -> None:
    async with ends() as one:
        one.server.server = "B"
        one.server.last.cut()
        await one.server.until(lambda: one.states == [False, True] and one.asked())
        one.give(7, long=True)
        one.give(8)
        one.give(6, count=3)
        await one.server.until(lambda: len(one.came) == 3)
        assert [came.count for came in one.came] == [1, 0, 2]


# -- how they end ----------------------------------------------------------------------------------


async def test_how_each_delivery_ends(caplog: pytest.LogCaptureFixture) -> None:
    stored: list[Sent] = []

    def taken(sent: Sent) -> dict[str, Any] | None:
        if sent.subject.startswith("$JS.ACK"):
            return None
        stored.append(sent)
        return {"seq": 1}

    async with ends(prefetch=8) as one:
        one.server.taken = taken
        tos = [
            one.give(
                position, b"%d" % position, reply_to="_INBOX.me", correlation=f"c{position}", Nats_Msg_Id="x", a="b"
            )
            for position in range(1, 6)
        ]
        await one.server.until(lambda: len(one.came) == 5)
        for message, outcome in zip(one.came, ("answered", "nothing_owed", "retry", "reject"), strict=False):
            message.settle(outcome)  # type: ignore[arg-type]
        for to, word in zip(tos, (b"+ACK", b"+ACK", b"+ACK", b"+TERM"), strict=False):
            await one.settled(to, word)
        one.came[0].settle("reject")
        back, dead = sorted(stored, key=lambda sent: sent.subject)
        assert (back.subject, back.body) == ("q", b"3")
        assert back.headers == {
            "reply-to": "_INBOX.me",
            "correlation": "c3",
            "a": "b",
            "again": "1",
            "delivered": "0",
        }
        assert (dead.subject, dead.body, dead.headers["a"]) == ("q.dead", b"4", "b")
        # what is not taken comes again
        one.server.taken = lambda sent: {"error": {"description": "full", "err_code": 1}}
        more = [one.give(position) for position in (6, 7)]
        await one.server.until(lambda: len(one.came) == 7)
        one.came[5].settle("retry")
        await one.settled(more[0], b"-NAK")
        one.came[6].settle("reject")
        await until(lambda: "could not be set aside and will come again: JetStream says: full" in caplog.text)
        one.give(7)
        await one.server.until(lambda: len(one.came) == 8)
        await one.adapter.close()
        assert one.said(tos[4]) == [b"-NAK"]
        assert one.said(more[1]) == [b"-NAK"]


async def test_it_says_that_it_works_and_takes_no_more_when_it_leaves() -> None:
    async with ends("&wait=1") as one:
        to = one.give(1)
        await one.server.until(lambda: one.came)
        await one.server.until(lambda: b"+WPI" in [sent.body for sent in one.server.last.said(to)])
        await one.adapter.pause()
        before = len(one.asked())
        one.came[0].settle("answered")
        await one.settled(to, b"+ACK")
        assert len(one.asked()) == before


# -- a caller --------------------------------------------------------------------------------------


async def test_how_a_request_looks_and_what_the_server_says() -> None:
    answers: list[dict[str, Any] | None] = [{"seq": 1}]
    seen: list[Sent] = []

    def taken(sent: Sent) -> dict[str, Any] | None:
        seen.append(sent)
        return answers.pop()

    async with ends(work=False) as one:
        one.server.taken = taken
        await one.adapter.request(MESSAGE, None)
        assert (seen[0].subject, seen[0].body) == ("q", b"{}")
        assert seen[0].headers == {"key": "k", "reply-to": "_INBOX.me", "correlation": "c", "Nats-Msg-Id": "c"}
        for code, error in ((10_008, NotTaken), (10_009, NotTaken), (10_077, Refused)):
            answers.append({"error": {"err_code": code, "description": "no"}})
            with pytest.raises(error, match=rf"NATS does not take the message: no \({code}\)"):
                await one.adapter.request(MESSAGE, None)
        answers.append(None)
        with pytest.raises(NotTaken, match="JetStream is not up yet"):  # it was there a moment ago
            await one.adapter.request(MESSAGE, None)
        with pytest.raises(Refused, match="takes 1000"):
            await one.adapter.request(BrokerMessage(body=b"x" * 1_001), None)
    async with ends(work=False) as one:
        one.server.taken = None
        with pytest.raises(Unroutable, match="there is no stream for it"):
            await one.adapter.request(MESSAGE, None)


async def test_a_caller_comes_back_as_a_worker_does() -> None:
    async with ends(work=False) as one:
        one.server.last.cut()
        await one.server.until(lambda: one.states == [False, True])
        assert one.adapter.limit < 1_000


@pytest.mark.parametrize("name", ["", "a.b", "a" * 101, "a*"])
def test_what_is_no_name_of_a_stream(name: str) -> None:
    with pytest.raises(LocalError, match="is made of letters, digits, - and _"):
        stream.stream_of(parse(f"nats://host/q?stream={name}"))


async def test_where_answers_go(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stream, "MAILBOX", (0.0, 0.0))
    caplog.set_level(logging.INFO)
    async with ends(work=False) as one:
        one.server.taken = None
        box = await one.adapter.mailbox(one.take)
        async with asyncio.timeout(PATIENCE):
            await one.adapter.answer(box, BrokerMessage(body=b"1", correlation="c"))
            assert [(came.body, came.correlation) for came in one.came] == [(b"1", "c")]
            await one.adapter.answer("_INBOX.gone", BrokerMessage(body=b"1", correlation="c"))
            assert len(one.server.last.said("_INBOX.gone.c")) == 3
            assert "the caller that waited for an answer is gone" in caplog.text
            await one.adapter.answer("no subject", BrokerMessage(body=b"1", correlation="c"))
            assert "an answer has nowhere to go" in caplog.text
            with pytest.raises(Refused):
                await one.adapter.answer(box, BrokerMessage(body=b"x" * 1_001, correlation="c"))
