"""Logs of streams and of sessions: what was written is read, here and from a store."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.bus.memory import MemoryBus
from dragoman.mcp.protocol.admission import SessionState
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import REVISIONS
from dragoman.mcp.protocol.types import ClientCapabilities, ElicitationCapability, Implementation
from dragoman.mcp.session import record as records
from dragoman.mcp.session.log import SPARE, MemoryLog, StreamLog
from dragoman.mcp.session.record import Delta
from dragoman.mcp.session.store_log import StoreLog, decode_entry, encode_entry
from tests.behind import behind

from ..http_tools import tools
from ..replicas import KEYS

MESSAGES = st.binary(max_size=60) | st.binary(max_size=40).map(SPARE.__add__)
IDS = st.none() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False)
URIS = st.lists(st.sampled_from(["file:///a", "file:///b", "x://日"]), unique=True, max_size=3)
DELTAS = st.lists(
    st.builds(
        Delta,
        log_level=st.sampled_from([None, "debug", "error"]),
        subscribed=URIS,
        unsubscribed=URIS,
        initialized=st.booleans(),
        known=st.integers(0, 2**40),
    ),
    max_size=12,
)
SESSIONS = st.builds(
    SessionState,
    revision=st.sampled_from([one for one in REVISIONS.values() if one.stateful]),
    client=st.builds(Implementation, name=st.text(max_size=20), version=st.text(max_size=10)),
    capabilities=st.sampled_from([ClientCapabilities(), ClientCapabilities(elicitation=ElicitationCapability())]),
    principal=st.none() | st.text(max_size=20),
)


@given(MESSAGES, st.booleans(), IDS)
def test_an_entry_of_a_streams_log(message: bytes, last: bool, id: object) -> None:
    raw = msgspec.json.encode(id)
    assert decode_entry(encode_entry(message, last, raw)) == (message, last, raw)


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(1, 6), st.integers(1, 200))
def test_a_log_keeps_what_there_is_room_for(said: list[bytes], messages: int, size: int) -> None:
    """The newest always; of the others in their order, notifications go first."""

    async def kept() -> None:
        log = MemoryLog(messages, size)
        for number, message in enumerate(said, 1):
            assert await log.stored(log.append(message)) == number
        found = await log.read()
        numbers = [one.number for one in found]
        assert numbers == sorted(set(numbers))
        assert [one.message for one in found] == [said[number - 1] for number in numbers]
        assert numbers[-1] == len(said)
        assert len(found) == 1 or (len(found) <= messages and sum(len(one.message) for one in found) <= size)
        assert log.dropped == len(said) - len(found)
        for after in range(len(said) + 1):
            assert list(await log.read(after)) == [one for one in found if one.number > after]

    asyncio.run(kept())


@settings(deadline=None, max_examples=25)
@given(st.lists(MESSAGES, max_size=8), IDS)
def test_a_log_in_a_store_reads_as_one_in_the_process(said: list[bytes], id: object) -> None:
    """Another replica reads what this one wrote."""

    async def read() -> None:
        (near, _), (far, _) = tools(keys=KEYS), tools(keys=KEYS)
        buses = [MemoryBus("logs"), MemoryBus("logs")]
        for server, bus in zip((near, far), buses, strict=True):
            await behind(server).join(bus)
        here = MemoryLog(100, 1 << 20)
        options = HttpOptions()
        logs = [
            StoreLog(shared, "stream", options, id=msgspec.json.encode(id))
            for shared in (behind(near).shared, behind(far).shared)
            if shared is not None
        ]
        for turn, message in enumerate(said):
            last = turn == len(said) - 1
            log: StreamLog = logs[0]
            number = await log.stored(log.append(message, last=last))
            assert number == here.append(message, last=last) == log.last
        for after in range(here.last + 1):
            assert [list(await log.read(after)) for log in logs] == [list(await here.read(after))] * 2
            assert [log.last for log in logs] == [here.last] * 2
        for server, bus in zip((near, far), buses, strict=True):
            await behind(server).stop()
            await bus.close()

    asyncio.run(read())


@given(SESSIONS)
def test_a_session_that_another_replica_reads(state: SessionState) -> None:
    found = records.read_record([(1, records.encode_entry(records.first_snapshot(state)))])
    assert found is not None
    assert records.session_state(found.whole) == state


@given(SESSIONS, DELTAS, st.data())
def test_a_sessions_log_read_at_once_or_bit_by_bit(
    state: SessionState, deltas: list[Delta], data: st.DataObject
) -> None:
    """A replica that follows it, one that reads all of it, and the one that wrote it know the same."""
    entries = [(1, records.encode_entry(records.first_snapshot(state)))]
    entries += [(number, records.encode_entry(delta)) for number, delta in enumerate(deltas, 2)]
    whole = records.read_record(entries)
    first = records.read_record(entries[:1])
    wrote = records.read_record(entries[:1])
    assert whole is not None
    assert first is not None
    assert wrote is not None
    for delta in deltas:
        wrote.change(delta)
    while first.number < len(entries):
        upto = data.draw(st.integers(first.number, len(entries)))
        assert first.take(entries[first.number - 1 : upto + 1])
    assert first.whole == whole.whole == wrote.whole
    assert (first.number, whole.number) == (len(entries), len(entries))
    if len(entries) > 2:
        behind = records.read_record(entries[:1])
        assert behind is not None
        assert not behind.take(entries[2:])  # something is missing: it reads all of it


def begun(revision: str = "2025-11-25", upto: int = 0) -> records.Snapshot:
    """The beginning of a session."""
    return records.Snapshot(revision, Implementation("t", "1"), ClientCapabilities(), upto=upto)


def test_what_is_no_session() -> None:
    """A late change came after its end, or a newer version of this library wrote it."""
    late = records.encode_entry(Delta(log_level="debug"))
    newer = records.encode_entry(begun("2099-01-01"))
    for entries in ([], [(7, late)], [(1, newer)], [(1, newer), (2, late)]):
        assert records.read_record(entries) is None


def test_a_change_between_the_reading_and_the_writing_of_a_snapshot_is_kept() -> None:
    entries: list[records.RecordEntry] = [
        begun(),
        Delta(subscribed=["file:///old"], known=1),
        Delta(unsubscribed=["file:///old"], known=2),
        Delta(subscribed=["file:///between"], known=3),
        begun(upto=3),
        Delta(log_level="error"),
    ]
    for first in (0, 3, 4):  # what came before has been removed, or not
        found = records.read_record([(at, records.encode_entry(one)) for at, one in enumerate(entries, 1)][first:])
        assert found is not None
        assert found.number == 6
        assert found.whole.log_level == "error"
        assert found.whole.uris == ({"file:///between": 3} if first < 4 else {})


async def test_a_log_keeps_as_much_as_there_is_room_for() -> None:
    log = MemoryLog(100, 30)
    for number in range(10):
        log.append(b"%d" % number * 10)
        assert len(await log.read()) == min(number + 1, 3)


async def test_what_readers_have_had_does_not_go_back() -> None:
    log = MemoryLog(10, 100)
    assert await log.furthest() == (0, 0)
    for number in (1, 3, 2):
        await log.had(number, 0)
    assert await log.furthest() == (3, 0)
