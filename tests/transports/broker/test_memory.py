"""The broker in memory, and on it what the listener of every broker does."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import Context, Peer, Service, connect, serve
from dragoman.channel import Exchange, Options
from dragoman.jsonrpc.errors import LocalError, Refusal
from dragoman.jsonrpc.limits import SERVER
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage, Refused, Unroutable
from dragoman.transports.broker.listener import BrokerListener
from dragoman.transports.broker.memory import MemoryAdapter, broker
from tests.engines.brokers import name
from tests.engines.hostile import ADD, request
from tests.engines.wires import PATIENCE, adapter, calculator, until
from tests.servable import Idle, refused


@pytest.fixture
def url() -> str:
    return f"memory+broker:{name()}"


class Held(Idle):
    """Served: keeps every exchange until the test answers it."""

    name = "held"

    def __init__(self, place: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.came: list[Exchange] = []
        self._place = place

    def exchange(self, x: Exchange) -> None:
        self.came.append(x)
        if not self._place():
            x.respond(refused(Refusal("busy", "Busy"), b"busy"))


class Sender:
    """Sends messages to a queue, as they are, and takes what comes into its mailbox."""

    def __init__(self, adapter: MemoryAdapter) -> None:
        self.adapter = adapter
        self.mailbox = ""
        self.got: asyncio.Queue[BrokerMessage] = asyncio.Queue()

    async def send(self, body: bytes = ADD, correlation: str = "c", ttl: float | None = None, **headers: str) -> None:
        if not self.mailbox:
            self.mailbox = await self.adapter.mailbox(self.got.put_nowait)
        message = BrokerMessage(body=body, reply_to=self.mailbox, correlation=correlation, headers=headers)
        await self.adapter.request(message, ttl)

    async def answer(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return (await self.got.get()).body


def sender(url: str) -> Sender:
    return Sender(MemoryAdapter(parse(url)))


# -- what goes in comes out -----------------------------------------------------------------------

_text = st.text(max_size=50)
_messages = st.builds(
    BrokerMessage,
    body=st.binary(max_size=200),
    reply_to=_text,
    correlation=_text,
    headers=st.dictionaries(_text, _text, max_size=5),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(messages=st.lists(_messages, min_size=1, max_size=8))
def test_letters_come_as_they_were_sent(messages: list[BrokerMessage]) -> None:
    """Requests in their order, with their reply address, correlation and headers; answers too."""

    async def there_and_back() -> None:
        worker, caller = MemoryAdapter(parse("memory+broker:q")), MemoryAdapter(parse("memory+broker:q"))
        requests: list[BrokerMessage] = []
        answers: list[BrokerMessage] = []

        def work(message: BrokerMessage) -> None:
            requests.append(message)
            message.settle("answered")

        await worker.work(work, 1)
        mailbox = await caller.mailbox(answers.append)
        for message in messages:
            await caller.request(message, None)
            await worker.answer(mailbox, message)
        await until(lambda: len(requests) == len(answers) == len(messages))
        for sent, came, answer in zip(messages, requests, answers, strict=True):
            for one in (came, answer):
                assert (one.body, one.reply_to, one.correlation) == (sent.body, sent.reply_to, sent.correlation)
                assert dict(one.headers) == dict(sent.headers)
                assert one.count == 0

    asyncio.run(there_and_back())


# -- the queue ------------------------------------------------------------------------------------


async def test_a_queue_is_bounded_in_requests_and_bytes(url: str) -> None:
    for query, messages in (("max=2", [b"1", b"2", b"3"]), ("bytes=10", [b"x" * 6, b"x" * 4, b"x"])):
        one = sender(f"{url}?{query}")
        with pytest.raises(Unroutable):
            await one.send(messages[0])
        broker().queue(parse(url).path)
        await one.send(messages[0])
        await one.send(messages[1])
        with pytest.raises(Refused, match="is full"):
            await one.send(messages[2])
        broker().queues.clear()


async def test_a_worker_that_raises_nothing_settles_gets_no_more_than_prefetch(url: str) -> None:
    held: list[BrokerMessage] = []
    async with adapter(url) as worker, adapter(url) as other:
        await worker.work(held.append, 2)
        for n in range(4):
            await other.request(BrokerMessage(body=b"%d" % n), None)
        await until(lambda: len(held) == 2)
        held[0].settle("retry")
        await until(lambda: len(held) == 3)
        assert [(message.body, message.count) for message in held] == [(b"0", 0), (b"1", 0), (b"0", 0)]
        held[1].settle("reject")
        held[1].settle("reject")
        await until(lambda: len(held) == 4)
        assert [message.body for message in broker().queues[parse(url).path].dead] == [b"1"]
    assert len(broker().queues[parse(url).path]) == 3  # what it left goes back to the queue
    async with adapter(url) as worker:
        await worker.work(held.append, 10)
        await until(lambda: len(held) == 7)
    assert [(message.body, message.count) for message in held[4:]] == [(b"0", 1), (b"2", 1), (b"3", 0)]


async def test_what_expires_is_not_delivered(url: str) -> None:
    held: list[BrokerMessage] = []
    broker().queue(parse(url).path)
    one = sender(url)
    await one.send(b"late", ttl=0)
    await one.send(b"in time", ttl=60)
    async with adapter(url) as worker:
        await worker.work(held.append, 10)
        await until(lambda: bool(held))
    assert [message.body for message in held] == [b"in time"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory+broker:", "needs a name"),
        ("memory+broker:q?colour=red", "known are"),
        ("memory+broker:q?max=0", "whole number"),
        ("memory+broker:q?reply_to=", "pattern of addresses"),
        ("amqp://127.0.0.1:1/dragoman.q", "is the name of a mailbox"),
    ],
)
async def test_urls_that_make_no_sense(url: str, words: str) -> None:
    with pytest.raises(LocalError, match=re.escape(words)):
        await connect(url)


# -- reply addresses ------------------------------------------------------------------------------


async def test_reply_to_in_the_url_opens_what_it_names_and_nothing_else(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with adapter("memory+broker:elsewhere") as other, serve(calculator(), urls=f"{url}?reply_to=there,else*"):
        got: list[BrokerMessage] = []
        await other.work(got.append, 10)
        one = sender(url)
        for address in ("elsewhere", "elsewher", "there", "nowhere", "xelsewhere"):
            await one.adapter.request(BrokerMessage(body=ADD, reply_to=address), None)
        await until(lambda: len(broker().queues[parse(url).path].dead) == 2)
        await until(lambda: bool(got))
    assert [message.body for message in got] == [b'{"jsonrpc":"2.0","result":3,"id":1}']
    (told,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert told.endswith(
        "1 requests rejected unread; the last one wants its answer at 'nowhere', which is not a mailbox (see ?reply_to=)"
    )


async def test_what_is_rejected_unread_is_counted(url: str) -> None:
    where, held = parse(url), Held()
    listener = BrokerListener(MemoryAdapter(where), where, held, Options(), "q")
    await listener.begin()
    one = sender(url)
    await one.adapter.request(BrokerMessage(body=ADD, reply_to="elsewhere"), None)
    await one.send(correlation="x" * 2_000)
    await one.send()
    await until(lambda: bool(held.came))
    assert listener.refused == 2
    held.came[0].respond(b"done")
    await listener.closed()


# -- keys, cancels, answers -----------------------------------------------------------------------


async def test_a_cancel_without_correlation_cancels_nothing(url: str) -> None:
    """Nor what comes later without one."""
    async with serve(calculator(), urls=url):
        one = sender(url)
        await one.adapter.send_control(BrokerMessage(body=b"", headers={"kind": "cancel"}))
        for _ in range(2):
            await one.send(correlation="")
            assert b'"result":3' in await one.answer()


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (SERVER.but(answers_kept=3), {7, 8, 9}),
        (SERVER.but(answers_kept_size=100), {8, 9}),
        (SERVER.but(answers_kept_size=10), set[int]()),
        (SERVER.but(answers_kept=0), set[int]()),
    ],
)
@pytest.mark.parametrize("shared", [False, True], ids=["here", "shared"])
async def test_answers_kept_are_bounded(url: str, limits: Any, kept: set[int], shared: bool) -> None:
    runs: list[int] = []
    api = Service("counter", limits=limits)

    @api.method(inline=True)
    def note(number: int) -> int:
        runs.append(number)
        return number

    async with serve(api, urls=url, limits=limits, bus=f"memory:{url}" if shared else None) as serving:
        one = sender(url)
        for number in range(10):
            await one.send(request("note", [number]), correlation=f"{number}", key=f"{number}")
            await one.answer()
        if shared:
            bus: Any = serving.bus
            assert len(bus._hub.store) == len(kept)
        else:
            runs.clear()
            for number in sorted(range(10), reverse=True):
                await one.send(request("note", [number]), correlation=f"{number}", key=f"{number}")
                if number in kept:
                    await one.answer()
            await until(lambda: len(runs) == 10 - len(kept))
            assert set(runs) == set(range(10)) - kept


async def test_a_method_that_is_full_is_asked_again_and_its_refusal_is_not_kept(url: str) -> None:
    api, go, ran = Service("narrow"), asyncio.Event(), list[int]()

    @api.method(concurrency=1, queue=0)
    async def narrow(number: int) -> int:
        ran.append(number)
        await go.wait()
        return number

    async with serve(api, urls=url), connect(url, timeout=PATIENCE) as peer:
        first = asyncio.create_task(peer.call("narrow", [1], extra={"key": "a"}))
        await until(lambda: bool(ran))
        second = asyncio.create_task(peer.call("narrow", [2], extra={"key": "b"}))
        await asyncio.wait([second], timeout=0.05)
        go.set()
        assert [await first, await second] == [1, 2]
        assert await peer.call("narrow", [2], extra={"key": "b"}) == 2
    assert ran == [1, 2]


async def test_a_request_that_was_sent_before_says_how_often(url: str) -> None:
    api = Service("told")

    @api.method(inline=True)
    def count(context: Context) -> int:
        return context.redelivered

    async with serve(api, urls=url):
        one = sender(url)
        for again, count_ in (("2", 2), ("99999", 99_999), ("100000", 0), ("-1", 0), ("٣", 0), ("", 0)):
            await one.send(request("count", []), again=again)
            assert b'"result":%d,' % count_ in await one.answer()


# -- places ---------------------------------------------------------------------------------------


async def test_what_finds_no_place_is_offered_again_as_another_exchange(url: str) -> None:
    """When one of ours has ended, and not all of them."""
    places = 2
    held = Held(lambda: len(held.came) <= places)
    async with serve(held, urls=url):
        one = sender(url)
        for n in range(5):
            await one.send(request(id=n), correlation=f"{n}")
        await until(lambda: len(held.came) >= 5)
        places = 100
        before = len(held.came)
        held.came[0].respond(b"first")
        assert await one.answer() == b"first"
        await until(lambda: len(held.came) >= before + 3)
        assert len({id(x) for x in held.came}) == len(held.came)
        for x in held.came[2:]:  # those that were refused are over
            x.respond(x.request)
        held.came[1].respond(b"second")
        answers = [await one.answer() for _ in range(4)]
        assert sorted(answers) == sorted([b"second", *(request(id=n) for n in (2, 3, 4))])


async def test_what_finds_no_place_goes_back_when_the_worker_closes(url: str) -> None:
    held = Held(lambda: False)
    async with serve(held, urls=url):
        one = sender(url)
        await one.send()
        await until(lambda: bool(held.came))
    async with serve(calculator(), urls=url):
        assert b'"result":3' in await one.answer()


async def test_a_deadline_holds_while_there_is_no_place(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(lambda: False)
    async with serve(held, urls=url):
        one = sender(url)
        await one.send(deadline="5000000000000")
        await until(lambda: bool(held.came))
        assert not broker().queues[parse(url).path].dead
        monkeypatch.setattr("dragoman.transports.broker.contract.now", lambda: 6e9)
        await until(lambda: not _worker(url).held)


def _worker(url: str) -> Any:
    (worker,) = broker().queues[parse(url).path].workers
    return worker


async def test_prefetch_is_what_a_channel_may_have_unless_the_url_says(url: str) -> None:
    for limits, query, prefetch in (
        (SERVER.but(calls=5, calls_per_channel=9), "", 5),
        (SERVER.but(calls=9, calls_per_channel=6), "", 6),
        (SERVER, "?prefetch=7", 7),
    ):
        async with serve(calculator(), urls=f"{url}{query}", limits=limits):
            assert _worker(url).prefetch == prefetch


async def test_the_url_shows_the_queue_that_its_query_names(url: str) -> None:
    async with serve(calculator(), urls="memory+broker:team?queue=sums&prefetch=3") as serving:
        assert serving.urls == ["memory+broker:team?queue=sums"]
    async with serve(calculator(), urls=url) as serving:
        assert serving.urls == [url]


async def test_closing_takes_no_more_and_twice_is_once(url: str) -> None:
    where, held = parse(url), Held()
    listener = BrokerListener(MemoryAdapter(where), where, held, Options(), "q")
    await listener.begin()
    one = sender(url)
    await one.send(correlation="1")
    await until(lambda: bool(held.came))
    await listener.close()
    await listener.close()
    await one.send(correlation="2")
    ended = asyncio.gather(listener.closed(), listener.closed())
    held.came[0].respond(b"answer")
    await ended
    assert await one.answer() == b"answer"
    assert len(held.came) == 1
    assert len(broker().queues[where.path]) == 1


# -- what raises ----------------------------------------------------------------------------------


async def test_what_is_served_and_raises_is_answered(url: str, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Held):
        def exchange(self, x: Exchange) -> None:
            raise RuntimeError("a fault of the service's")

    async with serve(Faulty(), urls=f"{url}?prefetch=1"):
        one = sender(url)
        await one.send(request(id=17))
        answer = await one.answer()
        assert b'"code":-32603' in answer
        assert b'"id":17' in answer
        (reference,) = re.findall(rb'"reference":"(\w+)"', answer)
        assert reference.decode() in caplog.text
        await one.send(b'{"jsonrpc":"2.0","method":"x"}')
        await one.adapter.send_control(
            BrokerMessage(body=b'{"jsonrpc":"2.0","method":"x"}', headers={"kind": "broadcast"})
        )
        await one.send(request(id="again"))
        assert b'"id":"again"' in await one.answer()


async def test_an_answer_that_the_broker_refuses_for_ever_is_given_up(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(self: MemoryAdapter, to: str, message: BrokerMessage) -> None:
        raise Refused("never")

    async with serve(calculator(), urls=f"{url}?prefetch=1"), connect(url, timeout=PATIENCE) as peer:
        assert isinstance(peer, Peer)
        with monkeypatch.context() as patched:
            patched.setattr(MemoryAdapter, "answer", refuse)
            one = sender(url)
            await one.send()
            await until(lambda: len(broker().queues[parse(url).path].dead) == 1)
        assert await peer.call("add", [1, 2]) == 3
    assert "an answer cannot be sent" in caplog.text


async def test_whatever_a_post_raises_the_delivery_is_settled(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(self: MemoryAdapter, to: str, message: BrokerMessage) -> None:
        raise UnicodeEncodeError("latin-1", "漢", 0, 1, "ordinal not in range")

    async with serve(calculator(), urls=f"{url}?prefetch=1"), connect(url, timeout=PATIENCE) as peer:
        with monkeypatch.context() as patched:
            patched.setattr(MemoryAdapter, "answer", fail)
            await sender(url).send()
            await until(lambda: len(broker().queues[parse(url).path].dead) == 1)
        assert await peer.call("add", [1, 2]) == 3
    assert "could not be dealt with" in caplog.text


async def test_a_stopped_broker_is_nowhere(url: str) -> None:
    broker().stop()
    with pytest.raises(ConnectionError, match="is away"):
        await connect(url)
    with pytest.raises(LocalError, match="is away"):
        async with serve(calculator(), urls=url):
            pass
    broker().start()
