"""Sends to readers that may be slow: a message is sent once its reader has read so far, and what comes after it waits
in the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ..net.reconnect import backoff

PAUSES: Final = (0.05, 2.0)
"""Seconds between two tries to send: the first, and the longest."""


async def send_when_read(say: Callable[[], bool], demand: Callable[[], object]) -> None:
    """Return once a message was sent. `say`: sends it, and returns whether it was accepted; `demand`: called before
    each try, raises where the reader may not have it any more."""
    for pause in backoff(*PAUSES):
        demand()
        if say():
            return
        await asyncio.sleep(pause)
