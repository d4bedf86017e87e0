from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman.channel import Broken, Channel, Closed, Exchange, Options
from dragoman.jsonrpc.errors import LocalError, Refusal
from dragoman.jsonrpc.limits import Limits
from dragoman.schemes import dial, listen
from dragoman.transports.udp import LARGEST
from tests.loops import RUNNERS
from tests.servable import refused

from .ends import Echo, Recorder, until


class Answers(Echo):  # a Served whose answers are chosen
    def __init__(self, answer: Callable[[bytes], bytes | None] | None) -> None:
        super().__init__()
        self.answer = answer

    def exchange(self, x: Exchange) -> None:
        self.exchanges.append(x)
        if self.answer is not None:
            x.respond(self.answer(x.request))


@contextlib.asynccontextmanager
async def served(
    answer: Callable[[bytes], bytes | None] | None = lambda request: request, opts: Options | None = None
) -> AsyncIterator[tuple[str, Answers]]:
    what = Answers(answer)
    listener = await listen("udp://127.0.0.1:0", {"": what}, opts or Options())
    try:
        yield listener.url, what
    finally:
        await listener.close()
        for x in what.exchanges:
            x.respond(None)
        await listener.closed()


def client(url: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    return sock


async def ask(url: str, request: bytes) -> bytes:
    with client(url) as sock:
        sock.send(request)
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 70_000), 20)


class Call:
    """An Outgoing that remembers."""

    def __init__(self) -> None:
        self.abandon: Callable[[], None] | None = None
        self.extra: object = None
        self.left: float | None = None
        self.settled = False
        self.failures: list[Exception] = []

    def awaits(self, id: object) -> bool:
        return True

    def failed(self, why: Exception) -> None:
        self.failures.append(why)

    def hold(self) -> None:
        raise AssertionError("no one logs in over UDP")

    resume = hold


@pytest.mark.parametrize("run", RUNNERS)
def test_there_and_back(run: Callable[..., None]) -> None:
    async def main() -> None:
        async with served() as (url, what):
            channel = await dial(url, Options())
            assert isinstance(channel, Channel)
            assert not channel.duplex
            assert channel.writable
            end = Recorder(channel)
            for i in range(20):
                channel.send(b'{"id": %d}' % i)
                await end.got(i + 1)
            await channel.flush()
            assert end.messages == [b'{"id": %d}' % i for i in range(20)]
            assert what.exchanges[0].caller.scheme == "udp"
            assert what.exchanges[0].caller.remote.startswith("127.0.0.1:")
            assert not what.exchanges[0].stream(b"1")
            await channel.close()
            await channel.close()
            assert isinstance(end.why, Closed)
            with pytest.raises(Closed):
                channel.send(b"1")
            with pytest.raises(Closed):
                await channel.flush()

    run(main())


async def test_late_answers_and_notifications() -> None:
    async with served(None) as (url, what):
        with client(url) as sock:
            sock.send(b"1")
            sock.send(b"2")
            await until(lambda: len(what.exchanges) == 2)
            what.exchanges[1].respond(None)
            what.exchanges[0].respond(b"one")
            what.exchanges[0].respond(b"again")
            assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"one"
            with pytest.raises(BlockingIOError):
                sock.recv(100)


@pytest.mark.parametrize("request_size", [10, 300, 30_000])
async def test_no_answer_is_much_bigger_than_its_request(request_size: int) -> None:
    """What fits goes; one byte more does not, and an error comes in its place."""
    request = json.dumps({"id": "abc", "x": "x" * request_size}).encode()
    most = min(LARGEST, max(512, 3 * len(request)))
    async with served(lambda request: b"y" * most) as (url, _):
        assert len(await ask(url, request)) == most
    if most < LARGEST:
        async with served(lambda request: b"y" * (most + 1)) as (url, _):
            answer = json.loads(await ask(url, request))
            assert answer == {
                "jsonrpc": "2.0",
                "error": {
                    "code": -32003,
                    "message": f"Too large: an answer to this datagram may have {most} bytes, it would have {most + 1}",
                    "data": {"limit": "datagram", "allowed": most, "received": most + 1},
                },
                "id": "abc",
            }


async def test_amplify_allows_what_a_datagram_holds() -> None:
    async with served(lambda request: b"y" * LARGEST, Options(amplify=True)) as (url, _):
        assert len(await ask(url, b'{"id": 1}')) == LARGEST
    async with served(lambda request: b"y" * (LARGEST + 1), Options(amplify=True)) as (url, _):
        assert json.loads(await ask(url, b'{"id": 1}'))["error"]["data"]["allowed"] == LARGEST


@pytest.mark.parametrize("request_", [b'[{"id": 1}]', b"no json", b'{"jsonrpc": "2.0"}', b'[{"id": 1}, {"id": 2}]'])
async def test_the_error_has_no_id_where_there_is_not_one(request_: bytes) -> None:
    async with served(lambda request: b"y" * 5000) as (url, _):
        assert json.loads(await ask(url, request_))["id"] is None


async def test_where_even_the_error_does_not_fit_nothing_is_sent() -> None:
    answers = iter([b"y" * (LARGEST + 1), b"next"])
    async with served(lambda request: next(answers)) as (url, _):
        with client(url) as sock:
            sock.send(b'{"id": "%s"}' % (b"i" * 65_400))
            sock.send(b"2")
            assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"next"


async def test_a_datagram_above_limits_message_size_is_refused() -> None:
    async with served(opts=Options(limits=Limits(message_size=100))) as (url, what):
        answer = json.loads(await ask(url, b'{"id": 1, "x": "%s"}' % (b"x" * 100)))
        assert answer["error"]["data"] == {"limit": "message_size", "allowed": 100, "received": 118}
        assert not what.exchanges


async def test_what_is_too_large_is_answered_under_its_id_or_not_at_all() -> None:
    """No answer is owed to a notification (4.1), and a response is never answered."""
    async with served(opts=Options(limits=Limits(message_size=100))) as (url, what):
        with client(url) as sock:
            pad = b"x" * 100
            sock.send(b'{"jsonrpc":"2.0","method":"m","params":["%b"]}' % pad)
            sock.send(b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % pad)
            sock.send(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"%b"}}' % pad)
            sock.send(b'{"jsonrpc":"2.0","id":"seven","method":"m","params":["%b"]}' % pad)
            answer = json.loads(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1_000), 20))
            assert (answer["id"], answer["error"]["code"]) == ("seven", -32003)
        assert not what.exchanges


async def test_a_refusal_is_an_answer_like_any_other() -> None:
    async with served(None) as (url, what):
        with client(url) as sock:
            sock.send(b"1")
            await until(lambda: what.exchanges)
            what.exchanges[0].respond(refused(Refusal("busy", "Busy"), b"busy"))
            assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"busy"


async def test_foreign_datagrams_are_dropped() -> None:
    async with served() as (url, _):
        channel = await dial(url, Options())
        end = Recorder(channel)
        channel.send(b"1")
        await end.got(1)
        port = channel._transport.get_extra_info("sockname")[1]  # type: ignore[attr-defined]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"evil", ("127.0.0.1", port))
        channel.send(b"2")
        await end.got(2)
        assert end.messages == [b"1", b"2"]
        await channel.close()


@pytest.mark.parametrize("run", RUNNERS)
def test_without_a_listener_the_calls_in_flight_fail_and_the_next_may_succeed(
    run: Callable[..., None],
) -> None:
    async def main() -> None:
        async with served() as (url, _):
            pass
        channel = await dial(url, Options())
        end = Recorder(channel)
        call, batch, gone = Call(), Call(), Call()
        channel.send(b'{"id": 3}', gone)
        assert gone.abandon is not None
        gone.abandon()
        channel.send(b'{"id": 1}', call)
        channel.send(b'[{"id": "a"}, {"id": "b"}]', batch)
        await until(lambda: call.failures)
        assert isinstance(call.failures[0], Broken)
        assert "connection refused" in str(call.failures[0])
        assert len(batch.failures) <= 1
        assert not gone.failures
        listener = await listen(url, {"": Echo()}, Options())
        answered = Call()
        while not end.messages:  # the system may still owe us a report on an earlier datagram
            channel.send(b'{"id": 2}', answered)
            await asyncio.sleep(0.01)
        assert not channel._calls  # type: ignore[attr-defined]
        await channel.close()
        await listener.close()
        await listener.closed()

    run(main())


async def test_too_large_to_send() -> None:
    async with served() as (url, _):
        channel = await dial(url, Options())
        with pytest.raises(LocalError, match="65508 bytes do not fit into a datagram, which holds 65507"):
            channel.send(b"x" * (LARGEST + 1))
        await channel.close()


async def test_an_answer_above_the_clients_limit_is_refused() -> None:
    async with served() as (url, _):
        channel = await dial(url, Options(limits=Limits(message_size=10)))
        end = Recorder(channel)
        channel.send(b"x" * 11)
        await end.until(lambda end: end.refusals)
        await channel.close()


async def test_abort() -> None:
    async with served() as (url, _):
        channel = await dial(url, Options())
        end = Recorder(channel)
        channel.abort(Broken("enough"))
        assert not end.endings
        assert str(await end.over()) == "enough"
        late = Recorder(channel)
        assert str(await late.over()) == "enough"
        await channel.close()


async def test_a_closed_door_takes_nothing_but_answers_what_it_owes() -> None:
    what = Answers(None)
    listener = await listen("udp://127.0.0.1:0", {"": what}, Options())
    with client(listener.url) as sock:
        sock.send(b"1")
        await until(lambda: what.exchanges)
        await listener.close()
        closed = asyncio.ensure_future(listener.closed())
        sock.send(b"2")
        await asyncio.sleep(0)
        assert not closed.done()
        what.exchanges[0].respond(b"one")
        assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"one"
        await closed
        assert len(what.exchanges) == 1


async def test_an_answer_that_cannot_be_delivered_is_one_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    async with served(None) as (url, what):
        with client(url) as sock:
            sock.send(b"1")
            await until(lambda: what.exchanges)
        with caplog.at_level(logging.DEBUG, "dragoman.wire"):
            what.exchanges[0].respond(b"too late")
            assert await ask_later(url, what) == b"3"
    assert all(record.levelno == logging.DEBUG for record in caplog.records if record.name == "dragoman.wire")


async def ask_later(url: str, what: Answers) -> bytes:
    what.answer = lambda request: request
    return await ask(url, b"3")


async def test_wrong_use() -> None:
    with pytest.raises(LocalError, match="takes no query"):
        await dial("udp://127.0.0.1:1?x=1", Options())
    with pytest.raises(Broken, match="its name cannot be resolved"):
        await dial("udp://no.such.name.invalid:1", Options())
    async with served() as (url, _):
        with pytest.raises(LocalError, match="the address is in use"):
            await listen(url, {"": Echo()}, Options())


async def test_what_is_served_may_raise() -> None:
    """The caller is told, and the listener still closes."""

    def raises(request: bytes) -> bytes:
        raise RuntimeError("secret")

    async with served(raises) as (url, _):
        told = json.loads(await ask(url, b'{"jsonrpc":"2.0","method":"a","id":"x"}'))
    assert (told["id"], told["error"]["code"]) == ("x", -32603)
    assert "secret" not in str(told)
