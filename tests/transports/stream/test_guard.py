"""The guard on the listeners of TCP, TLS and Unix sockets: one table of wires, on both event loops."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from dragoman import Context, Service, connect, serve
from dragoman.channel import Admitted, ChannelError, Denied, Guard, Handshake, Identity, Options
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.jsonrpc.limits import Limits
from dragoman.schemes import listen
from dragoman.serving import Serving
from tests.loops import RUNNERS

from ..ends import PATIENCE, Echo, until

WHO = b'{"jsonrpc":"2.0","method":"who","id":1}\n'


class Wire:
    """One wire of the table: where it listens, and what each end shows."""

    def __init__(self, kind: str, folder: Path, authority: trustme.CA) -> None:
        self.kind = kind
        self.url = f"unix:{folder}/s" if kind == "unix" else f"{kind}://127.0.0.1:0"
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self.server)
        authority.configure_trust(self.server)
        self.server.verify_mode = ssl.CERT_OPTIONAL
        self.nameless = ssl.create_default_context()
        authority.configure_trust(self.nameless)
        self.named = ssl.create_default_context()
        authority.configure_trust(self.named)
        authority.issue_cert("ada.example", organization_name="Ada").configure_cert(self.named)

    @asynccontextmanager
    async def serving(self, guard: Guard, **limits: Any) -> AsyncIterator[Serving]:
        tls = self.server if self.kind == "tls" else None
        async with serve(telling(), urls=self.url, guard=guard, limits=Limits(**limits), tls=tls) as serving:
            yield serving

    def connect(self, serving: Serving) -> Any:
        return connect(serving.urls[0], tls=self.named if self.kind == "tls" else None)

    async def raw(self, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.kind == "unix":
            return await asyncio.open_unix_connection(url.removeprefix("unix:"))
        tls = self.named if self.kind == "tls" else None
        return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), ssl=tls)

    def blocking(self, url: str) -> socket.socket:
        """A far end whose `sendall` returns when the system has taken all, which is little."""
        far = socket.socket(socket.AF_UNIX if self.kind == "unix" else socket.AF_INET)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        far.settimeout(PATIENCE)
        far.connect(url.removeprefix("unix:") if self.kind == "unix" else ("127.0.0.1", int(url.rpartition(":")[2])))
        return self.named.wrap_socket(far, server_hostname="127.0.0.1") if self.kind == "tls" else far


def telling() -> Service:
    api = Service("telling")

    @api.method
    async def who(context: Context) -> str:
        identity = context.caller.identity
        return "anonymous" if identity is None else identity.subject

    @api.method
    async def waits() -> None:
        await asyncio.Event().wait()

    return api


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["tcp", "tls", "unix"])
def wire(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> Wire:
    return Wire(request.param, tmp_path, authority)


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(PATIENCE):
                await main

        request.param(within())

    return bounded


async def ada(handshake: Handshake) -> Admitted | Denied:
    return Admitted(identity=Identity(subject="ada"))


async def no_one(handshake: Handshake) -> Admitted | Denied:
    return Denied(reason="Not you\nnor you", status=403)


def ending(got: bytes) -> dict[str, Any]:
    """The one error that a denied caller gets."""
    [line] = got.splitlines()
    message = json.loads(line)
    assert message["id"] is None
    error: dict[str, Any] = message["error"]
    return error


# -- the table ------------------------------------------------------------------------------------


def test_admitted(wire: Wire, run: Callable[[Awaitable[None]], None]) -> None:
    seen: list[Handshake] = []

    async def guard(handshake: Handshake) -> Admitted | Denied:
        seen.append(handshake)
        return await ada(handshake)

    async def main() -> None:
        async with wire.serving(guard) as serving, wire.connect(serving) as peer:
            assert [await peer.call("who") for _ in range(3)] == ["ada"] * 3
            assert [one.url for one in seen] == serving.urls

    run(main())
    [handshake] = seen
    assert (handshake.scheme, handshake.method, handshake.headers) == (wire.kind, "", ())
    if wire.kind == "unix":
        assert handshake.credentials is not None
        process = handshake.credentials
        assert (process.pid, process.uid, process.gid) == (os.getpid(), os.getuid(), os.getgid())
        assert handshake.remote == "a program on this machine"
    else:
        assert handshake.credentials is None
        assert handshake.remote.startswith("127.0.0.1:")
    if wire.kind == "tls":
        assert handshake.certificate is not None
        assert handshake.certificate["subjectAltName"] == (("DNS", "ada.example"),)
        assert (("organizationName", "Ada"),) in handshake.certificate["subject"]
    else:
        assert handshake.certificate is None


def test_a_certificate_that_is_not_shown_is_none(
    tmp_path: Path, authority: trustme.CA, run: Callable[[Awaitable[None]], None]
) -> None:
    wire = Wire("tls", tmp_path, authority)

    async def guard(handshake: Handshake) -> Admitted | Denied:
        return await (no_one if handshake.certificate is None else ada)(handshake)

    async def main() -> None:
        async with wire.serving(guard) as serving:
            async with wire.connect(serving) as peer:
                assert await peer.call("who") == "ada"
            async with connect(serving.urls[0], tls=wire.nameless) as peer:
                with pytest.raises(RpcError, match="Not you"):
                    await peer.call("who")

    run(main())


def test_denied(wire: Wire, run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.wire")

    async def main() -> None:
        async with wire.serving(no_one) as serving:
            async with wire.connect(serving) as peer:
                with pytest.raises(RpcError, match="Not you") as denied:
                    await peer.call("who")
                assert (denied.value.code, denied.value.data) == (-32600, {"status": 403})
            reader, writer = await wire.raw(serving.urls[0])
            writer.write(WHO * 1000)  # whatever is unread must not reset the wire before the answer is there
            assert ending(await reader.read())["message"] == "Not you\nnor you"
            writer.close()

    run(main())
    told = [one for one in caplog.messages if "turned away" in one]
    assert len(told) == 2
    assert all("Not you\\nnor you" in one and "\n" not in one for one in told)


def test_a_guard_that_raises_returns_nonsense_or_is_slow(
    wire: Wire, run: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def raises(handshake: Handshake) -> Admitted | Denied:
        raise RuntimeError("secret")

    async def says_yes(handshake: Handshake) -> Any:
        return True

    async def is_cancelled(handshake: Handshake) -> Admitted | Denied:
        future: asyncio.Future[Admitted] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    async def hangs(handshake: Handshake) -> Admitted | Denied:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        for guard, status in ((raises, 500), (says_yes, 500), (is_cancelled, 500), (hangs, 503)):
            async with wire.serving(guard, guard_timeout=0.1) as serving:
                reader, writer = await wire.raw(serving.urls[0])
                writer.write(WHO)
                error = ending(await reader.read())
                assert (error["code"], error["data"]) == (-32603, {"status": status})
                assert "secret" not in str(error)
                writer.close()

    run(main())
    assert len([one for one in caplog.records if "reference" in one.message and one.exc_info]) == 3
    assert len([one for one in caplog.messages if "did not decide within 0.1 s" in one]) == 1


def test_nothing_is_read_before_the_guard_has_decided(wire: Wire, run: Callable[[Awaitable[None]], None]) -> None:
    async def main() -> None:
        go, asked = asyncio.Event(), asyncio.Event()
        decision: list[Admitted | Denied] = [Admitted(), Denied(reason="no")]

        async def guard(handshake: Handshake) -> Admitted | Denied:
            asked.set()
            await go.wait()
            return decision.pop(0)

        echo = Echo()
        tls = wire.server if wire.kind == "tls" else None
        listener = await listen(wire.url, {"": echo}, Options(guard=guard, server_tls=tls))
        size, lines = 1024, 4 * 1024
        far = await asyncio.to_thread(wire.blocking, listener.url)
        sent = asyncio.ensure_future(asyncio.to_thread(far.sendall, (b"x" * (size - 1) + b"\n") * lines))
        await asked.wait()
        [server] = listener._channels  # type: ignore[attr-defined]
        assert not (await asyncio.wait([sent], timeout=0.3))[0]
        assert sum(map(len, server._early or ())) <= 512 * 1024
        assert not echo.ends
        go.set()
        await sent
        left = size * lines
        while left:
            left -= len(await asyncio.to_thread(far.recv, 256 * 1024))
        far.close()
        reader, writer = await wire.raw(listener.url)
        writer.write(b"y\n")
        assert ending(await reader.read())["message"] == "no"
        writer.close()
        assert len(echo.ends) == 1
        await listener.close()
        await echo.drain(1)
        await listener.closed()

    run(main())


def test_an_admission_expires(wire: Wire, run: Callable[[Awaitable[None]], None]) -> None:
    async def guard(handshake: Handshake) -> Admitted | Denied:
        return Admitted(identity=Identity(subject="ada"), expires=time.time() + 0.4)

    async def late(handshake: Handshake) -> Admitted | Denied:
        return Admitted(expires=time.time() - 1)

    async def main() -> None:
        async with wire.serving(guard) as serving:
            reader, writer = await wire.raw(serving.urls[0])
            error = ending(await reader.read())
            assert (error["message"], error["data"]) == ("The admission has expired", {"status": 401})
            writer.close()
        async with wire.serving(late) as serving, wire.connect(serving) as peer:
            with pytest.raises(RpcError, match="The admission has expired"):
                await peer.call("who")

    run(main())


def test_many_at_once(wire: Wire, run: Callable[[Awaitable[None]], None]) -> None:
    async def main() -> None:
        go = asyncio.Event()
        asked = 0

        async def guard(handshake: Handshake) -> Admitted | Denied:
            nonlocal asked
            asked += 1
            await go.wait()
            return await ada(handshake)

        async with wire.serving(guard, channels=20) as serving:

            async def one() -> str:
                async with wire.connect(serving) as peer:
                    name: str = await peer.call("who")
                    return name

            calls = [asyncio.ensure_future(one()) for _ in range(30)]
            await until(lambda: asked == 20 and sum(call.done() for call in calls) == 10)
            assert all(isinstance(call.exception(), ChannelError) for call in calls if call.done())
            go.set()
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert told.count("ada") == asked == 20
            assert await one() == "ada"  # their places are free again

    run(main())


def test_the_guards_work_ends_with_the_channel_on_either_side(
    wire: Wire, run: Callable[[Awaitable[None]], None]
) -> None:
    async def main() -> None:
        asked, cancelled = asyncio.Event(), asyncio.Event()

        async def guard(handshake: Handshake) -> Admitted | Denied:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

        async with wire.serving(guard) as serving:
            reader, writer = await wire.raw(serving.urls[0])
            writer.write(WHO)
            await asked.wait()
        await cancelled.wait()  # the listener was closed
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()

    run(main())


# -- where none stands ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("udp://127.0.0.1:0", "any sender can forge"),
        ("memory:guarded", "a caller in this process"),
        ("stdio:", "the process that started this one"),
    ],
)
async def test_a_guard_is_refused_where_none_stands(url: str, why: str) -> None:
    with pytest.raises(LocalError, match=f"guard= cannot be used here: .*{why}"):
        async with serve(telling(), urls=url, guard=ada):
            pass
