"""Streamable HTTP in the stateful era, the calling side: sessions, the home stream, resumption.

Rules: 2025-11-25 basic/transports, "Session Management", "Listening for Messages from the Server", "Resumability and
Redelivery", "Protocol Version Header".
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman import CallTimeout
from dragoman.jsonrpc.errors import BadAnswer, LocalError
from dragoman.jsonrpc.limits import CLIENT
from dragoman.mcp.client.http import events, posts
from dragoman.mcp.client.http.refusals import HttpRefused, SessionLost, StreamLost

from ...http_callers import Caller, calling
from ...scripted_http import Script, Seen, Talk, answer, error, forever, scripted

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


def serving(
    call: Script | None = None, home: Script | None = None, session: str | None = "s1", delete: str = "200 OK"
) -> Script:
    """A server with sessions; `call` answers tools/call, `home` GETs."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "DELETE":
            talk.say(status=delete)
        elif seen.method == "GET":
            if home is None:
                talk.say(status="405 Method Not Allowed")
            else:
                await home(seen, talk)
        elif seen.message.get("method") == "initialize":
            talk.result(seen, headers={"Mcp-Session-Id": session} if session is not None else None)
        elif call is not None and seen.message.get("method") == "tools/call":
            await call(seen, talk)
        elif {"id", "method"} <= seen.message.keys():
            talk.result(seen)
        else:
            talk.say(status="202 Accepted")

    return script


def methods(seen: list[Seen]) -> list[tuple[str, str | None]]:
    return [(one.method, one.headers.get("mcp-session-id")) for one in seen]


# -- sessions -------------------------------------------------------------------------------------


async def test_the_session_goes_with_everything_after_initialize() -> None:
    """Session Management 2 and 5, Protocol Version Header."""

    async def home(seen: Seen, talk: Talk) -> None:
        talk.stream()
        await forever()

    async with scripted(serving(home=home)) as server:
        async with calling(server.url) as caller:
            caller.channel.version = "too early"
            await caller.begin()
            assert caller.channel.session == "s1"
            await caller.call()
            await caller.peer.notify("notifications/initialized")
            await caller.channel.flush()
            caller.channel.listen()
            for _ in range(4):
                await server.next()
        seen = server.seen
    assert methods(seen) == [("POST", None), ("POST", "s1"), ("POST", "s1"), ("GET", "s1"), ("DELETE", "s1")]
    assert [one.headers.get("mcp-protocol-version") for one in seen] == [None, "v1", "v1", "v1", "v1"]
    assert (seen[3].headers["accept"], seen[3].body) == ("text/event-stream", b"")
    assert "content-type" not in seen[3].headers


async def test_the_session_may_come_with_a_stream() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "DELETE":
            talk.say(status="405 Method Not Allowed")
            return
        talk.stream({"MCP-SESSION-ID": "~!"})
        talk.event(answer(seen.id))
        talk.end()

    async with scripted(script) as server:
        async with calling(server.url) as caller:
            await caller.begin()
            await caller.call()
        assert methods(server.seen) == [("POST", None), ("POST", "~!"), ("DELETE", "~!")]


async def test_without_a_session_nothing_is_deleted() -> None:
    async with scripted(serving(session=None)) as server:
        async with calling(server.url) as caller:
            await caller.begin()
            await caller.call()
        assert methods(server.seen) == [("POST", None), ("POST", None)]


@pytest.mark.parametrize("session", ["a b", "é", "", "a\tb"])
async def test_a_session_id_is_visible_ascii(session: str) -> None:
    """Session Management 1: it MUST only contain 0x21 to 0x7E."""
    async with scripted(serving(session=session)) as server, calling(server.url) as caller:
        with pytest.raises(BadAnswer, match="Mcp-Session-Id"):
            await caller.begin()
        assert caller.channel.session is None


async def test_the_stateless_era_knows_no_session() -> None:
    """2026-07-28 basic/transports/streamable-http, Earlier Streamable HTTP Revisions."""

    async def script(seen: Seen, talk: Talk) -> None:
        talk.result(seen, headers={"Mcp-Session-Id": "s1"})

    async with scripted(script) as server:
        async with calling(server.url, stateless=True) as caller:
            await caller.call("initialize")
            await caller.call()
            with pytest.raises(LocalError, match="subscriptions/listen"):
                caller.channel.listen()
        assert methods(server.seen) == [("POST", None), ("POST", None)]


@pytest.mark.parametrize("body", [b"", error(-32600, "Session not found", id="server-error"), error(-32001, "gone")])
async def test_a_lost_session_is_named_and_a_new_one_begins(body: Any) -> None:
    """Session Management 4: 404 means a new `initialize` without a session id."""
    lost: list[SessionLost] = []

    async def call(seen: Seen, talk: Talk) -> None:
        if seen.headers["mcp-session-id"] == "s1" and len(server.seen) < 4:
            talk.say(body, "404 Not Found")
        else:
            talk.result(seen, "fine")

    async with scripted(serving(call)) as server:
        async with calling(server.url) as caller:
            caller.channel.on_session_lost = lost.append
            await caller.begin()
            for _ in range(3):  # of which the first alone is sent
                with pytest.raises(SessionLost, match="no longer knows the session"):
                    await caller.call()
            await caller.peer.notify("dropped")
            assert len(lost) == 1
            await caller.begin()
            assert await caller.call() == "fine"
        assert methods(server.seen) == [
            ("POST", None),
            ("POST", "s1"),
            ("POST", None),
            ("POST", "s1"),
            ("DELETE", "s1"),
        ]


@pytest.mark.parametrize("who", ["notification", "home"])
async def test_the_loss_of_the_session_is_reported_by_each_that_finds_it(who: str) -> None:
    lost: asyncio.Future[SessionLost] = asyncio.get_running_loop().create_future()

    async def gone(seen: Seen, talk: Talk) -> None:
        talk.say(status="404 Not Found")

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "POST" and "id" in seen.message:
            talk.result(seen, headers={"Mcp-Session-Id": "s1"})
        else:
            await gone(seen, talk)

    async with scripted(script) as server:
        async with calling(server.url) as caller:
            caller.channel.on_session_lost = lost.set_result
            await caller.begin()
            if who == "home":
                caller.channel.listen()
            else:
                await caller.peer.notify("x")
                with pytest.raises(SessionLost):
                    await caller.channel.flush()
            async with asyncio.timeout(20):
                await lost
            with pytest.raises(SessionLost):
                await caller.call()
        assert "DELETE" not in [one.method for one in server.seen]


async def test_a_404_of_an_old_session_does_not_harm_the_new_one() -> None:
    release = asyncio.Event()

    async def call(seen: Seen, talk: Talk) -> None:
        await release.wait()
        talk.say(status="404 Not Found")

    async with scripted(serving(call)) as server, calling(server.url) as caller:
        await caller.begin()
        old = asyncio.ensure_future(caller.call())
        await server.next(), await server.next()
        server.script = serving(session="s2")
        await caller.begin()
        release.set()
        with pytest.raises(SessionLost):
            await old
        await caller.call()
        assert caller.channel.session == "s2"


async def test_a_404_without_a_session_is_a_refusal() -> None:
    async def call(seen: Seen, talk: Talk) -> None:
        talk.say(status="404 Not Found")

    async with scripted(serving(call, session=None)) as server, calling(server.url) as caller:
        await caller.begin()
        with pytest.raises(HttpRefused):
            await caller.call()


@pytest.mark.parametrize("how", ["405 Method Not Allowed", "500 Internal Server Error", "silence", "cut"])
async def test_closing_ends_whatever_the_server_says_to_delete(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Session Management 5: the server MAY answer 405."""
    monkeypatch.setattr(posts, "DELETE_TIMEOUT", 0.05)

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "DELETE" and how == "silence":
            await forever()
        elif seen.method == "DELETE" and how == "cut":
            talk.cut()
        else:
            await serving(delete=how)(seen, talk)

    async with scripted(script) as server:
        async with calling(server.url) as caller:
            await caller.begin()
        assert server.seen[-1].method == "DELETE"


# -- the home stream ------------------------------------------------------------------------------


async def heard(caller: Caller, count: int) -> list[Any]:
    notes = caller.peer.notifications()
    try:
        async with asyncio.timeout(20):
            return [(await anext(notes)).params for _ in range(count)]
    finally:
        notes.close()


def note(n: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": n}}


@pytest.mark.parametrize("cut", [False, True])
async def test_the_home_stream_is_come_back_to(cut: bool) -> None:
    """Listening 1 to 4, Resumability 2: what was not asked for comes here; a GET with Last-Event-ID goes on."""

    async def home(seen: Seen, talk: Talk) -> None:
        talk.stream()
        last = seen.headers.get("last-event-id")
        if last is None:
            talk.event(b"", "p", retry=1)
            talk.event(b"nonsense")
            talk.event(note(1), "e1")
            talk.cut() if cut else talk.end()
        elif last == "e1":
            talk.event(note(2))
            talk.event({"jsonrpc": "2.0", "id": 1, "method": "ask", "params": {"question": "who"}})
            talk.chunk(b"id: e2\n\n")
            talk.cut() if cut else talk.end()
        else:
            talk.event(note(3))
            await forever()

    async with scripted(serving(home=home)) as server, calling(server.url) as caller:
        await caller.begin()
        hearing = asyncio.ensure_future(heard(caller, 3))
        await asyncio.sleep(0)
        caller.channel.listen()
        caller.channel.listen()
        assert await hearing == [{"n": 1}, {"n": 2}, {"n": 3}]
        gets = [one.headers.get("last-event-id") for one in server.seen if one.method == "GET"]
        assert gets == [None, "e1", "e2"]
        answers = [one.message for one in server.seen if one.method == "POST" and "result" in one.message]
        assert answers == [answer(1, "who!")]


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "501 Not Implemented", "200 OK", "403 Forbidden"])
async def test_no_home_stream_is_fine(status: str) -> None:
    """Listening 3: 405 says that there is none."""
    refused = asyncio.Event()

    async def home(seen: Seen, talk: Talk) -> None:
        talk.say(b"no", status, kind="text/plain")
        refused.set()

    async with scripted(serving(home=home)) as server, calling(server.url) as caller:
        await caller.begin()
        caller.channel.listen()
        await refused.wait()
        await caller.call()
        assert caller.channel._home is not None
        await caller.channel._home
        assert [one.method for one in server.seen].count("GET") == 1


async def test_a_home_stream_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RETRY", 0.001)
    statuses = iter(["503 Service Unavailable", "cut", "400 Bad Request"])

    async def home(seen: Seen, talk: Talk) -> None:
        if seen.headers.get("last-event-id") is None and len(server.seen) < 4:
            talk.stream()
            talk.event(note(0), "old")
            talk.end()
        elif (status := next(statuses, "")) == "cut":
            talk.cut()
        elif status:
            talk.say(status=status)
        else:
            talk.stream()
            talk.event(note(int("last-event-id" in seen.headers)))
            await forever()

    async with scripted(serving(home=home)) as server, calling(server.url) as caller:
        await caller.begin()
        hearing = asyncio.ensure_future(heard(caller, 2))
        await asyncio.sleep(0)
        caller.channel.listen()
        assert await hearing == [{"n": 0}, {"n": 0}]


async def test_a_new_session_leaves_the_old_home() -> None:
    async def home(seen: Seen, talk: Talk) -> None:
        talk.stream()
        await forever()

    async with scripted(serving(home=home)) as server, calling(server.url) as caller:
        await caller.begin()
        caller.channel.listen()
        await server.next()
        assert (await server.next()).method == "GET"
        await caller.begin()
        assert (await server.left()).method == "GET"


async def test_an_answer_may_come_home() -> None:
    """Whatever stream brings it: the call is answered, and its POST is closed."""
    id: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def call(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(b"", "p")
        id.set_result(seen.id)
        await forever()

    async def home(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(answer("unknown"))
        talk.event(answer(await id, "home"))
        await forever()

    async with scripted(serving(call, home)) as server, calling(server.url) as caller:
        await caller.begin()
        caller.channel.listen()
        assert await caller.call() == "home"
        assert (await server.left()).message["method"] == "tools/call"


# -- resumption -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True])
async def test_a_calls_stream_is_taken_up_again(cut: bool) -> None:
    """Sending Messages 6 and Resumability 2: reconnect with the last event's id until the response is there."""

    async def call(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(b"", "p0", retry=1)
        talk.event(note(1))
        talk.cut() if cut else talk.end()

    async def home(seen: Seen, talk: Talk) -> None:
        number = int(seen.headers["last-event-id"][1:]) + 1
        talk.stream()
        talk.event(note(number + 1), f"p{number}")
        if number < 4:
            talk.cut() if cut else talk.end()
            return
        talk.event(answer("another's"))
        talk.event(answer(server.seen[1].id, "late"))
        talk.end()

    async with scripted(serving(call, home)) as server, calling(server.url) as caller:
        await caller.begin()
        hearing = asyncio.ensure_future(heard(caller, 5))
        assert await caller.call() == "late"
        assert await hearing == [{"n": n} for n in range(1, 6)]
        gets = [one for one in server.seen if one.method == "GET"]
        assert [one.headers["last-event-id"] for one in gets] == ["p0", "p1", "p2", "p3"]
        assert {one.headers["mcp-session-id"] for one in gets} == {"s1"}
        assert await caller.call("ping") is None


async def test_retry_is_respected() -> None:
    """Sending Messages 6: "The client MUST respect the `retry` field, waiting the given number of milliseconds"."""
    loop = asyncio.get_running_loop()
    ended = came = 0.0

    async def call(seen: Seen, talk: Talk) -> None:
        nonlocal ended
        talk.stream()
        talk.event(b"", "p", retry=300)
        ended = loop.time()
        talk.end()

    async def home(seen: Seen, talk: Talk) -> None:
        nonlocal came
        came = loop.time()
        talk.stream()
        talk.event(answer(server.seen[1].id))
        talk.end()

    async with scripted(serving(call, home)) as server, calling(server.url) as caller:
        await caller.begin()
        await caller.call()
        assert came - ended >= 0.299


def test_a_retry_of_zero_is_still_a_pause() -> None:
    """A server that asks for no pause, and ends every stream or is gone, is not asked as fast as the machine can."""
    stream = events.Events(1000)
    stream.retry = 0.0
    pauses = [stream.pause() for _ in range(12)]
    assert pauses[:3] == [events.SHORTEST_PAUSE, 2 * events.SHORTEST_PAUSE, 4 * events.SHORTEST_PAUSE]
    assert pauses[-1] == events.LONGEST_PAUSE


async def test_attempts_that_fail_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter(["503 Service Unavailable", "cut", "429 Too Many Requests"])

    async def call(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(b"", "p", retry=1)
        talk.end()

    async def home(seen: Seen, talk: Talk) -> None:
        status = next(tries, "")
        if status == "cut":
            talk.cut()
        elif status:
            talk.say(status=status)
        else:
            talk.stream()
            talk.event(answer(server.seen[1].id, "there"))
            talk.end()

    async with scripted(serving(call, home)) as server, calling(server.url) as caller:
        await caller.begin()
        assert await caller.call() == "there"


def ends_early(*, id: str | None = "p") -> Script:
    async def call(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(note(1), id, retry=1)
        talk.end()

    return call


async def test_a_stream_without_event_id_is_lost_at_once() -> None:
    async with scripted(serving(ends_early(id=None))) as server, calling(server.url) as caller:
        await caller.begin()
        with pytest.raises(StreamLost, match="ended before the answer, and gave no event id"):
            await caller.call()
        assert await caller.call("ping") is None
        assert "GET" not in [one.method for one in server.seen]


@pytest.mark.parametrize(
    ("status", "tries"),
    [
        ("405 Method Not Allowed", 1),
        ("400 Bad Request", 1),
        ("200 OK", 1),
        ("404 Not Found", 1),
        ("503 Service Unavailable", 5),
    ],
)
async def test_a_stream_that_cannot_be_taken_up_again_is_lost(status: str, tries: int) -> None:
    async def home(seen: Seen, talk: Talk) -> None:
        talk.say(b"no", status, kind="text/plain")

    async with scripted(serving(ends_early(), home)) as server, calling(server.url) as caller:
        await caller.begin()
        with pytest.raises(StreamLost, match="cannot be taken up again"):
            await caller.call()
        assert [one.method for one in server.seen].count("GET") == tries
        if status.startswith("404"):
            with pytest.raises(SessionLost):
                await caller.call("ping")
        else:
            assert await caller.call("ping") is None


async def test_the_stateless_era_resumes_nothing() -> None:
    """2026-07-28 basic/transports/streamable-http: "Resumable SSE streams via Last-Event-ID are not supported."."""
    async with scripted(serving(ends_early())) as server, calling(server.url, stateless=True) as caller:
        with pytest.raises(StreamLost, match="ended before the answer"):
            await caller.call()
        assert [one.method for one in server.seen] == ["POST"]


@pytest.mark.parametrize("when", ["between", "resumed"])
async def test_a_call_that_stops_waiting_does_not_resume(when: str) -> None:
    between = asyncio.Event()

    async def call(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(b"", "p", retry=3_600_000 if when == "between" else 1)
        between.set()
        talk.end()

    async def home(seen: Seen, talk: Talk) -> None:
        talk.stream()
        await forever()

    async with scripted(serving(call, home)) as server, calling(server.url) as caller:
        await caller.begin()
        waiting = asyncio.ensure_future(caller.call())
        await between.wait()
        await server.next(), await server.next()
        if when == "resumed":
            assert (await server.next()).method == "GET"
        waiting.cancel()
        if when == "resumed":
            assert (await server.left()).method == "GET"
        assert (await server.next()).message["method"] == "notifications/cancelled"


async def test_a_time_out_ends_the_resuming() -> None:
    async def home(seen: Seen, talk: Talk) -> None:
        talk.stream()
        talk.event(b"", seen.headers["last-event-id"], retry=1)
        talk.end()

    limits = CLIENT.but(call_timeout=1.0)
    async with scripted(serving(ends_early(), home)) as server, calling(server.url, limits=limits) as caller:
        await caller.begin()
        with pytest.raises(CallTimeout):
            await caller.call()
        while (await server.next()).method == "GET" or server.arrivals.qsize():
            pass
        assert server.seen[-1].message["method"] == "notifications/cancelled"
