"""HTTP+SSE, the calling side. Rules: 2024-11-05 basic/transports, "HTTP with SSE"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.channel import Broken, Channel, ChannelError, Ended, Options
from dragoman.jsonrpc.errors import BadAnswer, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, Limits
from dragoman.mcp.client.http.legacy_2024 import dial_2024
from dragoman.mcp.client.http.refusals import HttpRefused
from dragoman.mcp.protocol.dialect import of
from dragoman.mcp.protocol.revisions import R2024_11
from dragoman.rpc.channel_peer import ChannelPeer
from dragoman.rpc.runner import Runner
from tests.behind import behind

from ...http_callers import callee
from ...scripted_http import Seen, Talk, answer, error, forever, scripted


class Old:
    """A server of the old way: `out` goes to the stream, None ends it, `...` cuts it."""

    def __init__(self, endpoint: str = "/messages?session=1", posts: str = "202 Accepted") -> None:
        self.endpoint = endpoint
        self.posts = posts
        self.out: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, seen: Seen, talk: Talk) -> None:
        if seen.method == "POST":
            self.post(seen, talk)
            return
        talk.stream()
        talk.event(self.endpoint.encode(), kind="endpoint")
        while (message := await self.out.get()) is not None:
            if message is ...:
                talk.cut()
                return
            talk.event(message, kind="message")
        talk.end()

    def post(self, seen: Seen, talk: Talk) -> None:
        talk.say(b"Accepted", self.posts, kind="text/plain")
        if self.posts[0] == "2" and "id" in seen.message and "method" in seen.message:
            self.out.put_nowait(answer(seen.id, seen.message["method"]))


@asynccontextmanager
async def calling(url: str, limits: Limits = CLIENT) -> AsyncIterator[ChannelPeer]:
    peer = ChannelPeer(Runner(behind(callee())), limits=limits, dialect=of(R2024_11))
    peer.alone = True
    peer.attach(await dial_2024(url, Options(limits=limits)))
    try:
        yield peer
    finally:
        await peer.close()


@pytest.mark.parametrize("endpoint", ["/messages?session=1", "messages?session=1", "http://{host}/messages?session=1"])
async def test_posts_go_to_the_endpoint_and_answers_come_on_the_stream(endpoint: str) -> None:
    old = Old(endpoint)
    async with scripted(old) as server:
        old.endpoint = endpoint.format(host=f"127.0.0.1:{server.port}")
        async with calling(server.url) as peer:
            assert isinstance(peer._channel, Channel)
            assert await peer.call("ping") == "ping"
            await peer.notify("notifications/initialized")
            await peer._channel.flush()
            old.out.put_nowait({"jsonrpc": "2.0", "id": "q", "method": "ask", "params": {"question": "who"}})
            async with asyncio.timeout(20):
                seen = [await server.next() for _ in range(4)]
    assert [(one.method, one.target) for one in seen] == [("GET", "/mcp")] + [("POST", "/messages?session=1")] * 3
    assert seen[0].headers["accept"] == "text/event-stream"
    assert seen[1].headers["content-type"] == "application/json"
    assert seen[3].message == answer("q", "who!")


@pytest.mark.parametrize(
    "endpoint", ["http://else.example/messages", "https://{host}/messages", "//else.example/x", "http://[/", ""]
)
async def test_the_endpoint_is_at_the_same_origin(endpoint: str) -> None:
    """Nothing is sent where the URL's owner did not say."""
    old = Old()
    async with scripted(old) as server:
        old.endpoint = endpoint.format(host=f"127.0.0.1:{server.port}")
        with pytest.raises(BadAnswer, match="the endpoint"):
            await dial_2024(server.url, Options())
        await server.left()


async def test_a_url_that_is_not_of_such_a_server() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        await answers.pop()(seen, talk)

    async def refuses(seen: Seen, talk: Talk) -> None:
        talk.say(b"no", "405 Method Not Allowed", kind="text/plain")

    async def html(seen: Seen, talk: Talk) -> None:
        talk.say(b"<html>", kind="text/html")

    async def ends(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.end()

    async def other(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event({"jsonrpc": "2.0", "method": "x"})
        await forever()

    async def silent(seen: Seen, talk: Talk) -> None:
        talk.stream()
        await forever()

    answers = [silent, other, ends, html, refuses]
    options, hasty = Options(limits=CLIENT), Options(limits=CLIENT.but(call_timeout=0.5))
    async with scripted(script) as server:
        with pytest.raises(HttpRefused, match="HTTP 405") as refused:
            await dial_2024(server.url, options)
        assert refused.value.status == 405
        with pytest.raises(BadAnswer, match="not an event stream: <html>"):
            await dial_2024(server.url, options)
        with pytest.raises(BadAnswer, match="ended before it named an endpoint"):
            await dial_2024(server.url, options)
        with pytest.raises(BadAnswer, match="the first event is not an endpoint"):
            await dial_2024(server.url, options)
        with pytest.raises(Broken, match=r"named no endpoint within 0\.5 s"):
            await dial_2024(server.url, hasty)
    with pytest.raises(Broken, match="Cannot connect"):
        await dial_2024(server.url, options)
    with pytest.raises(LocalError):
        await dial_2024("tcp://127.0.0.1:1", options)


@pytest.mark.parametrize(("how", "kind"), [(None, Ended), (..., Broken)])
async def test_the_end_of_the_stream_ends_the_channel(how: Any, kind: type[ChannelError]) -> None:
    old = Old(posts="202 Accepted")
    old.post = lambda seen, talk: talk.say(status="202 Accepted")  # type: ignore[method-assign]
    async with scripted(old) as server, calling(server.url) as peer:
        call = asyncio.ensure_future(peer.call("slow"))
        await server.next(), await server.next()
        old.out.put_nowait(how)
        with pytest.raises(kind):
            await call
        with pytest.raises(kind):
            await peer.call("again")


async def test_a_post_that_is_refused_fails_its_call() -> None:
    old = Old(posts="400 Bad Request")
    async with scripted(old) as server, calling(server.url) as peer:
        with pytest.raises(HttpRefused, match="HTTP 400 Bad Request: Accepted"):
            await peer.call("ping")
        old.post = lambda seen, talk: talk.say(error(-32600, "bad"), "400 Bad Request")  # type: ignore[method-assign]
        with pytest.raises(RpcError, match="bad"):
            await peer.call("ping")
        await peer.notify("x")
        assert peer._channel is not None
        with pytest.raises(RpcError, match="bad"):
            await peer._channel.flush()
        del old.post
        old.posts = "202 Accepted"
        assert await peer.call("ping") == "ping"


@pytest.mark.parametrize("nonsense", [b'{"jsonrpc":"2.0","id":1,"result":NaN}', b"x" * 5000])
async def test_nonsense_on_the_stream_fails_the_one_call_that_waits(nonsense: bytes) -> None:
    old = Old()

    def post(seen: Seen, talk: Talk) -> None:
        talk.say(status="202 Accepted")
        old.out.put_nowait(nonsense)

    old.post = post  # type: ignore[method-assign]
    limits = CLIENT.but(message_size=4096)
    async with scripted(old) as server, calling(server.url, limits) as peer:
        with pytest.raises(BadAnswer):
            await peer.call("ping")
        del old.post
        assert await peer.call("ping") == "ping"


async def test_close_closes_the_stream() -> None:
    old = Old()
    async with scripted(old) as server:
        async with calling(server.url) as peer:
            await peer.call("ping")
        assert (await server.left()).method == "GET"
