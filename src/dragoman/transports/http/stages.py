"""The stages of a connection of the native server: what it waits for, and how long."""

from __future__ import annotations

from ...jsonrpc.limits import Limits

NEVER = float("inf")
LINGER = 2.0
"""Seconds for which bytes behind a final answer are read and dropped."""
PROBES = 2
"""How often a far end that has closed its sending side is probed."""
NO_LOOK_YET = 1 << 62
"""More unsent bytes than there can be, before the first look at how many there are."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NOTHING, IDLE, IN_HEAD, IN_BODY, AT_WORK, UNREAD, LINGERING, PROBING, FLUSHING = range(9)
"""The stages of a connection: what it waits for."""


def stage_times(limits: Limits) -> tuple[float | None, ...]:
    """Seconds that each stage may take, by its number; None: no deadline."""
    return (
        None,  # NOTHING: the wake-up is not over
        limits.idle_timeout,  # IDLE: no request has begun
        limits.header_timeout,  # IN_HEAD
        limits.body_timeout,  # IN_BODY
        None,  # AT_WORK: calls and the guard have clocks of their own
        None,  # UNREAD: the far end does not read its answers, which `SendWatch` times
        LINGER,  # LINGERING: what still comes behind the last answer is dropped
        0.0,  # PROBING: a far end that sends nothing more may have gone
        limits.write_timeout,  # FLUSHING: the last bytes are sent
    )
