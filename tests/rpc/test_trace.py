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
from dragoman.channel import Broken, Caller, Channel, ChannelError, Options
from dragoman.jsonrpc.limits import SERVER
from dragoman.jsonrpc.messages import Malformed
from dragoman.rpc import trace_ledger
from dragoman.rpc.servable import ServableService
from dragoman.rpc.tracing import Event, json_lines, traced_channel, traced_served
from dragoman.schemes import dial
from dragoman.transports.memory import pair
from tests.servable import Idle

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
        assert ("complete", "out", "forever", "1", "cancelled") in map(told, outs)


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
        with pytest.raises(CallTimeout):
            await peer.call("forever", timeout=0.05)
        assert told(outs[-1]) == ("failed", "out", "forever", "1", "cancelled")
        await asyncio.wait_for(went.wait(), 20)
        assert told(ins[-1]) == ("failed", "in", "forever", "1", "ended: the caller went away")


async def test_a_post_that_fails_is_told() -> None:
    outs: list[Event] = []
    async with connect("http://127.0.0.1:1/", trace=outs.append) as peer:
        with pytest.raises(Broken):
            await peer.call("subtract", [2, 1])
    kind, _, method, _, outcome = told(outs[-1])
    assert (kind, method) == ("failed", "subtract")
    assert outcome is not None
    assert outcome.startswith("failed: Cannot connect to http://127.0.0.1:1: ")


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


# -- one end, by hand -----------------------------------------------------------------------------


class Taker:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.refusals: asyncio.Queue[Malformed] = asyncio.Queue()
        self.over: asyncio.Future[ChannelError] = asyncio.get_running_loop().create_future()

    def received(self, message: bytes) -> None:
        self.messages.put_nowait(message)

    def refused(self, malformed: Malformed) -> None:
        self.refusals.put_nowait(malformed)

    def resumed(self) -> None:
        pass

    def finished(self) -> None:
        pass

    def ended(self, why: ChannelError) -> None:
        self.over.set_result(why)


@asynccontextmanager
async def by_hand(limits: Any = SERVER) -> AsyncIterator[tuple[Channel, Taker, Channel, list[Event]]]:
    """A traced end and its receiver, the far end, and the events."""
    events: list[Event] = []
    near, far = pair(limits)
    traced = traced_channel(near, events.append)
    taker = Taker()
    traced.open(taker)
    far.open(Taker())
    try:
        yield traced, taker, far, events
    finally:
        await traced.close()
        await far.close()


async def test_ids_are_matched_by_type_and_value() -> None:
    async with by_hand() as (traced, taker, far, events):
        for id in (b"1", b'"1"', b"null", b"2.0"):
            traced.send(CALL.replace(b'"id":1', b'"id":' + id))
        for id in (b'"1"', b"2", b"1"):
            far.send(ANSWER.replace(b'"id":1', b'"id":' + id))
            await taker.messages.get()
        assert [event.id for event in events if event.kind == "complete"] == ['"1"', "2.0", "1"]


async def test_what_nobody_waits_for_and_what_is_no_message() -> None:
    async with by_hand(SERVER.but(message_size=1000)) as (traced, taker, far, events):
        far.send(ANSWER)
        far.send(b"nonsense")
        far.send(b"[1, 2]")
        far.send(b"[" + NOTE + b"," + NOTE + b"]")
        for _ in range(4):
            await taker.messages.get()
        traced.send(b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}')
        traced.send(ANSWER)
        far.send(b"[" + b"1," * 1000 + b"1]")
        await taker.refusals.get()
        assert [event.kind for event in events] == [
            "complete",
            "failed",
            "complete",
            "complete",
            "complete",
            "complete",
            "failed",
        ]
        assert events[0].outcome == "ignored"
        assert (events[1].outcome or "").startswith("Parse error: ")
        assert (events[2].outcome or "").startswith("Invalid Request: ")
        assert told(events[3])[2:] == ("batch(update, update)", None, "notified")
        assert events[4].outcome == "error -32700"
        assert events[5].outcome == "answered"
        assert events[6].message == b""
        assert "message_size" in (events[6].outcome or "")


async def test_a_second_call_with_an_id_in_flight_leaves_the_first_alone() -> None:
    async with by_hand() as (traced, taker, far, events):
        far.send(CALL)
        far.send(CALL)
        await taker.messages.get()
        await taker.messages.get()
        traced.send(ANSWER)
        assert [(event.kind, event.outcome) for event in events] == [
            ("started", None),
            ("started", None),
            ("failed", "failed: its id is in flight already"),
            ("complete", "answered"),
        ]


async def test_sending_on_a_channel_that_is_over() -> None:
    async with by_hand() as (traced, _, _, events):
        traced.abort(Broken("enough"))
        with pytest.raises(Broken):
            traced.send(CALL)
        assert told(events[-1]) == ("failed", "out", "subtract", "1", "ended: enough")
        with pytest.raises(Broken):
            await traced.flush()


class Answering:
    """A channel whose answer comes within `send`, and which can send to everyone."""

    caller = Caller(scheme="here")
    duplex = True
    writable = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def open(self, receiver: Any) -> None:
        self.receiver = receiver

    def send(self, message: bytes, call: Any = None) -> None:
        self.sent.append(message)
        if b'"id":1' in message:
            self.receiver.received(ANSWER)

    def broadcast(self, message: bytes) -> None:
        self.sent.append(message)

    async def flush(self) -> None: ...
    async def close(self) -> None: ...
    def abort(self, why: ChannelError) -> None: ...


async def test_what_starts_is_told_before_it_is_sent() -> None:
    events: list[Event] = []
    channel = Answering()
    traced = traced_channel(channel, events.append)
    traced.open(Taker())
    traced.send(CALL)
    assert [told(event)[0] for event in events] == ["started", "complete"]
    traced.abort(Broken("enough"))
    assert [told(event)[0] for event in events] == ["started", "complete"]


async def test_a_traced_channel_can_send_to_everyone_where_the_wire_can() -> None:
    events: list[Event] = []
    channel = Answering()
    traced: Any = traced_channel(channel, events.append)
    traced.broadcast(b'{"jsonrpc":"2.0","method":"hello"}')
    assert channel.sent == [b'{"jsonrpc":"2.0","method":"hello"}']
    assert told(events[-1]) == ("complete", "out", "hello", None, "notified")
    near, _ = pair(SERVER)
    assert not hasattr(traced_channel(near, events.append), "broadcast")


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_ledger, "OPEN", 3)
    async with by_hand() as (traced, _, _, events):
        for id in range(5):
            traced.send(CALL.replace(b'"id":1', b'"id":%d' % id))
        dropped = [event.id for event in events if event.kind == "failed"]
        assert dropped == ["0", "1"]
        monkeypatch.setattr(trace_ledger, "HELD", len(CALL))
        traced.send(CALL.replace(b'"id":1', b'"id":9'))
        assert [event.id for event in events if event.kind == "failed"] == ["0", "1", "2", "3", "4"]


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
    assert [record.name for record in caplog.records] == ["dragoman.rpc.tracing"]


class Handed:
    """An exchange by hand."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.caller = Caller(scheme="test", remote="here")
        self.gone: Any = None
        self.answers: list[bytes | None] = []
        self.streamed: list[bytes] = []

    def respond(self, answer: bytes | None, refusal: Any = None) -> None:
        self.answers.append(answer)

    def stream(self, message: bytes) -> bool:
        self.streamed.append(message)
        return True


async def test_exchanges_are_told_with_their_answers() -> None:
    events: list[Event] = []
    host = ServableService(calculator())
    served = traced_served(host, events.append)
    assert (served.name, served.gate) == (host.name, host.gate)
    assert served.routes().keys() == host.routes().keys()
    for request in (CALL, NOTE, b"nonsense"):
        served.exchange(Handed(request))
    assert [(event.kind, event.direction, event.method) for event in events] == [
        ("started", "in", "subtract"),
        ("complete", "in", "subtract"),
        ("complete", "in", "update"),
        ("failed", "in", None),
    ]
    assert events[1].answer is not None
    assert events[3].answer is not None
    assert b"-32700" in events[3].answer
    await served.drain(1)


async def test_an_exchange_of_another_making() -> None:
    events: list[Event] = []

    class Mute(Idle):
        def exchange(self, x: Any) -> None:
            assert x.stream(NOTE)
            x.respond(None)

    x = Handed(CALL)
    traced_served(Mute(), events.append).exchange(x)
    assert x.answers == [None]
    assert x.streamed == [NOTE]
    assert [(event.kind, event.direction, event.outcome) for event in events] == [
        ("started", "in", None),
        ("complete", "out", "notified"),
        ("failed", "in", "failed: no answer was given"),
    ]


async def test_nothing_is_wrapped_without_a_hook() -> None:
    async with serve(calculator(), urls=["memory:plain"]) as serving:
        channel = await dial(serving.urls[0], Options())
        assert type(channel).__module__ == "dragoman.transports.memory"
        channel.abort(Broken("over"))
        assert all(type(served) is ServableService for served in serving.served.values())


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
        (b'{"password":"hush', '{"password***'),
        (b"GET / HTTP/1.1\r\nAuthorization: Basic hush", "GET / HTTP/1.1\r\nAuthorization***"),
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


def test_the_words_are_an_argument() -> None:
    assert written(b'{"pin":1,"password":"x"}', mask=["PIN"])["message"] == '{"pin":"***","password":"x"}'
    assert written(b'{"password":"x"', mask=[])["message"] == '{"password":"x"'
