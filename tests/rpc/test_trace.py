"""The trace hook on real channels and exchanges, and what `json_lines` writes down."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import CallTimeout, Closed, Context, MethodNotFound, Service, connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.tracing import SHOWN, Event, json_lines, masking

CALL = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
ANSWER = b'{"jsonrpc":"2.0","result":19,"id":1}'
QUICK = SERVER.but(drain_timeout=0.1)
NOTE = b'{"jsonrpc":"2.0","method":"update","params":[1]}'


def calculator() -> Service:
    api = Service("calculator", version="1")

    @api.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @api.method(inline=True)
    def update(*values: int) -> None:
        pass

    @api.method
    async def forever() -> None:
        await asyncio.Event().wait()

    @api.method
    async def ask_back(context: Context) -> Any:
        return await context.call("subtract", [3, 1])

    return api


def told(event: Event) -> tuple[str, str, str | None, str | None, str | None]:
    return event.kind, event.direction, event.method, event.id, event.outcome


# -- both ends ------------------------------------------------------------------------------------


@asynccontextmanager
async def both(url: str, api: Service | None = None) -> AsyncIterator[tuple[Any, list[Event], list[Event]]]:
    """A peer connected to a served calculator: the peer, the events of its side and of the server's."""
    outs: list[Event] = []
    ins: list[Event] = []
    async with (
        serve(calculator(), urls=[url], trace=ins.append, limits=QUICK) as serving,
        connect(serving.urls[0], service=api, trace=outs.append) as peer,
    ):
        yield peer, outs, ins


@pytest.mark.parametrize("url", ["memory:trace", "tcp://127.0.0.1:0", "http://127.0.0.1:0"])
async def test_a_call_is_told_at_both_ends(url: str) -> None:
    async with both(url) as (peer, outs, ins):
        assert await peer.call("subtract", [42, 23]) == 19
        for events, direction in ((outs, "out"), (ins, "in")):
            assert [told(event) for event in events] == [
                ("started", direction, "subtract", "1", None),
                ("complete", direction, "subtract", "1", "answered"),
            ]
            started, complete = events
            assert started.message == complete.message
            assert json.loads(started.message)["params"] == [42, 23]
            assert started.answer is None
            assert complete.answer is not None
            assert json.loads(complete.answer)["result"] == 19
            assert started.seconds is None
            assert complete.seconds is not None
            assert complete.seconds >= 0
            assert complete.time >= started.time > 1e9
            assert started.channel == complete.channel
            scheme, rest = started.channel.split(":", 1)
            assert scheme == url.split(":", 1)[0]
            assert rest.rpartition("#")[2].isdigit()


@pytest.mark.parametrize("url", ["memory:trace", "tcp://127.0.0.1:0", "http://127.0.0.1:0"])
async def test_errors_notifications_and_batches(url: str) -> None:
    async with both(url) as (peer, outs, ins):
        with pytest.raises(MethodNotFound):
            await peer.call("nothing")
        await peer.notify("update", [1])
        async with peer.batch() as batch:
            batch.call("subtract", [2, 1])
            wrong = batch.call("nothing")
            batch.notify("update", [2])
        with pytest.raises(MethodNotFound):
            wrong.result()
        for events, direction in ((outs, "out"), (ins, "in")):
            assert [told(event) for event in events] == [
                ("started", direction, "nothing", "1", None),
                ("complete", direction, "nothing", "1", "error -32601"),
                ("complete", direction, "update", None, "notified"),
                ("started", direction, "batch(subtract, nothing, update)", None, None),
                ("complete", direction, "batch(subtract, nothing, update)", None, "answered, 1 of 2 with errors"),
            ]


async def test_a_call_back_goes_the_other_way() -> None:
    async with both("tcp://127.0.0.1:0", calculator()) as (peer, outs, ins):
        assert await peer.call("ask_back") == 2
        assert [told(event)[:3] for event in outs] == [
            ("started", "out", "ask_back"),
            ("started", "in", "subtract"),
            ("complete", "in", "subtract"),
            ("complete", "out", "ask_back"),
        ]
        assert [told(event)[:3] for event in ins] == [
            ("started", "in", "ask_back"),
            ("started", "out", "subtract"),
            ("complete", "out", "subtract"),
            ("complete", "in", "ask_back"),
        ]


async def test_cancelling_on_a_duplex_wire() -> None:
    async with both("tcp://127.0.0.1:0") as (peer, outs, _):
        with pytest.raises(CallTimeout):
            await peer.call("forever", timeout=0.01)
        assert await peer.call("subtract", [2, 1]) == 1  # by then the cancelled one is answered
        assert ("complete", "out", "$/cancelRequest", None, "notified") in map(told, outs)
        assert ("failed", "out", "forever", "1", "failed: forever: no answer within 0.01 s") in map(told, outs)
        assert ("complete", "in", None, "1", "ignored") in map(told, outs)


async def test_cancelling_over_http_closes_the_post() -> None:
    went = asyncio.Event()

    def server_side(event: Event) -> None:
        ins.append(event)
        if event.kind == "failed":
            went.set()

    ins: list[Event] = []
    outs: list[Event] = []
    async with (
        serve(calculator(), urls=["http://127.0.0.1:0"], trace=server_side, limits=QUICK) as serving,
        connect(serving.urls[0], trace=outs.append) as peer,
    ):
        await peer.call("subtract", [2, 1])  # there is a connection then: the call goes out at once
        with pytest.raises(CallTimeout):
            await peer.call("forever", timeout=0.5)
        assert told(outs[-1]) == ("failed", "out", "forever", "2", "failed: forever: no answer within 0.5 s")
        await asyncio.wait_for(went.wait(), 20)
        assert told(ins[-1]) == ("failed", "in", "forever", "2", "ended: the caller went away")


async def test_a_post_that_fails_is_told() -> None:
    outs: list[Event] = []
    async with connect("http://127.0.0.1:1/", trace=outs.append) as peer:
        with pytest.raises(Broken):
            await peer.call("subtract", [2, 1])
    kind, _, method, _, outcome = told(outs[-1])
    assert (kind, method) == ("failed", "subtract")
    assert outcome is not None
    assert outcome.startswith("ended: Cannot connect to http://127.0.0.1:1: ")


async def test_the_end_of_the_channel_fails_what_is_open() -> None:
    async with both("tcp://127.0.0.1:0") as (peer, outs, _):
        calling = asyncio.ensure_future(peer.call("forever", timeout=None))
        await peer.call("subtract", [2, 1])
        await peer.close()
        with pytest.raises(Closed):
            await calling
        kind, direction, method, _, outcome = told(outs[-1])
        assert (kind, direction, method) == ("failed", "out", "forever")
        assert outcome is not None
        assert outcome.startswith("ended: ")


async def test_a_hook_that_raises_is_logged_once_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("disk full")

    async with (
        serve(calculator(), urls=["memory:raising"], trace=broken) as serving,
        connect(serving.urls[0]) as peer,
    ):
        with caplog.at_level(logging.ERROR):
            assert await peer.call("subtract", [42, 23]) == 19
            assert await peer.call("subtract", [42, 22]) == 20
    assert [record.name for record in caplog.records] == ["dragoman.observers"]


# -- JSON Lines -----------------------------------------------------------------------------------


def written(message: bytes, answer: bytes | None = None, **options: Any) -> dict[str, Any]:
    lines: list[str] = []
    hook = json_lines(lines.append, **options)
    hook(
        Event(
            kind="complete",
            time=1.5,
            seconds=0.0123456,
            channel="tcp:127.0.0.1:9#1",
            direction="in",
            message=message,
            method="m",
            id='"a"',
            outcome="answered",
            answer=answer,
        )
    )
    (line,) = lines
    assert line.endswith("\n")
    assert line.count("\n") == 1
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_line_has_every_member() -> None:
    assert written(CALL, ANSWER) == {
        "time": 1.5,
        "channel": "tcp:127.0.0.1:9#1",
        "direction": "in",
        "kind": "complete",
        "method": "m",
        "id": "a",
        "bytes": len(CALL),
        "message": CALL.decode(),
        "answer": ANSWER.decode(),
        "outcome": "answered",
        "ms": 12.346,
    }


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b'{"password":"hush"}', '{"password":"***"}'),
        (b'{"a":[{"API-Key":"hush","b":1}]}', '{"a":[{"API-Key":"***","b":1}]}'),
        (b'{"userPassWD":["hush","hush"],"x_api_key":{"hush":1}}', '{"userPassWD":"***","x_api_key":"***"}'),
        (b'{"client_secret":1234,"PRIVATE_KEY":true}', '{"client_secret":"***","PRIVATE_KEY":"***"}'),
        (b'{"p\\u0061ssword":"hush"}', '{"password":"***"}'),
        (b'{"Authorization":"hush","cookie":null}', '{"Authorization":"***","cookie":null}'),
        (b'{"access_token":"hush","max_tokens":100}', '{"access_token":"***","max_tokens":100}'),
        (b'{"credentials":{"user":"hush"}}', '{"credentials":"***"}'),
        (
            b'{ "note": "the password is shown: only names count" }',
            '{ "note": "the password is shown: only names count" }',
        ),
        (
            b'{"big":12345678901234567890123456789012345678901, "secret":"hush"}',
            '{"big":12345678901234567890123456789012345678901,"secret":"***"}',
        ),
        (b'{"text":"{\\"token\\":\\"hush\\",\\"a\\":1}"}', '{"text":"{\\"token\\":\\"***\\",\\"a\\":1}"}'),
        (b'["[{\\"secret\\":[\\"hush\\"]}]"]', '["[{\\"secret\\":\\"***\\"}]"]'),
        (b'["{no JSON of a secret}"]', '["{no JSON of a secret}"]'),
        (b'{"password":"hush', '{"password***'),
        (b"GET / HTTP/1.1\r\nAuthorization: Basic hush", "GET / HTTP/1.1\r\nAuthorization***"),
        (b'{"a":1,"p\\u0061ssword":"hush', '{"a":1,"p\\u006***'),
        (b"nonsense", "nonsense"),
        (b'"\\ud800 secret', '"\\ud800 secret***'),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_secrets_are_masked_at_any_depth(said: bytes, shown: str) -> None:
    line = written(said, said)
    assert line["message"] == line["answer"] == shown
    assert "hush" not in line["message"]
    assert line["bytes"] == len(said)


def test_depth_is_the_senders_choice() -> None:
    deep = b'{"a":' * 5000 + b'{"secret":"hush"}' + b"}" * 5000
    assert "hush" not in written(deep)["message"]


def test_long_messages_are_shortened_after_masking() -> None:
    line = written(b'{"password":"' + b"h" * 5000 + b'"}')
    assert line["message"] == '{"password":"***"}'
    line = written(b'{"a":"' + b"x" * 5000 + b'","password":"hush"}')
    assert line["message"].endswith("x... (5026 bytes in all)")
    assert len(line["message"]) < 4200


def test_a_message_that_is_too_long_to_be_read_is_cut_first() -> None:
    text = masking(whole=100)
    for name in ("password", "p\\u0061ssword", "pass-word"):
        long = f'{{"a":1,"{name}":"hush","b":"{"x" * 100}"}}'.encode()
        assert "hush" not in text(long)
        assert text(long).endswith(f"***... ({len(long)} bytes in all)")
    plain = ('{"a":"' + "\U0001f600" * 5000 + '"}').encode()
    assert text(plain) == f"{plain.decode()[:SHOWN]}... ({len(plain)} bytes in all)"
    assert text(b'{"password":"hush","b":1}') == '{"password":"***","b":1}'


def test_the_words_are_an_argument() -> None:
    assert written(b'{"pin":1,"password":"x"}', mask=["PIN"])["message"] == '{"pin":"***","password":"x"}'
    assert written(b'{"password":"x"', mask=[])["message"] == '{"password":"x"'
