"""MQTT against the real Mosquitto: what is promised when all is well. Faults are in `test_mqtt_faults`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from dragoman import Service, connect, serve
from dragoman.channel import Broken, Options
from dragoman.jsonrpc.errors import CallTimeout, LocalError, RpcError
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp import Client, Server
from dragoman.transports.broker import Refused, Unroutable
from dragoman.transports.mqtt import MqttPost
from dragoman.transports.mqtt_link import Link, Place, Published
from dragoman.transports.urls import parse

from .engines import Engine, engine, free_port, missing, name

PATIENCE = 30.0
ADD = b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'


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
async def post(url: str, serving: bool = False) -> AsyncIterator[MqttPost]:
    """The broker's own face, for messages that no peer of ours would send."""
    one = MqttPost(parse(url), Options(), serving=serving)
    await one.start()
    try:
        yield one
    finally:
        await one.close()


@asynccontextmanager
async def listener(url: str, *filters: str) -> AsyncIterator[tuple[Link, asyncio.Queue[Published]]]:
    """A plain MQTT client that hears some topics, and may publish whatever it likes."""
    heard: asyncio.Queue[Published] = asyncio.Queue()

    def take(link: Link, message: Published) -> None:
        heard.put_nowait(message)
        link.acknowledge(message)

    host, _, port = url.rpartition("/")[2].rpartition(":")
    link = Link(Place(host=host, port=int(port), client=name("plain")), take, lambda link, why: None)
    await link.open(clean=True)
    if filters:
        assert all(code < 0x80 for code in await link.subscribe(filters, 1))
    try:
        yield link, heard
    finally:
        await link.close(forget=True)


@pytest.fixture(params=["5", "3.1.1"])
def url(request: pytest.FixtureRequest, mosquitto: Engine) -> str:
    """An address of its own, in both versions of MQTT."""
    return f"{mosquitto.url}/devices/{name()}?v={request.param}"


# -- calls ----------------------------------------------------------------------------------------


async def test_calls_batches_and_notifications(url: str) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()
    api = calculator()

    @api.method
    async def note(number: int) -> None:
        heard.put_nowait(number)

    async with serve(api, urls=[url]) as serving, connect(url) as peer:
        assert serving.urls[0].startswith("mqtt://127.0.0.1:")
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
        async with asyncio.timeout(PATIENCE):
            assert {await heard.get(), await heard.get()} == {7, 8}


async def test_large_messages_go_through_whole(url: str) -> None:
    text = "0123456789" * 100_000
    async with serve(calculator(), urls=[url]), connect(url) as peer:
        assert await peer.call("repeat", [text, 3]) == text * 3


async def test_many_calls_at_once(url: str) -> None:
    async with serve(calculator(), urls=[url]), connect(url) as peer:
        answers = await asyncio.gather(*(peer.call("add", [number, 1]) for number in range(500)))
    assert answers == [number + 1 for number in range(500)]


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_workers_compete_and_a_broadcast_reaches_all(version: str, mosquitto: Engine) -> None:
    """MQTT 5.0, 4.8.2: each message for a shared subscription goes to one. Mosquitto has them on 3.1.1 too."""
    url = f"{mosquitto.url}/devices/{name()}?v={version}&prefetch=1&group=workers"
    heard: asyncio.Queue[str] = asyncio.Queue()
    busy: set[str] = set()
    both = asyncio.Event()

    def worker(who: str) -> Service:
        api = Service(who)

        @api.method
        async def work() -> str:
            busy.add(who)
            if len(busy) == 2:
                both.set()
            await both.wait()
            return who

        @api.method
        async def news(text: str) -> None:
            heard.put_nowait(f"{who} {text}")

        return api

    async with serve(worker("a"), urls=[url]), serve(worker("b"), urls=[url]), connect(url) as peer:
        async with asyncio.timeout(PATIENCE):
            done = await asyncio.gather(peer.call("work"), peer.call("work"))
            assert set(done) == {"a", "b"}
            await peer.notify("news", ["hello"], broadcast=True)
            assert {await heard.get(), await heard.get()} == {"a hello", "b hello"}


async def test_a_caller_on_the_old_version_reaches_a_worker_on_the_new(mosquitto: Engine) -> None:
    url = f"{mosquitto.url}/devices/{name()}"
    async with serve(calculator(), urls=[url]), connect(f"{url}?v=3.1.1") as peer:
        assert await peer.call("add", [1, 2]) == 3
        assert await peer.call("repeat", ["x", 3]) == "xxx"


async def test_nobody_there_is_said_at_once(mosquitto: Engine) -> None:
    """MQTT 5.0, 3.4.2.1: 0x10, "The message is accepted but there are no subscribers"."""
    topic = f"devices/{name('nobody')}"
    async with connect(f"{mosquitto.url}/{topic}") as peer:
        with pytest.raises(Unroutable, match=topic):
            await peer.call("add", [1, 2], timeout=None)
        with pytest.raises(Unroutable):
            await peer.notify("add", [1, 2])


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

    async with serve(api, urls=[f"{url}&prefetch=1"]), connect(url) as peer:
        call = asyncio.create_task(peer.call("hang"))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
            waiting = asyncio.create_task(peer.call("add", [1, 2]))
            call.cancel()
            await ended.wait()
            assert await waiting == 3


async def test_a_request_whose_deadline_has_passed_is_not_run(mosquitto: Engine) -> None:
    """The broker drops it by its Message Expiry Interval (MQTT 5.0, 3.3.2.3.3), or the worker by its deadline."""
    url = f"{mosquitto.url}/devices/{name()}?client={name()}"
    ran: list[str] = []
    api = calculator()

    @api.method
    async def mark(text: str) -> None:
        ran.append(text)

    async with serve(api, urls=[url]):
        pass
    async with post(url, serving=True) as one:  # there is a session again, and nobody settles anything
        await one.work(lambda letter: None, 1)
        _die(one)
    caller = url.partition("?")[0]
    async with connect(caller) as peer:
        with pytest.raises(CallTimeout):
            await peer.call("mark", ["late"], timeout=0.05)
        waiting = asyncio.create_task(peer.call("mark", ["in time"], timeout=PATIENCE))
        await peer.notify("mark", ["note"])
        async with serve(api, urls=[url]):
            await waiting
            assert await peer.call("add", [1, 2]) == 3
    assert sorted(ran) == ["in time", "note"]


# -- what others send ------------------------------------------------------------------------------


async def test_any_client_of_mqtt_5_can_call(mosquitto: Engine) -> None:
    """MQTT 5.0, 4.10: Response Topic and Correlation Data."""
    topic = f"devices/{name()}"
    async with serve(calculator(), urls=[f"{mosquitto.url}/{topic}"]), listener(mosquitto.url, "my/answers") as it:
        link, heard = it
        await link.publish(Published(topic=topic, body=ADD, reply_to="my/answers", correlation="\x00\xff 17"))
        answer = await heard.get()
        assert json.loads(answer.body)["result"] == 3
        assert answer.correlation == "\x00\xff 17"


async def test_any_client_of_mqtt_311_can_call(mosquitto: Engine) -> None:
    """The topic convention, with the programs that come with Mosquitto."""
    topic, me = f"devices/{name()}", name("me")
    host, port = mosquitto.address
    words = ["-h", host, "-p", str(port), "-V", "311", "-q", "1"]
    async with serve(calculator(), urls=[f"{mosquitto.url}/{topic}"]):
        if shutil.which("mosquitto_rr") is None:
            missing("no mosquitto_rr on this machine")
        call = ["mosquitto_rr", *words, "-e", f"{me}/42", "-t", f"{topic}/request/{me}/42", "-m", ADD.decode()]
        said = await asyncio.to_thread(subprocess.run, call, capture_output=True, text=True, timeout=PATIENCE)
    assert json.loads(said.stdout)["result"] == 3


async def test_retained_messages_are_never_requests(url: str, mosquitto: Engine) -> None:
    ran: list[str] = []
    api = calculator()

    @api.method(inline=True)
    def mark() -> None:
        ran.append("ran")

    topic = parse(url).path.strip("/")
    stale = '{"jsonrpc":"2.0","method":"mark","id":1}'
    host, port = mosquitto.address
    for where in (topic, f"{topic}/request/me/1", f"{topic}/control"):
        words = ["mosquitto_pub", "-h", host, "-p", str(port), "-q", "1", "-r", "-t", where, "-m", stale]
        await asyncio.to_thread(subprocess.run, words, check=True)
    async with serve(api, urls=[url]), connect(url) as peer:
        assert await peer.call("add", [1, 2]) == 3
    assert ran == []


async def test_poison_is_answered_or_set_aside_and_never_loops(mosquitto: Engine) -> None:
    topic = f"devices/{name()}"
    url = f"{mosquitto.url}/{topic}"
    async with (
        serve(calculator(), urls=[url]),
        connect(url) as peer,
        listener(mosquitto.url, f"{topic}/dead", "my/answers") as (link, heard),
    ):
        await link.publish(Published(topic=topic, body=b"\xff no JSON", reply_to="my/answers"))
        answer = await heard.get()
        assert (answer.topic, b"-32700" in answer.body) == ("my/answers", True)
        await link.publish(Published(topic=topic, body=b"\xff no JSON, no address"))
        dead = await heard.get()
        assert (dead.topic, dead.body) == (f"{topic}/dead", b"\xff no JSON, no address")
        # an address that nobody can have is none
        await link.publish(Published(topic=topic, body=b"\xff no topic", reply_to="my/+"))
        assert (await heard.get()).body == b"\xff no topic"
        # an answer that comes back as a request is dropped: no loop
        await link.publish(Published(topic=topic, body=ADD, reply_to=topic))
        assert await peer.call("add", [1, 2]) == 3
        await link.publish(Published(topic=f"{topic}/request", body=ADD))
        await link.publish(Published(topic=f"{topic}/request/%zz/%/a=b=c&&/d/e", body=ADD))
        assert await peer.call("add", [1, 2]) == 3
        assert heard.empty()


# -- limits and rights -----------------------------------------------------------------------------


def _config(extra: str) -> Any:
    def recipe(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
        user = "user root\n" if os.getuid() == 0 else ""
        config = folder / "mosquitto.conf"
        config.write_text(f"{user}listener {port} 127.0.0.1\nset_tcp_nodelay true\n{extra}")
        return [program, "-c", str(config)], {}, ""

    return recipe


def _own(extra: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Mosquitto with some lines of configuration of its own."""
    monkeypatch.delenv("DRAGOMAN_TEST_MQTT", raising=False)
    return engine("mqtt", "mosquitto", _config(extra), "/usr/sbin/mosquitto")


async def test_too_large_is_refused_before_it_is_sent_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """MQTT 5.0, 3.2.2.3.6: "The Client MUST NOT send packets exceeding Maximum Packet Size"."""
    with _own("allow_anonymous true\nmax_packet_size 10000\n", monkeypatch) as small:
        url = f"{small.url}/{name()}"
        async with serve(calculator(), urls=[url]), connect(url) as peer:
            with pytest.raises(LocalError, match=r"MQTT takes 58\d\d ") as refused:
                await peer.call("repeat", ["x" * 20_000, 1])
            assert "20" in str(refused.value)
            with pytest.raises(RpcError) as answered:  # and so is an answer
                await peer.call("repeat", ["x" * 2_000, 4])
            assert answered.value.code == -32003
            assert await peer.call("add", [1, 2]) == 3


async def test_a_message_that_the_broker_does_not_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`message_size_limit` is told to nobody before, and what Mosquitto says of it stands not in MQTT 5.0, 3.4.2.1:
    every time the link is lost over it."""
    with _own("allow_anonymous true\nmessage_size_limit 10000\n", monkeypatch) as small:
        url = f"{small.url}/{name()}"
        async with serve(calculator(), urls=[url]), connect(url) as peer:
            with pytest.raises(Refused, match=r"20\d\d\d bytes; they are not sent again"):
                await peer.call("repeat", ["x" * 20_000, 1])
            assert await peer.call("add", [1, 2]) == 3
            with pytest.raises(CallTimeout):  # an answer is lost, and nothing else
                await peer.call("repeat", ["x" * 2_000, 10], timeout=5)
            assert await peer.call("add", [1, 2]) == 3


async def test_above_the_worker_s_own_limit_it_is_an_error(url: str) -> None:
    async with serve(calculator(), urls=[url], limits=SERVER.but(message_size=1000)), connect(url) as peer:
        with pytest.raises(RpcError) as refused:
            await peer.call("repeat", ["x" * 2000, 1])
        assert refused.value.code == -32003
        assert await peer.call("add", [1, 2]) == 3


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Engine]:
    """A Mosquitto with a worker and a caller, who may do what the page says."""
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    for who in ("worker", "caller"):
        create = [] if passwords.exists() else ["-c"]
        subprocess.run(["mosquitto_passwd", "-b", *create, passwords, who, "secret-word"], check=True)
    tmp_path.chmod(0o755)
    passwords.chmod(0o644)
    rights.write_text(
        "user worker\ntopic readwrite lamp/#\nuser caller\ntopic write lamp\ntopic write lamp/control\n"
        "pattern read lamp/reply/%c\n"
    )
    with _own(f"password_file {passwords}\nacl_file {rights}\n", monkeypatch) as one:
        yield one


async def test_users_passwords_and_rights(
    guarded: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host, port = guarded.address

    def url(who: str, topic: str = "lamp") -> str:
        return f"mqtt://{who}@{host}:{port}/{topic}"

    async with serve(calculator(), urls=[url("worker:secret-word")]):
        async with connect(url("caller:secret-word")) as peer:
            assert await peer.call("add", [1, 2]) == 3
        monkeypatch.setenv("DRAGOMAN_MQTT_USER", "caller")
        monkeypatch.setenv("DRAGOMAN_MQTT_PASSWORD", "secret-word")
        async with connect(f"mqtt://{host}:{port}/lamp") as peer:
            assert await peer.call("add", [1, 2]) == 3
        with pytest.raises(Broken, match="not authorized") as wrong:
            async with connect(url("caller:wrong-word")):
                pass
    with pytest.raises(LocalError, match=r"Cannot listen on .*not authorized") as denied:
        async with serve(calculator(), urls=[url("worker:wrong-word")]):
            pass
    async with connect(url("caller:secret-word", "other")) as peer:
        with pytest.raises((Refused, Unroutable)):
            await peer.call("add", [1, 2])
    said = f"{wrong.value} {denied.value} {caplog.text}"
    assert "secret-word" not in said
    assert "wrong-word" not in said


# -- other ways to the broker ----------------------------------------------------------------------


@pytest.fixture
def guarded_by_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """An address for `mqtts://`, and a context that trusts it."""
    ca = trustme.CA()
    own = ca.issue_cert("127.0.0.1")
    tmp_path.chmod(0o755)
    own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    context = ssl.create_default_context()
    ca.configure_trust(context)
    port = free_port()
    extra = (
        f"allow_anonymous true\nlistener {port} 127.0.0.1\ncertfile {tmp_path}/cert.pem\nkeyfile {tmp_path}/key.pem\n"
    )
    with _own(extra, monkeypatch):
        yield f"mqtts://127.0.0.1:{port}/lamp", context


async def test_over_tls(guarded_by_tls: tuple[str, ssl.SSLContext]) -> None:
    url, context = guarded_by_tls
    text = "0123456789" * 200_000
    async with serve(calculator(), urls=[url], tls=context), connect(url, tls=context) as peer:
        assert await peer.call("add", [1, 2]) == 3
        assert await peer.call("repeat", [text, 1]) == text
    with pytest.raises(Broken, match="certificate is not trusted"):
        async with connect(url):
            pass


async def test_mcp(mosquitto: Engine) -> None:
    url = f"{mosquitto.url}/{name()}"
    server = Server("calculator", version="1.0.0")

    @server.tool
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    async with serve(server, urls=url), Client(url) as client:
        assert (await client.call_tool("subtract", {"minuend": 42, "subtrahend": 23}, result=int)) == 19


async def test_wrong_urls(mosquitto: Engine) -> None:
    for tail, words in (
        ("", "name the topic"),
        ("/devices/%2B", "is no topic"),
        ("/a%23", "is no topic"),
        ("/$SYS/broker", "is no topic"),
        ("/lamp?quux=1", "quux"),
        ("/lamp?v=4", "5 or 3.1.1"),
        ("/lamp?acks=none", "ordered or any"),
        ("/lamp?group=a/b", "group"),
        ("/lamp?keepalive=0", "keepalive"),
    ):
        with pytest.raises(LocalError, match=words):
            async with connect(f"{mosquitto.url}{tail}"):
                pass
    with pytest.raises(Broken, match=r"mqtt://127\.0\.0\.1:1/lamp: connection refused"):
        async with connect("mqtt://127.0.0.1:1/lamp"):
            pass
    with pytest.raises(LocalError, match=r"Cannot listen on .*connection refused"):
        async with serve(calculator(), urls="mqtt://127.0.0.1:1/lamp"):
            pass


def _die(one: MqttPost) -> None:
    """What a worker's death looks like to the broker: the socket is gone, without a goodbye."""
    assert one._link is not None
    one._closing = True
    one._link._over("dead")
