"""The requests of one connection that are not started yet: because the limit of running requests is reached, because
the far end does not read its answers, or because the guard decides about them one after another. Pure except for the
guard's task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .admission import PendingAdmission
from .messages import Answer
from .parse import IncomingRequest

_REQUEST = 512
"""Bytes that a request takes beside its body: one read may bring some three thousand."""


class RequestQueue:
    """The waiting requests of one connection, in order. `ask`: asks the guard about one of them."""

    __slots__ = ("_ask", "_requests")

    def __init__(self, ask: Callable[[IncomingRequest], PendingAdmission]) -> None:
        self._ask = ask
        self._requests: deque[IncomingRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def size(self) -> int:
        """The bytes that they take, with as much of their bodies as has come."""
        return sum([len(one.body or b"") for one in self._requests]) + _REQUEST * len(self._requests)

    @property
    def first(self) -> IncomingRequest:
        return self._requests[0]

    def add(self, request: IncomingRequest) -> None:
        """Add a request. If its body is None, nothing follows before the body has come."""
        request.decide()
        self._requests.append(request)

    def next(self) -> tuple[IncomingRequest, Answer | None] | None:
        """Remove the first request: to be started, or to be denied with this answer. None: it must still wait. A denied
        request may lack its body."""
        if not self._requests:
            return None
        request = self._requests[0]
        if request.undecided:
            if request.admission is None:
                request.admission = self._ask(request)
            return None
        if request.body is None and request.denied is None:
            return None
        return self._requests.popleft(), request.denied

    @property
    def wants_body(self) -> bool:
        """Whether only the body of an admitted request is missing."""
        first = self._requests[0]
        return first.body is None and first.admitted is not None

    @property
    def reads_on(self) -> bool:
        """Whether to read on: for a missing body, or to notice that the far end has gone while the guard decides about
        its one complete request."""
        if self.wants_body:
            return True
        if len(self._requests) > 1:
            return False
        only = self._requests[0]
        return only.undecided and only.admission is not None and only.body is not None and only.upgrade is None

    def surplus(self, data: bytes) -> bool:
        """Keep bytes behind the last request for a WebSocket that is not admitted yet; False if it is not one."""
        last = self._requests[-1] if self._requests else None
        if last is None or last.upgrade is None:
            return False
        last.upgrade = (last.upgrade[0], last.upgrade[1] + data)
        return True

    def drop_part(self) -> None:
        """Drop the request whose body will not come."""
        if self._requests and self._requests[-1].body is None:
            self._cancel(self._requests.pop())

    def drop_all(self) -> None:
        """Drop all requests: the connection is over."""
        for request in self._requests:
            self._cancel(request)
        self._requests.clear()

    def _cancel(self, request: IncomingRequest) -> None:
        if request.admission is not None:
            request.admission.cancel()
