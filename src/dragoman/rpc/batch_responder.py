"""The answers of one batch: its elements run so many at once, and their answers leave in the order of its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..jsonrpc.messages import Single
from .observing import Deliver

Start: TypeAlias = Callable[[Single, Deliver], None]


class BatchResponder:
    """Collects the answers of one batch, in the order of its requests, running `width` elements at once.

    `start` begins one element, `done` gets the answers and their total bytes, `fault` makes the answer if our own code
    raised. Answers beyond `allowed` bytes in total are not kept, because they will not be sent.
    """

    __slots__ = (
        "allowed",
        "answers",
        "delivered",
        "done",
        "fault",
        "left",
        "messages",
        "next",
        "running",
        "size",
        "start",
        "stepping",
        "width",
    )

    def __init__(
        self,
        messages: Sequence[Single],
        start: Start,
        done: Callable[[list[bytes], int], None],
        fault: Callable[[Single, Exception], bytes | None],
        *,
        width: int,
        allowed: int,
    ) -> None:
        self.messages = messages
        self.start = start
        self.width = width
        self.allowed = allowed
        self.done = done
        self.fault = fault
        self.delivered = bytearray(len(messages))
        self.answers: list[bytes | None] = [None] * len(messages)
        self.size = 1
        self.left = len(messages)
        self.next = 0
        self.running = 0
        self.stepping = False

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
            self.done([answer for answer in self.answers if answer is not None], self.size)
        except Exception as error:
            faults = [answer for message in self.messages if (answer := self.fault(message, error)) is not None]
            self.done(faults, sum(map(len, faults)) + len(faults) + 1)

    def _delivered(self, index: int, answer: bytes | None) -> None:
        if self.delivered[index]:
            return
        self.delivered[index] = True
        if answer is not None:
            self.size += len(answer) + 1
            self.answers[index] = answer if self.size <= self.allowed else b""
        self.running -= 1
        self.left -= 1
        self.step()
