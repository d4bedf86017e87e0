"""The HTTP client against a scripted server that says exactly what each test needs, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from dragoman import CallTimeout, Context, MethodNotFound, Service, connect, serve
from dragoman.channel import Broken, Channel, ChannelError, Closed, Options, Outgoing
from dragoman.jsonrpc.errors import BadAnswer, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, SERVER
from dragoman.jsonrpc.messages import Malformed
from dragoman.rpc.peer import BatchResult
from dragoman.transports.http.client.channel import dial
from tests.ports import free_port

CALL = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
ANSWER = b'{"jsonrpc":"2.0","result":19,"id":1}'
NOTE = b'{"jsonrpc":"2.0","method":"update","params":[1]}'
LIMIT = 20.0


class Seen:
    """One request as the server read it."""

    def __init__(self, head: bytes, body: bytes, connection: int) -> None:
        self.line, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines if line]
        self.headers = {name.lower(): value for name, value in pairs}
        self.body = body
        self.connection = connection


Script = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


class Scripted:
    """A server whose answers the test writes itself."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Seen] = []
        self.arrivals: asyncio.Queue[Seen] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.port = 0
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        first = b""
        try:
            while True:
                head = first + await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                seen = Seen(head, await reader.readexactly(length), number)
                self.seen.append(seen)
                self.arrivals.put_nowait(seen)
                answering = asyncio.ensure_future(self.script(seen, writer))
                watching = asyncio.ensure_future(reader.read(1))  # the next request never comes before the answer
                await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
                hung_up = not answering.done()
                if hung_up or writer.is_closing():
                    answering.cancel()
                    writer.close()
                    await asyncio.gather(answering, watching, return_exceptions=True)
                    first = b""
                else:
                    await answering
                    first = await watching
                if not first:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def scripted(script: Script, *, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Scripted]:
    server = Scripted(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


def says(
    status: str = "200 OK", body: bytes = ANSWER, *, kind: str | None = "application/json", headers: str = ""
) -> Script:
    """A script with one answer for everything."""
    lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}"
    lines += f"Content-Type: {kind}\r\n" if kind else ""

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{lines}\r\n".encode() + body)

    return script


def raw(text: bytes, *, close: bool = True) -> Script:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        if close:
            writer.close()

    return script


async def silent(seen: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


class Taker:
    """A receiver and its calls, as a peer is one: a call ends by the first of its answer and its failure."""

    def __init__(self) -> None:
        self.open: list[Pending] = []
        self.endings: list[ChannelError] = []
        self.ended_once = asyncio.Event()
        self.resumptions = asyncio.Event()

    def received(self, message: bytes, call: Outgoing | None = None) -> None:
        for one in self.open:
            if one.answers(message):
                one.future.set_result(message)
                self.open.remove(one)
                return

    def refused(self, malformed: Malformed) -> None:
        raise AssertionError("an HTTP client has no framing to refuse anything")

    def resumed(self) -> None:
        self.resumptions.set()

    def finished(self) -> None:
        raise AssertionError("an HTTP server cannot half-close the channel")

    def ended(self, why: ChannelError) -> None:
        self.endings.append(why)
        self.ended_once.set()


class Pending:
    def __init__(self, taker: Taker, id: bytes) -> None:
        self.abandon: Callable[[], None] | None = None
        self.extra: object = None
        self.left: float | None = None
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.id = id
        taker.open.append(self)
        self.taker = taker

    def awaits(self, id: object) -> bool:
        return str(id).encode() == self.id

    def answers(self, message: bytes) -> bool:
        return not self.settled and b'"id":' + self.id + b"}" in message.replace(b" ", b"")

    @property
    def settled(self) -> bool:
        return self.future.done()

    def failed(self, why: Exception) -> None:
        if not self.settled:
            self.taker.open.remove(self)
            self.future.set_exception(why)

    def hold(self) -> None:
        self.left = None

    def resume(self) -> None:
        self.left = None


def ask(channel: Channel, taker: Taker, id: int = 1, message: bytes = b"") -> Pending:
    call = Pending(taker, b"%d" % id)
    channel.send(message or CALL.replace(b'"id":1', b'"id":%d' % id), call)
    return call


@asynccontextmanager
async def dialled(url: str, options: Options | None = None) -> AsyncIterator[tuple[Channel, Taker]]:
    channel = await dial(url, options or Options(limits=CLIENT))
    taker = Taker()
    channel.open(taker)
    try:
        async with asyncio.timeout(LIMIT):
            yield channel, taker
    finally:
        channel.abort(Broken("the test is over"))
        await channel.close()
        assert len(taker.endings) == 1


async def answer_of(script: Script, options: Options | None = None, message: bytes = CALL) -> bytes:
    async with scripted(script) as server, dialled(f"http://127.0.0.1:{server.port}/rpc", options) as (channel, taker):
        return await ask(channel, taker, message=message).future


# -- what is sent ---------------------------------------------------------------------------------


async def test_a_call_is_one_post_and_its_answer() -> None:
    async with (
        scripted(says()) as server,
        dialled(f"http://127.0.0.1:{server.port}/rpc?network=main") as (channel, taker),
    ):
        assert await ask(channel, taker).future == ANSWER
        (seen,) = server.seen
        assert seen.line == "POST /rpc?network=main HTTP/1.1"
        assert seen.body == CALL
        assert seen.headers == {
            "host": f"127.0.0.1:{server.port}",
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": "dragoman",
            "content-length": str(len(CALL)),
        }
        assert not channel.duplex
        assert channel.caller.scheme == "http"
        assert channel.caller.remote == f"127.0.0.1:{server.port}"
        assert channel.caller.path == "/rpc"


@pytest.mark.parametrize(
    ("who", "auth", "sent"),
    [
        ("", ("alice", "pä:ss"), "Basic YWxpY2U6cMOkOnNz"),
        ("", "s3cr3t", "Bearer s3cr3t"),
        ("bob:p%40ss@", None, "Basic Ym9iOnBAc3M="),
        ("bob:p%40ss@", "s3cr3t", "Bearer s3cr3t"),
    ],
)
async def test_basic_and_bearer_auth_are_sent(who: str, auth: tuple[str, str] | str | None, sent: str) -> None:
    options = Options(limits=CLIENT, auth=auth)
    async with (
        scripted(says()) as server,
        dialled(f"http://{who}127.0.0.1:{server.port}/", options) as (channel, taker),
    ):
        await ask(channel, taker).future
        assert server.seen[0].headers["authorization"] == sent


async def test_headers_of_the_user_are_added_and_replace_ours() -> None:
    options = Options(limits=CLIENT, headers={"X-Key": "1", "User-Agent": "mine"}, auth="a")
    async with scripted(says(headers="Set-Cookie: a=b\r\n")) as server:
        async with dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, taker):
            await ask(channel, taker).future
            await ask(channel, taker).future
        headers = server.seen[1].headers
        assert (headers["x-key"], headers["user-agent"]) == ("1", "mine")
        assert "cookie" not in headers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(headers={"X Y": "1"}), "'X Y' is not a name of an HTTP header"),
        (Options(headers={"Content-Length": "1"}), "headers: Content-Length is for the wire to say"),
        (Options(headers={"transfer-encoding": "chunked"}), "headers: transfer-encoding is for the wire to say"),
        (Options(headers={"Connection": "close"}), "headers: Connection is for the wire to say"),
        (Options(headers={"X": "a\r\nY: b"}), "the value of x has a line break"),
        (Options(auth="hush\n"), "the value of authorization has a line break"),
        (Options(auth=("a:b", "c")), "has no colon"),
    ],
)
async def test_what_cannot_be_sent_is_refused_at_dialling(options: Options, words: str) -> None:
    with pytest.raises(LocalError, match=words) as caught:
        await dial("http://127.0.0.1:1/", options)
    assert "hush" not in str(caught.value)


async def test_only_http_is_dialled() -> None:
    with pytest.raises(LocalError, match="this wire takes http"):
        await dial("tcp://127.0.0.1:1", Options())


async def test_connections_are_kept_alive() -> None:
    async with scripted(says()) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        for _ in range(5):
            await ask(channel, taker).future
        assert {seen.connection for seen in server.seen} == {1}


async def test_messages_above_a_mebibyte_go_through() -> None:
    message = b'{"jsonrpc":"2.0","method":"m","params":["' + b"x" * (2 << 20) + b'"],"id":1}'
    async with scripted(says()) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        await ask(channel, taker, message=message).future
        assert server.seen[0].body == message


# -- what comes back ------------------------------------------------------------------------------

ERROR = b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}'
BITCOIN = b'{"result":null,"error":{"code":-32601,"message":"Method not found"},"id":1}'


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        ("200 OK", "application/json; charset=utf-8", ANSWER),
        ("200 OK", None, ANSWER),
        ("200 OK", "text/plain", b"\r\n " + ANSWER),
        ("200 OK", "application/json", b"[" + ANSWER + b"]"),
        ("400 Bad Request", "application/json", ERROR),
        ("404 Not Found", "application/json", b"[" + ERROR + b"]"),
        ("500 Internal Server Error", "application/json", BITCOIN),
        ("503 Service Unavailable", "application/json", ERROR),
        ("500 Internal Server Error", "application/json", ANSWER),
    ],
)
async def test_json_rpc_is_the_answer_whatever_the_status(status: str, kind: str | None, body: bytes) -> None:
    assert await answer_of(says(status, body, kind=kind)) == body


REFUSALS: list[tuple[Script, type[Exception], str]] = [
    (says("204 No Content", b"", kind=None), BadAnswer, "HTTP 204 No Content without a body"),
    (says("202 Accepted", b"", kind=None), BadAnswer, "HTTP 202 Accepted without a body"),
    (says("200 OK", b""), BadAnswer, "HTTP 200 OK without a body"),
    (
        says("200 OK", b"<html>\n<b>Hi\x1b[31m</b>", kind="text/html"),
        BadAnswer,
        r"HTTP 200 OK with text/html that is not JSON-RPC: <html> <b>Hi\\x1b\[31m</b>",
    ),
    (says("200 OK", b"19", kind="text/\x9b31m"), BadAnswer, r"with text/.\\x9b31m that is not JSON-RPC: 19"),
    (says("200 OK", b"19"), BadAnswer, "HTTP 200 OK with application/json that is not JSON-RPC: 19"),
    (
        says("401 Unauthorized", b"", kind=None),
        Broken,
        r"^subtract: POST http://127.0.0.1:\d+/rpc answered HTTP 401 Unauthorized$",
    ),
    (
        says("401 Unauthorized", b'{"error":"unauthorized"}'),
        Broken,
        'HTTP 401 Unauthorized: {"error":"unauthorized"}',
    ),
    (
        says("502 Bad Gateway", b"<h1>" + b"x" * 5000, kind="text/html"),
        Broken,
        r"HTTP 502 Bad Gateway: <h1>x{196}\.\.\.$",
    ),
    (says("500 Oops", b"\xff\xfe", kind="text/plain"), Broken, "HTTP 500 Oops: "),
    (
        says("307 Temporary Redirect", b"", headers="Location: http://elsewhere/\r\n"),
        Broken,
        "HTTP 307 Temporary Redirect: it redirects to http://elsewhere/, which is not followed",
    ),
    (says("200 OK", b'{"jsonrpc":"2.0","result":19,"id":7}'), BadAnswer, "the reply's id does not match the call: "),
    (says("200 OK", b'{"jsonrpc":"2.0","resu'), BadAnswer, "the reply is not a JSON-RPC answer: "),
    (says("200 OK", b'{"jsonrpc":"2.0","method":"hi","id":7}'), BadAnswer, "the reply is not a JSON-RPC answer: "),
    (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"), Broken, "the answer of 127.0.0.1:.* broke off"),
    (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), BadAnswer, "what 127.0.0.1:.* answers is not HTTP"),
    (raw(b""), Broken, "127.0.0.1:.* closed the connection without an answer"),
    (
        raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", close=False),
        BadAnswer,
        "HTTP 200 OK with text/event-stream",
    ),
]


@pytest.mark.parametrize(("script", "kind", "words"), REFUSALS)
async def test_what_is_not_an_answer_fails_the_call_immediately_and_in_words(
    script: Script, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        await answer_of(script)
    assert str(caught.value).isprintable()


async def test_a_batch_that_is_refused_is_named_as_one() -> None:
    with pytest.raises(Broken, match=r"^a batch: POST http://127.0.0.1:\d+/rpc answered HTTP 429 Too Many Requests$"):
        await answer_of(says("429 Too Many Requests", b""), message=b"[" + CALL + b"]")


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "413 Content Too Large"])
@pytest.mark.parametrize("batch", [False, True])
async def test_an_error_without_id_is_the_calls_error(status: str, batch: bool) -> None:
    body = b'{"jsonrpc":"2.0","error":{"code":-32003,"message":"Too large","data":{"allowed":1}},"id":null}'
    with pytest.raises(RpcError, match="Too large") as caught:
        await answer_of(says(status, b"[" + body + b"]" if batch else body))
    assert (caught.value.code, caught.value.remote) == (-32003, True)


async def test_a_bad_answer_harms_no_other_call() -> None:
    answers = iter([b"nonsense", ANSWER, b'{"jsonrpc":"2.0","result":1,"id":9}', ANSWER])

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await says(body=next(answers))(seen, writer)

    async with scripted(script) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        for _ in range(2):
            with pytest.raises(BadAnswer):
                await ask(channel, taker).future
            assert await ask(channel, taker).future == ANSWER


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    limits = CLIENT.but(message_size=100)
    with pytest.raises(BadAnswer, match="message_size allows 100 bytes, received 5000000000"):
        await answer_of(
            raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n{", close=False), Options(limits=limits)
        )


async def test_a_body_without_end_is_cut_off_at_the_limit() -> None:
    sent = 0

    async def endless(seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"[" * 0x10000 + b"\r\n")
            sent += 0x10000
            await writer.drain()

    options = Options(limits=CLIENT.but(message_size=200_000))
    async with scripted(endless) as server, dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, taker):
        with pytest.raises(BadAnswer, match="message_size allows 200000 bytes, received more"):
            await ask(channel, taker).future
        await server.gone.wait()
    assert sent < 64 << 20  # what the two sockets' buffers may hold, and no more


async def test_compressed_answers_are_taken_when_asked_for() -> None:
    script = says(body=gzip.compress(ANSWER), headers="Content-Encoding: gzip\r\n")
    assert await answer_of(script, Options(limits=CLIENT, headers={"Accept-Encoding": "gzip"})) == ANSWER


async def test_a_compressed_answer_may_come_in_any_number_of_pieces_that_hold_nothing() -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        packer = zlib.compressobj(wbits=31)
        pieces = [packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(2)]
        pieces += [pieces[1] or b"\x00\x00\x00\xff\xff"] * 2000  # empty blocks
        pieces += [packer.compress(ANSWER), packer.flush()]
        for piece in pieces:
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    assert await answer_of(script) == ANSWER


async def test_a_compressed_bomb_is_cut_off_too() -> None:
    script = says(body=gzip.compress(b"[" * (8 << 20)), headers="Content-Encoding: gzip\r\n")
    with pytest.raises(BadAnswer, match="message_size allows 100000 bytes, received more"):
        await answer_of(script, Options(limits=CLIENT.but(message_size=100_000)))


# -- getting there --------------------------------------------------------------------------------


async def test_a_refused_post_ends_nothing_and_the_next_one_works() -> None:
    port = free_port()
    async with dialled(f"http://127.0.0.1:{port}/") as (channel, taker):
        with pytest.raises(Broken, match=f"Cannot connect to http://127.0.0.1:{port}: connection refused$"):
            await ask(channel, taker).future
        async with scripted(says(), port=port):
            assert await ask(channel, taker).future == ANSWER
        assert not taker.endings


async def test_a_restarted_server_is_found_again() -> None:
    async with scripted(says()) as first:
        port = first.port
        channel = await dial(f"http://127.0.0.1:{port}/", Options(limits=CLIENT))
        taker = Taker()
        channel.open(taker)
        assert await ask(channel, taker).future == ANSWER
    async with scripted(says(), port=port):
        try:
            await ask(channel, taker).future
        except Broken:  # the kept connection may have died under the POST: never repeated, but the next one works
            pass
        assert await ask(channel, taker).future == ANSWER
    await channel.close()


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


async def test_https_with_a_context_of_ones_own() -> None:
    server_tls, client_tls = contexts()
    options = Options(limits=CLIENT, client_tls=client_tls)
    async with (
        scripted(says(), tls=server_tls) as server,
        dialled(f"https://127.0.0.1:{server.port}/", options) as (channel, taker),
    ):
        assert await ask(channel, taker).future == ANSWER
        assert channel.caller.tls


async def test_an_untrusted_server_fails_the_call_in_words() -> None:
    server_tls, _ = contexts()
    async with (
        scripted(says(), tls=server_tls) as server,
        dialled(f"https://127.0.0.1:{server.port}/") as (channel, taker),
    ):
        with pytest.raises(
            Broken, match=r"Cannot connect to https://127.0.0.1:[0-9]+: the certificate is not trusted: "
        ):
            await ask(channel, taker).future


async def test_a_server_without_tls_fails_the_call_in_words() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, dialled(f"https://127.0.0.1:{port}/") as (channel, taker):
        with pytest.raises(Broken, match=f"Cannot connect to https://127.0.0.1:{port}: "):
            await ask(channel, taker).future


# -- giving up ------------------------------------------------------------------------------------


async def test_abandoning_a_call_closes_its_post() -> None:
    async with scripted(silent) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        call = ask(channel, taker)
        await server.arrivals.get()
        assert call.abandon is not None
        call.abandon()
        await server.gone.wait()
        assert not call.future.done()
        taker.open.remove(call)
        server.script = says()
        assert await ask(channel, taker, 1).future == ANSWER


async def test_abandoning_before_anything_was_sent() -> None:
    async with scripted(says()) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        call = ask(channel, taker)
        assert call.abandon is not None
        call.abandon()
        taker.open.remove(call)
        assert await ask(channel, taker).future == ANSWER
        assert len(server.seen) == 1


async def test_posts_over_the_limit_wait_and_hold_the_sender_back() -> None:
    go = asyncio.Event()
    inside: asyncio.Queue[Seen] = asyncio.Queue()
    most = now = 0

    async def held(seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        inside.put_nowait(seen)
        await go.wait()
        now -= 1
        await says(body=seen.body.replace(b'"method":"subtract","params":[42,23]', b'"result":19'))(seen, writer)

    options = Options(limits=CLIENT.but(connections=2, send_queue=2 * len(CALL)))
    async with scripted(held) as server, dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, taker):
        calls = [ask(channel, taker, id) for id in range(1, 5)]
        assert channel.writable
        calls += [ask(channel, taker, id) for id in range(5, 8)]
        assert not channel.writable
        flushing = asyncio.ensure_future(channel.flush())
        abandon = calls[5].abandon
        assert abandon is not None
        abandon()
        taker.open.remove(calls.pop(5))
        await inside.get()
        await inside.get()
        assert not flushing.done()
        go.set()
        await flushing
        await taker.resumptions.wait()
        answers = await asyncio.gather(*(call.future for call in calls))
        assert len(answers) == 6
        assert channel.writable
        assert most == 2
        assert len(server.seen) == 6


async def test_no_more_than_sixteen_connections_unless_more_are_asked_for() -> None:
    most = now = 0

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        await says(body=seen.body.replace(b'"method":"subtract","params":[42,23]', b'"result":19'))(seen, writer)

    for allowed, options in ((16, Options(limits=CLIENT)), (40, Options(limits=CLIENT.but(connections=40)))):
        most = 0
        async with scripted(script) as server, dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, taker):
            await asyncio.gather(*[ask(channel, taker, id).future for id in range(100)])
            assert 1 < most <= allowed
            assert len({seen.connection for seen in server.seen}) <= allowed


async def test_time_outs_hold_while_a_message_waits_for_its_turn() -> None:
    options = Options(limits=CLIENT.but(connections=1, call_timeout=0.1))
    async with scripted(silent) as server, connect(f"http://127.0.0.1:{server.port}/", limits=options.limits) as peer:
        hangs = asyncio.ensure_future(peer.call("hang", timeout=None))
        await server.arrivals.get()
        with pytest.raises(CallTimeout):
            await peer.call("waits", timeout=0.05)
        with pytest.raises(Broken, match=r"waited 0.1 s for its turn \(limit connections\)"):
            await peer.notify("waits")
        assert len(server.seen) == 1  # what was given up is never sent
        hangs.cancel()
        await asyncio.wait([hangs])


# -- notifications --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script", [says("204 No Content", b"", kind=None), says("200 OK", b"{}"), says("202 Accepted", b"")]
)
async def test_flush_waits_until_the_server_has_taken_a_notification(script: Script) -> None:
    async with scripted(script) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, _):
        channel.send(NOTE)
        await channel.flush()
        assert [seen.body for seen in server.seen] == [NOTE]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (
            says("403 Forbidden", b"no", kind="text/plain"),
            Broken,
            r"^update: POST http://127.0.0.1:\d+ answered HTTP 403 Forbidden: no$",
        ),
        (
            says(body=b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}'),
            RpcError,
            "Invalid Request",
        ),
        (says("500 Internal Server Error", ANSWER), Broken, "HTTP 500 Internal Server Error"),
        (raw(b""), Broken, "closed the connection without an answer"),
    ],
)
async def test_flush_raises_what_became_of_a_notification(script: Script, kind: type[Exception], words: str) -> None:
    async with scripted(script) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, _):
        channel.send(NOTE)
        with pytest.raises(kind, match=words):
            await channel.flush()
        await channel.flush()  # told once
        server.script = says("204 No Content", b"", kind=None)
        channel.send(NOTE)
        await channel.flush()


async def test_a_notification_that_is_never_confirmed_is_given_up() -> None:
    options = Options(limits=CLIENT.but(call_timeout=0.05))
    async with scripted(silent) as server, dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, _):
        channel.send(NOTE)
        with pytest.raises(Broken, match=r"did not answer within 0\.05 s"):
            await channel.flush()


async def test_each_task_learns_of_its_own_notifications() -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await says("403 Forbidden" if b"bad" in seen.body else "204 No Content", b"", kind=None)(seen, writer)

    async with scripted(script) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, _):

        async def notify(message: bytes) -> None:
            channel.send(message)
            await channel.flush()

        good, bad = await asyncio.gather(notify(NOTE), notify(NOTE.replace(b"update", b"bad")), return_exceptions=True)
        assert good is None
        assert isinstance(bad, Broken)


# -- the end --------------------------------------------------------------------------------------


async def test_close_lets_posts_under_way_end() -> None:
    go = asyncio.Event()

    async def held(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await says()(seen, writer)

    async with scripted(held) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        call = ask(channel, taker)
        channel.send(NOTE)
        await server.arrivals.get()
        await server.arrivals.get()
        closing = asyncio.ensure_future(channel.close())
        await asyncio.sleep(0)
        with pytest.raises(Closed, match="closed here"):
            channel.send(NOTE)
        assert not taker.endings
        go.set()
        await closing
        assert await call.future == ANSWER
        assert [type(why) for why in taker.endings] == [Closed]
        await channel.close()
        with pytest.raises(Closed):
            await channel.flush()


async def test_close_waits_no_longer_than_the_write_timeout() -> None:
    options = Options(limits=CLIENT.but(write_timeout=0.05))
    async with scripted(silent) as server, dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, taker):
        ask(channel, taker)
        channel.send(NOTE)
        await channel.close()
        assert [type(why) for why in taker.endings] == [Closed]


async def test_abort_ends_everything_at_once() -> None:
    options = Options(limits=CLIENT.but(connections=1))
    async with scripted(silent) as server, dialled(f"http://127.0.0.1:{server.port}/", options) as (channel, taker):
        ask(channel, taker)
        channel.send(NOTE)
        flushing = asyncio.ensure_future(channel.flush())
        channel.abort(Broken("enough"))
        assert not taker.endings  # never from inside
        await taker.ended_once.wait()
        await flushing_fails(flushing)
        with pytest.raises(Broken, match="enough"):
            channel.send(CALL)
        channel.abort(Broken("again"))
        await channel.close()
        assert [str(why) for why in taker.endings] == ["enough"]


async def flushing_fails(flushing: asyncio.Future[None]) -> None:
    with pytest.raises(Broken, match="enough"):
        await flushing


async def test_abort_fails_a_notification_its_sender_waits_for() -> None:
    async with scripted(silent) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, _):

        async def notify() -> None:
            channel.send(NOTE)
            await channel.flush()

        notifying = asyncio.ensure_future(notify())
        await server.arrivals.get()
        channel.abort(Broken("enough"))
        await flushing_fails(notifying)


async def test_abort_hurries_a_close() -> None:
    async with scripted(silent) as server, dialled(f"http://127.0.0.1:{server.port}/") as (channel, taker):
        ask(channel, taker)
        await server.arrivals.get()
        closing = asyncio.ensure_future(channel.close())
        await asyncio.sleep(0)
        channel.abort(Broken("enough"))
        await closing
        assert [type(why) for why in taker.endings] == [Closed]


# -- with a real server ---------------------------------------------------------------------------


async def test_a_peer_over_http_with_a_real_server() -> None:
    api = Service("calculator", version="1", limits=SERVER.but(message_size=1000, drain_timeout=0.1))
    stopped = asyncio.Event()
    noted: list[int] = []
    headers: list[str] = []

    @api.method
    async def double(value: int, context: Context) -> int:
        headers.append(context.headers["authorization"])
        return 2 * value

    @api.method(inline=True)
    def update(value: int) -> None:
        noted.append(value)

    @api.method
    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with (
        asyncio.timeout(LIMIT),
        serve(api, urls=["http://127.0.0.1:0"]) as serving,
        connect(serving.urls[0], auth=("alice", "secret")) as peer,
    ):
        assert await asyncio.gather(*(peer.call("double", [n]) for n in range(300))) == [2 * n for n in range(300)]
        assert set(headers) == {"Basic YWxpY2U6c2VjcmV0"}
        with pytest.raises(MethodNotFound):
            await peer.call("nothing")
        await peer.notify("update", [7])
        assert noted == [7]
        async with peer.batch() as batch:
            first, wrong = batch.call("double", [21]), batch.call("nothing")
            batch.notify("update", [8])
        assert first.result() == 42
        with pytest.raises(MethodNotFound):
            wrong.result()
        with pytest.raises(RpcError, match="message_size allows 1000 bytes"):
            await asyncio.gather(peer.call("double", ["x" * 2000]), peer.call("double", [1]))
        with pytest.raises(CallTimeout):
            await peer.call("forever", timeout=0.05)
        await stopped.wait()
        assert await peer.call("double", [4]) == 8
    assert peer.closed


@pytest.mark.parametrize("answered", [True, False])
async def test_a_batch_ends_well_though_one_of_its_results_is_not_awaited_any_more(answered: bool) -> None:
    given_up = asyncio.Event()

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await given_up.wait()
        if not answered:
            await asyncio.Event().wait()
        await says(body=b'[{"jsonrpc":"2.0","result":1,"id":1},{"jsonrpc":"2.0","result":2,"id":2}]')(seen, writer)

    async def value(result: BatchResult[object]) -> object:
        return await result

    async with asyncio.timeout(LIMIT), scripted(script) as server, connect(f"http://127.0.0.1:{server.port}") as peer:

        async def gives_up(waiting: asyncio.Task[object]) -> None:
            await server.arrivals.get()
            waiting.cancel()
            await asyncio.wait([waiting])
            given_up.set()

        async with peer.batch(timeout=LIMIT if answered else 0.5) as batch:
            first, second = batch.call("first"), batch.call("second")
            giving_up = asyncio.create_task(gives_up(asyncio.create_task(value(first))))
        await giving_up
        assert first.cancelled() or not answered
        if answered:
            assert second.result() == 2
        else:
            assert isinstance(second.exception(), CallTimeout)
            await server.gone.wait()  # what is late is not waited for: its connection is closed


async def test_a_busy_server_says_so_with_503() -> None:
    api = Service("busy", version="1", limits=SERVER.but(calls=1, drain_timeout=0.1))
    started = asyncio.Event()
    go = asyncio.Event()

    @api.method
    async def wait() -> str:
        started.set()
        await go.wait()
        return "done"

    async with (
        asyncio.timeout(LIMIT),
        serve(api, urls=["http://127.0.0.1:0"]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        waiting = asyncio.ensure_future(peer.call("wait"))
        await started.wait()
        with pytest.raises(RpcError, match="Busy") as caught:
            await peer.call("wait")
        assert caught.value.code == -32000
        go.set()
        assert await waiting == "done"
