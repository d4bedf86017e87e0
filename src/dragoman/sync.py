"""The blocking API: `dragoman.sync.connect`, with the names and options of `dragoman.connect`.

    with dragoman.sync.connect("tcp://127.0.0.1:9000") as peer:
        peer.call("subtract", [42, 23])

Rules:

- Asynchronous peers do the work on one loop in a daemon thread, which all share and the first use starts. Any
  number of threads may call at once; a loop in the caller's own thread (a notebook's) does not matter.
- Ctrl-C during a call cancels it, at the far end too, and raises KeyboardInterrupt.
- Callbacks (`service`, `on_progress`, `on_state`, `middleware`, `trace`) run on that loop, plain methods of the service
  in worker threads. A blocking call on the loop itself would wait for itself, so it is a LocalError; handlers there use
  the asynchronous methods (`await context.call(...)`).
- A peer belongs to the process that connected it: after `os.fork` the child must connect again.
- Peers left open are closed when they are garbage-collected, at the latest when the interpreter ends.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import UNSET, UnsetType

from . import connecting as wires
from .channel import Caller
from .doors import public_dir
from .jsonrpc.errors import LocalError
from .jsonrpc.messages import Notification
from .rpc.background import Portal, blocking, run
from .rpc.notifications import Notifications
from .rpc.peer import BatchResult, Peer
from .rpc.proxy import Proxy, proxy

if TYPE_CHECKING:
    from .rpc.event_subscription import EventSubscription, PeerEvent
    from .rpc.task_handle import TaskHandle
    from .rpc.task_messages import TaskStatus
else:
    EventSubscription = PeerEvent = TaskHandle = dict
    TaskStatus = Any  # start-up: annotations resolve at run time, to no more than this

__all__ = ["Answer", "SyncBatch", "SyncEvents", "SyncNotifications", "SyncPeer", "SyncTask", "connect"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

T = TypeVar("T")


class SyncPeer:
    """One end of a channel, blocking. Made by `connect`; a context manager that closes at its end.

    Every method raises the errors of the same method of `dragoman.Peer`, and LocalError on the loop's own thread and in
    a forked child.
    """

    def __init__(self, connecting: wires.Connecting) -> None:
        async def enter() -> Peer:
            return await connecting

        peer = self._peer = run(enter)
        self._portal = Portal("peer", lambda: peer.close(0))

    @overload
    def call(
        self,
        method: str,
        params: Any = ...,
        *,
        result: type[T],
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: Callable[[Any], object] | None = ...,
    ) -> T: ...
    @overload
    def call(
        self,
        method: str,
        params: Any = ...,
        *,
        result: Any = ...,
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: Callable[[Any], object] | None = ...,
    ) -> Any: ...
    def call(
        self,
        method: str,
        params: Any = UNSET,
        *,
        result: Any = Any,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: Callable[[Any], object] | None = None,
    ) -> Any:
        """Call a method of the far end and return its result, decoded as `result`; see `dragoman.Peer.call`."""
        return self._portal.run(
            lambda: self._peer.call(
                method, params, result=result, timeout=timeout, total=total, on_progress=on_progress
            )
        )

    @overload
    def start(
        self,
        method: str,
        params: Any = ...,
        *,
        result: type[T],
        timeout: float | UnsetType | None = ...,
        notify: bool = ...,
    ) -> SyncTask[T]: ...
    @overload
    def start(
        self,
        method: str,
        params: Any = ...,
        *,
        result: Any = ...,
        timeout: float | UnsetType | None = ...,
        notify: bool = ...,
    ) -> SyncTask[Any]: ...
    def start(
        self,
        method: str,
        params: Any = UNSET,
        *,
        result: Any = Any,
        timeout: float | UnsetType | None = UNSET,
        notify: bool = False,
    ) -> SyncTask[Any]:
        """Start a method of the far end as a task, and return its handle once the far end keeps it; see
        `dragoman.Peer.start`."""
        starting = lambda: self._peer.start(method, params, result=result, timeout=timeout, notify=notify)  # noqa: E731
        return SyncTask(self._portal, self._portal.run(starting))

    @overload
    def task(self, id: str, *, result: type[T]) -> SyncTask[T]: ...
    @overload
    def task(self, id: str, *, result: Any = ...) -> SyncTask[Any]: ...
    def task(self, id: str, *, result: Any = Any) -> SyncTask[Any]:
        """Return the handle of a task by its id; see `dragoman.Peer.task`."""
        return SyncTask(self._portal, self._peer.task(id, result=result))

    def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result: Any = Any,
        cursor: str | None = None,
        max_age: float | None = None,
    ) -> SyncEvents:
        """The far end's events of a type, as an iterator that blocks; see `dragoman.Peer.subscribe`. It has begun when
        this returns."""
        found = self._peer.subscribe(name, arguments, result=result, cursor=cursor, max_age=max_age)
        return SyncEvents(self._portal, self._portal.run(found.__aenter__))

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification; returns when the wire has taken it."""
        self._portal.run(lambda: self._peer.notify(method, params))

    def batch(self, *, timeout: float | UnsetType | None = UNSET) -> SyncBatch:
        """Several calls in one message: `with peer.batch() as batch: total = batch.call("sum", [1, 2])`.

        It is sent at the end of the block, which waits for every answer; then `total.result()` gives the result
        or raises the error of that one call.
        """
        return SyncBatch(self, timeout)

    @overload
    def proxy(self, protocol: Callable[..., T], *, prefix: str = "") -> T: ...
    @overload
    def proxy(self, protocol: None = None, *, prefix: str = "") -> Proxy: ...
    def proxy(self, protocol: Any = None, *, prefix: str = "") -> Any:
        """The far end as an object: `peer.proxy(Calculator)` with a Protocol class of plain `def` methods, typed and
        checked by it; without one any attribute is a method, `peer.proxy().math.add(1, 2)` calls `math.add`."""
        return proxy(self.call, protocol, prefix)

    def notifications(self, method: str | None = None) -> SyncNotifications:
        """The far end's notifications from now on, of all methods or of one, as an iterator that blocks.

        It ends when the peer is closed and raises the channel's ending when it is lost.
        """

        async def listen() -> Notifications:
            return self._peer.notifications(method)

        return SyncNotifications(self._portal, self._portal.run(listen))

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end."""
        return self._peer.caller

    @property
    def closed(self) -> bool:
        """True when nothing more can ever be sent."""
        return self._peer.closed or not self._portal.ours

    def close(self, drain: float | None = None) -> None:
        """Let calls that came in end within `drain` seconds, then close. In a forked child it does nothing."""
        self._portal.close(lambda: self._peer.close(drain))

    def __enter__(self) -> SyncPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Sync{repr(self._peer)[1:]}"


class SyncTask(Generic[T]):
    """A task of the far end, blocking; `dragoman.TaskHandle` has what its methods do."""

    def __init__(self, portal: Portal, task: TaskHandle[T]) -> None:
        self._portal = portal
        self._task = task

    def __repr__(self) -> str:
        return f"<SyncTask {self.id[:6]}...>"

    @property
    def id(self) -> str:
        """Its name, with which it is found again on any connection."""
        return self._task.id

    def status(self) -> TaskStatus:
        """Return how it is now."""
        return self._portal.run(self._task.status)

    def cancel(self) -> TaskStatus:
        """Cancel it, and return how it is then."""
        return self._portal.run(self._task.cancel)

    def follow(self) -> Iterator[TaskStatus]:
        """Iterate over how it is, now and after each change, until it has ended."""
        status = self.status()
        yield status
        while not status.ended:
            before = status
            status = self._portal.run(lambda: self._task.changed(before))  # noqa: B023
            yield status

    def result(self, *, timeout: float | None = None) -> T:
        """Return the result of its call once it has ended, or raise its error. `timeout`: seconds to wait."""
        return self._portal.run(lambda: self._task.result(timeout=timeout))


class Answer(Generic[T]):
    """The future outcome of one call of a batch."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._future: BatchResult[Any] | None = None

    def __repr__(self) -> str:
        return f"<Answer of {self._method}{'' if self.done() else ': its batch was not sent yet'}>"

    def done(self) -> bool:
        """True after the batch's block."""
        return self._future is not None

    def result(self) -> T:
        """The result; raises the call's error, or LocalError inside the batch's block, because nothing is sent yet."""
        result: T = self._settled().result()
        return result

    def exception(self) -> BaseException | None:
        """The call's error, or None."""
        return self._settled().exception()

    def _settled(self) -> BatchResult[Any]:
        if self._future is None:
            raise LocalError(f"{self._method}: the batch is sent, and answered, at the end of its block")
        return self._future


class SyncBatch:
    """The calls of one batch. Calls are encoded at the end of the block."""

    def __init__(self, owner: SyncPeer, timeout: float | UnsetType | None) -> None:
        self._owner = owner
        self._timeout = timeout
        self._added: list[tuple[str, Any, Any, Answer[Any] | None]] = []

    @overload
    def call(self, method: str, params: Any = ..., *, result: type[T]) -> Answer[T]: ...
    @overload
    def call(self, method: str, params: Any = ..., *, result: Any = ...) -> Answer[Any]: ...
    def call(self, method: str, params: Any = UNSET, *, result: Any = Any) -> Answer[Any]:
        """Add a call; its result is available after the block."""
        answer: Answer[Any] = Answer(method)
        self._added.append((method, params, result, answer))
        return answer

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Add a notification."""
        self._added.append((method, params, Any, None))

    def __enter__(self) -> SyncBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._added:
            self._owner._portal.run(self._send)

    async def _send(self) -> None:
        futures: list[tuple[Answer[Any], BatchResult[Any]]] = []
        async with self._owner._peer.batch(timeout=self._timeout) as batch:
            for method, params, result, answer in self._added:
                if answer is None:
                    batch.notify(method, params)
                else:
                    futures.append((answer, batch.call(method, params, result=result)))
        for answer, future in futures:
            future.exception()  # marks it as retrieved: perhaps nothing ever awaits it
            answer._future = future


class SyncNotifications:
    """The far end's notifications as a blocking iterator; see `SyncPeer.notifications`. Any thread may take the
    next."""

    def __init__(self, portal: Portal, source: Notifications) -> None:
        self._portal = portal
        self._source = source
        weakref.finalize(self, portal.soon, source.close).atexit = False

    def __iter__(self) -> Iterator[Notification]:
        return self

    def __next__(self) -> Notification:
        return self._portal.take(self._source)

    def close(self) -> None:
        """Unsubscribe; a thread that waits for the next notification gets the end of the iteration."""
        self._portal.soon(self._source.close)


class SyncEvents:
    """The far end's events as a blocking iterator; see `SyncPeer.subscribe`."""

    def __init__(self, portal: Portal, source: EventSubscription[Any]) -> None:
        self._portal = portal
        self._source = source

    def __repr__(self) -> str:
        return f"<SyncEvents {self._source.name}>"

    @property
    def cursor(self) -> str | None:
        """The position up to which the reader has got everything."""
        return self._source.cursor

    @property
    def gaps(self) -> int:
        """How often events were skipped, because the far end did not keep them so long."""
        return self._source.gaps

    def __enter__(self) -> SyncEvents:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[PeerEvent[Any]]:
        return self

    def __next__(self) -> PeerEvent[Any]:
        try:
            return self._portal.run(self._source.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Unsubscribe; a thread that waits for the next event gets the end of the iteration."""
        self._portal.run(self._source.close)


connect = blocking(
    wires.connect,
    SyncPeer,
    "Connect to a URL, or start a command and talk to it: `with connect(...) as peer`, or `peer = connect(...)`.\n\n"
    "    Blocks until it is connected. Options as in `dragoman.connect`; callbacks run on the loop of\n"
    "    `dragoman.sync`, see there. Raises what `dragoman.connect` raises.\n    ",
)
