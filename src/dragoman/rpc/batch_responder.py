"""The answers of one batch: its elements run so many at once, and their answers leave in the order of its requests.

Which of them their caller may not make is known before any of them starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from ..jsonrpc.codec import AnyAnswer, text_of
from ..jsonrpc.messages import Notification, Single
from .observing import Deliver

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
    fault: Callable[[Single, Exception], AnyAnswer]
    width: int
    allowed: int
    acknowledges: bool = False
    answers: list[bytes | UnsetType | None] = []
    """The answer to each message; UNSET until it is delivered."""
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
                self.start(message, partial(self._delivered, index))
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
            found = [text_of(self.fault(message, error)) for message in self.messages]
            faults = [answer for answer in found if answer is not None]
            self.done(faults, sum(map(len, faults)) + len(faults) + 1)

    def _delivered(self, index: int, answer: AnyAnswer) -> None:
        if self.answers[index] is not UNSET:
            return
        text = text_of(answer)
        if text is not None:
            self.size += len(text) + 1
            text = text if self.size <= self.allowed else b""
        self.answers[index] = text
        self.running -= 1
        self.left -= self._waited_for(self.messages[index])
        self.step()
