"""The connection to an MQTT broker, without a broker."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import paho.mqtt.client as paho
import pytest

from dragoman.engines.mqtt.connection import MqttEndpoint, MqttLink


@pytest.mark.parametrize("loop_goes_on", [True, False])
def test_a_connection_that_comes_after_its_loop_gave_up_is_closed(
    monkeypatch: pytest.MonkeyPatch, loop_goes_on: bool
) -> None:
    """It is made in a thread, which may be at it still when the loop has ended."""
    dialling, go_on, done = threading.Event(), threading.Event(), threading.Event()
    real, made = paho.Client.reconnect, list[Any]()

    def slow(client: paho.Client) -> Any:
        dialling.set()
        go_on.wait(30)
        code = real(client)
        made.append(client.socket())
        return code

    monkeypatch.setattr(paho.Client, "reconnect", slow)
    dial = MqttLink._dial

    def told(link: MqttLink) -> None:
        try:
            dial(link)
        finally:
            done.set()

    monkeypatch.setattr(MqttLink, "_dial", told)

    async def main(port: int) -> None:
        link = MqttLink(MqttEndpoint(host="127.0.0.1", port=port, client="late"), lambda *_: None, lambda *_: None)
        opening = asyncio.create_task(link.open())
        await asyncio.to_thread(dialling.wait, 30)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        if loop_goes_on:
            go_on.set()
            await asyncio.to_thread(done.wait, 30)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main(listening.getsockname()[1]))
        loop.close()
        go_on.set()
        assert done.wait(30)
    assert [one.fileno() for one in made] == [-1]
