"""A service whose one method costs a millisecond of CPU: `dragoman serve bench.servers.burning:api URL --workers N`."""

from __future__ import annotations

import time

from dragoman import Service

COST = 0.001
"""Seconds of CPU."""

api = Service("burning", version="1.0.0")


@api.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    """Work, then subtract."""
    until = time.thread_time() + COST
    while time.thread_time() < until:
        pass
    return minuend - subtrahend
