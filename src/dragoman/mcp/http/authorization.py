"""Closes the long-lived streams of callers whose token expires: a session's GET, a resumed stream, a subscription. The
caller's next request gets the challenge.

A call that began with a valid token finishes, and so does the stream with its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ...channel import Caller

_LONGEST = 86_400.0 * 24
"""Seconds of a timer at most; for a token that is valid for longer it is set again."""


class Expiry:
    """Calls `ended` when the caller's identity expires, unless `cancel` comes first."""

    __slots__ = ("_ended", "_timer", "_until")

    def __init__(self, until: float, ended: Callable[[], None]) -> None:
        self._until, self._ended = until, ended
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def _wait(self) -> None:
        left = self._until - time.time()
        if left <= 0 and self._timer is not None:
            self._timer = None
            self._ended()
            return
        self._timer = asyncio.get_running_loop().call_later(min(max(left, 0.0), _LONGEST), self._wait)

    def cancel(self) -> None:
        """Stop waiting: the stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def start_expiry(caller: Caller, ended: Callable[[], None]) -> Expiry | None:
    """Return a running `Expiry` for a long-lived stream of this caller; None if its identity does not expire."""
    identity = caller.identity
    return None if identity is None or identity.expires_at is None else Expiry(identity.expires_at, ended)
