"""The buffer into which every channel of one thread reads.

asyncio gives a plain Protocol a fresh 256 KiB buffer per read, which the allocator may map and unmap each time: two
page faults a message. A BufferedProtocol that lends this buffer costs none, and no memory per channel. The loop fills
the buffer and passes it on in one step, so no other code of the thread runs in between.

asyncio reads once per wake-up; libuv, and with it uvloop, reads up to 32 times while bytes are there. A channel that
has filled the whole buffer waits for the next turn of the loop (`take_turns`), so that on both the work of a wake-up is
that of `SIZE` bytes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

SIZE = 256 * 1024
"""Bytes of the buffer."""

_buffers = threading.local()


def read_buffer() -> memoryview:
    """Return the buffer of this thread. Copy what must be kept before the next read."""
    found: memoryview | None = getattr(_buffers, "view", None)
    if found is None:
        found = _buffers.view = memoryview(bytearray(SIZE))
    return found


class ReadableTransport(Protocol):
    """A transport, of asyncio or of ours, that can pause."""

    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...


def take_turns(transport: ReadableTransport | None, count: int, resume: Callable[[], object]) -> None:
    """After a read of `count` bytes: if that filled the buffer, pause the transport until the others had their turn.

    `resume` is called then: it resumes reading, unless its owner has another reason to pause.
    """
    if count >= SIZE and transport is not None and transport.is_reading():
        transport.pause_reading()
        asyncio.get_running_loop().call_soon(resume)
