"""Streamable HTTP, the calling side: what one POST may come back with. Rules: basic/transports of each revision."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.channel import Broken, Channel, Closed, Options
from dragoman.jsonrpc.errors import BadAnswer, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT
from dragoman.mcp.client.http.posts import dial_mcp
from dragoman.mcp.client.http.refusals import HttpRefused
from dragoman.mcp.protocol.dialect import of
from dragoman.mcp.protocol.revisions import R2025_03
from tests.transports.ends import until

from ...http_callers import calling
from ...scripted_http import Script, Seen, Talk, answer, error, forever, scripted


async def test_a_json_answer() -> None:
    """2025-11-25 basic/transports, Sending Messages 1 to 3, 5: a POST, both media types, one JSON object back."""

    async def script(seen: Seen, talk: Talk) -> None:
        talk.result(seen, {"ok": True})

    async with scripted(script) as server, calling(server.url) as caller:
        assert isinstance(caller.channel, Channel)
        assert await caller.call("ping", a=1) == {"ok": True}
        seen = await server.next()
    assert (seen.method, seen.target) == ("POST", "/mcp")
    assert {one.strip() for one in seen.headers["accept"].split(",")} == {"application/json", "text/event-stream"}
    assert seen.headers["content-type"] == "application/json"
    assert seen.message == {"jsonrpc": "2.0", "id": seen.id, "method": "ping", "params": {"a": 1}}
    assert "mcp-protocol-version" not in seen.headers
    assert "mcp-session-id" not in seen.headers


async def test_an_answer_on_a_stream_behind_other_messages() -> None:
    """2025-11-25 basic/transports, Sending Messages 5 and 6: requests and notifications may come before the response.

    Each is delivered as it arrives: the answer waits for what the client does about the question.
    """
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def script(seen: Seen, talk: Talk) -> None:
        if "result" in seen.message:
            talk.say(status="202 Accepted")
            answered.set_result(seen.message)
            return
        talk.stream()
        talk.chunk(b": hello\r\n\r\n")
        talk.event(b"", "prime")
        talk.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": 1}}, "1")
        talk.event({"jsonrpc": "2.0", "method": "not/for/us"}, kind="other")
        talk.event({"jsonrpc": "2.0", "id": "q", "method": "ask", "params": {"question": "why"}}, "2", "message")
        talk.event(answer(seen.id, (await answered)["result"]), "3")
        talk.end()

    async with scripted(script) as server, calling(server.url) as caller:
        notes = caller.peer.notifications()
        assert await caller.call() == "why!"
        assert (await anext(notes)).method == "notifications/message"
        notes.close()
    assert answered.result() == answer("q", "why!")


async def test_headers_of_one_call() -> None:
    """2026-07-28 basic/transports/streamable-http, Request Metadata: they come from the call."""

    async def script(seen: Seen, talk: Talk) -> None:
        talk.result(seen)

    extra = {"MCP-Protocol-Version": "v9", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?4pyT?="}
    async with scripted(script) as server, calling(server.url, stateless=True, headers={"X-Own": "1"}) as caller:
        caller.channel.version = "v1"
        await caller.call(extra=extra)
        await caller.call()
        seen = [await server.next(), await server.next()]
    assert [one.headers.get("mcp-protocol-version") for one in seen] == ["v9", "v1"]
    assert [one.headers.get("mcp-name") for one in seen] == ["=?base64?4pyT?=", None]
    assert [one.headers["x-own"] for one in seen] == ["1", "1"]


async def test_a_header_cannot_smuggle_another() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.result(seen)

    async with scripted(script) as server, calling(server.url) as caller:
        with pytest.raises((Broken, BadAnswer)):
            await caller.call(extra={"Mcp-Name": "a\r\nX-Evil: 1"})
        await caller.call()
    assert len(server.seen) == 1


async def test_notifications_are_taken_or_refused() -> None:
    """2025-11-25 basic/transports, Sending Messages 4: 202 without a body, or an HTTP error."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "good":
            talk.say(status="202 Accepted")
        else:
            talk.say(error(-32600, "no"), "400 Bad Request")

    async with scripted(script) as server, calling(server.url) as caller:
        await caller.peer.notify("good")
        await caller.channel.flush()
        assert (await server.next()).message == {"jsonrpc": "2.0", "method": "good"}
        await caller.peer.notify("bad")
        with pytest.raises(HttpRefused, match="HTTP 400 Bad Request: no") as refused:
            await caller.channel.flush()
        await caller.channel.flush()
    assert refused.value.error is not None
    assert refused.value.error.code == -32600


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"])
async def test_what_is_not_a_call_is_sent_once_more_where_no_server_was_there(status: str) -> None:
    """A replica behind a balancer had just gone: the server would wait for an answer of ours that never comes."""
    tries: list[str] = []

    async def script(seen: Seen, talk: Talk) -> None:
        method = seen.message["method"]
        tries.append(method)
        again = method == "once" and tries.count("once") == 2
        talk.say(status="202 Accepted" if again else status)

    async with scripted(script) as server, calling(server.url) as caller:
        await caller.peer.notify("once")
        await caller.channel.flush()
        await caller.peer.notify("never")
        with pytest.raises(HttpRefused):
            await caller.channel.flush()
        with pytest.raises(HttpRefused):  # a call may have been run
            await caller.call("call")
    assert tries == ["once", "once", "never", "never", "call"]


@pytest.mark.parametrize("id", [{}, {"id": None}, {"id": ...}])
async def test_a_json_rpc_error_is_the_answer_whatever_the_status(id: dict[str, Any]) -> None:
    """2026-07-28 basic/transports/streamable-http: 400 and 404 carry errors; one without id is this call's."""

    async def script(seen: Seen, talk: Talk) -> None:
        given = {"id": seen.id} if id.get("id") is ... else id
        talk.say(error(-32020, "mismatch", **given), "400 Bad Request")

    statuses: list[int] = []
    async with scripted(script) as server, calling(server.url, stateless=True) as caller:
        caller.channel.on_status = lambda call, status: statuses.append(status)
        others = asyncio.ensure_future(forever())
        with pytest.raises(RpcError, match="mismatch") as raised:
            await caller.call()
        others.cancel()
    assert (raised.value.code, statuses) == (-32020, [400])


async def test_an_error_without_id_is_the_calls_own_though_others_wait() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "slow":
            await forever()
        talk.say(error(-32700, "bad"), "200 OK")

    async with scripted(script) as server, calling(server.url, stateless=True) as caller:
        slow = asyncio.ensure_future(caller.call("slow"))
        await server.next()
        with pytest.raises(RpcError, match="bad"):
            await caller.call()
        assert not slow.done()
        slow.cancel()
        await asyncio.wait([slow])


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        ("500 Internal Server Error", b"<h1>Oops</h1>", "text/html", "HTTP 500 Internal Server Error: <h1>Oops</h1>"),
        ("404 Not Found", b"", None, "/mcp answered HTTP 404 Not Found"),
        ("405 Method Not Allowed", b"no", "text/plain", "HTTP 405 Method Not Allowed: no"),
        ("400 Bad Request", b'{"error": "of another kind"}', "application/json", "HTTP 400 Bad Request: {"),
        ("401 Unauthorized", b"", None, 'wants its callers to log in: it asks for Bearer realm="x"'),
        ("403 Forbidden", b"", None, "does not let this caller in: it asks for Bearer"),
        ("301 Moved Permanently", b"", None, "HTTP 301: it redirects to http://else.example/, which is not followed"),
        ("307 Temporary Redirect", b"", None, "it redirects to http://else.example/, which is not followed"),
        ("503 Service Unavailable", b"data: x\n\n", "text/event-stream", "HTTP 503 Service Unavailable"),
    ],
)
async def test_an_http_refusal(status: str, body: bytes, kind: str | None, words: str) -> None:
    headers = {"WWW-Authenticate": 'Bearer realm="x"', "Location": "http://else.example/"}

    async def script(seen: Seen, talk: Talk) -> None:
        talk.say(body, status, kind=kind, headers=headers)

    async with scripted(script) as server, calling(server.url) as caller:
        with pytest.raises(HttpRefused) as refused:
            await caller.call()
    why = refused.value
    assert words in str(why)
    assert (why.status, why.headers["www-authenticate"]) == (int(status[:3]), headers["WWW-Authenticate"])
    assert why.body == (b"" if kind == "text/event-stream" else body)


@pytest.mark.parametrize(
    ("status", "id"), [("401 Unauthorized", ...), ("403 Forbidden", ...), ("400 Bad Request", "server-error")]
)
async def test_a_refusal_with_an_error_that_is_not_an_answer(status: str, id: Any) -> None:
    """401 and 403 are about the caller, and an error with a foreign id answers no call of ours."""

    async def script(seen: Seen, talk: Talk) -> None:
        talk.say(error(-32600, "go away", id=seen.id if id is ... else id), status)

    async with scripted(script) as server, calling(server.url) as caller:
        with pytest.raises(HttpRefused, match="go away") as refused:
            await caller.call()
    assert refused.value.status == int(status[:3])
    assert refused.value.error is not None
    assert refused.value.error.code == -32600


def says(body: Any, status: str = "200 OK", kind: str | None = "application/json") -> Script:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.say(body, status, kind=kind)

    return script


def streams(*chunks: bytes, end: bool = True) -> Script:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.stream()
        for chunk in chunks:
            talk.chunk(chunk)
        if not end:
            await forever()
        talk.end()

    return script


async def cut_short(seen: Seen, talk: Talk) -> None:
    talk.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    talk.cut()


async def hung_up(seen: Seen, talk: Talk) -> None:
    talk.cut()


async def no_http(seen: Seen, talk: Talk) -> None:
    talk.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    talk.cut()


async def cut_stream(seen: Seen, talk: Talk) -> None:
    talk.stream()
    talk.chunk(b"data: {")
    talk.cut()


NONSENSE: dict[str, tuple[Script, type[Exception], str]] = {
    "html": (says(b"<html>", kind="text/html"), BadAnswer, "text/html, which answers no call: <html>"),
    "json of another type": (says(answer(1), kind="text/plain"), BadAnswer, "text/plain, which answers no call"),
    "nothing": (says(b""), BadAnswer, "without a body"),
    "202": (says(b"", "202 Accepted"), BadAnswer, "HTTP 202 Accepted without a body"),
    "204": (says(b"", "204 No Content"), BadAnswer, "HTTP 204 No Content without a body"),
    "truncated": (says(b'{"jsonrpc":"2.0","id":1,"result":{'), BadAnswer, "not JSON-RPC"),
    "no utf-8": (says(b'{"jsonrpc":"2.0","id":1,"result":"\xff"}'), BadAnswer, "not JSON-RPC"),
    "no response": (says({"jsonrpc": "2.0", "id": 1}), BadAnswer, "not JSON-RPC"),
    "a number": (says(b"1"), BadAnswer, "not JSON-RPC"),
    "empty array": (says(b"[]"), BadAnswer, "not JSON-RPC"),
    "too deep": (says(b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), BadAnswer, ""),
    "another id": (says(answer(77)), BadAnswer, "id does not match"),
    "id as a string": (says(answer("1")), BadAnswer, "id does not match"),
    "a notification": (says({"jsonrpc": "2.0", "method": "hi"}), BadAnswer, "id does not match"),
    "both": (says(b'{"jsonrpc":"2.0","id":1,"result":1,"error":{}}'), BadAnswer, "both"),
    "a number too big": (says(b'{"jsonrpc":"2.0","id":1,"result":1e999}'), BadAnswer, ""),
    "too large": (says(b" " * 5000), BadAnswer, "Too large: message_size allows 4096 bytes, received 5000"),
    "cut short": (cut_short, Broken, "broke off"),
    "hung up": (hung_up, Broken, "closed the connection without an answer"),
    "no http": (no_http, BadAnswer, "not HTTP"),
    "empty stream": (streams(), Broken, "ended before the answer"),
    "cut stream": (cut_stream, Broken, "broke before the answer"),
    "event of nonsense": (
        streams(b"data: nonsense\n\n"),
        Broken,
        "ended before the answer; meanwhile an event that is not JSON-RPC came: nonsense",
    ),
    "event of nonsense with its id": (
        streams(b'data: {"jsonrpc":"2.0","id":1,"result":NaN}\n\n', end=False),
        BadAnswer,
        "Parse error",
    ),
    "event of another id": (streams(b'data: {"id":77,"result":1}\n\n', end=False), BadAnswer, "id does not match"),
    "event too large": (streams(b"data: " + b"x" * 5000, end=False), BadAnswer, "message_size allows 4096"),
    "event of an error": (streams(b'data: {"jsonrpc":"2.0","error":{"code":1,"message":"m"}}\n\n'), RpcError, "m"),
    "no stream": (says(b"nonsense", kind="text/event-stream"), Broken, "ended before the answer"),
}


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("name", NONSENSE)
async def test_nonsense_fails_its_call_at_once_and_the_next_one_works(name: str, stateless: bool) -> None:
    nonsense, kind, words = NONSENSE[name]

    async def script(seen: Seen, talk: Talk) -> None:
        if len(server.seen) == 1:
            await nonsense(seen, talk)
        else:
            talk.result(seen, "fine")

    limits = CLIENT.but(message_size=4096, call_timeout=None)
    async with scripted(script) as server, calling(server.url, stateless=stateless, limits=limits) as caller:
        with pytest.raises(kind) as raised:
            await caller.call()
        assert words in str(raised.value)
        assert await caller.call() == "fine"
        assert [one.message.get("method") for one in server.seen] == ["tools/call"] * 2


async def test_an_answer_to_another_call_goes_to_that_one() -> None:
    """Ids say whose an answer is; the POST that it came by has none then."""
    ids: list[Any] = []

    async def script(seen: Seen, talk: Talk) -> None:
        ids.append(seen.id)
        if len(ids) == 1:
            await forever()
        talk.stream()
        talk.event(answer(ids[0], "first"))
        talk.event(answer(ids[1], "second"))
        talk.end()

    async with scripted(script) as server, calling(server.url) as caller:
        first = asyncio.ensure_future(caller.call())
        await server.next()
        assert await caller.call() == "second"
        assert await first == "first"
        assert (await server.left()).id == ids[0]


async def test_batches() -> None:
    """2025-03-26 basic/transports: a batch goes as an array, its responses may come as one or singly."""

    async def script(seen: Seen, talk: Talk) -> None:
        ids = [one["id"] for one in seen.message]
        if seen.message[0]["method"] == "json":
            talk.say([answer(id, id) for id in ids])
            return
        talk.stream()
        talk.event(answer(ids[1], ids[1]))
        talk.event([{"jsonrpc": "2.0", "method": "hi"}, answer(ids[0], ids[0])])
        await forever()

    async with scripted(script) as server, calling(server.url, dialect=of(R2025_03)) as caller:
        for method in ("json", "events"):
            async with caller.peer.batch() as batch:
                both = [batch.call(method), batch.call(method)]
            assert [await one for one in both] == [one["id"] for one in (await server.next()).message]


async def test_the_stateless_server_does_not_ask() -> None:
    """2026-07-28 basic/transports/streamable-http: no requests on the stream, and "the client MUST NOT send JSON-RPC
    responses"."""

    async def script(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event({"jsonrpc": "2.0", "id": 5, "method": "ask", "params": {"question": "x"}})
        talk.event(answer(seen.id, "done"))
        talk.end()

    async with scripted(script) as server, calling(server.url, stateless=True) as caller:
        assert await caller.call() == "done"
        assert await caller.call() == "done"
    assert [one.message.get("method") for one in server.seen] == ["tools/call"] * 2


# -- calls that stop waiting ----------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
async def test_a_call_that_stops_waiting_closes_its_post(stateless: bool, streamed: bool) -> None:
    """2026-07-28 basic/patterns/cancellation: closing the stream is the signal, and no message is expected.
    2025-11-25 basic/transports: it is none, and the client SHOULD send notifications/cancelled."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] != "tools/call":
            talk.say(status="202 Accepted")
            return
        if streamed:
            talk.stream()
            talk.event(b"", "1", retry=0)
        await forever()

    async with scripted(script) as server, calling(server.url, stateless=stateless) as caller:
        call = asyncio.ensure_future(caller.call())
        seen = await server.next()
        call.cancel()
        assert (await server.left()).id == seen.id
        if not stateless:
            cancel = await server.next()
            assert cancel.message["method"] == "notifications/cancelled"
            assert cancel.message["params"]["requestId"] == seen.id
    assert len(server.seen) == (1 if stateless else 2)


async def test_a_waiting_call_that_is_cancelled_is_never_sent() -> None:

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.message["params"]["n"] == 1:
            await forever()
        talk.result(seen, seen.message["params"]["n"])

    async with (
        scripted(script) as server,
        calling(server.url, limits=CLIENT.but(connections=1), stateless=True) as caller,
    ):
        first = asyncio.ensure_future(caller.call(n=1))
        await server.next()
        second, third = asyncio.ensure_future(caller.call(n=2)), asyncio.ensure_future(caller.call(n=3))
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        assert await third == 3
        await asyncio.wait([first, second])
    assert [one.message["params"]["n"] for one in server.seen] == [1, 3]


# -- lanes, redirects, connections ----------------------------------------------------------------


async def test_answers_do_not_wait_for_the_calls_that_wait_for_them() -> None:
    answered = asyncio.Event()

    async def script(seen: Seen, talk: Talk) -> None:
        if "result" in seen.message:
            talk.say(status="202 Accepted")
            answered.set()
        elif seen.message["method"] == "subscriptions/listen":
            talk.stream()
            await forever()
        else:
            talk.stream()
            talk.event({"jsonrpc": "2.0", "id": 9, "method": "ask", "params": {"question": "x"}})
            await answered.wait()
            talk.event(answer(seen.id, "done"))
            talk.end()

    async with scripted(script) as server, calling(server.url, limits=CLIENT.but(connections=1)) as caller:
        lasting = asyncio.ensure_future(caller.call("subscriptions/listen"))
        await server.next()
        assert await caller.call() == "done"
        lasting.cancel()
        await asyncio.wait([lasting])


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
async def test_a_redirect_at_the_same_origin_is_followed(status: str) -> None:
    """Frameworks that put an app at /mcp/ redirect /mcp there."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.target == "/mcp":
            talk.say(status=status, headers={"Location": f"http://127.0.0.1:{server.port}/mcp/?a=%20"})
        else:
            talk.result(seen, seen.target)

    async with scripted(script) as server, calling(server.url, headers={"Authorization": "secret"}) as caller:
        assert await caller.call() == "/mcp/?a=%20"
    assert server.seen[0].body == server.seen[1].body
    assert server.seen[1].headers["authorization"] == "secret"


async def test_a_circle_of_redirects_ends() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.say(status="307 Temporary Redirect", headers={"Location": "/mcp"})

    async with scripted(script) as server, calling(server.url) as caller:
        with pytest.raises(HttpRefused, match="HTTP 307"):
            await caller.call()
    assert len(server.seen) == 4


@pytest.mark.parametrize("late_end", [False, True])
async def test_a_connection_is_used_again_after_a_stream(late_end: bool) -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(answer(seen.id, seen.connection))
        if late_end:
            await talk.writer.drain()
            await asyncio.sleep(0)
        talk.end()

    async with scripted(script) as server, calling(server.url) as caller:
        assert await caller.call() == 1
        if late_end:
            await until(lambda: not caller.channel._lingering)
        assert await caller.call() == 1


async def test_a_stream_that_stays_open_behind_its_answer_does_not_hold_up_calls() -> None:
    """2025-11-25 basic/transports: after the response the server SHOULD terminate the stream; this one does not."""

    async def script(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(answer(seen.id, "done"))
        await forever()

    async with scripted(script) as server, calling(server.url, limits=CLIENT.but(connections=1)) as caller:
        assert [await caller.call() for _ in range(3)] == ["done"] * 3


async def test_large_messages_go_through() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        if seen.message["params"]["stream"]:
            talk.stream()
            talk.event(answer(seen.id, seen.message["params"]["text"]))
            talk.end()
        else:
            talk.result(seen, seen.message["params"]["text"])

    async with scripted(script) as server, calling(server.url) as caller:
        text = "x" * 3_000_000
        assert await caller.call(text=text, stream=False) == text
        assert await caller.call(text=text, stream=True) == text


# -- dialling and the end -------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1/mcp", "tcp://127.0.0.1:1", "nonsense"])
async def test_what_cannot_be_dialled(url: str) -> None:
    with pytest.raises(LocalError):
        await dial_mcp(url, Options())


async def test_a_missing_far_end() -> None:
    async with scripted(hung_up) as server:
        port = server.port
    async with calling(f"http://127.0.0.1:{port}/mcp") as caller:
        with pytest.raises(Broken, match=r"Cannot connect to http://127\.0\.0\.1"):
            await caller.call()


async def test_abort_ends_everything_at_once() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        await forever()

    async with scripted(script) as server, calling(server.url) as caller:
        call = asyncio.ensure_future(caller.call())
        await server.next()
        caller.channel.abort(Broken("enough"))
        with pytest.raises(Broken, match="enough"):
            await call
        with pytest.raises(Broken, match="enough"):
            await caller.call()
        await server.left()


async def test_after_close_nothing_is_sent() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.result(seen)

    async with scripted(script) as server, calling(server.url) as caller:
        await caller.call()
        await caller.channel.close()
        with pytest.raises(Closed):
            caller.channel.send(json.dumps({"jsonrpc": "2.0", "method": "x"}).encode())
        await caller.channel.close()


async def test_all_messages_together_have_no_more_connections_than_allowed() -> None:
    """Calls, listening, the home stream and answers: a server that takes sixteen takes all of them."""
    most = 0
    now: set[object] = set()

    async def script(seen: Seen, talk: Talk) -> None:
        nonlocal most
        now.add(talk)
        most = max(most, len(now))
        try:
            if seen.method == "GET" or seen.message["method"] == "subscriptions/listen":
                talk.stream()
                await forever()
            await asyncio.sleep(0.01)
            if seen.message["method"].startswith("notifications/"):
                talk.say(status="202 Accepted")
            else:
                talk.result(seen, 1)
        finally:
            now.discard(talk)

    async with scripted(script) as server, calling(server.url) as caller:
        caller.channel.listen()
        listening = [asyncio.ensure_future(caller.peer.call("subscriptions/listen", timeout=None)) for _ in range(20)]
        calls = [caller.call(n=n) for n in range(60)]
        notes = [caller.peer.notify(f"notifications/{n}") for n in range(40)]
        assert (await asyncio.gather(*calls, *notes))[:60] == [1] * 60
        assert 8 < most <= 16
        for one in listening:
            one.cancel()
        await asyncio.wait(listening)
