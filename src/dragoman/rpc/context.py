"""The context of a call, for handler parameters annotated `Context`.

In `async def` its methods are awaited; in a plain function, which runs in a worker thread, they
block. This module imports no asyncio: the `Site`, where the call runs, knows about loops.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import UNSET

from ..channel import Caller
from ..jsonrpc.errors import LocalError
from ..jsonrpc.messages import Notification, Request

logger = logging.getLogger("dragoman.calls")


class Site(Protocol):
    """The place where a call runs."""

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end."""

    @property
    def peer(self) -> Any:
        """The `Peer` the call came in on, None where the wire carries no calls back."""

    @property
    def reply_stream(self) -> Callable[[bytes], bool] | None:
        """Carries messages ahead of the answer, if the wire has such a stream for each call."""

    @property
    def cancelled(self) -> bool:
        """The caller has cancelled, gone away, or time is up."""

    def progress(self, message: Request | Notification, value: Any) -> bool:
        """Report the call's progress; False when that was dropped or is not possible on this wire."""

    def speak(self, raw: bytes, method: str) -> bool:
        """Send a message ahead of the answer, to the origin of the call; False when it was dropped."""

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        """Call the caller back: awaitable on the loop, blocking in a thread."""

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        """Several calls back at once: as `ask`, for all their results."""

    def tell(self, context: Context, method: str, params: Any) -> Any:
        """Notify the caller: awaitable on the loop, blocking in a thread."""

    def left(self) -> float | None:
        """Seconds until the call's deadline."""

    def thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Awaitable[Any]:
        """Run a plain function where it may block."""


class Done:
    """An awaitable that is already done."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self.value
        yield

    def __bool__(self) -> bool:
        return bool(self.value)


class Context:
    """One call, as its handler sees it."""

    __slots__ = ("_log", "_site", "message", "state", "where")

    _context_of = "a Service's methods", "from dragoman import Context"
    """Which functions take it, and how it is imported; for the error text of `bind` about a context in the wrong
    place."""

    def __init__(self, message: Request | Notification, site: Site, where: str) -> None:
        self.message = message
        """The request or notification itself, its params still raw."""
        self._site = site
        self.where = where
        """"async", "thread" or "inline"."""
        self.state: dict[str, Any] = {}
        """For middleware: a dict of values for the handler."""
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def method(self) -> str:
        """The method's name, as it was called."""
        return self.message.method

    @property
    def id(self) -> Any:
        """The request's id (int, str or Raw); UNSET for a notification."""
        return UNSET if isinstance(self.message, Notification) else self.message.id

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end: scheme, address, path, headers."""
        return self._site.caller

    @property
    def cancelled(self) -> bool:
        """True once the caller has cancelled, gone away, or time is up. A thread cannot be stopped, so check it
        there."""
        return self._site.cancelled

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers (names in lower case); empty on other wires."""
        return self._site.caller.headers

    @property
    def peer(self) -> Any:
        """The `Peer` this call came in on, to call back; None where the wire carries no calls back (HTTP, UDP)."""
        return self._site.peer

    @property
    def redelivered(self) -> int:
        """How often this call was delivered before; if above 0, the work may already have been done (brokers)."""
        return self._site.caller.redelivered

    @property
    def time_left(self) -> float | None:
        """Seconds until this call's deadline; None without one."""
        return self._site.left()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger ("dragoman.calls") whose lines name the method and the caller."""
        if self._log is None:
            extra = {"method": self.method, "remote": self.caller.remote}
            self._log = logging.LoggerAdapter(logger, extra)
        return self._log

    def progress(self, value: Any) -> Awaitable[bool]:
        """Report the call's progress: any JSON value. `await` it in `async def`; elsewhere it is done at once.

        Returns False when the wire cannot carry it, or drops it because the caller reads too slowly.
        """
        return Done(self._site.progress(self.message, value))

    def speak(self, raw: bytes, method: str = "") -> bool:
        """Send a whole message, as JSON text, ahead of this call's answer, where the call was asked: for protocols
        built on JSON-RPC. `method`: its own, for observers. False when the wire cannot, or drops it because the caller
        reads too slowly."""
        return self._site.speak(raw, method)

    def call(self, method: str, params: Any = UNSET, *, result: Any = Any, timeout: float | Any | None = UNSET) -> Any:
        """Call the caller back on the channel this call came on; this call's own time-out is paused meanwhile.

        Awaited in `async def`; blocks in a plain function. Raises what `Peer.call` raises; LocalError
        if the wire carries no calls back, and in an inline function, which must not wait; and
        `concurrent.futures.CancelledError` in a plain function whose call ends meanwhile.
        """
        self._may_wait()
        return self._site.ask(self, method, params, result, timeout)

    def call_all(
        self, calls: Sequence[tuple[str, Any]], *, result: Any = Any, timeout: float | Any | None = UNSET
    ) -> Any:
        """`call` for several (method, params) at once: their results in order. The first error ends them all."""
        self._may_wait()
        return self._site.ask_all(self, calls, result, timeout)

    def notify(self, method: str, params: Any = UNSET) -> Any:
        """Notify the caller on the channel this call came on. Awaited in `async def`; blocks in a plain function.
        Raises LocalError in the same cases as `call`."""
        self._may_wait()
        return self._site.tell(self, method, params)

    def _may_wait(self) -> None:
        if self.where == "inline":
            raise LocalError(f"{self.method}: an inline function must not wait; register it without inline=True")
