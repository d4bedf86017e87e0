"""The conformity table of HTTP, on both faces of the app."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.channel import Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import Limits

from .cases import ANSWER, CASES, LIMIT, NOTE, Case, answer, check, post, rest
from .ends import Scripted, face, native, served, wire

OPTIONS = Options(limits=Limits(message_size=LIMIT))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_native(case: Case) -> None:
    async with face("native", served(), OPTIONS) as port, wire(port) as (reader, writer):
        writer.write(case.request)
        got = await answer(reader, to=case.to)
        check(case, got)
        if case.closes:
            assert got.headers.get("connection") == "close"
            assert await rest(reader) == b""
        else:
            writer.write(post())
            assert (await answer(reader)).body == ANSWER


async def test_asgi() -> None:
    """One server for all cases: starting one is slow."""
    async with face("asgi", served(), OPTIONS) as port:
        for case in CASES:
            if not case.native:
                async with wire(port) as (reader, writer):
                    writer.write(case.request)
                    check(case, await answer(reader, to=case.to))


@pytest.mark.parametrize("piece", [1, 7])
async def test_in_pieces(piece: int) -> None:
    """However the bytes of a request are cut, the answer is the same."""
    async with native(served(), OPTIONS) as listener:
        port = int(listener.url.rpartition(":")[2])

        few = asyncio.Semaphore(8)  # what is refused is read on for a moment only

        async def ask(case: Case) -> None:
            async with few, wire(port) as (reader, writer):
                for at in range(0, len(case.request), piece):
                    writer.write(case.request[at : at + piece])
                    await asyncio.sleep(0)
                check(case, await answer(reader, to=case.to))

        await asyncio.gather(*[ask(case) for case in CASES if len(case.request) <= 1000])


async def test_all_at_once() -> None:
    """What keeps the wire open can be asked for in one write; the answers come in order."""
    kept = [case for case in CASES if not case.closes]
    async with face("native", served(), OPTIONS) as port, wire(port) as (reader, writer):
        for _ in range(3):  # the second time the heads are known by then
            writer.write(b"".join(case.request for case in kept))
            for case in kept:
                check(case, await answer(reader, to=case.to))


async def test_the_very_bytes() -> None:
    """Answers have no header but those that are needed."""
    async with face("native", served(), OPTIONS) as port, wire(port) as (reader, writer):
        writer.write(post() + post(b'{"jsonrpc":"2.0","method":"update"}'))
        ok = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n" + ANSWER
        assert await reader.readexactly(len(ok)) == ok
        none = b"HTTP/1.1 204 No Content\r\n\r\n"
        assert await reader.readexactly(len(none)) == none


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_nothing_as_200_with_an_empty_body(kind: str) -> None:
    options = Options(empty_status=200)
    async with face(kind, served(), options) as port, wire(port) as (reader, writer):
        for _ in range(3):  # the third time the head is known
            for request in (post(NOTE), post(NOTE, more="Connection: keep-alive\r\nExpect: 100-continue\r\n")):
                writer.write(request)
                got = await answer(reader)
                assert (got.status, got.body, got.headers["content-length"]) == (200, b"", "0")
                assert "content-type" not in got.headers
        writer.write(post())
        assert (await answer(reader)).body == ANSWER


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_nothing_is_204_or_200(kind: str) -> None:
    with pytest.raises(LocalError, match="empty_status is 204 or 200, not 202"):
        async with face(kind, served(), Options(empty_status=202)):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_what_a_caller_is_told_of(kind: str) -> None:
    """Header fields come without the spaces and tabs around them (RFC 9110, 5.5), in a new head and in a known one."""
    scripted = Scripted(lambda x: x.respond(b"{}"))
    async with face(kind, {"": scripted}, OPTIONS) as port, wire(port) as (reader, writer):
        for length in (1, 1, 1, 2, 2):
            writer.write(post(b"x" * length, more="Accept: \ta\t\r\nX:  b \t\r\nMcp-Name:c\t \r\n"))
            await answer(reader)
            headers = (await scripted.next()).caller.headers
            assert (headers["accept"], headers["x"], headers["mcp-name"]) == ("a", "b", "c")
