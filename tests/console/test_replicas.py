"""Servers that share a bus are one picture in the console of each: ids name the process, and orders find it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import RpcError, Service, connect, serve
from dragoman.bus import Bus
from dragoman.bus.memory import MemoryBus
from dragoman.bus.sealed import SealedBus
from dragoman.channel import Caller
from dragoman.console import replicas as shared
from dragoman.console.gathering import FAR, GatheredConsole
from dragoman.console.replicas import AnsweringReplica, Replicas, new_key
from dragoman.jsonrpc.limits import SERVER
from dragoman.serving import Serving

from ..engines.brokers import Engine
from ..engines.wires import PATIENCE, until
from .ends import Ends
from .test_feed import Stream
from .test_opening import ends_of
from .test_workers import peers_of, two_workers

SECRET = "a secret that all replicas have"


@pytest.fixture(params=["memory", "redis"])
def bus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bus that several processes have."""
    if request.param == "memory":
        return f"memory:{uuid.uuid4()}"
    monkeypatch.setenv("DRAGOMAN_SECRET", f"{uuid.uuid4()} {SECRET}".replace(" ", "-"))
    engine: Engine = request.getfixturevalue("redis")
    return engine.url


def api(name: str = "counted") -> Service:
    made = Service(name)

    @made.method
    async def wait() -> None:
        await asyncio.Event().wait()

    @made.method
    async def fail() -> None:
        raise ValueError("not today")

    @made.method(inline=True)
    def who() -> str:
        return name

    return made


class Replica:
    """A server, its console, and a peer of it."""

    def __init__(self, serving: Serving, ends: Ends, peer: Any) -> None:
        self.serving, self.ends, self.peer = serving, ends, peer

    async def key(self) -> str:
        """Its key: the first of what its console shows."""
        key: str = (await self.ends.get("/api/machine"))["processes"][0]["key"]
        return key


@contextlib.asynccontextmanager
async def replica(bus: str | Bus, served: Any = None, url: str = "tcp://127.0.0.1:0") -> AsyncIterator[Replica]:
    """Serve with a console, on a bus."""
    async with (
        serve(served or api(), urls=url, bus=bus, console=0) as serving,
        connect(serving.urls[0]) as peer,
    ):
        assert serving.console is not None
        yield Replica(serving, ends_of(serving.console), peer)


async def machines(ends: Ends, processes: int, missing: int = 0) -> list[dict[str, Any]]:
    """What `machine` lists, once there are so many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await ends.get("/api/machine")
            if (len(found["processes"]), len(found["missing"])) == (processes, missing):
                listed: list[dict[str, Any]] = found["processes"]
                return listed


async def in_flight(ends: Ends, count: int) -> list[dict[str, Any]]:
    """The calls in flight, once there are so many."""
    async with asyncio.timeout(PATIENCE):
        while len(calls := (await ends.get("/api/now?where=1"))["calls"]) != count:
            pass
        return list(calls)


async def test_they_are_one_picture_in_each_console(bus: str) -> None:
    async with replica(bus) as one, replica(bus) as other:
        for ends in (one.ends, other.ends):
            await machines(ends, 2)
        keys = {await one.key(), await other.key()}
        assert len(keys) == 2
        stream = await Stream.open(one.ends)
        await stream.line()
        calls = [asyncio.ensure_future(each.peer.call("wait")) for each in (one, other)]
        for each in (one, other):
            with pytest.raises(RpcError):
                await each.peer.call("fail")
        rows = await stream.rows(2)
        assert {row["id"].partition(":")[0] for row in rows} == keys
        for ends in (one.ends, other.ends):
            now = await in_flight(ends, 2)
            assert {call["worker"] for call in now} == keys == {call["id"].partition(":")[0] for call in now}
            assert all(call["where"]["at"]["function"] for call in now)
            seen = await ends.get("/api/now")
            assert {(state["key"], state["state"], state["ended"]) for state in seen["workers"]} == {
                (key, "serving", 1) for key in keys
            }
            assert {(method["method"], method["count"], method["errors"]) for method in seen["methods"]} == {
                ("fail", 2, 2)
            }
            methods = {method["method"]: method for method in (await ends.get("/api/methods"))["methods"]}
            assert (methods["fail"]["count"], methods["fail"]["failed"]) == (2, 2)
            errors = await ends.get("/api/errors")
            assert {error["id"].partition(":")[0] for error in errors["errors"]} == keys
            assert [group["count"] for group in errors["groups"]] == [2]
            timeline = (await ends.get("/api/timeline?q=method:fail"))["rows"]
            assert {row["id"].partition(":")[0] for row in timeline} == keys
            assert (await ends.get("/api/services"))["services"] == [
                {"path": "/", "name": "counted", "kind": "jsonrpc"}
            ]
            assert [each["name"] for each in (await ends.get("/api/catalog"))["served"]] == ["counted"]
        stream.writer.close()
        for call in calls:
            call.cancel()


async def test_a_call_is_stopped_and_a_connection_ended_where_they_are(
    bus: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    async with replica(bus) as one, replica(bus) as other:
        await machines(one.ends, 2)
        me, far = await one.key(), await other.key()
        call = asyncio.ensure_future(other.peer.call("wait"))
        (seen,) = await in_flight(one.ends, 1)
        assert seen["id"].startswith(f"{far}:")
        unknown = {
            id: f"no call {id} is in flight; `look` lists them" for id in (f"{far}:999999", "web1-1-0000:1", "1")
        }
        assert await one.ends.post("/api/stop", *unknown) == unknown
        assert await one.ends.post("/api/stop", seen["id"]) == {seen["id"]: ""}
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await call
        (line,) = [record.getMessage() for record in caplog.records if "stopped" in record.getMessage()]
        assert f"in the console of {me}" in line
        assert "the console's secret at 127.0.0.1:" in line
        listed = (await one.ends.get("/api/connections"))["connections"]
        (channel,) = [each for each in listed if each["id"].startswith(f"{far}:")]
        again = asyncio.ensure_future(other.peer.call("wait"))
        await in_flight(one.ends, 1)
        assert await one.ends.post("/api/end", channel["id"]) == {channel["id"]: ""}
        with pytest.raises(RpcError, match="closed before"):
            await again


async def test_a_call_from_the_page_is_made_here_or_where_it_is_served(bus: str) -> None:
    web = "http://127.0.0.1:0"
    here, there = {"/a": api("a")}, {"/a": api("other a"), "/b": api("b")}
    async with replica(bus, here, web) as one, replica(bus, there, web):
        await machines(one.ends, 2)
        offered = (await one.ends.get("/api/services"))["services"]
        assert [(each["path"], each["name"]) for each in offered] == [("/a", "a"), ("/a", "other a"), ("/b", "b")]
        ask = b'{"jsonrpc":"2.0","method":"who","id":1}'
        for path, name in (("/a", "a"), ("/b", "b")):
            answer = await one.ends.send(one.ends.request(f"/api/try?at={path}", "POST", ask))
            assert (answer.status, answer.json["result"]) == (200, name)
        none = await one.ends.send(one.ends.request("/api/try?at=/c", "POST", ask))
        assert (none.status, none.json) == (400, {"error": "nothing is served at '/c'"})


async def test_limits_and_what_is_counted_are_told_of_each(bus: str) -> None:
    limited = api()
    async with replica(bus, limited) as one:
        (row,) = await machines(one.ends, 1)
        limits = {limit["name"]: limit for limit in row["limits"]}
        assert set(limits) == set(SERVER.__struct_fields__)
        assert limits["calls"] == {"service": "", "name": "calls", "value": SERVER.calls, "given": False}
        assert row["host"]
        assert row["uptime"] > 0
        assert row["pid"] == os.getpid()
        (on_bus,) = [each for each in row["measures"] if "bus" in each["labels"]]
        assert on_bus["values"]["bus_connected"] == 1
        assert on_bus["url"] == one.serving.bus.url  # type: ignore[union-attr]
        (of_service,) = [
            each
            for each in row["measures"]
            if each["labels"] == {"service": "counted"} and each["values"].get("channels")
        ]
        assert of_service["values"] == {"channels": 1, "calls_waiting": 0}


async def test_limits_that_differ_are_told_of_each_service() -> None:
    first, second = Service("first", limits=SERVER.but(calls=7)), Service("second")
    async with serve(first, second, urls="http://127.0.0.1:0", console=0) as serving:
        assert serving.console is not None
        found = await ends_of(serving.console).get("/api/machine")
        (row,) = found["processes"]
        assert found["missing"] == []
        assert row["key"] == ""
        calls = [limit for limit in row["limits"] if limit["name"] == "calls"]
        assert calls == [
            {"service": "first", "name": "calls", "value": 7, "given": True},
            {"service": "second", "name": "calls", "value": SERVER.calls, "given": False},
        ]


async def test_one_that_is_cut_off_is_missing_until_it_is_back() -> None:
    name = f"{uuid.uuid4()}"
    far = MemoryBus(name)
    async with replica(f"memory:{name}") as one, replica(far) as other:
        await machines(one.ends, 2)
        key, call = await other.key(), asyncio.ensure_future(other.peer.call("wait"))
        (seen,) = await in_flight(one.ends, 1)
        far.disconnect()
        await machines(one.ends, 1, missing=1)
        assert (await one.ends.get("/api/machine"))["missing"] == [key]
        (state,) = [each for each in (await one.ends.get("/api/now"))["workers"] if not each["answers"]]
        assert (state["key"], state["state"]) == (key, "missing")
        assert await one.ends.post("/api/stop", seen["id"]) == {seen["id"]: f"process {key} does not answer"}
        (alone,) = await machines(other.ends, 1, missing=1)  # which has lost the bus itself
        assert alone["key"] == key
        far.connect_again()
        for ends in (one.ends, other.ends):
            await machines(ends, 2)
        assert await one.ends.post("/api/stop", seen["id"]) == {seen["id"]: ""}
        with pytest.raises(RpcError):
            await call
    await far.close()


async def test_one_that_has_ended_is_not_missing(bus: str) -> None:
    async with replica(bus) as one:
        async with replica(bus):
            await machines(one.ends, 2)
        await machines(one.ends, 1)


PROGRAM = """\
import asyncio, sys

from tests.console.test_replicas import api

from dragoman import serve


async def main() -> None:
    async with serve(api(), urls="tcp://127.0.0.1:0", bus=sys.argv[1], console=0) as serving:
        print(serving.urls[0], flush=True)
        await serving.ended()


asyncio.run(main())
"""


async def test_one_that_is_killed_is_missing(redis: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET", f"{uuid.uuid4()}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, redis.url, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        async with replica(redis.url) as one:
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
            (_, there) = await machines(one.ends, 2)
            assert there["pid"] == process.pid
            async with connect(url) as peer:
                call = asyncio.ensure_future(peer.call("wait"))
                (seen,) = await in_flight(one.ends, 1)
                assert seen["worker"] == there["key"]
                process.kill()
                await process.wait()
                await machines(one.ends, 1, missing=1)
                assert (await one.ends.get("/api/now"))["calls"] == []
                assert (await one.ends.get("/api/machine"))["missing"] == [there["key"]]
                with pytest.raises((RpcError, ConnectionError)):
                    await call
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_workers_answer_their_supervisor_by_pipe_and_other_consoles_by_bus(
    redis: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET", f"{uuid.uuid4()}")
    async with two_workers(tmp_path, redis.url) as (ends, url), replica(redis.url) as one:
        peers: list[Any] = []
        pids = set(await peers_of(ends, url, peers))
        of_supervisor = await machines(ends, 4)  # itself, two workers, and the replica
        assert {each["key"] for each in of_supervisor[1:]} == {*(f"{pid}" for pid in pids), await one.key()}
        of_replica = await machines(one.ends, 3)  # itself, and two workers
        assert {each["pid"] for each in of_replica[1:]} == pids
        call = asyncio.ensure_future(peers[0].call("wait"))
        (seen,) = await in_flight(one.ends, 1)
        (same,) = await in_flight(ends, 1)
        assert same["id"] == f"{seen['id'].split('-')[-2]}:{seen['id'].partition(':')[2]}"
        assert await one.ends.post("/api/stop", seen["id"]) == {seen["id"]: ""}
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await call
        here = asyncio.ensure_future(one.peer.call("wait"))
        (seen,) = await in_flight(ends, 1)
        assert await ends.post("/api/stop", seen["id"]) == {seen["id"]: ""}
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await here
        for peer in peers:
            await peer.close(0)


async def test_where_strangers_write_each_shows_itself(caplog: pytest.LogCaptureFixture) -> None:
    name = f"{uuid.uuid4()}"
    open_to_all = MemoryBus(name)
    open_to_all.url = "redis://127.0.0.1"
    async with replica(f"memory:{name}") as one, replica(open_to_all) as other:
        await machines(one.ends, 1)
        assert [each["key"] for each in await machines(other.ends, 1)] == [""]
        assert "give all processes the same DRAGOMAN_SECRET" in caplog.text
    await open_to_all.close()


# -- what goes over the bus


class Asked:
    """A process that answers on a bus, and what asks it."""

    def __init__(self, bus: Bus, answering: AnsweringReplica, asking: Replicas) -> None:
        self.bus, self.answering, self.asking = bus, answering, asking


def texts() -> Service:
    made = Service("texts")

    @made.method(inline=True)
    def text(size: int) -> str:
        return "x" * size

    return made


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    """Both ends, on a bus of their own."""
    bus = MemoryBus(f"{uuid.uuid4()}")
    answering = await AnsweringReplica.open(bus, "there-1-0000", "there", texts())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "ANSWER_TIME", 0.1)  # nobody else is there
        asking = await Replicas.open(bus, "here", "me")
        await asking.query(text_of(0))
    yield Asked(bus, answering, asking)
    await asking.close()
    await answering.close()
    await bus.close()


def text_of(size: int) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "text", "params": [size], "id": 1})


async def test_long_answers_come_in_parts(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PART", 1000)
    for size in (0, 900, 5000):
        answer = (await asked.asking.query(text_of(size)))["there-1-0000"]
        assert msgspec.json.decode(answer)["result"] == "x" * size


async def test_too_long_answers_are_errors(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PART", 500)
    monkeypatch.setattr(shared, "ANSWER", 1000)
    answer = (await asked.asking.query(text_of(5000)))["there-1-0000"]
    assert msgspec.json.decode(answer)["error"]["message"] == "it is too long"


async def test_answers_beyond_the_bound_of_all_are_missing(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "ANSWERS", 1000)
    monkeypatch.setattr(shared, "ANSWER_TIME", 0.1)
    assert await asked.asking.query(text_of(5000)) == {"there-1-0000": b""}


async def test_questions_are_bounded(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RpcError, match="at most 524288 bytes"):
        await asked.asking.query(b" " * (shared.QUESTION + 1))
    monkeypatch.setattr(shared, "QUESTIONS", 0)
    with pytest.raises(RpcError, match="asked too much"):
        await asked.asking.query(text_of(2))


async def test_the_same_question_of_several_is_asked_once(asked: Asked) -> None:
    before = asked.answering.answered
    answers = await asyncio.gather(*(asked.asking.query(text_of(7)) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert asked.answering.answered == before + 1
    await asked.asking.query(text_of(7), "there-1-0000")  # an order, after which all may be different
    await asked.asking.query(text_of(7))
    assert asked.answering.answered == before + 3


async def replies(bus: Bus, topic: str) -> list[bytes]:
    found: list[bytes] = []
    await bus.subscribe(topic, found.append)
    return found


REPLY = f"dragoman-console-{'0' * 32}"


@pytest.mark.parametrize(
    ("question", "answered"),
    [
        ([REPLY, 1, "", "", text_of(1)], True),
        ([REPLY, 1, "there-1-0000", "", text_of(1)], True),
        ([REPLY, 1, "", "there", text_of(1)], False),
        ([REPLY, 1, "there-1-0001", "", text_of(1)], False),
        (["mcp-all", 1, "", "", text_of(1)], False),
        ([f"{REPLY}0", 1, "", "", text_of(1)], False),
        ([REPLY, "1", "", "", text_of(1)], False),
        ([REPLY, 1, "", ""], False),
        ([REPLY, 1, "", "", b" " * (shared.QUESTION + 2000)], False),
        ({"reply": REPLY}, False),
        (REPLY, False),
    ],
)
async def test_what_is_no_question_to_it_is_not_answered(asked: Asked, question: Any, answered: bool) -> None:
    before = asked.answering.answered
    found = {topic: await replies(asked.bus, topic) for topic in (REPLY, "mcp-all", f"{REPLY}0")}
    await asked.bus.publish(shared.TOPIC, msgspec.msgpack.encode(question))
    await asked.bus.publish(shared.TOPIC, b"\xff")
    await asked.asking.query(text_of(2))
    assert asked.answering.answered == before + 1 + answered
    assert [len(each) for each in found.values()] == [answered, 0, 0]


async def test_other_methods_than_its_own_are_errors(asked: Asked) -> None:
    message = b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'
    answer = (await asked.asking.query(message))["there-1-0000"]
    assert msgspec.json.decode(answer)["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ([[2, "there-1-0000", 0, 2, b"{"], [2, "there-1-0000", 1, 2, b"}"]], b"{}"),
        ([[9999, "there-1-0001", 0, 1, b"{}"]], b""),  # nobody asked
        ([[2, "there-1-0001", 0, 1, b"{}"]], b""),  # another one was asked
        ([[2, "there-1-0000", 1, 2, b"{}"]], b""),  # the first part is missing
        ([[2, "there-1-0000", 0, 3, b"{"], [2, "there-1-0000", 2, 3, b"}"]], b""),
        ([[2, "there-1-0000", 0, 1_000_000, b"{}"]], b""),
        ([[2, "there-1-0000", 0, 0, b"{}"]], b""),
        ([[2, "there-1-0000", -1, 1, b"{}"]], b""),
        ([[2, "there-1-0000", 0, 1]], b""),
        ([[2, "a key:1", 0, 1, b"{}"]], b""),
    ],
)
async def test_what_is_no_answer_is_dropped(
    parts: list[list[Any]], answer: bytes, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked.answering.close()  # it answers no more, and is known all the same
    await asked.bus.publish(shared.NEWS, msgspec.msgpack.encode(["there-1-0000", "there", False]))
    await asyncio.sleep(0)
    monkeypatch.setattr(shared, "ANSWER_TIME", 0.2)
    asked.asking._numbers = iter([2])  # type: ignore[assignment]
    asking = asyncio.ensure_future(asked.asking.query(text_of(1), "there-1-0000"))
    await asyncio.sleep(0)
    for part in parts:
        await asked.bus.publish(asked.asking._topic, msgspec.msgpack.encode(part))
    assert await asking == {"there-1-0000": answer}
    assert "there-1-0001" not in asked.asking._known


async def test_only_so_many_are_known(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PROCESSES", 2)
    for key in ("a-1-0000", "b-1-0000", "c d"):
        await asked.bus.publish(shared.NEWS, msgspec.msgpack.encode([key, key, False]))
    await asked.asking.query(text_of(1), "there-1-0000")
    assert set(asked.asking._known) == {"there-1-0000", "a-1-0000"}


async def test_a_process_that_is_late_is_waited_for_once_and_forgotten_after_a_while(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked.bus.publish(shared.NEWS, msgspec.msgpack.encode(["gone-1-0000", "gone", False]))
    await asked.asking.query(text_of(0), "there-1-0000")
    assert asked.asking._known.keys() == {"gone-1-0000", "there-1-0000"}
    monkeypatch.setattr(shared, "ANSWER_TIME", 0.2)
    assert (await asked.asking.query(text_of(1)))["gone-1-0000"] == b""
    monkeypatch.setattr(shared, "ANSWER_TIME", 600.0)
    async with asyncio.timeout(PATIENCE):  # it is not waited for again
        assert (await asked.asking.query(text_of(2)))["gone-1-0000"] == b""
        monkeypatch.setattr(shared, "FORGOTTEN", 0.0)
        assert (await asked.asking.query(text_of(3))).keys() == {"there-1-0000"}


async def test_a_bus_that_hangs_fills_no_memory(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    await asked.asking.query(text_of(0))
    publish = asked.bus.publish
    hung = asyncio.Event()

    async def hang(topic: str, message: bytes) -> None:
        if topic == REPLY:
            await hung.wait()
        await publish(topic, message)

    monkeypatch.setattr(asked.bus, "publish", hang)
    before, last = asked.answering.answered, await replies(asked.bus, "last")
    for number in range(shared.ANSWERING * 2):
        await publish(shared.TOPIC, msgspec.msgpack.encode([REPLY, number, "", "", text_of(1)]))
    await publish("last", b"")
    await until(lambda: len(last) == 1)
    assert asked.answering.answered == before + shared.ANSWERING
    assert len(asked.answering._tasks) == shared.ANSWERING


async def test_over_a_sealed_bus_only_those_with_the_secret_are_answered() -> None:
    name = f"{uuid.uuid4()}"
    bare, ours, theirs = MemoryBus(name), MemoryBus(name), MemoryBus(name)
    sealed, other = SealedBus(ours, [SECRET.encode()]), SealedBus(theirs, [b"another secret of others"])
    answering = await AnsweringReplica.open(sealed, "there-1-0000", "there", texts())
    asking = [await Replicas.open(bus, "here", "me") for bus in (sealed, other, bare)]
    found = [await one.query(text_of(0)) for one in asking]
    assert [one.keys() for one in found] == [{"there-1-0000"}, set(), set()]
    for one in asking:
        await one.close()
    await answering.close()
    for bus in (bare, ours, theirs):
        await bus.close()


def test_keys_are_short_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "wéb 1:x/" + "y" * 100)
    key = new_key()
    assert key.startswith("w_b_1_x_yyy")
    assert len(key) < 70
    assert key != new_key()


# -- the feed


class Played:
    """Processes that answer the feed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.asked: list[Mapping[str, int]] = []

    async def query(self, message: bytes, key: str | None = None) -> dict[str, bytes]:
        (after,) = msgspec.json.decode(message)["params"]
        self.asked.append(after)
        row = {
            "seq": 1, "id": "7", "time": 1.0, "ended": 2.0, "ms": 1.0, "service": "s", "method": "m", "kind": "request",
            "outcome": "result",
        }  # fmt: skip
        tick = {
            "seq": len(self.asked),
            "in_flight": 1,
            "errors": 0,
            "ended": 1,
            "calls": [],
            "rows": [row],
            "missed": 3,
        }
        return {self.key: msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": tick})}


async def test_the_feed_asks_over_the_bus_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    clock: Callable[[], float] = lambda: now  # noqa: E731
    monkeypatch.setattr("dragoman.console.gathering.monotonic", clock)
    near, far = Played("near"), Played("far")
    console = GatheredConsole(near, far=far)
    after: dict[str, int] = {}
    for number, (passed, asked) in enumerate([(0.0, 1), (0.25, 1), (FAR - 0.3, 1), (0.3, 2), (0.1, 2)], 1):
        now += passed
        ticks = await console.tick(after)
        after = {key: tick.seq for key, tick in ticks.items()}
        assert (len(near.asked), len(far.asked)) == (number, asked)
        assert after == {"near": number, "far": asked}
        assert [row.id for row in ticks["near"].rows] == ["near:7"]
        new = passed in (0.0, 0.3)
        assert ([row.id for row in ticks["far"].rows], ticks["far"].missed) == ((["far:7"], 3) if new else ([], 0))
        assert ticks["far"].in_flight == 1
    assert far.asked == [{}, {"near": 3, "far": 1}]


class Other(Played):
    """A process of another version."""

    async def query(self, message: bytes, key: str | None = None) -> dict[str, bytes]:
        answers = {"machine": b'{"result":{"pid":"one"}}', "services": b'{"error":{"code":-32601,"message":"no"}}'}
        method = msgspec.json.decode(message)["method"]
        return {self.key: answers.get(method, b"[")} if key in (None, self.key) else {}


async def test_what_another_version_says_is_passed_over() -> None:
    console = GatheredConsole(Other("other"))
    machines = await console.machine()
    assert (machines.processes, machines.missing) == ([], ["other"])
    assert await console.services() == []
    assert await console.errors() == []
    with pytest.raises(RpcError, match="no process answers now"):
        await console.call("", b"{}", Caller(scheme="console"), "me")
    with pytest.raises(RpcError, match="what process other says cannot be read"):
        await console.kill("other:1")
