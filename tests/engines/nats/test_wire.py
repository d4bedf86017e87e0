"""`nats://`: what only it does, at most once and with `?stream=` at least once. The other end is often the bare
library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import nats as library
import pytest
from nats.aio.client import Client as Bare
from nats.errors import NoRespondersError

from dragoman import Context, Service, connect, serve
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.jsonrpc.limits import Limits
from dragoman.transports.broker.contract import BrokerMessage, Refused, Unroutable
from tests.calculator import calculator
from tests.engines.brokers import Engine, name
from tests.engines.wires import (
    NATS,
    PATIENCE,
    STREAM,
    SUBTRACT,
    Wire,
    adapter,
    adapter_at,
    address,
    over,
    plus,
    too_large_is_refused,
)


@pytest.fixture
async def raw(nats: Engine) -> AsyncIterator[Bare]:
    """The bare library."""
    client = await library.connect(nats.url)
    yield client
    await client.close()


def position(nats: Engine, stream: bool, tail: str = "") -> str:
    """A URL of its own."""
    return plus((STREAM if stream else NATS).url(nats), tail)


async def info(raw: Bare, url: str, dead: bool = False) -> dict[str, Any]:
    """What JetStream says of a URL's stream."""
    stream = url.partition("stream=")[2].partition("&")[0] + ("-dead" if dead else "")
    answer = await raw.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=5)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def held(raw: Bare, url: str, dead: bool = False) -> int:
    """How many messages the stream holds."""
    return int((await info(raw, url, dead))["state"]["messages"])


async def until_held(raw: Bare, url: str, count: int, dead: bool = False) -> None:
    async with asyncio.timeout(PATIENCE):
        while await held(raw, url, dead) != count:  # noqa: ASYNC110 - what is waited for is in JetStream
            await asyncio.sleep(0.02)


# -- calls ----------------------------------------------------------------------------------------


async def test_any_client_of_nats_can_call(nats: Engine, raw: Bare) -> None:
    """The reply subject alone says where the answer goes."""
    url = position(nats, False)
    async with serve(calculator(), urls=url):
        answer = await raw.request(address(url), SUBTRACT, timeout=PATIENCE)
        assert json.loads(answer.data) == {"jsonrpc": "2.0", "result": 19, "id": 1}
        assert answer.headers is None
        answer = await raw.request(address(url), SUBTRACT, timeout=PATIENCE, old_style=True)
        assert json.loads(answer.data)["result"] == 19
        answer = await raw.request(address(url), b"no JSON", timeout=PATIENCE)
        assert json.loads(answer.data)["error"]["code"] == -32700


@pytest.mark.parametrize("others", [0, 1])
async def test_what_a_worker_gives_back_goes_to_another_or_its_caller_hears_of_it(
    nats: Engine, raw: Bare, others: int
) -> None:
    """The server tells a publisher that nobody took its message, and not the one who waits for the answer."""
    url = position(nats, False)
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    async with connect(url, timeout=PATIENCE) as peer, asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        async with adapter(url, serving=True) as one:
            await one.work(got.put_nowait, 1)
            ours = asyncio.create_task(peer.call("subtract", [42, 23]))
            bare = asyncio.create_task(raw.request(address(url), SUBTRACT, timeout=PATIENCE))
            first = await got.get()
            if others:
                await stack.enter_async_context(serve(calculator(), urls=url))
            await one.pause()
            first.settle("retry")
        if others:
            assert await ours == 19
            assert json.loads((await bare).data)["result"] == 19
        else:
            with pytest.raises(Unroutable):
                await ours
            with pytest.raises(NoRespondersError):
                await bare


@over(NATS, STREAM)
async def test_a_reply_subject_of_jetstreams_api_empties_no_stream(wire: Wire, url: str, raw: Bare) -> None:
    """The worker may purge streams; its caller may only publish to the service's subject."""
    orders = name("orders")
    stream = raw.jetstream()
    await stream.add_stream(name=orders, subjects=[orders])
    await stream.publish(orders, b"a lamp")
    purge = f"$JS.API.STREAM.PURGE.{orders}"
    async with serve(calculator(), urls=plus(url, "prefetch=1")), connect(url, timeout=PATIENCE) as peer:
        if wire is STREAM:
            to, _, correlation = purge.rpartition(".")
            await stream.publish(address(url), SUBTRACT, headers={"reply-to": to, "correlation": correlation})
        else:
            await raw.publish(address(url), SUBTRACT, reply=purge)
        assert await peer.call("subtract", [42, 23]) == 19
    assert (await stream.stream_info(orders)).state.messages == 1


async def test_nor_does_a_refusal(nats: Engine, raw: Bare) -> None:
    """The answer to what is above `?prefetch=` and what may wait goes to mailboxes alone, too."""
    url, orders, gate = position(nats, False, "prefetch=1"), name("orders"), asyncio.Event()
    stream = raw.jetstream()
    await stream.add_stream(name=orders, subjects=[orders])
    await stream.publish(orders, b"a lamp")
    service = Service("slow")

    @service.method
    async def work() -> int:
        await gate.wait()
        return 1

    box = raw.new_inbox()
    answers = await raw.subscribe(f"{box}.*")
    async with serve(service, urls=url, limits=Limits(calls=1)):
        for reply in (f"{box}.1", f"{box}.2", f"$JS.API.STREAM.PURGE.{orders}", f"{box}.3"):
            await raw.publish(address(url), b'{"jsonrpc":"2.0","method":"work","id":1}', reply=reply)
        answer = await answers.next_msg(PATIENCE)
        assert (answer.subject, b"Busy" in answer.data) == (f"{box}.3", True)
        gate.set()
    assert (await stream.stream_info(orders)).state.messages == 1


@over(NATS, STREAM)
@pytest.mark.parametrize("block", [b"\r\n\r\n", b"NATS/1.0 \xff\r\n\r\n", b"NATS/1.0\r\na: \xff\r\n\r\n"])
async def test_headers_that_cannot_be_read_count_as_none(wire: Wire, url: str, raw: Bare, block: bytes) -> None:
    """The server passes on what a publisher wrote, and JetStream would deliver it again and again."""
    for subject in (address(url), f"{address(url)}.control"):
        async with serve(calculator(), urls=plus(url, "prefetch=1")), connect(url, timeout=PATIENCE) as peer:
            assert await peer.call("subtract", [42, 23]) == 19
            sizes = len(block), len(block) + len(SUBTRACT)
            await raw._send_command(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject.encode(), *sizes, block, SUBTRACT))
            await raw.flush()
            async with asyncio.timeout(3):  # a worker that reads no more notices that after 6
                assert await peer.call("subtract", [42, 23]) == 19


async def test_an_address_that_cannot_be_read_is_dropped(nats: Engine, raw: Bare) -> None:
    url = position(nats, False)
    async with serve(calculator(), urls=url), connect(url, timeout=PATIENCE) as peer:
        publish = b"PUB %b _INBOX.\xff %d\r\n%b\r\n" % (address(url).encode(), len(SUBTRACT), SUBTRACT)
        await raw._send_command(publish)
        await raw.flush()
        async with asyncio.timeout(3):
            assert await peer.call("subtract", [42, 23]) == 19


@over(NATS, STREAM)
async def test_too_large_is_refused(url: str) -> None:
    """Above the server's `max_payload`, less what is kept for headers."""
    await too_large_is_refused(url, 1_100_000, "NATS")


async def test_headers_that_would_speak_to_the_server_are_refused(nats: Engine) -> None:
    adapter = adapter_at(position(nats, False))
    await adapter.open()
    for headers, words in (({"Nats-Rollup": "all"}, "Nats-Rollup"), ({"key": "x" * 3000}, "1536 are kept")):
        with pytest.raises(Refused, match=words):
            await adapter.request(BrokerMessage(body=b"{}", headers=headers), None)
    with pytest.raises(LocalError, match="BadHeader"):
        await adapter.request(BrokerMessage(body=b"{}", headers={"a b": "c"}), None)
    await adapter.close()


# -- how many at once -----------------------------------------------------------------------------


async def test_above_prefetch_requests_wait_and_above_that_they_are_refused(
    nats: Engine, raw: Bare, caplog: pytest.LogCaptureFixture
) -> None:
    url = position(nats, False, "prefetch=2")
    running, most = 0, 0
    gate = asyncio.Event()
    service = Service("slow")

    @service.method
    async def work() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return most

    limits = Limits(calls=3)
    async with serve(service, urls=url, limits=limits), connect(url, timeout=PATIENCE) as peer:
        calls = [asyncio.ensure_future(peer.call("work")) for _ in range(8)]
        done: set[asyncio.Future[Any]] = set()
        while len(done) < 3:
            done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for call in done:
            with pytest.raises(RpcError, match="Busy: prefetch allows 2 at once"):
                await call
        gate.set()
        assert [await call for call in calls if call not in done] == [2] * 5
    told = [record.message for record in caplog.records if "more are refused" in record.message]
    assert len(told) == 1  # once, until nothing waits
    assert told[0].endswith(": 2 requests run and 3 wait; more are refused")


# -- at least once --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers", ["Nats-Expected-Stream: {stream}", "Nats-Expected-Last-Sequence: 0", "Nats-Msg-Id: x", "a\0: b"]
)
async def test_poison_is_set_aside_whatever_its_headers_say(nats: Engine, raw: Bare, headers: str) -> None:
    """They hold for the stream that the message is in, not for that of dead letters."""
    url = position(nats, True)
    block = f"NATS/1.0\r\n{headers.format(stream=url.partition('stream=')[2])}\r\nb: c\r\n\r\n".encode()
    async with serve(calculator(), urls=url):
        await raw._send_command(
            b"HPUB %b %d %d\r\n%b?\r\n" % (address(url).encode(), len(block), len(block) + 1, block)
        )
        await until_held(raw, url, 1, dead=True)
        await until_held(raw, url, 0)


async def test_poison_is_set_aside(nats: Engine, raw: Bare) -> None:
    """What is not JSON-RPC and names no address to answer, and what killed its workers."""
    url, seen = position(nats, True, "deliveries=2&wait=1"), list[int]()
    service = Service("told")

    @service.method
    def subtract(minuend: int, subtrahend: int, context: Context) -> int:
        seen.append(context.redelivered)
        return minuend - subtrahend

    async with serve(service, urls=url):
        await raw.publish(address(url), b"no JSON")
        await until_held(raw, url, 1, dead=True)
        await until_held(raw, url, 0)
    box = raw.new_inbox()
    answers = await raw.subscribe(f"{box}.*")
    await raw.publish(address(url), SUBTRACT, headers={"reply-to": box, "correlation": "c1"})
    stream = url.partition("stream=")[2].partition("&")[0]
    ghost = await raw.jetstream().pull_subscribe_bind(f"workers_{address(url)}".replace(".", "_"), stream)
    for _ in range(2):
        (message,) = await ghost.fetch(1, timeout=5)
        await message.nak()
    async with serve(service, urls=url):
        answer = await answers.next_msg(PATIENCE)
        assert answer.subject == f"{box}.c1"
        assert json.loads(answer.data)["error"]["code"] == -32603
        assert json.loads(answer.data)["id"] == 1
        await until_held(raw, url, 2, dead=True)
        await until_held(raw, url, 0)
    assert seen == []


async def test_a_request_that_is_sent_twice_is_taken_once(nats: Engine, raw: Bare) -> None:
    url = position(nats, True)
    async with serve(calculator(), urls=url):
        pass
    adapter = adapter_at(url)
    await adapter.open()
    message = BrokerMessage(body=SUBTRACT, reply_to=await adapter.mailbox(print), correlation=name())
    await adapter.request(message, None)
    await adapter.request(message, None)
    assert await held(raw, url) == 1
    await adapter.close()


async def test_an_answer_waits_for_its_caller_to_come_back(nats: Engine, raw: Bare) -> None:
    """The mailbox has no subscriber: the worker does not acknowledge, and tries again."""
    url, ran = position(nats, True), asyncio.Event()
    service = Service("told")

    @service.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        ran.set()
        return minuend - subtrahend

    box = raw.new_inbox()
    async with serve(service, urls=url):
        await raw.publish(address(url), SUBTRACT, headers={"reply-to": box, "correlation": "c1"})
        await ran.wait()
        await asyncio.sleep(0.15)
        answers = await raw.subscribe(f"{box}.*")
        answer = await answers.next_msg(PATIENCE)
        assert json.loads(answer.data)["result"] == 19
        await until_held(raw, url, 0)


async def test_a_full_stream_takes_no_more(nats: Engine, raw: Bare) -> None:
    url = position(nats, True, "max=1")
    async with serve(calculator(), urls=url):
        pass
    async with connect(url, timeout=PATIENCE) as peer:
        await peer.notify("update")
        with pytest.raises(Refused, match="maximum messages"):
            await peer.notify("update")
        with pytest.raises(Refused, match="maximum messages"):
            await peer.call("subtract", [42, 23])
        async with serve(calculator(), urls=url):
            await until_held(raw, url, 0)
            assert await peer.call("subtract", [42, 23]) == 19


async def test_two_services_share_a_stream(nats: Engine) -> None:
    stream = name("work")
    one, two = (f"{nats.url}/{name()}?stream={stream}" for _ in range(2))
    async with serve(calculator(), urls=[one]), serve(calculator(), urls=[two]):
        for url in (one, two):
            async with connect(url, timeout=PATIENCE) as peer:
                assert await peer.call("subtract", [42, 23]) == 19
    with pytest.raises(LocalError, match=f"belongs to the stream {stream}"):
        async with serve(calculator(), urls=one.replace(stream, "other")):
            pass
