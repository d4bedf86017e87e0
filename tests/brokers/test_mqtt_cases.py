"""The table of wire cases over MQTT, in both versions, and from a caller of the old one to a worker of the new."""

from __future__ import annotations

import pytest

from dragoman.channel import Options
from dragoman.transports.mqtt import MqttPost
from dragoman.transports.urls import parse

from .engines import Engine, name
from .wire_table import every_case


@pytest.mark.parametrize(
    ("worker", "caller"), [("5", "5"), ("3.1.1", "3.1.1"), ("5", "3.1.1")], ids=["5", "3.1.1", "3.1.1 to 5"]
)
async def test_every_case_has_its_answer(worker: str, caller: str, mosquitto: Engine) -> None:
    url = f"{mosquitto.url}/devices/{name()}?v="
    post = MqttPost(parse(url + caller), Options(), serving=False)
    await post.start()
    await every_case(url + worker, post)
