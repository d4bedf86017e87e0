"""Deliveries in place: within one process a message can be taken by its receiver inside the `send` of its sender, which
saves turns of the event loop.

Rules:

- Each has a context of its own, a copy of the sender's, as what the loop runs has. A fault of the receiver goes to the
  loop's exception handler and never to the sender.
- After a number of them the loop runs first, so that calls in a row do not starve it. Deliveries inside one another, by
  calls from one service to the next, are bounded, so that the stack does not overflow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

_What = TypeVar("_What")

IN_A_ROW = 128
"""Deliveries in place of one event loop until it runs."""
NESTED = 8
"""Deliveries in place inside one another."""


class InPlace:
    """The deliveries in place of one event loop."""

    __slots__ = ("_left", "_loop", "_nested")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = IN_A_ROW
        self._nested = 0

    def deliver(self, take: Callable[[_What], object], what: _What) -> bool:
        """Deliver now, by `take(what)`. False: it is the loop's turn to deliver it."""
        if not self._left or self._nested >= NESTED:
            return False
        self._left -= 1
        if not self._left:
            self._loop.call_soon(self._turned)
        self._nested += 1
        try:
            copy_context().run(take, what)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            context = {"message": f"{take!r} raised, which took a message in place", "exception": error}
            self._loop.call_exception_handler(context)
        finally:
            self._nested -= 1
        return True

    def _turned(self) -> None:
        self._left = IN_A_ROW


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, InPlace] = WeakKeyDictionary()


def in_place() -> InPlace:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _LOOPS.get(loop)
    if found is None:
        found = _LOOPS[loop] = InPlace(loop)
    return found
