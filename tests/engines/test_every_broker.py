"""What every broker does alike, when all is well. Faults are in `test_every_broker_faults`."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from dragoman import Context, Peer, Service, connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.errors import CallTimeout, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, SERVER
from dragoman.mcp import Client, Server
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage, Unroutable
from tests.behind import behind
from tests.servable import Idle

from .brokers import Engine
from .wire_table import every_case
from .wires import (
    DIRECT,
    EVERY,
    KEEPS,
    OLD,
    PATIENCE,
    WIRES,
    Wire,
    adapter,
    adapter_at,
    address,
    calculator,
    jsonrpc,
    over,
    plus,
)

# -- calls ----------------------------------------------------------------------------------------


@EVERY
async def test_every_case_has_its_answer(url: str) -> None:
    """The table of wire cases."""
    await every_case(url, adapter_at(url))


@over(OLD)
async def test_every_case_from_a_caller_of_mqtt_311_to_a_worker_of_5(url: str) -> None:
    await every_case(url.partition("?")[0], adapter_at(url))


@EVERY
async def test_calls_batches_and_notifications(wire: Wire, url: str) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()
    api = calculator()

    @api.method
    async def note(number: int) -> None:
        heard.put_nowait(number)

    async with serve(api, urls=[url]) as serving, connect(url, timeout=PATIENCE) as peer:
        assert serving.urls[0] == parse(url).bare
        assert await asyncio.gather(*(peer.call("add", [n, 1]) for n in range(500))) == list(range(1, 501))
        with pytest.raises(RpcError) as refused:
            await peer.call("add", ["one", 2])
        assert refused.value.code == -32602
        async with peer.batch() as batch:
            first, second = batch.call("add", [1, 2]), batch.call("nothing")
            batch.notify("note", [7])
        assert first.result() == 3
        assert isinstance(second.exception(), RpcError)
        await peer.notify("note", [8])
        async with asyncio.timeout(PATIENCE):
            assert {await heard.get(), await heard.get()} == {7, 8}


@EVERY
async def test_workers_compete(url: str) -> None:
    def named(text: str) -> Service:
        service = Service(text)

        @service.method
        async def work() -> str:
            await asyncio.sleep(0.002)
            return text

        return service

    few = plus(url, "prefetch=4")
    async with serve(named("a"), urls=few), serve(named("b"), urls=few), connect(url, timeout=PATIENCE) as peer:
        answers = await asyncio.gather(*(peer.call("work") for _ in range(200)))
    assert answers.count("a") + answers.count("b") == 200
    assert min(answers.count("a"), answers.count("b")) > 20


@EVERY
async def test_a_broadcast_reaches_every_worker_and_a_notification_one(url: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    def named(who: str) -> Service:
        service = Service(who)

        @service.method(inline=True)
        def news(text: str) -> None:
            heard.put_nowait(who + text)

        return service

    one_at_a_time = plus(url, "prefetch=1")
    async with serve(named("a"), urls=one_at_a_time), serve(named("b"), urls=url), connect(url) as peer:
        async with asyncio.timeout(PATIENCE):
            for text in "!+-":  # above prefetch: they owe no answer
                await peer.notify("news", [text], broadcast=True)
                assert sorted([await heard.get(), await heard.get()]) == [f"a{text}", f"b{text}"]
            await peer.notify("news", ["?"])
            assert (await heard.get())[1] == "?"
    assert heard.empty()


@over(*(wire for wire in WIRES if wire.says_nobody))
async def test_a_missing_far_end_is_reported_immediately(wire: Wire, url: str) -> None:
    async with connect(url) as peer:
        with pytest.raises(Unroutable, match=f"no worker serves .*{address(url)}"):
            await peer.call("add", [1, 2], timeout=None)
        if wire.notes_confirmed:
            with pytest.raises(Unroutable):
                await peer.notify("add", [1, 2])


@EVERY
async def test_large_messages_go_through_whole(wire: Wire, url: str) -> None:
    text = "0123456789" * (wire.longest // 30)
    async with serve(calculator(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("repeat", [text, 3]) == text * 3
        assert await peer.call("echo", [text * 3]) == [text * 3]


@EVERY
async def test_above_the_worker_s_own_limit_it_is_an_error(url: str) -> None:
    async with serve(calculator(), urls=[url], limits=SERVER.but(message_size=1000)), connect(url) as peer:
        with pytest.raises(RpcError) as refused:
            await peer.call("repeat", ["x" * 2000, 1])
        assert refused.value.code == -32003
        assert await peer.call("add", [1, 2]) == 3


@EVERY
async def test_a_slow_broker_holds_the_caller_back(url: str) -> None:
    """Backpressure: above `send_queue` unconfirmed bytes a call waits before it is sent."""
    limits = CLIENT.but(send_queue=10_000)
    async with serve(calculator(), urls=[url]), connect(url, limits=limits, timeout=PATIENCE) as peer:
        assert isinstance(peer, Peer)
        answers = await asyncio.gather(*(peer.call("repeat", ["x" * 1000, 1]) for _ in range(200)))
        assert answers == ["x" * 1000] * 200
        channel = behind(peer)._channel
        assert channel is not None
        assert channel.writable


@EVERY
async def test_mcp(url: str) -> None:
    server = Server("calculator", version="1.0.0")

    @server.tool
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    async with serve(server, urls=url), Client(url) as client:
        assert (await client.call_tool("subtract", {"minuend": 42, "subtrahend": 23}, result=int)) == 19


# -- what a caller no longer wants ----------------------------------------------------------------


@EVERY
async def test_a_cancel_reaches_the_worker_though_it_takes_nothing_more(url: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    api = calculator()

    @api.method
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve(api, urls=[plus(url, "prefetch=1")]), connect(url, timeout=PATIENCE) as peer:
        call = asyncio.create_task(peer.call("hang"))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
            waiting = asyncio.create_task(peer.call("add", [1, 2]))
            call.cancel()
            await ended.wait()
            assert await waiting == 3
    async with adapter(url, serving=True) as one:  # and it is settled: no worker gets it again
        again: asyncio.Queue[BrokerMessage] = asyncio.Queue()
        await one.work(again.put_nowait, 1)
        await one.request(BrokerMessage(body=b'"last"', correlation="last"), None)
        async with asyncio.timeout(PATIENCE):
            message = await again.get()
        assert message.body == b'"last"'
        message.settle("answered")


@KEEPS
async def test_a_call_waits_for_a_worker_and_is_not_run_after_its_deadline(url: str) -> None:
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


@EVERY
async def test_what_comes_after_its_deadline_is_not_run(url: str) -> None:
    """Although the broker has delivered it."""
    ran: list[int] = []
    api = Service("told")

    @api.method(inline=True)
    def see(number: int) -> None:
        ran.append(number)

    async with serve(api, urls=[url]), adapter(url) as one:
        answers: asyncio.Queue[BrokerMessage] = asyncio.Queue()
        mailbox = await one.mailbox(answers.put_nowait)
        for number, headers in ((1, {"deadline": "1000"}), (2, {})):
            message = BrokerMessage(
                body=jsonrpc("see", number), reply_to=mailbox, correlation=str(number), headers=headers
            )
            await one.request(message, None)
        async with asyncio.timeout(PATIENCE):
            answer = await answers.get()
        assert answer.correlation == "2"
        answer.settle("answered")
    assert ran == [2]


# -- once, or again -------------------------------------------------------------------------------


@EVERY
async def test_the_same_key_is_answered_and_not_run_again(url: str) -> None:
    runs: list[int] = []
    api = Service("shop")

    @api.method
    async def buy(what: int) -> int:
        runs.append(what)
        await asyncio.sleep(0)
        return len(runs)

    @api.method(inline=True)
    def balance(whose: int) -> str:
        return f"the balance of {whose}"

    async with serve(api, urls=[url]), connect(url) as peer, connect(url) as other:
        first = await asyncio.gather(*(peer.call("buy", [1], extra={"key": "k1"}) for _ in range(5)))
        assert first == [1] * 5
        assert await peer.call("buy", [1], extra={"key": "k1"}) == 1
        # the key of another call, or of another caller, is another key
        assert await peer.call("balance", [1], extra={"key": "k1"}) == "the balance of 1"
        assert await peer.call("buy", [2], extra={"key": "k1"}) == 2
        assert await peer.call("buy", [1], extra={"key": "k2"}) == 3
        assert await peer.call("buy", [1], extra={"key": "k1", "authorization": "Bearer x"}) == 4
        assert await other.call("buy", [1], extra={"key": "k1"}) == 5
        assert await peer.call("buy", [1], extra={"key": "k1"}) == 1
    assert runs == [1, 2, 1, 1, 1]


async def victim(url: str) -> int:
    """A worker that leaves with the first request it gets; how often that had been delivered before."""
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    async with adapter(url, serving=True) as one, asyncio.timeout(PATIENCE):
        await one.work(got.put_nowait, 1)
        return (await got.get()).count


@KEEPS
async def test_a_redelivery_says_so(url: str) -> None:
    api = calculator()

    @api.method
    async def count(ctx: Context) -> list[Any]:
        return [ctx.redelivered, ctx.caller.key]

    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("count", extra={"key": "order-17"}, timeout=PATIENCE))
        assert await victim(url) == 0
        async with serve(api, urls=[url]):
            assert await call == [1, "order-17"]


@KEEPS
async def test_what_no_worker_survives_is_answered_and_set_aside(wire: Wire, engine: Engine, url: str) -> None:
    url = plus(url, "deliveries=3")
    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("add", [1, 2], timeout=PATIENCE))
        assert [await victim(url) for _ in range(3)] == [0, 1, 2]
        async with serve(calculator(), urls=[url]):
            with pytest.raises(RpcError, match="3 deliveries") as given_up:
                await call
            assert given_up.value.code == -32603
            assert wire.dead is not None
            (message,) = await wire.dead(engine, url, 1)
            assert b'"add"' in message
            assert await peer.call("add", [1, 2], timeout=PATIENCE) == 3


async def giver(url: str) -> int:
    """A worker that gives back the first request it gets and leaves; how often that had been delivered before."""
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    async with adapter(url, serving=True) as one, asyncio.timeout(PATIENCE):
        await one.work(got.put_nowait, 1)
        message = await got.get()
        await one.pause()
        message.settle("retry")
        return message.count


@KEEPS
async def test_what_is_given_back_does_not_count_and_what_kills_does(url: str) -> None:
    url = plus(url, "deliveries=3")
    async with serve(calculator(), urls=[url]):
        pass
    async with connect(url, timeout=PATIENCE) as peer:
        spared = asyncio.create_task(peer.call("add", [1, 2]))
        assert [await giver(url) for _ in range(6)] == [0] * 6
        async with serve(calculator(), urls=[url]):
            assert await spared == 3
        poison = asyncio.create_task(peer.call("add", [1, 2]))
        turns = (giver, victim, giver, giver, victim, giver, victim, giver)
        assert [await turn(url) for turn in turns] == [0, 0, 1, 1, 1, 2, 2, 3]
        async with serve(calculator(), urls=[url]):
            with pytest.raises(RpcError, match="3 deliveries"):
                await poison


@EVERY
async def test_poison_is_answered_or_set_aside_and_never_loops(wire: Wire, engine: Engine, url: str) -> None:
    answers: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    async with serve(calculator(), urls=[url]), adapter(url) as one, connect(url, timeout=PATIENCE) as peer:
        mailbox = await one.mailbox(answers.put_nowait)
        await one.request(BrokerMessage(body=b"\xff no JSON", reply_to=mailbox, correlation="1"), None)
        async with asyncio.timeout(PATIENCE):
            answer = await answers.get()
        assert b"-32700" in answer.body
        answer.settle("answered")
        await one.request(BrokerMessage(body=b"\xff no JSON, no address", correlation="2"), None)
        # a request that names no address to answer is not poison
        await one.request(BrokerMessage(body=jsonrpc("add", 1, 2), correlation="3"), None)
        assert await peer.call("add", [1, 2]) == 3
        if wire.dead is not None:
            assert await wire.dead(engine, url, 1) == [b"\xff no JSON, no address"]
        assert answers.empty()


@EVERY
async def test_messages_ahead_of_the_answer_come_before_it(url: str) -> None:
    kinds: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    class Chatty(Idle):
        """Served: says two things before it answers, and one after."""

        def exchange(self, x: Any) -> None:
            assert x.stream(b"one")
            assert x.stream(b"two")
            x.respond(b"answer")
            assert x.tell(b"three")

    def take(message: BrokerMessage) -> None:
        kinds.put_nowait((message.headers.get("kind", ""), message.body))
        message.settle("answered")

    async with serve(Chatty(), urls=[url]), adapter(url) as one:
        mailbox = await one.mailbox(take)
        await one.request(BrokerMessage(body=b"?", reply_to=mailbox, correlation="1"), None)
        async with asyncio.timeout(PATIENCE):
            got = [await kinds.get() for _ in range(4)]
    assert got.index(("", b"answer")) > got.index(("ahead", b"two"))
    assert [body for kind, body in got if kind] == [b"one", b"two", b"three"]


@EVERY
async def test_a_worker_that_leaves_answers_what_it_began_and_gives_back_the_rest(url: str) -> None:
    """What the broker has put by for it too, though it may be sent only after an acknowledgement."""
    ran: list[str] = []
    started, gate = asyncio.Event(), asyncio.Event()

    def named(who: str) -> Service:
        api = Service(who)

        @api.method
        async def work(ctx: Context) -> tuple[str, int]:
            ran.append(who)
            started.set()
            await gate.wait()
            return who, ctx.redelivered

        return api

    async with connect(url, timeout=PATIENCE) as peer:
        first = serve(named("first"), urls=plus(url, "prefetch=1"))
        async with first:
            calls = [asyncio.create_task(peer.call("work")) for _ in range(40)]
            await started.wait()
            async with serve(named("second"), urls=url):
                leaving = asyncio.create_task(first.close())
                await asyncio.sleep(0)
                gate.set()
                await leaving
                async with asyncio.timeout(PATIENCE):
                    answers = await asyncio.gather(*calls)
    assert len(ran) == 40
    assert set(ran) == {"first", "second"}
    assert {count for _, count in answers} == {0}


# -- URLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("amqp://127.0.0.1:1", "name the service"),
        ("amqp://127.0.0.1:1/q?queue=", "name the service"),
        ("amqp://127.0.0.1:1/q?prefetch=none", "whole number"),
        ("amqp://127.0.0.1:1/q?colour=red", "known are"),
        ("amqp://127.0.0.1:1/q?reply=pigeon", "queue or direct"),
        ("mqtt://127.0.0.1:1", "name the topic"),
        ("mqtt://127.0.0.1:1/devices/%2B", "is not a topic"),
        ("mqtt://127.0.0.1:1/a%23", "is not a topic"),
        ("mqtt://127.0.0.1:1/$SYS/broker", "is not a topic"),
        ("mqtt://127.0.0.1:1/lamp?quux=1", "quux"),
        ("mqtt://127.0.0.1:1/lamp?v=4", "5 or 3.1.1"),
        ("mqtt://127.0.0.1:1/lamp?acks=none", "ordered or any"),
        ("mqtt://127.0.0.1:1/lamp?group=a/b", "group"),
        ("mqtt://127.0.0.1:1/lamp?keepalive=0", "keepalive"),
        ("nats://127.0.0.1:1", "name the service"),
        ("nats://127.0.0.1:1/cal*", "cannot name a service"),
        ("nats://127.0.0.1:1/$JS.API", "cannot name a service"),
        ("nats://127.0.0.1:1/calculator?quux=1", "quux"),
        ("nats://127.0.0.1:1/calculator?stream=a.b", "stream"),
        ("nats://127.0.0.1:1/calculator?stream=a&wait=0", "wait"),
        ("nats://127.0.0.1:1/calculator?group=a.b", "group"),
        ("nats://127.0.0.1:1/team/calculator?subject=other", "not in both"),
        ("redis://127.0.0.1:1", "name the service"),
        ("redis://127.0.0.1:1/db/calculator", "by its number"),
        ("redis:///calculator", "name the server"),
        ("redis://127.0.0.1:1/calculator?quux=1", "quux"),
        ("redis://127.0.0.1:1/calculator?idle=0", "idle"),
    ],
)
async def test_urls_that_make_no_sense(url: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        await connect(url)
    with pytest.raises(LocalError, match=words):
        async with serve(calculator(), urls=[url]):
            pass


@pytest.mark.parametrize("scheme", ["amqp", "mqtt", "nats", "redis"])
async def test_a_broker_that_is_not_there_is_said_and_no_secret_is(
    scheme: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(f"DRAGOMAN_{scheme.upper()}_USER", "u")
    monkeypatch.setenv(f"DRAGOMAN_{scheme.upper()}_PASSWORD", "secret-word")
    said = ""
    for who in ("u:secret-word@", ""):
        url = f"{scheme}://{who}127.0.0.1:1/calculator"
        with pytest.raises(
            Broken, match=rf"Cannot connect to {scheme}://.*127\.0\.0\.1:1/calculator: connection refused"
        ) as wrong:
            await connect(url)
        with pytest.raises(LocalError, match=rf"Cannot listen on {scheme}://.*connection refused") as unheard:
            async with serve(calculator(), urls=[url]):
                pass
        said += f"{wrong.value!r} {unheard.value!r}"
    assert "secret-word" not in said + caplog.text


@over(*(wire for wire in WIRES if wire is not DIRECT))  # there RabbitMQ gives it a name
async def test_a_mailbox_has_a_name_that_nobody_guesses(url: str) -> None:
    for query, kept in (("", 0), ("mailbox=alice_2-b", 1)):
        boxes: list[list[str]] = []
        for _ in range(2):
            async with adapter(plus(url, query)) as one:
                boxes.append(re.split(r"[./:]", await one.mailbox(lambda message: None)))
        assert all(re.fullmatch("[0-9a-f]{32}", box[-1]) for box in boxes)
        assert boxes[0][-1] != boxes[1][-1]
        assert [box.count("alice_2-b") for box in boxes] == [kept] * 2
    async with serve(calculator(), urls=url), connect(plus(url, "mailbox=alice_2-b"), timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3


@EVERY
@pytest.mark.parametrize("name", ["", "a.b", "a:b", "a%2Fb", "a*", "%3E", "a" * 101, "%C3%A9"])
async def test_what_cannot_name_a_mailbox(url: str, name: str) -> None:
    with pytest.raises(LocalError, match=r"\?mailbox= is made of letters, digits, - and _"):
        adapter_at(plus(url, f"mailbox={name}"))
