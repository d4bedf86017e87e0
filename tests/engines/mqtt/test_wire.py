"""MQTT against the real Mosquitto: what only it does, when all is well. What all brokers do is in
`test_every_broker`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import paho.mqtt.publish as publish
import pytest
import trustme

from dragoman import connect, serve
from dragoman.channel import Broken
from dragoman.engines.mqtt.connection import MqttEndpoint, MqttLink
from dragoman.engines.mqtt.messages import MqttMessage
from dragoman.jsonrpc.errors import CallTimeout, LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import Refused, Unroutable
from tests.engines.brokers import Engine, engine, name
from tests.engines.wires import MQTT, OLD, PATIENCE, calculator, over, too_large_is_refused
from tests.ports import free_port
from tests.skips import missing

ADD = b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'


@asynccontextmanager
async def listener(url: str, *filters: str) -> AsyncIterator[tuple[MqttLink, asyncio.Queue[MqttMessage]]]:
    """A plain MQTT client that hears some topics, and may publish whatever it likes."""
    heard: asyncio.Queue[MqttMessage] = asyncio.Queue()

    def take(link: MqttLink, message: MqttMessage) -> None:
        heard.put_nowait(message)
        link.acknowledge(message)

    host, _, port = url.rpartition("/")[2].rpartition(":")
    link = MqttLink(MqttEndpoint(host=host, port=int(port), client=name("plain")), take, lambda link, why: None)
    await link.open()
    if filters:
        assert all(code < 0x80 for code in await link.subscribe(filters, 1))
    try:
        yield link, heard
    finally:
        await link.close(forget=True)


# -- what others send ------------------------------------------------------------------------------


async def test_any_client_of_mqtt_5_can_call(mosquitto: Engine) -> None:
    """MQTT 5.0, 4.10: Response Topic and Correlation Data."""
    topic = f"devices/{name()}"
    url = f"{mosquitto.url}/{topic}?reply_to=my/*"
    async with serve(calculator(), urls=[url]), listener(mosquitto.url, "my/answers") as it:
        link, heard = it
        await link.publish(MqttMessage(topic=topic, body=ADD, reply_to="my/answers", correlation="\x00\xff 17"))
        answer = await heard.get()
        assert json.loads(answer.body)["result"] == 3
        assert answer.correlation == "\x00\xff 17"


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("x", "a\0b", "x: it has U+0000"),
        ("x", "é" * 32_768, "x: it has 65536 bytes, of which 65535 are allowed"),
    ],
    ids=lambda value: ascii(value[:60]),
)
async def test_a_header_that_mqtt_does_not_carry_is_refused_before_it_is_sent(
    name: str, text: str, what: str, mosquitto: Engine
) -> None:
    """A broker closes the connection for it, and all other calls on it wait for the next. The whole table is in
    `test_messages`."""
    url = f"{mosquitto.url}/devices/headers"
    states: list[str] = []
    async with serve(calculator(), urls=[url]), connect(url, on_state=lambda state, why: states.append(state)) as peer:
        with pytest.raises(Refused, match=re.escape(f"MQTT does not carry the header {what}")):
            await peer.call("add", [1, 2], extra={name: text})
        assert await peer.call("add", [1, 2], extra={"x": "é" * 32_767, "Größe": "\xa0 ok \u200b"}) == 3
    assert "lost" not in states


async def test_any_client_of_mqtt_311_can_call(mosquitto: Engine) -> None:
    """The topic convention, with the programs that come with Mosquitto."""
    topic = f"devices/{name()}"
    me = f"{topic}/reply/me"
    host, port = mosquitto.address
    words = ["-h", host, "-p", str(port), "-V", "311", "-q", "1"]
    async with serve(calculator(), urls=[f"{mosquitto.url}/{topic}"]):
        if shutil.which("mosquitto_rr") is None:
            missing("no mosquitto_rr on this machine")
        call = [
            "mosquitto_rr",
            *words,
            "-e",
            f"{me}/42",
            "-t",
            f"{topic}/request/{quote(me, '')}/42",
            "-m",
            ADD.decode(),
        ]
        said = await asyncio.to_thread(subprocess.run, call, capture_output=True, text=True, timeout=PATIENCE)
    assert json.loads(said.stdout)["result"] == 3


@over(MQTT, OLD)
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
        await asyncio.to_thread(publish.single, where, stale, qos=1, retain=True, hostname=host, port=port)
    async with serve(api, urls=[url]), connect(url) as peer:
        assert await peer.call("add", [1, 2]) == 3
    assert ran == []


async def test_poison_is_answered_or_set_aside_and_never_loops(mosquitto: Engine) -> None:
    topic = f"devices/{name()}"
    url, box = f"{mosquitto.url}/{topic}", f"{topic}/reply/me"
    async with (
        serve(calculator(), urls=[url]),
        connect(url) as peer,
        listener(mosquitto.url, f"{topic}/dead", box) as (link, heard),
    ):
        await link.publish(MqttMessage(topic=topic, body=b"\xff no JSON", reply_to=box))
        answer = await heard.get()
        assert (answer.topic, b"-32700" in answer.body) == (box, True)
        await link.publish(MqttMessage(topic=topic, body=b"\xff no JSON, no address"))
        dead = await heard.get()
        assert (dead.topic, dead.body) == (f"{topic}/dead", b"\xff no JSON, no address")
        # an address that no client can have, or that is not a mailbox, has the request set aside
        await link.publish(MqttMessage(topic=topic, body=b"\xff no topic", reply_to="my/+"))
        assert (await heard.get()).body == b"\xff no topic"
        await link.publish(MqttMessage(topic=topic, body=ADD, reply_to=topic))
        assert (await heard.get()).body == ADD
        assert await peer.call("add", [1, 2]) == 3
        await link.publish(MqttMessage(topic=f"{topic}/request", body=ADD))
        await link.publish(MqttMessage(topic=f"{topic}/request/%zz/%/a=b=c&&/d/e", body=ADD))
        assert (await heard.get()).body == ADD
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


async def test_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """MQTT 5.0, 3.2.2.3.6: "The Client MUST NOT send packets exceeding Maximum Packet Size"."""
    with _own("allow_anonymous true\nmax_packet_size 10000\n", monkeypatch) as small:
        await too_large_is_refused(f"{small.url}/{name()}", 20_000, "MQTT")


async def test_a_message_that_the_broker_does_not_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`message_size_limit` is not told to clients before, and what Mosquitto says of it stands not in MQTT 5.0,
    3.4.2.1: every time the link is lost over it."""
    with _own("allow_anonymous true\nmessage_size_limit 10000\n", monkeypatch) as small:
        url = f"{small.url}/{name()}"
        async with serve(calculator(), urls=[url]), connect(url) as peer:
            with pytest.raises(Refused, match=r"20\d\d\d bytes; they are not sent again"):
                await peer.call("repeat", ["x" * 20_000, 1])
            assert await peer.call("add", [1, 2]) == 3
            with pytest.raises(CallTimeout):  # an answer is lost, and nothing else
                await peer.call("repeat", ["x" * 2_000, 10], timeout=5)
            assert await peer.call("add", [1, 2]) == 3


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Engine]:
    """A Mosquitto with a worker and a caller that have the rights that the page names."""
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    for who in ("worker", "caller"):
        create = [] if passwords.exists() else ["-c"]
        subprocess.run(["mosquitto_passwd", "-b", *create, passwords, who, "secret-word"], check=True)
    tmp_path.chmod(0o755)
    passwords.chmod(0o644)
    rights.write_text(
        "user worker\ntopic readwrite lamp/#\nuser caller\ntopic write lamp\ntopic write lamp/control\n"
        "pattern read lamp/reply/%c/#\n"
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
    async with serve(calculator(), urls=[url], client_tls=context), connect(url, tls=context) as peer:
        assert await peer.call("add", [1, 2]) == 3
        assert await peer.call("repeat", [text, 1]) == text
    with pytest.raises(Broken, match="certificate is not trusted"):
        async with connect(url):
            pass
