"""What sessions on replicas read and write in the store: nothing that is not needed, and nothing that stays."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from dragoman.bus import BusLost
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Options
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2025_11
from dragoman.mcp.server.context import Context
from dragoman.mcp.session import shared
from tests.behind import behind
from tests.transports.ends import PATIENCE, until
from tests.transports.http.ends import face

from ..http_wire import Place, Sitting, body
from ..replicas import Ring, accepted, ring, settled, text

ASKS: dict[str, Any] = {"elicitation": {}}


class Asked:
    """The keys of a session that a replica asked the store for, by operation."""

    def __init__(self, two: Ring, number: int, id: str) -> None:
        self.keys: dict[str, list[str]] = {}
        store: Any = two.buses[number].store
        for name in ("put", "put_new", "append", "touch", "delete"):
            self._watch(store, name, id)

    def _watch(self, store: Any, name: str, id: str) -> None:
        real = getattr(store, name)
        keys = self.keys[name] = []

        async def noting(key: str, *args: Any, **options: Any) -> Any:
            if id in key:
                keys.append(key)
            return await real(key, *args, **options)

        setattr(store, name, noting)

    def all(self, *names: str) -> set[str]:
        return {key for name in names for key in self.keys[name]}


async def answered(two: Ring, sitting: Any) -> None:
    """A question of the first replica, answered through the second."""
    async with two.at(0, sitting).stream(sitting.tool("ask", 5)) as events:
        question = await events.message()
        assert (await two.at(1, sitting).post(accepted(question["id"], city="Ulm"))).status == 202
        assert text(await events.message()) == "Ulm"
        assert await events.message() is None


async def test_a_session_that_was_ended_leaves_nothing_of_its_own() -> None:
    async with ring(2) as two:
        sitting = await two.begin(capabilities=ASKS)
        asked = [Asked(two, number, sitting.id) for number in range(2)]
        async with two.at(0, sitting).get() as home:
            await answered(two, sitting)
            two.servers[0].remove_tool("add")
            assert (await home.message())["method"] == "notifications/tools/list_changed"
            assert (await two.ask(headers=sitting.headers, method="DELETE")).status == 204
        await settled()
        stored = set().union(*(one.all("put", "put_new", "append") for one in asked))
        lasting = {key for key in stored if "/stream/" not in key}  # streams go when their time is over
        assert {key.rpartition("/")[2] for key in lasting} >= {"home", "inbox"}
        assert lasting <= set().union(*(one.all("delete") for one in asked))


async def test_a_session_in_use_is_not_extended_with_every_request() -> None:
    async with ring(1) as one:
        sitting = await one.begin()
        assert (await sitting.post(body("ping"))).status == 200
        asked = Asked(one, 0, sitting.id)
        for _ in range(3):
            assert (await sitting.post(body("ping"))).status == 200
        assert asked.all("touch", "append", "put") == set()


async def test_an_answer_is_kept_for_another_replica_only() -> None:
    """What answers no question of a replica, and what answers a question of the replica that got it, goes nowhere."""
    async with ring(2) as two:
        sitting = await two.begin(capabilities=ASKS)
        asked = Asked(two, 0, sitting.id)
        here = two.at(0, sitting)
        for id in (-1, 2**60, "a"):
            assert (await here.post(accepted(id, city="Ulm"))).status == 202
        async with here.stream(sitting.tool("ask", 5)) as events:
            question = await events.message()
            assert (await here.post(accepted(question["id"], city="Ulm"))).status == 202
            assert text(await events.message()) == "Ulm"
        assert not [key for key in asked.all("append") if key.endswith("inbox")]


async def test_a_stream_that_is_over_before_its_reader_is_known_is_read_to_its_end() -> None:
    """The word of the reader elsewhere comes when the replica that wrote the stream has dropped it."""
    async with ring(2) as two:
        sitting = await two.begin(R2025_11)
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            assert (await events.message())["params"]["progress"] == 1
            last = events.parser.last_id
        bus: Any = two.buses[1]
        publish, held = bus.publish, []

        async def hold(topic: str, message: bytes) -> None:
            held.append((topic, message))

        bus.publish = hold
        async with two.at(1, sitting).get(last) as again:
            await until(lambda: held)
            peers = behind(two.servers[0]).host.peers
            session: Any = next(iter(peers))._channel
            two.stages[0].go.set()
            await until(lambda: not session.streams)
            bus.publish = publish
            for topic, message in held:
                await publish(topic, message)
            async with asyncio.timeout(PATIENCE):
                told = await again.rest()
        assert [one.get("id") for one in told] == [None, 3]


async def test_a_change_that_cannot_be_read_is_read_with_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    async with ring(2) as two:
        sitting = await two.begin()
        for _ in two.places:
            assert (await sitting.post(body("ping"))).status == 200
        store: Any = two.buses[0].store
        read, failed = store.read, 0

        async def away(*args: Any, **options: Any) -> Any:
            nonlocal failed
            failed += 1
            raise BusLost("away")

        store.read = away
        with caplog.at_level(logging.WARNING):
            assert (await two.at(1, sitting).post(body("logging/setLevel", {"level": "error"}))).status == 200
            await until(lambda: failed)
            await settled()
        store.read = read
        assert caplog.records == []
        assert json.loads((await two.at(0, sitting).post(body("ping"))).body)["result"] == {}
        assert next(iter(behind(two.servers[0]).host.peers)).state.log_level == "error"


# -- a store that takes its time, or fails ------------------------------------------------------------


async def test_what_is_said_at_once_is_in_the_store_once_and_in_order() -> None:
    """Each message is stored before it is sent, and a store takes turns of the loop for it."""
    async with ring(2) as two:
        store: Any = two.buses[0].store
        append, stored = store.append, list[bytes]()

        async def slow(log: str, message: bytes, **options: Any) -> int:
            for _ in range(5):
                await asyncio.sleep(0)
            if "/stream/" in log:
                stored.append(message)
            return int(await append(log, message, **options))

        store.append = slow
        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("talk", 3, "t", times=4)) as events:
            *told, answer = await events.rest()
        assert [one["params"]["progress"] for one in told] == [1, 2, 3, 4]
        assert text(answer) == "said"
        assert len(stored) == 6


async def test_a_log_that_cannot_be_read_is_read_when_it_grows(caplog: pytest.LogCaptureFixture) -> None:
    async with ring(2) as two:
        sitting = await two.begin()

        @two.servers[0].tool
        async def talk_thrice(ctx: Context) -> str:
            await ctx.progress(1)
            await two.stages[0].go.wait()
            await ctx.progress(2)
            await two.stages[0].started.wait()
            return "said"

        async with two.at(0, sitting).stream(sitting.tool("talk_thrice", 3, "t")) as events:
            await events.message()
            last = events.parser.last_id
        async with two.at(1, sitting).get(last) as again:
            session: Any = next(iter(behind(two.servers[0]).host.peers))._channel
            await until(lambda: [one.log.reader_at for one in session.streams.values()] != [None])
            await settled()
            store: Any = two.buses[1].store
            read, failed = store.read, list[str]()

            async def lost(log: str, after: int = 0) -> Any:
                failed.append(log)
                raise BusLost("away")

            store.read = lost
            two.stages[0].go.set()
            await until(lambda: failed)
            await settled()
            store.read = read
            two.stages[0].started.set()
            second, answer = await again.rest()
        assert (second["params"]["progress"], text(answer)) == (2, "said")
        assert [one for one in caplog.records if one.levelname == "ERROR"] == []


# -- a stream whose end is not in the store -----------------------------------------------------------


async def given_up(two: Ring, sitting: Any) -> str:
    """A call of the first replica, whose store comes back too late for the answer. Returns the id to resume with."""
    async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last: str = events.parser.last_id
    session: Any = next(iter(behind(two.servers[0]).host.peers))._channel
    await until(lambda: all(stream.cursor is None for stream in session.streams.values()))
    bus, replica = two.buses[0], behind(two.servers[0]).shared
    assert isinstance(bus, MemoryBus)
    assert replica is not None

    async def too_late(seconds: float) -> bool:
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "back", too_late)
        bus.disconnect()
        two.stages[0].go.set()
        await until(lambda: not session.streams)
    bus.connect_again()
    return last


@pytest.mark.parametrize("number", [0, 1], ids=["at the one that ran it", "at another"])
async def test_a_client_that_resumes_for_an_answer_that_was_given_up_is_told(number: int) -> None:
    async with ring(2) as two:
        sitting = await two.begin()
        last = await given_up(two, sitting)
        for at in (number, 1 - number):  # it is told the same wherever it asks again
            async with asyncio.timeout(PATIENCE), two.at(at, sitting).get(last) as again:
                [answer] = await again.rest()
            assert answer["id"] == 3
            assert answer["error"] == {
                "code": -32603,
                "message": "The answer to this call was lost: the store of this server did not take it",
            }


async def test_a_lost_word_that_a_stream_is_over_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "BEAT", 0.05)
    async with ring(2) as two:
        sitting = await two.begin()
        last = await given_up(two, sitting)
        bus: Any = two.buses[0]
        publish, lost = bus.publish, list[bytes]()

        async def lose(topic: str, message: bytes) -> None:
            if b"over" in message and not lost:
                lost.append(message)
            else:
                await publish(topic, message)

        bus.publish = lose
        async with asyncio.timeout(PATIENCE), two.at(1, sitting).get(last) as again:
            [answer] = await again.rest()
        assert (answer["id"], answer["error"]["code"], len(lost)) == (3, -32603, 1)


async def test_a_stream_is_not_over_because_another_endpoint_of_its_replica_does_not_have_it() -> None:
    async with ring(2) as two, face("native", {"/mcp": behind(two.servers[0])}, Options()) as port:
        sitting = await two.begin()
        other = Sitting(Place(port, two.servers[0]), sitting.id, sitting.revision)
        assert (await other.post(body("ping"))).status == 200
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            await events.message()
            last = events.parser.last_id
        async with two.at(1, sitting).get(last) as elsewhere:
            await until(lambda: elsewhere.status == 200)
            await settled()
            async with asyncio.timeout(PATIENCE), other.get(last) as again:
                await until(lambda: again.status == 200)
                await settled()
                two.stages[0].go.set()
                second, answer = await again.rest()
        assert (second["params"]["progress"], text(answer)) == (2, "said")


async def test_a_stream_whose_end_is_on_its_way_while_its_replica_drains_is_not_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "BEAT", 0.05)
    async with ring(2) as two:
        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            await events.message()
            last = events.parser.last_id
        store: Any = two.buses[0].store
        append, held, free = store.append, asyncio.Event(), asyncio.Event()

        async def hold(log: str, message: bytes, **options: Any) -> int:
            held.set()
            await free.wait()
            return int(await append(log, message, **options))

        store.append = hold
        session: Any = next(iter(behind(two.servers[0]).host.peers))._channel
        draining = asyncio.create_task(behind(two.servers[0]).drain(0))
        await held.wait()
        await until(lambda: session.ended)
        async with two.at(1, sitting).get(last) as again:
            await until(lambda: again.status == 200)
            await settled()
            free.set()
            async with asyncio.timeout(PATIENCE):
                [answer] = await again.rest()
        await draining
        assert "draining" in answer["error"]["message"].lower()


async def test_the_reader_of_a_stream_that_was_dropped_is_released() -> None:
    async with ring(2, http=HttpOptions(streams=1)) as two:
        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            await events.message()
            last = events.parser.last_id
        bus: Any = two.buses[1]
        publish, held = bus.publish, []

        async def hold(topic: str, message: bytes) -> None:
            held.append((topic, message))

        bus.publish = hold
        async with two.at(1, sitting).get(last) as again:
            await until(lambda: held)
            two.stages[0].go.set()
            session: Any = next(iter(behind(two.servers[0]).host.peers))._channel
            await until(lambda: not session.streams)
            async with two.at(0, sitting).stream(sitting.tool("talk", 4, "t")) as events:
                await events.rest()
            await settled()
            bus.publish = publish
            for topic, message in held:
                await publish(topic, message)
            async with asyncio.timeout(PATIENCE):
                assert await again.rest() == []
