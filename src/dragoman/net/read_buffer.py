"""The room that every channel of one thread reads into.

asyncio gives a plain Protocol a fresh 256 KiB buffer per read, which the allocator may map and unmap each time: two page
faults a message. A BufferedProtocol that lends this room costs none, and no memory per channel: a loop fills it and
hands it over in one go, so nothing else of its thread can come between.
"""

from __future__ import annotations

import threading

SIZE = 256 * 1024

_rooms = threading.local()


def read_buffer() -> memoryview:
    """The room of this thread. What is kept of it must be copied before the next read."""
    found: memoryview | None = getattr(_rooms, "view", None)
    if found is None:
        found = _rooms.view = memoryview(bytearray(SIZE))
    return found
