"""`nats://` as a wire: at most once by itself, at least once with `?stream=`. The other end is often the bare library."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import nats as library
import pytest
from nats.aio.client import Client as Bare

from dragoman import Context, Service, connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.mcp import Client, Server
from dragoman.transports.broker import Refused, Unroutable
from tests.calculator import calculator

from .engines import Engine, name
from .worker import Done, worker

PATIENCE = 20.0
SUBTRACT = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["core", "stream"])


@pytest.fixture
async def raw(nats: Engine) -> AsyncIterator[Bare]:
    """The bare library."""
    client = await library.connect(nats.url)
    yield client
    await client.close()


def place(nats: Engine, stream: bool, tail: str = "") -> str:
    """A URL of its own."""
    query = "&".join(part for part in (f"stream={name('work')}" if stream else "", tail) if part)
    return f"{nats.url}/{name()}" + (f"?{query}" if query else "")


def subject(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


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


@BOTH
async def test_calls_batches_and_notifications(nats: Engine, stream: bool) -> None:
    url = place(nats, stream)
    heard: asyncio.Queue[str] = asyncio.Queue()
    service = Service("news")

    @service.method
    def add(a: int, b: int) -> int:
        return a + b

    @service.method(inline=True)
    def news(text: str) -> None:
        heard.put_nowait(text)

    async with serve(service, urls=url), connect(url, timeout=PATIENCE) as peer:
        assert await asyncio.gather(*(peer.call("add", [n, 1]) for n in range(300))) == list(range(1, 301))
        async with peer.batch() as batch:
            one, two = batch.call("add", [1, 2]), batch.call("add", [3, 4])
        assert (await one, await two) == (3, 7)
        with pytest.raises(RpcError, match="Method not found"):
            await peer.call("nothing")
        await peer.notify("news", ["!"])
        async with asyncio.timeout(PATIENCE):
            assert await heard.get() == "!"


async def test_any_client_of_nats_can_call(nats: Engine, raw: Bare) -> None:
    """The reply subject alone says where the answer goes."""
    url = place(nats, False)
    async with serve(calculator(), urls=url):
        answer = await raw.request(subject(url), SUBTRACT, timeout=PATIENCE)
        assert json.loads(answer.data) == {"jsonrpc": "2.0", "result": 19, "id": 1}
        assert answer.headers is None
        answer = await raw.request(subject(url), SUBTRACT, timeout=PATIENCE, old_style=True)
        assert json.loads(answer.data)["result"] == 19
        answer = await raw.request(subject(url), b"no JSON", timeout=PATIENCE)
        assert json.loads(answer.data)["error"]["code"] == -32700


async def test_nobody_there_is_an_error_at_once(nats: Engine) -> None:
    async with connect(place(nats, False), timeout=PATIENCE) as peer:
        with pytest.raises(Unroutable, match="nobody serves calculator-"):
            await peer.call("subtract", [42, 23])
    async with connect(place(nats, True), timeout=PATIENCE) as peer:
        with pytest.raises(Unroutable, match="there is no stream"):
            await peer.call("subtract", [42, 23])


async def test_in_a_stream_a_call_waits_for_a_worker(nats: Engine, raw: Bare) -> None:
    url = place(nats, True)
    async with serve(calculator(), urls=url):
        pass
    async with connect(url, timeout=PATIENCE) as peer:
        call = asyncio.ensure_future(peer.call("subtract", [42, 23]))
        await until_held(raw, url, 1)
        async with serve(calculator(), urls=url):
            assert await call == 19
        await until_held(raw, url, 0)


@BOTH
async def test_workers_compete(nats: Engine, stream: bool) -> None:
    url = place(nats, stream, "prefetch=4")
    who: list[str] = []

    def named(text: str) -> Service:
        service = Service(text)

        @service.method
        async def work() -> str:
            who.append(text)
            await asyncio.sleep(0.002)
            return text

        return service

    async with serve(named("a"), urls=url), serve(named("b"), urls=url), connect(url, timeout=PATIENCE) as peer:
        answers = await asyncio.gather(*(peer.call("work") for _ in range(200)))
    assert answers.count("a") + answers.count("b") == 200 == len(who)
    assert min(answers.count("a"), answers.count("b")) > 20


@BOTH
async def test_what_is_longer_than_the_server_takes_is_refused_with_the_numbers(nats: Engine, stream: bool) -> None:
    url = place(nats, stream)
    async with serve(calculator(), urls=url), connect(url, timeout=PATIENCE) as peer:
        with pytest.raises(LocalError, match=r"1100\d{3} bytes; NATS takes 1046528"):
            await peer.call("echo", ["x" * 1_100_000])
        assert await peer.call("echo", ["x" * 1_000_000]) == ["x" * 1_000_000]
        assert await peer.call("subtract", [42, 23]) == 19


async def test_headers_that_would_speak_to_the_server_are_refused(nats: Engine) -> None:
    from dragoman.channel import Options
    from dragoman.transports.broker import Letter
    from dragoman.transports.nats import post_at
    from dragoman.transports.urls import parse

    post, line = post_at(parse(place(nats, False)), Options())
    await line.open()
    for headers, words in (({"Nats-Rollup": "all"}, "Nats-Rollup"), ({"key": "x" * 3000}, "1536 are kept")):
        with pytest.raises(Refused, match=words):
            await post.request(Letter(body=b"{}", headers=headers), None)
    with pytest.raises(LocalError, match="BadHeader"):
        await post.request(Letter(body=b"{}", headers={"a b": "c"}), None)
    await post.close()


# -- how many at once -----------------------------------------------------------------------------


async def test_above_prefetch_requests_wait_and_above_that_they_are_refused(nats: Engine, raw: Bare) -> None:
    url = place(nats, False, "prefetch=2")
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

    from dragoman.jsonrpc.limits import Limits

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


async def test_a_worker_that_leaves_gives_back_what_it_has_not_begun(nats: Engine) -> None:
    """To another of the group, which knows nothing of it; where there is none the caller hears so."""
    url = place(nats, False)
    began, gate, ran = asyncio.Semaphore(0), asyncio.Event(), list[str]()

    def named(who: str) -> Service:
        service = Service(who)

        @service.method
        async def work(context: Context) -> tuple[str, int]:
            ran.append(who)
            began.release()
            await gate.wait()
            return who, context.redelivered

        return service

    async with connect(url, timeout=PATIENCE) as peer:
        async with serve(named("first"), urls=f"{url}?prefetch=1") as first:
            calls = [asyncio.ensure_future(peer.call("work")) for _ in range(3)]
            await began.acquire()
            async with serve(named("second"), urls=url):
                closing = asyncio.ensure_future(first.close())
                async with asyncio.timeout(PATIENCE):
                    await began.acquire()
                    await began.acquire()
                    gate.set()
                    answers = await asyncio.gather(*calls)
                    await closing
        assert sorted(who for who, _ in answers) == ["first", "second", "second"] == sorted(ran)
        assert {count for _, count in answers} == {0}
        with pytest.raises(Unroutable):
            await peer.call("work")


# -- at least once --------------------------------------------------------------------------------


async def test_a_killed_worker_loses_nothing(nats: Engine, raw: Bare) -> None:
    url = place(nats, True, "wait=1")
    async with worker(url) as first, connect(url, timeout=PATIENCE) as peer:
        calls = [asyncio.ensure_future(peer.call("work", [30.0], result=Done)) for _ in range(5)]
        async with asyncio.timeout(PATIENCE):
            while await unanswered(raw, url) != 5:  # noqa: ASYNC110 - what is waited for is in JetStream
                await asyncio.sleep(0.02)
        await first.kill()
        service = Service("other")

        @service.method
        async def work(seconds: float, context: Context) -> Done:
            return Done(0, context.redelivered)

        async with serve(service, urls=url):
            assert [await call for call in calls] == [Done(0, 1)] * 5
        await until_held(raw, url, 0)


async def unanswered(raw: Bare, url: str) -> int:
    """How many messages a worker has and has not acknowledged."""
    stream = url.partition("stream=")[2].partition("&")[0]
    consumer = f"workers_{subject(url)}".replace(".", "_")
    answer = await raw.request(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}", b"", timeout=5)
    return int(json.loads(answer.data)["num_ack_pending"])


async def test_a_busy_worker_keeps_what_it_has(nats: Engine) -> None:
    """More than twice the time after which a silent worker's go to others, in one handler."""
    url, runs = place(nats, True, "wait=1"), list[int]()
    service = Service("slow")

    @service.method
    async def slow(context: Context) -> str:
        runs.append(context.redelivered)
        await asyncio.sleep(2.5)
        return "done"

    async with serve(service, urls=url), serve(service, urls=url), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("slow") == "done"
    assert runs == [0]


async def test_poison_is_set_aside(nats: Engine, raw: Bare) -> None:
    """What is no JSON-RPC and says nobody to answer, and what killed its workers."""
    url, seen = place(nats, True, "deliveries=2&wait=1"), list[int]()
    service = Service("told")

    @service.method
    def subtract(minuend: int, subtrahend: int, context: Context) -> int:
        seen.append(context.redelivered)
        return minuend - subtrahend

    async with serve(service, urls=url):
        await raw.publish(subject(url), b"no JSON")
        await until_held(raw, url, 1, dead=True)
        await until_held(raw, url, 0)
    box = raw.new_inbox()
    answers = await raw.subscribe(f"{box}.*")
    await raw.publish(subject(url), SUBTRACT, headers={"reply-to": box, "correlation": "c1"})
    stream = url.partition("stream=")[2].partition("&")[0]
    ghost = await raw.jetstream().pull_subscribe_bind(f"workers_{subject(url)}".replace(".", "_"), stream)
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
    from dragoman.channel import Options
    from dragoman.transports.broker import Letter
    from dragoman.transports.nats import post_at
    from dragoman.transports.urls import parse

    url = place(nats, True)
    async with serve(calculator(), urls=url):
        pass
    post, line = post_at(parse(url), Options())
    await line.open()
    letter = Letter(body=SUBTRACT, reply_to=await post.mailbox(print), correlation=name())
    await post.request(letter, None)
    await post.request(letter, None)
    assert await held(raw, url) == 1
    await post.close()


async def test_an_answer_waits_for_its_caller_to_come_back(nats: Engine, raw: Bare) -> None:
    """Nobody hears the mailbox: the worker does not acknowledge, and tries again."""
    url, ran = place(nats, True), asyncio.Event()
    service = Service("told")

    @service.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        ran.set()
        return minuend - subtrahend

    box = raw.new_inbox()
    async with serve(service, urls=url):
        await raw.publish(subject(url), SUBTRACT, headers={"reply-to": box, "correlation": "c1"})
        await ran.wait()
        await asyncio.sleep(0.15)
        answers = await raw.subscribe(f"{box}.*")
        answer = await answers.next_msg(PATIENCE)
        assert json.loads(answer.data)["result"] == 19
        await until_held(raw, url, 0)


async def test_a_full_stream_takes_no_more(nats: Engine, raw: Bare) -> None:
    url = place(nats, True, "max=1")
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


# -- control --------------------------------------------------------------------------------------


@BOTH
async def test_a_cancel_reaches_the_worker_that_has_the_call(nats: Engine, stream: bool) -> None:
    url = place(nats, stream)
    began, ended = asyncio.Event(), asyncio.Event()
    service = Service("patient")

    @service.method
    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    async with serve(service, urls=url), connect(url, timeout=PATIENCE) as peer:
        call = asyncio.ensure_future(peer.call("wait"))
        async with asyncio.timeout(PATIENCE):
            await began.wait()
            call.cancel()
            await ended.wait()


@BOTH
async def test_a_broadcast_reaches_every_worker(nats: Engine, stream: bool) -> None:
    url = place(nats, stream)
    heard: asyncio.Queue[str] = asyncio.Queue()

    def named(who: str) -> Service:
        service = Service(who)

        @service.method(inline=True)
        def news(text: str) -> None:
            heard.put_nowait(who + text)

        return service

    async with serve(named("a"), urls=url), serve(named("b"), urls=url), connect(url) as peer:
        await peer.notify("news", ["!"], broadcast=True)
        async with asyncio.timeout(PATIENCE):
            assert sorted([await heard.get(), await heard.get()]) == ["a!", "b!"]
            await peer.notify("news", ["?"])
            assert (await heard.get())[1] == "?"
    assert heard.empty()


async def test_a_request_after_its_deadline_is_not_run(nats: Engine, raw: Bare) -> None:
    url, seen = place(nats, False), list[int]()
    service = Service("told")

    @service.method(inline=True)
    def see(n: int) -> None:
        seen.append(n)

    async with serve(service, urls=url):
        late = b'{"jsonrpc":"2.0","method":"see","params":[1],"id":1}'
        await raw.publish(subject(url), late, reply=raw.new_inbox(), headers={"deadline": "1000"})
        await raw.request(subject(url), late.replace(b"[1]", b"[2]"), timeout=PATIENCE)
    assert seen == [2]


# -- around it ------------------------------------------------------------------------------------


@BOTH
async def test_mcp(nats: Engine, stream: bool) -> None:
    url = place(nats, stream)
    server = Server("calculator", version="1.0.0")

    @server.tool
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    async with serve(server, urls=url), Client(url) as client:
        assert (await client.call_tool("subtract", {"minuend": 42, "subtrahend": 23}, result=int)) == 19


async def test_wrong_urls(nats: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    host, port = nats.address
    for tail, words in (
        ("", "name who is called"),
        ("/cal*", "cannot name who is called"),
        ("/$JS.API", "cannot name who is called"),
        ("/calculator?quux=1", "quux"),
        ("/calculator?stream=a.b", "stream"),
        ("/calculator?stream=a&wait=0", "wait"),
        ("/calculator?group=a.b", "group"),
        ("/team/calculator?subject=other", "not in both"),
    ):
        with pytest.raises(LocalError, match=words):
            async with connect(f"nats://u:secret-word@{host}:{port}{tail}"):
                pass
    with pytest.raises(Broken, match=r"nats://127\.0\.0\.1:1/calculator: .*refused") as wrong:
        async with connect("nats://127.0.0.1:1/calculator?token=secret-word"):
            pass
    with pytest.raises(LocalError, match="Cannot listen on"):
        async with serve(calculator(), urls="nats://u:secret-word@127.0.0.1:1/calculator"):
            pass
    assert "secret-word" not in str(wrong.value) + caplog.text
