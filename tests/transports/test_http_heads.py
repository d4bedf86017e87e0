"""Heads that are known but for their length: found again, and never taken for what they are not (RFC 9112, 6.3)."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.channel import Options
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.host import Host
from dragoman.transports.http_reader import shaped
from tests.calculator import calculator

from .http_cases import answer
from .http_ends import asked

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def call(number: int, length: bytes = b"Content-Length: %d\r\n") -> bytes:
    body = b'{"jsonrpc":"2.0","method":"subtract","params":[%d,0],"id":1}' % number
    return HEAD + length % len(body) + b"\r\n" + body


@pytest.mark.parametrize(
    ("head", "shape"),
    [
        (b"P\r\nContent-Length: 5\r\nA: b", (b"P\r\nA: b", 5)),
        (b"P\r\nA: b\r\ncontent-length: 15", (b"P\r\nA: b", 15)),
        (b"P\r\nA: b", None),
        (b"P\r\nContent-Length: x\r\nA: b", None),
        (b"P\r\nContent-Length: +5\r\nA: b", None),
        (b"P\r\nContent-Length: 5, 6\r\nA: b", None),
        (b"P\r\nContent-Length: 5 \r\nA: b", None),
        (b"P\r\nContent-Length: 1234567890123456\r\nA: b", None),
        (b"P\r\nX-Content-Length: 5\r\nA: b", None),
        (b"P\r\nContent-Length: 5\r\nContent-Length: 6", (b"P\r\nContent-Length: 6", 5)),
    ],
)
def test_the_shape_of_a_head(head: bytes, shape: tuple[bytes, int] | None) -> None:
    assert shaped(head) == shape


async def test_bodies_of_any_length_follow_a_known_head() -> None:
    async with asked(Host(calculator())) as (listener, reader, writer):
        for exponent in range(12):
            writer.write(call(10**exponent))
            assert (await answer(reader)).body == b'{"jsonrpc":"2.0","result":%d,"id":1}' % 10**exponent
        assert len(listener.shapes) == 1
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
    async with asked(Host(calculator())) as (_, reader, writer):
        for number in (1, 22, 333):
            writer.write(call(number))
            await answer(reader)
        writer.write(call(1, length))
        assert (await answer(reader)).status == 400
        assert await reader.read() == b""


async def test_too_large_stays_refused() -> None:
    options = Options(limits=Limits(message_size=100))
    async with asked(Host(calculator()), options) as (_, reader, writer):
        for number in (1, 22, 333):
            writer.write(call(number))
            await answer(reader)
        writer.write(HEAD + b"Content-Length: 101\r\n\r\n")
        assert (await answer(reader)).status == 413


async def test_without_a_body() -> None:
    async with asked(Host(calculator())) as (_, reader, writer):
        for number in (1, 22, 333):
            writer.write(call(number))
            await answer(reader)
        writer.write(HEAD + b"Content-Length: 0\r\n\r\n" + call(4))
        assert b"-32700" in (await answer(reader)).body
        assert b'"result":4,' in (await answer(reader)).body
