"""The hub of `unix:` buses, frame by frame: what it writes to a client that reads slowly, and what it says of one that
breaks the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dragoman.bus import BusLost, hub, open_bus
from dragoman.bus.hub import BusHub, _HubClient, open_hub, write_frame

from . import table

pytestmark = pytest.mark.usefixtures("quiet_loop")


@pytest_asyncio.fixture
async def held(tmp_path: Path) -> AsyncIterator[BusHub]:
    one = await open_hub(str(tmp_path / "bus.sock"))
    yield one
    await one.close()


class Wire(asyncio.Transport):
    """The connection of one client, which takes `room` frames before it is full."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.written: list[list[Any]] = []
        self.reading = True
        self.client: _HubClient

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == hub.HIGH_WATER

    def write(self, data: bytes) -> None:  # type: ignore[override]
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        self.written.append(hub.decode(data[4:]))
        self.room -= 1
        if self.room == 0:
            self.client.pause_writing()

    def read(self, frames: int) -> list[list[Any]]:
        """All that was written; there is room for so many frames then."""
        written, self.written, self.room = self.written, [], frames
        self.client.resume_writing()
        return written

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def slow(room: int) -> tuple[BusHub, Wire]:
    """A hub with one client, subscribed to "t"; the frames that there is room for include the answer."""
    one, wire = BusHub("never", lambda: 0.0), Wire(room)
    wire.client = _HubClient(one)
    wire.client.connection_made(wire)
    wire.client.data_received(write_frame(1, "subscribe", "t"))
    return one, wire


def hints(*messages: bytes) -> list[list[Any]]:
    return [[0, "t", message] for message in messages]


def publish(one: BusHub, *messages: bytes) -> None:
    for message in messages:
        one.verbs["publish"](None, "t", message)


async def test_nothing_is_read_from_a_client_that_is_full_until_it_has_read_everything() -> None:
    one, wire = slow(2)
    assert wire.reading
    publish(one, b"1", b"2", b"3", b"4", b"5")
    assert not wire.reading
    assert wire.read(2) == [[1, None], *hints(b"1")]
    assert not wire.reading, "what waited filled it again"
    assert wire.read(3) == hints(b"2", b"3")
    assert wire.reading
    assert wire.read(9) == hints(b"4", b"5")
    assert one.dropped == 0


def test_requests_of_a_client_that_is_full_wait_for_room_for_their_answers() -> None:
    one, wire = slow(2)
    one.store.put("k", b"v")
    wire.client.data_received(
        b"".join(write_frame(number, "get", "k") for number in range(2, 7)) + write_frame(7, "put", "k", b"")
    )
    assert not wire.reading
    assert wire.read(2) == [[1, None], [2, b"v"]]
    assert not wire.reading
    assert wire.read(9) == [[3, b"v"], [4, b"v"]]
    assert wire.reading
    assert wire.written == [[5, b"v"], [6, b"v"], [7, None]]


async def test_so_many_bytes_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "WAITING", sum(len(write_frame(0, "t", b"%d" % number)) for number in (3, 4, 5)))
    one, wire = slow(2)
    publish(one, b"1", b"2", b"3", b"4")
    assert one.dropped == 0, "they fit exactly"
    publish(one, b"5", b"6", b"7")
    assert one.dropped == 3
    assert wire.read(9) == [[1, None], *hints(b"1")]
    assert wire.written == [[0, None, 3], *hints(b"5", b"6", b"7")]
    publish(one, b"8")
    wire.client.pause_writing()
    publish(one, b"9", b"a", b"b")
    assert wire.read(9)[-1:] == hints(b"8")
    assert wire.written[:2] == hints(b"9", b"a"), "what was told once is not told again"


async def test_a_client_that_breaks_the_protocol_is_told_of_in_one_line(
    held: BusHub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(hub, "FRAME", 100)
    too_long = (101).to_bytes(4, "big") + bytes(101)
    for wrong in (
        b"\0\0\0\1\xc1",
        b"\0\0\0\2\x91\1",
        write_frame(1, "format"),
        write_frame(1, []) + too_long[:50],
        too_long,
        too_long[:50],
    ):
        reader, writer = await asyncio.open_unix_connection(held.path)
        writer.write(wrong + write_frame(2, "put", "k", b"", None))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(reader.readexactly(1), table.PATIENCE)
        writer.close()
    said = [(record.name, record.getMessage()) for record in caplog.records]
    assert [name for name, _ in said] == ["dragoman.bus"] * 6
    assert all(f"unix:{held.path}: a client that broke the protocol" in text for _, text in said)
    assert held.store.get("k") is None, "nothing after it was read"


def raw(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


NO_REQUEST = {
    "nothing": raw(b""),
    "nested too deeply": raw(b"\x91" * 50_000),
    "a list that is said to be long": raw(b"\xdd\xff\xff\xff\xff"),
    "bytes that are said to be long": raw(b"\x93\x01\xa3get\xc6\xff\xff\xff\xff"),
    "no list": raw(b"\x80"),
    "an empty list": write_frame(),
    "text that is not UTF-8": raw(b"\x93\x01\xa3get\xa1\xff"),
    "a time out of range": raw(b"\x93\x01\xa3get\xc7\x0c\xff" + b"\xff" * 12),
    "a number that is none": write_frame([], "get", "k"),
    "an unknown verb": write_frame(1, "drop", "k"),
    "a verb that is not text": write_frame(1, {}, "k"),
}


@pytest.mark.parametrize("wrong", NO_REQUEST.values(), ids=NO_REQUEST)
async def test_what_is_no_request_ends_its_own_connection_alone(
    held: BusHub, wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bus = await open_bus(held.url)
    reader, writer = await asyncio.open_unix_connection(held.path)
    writer.write(wrong + write_frame(2, "put", "k", b"", None))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await asyncio.wait_for(reader.readexactly(1), table.PATIENCE)
    writer.close()
    [record] = caplog.records
    assert "a client that broke the protocol was disconnected" in record.getMessage()
    await bus.publish("t", b"")
    assert len(held.clients) == 1
    assert len(held.store) == 0
    await bus.close()


NOT_DONE: list[tuple[Any, ...]] = [
    ("publish", None, b""),
    ("publish", "t", "text"),
    ("subscribe", None),
    ("subscribe", []),
    ("unsubscribe", 1),
    ("get", b"k"),
    ("get", "k", "k"),
    ("put", "k"),
    ("put", "k", 1, None),
    ("put", "k", b"", "soon"),
    ("put", "k", b"", float("nan")),
    ("put_new", "k", [b""], None),
    ("touch", "k", None),
    ("append", "k", "text", 9, 1, 1),
    ("append", "k", b"", float("nan"), 1, 1),
    ("append", "k", b"", 9, "many", 1),
    ("append", "k", b"", 9, 1, None),
    ("read", "k", "0"),
]


@pytest.mark.parametrize("words", NOT_DONE, ids=repr)
def test_words_of_other_kinds_change_nothing_and_reach_nobody(words: tuple[Any, ...]) -> None:
    one, wire = slow(9)
    wire.client.data_received(write_frame(2, *words) + write_frame(3, "get", "k"))
    [subscribed, (number, value, why), after] = wire.written
    assert (subscribed, number, value) == ([1, None], 2, None)
    assert why.startswith("TypeError: ")
    assert after == [3, None]
    assert len(one.store) == 0
    assert wire.client.topics == {"t"}
    one.remove(wire.client)
    assert one.clients == set()


@pytest.mark.parametrize("huge", [2**64 - 1, -(2**63), 1e308, float("inf")], ids=repr)
def test_huge_numbers_are_numbers(huge: float) -> None:
    _, wire = slow(9)
    wire.client.data_received(write_frame(2, "put", "k", b"v", huge) + write_frame(3, "touch", "l", huge))
    wire.client.data_received(
        write_frame(4, "append", "l", b"m", 9, 1, 2**64 - 1) + write_frame(5, "read", "l", 2**64 - 1)
    )
    wire.client.data_received(write_frame(2**64 - 1, "get", "k"))
    assert wire.written[1:] == [
        [2, None],
        [3, False],
        [4, 1],
        [5, []],
        [2**64 - 1, b"v" if huge > 0 else None],
    ]


async def test_a_request_that_cannot_be_done_is_logged_where_it_failed(
    held: BusHub, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_unix_connection(held.path)
    writer.write(write_frame(7, "get") + write_frame(8, "get", "k"))
    first = write_frame(8, None)
    head = await reader.readexactly(4)
    number, value, why = hub.decode(await reader.readexactly(int.from_bytes(head, "big")))
    assert (number, value) == (7, None)
    assert why.startswith("TypeError: ")
    assert await reader.readexactly(len(first)) == first
    [record] = caplog.records
    assert record.getMessage() == f"unix:{held.path}: a request could not be done"
    assert record.exc_info is not None
    writer.close()


async def test_closing_waits_for_its_clients_and_clients_that_went_before_harm_nothing(tmp_path: Path) -> None:
    one = await open_hub(str(tmp_path / "bus.sock"))
    for _ in range(2):
        early = await open_bus(one.url)
        await early.close()

        async def gone() -> bool:
            return not one.clients

        await table.until(gone)
    several = [await open_bus(one.url) for _ in range(3)]
    for bus in several:
        await bus.publish("t", b"")  # answered: it is a client now
    assert len(one.clients) == 3
    await one.close()
    assert one.clients == set()
    assert not (tmp_path / "bus.sock").exists()
    for bus in several:
        await bus.close()
    with pytest.raises(BusLost, match="no process holds it"):
        await open_bus(one.url)
    await one.close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_client_that_is_accepted_while_the_hub_closes_is_disconnected_too(tmp_path: Path, turns: int) -> None:
    one = await open_hub(str(tmp_path / "bus.sock"))
    bus = await open_bus(one.url)
    states: asyncio.Queue[bool] = asyncio.Queue()
    bus.on_state = states.put_nowait
    for _ in range(turns):
        await asyncio.sleep(0)
    await one.close()
    async with asyncio.timeout(table.PATIENCE):
        assert await states.get() is False
    await bus.close()
