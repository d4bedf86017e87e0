"""Listening sockets: the addresses of a host."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dragoman.net.sockets import CannotListen, bind
from dragoman.net.urls import parse


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "0.0.0.0"])
async def test_an_address_is_bound_without_asking_for_it(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(*args: Any, **options: Any) -> None:
        raise AssertionError("a thread was asked for an address")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", asked)
    bound = await bind(parse(f"tcp://{host}:0"), socket.SOCK_STREAM)
    try:
        assert [one.getsockname()[0] for one in bound] == [host.strip("[]")]
    finally:
        for one in bound:
            one.close()


async def test_a_name_is_asked_for_and_all_its_addresses_are_bound_on_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    ask, asked = loop.getaddrinfo, []

    async def noted(host: Any, port: Any, **options: Any) -> Any:
        asked.append(host)
        return await ask("127.0.0.1", port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", noted)
    bound = await bind(parse("tcp://localhost:0"), socket.SOCK_STREAM)
    for one in bound:
        one.close()
    assert asked == ["localhost"]
    assert len(bound) == 1


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "1.2.3.4.5", "999.1.1.1"])
async def test_what_is_no_address_and_no_name_cannot_be_listened_on(host: str) -> None:
    with pytest.raises(CannotListen, match="Cannot listen on"):
        await bind(parse(f"tcp://{host}:0"), socket.SOCK_STREAM)
