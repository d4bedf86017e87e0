"""Calls that an operator makes from the console's page: one message, as the caller that the console knows.

Rules:

- The caller has the identity with which it came to the console, and no other: with the console's secret alone it has
  none, and may not call what is served behind a guard.
- Each call is a line of the log "dragoman.audit".
- A message gets its answer alone: progress, logs and questions that come before it are dropped.
- A supervisor asks a worker and is answered at once, so there a call is begun, asked for, and ended, by a ticket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType

from ..access import Protectable
from ..channel import Caller, Servable, exchanged
from ..jsonrpc.codec import AnyAnswer, FailedAnswer
from ..jsonrpc.errors import RpcError
from .board import LONGEST, NOT_KILLED, log_act

SCHEME: Final = "console"
"""The wire of such a call, as observers and handlers see it."""
CALLS: Final = 16
"""Calls from the page at once."""
PATIENCE: Final = 30.0
"""Seconds after which a call that no supervisor asks for is dropped."""


class CallState(Struct, frozen=True):
    """What has become of a call. `answer`: its text, once it is done, unless none is owed."""

    done: bool
    answer: Raw | UnsetType = UNSET


class _Call(Struct, eq=False):
    """An `Exchange` whose answer is waited for."""

    request: bytes
    caller: Caller
    answered: asyncio.Future[bytes | None]
    gone: Callable[[], None] | None = None
    acknowledges: bool = True
    dropped: asyncio.TimerHandle | None = None

    def respond(self, answer: AnyAnswer) -> None:
        if not self.answered.done():
            self.answered.set_result(answer.text if type(answer) is FailedAnswer else answer)

    def stream(self, message: bytes) -> bool:
        return False

    def end(self) -> None:
        """Drop it if it has no answer yet."""
        if self.dropped is not None:
            self.dropped.cancel()
        if (self.answered.cancelled() or self.answered.cancel()) and self.gone is not None:
            self.gone()


class OperatorCalls:
    """The calls from the page in this process. `served`: what is served in it now, by path."""

    def __init__(self, served: Callable[[], Mapping[str, object]]) -> None:
        self._served = served
        self._calls: dict[int, _Call] = {}
        self._tickets = count(1)

    async def call(self, at: str, message: bytes, caller: Caller, by: str) -> bytes | None:
        """Make a call of what is served at a path; return its answer, None where none is owed. `by`: who does it, for
        the log. RpcError if nothing is served there, this caller may not call it, or there are too many."""
        ticket = self._start(at, message, caller, by)
        try:
            return await self._calls[ticket].answered
        finally:
            self.end(ticket)

    def begin(self, at: str, message: bytes, caller: Caller, by: str) -> int:
        """Begin a call, as `call` does, and return its ticket; it is dropped if its state is not read."""
        ticket = self._start(at, message, caller, by)
        self._wait(ticket, self._calls[ticket])
        return ticket

    def _start(self, at: str, message: bytes, caller: Caller, by: str) -> int:
        found = self._served().get("" if at == "/" else at)
        if not isinstance(found, Servable):
            raise not_served(at)
        if caller.identity is None and isinstance(found, Protectable) and (found.protection or found.demanded):
            raise RpcError.of(
                NOT_KILLED,
                f"{found.name} is for callers that say who they are, and the console's secret says nothing of that: "
                "call it with a token at its own address",
            )
        if len(self._calls) >= CALLS:
            raise RpcError.of(NOT_KILLED, f"{CALLS} calls from consoles are in flight, and more are not made")
        log_act("called", by, {"service": found.name, "path": at})
        ticket = next(self._tickets)
        call = self._calls[ticket] = _Call(message, caller, asyncio.get_running_loop().create_future())
        exchanged(found, call)
        return ticket

    def state(self, ticket: int) -> CallState:
        """Return what has become of a call. RpcError if there is none."""
        call = self._calls.get(ticket)
        if call is None or call.answered.cancelled():
            raise RpcError.of(NOT_KILLED, "this call was dropped")
        self._wait(ticket, call)
        if not call.answered.done():
            return CallState(done=False)
        answer = call.answered.result()
        return CallState(done=True, answer=UNSET if answer is None else Raw(answer))

    def end(self, ticket: int) -> bool:
        """Forget a call, and drop it if it is in flight. False if there is none."""
        call = self._calls.pop(ticket, None)
        if call is None:
            return False
        call.end()
        return True

    def _wait(self, ticket: int, call: _Call) -> None:
        if call.dropped is not None:
            call.dropped.cancel()
        call.dropped = asyncio.get_running_loop().call_later(PATIENCE, self.end, ticket)


def not_served(at: str) -> RpcError:
    """The error of a call of what is not served."""
    return RpcError.of(NOT_KILLED, f"nothing is served at {at[:LONGEST]!r}")
