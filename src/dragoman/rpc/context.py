"""The context of a call, for handler parameters annotated `Context`.

In `async def` its methods are awaited; in a plain function, which runs in a worker thread, they
block. This module imports no asyncio: the `Site`, where the call runs, knows about loops.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast
from weakref import WeakKeyDictionary

from msgspec import UNSET, UnsetType

from ..channel import Caller, Identity
from ..jsonrpc.errors import NO_IDENTITY, CallRefused, LocalError, UnfitCaller
from ..jsonrpc.messages import Notification, Request
from .context_members import CONTEXT

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers have it; a bare Context is a Context[Any]

    from ..store.calls import CallStore
    from ..store.contract import Engine
    from .peer import Peer

    State = TypeVar("State", default=Any)
else:
    from typing import TypeVar

    State = TypeVar("State")
    CallStore = Peer = Any  # start-up: annotations resolve at run time, to no more than this

logger: logging.Logger = logging.getLogger("dragoman.calls")


class Site(Protocol):
    """Where a call runs, as its Context sees it."""

    @property
    def service(self) -> Any:
        """The service whose method it is; None without one."""

    @property
    def caller(self) -> Caller:
        """The far end, as the wire knows it."""

    @property
    def peer(self) -> Any:
        """The `Peer` the call came in on; None where the wire carries no calls back."""

    @property
    def reply_stream(self) -> Callable[[bytes], bool] | None:
        """Sends a message ahead of the answer, on a stream of this call; None: the wire has no such streams."""

    @property
    def cancelled(self) -> bool:
        """Whether the caller has cancelled or gone away, or time is up."""

    def progress(self, message: Request | Notification, value: Any) -> bool:
        """Report the call's progress; return False if that was dropped, or is not possible on this wire."""

    def speak(self, raw: bytes, method: str) -> bool:
        """Send a message ahead of the answer, to the origin of the call; return False if it was dropped."""

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        """Call the caller back, and return the result: on the loop an awaitable of it; in a thread this blocks."""

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        """Call the caller back several times at once, and return the results in order, as `ask` does."""

    def ask_elsewhere(self, context: Context, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of `work()`, which gets answers to the call's questions by other requests: on the loop an
        awaitable of it; in a thread this blocks. The call's time-out is paused meanwhile."""

    def notify(self, context: Context, method: str, params: Any) -> Any:
        """Notify the caller: on the loop this returns an awaitable; in a thread it blocks."""

    def left(self) -> float | None:
        """Return the seconds until the call's deadline; None without one."""

    def renew(self) -> None:
        """Begin the call's time-out again, also from a thread."""

    def thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Awaitable[Any]:
        """Run a plain function in a thread, where it may block."""

    def wait(self, work: Any) -> Any:
        """Return the result of a coroutine, for a plain function. The coroutine goes on if the call ends meanwhile."""

    @property
    def state(self) -> Any:
        """What the lifespan of the method's service yielded; None without one."""

    def held(self, life: Any) -> Mapping[Any, Any]:
        """Return the values of a lifespan on the loop of the call."""


class Done:
    """An awaitable that is already done, and says whether something was sent."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value: bool = value

    def __await__(self) -> Generator[Any, None, bool]:
        return self.value
        yield

    def __bool__(self) -> bool:
        return self.value


class Context(Generic[State]):
    """One call, as its handler sees it. `Context[AppState]` says of which type the lifespan's value is."""

    __slots__ = ("_log", "_site", "_where", "message", "values")

    _context_of = "a Service's methods", "from dragoman import Context"
    """The kind of functions that take it, and how it is imported: for the error of `bind` about a function of another
    kind."""
    _in_child = CONTEXT
    """Which of its members a function has in a child process."""

    def __init__(self, message: Request | Notification, site: Site, where: str) -> None:
        self.message: Request | Notification = message
        """The request or notification itself, its params still raw."""
        self._site = site
        self._where: str = where
        """"async", "thread" or "inline"."""
        self.values: dict[str, Any] = {}
        """Values by name that middleware sets for the handler."""
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    def __repr__(self) -> str:
        return f"<Context of {getattr(self.message, 'method', '')}>"

    @property
    def method(self) -> str:
        """The method's name, as it was called."""
        return self.message.method

    @property
    def id(self) -> Any:
        """The request's id (int, str or Raw); UNSET for a notification."""
        return UNSET if isinstance(self.message, Notification) else self.message.id

    @property
    def state(self) -> State:
        """What the lifespan of the service yielded; None without one."""
        found: State = self._site.state
        return found

    @property
    def store(self) -> CallStore:
        """The store of this caller, across calls: by its identity, otherwise by its connection. Raises LocalError
        for an anonymous caller on a wire of exchanges (HTTP), whose call is then answered as forbidden, and in an
        inline function, which must not wait."""
        return store_of(self)

    @property
    def caller(self) -> Caller:
        """The far end, as the wire knows it: scheme, address, path, headers."""
        return self._site.caller

    @property
    def identity(self) -> Identity | None:
        """Who the caller is, as the guard found out; None without a guard."""
        return self._site.caller.identity

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
    def peer(self) -> Peer | None:
        """The `Peer` this call came in on, to call back; None where the wire carries no calls back (HTTP, UDP)."""
        found: Peer | None = self._site.peer
        return found

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
        """Report the call's progress: any JSON value. `await` it in `async def`; elsewhere it is done at once. The
        call's time-out begins again.

        Returns False when the wire cannot carry it, or drops it because the caller reads too slowly.
        """
        return Done(self._site.progress(self.message, value))

    def renew(self) -> None:
        """Begin the time-out of this call again, as `progress` does: its work goes on."""
        self._site.renew()

    def speak(self, raw: bytes, method: str = "") -> bool:
        """Send a whole message, as JSON text, ahead of this call's answer, on the stream of the call: for protocols
        built on JSON-RPC. `method`: that of the message, for observers. Returns False when the wire cannot carry it, or
        drops it because the caller reads too slowly."""
        return self._site.speak(raw, method)

    def call(
        self, method: str, params: Any = UNSET, *, result: Any = Any, timeout: float | UnsetType | None = UNSET
    ) -> Any:
        """Call the caller back on the channel this call came on; this call's own time-out is paused meanwhile.

        Awaited in `async def`; blocks in a plain function. Raises what `Peer.call` raises; LocalError
        if the wire carries no calls back, and in an inline function, which must not wait; and
        `concurrent.futures.CancelledError` in a plain function whose call ends meanwhile.
        """
        self._may_wait()
        return self._site.ask(self, method, params, result, timeout)

    def call_all(
        self, calls: Sequence[tuple[str, Any]], *, result: Any = Any, timeout: float | UnsetType | None = UNSET
    ) -> Any:
        """Call several methods of the caller at once, each given as (method, params), and return their results in
        order. The first error cancels the others. Otherwise as `call`."""
        self._may_wait()
        return self._site.ask_all(self, calls, result, timeout)

    def notify(self, method: str, params: Any = UNSET) -> Awaitable[None]:
        """Notify the caller on the channel this call came on. Awaited in `async def`; blocks in a plain function.

        On a wire that carries no calls back it is sent ahead of this call's answer. Raises LocalError where that cannot
        be, or the caller reads too slowly for more, and in an inline function, which must not wait.
        """
        self._may_wait()
        sent: Awaitable[None] = self._site.notify(self, method, params)
        return sent

    def _may_wait(self) -> None:
        """Raise LocalError in an inline function."""
        if self._where == "inline":
            raise LocalError(f"{self.method}: an inline function must not wait; register it without inline=True")


_connections: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Random names of the peers whose anonymous callers store something."""


@functools.cache
def _process_name(number: int) -> str:
    """Return a random name of this process, unlike those of others that share a store. `number`: its process id, so
    that a fork gets another name."""
    return os.urandom(16).hex()


def store_of(context: Context[Any], session: str = "") -> CallStore:
    """Return the store of a call's caller, for `Context.store`. `session`: the name of a session that outlives
    connections; "" without one. Raises LocalError as `Context.store` does."""
    from ..allowance import owner_of as sharer_of  # noqa: PLC0415  (the store is paid for only by what uses it)
    from ..store.calls import CallStore, owner_of  # noqa: PLC0415  (as above)
    from .binding.results import to_json  # noqa: PLC0415  (as above)

    context._may_wait()
    site, service, identity = context._site, context._site.service, context.caller.identity
    if service is None:
        raise LocalError(f"{context.method}: there is no service here whose store it could be")
    if identity is None and not session:
        if context.peer is not None:
            session = _connections.setdefault(context.peer, os.urandom(16).hex())
        elif context.caller.scheme == "memory":  # a client of this process, whose channel has a name of its own
            session = f"{_process_name(os.getpid())} {context.caller.remote}"
        else:
            raise UnfitCaller(
                f"{context.method}: ctx.store belongs to a caller, and this one is anonymous and has no session: this "
                f"server lets anonymous callers in over {context.caller.scheme or 'this wire'}. Give it auth= or a guard, "
                "so that callers have an identity, or use the store only where ctx.identity is not None",
                CallRefused(NO_IDENTITY),
            )
    return CallStore(
        engine_of(service),
        owner_of(service.name, identity, session),
        service.limits,
        encode=to_json,
        done=(lambda work: work) if context._where == "async" else site.wait,
        longest=None if identity is not None else service.limits.store_session_life,
        stranger=None if identity is not None else sharer_of(context.caller),
    )


def engine_of(service: Any) -> Engine:
    """Return the engine that keeps the store of a service: the one of `serve(store=)`, or else memory."""
    if service._kept_in is not None:
        return cast("Engine", service._kept_in)
    from ..store.opening import open_store  # noqa: PLC0415  (the store is paid for only by what uses it)

    root = service._origin  # a service that is served under other limits is a copy
    if root._kept_in is None:
        root._kept_in = open_store("memory:", service.limits)
    return cast("Engine", root._kept_in)
