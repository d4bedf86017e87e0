"""Two tenants of one Mosquitto, with the roles of its plugin dynamic security that the page shows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from dragoman import connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.errors import LocalError
from tests.skips import missing

from ..brokers import Engine, engine
from ..tenants import PASSWORDS, WHO, pays, rules, tenants, url_of
from ..wires import PATIENCE, calculator

NOT_AUTHORIZED = 0x87


def _client(name: str) -> dict[str, Any]:
    """A client as the plugin keeps it."""
    salt, rounds = b"salt-of-12-b", 101
    digest = pbkdf2_hmac("sha512", PASSWORDS[name].encode(), salt, rounds)
    kept = {"password": b64encode(digest).decode(), "salt": b64encode(salt).decode(), "iterations": rounds}
    return {"username": name, "roles": [{"rolename": name}], **kept}


@pytest.fixture(scope="module")
def shared() -> Iterator[Engine]:
    """A broker with those roles."""

    def recipe(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
        plugin = next(Path("/usr").glob("lib*/**/mosquitto_dynamic_security.so"), None)
        if plugin is None:
            missing("no mosquitto_dynamic_security.so on this machine")
        user = "user root\n" if os.getuid() == 0 else ""
        roles = folder / "dynamic-security.json"
        roles.write_text(
            json.dumps({**json.loads(rules("mqtt_tenants.json")), "clients": [_client(one) for one in WHO]})
        )
        (folder / "mosquitto.conf").write_text(
            f"{user}listener {port} 127.0.0.1\nset_tcp_nodelay true\nplugin {plugin}\nplugin_opt_config_file {roles}\n"
        )
        return [program, "-c", str(folder / "mosquitto.conf")], {}, ""

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DRAGOMAN_TEST_MQTT", raising=False)
        with engine("mqtt", shutil.which("mosquitto") or "mosquitto", recipe, "/usr/sbin/mosquitto") as one:
            yield one


class Thief:
    """Mallory with the library: what the broker says to each try, and what it delivers."""

    def __init__(self, broker: Engine) -> None:
        self.read: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[int] = asyncio.Queue()
        self._ready = asyncio.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.username_pw_set("mallory", PASSWORDS["mallory"])
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda client, data, number, codes, about: self._say(codes[0].value)
        self.client.on_publish = lambda client, data, number, code, about: self._say(code.value)
        self.client.on_message = lambda client, data, message: self.read.append(bytes(message.payload))
        self.client.connect(*broker.address)
        self.client.loop_start()

    def _on_connect(self, *about: Any) -> None:
        self._loop.call_soon_threadsafe(self._ready.set)

    def _say(self, code: int) -> None:
        self._loop.call_soon_threadsafe(self._said.put_nowait, code)

    async def subscribe(self, topic: str) -> int:
        """The reason code."""
        await asyncio.wait_for(self._ready.wait(), PATIENCE)
        self.client.subscribe(topic, qos=1)
        return await asyncio.wait_for(self._said.get(), PATIENCE)

    async def publish(self, topic: str) -> int:
        """The reason code."""
        await asyncio.wait_for(self._ready.wait(), PATIENCE)
        self.client.publish(topic, b'{"jsonrpc":"2.0","result":"mallory paid","id":1}', qos=1)
        return await asyncio.wait_for(self._said.get(), PATIENCE)

    async def close(self) -> None:
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)


async def test_a_tenant_reads_and_forges_nothing(shared: Engine) -> None:
    async with tenants(shared.url, "calculator") as (bank, alice, _):
        box, taken = bank.mailboxes["alice"], list[str]()
        thief = Thief(shared)
        for topic in (
            *("#", "+", "calculator", "calculator/#", "calculator/request/#", "calculator/control", "calculator/dead"),
            *("$share/dragoman/calculator", "$share/mine/calculator", "$share/mine/#", "calculator/fallen/#"),
            *(box, "calculator/reply/#", "calculator/reply/+/#", "calculator/reply/alice/#"),
        ):
            if await thief.subscribe(topic) != NOT_AUTHORIZED:
                taken.append(f"reads {topic}")
        for topic in (box, "payroll", "calculator/fallen/dragoman/x", "calculator/dead", "calculator/request/a/b"):
            if await thief.publish(topic) != NOT_AUTHORIZED:
                taken.append(f"writes {topic}")
        assert await pays(alice, "alice", 10) == ["alice paid"] * 10
        await thief.close()
    assert taken == []
    assert thief.read == []


async def test_an_error_names_the_missing_permission(shared: Engine) -> None:
    for given in ("mailbox=alice", ""):
        url = url_of(shared.url, "mallory", "calculator").replace("mailbox=mallory", given)
        with pytest.raises(Broken, match=r"does not let us subscribe to calculator/reply/\S+ \(0x87\)"):
            async with connect(url):
                pass
    with pytest.raises(LocalError, match=r"does not let us subscribe to payroll/control/# \(0x87\)"):
        async with serve(calculator(), urls=url_of(shared.url, "worker", "payroll")):
            pass
