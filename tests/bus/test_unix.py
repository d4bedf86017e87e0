"""`unix:`: the contract over a real socket, and what happens when an end dies, stands still, or the hub goes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dragoman import LocalError
from dragoman.bus import Bus, BusLost, Store, hub, open_bus
from dragoman.bus.hub import BusHub, open_hub
from dragoman.bus.unix import LocalBus

from . import table

FAR_END = """\
import asyncio, sys
from dragoman.bus import open_bus

async def main():
    bus = await open_bus(sys.argv[1])
    await bus.subscribe("all", lambda message: None)
    await bus.store.put("far", b"was here")
    print("there", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest_asyncio.fixture
async def held(tmp_path: Path) -> AsyncIterator[BusHub]:
    one = await open_hub(str(tmp_path / "bus.sock"))
    yield one
    await one.close()


async def far_end(url: str) -> asyncio.subprocess.Process:
    """Another process on the bus, subscribed to "all"."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", FAR_END, url, stdout=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"there\n"
    return process


@pytest.mark.parametrize("case", table.BUS + table.STORE, ids=table.name)
async def test_contract(held: BusHub, case: table.Case) -> None:
    await case(lambda: open_bus(held.url))


async def test_what_it_is(held: BusHub) -> None:
    bus = await open_bus(f"unix://{held.path}")
    assert isinstance(bus, Bus)
    assert isinstance(bus.store, Store)
    assert bus.url == held.url
    assert stat.S_IMODE(os.stat(held.path).st_mode) == 0o600
    await bus.close()


async def test_a_missing_far_end(tmp_path: Path) -> None:
    with pytest.raises(BusLost, match="no process holds it: no such file"):
        await open_bus(f"unix:{tmp_path}/none.sock")


async def test_a_live_socket_is_never_taken_a_dead_one_is(tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    first = await open_hub(path)
    with pytest.raises(LocalError, match="in use"):
        await open_hub(path)
    await first.close()
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    second = await open_hub(path)
    await second.close()
    (tmp_path / "bus.sock").touch()
    with pytest.raises(LocalError, match="in use"):
        await open_hub(path)


async def test_a_killed_end_loses_nothing_of_the_others(held: BusHub) -> None:
    mine, other = await open_bus(held.url), await open_bus(held.url)
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await mine.subscribe("all", heard.put_nowait)
    processes = [await far_end(held.url) for _ in range(3)]
    sent = 0
    for process in processes:
        assert mine.store is not None
        assert await mine.store.get("far") == b"was here"
        for number in range(50):
            await other.publish("all", b"%d" % sent)
            sent += 1
            if number == 25:
                process.kill()
        assert await process.wait() == -signal.SIGKILL
    assert [int(one) for one in await table.take(heard, sent)] == list(range(150))

    async def gone() -> bool:
        return len(held.clients) == 2

    await table.until(gone)
    await mine.close()
    await other.close()


async def test_an_end_that_stands_still_is_bounded_and_told(held: BusHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest hints for it are dropped and counted, its answers are not; the others hear everything."""
    monkeypatch.setattr(hub, "WAITING", 100_000)
    monkeypatch.setattr(hub, "HIGH_WATER", 10_000)
    publisher, quick = await open_bus(held.url), await open_bus(held.url)
    slow = await open_bus(held.url)
    assert isinstance(slow, LocalBus)
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    late: list[int] = []
    await quick.subscribe("all", heard.put_nowait)
    await slow.subscribe("all", lambda message: late.append(int(message)))
    connection = slow._connection
    assert connection is not None
    assert connection._transport is not None
    connection._transport.pause_reading()  # the process stands still
    count = 3_000
    for number in range(count):
        await publisher.publish("all", b"%01000d" % number)
    assert [int(one) for one in await table.take(heard, count)] == list(range(count))
    assert 0 < held.dropped < count
    connection._transport.resume_reading()

    async def caught_up() -> bool:
        return bool(late) and late[-1] == count - 1

    await table.until(caught_up)
    assert late == sorted(late)
    assert slow.missed == held.dropped == count - len(late)
    assert slow.store is not None
    assert await slow.store.get("key") is None  # it goes on as before
    for bus in (publisher, quick, slow):
        await bus.close()


async def test_the_hub_goes_and_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    first = await open_hub(path)
    bus = await open_bus(first.url)
    states: asyncio.Queue[bool] = asyncio.Queue()
    bus.on_state = states.put_nowait
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe("kept", heard.put_nowait)
    left = await bus.subscribe("left", heard.put_nowait)
    for round in range(20):
        await first.close()
        async with asyncio.timeout(table.PATIENCE):
            assert await states.get() is False
        with pytest.raises(BusLost, match="the socket was lost"):
            await bus.publish("kept", b"")
        if round == 0:
            await left.close()
        first = await open_hub(path)
        async with asyncio.timeout(table.PATIENCE):
            assert await states.get() is True
        assert bus.alive
        await bus.publish("left", b"no")
        await bus.publish("kept", b"%d" % round)
        assert await table.take(heard, 1) == [b"%d" % round]
    await bus.close()
    await first.close()


async def test_what_is_in_flight_when_the_hub_goes_is_lost_by_name(held: BusHub) -> None:
    bus = await open_bus(held.url)
    assert bus.store is not None
    asked = [asyncio.create_task(bus.store.get("key")) for _ in range(5)]
    await asyncio.sleep(0)  # they are written, and no answer was read
    for end in tuple(held.clients):
        end.abort()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, BusLost) for outcome in outcomes)
    assert len(outcomes) == 5
    await bus.close()


@pytest.mark.parametrize("bytes_", [b"\x00\x00\x00\x01\xc1", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x03\x92\x01\xa0"])
async def test_a_caller_that_does_not_speak_it_is_cut_off(held: BusHub, bytes_: bytes) -> None:
    bus = await open_bus(held.url)
    reader, writer = await asyncio.open_unix_connection(held.path)
    writer.write(bytes_)
    try:
        assert await asyncio.wait_for(reader.read(), table.PATIENCE) == b""
    except ConnectionResetError:
        pass
    writer.close()
    await bus.publish("all", b"")
    await bus.close()


async def test_a_log_is_never_longer_than_one_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever bounds its writers name: it could not be read any more, and each try would cost the connection."""
    monkeypatch.setattr(hub, "FRAME", 100_000)
    one = await open_hub(str(tmp_path / "bus.sock"))
    bus = await open_bus(one.url)
    assert bus.store is not None
    for message, times, left in ((bytes(10_000), 30, 5), (b"", 4_000, 3_125)):
        log = f"log{left}"
        await asyncio.gather(
            *(bus.store.append(log, message, ttl=60, messages=10**9, size=10**9) for _ in range(times))
        )
        found = await bus.store.read(log)
        assert [number for number, _ in found] == list(range(times - left + 1, times + 1))
    await bus.close()
    await one.close()


async def test_a_message_that_is_too_large_is_refused_here(held: BusHub) -> None:
    bus = await open_bus(held.url)
    with pytest.raises(LocalError, match="bytes are too many"):
        await bus.publish("all", bytes(hub.FRAME))
    await bus.close()


async def test_a_request_that_cannot_be_done_says_why(held: BusHub) -> None:
    bus = await open_bus(held.url)
    assert isinstance(bus, LocalBus)
    with pytest.raises(LocalError, match="TypeError"):
        await bus.ask("touch", "key")
    await bus.publish("all", b"")
    await bus.close()
