"""WebSockets whose handshake is authorized by a source of tokens, also when they are dialled again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.auth import LoginNeeded, Token
from dragoman.channel import Admitted, Broken, ChannelError, Denied, Handshake, Identity
from tests.transports.ends import PATIENCE, until


class Door:
    """A server, whose guard admits the tokens that it is told, and what it was shown."""

    def __init__(self, *good: str) -> None:
        self.good = good
        self.shown: list[str] = []
        self.lasts: float | None = None

    async def guard(self, handshake: Handshake) -> Admitted | Denied:
        token = dict(handshake.headers).get(b"authorization", b"").decode().removeprefix("Bearer ")
        self.shown.append(token)
        if token not in self.good:
            return Denied(reason="Not this one", headers=[("WWW-Authenticate", 'Bearer error="invalid_token"')])
        expires = None if self.lasts is None else time.time() + self.lasts
        return Admitted(identity=Identity(subject=token), expires=expires)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        api = Service("telling")

        @api.method(inline=True)
        def who(context: Context) -> str:
            return "" if context.identity is None else context.identity.subject

        async with serve(api, urls="ws://127.0.0.1:0/rpc", guard=self.guard) as serving:
            yield serving.urls[0]


def counting(*given: str) -> Token:
    tokens = iter(given)
    return Token(lambda: next(tokens))


async def test_the_handshake_has_the_token() -> None:
    door = Door("t0")
    async with door.open() as url, connect(url, auth=counting("t0")) as peer:
        assert [await peer.call("who") for _ in range(2)] == ["t0"] * 2
    assert door.shown == ["t0"]


async def test_a_refused_handshake_asks_for_another_token_once() -> None:
    door = Door("t1")
    async with door.open() as url:
        async with connect(url, auth=counting("t0", "t1")) as peer:
            assert await peer.call("who") == "t1"
        assert door.shown == ["t0", "t1"]
        with pytest.raises(Broken, match="HTTP 401"):
            await connect(url, auth=counting("t2", "t3", "t4"))
        assert door.shown[2:] == ["t2", "t3"]


async def test_a_channel_whose_token_expired_comes_again_with_a_fresh_one() -> None:
    door = Door("t0", "t1")
    door.lasts = 1.0
    states: list[tuple[str, str]] = []

    def told(state: str, why: ChannelError | None) -> None:
        states.append((state, "" if why is None else str(why)))
        door.lasts = None

    async with door.open() as url, connect(url, auth=counting("t0", "t1"), reconnect=True, on_state=told) as peer:
        async with asyncio.timeout(PATIENCE):
            assert await peer.call("who") == "t0"
            await until(lambda: len(states) >= 2)
            assert await peer.call("who") == "t1"  # what is called meanwhile waits for the new channel
    assert [state for state, _ in states] == ["connected", "lost", "connected", "closed"]
    assert "1008" in states[1][1]
    assert "The admission has expired" in states[1][1]


class ForPeople:
    """A source of tokens that has one, and then needs a person."""

    def __init__(self) -> None:
        self.begun = self.closed = 0
        self.asked: list[str] = []

    def authorizing(self, url: str, tls: Any = None) -> ForPeople:
        self.asked.append(url)
        return self

    def begin(self, operation: str, patience: Any) -> ForPeople:
        self.begun += 1
        return self

    async def fields(self, method: str, url: str) -> Mapping[str, str]:
        if self.begun > 1:
            raise LoginNeeded("log in")
        return {"authorization": "Bearer t0"}

    async def again(self, status: int, headers: Mapping[str, str]) -> bool:
        raise AssertionError("nothing was refused")

    async def close(self) -> None:
        self.closed += 1


async def test_a_login_is_not_asked_for_again_and_again() -> None:
    door, source = Door("t0"), ForPeople()
    door.lasts = 0.5
    over: asyncio.Future[ChannelError | None] = asyncio.get_running_loop().create_future()

    def told(state: str, why: ChannelError | None) -> None:
        if state == "closed" and not over.done():
            over.set_result(why)

    async with door.open() as url:
        async with connect(url, auth=source, reconnect=True, on_state=told) as peer:
            async with asyncio.timeout(PATIENCE):
                assert isinstance(await over, LoginNeeded)
            with pytest.raises(LoginNeeded):
                await peer.call("who")
        assert source.begun == source.closed == 2
        assert set(source.asked) == {url.replace("ws:", "http:")}
