"""Bounds the incomplete messages of all channels of one listener, in time and in bytes.

An incomplete message is kept until its end has come. Each is bounded by `limits.message_size`, but there are many
channels, and a far end that never completes its message would hold its part for ever. Rules:

- A message may take `limits.message_timeout` from the first kept part to its end.
- All parts together may have `limits.partial_bytes`. Above that the channel that holds the most is closed, so a flood
  of large parts ends itself, and small messages pass.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..jsonrpc.limits import Limits


class Holder(Protocol):
    """A channel that keeps an incomplete message."""

    def cut_off(self, why: str) -> None:
        """End the channel; `why` is the reason as text."""


class _Part:
    __slots__ = ("message", "since", "size")

    def __init__(self, size: int, message: int | None, since: float) -> None:
        self.size, self.message, self.since = size, message, since


class PartialMessages:
    """The incomplete messages of one listener. Costs nothing while every message comes whole."""

    def __init__(self, limits: Limits) -> None:
        self.size: int = 0
        """Bytes of all parts."""
        self._timeout = limits.message_timeout
        self._most = max(limits.partial_bytes, limits.message_size)
        self._parts: dict[Holder, _Part] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def kept(self, holder: Holder, size: int, message: int | None) -> None:
        """Note that `holder` now keeps `size` bytes of a message. `message`: differs between two messages of it; None:
        the holder watches the time itself."""
        part = self._parts.get(holder)
        if not size:
            if part is not None:
                self.size -= self._parts.pop(holder).size
            return
        if part is None:
            part = self._parts[holder] = _Part(0, message, self._loop.time())
        elif part.message != message:
            part.message, part.since = message, self._loop.time()
        self.size += size - part.size
        part.size = size
        if self.size > self._most:
            self._end(
                max(self._parts, key=lambda one: self._parts[one].size),
                f"it holds the most of {self._most} bytes of messages that came in part (limit partial_bytes)",
            )
        if self._timer is None and self._timeout is not None:
            self._timer = self._loop.call_later(self._timeout / 4, self._sweep, self._timeout)

    def _end(self, holder: Holder, why: str) -> None:
        self.size -= self._parts.pop(holder).size
        holder.cut_off(why)

    def _sweep(self, timeout: float) -> None:
        self._timer = None
        late = self._loop.time() - timeout
        for holder in [one for one, part in self._parts.items() if part.message is not None and part.since <= late]:
            self._end(holder, f"a message did not come to its end within {timeout:g} s (limit message_timeout)")
        if self._parts:
            self._timer = self._loop.call_later(timeout / 4, self._sweep, timeout)

    def close(self) -> None:
        """Stop watching the time: the listener is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
