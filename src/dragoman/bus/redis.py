"""`redis://[user:password@]host[:port][/db][?prefix=dragoman:]`: a bus and a store between machines. `rediss://` for TLS.

- Keys begin with the prefix; topics with the prefix and the number of the database, which what is published does
  not know by itself.
- A log is a stream whose ids are the numbers; a Lua script appends, bounds and dates it in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..transports.broker import asked
from ..transports.broker_life import Trouble
from ..transports.urls import parse
from . import BusLost, log
from .redis_line import Denied, Ear, Line, Place, Script, Word, in_words, place
from .topics import Heard, Take

# -- the store ------------------------------------------------------------------------------------

_APPEND = Script(
    """
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then redis.call('DEL', KEYS[1]) end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local number, before = 1, 0
if last then
  number = tonumber(string.match(last[1], '^%d+')) + 1
  before = tonumber(last[2][2]) + #last[2][4]
end
redis.call('XADD', KEYS[1], string.format('%.0f-0', number), 'b', string.format('%.0f', before), 'm', ARGV[1])
local total, kept = before + #ARGV[1], redis.call('XLEN', KEYS[1])
while kept > 1 do
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if kept <= tonumber(ARGV[3]) and total - tonumber(first[2][2]) <= tonumber(ARGV[4]) then break end
  redis.call('XDEL', KEYS[1], first[1])
  kept = kept - 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return number
"""
)
"""Each entry knows how many bytes came before it, so the size of the log is a difference."""


def _milliseconds(ttl: float) -> int:
    return max(1, round(ttl * 1000))


class RedisStore:
    """A `Store` in Redis."""

    def __init__(self, line: Line, prefix: str) -> None:
        self._line, self._prefix = line, prefix

    async def get(self, key: str) -> bytes | None:
        """See `Store.get`."""
        found: bytes | None = await self._ask("GET", self._prefix + key)
        return found

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """See `Store.put`."""
        await self._ask("SET", self._prefix + key, value, *(() if ttl is None else ("PX", _milliseconds(ttl))))

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        """See `Store.put_new`."""
        life = () if ttl is None else ("PX", _milliseconds(ttl))
        return await self._ask("SET", self._prefix + key, value, "NX", *life) is not None

    async def delete(self, key: str) -> bool:
        """See `Store.delete`."""
        return bool(await self._ask("DEL", self._prefix + key))

    async def touch(self, key: str, ttl: float) -> bool:
        """See `Store.touch`."""
        return bool(await self._ask("PEXPIRE", self._prefix + key, _milliseconds(ttl)))

    async def append(
        self, log: str, message: bytes, *, ttl: float, messages: int = 1_000, size: int = 1_048_576
    ) -> int:
        """See `Store.append`."""
        try:
            number = await _APPEND.run(
                self._line, [self._prefix + log], message, _milliseconds(ttl), max(1, messages), size
            )
        except Denied as fault:
            raise self._fault(fault) from None
        return int(number)

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        """See `Store.read`."""
        found = await self._ask("XRANGE", self._prefix + log, f"{after + 1}-0", "+")
        return [(int(id.partition(b"-")[0]), fields[3]) for id, fields in found or ()]

    async def _ask(self, *words: Word) -> Any:
        """What is of another kind is not there."""
        try:
            return await self._line.ask(*words)
        except Denied as fault:
            if "WRONGTYPE" in str(fault):
                return None
            raise self._fault(fault) from None

    def _fault(self, fault: Denied) -> BusLost:
        return BusLost(f"{self._line.where.shown}: {in_words(fault)}")


# -- the bus --------------------------------------------------------------------------------------


class RedisBus:
    """A `Bus` over Redis."""

    def __init__(self, where: Place, prefix: str) -> None:
        self.url = where.shown
        self.alive = False
        self.on_state: Callable[[bool], object] | None = None
        self._topics = f"{prefix}{where.db}:"  # published messages know no database
        self._line = Line(where, on_state=self._state)
        self._trouble = Trouble(self.url, log)
        self._ear = Ear(where, on_state=self._state)
        self.store: RedisStore | None = RedisStore(self._line, prefix)

    async def open(self) -> None:
        """Connect. BusLost."""
        try:
            await self._line.open()
            await self._ear.line.open()
        except BaseException:
            await self.close()
            raise

    def _state(self, alive: bool, why: str) -> None:
        now = self._line.alive and self._ear.line.alive
        if now or not alive:
            self._trouble.stands(now, "Redis", why)
        if now != self.alive:
            self.alive = now
            if self.on_state is not None:
                self.on_state(now)

    async def publish(self, topic: str, message: bytes) -> None:
        """See `Bus.publish`."""
        try:
            await self._line.ask("PUBLISH", self._topics + topic, message)
        except Denied as fault:
            raise BusLost(f"{self.url}: {in_words(fault)}") from None

    async def subscribe(self, topic: str, take: Take) -> Heard:
        """See `Bus.subscribe`."""
        return await self._ear.subscribe(self._topics + topic, take)

    async def close(self) -> None:
        """See `Bus.close`."""
        self.alive = False
        await self._ear.close()
        await self._line.close()


async def open(url: str) -> RedisBus:
    """See `bus.open_bus`."""
    where = parse(url)
    prefix = asked(where, "prefix").get("prefix", "dragoman:")
    bus = RedisBus(place(where, where.path.strip("/")), prefix)
    await bus.open()
    return bus
