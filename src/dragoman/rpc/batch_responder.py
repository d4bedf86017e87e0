"""The answers of one batch: its elements run so many at once, and their answers leave in the order of its requests.

Which of them their caller may not make is known before any of them starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from ..channel import Caller
from ..jsonrpc.errors import CallRefused, Refusal
from ..jsonrpc.messages import Batch, Message, Notification, Request, Single
from .observing import Arrival, Deliver
from .reading import demand

Start: TypeAlias = Callable[[Single, Deliver], None]


class BatchResponder(Struct, eq=False):
    """Collects the answers of one batch, in the order of its requests, running `width` elements at once.

    `start` begins one element, `done` gets the answers and their total bytes, `fault` makes the answer if our own code
    raised. Answers beyond `allowed` bytes in total are not kept, because they will not be sent. `acknowledges`: the
    answers do not wait for the notifications among the elements, which go on.
    """

    messages: Sequence[Single]
    start: Start
    done: Callable[[list[bytes], int], None]
    fault: Callable[[Single, Exception], bytes | None]
    width: int
    allowed: int
    acknowledges: bool = False
    answers: list[bytes | UnsetType | None] = []
    """Of each message; UNSET until it is delivered."""
    size: int = 1
    left: int = 0
    """The elements that are waited for and not delivered."""
    next: int = 0
    running: int = 0
    stepping: bool = False

    def __post_init__(self) -> None:
        self.answers = [UNSET] * len(self.messages)
        self.left = sum(map(self._waited_for, self.messages))

    def _waited_for(self, message: Single) -> bool:
        return not (self.acknowledges and type(message) is Notification)

    def step(self) -> None:
        """Start further elements."""
        if self.stepping:
            return
        self.stepping = True
        while self.next < len(self.messages) and self.running < self.width:
            index = self.next
            self.next += 1
            self.running += 1
            message = self.messages[index]
            try:
                self.start(message, lambda answer, _=None, index=index: self._delivered(index, answer))
            except Exception as error:  # this element's alone
                self._delivered(index, self.fault(message, error))
        self.stepping = False
        if not self.left:
            self.left = -1
            self._finish()

    def _finish(self) -> None:
        try:
            self.done([answer for answer in self.answers if isinstance(answer, bytes)], self.size)
        except Exception as error:
            faults = [answer for message in self.messages if (answer := self.fault(message, error)) is not None]
            self.done(faults, sum(map(len, faults)) + len(faults) + 1)

    def _delivered(self, index: int, answer: bytes | None) -> None:
        if self.answers[index] is not UNSET:
            return
        if answer is not None:
            self.size += len(answer) + 1
            answer = answer if self.size <= self.allowed else b""
        self.answers[index] = answer
        self.running -= 1
        self.left -= self._waited_for(self.messages[index])
        self.step()


def forbidden_batch(message: Message, peer: Any, caller: Caller, raw: bytes) -> Refusal | None:
    """For a wire on which a message is one request: why nothing of it may run, with the scopes of all its calls; None
    if all may be made."""
    table = peer.runner.service
    if table.demanded is None:
        return None
    found = forbidden_among(message.messages if type(message) is Batch else (message,), table, caller, peer)
    if not found:
        return None
    from ..access import union  # noqa: PLC0415  (start-up: for calls that not every caller may make)

    refusal = union(error.refusal for error in found.values())
    refusal = refusal if table.challenge is None else table.challenge(refusal, caller, None)
    if table.watch is not None:
        table.watch.refused(message, peer, caller, None, refusal, raw)
    return refusal


def forbidden_among(messages: Iterable[Any], table: Any, caller: Caller, peer: Any) -> Mapping[int, CallRefused]:
    """The calls and notifications that their caller may not make, by the identity of the message. `table` is that of a
    dispatcher, `peer` the one that they came in on."""
    found: dict[int, CallRefused] = {}
    for message in messages:
        if type(message) is not Request and type(message) is not Notification:
            continue
        try:
            method, routed = table.router(message, caller, peer)
            if method is not None:
                demand(method, routed, caller, table, peer)
        except CallRefused as error:
            if error.refusal.kind == "forbidden":
                found[id(message)] = error
        except Exception:  # it is answered with this when its turn comes
            continue
    return found


def starting(
    messages: Sequence[Single], dispatcher: Any, acceptor: Any, origin: Any, inner: Any, batch: Arrival | None
) -> Start:
    """What starts the elements of a batch, or answers that their caller may not make them. `inner`: their origin."""
    table = dispatcher.table

    def start(message: Single, deliver: Deliver) -> None:
        dispatcher.dispatch(message, acceptor, inner, deliver, batch=batch)

    if table.demanded is None:
        return start
    forbidden = forbidden_among(messages, table, origin.caller, origin.peer)

    def start_or_refuse(message: Single, deliver: Deliver) -> None:
        error = forbidden.get(id(message))
        if error is None:
            start(message, deliver)
            return
        if table.watch is not None:
            seen = None if batch is None else batch.seen
            deliver = table.watch.came_in(message, acceptor, origin.caller, deliver, b"", seen)
        deliver(table.answers.failed(message, error, acceptor.dialect), error.refusal)

    return start_or_refuse
