"""The answers of one batch, gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Single
from .run import Deliver

Start: TypeAlias = Callable[[Single, Deliver], None]


class Gathering:
    """The answers of one batch, in the order of its requests, `concurrency` elements at once."""

    __slots__ = (
        "allowed",
        "answers",
        "done",
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
        self, messages: Sequence[Single], start: Start, limits: Limits, done: Callable[[list[bytes], int], None]
    ) -> None:
        self.messages = messages
        self.start = start
        self.width = limits.batch_concurrency
        self.allowed = limits.response_size
        self.done = done
        self.answers: list[bytes | None] = [None] * len(messages)
        self.size = 1
        """Bytes of all of them; what is above `allowed`, and so will not be sent, is not kept."""
        self.left = len(messages)
        self.next = 0
        self.running = 0
        self.stepping = False

    def step(self) -> None:
        """Start what may start."""
        if self.stepping:
            return
        self.stepping = True
        while self.next < len(self.messages) and self.running < self.width:
            index = self.next
            self.next += 1
            self.running += 1
            self.start(self.messages[index], lambda answer, index=index: self._delivered(index, answer))  # type: ignore[misc]
        self.stepping = False
        if not self.left:
            self.left = -1
            self.done([answer for answer in self.answers if answer is not None], self.size)

    def _delivered(self, index: int, answer: bytes | None) -> None:
        if answer is not None:
            self.size += len(answer) + 1
            self.answers[index] = answer if self.size <= self.allowed else b""
        self.running -= 1
        self.left -= 1
        self.step()
