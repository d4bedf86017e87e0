"""The ring of messages: what passes as bytes, what of it is kept, and the bounds of all of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import Context, LocalError, RpcError, Service, serve
from dragoman.channel import Caller, Identity
from dragoman.console.messages import ROWS, TEXTS, WHOLE, Messages
from dragoman.console.recorder import MOST_CODE, NAME
from dragoman.console.rows import MessageRow
from dragoman.console.views import encode, parse_filter, pick_messages
from dragoman.mcp import Client, Server, ToolError
from dragoman.mcp import Context as ToolContext
from dragoman.observer import Observation
from dragoman.rpc.tracing import SHOWN, Event, Trace

CALL = b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":7}'
"""A call."""


def shop() -> Service:
    api = Service("shop")

    @api.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @api.method(inline=True)
    def login(user: str, password: str) -> dict[str, str]:
        return {"session_token": password}

    @api.method(inline=True)
    def fail() -> None:
        raise RpcError.of(7, "Nothing here")

    @api.method
    async def ask(ctx: Context) -> Any:
        return await ctx.call("answer", [3])

    @api.method
    async def hang() -> None:
        await asyncio.Event().wait()

    return api


class Line:
    """A connection to what is served, whose messages are lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def receive(self) -> bytes:
        return (await self._reader.readline()).rstrip(b"\n")

    async def send(self, message: bytes) -> bytes:
        """Send a message; return the next one that comes."""
        self.writer.write(message + b"\n")
        return await self.receive()


@asynccontextmanager
async def lines(messages: Messages, **options: Any) -> AsyncIterator[Line]:
    async with serve(shop(), urls="tcp://127.0.0.1:0", trace=messages.hook, **options) as serving:
        _, _, port = serving.urls[0].rpartition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port), limit=64 * 1024 * 1024)
        try:
            yield Line(reader, writer)
        finally:
            writer.close()


def oldest(messages: Messages) -> list[MessageRow]:
    return list(messages.newest())[::-1]


def event(message: bytes = CALL, **members: Any) -> Event:
    plain: dict[str, Any] = {"kind": "started", "time": 1.0, "channel": "tcp:127.0.0.1:9#3", "direction": "in"}
    return Event(**(plain | {"message": message} | members))


# -- what passes


async def test_a_call_and_its_answer() -> None:
    messages = Messages()
    async with lines(messages) as line:
        answer = await line.send(CALL)
        host, port = line.writer.get_extra_info("sockname")[:2]
    asked, answered = oldest(messages)
    assert (asked.seq, asked.direction, asked.outcome, asked.ms) == (0, "in", "", None)
    assert (asked.service, asked.method, asked.id, asked.wire, asked.remote) == (
        "shop",
        "add",
        "7",
        "tcp",
        f"{host}:{port}",
    )
    assert (asked.text, asked.size) == (CALL.decode(), len(CALL))
    assert (answered.seq, answered.direction, answered.outcome, answered.code) == (1, "out", "result", None)
    assert (answered.method, answered.id, answered.channel) == ("add", "7", asked.channel)
    assert (answered.text, answered.size) == (answer.decode(), len(answer))
    assert answered.ms is not None
    assert answered.ms >= 0
    assert answered.time >= asked.time
    assert messages.count == len(messages) == 2


async def test_what_is_no_call() -> None:
    """A notification, a batch, an error, what is no message, and an answer that nobody waits for."""
    messages = Messages()
    batch = b'[{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1},{"jsonrpc":"2.0","method":"add","params":[3,4]}]'
    note = b'{"jsonrpc":"2.0","method":"add","params":[1,2]}'
    stray = b'{"jsonrpc":"2.0","result":1,"id":99}'
    async with lines(messages) as line:
        line.writer.write(note + b"\n")
        await line.send(batch)
        line.writer.write(stray + b"\n")
        await line.send(b'{"jsonrpc":"2.0","method":"fail","id":"a"}')
        await line.send(b'{"jsonrpc":"2.0","method":"nothing","id":2}')
        await line.send(b"{nonsense")
    shown = [(one.direction, one.method, one.id, one.outcome, one.code) for one in oldest(messages)]
    assert shown == [
        ("in", "add", "", "notified", None),
        ("in", "batch(add, add)", "", "", None),
        ("out", "batch(add, add)", "", "result", None),
        ("in", "", "99", "ignored", None),
        ("in", "fail", '"a"', "", None),
        ("out", "fail", '"a"', "error", 7),
        ("in", "nothing", "2", "", None),
        ("out", "nothing", "2", "error", -32601),
        ("in", "", "null", "refused", -32700),
        ("out", "", "null", "refused", -32700),
    ]
    assert [one.text for one in oldest(messages)][:2] == [note.decode(), batch.decode()]


async def test_a_question_of_the_server() -> None:
    messages = Messages()
    async with lines(messages) as line:
        question = await line.send(b'{"jsonrpc":"2.0","method":"ask","id":1}')
        id = msgspec.Raw(msgspec.json.decode(question, type=dict[str, msgspec.Raw])["id"])
        reply = b'{"jsonrpc":"2.0","result":42,"id":' + bytes(id) + b"}"
        await line.send(reply)
    asked, out, back, answered = oldest(messages)
    assert [one.direction for one in (asked, out, back, answered)] == ["in", "out", "in", "out"]
    assert (out.method, out.text, out.outcome) == ("answer", question.decode(), "")
    assert (back.method, back.text, back.outcome, back.id) == ("answer", reply.decode(), "result", out.id)


async def test_an_answer_that_does_not_come() -> None:
    messages = Messages()
    async with lines(messages) as line:
        line.writer.write(b'{"jsonrpc":"2.0","method":"hang","id":1}\n')
        await line.send(CALL)
        line.writer.close()
    (gone,) = [one for one in oldest(messages) if one.method == "hang" and one.direction == "out"]
    assert (gone.outcome, gone.size) == ("lost", 0)
    assert gone.text.startswith("ended: The channel to")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_an_elicitation_and_a_tool_that_fails(revision: str) -> None:
    app, messages = Server("weather"), Messages()

    @app.tool
    async def asks(ctx: ToolContext) -> str:
        form = {"type": "object", "properties": {"city": {"type": "string", "default": "Oslo"}}}
        found = await ctx.elicit("Which city?", form)
        assert found.content is not None
        return str(found.content["city"])

    @app.tool
    async def fails() -> str:
        raise ToolError("no such city")

    async with (
        serve(app, urls="http://127.0.0.1:0/mcp", trace=messages.hook) as serving,
        Client(serving.urls[0], revision=revision, on_elicit=lambda question: True) as client,
    ):
        assert (await client.call_tool("asks")).text == "Oslo"
        assert (await client.call_tool("fails")).is_error
    rows = oldest(messages)
    assert any("Which city?" in one.text and one.direction == "out" for one in rows)
    assert any("Oslo" in one.text and one.direction == "in" for one in rows)
    if revision == "2025-11-25":  # there the question is a call of its own
        asked, answered = (one for one in rows if one.method == "elicitation/create")
        assert (asked.direction, answered.direction, answered.outcome) == ("out", "in", "result")
        assert asked.session
    (failed,) = pick_messages(messages.newest(), "status:error", 10)
    assert (failed.method, failed.target, failed.outcome, failed.direction) == (
        "tools/call",
        "fails",
        "tool_error",
        "out",
    )


def test_who_calls() -> None:
    messages = Messages()
    caller = Caller(scheme="memory+broker", remote="a#b", identity=Identity(subject="ada"))
    seen = Observation(
        direction="in",
        kind="request",
        service="shop",
        protocol="plain",
        caller=caller,
        channel=3,
        message=CALL,
        session="s1",
    )
    Trace(messages.hook).came_in(seen)
    (row,) = oldest(messages)
    assert (row.principal, row.session, row.wire, row.remote, row.channel) == ("ada", "s1", "memory+broker", "a#b", 3)


# -- what is kept of it


async def test_secrets_are_masked_as_in_a_trace() -> None:
    messages = Messages()
    async with lines(messages) as line:
        await line.send(b'{"jsonrpc":"2.0","method":"login","params":{"user":"ada","password":"hunter2"},"id":1}')
        await line.send(b'{"password":"hunter2')
    assert len(messages) == 4
    assert "hunter2" not in f"{oldest(messages)}"
    asked, answered, *_ = oldest(messages)
    assert msgspec.json.decode(asked.text)["params"] == {"user": "ada", "password": "***"}
    assert msgspec.json.decode(answered.text)["result"] == {"session_token": "***"}


async def test_a_huge_message_is_cut_and_says_so() -> None:
    messages = Messages()
    text = "x" * 200_000
    huge = f'{{"jsonrpc":"2.0","method":"add","params":["{text}",2],"id":1,"password":"hunter2"}}'.encode()
    async with lines(messages) as line:
        await line.send(huge)
    asked = oldest(messages)[0]
    assert asked.size == len(huge) > WHOLE
    assert asked.text == f"{huge.decode()[:SHOWN]}... ({len(huge)} bytes in all)"


def test_no_message_is_held() -> None:
    messages, message, answer = Messages(), b'{"a":"%s"}' % (b"x" * 50_000), bytes(100_000)
    before = sys.getrefcount(message), sys.getrefcount(answer)
    messages.hook(event(message, kind="complete", seconds=1.0, answer=answer))
    messages.hook(event(message))
    assert len(messages) == 2
    assert (sys.getrefcount(message), sys.getrefcount(answer)) == before


def test_names_and_codes_of_far_ends_are_bounded() -> None:
    messages = Messages()
    messages.hook(event(method="m" * 10_000, id='"' + "i" * 10_000 + '"', code=2**70))
    (row,) = oldest(messages)
    assert (row.method, row.id) == ("m" * NAME + "...", '"' + "i" * (NAME - 1) + "...")
    assert row.code == MOST_CODE
    assert msgspec.json.decode(encode(row), type=MessageRow) == row


async def test_half_of_a_surrogate_pair_can_be_shown() -> None:
    messages = Messages()
    async with lines(messages) as line:
        await line.send(b'{"jsonrpc":"2.0","method":"\\ud800","params":["\\udfff"],"id":"\\ud800"}')
        await line.send(b'{"jsonrpc":"2.0","method":"\xff\xfe","id":1}')
    messages.hook(event(method="\ud800", target="\udfff", principal="\ud800"))
    for row in messages.newest():
        assert msgspec.json.decode(encode(row))["seq"] == row.seq


# -- its bounds


@given(st.lists(st.integers(0, 500), max_size=60))
def test_the_ring_has_the_newest_messages(sizes: list[int]) -> None:
    messages = Messages(rows=8, texts=4_000)
    for number, size in enumerate(sizes):
        messages.hook(event(b"x" * size, time=float(number)))
    kept = [one.seq for one in messages.newest()]
    assert messages.count == len(sizes)
    assert kept == list(range(len(sizes) - 1, len(sizes) - 1 - len(kept), -1))
    assert len(kept) <= 8
    assert messages.bytes <= 4_000
    assert kept or not sizes
    if messages.bytes < 3_000:  # there was room for another of them
        assert len(kept) == min(8, len(sizes))


def test_texts_are_bounded_as_they_lie_in_memory() -> None:
    """Characters beyond Latin take two bytes or four each."""
    messages = Messages()
    for _ in range(ROWS + 10):
        messages.hook(event(("\U0001f600" * SHOWN).encode()))
    assert len(messages) < ROWS
    assert messages.bytes <= TEXTS
    assert sum(sys.getsizeof(one.text) for one in messages.newest()) <= TEXTS
    for _ in range(ROWS + 10):
        messages.hook(event())
    assert len(messages) == ROWS
    assert messages.count == 2 * (ROWS + 10)


# -- which of them


ROW = MessageRow(
    seq=1, time=2.0, direction="out", service="shop", wire="tcp", remote="127.0.0.1:5", channel=3, session="s1",
    principal="ada", method="Orders.add", target="t", id="7", outcome="error", code=-32601, ms=600.0, size=20,
    text="Method not found",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("method:orders", True),
        ("method:x", False),
        ("status:error", True),
        ("status:ok", False),
        ("ms:>500", True),
        ("size:>=20", True),
        ("size:<20", False),
        ("code:-32601", True),
        ("direction:out", True),
        ("direction:in", False),
        ("id:7", True),
        ("session:s1 principal:ADA wire:tcp", True),
        ("not found", True),
    ],
)
def test_filters_are_those_of_the_timeline(text: str, fits: bool) -> None:
    assert parse_filter(text, MessageRow)(ROW) is fits


def test_a_call_is_neither_well_nor_wrong_until_it_is_answered() -> None:
    row = msgspec.structs.replace(ROW, outcome="", code=None, ms=None)
    assert not any(parse_filter(one, MessageRow)(row) for one in ("status:ok", "status:error", "ms:>0"))


@pytest.mark.parametrize("text", ["wait:>1", "in:>1", "parent:7", "kind:request", "about:x", "nothing:x"])
def test_what_a_message_has_not(text: str) -> None:
    with pytest.raises(LocalError, match="it knows code, direction, id, method, ms, principal, remote"):
        parse_filter(text, MessageRow)


def test_what_passed_at_one_time_is_on_one_page_or_the_next() -> None:
    messages = Messages()
    for time in (7.0, 7.0, 7.0, 5.0, 5.0):  # a clock that does not go on, and then is set back
        messages.hook(event(time=time))
    times = [one.time for one in oldest(messages)]
    assert [round(time, 3) for time in times] == [7.0, 7.0, 7.0, 5.0, 5.0]
    assert times[0] < times[1] < times[2]
    assert [one.seq for one in pick_messages(messages.newest(), "", 2, times[2])] == [4, 3]
    answered = Messages()
    answered.hook(event(time=7.0, answer=b'{"jsonrpc":"2.0","result":3,"id":7}'))
    asked, answer = oldest(answered)
    assert pick_messages(answered.newest(), "", 9, answer.time) == [asked]


def test_a_page_of_messages() -> None:
    messages = Messages()
    for number in range(10):
        messages.hook(event(method="odd" if number % 2 else "even", time=float(number)))
    page = pick_messages(messages.newest(), "method:odd", 2)
    assert [one.seq for one in page] == [9, 7]
    assert [one.seq for one in pick_messages(messages.newest(), "method:odd", 2, page[-1].time)] == [5, 3]
    assert pick_messages(messages.newest(), "", 0) == pick_messages(messages.newest(), "", -1) == []
    with pytest.raises(LocalError):
        pick_messages(messages.newest(), "nothing:x", 2)
