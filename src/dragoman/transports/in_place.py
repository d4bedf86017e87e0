"""Deliveries in place: within one process a message can be taken by its receiver inside the `send` of its sender, which
saves turns of the event loop.

Rules:

- Each runs in a context of its own, a copy of the sender's, as callbacks of the loop do. A fault of the receiver goes
  to the loop's exception handler and never to the sender.
- After a number of them the loop runs first, so that calls in a row do not starve it. Deliveries inside one another, by
  calls from one service to the next, are bounded, so that the stack does not overflow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

_Message = TypeVar("_Message")

IN_A_ROW = 128
"""How many deliveries in place an event loop allows before it runs."""
NESTED = 8
"""How many deliveries in place may run inside one another."""


class InPlace:
    """The deliveries in place of one event loop."""

    __slots__ = ("_left", "_loop", "_nested")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = IN_A_ROW
        self._nested = 0

    def deliver(self, take: Callable[[_Message], object], what: _Message) -> bool:
        """Deliver now, by `take(what)`. False: it is the loop's turn to deliver it."""
        if not self._left or self._nested >= NESTED:
            return False
        self._left -= 1
        if not self._left:
            self._loop.call_soon(self._reset)
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

    def _reset(self) -> None:
        self._left = IN_A_ROW


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, InPlace] = WeakKeyDictionary()


def in_place() -> InPlace:
    """Return the deliveries in place of the running loop."""
    loop = asyncio.get_running_loop()
    found = _LOOPS.get(loop)
    if found is None:
        found = _LOOPS[loop] = InPlace(loop)
    return found
