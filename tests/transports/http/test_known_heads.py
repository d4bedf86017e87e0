"""Heads that are known but for their length: found again, and never taken for what they are not (RFC 9112, 6.3)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.channel import Options
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.app import App, HttpRequest, Reply
from dragoman.transports.http.known_heads import KNOWN_HEADS, KnownHeads
from dragoman.transports.http.messages import Head
from tests.behind import behind
from tests.calculator import calculator

from .cases import answer
from .ends import Scripted, asked

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def call(number: int, length: bytes = b"Content-Length: %d\r\n") -> bytes:
    body = b'{"jsonrpc":"2.0","method":"subtract","params":[%d,0],"id":1}' % number
    return HEAD + length % len(body) + b"\r\n" + body


LEARNED = b"P\r\nHost: h\r\nA: b\r\nContent-Length: 5\r\nC: d"


def learned(*heads: bytes, size: int = 1000) -> KnownHeads:
    known = KnownHeads(10_000, size)
    for raw in heads:
        known.learn(raw, Head(length=5))
    return known


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 6\r\nC: d", (6, None)),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 0015\r\nC: d", (15, None)),
        (b"P\r\nHost: h\r\nA:x y\t\r\nContent-Length: 6\r\nC:", (6, [b"C:", b"Content-Length: 6", b"A:x y\t"])),
        (b"P\r\nHost: h\r\nA: \xff\r\nContent-Length: 6\r\nC: d", (6, [b"C: d", b"Content-Length: 6", b"A: \xff"])),
        (b"P\r\nHost: i\r\nA: b\r\nContent-Length: 6\r\nC: d", None),
        (b"Q\r\nHost: h\r\nA: b\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: x\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: +5\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 5, 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 5 \r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: \r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 0\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 1000\r\nC: d", (1000, None)),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 1001\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 000000000000006\r\nC: d", (6, None)),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 0000000000000006\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nX-Content-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 6\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nContent-Length: 6\r\nA: b\r\nC: d", (6, None)),
        (
            b"P\r\nHost: h\r\nContent-Length: 6\r\nA: c\r\nC: d",
            (6, [b"C: d", b"A: c", b"Content-Length: 6"]),
        ),
        (b"P\r\nHost: h\r\nA: b\rHost: i\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\nHost: i\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\x00\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\x7f\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA : b\r\nContent-Length: 6\r\nC: d", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 6\r\nC: d\r\nOrigin: o", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 6", None),
        (b"P\r\nHost: h\r\nA: b\r\nContent-Length: 6\r\nC: %b" % (b"x" * 3000), None),
        (b"P", None),
        (b"", None),
    ],
)
def test_a_head_that_differs_from_a_known_one(head: bytes, found: tuple[int, list[bytes] | None] | None) -> None:
    similar = learned(LEARNED).similar(head)
    if similar is None:
        assert found is None
        return
    assert (similar.length, similar.varied) == found


async def test_bodies_of_any_length_follow_a_known_head() -> None:
    async with asked(ServableService(behind(calculator()))) as (listener, reader, writer):
        for exponent in range(12):
            writer.write(call(10**exponent))
            assert (await answer(reader)).body == b'{"jsonrpc":"2.0","result":%d,"id":1}' % 10**exponent
        assert len(listener.heads.kept) == 1
        writer.write(call(1) + call(22) + call(333)[:-5])  # several in one go, the last one in part
        await asyncio.sleep(0)
        writer.write(call(333)[-5:])
        found = [(await answer(reader)).body for _ in range(3)]
        assert [one.split(b":")[2].split(b",")[0] for one in found] == [b"1", b"22", b"333"]


@pytest.mark.parametrize(
    "length",
    [
        b"Content-Length: %d\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nContent-Length: %d\r\n",
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: -%d\r\n",
        b"Content-Length: %d 1\r\n",
        b"Content-Length: %d\r\n folded\r\n",
    ],
)
async def test_ambiguous_lengths_stay_refused(length: bytes) -> None:
    async with asked(ServableService(behind(calculator()))) as (_, reader, writer):
        for number in (1, 22, 333):
            writer.write(call(number))
            await answer(reader)
        writer.write(call(1, length))
        assert (await answer(reader)).status == 400
        assert await reader.read() == b""


async def test_too_large_stays_refused() -> None:
    options = Options(limits=Limits(message_size=100))
    async with asked(ServableService(behind(calculator())), options) as (_, reader, writer):
        for number in (1, 22, 333):
            writer.write(call(number))
            await answer(reader)
        writer.write(HEAD + b"Content-Length: 101\r\n\r\n")
        assert (await answer(reader)).status == 413


async def test_without_a_body() -> None:
    async with asked(ServableService(behind(calculator()))) as (_, reader, writer):
        for number in (1, 22, 333):
            writer.write(call(number))
            await answer(reader)
        writer.write(HEAD + b"Content-Length: 0\r\n\r\n" + call(4))
        assert b"-32700" in (await answer(reader)).body
        assert b'"result":4,' in (await answer(reader)).body


# -- lines that do not matter ---------------------------------------------------------------------


def traced(number: int, line: bytes = b"") -> bytes:
    """A call whose head is new with every number."""
    body = b'{"jsonrpc":"2.0","method":"subtract","params":[%d,0],"id":1}' % number
    more = b"traceparent: 00-%032x-%016x-01\r\nDate: Sun, 22 Nov 2026 %05d GMT\r\n" % (number, number, number)
    return HEAD + more + line + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def test_a_head_that_is_new_with_every_request_is_known_by_what_matters() -> None:
    scripted = Scripted(lambda x: x.respond(x.request + x.caller.headers["traceparent"].encode()))
    async with asked(scripted) as (listener, reader, writer):
        for number in range(1, 200):
            writer.write(traced(number))
            got = (await answer(reader)).body
            assert got.endswith(b"00-%032x-%016x-01" % (number, number))
            x = await scripted.next()
            assert x.caller.headers["date"].endswith(f"{number:05d} GMT")
            assert x.caller.headers["content-length"] == str(len(x.request))
        assert len(listener.heads.kept) == 1


async def test_fields_of_one_name_are_joined_in_their_order_whether_their_head_is_known_or_not() -> None:
    """The last address of `X-Forwarded-For` is that of the proxy that added it: the others are what the caller says."""
    scripted = Scripted(lambda x: x.respond(x.caller.headers["x-forwarded-for"].encode()))
    async with asked(scripted) as (listener, reader, writer):
        for number in range(8):
            writer.write(traced(number, b"X-Forwarded-For: caller-%d\r\nX-Forwarded-For: proxy\r\n" % number))
            assert (await answer(reader)).body == b"caller-%d, proxy" % number
        assert len(listener.heads.kept) == 1


@pytest.mark.parametrize("kind", ["exchange", "endpoint"])
async def test_the_caller_of_a_known_head_has_the_length_of_its_own_body(kind: str) -> None:
    """The heads differ in their length alone; those that come again are known by all their bytes."""

    def endpoint(request: HttpRequest, reply: Reply) -> None:
        reply.respond(200, (), request.caller.headers["content-length"].encode())

    scripted = Scripted(
        lambda x: x.respond(x.caller.headers["content-length"].encode()),
        endpoints={"": endpoint} if kind == "endpoint" else None,
    )
    async with asked(scripted) as (listener, reader, writer):
        for number in (5, 5, 100, 100_000, 5, 100):
            writer.write(call(number))
            assert (await answer(reader)).body == b"%d" % len(call(number).partition(b"\r\n\r\n")[2])
        assert len(listener.heads.kept) == 1


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"X: a\rTransfer-Encoding: chunked\r\n", 400),
        (b"X: a\nTransfer-Encoding: chunked\r\n", 400),
        (b"X: a\r\n Content-Length: 3\r\n", 400),
        (b"X: a\x00\r\n", 400),
        (b"X : a\r\n", 400),
        (b": a\r\n", 400),
        (b"X\r\n", 400),
        (b"content-length: 3\r\n", 400),
        (b"CONTENT-LENGTH:3\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n", 400),
        (b"transfer-encoding:chunked\r\n", 400),
        (b"Host: example.com\r\n", 400),
        (b"oRiGiN: https://example.com\r\n", 403),
        (b"Content-Type: text/plain\r\n", 415),
        (b"content-encoding: gzip\r\n", 415),
        (b"Expect: x\r\n", 417),
        (b"X: " + b"x" * 17_000 + b"\r\n", 431),
    ],
)
async def test_a_line_that_matters_is_seen_among_those_that_do_not(line: bytes, status: int) -> None:
    async with asked(ServableService(behind(calculator()))) as (listener, reader, writer):
        for number in range(1, 4):
            writer.write(traced(number))
            await answer(reader)
        assert len(listener.heads.kept) == 1
        writer.write(traced(4, line))
        assert (await answer(reader)).status == status
    async with asked(ServableService(behind(calculator()))) as (listener, reader, writer):
        for number in range(1, 4):
            writer.write(traced(number))
            await answer(reader)
        assert len(listener.heads.kept) == 1
        before, date, after = traced(4).partition(b"Date: Sun, 22 Nov 2026 00004 GMT\r\n")
        assert date
        writer.write(before + line + after)  # in its place, so that the number of lines is the same
        assert (await answer(reader)).status == status


async def test_the_sum_of_small_lines_is_bounded_too() -> None:
    async with asked(ServableService(behind(calculator())), Options(limits=Limits(header_size=600))) as (
        _,
        reader,
        writer,
    ):
        for number in range(1, 4):
            writer.write(traced(number))
            assert (await answer(reader)).status == 200
        writer.write(traced(4, b"X: y\r\n" * 100))
        assert (await answer(reader)).status == 431


NAMES = [b"X-A", b"x-a", b"traceparent", b"Host", b"te", b"Mcp-Name", b"Content-Type", b"a b", b""]


@st.composite
def heads(draw: st.DrawFn, more: tuple[bytes, ...] = ()) -> bytes:
    """Heads of lines that matter, that do not, and that are none, with a length."""
    values = st.one_of(st.just(b"5"), st.binary(max_size=4), st.sampled_from([b"5\r\nHost: x", b"a", b"\r\nX-A:"]))
    marks = st.sampled_from([b": ", b": ", b":", b" : ", b""])
    names = draw(st.lists(st.sampled_from([*NAMES, *more]), max_size=5))
    lines = [name + draw(marks) + draw(values) for name in names]
    lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from([b"Content-Length: 5", b"content-length: 15"])))
    return b"\r\n".join([b"POST / HTTP/1.1", *lines])


def sorted_out(raw: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines of a head that may decide something, and its usual lines with a length."""
    decisive, lengths = [], []
    for line in raw.split(b"\r\n"):
        name, mark, value = line.partition(b":")
        if re.fullmatch(rb"[Cc]ontent-[Ll]ength: [0-9]{1,15}", line):
            lengths.append(line)
        elif (
            not mark
            or name not in (b"X-A", b"x-a", b"traceparent")
            or any((byte < 32 and byte != 9) or byte == 127 for byte in value)
        ):
            decisive.append(line)
    return decisive, lengths


@settings(deadline=None, max_examples=500)
@given(heads(), heads((b"Content-Length", b"content-length")), st.data())
def test_heads_that_are_taken_for_each_other_differ_in_nothing_that_decides(
    raw: bytes, other: bytes, data: st.DataObject
) -> None:
    lines = raw.split(b"\r\n")
    if data.draw(st.booleans()):  # often they differ in one line
        at = data.draw(st.integers(1, len(lines) - 1))
        value = data.draw(st.one_of(st.binary(max_size=4), st.just(b"7"), st.just(b"7\r\nHost: x")))
        other = b"\r\n".join([*lines[:at], lines[at].partition(b":")[0] + b": " + value, *lines[at + 1 :]])
    known = learned(raw)
    known.exact.clear()
    found = known.similar(other)
    if found is not None:
        decisive, lengths = sorted_out(other)
        assert decisive == sorted_out(raw)[0]
        assert [int(line[16:]) for line in lengths] == [found.length]


# -- the ASGI face --------------------------------------------------------------------------------


async def asgi_call(app: App, body: bytes, *more: tuple[bytes, bytes], **scope: Any) -> int:
    """The status of one POST; the server has the body already."""
    sent: list[Any] = []
    fields = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        *more,
        (b"content-length", b"%d" % len(body)),
    ]
    base = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": fields}

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        sent.append(event)

    await app({**base, **scope}, receive, send)
    status: int = sent[0]["status"]
    return status


async def test_an_asgi_head_that_is_new_with_every_request_is_known_by_what_matters() -> None:
    scripted = Scripted(lambda x: x.respond(x.request))
    app = App({"": scripted}, Options(limits=Limits(message_size=1000)))
    for number in range(1, 200):
        own = ((b"traceparent", b"%d" % number), (b"x-two", b"a"), (b"x-two", b"%d" % number))
        more = own if number % 2 else (*own, (b"authorization", b"Bearer %d" % number))
        assert await asgi_call(app, b" " * number, *more) == 200
        x = await scripted.next()
        told = {
            "host": "127.0.0.1",
            "content-type": "application/json",
            "traceparent": str(number),
            "x-two": f"a, {number}",
            "content-length": str(number),
        }
        assert x.caller.headers == told | ({} if number % 2 else {"authorization": f"Bearer {number}"})
        assert len(app.known.heads) == 1
    assert await asgi_call(app, b" " * 1001) == 413  # the length is looked at with each request
    for field, status in (
        ((b"content-type", b"text/plain"), 415),
        ((b"content-encoding", b"gzip"), 415),
        ((b"origin", b"https://example.com"), 403),
    ):
        assert await asgi_call(app, b"1", field) == status
    assert await asgi_call(app, b"1", path="/elsewhere") == 404
    assert len(app.known.heads) == 1


async def test_what_an_asgi_application_keeps_of_heads_is_bounded() -> None:
    app = App({"": Scripted(lambda x: x.respond(x.request))})
    for number in range(3000):
        await asgi_call(app, b"1", (b"mcp-name", b"%d" % number), (b"x-%d" % number, b""), (b"x" * 70, b""))
        assert len(app.known.heads) <= KNOWN_HEADS
    await asgi_call(app, b"1", (b"mcp-name", b"x" * 5000))
    assert all(len(head.headers.get(b"mcp-name", b"")) < 5000 for head in app.known.heads.values())
    assert not app.known.exact  # none came again
    for number in range(1500):
        for _ in range(3):
            await asgi_call(app, b"1", (b"x-mine", b"%d" % number))
        assert 0 < len(app.known.exact) <= KNOWN_HEADS
    app.known.exact.clear()
    for _ in range(3):
        await asgi_call(app, b"1", (b"x-mine", b"x" * 5000))
    assert not app.known.exact


async def test_an_asgi_request_that_came_before_is_known_by_all_its_fields() -> None:
    scripted = Scripted(lambda x: x.respond(x.request))
    app = App({"": scripted}, Options(limits=Limits(message_size=1000)))
    for turn in range(5):
        for size, own in ((7, b"a"), (700, b"a"), (7, b"b")):
            assert await asgi_call(app, b" " * size, (b"authorization", own)) == 200
            x = await scripted.next()
            assert (x.caller.headers["content-length"], x.caller.headers["authorization"]) == (str(size), own.decode())
            assert x.caller.remote == ""
        assert await asgi_call(app, b" " * 1001, (b"authorization", b"a")) == 413
        # the longest of several lengths counts, and one that Python would not read is too long as well
        for length in (b"1001", b"9" * 5000):
            assert await asgi_call(app, b" ", (b"content-length", length)) == 413
        assert await asgi_call(app, b" ", (b"content-length", b"-5")) == 200
        await scripted.next()
        assert await asgi_call(app, b" ", client=("10.0.0.1", turn)) == 200
        assert (await scripted.next()).caller.remote == f"10.0.0.1:{turn}"
    assert len(app.known.exact) == 7
    assert len(app.known.heads) == 1
