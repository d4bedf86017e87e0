"""The client of `unix:` buses, frame by frame, beside a hub that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import LocalError
from dragoman.bus import BusLost, hub, open_bus
from dragoman.bus import unix as unix_module
from dragoman.bus.hub import FRAME, open_hub, write_frame
from dragoman.bus.unix import LocalBus

from . import table

pytestmark = pytest.mark.usefixtures("quiet_loop")


class End:
    """The hub's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def asked(self) -> list[Any]:
        """The next request."""
        async with asyncio.timeout(table.PATIENCE):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return hub.decode(await self._reader.readexactly(size))

    def write(self, *frames: bytes) -> None:
        """In one piece."""
        self._writer.write(b"".join(frames))

    async def answer(self, value: object = None) -> list[Any]:
        """Answer the next request; what it was."""
        number, *words = await self.asked()
        self.write(write_frame(number, value))
        return words

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def played(folder: Path) -> AsyncIterator[tuple[str, Callable[[], Any]]]:
    """The URL of a hub that the test plays, and what waits for its next connection."""
    came: asyncio.Queue[End] = asyncio.Queue()
    ends: list[End] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(End(reader, writer))
        came.put_nowait(ends[-1])

    async def next_end() -> End:
        async with asyncio.timeout(table.PATIENCE):
            return await came.get()

    server = await asyncio.start_unix_server(accept, str(folder / "bus.sock"))
    try:
        yield f"unix:{folder}/bus.sock", next_end
    finally:
        server.close()
        for end in ends:
            end.close()


async def opened(url: str) -> LocalBus:
    bus = await open_bus(url)
    assert isinstance(bus, LocalBus)
    return bus


async def test_each_answer_goes_to_its_request_and_strange_ones_to_none(tmp_path: Path) -> None:
    async with played(tmp_path) as (url, next_end):
        bus = await opened(url)
        assert bus.store is not None
        end: End = await next_end()
        asked = [asyncio.ensure_future(bus.store.get(key)) for key in "abc"]
        first, second, third = [await end.asked() for _ in asked]
        assert [first, second, third] == [[1, "get", "a"], [2, "get", "b"], [3, "get", "c"]]
        end.write(
            write_frame(9, b"of no request"),
            write_frame(2, b"B"),
            write_frame(2, b"again"),
            write_frame(1, b"A"),
            write_frame(3, b"C"),
        )
        assert await asyncio.gather(*asked) == [b"A", b"B", b"C"]
        assert bus.alive
        await bus.close()


@pytest.mark.parametrize("ends", [False, True], ids=["answered", "lost"])
async def test_a_caller_that_gave_up_harms_no_other(tmp_path: Path, ends: bool) -> None:
    async with played(tmp_path) as (url, next_end):
        bus = await opened(url)
        assert bus.store is not None
        end: End = await next_end()
        asked = [asyncio.ensure_future(bus.store.get(key)) for key in "abc"]
        numbers = [(await end.asked())[0] for _ in asked]
        asked[0].cancel()
        if ends:
            end.close()
        else:
            end.write(*(write_frame(number, b"%d" % number) for number in numbers))
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        if ends:
            assert [str(one) for one in outcomes[1:]] == [f"{url}: the socket was lost"] * 2
            assert all(isinstance(one, BusLost) for one in outcomes[1:])
        else:
            assert outcomes[1:] == [b"2", b"3"]
            assert bus.alive
        await bus.close()


async def test_it_is_back_only_when_the_hub_has_all_subscriptions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_module, "PAUSES", (0.0, 0.0))
    caplog.set_level(logging.DEBUG, "dragoman.bus")
    heard: list[bytes] = []
    states: asyncio.Queue[bool] = asyncio.Queue()
    async with played(tmp_path) as (url, next_end):
        bus = await opened(url)
        bus.on_state = states.put_nowait
        end: End = await next_end()
        for topic in "ab":
            subscribing = asyncio.ensure_future(bus.subscribe(topic, heard.append))
            assert await end.answer() == ["subscribe", topic]
            await subscribing
        end.close()
        assert await states.get() is False
        assert bus.measures()["bus_outages_total"] == 1
        end = await next_end()
        assert await end.answer() == ["subscribe", "a"]
        assert await end.asked() == [2, "subscribe", "b"]
        assert not bus.alive
        end.close()  # before it has answered
        end = await next_end()
        assert states.empty()
        assert not bus.alive
        with pytest.raises(BusLost, match=f"{url}: the socket was lost"):
            await bus.publish("a", b"")
        for topic in "ab":
            assert await end.answer() == ["subscribe", topic]
        assert await states.get() is True
        assert bus.alive
        end.write(write_frame(0, "b", b"1"), write_frame(0, "none", b"2"))
        publishing = asyncio.ensure_future(bus.publish("c", b"3"))
        assert await end.answer() == ["publish", "c", b"3"]
        await publishing
        assert heard == [b"1"]
        assert states.empty()
        assert bus.measures() == {
            "bus_connected": True,
            "bus_published_total": 1,
            "bus_received_total": 1,
            "bus_dropped_total": 0,
            "bus_outages_total": 1,
        }
        await bus.close()
    said = [record.getMessage() for record in caplog.records]
    lost = f"{url}: the hub is lost, coming back"
    socket = "the socket was lost"
    assert said == [f"{lost}: {socket}", f"{lost}: {url}: {socket}", f"{url}: the hub is back"]


async def test_what_it_missed_is_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with played(tmp_path) as (url, next_end):
        bus = await opened(url)
        end: End = await next_end()
        publishing = asyncio.ensure_future(bus.publish("a", b""))
        end.write(write_frame(0, None, 3), write_frame(0, None, 4))
        await end.answer()
        await publishing
        assert bus.missed == 7
        assert bus.measures()["bus_dropped_total"] == 7
        await bus.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{url}: this process read too slowly; {count} messages were dropped" for count in (3, 4)
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_no_hub_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Its frame is too long, and is not read to its end."""
    monkeypatch.setattr(hub, "FRAME", 100)
    async with played(tmp_path) as (url, next_end):
        bus = await opened(url)
        end: End = await next_end()
        asking = asyncio.ensure_future(bus.ask("get", "a"))
        await end.asked()
        end.write((101).to_bytes(4, "big") + bytes(101 if whole else 50))
        with pytest.raises(BusLost, match="the socket was lost"):
            await asking
        await bus.close()


def raw(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


NO_HUB = {
    "no MessagePack": raw(b"\xc1"),
    "nothing": raw(b""),
    "nested too deeply": raw(b"\x91" * 50_000),
    "a list that is said to be long": raw(b"\xdd\xff\xff\xff\xff"),
    "no list": raw(b"\x80"),
    "an empty list": write_frame(),
    "a number alone": write_frame(1),
    "a number that is none": write_frame([], b"v"),
    "True for a number": write_frame(True, b"v"),
    "a message without content": write_frame(0, "t"),
    "a message that is text": write_frame(0, "t", "text"),
    "a message with more": write_frame(0, "t", b"", b""),
    "a topic that is none": write_frame(0, [], b""),
    "a count that is none": write_frame(0, None, "many"),
}


@pytest.mark.parametrize("wrong", NO_HUB.values(), ids=NO_HUB)
async def test_what_no_hub_sends_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: bytes
) -> None:
    """It is told once, and the next connection is as good as any."""
    monkeypatch.setattr(unix_module, "PAUSES", (0.0, 0.0))
    states: asyncio.Queue[bool] = asyncio.Queue()
    async with played(tmp_path) as (url, next_end):
        bus = await opened(url)
        bus.on_state = states.put_nowait
        end: End = await next_end()
        for _ in range(2):
            asked = [asyncio.ensure_future(bus.ask("get", key)) for key in "ab"]
            for _ in asked:
                await end.asked()
            end.write(wrong, write_frame(1, b"a"), write_frame(2, b"b"))
            async with asyncio.timeout(table.PATIENCE):
                for one in await asyncio.gather(*asked, return_exceptions=True):
                    assert isinstance(one, BusLost)
                assert [await states.get(), await states.get()] == [False, True]
            end = await next_end()
        getting = asyncio.ensure_future(bus.ask("get", "a"))
        await end.answer(b"v")
        assert await getting == b"v"
        await bus.close()
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage().startswith(f"{url}: what answers there is no hub: ")


async def test_a_value_may_fill_a_frame_and_no_more(tmp_path: Path) -> None:
    held = await open_hub(str(tmp_path / "bus.sock"))
    bus = await opened(held.url)
    assert bus.store is not None
    largest = bytes(FRAME - 1024)
    await bus.store.put("k" * 900, largest)
    assert len(await bus.store.get("k" * 900) or b"") == len(largest)
    for refused in (
        bus.publish("t", largest + b"\0"),
        bus.store.put("k", largest + b"\0"),
        bus.store.put_new("k", largest + b"\0"),
        bus.store.append("k", largest + b"\0", ttl=9),
    ):
        with pytest.raises(LocalError, match=f"{len(largest) + 1} bytes are too many for this bus; {len(largest)} may"):
            await refused
    assert await bus.store.get("k") is None
    await bus.close()
    await held.close()
