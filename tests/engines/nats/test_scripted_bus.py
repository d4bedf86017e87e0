"""`nats://` as a bus and a store, against a NATS that does what a test says: what is told of an outage, and what
becomes of JetStream's refusals. What the store writes and asks for is in `test_store`."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import BusLost, open_bus
from dragoman.engines.nats import bus as bus_module
from dragoman.engines.nats import connection, store
from dragoman.engines.nats.bus import NatsBus, NatsStore
from dragoman.jsonrpc.errors import LocalError
from tests.bus import table
from tests.engines.waits import Waits

from .scripted import Scripted, Sent, scripted

NOW = 1_000_000
"""The time of day in milliseconds, in all of these tests."""
AFTER, EXPIRES = "Nats-Expected-Last-Subject-Sequence", "Expires"


def fault(code: int) -> dict[str, Any]:
    return {"error": {"code": 400, "err_code": code, "description": "the\nreason"}}


def found(body: bytes, position: int = 7, **headers: str) -> dict[str, Any]:
    """JetStream's answer to a request for the newest message of a subject."""
    lines = "\r\n".join(["NATS/1.0", *(f"{name.replace('_', '-')}: {text}" for name, text in headers.items()), "", ""])
    return {"message": {"seq": position, "data": text(body), "hdrs": text(lines.encode()) if headers else ""}}


def text(raw: bytes) -> str:
    return b64encode(raw).decode()


MISSING = fault(10037)


class Ends:
    """A bus on a scripted server."""

    def __init__(self, server: Scripted, bus: NatsBus) -> None:
        self.server, self.bus = server, bus

    @property
    def store(self) -> NatsStore:
        assert self.bus.store is not None
        return self.bus.store

    def asked(self, what: str) -> list[Any]:
        """The members of every such request to JetStream."""
        return [json.loads(sent.body) for sent in self.server.last.said(f"$JS.API.{what}")]


@asynccontextmanager
async def ends(query: str = "?prefix=p", /, **apis: Any) -> AsyncIterator[Ends]:
    """`apis`: by their names with _ for a dot."""
    async with scripted() as server:
        server.apis = {"STREAM.INFO": {}} | {name.replace("_", "."): answer for name, answer in apis.items()}
        async with table.opened(server.url + query, NatsBus) as bus:
            yield Ends(server, bus)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause, and let the time of day stand."""
    monkeypatch.setattr(connection, "PAUSES", (0.001, 0.001))
    monkeypatch.setattr(store, "now", lambda: NOW)


# -- the bus ---------------------------------------------------------------------------------------


async def test_what_is_published_and_heard() -> None:
    async with ends() as one:
        heard = list[bytes]()
        subscription = await one.bus.subscribe("a.b é", heard.append)
        subject = "p.bus.a=2Eb=20=C3=A9"
        assert (subject, "") in one.server.last.subscriptions.values()
        await one.bus.publish("a.b é", b"m")
        assert [sent.body for sent in one.server.last.said(subject)] == [b"m"]
        assert heard == [b"m"]
        await subscription.close()
        await one.bus.publish("a.b é", b"n")
        assert heard == [b"m"]
        assert (one.bus.measures()["bus_published_total"], one.bus.measures()["bus_received_total"]) == (2, 1)


@pytest.mark.parametrize("end", ["lost", "cancelled"])
async def test_a_subscription_that_was_not_confirmed_hears_nothing_later(end: str) -> None:
    """It may be asked for again, and would hear everything twice."""
    async with ends() as one:
        heard, states = list[str](), list[bool]()

        def told(alive: bool) -> None:
            states.append(alive)
            one.server.changed.set()

        one.bus.on_state = told
        one.server.silent = True
        subscribing = asyncio.ensure_future(one.bus.subscribe("t", lambda message: heard.append("unconfirmed")))
        await one.server.until(lambda: ("p.bus.t", "") in one.server.last.subscriptions.values())
        one.server.silent = False
        if end == "lost":
            one.server.last.cut()
        else:
            subscribing.cancel()
        with pytest.raises(BusLost if end == "lost" else asyncio.CancelledError):
            await subscribing
        if end == "lost":
            await one.server.until(lambda: states == [False, True])
        await one.bus.subscribe("t", lambda message: heard.append("again"))
        await one.bus.publish("t", b"m")
        assert heard == ["again"]


async def test_an_outage_is_told_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.bus")
    async with ends() as one:
        states = list[bool]()

        def told(alive: bool) -> None:
            assert one.bus.alive is alive
            states.append(alive)
            assert one.bus.measures()["bus_outages_total"] == states.count(False)
            one.server.changed.set()

        one.bus.on_state = told
        tries = list[bool]()

        def tried(alive: bool, why: str) -> None:
            tries.append(alive)
            one.server.changed.set()

        one.bus._connection.states.append(tried)
        one.server.refusing = True
        one.server.last.cut()
        await one.server.until(lambda: states)
        await one.server.until(lambda: len(tries) == 3)  # a try that fails is not an outage of its own
        one.server.refusing = False
        await one.server.until(lambda: one.bus.alive)
        assert states == [False, True]
        words = [record.message.removeprefix(f"{one.bus.url}: ").partition(":")[0] for record in caplog.records]
        assert [word for word in words if word.startswith("NATS is")] == [
            "NATS is lost, coming back",
            *["NATS is lost, coming back"] * (len(tries) - 2),
            "NATS is back",
        ]


@pytest.mark.parametrize(
    "query", ["?prefix=a.b", "?prefix=", "?prefix=" + "x" * 51, "?replicas=2", "?replicas=", "?replicas=11"]
)
async def test_what_a_url_may_not_say(query: str) -> None:
    with pytest.raises(LocalError, match=rf"\?{query[1:].partition('=')[0]}= is"):
        await open_bus(f"nats://127.0.0.1:1{query}")


# -- its streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "replicas"), [("", 1), ("?replicas=3", 3), ("?replicas=5", 5)])
async def test_how_often_a_store_is_kept(query: str, replicas: int) -> None:
    async with ends(query, STREAM_INFO=fault(10059), STREAM_CREATE={}) as one:
        for stream in ("KV_dragoman", "dragoman-logs"):
            assert [made["num_replicas"] for made in one.asked(f"STREAM.CREATE.{stream}")] == [replicas]


@pytest.mark.parametrize(
    ("info", "create", "made"),
    [
        ({}, fault(10052), 0),  # it is there, and stays as it is
        (fault(10059), fault(10058), 2),  # another process was quicker
    ],
)
async def test_streams_that_are_there(info: Any, create: Any, made: int) -> None:
    async with ends(STREAM_INFO=info, STREAM_CREATE=create) as one:
        assert len([sent for sent in one.server.last.published if "STREAM.CREATE" in sent.subject]) == made
        assert one.bus.store is not None


@pytest.mark.parametrize(
    ("info", "create", "code"),
    [(fault(10008), {}, 10008), (fault(10059), fault(10047), 10047), (fault(10058), {}, 10058)],
)
async def test_streams_that_jetstream_does_not_give(info: Any, create: Any, code: int) -> None:
    """Then there is no bus either: what it should share would not be."""
    async with scripted() as server:
        server.apis = {"STREAM.INFO": info, "STREAM.CREATE": create}
        with pytest.raises(BusLost, match=rf"JetStream says: the\\nreason \({code}\)"):
            await open_bus(server.url)
        await server.last.ended.wait()


async def test_without_jetstream_there_is_no_store(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted() as server:
        bus = await open_bus(server.url)
        assert (bus.store, bus.alive) == (None, True)
        await bus.close()
    assert f"{bus.url}: a bus without a store: this server has no JetStream" in caplog.text


# -- values ----------------------------------------------------------------------------------------

Work = Callable[[NatsStore], Awaitable[Any]]


@pytest.mark.parametrize(
    ("newest", "value"),
    [
        (MISSING, None),
        ({}, None),
        (found(b"v"), b"v"),
        (found(b""), b""),
        (found(b"v", Expires="1000001"), b"v"),
        (found(b"v", Expires="1000000"), None),
        (found(b"v", Expires="999999"), None),
        (found(b"", KV_Operation="DEL"), None),
    ],
)
async def test_what_a_value_is(newest: Any, value: bytes | None) -> None:
    async with ends(STREAM_MSG_GET=newest) as one:
        assert await one.store.get("k") == value
        assert one.asked("STREAM.MSG.GET.KV_p") == [{"last_by_subj": "$KV.p.k"}]


@pytest.mark.parametrize("code", [10071, 10164])
@pytest.mark.parametrize(
    ("newest", "after", "result"),
    [
        (found(b"v"), ["0"], False),
        (MISSING, ["0", "0"], True),  # it is gone since
        (found(b"v", 7, Expires="1000000"), ["0", "7"], True),
    ],
)
async def test_a_new_value_where_there_is_one(code: int, newest: Any, after: list[str], result: bool) -> None:
    async with ends(STREAM_MSG_GET=newest) as one:
        answers: list[Any] = [fault(code), {"seq": 9}]
        one.server.taken = lambda sent: answers.pop(0)
        assert await one.store.put_new("k", b"v") is result
        assert [sent.headers[AFTER] for sent in one.server.last.said("$KV.p.k")] == after


async def test_a_value_that_changes_while_it_is_touched_is_touched_as_it_is_then() -> None:
    values = [found(b"1", 7), found(b"2", 8)]
    async with ends(STREAM_MSG_GET=lambda sent: values.pop(0)) as one:
        answers: list[Any] = [fault(10071), {"seq": 9}]
        one.server.taken = lambda sent: answers.pop(0)
        assert await one.store.touch("k", 2) is True
        assert [(sent.body, sent.headers) for sent in one.server.last.said("$KV.p.k")] == [
            (b"1", {AFTER: "7", EXPIRES: "1002000"}),
            (b"2", {AFTER: "8", EXPIRES: "1002000"}),
        ]


@pytest.mark.parametrize(
    ("newest", "purged", "result"),
    [
        ([MISSING, MISSING], [], False),
        ([found(b"v")], [1], True),
        ([found(b"v", Expires="1"), MISSING], [1], False),  # it was over, and there is no log of that name
        ([found(b"v"), found(b"w", 9)], [0, 1], True),  # another value came, or it was gone before
        ([found(b"v"), MISSING, MISSING], [0], False),
        ([MISSING, found(b"v")], [1], True),  # a log
    ],
)
async def test_what_is_deleted(newest: list[Any], purged: list[int], result: bool) -> None:
    seen, gone = list(newest), list(purged)
    async with ends(STREAM_MSG_GET=lambda sent: seen.pop(0), STREAM_PURGE=lambda sent: {"purged": gone.pop(0)}) as one:
        assert await one.store.delete("k") is result
        assert (seen, gone) == ([], [])
        places = [said["message"]["seq"] + 1 for said in newest if "message" in said]
        asked = [json.loads(sent.body) for sent in one.server.last.published if "STREAM.PURGE" in sent.subject]
        assert [one["seq"] for one in asked] == places
        assert {one["filter"] for one in asked} <= {"$KV.p.k", "p.logs.k"}


@pytest.mark.parametrize(
    ("work", "api"),
    [
        (lambda it: it.get("k"), "STREAM_MSG_GET"),
        (lambda it: it.read("k"), "STREAM_MSG_GET"),
        (lambda it: it.delete("k"), "STREAM_PURGE"),
        (lambda it: it.sweep(), "CONSUMER_CREATE"),
        (lambda it: it.put("k", b"v"), None),
        (lambda it: it.put_new("k", b"v"), None),
        (lambda it: it.append("k", b"v", ttl=2), None),
    ],
)
async def test_what_is_refused_is_an_error(work: Work, api: str | None) -> None:
    """And not the answer that there is nothing."""
    async with ends(**{"STREAM_MSG_GET": found(b"v")} | ({} if api is None else {api: fault(10023)})) as one:
        one.server.taken = lambda sent: {"seq": 1} if api else fault(10023)
        with pytest.raises(BusLost, match=rf"^{one.bus.url}: JetStream says: the\\nreason \(10023\)"):
            await work(one.store)


async def test_a_value_that_is_too_long() -> None:
    async with ends() as one:
        with pytest.raises(LocalError, match=r"the message has 2000 bytes; .* takes 1000"):
            await one.store.put("k", b"v" * 2_000)


async def test_a_store_that_is_gone_is_away() -> None:
    """JetStream was there when the bus was opened. Once one knows, nothing is asked until it is made again."""
    async with ends() as one:
        one.server.apis.clear()
        works: list[Work] = [
            lambda it: it.get("k"),
            lambda it: it.put("k", b"v"),
            lambda it: it.put_new("k", b"v"),
            lambda it: it.delete("k"),
            lambda it: it.touch("k", 2),
            lambda it: it.append("k", b"m", ttl=2),
            lambda it: it.read("k"),
        ]
        for work in works:
            one.store.suspend("")
            with pytest.raises(BusLost, match=rf"^{one.bus.url}: no subscriber answers at "):
                await work(one.store)
            sent = len(one.server.last.published)
            with pytest.raises(BusLost, match=rf"^{one.bus.url}: nothing takes what goes to the stream (KV_p|p-logs)$"):
                await work(one.store)
            assert len(one.server.last.published) == sent
            assert not one.bus.alive


# -- what is over ----------------------------------------------------------------------------------


async def test_a_bus_sweeps_from_time_to_time_and_goes_on_when_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all at the same time, and not for ever: the end of the bus is the end of it."""
    pauses = list[float]()

    class Clock(Waits):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(0 if len(pauses) < 4 else 3600)

    monkeypatch.setattr(bus_module, "asyncio", Clock())
    swept = list[int]()
    async with ends() as one:

        def taken(sent: Sent) -> Any:
            swept.append(1)
            return fault(10023)

        one.server.taken = taken
        await one.server.until(lambda: len(swept) == 3)
        assert one.bus._sweeper is not None
        assert not one.bus._sweeper.done()
    assert one.bus._sweeper.cancelled()
    assert all(30 <= pause <= 90 for pause in pauses)


async def test_a_reading_that_stops_in_the_middle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """JetStream has said that there is more, and sends nothing."""
    patience = list[float]()

    class Clock(Waits):
        def timeout(self, seconds: float) -> asyncio.Timeout:
            patience.append(seconds)
            return asyncio.timeout(0)

    monkeypatch.setattr(store, "asyncio", Clock())
    async with ends(CONSUMER_CREATE={"num_pending": 1}) as one:
        one.server.taken = lambda sent: {"seq": 1}
        with pytest.raises(BusLost, match=rf"^{one.bus.url}: JetStream stopped in the middle of reading KV_p"):
            await one.store.sweep()
        assert patience == [5]
        await one.bus._connection.sync()
        boxes = [subject for subject, _ in one.server.last.subscriptions.values()]
        assert one.asked("CONSUMER.CREATE.KV_p")[0]["config"]["deliver_subject"] not in boxes
