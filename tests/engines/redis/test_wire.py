"""`redis://`: what only it does. What stands in Redis is looked at, and written, with the bare library."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis.asyncio import Redis

from dragoman import Context, Service, connect, serve
from dragoman.bus import open_bus
from dragoman.channel import Broken
from dragoman.engines.redis import connection, scripts
from dragoman.engines.redis.connection import RedisConnection, endpoint_of
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import Refused
from tests.behind import behind
from tests.engines.brokers import Engine, engine, name
from tests.engines.wires import PATIENCE, SUBTRACT, calculator, too_large_is_refused
from tests.ports import free_port

FILES = {"cert-file": "server.pem", "key-file": "server.pem", "ca-cert-file": "ca.pem"}


@pytest.fixture
async def raw(redis: Engine) -> AsyncIterator[Redis]:
    """The bare library."""
    async with Redis.from_url(redis.url, protocol=2) as client:
        yield client


async def until(true: Callable[[], Awaitable[Any]]) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not await true():  # noqa: ASYNC110 - what is waited for is in Redis
            await asyncio.sleep(0.02)


class Caller:
    """A caller made of nothing but Redis commands, as docs/wires/redis.md describes them."""

    def __init__(self, raw: Redis, queue: str) -> None:
        self.raw, self.queue = raw, queue
        self.box = f"{queue}:to:test"
        self.last = "0"
        self.count = 0

    async def open(self) -> None:
        await self.raw.xadd(self.box, {"made": ""}, maxlen=0, approximate=False)

    async def send(self, message: bytes, **head: Any) -> str:
        self.count += 1
        words = json.dumps({"to": self.box, "id": str(self.count)} | head)
        await self.raw.xadd(self.queue, {"head": words, "body": message})
        return str(self.count)

    async def next(self) -> tuple[str, bytes]:
        """Correlation and body of the next answer."""
        found: Any = await self.raw.xread({self.box: self.last}, count=1, block=int(PATIENCE * 1000))
        assert found, "no answer"
        entry, fields = found[0][1][0]
        self.last = entry.decode()
        return json.loads(fields[b"head"])["id"], fields[b"body"]

    async def ask(self, message: bytes, answered: bool) -> bytes | None:
        """The answer; None once a later call shows that nothing is owed."""
        mine = await self.send(message)
        marker = await self.send(b'{"jsonrpc":"2.0","method":"get_data","id":"marker"}')
        answers: dict[str, bytes] = {}
        while marker not in answers or (answered and mine not in answers):
            id, body = await self.next()
            if b'"method":"$/progress"' not in body:
                assert id not in answers
                answers[id] = body
        return answers.get(mine)


@asynccontextmanager
async def served(service: Service, redis: Engine, raw: Redis, tail: str = "") -> AsyncIterator[Caller]:
    queue = name()
    async with serve(service, urls=f"{redis.url}/{queue}{tail}"):
        caller = Caller(raw, queue)
        await caller.open()
        yield caller


async def empty(raw: Redis, queue: str) -> bool:
    """Everything was acknowledged and deleted."""
    pending: Any = await raw.xpending(queue, "workers")
    return await raw.xlen(queue) == 0 and pending["pending"] == 0


async def test_what_is_done_is_gone(redis: Engine, raw: Redis) -> None:
    """Acknowledged and deleted: calls, notifications, and what was cancelled."""
    begun = asyncio.Event()
    api = calculator()

    @api.method
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with served(api, redis, raw) as caller, connect(f"{redis.url}/{caller.queue}", timeout=PATIENCE) as peer:
        await asyncio.gather(*(peer.call("subtract", [n, 1]) for n in range(50)))
        await peer.notify("update", [1])
        call = asyncio.create_task(peer.call("hang"))
        await begun.wait()
        call.cancel()
        assert await caller.ask(b"no JSON", True) is not None
        assert await caller.ask(b'{"jsonrpc":"2.0","method":"update"}', False) is None
        await until(lambda: empty(raw, caller.queue))


# -- no worker, too many, too long -------------------------------------------------------------------


async def test_a_full_queue_takes_no_more(redis: Engine, raw: Redis) -> None:
    queue = name()
    await raw.xgroup_create(queue, "workers", "0", mkstream=True)
    for _ in range(3):
        await raw.xadd(queue, {"head": "{}", "body": "{}"})
    async with connect(f"{redis.url}/{queue}?max=3", timeout=PATIENCE) as peer:
        with pytest.raises(Refused, match=r"full: it holds 3 requests"):
            await peer.call("subtract", [42, 23])
    assert await raw.xlen(queue) == 3


async def test_too_large_is_refused(redis: Engine, raw: Redis) -> None:
    before: Any = await raw.config_get("proto-max-bulk-len")
    await raw.config_set("proto-max-bulk-len", 1024 * 1024)
    try:
        await too_large_is_refused(f"{redis.url}/{name()}", 2_000_000, "Redis")
    finally:
        await raw.config_set("proto-max-bulk-len", before["proto-max-bulk-len"])


async def test_an_answer_goes_to_a_mailbox_of_the_queue_and_nowhere_else(redis: Engine, raw: Redis) -> None:
    other = name("other")
    await raw.xadd(other, {"made": ""}, maxlen=0, approximate=False)
    async with served(calculator(), redis, raw) as caller:
        await caller.send(SUBTRACT, to=other)
        assert (await caller.ask(SUBTRACT, True)) is not None
        await caller.send(SUBTRACT, to=f"{caller.queue}:to:gone")
        assert (await caller.ask(SUBTRACT, True)) is not None
        await until(lambda: empty(raw, caller.queue))
        assert await raw.exists(f"{caller.queue}:to:gone") == 0
    assert await raw.xlen(other) == 0


async def test_a_mailbox_ends_with_its_caller(redis: Engine, raw: Redis) -> None:
    async with served(calculator(), redis, raw) as caller:
        async with connect(f"{redis.url}/{caller.queue}", timeout=PATIENCE) as peer:
            await peer.call("subtract", [42, 23])
            boxes = [key async for key in raw.scan_iter(f"{caller.queue}:to:*") if not key.endswith(b":test")]
            assert len(boxes) == 1
            assert 0 < await raw.pttl(boxes[0]) <= 60_000
        assert await raw.exists(boxes[0]) == 0


# -- workers that die -----------------------------------------------------------------------------


def told(seen: list[int]) -> Service:
    """A service that notes how often what it runs was delivered before."""
    service = Service("told")

    @service.method(inline=True)
    def subtract(minuend: int, subtrahend: int, context: Context) -> int:
        seen.append(context.redelivered)
        return minuend - subtrahend

    return service


async def test_the_entries_of_a_silent_worker_are_taken_over(redis: Engine, raw: Redis) -> None:
    queue, seen = name(), list[int]()
    caller = Caller(raw, queue)
    await caller.open()
    await raw.xgroup_create(queue, "workers", "0", mkstream=True)
    await caller.send(SUBTRACT)
    await raw.xreadgroup("workers", "ghost", {queue: ">"})
    async with serve(told(seen), urls=f"{redis.url}/{queue}?idle=1"):
        assert json.loads((await caller.next())[1])["result"] == 19
        await until(lambda: empty(raw, queue))
    assert seen == [1]


@pytest.mark.parametrize("taken", [False, True])
async def test_a_worker_says_what_went_to_another_and_not_what_it_settled_itself(
    taken: bool, redis: Engine, raw: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the server is asked which entries are still held, one is claimed by another, or answered here."""
    queue = name()
    go, told = asyncio.Event(), asyncio.Event()
    api = Service("slow")

    @api.method
    async def wait() -> None:
        await go.wait()

    async def meanwhile(*words: Any) -> Any:
        if taken:
            (entry,) = await raw.xpending_range(queue, "workers", "-", "+", 1)
            await raw.xclaim(queue, "workers", "another", 0, [entry["message_id"]])
        else:
            go.set()
            await until(lambda: nothing_is_pending(raw, queue))
        found = await keep(*words)
        told.set()
        return found

    keep = scripts.KEEP.run
    monkeypatch.setattr(scripts.KEEP, "run", meanwhile)
    async with serve(api, urls=[f"{redis.url}/{queue}?idle=1"]), connect(f"{redis.url}/{queue}") as peer:
        call = asyncio.create_task(peer.call("wait", timeout=PATIENCE))
        async with asyncio.timeout(PATIENCE):
            await told.wait()
        monkeypatch.undo()
        go.set()
        await call
    assert ("1 entries went to another worker" in caplog.text) is taken


async def nothing_is_pending(raw: Redis, queue: str) -> bool:
    """Whether no worker has an entry."""
    return not (await raw.xpending(queue, "workers"))["pending"]


async def test_poison_is_given_up_and_set_aside(redis: Engine, raw: Redis) -> None:
    queue, seen = name(), list[int]()
    caller = Caller(raw, queue)
    await caller.open()
    await raw.xgroup_create(queue, "workers", "0", mkstream=True)
    await caller.send(SUBTRACT)
    found: Any = await raw.xreadgroup("workers", "ghost", {queue: ">"})
    await raw.xclaim(queue, "workers", "ghost", 0, [found[0][1][0][0]], idle=5000, retrycount=5)
    async with serve(told(seen), urls=f"{redis.url}/{queue}?idle=1"):
        answer = json.loads((await caller.next())[1])
        assert answer["error"]["code"] == -32603
        assert answer["id"] == 1
        await until(lambda: empty(raw, queue))
    dead: Any = await raw.xrange(f"{queue}:dead")
    assert [fields[b"body"] for _, fields in dead] == [SUBTRACT]
    assert seen == []


@pytest.mark.parametrize("entry", [{"body": "no JSON"}, {"head": "no JSON", "body": SUBTRACT}, {"other": "x"}])
async def test_what_is_not_a_request_and_has_no_reply_address_is_set_aside(
    entry: dict[Any, Any], redis: Engine, raw: Redis
) -> None:
    async with served(calculator(), redis, raw) as caller:
        await raw.xadd(caller.queue, entry)
        await until(lambda: raw.xlen(f"{caller.queue}:dead"))
        await until(lambda: empty(raw, caller.queue))
        assert json.loads(await caller.ask(SUBTRACT, True) or b"")["result"] == 19


async def test_a_worker_that_leaves_gives_back_what_it_has_not_begun(redis: Engine, raw: Redis) -> None:
    url, ran = f"{redis.url}/{name()}", list[str]()
    started, gate = asyncio.Event(), asyncio.Event()

    def named(who: str) -> Service:
        service = Service(who)

        @service.method
        async def work(context: Context) -> tuple[str, int]:
            ran.append(who)
            started.set()
            await gate.wait()
            return who, context.redelivered

        return service

    async with connect(url, timeout=PATIENCE) as peer:
        async with serve(named("first"), urls=f"{url}?prefetch=1"):
            calls = [asyncio.ensure_future(peer.call("work")) for _ in range(3)]
            await started.wait()
            gate.set()
        async with serve(named("second"), urls=url):
            async with asyncio.timeout(PATIENCE):
                answers = await asyncio.gather(*calls)
    assert len(ran) == 3
    assert [count for _, count in answers] == [0, 0, 0]
    consumers: Any = await raw.xinfo_consumers(url.rpartition("/")[2], "workers")
    assert consumers == []


async def test_what_was_answered_is_answered_again_and_not_run_again(redis: Engine, raw: Redis) -> None:
    """Two workers that share a store: the second is sent the first's answer."""
    seen = list[int]()
    queue = name()
    caller = Caller(raw, queue)
    await caller.open()
    for _ in range(2):
        async with serve(told(seen), urls=f"{redis.url}/{queue}", bus=redis.url):
            await caller.send(SUBTRACT, id="same", headers={"key": "same"}, count=len(seen))
            id, body = await caller.next()
            assert (id, json.loads(body)["result"]) == ("same", 19)
    assert seen == [0]


# -- Redis goes and comes -------------------------------------------------------------------------


async def test_a_flush_is_repaired(redis: Engine, raw: Redis) -> None:
    url = f"{redis.url}/9/{name()}"
    async with serve(calculator(), urls=url), connect(url, timeout=PATIENCE) as peer:

        async def works() -> bool:
            try:
                return bool(await peer.call("subtract", [42, 23], timeout=3) == 19)
            except (Broken, TimeoutError):
                return False

        assert await works()
        async with Redis.from_url(f"{redis.url}/9") as ninth:
            await ninth.flushdb()
        await until(works)


async def test_calls_that_redis_has_lost_end_in_an_error(redis: Engine, raw: Redis) -> None:
    url = f"{redis.url}/8/{name()}"
    began, gate = asyncio.Event(), asyncio.Event()
    service = Service("patient")

    @service.method
    async def wait() -> None:
        began.set()
        await gate.wait()

    async with serve(service, urls=url), connect(url, timeout=PATIENCE) as peer:
        call = asyncio.ensure_future(peer.call("wait"))
        await began.wait()
        async with Redis.from_url(f"{redis.url}/8") as eighth:
            await eighth.flushdb()
        with pytest.raises(Broken, match="lost"):
            await call
        gate.set()


async def test_a_line_that_is_alive_can_be_asked(redis: Engine, raw: Redis) -> None:
    """Otherwise a worker that asks again as soon as the connection is back would loop, and the event loop would never
    come to its loss."""
    over = False
    lost: asyncio.Queue[None] = asyncio.Queue()
    connection = RedisConnection(
        endpoint_of(parse(redis.url), ""), on_state=lambda up, why: None if up else lost.put_nowait(None)
    )
    await connection.open()

    async def ask() -> None:
        while not over:
            await connection.back()
            while connection.alive and not over:
                connection.post("PING")
                await asyncio.sleep(0)

    asking = asyncio.create_task(ask())
    async with asyncio.timeout(PATIENCE):
        for _ in range(5):
            await connection.back()
            await raw.client_kill_filter(_id=str(await connection.ask("CLIENT", "ID")))
            await lost.get()
        over = True
        await connection.back()
        await asking
    await connection.close()


async def test_a_server_that_hangs_is_noticed(redis: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-open: the sockets stay, nothing comes. What was in flight is answered once it goes on."""
    redis.control()
    monkeypatch.setattr(connection, "PATIENCE", 2.5)
    bus = await open_bus(redis.url)
    states: asyncio.Queue[bool] = asyncio.Queue()
    bus.on_state = states.put_nowait
    redis.freeze()
    try:
        async with asyncio.timeout(PATIENCE):
            assert await states.get() is False
    finally:
        redis.thaw()
    async with asyncio.timeout(PATIENCE):
        assert await states.get() is True
    await bus.close()


# -- around it ------------------------------------------------------------------------------------


class Tls(NamedTuple):
    """A Redis with TLS: its port and the file of the authority that its certificate, for localhost alone, is from."""

    port: int
    authority: Path


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    trustme = pytest.importorskip("trustme")
    folder, port = tmp_path_factory.mktemp("tls"), free_port()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))

    def recipe(program: str, _: Path, plain: int) -> tuple[list[str], dict[str, str], str]:
        words = f"--port {plain} --tls-port {port} --tls-auth-clients no --save ''".split()
        files = [f"--tls-{kind}={folder}/{name}" for kind, name in FILES.items()]
        return [program, *words, *(part for file in files for part in file.split("="))], {}, ""

    try:
        with engine("redis", "redis-server", recipe) as one:
            one.control()
            yield Tls(port, folder / "ca.pem")
    except RuntimeError as why:
        pytest.skip(f"this redis-server has no TLS: {str(why)[-200:]}")


async def test_tls(tls: Tls) -> None:
    url = f"rediss://localhost:{tls.port}/calculator"
    trusting = ssl.create_default_context(cafile=tls.authority)
    async with serve(calculator(), urls=url, client_tls=trusting), connect(url, tls=trusting) as peer:
        assert await peer.call("subtract", [42, 23]) == 19
        channel = behind(peer)._channel
        assert channel is not None
        assert channel.caller.tls
    with pytest.raises(Broken, match="Cannot connect to rediss://"):
        async with connect(url):
            pass


@pytest.mark.parametrize("given", [False, True], ids=["our context", "a given one"])
async def test_the_certificate_must_be_for_the_host(tls: Tls, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the library takes for granted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.authority))
    context = ssl.create_default_context(cafile=tls.authority) if given else None
    async with connect(f"rediss://localhost:{tls.port}/calculator", tls=context):
        pass
    with pytest.raises(Broken, match=r"certificate is not trusted.*IP address mismatch"):
        async with connect(f"rediss://127.0.0.1:{tls.port}/calculator", tls=context):
            pass


async def test_the_context_of_a_server_is_not_for_what_it_dials(tls: Tls) -> None:
    """One that verifies nothing, as servers have it: any broker would be trusted."""
    url, context = f"rediss://localhost:{tls.port}/calculator", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(LocalError, match="certificate is not trusted"):
        async with serve(calculator(), urls=url, tls=context):
            pass


async def test_a_wrong_password_is_not_shown(redis: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    host, port = redis.address
    with pytest.raises(Broken, match="Cannot connect to redis://") as wrong:
        await connect(f"redis://u:secret-word@{host}:{port}/calculator")
    assert "secret-word" not in str(wrong.value) + caplog.text


async def test_a_key_of_another_kind(redis: Engine, raw: Redis) -> None:
    queue = name()
    await raw.set(queue, "text")
    with pytest.raises(LocalError, match="WRONGTYPE"):
        async with serve(calculator(), urls=f"{redis.url}/{queue}"):
            pass
    async with connect(f"{redis.url}/{queue}", timeout=PATIENCE) as peer:
        with pytest.raises(Refused, match="WRONGTYPE"):
            await peer.call("subtract", [42, 23])
    await raw.delete(queue)
