"""`redis://[user:password@]host[:port][/db][?prefix=dragoman:]`: a bus and a store between machines. `rediss://` for
TLS.

- Keys begin with the prefix; topics with the prefix and the number of the database, because published messages are not
  bound to a database.
- A log is a stream whose ids are the numbers; a Lua script appends to it, bounds it and sets its expiry in one step.
"""

from __future__ import annotations

import ssl
from typing import Any

from ...bus.contract import BusLost, EngineBus
from ...bus.topics import Subscriber, Take
from ...net.urls import parse, read_query
from .connection import (
    Denied,
    RedisConnection,
    RedisEndpoint,
    Script,
    Word,
    endpoint_of,
    in_words,
    share_commands,
    share_pubsub,
)

# -- the store ------------------------------------------------------------------------------------

_APPEND = Script(
    """
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then redis.call('DEL', KEYS[1]) end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last and not (last[2][1] == 'b' and tonumber(last[2][2]) and last[2][3] == 'm') then
  redis.call('DEL', KEYS[1])
  last = nil
end
local number, before = 1, 0
if last then
  number = tonumber(string.match(last[1], '^%d+')) + 1
  before = tonumber(last[2][2]) + #last[2][4]
end
if ARGV[5] ~= '' and number ~= tonumber(ARGV[5]) then return number end
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

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self._connection, self._prefix = connection, prefix

    async def get(self, key: str) -> bytes | None:
        found: bytes | None = await self._ask("GET", self._prefix + key)
        return found

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._ask("SET", self._prefix + key, value, *(() if ttl is None else ("PX", _milliseconds(ttl))))

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        life = () if ttl is None else ("PX", _milliseconds(ttl))
        return await self._ask("SET", self._prefix + key, value, "NX", *life) is not None

    async def delete(self, key: str) -> bool:
        return bool(await self._ask("DEL", self._prefix + key))

    async def touch(self, key: str, ttl: float) -> bool:
        return bool(await self._ask("PEXPIRE", self._prefix + key, _milliseconds(ttl)))

    async def append(
        self,
        log: str,
        message: bytes,
        *,
        ttl: float,
        messages: int = 1_000,
        size: int = 1_048_576,
        number: int | None = None,
    ) -> int:
        given = (message, _milliseconds(ttl), max(1, messages), size, "" if number is None else number)
        try:
            return int(await _APPEND.run(self._connection, [self._prefix + log], *given))
        except Denied as fault:
            raise self._fault(fault) from None

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        found = await self._ask("XRANGE", self._prefix + log, f"{after + 1}-0", "+")
        return [(int(id.partition(b"-")[0]), fields[3]) for id, fields in found or () if fields[::2] == [b"b", b"m"]]

    async def _ask(self, *words: Word) -> Any:
        """Send a command and return its answer; a key of another type counts as missing."""
        try:
            return await self._connection.ask(*words)
        except Denied as fault:
            if "WRONGTYPE" in str(fault):
                return None
            raise self._fault(fault) from None

    def _fault(self, fault: Denied) -> BusLost:
        return BusLost(f"{self._connection.where.shown}: {in_words(fault)}")


# -- the bus --------------------------------------------------------------------------------------


class RedisBus(EngineBus):
    """A `Bus` over Redis."""

    def __init__(self, where: RedisEndpoint, prefix: str) -> None:
        super().__init__(where.shown, "Redis")
        self._topics = f"{prefix}{where.db}:"  # published messages know no database
        self._commands = share_commands(where, "bus")
        self._connection = self._commands.connection
        self._published = share_pubsub(where, "bus")
        self._pubsub = self._published.connection
        self.store: RedisStore | None = RedisStore(self._connection, prefix)

    async def open(self) -> None:
        """Connect. Raises BusLost."""
        try:
            for share in (self._commands, self._published):
                share.watch(self._state)
                await share.open()
            self._state(True, "")
        except BaseException:
            await self.close()
            raise

    def _state(self, alive: bool, why: str) -> None:
        now = self._connection.alive and self._pubsub.alive
        if now or not alive:
            self.change_state(now, why)

    async def publish(self, topic: str, message: bytes) -> None:
        try:
            await self._connection.ask("PUBLISH", self._topics + topic, message)
        except Denied as fault:
            raise BusLost(f"{self.url}: {in_words(fault)}") from None
        self.published += 1

    async def subscribe(self, topic: str, take: Take) -> Subscriber:
        return self._published.keep(await self._pubsub.subscribe(self._topics + topic, self.counted(take)))

    async def close(self) -> None:
        self.alive = False
        await self._published.close()
        await self._commands.close()


async def open(url: str, tls: ssl.SSLContext | None = None) -> RedisBus:
    where = parse(url)
    prefix = read_query(where, "prefix").get("prefix", "dragoman:")
    bus = RedisBus(endpoint_of(where, where.path.strip("/"), tls), prefix)
    await bus.open()
    return bus
