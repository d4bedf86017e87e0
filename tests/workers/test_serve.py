"""`dragoman serve --workers N`: which workers serve, which are replaced, how it reloads, drains and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import stat
from collections import Counter
from pathlib import Path

import pytest
import trustme

from dragoman import ChannelError, RpcError, connect
from dragoman.channel import Ended
from dragoman.rpc.peer import Peer

from .conftest import PATIENCE, Starter, alive, gone, one_for_each


async def test_every_wire_is_shared(starter: Starter, peers: list[Peer]) -> None:
    """One port of each, the real one said once, and workers that all get callers."""
    urls = ["http://127.0.0.1:0/api", "ws://127.0.0.1:0", "tcp://localhost:0", "unix:calc.sock", "udp://127.0.0.1:0"]
    run = await starter.serve(*urls, workers=3)
    assert len(run.urls) == 5
    assert not any(":0" in url.replace("127.0.0.1:0", ":0") and url.endswith(":0") for url in run.urls)
    assert sum('"urls"' in line for line in run.out.all) == 1
    assert stat.S_IMODE(os.stat(starter.folder / "calc.sock").st_mode) == 0o600
    answered: Counter[str] = Counter()
    for url in run.urls:
        url = url.replace("unix:", f"unix:{starter.folder}/") if url.startswith("unix:") else url
        found: Counter[int] = Counter()
        for _ in range(30):
            async with connect(url) as peer:
                found[await peer.call("pid", result=int)] += 1
                answered[url.partition(":")[0]] += 1
        assert set(found) <= set(run.pids.values())
    assert dict(answered) == {"http": 30, "ws": 30, "tcp": 30, "unix": 30, "udp": 30}
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0
    assert not (starter.folder / "calc.sock").exists()
    print(f"answered: {dict(answered)}")


async def test_callers_that_stay_are_spread(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0")
    found: Counter[int] = Counter()
    peers += await asyncio.gather(*(connect(run.urls[0]) for _ in range(40)))  # in one burst
    for peer in peers:
        found[await peer.call("pid", result=int)] += 1
    assert set(found) == set(run.pids.values())
    print(f"{len(peers)} channels: {dict(found)}")


async def test_connections_do_not_wait_for_a_worker_that_is_blocked(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0")
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    call = asyncio.create_task(found[run.pids[1]].call("block", timeout=None))
    await run.out.until("blocking")
    opened = await asyncio.gather(*(connect(run.urls[0]) for _ in range(100)))
    peers += opened
    answered = Counter([await peer.call("pid", result=int) for peer in opened])
    assert answered == {run.pids[2]: 100}
    call.cancel()


async def test_tls_is_shared(starter: Starter) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(starter.folder / "own.pem"))
    run = await starter.serve("https://localhost:0", "tls://localhost:0", "--tls-cert", "own.pem")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    answered = 0
    for url in run.urls:
        for _ in range(10):
            async with connect(url, tls=trust) as peer:
                assert await peer.call("pid", result=int) in run.pids.values()
                answered += 1
    assert answered == 20


async def test_a_killed_worker_is_replaced_and_the_others_go_on(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=3)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    staying = run.pids[1]
    gate = starter.folder / "gate"
    calls = [asyncio.create_task(found[staying].call("hold", [str(gate)], timeout=None)) for _ in range(5)]
    for _ in calls:
        await run.out.until("holding")
    lost = 0
    for _ in range(6):
        victim = run.pids[2]
        channel = (await one_for_each(run.urls[0], list(run.pids.values()), peers))[victim]
        call = asyncio.create_task(channel.call("hold", ["never"], timeout=None))
        await run.out.until("holding")
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(ChannelError):
            await call
        lost += 1
        await run.err.until(rf"worker 2 \(pid {victim}\) was ended by SIGKILL; another starts")
        await run.ready(1)
        assert run.pids[2] != victim
    gate.touch()
    assert await asyncio.gather(*calls) == [staying] * 5
    assert lost == 6
    assert run.pids[1] == staying
    print(f"killed {lost} workers; 5 calls on another were answered")


async def test_pauses_grow_and_the_word_says_why(starter: Starter) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=1)
    pauses = []
    for status in (0, 3, 7):
        async with connect(run.urls[0]) as peer:
            with pytest.raises(ChannelError):
                await peer.call("leave", [status])
        match = await run.err.until(rf"worker 1 \(pid \d+\) ended with exit status {status}; another starts in (\S+) s")
        pauses.append(float(match[1]))
        await run.ready(1)
    for pause, longest in zip(pauses, (0.1, 0.2, 0.4), strict=True):  # half of it at least: see `backoff`
        assert longest / 2 <= pause <= longest


async def test_a_wrong_target_is_said_once(starter: Starter) -> None:
    starter.file.write_text("def broken(:\n")
    run = await starter.serve("tcp://127.0.0.1:0", workers=4, ready=False)
    assert await run.ended() == 2
    said = [line for line in (*run.out.all, *run.err.all) if "could not be imported" in line]
    assert len(said) == 1


async def test_it_gives_up_when_no_worker_comes_to_serve(starter: Starter) -> None:
    starter.file.write_text("import os\nos._exit(9)\n")
    run = await starter.serve("tcp://127.0.0.1:0", workers=2, ready=False)
    assert await run.ended() == 1
    failed = [line for line in run.err.all if "ended with exit status 9 before it listened" in line]
    assert len(failed) == 5
    assert failed[-1].endswith("giving up after 5 attempts")


async def test_a_rolling_reload_loses_no_caller(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("http://127.0.0.1:0", workers=2)
    first = set(run.pids.values())
    kept: Counter[int] = Counter()
    stop = asyncio.Event()

    async def call(times: int) -> None:
        while not stop.is_set():
            async with connect(run.urls[0]) as peer:
                for _ in range(times):
                    kept[await peer.call("version", result=int)] += 1

    callers = [asyncio.create_task(call(times)) for times in (1, 1, 100, 100)]
    starter.file.write_text(starter.file.read_text().replace("VERSION = 1", "VERSION = 22"))
    rounds = 3
    for _ in range(rounds):
        run.signal(signal.SIGHUP)
        before = dict(run.pids)
        await run.ready(2)
        for pid in before.values():
            await gone(pid)
        assert not set(before.values()) & set(run.pids.values())
    stop.set()
    await asyncio.gather(*callers)  # not one was refused or cut off
    assert set(kept) == {1, 22} or set(kept) == {22}
    assert not first & set(run.pids.values())
    assert await version(run.urls[0]) == 22
    print(f"{rounds} reloads under {sum(kept.values())} calls: {dict(kept)}")


async def refusal(peer: Peer) -> int | None:
    """The code that a call is refused with; None when it is answered."""
    try:
        await peer.call("pid")
    except RpcError as error:
        return int(error.code)
    return None


async def whose(url: str) -> int | None:
    """Which worker takes a new caller; None while it refuses, or closes what it had accepted, since it drains."""
    async with connect(url) as peer:
        try:
            return await peer.call("pid", result=int)
        except (RpcError, Ended):
            return None


async def version(url: str) -> int:
    """The version that a worker serves."""
    async with connect(url) as peer:
        return await peer.call("version", result=int)


async def test_the_old_worker_drains_while_the_new_one_serves(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=1)
    old = run.pids[1]
    peer = (await one_for_each(run.urls[0], [old], peers))[old]
    gate = starter.folder / "gate"
    call = asyncio.create_task(peer.call("hold", [str(gate)], timeout=None))
    await run.out.until("holding")
    run.signal(signal.SIGHUP)
    (new,) = await run.ready(1)
    while await whose(run.urls[0]) != new:  # the old one may take callers until it has heard
        pass
    assert alive(old)
    gate.touch()
    assert await call == old
    await gone(old)


async def test_a_reload_that_fails_leaves_the_old_ones(starter: Starter) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=2)
    good = starter.file.read_text()
    starter.file.write_text("raise RuntimeError('not today')\n")
    for _ in range(2):
        run.signal(signal.SIGHUP)
        await run.err.until(
            r"the new worker 1 \(pid \d+\) ended with exit status 2 before it listened; the old ones go on"
        )
    assert await version(run.urls[0]) == 1
    assert all(alive(pid) for pid in run.pids.values())
    starter.file.write_text(good.replace("VERSION = 1", "VERSION = 333"))
    before = list(run.pids.values())
    run.signal(signal.SIGHUP)
    await run.ready(2)
    for pid in before:
        await gone(pid)
    assert await version(run.urls[0]) == 333
    assert not any("the new worker 2" in line for line in run.err.all)  # each stopped at the first that failed


async def test_reload_on_change(starter: Starter) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", "--reload", workers=2)
    starter.file.write_text(starter.file.read_text().replace("VERSION = 1", "VERSION = 22"))
    await run.err.until("changed: counted.py; starting again")
    before = list(run.pids.values())
    await run.ready(2)
    for pid in before:
        await gone(pid)
    assert await version(run.urls[0]) == 22
    starter.file.write_text("def broken(:\n")
    await run.err.until("the old ones go on")
    assert await version(run.urls[0]) == 22
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0


async def test_reload_waits_where_no_worker_can_start(starter: Starter) -> None:
    good = starter.file.read_text()
    starter.file.write_text("def broken(:\n")
    run = await starter.serve("tcp://127.0.0.1:0", "--reload", workers=2, ready=False)
    await run.err.until("waiting for a change")
    starter.file.write_text(good)
    await run.ready(2)
    run.signal(signal.SIGINT)
    assert await run.ended() == 0


@pytest.mark.parametrize("loop", [(), ("--no-uvloop",)])
async def test_sigterm_drains_every_worker(starter: Starter, peers: list[Peer], loop: tuple[str, ...]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", *loop, workers=2)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    gate = starter.folder / "gate"
    calls = {pid: asyncio.create_task(peer.call("hold", [str(gate)], timeout=None)) for pid, peer in found.items()}
    for _ in calls:
        await run.out.until("holding")
    run.signal(signal.SIGTERM)
    await run.err.until("draining")
    refused = 0
    for peer in found.values():
        async with asyncio.timeout(PATIENCE):
            while await refusal(peer) != -32001:
                pass
            refused += 1
    with pytest.raises(ChannelError):
        await connect(run.urls[0])
    gate.touch()
    assert [await call for call in calls.values()] == list(calls)
    assert await run.ended() == 0
    assert refused == 2
    assert not any(alive(pid) for pid in run.pids.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_kills(starter: Starter, peers: list[Peer], number: signal.Signals) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=2)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    calls = [asyncio.create_task(peer.call("hold", ["never"], timeout=None)) for peer in found.values()]
    for _ in calls:
        await run.out.until("holding")
    run.signal(number)
    await run.err.until("draining")
    run.signal(number)
    assert await run.ended() == 128 + number
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(end, ChannelError) for end in ends] == [True, True]
    assert not any(alive(pid) for pid in run.pids.values())


async def test_a_worker_that_does_not_drain_is_killed(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", "--drain", "0.1", workers=2)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    call = asyncio.create_task(found[run.pids[2]].call("block", timeout=None))
    await run.out.until("blocking")
    run.signal(signal.SIGTERM)
    await run.err.until(rf"worker 2 \(pid {run.pids[2]}\) did not end in time and is killed")
    assert await run.ended() == 0
    with pytest.raises(ChannelError):
        await call
    assert not any("worker 1 (pid" in line and "killed" in line for line in run.err.all)


async def test_without_their_supervisor_workers_drain_and_end(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=2)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    gate = starter.folder / "gate"
    calls = {pid: asyncio.create_task(peer.call("hold", [str(gate)], timeout=None)) for pid, peer in found.items()}
    for _ in calls:
        await run.out.until("holding")
    run.signal(signal.SIGKILL)
    await run.ended()
    gate.touch()
    assert [await call for call in calls.values()] == list(calls)
    for pid in run.pids.values():
        await gone(pid)


async def test_without_their_supervisor_even_blocked_workers_end(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", "--drain", "0.1", workers=1)
    peer = (await one_for_each(run.urls[0], [run.pids[1]], peers))[run.pids[1]]
    call = asyncio.create_task(peer.call("block", timeout=None))
    await run.out.until("blocking")
    run.signal(signal.SIGKILL)
    await gone(run.pids[1])
    with pytest.raises(ChannelError):
        await call


async def test_workers_share_a_bus_and_a_secret(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=3)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    for name in ("DRAGOMAN_BUS", "DRAGOMAN_RUN_SECRET"):
        values = {await peer.call("variable", [name], result=str) for peer in found.values()}
        assert len(values) == 1
        assert "" not in values
    folder = str(await found[run.pids[1]].call("variable", ["DRAGOMAN_BUS"])).removeprefix("unix:")
    assert stat.S_IMODE(Path(folder).parent.stat().st_mode) == 0o700
    assert await found[run.pids[1]].call("variable", ["DRAGOMAN_WORKER"]) is None
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0
    assert not Path(folder).parent.exists()


async def test_a_secret_of_ones_own_is_kept(starter: Starter, peers: list[Peer]) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=1, env={"DRAGOMAN_SECRET": "mine" * 4})
    peer = (await one_for_each(run.urls[0], [run.pids[1]], peers))[run.pids[1]]
    assert await peer.call("variable", ["DRAGOMAN_SECRET"]) == "mine" * 4
    assert await peer.call("variable", ["DRAGOMAN_RUN_SECRET"]) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stdio:"], "one standard input"),
        (["memory:x"], "one process's memory"),
        (["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"], "stands twice"),
        (["tcp://127.0.0.1"], "needs a port"),
        (["unix:no/such/folder.sock"], "there is no such folder"),
    ],
)
async def test_refused_in_one_sentence(starter: Starter, words: list[str], sentence: str) -> None:
    run = await starter.serve(*words, ready=False)
    assert await run.ended() == 2
    said = [line for line in (*run.out.all, *run.err.all) if sentence in line]
    assert len(said) == 1


async def test_zero_workers_are_refused(starter: Starter) -> None:
    run = await starter.serve("tcp://127.0.0.1:0", workers=0, ready=False)
    assert await run.ended() == 2
    assert any("at least 1" in line for line in run.out.all)
