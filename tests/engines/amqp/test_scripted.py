"""A connection to a RabbitMQ that does what a test says: what goes over it, how it is lost, and how it comes back."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiormq
import pytest
from pamqp.commands import Basic, Channel, Connection
from pamqp.header import ContentHeader

from dragoman.engines.amqp import connection
from dragoman.engines.amqp.connection import (
    AmqpConnection,
    BrokerInternalError,
    BrokerSilent,
    QueueFull,
    SharedAmqpConnection,
    Unrouted,
    connect,
)
from dragoman.net.urls import parse
from tests.engines.waits import Waits
from tests.engines.wires import PATIENCE

from .scripted import Link, Scripted, scripted


class Ends:
    """A connection to a scripted server, and what it told."""

    def __init__(self, server: Scripted, connection: AmqpConnection) -> None:
        self.server, self.connection = server, connection
        self.states: list[tuple[bool, str]] = []
        self.came: list[Any] = []
        connection.keeper.states.append(self.state)

    def state(self, alive: bool, why: str) -> None:
        self.states.append((alive, why))
        self.server.changed.set()

    def take(self, message: Any) -> None:
        self.came.append(message)
        self.server.changed.set()

    @property
    def link(self) -> Link:
        return self.server.last

    async def back(self) -> None:
        """Until it is back."""
        await self.server.until(lambda: self.states and self.states[-1][0])
        self.states.clear()

    async def publish(self, **more: Any) -> None:
        await self.connection.publish("x", "k", b"{}", name="n", **more)


@asynccontextmanager
async def ends(path: str = "", vhost: str = "") -> AsyncIterator[Ends]:
    async with scripted() as server:
        one = Ends(server, AmqpConnection(parse(f"{server.url}/{path}"), vhost=vhost, role="wire"))
        await one.connection.begin()
        try:
            yield one
        finally:
            await one.connection.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr(connection, "PAUSES", (0.0, 0.0))


# -- connecting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "tls", "dialled", "context"),
    [
        ("amqp://host", None, "amqp://guest:guest@host:5672?heartbeat=9&name=dragoman", None),
        ("amqp://host", "given", "amqp://guest:guest@host:5672?heartbeat=9&name=dragoman", "given"),
        ("amqps://a:b%2F@host:1", None, "amqps://a:b%2F@host:1?heartbeat=9&name=dragoman", "made"),
        ("amqps://[::1]", "given", "amqps://guest:guest@[::1]:5671?heartbeat=9&name=dragoman", "given"),
    ],
)
async def test_how_it_dials(
    url: str, tls: Any, dialled: str, context: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context for TLS is made where there is none, and only for `amqps://`: the library's own checks no host."""
    found: list[Any] = []

    async def dial(url: str, *, context: Any) -> None:
        found.extend((url, context))

    monkeypatch.setattr(aiormq, "connect", dial)
    await connect(parse(url), vhost="", tls=tls, heartbeat=9)
    assert found[0] == dialled
    made = isinstance(found[1], ssl.SSLContext) and found[1].check_hostname
    assert made if context == "made" else found[1] == context


@pytest.mark.parametrize(("vhost", "opened"), [("", "/"), ("/", "/"), ("a/b", "a/b")])
async def test_what_it_says_of_itself(vhost: str, opened: str) -> None:
    async with ends("?heartbeat=7", vhost) as one:
        start, tune, opening = one.link.seen[:3]
        assert start.response == "\0guest\0guest"
        assert (tune.heartbeat, opening.virtual_host) == (7, opened)
        assert (one.connection.alive, one.connection.keeper.young) == (True, False)


async def test_a_connection_that_is_dropped_is_not_given_again() -> None:
    """Though it is not closed yet."""
    dialled = SharedAmqpConnection(parse("amqp://host"), "", None, 10)
    closing, closed = asyncio.Event(), asyncio.Event()

    class There:
        is_closed = False

        async def close(self) -> None:
            closing.set()
            await closed.wait()

    async def dial() -> There:
        return There()

    dialled._dial = dial  # type: ignore[assignment]
    first = await dialled.get()
    assert await dialled.get() is first
    dropping = asyncio.create_task(dialled.drop(first))
    await closing.wait()
    second = await dialled.get()
    assert second is not first
    await_first = asyncio.create_task(dialled.drop(first))  # it was dropped before: the second one stays
    await asyncio.sleep(0)
    assert await dialled.get() is second
    closed.set()
    await asyncio.gather(dropping, await_first)
    await dialled.close()
    assert dialled._current is None


# -- what goes over it -----------------------------------------------------------------------------


async def test_what_is_published() -> None:
    async with ends() as one:
        await one.publish()
        await one.publish(reply_to="r", correlation="c", headers={"a": "b"}, persistent=False, mandatory=True)
        first, second = one.link.published
        for sent in (first, second):
            assert (sent.to.exchange, sent.to.routing_key, sent.body) == ("x", "k", b"{}")
            assert (sent.about.content_type, sent.about.message_id) == ("application/json", "n")
        about = [(sent.about.delivery_mode, sent.about.reply_to, sent.about.correlation_id) for sent in (first, second)]
        assert about == [(2, None, None), (1, "r", "c")]
        assert [sent.about.headers for sent in (first, second)] == [None, {"a": "b"}]
        assert [sent.to.mandatory for sent in (first, second)] == [False, True]


async def test_what_is_not_taken() -> None:
    def returned(link: Link, channel: int, one: Any) -> None:
        link.send(channel, Basic.Return(312, "NO_ROUTE", "x", "k"), ContentHeader(properties=link.published[-1].about))
        link.confirm(channel)

    async with ends() as one:
        one.server.answers["Basic.Publish"] = returned
        with pytest.raises(Unrouted, match="no queue 'k'"):
            await one.publish(mandatory=True)
        one.server.answers["Basic.Publish"] = lambda link, channel, sent: link.send(channel, Basic.Nack(2))
        with pytest.raises(QueueFull, match="the queue is full"):
            await one.publish()
        assert one.connection.alive


async def test_deliveries_are_settled_in_their_order() -> None:
    async with ends() as one:
        tag = await one.connection.consume("q", one.take)
        for number in (1, 2, 3):
            one.link.deliver(tag, number, b"%d" % number)
        await one.server.until(lambda: len(one.came) == 3)
        assert [message.body for message in one.came] == [b"1", b"2", b"3"]
        channel = one.connection.channel
        for number, how in ((1, "ack"), (2, "requeue"), (3, "dead")):
            one.connection.settle(channel, number, how)
        one.connection.settle(object(), 4, "ack")  # of a channel that is gone
        await one.server.until(lambda: len(one.link.got("Basic.Reject")) == 2)
        assert [ack.delivery_tag for ack in one.link.got("Basic.Ack")] == [1]
        assert [(no.delivery_tag, no.requeue) for no in one.link.got("Basic.Reject")] == [(2, True), (3, False)]


async def test_an_acknowledgement_that_cannot_be_sent_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """The broker delivers it again."""
    caplog.set_level(logging.DEBUG)

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("closing")

    async with ends() as one:
        one.connection.channel.basic_ack = broken
        one.connection.settle(one.connection.channel, 1, "ack")
        assert one.connection._acker is not None
        await one.connection._acker
        assert "an acknowledgement could not be sent: closing" in caplog.text
        one.connection.settle(one.connection.channel, 2, "dead")  # the next one has a task again
        await one.server.until(lambda: one.link.got("Basic.Reject"))


# -- how it is lost --------------------------------------------------------------------------------


async def test_what_waits_for_a_connection_that_is_lost_fails() -> None:
    """In one task, as often as it is lost; what is cancelled by its owner is cancelled."""
    async with ends() as one:
        one.server.answers.pop("Basic.Publish")
        one.server.answers.pop("Queue.Declare")
        for _ in range(2):
            asked = asyncio.ensure_future(one.connection.queue("q"))
            link = one.link
            await one.server.until(lambda: link.got("Queue.Declare"))  # noqa: B023
            link.cut()
            with pytest.raises(ConnectionError):
                await asked
            await one.back()

            async def cut(link: Link) -> None:
                await one.server.until(lambda: link.published)
                link.cut()

            cutting = asyncio.ensure_future(cut(one.link))
            with pytest.raises(ConnectionError):
                await one.publish()
            await cutting
            await one.back()
        assert (one.connection._publishing, one.connection._dropped) == (set(), set())
        sending = asyncio.ensure_future(one.publish())
        await one.server.until(lambda: one.link.published)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_what_the_library_leaves_waiting_is_ended() -> None:
    """As often as the connection is lost."""
    async with ends() as one:
        for _ in range(2):
            begun = asyncio.Event()

            async def never(*_: object, begun: asyncio.Event = begun, **__: object) -> None:
                begun.set()
                await asyncio.Event().wait()

            async def cut(begun: asyncio.Event = begun) -> None:
                await begun.wait()
                one.link.cut()

            one.connection.channel.basic_publish = never
            cutting = asyncio.ensure_future(cut())
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(ConnectionError, match="RabbitMQ was lost"):
                    await one.publish()
            await cutting
            await one.back()


@pytest.mark.parametrize("fault", [asyncio.CancelledError(), Exception("closed")])
async def test_what_the_library_ends_is_lost(fault: BaseException) -> None:
    """It cancels, or raises Exception itself, where it closes a channel."""

    async def ended(*_: object, **__: object) -> None:
        raise fault

    async with ends() as one:
        one.connection.channel.queue_declare = ended
        with pytest.raises(ConnectionError, match="RabbitMQ was lost"):
            await one.connection.queue("q")


async def test_what_the_server_does_not_answer_is_named() -> None:
    async with ends() as one:
        one.server.answers.pop("Queue.Declare")
        one.connection._patience = 0.02
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(BrokerSilent, match="it does not answer about the queue 'q', which may have no leader"):
                await one.connection.queue("q")


async def test_what_the_server_says_at_the_end() -> None:
    async with ends() as one:
        one.server.answers["Queue.Declare"] = lambda link, channel, sent: link.send(
            0, Connection.Close(541, "INTERNAL_ERROR", 0, 0)
        )
        with pytest.raises(BrokerInternalError):
            await one.connection.queue("q")
        await one.server.until(lambda: one.states)
        assert "INTERNAL_ERROR" in one.states[0][1]
        await one.back()
        assert len(one.server.links) == 2


async def test_a_channel_that_is_closed_is_made_anew_on_the_same_connection() -> None:
    async with ends() as one:
        renewed = asyncio.Event()

        async def renew() -> None:
            renewed.set()

        one.connection.renew = renew
        one.link.send(one.link.channel, Channel.Close(406, "PRECONDITION_FAILED", 0, 0))
        await one.back()
        assert renewed.is_set()
        assert (len(one.server.links), len(one.link.got("Channel.Open"))) == (1, 2)
        connected, tag = one.connection.next_connected, await one.connection.consume("q", one.take)
        one.link.send(one.link.channel, Basic.Cancel(tag))
        await one.server.until(lambda: one.states)
        assert one.states[0] == (False, "the broker took a queue away")
        await one.back()
        assert connected.is_set()
        assert (len(one.server.links), len(one.link.got("Channel.Open"))) == (1, 3)


async def test_it_is_young_for_a_while_after_its_return(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends() as one:
        assert not one.connection.keeper.young
        one.link.cut()
        await one.back()
        monkeypatch.setattr("dragoman.net.reconnect.RECONNECT_GRACE", 3600.0)
        assert one.connection.keeper.young
        monkeypatch.setattr("dragoman.net.reconnect.RECONNECT_GRACE", 0.0)
        assert not one.connection.keeper.young


class Clock(Waits):
    """In the place of asyncio: a wait for some time, which passes when the test says so."""

    def __init__(self) -> None:
        self.waits: asyncio.Queue[float] = asyncio.Queue()
        self.ticks: asyncio.Queue[None] = asyncio.Queue()

    async def wait(self, tasks: list[asyncio.Future[Any]], timeout: float | None = None) -> Any:
        if timeout is None:
            return await asyncio.wait(tasks)
        self.waits.put_nowait(timeout)
        both = asyncio.ensure_future(asyncio.wait(tasks)), asyncio.ensure_future(self.ticks.get())
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in both:
            one.cancel()
        return {task for task in tasks if task.done()}, {task for task in tasks if not task.done()}

    async def waiting(self) -> float:
        """Until it waits, and how long it would."""
        async with asyncio.timeout(PATIENCE):
            return await self.waits.get()


async def test_a_server_that_is_silent_is_lost_and_one_that_is_busy_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for something after half the time; while it delivers it may answer late."""
    clock = Clock()
    monkeypatch.setattr(connection, "asyncio", clock)
    async with ends("?heartbeat=8") as one:
        tag = await one.connection.consume("q", one.take)
        assert await clock.waiting() == 4
        clock.ticks.put_nowait(None)
        assert await clock.waiting() == 4
        assert one.states == []
        await one.connection.queue("q")  # it is answered after that
        assert len(one.link.got("Basic.Qos")) == 1
        clock.ticks.put_nowait(None)
        assert await clock.waiting() == 4
        one.server.answers.pop("Basic.Qos")
        clock.ticks.put_nowait(None)
        assert await clock.waiting() == 4
        await one.server.until(lambda: len(one.link.got("Basic.Qos")) == 2)
        one.link.deliver(tag, 1, b"x")
        await one.server.until(lambda: one.came)
        clock.ticks.put_nowait(None)
        assert await clock.waiting() == 4
        assert one.states == []
        clock.ticks.put_nowait(None)
        await one.server.until(lambda: one.states)
        assert one.states[0] == (False, "it was silent for 8 s")
        await one.back()


async def test_a_connection_that_is_lost_while_it_is_asked_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(connection, "asyncio", clock)
    async with ends() as one:
        one.server.answers["Basic.Qos"] = lambda link, channel, sent: link.cut()
        await clock.waiting()
        clock.ticks.put_nowait(None)
        await one.back()
        assert len(one.server.links) == 2


async def test_a_question_that_fails_is_a_loss_of_the_channel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(connection, "asyncio", clock)

    async def broken(**_: object) -> None:
        raise aiormq.exceptions.AMQPError("no")

    async with ends() as one:
        await clock.waiting()
        one.connection.channel.basic_qos = broken
        clock.ticks.put_nowait(None)
        await clock.waiting()
        clock.ticks.put_nowait(None)
        await one.back()
        assert (len(one.server.links), len(one.link.got("Channel.Open"))) == (1, 2)


async def test_a_question_that_is_refused_ends_the_channel() -> None:
    async with ends() as one:
        one.server.answers["Basic.Qos"] = lambda link, channel, sent: link.send(
            channel, Channel.Close(540, "NOT_IMPLEMENTED", 0, 0)
        )
        one.connection.heartbeat = 1
        one.link.send(one.link.channel, Channel.Close(406, "PRECONDITION_FAILED", 0, 0))
        await one.back()
        await one.server.until(lambda: one.states)
        assert "NOT_IMPLEMENTED" in one.states[0][1]
        one.connection.heartbeat = 10
        await one.back()
        assert len(one.server.links) == 1


async def test_the_time_for_an_answer_grows_while_there_is_none() -> None:
    async with ends() as one:
        one.connection._patience = 2.0
        faults: list[OSError] = [ConnectionError("refused"), BrokerSilent("nothing")]

        async def renew() -> None:
            raise faults[0] if len(faults) == 1 else faults.pop(0)

        one.connection.renew = renew
        with pytest.raises(ConnectionError, match="refused"):
            await one.connection._connect()
        assert one.connection._patience == 2.0
        with pytest.raises(BrokerSilent):
            await one.connection._connect()
        assert one.connection._patience == pytest.approx(2.4)
        for _ in range(10):
            await one.connection._closings.wait(None)  # a silent connection is given up
            with pytest.raises(BrokerSilent):
                await one.connection._connect()
        assert one.connection._patience == connection.PATIENCE


# -- the end ---------------------------------------------------------------------------------------


async def test_it_closes_its_channel_and_then_the_connection() -> None:
    async with ends() as one:
        one.connection.settle(one.connection.channel, 1, "ack")
        await one.connection.close()
        assert one.link.names()[-3:] == ["Basic.Ack", "Channel.Close", "Connection.Close"]
        assert not one.connection.alive


async def test_an_end_that_goes_wrong_is_the_connection_s_end(caplog: pytest.LogCaptureFixture) -> None:
    """A channel that cannot be closed takes the connection with it."""
    caplog.set_level(logging.DEBUG)

    async def broken() -> None:
        raise OSError("no")

    async with ends() as one:
        there, one.connection.channel.close = one.connection._connection, broken
        await one.connection.close()
        assert there.is_closed
        assert one.states == []
    assert "a connection to RabbitMQ ended badly: no" in caplog.text
    assert "could not be dealt with" not in caplog.text
