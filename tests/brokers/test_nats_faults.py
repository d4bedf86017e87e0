"""NATS when things break: a server that restarts, dies, hangs; workers that are killed under load."""

from __future__ import annotations

import asyncio
import collections
import json
import logging
import os
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trustme

from dragoman import Context, Service, connect, serve
from dragoman.channel import Broken
from dragoman.jsonrpc.errors import CallTimeout, LocalError

from .engines import Engine, engine, name
from .test_nats import BOTH, place
from .worker import Done, service, worker

PATIENCE = 30.0
RESTARTS = int(os.environ.get("DRAGOMAN_RESTARTS", "5"))
KILLS = int(os.environ.get("DRAGOMAN_KILLS", "6"))


@BOTH
async def test_restarts_under_load(nats: Engine, stream: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Every call ends: at most once in an answer or a named error, at least once in an answer."""
    nats.control()
    url = place(nats, stream, "deliveries=50" if stream else "")
    ends: collections.Counter[str] = collections.Counter()
    runs: collections.Counter[str] = collections.Counter()
    unmarked: collections.Counter[str] = collections.Counter()
    answered = asyncio.Semaphore(0)
    back: list[float] = []
    over = False
    loop = asyncio.get_running_loop()
    api = Service("counter")

    @api.method
    async def count(what: str, context: Context) -> str:
        runs[what] += 1
        unmarked[what] += not context.redelivered
        await asyncio.sleep(0.005)
        return what

    async with serve(api, urls=url), serve(api, urls=url), connect(url, timeout=PATIENCE) as peer:

        async def load(who: int) -> None:
            n = 0
            while not over:
                n += 1
                try:
                    assert await peer.call("count", [f"{who}-{n}"]) == f"{who}-{n}"
                    ends["answered"] += 1
                    answered.release()
                except (Broken, CallTimeout) as fault:
                    ends[type(fault).__name__] += 1

        async def went_on() -> None:
            while not answered.locked():
                await answered.acquire()
            for _ in range(30):
                await answered.acquire()

        callers = [asyncio.ensure_future(load(who)) for who in range(16)]
        for turn in range(RESTARTS):
            await went_on()
            await nats.restart(hard=turn % 2 == 1)
            since = loop.time()
            async with asyncio.timeout(PATIENCE):
                await went_on()
            back.append(loop.time() - since)
        over = True
        async with asyncio.timeout(PATIENCE + 5):
            await asyncio.gather(*callers)
    twice = sum(times > 1 for times in runs.values())
    blind = sum(times > 1 for times in unmarked.values())
    with capsys.disabled():
        print(
            f"\nnats {'stream' if stream else 'core'}, {RESTARTS} restarts: {dict(ends)}; {twice} of {len(runs)} run "
            f"twice, {blind} of these unmarked; at work again after {max(back):.1f} s at most"
        )
    if stream:
        assert set(ends) == {"answered"}
        assert blind == 0
    else:
        assert set(ends) <= {"answered", "Broken"}
        assert twice == 0


async def test_killed_workers_under_load(nats: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    url = place(nats, True, "deliveries=50&wait=1")
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(url)) for _ in range(2)]
        peer = await stack.enter_async_context(connect(url, timeout=PATIENCE))
        ended: list[Done] = []
        some = asyncio.Semaphore(0)
        calls, over = 0, False

        async def caller() -> None:
            nonlocal calls
            while not over:
                calls += 1
                ended.append(await peer.call("work", [0.02], result=Done))
                some.release()

        callers = [asyncio.create_task(caller()) for _ in range(20)]
        for n in range(KILLS):
            while not some.locked():
                await some.acquire()
            for _ in range(30):
                await some.acquire()
            await workers[n % 2].kill()
            workers[n % 2] = await stack.enter_async_context(worker(url))
        over = True
        await asyncio.gather(*callers)
    marked = sum(done.redelivered > 0 for done in ended)
    with capsys.disabled():
        print(f"\nnats stream, {KILLS} workers killed: {calls} calls, {len(ended)} answered, {marked} of them marked")
    assert len(ended) == calls
    assert marked > 0


async def test_a_call_in_flight_at_most_once_fails_when_the_server_is_lost(nats: Engine) -> None:
    nats.control()
    url = place(nats, False)
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


async def test_a_call_in_a_stream_outlives_a_restart(nats: Engine) -> None:
    nats.control()
    url = place(nats, True)
    began, gate = asyncio.Event(), asyncio.Event()
    runs = 0
    api = Service("slow")

    @api.method
    async def work() -> int:
        nonlocal runs
        runs += 1
        began.set()
        await gate.wait()
        return runs

    async with serve(api, urls=[url]), connect(url, timeout=PATIENCE) as peer:
        call = asyncio.create_task(peer.call("work"))
        await began.wait()
        await nats.kill()
        later = asyncio.create_task(peer.call("work"))
        gate.set()
        await asyncio.sleep(0)
        await nats.start()
        assert await call == 1
        assert await later == 2
    assert runs == 2


@BOTH
async def test_a_server_that_hangs_is_noticed(nats: Engine, stream: bool) -> None:
    """Half-open: the sockets are there, nobody answers. Calls end in their deadline or when that is noticed."""
    nats.control()
    url = place(nats, stream)
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        nats.freeze()
        try:
            with pytest.raises(CallTimeout):
                await peer.call("add", [1, 2], timeout=0.5)
            waiting = asyncio.create_task(peer.call("add", [2, 2]))
            if not stream:
                with pytest.raises(Broken, match="lost"):
                    await waiting
            else:
                await asyncio.wait([waiting], timeout=8)
                assert not waiting.done()
        finally:
            nats.thaw()
        if stream:
            assert await waiting == 4
        assert await peer.call("add", [1, 2]) == 3


@BOTH
async def test_closing_while_the_server_is_away(nats: Engine, stream: bool) -> None:
    nats.control()
    url = place(nats, stream)
    try:
        async with asyncio.timeout(PATIENCE):
            async with serve(service(), urls=[url]), connect(url) as peer:
                assert await peer.call("add", [1, 2]) == 3
                await nats.kill()
    finally:
        await nats.start()


async def test_a_deleted_stream_comes_back(nats: Engine) -> None:
    import nats as library

    url = place(nats, True)
    raw = await library.connect(nats.url)
    async with serve(service(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("add", [1, 2]) == 3
        await raw.jetstream().delete_stream(url.partition("stream=")[2])
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    assert await peer.call("add", [1, 2]) == 3
                    break
                except ConnectionError:  # Unroutable, until the worker has made its stream again
                    await asyncio.sleep(0.05)
    await raw.close()


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
        async with serve(service(), urls=[url], tls=context), connect(url, tls=context, timeout=PATIENCE) as peer:
            assert await peer.call("add", [1, 2]) == 3
        with pytest.raises(Broken, match="CERTIFICATE_VERIFY_FAILED"):
            async with connect(url):
                pass
