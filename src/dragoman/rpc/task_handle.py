"""A task of the far end, as its caller holds it: `Peer.start` and `Peer.task` return one.

Rules:

- A handle is the task's id and a peer, no more: one that is made of the id on another connection, after a restart or at
  another replica is as good.
- Waiting is done by the far end, in answers that wait for a change. Where each of them takes a connection (HTTP), at
  most `HELD` of one peer do, so that other calls find one; the rest look every `TaskStatus.poll` seconds.
- Waiting goes on while the far end restarts, closes or is busy, for `GIVE_UP` seconds at most; and after an outage of
  the channel, if the peer connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from math import inf
from typing import Any, Final, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..channel import ChannelError
from ..jsonrpc.errors import LSP, BadAnswer, CallTimeout, RpcError
from ..jsonrpc.messages import ErrorObject, Failure
from ..jsonrpc.options import NONE, SECONDS, check
from ..net.reconnect import backoff
from .outbound import decoder_of
from .task_messages import CANCEL, GET, LONGEST_WAIT, RESULT, START, TaskOutcome, TaskStatus

T = TypeVar("T")
S = TypeVar("S", bound=TaskStatus)

HELD: Final = 8
"""Waiting calls of one peer at once, on wires where each takes one of `limits.connections`, of which there are 16."""
MARGIN: Final = 10.0
"""Seconds that the answer of a waiting call may take beyond its wait."""
GIVE_UP: Final = 60.0
"""Seconds for which a call that waits for a task is tried again without an answer: a datagram or two may be lost, each
of which is noticed after half of that."""
LEAST_POLL: Final = 0.05
"""Seconds between two looks at least, whatever the far end says."""
PAUSES: Final = (0.25, 4.0)
"""Seconds until it is tried again: after the first failure, and at most."""
_PASSING: Final = frozenset({LSP.codes["busy"], LSP.codes["draining"]})
"""The codes of refusals that do not last."""

_held: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The waiting calls of each peer."""


class TaskHandle(Generic[T]):
    """A task of the far end. Its methods raise what `Peer.call` raises; InvalidParams (-32602) for a task that is not
    this caller's, or whose time is over."""

    def __init__(self, peer: Any, id: str, result: Any) -> None:
        self.id: str = id
        """Its name, with which it is found again on any connection: `peer.task(id)`. For an anonymous caller it is a
        secret: who knows it has the task."""
        self._peer = peer
        self._decode = decoder_of(result)

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id[:6]}...>"

    async def status(self) -> TaskStatus:
        """Return how it is now."""
        return cast("TaskStatus", await self._peer.call(GET, {"id": self.id}, result=TaskStatus))

    async def cancel(self) -> TaskStatus:
        """Cancel it, and return how it is then: one that had ended stays as it was."""
        return cast("TaskStatus", await self._peer.call(CANCEL, {"id": self.id}, result=TaskStatus))

    async def follow(self) -> AsyncIterator[TaskStatus]:
        """Iterate over how it is, now and after each change, until it has ended; of changes that follow closely on one
        another only the last is seen."""
        status = await self.status()
        yield status
        while not status.ended:
            status = await self.changed(status)
            yield status

    async def changed(self, status: TaskStatus) -> TaskStatus:
        """Return how it is once that is no more as in this status."""
        while not status.ended:
            params = {"id": self.id, "after": status.updated}
            found = await self._wait(GET, params, TaskStatus, None, lambda one: one.updated != status.updated)
            if found.updated != status.updated or found.ended:
                return found
        return status

    async def result(self, *, timeout: float | None = None) -> T:
        """Return the result of its call, once it has ended. `timeout`: seconds to wait for that; None: any.

        Raises the RpcError of its call; RpcError -32800 if it was cancelled; CallTimeout if it has not ended in
        time, which does not cancel it."""
        check("TaskHandle.result", {"timeout": SECONDS | NONE}, {"timeout": timeout})
        end = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            found = await self._wait(RESULT, {"id": self.id}, _Outcome, end, lambda one: False)
            if found.ended:
                return self._outcome(found)
            if end is not None and asyncio.get_running_loop().time() >= end:
                raise CallTimeout(f"the task {self.id[:6]}... of {found.method} has not ended within {timeout} s")

    def _outcome(self, found: _Outcome) -> T:
        """Return the result in an outcome. Raises its error."""
        if not isinstance(found.error, UnsetType):
            try:
                error = msgspec.json.decode(found.error, type=_Error)
            except msgspec.MsgspecError as fault:
                raise BadAnswer(f"{found.method}: the error of its task is no error object: {fault}") from fault
            raise self._peer._errors.raised_by(Failure(ErrorObject(error.code, error.message, error.data)))
        if found.status == "cancelled":
            raise RpcError.of(LSP.codes["cancelled"], "Request cancelled: the task was cancelled")
        if isinstance(found.result, UnsetType):
            raise BadAnswer(f"{found.method}: its task has ended without a result and without an error")
        if self._decode is None:
            return cast("T", found.result)
        try:
            return cast("T", self._decode(found.result))
        except BadAnswer as fault:
            raise BadAnswer(f"{found.method}: {fault}") from fault
        except (msgspec.DecodeError, RecursionError) as fault:
            raise BadAnswer(f"{found.method}: the result does not fit: {fault}") from fault

    async def _wait(
        self, method: str, params: dict[str, Any], kind: type[S], end: float | None, done: Callable[[S], bool]
    ) -> S:
        """Make a call that waits at the far end until the task has ended or `done(answer)`, and return what it answers
        then, or after so long as one answer waits, or at `end` (None: never)."""
        loop = asyncio.get_running_loop()
        failing: float | None = None
        pauses = backoff(*PAUSES)
        while True:
            began = loop.time()
            left = LONGEST_WAIT if end is None else min(LONGEST_WAIT, max(0.0, end - began))
            try:
                found = await self._ask(method, params, kind, left)
            except (RpcError, ChannelError, CallTimeout) as error:
                if (isinstance(error, RpcError) and error.code not in _PASSING) or self._peer.closed:
                    raise
                now = loop.time()
                failing = failing or now
                if self._peer._online is not None:  # the peer connects again
                    failing = None
                if (failing is not None and now - failing > GIVE_UP) or (end is not None and now >= end):
                    raise
                await asyncio.sleep(min(next(pauses), inf if end is None else max(0.0, end - loop.time())))
                continue
            if not found.ended and not done(found):  # it did not wait there, or not as long
                await asyncio.sleep(min(max(found.poll, LEAST_POLL), left) - (loop.time() - began))
            return found

    async def _ask(self, method: str, params: dict[str, Any], kind: type[S], wait: float) -> S:
        """Make a call that waits at the far end for so many seconds, if there is room for it to wait."""
        peer = self._peer
        held = _held.get(peer, 0)
        if held >= HELD and not _is_duplex(peer):
            return cast("S", await peer.call(method, params, result=kind, timeout=MARGIN))
        _held[peer] = held + 1
        try:
            return cast("S", await peer.call(method, {**params, "wait": wait}, result=kind, timeout=wait + MARGIN))
        finally:
            _held[peer] -= 1


class _Outcome(TaskOutcome, frozen=True, kw_only=True):
    """An outcome whose result and error are not decoded yet."""

    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Raw | UnsetType = UNSET


def _is_duplex(peer: Any) -> bool:
    """Whether a waiting call takes no connection of its own."""
    channel = peer._channel
    return channel is None or bool(channel.duplex)


async def start_task(peer: Any, method: str, params: Any, result: Any, timeout: Any, notify: bool) -> TaskHandle[Any]:
    """Start a task, and return its handle once the far end keeps it. Raises what `Peer.call` raises."""
    given: dict[str, Any] = {"method": method}
    if params is not UNSET:
        given["params"] = params
    if notify:
        given["notify"] = True
    handle: TaskHandle[Any] = TaskHandle(peer, "", result)
    handle.id = (await peer.call(START, given, result=TaskStatus, timeout=timeout)).id
    return handle
