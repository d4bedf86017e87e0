"""The guard at a door, asked: one way for every wire, whatever the guard does."""

from __future__ import annotations

import asyncio
import logging
import os

from ..channel import Admitted, Denied, Guard, Handshake
from .urls import printable

log = logging.getLogger("dragoman.wire")


async def decide(guard: Guard, handshake: Handshake, timeout: float | None, door: str) -> Admitted | Denied:
    """What a guard says of a caller. One that takes longer than `timeout` seconds denies with 503, one that raises with
    500 and a reference that stands in the log. `door`: which, for the log."""
    try:
        async with asyncio.timeout(timeout):
            return await guard(handshake)
    except TimeoutError:
        log.warning("%s: the guard did not decide within %s s", printable(door), timeout)
        words = "Busy: the guard at the door did not decide in time"
        return Denied(reason=words, status=503, headers=(("Retry-After", "1"),))
    except Exception as error:
        reference = os.urandom(6).hex()
        log.error("%s: the guard raised, reference %s", printable(door), reference, exc_info=error)
        return Denied(reason=f"Internal error; the reference is {reference}", status=500)
