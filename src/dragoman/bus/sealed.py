"""A bus whose messages and records are sealed with the secrets of those that serve together (`dragoman.secret`).

Rules:

- A seal is a keyed BLAKE2b over what a record is (a value, a message of a log, a message of a topic), its key, log or
  topic, its number, and its content. So it verifies only where it was written, and not if it was moved, doubled or
  reordered.
- A value has no number. The number of a log's message is that in the log. The number of a topic's message is the time
  of day in nanoseconds, above all earlier ones of its publisher; a subscriber takes none twice, none in another order,
  and none that is older than `OLD`.
- A record that does not verify counts as missing: it is not read, and a new value replaces it. It is logged once a
  minute at most, with a count.
- Nothing is encrypted. One who can write to the engine can delete and hold back records, and can restore an earlier
  value of the same key or an earlier log of the same name. What must not be undone does not belong there.
- The first secret seals, every one opens.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hmac import compare_digest
from typing import Final
from weakref import WeakValueDictionary

from ..net.reconnect import OutageLog
from ..net.urls import scheme_of
from ..observer import Measured
from ..secret import SECRET
from .contract import Bus, Store, Subscription, call_subscriber, log

OLD: Final = 300.0
"""Seconds after which a message of a topic is not taken: the clocks of those that share a bus agree to within that."""
PUBLISHERS: Final = 4_096
"""Publishers whose last number one subscription remembers, so that the longest silent are forgotten first."""
LOGS: Final = 2_000
"""Logs whose last number is remembered, so that appending takes one round trip."""
TRIES: Final = 3
"""How often a value that does not verify is replaced by a new one, if others write there at the same time."""

_MAC: Final = 16
_FORM: Final = b"\x01"
"""How a sealed record begins; one that is not sealed and one of a later form begin otherwise."""
_HEAD: Final = len(_FORM) + _MAC
_NAME: Final = 8
"""Bytes of a publisher's name, and of a number."""
_VALUE, _ENTRY, _MESSAGE = b"v", b"l", b"m"


class PassedOver:
    """Counts and logs the records of one bus that were not taken."""

    def __init__(self, url: str) -> None:
        self.count: int = 0
        self._trouble = OutageLog(url, log)

    def add(self, why: str) -> None:
        """Count and log one record. `why`: what is wrong with it."""
        self.count += 1
        self._trouble.report(
            f"a record there {why}, and is passed over, {self.count} in all: others write to this bus, or have another "
            f"{SECRET}"
        )


class MessageSeal:
    """Seals records, and opens them. `secrets`: the first one seals. `passed_over`: those that did not open."""

    def __init__(self, secrets: Sequence[bytes], passed_over: PassedOver) -> None:
        keys = [hashlib.blake2b(b"dragoman.bus", key=hashlib.sha256(one).digest()).digest()[:32] for one in secrets]
        self._keyed = [hashlib.blake2b(key=key, digest_size=_MAC) for key in keys]
        """Copied for each record: a key costs as much as a short record."""
        self.passed_over: PassedOver = passed_over

    def seal(self, kind: bytes, name: str, number: int, content: bytes) -> bytes:
        """Return a record as it is written."""
        hasher = self._keyed[0].copy()
        hasher.update(b"%b%b\0%b%b" % (kind, name.encode(), number.to_bytes(_NAME, "big"), content))
        return b"%b%b%b" % (_FORM, hasher.digest(), content)

    def open(self, kind: bytes, name: str, number: int, sealed: bytes) -> bytes | None:
        """Return the content of a record; None, which is counted, if it was not sealed for that name and number."""
        content, mac = sealed[_HEAD:], sealed[len(_FORM) : _HEAD]
        if sealed.startswith(_FORM):
            signed = b"%b%b\0%b%b" % (kind, name.encode(), number.to_bytes(_NAME, "big"), content)
            for keyed in self._keyed:
                hasher = keyed.copy()
                hasher.update(signed)
                if compare_digest(hasher.digest(), mac):
                    return content
        self.passed_over.add("is not sealed by this secret for its place")
        return None


class _VerifiedMessages:
    """Passes on the verified messages of one subscription: each publisher's in their order, once."""

    def __init__(
        self, seal: MessageSeal, topic: str, take: Callable[[bytes], object], clock: Callable[[], int]
    ) -> None:
        self._seal, self._topic, self._take, self._clock = seal, topic, take, clock
        self._last: OrderedDict[bytes, int] = OrderedDict()

    def __call__(self, message: bytes) -> None:
        at = _HEAD + _NAME
        number = int.from_bytes(message[_HEAD:at], "big")
        content = self._seal.open(_MESSAGE, self._topic, number, message)
        if content is None:
            return
        publisher = message[at : at + _NAME]
        if number <= self._last.get(publisher, 0) or number < self._clock() - OLD * 1e9:
            self._seal.passed_over.add("came before, or is too old")
            return
        self._last[publisher] = number
        self._last.move_to_end(publisher)
        if len(self._last) > PUBLISHERS:
            self._last.popitem(last=False)
        call_subscriber(self._take, self._topic, message[at + _NAME :])


class SealedBus:
    """A `Bus` that seals what another carries. `inner`: that one. `clock`: nanoseconds since 1970."""

    def __init__(
        self,
        inner: Bus,
        secrets: Sequence[bytes],
        passed_over: PassedOver | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.inner: Bus = inner
        self.url: str = inner.url
        self.secrets: Sequence[bytes] = secrets
        self.passed_over: PassedOver = passed_over or PassedOver(inner.url)
        self._seal = MessageSeal(secrets, self.passed_over)
        self.store: Store | None = None if inner.store is None else SealedStore(inner.store, self._seal)
        self._clock = clock
        self._me = os.urandom(_NAME)
        self._number = 0

    @property
    def alive(self) -> bool:
        """Whether the engine is connected."""
        return self.inner.alive

    @property
    def on_state(self) -> Callable[[bool], object] | None:
        """Called with False when the engine is lost, and with True when it is back."""
        return self.inner.on_state

    @on_state.setter
    def on_state(self, on_state: Callable[[bool], object] | None) -> None:
        self.inner.on_state = on_state

    async def publish(self, topic: str, message: bytes) -> None:
        """Send a message to all subscribers of this moment that have one of the secrets. Raises BusLost."""
        number = self._number = max(self._number + 1, self._clock())
        content = b"%b%b%b" % (number.to_bytes(_NAME, "big"), self._me, message)
        await self.inner.publish(topic, self._seal.seal(_MESSAGE, topic, number, content))

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Subscription:
        """Call `take` with each message from now on that was sealed for this topic. Raises BusLost."""
        return await self.inner.subscribe(topic, _VerifiedMessages(self._seal, topic, take, self._clock))

    async def close(self) -> None:
        """Close the inner bus."""
        await self.inner.close()

    def measures(self) -> Mapping[str, float]:
        """Return the measures of the bus, and how many records did not verify."""
        counts = self.inner.measures() if isinstance(self.inner, Measured) else {}
        return {**counts, "bus_unverified_total": self.passed_over.count}


class SealedStore:
    """A `Store` that seals what another keeps."""

    def __init__(self, store: Store, seal: MessageSeal) -> None:
        self._store, self._seal = store, seal
        self._last: OrderedDict[str, int] = OrderedDict()
        """The number of the newest message of logs, as far as it is known."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get(self, key: str) -> bytes | None:
        found = await self._store.get(key)
        return None if found is None else self._seal.open(_VALUE, key, 0, found)

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._store.put(key, self._seal.seal(_VALUE, key, 0, value), ttl=ttl)

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        sealed = self._seal.seal(_VALUE, key, 0, value)
        for _ in range(TRIES):
            if await self._store.put_new(key, sealed, ttl=ttl):
                return True
            found = await self._store.get(key)
            if found is not None and self._seal.open(_VALUE, key, 0, found) is not None:
                return False
            if found is not None:
                await self._store.delete(key)
        return False

    async def delete(self, key: str) -> bool:
        self._last.pop(key, None)
        return await self._store.delete(key)

    async def touch(self, key: str, ttl: float) -> bool:
        return await self._store.touch(key, ttl)

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
        # one after the other: an append that another process overtakes must seal its message anew
        async with self._locks.setdefault(log, asyncio.Lock()):
            due = number or self._last.pop(log, 0) + 1
            while True:
                sealed = self._seal.seal(_ENTRY, log, due, message)
                found = await self._store.append(log, sealed, ttl=ttl, messages=messages, size=size, number=due)
                if found == due or number is not None:
                    self._know(log, found if found == due else found - 1)
                    return found
                due = found

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        found = await self._store.read(log, after)
        if found:
            self._know(log, found[-1][0])
        opened = ((number, self._seal.open(_ENTRY, log, number, sealed)) for number, sealed in found)
        return [(number, message) for number, message in opened if message is not None]

    def _know(self, log: str, number: int) -> None:
        self._last[log] = number
        self._last.move_to_end(log)
        if len(self._last) > LOGS:
            self._last.popitem(last=False)


def sealed_bus(bus: Bus, secrets: Sequence[bytes]) -> Bus:
    """Return the bus, sealed with these secrets alone; without secrets, unsealed."""
    if not isinstance(bus, SealedBus):
        return SealedBus(bus, secrets) if secrets else bus
    if list(bus.secrets) == list(secrets):
        return bus
    return SealedBus(bus.inner, secrets, bus.passed_over) if secrets else bus.inner


def is_closed(bus: Bus) -> bool:
    """Return whether strangers can write nothing there that is believed: it is sealed, or within this process, or of
    this user alone."""
    return isinstance(bus, SealedBus) or scheme_of(bus.url) in ("memory", "unix")


def warn_unsealed(bus: Bus) -> None:
    """Log that what goes over this bus is not sealed, unless it is closed to strangers."""
    if not is_closed(bus):
        log.warning(
            "%s: what goes over the bus is not sealed, and all that is written there is believed: give all processes the "
            "same %s",
            bus.url,
            SECRET,
        )
