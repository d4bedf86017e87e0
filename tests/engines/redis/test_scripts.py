"""The Lua scripts, each run by a real Redis: what they answer, and what is in the stream afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from dragoman.engines.redis import scripts
from dragoman.engines.redis.connection import RedisConnection, Script, endpoint_of
from dragoman.net.urls import parse
from tests.engines.brokers import Engine, name


class Queue:
    """A request stream of its own with the group `g`."""

    def __init__(self, raw: Any, connection: RedisConnection) -> None:
        self.raw, self.connection, self.key = raw, connection, name("stream")

    async def made(self) -> Queue:
        await self.raw.xgroup_create(self.key, "g", "0", mkstream=True)
        return self

    async def run(self, script: Script, *words: Any, keys: tuple[str, ...] = ()) -> Any:
        return await script.run(self.connection, [self.key, *keys], *words)

    async def add(self, *ids: str, **fields: str) -> None:
        for id in ids:
            await self.raw.xadd(self.key, fields or {"head": f"h{id}", "body": f"b{id}"}, id=id)

    async def take(self, who: str, count: int = 100) -> None:
        """Deliver to a consumer."""
        await self.raw.xreadgroup("g", who, {self.key: ">"}, count=count)

    async def held(self) -> dict[bytes, tuple[bytes, int]]:
        """What is pending: for whom, and how often it was delivered."""
        found = await self.raw.xpending_range(self.key, "g", "-", "+", 100)
        return {one["message_id"]: (one["consumer"], one["times_delivered"]) for one in found}

    async def silent(self, who: str, *ids: str, count: int = 1) -> None:
        """The consumer has these for a minute now, and they were delivered so often."""
        await self.raw.xclaim(self.key, "g", who, 0, list(ids), idle=60_000, retrycount=count)

    async def idle(self) -> dict[bytes, bool]:
        """What is pending: whether nothing was heard of it for a minute."""
        found = await self.raw.xpending_range(self.key, "g", "-", "+", 100)
        return {one["message_id"]: one["time_since_delivered"] >= 60_000 for one in found}

    async def there(self, key: str = "") -> list[tuple[bytes, dict[bytes, bytes]]]:
        found: list[tuple[bytes, dict[bytes, bytes]]] = await self.raw.xrange(key or self.key)
        return found


@pytest.fixture
async def queue(redis: Engine) -> AsyncIterator[Queue]:
    connection = RedisConnection(endpoint_of(parse(redis.url), ""))
    await connection.open()
    async with Redis.from_url(redis.url, protocol=2) as raw:
        yield await Queue(raw, connection).made()
    await connection.close()


def entry(id: str, head: str = "", body: str = "") -> list[Any]:
    """As a script gives it."""
    return [id.encode(), [b"head", (head or f"h{id}").encode(), b"body", (body or f"b{id}").encode()]]


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [scripts.REQUEST, scripts.AGAIN], ids=["first", "again"])
async def test_a_request_is_added_while_there_is_room(script: Script, queue: Queue) -> None:
    again = ('"id":"x"', 60_000) if script is scripts.AGAIN else ()
    assert [await queue.run(script, 2, f"h{n}", f"b{n}", *again) for n in range(4)] == [1, 2, -2, -2]
    assert [fields for _, fields in await queue.there()] == [{b"head": b"h%d" % n, b"body": b"b%d" % n} for n in (0, 1)]
    await queue.raw.delete(queue.key)
    assert await queue.run(script, 2, "h", "b", *again) == 0
    assert await queue.raw.exists(queue.key) == 0


async def test_a_request_that_is_there_is_not_added_again(queue: Queue) -> None:
    """It is looked for in heads, as it is written, and in what is not older than so many milliseconds."""
    found = {'"id":"x."': False, '"id":"b-1"': False, '"id":"c-1"': True}
    await queue.raw.xadd(queue.key, {"body": '"id":"b-1"', "head": '{"id":"c-1","count":1}'})
    await queue.raw.xadd(queue.key, {"other": "x", "head": '{"id":"xy"}', "body": ""})
    for text, there in found.items():
        assert await queue.run(scripts.AGAIN, 100, "h", "b", text, 60_000) == (1 if there else await size(queue))
    count = await size(queue)
    await queue.raw.xadd(queue.key, {"head": '"id":"old"', "body": ""}, id=f"{(await now(queue)) + 3_600_000}-0")
    assert await queue.run(scripts.AGAIN, 100, "h", "b", '"id":"old"', 60_000) == 1
    assert await size(queue) == count + 1
    assert await queue.run(scripts.AGAIN, 100, "h", "b", '"id":"old"', -7_200_000) == count + 2
    assert await queue.run(scripts.AGAIN, 100, "h", "b", '"id":"c-1"', 10**15) == 1


async def size(queue: Queue) -> int:
    count: int = await queue.raw.xlen(queue.key)
    return count


async def now(queue: Queue) -> int:
    seconds, microseconds = await queue.raw.time()
    return int(seconds * 1_000 + microseconds // 1_000)


# -- what was delivered ----------------------------------------------------------------------------


async def test_what_silent_workers_held_is_taken_over(queue: Queue) -> None:
    """Page by page, with how often each was delivered before; what is not there any more is left out."""
    await queue.add("1-1", "2-1", "3-1", "4-1", "5-1")
    await queue.take("ghost", 4)
    await queue.take("lives")
    await queue.silent("ghost", "1-1", "3-1", "4-1", count=3)
    await queue.silent("ghost", "2-1")
    await queue.raw.xdel(queue.key, "3-1")
    cursor, entries, counts = await queue.run(scripts.TAKE_OVER, "g", "me", 30_000, "0-0", 2)
    assert (entries, counts) == ([entry("1-1"), entry("2-1")], [3, 1])
    assert cursor == b"3-1"
    cursor, entries, counts = await queue.run(scripts.TAKE_OVER, "g", "me", 30_000, cursor, 9)
    assert (cursor, entries, counts) == (b"0-0", [entry("4-1")], [3])
    held = await queue.held()
    assert {id: who for id, (who, _) in held.items() if id != b"3-1"} == {
        **dict.fromkeys((b"1-1", b"2-1", b"4-1"), b"me"),
        b"5-1": b"lives",
    }


async def test_what_was_lost_on_the_way_is_fetched(queue: Queue) -> None:
    """It stays counted as often as it was delivered, and is held as if anew."""
    await queue.add("1-1", "2-1", "3-1", "4-1")
    await queue.take("me", 3)
    await queue.take("other")
    await queue.silent("me", "1-1", "2-1", "3-1", count=2)
    await queue.raw.xdel(queue.key, "2-1")
    assert await queue.run(scripts.RECOVER, "g", "me", "-", 2) == [b"2-1", [entry("1-1")], [2]]
    assert await queue.run(scripts.RECOVER, "g", "me", "2-2", 2) == [b"3-1", [entry("3-1")], [2]]
    assert await queue.run(scripts.RECOVER, "g", "me", "3-2", 2) == [b"", [], []]
    held, idle = await queue.held(), await queue.idle()
    assert (held[b"1-1"], held[b"3-1"], held[b"4-1"]) == ((b"me", 2), (b"me", 2), (b"other", 1))
    assert (idle[b"1-1"], idle[b"3-1"]) == (False, False)


async def test_what_is_at_work_is_kept(queue: Queue) -> None:
    """That is not a delivery; what another has, or none, is told."""
    await queue.add("1-1", "2-1", "3-1")
    await queue.take("me", 2)
    await queue.take("other")
    await queue.silent("me", "1-1", "2-1")
    await queue.silent("other", "3-1")
    assert await queue.run(scripts.KEEP, "g", "me", "1-1", "3-1", "9-1") == [b"3-1", b"9-1"]
    assert await queue.held() == {b"1-1": (b"me", 1), b"2-1": (b"me", 1), b"3-1": (b"other", 1)}
    assert await queue.idle() == {b"1-1": False, b"2-1": True, b"3-1": True}
    assert await queue.run(scripts.KEEP, "g", "me", "9-1") == [b"9-1"]
    assert await queue.run(scripts.KEEP, "g", "me") == []


async def test_what_is_given_back_is_last_in_line(queue: Queue) -> None:
    """With another head, and once: not what another has taken over, nor what is not there any more."""
    await queue.add("1-1", "2-1", "3-1")
    await queue.take("me", 2)
    await queue.take("other")
    assert await queue.run(scripts.REQUEUE, "g", "me", "1-1", "new") == 1
    assert await queue.run(scripts.REQUEUE, "g", "me", "1-1", "new") == 0
    assert await queue.run(scripts.REQUEUE, "g", "me", "3-1", "new") == 0
    await queue.raw.xdel(queue.key, "2-1")
    assert await queue.run(scripts.REQUEUE, "g", "me", "2-1", "new") == 0
    first, last = await queue.there()
    assert first[0] == b"3-1"
    assert last[1] == {b"head": b"new", b"body": b"b1-1"}
    assert await queue.held() == {b"3-1": (b"other", 1)}


async def test_what_is_set_aside(queue: Queue) -> None:
    """As it was; of the dead about so many are kept."""
    dead = f"{queue.key}:dead"
    await queue.add("1-1", some="thing")
    await queue.add("2-1")
    await queue.take("me")
    assert await queue.run(scripts.REJECT, "g", "1-1", 10, keys=(dead,)) == 1
    assert await queue.run(scripts.REJECT, "g", "1-1", 10, keys=(dead,)) == 0
    assert [fields for _, fields in await queue.there(dead)] == [{b"some": b"thing"}]
    assert await queue.held() == {b"2-1": (b"me", 1)}
    assert [id for id, _ in await queue.there()] == [b"2-1"]
    for number in range(300):
        await queue.raw.xadd(dead, {"n": str(number)})
    assert await queue.run(scripts.REJECT, "g", "2-1", 10, keys=(dead,)) == 1
    assert 10 <= await queue.raw.xlen(dead) < 200
    assert await queue.there() == []
    assert await queue.held() == {}


async def test_what_has_many_fields_is_set_aside_with_the_first_of_them(queue: Queue) -> None:
    dead = f"{queue.key}:dead"
    await queue.add("1-1", **{f"f{number}": "x" for number in range(9_000)})
    await queue.take("me")
    assert await queue.run(scripts.REJECT, "g", "1-1", 10, keys=(dead,)) == 1
    assert await queue.held() == {}
    assert await queue.there() == []
    (left,) = [fields for _, fields in await queue.there(dead)]
    assert (len(left), left[b"f0"], left[b"f499"]) == (500, b"x", b"x")


async def test_who_leaves_the_group(queue: Queue) -> None:
    """The one that says so, unless something is pending for it."""

    async def consumers() -> set[bytes]:
        return {one["name"] for one in await queue.raw.xinfo_consumers(queue.key, "g")}

    for who in ("busy", "me", "idle"):
        await queue.raw.xgroup_createconsumer(queue.key, "g", who)
    await queue.add("1-1")
    await queue.take("busy")
    for who in ("busy", "me", "none"):
        assert await queue.run(scripts.LEAVE, "g", who) == 0
    assert await consumers() == {b"busy", b"idle"}
