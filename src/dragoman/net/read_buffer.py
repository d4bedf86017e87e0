"""The buffer into which every channel of one thread reads.

asyncio gives a plain Protocol a fresh 256 KiB buffer per read, which the allocator may map and unmap each time: two
page faults a message. A BufferedProtocol that lends this buffer costs none, and no memory per channel. The loop fills
the buffer and passes it on in one step, so no other code of the thread runs in between.
"""

from __future__ import annotations

import threading

SIZE = 256 * 1024

_rooms = threading.local()


def read_buffer() -> memoryview:
    """The buffer of this thread. Copy what must be kept before the next read."""
    found: memoryview | None = getattr(_rooms, "view", None)
    if found is None:
        found = _rooms.view = memoryview(bytearray(SIZE))
    return found
