"""RabbitMQ, the real server: what is promised when all is well. Faults are in `test_amqp_faults`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import Context, Peer, Service, connect, serve
from dragoman.channel import Broken, Options
from dragoman.jsonrpc.errors import CallTimeout, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, SERVER
from dragoman.transports.amqp import AmqpPost
from dragoman.transports.broker import Letter, Refused, Unroutable
from dragoman.transports.urls import parse

from .engines import Engine, name

PATIENCE = 30.0


def calculator() -> Service:
    api = Service("calculator")

    @api.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @api.method(inline=True)
    def repeat(text: str, times: int) -> str:
        return text * times

    return api


@asynccontextmanager
async def post(url: str) -> AsyncIterator[AmqpPost]:
    """The broker's own face, for messages that no peer of ours would send."""
    one = AmqpPost(parse(url), Options())
    await one.connect()
    try:
        yield one
    finally:
        await one.close()


async def dead(url: str, queue: str) -> Letter:
    """The first message of a dead-letter queue."""
    found: asyncio.Future[Letter] = asyncio.get_running_loop().create_future()
    async with post(f"{url}/{queue}.dead?declare=no") as one:
        await one.work(lambda letter: None if found.done() else found.set_result(letter), 1)
        async with asyncio.timeout(PATIENCE):
            letter = await found
        letter.settle("answered")
        return letter


async def test_calls_batches_and_notifications(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    heard: asyncio.Queue[int] = asyncio.Queue()
    api = calculator()

    @api.method
    async def note(number: int) -> None:
        heard.put_nowait(number)

    async with serve(api, urls=[url]) as serving, connect(url) as peer:
        assert serving.urls[0].startswith("amqp://127.0.0.1:")
        assert await peer.call("add", [1, 2]) == 3
        with pytest.raises(RpcError) as refused:
            await peer.call("add", ["one", 2])
        assert refused.value.code == -32602
        async with peer.batch() as batch:
            first, second = batch.call("add", [1, 2]), batch.call("nothing")
            batch.notify("note", [7])
        assert first.result() == 3
        assert isinstance(second.exception(), RpcError)
        await peer.notify("note", [8])
        assert {await heard.get(), await heard.get()} == {7, 8}


async def test_workers_compete_and_a_broadcast_reaches_all(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}?prefetch=1"
    heard: asyncio.Queue[str] = asyncio.Queue()

    def worker(who: str) -> Service:
        api = Service(who)

        @api.method
        async def work(ctx: Context) -> str:
            busy.add(who)
            both.set() if len(busy) == 2 else None
            await both.wait()
            return who

        @api.method
        async def news(text: str) -> None:
            heard.put_nowait(f"{who} {text}")

        return api

    busy: set[str] = set()
    both = asyncio.Event()
    async with serve(worker("a"), urls=[url]), serve(worker("b"), urls=[url]), connect(url) as peer:
        async with asyncio.timeout(PATIENCE):
            done = await asyncio.gather(peer.call("work"), peer.call("work"))
            assert set(done) == {"a", "b"}
            await peer.notify("news", ["hello"], broadcast=True)
            assert {await heard.get(), await heard.get()} == {"a hello", "b hello"}


async def test_nobody_there_is_said_at_once(rabbitmq: Engine) -> None:
    queue = name("nobody")
    async with connect(f"{rabbitmq.url}/{queue}") as peer:
        with pytest.raises(Unroutable, match=queue):
            await peer.call("add", [1, 2], timeout=None)
        with pytest.raises(Unroutable):
            await peer.notify("add", [1, 2])


async def test_too_large_is_refused_before_it_is_sent_with_the_numbers(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}?limit=1000"
    async with serve(calculator(), urls=[url]), connect(url) as peer:
        with pytest.raises(LocalError, match=r"RabbitMQ takes 1000 ") as refused:
            await peer.call("repeat", ["x" * 2000, 1])
        assert "2" in str(refused.value)
        with pytest.raises(RpcError) as answered:  # and so is an answer
            await peer.call("repeat", ["x" * 500, 4])
        assert answered.value.code == -32003
        assert answered.value.data["allowed"] == 1000
        assert await peer.call("add", [1, 2]) == 3


async def test_above_the_worker_s_own_limit_it_is_an_error(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    limits = SERVER.but(message_size=1000)
    async with serve(calculator(), urls=[url], limits=limits), connect(url) as peer:
        with pytest.raises(RpcError) as refused:
            await peer.call("repeat", ["x" * 2000, 1])
        assert refused.value.code == -32003
        assert await peer.call("add", [1, 2]) == 3


async def test_large_messages_go_through_whole(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    text = "0123456789" * 100_000
    async with serve(calculator(), urls=[url]), connect(url) as peer:
        assert await peer.call("repeat", [text, 3]) == text * 3


async def test_a_request_whose_deadline_has_passed_is_not_run(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    ran: list[str] = []
    api = calculator()

    @api.method
    async def mark(text: str) -> None:
        ran.append(text)

    async with serve(api, urls=[url]):
        pass  # so that there is a queue
    async with connect(url) as peer:
        with pytest.raises(CallTimeout):
            await peer.call("mark", ["late"], timeout=0.05)
        waiting = asyncio.create_task(peer.call("mark", ["in time"], timeout=PATIENCE))
        await peer.notify("mark", ["note"])
        async with serve(api, urls=[url]):
            await waiting
            assert await peer.call("add", [1, 2]) == 3
    assert sorted(ran) == ["in time", "note"]


async def test_a_cancel_reaches_the_worker_that_is_at_it(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    begun, ended = asyncio.Event(), asyncio.Event()
    api = calculator()

    @api.method
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve(Service("idle"), urls=[url]) as idle:
        await idle.close()
    async with serve(api, urls=[url]), connect(url) as peer:
        call = asyncio.create_task(peer.call("hang"))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
            call.cancel()
            await ended.wait()
        assert await peer.call("add", [1, 2]) == 3
    async with post(url) as one:  # and it is settled: nobody gets it again
        again: asyncio.Queue[Letter] = asyncio.Queue()
        await one.work(again.put_nowait, 1)
        await one.request(Letter(body=b"{}", correlation="last"), None)
        last = await again.get()
        assert last.correlation == "last"
        last.settle("answered")


async def test_poison_is_answered_or_set_aside_and_never_loops(rabbitmq: Engine) -> None:
    queue = name()
    url = f"{rabbitmq.url}/{queue}"
    answers: asyncio.Queue[Letter] = asyncio.Queue()
    async with serve(calculator(), urls=[url]), post(url) as one, connect(url) as peer:
        mailbox = await one.mailbox(answers.put_nowait)
        await one.request(Letter(body=b"\xff no JSON", reply_to=mailbox, correlation="1"), None)
        answer = await answers.get()
        assert b"-32700" in answer.body
        answer.settle("answered")
        await one.request(Letter(body=b"\xff no JSON, no address", correlation="2"), None)
        letter = await dead(rabbitmq.url, queue)
        assert letter.body == b"\xff no JSON, no address"
        # a request that says nobody to answer is no poison
        await one.request(Letter(body=b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}', correlation="3"), None)
        assert await peer.call("add", [1, 2]) == 3


async def test_what_no_worker_survives_is_answered_and_set_aside(rabbitmq: Engine) -> None:
    queue = name()
    url = f"{rabbitmq.url}/{queue}?deliveries=3"
    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("add", [1, 2], timeout=PATIENCE))
        counts = []
        for _ in range(3):  # three workers that die at it
            got: asyncio.Queue[Letter] = asyncio.Queue()
            async with post(url) as victim:
                await victim.work(got.put_nowait, 1)
                counts.append((await got.get()).count)
        assert counts == [0, 1, 2]
        async with serve(calculator(), urls=[url]):
            with pytest.raises(RpcError, match="3 deliveries") as given_up:
                await call
            assert given_up.value.code == -32603
            letter = await dead(rabbitmq.url, queue)
            assert b'"add"' in letter.body
            assert await peer.call("add", [1, 2]) == 3


async def test_a_redelivery_says_so(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    api = calculator()

    @api.method
    async def count(ctx: Context) -> list[Any]:
        return [ctx.redelivered, ctx.caller.key]

    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("count", extra={"key": "order-17"}))
        got: asyncio.Queue[Letter] = asyncio.Queue()
        async with post(url) as victim:
            await victim.work(got.put_nowait, 1)
            await got.get()
        async with serve(api, urls=[url]):
            assert await call == [1, "order-17"]


async def test_the_same_key_is_answered_and_not_run_again(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    runs: list[int] = []
    api = Service("shop")

    @api.method
    async def buy(what: int) -> int:
        runs.append(what)
        await asyncio.sleep(0)
        return len(runs)

    async with serve(api, urls=[url]), connect(url) as peer, connect(url) as other:
        first = await asyncio.gather(*(peer.call("buy", [1], extra={"key": "k1"}) for _ in range(5)))
        assert first == [1] * 5
        assert await other.call("buy", [1], extra={"key": "k1"}) == 1
        assert await other.call("buy", [1], extra={"key": "k2"}) == 2
    assert runs == [1, 1]


async def test_a_full_queue_is_said_at_once(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}?length=2"
    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url) as peer:
        calls: list[asyncio.Task[int]] = []
        done: set[asyncio.Task[int]] = set()
        while not done:  # a quorum queue tells a channel that it is full some time after it is: a burst may all get in
            calls += [asyncio.create_task(peer.call("add", [1, n])) for n in range(30)]
            done, _ = await asyncio.wait(calls, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(done.pop().exception(), Refused)
        async with serve(calculator(), urls=[url]):
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, int | Refused) for end in ends)
        assert sum(isinstance(end, int) for end in ends) >= 2


async def test_messages_ahead_of_the_answer_come_before_it(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    kinds: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    class Chatty:
        """Served: says two things before it answers, and one after."""

        name = "chatty"

        def __init__(self) -> None:
            from dragoman.channel import Gate

            self.gate = Gate(10)

        def exchange(self, x: Any) -> None:
            assert x.stream(b"one")
            assert x.stream(b"two")
            x.respond(b"answer")
            assert x.tell(b"three")

        def attach(self, channel: Any) -> None: ...
        def routes(self) -> dict[str, Any]:
            return {}

        async def drain(self, timeout: float) -> None: ...

    async with serve(Chatty(), urls=[url]), post(url) as one:
        mailbox = await one.mailbox(lambda letter: kinds.put_nowait((letter.headers.get("kind", ""), letter.body)))
        await one.request(Letter(body=b"?", reply_to=mailbox, correlation="1"), None)
        got = [await kinds.get() for _ in range(4)]
    assert got.index(("", b"answer")) > got.index(("ahead", b"two"))
    assert [body for kind, body in got if kind] == [b"one", b"two", b"three"]


async def test_direct_reply(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    async with serve(calculator(), urls=[url]), connect(f"{url}?reply=direct") as peer:
        assert await asyncio.gather(*(peer.call("add", [n, 1]) for n in range(50))) == list(range(1, 51))


async def test_draining_answers_what_is_in_flight_and_leaves_the_rest_to_others(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    begun, go = asyncio.Event(), asyncio.Event()
    api = Service("slow")

    @api.method
    async def work() -> str:
        begun.set()
        await go.wait()
        return "first"

    second = Service("second")

    @second.method("work")
    async def again() -> str:
        return "second"

    async with connect(url) as peer:
        serving = serve(api, urls=[url])
        await serving.__aenter__()
        call = asyncio.create_task(peer.call("work"))
        await begun.wait()
        closing = asyncio.create_task(serving.close())
        async with serve(second, urls=[url]):
            async with asyncio.timeout(PATIENCE):
                while await peer.call("work", timeout=PATIENCE) != "second":
                    pass
            go.set()
            assert await call == "first"
            await closing


async def test_credentials_are_never_shown(
    rabbitmq: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    host, port = rabbitmq.address
    url = f"amqp://guest:sesame77@{host}:{port}/{name()}"
    with pytest.raises(Broken) as refused:
        await connect(url)
    with pytest.raises(LocalError) as unheard:
        async with serve(calculator(), urls=[url]):
            pass
    monkeypatch.setenv("DRAGOMAN_AMQP_USER", "guest")
    monkeypatch.setenv("DRAGOMAN_AMQP_PASSWORD", "sesame77")
    with pytest.raises(Broken) as from_environment:
        await connect(f"amqp://{host}:{port}/{name()}")
    monkeypatch.setenv("DRAGOMAN_AMQP_PASSWORD", "guest")
    bare = f"amqp://{host}:{port}/{name()}"
    async with serve(calculator(), urls=[bare]) as serving, connect(bare) as peer:
        assert await peer.call("add", [1, 2]) == 3
        shown = f"{serving.urls} {peer!r} {peer.caller}"
    said = f"{refused.value!r} {unheard.value!r} {from_environment.value!r} {shown} {caplog.text}"
    assert "sesame77" not in said
    assert "ACCESS_REFUSED" in str(refused.value)


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("", "name who is called"),
        ("/q?prefetch=none", "whole number"),
        ("/q?colour=red", "known are"),
        ("/q?reply=pigeon", "queue or direct"),
        ("/q?queue=", "name who is called"),
    ],
)
async def test_urls_that_make_no_sense(tail: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        await connect(f"amqp://127.0.0.1:1{tail}")


async def test_a_queue_that_is_otherwise_is_said(rabbitmq: Engine) -> None:
    queue = name()
    async with serve(calculator(), urls=[f"{rabbitmq.url}/{queue}?length=5"]):
        with pytest.raises(LocalError, match="inequivalent"):
            async with serve(calculator(), urls=[f"{rabbitmq.url}/{queue}?length=6"]):
                pass
        async with (
            serve(calculator(), urls=[f"{rabbitmq.url}/{queue}?declare=no"]),
            connect(f"{rabbitmq.url}/{queue}") as peer,
        ):
            assert await peer.call("add", [1, 2]) == 3


async def test_a_slow_broker_holds_the_caller_back(rabbitmq: Engine) -> None:
    """Backpressure: above `send_queue` unconfirmed bytes a call waits before it is sent."""
    url = f"{rabbitmq.url}/{name()}"
    limits = CLIENT.but(send_queue=10_000)
    async with serve(calculator(), urls=[url]), connect(url, limits=limits) as peer:
        assert isinstance(peer, Peer)
        answers = await asyncio.gather(*(peer.call("repeat", ["x" * 1000, 1]) for _ in range(200)))
        assert answers == ["x" * 1000] * 200
        assert peer.channel is not None
        assert peer.channel.writable
