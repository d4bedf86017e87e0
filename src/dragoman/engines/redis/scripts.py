"""The Lua scripts of `engines.redis.wire`, for what must be done in one step. KEYS[1] is the request stream."""

from __future__ import annotations

from .connection import Script

REQUEST = Script(
    """
local size = redis.call('XLEN', KEYS[1])
if size >= tonumber(ARGV[1]) then return -size end
if redis.call('XADD', KEYS[1], 'NOMKSTREAM', '*', 'head', ARGV[2], 'body', ARGV[3]) then return size + 1 end
return 0
"""
)
"""Most entries, head, body. Returns the size with the new entry; 0 if there is no stream; the negative size of a full
one."""

AGAIN = Script(
    """
local now = redis.call('TIME')
local since = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) - tonumber(ARGV[5])
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], string.format('%.0f', math.max(0, since)), '+')) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'head' and string.find(entry[2][i + 1], ARGV[4], 1, true) then return 1 end
  end
end
local size = redis.call('XLEN', KEYS[1])
if size >= tonumber(ARGV[1]) then return -size end
if redis.call('XADD', KEYS[1], 'NOMKSTREAM', '*', 'head', ARGV[2], 'body', ARGV[3]) then return size + 1 end
return 0
"""
)
"""Like `REQUEST`, for a request that may already be in the stream; further arguments: the text to find in its head, and
milliseconds. Otherwise the copy could run before the first one, which would then run again without a mark."""

TAKE_OVER = Script(
    """
local group, me, idle, cursor, count = unpack(ARGV)
local found = redis.call('XAUTOCLAIM', KEYS[1], group, me, idle, cursor, 'COUNT', count)
local entries, counts = {}, {}
for _, entry in ipairs(found[2]) do
  if entry and entry[2] then
    local pending = redis.call('XPENDING', KEYS[1], group, entry[1], entry[1], 1)[1]
    entries[#entries + 1] = entry
    counts[#counts + 1] = pending[4] - 1
  end
end
return {found[1], entries, counts}
"""
)
"""Group, consumer, milliseconds, where to continue, how many. Returns where to continue next, the entries of workers
that were silent for that long, and how often each was delivered before."""

RECOVER = Script(
    """
local group, me, start, count = unpack(ARGV)
local last, entries, counts = '', {}, {}
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], group, start, '+', count, me)) do
  last = pending[1]
  local entry = redis.call('XCLAIM', KEYS[1], group, me, 0, last, 'RETRYCOUNT', pending[4])[1]
  if entry and entry[2] then
    entries[#entries + 1] = entry
    counts[#counts + 1] = pending[4]
  end
end
return {last, entries, counts}
"""
)
"""Group, consumer, the first id, how many. Returns the last id that was examined, what is pending for this consumer,
and how often each was delivered. Their idle time begins anew: they must not go to another while the rest is fetched."""

KEEP = Script(
    """
local mine, gone = {}, {}
for i = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if pending[1] then mine[#mine + 1] = ARGV[i] else gone[#gone + 1] = ARGV[i] end
end
if #mine > 0 then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(mine), 'JUSTID') end
return gone
"""
)
"""Group, consumer, ids. Restarts their idle time; returns those that are not pending for this consumer."""

REQUEUE = Script(
    """
if not redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2])[1] then return 0 end
local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
if not entry then return 0 end
local body = ''
for i = 1, #entry[2], 2 do if entry[2][i] == 'body' then body = entry[2][i + 1] end end
redis.call('XADD', KEYS[1], '*', 'head', ARGV[4], 'body', body)
return 1
"""
)
"""Group, consumer, id, head. Adds a copy at the end, with another head, if the entry is still this consumer's."""

REJECT = Script(
    """
local entry = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
if entry then redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', unpack(entry[2], 1, math.min(#entry[2], 1000))) end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return redis.call('XDEL', KEYS[1], ARGV[2])
"""
)
"""KEYS[2] is the stream of dead letters; group, id, about how many to keep. Of an entry with more than 500 fields the
rest is left out: Lua passes some 8,000 words to a command, and what cannot be set aside would come again for ever."""

LEAVE = Script(
    """
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local facts = {}
  for i = 1, #one, 2 do facts[one[i]] = one[i + 1] end
  if facts.pending == 0 and (facts.name == ARGV[2] or facts.idle > 3600000) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], facts.name)
  end
end
return 0
"""
)
"""Group, consumer. Deletes the consumer, and those that were silent for an hour, unless they have pending entries."""
