"""NATS when things break, as only it does; credentials and TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import nats as library
import pytest
import trustme

from dragoman import Context, Service, connect, serve
from dragoman.channel import Broken
from dragoman.engines.nats import connection
from dragoman.jsonrpc.errors import CallTimeout, LocalError
from tests.chaos.proxy import proxy
from tests.engines.brokers import Engine, engine, name
from tests.engines.wires import NATS, PATIENCE, STREAM, address, calculator, plus, until, until_answered
from tests.engines.worker import service


async def test_a_call_in_flight_at_most_once_fails_when_the_server_is_lost(nats: Engine) -> None:
    nats.control()
    url = NATS.url(nats)
    began, gate = asyncio.Event(), asyncio.Event()
    api = Service("slow")

    @api.method
    async def work() -> int:
        began.set()
        await gate.wait()
        return 1

    async with serve(api, urls=[url]), connect(url, timeout=PATIENCE) as peer:
        call = asyncio.create_task(peer.call("work"))
        await began.wait()
        await nats.kill()
        with pytest.raises(Broken, match=r"NATS at .* was lost during the call"):
            await call
        later = [asyncio.create_task(peer.call("work")) for _ in range(3)]
        with pytest.raises(CallTimeout):
            await peer.call("work", timeout=0.1)
        gate.set()
        await nats.start()
        assert await asyncio.gather(*later) == [1, 1, 1]


@pytest.mark.parametrize("others", [0, 1])
async def test_an_answer_that_went_into_a_dead_connection_comes_again(
    nats: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    """The server believes in the caller's connection, so it says that the answer was taken. The caller notices the
    silence and asks again: the worker has kept its answer, another one runs the request with a mark."""
    url, ran, gate = STREAM.url(nats), list[int](), asyncio.Event()
    api = Service("slow")

    @api.method
    async def work(context: Context) -> int:
        ran.append(context.redelivered)
        await gate.wait()
        return 1

    async with AsyncExitStack() as stack:
        for _ in range(1 + others):
            await stack.enter_async_context(serve(api, urls=[plus(url, "prefetch=1")]))
        raw = await stack.enter_async_context(await library.connect(nats.url))
        wire = await stack.enter_async_context(proxy(nats))
        monkeypatch.setattr(connection, "PATIENCE", 0.5)
        peer = await stack.enter_async_context(connect(url.replace(nats.url, wire.url), timeout=PATIENCE))
        call = asyncio.create_task(peer.call("work"))
        await until(lambda: bool(ran))
        wire.freeze()
        gate.set()
        stream = url.partition("stream=")[2]
        async with asyncio.timeout(PATIENCE):
            while (await raw.jetstream().stream_info(stream)).state.messages:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await until(lambda: "NATS is lost" in caplog.text)
        wire.cut()
        wire.thaw()
        assert await call == 1
        assert ran == [0, 1][: len(ran)]
        assert others or len(ran) == 1


async def test_a_deleted_stream_comes_back(nats: Engine) -> None:
    url = STREAM.url(nats)
    raw = await library.connect(nats.url)
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        await raw.jetstream().delete_stream(url.partition("stream=")[2])
        await until_answered(peer)
    await raw.close()


async def test_a_worker_that_gets_no_requests_says_so_once(nats: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Its subject belongs to another stream already."""
    url = STREAM.url(nats)
    stream = url.partition("stream=")[2]
    raw = await library.connect(nats.url)
    async with serve(calculator(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        await raw.jetstream().delete_stream(stream)
        await raw.jetstream().add_stream(name=f"{stream}-other", subjects=[address(url)])
        await until(lambda: sum("no requests come" in record.message for record in caplog.records) > 0)
        caplog.set_level(logging.DEBUG)
        await until(lambda: sum("no requests come" in record.message for record in caplog.records) > 2)
        await raw.jetstream().delete_stream(f"{stream}-other")
        await until_answered(peer)
    await raw.close()
    told = [record for record in caplog.records if "no requests come" in record.message]
    assert [record.levelno for record in told if record.levelno > logging.DEBUG] == [logging.WARNING]
    assert f"belongs to the stream {stream}-other" in told[0].message


def _guarded(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
    return [program, "-a", "127.0.0.1", "-p", str(port), "--user", "me", "--pass", "secret-word"], {}, ""


async def test_credentials(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the URL, or of the environment; a wrong one is an error in words that do not show it."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.delenv("DRAGOMAN_TEST_NATS", raising=False)
    with engine("nats", "nats-server", _guarded, "/usr/sbin/nats-server") as guarded:
        host, port = guarded.address
        good = f"nats://me:secret-word@{host}:{port}/{name()}"
        async with serve(service(), urls=[good]), connect(good, timeout=PATIENCE) as peer:
            assert await peer.call("add", [1, 2]) == 3
            plain = good.replace("me:secret-word@", "")
            with pytest.raises(Broken, match="Authorization Violation"):
                async with connect(plain):
                    pass
            monkeypatch.setenv("DRAGOMAN_NATS_USER", "me")
            monkeypatch.setenv("DRAGOMAN_NATS_PASSWORD", "secret-word")
            async with connect(plain, timeout=PATIENCE) as other:
                assert await other.call("add", [1, 2]) == 3
        with pytest.raises(Broken) as wrong:
            async with connect(good.replace("secret-word", "other-secret")):
                pass
        with pytest.raises(Broken, match="Authorization Violation"):
            async with connect(f"{plain}?token=other-secret"):
                pass
        with pytest.raises(Broken, match="no TLS") as bare:
            async with connect(good.replace("nats://", "natss://")):
                pass
        with pytest.raises(LocalError, match="creds"):
            async with connect(f"{plain}?creds=/nowhere"):
                pass
        with pytest.raises(LocalError, match="JetStream"):
            async with serve(service(), urls=[f"{good}?stream=work"]):
                pass
    assert "other-secret" not in str(wrong.value) + str(bare.value)
    assert "secret" not in caplog.text
    assert json.dumps("secret-word") not in caplog.text


async def test_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """natss://: the server's certificate is checked, by the system's authorities or by the context that was given."""
    monkeypatch.delenv("DRAGOMAN_TEST_NATS", raising=False)
    authority = trustme.CA()
    mine = authority.issue_cert("127.0.0.1")
    mine.private_key_pem.write_to_path(tmp_path / "key")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    context = ssl.create_default_context()
    authority.configure_trust(context)

    def encrypted(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
        files = ["--tlscert", str(tmp_path / "cert"), "--tlskey", str(tmp_path / "key")]
        return [program, "-a", "127.0.0.1", "-p", str(port), "--tls", *files, "--user", "me", "--pass", "pass"], {}, ""

    with engine("nats", "nats-server", encrypted, "/usr/sbin/nats-server") as one:
        host, port = one.address
        url = f"natss://me:pass@{host}:{port}/{name()}"
        async with (
            serve(service(), urls=[url], client_tls=context),
            connect(url, tls=context, timeout=PATIENCE) as peer,
        ):
            assert await peer.call("add", [1, 2]) == 3
        with pytest.raises(Broken, match="certificate is not trusted"):
            async with connect(url):
                pass
